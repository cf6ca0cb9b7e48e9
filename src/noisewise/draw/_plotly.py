"""Charts in HTML pages: plotly.js as text, figures as the JSON it draws, and the figures of losses and of runs.

The bundle next to this file is `plotly.js-basic-dist-min` 4.1.1, unchanged: the basic charts, a quarter of the whole library. Its licence
is in the same folder.
"""

from __future__ import annotations

import html
import json
import math
from importlib import resources
from pathlib import Path
from typing import Any

import numpy as np

from noisewise.arrays import Floats
from noisewise.draw._history import CURVES, Course, History, Trained
from noisewise.draw._sample import Line, Picture, Shape
from noisewise.output import written_output

Figure = dict[str, Any]

_DIGITS = 5  # of a number in a page: more cannot be seen, and they are most of its size
_TITLE = "How hard a loss pulls"
_BEHIND = "rgba(150, 160, 175, 0.30)"
_COLUMNS = ((0.0, 0.46), (0.54, 1.0))
_ROWS = ((0.59, 1.0), (0.0, 0.41))


_PAGE = """<!DOCTYPE html>
<html lang="en">
<meta charset="utf-8">
<meta name="generator" content="noisewise">
<meta name="viewport" content="width=device-width">
<title>{title}</title>
<style>#figure {{ min-width: 820px; }}</style>
<div id="figure"></div>
<script>{bundle}</script>
<script>
const figure = {figure};
Plotly.newPlot("figure", figure.data, figure.layout, {{displaylogo: false, responsive: true}});
</script>
</html>
"""

_PANEL = 260  # pixels
_GAP = 0.11
_HEAD = 60
_HIGH = ("test", "clean_subset", "fitting")  # far above zero, where an axis from zero would press the lines together


def bundle() -> str:
    """The JavaScript that defines `Plotly`."""
    return resources.files("noisewise.draw").joinpath("plotly-basic.min.js").read_text(encoding="utf-8")


def as_text(words: str) -> str:
    """Words as plotly shows them letter by letter: it takes some tags for markup.

    Example:
        >>> as_text("<b>cat</b> & dog")
        '&lt;b&gt;cat&lt;/b&gt; &amp; dog'
    """
    return html.escape(words, quote=False)


def as_json(data: Any) -> str:
    """Data as JSON that can stand in a <script>: numbers short, NaN as null, nothing that could end the element.

    Example:
        >>> as_json({"p": np.array([1 / 3, np.nan]), "name": "</script>"})
        '{"p":[0.33333,null],"name":"\\\\u003c/script\\\\u003e"}'
    """
    text = json.dumps(_plain(data), ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    for sign in "<>&\u2028\u2029":
        text = text.replace(sign, f"\\u{ord(sign):04x}")
    return text


def _plain(data: Any) -> Any:
    if isinstance(data, dict):
        return {key: _plain(value) for key, value in data.items()}
    if isinstance(data, np.ndarray | np.generic):
        return _plain(data.tolist())
    if isinstance(data, list | tuple):
        return [_plain(value) for value in data]
    if isinstance(data, float):
        return float(f"{data:.{_DIGITS}g}") if math.isfinite(data) else None
    return data


def write_page(picture: Picture, output: Path) -> None:
    """Draw the picture into the file."""
    drawn = curves_figure(picture)
    drawn["layout"]["height"] = 820
    drawn["layout"]["title"] = {"text": f"{_TITLE} (dots: its focus, where it pulls hardest)", "x": 0.01, "y": 0.98, "yanchor": "top"}
    with written_output(output) as part:
        part.write_text(_PAGE.format(title=_TITLE, bundle=bundle(), figure=as_json(drawn)), encoding="utf-8")


def curves_figure(picture: Picture) -> Figure:
    """The picture as a plotly figure: emphasis and value, over p and over the margin."""
    traces: list[dict[str, Any]] = []
    for column, (where, start) in enumerate(((picture.p, picture.start_p), (picture.d, picture.start_d))):
        for row in range(2):
            panel = 2 * row + column + 1
            traces.append(_start(picture, start, panel))
            traces += [_stroke(line, where, panel, row) for line in picture.lines]
        for line in picture.lines:
            place = line.focus if column == 0 else line.focus_margin
            if place is not None:
                traces.append(_focus(line, place, column + 1))
        # Plotly drops an axis nothing is drawn on.
        traces.append({"x": [None], "y": [None], "xaxis": f"x{column + 1}", "yaxis": f"y{column + 9}", "showlegend": False})
    return {"data": traces, "layout": _layout(picture)}


def _start(picture: Picture, start: Shape, panel: int) -> dict[str, Any]:
    """The margins before training, on a height axis of their own behind the panel's."""
    return {
        "x": np.repeat(start.edges, 2)[1:-1],
        "y": np.repeat(start.heights, 2),
        "xaxis": f"x{panel}",
        "yaxis": f"y{panel}",
        "fill": "tozeroy",
        "fillcolor": _BEHIND,
        "line": {"width": 0},
        "hoverinfo": "skip",
        "name": f"examples before training, {picture.classes} classes",
        "legendgroup": "start",
        "legendrank": 2000,
        "showlegend": panel == 1,
    }


def _stroke(line: Line, where: Floats, panel: int, row: int) -> dict[str, Any]:
    shown, said = (line.emphasis, "emphasis %{y:.3g}, gradient norm %{customdata:.3g}") if row == 0 else (line.value, "loss %{y:.3g}")
    return {
        "x": where,
        "y": shown,
        "customdata": 2 * line.emphasis,
        "xaxis": f"x{panel}",
        "yaxis": f"y{panel + 4}",
        "mode": "lines",
        "line": {"color": line.colour, "dash": line.dash, "width": 2.5, "simplify": False},
        "name": as_text(line.words),
        "legendgroup": line.label,
        "showlegend": panel == 1,
        "hovertemplate": said,
    }


def _focus(line: Line, place: float, panel: int) -> dict[str, Any]:
    return {
        "x": [place],
        "y": [line.peak],
        "xaxis": f"x{panel}",
        "yaxis": f"y{panel + 4}",
        "mode": "markers",
        "marker": {"color": line.colour, "size": 11, "line": {"color": "white", "width": 1.5}},
        "cliponaxis": False,
        "name": as_text(line.label),
        "legendgroup": line.label,
        "showlegend": False,
        "hovertemplate": f"focus p = {line.focus:.3f}",
    }


def _layout(picture: Picture) -> dict[str, Any]:
    """Per panel 1 to 4: axis x and y for the examples behind, y + 4 for the curves; y9 and y10 are the gradient norm's."""
    layout: dict[str, Any] = {
        "font": {"size": 14},
        "hovermode": "x",
        "legend": {"orientation": "h", "y": 1.03, "yanchor": "bottom"},
        "margin": {"t": 110, "r": 90},
        "meta": {"panels": [[f"xaxis{panel}", f"yaxis{panel}"] for panel in range(1, 5)]},
    }
    words = ("p, the probability given to the label", "Δ, the margin of the label")
    heights = ("emphasis w: how hard it pulls", "loss value")
    for row, up in enumerate(_ROWS):
        for column, across in enumerate(_COLUMNS):
            panel = 2 * row + column + 1
            shown = (0, picture.emphasis_top) if row == 0 else picture.value_range(over_p=column == 0)
            reach = (0, 1) if column == 0 else (picture.d[0], picture.d[-1])
            layout[f"xaxis{panel}"] = {
                "domain": across,
                "anchor": f"y{panel}",
                "range": reach,
                "title": {"text": words[column]},
                "zeroline": False,
            }
            layout[f"yaxis{panel}"] = {"domain": up, "anchor": f"x{panel}", "range": (0, 1.8), "visible": False, "fixedrange": True}
            layout[f"yaxis{panel + 4}"] = _height_axis(panel, shown, heights[row] if column == 0 else None)
    for panel in (1, 2):
        right = {"side": "right", "showgrid": False}
        title = "gradient norm ‖∂L/∂s‖₁ = 2w" if panel == 2 else None  # between the panels there is no room for it
        layout[f"yaxis{panel + 8}"] = _height_axis(panel, (0, 2 * picture.emphasis_top), title) | right
    return layout


def _height_axis(panel: int, shown: tuple[float, float], title: str | None) -> dict[str, Any]:
    """An axis over the panel's hidden one; it is not zoomed, so that emphasis and gradient norm stay in step."""
    return {
        "overlaying": f"y{panel}",
        "anchor": f"x{panel}",
        "range": shown,
        "title": {"text": title or ""},
        "tickmode": "auto",
        "ticklabelstandoff": 6,
        "fixedrange": True,
    }


def dynamics_figure(history: History) -> Figure | None:
    """The courses of all losses over the iterations, in two columns of panels; None where nothing was measured yet.

    Args:
        history: the lines.
    """
    if not history.measures:
        return None
    rows = math.ceil(len(history.measures) / 2)
    layout: dict[str, Any] = {
        "height": _PANEL * rows + _HEAD,
        "hovermode": "x unified",
        "legend": {"orientation": "h", "y": 1.02, "yanchor": "bottom", "x": 0},
        "margin": {"t": _HEAD, "r": 20},
        "annotations": [],
        "meta": {"panels": []},
    }
    traces: list[dict[str, Any]] = []
    named: set[str] = set()
    for place, name in enumerate(history.measures):
        panel = str(place + 1) if place else ""  # the first axes are plainly "x" and "y"
        _add_panel(layout, panel, *divmod(place, 2), rows, name)
        for line in history.lines:
            if name in line.courses:
                traces += _lines(line, line.courses[name], panel, CURVES[name].is_share, line.label not in named)
                named.add(line.label)
    return {"data": traces, "layout": layout}


def _add_panel(layout: dict[str, Any], panel: str, row: int, column: int, rows: int, name: str) -> None:
    high = (1 - _GAP * (rows - 1)) / rows
    top = 1 - row * (high + _GAP)
    measure = CURVES[name]
    layout[f"xaxis{panel}"] = {
        "domain": [0, 0.46] if column == 0 else [0.54, 1],
        "anchor": f"y{panel}",
        "title": {"text": "iterations"} if row == rows - 1 else {"text": ""},
        "rangemode": "tozero",
    }
    layout[f"yaxis{panel}"] = {
        "domain": [max(0.0, top - high), top],
        "anchor": f"x{panel}",
        "rangemode": "normal" if name in _HIGH else "tozero",
        "tickformat": ".0%" if measure.is_share else "",
        # Room around a lone evaluation would go from −100 to 150 %.
        "autorangeoptions": {"clipmin": 0, "clipmax": 1.05} if measure.is_share else {},
    }
    layout["meta"]["panels"].append([f"xaxis{panel}", f"yaxis{panel}"])
    layout["annotations"].append(
        {
            "text": as_text(measure.title),
            "xref": f"x{panel} domain",
            "yref": f"y{panel} domain",
            "x": 0,
            "y": 1,
            "xanchor": "left",
            "yanchor": "bottom",
            "showarrow": False,
        }
    )


def _lines(line: Trained, course: Course, panel: str, is_share: bool, named: bool) -> list[dict[str, Any]]:
    """The mean, and behind it the band of one standard deviation over seeds."""
    seat = {"xaxis": f"x{panel}", "yaxis": f"y{panel}", "legendgroup": line.label, "showlegend": False}
    drawn: list[dict[str, Any]] = []
    if course.low is not None and course.high is not None:
        bare = {"mode": "lines", "line": {"width": 0}, "hoverinfo": "skip", "x": course.steps}
        drawn = [
            {**seat, **bare, "y": course.low},
            {**seat, **bare, "y": course.high, "fill": "tonexty", "fillcolor": _faint(line.colour)},
        ]
    # A lone evaluation has no line to be seen by.
    mode = "lines" if len(course.steps) > 1 else "markers"
    number = "%{y:.1%}" if is_share else "%{y:.3g}"
    return [
        *drawn,
        {
            **seat,
            "x": course.steps,
            "y": course.mean,
            "mode": mode,
            "line": {"color": line.colour, "dash": line.dash, "width": 2},
            "marker": {"color": line.colour, "size": 8},
            "name": as_text(line.label),
            "showlegend": named,
            "hovertemplate": f"{as_text(line.label)} {number}<extra></extra>",
        },
    ]


def _faint(colour: str) -> str:
    red, green, blue = (int(colour[place : place + 2], 16) for place in (1, 3, 5))
    return f"rgba({red}, {green}, {blue}, 0.16)"
