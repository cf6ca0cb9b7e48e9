"""What finished runs came to, small enough to keep without their folders, in files that add up.

A file holds a portion: what one call trained for one recipe, and the time it took. No other call writes to it, so that a file of the same
name is the same file, wherever it was copied. A run is known by its settings and not by the table it was trained for, so every table finds
it, and results from many days and machines are merged by lying in one folder. This module must not train, nor know what the papers print.
"""

from __future__ import annotations

import datetime
import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, fields
from importlib.resources import as_file, files
from os import PathLike
from pathlib import Path
from typing import Any

import torch

from noisewise import train
from noisewise.data import number_of_batches
from noisewise.draw._subsample import thinned
from noisewise.errors import InputError, invalid_parameter, shown
from noisewise.output import written_whole
from noisewise.papers import _again, _retrieved
from noisewise.papers._again import RETRAINED
from noisewise.papers._identity import decisive, key

_AT_THE_END = ("clean_subset", "noisy_subset", "fitting", "validation", "hybrid", "snr", "alpha")
_CURVES = ("test", "clean_subset", "noisy_subset", "fitting", "validation", "snr", "alpha")
_MOST_POINTS = 100
_WRITTEN = re.compile(r"\w[\w-]*-\d{8}-\d{6}-\d{6}\.json")
_VERSIONS = ("noisewise", "python", "torch", "numpy", "device")


@dataclass(frozen=True)
class Outcome:
    """What a finished run came to.

    Args:
        settings: what makes it the run it is: all but the seed, and but for how it was stored and computed.
        seed: of the run.
        numbers: "best", "final" and the last of the other measures of `Dynamics`, as it gives them; None for what a run has not. One
            that was trained again on corrected labels has besides "retrained", the test accuracy of that, "changed", how many labels
            were, and "wrong_before" and "wrong_after", the shares of wrong labels.
        curves: "epoch", and the measures at those epochs: evaluations, a hundred at most, four digits each.
        steps: how many updates, in the first training.
        images: how many examples it went through, counted every time.
        seconds: it took; runs that share a GPU have each their own.
        finished: when, in UTC; the second training, where there was one.
        made_with: versions, device, precision, and whether the model was compiled.
    """

    settings: Mapping[str, Any]
    seed: int
    numbers: Mapping[str, float | None]
    curves: Mapping[str, list[float | None]]
    steps: int
    images: int
    seconds: float
    finished: str
    made_with: Mapping[str, Any]

    @classmethod
    def of(cls, run: train.Run) -> Outcome:
        """Read it off the folder of a finished run."""
        _check_whole(run)
        seen, asked, lines, origin = run.dynamics, run.settings, run.metrics, run.provenance
        numbers = {"best": seen.best, "final": seen.final}
        numbers |= {name: next(reversed(getattr(seen, name).values()), None) for name in _AT_THE_END}
        epochs = thinned(tuple(seen.fitting), _MOST_POINTS)
        known = {name: curve for name in _CURVES if (curve := getattr(seen, name))}
        curves = {name: [_short(curve.get(epoch)) for epoch in epochs] for name, curve in known.items()}
        half = asked.half(torch.device("cpu" if origin["device"] == "cpu" else "cuda"))
        computed = {"precision": "bfloat16" if half else "float32", "compile": asked.compile}
        numbers |= _again.numbers(run.path) | _retrieved.numbers(run.path)
        last = _again.second(run.path) if RETRAINED in numbers else run.path
        ended = datetime.datetime.fromtimestamp((last / "model.safetensors").stat().st_mtime, datetime.UTC)
        return cls(
            settings=decisive(asked.as_json()),
            seed=asked.seed,
            numbers=numbers,
            curves={"epoch": list(epochs), **curves},
            steps=lines[-1]["step"],
            images=images_until(lines[-1]["step"], asked.batch_size, origin["data"]["train"]["examples"]),
            seconds=round(sum(line["seconds"] for line in lines), 1),
            finished=ended.isoformat(timespec="seconds"),
            made_with={**{name: origin[name] for name in _VERSIONS}, **computed},
        )


def _check_whole(run: train.Run) -> None:
    for name in ("metrics.jsonl", "model.safetensors"):
        if not (run.path / name).exists():
            raise InputError(
                f"The run in {str(run.path)!r} is finished, but its {name} is gone. Copy the folder again, or remove it to train it anew."
            )


def _short(number: float | None) -> float | None:
    return None if number is None else float(f"{number:.4g}")


def images_until(steps: int, batch_size: int, examples: int) -> int:
    """How many examples so many steps go through: the last batch of an epoch has what is left."""
    epochs, left = divmod(steps, number_of_batches(examples, batch_size))
    return epochs * examples + left * batch_size


@dataclass(frozen=True)
class Portion:
    """What one call trained for a recipe; in the oldest files, what all calls in a folder did.

    Args:
        recipe: its id.
        started: when, in UTC.
        seconds: of wall time; runs that train at the same time count once.
        images: how many examples were trained on in that time, counted every time.
        runs: the finished runs; also those that a folder held of the recipe and no portion had.
    """

    recipe: str
    started: str
    seconds: float = 0.0
    images: int = 0
    runs: tuple[Outcome, ...] = ()

    @classmethod
    def begin(cls, recipe: str) -> Portion:
        return cls(recipe, datetime.datetime.now(datetime.UTC).isoformat())

    @classmethod
    def read(cls, file: Path) -> Portion:
        """A portion from its file."""
        try:
            written = json.loads(file.read_text(encoding="utf-8"))
            portion = cls(**{**_typed(written, cls), "runs": tuple(Outcome(**_typed(one, Outcome)) for one in written["runs"])})
            datetime.datetime.fromisoformat(portion.started)
            for run in portion.runs:
                key(run.settings)
            return portion
        except (OSError, ValueError, TypeError, KeyError) as error:
            raise InputError(f"The file {str(file)!r} holds no results ({error}). Give one that reproduce wrote.") from None

    @classmethod
    def all_in(cls, folder: Path) -> list[Portion]:
        """The portions that lie in a folder under the names they were written with."""
        return [cls.read(file) for file in sorted(folder.glob("*.json")) if _WRITTEN.fullmatch(file.name)]

    @property
    def interval(self) -> tuple[float, float]:
        """When it began and ended, in seconds."""
        began = datetime.datetime.fromisoformat(self.started).timestamp()
        return began, began + self.seconds

    @property
    def name(self) -> str:
        """Of the file; no other portion has it, so that files can be put together even from commands that started at once."""
        return f"{self.recipe.replace('/', '-')}-{datetime.datetime.fromisoformat(self.started):%Y%m%d-%H%M%S-%f}.json"

    def write(self, folder: Path) -> Path:
        """Write it, one run to a line; return the file."""
        head = json.dumps({name: value for name, value in vars(self).items() if name != "runs"}, ensure_ascii=False)
        lines = ",\n".join(json.dumps(asdict(run), ensure_ascii=False, allow_nan=False) for run in self.runs)
        with written_whole(folder / self.name) as part:
            part.write_text(f'{head[:-1]}, "runs": [\n{lines}\n]}}\n', encoding="utf-8")
        return folder / self.name


_TYPES = {"str": str, "int": int, "float": int | float, "Mapping": dict, "tuple": list}
"""What JSON gives for a field, by how its type begins."""


def _typed(written: Any, kind: type) -> dict[str, Any]:
    """What a file says of a portion or a run, if its values are of the types they must have."""
    if not isinstance(written, dict):
        raise TypeError(f"{shown(written)} is no {kind.__name__.lower()}")
    for field in fields(kind):
        if field.name in written and not isinstance(written[field.name], _TYPES[field.type.partition("[")[0]]):
            raise TypeError(f"{field.name} is {shown(written[field.name])}")
    return written


class Results:
    """The runs of some portions, each once: where several hold the same run, the one that finished last.

    Args:
        portions: in any order; one that is there twice counts once, as it was last written.
    """

    def __init__(self, portions: Iterable[Portion] = ()) -> None:
        once = {portion.name: portion for portion in sorted(portions, key=lambda portion: (portion.seconds, len(portion.runs)))}
        self.portions = tuple(sorted(once.values(), key=lambda portion: portion.started))
        self._runs: dict[str, dict[int, Outcome]] = {}
        for run in sorted((run for portion in self.portions for run in portion.runs), key=lambda run: run.finished):
            self._runs.setdefault(key(run.settings), {})[run.seed] = run

    def of(self, settings: Mapping[str, Any]) -> list[Outcome]:
        """What a run came to, for every seed there is, in their order."""
        held = self._runs.get(key(settings), {})
        return [held[seed] for seed in sorted(held)]

    def holds(self, settings: Mapping[str, Any], seed: int, *, retrained: bool = False) -> bool:
        """Whether a run with a seed is among them, and if that is asked for, trained again on corrected labels."""
        held = self._runs.get(key(settings), {}).get(seed)
        return held is not None and (not retrained or RETRAINED in held.numbers)


def results(*places: str | PathLike[str]) -> Results:
    """Results that `reproduce` wrote, put together.

    Args:
        *places: files, or folders of files; by default the committed results of this package, at full size.

    Example:
        >>> committed = results()
        >>> committed.of({"data": "cifar10", "model": "mlp", "loss": "ce", "epochs": 1})
        []
    """
    for place in places:
        if not isinstance(place, str | PathLike):
            raise invalid_parameter("places", "results", "files, or folders of files", place)
    if places:
        return Results(portion for place in map(Path, places) for portion in _portions(place))
    with as_file(files("noisewise.papers") / "results") as folder:
        return Results(map(Portion.read, folder.glob("*.json")))


def _portions(place: Path) -> list[Portion]:
    found = [Portion.read(file) for file in (sorted(place.glob("*.json")) if place.is_dir() else [place])]
    if not found:
        raise InputError(f"There are no results in {str(place)!r}. Give a file that reproduce wrote, or a folder of such files.")
    return found
