"""The page in a real browser: controls, charts, themes, printing and markup in names."""

from __future__ import annotations

import functools
import itertools
import re
from typing import Any

import numpy as np
import pytest
from sample_facts import HOSTILE, hostile, sample, without_images

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
def rendered(kind: str = "pictures") -> str:
    """The page of a kind, rendered once."""
    return render({"pictures": small, "fields": lambda: without_images(small()), "hostile": hostile}[kind]())


@pytest.fixture(scope="module")
def shared(visit_once: Any) -> Any:
    return visit_once(rendered())


RESET = """() => {
    const set = (element, value) => {
        if (element.value === value) return;
        element.value = value;
        for (const kind of ["input", "change"]) element.dispatchEvent(new Event(kind, { bubbles: true }));
    };
    document.querySelectorAll("details").forEach((details) => { details.open = false; });
    document.querySelectorAll("#doubt select, #film .which select").forEach((select) => set(select, select.options[0].value));
    document.querySelectorAll("#film input[type=range]").forEach((slider) => set(slider, "0"));
    set(document.querySelector("#filter"), "");
    document.querySelector("input[value=averages]").click();
    set(document.querySelector("#task"), "0");
    scrollTo(0, 0);
}"""


@pytest.fixture
def page(shared: Any) -> Any:
    """The page with pictures as it is after opening; tests that use it sort nothing and set no clock."""
    shared.page.emulate_media(media="screen", color_scheme="light")
    shared.page.evaluate(RESET)
    return shared.page


@pytest.fixture(scope="module")
def single(visit_once: Any) -> Any:
    """A page on one task with 30 doubtful examples and a film of one frame with known medians."""
    facts: Any = sample(tasks=1, losses=1, seeds=1, examples=30, frames=2)
    counts = {"clean": [[0, 1, 3]], "noisy": [[4, 0, 0]]}
    facts["tasks"][0]["films"] = [{"label": "ce", "edges": [-2.0, 0.0, 2.0, 4.0], "epochs": [3], "counts": counts, "emphasis": None}]
    return visit_once(render(facts))


def draw_charts(page: Any, section: str = "main") -> None:
    """Scroll through a section until every chart in it is drawn."""
    for plot in page.locator(f"{section} .plot:visible").all():
        plot.scroll_into_view_if_needed()
        plot.locator(".main-svg").first.wait_for()


def column_values(page: Any, title: str) -> list[str | None]:
    """What the visible rows hold in a column_values, by what they are sorted by."""
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


def plotted_heights(page: Any, element: str = "#film .film:visible .plot") -> list[list[float]]:
    """The heights plotly drew, trace by trace."""
    return page.locator(element).first.evaluate("plot => plot.calcdata.map((trace) => trace.map((point) => point.y))")


def line_paths(page: Any) -> list[str]:
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


def test_the_page_opens_from_a_file_offline_without_requests_or_errors(shared, page):
    for option in ("0", "1", "all"):
        page.select_option("#task", option)
        draw_charts(page)
    assert page.locator(".plot:visible .main-svg").count() >= 6
    assert shared.complaints == []
    assert [url for url in shared.requests if not url.startswith(("data:", "blob:"))] == [page.url]
    assert page.url.startswith("file://")


def test_charts_out_of_view_are_drawn_only_when_they_come_into_view(visit):
    page = visit(rendered(), width=390).page
    assert page.locator("#film .film:visible .main-svg").count() == 0
    page.locator("#film").scroll_into_view_if_needed()
    page.locator("#film .film:visible .main-svg").first.wait_for()
    assert page.locator("#dynamics [data-task='1'] .main-svg").count() == 0


def test_every_chart_is_printed_in_light_colours_even_if_it_was_not_in_view(visit):
    page = visit(rendered(), color_scheme="dark").page
    plots = "[...document.querySelectorAll('.plot')].filter((plot) => plot.clientWidth)"
    state = f"{plots}.map((plot) => [plot._fullLayout?.width, plot._fullLayout?.font.color])"
    page.evaluate(f"addEventListener('beforeprint', () => {{ window.paper = {state}; }})")
    page.pdf()
    assert page.evaluate("window.paper.length") == page.evaluate(f"{plots}.length") > 2
    for width, ink in page.evaluate("window.paper"):
        assert width == 640 and contrast(ink, "rgb(255, 255, 255)") > 7
    on_screen = page.evaluate(f"{plots}.map((plot) => [plot._fullLayout.width === plot.clientWidth, plot._fullLayout.font.color])")
    assert all(fits and contrast(ink, "rgb(255, 255, 255)") < 2 for fits, ink in on_screen)


def test_the_selected_task_is_printed(page):
    page.select_option("#task", "1")
    name = page.locator("#task option").nth(1).inner_text()
    assert page.locator(".task-name:visible").count() == 0 and not heading(page, "Task").is_visible()
    page.emulate_media(media="print")
    assert not page.locator("#task").is_visible()
    assert heading(page, "Task").is_visible()
    assert set(page.locator(f"{VISIBLE_ROWS} .task").all_inner_texts()) == {name}
    for section in ("correction", "emphasis", "dynamics", "film", "doubt"):
        assert page.locator(f"#{section} .task-name:visible").all_inner_texts() == [name]


def test_no_column_of_the_results_is_cut_off_by_the_edge_of_the_paper(visit):
    page = visit(rendered(), width=718).page  # A4 within the usual margins
    reach = "[...document.querySelectorAll('.results:not([hidden] *) th')].map((head) => head.getBoundingClientRect().right)"
    for view in ("Averages over seeds", "Every run"):
        page.emulate_media(media="screen")
        page.get_by_text(view, exact=True).first.click()
        page.emulate_media(media="print")
        assert 0 < max(page.evaluate(reach)) <= page.evaluate("document.querySelector('#results').getBoundingClientRect().right")


def test_columns_are_sorted_by_number_or_text_with_missing_values_last(visit):
    facts = sample(tasks=1, losses=4, seeds=2, examples=1, frames=2)
    for run, snr in zip(facts["runs"], [9.5, None, 10.25, 0.5, 0.45, -1.0, 1e-7, None], strict=True):
        run["measures"]["snr"] = snr
    page = visit(render(facts)).page
    page.locator("input[value=every]").check(force=True)
    orders = {"ascending": [-1.0, 1e-7, 0.45, 0.5, 9.5, 10.25], "descending": [10.25, 9.5, 0.5, 0.45, 1e-7, -1.0]}
    for direction, order in orders.items():
        heading(page, "snr").get_by_role("button").click()
        assert heading(page, "snr").get_attribute("aria-sort") == direction
        shown = column_values(page, "snr")
        assert [float(value) for value in shown[:6]] == order and shown[6:] == ["", ""]
    heading(page, "Reported").get_by_role("button").click()
    assert column_values(page, "Reported") == ["84.0"] * 2 + [""] * 6
    assert page.locator("[data-view]:not([hidden]) th[aria-sort]").count() == 1
    page.locator("input[value=averages]").check(force=True)
    heading(page, "Loss").get_by_role("button").click()
    assert column_values(page, "Loss") == ["ce", "gce(q=0.7)", "imae(T=8.0)", "mae"]


def test_the_filter_matches_every_word_and_states_how_many_rows_are_left(page):
    page.locator("input[value=every]").check(force=True)
    for words, number in (("GCE", 2), ("seed 1", 4), ("symmetric(0.4) mlp ce", 4), ("interrupted", 0)):
        page.fill("#filter", words)
        assert page.locator("#shown").inner_text().startswith(f"{number} of 8")
        assert page.locator(VISIBLE_ROWS).count() == number
        assert page.locator("#none-shown").is_visible() == (number == 0)


def test_the_switch_shows_averages_or_every_run_of_the_selected_task(page):
    assert page.locator("#shown").inner_text().startswith("4 of 4")
    assert "±" in page.locator(VISIBLE_ROWS).first.inner_text()
    page.get_by_text("Every run", exact=True).first.click()
    assert page.locator("#shown").inner_text().startswith("8 of 8")
    page.select_option("#task", "all")
    assert page.locator("#shown").inner_text().startswith("16 of 16")
    assert heading(page, "Task").is_visible()
    assert page.locator(VISIBLE_ROWS).last.locator(".state").inner_text() == "‖ interrupted"


def test_every_section_shows_the_selected_task(page):
    assert page.locator("#runs details:visible").count() == 8
    page.locator("[data-pick='1']").click()
    assert page.input_value("#task") == "1"
    for section in ("correction", "emphasis", "dynamics", "film", "doubt"):
        blocks = page.locator(f"#{section} [data-task]:visible")
        assert blocks.evaluate_all("all => all.map((block) => block.dataset.task)") == ["1"]
    assert not heading(page, "Task").is_visible()
    assert all("pair(0.2)" in text for text in page.locator("#runs summary:visible").all_inner_texts())


def test_a_report_on_one_task_has_no_choice_of_tasks(single):
    assert single.page.locator("#task").count() == 0
    assert single.page.locator("#shown").inner_text().startswith("1 of 1")
    assert single.complaints == []


def test_the_slider_changes_the_histogram_but_not_the_axes(page):
    draw_charts(page, "#film")
    film = small()["tasks"][0]["films"][0]
    axes = "plot => [plot._fullLayout.xaxis.range, plot._fullLayout.yaxis.range, plot._fullLayout.yaxis2.range].flat()"
    plot = page.locator("#film .film:visible .plot")
    first, strokes, ranges = plotted_heights(page), line_paths(page), plot.evaluate(axes)
    assert first[0][:-1] == film["counts"]["clean"][0] and first[1][:-1] == film["counts"]["noisy"][0]
    slider = page.locator("#film input[type=range]:visible")
    slider.focus()
    page.keyboard.press("ArrowRight")
    assert plotted_heights(page)[0][:-1] == film["counts"]["clean"][1]
    page.keyboard.press("End")
    assert plotted_heights(page)[1][:-1] == film["counts"]["noisy"][-1]
    assert line_paths(page)[:2] != strokes[:2] and line_paths(page)[2] == strokes[2]
    assert plot.evaluate(axes) == ranges
    assert page.locator("#film .now:visible").inner_text() == "epoch 120 of 120"
    assert slider.get_attribute("aria-valuetext") == "epoch 120 of 120"


def test_another_loss_is_shown_at_the_same_epoch(page):
    draw_charts(page, "#film")
    page.locator("#film input[type=range]:visible").fill("5")
    page.locator("#film .which select:visible").select_option("4")
    film = small()["tasks"][0]["films"][4]
    assert plotted_heights(page)[0][:-1] == film["counts"]["clean"][5]
    assert page.locator("#film .now:visible").inner_text() == f"epoch {film['epochs'][5]} of 120"


def test_the_caption_of_a_film_has_the_medians_of_the_margins(single):
    draw_charts(single.page, "#film")
    # Spread evenly inside their bins, half of the clean ones lie below 2 + 2/3 and half of the noisy ones below −1.
    assert re.findall("[−\\d.]*\\d", single.page.locator("#film figcaption").inner_text()) == ["2.7", "−1.0"]
    assert len(plotted_heights(single.page)) == 2


@pytest.mark.slow
def test_a_film_without_true_labels_shows_all_examples_and_mentions_a_bar_off_the_chart(visit):
    facts = sample(tasks=1, losses=1, seeds=1, examples=2, frames=3)
    film = facts["tasks"][0]["films"][0]
    film["counts"] = {"all": [[5000] + [0] * 59, [0] * 30 + [200] + [0] * 29, [100] * 60]}
    opened = visit(render(facts))
    page = opened.page
    draw_charts(page)
    assert page.locator("#film .legendtext").all_text_contents() == ["all examples", "emphasis"]
    # The frames' peaks are 100, 200 and 5,000: the axis is made for the middle one.
    assert page.locator("#film .plot").evaluate("plot => plot._fullLayout.yaxis.range") == [0, 500]
    assert "5,000" in page.locator("#film figcaption").inner_text()
    page.locator("#film input[type=range]").fill("2")
    assert "0.0" in page.locator("#film figcaption").inner_text() and "5,000" not in page.locator("#film figcaption").inner_text()
    assert opened.complaints == []


def test_play_advances_to_the_end_and_pause_stops_it(visit):
    page = visit(rendered()).page
    draw_charts(page, "#film")
    slider, button = page.locator("#film input[type=range]:visible"), page.locator("#film .play:visible")
    page.clock.install(time=0)
    page.clock.pause_at(1)
    page.clock.run_for(5000)
    assert slider.input_value() == "0"  # the film does not start by itself
    button.click()
    assert button.inner_text().endswith("Pause")
    page.clock.run_for(3.5 * PACE)
    assert slider.input_value() == "3"
    assert plotted_heights(page)[0][:-1] == small()["tasks"][0]["films"][0]["counts"]["clean"][3]
    button.click()
    page.clock.run_for(5000)
    assert slider.input_value() == "3"
    button.click()
    page.clock.run_for(9.5 * PACE)
    assert page.locator("#film .now:visible").inner_text().startswith("epoch 120")
    assert button.inner_text().endswith("Play")


def test_the_axis_of_a_single_accuracy_stays_between_zero_and_one(visit):
    facts: Any = sample(tasks=2, losses=1, seeds=1, examples=1, frames=2)
    accuracies = (0.14, 0.98)
    for task, accuracy in zip(facts["tasks"], accuracies, strict=True):
        curve = MeanCurve(np.array([90]), np.array([accuracy]), None, None)
        task["dynamics"] = dynamics_figure(History("", (LossCurves("ce", *line_style(0), 1, {"test": curve}),)))
    page = visit(render(facts)).page
    for task, accuracy in enumerate(accuracies):
        page.select_option("#task", str(task))
        draw_charts(page, "#dynamics")
        low, high = page.locator("#dynamics .plot:visible").evaluate("plot => plot._fullLayout.yaxis.range")
        assert low == 0 and accuracy < high <= 1.05


def test_markup_in_names_is_shown_as_text_and_nothing_runs(visit):
    opened = visit(rendered("hostile"))
    page = opened.page
    draw_charts(page)
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
    assert page.locator("#doubt .count:visible").inner_text().startswith("4 of 4")
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
def test_the_theme_follows_the_system_until_the_button_is_pressed(visit, scheme):
    other = {"light": "dark", "dark": "light"}[scheme]
    page = visit(rendered(), color_scheme=scheme).page
    draw_charts(page, "#emphasis")

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

    def kept() -> bool:
        page.reload()
        return page.evaluate("getComputedStyle(document.body).backgroundColor") == ground

    wait_until(kept)  # a busy browser stores the choice a little later


@pytest.mark.slow
def test_dark_lines_are_lightened_in_the_dark_theme(visit):
    facts = sample(tasks=1, losses=4, seeds=1, examples=2, frames=2)
    lines = [trace["line"] for trace in facts["tasks"][0]["curves"]["data"] if "color" in trace.get("line", {})]
    for place, line in enumerate(lines):
        line["color"] = ("#4B4B4B", "#7B3294", "rgb(0, 0, 0)", "#0072B2")[place % 4]
    page = visit(render(facts), color_scheme="dark").page
    draw_charts(page)
    ground = page.evaluate("getComputedStyle(document.body).backgroundColor")
    strokes = page.locator("#emphasis .scatterlayer path.js-line").evaluate_all(
        "all => all.map((path) => getComputedStyle(path)).filter((style) => parseFloat(style.strokeWidth) > 2).map((style) => style.stroke)"
    )
    assert len(strokes) == len(lines) and len(set(strokes)) == 4
    assert min(contrast(stroke, ground) for stroke in strokes) > 3


def test_the_theme_changes_without_local_storage(visit):
    denied = "Object.defineProperty(window, 'localStorage', { get() { throw new DOMException('denied', 'SecurityError'); } });"
    opened = visit(rendered(), before=denied, color_scheme="light")
    opened.page.locator("#theme").click()
    assert opened.page.evaluate("document.documentElement.dataset.theme") == "dark"
    assert opened.complaints == []


@pytest.mark.parametrize("kind", ["pictures", *(pytest.param(kind, marks=pytest.mark.slow) for kind in ("fields", "hostile"))])
def test_no_section_is_wider_than_the_screen(visit, kind):
    page = visit(rendered(kind)).page
    page.select_option("#task", "all" if kind == "pictures" else "0")
    page.locator("input[value=every]").check(force=True)
    page.evaluate("document.querySelectorAll('details').forEach((one) => { one.open = true; })")
    for width in (1440, 390):
        page.set_viewport_size({"width": width, "height": 900})
        draw_charts(page)
        assert page.evaluate("[innerWidth, document.scrollingElement.scrollWidth]") == [width, width]
        wide = page.evaluate("names => names.filter((name) => document.getElementById(name).scrollWidth > innerWidth)", SECTIONS)
        assert wide == []


@pytest.mark.slow
def test_panels_are_stacked_on_a_phone_and_side_by_side_on_a_desktop(visit):
    page = visit(rendered(), width=390).page
    draw_charts(page)
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
    page = visit(rendered()).page
    draw_charts(page)
    page.evaluate("""() => {
        scrollTo(0, 0);
        window.controls = () => [...document.querySelectorAll('button, select, input, summary, a[href]')]
            .filter((one) => one.checkVisibility() && !one.closest('.plot') && (one.type !== 'radio' || one.checked));
        window.reached = new Set();
        addEventListener('focusin', (event) => { reached.add(event.target); });
    }""")
    wanted = page.evaluate("controls().length")
    for _ in range(2 * wanted):
        page.keyboard.press("Tab")
    unreached = page.evaluate("controls().filter((one) => !reached.has(one)).map((one) => one.outerHTML.slice(0, 90))")
    assert wanted > 30 and unreached == []
    heading(page, "Test, best").get_by_role("button").focus()
    page.keyboard.press("Enter")
    assert heading(page, "Test, best").get_attribute("aria-sort") == "ascending"
    assert page.evaluate("getComputedStyle(document.activeElement).outlineStyle") == "solid"


@pytest.mark.parametrize("kind", ["pictures", "fields"])
def test_doubtful_examples_are_filtered_by_given_or_suggested_class(kind, request):
    page = request.getfixturevalue("page") if kind == "pictures" else request.getfixturevalue("visit")(rendered(kind)).page
    examples = small()["tasks"][0]["doubt"]["examples"]
    wanted = [example["id"] for example in examples if "3" in (example["given"], example["suggested"])]
    assert 0 < len(wanted) < len(examples)
    page.locator("#doubt select:visible").select_option("=3")
    assert page.locator("#doubt .count:visible").inner_text().startswith(f"{len(wanted)} of {len(examples)}")
    shown = page.locator("#doubt [data-classes]:visible")
    assert shown.locator(".id, th").all_inner_texts() == wanted


def test_a_button_shows_the_other_doubtful_examples(single):
    count, cards = single.page.locator("#doubt .count"), single.page.locator(".card:visible")
    assert (count.inner_text().partition(" shown")[0], cards.count()) == ("12 of 30", 12)
    single.page.locator("#doubt .more").click()
    assert (count.inner_text().partition(" shown")[0], cards.count()) == ("30 of 30", 30)
    assert not single.page.locator(".more").is_visible()


def test_small_images_are_shown_without_smoothing(page):
    image = page.locator(".card img:visible").first
    assert image.evaluate("image => [getComputedStyle(image).imageRendering, image.naturalWidth, image.clientWidth > 80]") == [
        "pixelated",
        8,
        True,
    ]


def test_a_run_in_the_table_links_to_its_details_and_the_command_can_be_copied(visit):
    page = visit(rendered(), permissions=["clipboard-read", "clipboard-write"]).page
    page.locator("input[value=every]").check(force=True)
    page.locator(VISIBLE_ROWS).nth(3).locator("a").click()
    details = page.locator("#run-3")
    assert details.locator("pre").is_visible()
    details.locator(".copy").click()
    details.get_by_text("Copied").wait_for()
    page.locator("#filter").focus()
    page.keyboard.press("Control+V")
    assert page.input_value("#filter") == small()["runs"][3]["command"]


def test_a_command_can_be_copied_without_the_clipboard_interface(visit):
    page = visit(rendered(), before="Object.defineProperty(navigator, 'clipboard', { value: undefined });").page
    page.locator("#run-0 summary").click()
    page.locator("#run-0 .copy").click()
    page.locator("#run-0").get_by_text("Copied").wait_for()
    page.locator("#filter").focus()
    page.keyboard.press("Control+V")
    assert page.input_value("#filter") == small()["runs"][0]["command"]


def test_without_scripts_everything_but_the_charts_can_be_read(visit):
    page = visit(rendered(), java_script_enabled=False).page
    assert page.locator(".verdict li").first.is_visible()
    assert page.locator("[data-view=averages] tbody tr:visible").count() == 8
    assert page.locator("[data-view=every] tbody tr:visible").count() == 16
    assert page.locator(".card:visible").count() == 12 and page.locator(".heat table:visible").count() == 4
    page.locator("#run-0 summary").click()
    assert page.locator("#run-0 pre").is_visible()
    assert page.locator(".without-script:visible").count() == 6
    assert page.locator("button:visible, select:visible, input:visible").count() == 0


@pytest.mark.slow
def test_of_a_hundred_runs_on_six_tasks_only_the_charts_in_view_are_drawn(visit):
    """Another test checks the same on a small page; benchmarks/report.py measures how long opening takes."""
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
