"""The training engine: `fit` trains a classifier and writes a run folder.

All randomness of an epoch follows from the seed and the number of the epoch, so a resumed run ends with the same bits as an uninterrupted
one.
"""

from __future__ import annotations

import copy
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

from noisewise import curriculum, losses, methods, models, plugins, signals
from noisewise.data import Dataset, Normalise, Stream, augmentations, batches, cut, number_of_batches, order, smallest_part
from noisewise.dynamics import class_accuracies, underfitting, unlearned_sentence
from noisewise.errors import DivergedError, InputError, NoisewiseError, NoisewiseWarning, invalid_parameter
from noisewise.kernels import compiled_ahead
from noisewise.methods import Ensemble, Scored, networks_of
from noisewise.runs import CALIBRATION, CannotOpenError, RunFolder, Settings, Writer, end_state, folder_name, load_settings
from noisewise.spec import foreign_words, in_short, name_of
from noisewise.train._dry_run import check_scores, check_training, evaluate, use_channels_last
from noisewise.train._label_wave import LabelWave
from noisewise.train._loggers import Logger
from noisewise.train._loggers import registry as all_loggers
from noisewise.train._optimisers import optimisers, schedules
from noisewise.train._predictor import EVALUATION_BATCH
from noisewise.train._processes import is_main_process, isolate_torch_state, join, one_at_a_time, report_lost_workers, wait_for_all
from noisewise.train._request import Sources, check_model, check_outside_images, data_name, device_of, gather, make_settings
from noisewise.train._run import Run, fill, is_built_in, is_unmodified, recorded_scale
from noisewise.train._step import GraphedStep, LateTally, Networks, Prepare, Scorer, Scoring, Step, Tally, prepared
from noisewise.train._temperature import temperature
from noisewise.train._user_module import mark_trained, model_digests, warn_of_other_start, was_trained

_SCALED_ON = 1000
"""The number of images on disk from which mean and variance are estimated."""

_CALIBRATED_ON = 2000
"""The number of held-out examples that the temperature is fitted on."""

Watch = Callable[[int, int], None]
"""Called after every step with the number of finished steps and of all steps."""


class Underfitting(NoisewiseWarning):
    """The loss has almost no emphasis at the margins where training starts."""


class Unlearned(NoisewiseWarning):
    """The trained model almost never predicts some of the classes."""


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

    With the same arguments, an interrupted run resumes and a finished run returns at once.

    Args:
        model: a model spec, or a custom module that turns inputs into scores; `fit` trains it in place.
        data: what `noisewise.data.read` takes: a spec, a path, a pair of arrays, a Dataset, a DataLoader.
        test: test data, in the same forms; an official data set has its own test set.
        folder: the run folder; by default ``runs/`` and a name that follows from the settings and the data.
        loggers: logger specs, such as "tensorboard".
        watch: called after every step with the number of finished steps and of all steps.
        **settings: all other settings, see `Settings`. `epochs` or `steps` is required. Losses, noises and so on are specs or objects.

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
    names = {"data": data_name(data), "model": model if isinstance(model, str) else type(model).__name__}
    return train(make_settings({**names, **settings}), model, data, test, folder, loggers, watch)


def check_watch(watch: Any, owner: str) -> None:
    """Refuse a `watch` that is not a function."""
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
    """Train with checked settings; see `fit`."""
    if isinstance(model, str):
        check_model(model)
    if isinstance(loggers, str):
        raise invalid_parameter("loggers", "fit", "a list", loggers)
    check_watch(watch, "fit")
    active_loggers = [all_loggers.get(logger) for logger in loggers]
    target = None if folder is None else RunFolder(folder)
    sources = gather(data, test, settings)
    device = device_of(settings)
    provenance = {**sources.provenance(device), **({"model": None} if isinstance(model, str) else model_digests(model))}
    if foreign_words(settings.as_json()):
        provenance["imports"] = plugins.used_by(settings.as_json())
    target = target or RunFolder(Path("runs") / _name(settings, provenance))
    if target.exists():
        _check_same_run(target, settings, provenance)
        _check_whole(target, settings)
        if isinstance(model, nn.Module):
            warn_of_other_start(target, model, provenance["start"])
        if target.status()["state"] == "finished":
            if isinstance(model, nn.Module):
                fill(model.to(device).eval(), target.read_tensors("model.safetensors")[0], type(model).__name__, target)
                mark_trained(model, target)
            return _checked(Run(target.path, data=data, test=test))
    target.check_free()
    check_outside_images(target.path, sources)
    if isinstance(model, nn.Module) and not target.exists() and was_trained(model) and is_main_process():
        text = "This model was already trained by fit, and training starts from those weights. Give every run a new model."
        warnings.warn(text, stacklevel=3)
    with signals.delayed(), one_at_a_time, join(device), isolate_torch_state(device):
        training = _Training(settings, model, sources, target, provenance, active_loggers, watch)
        try:
            training.run()
        finally:
            if isinstance(model, nn.Module) and training.began:
                mark_trained(model, target)
        wait_for_all()
        del training  # it holds the data-parallel model, which keeps the process group
    return _checked(Run(target.path, data=data, test=test))


def _checked(run: Run) -> Run:
    """Warn about classes that a finished run did not learn."""
    if is_main_process() and run.unlearned:
        warnings.warn(unlearned_sentence(in_short(run.settings.loss), run.unlearned, len(run.classes)), Unlearned, stacklevel=4)
    return run


def _name(settings: Settings, provenance: dict[str, Any]) -> str:
    """A folder name that follows from the settings and the data."""
    content = json.dumps(
        [settings.as_json(), provenance["data"], *filter(None, [provenance["model"], provenance.get("imports")])], sort_keys=True
    )
    method = [] if settings.method == "plain" else [settings.method]
    data, model, *specs = map(name_of, (Path(settings.data).stem, settings.model, *method, settings.loss, settings.noise))
    words = "-".join([data, model, *map(folder_name, specs)])
    return f"{words}-seed{settings.seed}-{hashlib.sha256(content.encode()).hexdigest()[:8]}"


def check_settings(folder: RunFolder, settings: Settings) -> None:
    """Refuse a folder that contains a run with other settings."""
    written = load_settings(folder.path).as_json()
    for name, value in settings.as_json().items():
        if written[name] != value:
            raise InputError(
                f"The folder {str(folder.path)!r} contains a run with {name}={written[name]!r}. Got {name}={value!r}; "
                "give another folder, or the same settings to resume."
            )
    if foreign_words(settings.as_json()):
        plugins.check_same(folder.path, folder.provenance().get("imports", ()), plugins.used_by(settings.as_json()))


def _check_same_run(folder: RunFolder, settings: Settings, provenance: dict[str, Any]) -> None:
    """Refuse a folder that contains another run."""
    check_settings(folder, settings)
    before = folder.provenance(needs=("data", "model"))
    if before["data"] != provenance["data"]:
        raise InputError(
            f"The folder {str(folder.path)!r} contains a run on other data of the same name, or with other ids or true labels. "
            "Give another folder."
        )
    if before["model"] != provenance["model"]:
        raise InputError(
            f"The folder {str(folder.path)!r} contains a run of another {settings.model}, with other layers or other frozen layers. "
            "Give another folder, or the same model to resume."
        )


def _check_whole(folder: RunFolder, settings: Settings) -> None:
    """Refuse a run with missing or damaged files."""
    status = folder.status()
    if status["state"] == "finished":
        folder.read_tensors("model.safetensors")
        epoch = status["epoch"]
    else:
        epoch = next((notes["epoch"] for _, notes in folder.checkpoints()), 0)
    folder.check_whole(epoch, range(settings.evaluate_every, epoch + 1, settings.evaluate_every) if settings.clean_pass else ())


def _seed(*parts: object) -> int:
    """Derive a seed for one purpose from the seed of the run."""
    return int.from_bytes(hashlib.sha256("/".join(map(str, parts)).encode()).digest()[:8], "little") >> 1


class _Training:
    """One training run."""

    def __init__(
        self,
        settings: Settings,
        model: str | nn.Module,
        sources: Sources,
        folder: RunFolder,
        provenance: dict[str, Any],
        loggers: list[Logger],
        watch: Watch | None,
    ) -> None:
        self.settings, self.folder, self.provenance, self.loggers, self.watch = settings, folder, provenance, loggers, watch
        self.best_epoch, self.began, self.writer = 0, False, Writer()
        self.label_wave = LabelWave(folder.path) if settings.keep == "label_wave" else None
        self.rank = dist.get_rank() if dist.is_initialized() else 0
        self.world = dist.get_world_size() if dist.is_initialized() else 1
        self.device = device_of(settings)
        classes = len(sources.train.classes)
        self.loss, self.method = losses.get(settings.loss), methods.get(settings.method)
        self.method.check(self.loss, sources.train)
        self.scheduled = any(isinstance(part, curriculum.Scheduled) for part in self.loss.modules())
        self.normalise = recorded_scale(folder) if settings.normalise and folder.exists() else None  # a resumed run keeps its normalisation
        if settings.normalise and self.normalise is None:
            self.normalise = _scale_of(sources.train)
        self.data = sources.to(self.device)
        self.from_seed = isinstance(model, str)
        self.model = self._networks(model, classes, tuple(sources.train.inputs.shape[1:])).to(self.device)
        self.generator, self.method_generator = torch.Generator(self.device), torch.Generator(self.device)
        self.prepare_training, self.prepare_evaluation = self._dry_run(classes)
        warning = underfitting(self.loss, classes)
        if warning and self.rank == 0:
            warnings.warn(warning, Underfitting, stacklevel=4)
        self.per_epoch = number_of_batches(len(self.data.train), settings.batch_size)
        self.total = settings.steps if settings.steps is not None else (settings.epochs or 0) * self.per_epoch
        self.epochs = math.ceil(self.total / self.per_epoch)
        self.schedule = schedules.get(settings.schedule)
        self._build()
        if not any(weights.requires_grad for weights in self.updater.parameters):
            raise InputError(f"The model {settings.model} has no parameters to train: all are frozen. Set requires_grad for some of them.")
        if not self._weights_are_finite():
            raise InputError(f"The model {settings.model} has weights that are not finite. Initialise it again.")

    def _networks(self, model: str | nn.Module, classes: int, shape: tuple[int, ...]) -> nn.Module:
        """The model, or all networks of the method as one model, each with its own initial weights."""
        seed = self.settings.seed
        torch.manual_seed(_seed(seed, "weights"))
        network = models.get(model, num_classes=classes, shape=shape) if isinstance(model, str) else model
        if self.method.embeds or self.method.reads_features:
            uses = f"The method {self.method!r} uses the embedding of the network."
            if not isinstance(network, models.Classifier):
                raise InputError(f"{uses} Got {type(network).__name__}; give a model of noisewise.")
            if all(name.startswith("head.") for name, _ in network.named_parameters()):
                raise InputError(f"{uses} Got {self.settings.model}, which has only a last layer; give a larger model, such as mlp.")
        if self.method.networks == 1:
            return network
        if not isinstance(model, str):
            raise InputError(f"The method {self.method!r} trains several networks. Got a module; give the spec of a model instead.")
        others = []
        for number in range(1, self.method.networks):
            torch.manual_seed(_seed(seed, "weights", number))
            others.append(models.get(model, num_classes=classes, shape=shape))
        return Ensemble(self.method, [network, *others])

    def _dry_run(self, classes: int) -> tuple[Prepare, Prepare]:
        """The functions that prepare raw inputs for training and for evaluation, after a check that the model takes both."""
        settings, first = self.settings, self._first_inputs()

        def preparation(augment: str, channels_last: bool) -> Prepare:
            return prepared(augmentations.get(augment), self.normalise, self.generator, channels_last)

        channels_last = use_channels_last(self.model, preparation("none", True)(first))
        training, evaluation = (preparation(augment, channels_last) for augment in (settings.augment, "none"))
        for prepare in (evaluation, training):
            check_scores(self.model, settings.model, prepare(first), classes, scaled=settings.normalise)
        check_training(self.model, settings.model, training(first[: self._smallest_batch()]), classes)
        return training, evaluation

    def _smallest_batch(self) -> int:
        """The smallest number of examples that the model gets at once, up to two."""
        examples, size = len(self.data.train), self.settings.batch_size
        last = examples - size * (number_of_batches(examples, size) - 1)
        return min(smallest_part(size, self.settings.accumulate * self.world), smallest_part(last, self.world))

    def _open(self) -> None:
        if self.folder.exists():
            _check_same_run(self.folder, self.settings, self.provenance)  # another call may have just made it
            return
        inputs, features = self.data.train.inputs, self.data.train.features
        normalise = None if self.normalise is None else repr(self.normalise)
        inputs_are: dict[str, Any] = {"shape": inputs.shape[1:], "type": str(inputs.dtype), "normalise": normalise, "features": features}
        if (embedder := self.data.train.embedder) is not None:
            inputs_are["embedder"] = {"embed": embedder.spec, "columns": list(getattr(embedder, "columns", ()))}
        self.folder.begin(self.settings.as_json(), {**self.provenance, **inputs_are}, self.data.train)

    def _first_inputs(self) -> Tensor:
        """The inputs of the first two examples. Of images on disk only these two are decoded."""
        first = self.data.train.take(torch.arange(min(2, len(self.data.train))))
        return next(iter(batches(first, 2, shuffle=False))).inputs

    def _build(self) -> None:
        settings = self.settings
        optimiser = optimisers.get(settings.optimiser)
        networks = networks_of(self.model)
        for network in networks[len(networks) if self.method.trained is None else self.method.trained :]:
            network.requires_grad_(False)
        self.updater = optimiser.make(self.model.named_parameters(), settings.weight_decay, self.device)
        self.base_lr = optimiser.lr
        self.method_state = self.method.start(self.data.train, settings.seed)
        self.scorers = [Scorer(network, settings.half(self.device)) for network in networks]
        compiled: list[Any] = [torch.compile(each) for each in self.scorers] if settings.compile else self.scorers
        forward: nn.Module = Networks(compiled, self.method, self.method_state)
        if self.world > 1:
            forward = DistributedDataParallel(forward)
        self.step = Step(
            forward,
            networks,
            self.method,
            self.method_state,
            self.loss,
            self.updater,
            self.data.train,
            self.prepare_training,
            settings.clip,
            settings.accumulate,
            settings.batch_size,
            self.total,
            self.method_generator,
            LateTally if self.device.type == "cpu" else Tally,
        )
        # A graph would run Python code in the forward of a custom module only once, when it is captured.
        plain = self.from_seed or is_unmodified(self.model)
        self.graphs = self.device.type == "cuda" and self.world == 1 and plain and not isinstance(self.data.train, Stream)
        self._capture()
        self._scorings: dict[str, tuple[Scoring, Callable[..., None]]] = {}

    def _loss_state(self) -> dict[str, Tensor]:
        """What an adaptive loss has noted and decided."""
        return {} if self.step.adaptive is None else self.step.adaptive.state_dict()

    def _capture(self) -> None:
        """Replace the step by one that is captured at its first call, if it can be."""
        self.captured = GraphedStep(self.step, (self.generator, self.method_generator), self._changing) if self.graphs else None
        self.update: Callable[..., None] = self.captured or self.step

    def _changing(self) -> list[Tensor]:
        tally = vars(self.step.tally).values()
        state = self.method_state.values()
        return [self.step.number, *tally, *state, *self.loss.buffers(), *self.updater.state().values(), *self.model.state_dict().values()]

    def run(self) -> None:
        """Train to the end, from the newest checkpoint if there is one."""
        state = "failed"
        with self.folder.lock() if self.rank == 0 else nullcontext(), self.writer:
            try:
                self._log(lambda logger: logger.start(self.settings.as_json()))  # before the folder is made: its library may be missing
                if self.rank == 0:
                    self._open()
                wait_for_all()
                self.began = True  # from here on the model changes
                try:
                    with report_lost_workers():
                        self._epochs()
                    state = "finished"
                except BaseException as error:
                    state, reason = end_state(error)
                    with suppress(Exception):  # the run ends with the first error
                        self.writer.flush()
                    with suppress(NoisewiseError):  # the disk may be full
                        self._status(state, reason)
                    raise
            finally:
                self._log(lambda logger: logger.finish(state))

    def _epochs(self) -> None:
        epoch, best, waited = self._resume()
        self._status("running", epoch=epoch, step=int(self.step.number))
        if self.captured is not None and not self._over(epoch, waited):
            self._compile_kernels(self.captured)
        wait_for_all()
        while not self._over(epoch, waited):
            epoch += 1
            best, waited = self._judge(self._epoch(epoch), best, waited)
            if self.rank == 0 and (self._over(epoch, waited) or epoch % self.settings.checkpoint_every == 0):
                self._checkpoint(epoch, best, waited)
        self.writer.flush()
        kept = {}
        if self.settings.keep != "last":
            wait_for_all()
            fill(self.model, self.folder.read_best(self.best_epoch), self.settings.model, self.folder)
            kept = {"kept": self.best_epoch}
        if self.rank == 0:
            self._finish(stopped_early=epoch < self.epochs, **kept)

    def _compile_kernels(self, step: GraphedStep) -> None:
        """Compile the kernels of all batch sizes together. Evaluation uses the same kernels."""
        positions = torch.arange(len(self.data.train), device=self.device)
        sizes = {len(batch): batch for batch in cut(positions, self.settings.batch_size)}
        self.model.train()
        with compiled_ahead():
            for batch in sizes.values():
                step.run_undone(batch)

    def _over(self, epoch: int, waited: int) -> bool:
        return epoch >= self.epochs or (self.settings.patience is not None and waited >= self.settings.patience)

    def _resume(self) -> tuple[int, float | None, int]:
        for tensors, notes in self.folder.checkpoints():
            if not self._has_best(notes):
                continue
            self.best_epoch = notes["best_epoch"]
            fill(self.model, _under("model.", tensors), self.settings.model, self.folder)
            self.updater.load(_under("updater.", tensors))
            for name, value in self.method_state.items():
                value.copy_(tensors[f"method.{name}"])
            for name, value in self._loss_state().items():
                value.copy_(tensors[f"loss.{name}"])
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
                self.writer.flush()  # refuse a model that cannot be stored before it is trained
        return 0, None, 0

    def _has_best(self, notes: Mapping[str, Any]) -> bool:
        """Whether the kept model of a checkpoint can still be read; True for runs that keep only their last model."""
        if self.settings.keep != "last" and notes["best_epoch"] > 0:
            try:
                self.folder.read_best(notes["best_epoch"])
            except CannotOpenError:
                raise
            except InputError:  # damaged: resume from an earlier checkpoint
                return False
        return True

    def _epoch(self, epoch: int) -> dict[str, Any]:
        """Train one epoch, evaluate if it is time, and write metrics and record."""
        started = time.perf_counter()
        self._prepare_epoch(epoch)
        first = (epoch - 1) * self.per_epoch
        number = min(self.per_epoch, self.total - first)
        rates = self.base_lr * self.schedule.factors(self.total, first, number)
        on_device = rates.to(self.device, self.updater.lr.dtype).unbind()
        with closing(self._feed(epoch, number)) as feed:
            for position, (index, inputs, whole) in enumerate(feed):
                self.updater.lr.copy_(on_device[position])
                self.update(index, inputs, whole)
                if self.method.refresh_every and (first + position + 1) % self.method.refresh_every == 0:
                    self.method.refresh(self.loss, self.method_state, self.updater.lr)
                if self.watch is not None:
                    self.watch(first + position + 1, self.total)
        self.step.tally.settle()
        if self.world > 1:
            self.step.share_state()
            self.step.tally.gather()
        self._check_finite(first + number)
        self.writer.flush()  # the files of the epoch before; an error ends the run here
        if self.method.mixes:
            self._record_pass()
        line: dict[str, Any] = {"epoch": epoch, "step": first + number, "lr": float(rates[-1]), "train_loss": self.step.mean_loss()}
        line |= self.step.tally.metrics(self.data.train.true_labels is not None)
        if self.step.adaptive is not None:
            line["adapted"] = self.step.adaptive.update()
        if epoch % self.settings.evaluate_every == 0 or epoch == self.epochs:
            line |= self._evaluate(epoch)
        line["seconds"] = time.perf_counter() - started
        if self.rank == 0:
            self._write(epoch, line)
        return line

    def _prepare_epoch(self, epoch: int) -> None:
        self.step.tally.clear()
        self.model.train()
        seed_all = torch.default_generator.manual_seed if self.device.type == "cpu" else torch.manual_seed
        seed_all(_seed(self.settings.seed, epoch, "step", self.rank))  # torch.manual_seed takes milliseconds for devices that are not used
        self.generator.manual_seed(_seed(self.settings.seed, epoch, "augment", self.rank))
        self.method_generator.manual_seed(_seed(self.settings.seed, epoch, "method"))
        if type(self.method).begin_epoch is not methods.Method.begin_epoch:
            self.method.begin_epoch(self.method_state, epoch, self.epochs, self._scored(epoch))
            self.model.train()
        if self.scheduled:
            curriculum.advance(self.loss, (epoch - 1) / max(1, self.epochs - 1))
            if self.graphs and not (self.method.follows_the_loss and self.step.pull.refresh()):
                self._capture()  # a graph keeps the hyper-parameters it was captured with

    def _scored(self, epoch: int) -> Scored:
        """Access to the current scores and features of the training set, for the method."""

        def scores(network: int | None) -> Tensor:
            self.model.eval()
            return self._pass(self._score if network is None else self.scorers[network])

        def features(index: Tensor) -> Tensor:
            self.model.eval()
            network: Any = networks_of(self.model)[0]
            return self._pass(network.features, index.to(self.device))

        def losses() -> Tensor:
            loss = copy.copy(self.loss)
            loss.reduction = "none"
            return loss(scores(None), self.data.train.labels)  # type: ignore[no-any-return]

        seed = _seed(self.settings.seed, epoch, "between epochs")
        return Scored(scores, features, torch.Generator().manual_seed(seed), losses)

    def _score(self, inputs: Tensor) -> Tensor:
        """The scores that the run is evaluated with: those of its network, or those of all networks combined."""
        scores = [scorer(inputs) for scorer in self.scorers]
        return scores[0] if len(scores) == 1 else self.method.combine(scores)

    @torch.no_grad()
    def _pass(self, function: Callable[[Tensor], Tensor], index: Tensor | None = None) -> Tensor:
        """Apply a function to the prepared inputs of the training set, or of some examples; all processes return the same result.

        Only the first process has the running statistics of batch normalisation, so all processes use its result.
        """
        data = self.data.train if index is None else self.data.train.take(index)
        parts = batches(data, EVALUATION_BATCH, shuffle=False)
        result = torch.cat([function(self.prepare_evaluation(part.inputs)).float() for part in parts])
        if self.world > 1:
            dist.broadcast(result, 0)
        return result

    def _record_pass(self) -> None:
        """Record the original examples in eval mode, because the inputs of training were mixtures of examples."""
        tally = self.step.tally
        if self.rank == 0:
            for target, value in zip((tally.margins, tally.predictions), self._scores("train"), strict=True):
                target.copy_(value)

    def _feed(self, epoch: int, number: int) -> Any:
        """The batches of an epoch: positions, inputs if they come from disk, and the batch size over all processes."""
        data, settings = self.data.train, self.settings

        def mine(batch: Tensor) -> Tensor:
            """The part of a batch for this process. It has at least one example, which is ignored if another process has it too."""
            return batch if self.world == 1 else batch[min(self.rank, len(batch) - 1) :: self.world]

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
        """Stop a run that diverged, before anything of this epoch is written."""
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

    def _scores(self, name: str) -> tuple[Tensor, Tensor]:
        """Margins and predictions on the training, validation or test set, in eval mode."""
        self.model.eval()
        data = getattr(self.data, name)
        if name not in self._scorings:
            scoring = Scoring(self._score, data, self.prepare_evaluation)
            self._scorings[name] = scoring, GraphedStep(scoring, (), list) if self.graphs and not isinstance(data, Stream) else scoring
        scoring, score = self._scorings[name]
        if isinstance(data, Stream):
            for batch in batches(data, EVALUATION_BATCH, shuffle=False):
                score(batch.index, batch.inputs)
        else:
            for index in torch.split(torch.arange(len(data), device=self.device), EVALUATION_BATCH):
                score(index)
        if not scoring.margins.isfinite().all():
            raise self._diverged(f"The scores of the {name} set were not finite after step {int(self.step.number)}")
        return scoring.margins, scoring.predictions

    def _evaluate(self, epoch: int) -> dict[str, Any]:
        if self.rank != 0:
            return {}
        metrics: dict[str, Any] = {}
        for name, data in (("validation", self.data.validation), ("test", self.data.test)):
            if data is not None:
                predictions = self._scores(name)[1]
                metrics[f"{name}_accuracy"] = float((predictions == data.labels).double().mean())
                accuracies = class_accuracies(data.labels.cpu().numpy(), predictions.cpu().numpy(), len(data.classes))
                metrics[f"{name}_balanced_accuracy"] = float(np.nanmean(accuracies))
                self.writer.submit(self.folder.write_array, f"record/{name}/accuracies-{epoch:05d}.npy", accuracies)
        if self.settings.clean_pass:
            self.writer.submit(self.folder.write_record, "clean", epoch, *map(_on_host, self._scores("train")))
        return metrics

    def _write(self, epoch: int, line: dict[str, Any]) -> None:
        tally = self.step.tally
        self.writer.submit(self.folder.write_record, "training", epoch, _on_host(tally.margins), _on_host(tally.predictions))
        self.writer.submit(self.folder.add_metrics, line)
        self.writer.submit(self.folder.write_status, "running", epoch=epoch, step=line["step"])
        if self.loggers:
            self.writer.flush()  # a logger gets an epoch when its files are written
            self._log(lambda logger: logger.log(line, line["step"]))

    def _judge(self, line: dict[str, Any], best: float | None, waited: int) -> tuple[float | None, int]:
        """Update the best validation accuracy and the number of evaluations since; write the model if it is to be kept so far."""
        if self.label_wave:
            self._follow_label_wave(self.label_wave, line["epoch"])
        if self.settings.patience is None and self.settings.keep != "best":
            return best, waited
        accuracy = [line.get("validation_accuracy")]
        if self.world > 1:
            dist.broadcast_object_list(accuracy)
        if accuracy[0] is None:
            return best, waited
        if best is not None and accuracy[0] <= best:
            return best, waited + 1
        if self.settings.keep == "best":
            self._keep(line["epoch"])
        return accuracy[0], 0

    def _follow_label_wave(self, label_wave: LabelWave, epoch: int) -> None:
        """Keep the model of this epoch, unless Label Wave has chosen an earlier one."""
        self.writer.flush()  # Label Wave reads the record of this epoch
        kept = [label_wave.kept(epoch) if self.rank == 0 else 0]
        if self.world > 1:
            dist.broadcast_object_list(kept)
        if kept[0] == epoch:
            self._keep(epoch)

    def _keep(self, epoch: int) -> None:
        self.best_epoch = epoch
        if self.rank == 0:
            tensors = {name: _on_host(value) for name, value in self.model.state_dict().items()}
            self.writer.submit(self.folder.write_best, epoch, tensors)

    def _checkpoint(self, epoch: int, best: float | None, waited: int) -> None:
        tensors = {f"model.{name}": value for name, value in self.model.state_dict().items()}
        tensors |= {f"updater.{name}": value for name, value in self.updater.state().items()}
        tensors |= {f"method.{name}": value for name, value in self.method_state.items()}
        tensors |= {f"loss.{name}": value for name, value in self._loss_state().items()}
        notes = {"epoch": epoch, "step": int(self.step.number), "best": best, "best_epoch": self.best_epoch, "waited": waited}
        self.writer.submit(self.folder.write_checkpoint, epoch, {name: _on_host(value) for name, value in tensors.items()}, notes)

    def _finish(self, stopped_early: bool, **kept: int) -> None:
        if not evaluate(self.model, self.prepare_evaluation(self._first_inputs())).isfinite().all():  # some runs are never evaluated
            raise self._diverged(f"The scores were not finite after step {int(self.step.number)}")
        network = networks_of(self.model)[0]
        notes = {"model": repr(network) if is_built_in(network) else type(network).__name__}
        self.folder.write_tensors("model.safetensors", self.model.state_dict(), notes)
        if self.data.validation is not None:
            self.folder.write_json(CALIBRATION, {"temperature": self._temperature(self.data.validation)})
        last = self.folder.metrics()[-1]
        reason = "no improvement on the validation share" if stopped_early else None
        self._status("finished", reason, epoch=last["epoch"], step=last["step"], **kept)

    @torch.no_grad()
    def _temperature(self, held_out: Dataset) -> float:
        """Fit the temperature on the validation share, or on a subsample of a large one."""
        sample = _subsample(held_out, _CALIBRATED_ON)
        self.model.eval()
        scores = [self._score(self.prepare_evaluation(batch.inputs)).cpu() for batch in batches(sample, EVALUATION_BATCH, shuffle=False)]
        return temperature(torch.cat(scores), sample.labels.cpu())

    def _status(self, state: str, reason: str | None = None, **reached: int) -> None:
        if self.rank == 0:
            self.folder.write_status(state, reason, **reached)

    def _log(self, call: Callable[[Logger], None]) -> None:
        if self.rank == 0:
            for logger in self.loggers:
                call(logger)


def _on_host(value: Any) -> Any:
    """A copy of a tensor in the memory of the host, which training does not change. A model may also have state that is no tensor."""
    return value.detach().to("cpu", copy=True) if isinstance(value, Tensor) else value


def _under(prefix: str, tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    return {key.removeprefix(prefix): value for key, value in tensors.items() if key.startswith(prefix)}


def _scale_of(data: Dataset) -> Normalise | None:
    """The normalisation to mean 0 and variance 1; for images on disk, estimated from a subsample. None for tables that are scaled."""
    if data.encoding is not None and not data.encoding.plain:
        return None
    if not isinstance(data, Stream):
        return Normalise.of(data.inputs)
    sample = _subsample(data, _SCALED_ON)
    return Normalise.of(torch.cat([batch.inputs.cpu() for batch in batches(sample, EVALUATION_BATCH, shuffle=False)]))


def _subsample(data: Dataset, number: int) -> Dataset:
    return data.take(torch.linspace(0, len(data) - 1, min(len(data), number), dtype=torch.float64).round().long())
