"""Record a run of Lightning: margins by the number of the example, for audits, corrections and reports."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

from torch import Tensor
from torch.utils.data import Dataset

from noisewise.dynamics import Dynamics
from noisewise.errors import InputError
from noisewise.losses import Loss
from noisewise.runs import RunFolder
from noisewise.train import Recorder, Run

try:
    from lightning.pytorch import Callback, LightningModule, Trainer
except ImportError:
    try:  # the same code under its older name
        from pytorch_lightning import Callback, LightningModule, Trainer  # type: ignore[assignment]
    except ImportError:
        raise InputError("Recording Lightning needs lightning, which is not installed; run: pip install 'noisewise[lightning]'.") from None

_ADVICE = "Wrap the training data in indexed(…), unpack the number from the batch, and return {'loss': loss, 'scores': scores}."
_ACCURACIES = ("test_accuracy", "validation_accuracy")


class indexed(Dataset[Any]):  # noqa: N801  # reads like a function
    """A data set whose examples end with their number, so that batches do too.

    Args:
        data: a data set with a length. Its examples are tuples (the number is added at the end), dicts (it is added as "index"), or single
            values (which become pairs). Wrap it last: after a random split, for example.

    Example:
        >>> from torch.utils.data import DataLoader, TensorDataset
        >>> data = TensorDataset(torch.zeros(4, 2), torch.arange(4) % 2)
        >>> inputs, labels, index = next(iter(DataLoader(indexed(data), batch_size=3)))
        >>> index
        tensor([0, 1, 2])
    """

    def __init__(self, data: Any) -> None:
        self.data = data

    def __len__(self) -> int:
        return len(self.data)

    def __getitem__(self, index: int) -> Any:
        example = self.data[index]
        if isinstance(example, Mapping):
            return {**example, "index": index}
        return (*example, index) if isinstance(example, tuple | list) else (example, index)


class RecorderCallback(Callback):
    """Records a `LightningModule` in a run folder while it trains.

    It needs the scores and the numbers of the examples of every batch: wrap the training data in `indexed`, and return ``{"loss": loss,
    "scores": scores}`` from ``training_step``. The number is the last part of the batch, its entry "index", or an entry "index" of what
    ``training_step`` returns.

    At the end of every epoch it logs ``noisewise/mean_emphasis``, and ``noisewise/snr`` if the true labels are known. Measurements that the
    module logs as "validation_accuracy" or "test_accuracy" in a validation loop are kept in the run. Fits that continue from a checkpoint
    continue the record.

    Args:
        folder: a new run folder, or the one to continue.
        labels: the labels of all training examples.
        loss: the loss of the module, or its spec.
        report: a .html file for a report at the end of training; None writes none.
        options: more options of `noisewise.Recorder`, such as `classes`, `true_labels` and `ids`.

    Attributes:
        run: the recorded run, after training; on every process.

    Example:
        >>> callback = RecorderCallback("runs/mine", torch.arange(300) % 3, loss="gce(q=0.7)")
        >>> trainer = Trainer(max_epochs=3, callbacks=[callback], accelerator="cpu", logger=False)  # doctest: +SKIP
        >>> trainer.fit(module, loader)  # doctest: +SKIP
        >>> callback.run.find_label_issues()  # doctest: +SKIP
    """

    def __init__(
        self,
        folder: str | os.PathLike[str],
        labels: Any,
        *,
        loss: str | Loss,
        report: str | os.PathLike[str] | None = None,
        **options: Any,
    ) -> None:
        self.folder, self.labels, self.loss, self.report, self.options = os.fspath(folder), labels, loss, report, options
        self._recorder: Recorder | None = None
        self._rate = 1.0
        self._accuracies: dict[str, float] = {}

    @property
    def run(self) -> Run:
        return Run(self.folder)

    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        if not trainer.is_global_zero or trainer.fast_dev_run:  # type: ignore[attr-defined]
            return
        continues = bool(trainer.current_epoch or trainer.ckpt_path) and RunFolder(self.folder).exists()
        after = trainer.current_epoch if continues else None
        self._recorder = Recorder(self.folder, self.labels, loss=self.loss, after=after, **self.options)

    def on_train_batch_start(self, trainer: Trainer, pl_module: LightningModule, batch: Any, batch_idx: int) -> None:
        self._rate = float(trainer.optimizers[0].param_groups[0]["lr"])  # a schedule changes it before the batch ends

    def on_train_batch_end(self, trainer: Trainer, pl_module: LightningModule, outputs: Any, batch: Any, batch_idx: int) -> None:
        if not outputs or trainer.fast_dev_run:  # type: ignore[attr-defined]
            return  # the module skipped the batch
        if not isinstance(outputs, Mapping) or "scores" not in outputs:
            raise InputError(f"training_step does not return the scores to record. {_ADVICE}")
        index, scores = _index(outputs, batch), outputs["scores"].detach()
        if trainer.world_size > 1:  # one process records the whole batch
            index, scores = (part.flatten(0, 1) for part in pl_module.all_gather((index, scores)))
        if self._recorder is not None:
            self._recorder.log(index, scores, lr=self._rate)

    def on_validation_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        if not trainer.sanity_checking:
            self._accuracies = {name: float(value) for name, value in trainer.callback_metrics.items() if name in _ACCURACIES}

    def on_train_epoch_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        if self._recorder is None:
            return
        self._recorder.end_epoch(**self._accuracies)
        self._accuracies = {}
        dynamics = Dynamics(self.folder)
        curves = {"noisewise/mean_emphasis": dynamics.mean_emphasis, "noisewise/snr": dynamics.snr}
        last = max(dynamics.mean_emphasis)
        pl_module.log_dict({name: curve[last] for name, curve in curves.items() if last in curve}, rank_zero_only=True)

    def on_train_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        if self._recorder is not None:
            run, self._recorder = self._recorder.finish(pl_module), None
            if self.report is not None:
                run.report(self.report)
        trainer.strategy.barrier()  # the other processes may read the run now

    def on_exception(self, trainer: Trainer, pl_module: LightningModule, exception: BaseException) -> None:
        if self._recorder is not None:
            self._recorder.__exit__(type(exception), exception, exception.__traceback__)
            self._recorder = None


def _index(outputs: Mapping[str, Any], batch: Any) -> Tensor:
    """The numbers of the examples of a batch."""
    index = outputs.get("index")
    if index is None and isinstance(batch, Mapping):
        index = batch.get("index")
    elif index is None and isinstance(batch, tuple | list):
        index = batch[-1]
    if not isinstance(index, Tensor) or index.dim() != 1 or index.is_floating_point():
        raise InputError(f"The batch does not end with the numbers of its examples. {_ADVICE}")
    return index
