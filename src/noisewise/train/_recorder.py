"""The record of a training loop of your own: a run folder, which reports, audits and corrections read like any other.

This module must not train anything.
"""

from __future__ import annotations

import copy
import math
import os
from collections.abc import Sequence
from contextlib import AbstractContextManager, ExitStack, nullcontext
from dataclasses import replace
from types import TracebackType
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from noisewise import losses
from noisewise.data import from_arrays
from noisewise.errors import DivergedError, InputError, NoisewiseError, invalid_parameter
from noisewise.kernels import Pass, loss_and_gradient
from noisewise.losses import Loss, as_whole_batch
from noisewise.runs import RunFolder, Settings, ending, make_provenance, read_settings
from noisewise.spec import as_int
from noisewise.train._run import Run, is_ours
from noisewise.train._step import Tally, right_and_wrong


class Recorder:
    """Writes down what a training loop of your own shows, epoch by epoch.

    Nothing waits for the GPU before an epoch ends. As a context it says in the folder how the block ended, by an error too.

    Args:
        folder: where to; a new run folder.
        labels: those you train on, of all examples, as numbers or names.
        loss: what you train with, as a loss or its spec: it says how hard every example pulled.
        classes: the names of all classes, in the order of the columns of scores; by default the numbers that occur.
        true_labels: the right labels, where you know them.
        ids: what you call every example, each once.
        model: what to call the model.
        data: what to call the data.
        after: how many epochs your loop had finished when it was stopped: the record of the same labels and loss in the folder goes on from
            there, without what came later. Where that is 0 there need not be one yet. None begins a new one.

    Example:
        >>> import tempfile, noisewise
        >>> inputs, labels = torch.randn(60, 4), torch.arange(60) % 3
        >>> model, criterion = nn.Linear(4, 3), noisewise.get("gce(q=0.7)")
        >>> optimiser = torch.optim.SGD(model.parameters(), lr=0.1)
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     recorder = noisewise.Recorder(f"{folder}/mine", labels, loss=criterion)
        ...     for epoch in range(3):
        ...         for index in torch.randperm(60).split(20):
        ...             scores = model(inputs[index])
        ...             optimiser.zero_grad()
        ...             criterion(scores, labels[index]).backward()
        ...             optimiser.step()
        ...             recorder.log(index, scores)
        ...         recorder.end_epoch(test_accuracy=0.5)
        ...     run = recorder.finish(model)
        ...     print(len(run.metrics), run.find_label_issues().given.shape)
        3 (60,)
    """

    def __init__(
        self,
        folder: str | os.PathLike[str],
        labels: Any,
        *,
        loss: str | Loss,
        classes: Sequence[str] | None = None,
        true_labels: Any = None,
        ids: Sequence[Any] | None = None,
        model: str = "own",
        data: str = "own",
        after: int | None = None,
    ) -> None:
        self._loss = losses.get(loss)
        self._weighs = bool({"weight", "ignore_index"} & self._loss.contract.keys())
        try:
            number = len(labels)
        except TypeError:
            number = 0
        if number == 0:
            raise invalid_parameter("labels", "Recorder", "those you train on, one for every example", labels)
        self._check_ignored(labels)
        if classes is None and not isinstance(labels, Tensor) and any(isinstance(label, str) for label in labels):
            raise invalid_parameter(
                "classes", "Recorder", "given where labels are names: the name of every column of scores, in order", None
            )
        self._named = classes is not None
        self._data = from_arrays(torch.zeros(number, 1), labels, classes=classes, true_labels=true_labels, ids=ids, name=data)
        self._settings = Settings(data=data, model=model, loss=repr(self._loss), epochs=1)
        self._folder = RunFolder(folder)
        self._folder.check_free()
        self._tally: Tally | None = None
        self._epoch, self._step, self._ended = 0, 0, False
        after = None if after is None else as_int("after", "Recorder", after, 0)
        if after and not self._folder.exists():
            raise InputError(f"The folder {str(self._folder.path)!r} has no record to go on with after {after} epochs. Give its folder.")
        with ExitStack() as stack:
            stack.enter_context(self._folder.held())
            self._begin(after)
            self._until_finished = stack.pop_all()  # a start that fails lets go of the folder at once

    def _check_ignored(self, labels: Any) -> None:
        """Refuse labels that stand for none, which would be taken for a class of their own."""
        ignored = self._loss.ignore_index
        try:
            values = np.asarray(labels.detach().cpu() if isinstance(labels, Tensor) else labels)
        except ValueError:  # rows of different lengths: what is wrong with them is said where labels are read
            return
        if ignored < 0 and values.dtype.kind in "if" and (values == ignored).any():
            raise InputError(
                f"The labels given to Recorder have {ignored}, which the loss ignores, {int((values == ignored).sum())} times. "
                "Leave these examples out of the labels, and out of what is logged."
            )

    def _begin(self, after: int | None) -> None:
        if self._folder.exists() and after is None:
            raise InputError(
                f"The folder {str(self._folder.path)!r} holds a run already. "
                "Give a Recorder a new one, or say with after=… how many epochs of it count."
            )
        origin = make_provenance({"train": self._data}, {"train": None, "test": None}, None, torch.device("cpu"))
        del origin["data"]["train"]["inputs"]  # which a recorder never sees
        if self._folder.exists() and after is not None:
            self._go_on(after, origin["data"])
        else:
            self._folder.begin(self._known_settings(), {**origin, "normalise": None, "recorded": True}, self._data)

    def _known_settings(self) -> dict[str, Any]:
        """What a Recorder knows of the loop. Its optimiser, batch size or seed would be defaults that the loop did not use."""
        return {name: getattr(self._settings, name) for name in ("data", "model", "loss", "epochs")}

    def _go_on(self, after: int, data: dict[str, Any]) -> None:
        """Take up the record in the folder after some epoch of it."""
        path, told = str(self._folder.path), self._folder.provenance()
        held = read_settings(self._folder.path)
        other = any(held.get(name) != getattr(self._settings, name) for name in ("data", "model", "loss"))
        if other or not told.get("recorded") or told.get("data") != data:
            raise InputError(f"The folder {path!r} holds no record of these labels with {self._loss!r}. Give another folder.")
        lines = {line["epoch"]: line for line in self._folder.metrics()}
        if after and after not in lines:
            raise InputError(f"The record in {path!r} has {len(lines)} epochs, and cannot go on after {after}. Say after={len(lines)}.")
        self._folder.forget_after(after)
        self._folder.remove("model.safetensors")
        self._epoch, self._step = after, lines[after]["step"] if after else 0
        self._settings = replace(self._settings, epochs=max(1, after))
        self._folder.write_settings(self._known_settings())
        self._folder.write_status("running", epoch=self._epoch, step=self._step)

    def log(self, index: Any, scores: Tensor, *, lr: float | Tensor = 1.0) -> None:
        """Note what a step showed of its examples.

        Args:
            index: their positions among the labels.
            scores: (N, C) what the model gave them, before softmax.
            lr: the learning rate of the step, by which α_t and snr weigh its examples; leave it out where it is constant.
        """
        index, rate = self._checked(index, scores), _rate(lr)
        with torch.inference_mode(False):
            self._note(index, scores.clone() if scores.is_inference() else scores.detach(), rate)

    def _note(self, index: Tensor, scores: Tensor, rate: Tensor) -> None:
        tally = self._on(scores.device)
        # Not waited for on its way to a GPU alone: on the way from one it would be read before it has come.
        index = index.to(scores.device, non_blocking=scores.is_cuda)
        labels = self._data.labels[index]
        with self._drawing_apart(scores.device), as_whole_batch(self._loss):
            found = loss_and_gradient(self._loss_on(scores.device), scores, labels)
        counted = self._groups[:, index]
        total = (found.value.double() * len(index) if self._loss.reduction == "mean" else found.value.double().sum()).view(1)
        tally.note(index, scores, found.margin, torch.full((), self._step, device=scores.device))
        emphasis = self._emphasis(found).double()
        tally.add(torch.cat([counted @ emphasis, total]), counted.sum(1), rate)
        self._step += 1

    def _drawing_apart(self, device: torch.device) -> AbstractContextManager[None]:
        """Leave the random numbers of the loop that is recorded alone, where a loss draws some itself."""
        if not any(isinstance(part, losses.Peer) for part in self._loss.modules()):
            return nullcontext()
        return torch.random.fork_rng([device] if device.type == "cuda" else [])

    def _emphasis(self, found: Pass) -> Tensor:
        """Half the L1 norm of ∂L/∂scores of every example, for L the sum over the batch; a pass tells it before any weight."""
        if not self._weighs:
            return found.emphasis
        number = len(found.gradient) if self._loss.reduction == "mean" else 1
        return 0.5 * number * found.gradient.abs().sum(1)

    def _checked(self, given: Any, scores: Tensor) -> Tensor:
        self._check_open()
        index = _positions(given)
        wanted = f"a tensor shaped (N, {len(self._data.classes)}), one row for each of the {index.numel()} examples"
        if not isinstance(scores, Tensor):
            raise invalid_parameter("scores", "Recorder.log", wanted, type(scores).__name__)
        if not self._named and scores.dim() == 2 and scores.shape[1] > len(self._data.classes):
            found = f"given where scores have {scores.shape[1]} columns and only {len(self._data.classes)} classes occur among the labels"
            raise invalid_parameter("classes", "Recorder", f"{found}: the name of every column, in order", None)
        if scores.shape != (len(index), len(self._data.classes)) or len(index) == 0:
            raise invalid_parameter("scores", "Recorder.log", wanted, tuple(scores.shape))
        if index.device.type == "cpu":  # elsewhere the device says it
            for position in (int(index.min()), int(index.max())):
                if not 0 <= position < len(self._data):
                    raise invalid_parameter("index", "Recorder.log", f"in [0, {len(self._data)})", position)
        return index

    def _check_open(self) -> None:
        if self._ended:
            raise InputError(f"The record in {str(self._folder.path)!r} is finished. Give another loop a Recorder of its own.")

    def _on(self, device: torch.device) -> Tally:
        if self._tally is None or self._tally.margins.device != device:
            if (tally := self._under_way()) is not None:
                raise InputError(
                    f"The scores given to Recorder.log must stay on one device until the epoch ends. Got {device} after "
                    f"{tally.margins.device}; move them there, or call Recorder.end_epoch first."
                )
            self._data = self._data.to(device)
            self._tally, self._groups = Tally.of(len(self._data), device), right_and_wrong(self._data)
        return self._tally

    def _loss_on(self, device: torch.device) -> Loss:
        """The loss as it is now, which a schedule may move; where it lies elsewhere a copy, because the loop trains with it there."""
        if all(held.device == device for held in (*self._loss.parameters(), *self._loss.buffers())):
            return self._loss
        return copy.deepcopy(self._loss).to(device, non_blocking=device.type == "cuda")

    def _under_way(self) -> Tally | None:
        """What the epoch shows so far; None before anything of it was logged."""
        return self._tally if self._tally is not None and bool(self._tally.number.any()) else None

    def end_epoch(self, **metrics: float) -> None:
        """Write down the epoch that ends here.

        Args:
            **metrics: what you measured, such as test_accuracy and validation_accuracy, in [0, 1].
        """
        self._check_open()
        tally = self._under_way()
        if tally is None:
            raise InputError("An epoch ends before anything of it was logged. Call Recorder.log in every step.")
        for name, value in metrics.items():
            try:
                number = float(value)
            except (TypeError, ValueError, RuntimeError):
                raise invalid_parameter(name, "Recorder.end_epoch", "a number", value) from None
            if name.endswith("_accuracy") and not 0 <= number <= 1:
                raise invalid_parameter(name, "Recorder.end_epoch", "in [0, 1]", value)
            if not math.isfinite(number):
                raise invalid_parameter(name, "Recorder.end_epoch", "finite", value)
        total = float(tally.loss)
        if not math.isfinite(total):
            raise DivergedError(f"The loss {self._loss!r} was not finite in epoch {self._epoch + 1}. Try a smaller learning rate.")
        line = {"epoch": self._epoch + 1, "step": self._step, "train_loss": total / float(tally.number.sum())}
        line |= tally.shown(self._data.true_labels is not None)
        for name in line.keys() & metrics.keys():
            raise invalid_parameter(name, "Recorder.end_epoch", "left out, as the Recorder finds it out itself", metrics[name])
        line |= {name: float(value) for name, value in metrics.items()}
        self._epoch += 1
        self._folder.write_record("training", self._epoch, tally.margins, tally.predictions)
        self._folder.add_metrics(line)
        self._settings = replace(self._settings, epochs=self._epoch)
        self._folder.write_settings(self._known_settings())
        self._folder.write_status("running", epoch=self._epoch, step=self._step)
        tally.clear()

    def finish(self, model: nn.Module | None = None) -> Run:
        """Say that training is over. An epoch that is under way ends here.

        Args:
            model: what was trained, to be kept in the folder.

        Returns:
            The run, with its report, its audit and its dynamics.
        """
        if self._under_way() is not None:
            self.end_epoch()
        if model is not None:
            if not isinstance(model, nn.Module):
                raise invalid_parameter("model", "Recorder.finish", "a torch.nn.Module", model)
            self._folder.write_tensors(
                "model.safetensors", model.state_dict(), {"model": repr(model) if is_ours(model) else self._settings.model}
            )
        self._end("finished")
        return Run(self._folder.path)

    def _end(self, state: str, reason: str | None = None) -> None:
        self._folder.write_status(state, reason)
        self._until_finished.close()
        self._ended = True

    def __enter__(self) -> Recorder:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        if self._ended:
            return
        if error is not None:
            self._end(*ending(error))
            return
        try:
            self.finish()
        except NoisewiseError as unfinished:
            self._end(*ending(unfinished))
            raise


def _positions(given: Any) -> Tensor:
    """The positions of examples among the labels, as torch counts with them."""
    try:
        index = given if isinstance(given, Tensor) else torch.from_numpy(_whole(np.asarray(given)))
    except (TypeError, ValueError, RuntimeError):
        index = torch.empty(())
    if index.dim() != 1 or index.is_floating_point() or index.is_complex() or index.dtype == torch.bool:
        raise invalid_parameter("index", "Recorder.log", "a list of integers, the examples' positions among the labels", given)
    return index.long()  # of wide unsigned types torch finds no minimum


def _whole(values: np.ndarray) -> np.ndarray:
    """Integers of any width and byte order, in any order in memory, as torch takes them."""
    if values.dtype.kind not in "iu":
        raise ValueError(values.dtype)
    return values.astype(np.int64)


def _rate(given: Any) -> Tensor:
    """A learning rate as one number; whether it is finite is not asked of a GPU, which would have to be waited for."""
    try:
        rate = torch.as_tensor(given, dtype=torch.float64).detach()
    except (TypeError, ValueError, RuntimeError):
        rate = torch.empty(0)
    if rate.numel() != 1 or (rate.device.type == "cpu" and not rate.isfinite()):
        raise invalid_parameter("lr", "Recorder.log", "a finite number", given)
    return rate.view(())
