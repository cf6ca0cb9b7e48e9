"""Class probabilities of the training examples of one run that do not simply repeat the labels it was trained on."""

from __future__ import annotations

import os

import numpy as np

from noisewise.arrays import Floats, Ints
from noisewise.audit._audit import dynamics_of, stored_evidence
from noisewise.audit._evidence import final_weights
from noisewise.dynamics import Dynamics, Record
from noisewise.runs import MARGINS, codes


def run_probabilities(run: str | os.PathLike[str] | Dynamics) -> Floats:
    """Class probabilities of every training example, from the record of one run: what tools want cross-validation for.

    A trained model has memorised wrong labels, so its probabilities agree with them. The epochs before that do not, and `audit` weights
    epochs by how much they say about the labels. This is the mean over the epochs with these weights.

    Formula:
        P(given label) = Σ w p / Σ w,  where p = sigmoid(margin)
        The rest of an epoch, 1 − p, goes to the class that it predicted, or to all other classes alike if it predicted the given label.

    Args:
        run: a run, its folder or its dynamics. If `noisewise.audit.add_evidence` put evidence from features beside the record, the mean of
            that evidence is returned, which is of models that did not see the label.

    Returns:
        (N, classes), rows that sum to 1, in the order of the record. An example that no epoch saw has equal probabilities.

    Example:
        >>> import tempfile
        >>> from noisewise import fit
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     settings = {"loss": "ce", "epochs": 40, "batch_size": 32, "device": "cpu"}
        ...     run = fit("mlp", "digits", noise="symmetric(0.3, flips='exact')", folder=folder, **settings)
        ...     probabilities, true = run_probabilities(run), run.dynamics.record.true
        ...     final = run.dynamics.record.predictions(40)
        >>> bool((probabilities.argmax(1) != true).mean() < 0.1), bool((final != true).mean() > 0.2)
        (True, True)
    """
    dynamics = dynamics_of(run)
    tables = stored_evidence(dynamics.record)
    if tables is not None:
        mean = tables.mean(0)
        return np.asarray(mean / mean.sum(1, keepdims=True))
    return _from_epochs(dynamics.record, dynamics)


def _from_epochs(record: Record, dynamics: Dynamics) -> Floats:
    given, classes = record.given, len(record.classes)
    examples = np.arange(len(given))
    sums = np.zeros((len(given), classes))
    for epoch, weight in final_weights(dynamics).items():
        predicted = record.predictions(epoch)
        seen = predicted >= 0
        own = _PROBABILITIES[codes(record.margins(epoch))]
        vote = np.where(seen, weight[given], 0.0).astype(np.float64)
        sums[examples, given] += vote * own
        _add_rest(sums, given, predicted, vote * (1 - own))
    total = sums.sum(1, keepdims=True)
    return np.asarray(np.where(total > 0, sums / np.where(total > 0, total, 1), 1 / classes))


def _add_rest(sums: Floats, given: Ints, predicted: Ints, rest: Floats) -> None:
    """Add the probability that an epoch did not give to the given label."""
    other = np.flatnonzero(predicted != given)
    sums[other, predicted[other]] += rest[other]
    same = np.flatnonzero(predicted == given)
    share = rest[same] / max(1, sums.shape[1] - 1)
    sums[same] += share[:, None]
    sums[same, given[same]] -= share


_PROBABILITIES: Floats = 1 / (1 + np.exp(-np.clip(np.nan_to_num(MARGINS), -700, 700)))
