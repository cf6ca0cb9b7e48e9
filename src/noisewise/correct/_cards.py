"""What a review page shows of the doubtful labels of an audit: their labels and chances, the examples, and the most similar examples."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Collection, Sequence
from functools import cached_property
from typing import Any

import numpy as np
import torch
from torch import Tensor

from noisewise.arrays import Ints
from noisewise.audit import Audit
from noisewise.data import Dataset, features, picture
from noisewise.errors import InputError
from noisewise.runs import examples_of

_POINTS = 60  # of a margin history
_COLUMNS = 200  # of a table, at most
_WHOLE, _BRIEF = 100_000, 200  # characters of a cell, of an example and of those similar to it
_NEIGHBOURS = 4
_WIDEST = 4096  # numbers of an example whose neighbours are searched
_AT_ONCE = 64  # examples whose neighbours are searched together
_THUMBNAIL = 64  # pixels a side


class Cards:
    """The doubtful labels of an audit, the most doubtful first.

    Args:
        result: the audit.
        limit: the number of cards; None for all.
        data: the training data; by default the source that the run names. If it is gone, examples are not shown.
    """

    def __init__(self, result: Audit, limit: int | None, data: Any) -> None:
        self.result = result
        self.positions: Ints = result.order[result.is_issue[result.order]][:limit]
        if not len(self.positions):
            raise InputError(f"There is nothing to review: no label of {str(result.dynamics.folder)!r} is doubtful.")
        self.examples = _examples(result, data)

    def __len__(self) -> int:
        return len(self.positions)

    @property
    def classes(self) -> list[str]:
        return list(self.result.dynamics.record.classes)

    @property
    def key(self) -> str:
        """A key that is the same for the same suggestions."""
        chosen = (values[self.positions].tolist() for values in (self.result.index, self.result.given, self.result.suggested))
        return "noisewise-review-" + hashlib.sha256(json.dumps(list(chosen)).encode()).hexdigest()[:16]

    def labels(self, others: Collection[int]) -> dict[int, dict[str, str]]:
        """The id and the given label of the examples of all cards, and of others, by index."""
        result, names = self.result, self.classes
        chosen = np.union1d(self.positions, np.flatnonzero(np.isin(result.index, list(others)))).tolist()
        return {int(result.index[at]): {"id": result.ids[at], "given_label": names[result.given[at]]} for at in chosen}

    def summaries(self) -> list[list[float]]:
        """For each card: index, given and suggested class, the chance that the label is wrong, and the votes for the suggestion."""
        result, chosen = self.result, self.positions
        columns = (result.index, result.given, result.suggested, (1 - result.quality).round(4), result.suggestion_probability.round(4))
        return [list(row) for row in zip(*(column[chosen].tolist() for column in columns), strict=True)]

    def details(self, numbers: Sequence[int]) -> list[dict[str, Any]]:
        """The rest of some cards: id, margins, values of a row, and similar examples."""
        positions = self.positions[list(numbers)]
        histories, neighbours = self.result.trajectories(positions, moments=_POINTS), self._neighbours(positions)
        return [
            {
                "id": self.result.ids[position],
                "margins": [None if np.isnan(value) else round(float(value), 3) for value in histories[row]],
                "values": self._values(position, _WHOLE),
                "neighbours": [self._neighbour(other) for other in neighbours[row]],
            }
            for row, position in enumerate(positions.tolist())
        ]

    def picture(self, number: int, *, side: int) -> str | None:
        """The example of a card as the data URL of a PNG; None if it is not an image or not available."""
        return None if self.examples is None else picture(self.examples, int(self.positions[number]), side=side)

    @cached_property
    def has_pictures(self) -> bool:
        """Whether the examples are images."""
        if self.examples is None:
            return False
        inputs = self.examples.shown.inputs
        return bool(inputs.is_meta or (inputs.ndim == 4 and inputs.shape[1] in (1, 3)))

    def _values(self, position: int, longest: int) -> list[list[str]]:
        return [] if self.examples is None else features(self.examples, position, named=_COLUMNS, longest=longest)

    def _neighbour(self, position: int) -> dict[str, Any]:
        assert self.examples is not None
        return {
            "label": int(self.result.given[position]),
            "image": picture(self.examples, position, side=_THUMBNAIL),
            "values": self._values(position, _BRIEF),
        }

    def _neighbours(self, positions: Ints) -> list[list[int]]:
        """The positions of the most similar examples of some examples, by Euclidean distance."""
        if self._space is None:
            return [[] for _ in positions]
        nearest = []
        for start in range(0, len(positions), _AT_ONCE):
            part = torch.from_numpy(positions[start : start + _AT_ONCE].copy())
            distances = torch.cdist(self._space[part], self._space)
            distances[torch.arange(len(part)), part] = torch.inf
            nearest += distances.topk(min(_NEIGHBOURS, len(self._space) - 1), largest=False).indices.tolist()
        return nearest

    @cached_property
    def _space(self) -> Tensor | None:
        """Every example as standardised numbers; None where distances of raw inputs say little, as for photos."""
        examples = self.examples
        if examples is None or examples.inputs.is_meta or len(examples) < 2:
            return None
        inputs, is_image = examples.inputs, examples.inputs.ndim == 4
        if inputs.ndim != (4 if is_image else 2) or (is_image and inputs.shape[1] != 1) or inputs[0].numel() > _WIDEST:
            return None
        rows = inputs.flatten(1).float().cpu()
        return rows if is_image else ((rows - rows.mean(0)) / rows.std(0).clamp_min(1e-12)).nan_to_num()


def _examples(result: Audit, data: Any) -> Dataset | None:
    """The examples of the run; None if no data was given and the source of the run is gone."""
    try:
        return examples_of(result.dynamics.record, data)
    except InputError:
        if data is not None:
            raise
        return None
