"""The model of Dawid and Skene: a true class per example and a confusion matrix per annotator, fitted by EM in log space."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from noisewise.arrays import Floats, Ints
from noisewise.audit._votes import Votes

_ROUNDS = 1000
_SHORT = 30  # rounds while the smoothing is chosen
_SMOOTHINGS = (1.0, 4.0, 16.0, 64.0)
_USUAL = 4.0  # the best of these on average, over simulated annotators
_FEWEST = 20  # examples with several labels, from which the smoothing can be chosen
_TOLERANCE = 1e-10  # of the mean log-likelihood of a label
_LEAST = 1e-300  # keeps the log of an empty cell finite
_CELLS = 1 << 22  # numbers in memory at a time


class Fitted(NamedTuple):
    """The fitted model.

    Args:
        posterior: the probability of each class for each example (N, C).
        confusion: P(label | true class) of each annotator (A, C, C), rows are true classes.
        pooled: the same of all annotators together (C, C).
        prior: the share of each class.
        objectives: the log-likelihood, with smoothing plus the log of the prior of the matrices, after each round.
    """

    posterior: Floats
    confusion: Floats
    pooled: Floats
    prior: Floats
    objectives: list[float]


def shares(votes: Votes) -> Floats:
    """The share of its labels that each class has, for each example."""
    counts = np.zeros((len(votes.examples), len(votes.classes)))
    np.add.at(counts, (votes.example, votes.label), 1.0)
    return np.asarray(counts / counts.sum(1, keepdims=True))


def choose_smoothing(votes: Votes) -> float:
    """The smoothing that gives labels that were held out the highest probability, one label each of half the examples with several."""
    rng = np.random.default_rng(0)
    starts = np.searchsorted(votes.example, np.arange(len(votes.examples)))
    number = np.bincount(votes.example, minlength=len(votes.examples))
    several = np.flatnonzero(number > 1)
    if len(several) < _FEWEST:
        return _USUAL
    some = rng.permutation(several)[: len(several) // 2]
    held = starts[some] + rng.integers(0, number[some])
    kept = np.ones(len(votes.label), dtype=bool)
    kept[held] = False
    rest = votes._replace(example=votes.example[kept], annotator=votes.annotator[kept], label=votes.label[kept])

    def score(smoothing: float) -> float:
        fitted = fit(rest, smoothing, _SHORT)
        chances = fitted.confusion[votes.annotator[held], :, votes.label[held]]
        return float(np.log(np.maximum((fitted.posterior[votes.example[held]] * chances).sum(1), _LEAST)).sum())

    return max(_SMOOTHINGS, key=score)


def fit(votes: Votes, smoothing: float, rounds: int = _ROUNDS) -> Fitted:
    """Fit the model by EM from the shares of labels.

    Formula:
        E: P(c | labels of i) ∝ prior_c · Π over its labels (a, l) of confusion_a[c, l]
        M: confusion_a[c, l] ∝ Σ over the labels l of a of P(c | i) + smoothing · pooled[c, l],  prior_c = mean of P(c | i)

    Pooled is the confusion of all annotators in the first round. It keeps an annotator with few labels close to the others.
    """
    posterior, objectives = shares(votes), []
    pseudo = smoothing * _pooled(votes, posterior)
    confusion, prior = _maximised(votes, posterior, pseudo)
    for _ in range(rounds):
        posterior, likelihood = _expected(votes, confusion, prior)
        objectives.append(likelihood + float((pseudo * np.log(np.maximum(confusion, _LEAST))).sum()))
        if len(objectives) > 1 and objectives[-1] - objectives[-2] <= _TOLERANCE * len(votes.label):
            break
        confusion, prior = _maximised(votes, posterior, pseudo)
    return Fitted(posterior, confusion, _pooled(votes, posterior), prior, objectives)


def estimated(votes: Votes, fitted: Fitted, smoothing: float) -> Floats:
    """The confusion matrices to report. Smoothing as strong as for the consensus would draw all annotators towards their mean."""
    counts = _counts(votes, fitted.posterior)
    return _normalised(counts + min(smoothing, 1.0) * fitted.pooled)


def summarised(votes: Votes, posterior: Floats) -> Fitted:
    """The matrices that follow from given probabilities of the classes, without fitting."""
    confusion, prior = _maximised(votes, posterior, np.zeros((len(votes.classes),) * 2))
    return Fitted(posterior, confusion, _pooled(votes, posterior), prior, [])


def _pooled(votes: Votes, posterior: Floats) -> Floats:
    """The confusion of all annotators together; one right label of each class keeps it defined."""
    return _normalised(_counts(votes, posterior).sum(0) + np.eye(len(votes.classes)))


def _counts(votes: Votes, posterior: Floats) -> Floats:
    """The expected number of labels of each annotator, by true class and label."""
    annotators, classes = len(votes.annotators), len(votes.classes)
    cells = votes.annotator * classes + votes.label
    by_class = [np.bincount(cells, posterior[votes.example, true], annotators * classes) for true in range(classes)]
    counts: Floats = np.stack(by_class).astype(np.float64)
    return counts.reshape(classes, annotators, classes).transpose(1, 0, 2)


def _maximised(votes: Votes, posterior: Floats, pseudo: Floats) -> tuple[Floats, Floats]:
    return _normalised(_counts(votes, posterior) + pseudo), posterior.mean(0)


def _normalised(counts: Floats) -> Floats:
    """Rows that sum to one; a row without labels is uniform."""
    totals = counts.sum(-1, keepdims=True)
    return np.where(totals > 0, counts / np.where(totals > 0, totals, 1), 1 / counts.shape[-1])


def _expected(votes: Votes, confusion: Floats, prior: Floats) -> tuple[Floats, float]:
    """The probability of each class for each example, and the log-likelihood of the labels."""
    logs = np.log(np.maximum(confusion, _LEAST)).transpose(0, 2, 1)  # (annotator, label, true class)
    starts = np.searchsorted(votes.example, np.arange(len(votes.examples) + 1))
    joint = np.empty((len(votes.examples), len(prior)))
    step = max(1, _CELLS // (len(prior) * max(1, len(votes.label) // len(joint))))
    for start in range(0, len(joint), step):
        stop = min(start + step, len(joint))
        part = slice(starts[start], starts[stop])
        joint[start:stop] = np.add.reduceat(logs[votes.annotator[part], votes.label[part]], starts[start:stop] - starts[start], axis=0)
    joint += np.log(np.maximum(prior, _LEAST))
    highest = joint.max(1, keepdims=True)
    weights = np.exp(joint - highest)
    totals = weights.sum(1, keepdims=True)
    return weights / totals, float((highest + np.log(totals)).sum())


def gain_of_another(posterior: Floats, pooled: Floats) -> Floats:
    """How much another label is expected to raise the probability that the consensus is right.

    Formula:
        Σ_l max_c P(c) pooled[c, l] − max_c P(c)
    """
    gain = np.empty(len(posterior))
    step = max(1, _CELLS // pooled.size)
    for start in range(0, len(posterior), step):
        part = posterior[start : start + step]
        gain[start : start + step] = (part[:, :, None] * pooled).max(1).sum(1) - part.max(1)
    return np.maximum(gain, 0.0)


def pair_agreement(votes: Votes) -> Floats:
    """How often other annotators gave the same label to the same example; NaN for an annotator who shared none."""
    number = np.bincount(votes.example, minlength=len(votes.examples))
    cells: Ints = votes.example * len(votes.classes) + votes.label
    same = np.bincount(cells, minlength=len(votes.examples) * len(votes.classes))[cells] - 1
    others = number[votes.example] - 1
    agreed, possible = (np.bincount(votes.annotator, counts, len(votes.annotators)) for counts in (same, others))
    return np.where(possible > 0, agreed / np.maximum(possible, 1), np.nan)
