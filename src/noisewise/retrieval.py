"""Retrieval: test a classifier's embedding on people that it has no class for.

The MARS tables of the IMAE and GR papers train on the identities of some people and test on others. A tracklet, the frames of one person
from one camera, is represented by the mean embedding of its frames. Each query tracklet ranks the tracklets of the gallery by cosine
similarity. The measures are mean average precision (mAP) and the cumulated matching characteristics (CMC), the share of queries with a
right answer among the first ranks.
"""

from __future__ import annotations

import copy
import os
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from noisewise.data import Augmentation, ImageFiles, augmentations, batches, read
from noisewise.errors import InputError, invalid_parameter
from noisewise.extensions import extension
from noisewise.spec import as_int

_PRINTED = (1, 5, 20)  # ranks of the CMC curve that tables print
_RESOLUTION = 1e-10  # of similarities: far above float64 rounding, so that equal vectors are equally similar
_BLOCK = 2**20  # similarities in memory at a time

_GROUPS = ("identity", "camera", "tracklet")


@dataclass(frozen=True, repr=False)
class Embeddings:
    """Embeddings with identities and cameras.

    Args:
        vectors: one for each tracklet or image, floating point (N, size); only their directions matter.
        identities: int64 (N,).
        cameras: int64 (N,), or None if not known.
    """

    vectors: Tensor
    identities: Tensor
    cameras: Tensor | None = None

    def __post_init__(self) -> None:
        if self.vectors.dim() != 2 or not self.vectors.is_floating_point():
            raise invalid_parameter(
                "vectors", "Embeddings", "floating point shaped (N, size)", f"{self.vectors.dtype} {tuple(self.vectors.shape)}"
            )
        if not bool(self.vectors.isfinite().all()):
            raise invalid_parameter("vectors", "Embeddings", "finite; the network may have diverged", "NaN or infinity")
        for name, values in (("identities", self.identities), ("cameras", self.cameras)):
            if values is not None and (values.shape != self.vectors.shape[:1] or values.dtype != torch.int64):
                got = f"{values.dtype} {tuple(values.shape)}"
                raise invalid_parameter(name, "Embeddings", f"int64 shaped ({len(self)},), one for each vector", got)

    def __len__(self) -> int:
        return len(self.vectors)

    def __repr__(self) -> str:
        cameras = "" if self.cameras is None else f", {len(set(self.cameras.tolist()))} cameras"
        return f"Embeddings({len(self)} × {self.vectors.shape[1]}, {len(set(self.identities.tolist()))} identities{cameras})"


@dataclass(frozen=True, repr=False)
class Retrieval:
    """The result of a retrieval. All measures are over the queries that have a right answer in the gallery.

    Args:
        average_precision: the average precision of each query, float64 (queries,): the mean precision at the ranks of its right answers;
            NaN without any.
        trapezoid: the same as the authors of MARS compute it: at each right answer, the mean of the precision there and at the rank
            before (1 before the first rank). It is never larger.
        first: the rank of the first right answer of each query, int64 (queries,), counted from 1; 0 without any.
    """

    average_precision: Tensor
    trapezoid: Tensor
    first: Tensor

    @property
    def map(self) -> float:
        """Mean average precision, from 0 to 1."""
        return float(self.average_precision.nanmean())

    @property
    def map_trapezoid(self) -> float:
        """Mean average precision as the authors of MARS compute it."""
        return float(self.trapezoid.nanmean())

    @property
    def unmatched(self) -> int:
        """The number of queries without a right answer in the gallery, which are ignored."""
        return int((self.first == 0).sum())

    def cmc(self, ranks: int) -> float:
        """The share of queries with a right answer in the first ranks."""
        as_int("ranks", "cmc", ranks, 1)
        return float((self.first[self.first > 0] <= ranks).double().mean())

    def summary(self) -> dict[str, float]:
        """The numbers that the papers print, as shares: "map", "map_trapezoid", "cmc1", "cmc5" and "cmc20"."""
        return {"map": self.map, "map_trapezoid": self.map_trapezoid, **{f"cmc{ranks}": self.cmc(ranks) for ranks in _PRINTED}}

    def __repr__(self) -> str:
        shares = ", ".join(f"CMC-{ranks} {100 * self.cmc(ranks):.1f} %" for ranks in _PRINTED)
        left_out = f", {self.unmatched} of them without a right answer" if self.unmatched else ""
        return f"Retrieval(mAP {100 * self.map:.1f} %, {shares}; {len(self.first)} queries{left_out})"


def rank(queries: Embeddings, gallery: Embeddings) -> Retrieval:
    """Rank the gallery for each query by cosine similarity.

    An entry is a right answer if it has the identity of the query. Right answers from the query's own camera are left out of its ranking,
    because they are too easy, and one may be the query itself. Without cameras nothing is left out. Among entries of equal similarity (to
    ten decimals) the wrong ones come first, so that the order of the gallery does not matter and a constant embedding gains nothing.

    Formula:
        r_k = the rank of the k-th of n right answers
        average precision = Σ_k (k / r_k) / n
        trapezoid         = Σ_k (k / r_k + (k − 1) / (r_k − 1)) / 2n        the second term is 1 where r_k = 1
        CMC(m)            = the share of queries with r_1 ≤ m

    Args:
        queries: the embeddings to look for.
        gallery: the embeddings to rank.

    Returns:
        mAP and CMC, also per query, computed on the CPU in float64 so that they do not depend on the device.

    Raises:
        InputError: no query has a right answer, or queries and gallery do not fit each other.

    Example:
        >>> ann, bob = [1.0, 0.0], [0.0, 1.0]
        >>> queries = Embeddings(torch.tensor([ann, bob]), torch.tensor([0, 1]), torch.tensor([1, 1]))
        >>> gallery = Embeddings(torch.tensor([ann, bob, [1.0, 0.8]]), torch.tensor([0, 0, 1]), torch.tensor([2, 2, 2]))
        >>> rank(queries, gallery)  # Ann's answers are at 1 and 3, Bob's at 2
        Retrieval(mAP 66.7 %, CMC-1 50.0 %, CMC-5 100.0 %, CMC-20 100.0 %; 2 queries)

    Reference:
        Zheng et al. MARS: a video benchmark for large-scale person re-identification. ECCV 2016.
    """
    if queries.vectors.shape[1] != gallery.vectors.shape[1]:
        raise invalid_parameter("gallery", "rank", f"vectors of {queries.vectors.shape[1]} entries, as the queries have", gallery)
    if (queries.cameras is None) != (gallery.cameras is None):
        raise InputError(f"Either both or neither of queries and gallery must have cameras. Got {queries!r} and {gallery!r}.")
    wanted, present = queries.identities.cpu(), gallery.identities.cpu()
    _check_identities(wanted, present)
    left, right = (functional.normalize(side.vectors.detach().cpu().double(), dim=1) for side in (queries, gallery))
    blocks = []
    rows = max(1, _BLOCK // len(gallery))
    for block in (slice(start, start + rows) for start in range(0, len(queries), rows)):
        same = wanted[block, None] == present
        left_out = torch.zeros_like(same)
        if queries.cameras is not None and gallery.cameras is not None:
            left_out = same & (queries.cameras.cpu()[block, None] == gallery.cameras.cpu())
        blocks.append(_measures(_right_by_rank(left[block] @ right.T, same & ~left_out, left_out)))
    result = Retrieval(*(torch.cat(parts) for parts in zip(*blocks, strict=True)))
    if result.unmatched == len(queries):
        raise InputError(f"No query has a right answer from another camera in the gallery. Got {queries!r} and {gallery!r}.")
    return result


def _check_identities(wanted: Tensor, present: Tensor) -> None:
    if not bool(torch.isin(wanted, present).any()):
        raise InputError(
            f"No identity of the {len(wanted)} queries is in the gallery of {len(present)} entries. Use the same numbers for identities."
        )


def _right_by_rank(similarity: Tensor, right: Tensor, left_out: Tensor) -> Tensor:
    """Whether each rank of each query has a right answer, (queries, ranks); entries that are left out count as wrong at the end."""
    steps = (similarity / _RESOLUTION).round().long()
    # Right answers are odd numbers, just below wrong ones of equal similarity.
    numbers = (2 * steps - right.long()).masked_fill(left_out, -(2**62))
    return numbers.sort(dim=1, descending=True).values % 2 == 1


def _measures(right: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Average precision, its trapezoid form and the rank of the first right answer."""
    share = right.cumsum(1) / torch.arange(1, right.shape[1] + 1, dtype=torch.float64)
    before = functional.pad(share[:, :-1], (1, 0), value=1.0)
    number = right.sum(1)
    average, halfway = ((values * right).sum(1) / number for values in (share, (share + before) / 2))
    return average, halfway, torch.where(number > 0, right.long().argmax(1) + 1, 0)


def embed(
    model: str | os.PathLike[str] | nn.Module,
    files: ImageFiles,
    *,
    size: int | tuple[int, int] | None = None,
    normalise: str | Augmentation | None = None,
    batch_size: int = 256,
) -> Embeddings:
    """Represent each tracklet by the mean embedding of its frames.

    Args:
        model: a run or its folder, whose network runs on the device it was trained on, with images scaled as in training; or a module
            with `features(x)`, the embedding before its last layer, which is copied and used in eval mode on its device.
        files: the frames; `groups` must contain "identity", "camera" and "tracklet".
        size: the side, or (height, width), to resize images to, as in training. Not needed if all images have the same size.
        normalise: how to scale images for a module, such as ``run.provenance["normalise"]``; None does not scale. Not allowed for a run.
        batch_size: frames per batch.

    Returns:
        One embedding for each tracklet, in the order of the tracklet numbers.
    """
    return _Network.of(model, normalise).embed(_Frames.of(files), size, batch_size)


def retrieve(
    model: str | os.PathLike[str] | nn.Module,
    queries: ImageFiles,
    gallery: ImageFiles,
    *,
    size: int | tuple[int, int] | None = None,
    normalise: str | Augmentation | None = None,
    batch_size: int = 256,
) -> Retrieval:
    """Embed the tracklets of queries and gallery, and rank the gallery for each query.

    Args:
        model: a run or its folder, or a module with `features(x)`; see `embed`.
        queries: frames of the tracklets to look for.
        gallery: frames of the tracklets to rank. It may include the queries, as in MARS; see `rank`.
        size: the size to resize images to; see `embed`.
        normalise: how to scale images for a module; see `embed`.
        batch_size: frames per batch.

    Returns:
        mAP and CMC; values per query are in the order of the tracklet numbers.

    Example:
        >>> import tempfile
        >>> from PIL import Image
        >>> from noisewise import models
        >>> who, camera, clothes = torch.tensor([0, 1, 0, 1]), torch.tensor([1, 1, 2, 2]), ["red", "blue", "darkred", "darkblue"]
        >>> groups = {"identity": who, "camera": camera, "tracklet": torch.arange(4)}
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     for colour in clothes:
        ...         Image.new("RGB", (8, 8), colour).save(f"{folder}/{colour}.png")
        ...     seen = ImageFiles(tuple(f"{folder}/{colour}.png" for colour in clothes), who, ("Ann", "Bob"), groups=groups)
        ...     retrieve(models.get("linear", num_classes=2, shape=(3, 8, 8)), seen.take(camera == 1), seen.take(camera == 2))
        Retrieval(mAP 100.0 %, CMC-1 100.0 %, CMC-5 100.0 %, CMC-20 100.0 %; 2 queries)
    """
    wanted, ranked = _Frames.of(queries), _Frames.of(gallery)
    _check_identities(wanted.identities, ranked.identities)
    network = _Network.of(model, normalise)
    return rank(network.embed(wanted, size, batch_size), network.embed(ranked, size, batch_size))


@dataclass(frozen=True)
class _Frames:
    """Frames, the tracklet of each frame (numbered from 0), and the identity and the camera of each tracklet."""

    files: ImageFiles
    tracklets: Tensor
    identities: Tensor
    cameras: Tensor

    @classmethod
    def of(cls, files: ImageFiles) -> _Frames:
        missing = [name for name in _GROUPS if name not in files.groups]
        if missing:
            raise InputError(f"Retrieval needs the groups {', '.join(_GROUPS)}. Got {files!r} without {', '.join(missing)}.")
        if not len(files):
            raise invalid_parameter("files", "retrieval", "at least one image", files)
        numbers, first, inverse = np.unique(files.groups["tracklet"].numpy(), return_index=True, return_inverse=True)
        tracklets = torch.from_numpy(inverse)
        identities, cameras = (files.groups[name][torch.from_numpy(first)] for name in ("identity", "camera"))
        for name, values in (("identity", identities), ("camera", cameras)):
            mixed = values[tracklets] != files.groups[name]
            if bool(mixed.any()):
                number = numbers[tracklets[mixed][0]]
                raise InputError(f"The frames of a tracklet must have one {name}. Got several in tracklet {number} of {files!r}.")
        return cls(files, tracklets, identities, cameras)


@dataclass(frozen=True)
class _Network:
    """A network in eval mode, and the scaling of its images, if any."""

    module: nn.Module
    scale: Augmentation | None

    @classmethod
    def of(cls, model: str | os.PathLike[str] | nn.Module, normalise: str | Augmentation | None) -> _Network:
        if isinstance(model, str | os.PathLike):
            run = extension("run")(model)
            if normalise is not None:
                raise invalid_parameter("normalise", "retrieval", "left out for a run, which scales its images as in training", normalise)
            module, normalise = run.model().to(run.device), run.provenance["normalise"]
        elif callable(getattr(model, "features", None)):
            module = copy.deepcopy(model).eval()
        else:
            wanted = "a run, or a module with features(x), the embedding before its last layer"
            raise invalid_parameter("model", "retrieval", wanted, type(model).__name__)
        return cls(module, None if normalise is None else augmentations.get(normalise))

    @torch.no_grad()
    def embed(self, frames: _Frames, size: int | tuple[int, int] | None, batch_size: int) -> Embeddings:
        """The mean embedding of each tracklet, summed on the CPU in a fixed order."""
        device = next((parameter.device for parameter in self.module.parameters()), torch.device("cpu"))
        sums: Tensor | None = None
        for batch in batches(read(frames.files, size=size).to(device), batch_size, shuffle=False):
            features = self._features(batch.inputs)
            if sums is None:
                sums = features.new_zeros(len(frames.identities), features.shape[1])
            sums.index_add_(0, frames.tracklets[batch.index.cpu()], features)
        assert sums is not None  # there is at least one frame
        return Embeddings(sums / frames.tracklets.bincount()[:, None], frames.identities, frames.cameras)

    def _features(self, inputs: Tensor) -> Tensor:
        features = self.module.features(inputs.float() if self.scale is None else self.scale(inputs))  # type: ignore[operator]
        if not isinstance(features, Tensor) or features.dim() != 2:
            got = tuple(features.shape) if isinstance(features, Tensor) else type(features).__name__
            raise invalid_parameter("model", "retrieval", "one whose features(x) are shaped (N, size)", got)
        return features.cpu().double()
