"""What happened during training, as a plotly figure: a panel for every measure, a line for every loss."""

from __future__ import annotations

import math
from typing import Any

from noisewise.draw._history import CURVES, Course, History, Trained
from noisewise.draw._plotly import Figure, as_text

_ROW = 260  # pixels
_GAP = 0.11
_HEAD = 60
_HIGH = ("test", "clean_subset", "fitting")  # far above zero, where an axis from zero would press the lines together


def dynamics_figure(history: History) -> Figure | None:
    """The courses of all losses over the iterations, in two columns of panels; None where nothing was measured yet.

    Args:
        history: the lines.
    """
    if not history.measures:
        return None
    rows = math.ceil(len(history.measures) / 2)
    layout: dict[str, Any] = {
        "height": _ROW * rows + _HEAD,
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
