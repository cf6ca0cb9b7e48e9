"""Search the hyper-parameters of losses with Optuna: `noisewise compare … --search optuna`.

Optuna's TPE proposes settings within the bounds that a loss declares, and its median pruner stops trials that are behind. Trials are
kept in a journal, a file that many workers may share; each trial is a run folder beside it. The trial of a worker that died is resumed by
another.
"""

from __future__ import annotations

import copy
import importlib
import math
import time
import warnings
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar

from noisewise import losses
from noisewise.curriculum import Scheduled
from noisewise.errors import DivergedError, InputError, NoisewiseError, NoisewiseWarning
from noisewise.losses import Loss
from noisewise.output import make_folder
from noisewise.runs import FolderInUseError, RunFolder, Settings
from noisewise.spec import Setting
from noisewise.train import Logger, Run, Task, Tuned, train

_JOURNAL = "journal.log"
_WIDE = 10.0  # a range without an end goes from a tenth of the given value to ten times it
_INSIDE = 0.01  # of a range: how far from an end that does not belong to it
_STARTING = 60.0  # seconds until a trial that has no run folder yet counts as dead
_POLL = 1.0  # seconds between looks at trials of other workers


class OptunaSearch:
    """Makes studies of Optuna.

    Args:
        trials: the number of trials of each loss.
    """

    def __init__(self, trials: int) -> None:
        _optuna()
        self._trials = trials

    def __call__(self, settings: Settings, folder: Path) -> OptunaStudy:
        return OptunaStudy(settings, folder, self._trials)


@dataclass(frozen=True)
class OptunaStudy:
    """The search for the hyper-parameters of one loss.

    Args:
        settings: the settings that it starts from.
        folder: the folder of the journal and of the trials.
        trials: the number of trials.
    """

    settings: Settings
    folder: Path
    trials: int

    def tasks(self) -> list[Task]:
        """The trials; none if the loss has no hyper-parameters."""
        if not space(losses.get(self.settings.loss)):
            return []
        make_folder(self.folder)
        _study(self.folder, self.settings).enqueue_trial(_given(losses.get(self.settings.loss)), skip_if_exists=True)
        return [Trial(self.settings, self.folder, number, self.trials) for number in range(self.trials)]

    def best(self) -> Tuned | None:
        """The outcome; None if every trial failed."""
        if not space(losses.get(self.settings.loss)):
            return Tuned(self.settings, self.settings.loss, None, 0, 0, self.folder)
        states = _optuna().trial.TrialState
        trials = _study(self.folder, self.settings).get_trials(deepcopy=False)
        complete = [trial for trial in trials if trial.state == states.COMPLETE]
        if not complete:
            return None
        best = max(complete, key=lambda trial: trial.value)  # of equal ones the first
        pruned = sum(trial.state == states.PRUNED for trial in trials)
        started = sum(trial.state != states.WAITING for trial in trials)
        return Tuned(self.settings, best.user_attrs["loss"], best.value, started, pruned, self.folder)


class PrunedError(NoisewiseError):
    """A trial was stopped, because it is behind."""


@dataclass(frozen=True)
class Trial(Task):
    """One more trial of a study: a new one, or that of a worker that died.

    Args:
        number: its index among the tasks; it seeds what Optuna proposes.
        trials: the number of trials of the study.
    """

    number: int
    trials: int

    alone: ClassVar[bool] = False

    def check(self) -> None:
        """Do nothing: the settings are part of the name of the folder."""

    def is_finished(self) -> bool:
        return False

    def train(self, data: Any, test: Any, watch: Callable[[int, int], None]) -> None:
        """Train it, unless the study has all its trials. The test data are not used."""
        study = _study(self.folder, self.settings, self.number)
        while (trial := self._claim(study)) is not None:
            try:
                with warnings.catch_warnings():
                    warnings.simplefilter("ignore", NoisewiseWarning)  # a poor loss is what a search finds out
                    self._run(study, trial, data, watch)
            except FolderInUseError:  # another worker was faster
                continue
            return

    def _claim(self, study: Any) -> Any:
        """A trial that a dead worker has begun, or a new one. None if all trials ended; others may still train the last ones."""
        trial = _optuna().trial
        while True:
            trials = [each for each in study.get_trials(deepcopy=False) if each.state != trial.TrialState.WAITING]
            running = [each for each in trials if each.state == trial.TrialState.RUNNING]
            for each in running:
                if self._is_dead(each):
                    return trial.Trial(study, each._trial_id)
            if len(trials) < self.trials:
                return study.ask()
            if not running:
                return None
            time.sleep(_POLL)

    def _is_dead(self, trial: Any) -> bool:
        folder = RunFolder(self._folder(trial))
        if folder.exists():
            return not folder.in_use()
        return time.time() - float(trial.datetime_start.timestamp()) > _STARTING

    def _folder(self, trial: Any) -> Path:
        return self.folder / f"trial-{trial.number:03d}"

    def _run(self, study: Any, trial: Any, data: Any, watch: Callable[[int, int], None]) -> None:
        states = _optuna().trial.TrialState
        loss = suggested(losses.get(self.settings.loss), trial)
        trial.set_user_attr("loss", loss)
        settings = replace(self.settings, loss=loss)
        try:
            run = train(settings, settings.model, data, None, self._folder(trial), [_Report(trial)], watch)
        except FolderInUseError:
            raise
        except PrunedError:
            study.tell(trial, state=states.PRUNED, skip_if_finished=True)
        except DivergedError:
            study.tell(trial, state=states.FAIL, skip_if_finished=True)
        except Exception:
            study.tell(trial, state=states.FAIL, skip_if_finished=True)
            raise
        else:
            study.tell(trial, _held_out(run), skip_if_finished=True)


class _Report(Logger):
    """Tells Optuna the held-out accuracy of every epoch, and stops a trial that is behind."""

    def __init__(self, trial: Any) -> None:
        super().__init__()
        self._trial = trial
        self._known = set(trial.study.get_trials(deepcopy=False)[trial.number].intermediate_values)

    def open(self, settings: Mapping[str, Any]) -> None:
        """Do nothing: the study is open."""

    def write(self, metrics: Mapping[str, float], step: int) -> None:
        epoch = int(metrics["epoch"])
        if "validation_accuracy" not in metrics or epoch in self._known:
            return
        self._trial.report(metrics["validation_accuracy"], epoch)
        if self._trial.should_prune():
            raise PrunedError(f"The trial was stopped after epoch {epoch}: it is behind the median of the others.")

    def close(self, state: str) -> None:
        """Do nothing: the journal is complete after every line."""


def _held_out(run: Run) -> float:
    """The accuracy of the model that a run keeps on its held-out share."""
    return float(next(line for line in run.metrics if line["epoch"] == run.kept_epoch)["validation_accuracy"])


def space(loss: Loss) -> dict[str, tuple[float, float, bool]]:
    """The ranges of the hyper-parameters of a loss and of the losses inside it: lowest value, highest value, whether on a log scale.

    A range with two ends is searched evenly. Otherwise, or if the given value is close to an end, the range is a tenth to ten times the
    given value.

    Example:
        >>> space(losses.get("scaled(gce(q=0.7), tau=2)"))
        {'tau': (0.2, 20.0, True), 'loss.q': (0.01, 1.0, False)}
    """
    return {name: _range(declared, getattr(part, key)) for name, part, key, declared in _searched(loss)}


def _searched(loss: Loss) -> Iterator[tuple[str, Loss, str, Setting]]:
    """The hyper-parameters with bounds that are numbers other than 0: name, loss, name in the loss, declaration.

    A schedule and the loss inside it are left out, because the bounds of a schedule are those of what it changes.
    """
    scheduled = {part for each in loss.modules() if isinstance(each, Scheduled) for part in each.modules()}
    for path, part in loss.named_modules():
        if part in scheduled:
            continue
        for key, declared in part.settings.items() if isinstance(part, Loss) else ():
            if declared.bounds is not None and not declared.kw_only and getattr(part, key):
                yield ".".join(filter(None, (path, key))), part, key, declared


def _range(declared: Setting, value: float) -> tuple[float, float, bool]:
    bounds = declared.bounds
    assert bounds is not None
    width = bounds.high - bounds.low
    inside = 0.0 if math.isinf(width) else _INSIDE * width
    if inside and bounds.low + inside <= value <= bounds.high:
        return bounds.low + inside * (not bounds.closed_low), bounds.high - inside * (not bounds.closed_high), False
    ends = sorted((value / _WIDE, value * _WIDE))
    just_inside = _INSIDE * abs(value)
    low = max(ends[0], bounds.low + just_inside * (not bounds.closed_low))
    high = min(ends[1], bounds.high - just_inside * (not bounds.closed_high))
    return low, high, low > 0


def suggested(loss: Loss, trial: Any) -> str:
    """The spec of a loss with the hyper-parameters that a trial proposes, to three digits."""
    loss = copy.deepcopy(loss)
    for name, part, key, declared in list(_searched(loss)):
        low, high, log = _range(declared, getattr(part, key))
        if declared.integer:
            setattr(part, key, trial.suggest_int(name, math.ceil(low), math.floor(high)))
        else:
            setattr(part, key, float(f"{trial.suggest_float(name, low, high, log=log):.3g}"))
    return repr(loss)


def _given(loss: Loss) -> dict[str, float]:
    """The hyper-parameters of a loss, for the first trial."""
    return {name: getattr(part, key) for name, part, key, _ in _searched(loss)}


def _study(folder: Path, settings: Settings, number: int = 0) -> Any:
    """The study in a folder, which is made if it does not exist."""
    optuna = _optuna()
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    return optuna.create_study(
        storage=optuna.storages.JournalStorage(optuna.storages.journal.JournalFileBackend(str(folder / _JOURNAL))),
        study_name=settings.loss,
        direction="maximize",
        sampler=optuna.samplers.TPESampler(seed=settings.seed * 10_000 + number),
        pruner=optuna.pruners.MedianPruner(),
        load_if_exists=True,
    )


def _optuna() -> Any:
    try:
        return importlib.import_module("optuna")
    except ImportError:
        raise InputError("A search needs optuna, which is not installed; run: pip install 'noisewise[optuna]'.") from None
