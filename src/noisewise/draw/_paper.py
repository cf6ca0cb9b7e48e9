"""The style of matplotlib figures for papers: fonts, width and legend. The same figure always gives the same file."""

from __future__ import annotations

import itertools
import textwrap
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from noisewise.draw._history import DASHED_WIDTH
from noisewise.output import written_output

WIDTH = 6.75  # inches: both columns of a page
INK = "#222222"

_STYLE: dict[str, Any] = {
    "font.size": 8,
    "axes.titlesize": 8,
    "axes.titlelocation": "left",
    "axes.titlepad": 4,
    "axes.labelsize": 8,
    "axes.labelcolor": INK,
    "axes.edgecolor": "#888888",
    "axes.linewidth": 0.6,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.axisbelow": True,
    "axes.grid": True,
    "grid.color": "#E6E6E6",
    "grid.linewidth": 0.6,
    "hatch.linewidth": 0.4,
    "lines.linewidth": 1.3,
    "legend.fontsize": 8,
    "legend.title_fontsize": 8.5,
    "legend.frameon": False,
    "legend.handlelength": 3.2,
    "legend.columnspacing": 1.5,
    "text.color": INK,
    "text.parse_math": False,  # do not read $ in a name as math
    "xtick.labelsize": 7,
    "ytick.labelsize": 7,
    "xtick.color": "#888888",
    "ytick.color": "#888888",
    "xtick.labelcolor": INK,
    "ytick.labelcolor": INK,
    "xtick.major.width": 0.6,
    "ytick.major.width": 0.6,
    "savefig.dpi": 300,
    "savefig.facecolor": "white",
    "svg.fonttype": "none",  # keep text as text
    "svg.hashsalt": "noisewise",
    "pdf.fonttype": 42,
}
_NO_DATE: dict[str, dict[str, Any]] = {".svg": {"Date": None}, ".pdf": {"CreationDate": None}}
_BESIDE_LABEL = 0.65  # inches for the line before a label and the gap after it


def dashes(dash: str) -> Any:
    """The dash of a `LineStyle` for matplotlib, in line widths."""
    return "-" if dash == "solid" else (0, tuple(float(length.removesuffix("px")) / DASHED_WIDTH for length in dash.split(",")))


@contextmanager
def figure_in(output: Path) -> Iterator[Any]:
    """An empty figure that is written to the file when the block ends. The user's matplotlib settings are ignored."""
    from matplotlib import style
    from matplotlib.figure import Figure
    from matplotlib.layout_engine import ConstrainedLayoutEngine

    with style.context(["default", _STYLE]):
        figure = Figure(figsize=(WIDTH, WIDTH), layout=ConstrainedLayoutEngine(w_pad=0.06, h_pad=0.05))
        yield figure
        ending = output.suffix.lower()
        with written_output(output) as part:
            figure.savefig(part, format=ending[1:], metadata=_NO_DATE.get(ending))


def add_legend(figure: Any, entries: Mapping[str, Any], heading: str = "") -> float:
    """Add a legend above the panels, in as many columns as fit, and return its height in inches.

    Args:
        figure: the figure.
        entries: matplotlib artists by label.
        heading: the title of the legend.
    """
    labels = [wrapped(label, _BESIDE_LABEL) for label in entries]
    layouts = (_columns(labels, number) for number in range(len(labels), 1, -1))
    columns = next((layout for layout in layouts if sum(map(_width_of, layout)) <= WIDTH), [labels])
    texts, title = ["\n".join(label) for label in labels], wrapped(heading)
    figure.legend(
        list(entries.values()), texts, loc="outside upper left", ncols=len(columns), title="\n".join(title) or None, alignment="left"
    )
    return 0.1 + 0.165 * (len(title) + max(sum(map(len, column)) for column in columns))


def wrapped(words: str, beside: float = 0.1, weight: str = "normal") -> list[str]:
    """Wrap text into lines that fit the width of the figure, less `beside` inches."""
    longest = len(words)
    while True:
        lines = textwrap.wrap(words, max(longest, 1))
        widest = max((_inches(line, weight) for line in lines), default=0.0)
        if widest <= WIDTH - beside or longest <= 1:
            return lines
        longest = min(longest - 1, int(longest * (WIDTH - beside) / widest))


def _inches(line: str, weight: str = "normal") -> float:
    from matplotlib.font_manager import FontProperties
    from matplotlib.textpath import text_to_path

    font = FontProperties(size=_STYLE["legend.title_fontsize"], weight=weight)
    return float(text_to_path.get_text_width_height_descent(line, font, ismath=False)[0]) / 72


def _width_of(column: list[list[str]]) -> float:
    return max(_inches(line) for label in column for line in label) + _BESIDE_LABEL


def _columns(labels: list[list[str]], number: int) -> list[list[list[str]]]:
    """Labels in columns as matplotlib distributes them: the first columns have one more if the division is uneven."""
    each, more = divmod(len(labels), number)
    ends = [each * column + min(column, more) for column in range(number + 1)]
    return [labels[start:end] for start, end in itertools.pairwise(ends)]
