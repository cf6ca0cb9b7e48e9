"""The page in a real browser: what a reader presses, sees and must never get."""

from __future__ import annotations

import functools
import itertools
import re
from typing import Any

import numpy as np
import pytest
from facts import HOSTILE, hostile, sample, without_images

from noisewise.draw import dynamics_figure
from noisewise.draw._history import History, LossCurves, MeanCurve, line_style
from noisewise.report._render import render
from waiting import wait_until

PACE = 120  # milliseconds a frame of a film is shown
SECTIONS = ["verdict", "results", "correction", "emphasis", "dynamics", "film", "doubt", "runs"]
VISIBLE_ROWS = "[data-view]:not([hidden]) tbody tr:not([hidden])"


@functools.cache
def small() -> Any:
    return sample(tasks=2, losses=4, seeds=2, examples=6, frames=12)


@functools.cache
def written(kind: str = "pictures") -> str:
    """A page, rendered once."""
    return render({"pictures": small, "fields": lambda: without_images(small()), "hostile": hostile}[kind]())


@pytest.fixture(scope="module")
def shared(visit_once: Any) -> Any:
    return visit_once(written())


@pytest.fixture
def page(shared: Any) -> Any:
    """The page with pictures as it is after it was opened; its tests sort nothing and set no clock."""
    page = shared.page
    page.emulate_media(media="screen", color_scheme="light")
    page.evaluate("document.querySelectorAll('details').forEach((one) => { one.open = false; })")
    page.fill("#filter", "")
    page.locator("input[value=averages]").check(force=True)
    for task in ("1", "0"):
        page.select_option("#task", task)
        for select in page.locator("#doubt select:visible, #film .which select:visible").all():
            select.select_option(index=0)
        for slider in page.locator("#film input[type=range]:visible").all():
            slider.fill("0")
    page.evaluate("scrollTo(0, 0)")
    return page


def walk(page: Any) -> None:
    """Scroll through the page until every chart on it is drawn."""
    for plot in page.locator(".plot:visible").all():
        plot.scroll_into_view_if_needed()
        plot.locator(".main-svg").first.wait_for()


def column(page: Any, title: str) -> list[str | None]:
    """What the visible rows hold in a column, by what they are sorted by."""
    return page.evaluate(
        """title => {
            const table = document.querySelector("[data-view]:not([hidden]) table");
            const place = [...table.tHead.rows[0].cells].findIndex((head) => head.textContent.startsWith(title));
            return [...table.tBodies[0].rows].filter((row) => !row.hidden).map((row) => row.cells[place].dataset.value);
        }""",
        title,
    )


def heading(page: Any, title: str) -> Any:
    return page.locator("[data-view]:not([hidden]) thead th", has_text=title)


def plotted(page: Any, element: str = "#film .film:visible .plot") -> list[list[float]]:
    """The heights plotly drew, trace by trace."""
    return page.locator(element).first.evaluate("plot => plot.calcdata.map((trace) => trace.map((point) => point.y))")


def paths(page: Any) -> list[str]:
    """The strokes on the screen."""
    return page.locator("#film .film:visible .plot .scatterlayer path.js-line").evaluate_all(
        "all => all.map((path) => path.getAttribute('d'))"
    )


def channels(colour: str) -> list[float]:
    numbers = [float(number) for number in re.findall(r"[\d.]+", colour)]
    return [255 * number for number in numbers[:3]] if colour.startswith("color(srgb") else numbers[:3]


def contrast(one: str, other: str) -> float:
    """The ratio of WCAG 2.2."""

    def luminance(colour: str) -> float:
        shares = [level / 255 for level in channels(colour)]
        red, green, blue = (share / 12.92 if share <= 0.04045 else ((share + 0.055) / 1.055) ** 2.4 for share in shares)
        return 0.2126 * red + 0.7152 * green + 0.0722 * blue

    dark, light = sorted((luminance(one), luminance(other)))
    return (light + 0.05) / (dark + 0.05)


def test_it_opens_from_a_file_with_the_network_off_and_asks_for_nothing(visit):
    opened = visit(written())
    walk(opened.page)
    for option in ("1", "all"):
        opened.page.select_option("#task", option)
        walk(opened.page)
    assert opened.page.locator(".plot:visible .main-svg").count() >= 6
    assert opened.complaints == []
    assert [url for url in opened.requests if not url.startswith(("data:", "blob:"))] == [opened.page.url]
    assert opened.page.url.startswith("file://")


def test_charts_out_of_view_are_drawn_only_when_they_come_into_view(visit):
    page = visit(written(), width=390).page
    assert page.locator("#film .film:visible .main-svg").count() == 0
    page.locator("#film").scroll_into_view_if_needed()
    page.locator("#film .film:visible .main-svg").first.wait_for()
    assert page.locator("#dynamics [data-task='1'] .main-svg").count() == 0


def test_every_chart_is_on_paper_as_on_white_though_none_was_scrolled_to(visit):
    page = visit(written(), color_scheme="dark").page
    plots = "[...document.querySelectorAll('.plot')].filter((plot) => plot.clientWidth)"
    state = f"{plots}.map((plot) => [plot._fullLayout?.width, plot._fullLayout?.font.color])"
    page.evaluate(f"addEventListener('beforeprint', () => {{ window.paper = {state}; }})")
    page.pdf()
    assert page.evaluate("window.paper.length") == page.evaluate(f"{plots}.length") > 2
    for width, ink in page.evaluate("window.paper"):
        assert width == 640 and contrast(ink, "rgb(255, 255, 255)") > 7
    on_screen = page.evaluate(f"{plots}.map((plot) => [plot._fullLayout.width === plot.clientWidth, plot._fullLayout.font.color])")
    assert all(fits and contrast(ink, "rgb(255, 255, 255)") < 2 for fits, ink in on_screen)


def test_the_picked_task_is_named_on_paper(page):
    page.select_option("#task", "1")
    name = page.locator("#task option").nth(1).inner_text()
    assert page.locator(".task-name:visible").count() == 0 and not heading(page, "Task").is_visible()
    page.emulate_media(media="print")
    assert not page.locator("#task").is_visible()
    assert heading(page, "Task").is_visible()
    assert set(page.locator(f"{VISIBLE_ROWS} .task").all_inner_texts()) == {name}
    for section in ("correction", "emphasis", "dynamics", "film", "doubt"):
        assert page.locator(f"#{section} .task-name:visible").all_inner_texts() == [name]


@pytest.mark.parametrize("tasks", [1, 2])
def test_no_column_of_the_results_is_cut_off_by_the_edge_of_the_paper(visit, tasks):
    page = visit(render(sample(tasks=tasks, losses=4, seeds=3, examples=1, frames=2)), width=718).page  # A4 within the usual margins
    reach = "[...document.querySelectorAll('.results:not([hidden] *) th')].map((head) => head.getBoundingClientRect().right)"
    for view in ("Averages over seeds", "Every run"):
        page.emulate_media(media="screen")
        page.get_by_text(view, exact=True).first.click()
        page.emulate_media(media="print")
        assert 0 < max(page.evaluate(reach)) <= page.evaluate("document.querySelector('#results').getBoundingClientRect().right")


def test_numbers_are_sorted_as_numbers_with_missing_ones_last_and_words_as_words(visit):
    facts = sample(tasks=1, losses=4, seeds=2, examples=1, frames=2)
    for run, snr in zip(facts["runs"], [9.5, None, 10.25, 0.5, 0.45, -1.0, 1e-7, None], strict=True):
        run["measures"]["snr"] = snr
    page = visit(render(facts)).page
    page.locator("input[value=every]").check(force=True)
    orders = {"ascending": [-1.0, 1e-7, 0.45, 0.5, 9.5, 10.25], "descending": [10.25, 9.5, 0.5, 0.45, 1e-7, -1.0]}
    for direction, order in orders.items():
        heading(page, "snr").get_by_role("button").click()
        assert heading(page, "snr").get_attribute("aria-sort") == direction
        shown = column(page, "snr")
        assert [float(value) for value in shown[:6]] == order and shown[6:] == ["", ""]
    heading(page, "Reported").get_by_role("button").click()
    assert column(page, "Reported") == ["84.0"] * 2 + [""] * 6
    assert page.locator("[data-view]:not([hidden]) th[aria-sort]").count() == 1
    page.locator("input[value=averages]").check(force=True)
    heading(page, "Loss").get_by_role("button").click()
    assert column(page, "Loss") == ["ce", "gce(q=0.7)", "imae(T=8.0)", "mae"]


@pytest.mark.parametrize(
    ("words", "shown"),
    [("GCE", "2 of 8 shown"), ("seed 1", "4 of 8 shown"), ("symmetric(0.4) mlp ce", "4 of 8 shown"), ("interrupted", "0 of 8 shown")],
)
def test_the_filter_matches_every_word_and_says_how_many_are_left(page, words, shown):
    page.locator("input[value=every]").check(force=True)
    page.fill("#filter", words)
    assert page.locator("#shown").inner_text() == shown
    assert page.locator(VISIBLE_ROWS).count() == int(shown.split()[0])
    assert page.locator("#none-shown").is_visible() == shown.startswith("0")


def test_the_switch_shows_averages_or_every_run_of_the_picked_task(page):
    assert page.locator("#shown").inner_text() == "4 of 4 shown"
    assert "±" in page.locator(VISIBLE_ROWS).first.inner_text()
    page.get_by_text("Every run", exact=True).first.click()
    assert page.locator("#shown").inner_text() == "8 of 8 shown"
    page.select_option("#task", "all")
    assert page.locator("#shown").inner_text() == "16 of 16 shown"
    assert heading(page, "Task").is_visible()
    assert page.locator(VISIBLE_ROWS).last.locator(".state").inner_text() == "‖ interrupted"


def test_every_section_follows_the_task(page):
    assert page.locator("#runs details:visible").count() == 8
    page.locator("[data-pick='1']").click()
    assert page.input_value("#task") == "1"
    for section in ("correction", "emphasis", "dynamics", "film", "doubt"):
        blocks = page.locator(f"#{section} [data-task]:visible")
        assert blocks.evaluate_all("all => all.map((block) => block.dataset.task)") == ["1"]
    assert not heading(page, "Task").is_visible()
    assert all("pair(0.2)" in text for text in page.locator("#runs summary:visible").all_inner_texts())


def test_a_report_on_one_task_has_nothing_to_pick(visit):
    opened = visit(render(sample(tasks=1, losses=2, seeds=1, examples=2, frames=2)))
    assert opened.page.locator("#task").count() == 0
    assert opened.page.locator("#shown").inner_text() == "2 of 2 shown"
    assert opened.complaints == []


def test_the_slider_moves_the_histogram_on_axes_that_stay(page):
    walk(page)
    film = small()["tasks"][0]["films"][0]
    axes = "plot => [plot._fullLayout.xaxis.range, plot._fullLayout.yaxis.range, plot._fullLayout.yaxis2.range].flat()"
    plot = page.locator("#film .film:visible .plot")
    first, strokes, ranges = plotted(page), paths(page), plot.evaluate(axes)
    assert first[0][:-1] == film["counts"]["clean"][0] and first[1][:-1] == film["counts"]["noisy"][0]
    slider = page.locator("#film input[type=range]:visible")
    slider.focus()
    page.keyboard.press("ArrowRight")
    assert plotted(page)[0][:-1] == film["counts"]["clean"][1]
    page.keyboard.press("End")
    assert plotted(page)[1][:-1] == film["counts"]["noisy"][-1]
    assert paths(page)[:2] != strokes[:2] and paths(page)[2] == strokes[2]
    assert plot.evaluate(axes) == ranges
    assert page.locator("#film .now:visible").inner_text() == "epoch 120 of 120"
    assert slider.get_attribute("aria-valuetext") == "epoch 120 of 120"


def test_another_loss_is_shown_at_the_same_epoch(page):
    walk(page)
    page.locator("#film input[type=range]:visible").fill("5")
    page.locator("#film .which select:visible").select_option("4")
    film = small()["tasks"][0]["films"][4]
    assert plotted(page)[0][:-1] == film["counts"]["clean"][5]
    assert page.locator("#film .now:visible").inner_text() == f"epoch {film['epochs'][5]} of 120"


def test_the_median_it_states_is_that_of_the_margins(visit):
    facts = sample(tasks=1, losses=1, seeds=1, examples=2, frames=2)
    facts["tasks"][0]["films"] = [
        {
            "label": "ce",
            "edges": [-2.0, 0.0, 2.0, 4.0],
            "epochs": [3],
            "counts": {"clean": [[0, 1, 3]], "noisy": [[4, 0, 0]]},
            "emphasis": None,
        }
    ]
    page = visit(render(facts)).page
    walk(page)
    # Spread evenly inside their bins, half of the clean ones lie below 2 + 2/3 and half of the noisy ones below −1.
    assert page.locator("#film figcaption").inner_text() == "Median margin: clean: label right, 2.7; noisy: label wrong, −1.0."
    assert len(plotted(page)) == 2


@pytest.mark.slow
def test_a_film_without_known_truth_shows_all_examples_and_says_when_a_bar_runs_off(visit):
    facts = sample(tasks=1, losses=1, seeds=1, examples=2, frames=3)
    film = facts["tasks"][0]["films"][0]
    film["counts"] = {"all": [[5000] + [0] * 59, [0] * 30 + [200] + [0] * 29, [100] * 60]}
    opened = visit(render(facts))
    page = opened.page
    walk(page)
    assert page.locator("#film .legendtext").all_text_contents() == ["all examples", "emphasis"]
    # The frames' peaks are 100, 200 and 5,000: the axis is made for the middle one.
    assert page.locator("#film .plot").evaluate("plot => plot._fullLayout.yaxis.range") == [0, 500]
    assert page.locator("#film figcaption").inner_text().endswith("The highest bar, of 5,000 examples, runs off the chart.")
    page.locator("#film input[type=range]").fill("2")
    assert page.locator("#film figcaption").inner_text() == "Median margin: all examples, 0.0."
    assert opened.complaints == []


def test_play_advances_to_the_end_and_pause_holds_it(visit):
    page = visit(written()).page
    walk(page)
    slider, button = page.locator("#film input[type=range]:visible"), page.locator("#film .play:visible")
    page.clock.install(time=0)
    page.clock.pause_at(1)
    page.clock.run_for(5000)
    assert slider.input_value() == "0"  # nothing moves by itself
    button.click()
    assert button.inner_text().endswith("Pause")
    page.clock.run_for(3.5 * PACE)
    assert slider.input_value() == "3"
    assert plotted(page)[0][:-1] == small()["tasks"][0]["films"][0]["counts"]["clean"][3]
    button.click()
    page.clock.run_for(5000)
    assert slider.input_value() == "3"
    button.click()
    page.clock.run_for(9.5 * PACE)
    assert page.locator("#film .now:visible").inner_text().startswith("epoch 120")
    assert button.inner_text().endswith("Play")


@pytest.mark.parametrize("accuracy", [0.14, 0.98])
def test_the_axis_of_a_lone_accuracy_ends_at_what_an_accuracy_can_be(visit, accuracy):
    facts: Any = sample(tasks=1, losses=1, seeds=1, examples=1, frames=2)
    course = MeanCurve(np.array([90]), np.array([accuracy]), None, None)
    facts["tasks"][0]["dynamics"] = dynamics_figure(History("", (LossCurves("ce", *line_style(0), 1, {"test": course}),)))
    page = visit(render(facts)).page
    walk(page)
    low, high = page.locator("#dynamics .plot:visible").evaluate("plot => plot._fullLayout.yaxis.range")
    assert low == 0 and accuracy < high <= 1.05


def test_hostile_names_are_shown_letter_by_letter_and_nothing_runs(visit):
    opened = visit(written("hostile"))
    page = opened.page
    walk(page)
    page.locator("#runs details:visible").first.evaluate("details => { details.open = true; }")
    assert page.evaluate("window.hacked") is None
    assert page.locator("img[src=x]").count() == 0 and page.locator("h1 b, td b, svg a").count() == 0
    assert page.locator("h1").inner_text() == HOSTILE
    for where in (
        ".verdict li p >> nth=0",
        "[data-view=averages] tbody th >> nth=0",
        ".cards .given:visible >> nth=0",
        ".heat tbody th span:visible >> nth=0",
        ".heat thead th span:visible >> nth=0",
        "#doubt .fields tbody th:visible >> nth=0",
        "#correction .outcome:visible",
        "#correction tbody th:visible >> nth=2",
        "#runs pre:visible >> nth=0",
        ".broken .folder",
        "#film option >> nth=0",
    ):
        assert HOSTILE in page.locator(where).text_content(), where
    for chart in ("emphasis", "dynamics"):
        assert page.locator(f"#{chart} [data-task='0'] .legendtext").first.text_content() == HOSTILE
    page.locator("#doubt select:visible").select_option("=" + HOSTILE)
    assert page.locator("#doubt .count:visible").inner_text() == "4 of 4 shown"
    page.locator("#emphasis .plot:visible .nsewdrag").first.hover(force=True)
    assert HOSTILE in page.locator("#emphasis .plot:visible .hoverlayer text.name").first.text_content()
    assert opened.complaints == [] and page.evaluate("window.hacked") is None


SHADES = """() => {
    const ground = (element) => {
        for (let one = element; one; one = one.parentElement) {
            const colour = getComputedStyle(one).backgroundColor;
            if (!/, 0\\)$/.test(colour)) return colour;
        }
    };
    const speaks = (element) => [...element.childNodes].some((node) => node.nodeType === 3 && node.data.trim());
    return [...document.body.querySelectorAll("*:not(script, option)")]
        .filter((element) => speaks(element) && element.checkVisibility() && !element.closest(".plot"))
        .map((element) => [element.outerHTML.slice(0, 80), getComputedStyle(element).color, ground(element)]);
}"""


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_every_text_can_be_read_in_both_themes(page, scheme):
    page.emulate_media(color_scheme=scheme)
    colour = "getComputedStyle(document.body).backgroundColor"
    wait_until(lambda: (sum(channels(page.evaluate(colour))) > 3 * 128) == (scheme == "light"))
    page.select_option("#task", "all")
    page.locator("input[value=every]").check(force=True)
    page.evaluate("document.querySelectorAll('details').forEach((one) => { one.open = true; })")
    seen = page.evaluate(SHADES)
    assert len(seen) > 300
    faint = {what: round(contrast(ink, ground), 2) for what, ink, ground in seen if contrast(ink, ground) < 4.5}
    assert faint == {}


@pytest.mark.parametrize("scheme", [pytest.param("light", marks=pytest.mark.slow), "dark"])
def test_the_theme_is_the_systems_until_the_button_is_pressed(visit, scheme):
    other = {"light": "dark", "dark": "light"}[scheme]
    page = visit(written(), color_scheme=scheme).page
    walk(page)

    def seen() -> tuple[str, str]:
        ground = page.evaluate("getComputedStyle(document.body).backgroundColor")
        return ground, page.locator("#emphasis .plot:visible .xtick text").first.evaluate("text => getComputedStyle(text).fill")

    def is_dark(colour: str) -> bool:
        return sum(channels(colour)) < 3 * 128

    ground, axis = seen()
    assert is_dark(ground) == (scheme == "dark") and is_dark(axis) == (scheme == "light")
    page.emulate_media(color_scheme=other)
    wait_until(lambda: seen()[0] != ground and seen()[1] != axis)
    assert is_dark(seen()[0]) == (other == "dark") and is_dark(seen()[1]) == (other == "light")
    page.locator("#theme").click()
    assert seen() == (ground, axis)
    assert page.locator("#theme .word").inner_text() == other.capitalize()
    page.reload()
    assert page.evaluate("getComputedStyle(document.body).backgroundColor") == ground


@pytest.mark.slow
def test_lines_drawn_for_white_paper_stand_out_on_a_dark_one(visit):
    facts = sample(tasks=1, losses=4, seeds=1, examples=2, frames=2)
    lines = [trace["line"] for trace in facts["tasks"][0]["curves"]["data"] if "color" in trace.get("line", {})]
    for place, line in enumerate(lines):
        line["color"] = ("#4B4B4B", "#7B3294", "rgb(0, 0, 0)", "#0072B2")[place % 4]
    page = visit(render(facts), color_scheme="dark").page
    walk(page)
    ground = page.evaluate("getComputedStyle(document.body).backgroundColor")
    strokes = page.locator("#emphasis .scatterlayer path.js-line").evaluate_all(
        "all => all.map((path) => getComputedStyle(path)).filter((style) => parseFloat(style.strokeWidth) > 2).map((style) => style.stroke)"
    )
    assert len(strokes) == len(lines) and len(set(strokes)) == 4
    assert min(contrast(stroke, ground) for stroke in strokes) > 3


def test_a_browser_that_stores_nothing_still_changes_its_theme(visit):
    denied = "Object.defineProperty(window, 'localStorage', { get() { throw new DOMException('denied', 'SecurityError'); } });"
    opened = visit(written(), before=denied, color_scheme="light")
    opened.page.locator("#theme").click()
    assert opened.page.evaluate("document.documentElement.dataset.theme") == "dark"
    assert opened.complaints == []


@pytest.mark.parametrize("kind", ["pictures", *(pytest.param(kind, marks=pytest.mark.slow) for kind in ("fields", "hostile"))])
def test_no_section_is_wider_than_the_screen(visit, kind):
    page = visit(written(kind)).page
    page.select_option("#task", "all" if kind == "pictures" else "0")
    page.locator("input[value=every]").check(force=True)
    page.evaluate("document.querySelectorAll('details').forEach((one) => { one.open = true; })")
    for width in (1440, 390):
        page.set_viewport_size({"width": width, "height": 900})
        walk(page)
        assert page.evaluate("[innerWidth, document.scrollingElement.scrollWidth]") == [width, width]
        wide = page.evaluate("names => names.filter((name) => document.getElementById(name).scrollWidth > innerWidth)", SECTIONS)
        assert wide == []


@pytest.mark.slow
def test_panels_are_stacked_on_a_phone_and_side_by_side_on_a_desk(visit):
    page = visit(written(), width=390).page
    walk(page)
    plot = page.locator("#dynamics .plot:visible")
    corners = "plot => [...plot.querySelectorAll('.nsewdrag')].map((panel) => [panel, panel.getBoundingClientRect()].at(-1).toJSON())"
    stacked = plot.evaluate(corners)
    assert len({round(panel["left"]) for panel in stacked}) == 1
    assert all(above["bottom"] < below["top"] for above, below in itertools.pairwise(stacked))
    assert all(panel["width"] > 250 and panel["height"] > 100 for panel in stacked)
    page.set_viewport_size({"width": 1440, "height": 900})
    page.wait_for_function(
        f"plot => new Set(({corners})(plot).map((panel) => Math.round(panel.left))).size === 2", arg=plot.element_handle()
    )
    assert plot.evaluate("plot => plot.querySelector('.main-svg').clientWidth <= plot.clientWidth")


def test_tab_reaches_every_control_and_enter_sorts(visit):
    page = visit(written()).page
    walk(page)
    page.evaluate("scrollTo(0, 0)")
    controls = """() => [...document.querySelectorAll('button, select, input, summary, a[href]')]
        .filter((one) => one.checkVisibility() && !one.closest('.plot') && (one.type !== 'radio' || one.checked)).length"""
    wanted = page.evaluate(controls)
    reached = set()
    for _ in range(2 * wanted):
        page.keyboard.press("Tab")
        reached.add(page.evaluate("[...document.querySelectorAll('*')].indexOf(document.activeElement)"))
    unreached = page.evaluate(
        """reached => { const all = [...document.querySelectorAll('*')];
            return [...document.querySelectorAll('button, select, input, summary, a[href]')]
                .filter((one) => one.checkVisibility() && !one.closest('.plot') && (one.type !== 'radio' || one.checked))
                .filter((one) => !reached.includes(all.indexOf(one))).map((one) => one.outerHTML.slice(0, 90)); }""",
        list(reached),
    )
    assert wanted > 30 and unreached == []
    heading(page, "Test, best").get_by_role("button").focus()
    page.keyboard.press("Enter")
    assert heading(page, "Test, best").get_attribute("aria-sort") == "ascending"
    assert page.evaluate("getComputedStyle(document.activeElement).outlineStyle") == "solid"


@pytest.mark.parametrize("kind", ["pictures", "fields"])
def test_doubtful_examples_are_filtered_by_given_or_suggested_class(kind, request):
    page = request.getfixturevalue("page") if kind == "pictures" else request.getfixturevalue("visit")(written(kind)).page
    examples = small()["tasks"][0]["doubt"]["examples"]
    wanted = [example["id"] for example in examples if "3" in (example["given"], example["suggested"])]
    assert 0 < len(wanted) < len(examples)
    page.locator("#doubt select:visible").select_option("=3")
    assert page.locator("#doubt .count:visible").inner_text() == f"{len(wanted)} of {len(examples)} shown"
    shown = page.locator("#doubt [data-classes]:visible")
    assert shown.locator(".id, th").all_inner_texts() == wanted


def test_many_doubtful_examples_are_shown_when_asked_for(visit):
    page = visit(render(sample(tasks=1, losses=1, seeds=1, examples=30, frames=2))).page
    count, cards = page.locator("#doubt .count"), page.locator(".card:visible")
    assert (count.inner_text(), cards.count()) == ("12 of 30 shown", 12)
    page.get_by_role("button", name="Show all 30").click()
    assert (count.inner_text(), cards.count()) == ("30 of 30 shown", 30)
    assert not page.locator(".more").is_visible()


def test_small_images_are_shown_pixel_by_pixel(page):
    image = page.locator(".card img:visible").first
    assert image.evaluate("image => [getComputedStyle(image).imageRendering, image.naturalWidth, image.clientWidth > 80]") == [
        "pixelated",
        8,
        True,
    ]


def test_a_run_in_the_table_leads_to_how_it_was_run_and_its_command_can_be_copied(visit):
    page = visit(written(), permissions=["clipboard-read", "clipboard-write"]).page
    page.locator("input[value=every]").check(force=True)
    page.locator(VISIBLE_ROWS).nth(3).locator("a").click()
    details = page.locator("#run-3")
    assert details.locator("pre").is_visible()
    details.locator(".copy").click()
    details.get_by_text("Copied").wait_for()
    page.locator("#filter").focus()
    page.keyboard.press("Control+V")
    assert page.input_value("#filter") == small()["runs"][3]["command"]


def test_a_command_can_be_copied_where_there_is_no_clipboard_for_pages(visit):
    page = visit(written(), before="Object.defineProperty(navigator, 'clipboard', { value: undefined });").page
    page.locator("#run-0 summary").click()
    page.locator("#run-0 .copy").click()
    page.locator("#run-0").get_by_text("Copied").wait_for()
    page.locator("#filter").focus()
    page.keyboard.press("Control+V")
    assert page.input_value("#filter") == small()["runs"][0]["command"]


def test_without_scripts_everything_but_the_charts_can_be_read(visit):
    page = visit(written(), java_script_enabled=False).page
    assert page.locator(".verdict li").first.is_visible()
    assert page.locator("[data-view=averages] tbody tr:visible").count() == 8
    assert page.locator("[data-view=every] tbody tr:visible").count() == 16
    assert page.locator(".card:visible").count() == 12 and page.locator(".heat table:visible").count() == 4
    page.locator("#run-0 summary").click()
    assert page.locator("#run-0 pre").is_visible()
    assert page.locator(".without-script:visible").count() == 6
    assert page.locator("button:visible, select:visible, input:visible").count() == 0


def test_of_a_hundred_runs_on_six_tasks_only_the_charts_in_view_are_drawn(visit):
    """How long it takes to open is measured by benchmarks/report.py."""
    facts = sample(tasks=6, losses=5, seeds=4, examples=60, frames=60)
    page = render(facts)
    assert len(facts["runs"]) >= 100 and sum(len(task["films"]) for task in facts["tasks"]) >= 100
    assert len(page.encode()) < 15e6
    opened = visit(page)
    opened.page.locator("#emphasis .plot:visible").scroll_into_view_if_needed()
    opened.page.locator("#emphasis .plot:visible .main-svg").first.wait_for()
    assert opened.complaints == []
    plots = opened.page.locator(".plot")
    drawn = plots.evaluate_all("all => all.filter((plot) => plot.querySelector('.main-svg')).length")
    assert drawn <= 3 and plots.count() >= 18
