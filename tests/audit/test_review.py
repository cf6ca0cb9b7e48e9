"""The review page in a real browser: accept, reject, undo, export and reload."""

import json
import re
import shlex
import shutil

import numpy as np
import pytest
from PIL import Image

from noisewise import fit
from noisewise.audit import audit
from noisewise.correct import correct, read_decisions, review
from noisewise.data import picture, read
from refused import refused
from run_folders import write_run


@pytest.fixture
def opened(browser, digits_audit, tmp_path):
    """The page of the ten most doubtful labels, opened offline; a message on the console or a request fails the test."""
    path = review(digits_audit, tmp_path / "review.html", limit=10)
    context = browser.new_context(offline=True, accept_downloads=True)
    page = context.new_page()
    messages = []
    page.on("console", lambda message: messages.append(message.text))
    page.on("pageerror", lambda error: messages.append(str(error)))
    page.on("request", lambda request: None if request.url.startswith(("file:", "data:", "blob:")) else messages.append(request.url))
    page.goto(path.as_uri())
    yield page
    context.close()
    assert messages == []


def export(page, button, folder):
    with page.expect_download() as download:
        page.click(button)
    path = folder / download.value.suggested_filename
    download.value.save_as(path)
    return path


def progress(page):
    """The number of the suggestion, of how many, and how many are decided, accepted and rejected."""
    return [int(number) for number in re.findall(r"\d+", page.text_content("#progress"))]


def test_names_that_look_like_formulas_are_exported_as_text(opened, tmp_path):
    opened.evaluate("Object.assign(cards[0], { id: '=cmd()', given: '-1', suggested: \"'@x\" })")
    opened.keyboard.press("a")
    file = export(opened, "#export-csv", tmp_path)
    assert """"'=cmd()","-1","''@x","accept\"""" in file.read_text()
    (decision,) = read_decisions(file).values()
    assert (decision.id, decision.given, decision.suggested) == ("=cmd()", "-1", "'@x")


def test_suggestions_are_accepted_rejected_and_undone_with_the_keyboard(opened, digits_run, digits_audit, tmp_path):
    worst = digits_audit.order[:3].tolist()
    for key in ("a", "r", "a"):
        opened.keyboard.press(key)
    assert progress(opened) == [4, 10, 3, 2, 1]
    opened.keyboard.press("u")
    assert progress(opened) == [3, 10, 2, 1, 1]
    decisions = read_decisions(export(opened, "#export-json", tmp_path))
    assert {number: bool(decision) for number, decision in decisions.items()} == {worst[0]: True, worst[1]: False}
    assert read_decisions(export(opened, "#export-csv", tmp_path)) == decisions
    assert np.flatnonzero(correct(digits_audit, decisions=decisions).changed).tolist() == [worst[0]]


def test_a_decision_can_be_changed_with_the_mouse(opened, tmp_path):
    opened.click("#accept")
    opened.click("#back")
    assert "accepted" in opened.text_content("#decision").lower()
    opened.click("#reject")
    opened.click("#next")
    assert progress(opened) == [3, 10, 1, 0, 1]
    entries = json.loads(export(opened, "#export-json", tmp_path).read_text())
    assert [entry["decision"] for entry in entries] == ["reject"]


def test_decisions_survive_a_reload(opened):
    opened.keyboard.press("a")
    opened.keyboard.press("r")
    opened.reload()
    assert progress(opened) == [3, 10, 2, 1, 1], "it continues where the reader left off"
    opened.keyboard.press("ArrowLeft")
    assert "rejected" in opened.text_content("#decision").lower()
    opened.keyboard.press("u")
    opened.reload()
    assert progress(opened) == [2, 10, 1, 1, 0]


def test_a_key_held_down_decides_on_one_suggestion_and_all_can_be_decided(opened):
    for _ in range(5):  # without a release between them these are repeats
        opened.keyboard.down("a")
    opened.keyboard.up("a")
    assert progress(opened) == [2, 10, 1, 1, 0]
    for _ in range(9):
        opened.keyboard.press("r")
    assert progress(opened) == [10, 10, 10, 1, 9]


def test_the_page_states_how_many_labels_it_shows_and_the_command_for_the_decisions(opened, digits_run, digits_audit, tmp_path):
    assert f"the 10 most doubtful of the {digits_audit.count:,} " in opened.text_content("main")
    command = shlex.split(opened.text_content("pre"))
    opened.keyboard.press("a")
    path = export(opened, "#export-json", tmp_path)
    assert command == ["noisewise", "correct", str(digits_run.path), "--decisions", path.name]
    assert "most doubtful of the" not in review(digits_audit, tmp_path / "all.html", limit=digits_audit.count).read_text(encoding="utf-8")


def test_a_card_shows_the_example_its_labels_and_its_history(opened, digits_run, digits_audit):
    worst = int(digits_audit.order[0])
    assert opened.text_content("#given") == str(digits_audit.given[worst])
    assert opened.text_content("#suggested") == str(digits_audit.suggested[worst])
    assert f"{round(100 * (1 - digits_audit.quality[worst]))} %" in opened.text_content("#chances")
    assert opened.evaluate("document.getElementById('image').naturalWidth") == 8
    assert opened.get_attribute("#margins path", "d").count("L") == len(digits_run.metrics) - 1


def test_markup_in_names_is_shown_as_text(browser, tmp_path):
    training = [(epoch, [2.0, -2.0, 1.0], [0, 0, 1]) for epoch in range(1, 9)]
    folder = write_run(tmp_path / "run", [0, 1, 1], training=training, classes=2, loss="ce")
    bad = "</script><script>document.title = 'taken'</script>{{ SCRIPT }}"
    (folder / "classes.json").write_text(json.dumps(["cat", bad]))
    page = browser.new_page()
    page.goto(review(audit(folder), tmp_path / "review.html").as_uri())
    assert page.text_content("#given") == bad and page.title() == "Review of run"
    page.close()


def test_values_of_a_table_are_shown_with_their_column_names(browser, tmp_path):
    rng = np.random.default_rng(0)
    kinds = [("cat", "dog")[row % 2] for row in range(200)]
    rows = [f"{rng.normal(6 * (kind == 'dog')):.3f},7,{kinds[row + 1] if row % 10 == 0 else kind}" for row, kind in enumerate(kinds)]
    (tmp_path / "pets.csv").write_text("\n".join(["width,day,label", *rows]))
    fit("mlp", tmp_path / "pets.csv", epochs=15, folder=tmp_path / "run", device="cpu")
    page = browser.new_page()
    page.goto(review(tmp_path / "run", tmp_path / "review.html").as_uri())
    width, day = page.inner_text("#values").split("\n")
    assert width.startswith("width: ") and day == "day: 7"


def test_a_review_without_doubtful_labels_is_refused(tmp_path):
    folder = write_run(tmp_path / "run", [0, 1], training=[(1, [2.0, 3.0], [0, 1])], classes=2, loss="ce")
    with refused(folder):
        review(audit(folder), tmp_path / "review.html")
    assert not (tmp_path / "review.html").exists()


@pytest.mark.parametrize(
    ("name", "limit", "mentions"),
    [
        ("review.htm", 10, ("output", ".html", "review.htm")),
        ("nowhere/review.html", 10, ("review.html", "nowhere")),
        ("review.html", 0, ("limit", "review", "0")),
    ],
)
def test_a_page_that_cannot_be_written_is_refused(digits_audit, tmp_path, name, limit, mentions):
    with refused(*mentions):
        review(digits_audit, tmp_path / name, limit=limit)


def test_wrong_data_are_refused_and_missing_images_are_left_out(digits_run, digits_audit, tmp_path):
    with refused(digits_run.path):
        review(digits_audit, tmp_path / "review.html", data=(np.zeros((1437, 4)), np.arange(1437) % 10))
    assert not (tmp_path / "review.html").exists()
    moved = shutil.copytree(digits_run.path, tmp_path / "moved")
    settings = json.loads((moved / "settings.json").read_text())
    (moved / "settings.json").write_text(json.dumps({**settings, "data": "moved.csv"}))
    provenance = json.loads((moved / "provenance.json").read_text())
    (moved / "provenance.json").write_text(json.dumps({**provenance, "sources": {"train": {"source": "moved.csv"}, "test": None}}))
    assert "data:image/png" not in review(audit(moved), tmp_path / "without.html").read_text(encoding="utf-8")
    assert "data:image/png" in review(audit(moved), tmp_path / "with.html", data="digits").read_text(encoding="utf-8")


def test_a_picture_is_read_from_its_file_and_an_unreadable_one_is_refused(tmp_path):
    for kind in ("cat", "dog"):
        (tmp_path / "pets" / kind).mkdir(parents=True)
        Image.new("L", (8, 8), 100).save(tmp_path / "pets" / kind / "1.png")
    pets = read(tmp_path / "pets", memory=0)
    (tmp_path / "pets/dog/1.png").write_bytes(b"torn")
    assert picture(pets, 0, side=4).startswith("data:image/png;base64,")
    with refused("1.png"):
        picture(pets, 1, side=4)
