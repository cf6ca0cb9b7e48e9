"""What the record of a run says about each label: how the epochs voted, the scores that rank labels, and which labels are doubtful.

The record is read in blocks of examples, and each block epoch by epoch, so that memory stays bounded for any number of examples, classes
and epochs.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from noisewise.arrays import Flags, Floats
from noisewise.dynamics import Dynamics, Record, split_estimate
from noisewise.errors import InputError, unknown
from noisewise.runs import MARGINS, codes

Singles = NDArray[np.float32]
Labels = NDArray[np.int32]
Pulls = Callable[[int], Singles | None]
"""A function from an epoch to the emphasis of each possible margin."""

_VOTES = 1 << 25  # votes in memory at a time, examples times classes: 128 MiB
TRUST = 2.0  # the given label starts with the votes of two epochs of the largest weight
_FEWEST, _FEWEST_TO_RANK = 0.02, 0.002  # the smallest share of wrong labels to assume
_MANY = 0.05  # with this share of outvoted labels or more, the weights to rank by are not used
_LEAST_WEIGHT = 1e-9  # of an epoch, so that it still breaks ties
_LEARNED = 0.25  # a class is learned once it is predicted this often, relative to the end of training
_LEAST_CHANCE = 1e-3  # keeps the order of labels that almost surely belong to the upper group

_NUMBERS: Floats = np.nan_to_num(MARGINS)  # unseen examples are multiplied by 0 later
_LOWEST = int(_NUMBERS.argmin())
_PROBABILITIES: Singles = (1 / (1 + np.exp(-np.clip(_NUMBERS, -700, 700)))).astype(np.float32)


class Evidence(NamedTuple):
    """The votes of the epochs on each example; NaN for an example that no epoch saw.

    Formula:
        given_share = (2 + Σ w over the epochs that predicted the given label) / (2 + Σ w)
        other_share = Σ w over the epochs that predicted the other class / (2 + Σ w)
        lead = (Σ w over the epochs that predicted the other class − 2) / Σ w over those that predicted the given label
        belief = (2 + Σ w p) / (2 + Σ w),  where w ≤ 1 is the weight of an epoch, and p its probability of the given label

        support = (given_share + belief) / 2 and margin = Σ v margin / Σ v,  with other weights v, for ranking

    The 2 is the trust in the given label: two epochs cannot outvote it.

    Args:
        given_share: the share of weighted votes for the given label.
        other: the other class with the most votes.
        other_share: the share of weighted votes for that class.
        lead: its votes, less the trust, divided by the votes for the given label; infinite if that has none.
        belief: the weighted mean probability of the given label.
        probability: the unweighted mean probability of the given label.
        emphasis: the unweighted mean emphasis; NaN if the loss is not a function of the margin.
        final: the margin in the last epoch that saw the example, without augmentation if the run has such passes.
        predicted: the class predicted there; −1 if none.
        votes: the weight of all votes, without the trust.
        support: the mean of the weighted share of votes for the given label and its weighted mean probability, with the weights to rank by.
        margin: the mean margin, with the weights to rank by.
    """

    given_share: Floats
    other: Labels
    other_share: Floats
    lead: Floats
    belief: Floats
    probability: Floats
    emphasis: Floats
    final: Singles
    predicted: Labels
    votes: Floats
    support: Floats
    margin: Floats


def gather(dynamics: Dynamics) -> Evidence:
    """Read the record of a run twice: the number of outvoted labels decides the final weights of the epochs."""
    weights, ranking = _both_weights(dynamics)
    return _votes(dynamics.record, weights, ranking, partial(emphasis_of_margins, dynamics))


def final_weights(dynamics: Dynamics) -> dict[int, Singles]:
    """The weight of each epoch's votes on the labels of each class."""
    return _both_weights(dynamics)[0]


def _both_weights(dynamics: Dynamics) -> tuple[dict[int, Singles], dict[int, Singles]]:
    """The weights to judge by, and those to rank by."""
    record = dynamics.record
    if not record.epochs():
        raise InputError(f"The run in {str(record.folder)!r} has no recorded margins. Train it for an epoch, or copy its record/ too.")
    agreed = agreement(record)
    learned = (
        _learned(record)
        if _ignores_low_margins(emphasis_of_margins(dynamics, max(agreed)))
        else dict.fromkeys(agreed, np.ones(len(record.classes), dtype=np.float32))
    )
    before = _by_class(first_weights(agreed), learned)
    first = _votes(record, before, before, lambda epoch: None)
    outvoted, seen = (int(np.count_nonzero(flags)) for flags in (first.other_share > first.given_share, ~np.isnan(first.belief)))
    wrong = outvoted / max(1, seen)
    return _by_class(epoch_weights(agreed, wrong), learned), _by_class(ranking_weights(agreed, wrong), learned)


def agreement(record: Record) -> dict[int, float]:
    """The share of examples that each epoch predicted as labelled."""
    agreed: dict[int, float] = {}
    for epoch, _, predictions in record.stream():
        seen = int(np.count_nonzero(predictions >= 0))
        agreed[epoch] = int(np.count_nonzero(predictions == record.given)) / max(1, seen)
    return agreed


def first_weights(agreed: Mapping[int, float]) -> dict[int, float]:
    """The first weights of the epochs: 16 (a (1 − a))², where a is the share of labels that an epoch predicted.

    A model that knows nothing agrees with few labels, and one that memorised them with all; neither says much about the labels.
    """
    return {epoch: 16 * (share * (1 - share)) ** 2 + _LEAST_WEIGHT for epoch, share in agreed.items()}


def epoch_weights(agreed: Mapping[int, float], wrong: float) -> dict[int, float]:
    """The weights of the epochs, at most 1, for an assumed share of wrong labels.

    Formula:
        w = min(1, 4 (1 − a)) · ((a / s)³ up to s, ((1 − a) / (1 − s))⁴ beyond),
        where a is the share of labels that an epoch predicted, and s = 1 − wrong

    A model that agrees with exactly the right labels says the most. One that agrees with fewer has not learned enough, and one that agrees
    with more has begun to memorise wrong ones. The powers and the 4 were chosen with true labels on CIFAR-10, Fashion-MNIST and digits.

    Example:
        >>> {epoch: round(weight, 2) for epoch, weight in epoch_weights({1: 0.3, 2: 0.5, 3: 0.6, 4: 0.8}, 0.4).items()}
        {1: 0.13, 2: 0.58, 3: 1.0, 4: 0.05}
    """
    near = _nearness(agreed, wrong, _FEWEST)
    return {epoch: min(1.0, 4 * (1 - share)) * near[epoch] + _LEAST_WEIGHT for epoch, share in agreed.items()}


def ranking_weights(agreed: Mapping[int, float], wrong: float) -> dict[int, float]:
    """The weights of the epochs to rank labels by: those of `epoch_weights` without the factor min(1, 4 (1 − a)).

    That factor keeps labels from being doubted where few are wrong, but takes the weight from the epochs that know most. The smallest
    assumed share of wrong labels, 0.2 %, was chosen with true labels on digits, and on parts of the training images of MNIST, Fashion-MNIST
    and CIFAR-10.
    """
    return {epoch: near + _LEAST_WEIGHT for epoch, near in _nearness(agreed, wrong, _FEWEST_TO_RANK).items()}


def _nearness(agreed: Mapping[int, float], wrong: float, fewest: float) -> dict[int, float]:
    """How near the agreement of each epoch is to the share of right labels."""
    right = 1 - min(max(wrong, fewest), 1 - fewest)
    return {epoch: (share / right) ** 3 if share <= right else ((1 - share) / (1 - right)) ** 4 for epoch, share in agreed.items()}


def _ignores_low_margins(pull: Singles | None) -> bool:
    """Whether a loss has almost no emphasis at the lowest margins, and so memorises few wrong labels."""
    return pull is not None and bool(pull[_LOWEST] < 0.01 * pull.max())


def _learned(record: Record) -> dict[int, Singles]:
    """How far each class was learned in each epoch, from 0 to 1.

    Formula:
        min(1, 4 · predictions of the class in the epoch / its mean predictions in the last quarter of the epochs),
        where the latter is at most the number of its labels

    Before a class is learned, the model contradicts all its labels, wrong or right. A class that is predicted at the end for fewer than
    one in fifty of its labels was never learned, and all epochs count. The 4 was chosen among 1, 2 and 4 with true labels on small parts
    of digits, iris, wine and synthetic tables.
    """
    given = np.bincount(record.given, minlength=len(record.classes))
    counts = {epoch: np.bincount(predictions[predictions >= 0], minlength=len(given)) for epoch, _, predictions in record.stream()}
    last = list(counts.values())[-max(1, len(counts) // 4) :]
    known = np.minimum(np.mean(last, axis=0), given)
    known[known < 0.02 * given] = 0
    enough = np.where(known > 0, _LEARNED * known, 1)
    return {epoch: np.where(known > 0, np.minimum(1, number / enough), 1).astype(np.float32) for epoch, number in counts.items()}


def _by_class(weights: Mapping[int, float], learned: Mapping[int, Singles]) -> dict[int, Singles]:
    """The weight of an epoch's votes on the labels of each class."""
    return {epoch: np.float32(weight) * learned[epoch] for epoch, weight in weights.items()}


def _votes(record: Record, weights: Mapping[int, Singles], ranking: Mapping[int, Singles], pulls: Pulls) -> Evidence:
    rows, clean = max(1, _VOTES // len(record.classes)), record.epochs("clean")[-1:]
    blocks = [_block(record, slice(start, start + rows), weights, ranking, pulls, clean) for start in range(0, len(record.given), rows)]
    return Evidence(*(np.concatenate(column) for column in zip(*blocks, strict=True)))


def emphasis_of_margins(dynamics: Dynamics, epoch: int) -> Singles | None:
    """The emphasis of each half-precision margin in an epoch; None if the loss is unknown or not a function of the margin."""
    values = dynamics.emphasis_curve(epoch, _NUMBERS)
    return None if values is None else values.astype(np.float32)


def _block(
    record: Record, rows: slice, weights: Mapping[int, Singles], ranking: Mapping[int, Singles], pulls: Pulls, clean: Sequence[int]
) -> Evidence:
    given = record.given[rows]
    examples = np.arange(len(given))
    votes = np.zeros((len(given), len(record.classes)), dtype=np.float32)
    weight, times, belief, probability, emphasis, weight_to_rank, support, margin = np.zeros((8, len(given)))
    final, last = np.full(len(given), np.nan, dtype=np.float32), np.full(len(given), -1, dtype=np.int32)
    for epoch in weights:  # a run in progress may have written more since
        code, predicted, pull = codes(record.margins(epoch)[rows]), record.predictions(epoch)[rows], pulls(epoch)
        seen = predicted >= 0
        vote = weights[epoch][given] * seen
        votes[examples, predicted] += vote  # unseen examples (−1) add 0 to the last class
        weight += vote
        times += seen
        belief += vote * _PROBABILITIES[code]
        probability += seen * _PROBABILITIES[code]
        emphasis += np.nan if pull is None else seen * pull[code]
        vote_to_rank = ranking[epoch][given] * seen
        weight_to_rank += vote_to_rank
        support += vote_to_rank * (_PROBABILITIES[code] + (predicted == given)) / 2
        margin += vote_to_rank * _NUMBERS[code]
        final[seen], last[seen] = _NUMBERS[code[seen]], predicted[seen]
    for epoch in clean:
        final, last = record.margins(epoch, "clean")[rows].astype(np.float32), record.predictions(epoch, "clean")[rows].astype(np.int32)
    own = votes[examples, given].astype(np.float64)
    votes[examples, given] = -1
    other = votes.argmax(1).astype(np.int32)
    times[times == 0] = np.nan
    total = np.where(times > 0, weight + TRUST, np.nan)
    against = votes[examples, other].astype(np.float64)
    with np.errstate(divide="ignore", invalid="ignore"):
        lead = np.where(against > TRUST, (against - TRUST) / own, 0.0)
    shares = (own + TRUST) / total, other, against / total, lead, (belief + TRUST) / total
    total_to_rank = np.where(times > 0, weight_to_rank, np.nan)
    to_rank = (support + TRUST) / (total_to_rank + TRUST), margin / total_to_rank
    return Evidence(*shares, probability / times, emphasis / times, final, last, total - TRUST, *to_rank)


Score = Callable[[Dynamics, Evidence], Floats]


def _forgetting(dynamics: Dynamics, evidence: Evidence) -> Floats:
    times = dynamics.forgetting
    return -np.where(dynamics.first_fit < 0, times.max() + 1, times).astype(np.float64)  # examples that were never learned come first


def judged_by(evidence: Evidence) -> Floats:
    """The number that decides which labels are doubtful: the mean of belief and given share."""
    return np.asarray((evidence.belief + evidence.given_share) / 2)


def _combined(dynamics: Dynamics, evidence: Evidence) -> Floats:
    """What decides which labels are doubtful, and the sum of support and margin where few labels are; each divided by its deviation.

    The margin distinguishes labels that every epoch contradicts, and the support does not follow a few very low margins.
    """
    outvoted = float(np.mean(evidence.other_share > evidence.given_share))
    few = max(0.0, 1 - outvoted / _MANY)
    by_ranking_weights = _in_deviations(evidence.support) + _in_deviations(evidence.margin)
    return (1 - few) * _in_deviations(judged_by(evidence)) + few * by_ranking_weights


def _in_deviations(values: Floats) -> Floats:
    known = values[~np.isnan(values)]
    spread = float(known.std()) if len(known) else 0.0
    return np.asarray(values / spread if spread > 0 else 0 * values)


SCORES: dict[str, Score] = {
    "combined": _combined,
    "area_under_margin": lambda dynamics, evidence: dynamics.area_under_margin,
    "final_margin": lambda dynamics, evidence: evidence.final.astype(np.float64),
    # The emphasis of cross-entropy, 1 − p, because a robust loss has little emphasis on wrong labels.
    "emphasis": lambda dynamics, evidence: evidence.probability - 1,
    "forgetting": _forgetting,
    "mixture": lambda dynamics, evidence: np.zeros(len(evidence.belief)) if dynamics.estimate is None else -dynamics.estimate.noisy,
}
"""The scores that labels can be ranked by; the lower, the more doubtful."""


def score_function(name: str) -> Score:
    """The score with this name."""
    if name not in SCORES:
        raise unknown("score", name, SCORES)
    return SCORES[name]


class Judgement(NamedTuple):
    """Which labels are doubtful.

    Args:
        quality: one minus the probability that the label is wrong; NaN without a belief.
        is_issue: the labels that are probably wrong.
        interval: the range of several estimates of the number of wrong labels.
    """

    quality: Floats
    is_issue: Flags
    interval: tuple[float, float]


def judge_labels(belief: Floats, against: Flags, mistakes: float = 0.0) -> Judgement:
    """Find doubtful labels, without any label that is known to be right.

    Formula:
        low = P(the lower of two normal distributions of beliefs | belief), and at least 0.001
        chance = low · (1 − belief),  quality = 1 − chance
        doubtful if chance > ½ and another class is more probable

    Either factor alone flags too many labels: the mixture always finds two groups, and an unsure model believes few labels. The interval
    spans several estimates of the number of wrong labels, plus two standard deviations of a binomial count: the doubtful labels, those
    with a more probable class, Σ chance, Σ low (if the mean belief in that group is below ½), and those with a more probable class less
    the mistakes of the model.

    Args:
        belief: the belief in the given label, from 0 to 1; NaN if nothing is known about the example.
        against: whether another class is more probable than the given one.
        mistakes: the share of right labels that the model does not predict, if measured.

    Example:
        >>> beliefs = np.array([0.9, 0.8, 0.9, 0.1, np.nan])
        >>> judgement = judge_labels(beliefs, beliefs < 0.5)
        >>> judgement.is_issue, judgement.quality.round(2)
        (array([False, False, False, True, False]), array([1. , 1. , 1. , 0.1, nan]))

    Reference:
        Arazo et al., Unsupervised label noise modeling and loss correction, ICML 2019 (the two groups).
    """
    known = ~np.isnan(belief)
    low = _in_lower_group(belief, known)
    chance = low * (1 - belief)
    doubtful = known & against & (chance > 0.5)
    number, expected, grouped = int(known.sum()), float(chance[known].sum()), float(low[known].sum())
    beaten = float(np.count_nonzero(known & against))
    estimates = [
        float(np.count_nonzero(doubtful)),
        beaten,
        expected,
        max(0.0, beaten - mistakes * number) / max(1 - mistakes, _LEAST_CHANCE),
    ]
    if expected > grouped / 2:  # the mean belief in the lower group is below ½
        estimates.append(grouped)
    return Judgement(1 - chance, doubtful, _span(estimates, number))


def _in_lower_group(belief: Floats, known: Flags) -> Floats:
    """The probability of the lower of two groups; 1 if all beliefs are equal."""
    if len(np.unique(belief[known])) < 2:
        return np.ones(len(belief))
    return _LEAST_CHANCE + (1 - _LEAST_CHANCE) * split_estimate(belief).noisy


def _span(estimates: list[float], number: int) -> tuple[float, float]:
    low, high = min(estimates), max(estimates)
    below, above = (2 * math.sqrt(max(0.0, count * (1 - count / max(1, number)))) for count in (low, high))
    return max(0.0, low - below), min(float(number), high + above)
