"""The numbers of finished runs, without their folders, in small JSON files.

A file contains a portion: the runs that one call trained for one recipe. No other call writes to it, so two files with the same name are
copies of each other. A run is found by its settings, so every table that needs the run finds it. To merge the results of several
machines, put the files into one folder.
"""

from __future__ import annotations

import datetime
import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import MISSING, asdict, dataclass, field, fields
from importlib.resources import as_file, files
from os import PathLike
from pathlib import Path
from typing import Any

from noisewise.errors import InputError, shown
from noisewise.output import written_whole
from noisewise.papers._identity import key
from noisewise.papers._metrics import RETRAINED

_FILE_NAME = re.compile(r"\w[\w-]*-\d{8}-\d{6}-\d{6}\.json")


@dataclass(frozen=True)
class Outcome:
    """The numbers of a finished run.

    Args:
        settings: the settings that decide the outcome, without the seed.
        seed: the seed of the run.
        numbers: "best", "final" and the last values of the other measures of `Dynamics`, or None. A run that was trained again on
            corrected labels also has "retrained", the test accuracy of the second training, "changed", the number of changed labels,
            and "wrong_before" and "wrong_after", the shares of wrong labels.
        curves: "epoch", and the measures at these epochs: at most a hundred values, with four digits.
        steps: the number of updates in the first training.
        finished: when the (last) training ended, in UTC.
        made_with: versions, device, precision, and whether the model was compiled.
        margins: histograms of the margins, for a run that a figure shows them of: "epochs", "edges", the counts of "clean" and "noisy" at
            each epoch, and the "emphasis" over evenly spaced margins; empty for other runs.
        classes: the test accuracy of each class at the end, by name; empty for more than ten classes.
    """

    settings: Mapping[str, Any]
    seed: int
    numbers: Mapping[str, float | None]
    curves: Mapping[str, list[float | None]]
    steps: int
    finished: str
    made_with: Mapping[str, Any]
    margins: Mapping[str, Any] = field(default_factory=dict)
    classes: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Portion:
    """The runs that one call trained for a recipe.

    Args:
        recipe: its id.
        started: when the call started, in UTC.
        runs: the finished runs, and those that were already in the folder but in no other portion.
    """

    recipe: str
    started: str
    runs: tuple[Outcome, ...] = ()

    @classmethod
    def begin(cls, recipe: str) -> Portion:
        """A portion without runs that starts now."""
        return cls(recipe, datetime.datetime.now(datetime.UTC).isoformat())

    @classmethod
    def read(cls, file: Path) -> Portion:
        """Read a portion from its file."""
        try:
            written = json.loads(file.read_text(encoding="utf-8"))
            portion = cls(**{**_typed(written, cls), "runs": tuple(Outcome(**_typed(run, Outcome)) for run in written["runs"])})
            datetime.datetime.fromisoformat(portion.started)
            for run in portion.runs:
                key(run.settings)
            return portion
        except (OSError, ValueError, TypeError, KeyError) as error:
            raise InputError(f"The file {str(file)!r} contains no results ({error}). Give a file that reproduce wrote.") from None

    @classmethod
    def all_in(cls, folder: Path) -> list[Portion]:
        """The portions in a folder; files with other names are ignored."""
        return [cls.read(file) for file in sorted(folder.glob("*.json")) if _FILE_NAME.fullmatch(file.name)]

    @property
    def name(self) -> str:
        """The name of its file, which is unique."""
        return f"{self.recipe.replace('/', '-')}-{datetime.datetime.fromisoformat(self.started):%Y%m%d-%H%M%S-%f}.json"

    def write(self, folder: Path) -> Path:
        """Write the portion, one run to a line, and return the file."""
        head = json.dumps({"recipe": self.recipe, "started": self.started}, ensure_ascii=False)
        lines = ",\n".join(json.dumps(_entries(run), ensure_ascii=False, allow_nan=False) for run in self.runs)
        with written_whole(folder / self.name) as part:
            part.write_text(f'{head[:-1]}, "runs": [\n{lines}\n]}}\n', encoding="utf-8")
        return folder / self.name


def _entries(run: Outcome) -> dict[str, Any]:
    """A run as it is written: without margins and classes if it has none."""
    return {name: value for name, value in asdict(run).items() if name not in ("margins", "classes") or value}


_TYPES = {"str": str, "int": int, "Mapping": dict, "tuple": list}
"""The JSON type of a field, by how its annotation begins."""


def _typed(written: Any, kind: type) -> dict[str, Any]:
    """The fields of a portion or a run, after a check of their types; other entries are ignored."""
    if not isinstance(written, dict):
        raise TypeError(f"{shown(written)} is not a table")
    wanted = [entry for entry in fields(kind) if entry.name in written or entry.default_factory is MISSING]
    values = {entry.name: written[entry.name] for entry in wanted}
    for entry in wanted:
        if not isinstance(values[entry.name], _TYPES[entry.type.partition("[")[0]]):
            raise TypeError(f"{entry.name} is {shown(values[entry.name])}")
    return values


class Results:
    """The runs of some portions. If several portions contain the same run, the one that finished last is used.

    Args:
        portions: the portions, in any order. Of two copies of a portion, the one with more runs is used.
    """

    def __init__(self, portions: Iterable[Portion] = ()) -> None:
        once = {portion.name: portion for portion in sorted(portions, key=lambda portion: len(portion.runs))}
        self.portions = tuple(sorted(once.values(), key=lambda portion: portion.started))
        self._runs: dict[str, dict[int, Outcome]] = {}
        for run in sorted((run for portion in self.portions for run in portion.runs), key=lambda run: run.finished):
            self._runs.setdefault(key(run.settings), {})[run.seed] = run

    def of(self, settings: Mapping[str, Any]) -> list[Outcome]:
        """The outcomes of the runs with these settings, ordered by seed."""
        by_seed = self._runs.get(key(settings), {})
        return [by_seed[seed] for seed in sorted(by_seed)]

    def holds(self, settings: Mapping[str, Any], seed: int, *, retrained: bool = False, margins: bool = False) -> bool:
        """Whether there is a run with these settings and this seed; with `retrained`, one that was trained again; with `margins`, one
        that has them."""
        run = self._runs.get(key(settings), {}).get(seed)
        return run is not None and (not retrained or RETRAINED in run.numbers) and (not margins or bool(run.margins))


def results(*paths: str | PathLike[str]) -> Results:
    """Read results that `reproduce` wrote.

    Args:
        *paths: files, or folders of files; by default the results that come with the package.

    Example:
        >>> committed = results()
        >>> committed.of({"data": "cifar10", "model": "mlp", "loss": "ce", "epochs": 1})
        []
    """
    if paths:
        return Results(portion for path in map(Path, paths) for portion in _portions(path))
    with as_file(files("noisewise.papers") / "results") as folder:
        return Results(map(Portion.read, folder.glob("*.json")))


def _portions(path: Path) -> list[Portion]:
    portions = [Portion.read(file) for file in (sorted(path.glob("*.json")) if path.is_dir() else [path])]
    if not portions:
        raise InputError(f"There are no results in {str(path)!r}. Give a file that reproduce wrote, or a folder of such files.")
    return portions
