"""The one engine: `fit` trains a classifier on doubtful labels and leaves a run folder.

All randomness of an epoch follows from the seed and the number of the epoch, so a run that goes on from a checkpoint ends in
the same bits as one that was never stopped.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
import time
import warnings
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing, nullcontext, suppress
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from noisewise import curriculum, losses, models, signals
from noisewise.data import Dataset, Normalise, Stream, augmentations, batches, cut, number_of_batches, order, smallest_part
from noisewise.dynamics import class_accuracies, underfitting, unlearned_sentence
from noisewise.errors import DivergedError, InputError, NoisewiseError, NoisewiseWarning, invalid_parameter
from noisewise.runs import CALIBRATION, CannotOpenError, RunFolder, Settings, ending, in_a_name, load_settings
from noisewise.spec import in_short, name_of
from noisewise.train._dry_run import check_scores, check_training, lay_channels_last, scored
from noisewise.train._loggers import Logger
from noisewise.train._loggers import registry as all_loggers
from noisewise.train._optimisers import optimisers, schedules
from noisewise.train._predictor import EVALUATION_BATCH
from noisewise.train._processes import answered, joined, one_at_a_time, speaks_for_all, undisturbed, wait_for_all
from noisewise.train._request import Sources, called, check_apart, check_model, device_of, gather, make_settings
from noisewise.train._run import Run, fill, is_all_ours, is_ours, recorded_scale
from noisewise.train._step import GraphedStep, Prepare, Scorer, Scoring, Step, prepared
from noisewise.train._temperature import temperature
from noisewise.train._user_module import mark_trained, told_of, warn_of_another_start, was_trained

_LOOKED_AT = 1000
"""Images on disk whose mean and variance stand for those of all."""

_CALIBRATED_ON = 2000
"""So many held-out examples decide the temperature."""

Watch = Callable[[int, int], None]
"""Told the number of steps done and of all steps, after every step."""


class Underfitting(NoisewiseWarning):
    """The loss hardly pulls at the margins training starts from."""


class Unlearned(NoisewiseWarning):
    """The trained model hardly ever predicts some of the classes."""


def fit(
    model: str | nn.Module,
    data: Any,
    *,
    test: Any = None,
    folder: str | os.PathLike[str] | None = None,
    loggers: Sequence[str | Logger] = (),
    watch: Watch | None = None,
    **settings: Any,
) -> Run:
    """Train a classifier on labels you cannot fully trust.

    Run again with the same arguments it goes on where it stopped, or returns at once if it is finished.

    Args:
        model: a model spec, or your own module that turns inputs into scores: it has the run's weights afterwards.
        data: what `noisewise.data.read` takes: a spec, a path, a pair of arrays, a Dataset, a DataLoader.
        test: the same, to test on; an official data set brings its own.
        folder: the run folder; by default ``runs/`` and a name that follows from the settings and the data.
        loggers: logger specs, such as "tensorboard".
        watch: called after every step with the number of steps done and of all steps.
        **settings: everything else; see `Settings`. `epochs` or `steps` must be there. Losses, noises and the like are specs or objects.

    Returns:
        The run.

    Example:
        >>> import tempfile
        >>> inputs = torch.randn(200, 4)
        >>> labels = (inputs[:, 0] > 0).long()
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     run = fit("mlp", (inputs, labels), loss="gce(q=0.7)", noise="symmetric(0.2)", epochs=3, folder=folder)
        ...     run.state, len(run.metrics)
        ('finished', 3)
    """
    if not isinstance(model, str | nn.Module):
        raise invalid_parameter("model", "fit", "a model spec or a torch.nn.Module", model)
    named = {"data": called(data), "model": model if isinstance(model, str) else type(model).__name__}
    return train(make_settings({**named, **settings}), model, data, test, folder, loggers, watch)


def check_watch(watch: Any, owner: str) -> None:
    """Refuse what cannot be told how far a run is."""
    if watch is not None and not callable(watch):
        raise invalid_parameter("watch", owner, "a function", watch)


def train(
    settings: Settings,
    model: str | nn.Module,
    data: Any,
    test: Any = None,
    folder: str | os.PathLike[str] | None = None,
    loggers: Sequence[str | Logger] = (),
    watch: Watch | None = None,
) -> Run:
    """Do what settings say, with the model and the data they name; see `fit`."""
    if isinstance(model, str):
        check_model(model)
    if isinstance(loggers, str):
        raise invalid_parameter("loggers", "fit", "a list", loggers)
    check_watch(watch, "fit")
    told = [all_loggers.get(logger) for logger in loggers]
    target = None if folder is None else RunFolder(folder)
    sources = gather(data, test, settings)
    place = device_of(settings)
    origin = {**sources.provenance(place), **({"model": None} if isinstance(model, str) else told_of(model))}
    target = target or RunFolder(Path("runs") / _name(settings, origin))
    if target.exists():
        _same(target, settings, origin)
        _check_whole(target, settings)
        if isinstance(model, nn.Module):
            warn_of_another_start(target, model, origin["start"])
        if target.status()["state"] == "finished":
            return _checked(_finished(target, Run(target.path, data=data, test=test), model, place))
    target.check_free()
    check_apart(target.path, sources)
    if isinstance(model, nn.Module) and not target.exists() and was_trained(model) and speaks_for_all():
        text = "This model was trained by fit before, and starts from what it learned there. Give every run a model of its own."
        warnings.warn(text, stacklevel=3)
    with signals.delayed(), one_at_a_time, joined(place), undisturbed(place):
        training = _Training(settings, model, sources, target, origin, told, watch)
        try:
            training.run()
        finally:
            if isinstance(model, nn.Module) and training.began:
                mark_trained(model, target)
        wait_for_all()
    return _checked(Run(target.path, data=data, test=test))


def _checked(run: Run) -> Run:
    """Warn of classes that a finished run did not learn."""
    if speaks_for_all() and run.unlearned:
        warnings.warn(unlearned_sentence(in_short(run.settings.loss), run.unlearned, len(run.classes)), Unlearned, stacklevel=4)
    return run


def _finished(folder: RunFolder, run: Run, model: str | nn.Module, place: torch.device) -> Run:
    """A run that needs no training; a module of the caller's gets its weights, where training would have put it."""
    if isinstance(model, nn.Module):
        fill(model.to(place).eval(), folder.read_tensors("model.safetensors")[0], type(model).__name__, folder)
        mark_trained(model, folder)
    return run


def _name(settings: Settings, origin: dict[str, Any]) -> str:
    """A folder name that the same settings on the same data have again."""
    content = json.dumps([settings.as_json(), origin["data"], *filter(None, [origin["model"]])], sort_keys=True)
    data, model, *specs = (name_of(part) for part in (Path(settings.data).stem, settings.model, settings.loss, settings.noise))
    words = "-".join([data, model, *map(in_a_name, specs)])
    return f"{words}-seed{settings.seed}-{hashlib.sha256(content.encode()).hexdigest()[:8]}"


def check_settings(folder: RunFolder, settings: Settings) -> None:
    """Refuse to go on in a folder that holds a run with other settings."""
    written = load_settings(folder.path).as_json()
    for name, value in settings.as_json().items():
        if written[name] != value:
            raise InputError(
                f"The folder {str(folder.path)!r} holds a run with {name}={written[name]!r}. Got {name}={value!r}; "
                "give another folder, or the same settings to go on."
            )


def _same(folder: RunFolder, settings: Settings, origin: dict[str, Any]) -> None:
    """Refuse to go on in a folder that holds another run."""
    check_settings(folder, settings)
    before = folder.provenance(needs=("data",))
    other = _differing(before["data"], origin["data"])
    if other:
        what = "the same examples with other names or true labels" if other <= {"names", "truth"} else "other data of the same name"
        raise InputError(f"The folder {str(folder.path)!r} holds a run on {what}. Give another folder.")
    if before.get("model", origin["model"]) != origin["model"]:  # the oldest runs do not say
        raise InputError(
            f"The folder {str(folder.path)!r} holds a run of another {settings.model}, with other layers, or others of them frozen. Give "
            "another folder, or the same model to go on."
        )


def _differing(before: Mapping[str, Any], now: Mapping[str, Any]) -> set[str]:
    """What differs between the data of two runs, of all that the first says of them; the oldest runs say less."""
    if before.keys() != now.keys():
        return {"parts"}
    return {name for part, held in before.items() for name in held if held[name] != now[part].get(name)}


def _check_whole(folder: RunFolder, settings: Settings) -> None:
    """Refuse a run that lost something of what it was trained to, before it goes on or is called finished."""
    status = folder.status()
    if status["state"] == "finished":
        folder.read_tensors("model.safetensors")
        epoch = status["epoch"]
    else:
        epoch = next((notes["epoch"] for _, notes in folder.checkpoints()), 0)
    folder.check_whole(epoch, range(settings.evaluate_every, epoch + 1, settings.evaluate_every) if settings.clean_pass else ())


def _seed(*parts: object) -> int:
    """A seed for one purpose, from the run's seed."""
    return int.from_bytes(hashlib.sha256("/".join(map(str, parts)).encode()).digest()[:8], "little") >> 1


class _Training:
    """One run under way."""

    def __init__(
        self,
        settings: Settings,
        model: str | nn.Module,
        sources: Sources,
        folder: RunFolder,
        origin: dict[str, Any],
        loggers: list[Logger],
        watch: Watch | None,
    ) -> None:
        self.settings, self.folder, self.origin, self.loggers, self.watch = settings, folder, origin, loggers, watch
        self.best_epoch, self.began = 0, False
        self.rank = dist.get_rank() if dist.is_initialized() else 0
        self.world = dist.get_world_size() if dist.is_initialized() else 1
        self.device = device_of(settings)
        classes = len(sources.train.classes)
        self.loss = losses.get(settings.loss)
        self.scheduled = any(isinstance(part, curriculum.Scheduled) for part in self.loss.modules())
        self.normalise = self._scale(sources.train) if settings.normalise else None
        self.data = sources.to(self.device)
        torch.manual_seed(_seed(settings.seed, "weights"))
        self.from_seed = isinstance(model, str)
        if isinstance(model, str):
            model = models.get(model, num_classes=classes, shape=tuple(sources.train.inputs.shape[1:]))
        self.model = model.to(self.device)
        self.generator = torch.Generator(self.device)
        self.prepare_training, self.prepare_evaluation = self._tried(classes)
        line = underfitting(self.loss, classes)
        if line and self.rank == 0:
            warnings.warn(line, Underfitting, stacklevel=4)
        self.per_epoch = number_of_batches(len(self.data.train), settings.batch_size)
        self.total = settings.steps if settings.steps is not None else (settings.epochs or 0) * self.per_epoch
        self.epochs = math.ceil(self.total / self.per_epoch)
        self.schedule = schedules.get(settings.schedule)
        self._build()
        if not any(weights.requires_grad for weights in self.updater.parameters):
            raise InputError(f"The model {settings.model} has no weights to train: all are frozen. Let some of them require a gradient.")
        if not self._weights_are_finite():
            raise InputError(f"The model {settings.model} has weights that are not finite. Give it finite ones.")

    def _tried(self, classes: int) -> tuple[Prepare, Prepare]:
        """What turns raw inputs into those of training and of testing, once the model has shown that it can take both."""
        settings, first = self.settings, self._first_inputs()

        def made(augment: str, channels_last: bool) -> Prepare:
            return prepared(augmentations.get(augment), self.normalise, self.generator, channels_last)

        channels_last = lay_channels_last(self.model, made("none", True)(first))
        training, testing = (made(augment, channels_last) for augment in (settings.augment, "none"))
        for prepare in (testing, training):
            check_scores(self.model, settings.model, prepare(first), classes, scaled=settings.normalise)
        check_training(self.model, settings.model, training(first[: self._smallest()]), classes)
        return training, testing

    def _smallest(self) -> int:
        """The least number of examples that the model is given at once, up to two: the last batch may be a small one for many processes."""
        examples, size = len(self.data.train), self.settings.batch_size
        last = examples - size * (number_of_batches(examples, size) - 1)
        return min(smallest_part(size, self.settings.accumulate * self.world), smallest_part(last, self.world))

    def _scale(self, data: Dataset) -> Normalise:
        """What inputs are brought to mean 0 and variance 1 with: in a run that goes on, what it began with."""
        before = recorded_scale(self.folder) if self.folder.exists() else None
        return _scale_of(data) if before is None else before

    def _open(self) -> None:
        if self.folder.exists():
            _same(self.folder, self.settings, self.origin)  # again: another call may have made it a moment ago
            return
        inputs, features = self.data.train.inputs, self.data.train.features
        normalise = None if self.normalise is None else repr(self.normalise)
        origin = {**self.origin, "shape": inputs.shape[1:], "type": str(inputs.dtype), "normalise": normalise, "features": features}
        self.folder.begin(self.settings.as_json(), origin, self.data.train)

    def _first_inputs(self) -> Tensor:
        """The first two examples; of a stream, no others are decoded."""
        first = self.data.train.take(torch.arange(min(2, len(self.data.train))))
        return next(iter(batches(first, 2, shuffle=False))).inputs

    def _build(self) -> None:
        settings = self.settings
        optimiser = optimisers.get(settings.optimiser)
        self.updater = optimiser.make(self.model.named_parameters(), settings.weight_decay, self.device)
        self.base_lr = optimiser.lr
        scorer: nn.Module = Scorer(self.model, settings.half(self.device))
        self.scorer = scorer
        if settings.compile:
            scorer = torch.compile(scorer)  # type: ignore[assignment]
        if self.world > 1:
            scorer = DistributedDataParallel(scorer)
        self.step = Step(
            scorer,
            self.loss,
            self.updater,
            self.data.train,
            self.prepare_training,
            settings.clip,
            settings.accumulate,
            settings.batch_size,
        )
        # Not of a module with anything of one's own: what Python does in its forward would be done once, and never again.
        plain = self.from_seed or is_all_ours(self.model)
        self.graphs = self.device.type == "cuda" and self.world == 1 and plain and not isinstance(self.data.train, Stream)
        self.update: Callable[..., None] = self._graphed() if self.graphs else self.step
        self._scorings: dict[str, tuple[Scoring, Callable[..., None]]] = {}

    def _graphed(self) -> GraphedStep:
        return GraphedStep(self.step, (self.generator,), self._changing)

    def _changing(self) -> list[Tensor]:
        tally = self.step.tally
        held = [self.step.number, *vars(tally).values(), *self.updater.state().values()]
        return [*held, *self.model.state_dict().values()]

    def run(self) -> None:
        """Train to the end, from the newest checkpoint if there is one, with nobody else in the folder."""
        state = "failed"
        with self.folder.held() if self.rank == 0 else nullcontext():
            try:
                self._tell(lambda logger: logger.start(self.settings.as_json()))  # first: it may lack its library
                if self.rank == 0:
                    self._open()
                wait_for_all()
                self.began = True  # until here a folder may be refused, and the model is as it was given
                try:
                    with answered():
                        self._epochs()
                    state = "finished"
                except BaseException as error:
                    state, reason = ending(error)
                    with suppress(NoisewiseError):  # a full disk has no room for this either
                        self._status(state, reason)
                    raise
            finally:
                self._tell(lambda logger: logger.finish(state))

    def _epochs(self) -> None:
        epoch, best, waited = self._resume()
        self._status("running", epoch=epoch, step=int(self.step.number))
        wait_for_all()
        while not self._over(epoch, waited):
            epoch += 1
            best, waited = self._judge(self._epoch(epoch), best, waited)
            if self.rank == 0 and (self._over(epoch, waited) or epoch % self.settings.checkpoint_every == 0):
                self._checkpoint(epoch, best, waited)
        kept = {"kept": self._bring_back()} if self.settings.keep == "best" else {}
        if self.rank == 0:
            self._finish(stopped_early=epoch < self.epochs, **kept)

    def _over(self, epoch: int, waited: int) -> bool:
        return epoch >= self.epochs or (self.settings.patience is not None and waited >= self.settings.patience)

    def _resume(self) -> tuple[int, float | None, int]:
        for tensors, notes in self.folder.checkpoints():
            if not self._has_best(notes):
                continue
            self.best_epoch = notes.get("best_epoch", 0)  # the oldest runs do not say, and keep the last
            fill(self.model, _under("model.", tensors), self.settings.model, self.folder)
            self.updater.load(_under("updater.", tensors))
            self.step.number.fill_(notes["step"])
            wait_for_all()
            if self.rank == 0:
                self.folder.forget_after(notes["epoch"])
            return notes["epoch"], notes["best"], notes["waited"]
        wait_for_all()
        if self.rank == 0:
            self.folder.forget_after(0)
            if not self.from_seed:
                self._checkpoint(0, None, 0)
        return 0, None, 0

    def _has_best(self, notes: Mapping[str, Any]) -> bool:
        """Whether the model is there that was best by a checkpoint, where it may have to be brought back."""
        if self.settings.keep == "best" and notes["best"] is not None:
            try:
                self.folder.read_best(notes.get("best_epoch", 0))
            except CannotOpenError:
                raise
            except InputError:  # a damaged one: training resumes from an earlier checkpoint
                return False
        return True

    def _epoch(self, epoch: int) -> dict[str, Any]:
        """One pass of updates, then what it showed: a line of metrics, the record, an evaluation if one is due."""
        started = time.perf_counter()
        self._prepare_epoch(epoch)
        first = (epoch - 1) * self.per_epoch
        number = min(self.per_epoch, self.total - first)
        rates = self.base_lr * self.schedule.factors(self.total, first, number)
        on_device = rates.to(self.device, self.updater.lr.dtype)
        with closing(self._feed(epoch, number)) as feed:
            for position, (index, inputs, whole) in enumerate(feed):
                self.updater.lr.copy_(on_device[position])
                self.update(index, inputs, whole)
                if self.watch is not None:
                    self.watch(first + position + 1, self.total)
        if self.world > 1:
            self.step.tally.gather()
        self._check_finite(first + number)
        line = self._line(epoch, first + number, float(rates[-1]))
        if epoch % self.settings.evaluate_every == 0 or epoch == self.epochs:
            line |= self._evaluate(epoch)
        line["seconds"] = time.perf_counter() - started
        if self.rank == 0:
            self._write(epoch, line)
        return line

    def _prepare_epoch(self, epoch: int) -> None:
        self.step.tally.clear()
        self.model.train()
        torch.manual_seed(_seed(self.settings.seed, epoch, "step", self.rank))
        self.generator.manual_seed(_seed(self.settings.seed, epoch, "augment", self.rank))
        if self.scheduled:
            curriculum.advance(self.loss, (epoch - 1) / max(1, self.epochs - 1))
            if self.graphs:
                self.update = self._graphed()  # a graph holds the hyper-parameters it was captured with

    def _feed(self, epoch: int, number: int) -> Any:
        """The batches of an epoch: positions, inputs if they come from disk, the size of the batch over all processes."""
        data, settings = self.data.train, self.settings

        def mine(batch: Tensor) -> Tensor:
            """What this process takes of a batch: at least one example, which counts for nothing if it is another's too."""
            return batch[min(self.rank, len(batch) - 1) :: self.world]

        positions = order(data.labels, settings.seed, epoch, settings.group)
        chosen = cut(positions.to(self.device), settings.batch_size)[:number]
        if not isinstance(data, Stream):
            for index in chosen:
                yield mine(index), None, len(index)
            return
        with closing(data.images([mine(batch) for batch in cut(positions, settings.batch_size)[:number]])) as images:
            for index, inputs in zip(chosen, images, strict=True):
                yield mine(index), inputs, len(index)

    def _check_finite(self, step: int) -> None:
        """Stop a run that blew up, before anything of this epoch is written."""
        bad = int(self.step.tally.bad_step)
        if bad >= 0:
            raise self._diverged(f"The loss {self.loss!r} was not finite at step {bad + 1}")
        if not self._weights_are_finite():
            raise self._diverged(f"The weights were not finite after step {step}")

    def _diverged(self, what: str) -> DivergedError:
        worst = float(self.step.tally.worst)
        return DivergedError(
            f"{what}; the largest score in training was {worst:.4g}. "
            "Try a smaller learning rate, gradient clipping ('clip'), or a loss with saturation."
        )

    def _weights_are_finite(self) -> bool:
        return not sum(~weights.isfinite().all() for weights in self.updater.parameters if weights.requires_grad)

    def _line(self, epoch: int, step: int, lr: float) -> dict[str, Any]:
        pulled = self.step.tally.shown(self.data.train.true_labels is not None)
        return {"epoch": epoch, "step": step, "lr": lr, "train_loss": self.step.mean_loss(), **pulled}

    def _scores(self, name: str) -> tuple[Tensor, Tensor]:
        """Margins of the given labels and predictions over the training, validation or test set, in eval mode."""
        self.model.eval()
        data = getattr(self.data, name)
        if name not in self._scorings:
            scoring = Scoring(self.scorer, data, self.prepare_evaluation)
            self._scorings[name] = scoring, GraphedStep(scoring, (), list) if self.graphs and not isinstance(data, Stream) else scoring
        scoring, score = self._scorings[name]
        if isinstance(data, Stream):
            for batch in batches(data, EVALUATION_BATCH, shuffle=False):
                score(batch.index, batch.inputs)
        else:
            everything = torch.arange(len(data), device=self.device)
            for start in range(0, len(data), EVALUATION_BATCH):
                score(everything[start : start + EVALUATION_BATCH])
        if not scoring.margins.isfinite().all():
            raise self._diverged(f"The scores of the {name} set were not finite after step {int(self.step.number)}")
        return scoring.margins, scoring.predictions

    def _evaluate(self, epoch: int) -> dict[str, Any]:
        if self.rank != 0:
            return {}
        found: dict[str, Any] = {}
        for name, data in (("validation", self.data.validation), ("test", self.data.test)):
            if data is not None:
                predictions = self._scores(name)[1]
                found[f"{name}_accuracy"] = float((predictions == data.labels).double().mean())
                accuracies = class_accuracies(data.labels.cpu().numpy(), predictions.cpu().numpy(), len(data.classes))
                found[f"{name}_balanced_accuracy"] = float(np.nanmean(accuracies))
                self.folder.write_array(f"record/{name}/accuracies-{epoch:05d}.npy", accuracies)
        if self.settings.clean_pass:
            self.folder.write_record("clean", epoch, *self._scores("train"))
        return found

    def _write(self, epoch: int, line: dict[str, Any]) -> None:
        self.folder.write_record("training", epoch, self.step.tally.margins, self.step.tally.predictions)
        self.folder.add_metrics(line)
        self._status("running", epoch=epoch, step=line["step"])
        self._tell(lambda logger: logger.log(line, line["step"]))

    def _judge(self, line: dict[str, Any], best: float | None, waited: int) -> tuple[float | None, int]:
        """Count the evaluations in a row that were no better on the validation share, and keep the model of one that was."""
        if self.settings.patience is None and self.settings.keep == "last":
            return best, waited
        now = [line.get("validation_accuracy")]
        if self.world > 1:
            dist.broadcast_object_list(now)
        if now[0] is None:
            return best, waited
        if best is not None and now[0] <= best:
            return best, waited + 1
        self.best_epoch = line["epoch"]
        if self.rank == 0 and self.settings.keep == "best":
            self.folder.write_best(self.best_epoch, self.model.state_dict())
        return now[0], 0

    def _bring_back(self) -> int:
        """Give the model the weights that were best on the validation share, and say of which epoch they are."""
        wait_for_all()
        fill(self.model, self.folder.read_best(self.best_epoch), self.settings.model, self.folder)
        return self.best_epoch

    def _checkpoint(self, epoch: int, best: float | None, waited: int) -> None:
        tensors = {f"model.{name}": value for name, value in self.model.state_dict().items()}
        tensors |= {f"updater.{name}": value for name, value in self.updater.state().items()}
        notes = {"epoch": epoch, "step": int(self.step.number), "best": best, "best_epoch": self.best_epoch, "waited": waited}
        self.folder.write_checkpoint(epoch, tensors, notes)

    def _finish(self, stopped_early: bool, **kept: int) -> None:
        if not scored(self.model, self.prepare_evaluation(self._first_inputs())).isfinite().all():  # not every run is evaluated
            raise self._diverged(f"The scores were not finite after step {int(self.step.number)}")
        notes = {"model": repr(self.model) if is_ours(self.model) else type(self.model).__name__}
        self.folder.write_tensors("model.safetensors", self.model.state_dict(), notes)
        if self.data.validation is not None:
            self.folder.write_json(CALIBRATION, {"temperature": self._temperature(self.data.validation)})
        last = self.folder.metrics()[-1]
        reason = "no better on the validation share" if stopped_early else None
        self._status("finished", reason, epoch=last["epoch"], step=last["step"], **kept)

    @torch.no_grad()
    def _temperature(self, held_out: Dataset) -> float:
        """What makes the probabilities of the model honest on the validation share; of a large one, examples from all over it will do."""
        some = held_out.take(torch.linspace(0, len(held_out) - 1, min(len(held_out), _CALIBRATED_ON), dtype=torch.float64).round().long())
        self.model.eval()
        scores = [self.scorer(self.prepare_evaluation(batch.inputs)).cpu() for batch in batches(some, EVALUATION_BATCH, shuffle=False)]
        return temperature(torch.cat(scores), some.labels.cpu())

    def _status(self, state: str, reason: str | None = None, **reached: int) -> None:
        if self.rank == 0:
            self.folder.write_status(state, reason, **reached)

    def _tell(self, what: Callable[[Logger], None]) -> None:
        if self.rank == 0:
            for logger in self.loggers:
                what(logger)


def _under(prefix: str, tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    return {key.removeprefix(prefix): value for key, value in tensors.items() if key.startswith(prefix)}


def _scale_of(data: Dataset) -> Normalise:
    """What brings inputs to mean 0 and variance 1; of images that stay on disk, some from all over the set are looked at."""
    if not isinstance(data, Stream):
        return Normalise.of(data.inputs)
    some = data.take(torch.linspace(0, len(data) - 1, min(len(data), _LOOKED_AT), dtype=torch.float64).round().long())
    return Normalise.of(torch.cat([batch.inputs.cpu() for batch in batches(some, EVALUATION_BATCH, shuffle=False)]))
