"""How lines are told apart, by colour and, without colours, by dash: the same in every picture. It must not know what is drawn."""

from __future__ import annotations

from typing import NamedTuple

_COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#4B4B4B", "#7B3294")  # told apart by colour-blind eyes
DASHED_WIDTH = 2.5  # the width of a line, in px, that the dashes suit
_DASHES = (
    "solid",
    "10px,4px",
    "2.75px,3.25px",
    "12px,4px,2.75px,4px",
    "20px,5px",
    "20px,4px,2.75px,4px,2.75px,4px",
    "5.5px,2.75px",
    "16px,4px,5.5px,4px",
)


class Look(NamedTuple):
    """A colour, and a dash as plotly and SVG write it: "solid", or the lengths of strokes and gaps."""

    colour: str
    dash: str


def look(place: int) -> Look:
    """The look of a line by its place among the others; the first 64 places all look different.

    Example:
        >>> look(0), look(8)
        (Look(colour='#0072B2', dash='solid'), Look(colour='#0072B2', dash='10px,4px'))
    """
    lap, seat = divmod(place, len(_COLOURS))
    return Look(_COLOURS[seat], _DASHES[(seat + lap) % len(_DASHES)])
