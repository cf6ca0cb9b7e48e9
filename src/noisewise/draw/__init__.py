"""Pictures of losses and of runs.

``draw.curves(["ce", "imae(T=8)"], "curves.html")`` writes a page that opens offline. The other figures are for papers and use matplotlib.
`_sample` and `_history` compute what is drawn; `_plotly` and `_figure` draw it.
"""

from __future__ import annotations

import importlib.util
import warnings
from collections.abc import Iterable, Mapping, Sequence
from os import PathLike
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np

from noisewise.arrays import Floats
from noisewise.draw._history import (
    CURVES,
    Film,
    History,
    Panel,
    RunCurves,
    by_task,
    film,
    finished_runs,
    group_by_label,
    histories,
    history_of_curves,
    labels,
    loss_curves,
    task_of,
    with_shared_styles,
)
from noisewise.draw._plotly import Figure, as_json, as_text, bundle, curves_figure, dynamics_figure, write_page
from noisewise.draw._sample import bounds as bounds_of
from noisewise.draw._sample import sample
from noisewise.dynamics import Dynamics, number_data_sets, with_original_settings
from noisewise.errors import InputError, invalid_parameter, listed
from noisewise.losses import Loss
from noisewise.margin import simulated_margins
from noisewise.output import check_output, check_replacing, is_page
from noisewise.runs import find_runs
from noisewise.spec import as_int

__all__ = [
    "CURVES",
    "Figure",
    "Film",
    "History",
    "Panel",
    "RunCurves",
    "as_json",
    "as_text",
    "bounds",
    "bundle",
    "check_figure",
    "curves",
    "curves_figure",
    "curves_of_runs",
    "dynamics",
    "dynamics_figure",
    "film",
    "film_of",
    "films",
    "group_by_label",
    "loss_curves",
    "margins",
    "start",
    "sweep",
]

Runs: TypeAlias = str | PathLike[str] | Dynamics

_FIGURES = (".svg", ".pdf", ".png")
_MOST_COLUMNS = 8
_PROBABILITIES = np.linspace(0.005, 0.995, 199)
_CLASSES = (2, 3, 4, 5, 7, 10, 20, 50, 100, 200, 500, 1000)


def curves(specs: Iterable[str | Loss], output: str | PathLike[str], *, classes: int = 10) -> Path:
    """Draw losses over p and over the margin, with the margins before training in the background.

    Args:
        specs: losses that are functions of p alone, or their specs.
        output: a file that ends in .html, .svg, .pdf or .png.
        classes: the number of classes; the margins before training depend on it.

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
    as_int("classes", "curves", classes, 2)
    file = check_figure(output, (".html", *_FIGURES))
    picture = sample([spec if isinstance(spec, str) else repr(spec) for spec in specs], classes)
    if file.suffix.lower() == ".html":
        write_page(picture, file)
    else:
        from noisewise.draw._figure import write

        write(picture, file)
    return file


def bounds(specs: Iterable[str | Loss], output: str | PathLike[str]) -> Path:
    """Draw what theory says about losses: how much harder they pull at each p than at 1/2, and how much symmetric noise they tolerate.

    Args:
        specs: losses that are functions of p alone, or their specs.
        output: a file that ends in .svg, .pdf or .png.

    Returns:
        The file that was written.

    Example:
        >>> import tempfile
        >>> bounds(["ce", "mae", "aul(a=2, q=2)"], f"{tempfile.mkdtemp()}/bounds.svg").name
        'bounds.svg'
    """
    from noisewise.draw._figure import write_bounds

    if isinstance(specs, str):
        raise invalid_parameter("specs", "bounds", "a list", specs)
    file = check_figure(output)
    losses = bounds_of([spec if isinstance(spec, str) else repr(spec) for spec in specs], _PROBABILITIES, _CLASSES)
    write_bounds(_PROBABILITIES, _CLASSES, losses, file)
    return file


def dynamics(runs: Runs | Iterable[Runs], output: str | PathLike[str]) -> Path:
    """Draw what happened in training: accuracy on test data and on the clean and the noisy subset, α_t, and mean emphasis.

    Args:
        runs: runs, or folders of runs. Runs that differ only in the seed are averaged, ± one standard deviation shaded; unfinished
            runs are left out with a warning if other seeds are finished. Each combination of data, model and noise has its own panels.
        output: a file that ends in .svg, .pdf or .png.

    Returns:
        The file that was written.

    Reference:
        IMAE, figures 4 and 10; gradient rescaling, figure 2; a curriculum view of robust loss functions, figure 1.
    """
    from noisewise.draw._figure import write_dynamics

    file = check_figure(output)
    dynamics_of_runs = _read(runs)
    tasks = histories(dynamics_of_runs)
    drawn = [(name, task) for name, task in tasks.items() if task.lines]
    if not drawn:
        raise InputError("There is nothing to draw: no run has finished an epoch that all its seeds have. Wait, or give other runs.")
    left_out = [folder for task in tasks.values() for folder in task.left_out]
    if left_out:
        are = "is not finished and is left out" if len(left_out) == 1 else "are not finished and are left out"
        names = listed(map(repr, left_out))
        number = len(dynamics_of_runs)
        warnings.warn(f"{len(left_out)} of {number} runs {are}, because other seeds are finished: {names}.", stacklevel=2)
    write_dynamics(task_of([run.record.settings for run in dynamics_of_runs]), drawn, file)
    return file


def curves_of_runs(runs: Sequence[RunCurves], output: str | PathLike[str]) -> Path:
    """Draw the figure of `dynamics` from curves that were read before, without run folders.

    Args:
        runs: the settings and curves of each run.
        output: a file that ends in .svg, .pdf or .png.

    Returns:
        The file that was written.
    """
    from noisewise.draw._figure import write_dynamics

    file = check_figure(output)
    tasks = by_task(runs, lambda run: run.settings)
    parts = with_shared_styles({name: history_of_curves(part) for name, part in tasks.items()})
    write_dynamics(task_of([run.settings for run in runs]), list(parts.items()), file)
    return file


def margins(runs: Runs | Iterable[Runs], output: str | PathLike[str], *, epochs: Sequence[int] | None = None) -> Path:
    """Draw histograms of the margins of clean and noisy examples at some epochs, with the emphasis of the loss.

    Args:
        runs: runs, or folders of runs. Of runs that differ only in the seed, the first finished one is drawn.
        output: a file that ends in .svg, .pdf or .png.
        epochs: at most eight; by default the first, those after a quarter and a half of training, and the last.

    Returns:
        The file that was written.

    Reference:
        A curriculum view of robust loss functions, figure 3.
    """
    from noisewise.draw._figure import write_margins

    file = check_figure(output)
    if epochs is not None and not 1 <= len(epochs) <= _MOST_COLUMNS:
        raise invalid_parameter("epochs", "margins", f"1 to {_MOST_COLUMNS} epochs", epochs)
    dynamics_of_runs = _read(runs)
    rows = []
    for label, seeds in group_by_label(dynamics_of_runs).items():
        run = Dynamics(finished_runs(seeds)[0].folder)  # with its own settings, which include its loss
        if run.record.epochs():
            seed = f", seed {run.record.settings['seed']}" if len(seeds) > 1 and "seed" in run.record.settings else ""
            rows.append((f"{label}{seed}", film_of(run) if epochs is None else film(run, frames=epochs)))
    if not rows:
        raise InputError("There is nothing to draw: no run has a recorded epoch. Wait, or give other runs.")
    write_margins(task_of([run.record.settings for run in dynamics_of_runs]), rows, file)
    return file


def film_of(run: Dynamics) -> Film:
    """The film that a figure shows: the first epoch, those after a quarter and a half of training, and the last."""
    return film(run, frames=_default_epochs(run.record.epochs()))


def films(runs: Sequence[tuple[Mapping[str, Any], Film]], output: str | PathLike[str]) -> Path:
    """Draw the figure of `margins` from films that were made before, without run folders.

    Args:
        runs: the settings and the film of each run.
        output: a file that ends in .svg, .pdf or .png.

    Returns:
        The file that was written.
    """
    from noisewise.draw._figure import write_margins

    file = check_figure(output)
    settings = [run for run, _ in runs]
    write_margins(task_of(settings), list(zip(labels(settings), (film for _, film in runs), strict=True)), file)
    return file


def start(measured: Mapping[str, tuple[Floats, int]], output: str | PathLike[str]) -> Path:
    """Draw margins before training, a panel each, with margins simulated for the same number of classes.

    Args:
        measured: the margins of an untrained model and the number of classes, by the title of the panel.
        output: a file that ends in .svg, .pdf or .png.

    Returns:
        The file that was written.

    Reference:
        A curriculum view of robust loss functions, figure 6.
    """
    from noisewise.draw._figure import write_start

    file = check_figure(output)
    panels = [(title, margins, simulated_margins(classes).numpy()) for title, (margins, classes) in measured.items()]
    write_start(panels, file)
    return file


def sweep(panels: Sequence[Sequence[Panel]], xlabel: str, output: str | PathLike[str]) -> Path:
    """Draw how numbers of runs depend on a setting: a dot for every seed, and lines through the means.

    Args:
        panels: rows of panels.
        xlabel: the setting.
        output: a file that ends in .svg, .pdf or .png.

    Returns:
        The file that was written.
    """
    from noisewise.draw._figure import write_sweep

    file = check_figure(output)
    write_sweep(panels, xlabel, file)
    return file


def check_figure(output: str | PathLike[str], endings: Sequence[str] = _FIGURES) -> Path:
    """Check that a picture can be written to this file, and that no page of another program is replaced."""
    file = check_output(output, "a picture", endings)
    if file.suffix.lower() in _FIGURES and importlib.util.find_spec("matplotlib") is None:
        raise InputError(f"Writing {file.name!r} needs matplotlib. Run pip install 'noisewise[figures]'.")
    if file.suffix.lower() == ".html":
        check_replacing(file, None, is_page, "page")
    return file


def _read(runs: Runs | Iterable[Runs]) -> list[Dynamics]:
    """The dynamics of each run, once, with the settings that runs are compared by."""
    several = [runs] if isinstance(runs, str | PathLike | Dynamics) else list(runs)
    if not several:
        raise InputError("There is nothing to draw. Give at least one run, or a folder of runs.")
    folders = find_runs([run.folder if isinstance(run, Dynamics) else run for run in several])
    return number_data_sets([with_original_settings(Dynamics(folder)) for folder in folders])


def _default_epochs(epochs: Sequence[int]) -> tuple[int, ...]:
    """The first epoch, those after a quarter and a half, and the last."""
    last = len(epochs) - 1
    return tuple(dict.fromkeys(epochs[index] for index in (0, round(last / 4), round(last / 2), last)))
