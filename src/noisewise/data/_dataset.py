"""`Dataset`: inputs, the given labels, the true labels if they are known, and digests that identify all of them.

Runs record the digests to recognise their data, and the cache of embeddings finds its files by them.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Protocol, Self

import torch
from torch import Tensor

from noisewise.arrays import NO_CLASS
from noisewise.data._encoding import Cells, Encoding
from noisewise.errors import InputError, invalid_parameter, listed
from noisewise.noise import Corruption, Noise, corrupt
from noisewise.noise import registry as noises


def check_examples(name: str, number: int, labels: Tensor, classes: int, columns: Mapping[str, Tensor | None]) -> None:
    """Check that labels and other columns have one integer for each example, and that labels are classes."""
    for column, values in {"labels": labels, **columns}.items():
        if values is not None and (values.shape != (number,) or values.dtype != torch.int64):
            got = f"{values.dtype} shaped {tuple(values.shape)}"
            raise InputError(f"The {column} of {name} must be int64 shaped ({number},), one for each example. Got {got} instead.")
    if number and not 0 <= int(labels.min()) <= int(labels.max()) < classes:
        got = f"{int(labels.min())} to {int(labels.max())}"
        raise InputError(f"The labels of {name} must be from 0 to {classes - 1}, one of its {classes} classes. Got {got} instead.")


def _seed_with(seed: int, *labels: Tensor) -> int:
    """A seed that depends on the labels as well."""
    digest = hashlib.sha256(f"{seed}/".encode())
    for values in labels:
        digest.update(values.cpu().numpy().tobytes())
    return int.from_bytes(digest.digest()[:8], "little")


def as_positions(which: Tensor | Sequence[int], number: int) -> Tensor:
    """Convert a mask of ``number`` examples to positions; positions are returned unchanged."""
    which = which if isinstance(which, Tensor) else torch.as_tensor(which, dtype=None if len(which) else torch.int64)
    if which.dtype == torch.bool and which.shape != (number,):
        raise invalid_parameter("which", "take", f"positions, or a mask of the {number} examples", f"a mask shaped {tuple(which.shape)}")
    return which.nonzero().squeeze(1) if which.dtype == torch.bool else which


class Embedder(Protocol):
    """Where embeddings came from: a file, or a model."""

    @property
    def name(self) -> str:
        """What people are shown."""

    @property
    def spec(self) -> Any:
        """What `read` takes as ``embed`` and JSON can store."""

    @property
    def digest(self) -> str | None:
        """Identifies the model; None if the embeddings were read from a file."""


@dataclass(frozen=True, repr=False)
class Dataset:
    """Examples and their labels.

    Args:
        inputs: images as uint8 (N, channels, height, width), or features as floating point (N, …).
        labels: the given labels, int64 (N,). They may be wrong.
        classes: the name of every class.
        true_labels: the true labels, or None. −1 is the label of an example whose input was replaced, so that it belongs to no class.
        index: the number of every example in its source, int64 (N,); by default 0, 1, 2, …
        ids: a unique name for every example (a file, a row id), or None.
        superclasses: the superclass of every class (CIFAR-100), or None.
        human: human labels for the same examples, by name (CIFAR-10N: "worst", "aggre", …).
        name: the name of the data set.
        features: the names of the columns of the inputs if they came from a table; a test set is matched by them.
        groups: other facts about every example by name, int64 (N,) each: "identity", "camera", "tracklet".
        sample_weight: how hard every example pulls in training, relative to others, (N,); by default all alike.

    Attributes:
        encoding: how the columns of a table became the inputs; None if the data did not come from a table.
        cells: the cells of the table by column, as they came; without those that the inputs have unchanged.
        originals: what the inputs are embeddings of: the images, texts or rows, which are shown to people; None if they are not embeddings.
        embedder: the model or the file that the embeddings came from.
        source: the arguments of `read`, so that ``read(**data.source)`` reads the same data again; None if the data set was made in
            another way.
    """

    inputs: Tensor
    labels: Tensor
    classes: tuple[str, ...]
    true_labels: Tensor | None = None
    index: Tensor | None = None
    ids: tuple[str, ...] | None = None
    superclasses: tuple[int, ...] | None = None
    human: Mapping[str, Tensor] = field(default_factory=dict)
    name: str = "data"
    features: tuple[str, ...] | None = None
    groups: Mapping[str, Tensor] = field(default_factory=dict)
    sample_weight: Tensor | None = None
    encoding: Encoding | None = field(default=None, compare=False)
    cells: Mapping[str, Cells] = field(default_factory=dict, compare=False)
    originals: Dataset | None = field(default=None, compare=False)
    embedder: Embedder | None = field(default=None, compare=False)
    source: Mapping[str, Any] | None = field(default=None, init=False, compare=False)  # `replace` does not copy it

    def __post_init__(self) -> None:
        number = len(self.inputs)
        if self.index is None:
            object.__setattr__(self, "index", torch.arange(number, device=self.labels.device))
        columns = {"true_labels": self.true_labels, "index": self.index, **self.human, **self.groups}
        check_examples(self.name, number, self.labels, len(self.classes), columns)
        if self.sample_weight is not None and (self.sample_weight.shape != (number,) or not self.sample_weight.is_floating_point()):
            weights = f"{self.sample_weight.dtype} shaped {tuple(self.sample_weight.shape)}"
            raise InputError(f"The sample weights of {self.name} must be floating point shaped ({number},). Got {weights} instead.")
        if self.features is not None and self.inputs.shape[1:] != (len(self.features),):
            shape = tuple(self.inputs.shape)
            raise InputError(f"The inputs of {self.name} must have a column for each of {len(self.features)} features. Got shape {shape}.")

    def __len__(self) -> int:
        return len(self.inputs)

    def __repr__(self) -> str:
        known = "" if self.wrong is None else f", {100 * float(self.wrong.float().mean()):.2f} % wrong"
        by = "" if self.embedder is None else f", embeddings by {self.embedder.name}"
        shape = f"{len(self)} × {tuple(self.inputs.shape[1:])} {self.inputs.dtype}"
        return f"Dataset({self.name}: {shape}, {len(self.classes)} classes{known}{by})"

    @property
    def shown(self) -> Dataset:
        """The examples as people are shown them: the originals of embeddings, otherwise the data set itself."""
        return self if self.originals is None else self.originals

    @property
    def wrong(self) -> Tensor | None:
        """Which labels are wrong, or None if the true labels are not known."""
        return None if self.true_labels is None else self.labels != self.true_labels

    def corruption(self, noise: str | Noise, *, seed: int = 0, other_inputs: Tensor | None = None) -> Corruption:
        """Apply a named noise to the labels.

        If some labels are wrong already, the random numbers depend on them too: otherwise the same noise with the same seed could
        revert itself.

        Args:
            noise: such as ``"symmetric(0.4)"``; see `noisewise.noise.corrupt`.
            seed: the seed of the noise.
            other_inputs: inputs of another data set, for ``"open_set(…, source='other')"``.
        """
        rule = noises.get(noise)
        if self.inputs.is_meta and any(part.looks_at_inputs for part in rule.parts):
            raise InputError(f"The noise {noise} uses the images, which are on disk. Read them into memory with a larger 'memory'.")
        truth = self.true_labels
        result = corrupt(
            self.labels,
            rule,
            num_classes=len(self.classes),
            seed=seed if truth is None or torch.equal(truth, self.labels) else _seed_with(seed, self.labels, truth),
            inputs=None if self.inputs.is_meta else self.inputs,
            superclasses=self.superclasses,
            human=self.human,
            other_inputs=other_inputs,
            classes=self.classes,
            tracklets=self.groups.get("tracklet"),
        )
        return replace(result, seed=seed)

    def corrupted(self, noise: str | Noise | Corruption, *, seed: int = 0) -> Dataset:
        """The same examples with corrupted labels. If the true labels are not known, the current ones are used as true.

        Args:
            noise: such as ``"symmetric(0.4)"``, or the result of `corruption`.
            seed: the seed of the noise.

        Example:
            >>> data = Dataset(torch.zeros(1000, 2), torch.arange(1000) % 10, tuple("0123456789"))
            >>> data.corrupted("symmetric(0.4, flips='exact')")
            Dataset(data: 1000 × (2,) torch.float32, 10 classes, 40.00 % wrong)
        """
        result = noise if isinstance(noise, Corruption) else self.corruption(noise, seed=seed)
        truth = self.labels if self.true_labels is None else self.true_labels
        return replace(
            self,
            inputs=self.inputs if result.inputs is None else result.inputs,
            labels=result.labels,
            true_labels=truth if result.replaced is None else truth.masked_fill(result.replaced.to(truth.device), NO_CLASS),
        )

    def take(self, which: Tensor | Sequence[int]) -> Dataset:
        """The examples at the given positions, or where a mask is true."""
        positions = as_positions(which, len(self))
        ids = None if self.ids is None else tuple(self.ids[position] for position in positions.tolist())
        rows = positions.cpu().numpy()
        cells = {name: column[rows] for name, column in self.cells.items()}
        originals = None if self.originals is None else self.originals.take(positions.cpu())
        return replace(self, ids=ids, cells=cells, originals=originals, **self._tensors(lambda tensor: tensor[positions]))

    def input_digests(self, rows: Tensor | None = None) -> dict[str, str]:
        """Digests that identify the inputs, or those of some of the rows.

        Embeddings that a model computed are identified by the model, because another machine may round them differently; "original"
        identifies what they are embeddings of.

        Args:
            rows: their positions; by default all.
        """
        model = None if self.embedder is None else self.embedder.digest
        cells = {"cells": _cells_digest(self.cells, rows)} if self.cells else {}
        original = {} if self.originals is None else {"original": digest_of(sorted(self.originals.input_digests(rows).values()))}
        return {"inputs": model or digest(self.inputs, rows), **cells, **original}

    def described_by(self, encoding: Encoding, cells: Mapping[str, Cells]) -> Dataset:
        """The same data set with the encoding that made its inputs of a table, and the cells of that table."""
        kept = {name: column for name, column in cells.items() if not (encoding.plain and name in encoding.used)}
        return replace(self, encoding=encoding, cells=kept)

    def encoded_by(self, encoding: Encoding, called: str = "the training set") -> Dataset:
        """The rows of a table with the inputs of another encoding: that of the training set, which is `called` so in errors."""
        if self.encoding is None or self.encoding is encoding:
            return self
        cells = dict(self.cells)
        if self.encoding.plain:
            columns = self.inputs.cpu().double().numpy().T
            cells |= dict(zip(self.encoding.used, columns, strict=True))
        if missing := [name for name in encoding.used if name not in cells]:
            raise InputError(
                f"The data set {self.name!r} has no column {listed(map(repr, missing))}, which {called} has. "
                f"Its columns are {listed(cells)}; give a data set with all columns."
            )
        inputs = encoding.apply(cells, self.name).to(self.inputs.device)
        return replace(self, inputs=inputs, features=encoding.names).described_by(encoding, cells).read_from(self.source)

    def read_from(self, source: Mapping[str, Any] | None) -> Self:
        """The same data set, with the arguments of `read` that read it."""
        same = replace(self)
        object.__setattr__(same, "source", source)
        return same

    def to(self, device: torch.device | str) -> Dataset:
        """The same data set on another device."""
        return replace(self, **self._tensors(lambda tensor: tensor.to(device))).read_from(self.source)

    def _tensors(self, change: Callable[[Tensor], Tensor]) -> dict[str, Any]:
        """The fields that are tensors, each changed by a function."""
        fields = {name: getattr(self, name) for name in ("inputs", "labels", "true_labels", "index", "sample_weight")}
        changed: dict[str, Any] = {name: None if tensor is None else change(tensor) for name, tensor in fields.items()}
        columns = {"human": self.human, "groups": self.groups}
        return changed | {name: {key: change(values) for key, values in column.items()} for name, column in columns.items()}


def match_dtype(inputs: Tensor, dtype: str, name: str, *, scaled: bool = True) -> Tensor:
    """Convert integers from 0 to 255 to uint8 if the model was trained on uint8.

    Args:
        inputs: a tensor of any type.
        dtype: the type the model was trained on, as text.
        name: what errors call the inputs.
        scaled: whether uint8 is scaled to 0 … 1, so that numbers from 0 to 1 are accepted too.
    """
    if dtype != str(torch.uint8) or inputs.dtype == torch.uint8 or inputs.is_meta:
        return inputs
    low, high = (float(end) for end in torch.aminmax(inputs))
    if scaled and low >= 0 and high <= 1:
        return inputs
    if low >= 0 and high <= 255 and torch.equal(inputs, inputs.round()):
        return inputs.to(torch.uint8)
    kinds = "uint8 or numbers from 0 to 1" if scaled else "uint8"
    got = f"{inputs.dtype} from {low:g} to {high:g}"
    raise InputError(f"{name} must be {kinds}, because the model was trained on uint8. Got {got} instead.")


def digest_of(lines: Iterable[str]) -> str:
    """The digest of a list of lines."""
    return hashlib.sha256("\n".join(lines).encode()).hexdigest()


def digest(values: Tensor, rows: Tensor | None = None) -> str:
    """The digest of a tensor or of some of its rows, computed in parts to save memory."""
    shape = tuple(values.shape) if rows is None else (len(rows), *values.shape[1:])
    result = hashlib.sha256(f"{values.dtype} {shape}".encode())
    values = values.detach().view(1) if values.dim() == 0 else values.detach()
    size = max(1, 2**24 // max(1, values[:1].numel() * values.element_size()))
    for start in range(0, len(values if rows is None else rows), size):
        part = slice(start, start + size)
        chunk = values[part if rows is None else rows[part]]
        result.update(chunk.contiguous().cpu().view(-1).view(torch.uint8).numpy().data)
    return result.hexdigest()


def _cells_digest(cells: Mapping[str, Cells], rows: Tensor | None) -> str:
    """The digest of the cells of a table. Encoded inputs do not identify them: an encoding may give the same inputs for all cells."""
    columns = {name: column if rows is None else column[rows.numpy()] for name, column in sorted(cells.items())}
    return digest_of(f"{name}\n{column.dtype}\n" + "\n".join(map(str, column.tolist())) for name, column in columns.items())
