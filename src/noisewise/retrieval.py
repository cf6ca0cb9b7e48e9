"""Retrieval: whom did another camera see? A classifier's embedding, tested on people it has no class for.

The MARS tables of the IMAE and GR papers train on the identities of some people and test on others. A tracklet, the frames of one
person in front of one camera, is represented by the mean of its frames' embeddings. Tracklets that are asked for, the queries, rank
those of the gallery by cosine similarity, and two numbers say how well: mean average precision (mAP) and the cumulated matching
characteristics (CMC), the share of queries with a right answer among the first few.

This module must not know how networks are trained, nor in which folders people lie.
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

_PRINTED = (1, 5, 20)
"""The places of the CMC curve that tables print."""

_RESOLUTION = 1e-10
"""The least difference of similarities: far above the rounding of float64, so that equal vectors are equally similar."""

_BLOCK = 2**20
"""How many similarities are looked at together, for the sake of memory."""

_GROUPS = ("identity", "camera", "tracklet")


@dataclass(frozen=True, repr=False)
class Embeddings:
    """Vectors, and who was seen where.

    Args:
        vectors: one for each tracklet or image, floating point (N, size), of any length: only directions are compared.
        identities: who it is, integers (N,).
        cameras: which camera saw it, integers (N,); None where that is not known.
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
            raise invalid_parameter("vectors", "Embeddings", "finite; was the network trained until it diverged?", "NaN or infinity")
        for name, values in (("identities", self.identities), ("cameras", self.cameras)):
            if values is not None and (values.shape != self.vectors.shape[:1] or values.dtype != torch.int64):
                got = f"{values.dtype} {tuple(values.shape)}"
                raise invalid_parameter(name, "Embeddings", f"int64 shaped ({len(self)},), one for each vector", got)

    def __len__(self) -> int:
        return len(self.vectors)

    def __repr__(self) -> str:
        seen = "" if self.cameras is None else f", {len(set(self.cameras.tolist()))} cameras"
        return f"Embeddings({len(self)} × {self.vectors.shape[1]}, {len(set(self.identities.tolist()))} identities{seen})"


@dataclass(frozen=True, repr=False)
class Retrieval:
    """How well queries found what they asked for; every measure is over the queries that have a right answer in the gallery.

    Args:
        average_precision: of every query, float64 (queries,): the mean, over its right answers, of the share of right ones down to
            each. NaN where there is none to find.
        trapezoid: the same as the makers of MARS compute it: at each right answer, the mean of that share and of the share just
            before it (1 before the first place). It is never larger.
        first: the place of every query's first right answer, int64 (queries,), counted from 1; 0 where there is none to find.
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
        """Mean average precision as the makers of MARS compute it."""
        return float(self.trapezoid.nanmean())

    @property
    def unmatched(self) -> int:
        """How many queries have no right answer in the gallery, and count for nothing."""
        return int((self.first == 0).sum())

    def cmc(self, places: int) -> float:
        """The share of queries with a right answer in the first few places."""
        as_int("places", "cmc", places, 1)
        return float((self.first[self.first > 0] <= places).double().mean())

    def summary(self) -> dict[str, float]:
        """The numbers the papers print, as shares: "map", "map_trapezoid", "cmc1", "cmc5" and "cmc20"."""
        return {"map": self.map, "map_trapezoid": self.map_trapezoid, **{f"cmc{places}": self.cmc(places) for places in _PRINTED}}

    def __repr__(self) -> str:
        shares = ", ".join(f"CMC-{places} {100 * self.cmc(places):.1f} %" for places in _PRINTED)
        left_out = f", {self.unmatched} of them without a right answer" if self.unmatched else ""
        return f"Retrieval(mAP {100 * self.map:.1f} %, {shares}; {len(self.first)} queries{left_out})"


def rank(queries: Embeddings, gallery: Embeddings) -> Retrieval:
    """Rank the gallery for every query by cosine similarity.

    An entry is a right answer if it has the query's identity. Entries that were also seen by the query's own camera are left out of
    its ranking: they are neither right nor wrong, for they would be too easy, and one of them may be the query itself. Without
    cameras nothing is left out. Of entries that are equally similar, to ten decimals, the wrong ones come first: the order of
    the gallery decides nothing, and a network that gives everybody one embedding earns nothing by it.

    Formula:
        r_k = the place of the k-th of n right answers
        average precision = Σ_k (k / r_k) / n
        trapezoid         = Σ_k (k / r_k + (k − 1) / (r_k − 1)) / 2n        the second term is 1 where r_k = 1
        CMC(m)            = the share of queries with r_1 ≤ m

    Args:
        queries: what is looked for.
        gallery: what is ranked; other people than the queries' are wrong answers to all of them.

    Returns:
        mAP, CMC, and what they are means of. It is computed on the CPU in float64, so that it is the same for every device.

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
        raise InputError(f"Either both or neither of queries and gallery have cameras. Got {queries!r} and {gallery!r}.")
    who, whom = queries.identities.cpu(), gallery.identities.cpu()
    _check_somebody(who, whom)
    asked, held = (functional.normalize(side.vectors.detach().cpu().double(), dim=1) for side in (queries, gallery))
    found = []
    rows = max(1, _BLOCK // len(gallery))
    for block in (slice(start, start + rows) for start in range(0, len(queries), rows)):
        same = who[block, None] == whom
        left_out = torch.zeros_like(same)
        if queries.cameras is not None and gallery.cameras is not None:
            left_out = same & (queries.cameras.cpu()[block, None] == gallery.cameras.cpu())
        found.append(_measured(_right_in_order(asked[block] @ held.T, same & ~left_out, left_out)))
    result = Retrieval(*(torch.cat(parts) for parts in zip(*found, strict=True)))
    if result.unmatched == len(queries):
        raise InputError(f"No query has a right answer from another camera in the gallery. Got {queries!r} and {gallery!r}.")
    return result


def _check_somebody(who: Tensor, whom: Tensor) -> None:
    """Refuse a gallery without anybody that is asked for."""
    if not bool(torch.isin(who, whom).any()):
        raise InputError(
            f"The gallery has nobody that is asked for. Got {len(who)} queries and {len(whom)} entries; number their identities alike."
        )


def _right_in_order(similarity: Tensor, right: Tensor, left_out: Tensor) -> Tensor:
    """Which places of every query's ranking have right answers, (queries, places); entries left out are wrong ones at the end."""
    steps = (similarity / _RESOLUTION).round().long()
    # Right answers are the odd numbers, just below equally similar wrong ones, so that sorting the numbers tells all.
    numbers = (2 * steps - right.long()).masked_fill(left_out, -(2**62))
    return numbers.sort(dim=1, descending=True).values % 2 == 1


def _measured(right: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Average precision, its trapezoid form and the place of the first right answer, from which places are right."""
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
    """Represent every tracklet by the mean of its frames' embeddings.

    Args:
        model: a run or its folder, whose network is moved to the device it was trained on and whose images are scaled as in training;
            or a module with `features(x)`, the embedding before its last layer, which is used where it is, in eval mode.
        files: the frames; `groups` says their "identity", "camera" and "tracklet".
        size: the side, or (height, width), that images are resized to: what the network was trained with. It may be left out where
            all images have one size.
        normalise: how images are scaled for a module: ``run.provenance["normalise"]`` for the one of a run, or a spec of your own. None
            leaves their numbers as they are.
        batch_size: how many frames at a time.

    Returns:
        One embedding for each tracklet, in the order of the tracklets' numbers.
    """
    frames = _Frames.of(files)
    return _Network.of(model, normalise).embedded(frames, size, batch_size)


def retrieve(
    model: str | os.PathLike[str] | nn.Module,
    queries: ImageFiles,
    gallery: ImageFiles,
    *,
    size: int | tuple[int, int] | None = None,
    normalise: str | Augmentation | None = None,
    batch_size: int = 256,
) -> Retrieval:
    """Embed the tracklets of queries and gallery, and rank the gallery for every query.

    Args:
        model: a run or its folder, or a module with `features(x)`; see `embed`.
        queries: frames of the tracklets to look for.
        gallery: frames of the tracklets to find them among. The queries may be among them, as those of MARS are: `rank` leaves out
            what a query's own camera saw of it.
        size: what images are resized to; see `embed`.
        normalise: how images are scaled for a module; see `embed`.
        batch_size: how many frames at a time.

    Returns:
        mAP and CMC; its values for each query are in the order of the tracklets' numbers.

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
    asked, held = _Frames.of(queries), _Frames.of(gallery)
    _check_somebody(asked.identities, held.identities)
    network = _Network.of(model, normalise)
    return rank(network.embedded(asked, size, batch_size), network.embedded(held, size, batch_size))


@dataclass(frozen=True)
class _Frames:
    """Frames, the tracklet that each belongs to, numbered from 0, and whom each tracklet shows and which camera took it."""

    files: ImageFiles
    tracklets: Tensor
    identities: Tensor
    cameras: Tensor

    @classmethod
    def of(cls, files: ImageFiles) -> _Frames:
        """Read tracklets off the groups of some files, or refuse them."""
        missing = [name for name in _GROUPS if name not in files.groups]
        if missing:
            raise InputError(f"Retrieval needs the groups {', '.join(_GROUPS)} of every image. Got {files!r} without {', '.join(missing)}.")
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
    """A network in eval mode, and how its images are scaled; None where they are not."""

    module: nn.Module
    scale: Augmentation | None

    @classmethod
    def of(cls, model: str | os.PathLike[str] | nn.Module, normalise: str | Augmentation | None) -> _Network:
        if isinstance(model, str | os.PathLike):
            run = extension("run")(model)
            if normalise is not None:
                raise invalid_parameter("normalise", "retrieval", "left out for a run, which knows how its images are scaled", normalise)
            module, normalise = run.model().to(run.device), run.provenance["normalise"]
        elif callable(getattr(model, "features", None)):
            module = copy.deepcopy(model).eval()
        else:
            wanted = "a run, or a module with features(x), the embedding before its last layer"
            raise invalid_parameter("model", "retrieval", wanted, type(model).__name__)
        return cls(module, None if normalise is None else augmentations.get(normalise))

    @torch.no_grad()
    def embedded(self, frames: _Frames, size: int | tuple[int, int] | None, batch_size: int) -> Embeddings:
        """The mean embedding of every tracklet; its sum is taken on the CPU, where the order of its terms is always the same."""
        device = next((held.device for held in self.module.parameters()), torch.device("cpu"))
        sums: Tensor | None = None
        for batch in batches(read(frames.files, size=size).to(device), batch_size, shuffle=False):
            found = self._features(batch.inputs)
            if sums is None:
                sums = found.new_zeros(len(frames.identities), found.shape[1])
            sums.index_add_(0, frames.tracklets[batch.index.cpu()], found)
        assert sums is not None  # there is at least one frame
        return Embeddings(sums / frames.tracklets.bincount()[:, None], frames.identities, frames.cameras)

    def _features(self, inputs: Tensor) -> Tensor:
        found = self.module.features(inputs.float() if self.scale is None else self.scale(inputs))  # type: ignore[operator]
        if not isinstance(found, Tensor) or found.dim() != 2:
            got = tuple(found.shape) if isinstance(found, Tensor) else type(found).__name__
            raise invalid_parameter("model", "retrieval", "one whose features(x) are shaped (N, size)", got)
        return found.cpu().double()
