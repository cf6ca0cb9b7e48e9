"""The settings under which runs are compared: those of a run on corrected labels are the settings of the run it came from."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from noisewise.dynamics._dynamics import Dynamics
from noisewise.runs import data_set_numbers, read_origin


def as_compared(run: Dynamics) -> Dynamics:
    """A run under the settings it is compared by: itself, unless its labels were corrected."""
    origin = read_origin(Path(run.folder))
    if origin is None:
        return run
    twin = Dynamics(run.folder)
    twin.record.settings.update(origin.settings, loss=origin.name(str(twin.record.settings["loss"])))
    return twin


def number_data_sets(runs: Sequence[Dynamics]) -> list[Dynamics]:
    """The runs, with their data sets numbered where different ones have the same name: "arrays", then "arrays (2)"."""
    numbers = data_set_numbers([run.record for run in runs])
    return [run if number == 1 else _renamed(run, number) for run, number in zip(runs, numbers, strict=True)]


def _renamed(run: Dynamics, number: int) -> Dynamics:
    settings = run.record.settings
    twin = Dynamics(run.folder)
    twin.record.settings.update(settings, data=f"{settings.get('data')} ({number})")
    return twin
