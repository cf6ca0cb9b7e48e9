"""Pictures of losses and of runs.

``draw.curves(["ce", "imae(T=8)"], "curves.html")`` writes a page that opens offline; everything else is a figure for a paper, by
matplotlib. `_sample`, `_history` and `_film` compute what is drawn; `_plotly` and `_figure` draw it. Nothing here knows any
particular loss.
"""

from __future__ import annotations

import importlib.util
import warnings
from collections.abc import Iterable, Sequence
from os import PathLike
from pathlib import Path
from typing import TypeAlias

from noisewise.draw._film import Film, film
from noisewise.draw._history import (
    CURVES,
    History,
    RunCurves,
    alike,
    by_label,
    by_task,
    counted,
    histories,
    history_of_curves,
    lines,
    task_of,
)
from noisewise.draw._plotly import Figure, as_json, as_text, bundle, dynamics_figure, write_page
from noisewise.draw._plotly import curves_figure as figure_of_picture
from noisewise.draw._sample import sample
from noisewise.dynamics import Dynamics, as_compared, number_data_sets
from noisewise.errors import InputError, invalid_parameter, listed
from noisewise.losses import Loss
from noisewise.output import check_output, check_replacing, is_page
from noisewise.runs import find_runs

__all__ = [
    "CURVES",
    "Figure",
    "Film",
    "History",
    "RunCurves",
    "as_json",
    "as_text",
    "bundle",
    "by_label",
    "check_figure",
    "curves",
    "curves_figure",
    "curves_of_runs",
    "dynamics",
    "dynamics_figure",
    "film",
    "lines",
    "margins",
]

Runs: TypeAlias = str | PathLike[str] | Dynamics

_FIGURES = (".svg", ".pdf", ".png")
_MOST_COLUMNS = 8


def curves(specs: Iterable[str | Loss], output: str | PathLike[str], *, classes: int = 10) -> Path:
    """Draw losses over p and over the margin, with the margins training starts from behind them.

    Args:
        specs: losses that are functions of p alone, or their specs.
        output: a file that ends in .html, .svg, .pdf or .png.
        classes: the number of classes, which decides the margins before training.

    Returns:
        The file that was written.

    Example:
        >>> import tempfile
        >>> folder = tempfile.mkdtemp()
        >>> curves(["ce", "imae(T=8)"], f"{folder}/curves.html").name
        'curves.html'
    """
    if isinstance(specs, str):
        raise invalid_parameter("specs", "curves", "a list", specs)
    file = check_figure(output, (".html", *_FIGURES))
    picture = sample([spec if isinstance(spec, str) else repr(spec) for spec in specs], classes)
    if file.suffix.lower() == ".html":
        write_page(picture, file)
    else:
        from noisewise.draw._figure import write

        write(picture, file)
    return file


def curves_figure(specs: Sequence[str], classes: int, places: Sequence[int]) -> Figure:
    """The curves of losses as a plotly figure.

    Args:
        specs: of the losses.
        classes: the number of classes.
        places: the positions of the losses among the lines of a page, which decide their colours.
    """
    return figure_of_picture(sample(specs, classes, places))


def dynamics(runs: Runs | Iterable[Runs], output: str | PathLike[str]) -> Path:
    """Draw what happened in training: accuracy on test data and on the clean and the noisy subset, α_t, and mean emphasis.

    Args:
        runs: runs, or folders of runs. Runs that differ in nothing but the seed become one line, ± one standard deviation shaded;
            those that are not finished are left out where others are, and a warning names them. Runs on other data, of other
            models or with other noise have panels of their own.
        output: a file that ends in .svg, .pdf or .png.

    Returns:
        The file that was written.

    Reference:
        IMAE, figures 4 and 10; gradient rescaling, figure 2; a curriculum view of robust loss functions, figure 1.
    """
    from noisewise.draw._figure import write_dynamics

    file = check_figure(output)
    given = _read(runs)
    found = histories(given)
    drawn = [(words, one) for words, one in found.items() if one.lines]
    if not drawn:
        raise InputError("There is nothing to draw: none of the runs has finished an epoch that all its seeds have. Wait, or give others.")
    left_out = [folder for one in found.values() for folder in one.left_out]
    if left_out:
        are = "is not finished and is left out" if len(left_out) == 1 else "are not finished and are left out"
        out = listed(map(repr, left_out))
        warnings.warn(f"{len(left_out)} of {len(given)} runs {are}, because other seeds are finished: {out}.", stacklevel=2)
    write_dynamics(task_of([run.record.settings for run in given]), drawn, file)
    return file


def curves_of_runs(runs: Sequence[RunCurves], output: str | PathLike[str]) -> Path:
    """Draw what `dynamics` draws from curves that were read before, without run folders.

    Args:
        runs: the settings and curves of every run.
        output: a file that ends in .svg, .pdf or .png.

    Returns:
        The file that was written.
    """
    from noisewise.draw._figure import write_dynamics

    file = check_figure(output)
    parts = alike({words: history_of_curves(part) for words, part in by_task(runs, lambda run: run.settings).items()})
    write_dynamics(task_of([run.settings for run in runs]), list(parts.items()), file)
    return file


def margins(runs: Runs | Iterable[Runs], output: str | PathLike[str], *, epochs: Sequence[int] | None = None) -> Path:
    """Draw how the margins of clean and noisy examples are distributed as training goes on, and how hard the loss pulls there.

    Args:
        runs: runs, or folders of runs. Of runs that differ in nothing but the seed the first is drawn, the first finished one
            where there is any.
        output: a file that ends in .svg, .pdf or .png.
        epochs: which, eight at most; by default the first, those after a quarter and a half, and the last.

    Returns:
        The file that was written.

    Reference:
        A curriculum view of robust loss functions, figure 3.
    """
    from noisewise.draw._figure import write_margins

    file = check_figure(output)
    if epochs is not None and not 1 <= len(epochs) <= _MOST_COLUMNS:
        raise invalid_parameter("epochs", "margins", f"1 to {_MOST_COLUMNS} epochs", epochs)
    given = _read(runs)
    rows = []
    for label, seeds in by_label(given).items():
        run = Dynamics(counted(seeds)[0].folder)  # under its own settings, which say how its loss pulls
        if run.record.epochs():
            seed = f", seed {run.record.settings['seed']}" if len(seeds) > 1 and "seed" in run.record.settings else ""
            rows.append((f"{label}{seed}", film(run, frames=_telling(run.record.epochs()) if epochs is None else epochs)))
    if not rows:
        raise InputError("There is nothing to draw: none of the runs has a recorded epoch. Wait for one, or give other runs.")
    write_margins(task_of([run.record.settings for run in given]), rows, file)
    return file


def check_figure(output: str | PathLike[str], endings: Sequence[str] = _FIGURES) -> Path:
    """Refuse a picture file that cannot be written, or a page that somebody else wrote, before anything is worked out.

    Args:
        output: the file.
        endings: what its name may end in.
    """
    file = check_output(output, "a picture", endings)
    if file.suffix.lower() in _FIGURES and importlib.util.find_spec("matplotlib") is None:
        raise InputError(f"Writing {file.name!r} needs matplotlib. Run pip install 'noisewise[figures]'.")
    if file.suffix.lower() == ".html":
        check_replacing(file, None, is_page, "page")
    return file


def _read(runs: Runs | Iterable[Runs]) -> list[Dynamics]:
    """Every run once, whatever it was given as, under the settings it is compared by and the name its data have among others."""
    several = [runs] if isinstance(runs, str | PathLike | Dynamics) else list(runs)
    if not several:
        raise InputError("There is nothing to draw. Give at least one run, or a folder of runs.")
    folders = find_runs([one.folder if isinstance(one, Dynamics) else one for one in several])
    return number_data_sets([as_compared(Dynamics(folder)) for folder in folders])


def _telling(epochs: Sequence[int]) -> tuple[int, ...]:
    """The first epoch, those after a quarter and a half of the way, and the last."""
    last = len(epochs) - 1
    return tuple(dict.fromkeys(epochs[place] for place in (0, round(last / 4), round(last / 2), last)))
