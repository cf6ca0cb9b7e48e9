"""Evidence about labels from features: class probabilities by two models that never see the label they judge.

A random forest judges an example by the trees that were grown without it. Kernel ridge regression has the prediction without an example in
closed form, so it is fitted once. Logistic regression is fitted in five folds. All are fast, and err in different ways: the forest cuts
single columns, the kernel is smooth, and logistic regression is linear.
"""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np

from noisewise.arrays import Floats, Ints
from noisewise.errors import InputError, invalid_parameter

_TREES, _LEAF, _ROWS_OF_A_TREE = 200, 3, 10_000
_LANDMARKS = 300
_WIDTHS = (0.25, 1.0, 4.0)  # of the kernel, relative to the median distance
_PENALTIES = (0.1, 1.0, 10.0)
_FOLDS, _ROWS_OF_A_FOLD, _STEPS = 5, 10_000, 300
_JITTER, _LEAST = 1e-3, 1e-3
_RESOLUTION = 0.01  # is added to all probabilities: such models cannot tell smaller ones apart


def evidence_from_features(features: Any, labels: Any, *, num_classes: int | None = None, seed: int = 0) -> tuple[Floats, ...]:
    """Class probabilities of every example by models that did not see its label.

    Args:
        features: numbers (N, columns), such as a table or embeddings; other shapes are flattened.
        labels: the given labels (N,), class numbers from 0.
        num_classes: the number of classes; by default the largest label plus one.
        seed: of the forest, of the rows that the kernel is built on, and of the folds.

    Returns:
        One array (N, classes) per model, for `find_label_issues`.

    Example:
        >>> from sklearn.datasets import load_iris
        >>> from noisewise.audit import find_label_issues
        >>> features, labels = load_iris(return_X_y=True)
        >>> labels[:5] = 2  # five wrong labels
        >>> issues = find_label_issues(labels, evidence_from_features(features, labels))
        >>> sorted(issues.review_first(5).tolist())
        [0, 1, 2, 3, 4]
    """
    table, given = _checked(features, labels)
    classes = int(given.max()) + 1 if num_classes is None else num_classes
    ranks = _ranks(table)
    found = _forest(table, given, classes, seed), _kernel(ranks, given, classes, seed), _logistic(table, given, classes, seed)
    return tuple((probabilities + _RESOLUTION) / (1 + classes * _RESOLUTION) for probabilities in found)


def _checked(features: Any, labels: Any) -> tuple[Floats, Ints]:
    table = np.asarray(features, dtype=np.float64)
    given = np.asarray(labels)
    if table.ndim < 2 or len(table) != len(given) or given.ndim != 1 or given.dtype.kind not in "iu":
        got = f"features shaped {table.shape} and labels shaped {given.shape} of type {given.dtype}"
        raise invalid_parameter("features", "evidence_from_features", "one row of numbers for each label, a class number", got)
    if not np.isfinite(table).all():
        raise invalid_parameter("features", "evidence_from_features", "finite", "NaN or infinity")
    if len(np.unique(given)) < 2:
        raise InputError("Labels can be judged only if there are at least two classes. Got labels of one class.")
    return table.reshape(len(table), -1), given.astype(np.int64)


def _ranks(table: Floats) -> Floats:
    """Each column as ranks with mean 0 and variance 1, so that outliers do not decide distances; constant columns are left out."""
    from scipy.stats import rankdata  # type: ignore[import-untyped]

    varying = table[:, table.min(0) < table.max(0)]
    if not varying.shape[1]:
        return np.zeros((len(table), 1))
    ranks = rankdata(varying, axis=0)
    return np.asarray((ranks - ranks.mean(0)) / ranks.std(0))


def _forest(table: Floats, given: Ints, classes: int, seed: int) -> Floats:
    """The mean class shares in the leaves of the trees that were grown without the example."""
    from sklearn.ensemble import RandomForestClassifier

    model = RandomForestClassifier(
        _TREES,
        min_samples_leaf=_LEAF,
        max_samples=min(1.0, _ROWS_OF_A_TREE / len(table)),
        oob_score=True,
        random_state=seed,
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # an example that is in every bag gets the shares of the classes
        warnings.simplefilter("ignore", RuntimeWarning)
        model.fit(table, given)
    found = np.asarray(model.oob_decision_function_)
    shares = np.bincount(given, minlength=classes) / len(given)
    probabilities = np.zeros((len(table), classes))
    probabilities[:, model.classes_] = found
    return np.where(np.isfinite(found).all(1)[:, None], probabilities, shares)


def _kernel(table: Floats, given: Ints, classes: int, seed: int) -> Floats:
    """Kernel ridge regression of the classes on landmark rows; the width and the penalty with the smallest error without the example."""
    from scipy.linalg import solve_triangular  # type: ignore[import-untyped]

    landmarks = np.random.default_rng(seed).permutation(len(table))[:_LANDMARKS]
    distances = _squared_distances(table, table[landmarks])
    median = max(float(np.median(distances)), 1e-12)
    shares = np.bincount(given, minlength=classes) / len(given)
    target = np.eye(classes)[given] - shares
    best, least = target, np.inf
    for width in _WIDTHS:
        kernel = np.exp(-width / median * distances)
        root = np.linalg.cholesky(kernel[landmarks] + _JITTER * np.eye(len(landmarks)))
        mapped = solve_triangular(root, kernel.T, lower=True, check_finite=False).T
        values, vectors = np.linalg.eigh(mapped.T @ mapped)
        mapped = mapped @ vectors
        projected, squares = mapped.T @ target, mapped**2
        for penalty in _PENALTIES:
            shrunk = 1 / (np.maximum(values, 0) + penalty)
            residual = (target - mapped @ (shrunk[:, None] * projected)) / np.maximum(1 - squares @ shrunk, 0.01)[:, None]
            error = float((residual**2).mean())
            if error < least:
                best, least = target - residual, error
    scores = np.maximum(best + shares, _LEAST)
    return np.asarray(scores / scores.sum(1, keepdims=True))


def _logistic(table: Floats, given: Ints, classes: int, seed: int) -> Floats:
    """Logistic regression on standardised columns, each fold judged by a model of the others."""
    from sklearn.exceptions import ConvergenceWarning
    from sklearn.linear_model import LogisticRegression
    from sklearn.model_selection import StratifiedKFold

    counts = np.bincount(given, minlength=classes)
    folds = min(_FOLDS, int(counts.max()))
    if folds < 2:  # every label is of another class
        return np.tile(counts / len(given), (len(given), 1))
    spread = table.std(0)
    scaled = (table - table.mean(0)) / np.where(spread > 0, spread, 1)
    probabilities = np.zeros((len(table), classes))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # a class with fewer labels than folds
        warnings.simplefilter("ignore", ConvergenceWarning)
        for train, judged in StratifiedKFold(folds, shuffle=True, random_state=seed).split(scaled, given):
            rows = np.random.default_rng(seed).permutation(train)[:_ROWS_OF_A_FOLD]
            if len(np.unique(given[rows])) < 2:
                probabilities[judged] = counts / len(given)
                continue
            model = LogisticRegression(max_iter=_STEPS).fit(scaled[rows], given[rows])
            probabilities[np.ix_(judged, model.classes_)] = model.predict_proba(scaled[judged])
    return probabilities


def _squared_distances(rows: Floats, others: Floats) -> Floats:
    distances: Floats = (rows**2).sum(1)[:, None] + (others**2).sum(1) - 2 * rows @ others.T
    return np.maximum(distances, 0)
