"""The command line: what it prints and writes, and one line when something is wrong."""

import ast
import csv
import errno
import json
import math
import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis.strategies import text
from typer.testing import CliRunner

import noisewise
from noisewise import data, demo, methods
from noisewise.cli import app
from noisewise.correct import Correction
from noisewise.losses import available
from noisewise.tables import as_cell, from_cell
from waiting import LIMIT, wait_until

run = CliRunner().invoke


def _words(text: str) -> str:
    return " ".join(text.split())


def test_losses_lists_every_loss_at_eighty_columns(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    printed = run(app, ["losses"]).stdout
    first_words = {line.split()[0] for line in printed.splitlines() if line.startswith(" ") and line.strip()}
    assert set(available()) <= first_words
    assert max(map(len, printed.splitlines())) <= 80
    assert "‖∂L/∂s‖₁" in _words(printed)


def test_a_wide_terminal_shows_constraints_and_references(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    printed = run(app, ["losses"]).stdout
    assert "q in (0, 1]" in printed and "reference" in printed


def test_losses_as_json_contain_everything_in_the_table() -> None:
    rows = {row["name"]: row for row in json.loads(run(app, ["losses", "--json"]).stdout)}
    assert sorted(rows) == available()
    assert rows["mae"]["focus"] == 0.5
    assert rows["mae"]["spread"] == pytest.approx(4 / 45)
    (parameter,) = rows["gce"]["parameters"]
    assert parameter.pop("meaning") and parameter == {"name": "q", "default": "0.7", "requirement": "in (0, 1]"}
    assert rows["nce"]["focus"] is None
    assert all(row["value"] and row["emphasis"] and row["reference"] and row["example"] for row in rows.values())


def test_a_single_loss_is_shown_in_full_with_the_numbers_of_its_settings() -> None:
    printed = _words(run(app, ["losses", "gce(q=0.5)"]).stdout)
    assert "l(p) = (1 − p^q) / q" in printed
    assert "q (default 0.7, in (0, 1])" in printed
    assert "gce(q=0.5)" in printed and "focus 0.333" in printed
    assert "NeurIPS 2018" in printed and ">>> GCE(q=0.7)" in printed


@pytest.mark.parametrize("name", available())
def test_every_loss_can_be_shown(name: str) -> None:
    shown = run(app, ["losses", name])
    assert shown.exit_code == 0 and shown.stdout.startswith(f"{name}: ")


def test_methods_lists_every_method_at_eighty_columns(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    printed = run(app, ["methods"]).stdout
    first_words = {line.split()[0] for line in printed.splitlines() if line.startswith(" ") and line.strip()}
    assert set(methods.available()) <= first_words and "trusted labels" in _words(printed)
    assert max(map(len, printed.splitlines())) <= 80
    monkeypatch.setenv("COLUMNS", "200")
    assert "NeurIPS 2018" in run(app, ["methods"]).stdout


def test_methods_as_json_contain_everything_in_the_table() -> None:
    rows = {row["name"]: row for row in json.loads(run(app, ["methods", "--json"]).stdout)}
    assert sorted(rows) == methods.available()
    assert rows["dividemix"]["needs"] == ["2 networks", "2 views of every batch", "whole batches"]
    assert json.loads(run(app, ["methods", "elr(lam=7)", "--json"]).stdout) == rows["elr"]


def test_a_single_method_is_shown_in_full() -> None:
    printed = _words(run(app, ["methods", "co_teaching(rate=0.4)"]).stdout)
    assert printed.startswith("co_teaching: Two networks") and "R(t) = 1 − rate · min(t / warm_up, 1)" in printed
    assert "rate (default 0.2, in [0, 1))" in printed and "the noise rate (`rate`)" in printed and "NeurIPS 2018" in printed


def test_data_list_shows_which_data_sets_are_present(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NOISEWISE_DATA", str(tmp_path))
    monkeypatch.setenv("COLUMNS", "80")
    (tmp_path / "mars").mkdir()
    rows = {row["name"]: row for row in json.loads(run(app, ["data", "list", "--json"]).stdout)}
    assert sorted(rows) == data.available()
    assert {name for name, row in rows.items() if row["present"]} == {"digits", "mars"}
    printed = run(app, ["data", "list"]).stdout
    last_words = {
        line.split()[0]: line.split()[-1] for line in printed.splitlines() if line.startswith(tuple(f" {name} " for name in rows))
    }
    assert (last_words["digits"], last_words["cifar10"], last_words["webvision"]) == ("yes", "no", "request")
    assert max(map(len, printed.splitlines())) <= 80 and "CC BY 4.0" in printed
    elsewhere = json.loads(run(app, ["data", "list", "--json", "--root", str(tmp_path / "empty")]).stdout)
    assert [row["name"] for row in elsewhere if row["present"]] == ["digits"]


def test_data_get_prints_where_the_files_are(tmp_path: Path) -> None:
    (tmp_path / "PKU-Reid").mkdir()
    done = run(app, ["data", "get", "pku_reid", "--root", str(tmp_path)])
    assert done.exit_code == 0 and "pku_reid" in done.stdout and str(tmp_path / "PKU-Reid") in done.stdout
    done = run(app, ["data", "get", "digits"])
    assert done.exit_code == 0 and len(done.stdout.splitlines()) == 1


@pytest.fixture(scope="module")
def demonstrated(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    folder = tmp_path_factory.mktemp("demo") / "out"
    done = run(app, ["demo", "--folder", str(folder)])
    assert done.exit_code == 0, done.stderr
    return folder, done.stdout


def test_the_results_of_the_demo_agree_with_the_papers(demonstrated: tuple[Path, str]) -> None:
    folder, printed = demonstrated
    written = json.loads((folder / "results.json").read_text(encoding="utf-8"))
    assert '<section id="doubt"' in (folder / "report.html").read_text(encoding="utf-8")
    by_loss = {result.pop("loss"): result for result in written["results"]}
    assert list(by_loss) == list(demo.LOSSES)
    assert f"{100 * by_loss['ce']['test']:.1f} %" in printed and str(folder / "runs") in printed.replace("\n", "")
    plain, mae = by_loss.pop("ce"), by_loss.pop("mae")
    assert plain["noisy_subset"] > 0.5, "cross-entropy memorises most of the wrong labels"
    assert mae["noisy_subset"] < plain["noisy_subset"] / 3 and mae["clean_subset"] < 0.9, "MAE underfits"
    for robust in by_loss.values():
        assert robust["test"] > plain["test"] + 0.1
        assert robust["noisy_subset"] < plain["noisy_subset"] / 3
        assert robust["clean_subset"] > 0.95
        assert robust["errors_found"] > plain["errors_found"] + 0.03


def test_the_label_errors_counted_by_the_demo_agree_with_its_record(demonstrated: tuple[Path, str]) -> None:
    folder, _ = demonstrated
    written = json.loads((folder / "results.json").read_text(encoding="utf-8"))
    for result in written["results"]:
        files = folder / result["folder"]
        wrong = np.load(files / "labels/given.npy") != np.load(files / "labels/true.npy")
        assert wrong.sum() == written["corrupted"]
        margins = np.mean([np.load(file).astype(np.float64) for file in files.glob("record/training/margins-*.npy")], axis=0)
        limit = np.sort(margins)[wrong.sum()]
        assert result["errors_found"] == pytest.approx((wrong & (margins < limit)).sum() / wrong.sum(), abs=0.005)  # ties


@pytest.mark.parametrize(
    ("arguments", "mentions"),
    [
        (["losses", "gce(q=2)"], ("'q'", "GCE", "(0, 1]", "2")),
        (["losses", "imea"], ("'imea'", "'imae'", "'mse'", "'mae'")),
        (["losses", "imae("], ("'imae('",)),
        (["methods", "elrr"], ("'elrr'", "'elr'")),
        (["methods", "elr(beta=1)"], ("'beta'", "ELR", "[0, 1)", "1")),
        (["data", "gte", "mnist"], ("'gte'", "'get'")),
        (["data", "get", "mnst"], ("'mnst'", "'mnist'")),
        (["data", "get", "mars", "--root", "empty"], ("'mars'", "http")),
        (["loses"], ("'loses'", "'losses'")),
        (["losses", "--jsn"], ("--jsn",)),
        (["demo", "--folder", "taken/out"], ("'taken/out'",)),
        (["demo", "--seed", "-1"], ("'seed'", "demo", "-1")),
        (["demo", "--seed", "1", "--seed", "2"], ("--seed", "2 times")),
        (["figure", "curves", "ce", "-o", "a.svg", "--output", "b.svg"], ("--output", "2 times")),
        (["figure", "curves", "ce", "-o", f"{'long' * 62}.html"], ("longlong",)),
        (["figure", "curves", "ce", "-o", f"{'long' * 62}.svg"], ("longlong",)),
        (["reproduce", "imae/figure1", "-o", "taken/out"], ("'taken/out'",)),
    ],
)
def test_wrong_input_is_answered_in_one_line(
    arguments: list[str], mentions: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("taken").write_text("a file where a folder should be", encoding="utf-8")
    failed = run(app, arguments)
    assert failed.exit_code == 2
    assert failed.stdout == ""
    assert failed.stderr.startswith("noisewise: ") and failed.stderr.count("\n") == 1
    assert all(mention in failed.stderr for mention in mentions), failed.stderr
    assert [path.name for path in tmp_path.iterdir()] == ["taken"]


def test_python_m_noisewise_is_the_same_command() -> None:
    command = [sys.executable, "-m", "noisewise"]
    version = subprocess.run([*command, "--version"], capture_output=True, text=True, check=True).stdout
    assert version == f"noisewise {noisewise.__version__}\n"
    failed = subprocess.run([*command, "losses", "imea"], capture_output=True, text=True, check=False)
    assert (failed.returncode, failed.stdout) == (2, "")
    assert failed.stderr == run(app, ["losses", "imea"]).stderr


def test_an_interrupted_command_prints_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupt() -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("noisewise.describe.table", interrupt)
    stopped = run(app, ["losses"])
    assert (stopped.exit_code, stopped.stdout, stopped.stderr.strip()) == (130, "", "noisewise: interrupted.")


@pytest.mark.parametrize(
    "command", [["audit"], ["train", "--data", "digits", "--model", "linear", "--epochs", "1", "-o"]], ids=["read", "written"]
)
def test_a_file_name_that_is_too_long_is_shortened_in_the_error(
    command: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    failed = run(app, [*command, 300 * "a"])
    assert failed.exit_code == 2 and "'aaa" in failed.stderr and len(failed.stderr) < 200
    assert os.strerror(errno.ENAMETOOLONG) in failed.stderr and failed.stderr.count("\n") == 1 and not list(tmp_path.iterdir())


def test_a_file_without_read_permission_is_answered_in_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The permission is denied by a patch, because root may read every file."""
    (tmp_path / "pets.csv").write_text("width,label\n1,cat\n2,dog\n")
    opened = Path.open

    def denied(path: Path, *args: object, **options: object) -> object:
        if path.name in ("pets.csv", "settings.json"):
            raise PermissionError(errno.EACCES, "Permission denied", str(path))
        return opened(path, *args, **options)  # type: ignore[call-overload]

    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "settings.json").write_text("{}")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(Path, "open", denied)
    failed = run(app, ["audit", "pets.csv"])
    assert failed.exit_code == 2 and failed.stderr.count("\n") == 1
    assert "'pets.csv'" in failed.stderr and "Permission denied" in failed.stderr

    def read() -> None:
        (tmp_path / "run" / "settings.json").open()

    monkeypatch.setattr("noisewise.describe.table", read)
    failed = run(app, ["losses"])
    assert failed.exit_code == 2 and failed.stderr.count("\n") == 1
    assert "settings.json'" in failed.stderr and "Permission denied" in failed.stderr


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full, which only Linux has")
def test_a_full_disk_is_answered_in_one_line() -> None:
    with Path("/dev/full").open("w") as full:
        failed = subprocess.run([sys.executable, "-m", "noisewise", "losses", "--json"], stdout=full, stderr=subprocess.PIPE, text=True)
    assert failed.returncode == 4 and failed.stderr.count("\n") == 1
    assert failed.stderr.startswith("noisewise: ") and os.strerror(errno.ENOSPC) in failed.stderr


@pytest.mark.slow
def test_commands_work_without_docstrings() -> None:
    for arguments, word in ((["--help"], "losses"), (["train", "--help"], "--batch-size"), (["losses", "gce"], "focus  0.412")):
        command = [sys.executable, "-OO", "-m", "noisewise", *arguments]
        assert word in subprocess.run(command, capture_output=True, encoding="utf-8", check=True).stdout


@pytest.mark.slow
def test_an_ascii_terminal_gets_the_same_text_with_escapes() -> None:
    def printed(encoding: str, *options: str) -> str:
        command = [sys.executable, "-m", "noisewise", "losses", "gce", *options]
        environment = os.environ | {"PYTHONIOENCODING": encoding, "COLUMNS": "200"}
        return subprocess.run(command, capture_output=True, encoding="utf-8", check=True, env=environment).stdout

    assert "(q \\u2192 0)" in printed("ascii") and "(q → 0)" in printed("utf-8")
    assert json.loads(printed("ascii", "--json")) == json.loads(printed("utf-8", "--json"))


@pytest.mark.parametrize("command", [[], ["train"], ["data"], ["data", "get"], ["figure", "curves"]], ids=" ".join)
def test_help_has_a_short_name(command: list[str]) -> None:
    short, long = (run(app, [*command, option]) for option in ("-h", "--help"))
    assert (short.exit_code, short.stdout) == (0, long.stdout) and "Usage: " in short.stdout


@pytest.mark.parametrize("arguments", [[], ["--help"]])
def test_help_names_the_commands(arguments: list[str]) -> None:
    printed = run(app, arguments)
    assert printed.exit_code == 0
    assert all(command in printed.stdout for command in ("losses", "figure", "demo", "data", "train", "compare", "report"))


@pytest.mark.skipif(not Path("/proc/self/maps").exists(), reason="what a process has loaded is read from /proc")
@pytest.mark.parametrize(("loaded", "start"), [("_multiarray_umath", "script"), ("libtorch_cpu", "module")])
def test_ctrl_c_while_the_command_loads_prints_one_line(loaded: str, start: str, tmp_path: Path) -> None:
    (tmp_path / "noisewise").write_text("from noisewise.cli import app\napp()\n")  # as pip writes it
    command = [sys.executable, *(["-m", "noisewise"] if start == "module" else [str(tmp_path / "noisewise")]), "losses"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    maps = Path(f"/proc/{process.pid}/maps")
    wait_until(lambda: process.poll() is not None or loaded in maps.read_text())
    process.send_signal(signal.SIGINT)
    output, errors = process.communicate(timeout=LIMIT)
    assert (process.returncode, output, errors) == (130, "", "noisewise: interrupted.\n")


HOSTILE = ("\x1b[2Jcat", "=cmd()", "\u202egod", "\x9b31mfox")
CONTROL = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")


@pytest.fixture
def hostile(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A table whose classes and ids would control a terminal, or run in a spreadsheet."""
    monkeypatch.chdir(tmp_path)
    table = tmp_path / "\x1b]0;owned\x07table.csv"
    draw, rows = np.random.default_rng(0), []
    for number in range(80):
        kind = number % len(HOSTILE)
        rows.append([f"@SUM({number})", *(draw.normal(size=4) + 3 * np.eye(4)[kind]).round(3), HOSTILE[kind if number > 8 else 0]])
    with table.open("w", newline="", encoding="utf-8") as file:
        csv.writer(file).writerows([["id", "a", "b", "c", "d", "kind"], *rows])
    return table


def test_names_are_escaped_for_terminals_and_spreadsheets(hostile: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "300")
    audit = ["audit", str(hostile), "--label", "kind", "--id", "id", "--loss", "ce", "--epochs", "15", "--run", "\x1b[1mrun"]
    for arguments in (
        [*audit, "-o", "issues.csv"],
        [*audit, "-o", "issues.csv", "--json"],
        ["correct", "\x1b[1mrun", "-o", "corrected.csv"],
        ["train", "--data", str(hostile), "--label", "\x1b[2Jlabel", "--model", "linear", "--epochs", "1"],
    ):
        done = run(app, arguments)
        assert done.exit_code == (2 if "train" in arguments else 0), done.stderr
        assert not CONTROL.search(done.stdout.replace("\n", "")) and not CONTROL.search(done.stderr.replace("\n", ""))
        if "--json" in arguments:
            assert {row["given_label"] for row in json.loads(done.stdout)["worst"]} <= set(HOSTILE)
        elif arguments[0] == "audit":
            assert "\\x1b[2Jcat" in done.stdout and "\\u202egod" in done.stdout and "\\x1b[1mrun" in done.stdout
    with Path("issues.csv").open(newline="", encoding="utf-8") as file:
        listed = list(csv.DictReader(file))
    assert {row["given_label"] for row in listed} == {"\x1b[2Jcat", "'=cmd()", "\u202egod", "\x9b31mfox"}
    assert all(row["id"].startswith("'@SUM(") for row in listed)
    classes = json.loads(Path("\x1b[1mrun/classes.json").read_text(encoding="utf-8"))
    corrected = Correction.read("corrected.csv", classes)
    assert set(classes) == set(HOSTILE) and corrected.ids[:2] == ("@SUM(0)", "@SUM(1)") and len(corrected) == 80
    assert corrected.given.tolist() == np.load("\x1b[1mrun/labels/given.npy").tolist()


@given(text(alphabet="'=+-@1.e\tax", max_size=6))
def test_every_text_is_read_back_unchanged_from_a_list(name: str) -> None:
    cell = as_cell(name)
    assert from_cell(cell) == name
    assert not cell.startswith(("=", "@", "\t")) and (not cell.startswith(("+", "-")) or not math.isnan(float(cell)))


def test_only_the_app_module_prints() -> None:
    """It escapes control characters."""
    for file in Path(noisewise.__file__).parent.glob("cli/_*.py"):
        if file.name != "_app.py":
            names = {node.id for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))) if isinstance(node, ast.Name)}
            imports = set(re.findall(r"^from rich\.\w+ import .*\b(Console|Text)\b", file.read_text(encoding="utf-8"), re.MULTILINE))
            assert "print" not in names and not imports, file.name
