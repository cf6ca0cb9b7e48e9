"""What the record of a run says about every example: how the epochs voted, and how far they believed the label.

The record is gone through in blocks of examples, and each block epoch by epoch, so that memory stays bounded for any number of
examples, classes and epochs. This module counts and adds; it must not know what makes a label doubtful.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from noisewise.arrays import Floats
from noisewise.dynamics import Dynamics, Record
from noisewise.errors import InputError
from noisewise.runs import MARGINS, codes

Singles = NDArray[np.float32]
Places = NDArray[np.int32]
Pulls = Callable[[int], Singles | None]
"""The emphasis of every margin in an epoch. It is worked out when its turn comes: those of all epochs would fill the memory."""

_VOTES = 1 << 25  # votes held at a time, examples times classes: 128 MiB
_TRUST = 2.0  # a label is innocent until proven wrong: it starts with the votes of two epochs that tell the most
_FEWEST = 0.02  # the share of wrong labels that is reckoned with at least
_LEAST = 1e-9  # epochs that tell nothing still rank the labels that no other epoch tells apart
_LEARNED = 0.25  # a class counts as learned once an epoch predicts it so often, for every time that it is predicted at the end

_NUMBERS: Floats = np.nan_to_num(MARGINS)  # what is worked out for an example that was not seen is multiplied by 0
_HOPELESS = int(_NUMBERS.argmin())  # the lowest margin there is
_PROBABILITIES: Singles = (1 / (1 + np.exp(-np.clip(_NUMBERS, -700, 700)))).astype(np.float32)


class Evidence(NamedTuple):
    """Per example, over the epochs that saw it; NaN for one that none saw.

    Formula:
        given_share = (2 + Σ w over the epochs that predicted the given label) / (2 + Σ w)
        other_share = Σ w over the epochs that predicted the other class / (2 + Σ w)
        lead = (Σ w over the epochs that predicted the other class − 2) / Σ w over those that predicted the given label
        belief = (2 + Σ w p) / (2 + Σ w),  where w is an epoch's weight, at most 1, and p the probability it gave the given label

    The 2 is the trust in the given label: two epochs against it, however much they tell, do not outvote it.

    Args:
        given_share: of the weighted votes, those for the given label.
        other: the class most voted for beside it.
        other_share: of the weighted votes, those for that class.
        lead: its votes beyond the trust, for each of the given label's; infinite where that has none.
        belief: the weighted mean probability of the given label.
        probability: the same, every epoch alike.
        emphasis: the mean emphasis, every epoch alike; NaN where the loss is not of the margin alone.
        final: the margin in the last epoch that saw it, without augmentation where the run made such passes.
        predicted: the class predicted there; −1 for none.
    """

    given_share: Floats
    other: Places
    other_share: Floats
    lead: Floats
    belief: Floats
    probability: Floats
    emphasis: Floats
    final: Singles
    predicted: Places


def gather(dynamics: Dynamics) -> Evidence:
    """Go through the record of a run, twice: how many labels are outvoted says which epochs tell the most."""
    record = dynamics.record
    if not record.epochs():
        raise InputError(f"The run in {str(record.folder)!r} has no record of margins. Train it for an epoch, or copy its record/ too.")
    agreed = agreement(record)
    pulls = partial(emphasis_of_margins, dynamics)
    learned = _learned(record) if _lets_go(pulls(max(agreed))) else dict.fromkeys(agreed, np.ones(len(record.classes), dtype=np.float32))
    first = _votes(record, _by_class(first_weights(agreed), learned), lambda epoch: None)
    outvoted, seen = (int(np.count_nonzero(flags)) for flags in (first.other_share > first.given_share, ~np.isnan(first.belief)))
    return _votes(record, _by_class(epoch_weights(agreed, outvoted / max(1, seen)), learned), pulls)


def agreement(record: Record) -> dict[int, float]:
    """The share of examples every epoch predicted as they are labelled."""
    agreed: dict[int, float] = {}
    for epoch, _, predictions in record.stream():
        seen = int(np.count_nonzero(predictions >= 0))
        agreed[epoch] = int(np.count_nonzero(predictions == record.given)) / max(1, seen)
    return agreed


def first_weights(agreed: Mapping[int, float]) -> dict[int, float]:
    """How much each epoch's vote counts before anything is known: 16 (a (1 − a))², where a is the share it predicted as labelled.

    An epoch in which the model knows nothing yet agrees with hardly any label, one in which it has learned them by heart with
    all: neither says much about them, and neither weighs much.
    """
    return {epoch: 16 * (share * (1 - share)) ** 2 + _LEAST for epoch, share in agreed.items()}


def epoch_weights(agreed: Mapping[int, float], wrong: float) -> dict[int, float]:
    """How much each epoch's vote counts, at most 1, if about so many labels are wrong.

    Formula:
        w = min(1, 4 (1 − a)) · ((a / s)³ up to s, ((1 − a) / (1 − s))⁴ beyond),
        where a is the share an epoch predicted as labelled, and s = 1 − wrong

    A model that has learned what can be learned, and no wrong label by heart, agrees with the right labels: it tells the most. One on
    the way there tells less, and one that agrees with more has begun to learn wrong ones. Where it agrees with nearly all, little can be
    told of the rest. The powers and the 4 were chosen with the truth in view, on CIFAR-10, Fashion-MNIST and digits.

    Example:
        >>> {epoch: round(weight, 2) for epoch, weight in epoch_weights({1: 0.3, 2: 0.5, 3: 0.6, 4: 0.8}, 0.4).items()}
        {1: 0.13, 2: 0.58, 3: 1.0, 4: 0.05}
    """
    right = 1 - min(max(wrong, _FEWEST), 1 - _FEWEST)

    def weight(share: float) -> float:
        nearness = (share / right) ** 3 if share <= right else ((1 - share) / (1 - right)) ** 4
        return min(1.0, 4 * (1 - share)) * nearness + _LEAST

    return {epoch: weight(share) for epoch, share in agreed.items()}


def _lets_go(pull: Singles | None) -> bool:
    """Whether a loss hardly pulls at labels that seem hopeless, and so learns few wrong ones by heart."""
    return pull is not None and bool(pull[_HOPELESS] < 0.01 * pull.max())


def _learned(record: Record) -> dict[int, Singles]:
    """How far every class was learned in an epoch, from 0 to 1, if what is predicted at the end was learned and not memorised.

    Formula:
        min(1, 4 · how often the epoch predicted the class / how often it was predicted in the last quarter of the epochs),
        where the latter counts no more often than the class was given

    Before a class is learned, all its labels are contradicted, wrong or right. A class that is hardly predicted at the end, fewer than
    one time for every fifty labels, was never learned: nothing is known of when that would have been, and all epochs count.
    The 4 was chosen among 1, 2 and 4 with the truth in view, on small parts of digits, iris, wine and drawn tables.
    """
    given = np.bincount(record.given, minlength=len(record.classes))
    said = {epoch: np.bincount(predictions[predictions >= 0], minlength=len(given)) for epoch, _, predictions in record.stream()}
    last = list(said.values())[-max(1, len(said) // 4) :]
    known = np.minimum(np.mean(last, axis=0), given)
    known[known < 0.02 * given] = 0
    enough = np.where(known > 0, _LEARNED * known, 1)
    return {epoch: np.where(known > 0, np.minimum(1, number / enough), 1).astype(np.float32) for epoch, number in said.items()}


def _by_class(weights: Mapping[int, float], learned: Mapping[int, Singles]) -> dict[int, Singles]:
    """What an epoch's vote on the labels of every class counts."""
    return {epoch: np.float32(weight) * learned[epoch] for epoch, weight in weights.items()}


def _votes(record: Record, weights: Mapping[int, Singles], pulls: Pulls) -> Evidence:
    rows, clean = max(1, _VOTES // len(record.classes)), record.epochs("clean")[-1:]
    blocks = [_block(record, slice(start, start + rows), weights, pulls, clean) for start in range(0, len(record.given), rows)]
    return Evidence(*(np.concatenate(column) for column in zip(*blocks, strict=True)))


def emphasis_of_margins(dynamics: Dynamics, epoch: int) -> Singles | None:
    """The emphasis in an epoch of every margin half precision has; None for a loss that is not of the margin alone, or not known here."""
    found = dynamics.emphasis_curve(epoch, _NUMBERS)
    return None if found is None else found.astype(np.float32)


def _block(record: Record, rows: slice, weights: Mapping[int, Singles], pulls: Pulls, clean: Sequence[int]) -> Evidence:
    given = record.given[rows]
    here = np.arange(len(given))
    votes = np.zeros((len(given), len(record.classes)), dtype=np.float32)
    weight, times, belief, probability, emphasis = np.zeros((5, len(given)))
    final, last = np.full(len(given), np.nan, dtype=np.float32), np.full(len(given), -1, dtype=np.int32)
    for epoch in weights:  # not those that a run under way has written since
        where, predicted, pull = codes(record.margins(epoch)[rows]), record.predictions(epoch)[rows], pulls(epoch)
        seen = predicted >= 0
        counted = weights[epoch][given] * seen
        votes[here, predicted] += counted  # one that was not seen, −1, adds nothing to the last class
        weight += counted
        times += seen
        belief += counted * _PROBABILITIES[where]
        probability += seen * _PROBABILITIES[where]
        emphasis += np.nan if pull is None else seen * pull[where]
        final[seen], last[seen] = _NUMBERS[where[seen]], predicted[seen]
    for epoch in clean:
        final, last = record.margins(epoch, "clean")[rows].astype(np.float32), record.predictions(epoch, "clean")[rows].astype(np.int32)
    own = votes[here, given].astype(np.float64)
    votes[here, given] = -1
    other = votes.argmax(1).astype(np.int32)
    times[times == 0] = np.nan
    total = np.where(times > 0, weight + _TRUST, np.nan)
    against = votes[here, other].astype(np.float64)
    with np.errstate(divide="ignore", invalid="ignore"):
        lead = np.where(against > _TRUST, (against - _TRUST) / own, 0.0)
    shares = (own + _TRUST) / total, other, against / total, lead, (belief + _TRUST) / total
    return Evidence(*shares, probability / times, emphasis / times, final, last)
