"""Pictures of losses: emphasis, value and gradient norm as curves, over p and over the margin.

``draw.curves(["ce", "imae(T=8)"], "curves.html")`` writes a page that opens offline; ``.png`` and ``.svg`` need matplotlib. What
is drawn is worked out in `_sample`; `_page` and `_figure` only draw it. Nothing here knows any particular loss.
"""

from __future__ import annotations

import importlib
import importlib.util
import os
from collections.abc import Sequence
from pathlib import Path

from noisewise.draw._sample import sample
from noisewise.errors import InputError, must

__all__ = ["check_output", "curves"]

_DRAWN_BY = {".html": ("_page", "plotly", ""), ".png": ("_figure", "matplotlib", "figures"), ".svg": ("_figure", "matplotlib", "figures")}


def curves(specs: Sequence[str], output: str | Path, *, classes: int = 10) -> Path:
    """Draw losses over p and over the margin, with the margins training starts from behind them.

    Args:
        specs: spec strings of losses that are functions of p alone.
        output: a file that ends in .html, .png or .svg.
        classes: the number of classes, which decides the margins before training.

    Returns:
        The file that was written.

    Example:
        >>> import tempfile
        >>> folder = tempfile.mkdtemp()
        >>> curves(["ce", "imae(T=8)"], f"{folder}/curves.html").name
        'curves.html'
    """
    output = check_output(output)
    importlib.import_module(f"noisewise.draw.{_DRAWN_BY[output.suffix.lower()][0]}").write(sample(specs, classes), output)
    return output


def check_output(output: str | Path) -> Path:
    """Refuse a picture file that cannot be written, before anything is worked out."""
    output = Path(output)
    _, library, extra = _DRAWN_BY.get(output.suffix.lower(), ("", "", ""))
    if not library:
        raise must("output", "curves", f"a file that ends in {', '.join(_DRAWN_BY)}", str(output))
    folder = output.resolve().parent
    if not folder.is_dir():
        raise InputError(f"The folder {str(folder)!r} does not exist. Make it first, or give another output file.")
    if output.is_dir() or not os.access(output if output.exists() else folder, os.W_OK):
        raise InputError(f"The file {str(output)!r} cannot be written. Give another output file.")
    if importlib.util.find_spec(library) is None:
        raise InputError(f"Writing {output.name!r} needs {library}. Run pip install 'noisewise[{extra}]', or give a .html file.")
    return output
