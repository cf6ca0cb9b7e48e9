"""Evidence about labels from features: class probabilities by three models that never see the label they judge.

A random forest judges an example by the trees that were grown without it. Kernel ridge regression has the prediction without an example in
closed form, so it is fitted once. Logistic regression is fitted in five folds. All are fast, and err in different ways: the forest cuts
single columns, the kernel is smooth, and logistic regression is linear.
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass
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
    return FeatureModels.fit(features, labels, num_classes=num_classes, seed=seed).evidence


@dataclass(frozen=True, eq=False)
class FeatureModels:
    """A random forest, a kernel ridge regression and logistic regressions of labels on features.

    Args:
        evidence: what each says of the rows it was fitted on, without having seen their labels, as `evidence_from_features` returns it.

    Example:
        >>> rows = np.random.default_rng(0).normal(size=(200, 3))
        >>> models = FeatureModels.fit(rows, (rows[:, 0] > 0).astype(int))
        >>> [table.shape for table in models.predict(rows[:5])]
        [(5, 2), (5, 2), (5, 2)]
    """

    evidence: tuple[Floats, ...]
    _forest: Any
    _kernel: _Kernel
    _logistic: _Logistic

    @classmethod
    def fit(
        cls, features: Any, labels: Any, *, num_classes: int | None = None, seed: int = 0, weights: Floats | None = None
    ) -> FeatureModels:
        """Fit the models.

        Args:
            features: numbers (N, columns); other shapes are flattened.
            labels: the given labels (N,), class numbers from 0.
            num_classes: the number of classes; by default the largest label plus one.
            seed: of the forest, of the rows that the kernel is built on, and of the folds.
            weights: how often each row counts (N,), above 0; by default once.
        """
        from threadpoolctl import threadpool_limits

        table, given = _checked(features, labels)
        classes = int(given.max()) + 1 if num_classes is None else num_classes
        forest, by_trees = _forest(table, given, classes, seed, weights)
        with threadpool_limits(1, user_api="blas"):  # threads cost more than they save on matrices of this size
            kernel, by_kernel = _kernel(table, given, classes, seed, np.ones(len(table)) if weights is None else weights)
            logistic, by_folds = _logistic(table, given, classes, seed, weights)
        return cls((_resolved(by_trees), _resolved(by_kernel), _resolved(by_folds)), forest, kernel, logistic)

    def predict(self, features: Floats) -> tuple[Floats, ...]:
        """Class probabilities of new rows (N, columns), one array (N, classes) per model."""
        found = _of_classes(self._forest, self._forest.predict_proba(features), self.evidence[0].shape[1])
        return _resolved(found), _resolved(self._kernel.predict(features)), _resolved(self._logistic.predict(features))


def _resolved(probabilities: Floats) -> Floats:
    return np.asarray((probabilities + _RESOLUTION) / (1 + probabilities.shape[1] * _RESOLUTION))


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


class _Ranks:
    """Each column as ranks with mean 0 and variance 1, so that outliers do not decide distances; constant columns are left out.

    A new number gets the rank between its neighbours of the table.
    """

    def __init__(self, table: Floats) -> None:
        self.varying = table.min(0) < table.max(0)
        self.sorted = np.sort(table[:, self.varying], 0)
        self.mean, self.spread = 0.0, np.ones(self.sorted.shape[1])
        ranks = self(table)
        self.mean, self.spread = (len(table) + 1) / 2, ranks.std(0)

    def __call__(self, table: Floats) -> Floats:
        if not self.sorted.shape[1]:
            return np.zeros((len(table), 1))
        columns = zip(self.sorted.T, table[:, self.varying].T, strict=True)
        ranks = [(np.searchsorted(known, new, "left") + np.searchsorted(known, new, "right") + 1) / 2 for known, new in columns]
        return np.asarray((np.stack(ranks, 1) - self.mean) / self.spread)


def _forest(table: Floats, given: Ints, classes: int, seed: int, weights: Floats | None) -> tuple[Any, Floats]:
    """A forest, and the mean class shares in the leaves of the trees that were grown without the example."""
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
        model.fit(table, given, sample_weight=weights)
    found = np.asarray(model.oob_decision_function_)
    shares = np.bincount(given, minlength=classes) / len(given)
    return model, np.where(np.isfinite(found).all(1)[:, None], _of_classes(model, found, classes), shares)


def _of_classes(model: Any, found: Floats, classes: int) -> Floats:
    """Probabilities with a column for every class, also for those that no row has."""
    probabilities = np.zeros((len(found), classes))
    probabilities[:, model.classes_] = found
    return probabilities


@dataclass(frozen=True, eq=False)
class _Kernel:
    """Kernel ridge regression: the kernel of a row with each landmark, times their coefficients.

    Args:
        ranks: turns numbers into ranks.
        landmarks: the ranks of some rows.
        rate: the kernel is exp(−rate · squared distance).
        coefficients: of each landmark for each class.
        shares: of the classes.
    """

    ranks: _Ranks
    landmarks: Floats
    rate: float
    coefficients: Floats
    shares: Floats

    def predict(self, table: Floats) -> Floats:
        kernel = np.exp(-self.rate * _squared_distances(self.ranks(table), self.landmarks))
        return _probabilities(kernel @ self.coefficients + self.shares)


def _probabilities(scores: Floats) -> Floats:
    scores = np.maximum(scores, _LEAST)
    return np.asarray(scores / scores.sum(1, keepdims=True))


def _kernel(table: Floats, given: Ints, classes: int, seed: int, weights: Floats) -> tuple[_Kernel, Floats]:
    """Kernel ridge regression of the classes on landmark rows; the width and the penalty with the smallest error without the example.

    Returns also what it says of each row without having seen it.
    """
    from scipy.linalg import solve_triangular  # type: ignore[import-untyped]

    ranks = _Ranks(table)
    ranked = ranks(table)
    chosen = np.random.default_rng(seed).permutation(len(table))[:_LANDMARKS]
    landmarks = ranked[chosen]
    distances = _squared_distances(ranked, landmarks)
    median = max(float(np.median(distances)), 1e-12)
    shares = np.bincount(given, weights, minlength=classes) / weights.sum()
    scale = np.sqrt(weights)[:, None]
    target = scale * (np.eye(classes)[given] - shares)
    best, least = (_Kernel(ranks, landmarks, 1.0, np.zeros((len(chosen), classes)), shares), target), np.inf
    for width in _WIDTHS:
        kernel = np.exp(-width / median * distances)
        root = np.linalg.cholesky(kernel[chosen] + _JITTER * np.eye(len(chosen)))
        mapped = scale * solve_triangular(root, kernel.T, lower=True, check_finite=False).T
        values, vectors = np.linalg.eigh(mapped.T @ mapped)
        mapped = mapped @ vectors
        projected, squares = mapped.T @ target, mapped**2
        for penalty in _PENALTIES:
            shrunk = 1 / (np.maximum(values, 0) + penalty)
            residual = (target - mapped @ (shrunk[:, None] * projected)) / np.maximum(1 - squares @ shrunk, 0.01)[:, None]
            error = float((residual**2).mean())
            if error < least:
                coefficients = solve_triangular(root, vectors @ (shrunk[:, None] * projected), lower=True, trans="T", check_finite=False)
                best, least = (_Kernel(ranks, landmarks, width / median, coefficients, shares), target - residual), error
    model, without = best
    return model, _probabilities(without / scale + shares)


@dataclass(frozen=True, eq=False)
class _Logistic:
    """Logistic regressions on standardised columns, each fitted without one of the folds.

    Args:
        mean: of the columns.
        spread: their standard deviations; 1 for constant columns.
        shares: of the classes.
        models: one for each fold; None if its rows have one class.
    """

    mean: Floats
    spread: Floats
    shares: Floats
    models: list[Any]

    def predict(self, table: Floats) -> Floats:
        """The mean over the models."""
        found = [self.of_fold(number, table) for number in range(len(self.models))]
        return np.mean(found, axis=0) if found else np.tile(self.shares, (len(table), 1))

    def of_fold(self, number: int, table: Floats) -> Floats:
        """What one of the models says."""
        model = self.models[number]
        if model is None:
            return np.tile(self.shares, (len(table), 1))
        return _of_classes(model, model.predict_proba((table - self.mean) / self.spread), len(self.shares))


def _logistic(table: Floats, given: Ints, classes: int, seed: int, weights: Floats | None) -> tuple[_Logistic, Floats]:
    """Logistic regressions, and what they say of each row by a model of the other folds."""
    from sklearn.exceptions import ConvergenceWarning
    from sklearn.linear_model import LogisticRegression
    from sklearn.model_selection import StratifiedKFold

    counts, spread = np.bincount(given, minlength=classes), table.std(0)
    whole = _Logistic(table.mean(0), np.where(spread > 0, spread, 1), counts / len(given), [])
    probabilities = np.tile(whole.shares, (len(table), 1))
    folds = min(_FOLDS, int(counts.max()))
    if folds < 2:  # every label is of another class
        return whole, probabilities
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # a class with fewer labels than folds
        warnings.simplefilter("ignore", ConvergenceWarning)
        for number, (train, judged) in enumerate(StratifiedKFold(folds, shuffle=True, random_state=seed).split(table, given)):
            rows = np.random.default_rng(seed).permutation(train)[:_ROWS_OF_A_FOLD]
            model = None
            if len(np.unique(given[rows])) > 1:
                scaled = (table[rows] - whole.mean) / whole.spread
                model = LogisticRegression(max_iter=_STEPS).fit(scaled, given[rows], None if weights is None else weights[rows])
            whole.models.append(model)
            probabilities[judged] = whole.of_fold(number, table[judged])
    return whole, probabilities


def _squared_distances(rows: Floats, others: Floats) -> Floats:
    distances: Floats = (rows**2).sum(1)[:, None] + (others**2).sum(1) - 2 * rows @ others.T
    return np.maximum(distances, 0)
