"""The Trainer of Hugging Face transformers: any loss in it, and a record of its training examples.

`hf_loss` makes a ``compute_loss_func``. `record` attaches a `Recorder` to a Trainer. Both work for one label per example (texts, images)
and for one per token (token classification, language models). Importing this file does not import transformers.
"""

from __future__ import annotations

import copy
import os
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from noisewise import losses
from noisewise.errors import InputError, invalid_parameter
from noisewise.exact import at_least_float
from noisewise.losses import Loss
from noisewise.margin import margin, margin_of_log_prob
from noisewise.train import Recorder, Run

INDEX = "noisewise_index"
"""The column that `record` adds to batches: the position of each example in the training set."""

_IGNORED = -100
_SCORES_AT_ONCE = 1 << 24
_INSTALL = "Recording a Trainer needs transformers, which is not installed; run: pip install 'noisewise[hf]'."


class TrainerLoss:
    """A loss for the Trainer. See `hf_loss`."""

    def __init__(self, loss: str | Loss, *, shift: bool | None = None) -> None:
        self.loss, self.shift = losses.get(loss), shift
        if self.loss.depends_on_batch:
            raise InputError(f"The Trainer may split a batch, so the loss must not depend on the whole batch. Got {self.loss!r}.")
        self._total = copy.copy(self.loss)
        self._total.reduction = "sum"

    def __repr__(self) -> str:
        return f"hf_loss({self.loss!r})"

    def __call__(self, outputs: Any, labels: Tensor | None, num_items_in_batch: Tensor | int | None = None) -> Tensor:
        """The sum of the losses of a part of a batch, divided by the number of labels in the whole batch."""
        if labels is None:
            raise InputError("hf_loss needs labels, and the batch has none. Check the column 'labels' of the data set.")
        shift = _shifts(outputs) if self.shift is None else self.shift
        scores, labels = _aligned(_scores_of(outputs), labels, shift, self.loss.ignore_index)
        total: Tensor = self._total.to(scores.device)(at_least_float(scores), labels)
        number = (labels != self.loss.ignore_index).sum().clamp(min=1) if num_items_in_batch is None else num_items_in_batch
        return total / (number.to(total.device) if isinstance(number, Tensor) else number)


def hf_loss(loss: str | Loss, *, shift: bool | None = None) -> TrainerLoss:
    """A loss for ``Trainer(compute_loss_func=…)``.

    It sums the losses of a part of a batch and divides by the number of labels in the whole batch (``num_items_in_batch``). Parts that are
    accumulated, in one process or several, therefore add up to the loss of the whole batch.

    Args:
        loss: a loss or its spec. It must not depend on the whole batch.
        shift: whether the scores of each token are of the next one. By default, if the outputs are those of a causal language model.

    Example:
        >>> scores, labels = torch.randn(6, 4, requires_grad=True), torch.arange(6) % 4
        >>> compute_loss = hf_loss("gce(q=0.7)")
        >>> parts = [compute_loss({"logits": scores[part]}, labels[part], num_items_in_batch=6) for part in torch.arange(6).split(2)]
        >>> torch.allclose(sum(parts), losses.get("gce(q=0.7)")(scores, labels))
        True
    """
    return TrainerLoss(loss, shift=shift)


def _scores_of(outputs: Any) -> Tensor:
    """The scores in the outputs of a model."""
    if isinstance(outputs, Mapping):
        return outputs["logits"]  # type: ignore[no-any-return]
    return outputs.logits if hasattr(outputs, "logits") else outputs[0]  # type: ignore[no-any-return]


def base_of(model: Any) -> Any:
    """The model inside an adapter of PEFT; another model as it is."""
    return model.get_base_model() if hasattr(model, "get_base_model") else model


def _shifts(outputs: Any) -> bool:
    """Whether outputs are those of a causal language model."""
    return "CausalLM" in type(outputs).__name__


def _aligned(scores: Tensor, labels: Tensor, shift: bool, ignored: int) -> tuple[Tensor, Tensor]:
    """Scores (N, classes) and the label of each row. Labels are shifted, because shifted scores would be copied."""
    if labels.is_floating_point():  # of several classes per example, for `binary`
        return scores, labels
    if shift:
        labels = nn.functional.pad(labels, (0, 1), value=ignored)[:, 1:]
    return scores.reshape(-1, scores.shape[-1]), labels.reshape(-1)


def record(
    trainer: Any,
    folder: str | os.PathLike[str],
    *,
    loss: str | Loss | None = None,
    ids: str | Sequence[Any] | None = None,
    true_labels: Any = None,
    shift: bool | None = None,
) -> RecorderCallback:
    """Record the training of a Trainer in a run folder, by example. Call it before ``trainer.train()``.

    Each example of ``trainer.train_dataset`` is one example of the record, and an epoch of the Trainer is one epoch. If examples have one
    label per token, each token with a label is one, and its id is that of its sequence, ":" and its position.

    The data set and the collator of the Trainer are wrapped, so that batches say which examples they contain, whatever columns are removed.

    Args:
        trainer: a `transformers.Trainer`, or a trainer of TRL that is one.
        folder: a new run folder; with ``trainer.train(resume_from_checkpoint=…)``, that of the stopped training.
        loss: the loss that determines the emphasis; by default that of `hf_loss` or of `trl.use_loss`, and else "ce".
        ids: a column of the data set with a unique id for each example, or a list of them; by default their positions.
        true_labels: the true labels, if you know them; of tokens, a list for each sequence, aligned with its labels.
        shift: whether the scores of each token are of the next one; by default, if the model is a causal language model.

    Returns:
        The callback. Its `run` is the run, for example for ``find_label_issues()``.
    """
    kind = type("RecorderCallback", (RecorderCallback, _base_class()), {})
    _check(trainer)
    dataset, model = trainer.train_dataset, base_of(trainer.model)
    own = trainer.compute_loss_func if isinstance(trainer.compute_loss_func, TrainerLoss) else None
    default: str | Loss = getattr(trainer, "noisewise_loss", "ce") if own is None else own.loss
    chosen = losses.get(default if loss is None else loss)
    if shift is None:
        shift = _is_causal(model) if own is None or own.shift is None else own.shift
    if trainer.args.remove_unused_columns:
        trainer._set_signature_columns_if_needed()
        trainer._signature_columns = [*trainer._signature_columns, INDEX]
    collator = _Collator(trainer.data_collator)
    examples = _Examples.of(dataset, collator, trainer._signature_columns, shift)
    names = _class_names(model, trainer.processing_class)
    options: dict[str, Any] = {"classes": names, "ids": examples.ids(ids, dataset), "model": type(model).__name__, "data": "own"}
    given, true = examples.named(names), None if true_labels is None else examples.named(names, true_labels)

    def start(after: int | None) -> Recorder:
        return Recorder(folder, given, loss=chosen, true_labels=true, after=after, **options)

    callback: RecorderCallback = kind(trainer, folder, examples, chosen, start)
    trainer.train_dataset, trainer.data_collator = _Indexed(dataset), collator
    trainer.compute_loss = callback.compute_loss
    trainer.add_callback(callback)
    return callback


def _check(trainer: Any) -> None:
    """Refuse a Trainer whose examples cannot be recorded."""
    if not hasattr(trainer.train_dataset, "__len__"):
        raise InputError("record needs a training set with a length. Got an iterable data set, whose examples have no positions.")
    if trainer.args.n_gpu > 1:
        raise InputError("record does not support several GPUs in one process (DataParallel). Start one process per GPU with torchrun.")


def _base_class() -> type:
    try:
        from transformers import TrainerCallback
    except ImportError:
        raise InputError(_INSTALL) from None
    return TrainerCallback


class RecorderCallback:
    """Records the examples of a Trainer. Made by `record`."""

    def __init__(
        self, trainer: Any, folder: str | os.PathLike[str], examples: _Examples, loss: Loss, start: Callable[[int | None], Recorder]
    ) -> None:
        self._trainer, self._folder, self._examples, self._loss, self._start = trainer, folder, examples, loss, start
        self._compute_loss = trainer.compute_loss
        self._recorder: Recorder | None = None
        self._hooks: list[Any] = []
        self._watching, self._outputs, self._hidden = False, None, None
        self._parts: list[tuple[Tensor, ...]] = []
        self._epoch_over, self._metrics = False, dict[str, float]()

    @property
    def run(self) -> Run:
        """The run. It can be read from the end of the first epoch."""
        return Run(self._folder)

    def compute_loss(self, model: Any, inputs: Any, *args: Any, **options: Any) -> Any:
        """The loss as the Trainer computes it. Scores of training examples are noted on the way."""
        index = inputs.pop(INDEX, None)
        if index is None:  # an evaluation
            return self._compute_loss(model, inputs, *args, **options)
        labels, self._watching = inputs.get("labels"), True  # the Trainer removes the labels if it has a custom loss
        try:
            result = self._compute_loss(model, inputs, *args, **options)
            self._parts.append(self._noted(index, labels))
        finally:
            self._watching, self._outputs, self._hidden = False, None, None
        return result

    def _noted(self, index: Tensor, labels: Tensor) -> tuple[Tensor, ...]:
        """Positions in the record, and margins and predictions there; or scores, if the loss needs them."""
        outputs: Any = self._outputs
        positions = self._examples.positions(index)
        if hasattr(outputs, "log_probs"):
            seen = self._from_log_probs(outputs, labels)
        else:
            scores, labels = _aligned(_scores_of(outputs).detach(), labels, self._examples.shift, _IGNORED)
            seen = _margins(scores, labels) if self._loss.is_of_margin else (scores[labels != _IGNORED],)
        if len(seen[0]) != len(positions):
            raise InputError(
                f"The training set has {len(positions)} labels for {len(index)} examples, but their batch has {len(seen[0])}. "
                "The collator must give an example the same labels every time."
            )
        return positions, *seen

    def _from_log_probs(self, outputs: Any, labels: Tensor) -> tuple[Tensor, ...]:
        """Margins and predictions from the log-probabilities that TRL computes instead of scores."""
        if not self._loss.is_of_margin:
            raise InputError(f"A record from log-probabilities needs a loss of the margin. Got {self._loss!r}; pass loss='ce' to record.")
        mask = outputs.label_mask
        predictions = labels[:, 1:][mask]
        wrong = ~outputs.is_top1[mask].bool()
        if wrong.any():
            head = base_of(self._trainer.model).get_output_embeddings()
            predictions[wrong] = _best_classes(self._hidden[:, :-1][mask][wrong], head)  # type: ignore[index]
        return margin_of_log_prob(outputs.log_probs[mask].detach().float()), predictions

    def _flush(self, rate: float) -> None:
        """Record the examples of one update, of all processes."""
        if not self._parts:
            return
        columns = [torch.cat(column) for column in zip(*self._parts, strict=True)]
        self._parts.clear()
        accelerator = self._trainer.accelerator
        if accelerator.num_processes > 1:
            columns = [accelerator.gather(accelerator.pad_across_processes(column, pad_index=-1)) for column in columns]
            present = columns[0] >= 0
            columns = [column[present] for column in columns]
        if self._recorder is not None and len(columns[0]):
            log = self._recorder.log_margins if len(columns) == 3 else self._recorder.log
            log(*columns, lr=rate)

    def _end_epoch(self) -> None:
        if self._epoch_over and self._recorder is not None:
            self._recorder.end_epoch(**self._metrics)
        self._epoch_over, self._metrics = False, {}

    def _watch(self, module: nn.Module, inputs: Any, outputs: Any) -> None:
        if self._watching and self._outputs is None:
            self._outputs = copy.copy(outputs)  # another hook may change its fields

    def _watch_hidden(self, module: nn.Module, inputs: Any, outputs: Any) -> None:
        if self._watching and self._hidden is None:
            self._hidden = getattr(outputs, "last_hidden_state", None)

    def on_train_begin(self, args: Any, state: Any, control: Any, **others: Any) -> None:
        model = self._trainer.model
        self._hooks = [model.register_forward_hook(self._watch, prepend=True)]
        inner = getattr(base_of(model), "base_model", None)
        if isinstance(inner, nn.Module) and inner is not base_of(model):
            self._hooks.append(inner.register_forward_hook(self._watch_hidden))
        if self._trainer.is_world_process_zero():
            self._recorder = self._start(int(state.epoch) if state.global_step else None)

    def on_pre_optimizer_step(self, args: Any, state: Any, control: Any, *, optimizer: Any, **others: Any) -> None:
        self._flush(optimizer.param_groups[0]["lr"])

    def on_epoch_end(self, args: Any, state: Any, control: Any, **others: Any) -> None:
        self._epoch_over = True  # it is recorded after its evaluation, but before a checkpoint

    def on_evaluate(self, args: Any, state: Any, control: Any, *, metrics: Mapping[str, float], **others: Any) -> None:
        if self._epoch_over and "eval_accuracy" in metrics:
            self._metrics = {"validation_accuracy": metrics["eval_accuracy"]}

    def on_save(self, args: Any, state: Any, control: Any, **others: Any) -> None:
        self._end_epoch()

    def on_epoch_begin(self, args: Any, state: Any, control: Any, **others: Any) -> None:
        self._end_epoch()

    def on_train_end(self, args: Any, state: Any, control: Any, **others: Any) -> None:
        self._end_epoch()
        for hook in self._hooks:
            hook.remove()
        if self._recorder is not None:
            self._recorder.finish()
            self._recorder = None


class _Indexed(torch.utils.data.Dataset[dict[str, Any]]):
    """A data set whose examples contain their positions."""

    def __init__(self, dataset: Any) -> None:
        self.dataset = dataset

    def __len__(self) -> int:
        return len(self.dataset)

    def __getitem__(self, index: int) -> dict[str, Any]:
        return {**self.dataset[index], INDEX: int(index)}

    def __getitems__(self, indices: list[int]) -> list[dict[str, Any]]:
        """Some examples at once, which data sets of Hugging Face read faster."""
        together = getattr(self.dataset, "__getitems__", None)
        items = [self.dataset[index] for index in indices] if together is None else together(indices)
        return [{**item, INDEX: int(index)} for item, index in zip(items, indices, strict=True)]


class _Collator:
    """A collator that keeps the positions of the examples."""

    def __init__(self, collator: Callable[[list[dict[str, Any]]], Any]) -> None:
        self.collator = collator

    def __call__(self, features: list[Any]) -> Any:
        if not features or not isinstance(features[0], dict) or INDEX not in features[0]:
            return self.collator(features)
        index = [feature.pop(INDEX) for feature in features]
        batch = self.collator(features)
        batch[INDEX] = torch.tensor(index)
        return batch


class _Examples:
    """Which entries of the record belong to each example of a training set.

    Args:
        labels: the labels of each example that are trained on.
        places: their positions in the example; None if every example has one label.
        shift: whether the scores of each token are of the next one.
    """

    def __init__(self, labels: list[list[int]], places: list[list[int]] | None, shift: bool) -> None:
        self.labels, self.places, self.shift = labels, places, shift
        self._start = torch.tensor([0, *np.cumsum([len(each) for each in labels])])

    @classmethod
    def of(cls, dataset: Any, collator: _Collator, columns: Sequence[str] | None, shift: bool) -> _Examples:
        """Read the labels of a training set. The collator is called with each example, unless a column has one label for each."""
        column = _column_of_labels(dataset)
        if column is not None:
            return cls([[label] for label in column], None, False)
        labels, places = list[list[int]](), list[list[int]]()
        for position in range(len(dataset)):
            item = {name: value for name, value in dataset[position].items() if columns is None or name in columns}
            row = collator([item])["labels"]
            if row.is_floating_point():
                raise InputError("record needs labels that are class numbers. Got numbers with fractions, or several classes per example.")
            if row.dim() == 1:
                labels.append(row.tolist())
                continue
            kept = row[0] != _IGNORED
            kept[:1] &= not shift
            labels.append(row[0][kept].tolist())
            places.append(kept.nonzero().squeeze(1).tolist())
        return cls(labels, places or None, shift and bool(places))

    def positions(self, index: Tensor) -> Tensor:
        """The entries of the record of some examples, in order."""
        start = self._start
        parts = [torch.arange(int(start[number]), int(start[number + 1])) for number in index.tolist()]
        return torch.cat(parts).to(index.device)

    def ids(self, ids: str | Sequence[Any] | None, dataset: Any) -> list[str] | None:
        """The ids of all entries."""
        if isinstance(ids, str):
            name: str = ids
            ids = list(_raw(dataset)[name]) if hasattr(dataset, "column_names") else [dataset[place][name] for place in range(len(dataset))]
        if ids is not None and len(ids) != len(self.labels):
            raise invalid_parameter("ids", "record", f"one for each of the {len(self.labels)} examples", f"{len(ids)} ids")
        if self.places is None:
            return None if ids is None else list(map(str, ids))
        names = range(len(self.places)) if ids is None else ids
        return [f"{name}:{place}" for name, each in zip(names, self.places, strict=True) for place in each]

    def named(self, names: Sequence[str] | None, true_labels: Any = None) -> list[Any]:
        """The labels of all entries, or their true labels, by name."""
        values: list[Any]
        if true_labels is None:
            values = [label for each in self.labels for label in each]
        elif self.places is None:
            values = list(true_labels.tolist() if hasattr(true_labels, "tolist") else true_labels)
        else:
            values = [each[place] for each, places in zip(true_labels, self.places, strict=True) for place in places]
        return [value if names is None or isinstance(value, str) else names[int(value)] for value in values]


def _raw(dataset: Any) -> Any:
    """A data set of Hugging Face without what its format or transform would do to a column."""
    return dataset.with_format(None) if hasattr(dataset, "with_format") else dataset


def _column_of_labels(dataset: Any) -> list[int] | None:
    """The column of labels, if the data set has one with one number for each example."""
    for name in ("labels", "label", "label_ids"):
        if name in (getattr(dataset, "column_names", None) or ()):
            column = _raw(dataset)[name]
            return [int(label) for label in column] if isinstance(column[0], int) else None
    return None


def _is_causal(model: Any) -> bool:
    """Whether the Trainer trains a model to predict the next token."""
    from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING_NAMES

    if getattr(getattr(model, "config", None), "is_encoder_decoder", False):
        return False
    by_loss = getattr(model, "loss_type", None) in ("ForCausalLM", "ForConditionalGeneration")
    return by_loss or type(model).__name__ in MODEL_FOR_CAUSAL_LM_MAPPING_NAMES.values()


def _class_names(model: Any, processing: Any) -> list[str] | None:
    """The names of the columns of scores: the vocabulary of a language model, else the classes in the configuration of the model."""
    head = model.get_output_embeddings() if hasattr(model, "get_output_embeddings") else None
    if head is None:
        names = getattr(getattr(model, "config", None), "id2label", None)
        return None if names is None else [str(names[number]) for number in range(len(names))]
    tokenizer, size = getattr(processing, "tokenizer", processing), head.weight.shape[0]
    known = 0 if tokenizer is None else min(size, len(tokenizer))
    tokens = tokenizer.convert_ids_to_tokens(range(known)) if known else []
    unique: dict[str, None] = {}
    for number, token in enumerate([*tokens, *[None] * (size - known)]):
        plain = isinstance(token, str) and bool(token) and token == token.strip() and token not in unique
        unique[token if plain else f"{token!r} ({number})"] = None
    return list(unique)


def _margins(scores: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
    """Margins and predictions of the rows with a label, in parts, because scores of a language model are large."""
    rows = max(1, _SCORES_AT_ONCE // scores.shape[1])
    margins, predictions = [], []
    for part, given in zip(torch.split(scores, rows), torch.split(labels, rows), strict=True):
        kept = given != _IGNORED
        part = part if bool(kept.all()) else part[kept]
        margins.append(margin(part, given[kept]).float())
        predictions.append(part.argmax(1))
    return torch.cat(margins), torch.cat(predictions)


@torch.no_grad()
def _best_classes(hidden: Tensor, head: Any) -> Tensor:
    """The classes with the highest scores of a last layer, in parts."""
    rows = max(1, _SCORES_AT_ONCE // head.weight.shape[0])
    parts = torch.split(hidden.detach().to(head.weight.dtype), rows)
    return torch.cat([nn.functional.linear(part, head.weight, head.bias).argmax(1) for part in parts])
