"""Figures for papers with matplotlib: the curves of losses, the dynamics of runs and the margins of runs."""

from __future__ import annotations

import string
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from noisewise.arrays import Floats
from noisewise.draw._history import CURVES, Film, History, LossCurves, MeanCurve, Panel, line_style
from noisewise.draw._paper import INK, add_legend, dashes, figure_in, wrapped
from noisewise.draw._sample import Bounds, Histogram, Line, Picture

_BEHIND = "#C9CED6"
_GROUPS: dict[str, dict[str, Any]] = {
    "clean": {"facecolor": "#0072B255", "edgecolor": "#0072B2", "linestyle": "-"},
    "noisy": {"facecolor": "#D55E0040", "edgecolor": "#D55E00", "linestyle": "--", "hatch": "//////"},
    "all": {"facecolor": "#4B4B4B44", "edgecolor": "#4B4B4B", "linestyle": "-"},
}
_GROUP_WORDS = {"clean": "clean labels", "noisy": "noisy labels", "all": "all examples"}
_ROUND = (1, 2, 5, 10)  # ticks are these times a power of ten
_EMPHASIS = "emphasis w(Δ): how hard the loss pulls"


def write(picture: Picture, output: Path) -> None:
    """Draw losses as curves: emphasis and value, over p and over the margin."""
    from matplotlib.lines import Line2D

    with figure_in(output) as figure:
        (over_p, over_d), (value_p, value_d) = figure.subplots(2, 2, sharex="col")
        for axes, where, start in ((over_p, picture.p, picture.start_p), (over_d, picture.d, picture.start_d)):
            _start(axes, start)
            _emphasis(axes, picture, where)
        for axes, where, start in ((value_p, picture.p, picture.start_p), (value_d, picture.d, picture.start_d)):
            _start(axes, start)
            for line in picture.lines:
                axes.plot(where, line.value, **_stroke(line))
            axes.set_ylim(*picture.value_range(over_p=where is picture.p))
        over_p.set(xlim=(0, 1), title="over the probability of the label", ylabel="emphasis w: how hard it pulls")
        over_d.set(xlim=(picture.d[0], picture.d[-1]), title="over the margin")
        value_p.set(xlabel="p, the probability given to the label", ylabel="loss value")
        value_d.set(xlabel="Δ, the margin of the label")
        for axes in (over_p, over_d, value_p, value_d):
            axes.locator_params(steps=_ROUND)
        figure.align_ylabels()
        entries: dict[str, Any] = {line.label: Line2D([], [], **_stroke(line)) for line in picture.lines}
        entries["focus: pulls hardest here"] = Line2D([], [], **_focus("#777777"))
        entries[f"examples before training, {picture.classes} classes"] = over_p.patches[0]
        figure.set_figheight(4.5 + add_legend(figure, entries))


def write_bounds(p: Floats, classes: Sequence[int], losses: Sequence[Bounds], output: Path) -> None:
    """Draw how much harder losses pull at each p than at 1/2, and the noise they tolerate for each number of classes."""
    from matplotlib.lines import Line2D

    with figure_in(output) as figure:
        impact, rates = figure.subplots(1, 2)
        for loss in losses:
            impact.plot(p, loss.impact, **_stroke(loss))
            rates.plot(classes, 100 * loss.rates, **_stroke(loss))
        impact.set(
            title="impact ratio: pull at p over pull at 1/2", xlabel="p, the probability given to the label", xlim=(0, 1), yscale="log"
        )
        rates.set(title="symmetric noise that is tolerated (%)", xlabel="number of classes", xscale="log", ylim=(-3, 103))
        impact.yaxis.set_major_formatter("{x:g}")
        rates.xaxis.set_major_formatter("{x:g}")
        figure.set_figheight(2.6 + add_legend(figure, {loss.label: Line2D([], [], **_stroke(loss)) for loss in losses}))


def _stroke(line: Line | LossCurves | Bounds) -> dict[str, Any]:
    return {"color": line.colour, "linestyle": dashes(line.dash)}


def _focus(colour: str) -> dict[str, Any]:
    return {"color": colour, "marker": "o", "linestyle": "none", "markeredgecolor": "white", "markersize": 5.5, "clip_on": False}


def _start(axes: Any, start: Histogram) -> None:
    """Draw the margins before training in the background, relative to the height of the panel."""
    axes.stairs(0.55 * start.heights, start.edges, fill=True, color=_BEHIND, alpha=0.6, zorder=0, transform=axes.get_xaxis_transform())


def _emphasis(axes: Any, picture: Picture, where: Floats) -> None:
    for line in picture.lines:
        axes.plot(where, line.emphasis, **_stroke(line))
    for line in picture.lines:
        focus = line.focus if where is picture.p else line.focus_margin
        if focus is not None:
            axes.plot([focus], [line.peak], zorder=5, **_focus(line.colour))
    axes.set_ylim(0, picture.emphasis_top)
    norm = axes.secondary_yaxis("right", functions=(lambda w: 2 * w, lambda norm: norm / 2))
    norm.locator_params(axis="y", nbins=6, steps=_ROUND)
    norm.spines["right"].set_visible(False)
    norm.set_ylabel("gradient norm ‖∂L/∂s‖₁ = 2w")


def write_dynamics(task: str, histories: Sequence[tuple[str, History]], output: Path) -> None:
    """Draw what happened in training: for each history a panel per measure, with a line per loss and ± one standard deviation shaded."""
    from matplotlib.lines import Line2D

    measures = [name for name in CURVES if any(name in history.measures for _, history in histories)]
    across = 2 if len(measures) in (2, 4) else min(3, len(measures))
    down = -(-len(measures) // across)
    trained = [line for _, history in histories for line in history.lines]
    with figure_in(output) as figure:
        panels = figure.subplots(down * len(histories), across, squeeze=False)
        for number, (label, history) in enumerate(histories):
            block = panels[number * down : (number + 1) * down]
            _block(block.ravel(), history, measures)
            _head(block[0], label)
        for axes in block.ravel()[len(measures) - across : len(measures)]:  # the lowest of every column
            axes.set_xlabel("iterations")
        several = sorted({line.runs for line in trained if line.runs > 1})
        seeds = f"mean ± s.d. over {' or '.join(map(str, several))} seeds" if several else ""
        entries = {line.label: Line2D([], [], **_stroke(line)) for line in trained}
        figure.set_figheight(0.1 + 1.75 * len(panels) + add_legend(figure, entries, "; ".join(filter(None, (task, seeds)))))


def _block(panels: Sequence[Any], history: History, measures: Sequence[str]) -> None:
    """Draw the panels of one history; the panel of a measure that it lacks stays empty."""
    for index, axes in enumerate(panels):
        if index >= len(measures):
            axes.remove()
        elif measures[index] not in history.measures:
            axes.set_axis_off()
        else:
            _measure(axes, history, measures[index], f"({string.ascii_lowercase[index]}) ")


def _head(row: Sequence[Any], label: str, titles: str = "left") -> None:
    """Add a label above the titles of a row of panels; `titles` is their alignment."""
    if not label:
        return
    lines = wrapped(label, weight="bold")
    for axes in row:
        axes.set_title("\n" * len(lines) + axes.get_title(titles), loc=titles)
    # Empty lines above the titles make room for it; the width of a title would push the panels apart.
    above = {"xycoords": "axes fraction", "textcoords": "offset points", "xytext": (0, 13), "va": "bottom"}
    row[0].annotate("\n".join(lines), (0, 1), fontweight="bold", **above).set_in_layout(False)


def _measure(axes: Any, history: History, name: str, letter: str) -> None:
    from matplotlib.ticker import EngFormatter

    measure = CURVES[name]
    scale = 100 if measure.is_share else 1
    for line in history.lines:
        if name in line.curves:
            _plot_mean(axes, line, line.curves[name], scale)
    axes.set_title(f"{letter}{measure.title}{' (%)' if measure.is_share else ''}")
    axes.set_xlim(0, max(curve.steps[-1] for line in history.lines for curve in line.curves.values()))
    axes.locator_params(steps=_ROUND)
    axes.locator_params(axis="x", nbins=5, integer=True)
    axes.xaxis.set_major_formatter(EngFormatter(sep=""))
    if measure.is_share:
        low, high = axes.get_ylim()
        axes.set_ylim(max(low, -2), min(high, 102))
    else:
        axes.set_ylim(bottom=0)


def _plot_mean(axes: Any, line: LossCurves, curve: MeanCurve, scale: float) -> None:
    axes.plot(curve.steps, scale * curve.mean, marker="o" if len(curve.steps) == 1 else None, markersize=3, **_stroke(line))
    if curve.low is not None and curve.high is not None:
        axes.fill_between(curve.steps, scale * curve.low, scale * curve.high, color=line.colour, alpha=0.16, linewidth=0)


def write_margins(task: str, films: Sequence[tuple[str, Film]], output: Path) -> None:
    """Draw histograms of margins with the emphasis on top: a row for each film, a column for each frame."""
    down, across = len(films), max(len(film.epochs) for _, film in films)
    with figure_in(output) as figure:
        panels = figure.subplots(down, across, squeeze=False)
        entries: dict[str, Any] = {}
        for row, (label, film) in zip(panels, films, strict=True):
            for axes in row[len(film.epochs) :]:
                axes.remove()
            for frame, axes in enumerate(row[: len(film.epochs)]):
                entries |= _frame(axes, film, frame)
                axes.set_title(f"epoch {film.epochs[frame]}", loc="center")
            _head(row[: len(film.epochs)], label, "center")
        for axes in panels[-1]:
            axes.set_xlabel("margin Δ")
        figure.set_figheight(0.2 + max(0.95, min(1.4, 8.2 / down)) * down + add_legend(figure, entries, task))


def write_start(panels: Sequence[tuple[str, Floats, Floats]], output: Path) -> None:
    """Draw the density of measured margins, and of simulated ones as a line; each panel is a title and both."""
    from matplotlib.lines import Line2D

    with figure_in(output) as figure:
        for axes, (title, measured, simulated) in zip(figure.subplots(1, len(panels), squeeze=False)[0], panels, strict=True):
            edges = np.linspace(min(measured.min(), simulated.min()), max(measured.max(), simulated.max()), 60)
            heights, simulated_heights = (np.histogram(values, edges, density=True)[0] for values in (measured, simulated))
            stairs = axes.stairs(heights, edges, fill=True, linewidth=0.8, **_GROUPS["all"])
            axes.plot((edges[1:] + edges[:-1]) / 2, simulated_heights, color=INK)
            axes.set(title=title, xlabel=f"margin Δ: mean {measured.mean():.2f}, simulated {simulated.mean():.2f}", yticks=[])
        entries = {"just initialised": stairs, "simulated: scores are independent N(0, 1)": Line2D([], [], color=INK)}
        figure.set_figheight(1.9 + add_legend(figure, entries))


def write_sweep(rows: Sequence[Sequence[Panel]], xlabel: str, output: Path) -> None:
    """Draw numbers of runs over a setting: a dot for every seed, and lines through the means."""
    from matplotlib.lines import Line2D

    names = list(dict.fromkeys(name for row in rows for panel in row for name in panel.lines))
    places = list(dict.fromkeys(place for row in rows for panel in row for line in panel.lines.values() for place in line))
    styles = {name: {"color": line_style(index).colour, "linestyle": dashes(line_style(index).dash)} for index, name in enumerate(names)}
    with figure_in(output) as figure:
        for row, panels in zip(
            figure.subplots(len(rows), max(map(len, rows)), squeeze=False, sharex=True, sharey="row"), rows, strict=True
        ):
            for axes, panel in zip(row, panels, strict=True):
                for name, line in panel.lines.items():
                    at = [places.index(place) for place in line]
                    axes.plot(at, [np.mean(values) for values in line.values()], **styles[name])
                    for where, values in zip(at, line.values(), strict=True):
                        axes.plot([where] * len(values), values, "o", markersize=2.5, alpha=0.7, color=styles[name]["color"])
                axes.set(title=panel.title, xlim=(-0.3, len(places) - 0.7))
                axes.set_xticks(range(len(places)), places, rotation=90 if max(map(len, places)) > 5 else 0)
        for axes in row:
            axes.set_xlabel(xlabel)
        figure.set_figheight(0.4 + 1.7 * len(rows) + add_legend(figure, {name: Line2D([], [], **styles[name]) for name in names}))


def _frame(axes: Any, film: Film, frame: int) -> dict[str, Any]:
    """Draw one epoch; return the legend entries."""
    drawn = {}
    shares = {group: counts[frame] / max(1, counts[frame].sum()) for group, counts in film.counts.items()}
    tallest = max(float(share.max()) for share in shares.values()) or 1.0
    for group, share in shares.items():
        if share.any():
            drawn[_GROUP_WORDS[group]] = axes.stairs(share / tallest, film.edges, fill=True, linewidth=0.8, **_GROUPS[group])
    axes.set(xlim=(film.edges[0], film.edges[-1]), ylim=(0, 1.12), yticks=[])
    axes.locator_params(axis="x", nbins=5, steps=_ROUND)
    emphasis = film.emphasis_in(frame)
    if emphasis is not None and film.emphasis is not None:
        above = axes.twinx()
        (drawn[_EMPHASIS],) = above.plot(film.margins, emphasis, color=INK, linewidth=1.1)
        above.set_ylim(0, 1.12 * np.max(film.emphasis))
        above.grid(False)
        last = frame == len(film.epochs) - 1
        above.spines["right"].set_visible(last)
        above.tick_params(right=last, labelright=last)
        above.set_ylabel("w(Δ)" if last else "")
    return drawn
