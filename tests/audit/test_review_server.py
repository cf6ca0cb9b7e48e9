"""`noisewise review`: decisions are saved at once and survive a kill, tabs agree, and nobody without the token sees or changes anything."""

import http.client
import http.server
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import threading
import webbrowser
from contextlib import contextmanager

import numpy as np
import pytest
from typer.testing import CliRunner

from noisewise.audit import audit
from noisewise.cli import app
from noisewise.correct import Correction, Decision, correct, read_decisions, review_server
from refused import refused
from waiting import LIMIT, wait_until


@pytest.fixture
def run(digits_run, tmp_path):
    """A copy of the run that a test may write in."""
    return shutil.copytree(digits_run.path, tmp_path / "run")


@contextmanager
def serving(run, digits_audit, **options):
    """A server in a thread, on the audit of the original of a copied run."""
    result = audit(run)
    np.testing.assert_array_equal(result.order, digits_audit.order)
    with review_server(result, **options) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield server
        finally:
            server.shutdown()
            thread.join()


@pytest.fixture
def server(run, digits_audit):
    with serving(run, digits_audit) as started:
        yield started


@pytest.fixture
def context(browser):
    """A browser in which pages ask the server every tenth of a second, instead of every two seconds."""
    context = browser.new_context(reduced_motion="reduce")
    context.add_init_script("{ const every = window.setInterval; window.setInterval = (call, wait) => every(call, wait / 20); }")
    yield context
    context.close()


def decided(page, number):
    """Wait until a page shows that this many labels are decided."""
    page.locator("#progress", has_text=re.compile(f"^{number} of ")).wait_for()  # the page allows no script of a test


def press(page, *keys):
    for key in keys:
        page.keyboard.press(key)


def ask(server, method="GET", path="", *, token=None, body=None, **headers):
    """The status and the body of an answer to a request that is right except for what is given."""
    connection = http.client.HTTPConnection("127.0.0.1", server.server_port, timeout=LIMIT)
    given = {name.replace("_", "-"): value for name, value in headers.items() if value is not None}
    connection.request(method, f"/{server.token if token is None else token}/{path}", body, given)
    answer = connection.getresponse()
    content = answer.read()
    connection.close()
    return answer.status, content


def worst_of(server):
    return int(server.cards.result.index[server.cards.positions[0]])


def step_on(server, since=0):
    """A decision that the server would save."""
    return json.dumps({"entries": [[worst_of(server), "keep", None]], "undo": False, "since": since})


@contextmanager
def command(run, *options):
    """The command in a process of its own, and the address that it prints."""
    arguments = [sys.executable, "-m", "noisewise", "review", run, "--no-browser", *options]
    with subprocess.Popen(arguments, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        try:
            yield process, process.stdout.readline().strip()
        finally:
            process.kill()


def test_decisions_survive_a_reload_and_a_killed_server_and_are_applied_by_finish(context, run, digits_audit, tmp_path):
    worst, file, page = digits_audit.order[:4].tolist(), run / "decisions.jsonl", context.new_page()
    with command(run) as (process, url):
        page.goto(url)
        press(page, "a", "n", "u", "z", "k")
        decided(page, 3)
        wait_until(lambda: len(file.read_text().splitlines()) == 5)
        page.reload()
        decided(page, 3)
        press(page, "z")
        decided(page, 2)
        wait_until(lambda: len(file.read_text().splitlines()) == 6)
        process.send_signal(signal.SIGKILL)
        process.wait()
    assert page.wait_for_selector("#problem:visible").text_content().startswith("The server does not answer")
    with file.open("a") as opened:
        opened.write('{"time": "2026-01-01T00:00:00", "index": 3, "deci')  # as if it had been killed while writing
    assert {index: decision.action for index, decision in read_decisions(file).items()} == {worst[0]: "relabel", worst[1]: "drop"}

    with command(run, "-o", tmp_path / "labels.csv") as (process, url):
        page.goto(url)
        decided(page, 2)
        page.locator("#name", has_text=digits_audit.ids[worst[2]]).wait_for()
        press(page, "z", "k")
        page.click("#finish")
        page.wait_for_selector("#finished:visible")
        output, errors = process.communicate(timeout=LIMIT)
    assert process.returncode == 0, errors
    assert output.splitlines()[-1] == str(tmp_path / "labels.csv") and "Traceback" not in errors
    assert page.text_content("#finished-file") == str(tmp_path / "labels.csv") and "1 relabelled" in page.text_content("#finished-summary")
    corrected = Correction.read(tmp_path / "labels.csv", digits_audit.dynamics.record.classes)
    assert np.flatnonzero(corrected.changed).tolist() == [worst[0]]
    assert corrected.labels[worst[0]] == digits_audit.suggested[worst[0]]


def test_ctrl_c_says_how_to_continue_and_a_command_applies_the_decisions(run, digits_audit, monkeypatch):
    third = next(label for label in range(10) if label not in (digits_audit.given[0], digits_audit.suggested[0]))
    opened = []

    def interrupt(url):
        opened.append(url)
        raise KeyboardInterrupt

    monkeypatch.setattr(webbrowser, "open", interrupt)
    (run / "decisions.jsonl").write_text(json.dumps({"index": 0, "decision": "relabel", "label": str(third)}) + "\n")
    done = CliRunner().invoke(app, ["review", str(run), "--limit", "3"])
    assert done.exit_code == 130 and done.stdout.split() == opened
    assert f"noisewise correct {run} --decisions {run / 'decisions.jsonl'}" in done.stderr
    done = CliRunner().invoke(app, ["correct", str(run), "--decisions", str(run / "decisions.jsonl")])
    assert done.exit_code == 0 and "1 relabelled" in done.stdout
    assert Correction.read(run / "corrected.csv", digits_audit.dynamics.record.classes).labels[0] == third


def test_two_tabs_show_each_others_decisions_and_a_shared_undo(context, server, digits_audit):
    first, second = context.new_page(), context.new_page()
    messages = []
    for page in (first, second):
        page.on("console", lambda message: messages.append(message.text))
        page.on("pageerror", lambda error: messages.append(str(error)))
        page.goto(server.url)
    press(first, "a", "n")
    decided(second, 2)
    press(second, "ArrowRight", "ArrowRight", "k")
    decided(first, 3)
    press(first, "z")
    decided(second, 2)
    assert {decision.action for decision in read_decisions(server.log.path).values()} == {"relabel", "drop"}
    first.wait_for_selector("#image:visible")
    assert first.get_attribute("#image", "src").startswith("image/")
    wait_until(lambda: first.eval_on_selector("#image", "image => image.naturalWidth") == 8)
    press(second, "g")
    second.wait_for_selector("#tiles img")
    ticked = int(second.text_content("#ticked").split()[0])
    press(second, "u")
    decided(first, 2 + ticked)
    press(first, "z")
    decided(second, 2)
    assert messages == []


def test_every_decision_is_on_the_disk_before_it_is_answered(server, monkeypatch):
    written = []
    monkeypatch.setattr(os, "fsync", lambda descriptor: written.append(os.fstat(descriptor).st_size))
    origin = {"Origin": server.origin}
    for number in range(1, 4):
        status, content = ask(server, "POST", "steps", body=step_on(server, number - 1), **origin)
        assert status == 200 and json.loads(content)["version"] == number == len(json.loads(content)["steps"]) + number - 1
        assert server.log.path.stat().st_size in written
    assert len(server.log.path.read_text().splitlines()) == 3


@pytest.mark.parametrize(
    ("wrong", "value"),
    [
        ("token", ""),
        ("token", "x" * 43),
        ("Host", "evil.example:80"),
        ("Host", "127.0.0.1"),
        ("Origin", "http://evil.example"),
        ("Origin", "null"),
        ("Origin", "http://localhost"),
        ("Sec_Fetch_Site", "same-site"),
        ("path", "../settings.json"),
        ("path", "settings.json"),
        ("path", "image/../../settings.json"),
        ("path", "image/0?"),
    ],
)
def test_a_request_that_is_not_right_in_everything_shows_and_changes_nothing(server, wrong, value):
    for method, path, body in (("GET", "", None), ("GET", "image/0", None), ("GET", "steps/0", None), ("POST", "steps", step_on(server))):
        right = {"path": path, "body": body, "Origin": server.origin if method == "POST" else None}
        assert ask(server, method, **{**right, wrong: value}) == (403, b"Forbidden\n")
        assert wrong == "path" or ask(server, method, **{**right, "body": body and "{}"})[0] == (400 if body else 200), (
            "and only that is wrong"
        )
    assert ask(server, "POST", "steps", body=step_on(server))[0] == 403, "a page names its origin"
    assert ask(server, "POST", "finish")[0] == 403
    assert {ask(server, method)[0] for method in ("OPTIONS", "PUT", "DELETE", "HEAD")} == {403}
    assert not server.log.path.exists() and server.written is None


@contextmanager
def other_site(page):
    """Another origin on this machine that serves one page."""

    class Site(http.server.BaseHTTPRequestHandler):
        def do_GET(self):
            self.send_response(200)
            self.send_header("Content-Type", "text/html")
            self.end_headers()
            self.wfile.write(page.encode())

        def log_message(self, *values):
            pass

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Site) as site:
        thread = threading.Thread(target=site.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{site.server_port}/"
        site.shutdown()
        thread.join()


def test_another_origin_cannot_use_the_server_even_with_the_token(context, server):
    step = step_on(server)
    attack = f"""<img src="{server.url}image/0"><iframe src="{server.url}"></iframe>
    <form method="post" enctype="text/plain" action="{server.url}steps" target="frame"><input name='{step[:-1]}, "a": "' value='"}}'></form>
    <iframe name="frame"></iframe><script>
    const read = async (answer) => {{ if (!(await answer.text())) throw Error("it cannot be read"); }};
    const tries = [fetch("{server.url}"), fetch("{server.url}steps/0"), fetch("{server.url}steps", {{method: "POST", body: '{step}'}}),
      fetch("{server.url}steps", {{method: "POST", mode: "no-cors", body: '{step}'}}).then(read),
      fetch("{server.url}finish", {{method: "POST", mode: "no-cors"}}).then(read)];
    document.querySelector("form").submit();
    Promise.allSettled(tries).then((all) => {{ window.outcome = all.map((one) => one.status); }});
    </script>"""
    with other_site(attack) as site:
        page = context.new_page()
        page.goto(site, wait_until="load")
        assert page.wait_for_function("window.outcome").json_value() == ["rejected"] * 5, "nothing can be read"
        assert page.evaluate("document.images[0].naturalWidth") == 0
        framed = page.frames[1]
        assert framed.query_selector("#card, #classes, progress") is None, "the page is not shown in a frame"
    assert not server.log.path.exists() and server.written is None
    assert ask(server, "POST", "steps", body=step, Origin=server.origin)[0] == 200, "only the origin was wrong"
    page.goto(server.url.replace(server.token, "x" * len(server.token)))
    assert page.text_content("body").strip() == "Forbidden"
    page.goto(server.url)
    decided(page, 1)


@pytest.mark.parametrize(
    "decisions",
    [[], [("accept", None)], [("relabel", "a tenth")], [("relabel", None)], [("keep", "3")], [("keep",)], [("keep", None), ("?", None)]],
)
def test_decisions_that_make_no_sense_are_refused_and_not_saved(server, decisions):
    for index in (worst_of(server), str(worst_of(server)), 99999):
        wrong = json.dumps({"entries": [[index, *decision] for decision in decisions], "undo": False, "since": 0})
        status, content = ask(server, "POST", "steps", body=wrong, Origin=server.origin)
        assert status == 400 and "decision" in json.loads(content)["error"] and not server.log.path.exists()


def test_a_server_closes_after_its_last_answer(run, digits_audit, monkeypatch):
    asked, released, answers = threading.Event(), threading.Event(), []
    with serving(run, digits_audit) as server:
        details = server.details
        monkeypatch.setattr(server, "details", lambda numbers: asked.set() or (released.wait(LIMIT) and details(numbers)))
        asking = threading.Thread(target=lambda: answers.append(ask(server, path="details/0")[0]))
        asking.start()
        assert asked.wait(LIMIT)
        threading.Timer(0.3, released.set).start()
    assert released.is_set(), "Python aborts if it ends while a thread runs code of torch"
    asking.join()
    assert answers == [200]


def test_a_finish_that_fails_says_why_and_the_review_continues(context, run, digits_audit, tmp_path):
    (tmp_path / "there").mkdir()
    with serving(run, digits_audit, output=tmp_path / "there/labels.csv") as server:
        page = context.new_page()
        page.goto(server.url)
        press(page, "a")
        decided(page, 1)
        (tmp_path / "there").rmdir()
        page.click("#finish")
        assert "labels.csv" in page.wait_for_selector("#problem:visible").text_content()
        for _ in range(2):  # the page has dealt with the first answer when it asks again
            with page.expect_response("**/steps/1"):
                pass
        assert "labels.csv" in page.wait_for_selector("#problem:visible").text_content(), "the reason stays"
        assert page.is_visible("#review") and server.written is None
        (tmp_path / "there").mkdir()
        page.click("#finish")
        page.wait_for_selector("#finished:visible")
    assert (tmp_path / "there/labels.csv").exists()


def test_a_run_is_reviewed_once_at_a_time_and_only_with_its_own_decisions(run, digits_audit):
    result = audit(run)
    with review_server(result), refused(run, "in use"), review_server(result):
        pass
    position = int(digits_audit.order[0])
    line = {"index": position, "given_label": str((digits_audit.given[position] + 1) % 10), "decision": "keep"}
    (run / "decisions.jsonl").write_text(json.dumps(line) + "\n")
    with refused("given_label", position), review_server(result):
        pass
    for text in ("3\n", '{"index": 1}\n', '{"index": 1, "decision": "maybe"}\n', "{\n{}\n"):
        (run / "decisions.jsonl").write_text(text)
        with refused(run / "decisions.jsonl"), review_server(result):
            pass


def test_the_last_line_on_an_example_counts(digits_audit, tmp_path):
    lines = [(0, "keep", None), (1, "relabel", "3"), (0, "drop", None), (1, "undecided", None), (2, "unsure", None)]
    file = tmp_path / "decisions.jsonl"
    file.write_text("".join(json.dumps({"index": index, "decision": decision, "label": label}) + "\n" for index, decision, label in lines))
    assert read_decisions(file) == {0: Decision("drop"), 2: Decision("unsure")}
    corrected = correct(digits_audit, decisions=read_decisions(file))
    assert np.flatnonzero(corrected.changed).tolist() == [0] and corrected.changes == {"prune": 1}


def test_a_port_in_use_and_options_without_effect_are_refused(server, run, tmp_path):
    other = shutil.copytree(run, tmp_path / "other", ignore=shutil.ignore_patterns("decisions.jsonl"))
    done = CliRunner().invoke(app, ["review", str(other), "--no-browser", "--port", str(server.server_port)])
    assert done.exit_code == 2 and str(server.server_port) in done.stderr
    done = CliRunner().invoke(app, ["review", str(other), "-o", str(tmp_path / "labels.txt")])
    assert done.exit_code == 2 and "labels.txt" in done.stderr
