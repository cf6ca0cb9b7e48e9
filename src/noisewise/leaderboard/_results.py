"""The results of finished runs: files with one run to a line.

A run is identified by its settings and its seed, so a result whose spec or protocol was changed in `board.toml` is not used any more. If
several files have the same run, the one that finished last counts.
"""

from __future__ import annotations

import datetime
import json
import statistics
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, fields
from importlib.resources import as_file, files
from os import PathLike
from pathlib import Path
from typing import Any

from noisewise.errors import InputError, shown
from noisewise.output import written_whole
from noisewise.papers import key
from noisewise.train import Run

ENDING = ".jsonl"


@dataclass(frozen=True)
class Result:
    """What is kept of a run. Accuracies are shares; those of the last epoch, unless stated otherwise. What is not known is None.

    Args:
        settings: the settings that decide the outcome, without the seed; those left out are the defaults.
        seed: the seed.
        finished: when training ended, in UTC.
        final: the test accuracy; None if training diverged.
        best: the test accuracy of the best epoch that was evaluated.
        held_out: the accuracy on the held-out share, by its noisy labels.
        learned: the share of wrong labels that were learned.
        balanced: the mean of the test accuracies on the classes.
        least: the test accuracy on the worst class.
        seconds: the time of all epochs.
        images_per_second: the training images of an epoch divided by its time, from the third epoch on: the first two prepare the steps.
        noise: for a loss that estimates the noise: the share of wrong labels, and the ends of its interval.
        diverged: why there is no accuracy.
        made_with: versions, the device, and the number of runs at a time.
    """

    settings: Mapping[str, Any]
    seed: int
    finished: str
    final: float | None = None
    best: float | None = None
    held_out: float | None = None
    learned: float | None = None
    balanced: float | None = None
    least: float | None = None
    seconds: float | None = None
    images_per_second: float | None = None
    noise: tuple[float, float, float] | None = None
    diverged: str | None = None
    made_with: Mapping[str, Any] | None = None

    @classmethod
    def of(cls, run: Run, settings: Mapping[str, Any], jobs: int) -> Result:
        """The result of a finished run.

        Args:
            run: the run.
            settings: the settings that it is found by, without the seed.
            jobs: the number of runs at a time.
        """
        dynamics, lines = run.dynamics, run.metrics
        last, seconds = lines[-1], [line["seconds"] for line in lines]
        classes, adapted = dynamics.class_accuracies() or {}, last.get("adapted") or {}
        return cls(
            settings,
            run.settings.seed,
            now(),
            final=dynamics.final,
            best=dynamics.best,
            held_out=next(reversed(dynamics.held_out.values()), None),
            learned=next(reversed(dynamics.noisy_subset.values()), None),
            balanced=next(reversed(dynamics.balanced.values()), None),
            least=min(classes.values(), default=None),
            seconds=sum(seconds),
            images_per_second=run.provenance["data"]["train"]["examples"] / statistics.fmean(seconds[2:] or seconds[-1:]),
            noise=(adapted["noise"], adapted["noise_low"], adapted["noise_high"]) if "noise_low" in adapted else None,
            made_with=made_with(run, jobs),
        )

    @classmethod
    def parse(cls, line: str) -> Result:
        """A result from its line; raises a ValueError or a TypeError if the line is not a result."""
        written = json.loads(line)
        known = {field.name: written[field.name] for field in fields(cls) if field.name in written}
        result = cls(**known)
        numbers = [
            getattr(result, name) for name in ("final", "best", "held_out", "learned", "balanced", "least", "seconds", "images_per_second")
        ]
        if not isinstance(result.settings, dict) or type(result.seed) is not int or not all(map(_is_number, numbers)):
            raise ValueError(f"{shown(written)} is not a run")
        if (result.final is None) == (result.diverged is None):
            raise ValueError("a run has either a test accuracy or a reason why it diverged")
        datetime.datetime.fromisoformat(result.finished)
        key(result.settings)
        return result

    def line(self) -> str:
        """The result as a line, without what is not known; measured numbers have six digits after the point."""
        known = {name: _rounded(value) for name, value in asdict(self).items() if value is not None}
        return json.dumps(known, ensure_ascii=False, allow_nan=False)


def made_with(run: Run, jobs: int) -> dict[str, Any]:
    """Versions, the commit if the run was started in a repository, the device, and the number of runs at a time."""
    provenance = run.provenance
    commit = {"commit": provenance["git"]["commit"][:12]} if provenance["git"] else {}
    return {**{name: provenance[name] for name in ("noisewise", "torch", "device")}, **commit, "jobs": jobs}


def now() -> str:
    """The time, in UTC."""
    return datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")


def _rounded(value: Any) -> Any:
    return round(value, 6) if isinstance(value, float) else value


def _is_number(value: Any) -> bool:
    return value is None or (isinstance(value, int | float) and not isinstance(value, bool) and value >= 0)


class Results:
    """Results of runs, found by their settings. Of two results of a run, the one that finished last counts.

    Args:
        results: the results, in any order.
    """

    def __init__(self, results: Iterable[Result] = ()) -> None:
        self._by_run: dict[str, dict[int, Result]] = {}
        for result in sorted(results, key=lambda result: result.finished):
            self.add(result)

    def add(self, result: Result) -> None:
        """Add a result, which replaces an earlier one of the same run."""
        self._by_run.setdefault(key(result.settings), {})[result.seed] = result

    def of(self, settings: Mapping[str, Any]) -> dict[int, Result]:
        """The results with these settings, by seed."""
        return dict(sorted(self._by_run.get(key(settings), {}).items()))

    def __iter__(self) -> Iterator[Result]:
        return (result for by_seed in self._by_run.values() for result in by_seed.values())


def results(*paths: str | PathLike[str]) -> Results:
    """Read the results that come with the package, and those of other files.

    Args:
        *paths: files that ``noisewise leaderboard --train`` wrote, or folders of such files.
    """
    with as_file(files("noisewise.leaderboard") / "results") as folder:
        return Results(result for path in (folder, *map(Path, paths)) for result in _all_in(path))


def _all_in(path: Path) -> list[Result]:
    return [result for file in (sorted(path.glob(f"*{ENDING}")) if path.is_dir() else [path]) for result in read_file(file)]


def read_file(file: Path) -> list[Result]:
    """The results in a file."""
    try:
        lines = file.read_text(encoding="utf-8").splitlines()
    except (OSError, ValueError) as error:
        raise InputError(f"The file {str(file)!r} cannot be read ({error}). Give a file of results of the leaderboard.") from None
    found = []
    for number, line in enumerate(lines, 1):
        try:
            found.append(Result.parse(line))
        except (ValueError, TypeError, RecursionError) as error:
            raise InputError(
                f"Line {number} of {str(file)!r} is not a result of the leaderboard ({error}). Fix or delete that line."
            ) from None
    return found


def write_file(file: Path, found: Iterable[Result]) -> None:
    """Write results, one to a line."""
    text = "".join(f"{result.line()}\n" for result in found)
    with written_whole(file) as part:
        part.write_text(text, encoding="utf-8")
