"""The review page in a real browser: choose a class, undo, many at once, export and reload."""

import json
import re
import shlex
import shutil

import numpy as np
import pytest
from PIL import Image

from noisewise import fit
from noisewise.audit import add_evidence, audit
from noisewise.correct import Decision, correct, read_decisions, review
from noisewise.data import picture, read
from refused import refused
from run_folders import write_run


@pytest.fixture(scope="module")
def page_file(digits_audit, tmp_path_factory):
    return review(digits_audit, tmp_path_factory.mktemp("page") / "review.html", limit=10)


@pytest.fixture
def opened(browser, page_file):
    """The page of the ten most doubtful labels, opened offline; a message on the console or a request fails the test."""
    context = browser.new_context(offline=True, accept_downloads=True)
    page, messages = context.new_page(), []
    page.on("console", lambda message: messages.append(message.text))
    page.on("pageerror", lambda error: messages.append(str(error)))
    page.on("request", lambda request: None if request.url.startswith(("file:", "data:", "blob:")) else messages.append(request.url))
    page.goto(page_file.as_uri())
    yield page
    context.close()
    assert messages == []


def press(page, *keys):
    for key in keys:
        page.keyboard.press(key)


def export(page, button, folder):
    with page.expect_download() as download:
        page.click(button)
    path = folder / download.value.suggested_filename
    download.value.save_as(path)
    return path


def progress(page):
    """How many are decided and of how many, and the number of each decision."""
    text = page.text_content("#progress")
    words = ("relabelled", "kept", "none of these", "unsure")
    return [
        *map(int, re.match(r"(\d+) of (\d+) decided", text).groups()),
        *(int((re.findall(rf"(\d+) {word}", text) or [0])[0]) for word in words),
    ]


def third_class(result, position):
    """A class that is neither given nor suggested."""
    return next(label for label in range(10) if label not in (result.given[position], result.suggested[position]))


def test_every_kind_of_decision_is_made_with_a_key_exported_and_applied(opened, digits_audit, tmp_path):
    worst = digits_audit.order[:5].tolist()
    third = third_class(digits_audit, worst[1])
    press(opened, "a", str(third), "k", "n", "u")
    assert progress(opened) == [5, 10, 2, 1, 1, 1]
    decisions = read_decisions(export(opened, "#export-json", tmp_path))
    assert [decisions[index].action for index in worst] == ["relabel", "relabel", "keep", "drop", "unsure"]
    assert decisions[worst[1]] == Decision("relabel", str(third), digits_audit.ids[worst[1]], str(digits_audit.given[worst[1]]))
    assert read_decisions(export(opened, "#export-csv", tmp_path)) == decisions
    corrected = correct(digits_audit, decisions=decisions)
    assert np.flatnonzero(corrected.changed).tolist() == sorted([worst[0], worst[1], worst[3]])
    assert corrected.labels[worst[:2]].tolist() == [digits_audit.suggested[worst[0]], third]
    assert not corrected.kept[worst[3]] and corrected.kept.sum() == 1436


def test_choosing_the_given_class_keeps_it(opened, digits_audit):
    press(opened, str(digits_audit.given[digits_audit.order[0]]))
    assert progress(opened) == [1, 10, 0, 1, 0, 0]


def test_undo_reverts_one_step_after_another_also_after_a_reload(opened, digits_audit):
    press(opened, "a", "n", "k")
    opened.reload()
    assert progress(opened) == [3, 10, 1, 1, 1, 0] and opened.text_content("#name") == digits_audit.ids[digits_audit.order[3]]
    press(opened, "z")
    assert progress(opened) == [2, 10, 1, 0, 1, 0] and opened.text_content("#name") == digits_audit.ids[digits_audit.order[2]]
    press(opened, "ArrowLeft", "u")  # decided again
    assert progress(opened) == [2, 10, 1, 0, 0, 1]
    press(opened, "z")
    assert progress(opened) == [2, 10, 1, 0, 1, 0]
    opened.reload()
    press(opened, "z", "z")
    assert progress(opened) == [0, 10, 0, 0, 0, 0] and opened.is_disabled("#undo")


def test_a_decision_can_be_changed_with_the_mouse(opened, digits_audit, tmp_path):
    label = third_class(digits_audit, digits_audit.order[0])
    opened.click("#accept")
    opened.click("#back")
    assert "Relabelled" in opened.text_content("#decision")
    opened.click(f"#classes button[data-label='{label}']")
    opened.click("#back")
    assert opened.get_attribute(f"#classes button[data-label='{label}']", "aria-pressed") == "true"
    entries = json.loads(export(opened, "#export-json", tmp_path).read_text())
    assert [(entry["decision"], entry["label"]) for entry in entries] == [("relabel", str(label))]


def test_a_key_held_down_decides_once_and_all_can_be_decided(opened):
    for _ in range(5):  # without a release between them these are repeats
        opened.keyboard.down("a")
    opened.keyboard.up("a")
    assert progress(opened) == [1, 10, 1, 0, 0, 0]
    press(opened, *"k" * 9)
    assert progress(opened) == [10, 10, 1, 9, 0, 0] and "export" in opened.text_content("#progress")


def test_two_tabs_of_one_file_share_their_decisions(opened):
    second = opened.context.new_page()
    second.goto(opened.url)
    press(opened, "a", "n")
    second.locator("#progress", has_text="2 of 10").wait_for()
    press(second, "z")
    opened.locator("#progress", has_text="1 of 10").wait_for()


@pytest.fixture(scope="module")
def animals(tmp_path_factory):
    """Thirty examples of 40 classes: all are labelled "cat" and predicted "emu", except one of every class at the end."""
    folder = tmp_path_factory.mktemp("animals") / "run"
    labels = [*[0] * 30, *range(40)]
    said = [*[1] * 30, *range(40)]
    margins = np.where(np.array(labels) == said, 2.0, -2.0)
    write_run(folder, labels, training=[(epoch, margins, said) for epoch in range(1, 9)], classes=40, loss="ce")
    names = ["cat", "emu", "quail", "quokka", "quetzal", "a", "Z", *(f"animal {number}" for number in range(33))]
    (folder / "classes.json").write_text(json.dumps(names))
    return audit(folder)


@pytest.fixture
def many(browser, animals, tmp_path):
    page = browser.new_page(viewport={"width": 390, "height": 844})
    page.goto(review(animals, tmp_path / "review.html").as_uri())
    yield page
    page.context.close()


def test_a_class_is_chosen_by_typing_its_first_letters(many, tmp_path):
    press(many, "/", *"quo", "Enter")
    press(many, "/", *"qu", "Escape", "k")  # nothing is chosen
    press(many, "/", *"xyz", "Enter")
    entries = json.loads(export(many, "#export-json", tmp_path).read_text())
    assert [(entry["decision"], entry["label"]) for entry in entries] == [("relabel", "quokka"), ("keep", "")]


def test_keys_of_classes_are_their_own_names_or_free_and_never_those_of_actions(many):
    shown = dict(
        many.eval_on_selector_all("#classes button", "all => all.map(b => [b.querySelector('kbd')?.textContent, b.lastChild.textContent])")
    )
    shown.pop(None)  # without a key
    assert shown["1"] == "cat" and shown["2"] == "emu" and len(shown) == 30
    assert not shown.keys() & set("AKNUZG") and not {"a", "Z"} & set(shown.values()), "their own names are the keys of actions"


def test_similar_cases_are_decided_together_except_those_that_are_unticked(many, tmp_path):
    press(many, "g")
    assert many.locator("#tiles li").count() == 24 and many.text_content("#ticked") == "24 ticked"
    many.locator("#tiles input").nth(2).uncheck()
    many.locator("#tiles input").nth(4).focus()
    press(many, "Space", "a")  # unticks the fifth, and accepts the others
    assert progress(many)[:3] == [22, 30, 22]
    assert many.locator("#tiles li").count() == 8, "the two and the rest"
    press(many, "n")
    assert progress(many) == [30, 30, 22, 0, 8, 0] and many.locator("#tiles li").count() == 0
    press(many, "z", "z")
    assert progress(many) == [0, 30, 0, 0, 0, 0]
    press(many, "4")
    decisions = read_decisions(export(many, "#export-csv", tmp_path))
    assert len(decisions) == 24 and {decision.label for decision in decisions.values()} == {"quokka"}


def test_a_tile_opens_its_example_and_unsure_ones_can_be_shown_again(many, animals):
    press(many, "u", "a", "u", "g")
    many.locator("#tiles .open").nth(1).click()
    shown = [animals.ids[position] for position in animals.order]
    assert many.is_visible("#single") and many.text_content("#name") == shown[4]
    many.select_option("#show", "unsure")
    assert many.text_content("#name") == shown[0] and "of 2" in many.text_content("#place")
    press(many, "ArrowRight")
    assert many.text_content("#name") == shown[2]


def test_a_phone_needs_no_horizontal_scrolling(many, opened):
    opened.set_viewport_size({"width": 390, "height": 844})
    for page in (many, opened):
        for _ in range(2):
            assert page.evaluate("document.documentElement.scrollWidth") == 390
            press(page, "g")


FOCUS = """() => {
    const { activeElement: active } = document;
    const outlined = active.type === "radio" ? active.nextElementSibling : active.closest(".tile") || active;
    const name = active.ariaLabel || active.labels?.[0]?.textContent || active.textContent || active.tagName;
    return [getComputedStyle(outlined).outlineStyle, name];
}"""


def test_the_focus_is_visible_and_every_control_has_a_name(opened):
    press(opened, "g")
    for _ in range(25):
        press(opened, "Tab")
        style, name = opened.evaluate(FOCUS)
        assert style == "solid" and name.strip(), (style, name)


CONTRASTS = """() => {
    const canvas = new OffscreenCanvas(1, 1).getContext("2d", { willReadFrequently: true });
    const linear = (value) => (value <= 0.04045 ? value / 12.92 : ((value + 0.055) / 1.055) ** 2.4);
    const light = (color) => {
        canvas.fillStyle = color;
        canvas.fillRect(0, 0, 1, 1);
        const [red, green, blue] = [...canvas.getImageData(0, 0, 1, 1).data].map((value) => linear(value / 255));
        return 0.2126 * red + 0.7152 * green + 0.0722 * blue;
    };
    const ground = (node) => {
        const color = getComputedStyle(node).backgroundColor;
        return /, 0\\)$/.test(color) ? ground(node.parentElement) : color;
    };
    const hasText = (node) => node.checkVisibility() && [...node.childNodes].some((part) => part.nodeType === 3 && part.data.trim());
    const shown = [...document.querySelectorAll("body *")].filter((node) => hasText(node) && !node.closest("option, button:disabled"));
    return shown.map((node) => {
        const [high, low] = [light(getComputedStyle(node).color), light(ground(node))].sort((one, other) => other - one);
        return [(high + 0.05) / (low + 0.05), node.textContent];
    });
}"""


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_text_is_readable_in_both_themes(browser, page_file, theme):
    page = browser.new_page(color_scheme=theme)
    page.goto(page_file.as_uri())
    press(page, "a", "ArrowLeft")
    ratios = page.evaluate(CONTRASTS)
    page.context.close()
    assert len(ratios) > 20 and min(ratios)[0] >= 4.5, min(ratios)


def test_names_that_look_like_formulas_are_exported_as_text(opened, tmp_path):
    opened.evaluate("details.get(0).id = '=cmd()'; content.classes[cards[0].given] = '-1'; content.classes[cards[0].suggested] = \"'@x\"")
    press(opened, "a")
    file = export(opened, "#export-csv", tmp_path)
    assert """"'=cmd()","-1","relabel","''@x\"""" in file.read_text()
    (decision,) = read_decisions(file).values()
    assert (decision.id, decision.given, decision.label) == ("=cmd()", "-1", "'@x")


def test_the_page_states_how_many_labels_it_shows_and_the_command_for_the_decisions(opened, digits_run, digits_audit, tmp_path):
    assert f"The 10 most doubtful of the {digits_audit.count:,} " in opened.text_content("header")
    command = shlex.split(opened.text_content(".end pre"))
    press(opened, "a")
    path = export(opened, "#export-json", tmp_path)
    assert command == ["noisewise", "correct", str(digits_run.path), "--decisions", path.name]
    assert "most doubtful of the" not in review(digits_audit, tmp_path / "all.html", limit=digits_audit.count).read_text(encoding="utf-8")


def test_a_card_shows_the_example_its_labels_its_history_and_similar_examples(opened, digits_run, digits_audit):
    worst = int(digits_audit.order[0])
    assert opened.text_content("#given") == str(digits_audit.given[worst])
    assert opened.text_content("#suggested") == str(digits_audit.suggested[worst])
    assert f"{round(100 * (1 - digits_audit.quality[worst]))} %" in opened.text_content("#chances")
    assert opened.evaluate("document.getElementById('image').naturalWidth") == 8
    assert opened.get_attribute("#margins path", "d").count("L") == len(digits_run.metrics) - 1
    pixels = read("digits").inputs.flatten(1).float().numpy()[digits_audit.index]
    distances = ((pixels - pixels[worst]) ** 2).sum(1)
    nearest = [position for position in np.argsort(distances, kind="stable") if position != worst][:4]
    assert opened.locator("#neighbours span").all_text_contents() == [str(digits_audit.given[position]) for position in nearest]


def test_markup_in_names_is_shown_as_text(browser, tmp_path):
    training = [(epoch, [2.0, -2.0, 1.0], [0, 0, 1]) for epoch in range(1, 9)]
    folder = write_run(tmp_path / "run", [0, 1, 1], training=training, classes=2, loss="ce")
    bad = "</script><script>document.title = 'taken'</script>{{ SCRIPT }}"
    (folder / "classes.json").write_text(json.dumps(["cat", bad]))
    page = browser.new_page()
    page.goto(review(audit(folder), tmp_path / "review.html").as_uri())
    assert page.text_content("#given") == bad and page.title() == "Review of run"
    assert bad in page.text_content("#keep") and bad in page.text_content("#classes") and page.is_visible("#missing")
    page.context.close()


def test_values_of_a_table_are_shown_with_their_column_names_beside_similar_rows(browser, tmp_path):
    rng = np.random.default_rng(0)
    kinds = [("cat", "dog")[row % 2] for row in range(200)]
    rows = [f"{rng.normal(6 * (kind == 'dog')):.3f},7,{kinds[row + 1] if row % 10 == 0 else kind}" for row, kind in enumerate(kinds)]
    (tmp_path / "pets.csv").write_text("\n".join(["width,day,label", *rows]))
    fit("mlp", tmp_path / "pets.csv", epochs=15, folder=tmp_path / "run", device="cpu")
    page = browser.new_page()
    page.goto(review(tmp_path / "run", tmp_path / "review.html").as_uri())
    width, day = ([cell.text_content() for cell in row.locator("th, td").all()] for row in page.locator("#table tbody tr").all())
    assert width[0] == "width" and day[:2] == ["day", "7"] and len(width) == 6
    assert max(abs(float(value) - float(width[1])) for value in width[2:]) < 0.5
    long = "a long text, " * 100
    page.evaluate("text => { details.get(0).values = [['text', text]]; show(); }", long)
    assert page.text_content("#text p") == long and page.text_content("#text h2") == "text" and page.is_hidden("#table")
    assert "of the votes" in page.text_content("#chances") and page.is_visible("#history")
    press(page, "g")
    assert page.locator("#tiles li").nth(1).locator(".cell").nth(1).text_content() == "day 7"
    add_evidence(tmp_path / "run", read(tmp_path / "pets.csv").inputs)
    page.goto(review(tmp_path / "run", tmp_path / "features.html").as_uri())
    assert "models that did not see it" in page.text_content("#chances") and page.is_hidden("#history"), "no vote judged it"
    page.context.close()


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
