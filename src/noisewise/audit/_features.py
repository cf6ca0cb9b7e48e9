"""Evidence about labels from features: class probabilities by models that never see the label they judge.

Tables are judged by three models. A random forest judges an example by the trees that were grown without it. Kernel ridge regression has
the prediction without an example in closed form, so it is fitted once. Logistic regression is fitted in five folds. All are fast, and err
in different ways: the forest cuts single columns, the kernel is smooth, and logistic regression is linear.

Many rows with many columns of measurements are embeddings. No single column means much there, and a logistic regression follows wrong
labels. So they are judged by three models of their principal components: the same kernel ridge regression with more landmarks, the nearest
neighbours, and a logistic regression with a strong penalty.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from noisewise.arrays import Floats, Ints
from noisewise.errors import InputError, invalid_parameter

Singles = NDArray[np.float32]

_TREES, _LEAF, _ROWS_OF_A_TREE = 200, 3, 10_000
_LANDMARKS = 300
_WIDTHS = (0.25, 1.0, 4.0)  # of the kernel, relative to the median distance
_PENALTIES = (0.1, 1.0, 10.0)
_FOLDS, _ROWS_OF_A_FOLD, _STEPS = 5, 10_000, 300
_STRENGTH, _ROWS_OF_EMBEDDINGS = 0.01, 40_000  # C of logistic regression on embeddings, and the rows it is fitted to
_JITTER, _LEAST = 1e-3, 1e-3
_SAMPLE = 4_000_000  # distances to take the median of
_MANY_ROWS, _MANY_COLUMNS = 2_000, 128  # from here on, a table of measurements is taken for embeddings
_SAMPLED, _DISTINCT = 200, 50  # rows in which a measurement has at least so many different values; categories have two
_COMPONENTS = 256  # principal components of embeddings
_LANDMARKS_OF_EMBEDDINGS, _CELLS = 2_000, 100_000_000  # the cells are rows times landmarks
_NEIGHBOURS, _REFERENCES = 30, 20_000
_BLOCK = 1024  # rows at a time, so that what is computed of them stays small
_WHITENING = 0.25  # components are divided by their variance to this power before neighbours are searched
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


class _Judge(Protocol):
    """A fitted model of the classes."""

    def predict(self, table: Floats) -> Floats:
        """Class probabilities of new rows."""


@dataclass(frozen=True, eq=False)
class FeatureModels:
    """Models of labels on features: see the first lines of this module.

    Args:
        evidence: what each says of the rows it was fitted on, without having seen their labels, as `evidence_from_features` returns it.

    Example:
        >>> rows = np.random.default_rng(0).normal(size=(200, 3))
        >>> models = FeatureModels.fit(rows, (rows[:, 0] > 0).astype(int))
        >>> [table.shape for table in models.predict(rows[:5])]
        [(5, 2), (5, 2), (5, 2)]
    """

    evidence: tuple[Floats, ...]
    _judges: tuple[_Judge, ...]

    @classmethod
    def fit(
        cls, features: Any, labels: Any, *, num_classes: int | None = None, seed: int = 0, weights: Floats | None = None
    ) -> FeatureModels:
        """Fit the models.

        Args:
            features: numbers (N, columns); other shapes are flattened.
            labels: the given labels (N,), class numbers from 0.
            num_classes: the number of classes; by default the largest label plus one.
            seed: of the forest, of the rows that the kernel is built on, of the rows to compare with, and of the folds.
            weights: how often each row counts (N,), above 0; by default once.
        """
        table, given = _checked(features, labels)
        classes = int(given.max()) + 1 if num_classes is None else num_classes
        if _are_embeddings(table):
            fitted = _judges_of_embeddings(table.astype(np.float32, copy=False), given, classes, seed, weights)
        else:
            fitted = _judges_of_table(table.astype(np.float64, copy=False), given, classes, seed, weights)
        judges, evidence = zip(*fitted, strict=True)
        return cls(tuple(_resolved(found) for found in evidence), judges)

    def predict(self, features: Floats) -> tuple[Floats, ...]:
        """Class probabilities of new rows (N, columns), one array (N, classes) per model."""
        return tuple(_resolved(judge.predict(features)) for judge in self._judges)


Fitted = tuple[_Judge, Floats]
"""A model, and what it says of the rows it was fitted on without having seen their labels."""


def _are_embeddings(table: Floats) -> bool:
    """Whether a table has many rows, and many columns of measurements rather than of categories."""
    if len(table) < _MANY_ROWS or table.shape[1] < _MANY_COLUMNS:
        return False
    sample = np.sort(table[:: max(1, len(table) // _SAMPLED)][:_SAMPLED], axis=0)
    distinct = 1 + np.count_nonzero(np.diff(sample, axis=0), axis=0)
    return bool(np.median(distinct) >= _DISTINCT)


def _judges_of_table(table: Floats, given: Ints, classes: int, seed: int, weights: Floats | None) -> list[Fitted]:
    from threadpoolctl import threadpool_limits

    forest = _forest(table, given, classes, seed, weights)
    with threadpool_limits(1, user_api="blas"):  # threads cost more than they save on matrices of this size
        ranks, rows = _Ranks.of(table)
        kernel = _kernel(ranks, rows.astype(np.float32), given, classes, seed, weights, _LANDMARKS, _WIDTHS)
        standardised = _Standardised.of(table)
        return [forest, kernel, _logistic(standardised, standardised(table), given, classes, seed, weights)]


def _judges_of_embeddings(table: Singles, given: Ints, classes: int, seed: int, weights: Floats | None) -> list[Fitted]:
    components = _Components.of(table)
    rows = components(table)
    landmarks = min(_LANDMARKS_OF_EMBEDDINGS, max(_LANDMARKS, _CELLS // len(table)))
    kernel = _kernel(components, rows, given, classes, seed, weights, landmarks, _WIDTHS[1:2])
    neighbours = _neighbours(components, rows, given, classes, seed, weights)
    logistic = _logistic(components, rows, given, classes, seed, weights, _STRENGTH, _ROWS_OF_EMBEDDINGS)
    return [kernel, neighbours, logistic]


def _resolved(probabilities: Floats) -> Floats:
    return np.asarray((probabilities + _RESOLUTION) / (1 + probabilities.shape[1] * _RESOLUTION))


def _checked(features: Any, labels: Any) -> tuple[Floats, Ints]:
    table = np.asarray(features)
    table = table if table.dtype == np.float32 else table.astype(np.float64)
    given = np.asarray(labels)
    if table.ndim < 2 or len(table) != len(given) or given.ndim != 1 or given.dtype.kind not in "iu":
        got = f"features shaped {table.shape} and labels shaped {given.shape} of type {given.dtype}"
        raise invalid_parameter("features", "evidence_from_features", "one row of numbers for each label, a class number", got)
    if not np.isfinite(table).all():
        raise invalid_parameter("features", "evidence_from_features", "finite", "NaN or infinity")
    if len(np.unique(given)) < 2:
        raise InputError("Labels can be judged only if there are at least two classes. Got labels of one class.")
    return table.reshape(len(table), -1), given.astype(np.int64)


@dataclass(frozen=True, eq=False)
class _Ranks:
    """Each column as ranks with mean 0 and variance 1, so that outliers do not decide distances; constant columns are left out.

    A new number gets the rank between its neighbours of the table.

    Args:
        varying: which columns are not constant.
        sorted: these columns, each in ascending order.
        mean: of the ranks.
        spread: their standard deviations.
    """

    varying: NDArray[np.bool_]
    sorted: Floats
    mean: float
    spread: Floats

    @classmethod
    def of(cls, table: Floats) -> tuple[_Ranks, Floats]:
        """The ranks of a table, and the table as ranks."""
        varying = table.min(0) < table.max(0)
        ordered = np.sort(table[:, varying], 0)
        plain = cls(varying, ordered, 0.0, np.ones(ordered.shape[1]))(table)
        scaled = cls(varying, ordered, (len(table) + 1) / 2, plain.std(0)) if varying.any() else cls(varying, ordered, 0.0, np.ones(1))
        return scaled, (plain - scaled.mean) / scaled.spread

    def __call__(self, table: Floats) -> Floats:
        if not self.sorted.shape[1]:
            return np.zeros((len(table), 1))
        columns = zip(self.sorted.T, table[:, self.varying].T, strict=True)
        ranks = [(np.searchsorted(known, new, "left") + np.searchsorted(known, new, "right") + 1) / 2 for known, new in columns]
        return np.asarray((np.stack(ranks, 1) - self.mean) / self.spread)


@dataclass(frozen=True, eq=False)
class _Forest:
    model: Any
    classes: int

    def predict(self, table: Floats) -> Floats:
        return _of_classes(self.model, self.model.predict_proba(table), self.classes)


def _forest(table: Floats, given: Ints, classes: int, seed: int, weights: Floats | None) -> tuple[_Forest, Floats]:
    """A forest, and the mean class shares in the leaves of the trees that were grown without the example."""
    from sklearn.ensemble import RandomForestClassifier

    rows = table.astype(np.float32)  # the trees compute in this precision
    model = RandomForestClassifier(
        _TREES, min_samples_leaf=_LEAF, max_samples=min(1.0, _ROWS_OF_A_TREE / len(table)), random_state=seed
    ).fit(rows, given, sample_weight=weights)
    shares, trees = np.zeros((len(rows), len(model.classes_))), np.zeros(len(rows))
    for tree, grown_on in zip(model.estimators_, model.estimators_samples_, strict=True):
        found = tree.predict_proba(rows, check_input=False)
        found[grown_on] = 0
        shares += found
        trees += found.any(1)
    # An example that every tree was grown on gets the shares of the classes.
    means = _of_classes(model, shares / np.maximum(trees, 1)[:, None], classes)
    return _Forest(model, classes), np.where(trees[:, None] > 0, means, np.bincount(given, minlength=classes) / len(given))


def _of_classes(model: Any, found: Floats, classes: int) -> Floats:
    """Probabilities with a column for every class, also for those that no row has."""
    probabilities = np.zeros((len(found), classes))
    probabilities[:, model.classes_] = found
    return probabilities


@dataclass(frozen=True, eq=False)
class _Components:
    """The principal components of standardised columns; constant columns are ignored.

    Args:
        mean: of the columns.
        spread: their standard deviations; 1 for constant columns.
        axes: (columns, components), the largest component first.
        variances: of the components.
    """

    mean: Singles
    spread: Singles
    axes: Singles
    variances: Singles

    @classmethod
    def of(cls, table: Singles) -> _Components:
        from scipy.linalg import eigh  # type: ignore[import-untyped]

        mean, columns = table.mean(0, dtype=np.float64).astype(np.float32), table.shape[1]
        products = np.zeros((columns, columns))
        for start in range(0, len(table), _BLOCK):
            centred = table[start : start + _BLOCK] - mean
            products += centred.T @ centred
        spread = np.sqrt(np.diag(products) / len(table))
        spread = np.where(spread > 0, spread, 1)
        correlations = products / (len(table) - 1) / spread / spread[:, None]
        variances, axes = eigh(correlations, subset_by_index=(max(0, columns - _COMPONENTS), columns - 1))
        found = (spread, axes[:, ::-1], np.maximum(variances[::-1], 0))
        return cls(mean, *(each.astype(np.float32) for each in found))

    def __call__(self, table: Floats | Singles) -> Singles:
        axes, rows = self.axes / self.spread[:, None], np.empty((len(table), self.axes.shape[1]), dtype=np.float32)
        for start in range(0, len(table), _BLOCK):
            part = slice(start, start + _BLOCK)
            rows[part] = (table[part].astype(np.float32, copy=False) - self.mean) @ axes
        return rows

    def directions(self, rows: Singles) -> Singles:
        """The directions of rows of components, whitened a little."""
        whitened = rows / np.maximum(self.variances, 1e-6) ** _WHITENING
        return np.asarray(whitened / np.maximum(np.linalg.norm(whitened, axis=1, keepdims=True), 1e-6))


@dataclass(frozen=True, eq=False)
class _Kernel:
    """Kernel ridge regression: the kernel of a row with each landmark, times their coefficients.

    Args:
        scale: turns numbers into comparable ones, such as ranks.
        landmarks: some rows, scaled.
        rate: the kernel is exp(−rate · squared distance).
        coefficients: of each landmark for each class.
        shares: of the classes.
    """

    scale: Callable[[Floats], Floats]
    landmarks: Floats
    rate: float
    coefficients: Floats
    shares: Floats

    def predict(self, table: Floats) -> Floats:
        kernel = np.exp(-self.rate * _squared_distances(self.scale(table), self.landmarks))
        return _probabilities(kernel @ self.coefficients + self.shares)


def _probabilities(scores: Floats) -> Floats:
    scores = np.maximum(scores, _LEAST)
    return np.asarray(scores / scores.sum(1, keepdims=True))


def _kernel(
    scale: Callable[[Floats], Any],
    rows: Any,
    given: Ints,
    classes: int,
    seed: int,
    weights: Floats | None,
    number: int,
    widths: Sequence[float],
) -> tuple[_Kernel, Floats]:
    """Kernel ridge regression of the classes on landmark rows; the width and the penalty with the smallest error without the example.

    Returns also what it says of each row without having seen it.

    Args:
        rows: the scaled rows, in the precision to compute in.
        number: of landmarks.
    """
    from scipy.linalg import solve_triangular

    weights = np.ones(len(rows)) if weights is None else weights
    chosen = np.random.default_rng(seed).permutation(len(rows))[:number]
    landmarks = rows[chosen]
    distances = _squared_distances(rows, landmarks)
    median = max(float(np.median(distances[:: max(1, distances.size // _SAMPLE)])), 1e-12)
    shares = np.bincount(given, weights, minlength=classes) / weights.sum()
    root_weights = np.sqrt(weights)[:, None].astype(rows.dtype)
    target = root_weights * (np.eye(classes)[given] - shares).astype(rows.dtype)
    best, least = (_Kernel(scale, landmarks, 1.0, np.zeros((len(chosen), classes)), shares), target), np.inf
    for width in widths:
        kernel = distances * distances.dtype.type(-width / median)
        np.exp(kernel, out=kernel)
        root = np.linalg.cholesky(kernel[chosen].astype(np.float64) + _JITTER * np.eye(len(chosen)))
        mapped = solve_triangular(root.astype(rows.dtype), kernel.T, lower=True, overwrite_b=True, check_finite=False).T
        del kernel  # it is overwritten
        mapped *= root_weights
        values, vectors = np.linalg.eigh((mapped.T @ mapped).astype(np.float64))
        turned = vectors.astype(rows.dtype)
        every = (1 / (np.maximum(values, 0) + np.array(_PENALTIES)[:, None])).astype(rows.dtype)
        own = np.empty((len(every), len(rows)), dtype=rows.dtype)  # how much a row decides its own prediction
        for start in range(0, len(rows), _BLOCK):
            part = slice(start, start + _BLOCK)
            mapped[part] = mapped[part] @ turned
            own[:, part] = every @ mapped[part].T ** 2
        projected = mapped.T @ target
        for shrunk, share in zip(every, own, strict=True):
            residual = (target - mapped @ (shrunk[:, None] * projected)) / np.maximum(1 - share, 0.01)[:, None]
            error = float((residual**2).mean())
            if error < least:
                coefficients = solve_triangular(root, vectors @ (shrunk[:, None] * projected), lower=True, trans="T", check_finite=False)
                best, least = (_Kernel(scale, landmarks, width / median, coefficients, shares), target - residual), error
    model, without = best
    return model, _probabilities(without / root_weights + shares)


@dataclass(frozen=True, eq=False)
class _Neighbours:
    """The share of each class among the nearest references, by the angle between rows.

    Args:
        components: of the columns.
        directions: of the references.
        votes: (references, classes): the weight of each at its label.
    """

    components: _Components
    directions: Singles
    votes: Floats

    def predict(self, table: Floats) -> Floats:
        directions = self.components.directions(self.components(table))
        return self.shares(_nearest(directions, self.directions, min(_NEIGHBOURS, len(self.directions))))

    def shares(self, nearest: Ints) -> Floats:
        """The shares of the classes among references."""
        votes = self.votes[nearest].sum(1)
        return np.asarray(votes / votes.sum(1, keepdims=True))


def _neighbours(
    components: _Components, rows: Singles, given: Ints, classes: int, seed: int, weights: Floats | None
) -> tuple[_Neighbours, Floats]:
    """The nearest of at most some thousand rows, and what they say of each row, itself left out."""
    directions = components.directions(rows)
    chosen = np.random.default_rng(seed).permutation(len(rows))[:_REFERENCES]
    votes = np.eye(classes)[given[chosen]] * (1 if weights is None else weights[chosen, None])
    model = _Neighbours(components, directions[chosen], votes)
    nearest = _nearest(directions, model.directions, min(_NEIGHBOURS, len(chosen) - 1) + 1)
    own = chosen[nearest] == np.arange(len(rows))[:, None]
    own[~own.any(1), -1] = True  # a row that is no reference leaves out its farthest neighbour
    return model, model.shares(nearest[~own].reshape(len(rows), -1))


def _nearest(directions: Singles, references: Singles, number: int) -> Ints:
    """The positions of the nearest references of each direction, the nearest first."""
    import torch

    columns, found = torch.from_numpy(references).T, np.empty((len(directions), number), dtype=np.int64)
    room = torch.empty(_BLOCK, len(references))
    for start in range(0, len(directions), _BLOCK):
        part = torch.from_numpy(directions[start : start + _BLOCK])
        cosines = torch.mm(part, columns, out=room[: len(part)])
        found[start : start + _BLOCK] = cosines.topk(number, dim=1).indices.numpy()
    return found


@dataclass(frozen=True, eq=False)
class _Standardised:
    """Columns with mean 0 and variance 1; constant columns are 0.

    Args:
        mean: of the columns.
        spread: their standard deviations; 1 for constant columns.
    """

    mean: Floats
    spread: Floats

    @classmethod
    def of(cls, table: Floats) -> _Standardised:
        spread = table.std(0)
        return cls(table.mean(0), np.where(spread > 0, spread, 1))

    def __call__(self, table: Floats) -> Floats:
        return np.asarray((table - self.mean) / self.spread)


@dataclass(frozen=True, eq=False)
class _Logistic:
    """Logistic regressions, each fitted without one of the folds.

    Args:
        scale: turns numbers into comparable ones.
        shares: of the classes.
        models: one for each fold; None if its rows have one class.
    """

    scale: Callable[[Floats], Any]
    shares: Floats
    models: list[Any]

    def predict(self, table: Floats) -> Floats:
        """The mean over the models."""
        rows = self.scale(table)
        found = [self.of_fold(number, rows) for number in range(len(self.models))]
        return np.mean(found, axis=0) if found else np.tile(self.shares, (len(table), 1))

    def of_fold(self, number: int, rows: Any) -> Floats:
        """What one of the models says of scaled rows."""
        model = self.models[number]
        if model is None:
            return np.tile(self.shares, (len(rows), 1))
        return _of_classes(model, model.predict_proba(rows), len(self.shares))


def _logistic(
    scale: Callable[[Floats], Any],
    rows: Any,
    given: Ints,
    classes: int,
    seed: int,
    weights: Floats | None,
    strength: float = 1.0,
    most: int = _ROWS_OF_A_FOLD,
) -> tuple[_Logistic, Floats]:
    """Logistic regressions, and what they say of each row by a model of the other folds.

    Args:
        rows: the scaled rows.
        strength: the C of the regressions.
        most: the number of rows that one of them is fitted to.
    """
    from sklearn.exceptions import ConvergenceWarning
    from sklearn.linear_model import LogisticRegression
    from sklearn.model_selection import StratifiedKFold

    counts = np.bincount(given, minlength=classes)
    whole = _Logistic(scale, counts / len(given), [])
    probabilities = np.tile(whole.shares, (len(rows), 1))
    folds = min(_FOLDS, int(counts.max()))
    if folds < 2:  # every label is of another class
        return whole, probabilities
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # a class with fewer labels than folds
        warnings.simplefilter("ignore", ConvergenceWarning)
        for number, (train, judged) in enumerate(StratifiedKFold(folds, shuffle=True, random_state=seed).split(rows, given)):
            kept = np.random.default_rng(seed).permutation(train)[:most]
            model = None
            if len(np.unique(given[kept])) > 1:
                model = LogisticRegression(C=strength, max_iter=_STEPS)
                model.fit(rows[kept], given[kept], None if weights is None else weights[kept])
            whole.models.append(model)
            probabilities[judged] = whole.of_fold(number, rows[judged])
    return whole, probabilities


def _squared_distances(rows: Floats, others: Floats) -> Floats:
    distances: Floats = rows @ (-2 * others.T)  # and in place from here on: this is the largest array of all
    distances += (rows**2).sum(1)[:, None]
    distances += (others**2).sum(1)
    return np.maximum(distances, 0, out=distances)
