"""Charts in HTML pages: the figures of losses and of runs as plotly JSON.

The bundle next to this file is an unchanged copy of `plotly.js-basic-dist-min` 4.1.1. Its licence is in the same folder.
"""

from __future__ import annotations

import html
import json
import math
from collections.abc import Sequence
from importlib import resources
from pathlib import Path
from typing import Any

import numpy as np

from noisewise.arrays import Floats
from noisewise.draw._history import CURVES, History, LossCurves, MeanCurve
from noisewise.draw._sample import Histogram, Line, Picture, sample
from noisewise.output import written_output

Figure = dict[str, Any]

_DIGITS = 5  # significant digits of numbers in a page, to keep it small
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
_HIGH = ("test", "clean_subset", "fitting")  # measures whose axis does not start at zero


def bundle() -> str:
    """The JavaScript that defines `Plotly`."""
    return resources.files("noisewise.draw").joinpath("plotly-basic.min.js").read_text(encoding="utf-8")


def as_text(words: str) -> str:
    """Escape text for plotly, which interprets some tags.

    Example:
        >>> as_text("<b>cat</b> & dog")
        '&lt;b&gt;cat&lt;/b&gt; &amp; dog'
    """
    return html.escape(words, quote=False)


def as_json(data: Any) -> str:
    """Data as JSON that is safe inside a `<script>` element, with short numbers and NaN as null.

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
    """Write the picture as an HTML page."""
    figure = _figure_of(picture)
    figure["layout"]["height"] = 820
    figure["layout"]["title"] = {"text": f"{_TITLE} (dots: its focus, where it pulls hardest)", "x": 0.01, "y": 0.98, "yanchor": "top"}
    with written_output(output) as part:
        part.write_text(_PAGE.format(title=_TITLE, bundle=bundle(), figure=as_json(figure)), encoding="utf-8")


def curves_figure(specs: Sequence[str], classes: int, styles: Sequence[int] | None = None) -> Figure:
    """The curves of losses as a plotly figure: emphasis and value, over p and over the margin.

    Args:
        specs: the specs of the losses.
        classes: the number of classes.
        styles: the index of the line style of each loss; by default 0, 1, …
    """
    return _figure_of(sample(specs, classes, styles))


def _figure_of(picture: Picture) -> Figure:
    traces: list[dict[str, Any]] = []
    for column, (where, start) in enumerate(((picture.p, picture.start_p), (picture.d, picture.start_d))):
        for row in range(2):
            panel = 2 * row + column + 1
            traces.append(_start(picture, start, panel))
            traces += [_stroke(line, where, panel, row) for line in picture.lines]
        for line in picture.lines:
            focus = line.focus if column == 0 else line.focus_margin
            if focus is not None:
                traces.append(_focus(line, focus, column + 1))
        # Plotly drops an axis without a trace.
        traces.append({"x": [None], "y": [None], "xaxis": f"x{column + 1}", "yaxis": f"y{column + 9}", "showlegend": False})
    return {"data": traces, "layout": _layout(picture)}


def _start(picture: Picture, start: Histogram, panel: int) -> dict[str, Any]:
    """The margins before training, on a separate axis in the background."""
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
    values, hover = (line.emphasis, "emphasis %{y:.3g}, gradient norm %{customdata:.3g}") if row == 0 else (line.value, "loss %{y:.3g}")
    return {
        "x": where,
        "y": values,
        "customdata": 2 * line.emphasis,
        "xaxis": f"x{panel}",
        "yaxis": f"y{panel + 4}",
        "mode": "lines",
        "line": {"color": line.colour, "dash": line.dash, "width": 2.5, "simplify": False},
        "name": as_text(line.words),
        "legendgroup": line.label,
        "showlegend": panel == 1,
        "hovertemplate": hover,
    }


def _focus(line: Line, x: float, panel: int) -> dict[str, Any]:
    return {
        "x": [x],
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
    """Panels 1 to 4 have axes x and y for the background, and y + 4 for the curves; y9 and y10 are for the gradient norm."""
    layout: dict[str, Any] = {
        "font": {"size": 14},
        "hovermode": "x",
        "legend": {"orientation": "h", "y": 1.03, "yanchor": "bottom"},
        "margin": {"t": 110, "r": 90},
        "meta": {"panels": [[f"xaxis{panel}", f"yaxis{panel}"] for panel in range(1, 5)]},
    }
    titles = ("p, the probability given to the label", "Δ, the margin of the label")
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
                "title": {"text": titles[column]},
                "zeroline": False,
            }
            layout[f"yaxis{panel}"] = {"domain": up, "anchor": f"x{panel}", "range": (0, 1.8), "visible": False, "fixedrange": True}
            layout[f"yaxis{panel + 4}"] = _height_axis(panel, shown, heights[row] if column == 0 else None)
    for panel in (1, 2):
        right = {"side": "right", "showgrid": False}
        title = "gradient norm ‖∂L/∂s‖₁ = 2w" if panel == 2 else None  # no room between the panels
        layout[f"yaxis{panel + 8}"] = _height_axis(panel, (0, 2 * picture.emphasis_top), title) | right
    return layout


def _height_axis(panel: int, shown: tuple[float, float], title: str | None) -> dict[str, Any]:
    """An axis over the hidden one of the panel, without zoom, so that emphasis and gradient norm stay aligned."""
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
    """The measures of all losses over the iterations, in two columns of panels; None if nothing was measured yet."""
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
    for index, name in enumerate(history.measures):
        panel = str(index + 1) if index else ""  # the first axes are called "x" and "y"
        _add_panel(layout, panel, *divmod(index, 2), rows, name)
        for line in history.lines:
            if name in line.curves:
                traces += _lines(line, line.curves[name], panel, CURVES[name].is_share, line.label not in named)
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
        # Around a single evaluation, plotly would show −100 to 150 %.
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


def _lines(line: LossCurves, curve: MeanCurve, panel: str, is_share: bool, named: bool) -> list[dict[str, Any]]:
    """The mean, and a band of one standard deviation over seeds."""
    axes = {"xaxis": f"x{panel}", "yaxis": f"y{panel}", "legendgroup": line.label, "showlegend": False}
    band: list[dict[str, Any]] = []
    if curve.low is not None and curve.high is not None:
        edge = {"mode": "lines", "line": {"width": 0}, "hoverinfo": "skip", "x": curve.steps}
        band = [
            {**axes, **edge, "y": curve.low},
            {**axes, **edge, "y": curve.high, "fill": "tonexty", "fillcolor": _faint(line.colour)},
        ]
    mode = "lines" if len(curve.steps) > 1 else "markers"
    number = "%{y:.1%}" if is_share else "%{y:.3g}"
    return [
        *band,
        {
            **axes,
            "x": curve.steps,
            "y": curve.mean,
            "mode": mode,
            "line": {"color": line.colour, "dash": line.dash, "width": 2},
            "marker": {"color": line.colour, "size": 8},
            "name": as_text(line.label),
            "showlegend": named,
            "hovertemplate": f"{as_text(line.label)} {number}<extra></extra>",
        },
    ]


def _faint(colour: str) -> str:
    red, green, blue = (int(colour[start : start + 2], 16) for start in (1, 3, 5))
    return f"rgba({red}, {green}, {blue}, 0.16)"
