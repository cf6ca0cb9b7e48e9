"""Figures of losses: the curves are those of the losses, and wrong arguments are refused before any work."""

import math
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import pytest
from matplotlib.figure import Figure

from noisewise import draw
from noisewise.curriculum import expected_margin
from noisewise.draw._figure import _emphasis
from noisewise.draw._sample import sample
from noisewise.report import check_page
from refused import refused


def test_curves_follow_their_closed_forms() -> None:
    picture = sample(["ce", "mae", "0.5*ce + 0.5*mae"], 10)
    ce, mae, both = picture.lines
    p = picture.p
    np.testing.assert_allclose(ce.emphasis, 1 - p, atol=1e-12)
    np.testing.assert_allclose(ce.value, np.log1p(np.exp(-picture.d)), rtol=1e-9)
    np.testing.assert_allclose(mae.emphasis, 2 * p * (1 - p), atol=1e-12)
    np.testing.assert_allclose(both.emphasis, (ce.emphasis + mae.emphasis) / 2, atol=1e-12)
    assert (ce.focus, ce.focus_margin, mae.focus, mae.focus_margin) == (0.0, None, 0.5, 0.0)


def test_a_scaled_loss_is_drawn_for_the_given_number_of_classes() -> None:
    ten, hundred = (sample(["scaled(mae, tau=2)"], classes) for classes in (10, 100))
    for picture, classes in ((ten, 10), (hundred, 100)):
        scale = 2 / abs(expected_margin(classes))
        np.testing.assert_allclose(picture.lines[0].emphasis, 0.5 / np.cosh(scale * picture.d / 2) ** 2, atol=1e-9)


@pytest.mark.parametrize(("classes", "expected"), [(2, 0.0), (10, -2.617), (100, -5.084)])  # simulated by others
def test_the_background_histogram_shows_where_margins_start(classes: int, expected: float) -> None:
    picture = sample(["ce"], classes)
    middles = (picture.start_d.edges[1:] + picture.start_d.edges[:-1]) / 2
    mean = float((middles * picture.start_d.heights).sum() / picture.start_d.heights.sum())
    assert mean == pytest.approx(expected, abs=0.03)
    assert picture.start_d.heights.max() == 1


def test_the_spread_of_a_curve_is_the_number_of_the_imae_paper() -> None:
    ce, mae = sample(["ce", "mae"], 10).lines
    assert ce.spread == pytest.approx(1 / 3) and mae.spread == pytest.approx(16 * (1 / 30 - 1 / 36))  # of 2 (1 − p), and of 4 p (1 − p)


def test_the_axis_on_the_right_is_twice_the_emphasis() -> None:
    figure = Figure()
    axes, picture = figure.subplots(), sample(["ce"], 10)
    _emphasis(axes, picture, picture.p)
    figure.draw_without_rendering()
    (norm,) = axes.child_axes
    assert norm.get_ylim() == pytest.approx([2 * end for end in axes.get_ylim()])


@pytest.mark.parametrize("name", ["curves.html", "curves.svg", "curves.pdf", "curves.PNG"])
def test_every_kind_of_file_is_written(tmp_path: Path, name: str) -> None:
    written = draw.curves(["ce", "imae(T=8)"], tmp_path / name)
    content = written.read_bytes()
    if name.endswith(("PNG", "pdf")):
        assert content.startswith({"PNG": b"\x89PNG", "pdf": b"%PDF"}[name[-3:]])
    elif name.endswith("svg"):
        words = "".join(ElementTree.fromstring(content).itertext())
        assert all(word in words for word in ("imae(T=8)", "gradient norm", "loss value", "emphasis", "10 classes"))
    else:
        page = content.decode()
        assert all(word in page for word in ("imae(T=8)", "gradient norm", "loss value", "emphasis", "10 classes"))
        assert 'src="http' not in page, "the page must open offline"


def test_more_losses_than_colours_have_different_styles() -> None:
    lines = sample([f"gce(q={q / 10})" for q in range(1, 11)], 10).lines
    assert len({(line.colour, line.dash) for line in lines}) == 10
    assert len({line.dash for line in lines[:8]}) == 8, "eight styles differ without colours"


def test_an_unbounded_loss_does_not_flatten_the_panel() -> None:
    low, high = sample(["ce"], 10).value_range(over_p=True)
    assert low <= 0 and high == pytest.approx(-math.log(0.01), rel=0.08)


@pytest.mark.parametrize(
    ("specs", "output", "mention"),
    [
        (["ce", "nce"], "a.html", "'nce'"),
        (["imae(normalise='batch')"], "a.html", "imae"),
        ([], "a.html", "draw"),
        (["ce"], "a.jpg", ".html, .svg, .pdf, .png"),
        (["ce"], "nowhere/a.html", "nowhere'"),
        (["ce"], "folder.html", "folder.html"),
    ],
)
def test_losses_and_files_that_cannot_be_drawn_are_refused_before_any_work(
    tmp_path: Path, specs: list[str], output: str, mention: str
) -> None:
    (tmp_path / "folder.html").mkdir()
    with refused(mention):
        draw.curves(specs, tmp_path / output)
    assert not list(tmp_path.glob("a.*"))


def test_a_page_is_replaced_only_if_noisewise_wrote_it_and_an_image_always(tmp_path: Path) -> None:
    theirs, ours, picture = tmp_path / "theirs.html", tmp_path / "ours.html", tmp_path / "a.svg"
    theirs.write_text("<h1>My page</h1>")
    with refused("theirs.html"):
        draw.curves(["ce"], theirs)
    assert theirs.read_text() == "<h1>My page</h1>"
    draw.curves(["ce"], ours)
    assert check_page(ours) == ours, "a report may replace it"
    assert "imae(T=8)" in draw.curves(["imae(T=8)"], ours).read_text(encoding="utf-8")
    picture.write_text("<svg/>")
    assert "imae(T=8)" in draw.curves(["imae(T=8)"], picture).read_text(encoding="utf-8")


def test_a_missing_library_is_named_with_its_extra(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with refused("matplotlib", "pip install 'noisewise[figures]'"):
        draw.curves(["ce"], tmp_path / "a.png")
    assert draw.curves(["ce"], tmp_path / "a.html").exists(), "a page needs no library"


def test_on_a_phone_the_figure_keeps_its_width_and_scrolls(browser, tmp_path):
    page = browser.new_page(viewport={"width": 400, "height": 800})
    page.goto(draw.curves(["ce", "mae"], tmp_path / "curves.html").as_uri())
    assert page.evaluate("document.getElementById('figure')._fullLayout.width") >= 800
    page.close()
