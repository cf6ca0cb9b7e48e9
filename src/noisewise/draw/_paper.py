"""How every figure for a paper is made, by matplotlib: its fonts, its width, its legend, and a file that is the same every time.

It must not know what the figures show.
"""

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
    "text.parse_math": False,  # a $ in a name is a $
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
    "svg.fonttype": "none",  # letters stay letters
    "svg.hashsalt": "noisewise",
    "pdf.fonttype": 42,
}
_NO_DATE: dict[str, dict[str, Any]] = {".svg": {"Date": None}, ".pdf": {"CreationDate": None}}
_BESIDE_LABEL = 0.65  # inches for the line before a label and the gap after it


def dashes(dash: str) -> Any:
    """What matplotlib calls the dash of a `Look`, in widths of the line."""
    return "-" if dash == "solid" else (0, tuple(float(length.removesuffix("px")) / DASHED_WIDTH for length in dash.split(",")))


@contextmanager
def figure_in(output: Path) -> Iterator[Any]:
    """An empty figure, written to the file when the block ends; the user's own matplotlib settings play no part."""
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
    """Put a legend above the panels, in as many columns as its words leave room for, and return its height in inches.

    Args:
        figure: it goes into.
        entries: what it explains, by label.
        heading: what stands above it.
    """
    labels = [wrapped(label, _BESIDE_LABEL) for label in entries]
    layouts = (_columns(labels, number) for number in range(len(labels), 1, -1))
    columns = next((layout for layout in layouts if sum(map(_width_of, layout)) <= WIDTH), [labels])
    words, above = ["\n".join(label) for label in labels], wrapped(heading)
    figure.legend(
        list(entries.values()), words, loc="outside upper left", ncols=len(columns), title="\n".join(above) or None, alignment="left"
    )
    return 0.1 + 0.165 * (len(above) + max(sum(map(len, column)) for column in columns))


def wrapped(words: str, beside: float = 0.1, weight: str = "normal") -> list[str]:
    """Words in lines that fit the width of the figure, with so many inches left over."""
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
    """Labels as matplotlib deals them out to columns: one more for each of the first, where they do not come out even."""
    each, more = divmod(len(labels), number)
    ends = [each * place + min(place, more) for place in range(number + 1)]
    return [labels[start:end] for start, end in itertools.pairwise(ends)]
