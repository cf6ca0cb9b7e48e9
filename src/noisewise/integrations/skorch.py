"""Record a run of skorch: after every epoch, the scores of all training examples."""

from __future__ import annotations

import os
from typing import Any

import torch

from noisewise import losses
from noisewise.errors import InputError
from noisewise.losses import Loss
from noisewise.train import Recorder, Run

try:
    from skorch.callbacks import Callback
except ImportError:
    raise InputError("Recording skorch needs skorch, which is not installed; run: pip install skorch.") from None


class RecorderCallback(Callback):  # type: ignore[misc]
    """Records a net of skorch in a run folder while it trains.

    skorch shuffles without telling which example is where, so the scores are computed once more after every epoch, in the order of the
    examples. If the net holds examples out, the record has the others.

    Args:
        folder: a new run folder.
        loss: the loss to compute the emphasis with; by default the criterion of the net.
        options: more options of `noisewise.Recorder`, such as `classes`.

    Attributes:
        run: the recorded run, after training.

    Example:
        >>> callback = RecorderCallback("runs/net")
        >>> net = NeuralNetClassifier(module, criterion=noisewise.get("gce"), callbacks=[callback])  # doctest: +SKIP
        >>> callback.run.find_label_issues()  # doctest: +SKIP
    """

    def __init__(self, folder: str | os.PathLike[str], *, loss: str | Loss | None = None, **options: Any) -> None:
        self.folder, self.loss, self.options = folder, loss, options

    @property
    def run(self) -> Run:
        return Run(self.folder)

    def on_train_begin(self, net: Any, X: Any = None, y: Any = None, **kwargs: Any) -> None:
        self.recorder_: Recorder | None = None

    def on_epoch_end(self, net: Any, dataset_train: Any = None, dataset_valid: Any = None, **kwargs: Any) -> None:
        if self.recorder_ is None:
            labels = torch.cat([labels for _, labels in net.get_iterator(dataset_train, training=False)])
            loss = net.criterion_ if self.loss is None else self.loss
            self.recorder_ = Recorder(self.folder, labels, loss=losses.get(loss), **self.options)
        first = 0
        for scores in net.forward_iter(dataset_train, training=False):
            self.recorder_.log(torch.arange(first, first + len(scores)), scores.detach())
            first += len(scores)
        self.recorder_.end_epoch()

    def on_train_end(self, net: Any, X: Any = None, y: Any = None, **kwargs: Any) -> None:
        if self.recorder_ is not None:
            self.recorder_.finish(net.module_)
            self.recorder_ = None
