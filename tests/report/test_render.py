"""The page as text: its content, that names never become markup, and that it needs no other file."""

from __future__ import annotations

import base64
import functools
import hashlib
import html
import io
import itertools
import json
import math
from dataclasses import dataclass, field
from html.parser import HTMLParser
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from jinja2 import UndefinedError
from PIL import Image
from sample_facts import HOSTILE, hostile, sample, without_images

from noisewise.draw import as_text
from noisewise.report._render import _escape_figure, _has_few_pixels, _sparkline, render

VOID = {"meta", "link", "img", "input", "line", "polyline", "circle", "br"}
NOTHING: Any = {
    "title": "Nothing",
    "made": "today",
    "counts": "no runs",
    "verdict": [],
    "measures": [],
    "groups": [],
    "runs": [],
    "broken": [],
    "tasks": [],
}


@dataclass
class Element:
    name: str
    attributes: dict[str, str | None]
    parents: tuple[str, ...]
    text: str = ""


@dataclass
class Document(HTMLParser):
    """The elements of a page in order, each with all the text inside it."""

    elements: list[Element] = field(default_factory=list)
    open: list[Element] = field(default_factory=list)

    def __post_init__(self) -> None:
        super().__init__(convert_charrefs=True)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        element = Element(tag, dict(attrs), tuple(element.name for element in self.open))
        self.elements.append(element)
        if tag not in VOID:
            self.open.append(element)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append(Element(tag, dict(attrs), ()))

    def handle_endtag(self, tag: str) -> None:
        assert self.open[-1].name == tag, f"</{tag}> ends <{self.open[-1].name}>"
        self.open.pop()

    def handle_data(self, data: str) -> None:
        for element in self.open:
            element.text += data

    def all(self, name: str, **attributes: str) -> list[Element]:
        return [element for element in self.elements if element.name == name and attributes.items() <= element.attributes.items()]


def parsed(facts: Any) -> Document:
    document = Document()
    document.feed(render(facts))
    document.close()
    assert not document.open
    return document


def small(tasks: int = 2) -> Any:
    return sample(tasks=tasks, losses=2, seeds=3, examples=4, frames=3)


@functools.cache
def page(kind: str) -> Document:
    kinds = {"sample": small, "hostile": hostile, "fields": lambda: without_images(small(tasks=1)), "nothing": lambda: NOTHING}
    return parsed(kinds[kind]())


def words(element: Element) -> str:
    return " ".join(element.text.split())


KINDS = ["sample", "hostile", "fields", "nothing"]


@pytest.mark.parametrize("kind", KINDS)
def test_the_security_policy_lists_every_script_and_no_element_has_a_handler(kind):
    document = page(kind)
    (policy,) = document.all("meta", **{"http-equiv": "Content-Security-Policy"})
    running = [element.text for element in document.all("script") if element.attributes.get("type") != "application/json"]
    prints = {f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'" for text in running}
    directives = dict(part.split(None, 1) for part in (policy.attributes["content"] or "").split("; "))
    assert len(running) == 3 and set(directives["script-src"].split()) == prints
    assert directives["default-src"] == "'none'"
    assert [element for element in document.elements if any(name.startswith("on") for name in element.attributes)] == []


@pytest.mark.parametrize("kind", KINDS)
def test_the_page_loads_nothing_from_elsewhere(kind):
    links = [
        value
        for element in page(kind).elements
        for name, value in element.attributes.items()
        if name in ("src", "href", "srcset", "data", "action")
    ]
    assert all(value is not None and value.startswith(("#", "data:")) for value in links)
    assert "@import" not in page(kind).all("style")[0].text and "url(" not in page(kind).all("style")[0].text


@pytest.mark.parametrize("kind", KINDS)
def test_headings_are_in_order_links_have_targets_and_controls_have_labels(kind):
    document = page(kind)
    levels = [int(element.name[1]) for element in document.elements if element.name in ("h1", "h2", "h3", "h4", "h5", "h6")]
    assert levels[0] == 1 and levels.count(1) == 1
    assert all(after <= before + 1 for before, after in itertools.pairwise(levels))
    names = [element.attributes["id"] for element in document.elements if "id" in element.attributes]
    assert len(names) == len(set(names))
    targets = {(element.attributes["href"] or "")[1:] for element in document.all("a")}
    assert targets <= set(names) and all(element.attributes["aria-labelledby"] in names for element in document.all("section"))
    assert all("label" in element.parents for element in document.elements if element.name in ("input", "select"))
    assert all(words(element) for element in document.all("button"))


def test_the_order_of_the_sections():
    assert [element.attributes["id"] for element in page("sample").all("section")] == [
        "verdict",
        "results",
        "classes",
        "correction",
        "emphasis",
        "dynamics",
        "film",
        "doubt",
        "columns",
        "runs",
    ]


def test_markup_in_names_is_text_everywhere():
    document = page("hostile")
    assert {element.name for element in document.elements} <= {
        element.name for kind in ("sample", "fields") for element in page(kind).elements
    }
    assert document.all("title")[0].text == document.all("h1")[0].text == HOSTILE
    for name in ("th", "td", "dd", "dt", "pre", "option", "figcaption"):
        assert any(HOSTILE in element.text for element in document.all(name)), name


@given(st.text())
def test_names_in_a_chart_are_escaped_once(text):
    once = as_text(text)
    assert _escape_figure({"data": [{"name": once}]}) == {"data": [{"name": once}]}
    assert html.unescape(once) == text
    assert not set("<>") & set(_escape_figure([text])[0])


def test_hover_templates_of_a_chart_keep_their_markup():
    assert _escape_figure({"hovertemplate": "%{y}<extra></extra>", "name": "<b>"}) == {
        "hovertemplate": "%{y}<extra></extra>",
        "name": "&lt;b&gt;",
    }


def test_the_numbers_of_charts_and_films_are_in_the_page():
    facts = sample(tasks=1, losses=2, seeds=1, examples=2, frames=3)
    contents = [json.loads(element.text) for element in parsed(facts).all("script", type="application/json")]
    curves, dynamics, films = contents
    assert [film["counts"] for film in films] == [film["counts"] for film in facts["tasks"][0]["films"]]
    assert films[0]["emphasis"]["values"][0] == pytest.approx(facts["tasks"][0]["films"][0]["emphasis"]["values"][0], rel=1e-4)
    for drawn, figure in ((curves, facts["tasks"][0]["curves"]), (dynamics, facts["tasks"][0]["dynamics"])):
        assert [trace.get("name") for trace in drawn["data"]] == [trace.get("name") for trace in figure["data"]]


def row(document: Document, start: str) -> list[str]:
    """The cells of the first row of a table that begins with these words."""
    cells = [element for element in document.elements if element.name in ("th", "td") and "tbody" in element.parents]
    place = next(place for place, element in enumerate(cells) if words(element).startswith(start))
    return [words(element) for element in cells[place : place + 10]]


def test_averages_are_shown_with_deviation_and_reported_number():
    facts = sample(tasks=1, losses=3, seeds=2, examples=1, frames=2)
    facts["groups"][1]["measures"] |= {
        "final": {"mean": 0.84349, "deviation": 0.0042},
        "best": {"mean": 0.85, "deviation": None},
        "clean_subset": None,
        "snr": {"mean": 12.346, "deviation": 0.5},
    }
    loss, seeds, final, reported, best, clean, _, snr, *_ = row(parsed(facts), "imae")
    assert loss == "imae(T=8.0) ★ best" and seeds == "2"
    assert (final, reported, best, clean, snr) == ("84.3 ± 0.4", "84.0IMAE, table 6", "85.0", "–", "12.35 ± 0.50")


def test_a_correction_is_shown_with_numbers_before_and_after_and_changes_by_class():
    document = parsed(sample(tasks=1, losses=1, seeds=1, examples=1, frames=2))
    heads = [words(element) for element in document.all("th", scope="col")]
    place = heads.index("ce, relabelled")
    assert heads[place - 2 : place + 1] == ["%", "ce", "ce, relabelled"]
    assert row(document, "Test accuracy of the model")[1:3] == ["67.1 ± 1.0", "83.0"] and row(document, "Wrong labels")[1:3] == ["–", "–"]
    cells = [
        words(element)
        for element in document.elements
        if element.name in ("th", "td") and "details" in element.parents and "tbody" in element.parents
    ]
    assert cells[-6:] == ["2", "1,300", "40", "43", "0", "1,303"]


def test_without_a_correction_its_section_is_left_out():
    facts = sample(tasks=1, losses=1, seeds=1, examples=1, frames=2)
    facts["tasks"][0]["corrections"] = []
    document = parsed(facts)
    assert "correction" not in [element.attributes["id"] for element in document.all("section")]
    assert not document.all("a", href="#correction")


def test_without_reported_numbers_their_column_is_left_out():
    facts = sample(tasks=1, losses=1, seeds=1, examples=1, frames=2)
    heads = [words(element) for element in parsed(facts).all("th", scope="col")]
    assert not any("Reported" in head for head in heads)


def test_an_average_states_how_many_of_its_runs_did_not_finish():
    assert any("1 of 3 runs" in words(cell) for cell in page("sample").all("th"))
    assert any("interrupted after 12 epochs" in words(cell) for cell in page("sample").all("th"))


def test_unreadable_folders_are_listed_with_the_reason():
    assert "runs/half-copied It has no settings.json. Copy the folder again." in [words(element) for element in page("sample").all("li")]


def test_a_report_without_runs_has_no_tables():
    sections = {element.attributes["id"] for element in page("nothing").all("section")}
    assert {"verdict", "results", "runs"} <= sections and not page("nothing").all("td")
    assert "no runs" in words(page("nothing").all("body")[0])


def test_a_run_without_a_task_is_listed_with_its_data():
    facts = sample(tasks=1, losses=1, seeds=1, examples=1, frames=2)
    facts["runs"][0] |= {"task": None, "data": "somewhere"}
    assert "somewhere, mlp, symmetric(0.4)" in [words(element) for element in parsed(facts).all("td", **{"class": "task"})]


@pytest.mark.parametrize("shown", [lambda facts: facts, without_images], ids=["pictures", "fields"])
def test_only_an_outvoted_label_is_struck_out(shown):
    facts: Any = small(tasks=1)
    examples = facts["tasks"][0]["doubt"]["examples"]
    examples[1]["suggested"] = examples[1]["given"]
    struck = [words(element) for element in parsed(shown(facts)).all("span") if element.attributes.get("class") == "given"]
    assert struck == [f"given {examples[place]['given']}" for place in (0, 2, 3)]


def test_a_missing_fact_is_an_error():
    with pytest.raises(UndefinedError) as caught:
        render({key: value for key, value in NOTHING.items() if key != "made"})  # type: ignore[typeddict-item]
    assert "'made'" in str(caught.value)


def test_a_file_name_that_is_not_utf8_can_be_written():
    name = b"caf\xe9.png".decode("utf-8", "surrogateescape")
    assert "caf?.png" in render({**NOTHING, "broken": [{"folder": name, "reason": "unreadable"}]}).encode("utf-8").decode("utf-8")


@pytest.mark.parametrize("number", [2, 25])
def test_a_heat_map_is_a_table_with_every_class_in_rows_and_columns(number):
    facts = sample(tasks=1, losses=1, seeds=1, examples=1, frames=2)
    names = [f"class number {place}" for place in range(number)]
    shares = [[0.9 if across == down else 0.1 / (number - 1) for across in range(number)] for down in range(number)]
    counts = [[round(1000 * share) for share in line] for line in shares]
    facts["tasks"][0]["doubt"]["matrices"] = [{"title": "Estimated", "names": names, "shares": shares, "counts": counts}]
    document = parsed(facts)
    for scope in ("col", "row"):
        assert [words(element) for element in document.all("th", scope=scope) if words(element).startswith("class number")] == names
    cells = [element for element in document.all("td") if "--shade" in (element.attributes.get("style") or "")]
    assert len(cells) == number**2
    assert (
        words(cells[0]) == "90"
        and cells[1].attributes["title"] == f"class number 0 → class number 1: {10 / (number - 1):.1f} %, {counts[0][1]} examples"
    )
    shade = float((cells[1].attributes["style"] or "").split(":")[1])
    assert shade == pytest.approx(math.sqrt(shares[0][1]), abs=1e-3)


@given(st.lists(st.none() | st.just(math.nan) | st.floats(-50, 50), max_size=40))
def test_a_sparkline_shows_every_epoch_in_which_an_example_was_seen(margins):
    drawn = _sparkline(margins)
    known = [margin for margin in margins if margin is not None and not math.isnan(margin)]
    if not known:
        assert drawn is None
        return
    points = [tuple(map(float, point.split(","))) for stroke in drawn["strokes"] for point in stroke.split()]
    assert len(points) == len(known)
    assert all(0 <= across <= drawn["width"] and 0 <= down <= drawn["height"] for across, down in points)
    for margin, (_, down) in zip(known, points, strict=True):
        assert (down - drawn["zero"]) * margin <= 0.11 * abs(margin)  # above the zero line where positive, to the rounding
    seen = "".join("x" if margin in known else " " for margin in margins)
    assert len(drawn["strokes"]) == len(seen.split())


@pytest.mark.parametrize(("side", "kind", "small"), [(8, "PNG", True), (64, "PNG", True), (65, "PNG", False), (8, "JPEG", False)])
def test_only_small_images_are_shown_without_smoothing(side, kind, small):
    file = io.BytesIO()
    Image.new("RGB", (side, side)).save(file, kind)
    assert _has_few_pixels(f"data:image/{kind.lower()};base64,{base64.b64encode(file.getvalue()).decode()}") is small
