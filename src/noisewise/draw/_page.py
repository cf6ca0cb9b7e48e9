"""A picture of losses as a plotly figure, and as one HTML page that opens offline: point at a curve to read it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from noisewise.arrays import Floats
from noisewise.draw._plotly import Figure, as_json, as_text, bundle
from noisewise.draw._sample import Line, Picture, Shape
from noisewise.output import written_output

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


def write(picture: Picture, output: Path) -> None:
    """Draw the picture into the file."""
    drawn = figure(picture)
    drawn["layout"]["height"] = 820
    drawn["layout"]["title"] = {"text": f"{_TITLE} (dots: its focus, where it pulls hardest)", "x": 0.01, "y": 0.98, "yanchor": "top"}
    with written_output(output) as part:
        part.write_text(_PAGE.format(title=_TITLE, bundle=bundle(), figure=as_json(drawn)), encoding="utf-8")


def figure(picture: Picture) -> Figure:
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
