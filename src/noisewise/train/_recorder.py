"""Record a custom training loop in a run folder that reports, audits and corrections can read."""

from __future__ import annotations

import copy
import math
import os
from collections.abc import Sequence
from contextlib import ExitStack
from types import TracebackType
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from noisewise import losses, plugins
from noisewise.data import from_arrays
from noisewise.dynamics import emphasis_at
from noisewise.errors import DivergedError, InputError, NoisewiseError, invalid_parameter
from noisewise.kernels import Pass, loss_and_gradient
from noisewise.losses import Adaptive, Loss, MarginLoss, as_whole_batch
from noisewise.runs import RunFolder, end_state, make_provenance, read_settings
from noisewise.spec import as_int
from noisewise.train._run import Run, is_built_in
from noisewise.train._step import Tally, right_and_wrong


class Recorder:
    """Records a custom training loop, epoch by epoch.

    Logging does not wait for the GPU until an epoch ends. As a context manager it also records how the block ended.

    Args:
        folder: a new run folder.
        labels: the labels you train on, of all examples, as numbers or names.
        loss: the loss you train with, or its spec; it determines the emphasis of every example. Of a loss that adapts, such as "auto",
            pass the one you train with: `end_epoch` calls its `update`.
        classes: the names of all classes, in the order of the columns of scores; by default the numbers that occur.
        true_labels: the true labels, if you know them.
        ids: a unique id for every example.
        model: a name for the model.
        data: a name for the data.
        after: to resume a loop that was stopped, the number of epochs it had finished. The record in the folder must have the same labels
            and loss; later epochs are removed. 0 also accepts a new folder. None starts a new record.

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
        self._adaptive = self._loss if isinstance(self._loss, Adaptive) else None
        self._shows = not isinstance(loss, Loss)  # the batches to an adaptive loss; one that the loop calls sees them itself
        self._weighted = bool({"weight", "ignore_index"} & self._loss.contract.keys())
        try:
            number = len(labels)
        except TypeError:
            number = 0
        if number == 0:
            raise invalid_parameter("labels", "Recorder", "a list with one label for every example", labels)
        if classes is None and not isinstance(labels, Tensor) and any(isinstance(label, str) for label in labels):
            raise invalid_parameter("classes", "Recorder", "given if labels are names: the name of every column of scores, in order", None)
        self._named = classes is not None
        self._data = from_arrays(torch.zeros(number, 1), labels, classes=classes, true_labels=true_labels, ids=ids, name=data)
        if classes is None and self._loss.ignore_index < 0 and str(self._loss.ignore_index) in self._data.classes:
            raise InputError(
                f"The labels given to Recorder contain {self._loss.ignore_index}, which the loss ignores. "
                "Leave these examples out of the labels, and do not log them."
            )
        # Other settings, such as the optimiser, are not known: defaults would be wrong.
        self._settings = {"data": data, "model": model, "loss": repr(self._loss), "epochs": 1}
        self._folder = RunFolder(folder)
        self._folder.check_free()
        self._tally: Tally | None = None
        self._epoch, self._step, self._ended = 0, 0, False
        after = None if after is None else as_int("after", "Recorder", after, 0)
        if after and not self._folder.exists():
            raise InputError(f"The folder {str(self._folder.path)!r} has no record to resume after={after}. Give the folder of a record.")
        with ExitStack() as stack:
            stack.enter_context(self._folder.lock())
            self._begin(after)
            self._lock = stack.pop_all()  # released at once if the start fails

    def _begin(self, after: int | None) -> None:
        provenance = make_provenance({"train": self._data}, {"train": None, "test": None}, None, torch.device("cpu"))
        del provenance["data"]["train"]["inputs"]  # a Recorder never sees the inputs
        if not self._folder.exists():
            if imports := plugins.used_by(self._settings):
                provenance["imports"] = imports
            self._folder.begin(self._settings, {**provenance, "normalise": None, "recorded": True}, self._data)
        elif after is None:
            raise InputError(
                f"The folder {str(self._folder.path)!r} already contains a run. "
                "Give a new folder, or resume the run with after=… (the number of its epochs to keep)."
            )
        else:
            self._resume(after, provenance["data"])

    def _resume(self, after: int, data: dict[str, Any]) -> None:
        """Continue the record in the folder after an epoch."""
        path, provenance = str(self._folder.path), self._folder.provenance()
        settings = read_settings(self._folder.path)
        same = all(settings.get(name) == self._settings[name] for name in ("data", "model", "loss"))
        if not same or not provenance.get("recorded") or provenance.get("data") != data:
            raise InputError(f"The folder {path!r} has no record of the same labels with {self._loss!r}. Give another folder.")
        lines = {line["epoch"]: line for line in self._folder.metrics()}
        if after and after not in lines:
            raise InputError(
                f"The record in {path!r} has {len(lines)} epochs and cannot be resumed after {after}. Give after={len(lines)}."
            )
        self._folder.forget_after(after)
        self._folder.remove("model.safetensors")
        self._epoch, self._step = after, lines[after]["step"] if after else 0
        self._write_progress()

    def _write_progress(self) -> None:
        self._settings["epochs"] = max(1, self._epoch)
        self._folder.write_settings(self._settings)
        self._folder.write_status("running", epoch=self._epoch, step=self._step)

    def log(self, index: Any, scores: Tensor, *, lr: float | Tensor = 1.0) -> None:
        """Record the examples of one step.

        Args:
            index: their positions in the labels.
            scores: (N, C) the scores of the model for them, before softmax.
            lr: the learning rate of the step: α and snr weight its examples by it. Leave it out if it is constant.
        """
        index, rate = self._checked(index, scores), _rate(lr)
        with torch.inference_mode(False):
            self._record(index, scores.clone() if scores.is_inference() else scores.detach(), rate)

    def log_margins(self, index: Any, margins: Tensor, predictions: Tensor, *, lr: float | Tensor = 1.0) -> None:
        """Record the examples of one step by their margins, if their scores are too large to keep, as those of a language model.

        The loss must be a function of the margin (`noisewise.margin`).

        Args:
            index: their positions in the labels.
            margins: (N,) the margins of their labels.
            predictions: (N,) the classes with the highest scores.
            lr: as in `log`.
        """
        self._check_open()
        if not self._loss.is_of_margin:
            raise InputError(
                f"Recorder.log_margins needs a loss that is a function of the margin. Got {self._loss!r}; call log with scores."
            )
        index, rate = self._in_range(_positions(index)), _rate(lr)
        if not (margins.shape == predictions.shape == index.shape):
            shapes = f"{tuple(margins.shape)} and {tuple(predictions.shape)}"
            raise invalid_parameter("margins and predictions", "Recorder.log_margins", f"shaped ({len(index)},), like the index", shapes)
        tally, index = self._tally_on(margins.device), index.to(margins.device)
        classes, loss = len(self._data.classes), self._loss_on(margins.device)
        assert isinstance(loss, MarginLoss)
        margins = margins.detach().clone()
        emphasis, value = emphasis_at(loss, margins, classes), loss.of_margin(margins, classes)
        tally.note_margins(index, margins, predictions, torch.full((), self._step, device=margins.device))
        self._add(tally, index, emphasis, value.double().sum(), rate)

    def _tally_on(self, device: torch.device) -> Tally:
        """The tally of the epoch, which is made on the device of the first step."""
        if self._tally is None:
            self._data = self._data.to(device)
            self._tally, self._groups = Tally.of(len(self._data), device), right_and_wrong(self._data)
        return self._tally

    def _add(self, tally: Tally, index: Tensor, emphasis: Tensor, total: Tensor, rate: Tensor) -> None:
        """Add the emphases of the examples of a step and the sum of their losses."""
        groups = self._groups[:, index]
        tally.add(torch.cat([groups @ emphasis.double(), total.view(1)]), groups.sum(1), rate)
        self._step += 1

    def _record(self, index: Tensor, scores: Tensor, rate: Tensor) -> None:
        device = scores.device
        tally = self._tally_on(device)
        index = index.to(device, non_blocking=scores.is_cuda)  # copies from a GPU must block
        labels = self._data.labels[index]
        if self._adaptive is not None and self._shows:
            self._adaptive.observe(scores, labels)
        draws = any(isinstance(part, losses.Peer) for part in self._loss.modules())
        with torch.random.fork_rng([device] if scores.is_cuda else [], enabled=draws), as_whole_batch(self._loss):
            result = loss_and_gradient(self._loss_on(device), scores, labels)
        total = result.value.double() * len(index) if self._loss.reduction == "mean" else result.value.double().sum()
        tally.note(index, scores, result.margin, torch.full((), self._step, device=device))
        self._add(tally, index, self._emphasis(result), total, rate)

    def _emphasis(self, result: Pass) -> Tensor:
        """Half the L1 norm of ∂L/∂scores of every example, where L is the sum over the batch, with class weights."""
        if not self._weighted:
            return result.emphasis
        number = len(result.gradient) if self._loss.reduction == "mean" else 1
        return 0.5 * number * result.gradient.abs().sum(1)

    def _checked(self, index: Any, scores: Tensor) -> Tensor:
        self._check_open()
        positions = _positions(index)
        wanted = f"a tensor shaped (N, {len(self._data.classes)}), one row for each of the {len(positions)} examples"
        if not isinstance(scores, Tensor):
            raise invalid_parameter("scores", "Recorder.log", wanted, type(scores).__name__)
        if not self._named and scores.dim() == 2 and scores.shape[1] > len(self._data.classes):
            columns = f"given if scores have more columns ({scores.shape[1]}) than classes occur in the labels ({len(self._data.classes)})"
            raise invalid_parameter("classes", "Recorder", f"{columns}: the name of every column, in order", None)
        if scores.shape != (len(positions), len(self._data.classes)) or len(positions) == 0:
            raise invalid_parameter("scores", "Recorder.log", wanted, tuple(scores.shape))
        return self._in_range(positions)

    def _in_range(self, positions: Tensor) -> Tensor:
        if positions.device.type == "cpu" and len(positions):  # a GPU checks this itself, without waiting
            for position in (int(positions.min()), int(positions.max())):
                if not 0 <= position < len(self._data):
                    raise invalid_parameter("index", "Recorder.log", f"in [0, {len(self._data)})", position)
        return positions

    def _check_open(self) -> None:
        if self._ended:
            raise InputError(f"The record in {str(self._folder.path)!r} is finished. Use a new Recorder for another loop.")

    def _loss_on(self, device: torch.device) -> Loss:
        """The loss with its current hyper-parameters, on a device. It is copied if necessary, because the loop may need it where it is.

        An adaptive loss is copied in any case: in evaluation mode it does not note this batch a second time.
        """
        if self._adaptive is None and all(tensor.device == device for tensor in (*self._loss.parameters(), *self._loss.buffers())):
            return self._loss
        return copy.deepcopy(self._loss).eval().to(device, non_blocking=device.type == "cuda")

    def _current(self) -> Tally | None:
        """The tally of the current epoch; None if nothing was logged in it."""
        return self._tally if self._tally is not None and bool(self._tally.number.any()) else None

    def end_epoch(self, **metrics: float) -> None:
        """End the current epoch and write its record.

        Args:
            **metrics: your measurements, such as test_accuracy and validation_accuracy, in [0, 1].
        """
        self._check_open()
        tally = self._current()
        if tally is None:
            raise InputError("Nothing was logged in this epoch. Call Recorder.log in every step.")
        for name, value in metrics.items():
            try:
                number = float(value)
            except (TypeError, ValueError, RuntimeError):
                number = math.nan
            accuracy = name.endswith("_accuracy")
            if not math.isfinite(number) or (accuracy and not 0 <= number <= 1):
                raise invalid_parameter(name, "Recorder.end_epoch", "in [0, 1]" if accuracy else "a finite number", value)
        total_loss = float(tally.loss)
        if not math.isfinite(total_loss):
            raise DivergedError(f"The loss {self._loss!r} was not finite in epoch {self._epoch + 1}. Try a smaller learning rate.")
        line: dict[str, Any] = {"epoch": self._epoch + 1, "step": self._step, "train_loss": total_loss / float(tally.number.sum())}
        line |= tally.metrics(self._data.true_labels is not None)
        for name in line.keys() & metrics.keys():
            raise invalid_parameter(name, "Recorder.end_epoch", "left out, because the Recorder computes it", metrics[name])
        line |= {name: float(value) for name, value in metrics.items()}
        if self._adaptive is not None:
            line["adapted"] = self._adaptive.update()
        self._epoch += 1
        self._folder.write_record("training", self._epoch, tally.margins, tally.predictions)
        self._folder.add_metrics(line)
        self._write_progress()
        tally.clear()

    def finish(self, model: nn.Module | None = None) -> Run:
        """End the record, and the current epoch if something was logged in it.

        Args:
            model: the trained model, to store it in the folder.

        Returns:
            The run, with its report, its audit and its dynamics.
        """
        if self._current() is not None:
            self.end_epoch()
        if model is not None:
            if not isinstance(model, nn.Module):
                raise invalid_parameter("model", "Recorder.finish", "a torch.nn.Module", model)
            notes = {"model": repr(model) if is_built_in(model) else self._settings["model"]}
            self._folder.write_tensors("model.safetensors", model.state_dict(), notes)
        self._end("finished")
        return Run(self._folder.path)

    def _end(self, state: str, reason: str | None = None) -> None:
        self._folder.write_status(state, reason)
        self._lock.close()
        self._ended = True

    def __enter__(self) -> Recorder:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        if self._ended:
            return
        if error is not None:
            self._end(*end_state(error))
            return
        try:
            self.finish()
        except NoisewiseError as unfinished:
            self._end(*end_state(unfinished))
            raise


def _positions(index: Any) -> Tensor:
    """Positions of examples as an int64 tensor."""
    values = index if isinstance(index, Tensor) else np.asarray(index)
    if isinstance(values, Tensor):
        integers = not (values.is_floating_point() or values.is_complex() or values.dtype == torch.bool)
    else:
        integers = values.dtype.kind in "iu"
    if values.ndim != 1 or not integers:
        raise invalid_parameter("index", "Recorder.log", "a list of integers, the positions of the examples in the labels", index)
    return values.long() if isinstance(values, Tensor) else torch.from_numpy(values.astype(np.int64))


def _rate(lr: Any) -> Tensor:
    """The learning rate as a tensor; on a GPU it is not checked, which would wait for the device."""
    try:
        rate = torch.as_tensor(lr, dtype=torch.float64).detach()
    except (TypeError, ValueError, RuntimeError):
        rate = torch.empty(0)
    if rate.numel() != 1 or (rate.device.type == "cpu" and not rate.isfinite()):
        raise invalid_parameter("lr", "Recorder.log", "a finite number", lr)
    return rate.view(())
