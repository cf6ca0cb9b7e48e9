"""A picture of losses as a file for papers and slides: .png or .svg, by matplotlib."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from noisewise.draw._sample import Array, Line, Picture, Shape

_INK, _FAINT, _BEHIND = "#222222", "#E6E6E6", "#C9CED6"
_STROKES = {"solid": "-", "dash": "--", "dot": ":", "dashdot": "-."}


def write(picture: Picture, output: Path) -> None:
    """Draw the picture into the file."""
    from matplotlib import rc_context
    from matplotlib.figure import Figure
    from matplotlib.layout_engine import ConstrainedLayoutEngine

    plain: dict[Any, Any] = {
        "font.size": 10,
        "axes.edgecolor": "#888888",
        "axes.labelcolor": _INK,
        "text.color": _INK,
        "svg.fonttype": "none",
    }
    with rc_context(plain):
        figure = Figure(figsize=(11, 7.4), layout=ConstrainedLayoutEngine(w_pad=0.12, h_pad=0.08))
        (over_p, over_d), (value_p, value_d) = figure.subplots(2, 2, sharex="col")
        for axes, where, start in ((over_p, picture.p, picture.start_p), (over_d, picture.d, picture.start_d)):
            _emphasis(axes, picture, where, start)
        for axes, where, start in ((value_p, picture.p, picture.start_p), (value_d, picture.d, picture.start_d)):
            _value(axes, picture, where, start)
        _words(over_p, over_d, value_p, value_d)
        over_p.set_xlim(0, 1)
        over_d.set_xlim(picture.d[0], picture.d[-1])
        figure.align_ylabels()
        _legend(figure, over_p)
        figure.savefig(output, dpi=160, facecolor="white")


def _legend(figure: Any, axes: Any) -> None:
    """The losses first, then what stands behind them, in as many columns as the words leave room for."""
    behind, *drawn = zip(*axes.get_legend_handles_labels(), strict=True)
    handles, labels = zip(*drawn, behind, strict=True)
    characters = [len(label) + 6 for label in labels]
    columns = len(labels) if sum(characters) <= 140 else max(1, 140 // max(characters))
    figure.legend(handles, labels, loc="outside upper left", ncols=columns, frameon=False)


def _words(over_p: Any, over_d: Any, value_p: Any, value_d: Any) -> None:
    over_p.set_title("over the probability of the label", loc="left", fontsize=11)
    over_d.set_title("over the margin", loc="left", fontsize=11)
    over_p.set_ylabel("emphasis w: how hard it pulls")
    value_p.set_ylabel("loss value")
    value_p.set_xlabel("p, the probability given to the label")
    value_d.set_xlabel("Δ, the margin of the label")


def _start(axes: Any, picture: Picture, start: Shape) -> None:
    """The margins before training, behind everything, in units of the panel's height."""
    axes.stairs(
        0.55 * start.heights,
        start.edges,
        fill=True,
        color=_BEHIND,
        alpha=0.6,
        zorder=0,
        transform=axes.get_xaxis_transform(),
        label=f"examples before training, {picture.classes} classes",
    )
    axes.grid(color=_FAINT, linewidth=0.8)
    axes.set_axisbelow(True)
    axes.spines[["top", "right"]].set_visible(False)


def _stroke(axes: Any, line: Line, where: Array, heights: Array) -> None:
    axes.plot(where, heights, color=line.colour, linestyle=_STROKES[line.dash], linewidth=2, label=line.label)


def _emphasis(axes: Any, picture: Picture, where: Array, start: Shape) -> None:
    _start(axes, picture, start)
    for line in picture.lines:
        _stroke(axes, line, where, line.emphasis)
        place = line.focus if where is picture.p else line.focus_margin
        if place is not None:
            axes.plot([place], [line.peak], "o", color=line.colour, markeredgecolor="white", markersize=8, clip_on=False, zorder=5)
    axes.plot([], [], "o", color="#777777", markeredgecolor="white", markersize=8, label="focus: pulls hardest here")
    axes.set_ylim(0, picture.emphasis_top)
    norm = axes.secondary_yaxis("right", functions=(lambda w: 2 * w, lambda norm: norm / 2))
    norm.spines["right"].set_visible(False)
    norm.set_ylabel("gradient norm ‖∂L/∂s‖₁ = 2w")


def _value(axes: Any, picture: Picture, where: Array, start: Shape) -> None:
    _start(axes, picture, start)
    for line in picture.lines:
        _stroke(axes, line, where, line.value)
    axes.set_ylim(*picture.value_range(over_p=where is picture.p))
