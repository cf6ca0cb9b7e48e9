"""The chance that each label is wrong, from class probabilities by models that did not see the label: one model of classes and noise.

Formula:
    P(class k | example)           = softmax_k(α_k + Σ_m β_m log q_mk)     the evidence q_m of several models, pooled
    P(given label j | class k)     = T_kj                            the noise
    P(given label j | example)     = Σ_k P(class k | example) T_kj   is fitted to the given labels
    chance that the label is wrong = (1 − P(class = given label | example, given label)) · r / (r + o)
    several models: the mean over kinds and rates of noise; then log-odds of the chance ← log-odds + 0.95

The given labels decide how sharp the classes are (β) and how much noise there is (T), by maximum likelihood. Both are identified because
they look different: overlapping classes make a model unsure of some examples and sure of others, while noise contradicts a fixed share of
the labels even where every model is sure. So noise that hides where classes overlap is invisible here; `LabelIssues.caution` says so.

Noise is alike for all classes, or each class has its own. K² numbers fit any labels better than one number, also labels without noise. So
the noise of each class counts by the mean likelihood over all such noise that is plausible, not by that of the best one. (It is bounded
from below by variational expectation maximisation, with a Dirichlet distribution for each row of T.)

The last factor is for odd examples: in each of the K classes, about one example is unlike all others of the class, so that every model
contradicts its right label. Their share is o = min(K / N, 0.005). It matters only if the share r of wrong labels is small.

Trained models are not exactly as the formula says. So with several of them, half of the chance is that of the most likely noise, and half
the mean over more and less noise of both kinds, by likelihoods to the power 0.1. The last line calibrates this. Its number, and all others
here, were chosen on half of the tables of benchmarks/tables.py.

This module knows neither runs nor features.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from noisewise.arrays import Flags, Floats, Ints

Singles = NDArray[np.float32]

_LEAST = 0.001  # is added to all probabilities, so that none is zero
_OFFSET = 0.05  # the least deviation of the α, before any label is seen
_MOST_OFFSETS = 100  # with more classes, the α are 0
_SHARPNESS = 2.0  # the sum of the β, before any label is seen; its logarithm has deviation 1
_BORROWED = 1.5  # each class borrows the strength of this many wrong labels, at most its size, from noise that is alike for all classes
_SURPRISE = 3.0  # how much more likely noise of a single class must make the labels than noise of all classes
_RARE = 0.5  # of the mean class size: noise of a single class is tried for classes with fewer labels
_MOST_SINGLE = 10  # with more classes, it is not tried
_ELSEWHERE = 0.001  # the rate of the other classes then
_RATES = (0.002, 0.01, 0.02, 0.035, 0.05, 0.075, 0.1, 0.15, 0.2, 0.25, 0.3, 0.35, 0.4, 0.5, 0.6, 0.7, 0.8)
_ROUNDS, _STEPS = 12, 3
_DROP, _MISFIT = 0.5, 10.0  # of the logarithm of the likelihood; it grows with the share of contradictions that noise does not explain
_POWER = 0.1  # of the likelihood of a kind and rate of noise
_SHIFT = 0.95  # calibrates the chances by several models
_LEAST_CHANCE = 0.4  # of a doubtful label
_AGREEMENT = 3.0  # standard deviations above the agreement by chance, or the evidence says nothing
_MOST_ODD = 0.005  # the largest share of odd examples that lowers chances
_OVERLAP = 0.12  # a share of contradicted labels beyond the interval: all of them may be wrong; of a smaller one, a third
_CELLS = 4_000_000  # of the table of probabilities used for fitting


@dataclass(frozen=True, eq=False)
class NoiseModel:
    """The fitted model.

    Args:
        chance: the chance that each label is wrong.
        doubtful: the labels to check: as many of the highest chances as give the highest expected F1, none with a chance below 0.4.
        best: the most probable class, given the evidence and the label; for a doubtful label, the most probable other class.
        best_chance: its probability.
        predicted: the most probable class by the evidence alone.
        rate: the expected share of wrong labels.
        interval: an interval of that share: the rates that the likelihood ratio does not reject. It is wider, the more labels are
            contradicted that noise does not explain. Of the labels contradicted beyond that, it includes a third, or all if they are
            many, because noise can hide where classes overlap. Odd examples may be right, so it begins lower by their share.
        matrix: T; how labels of each class (row) were given.
        weights: β, one for each evidence, then α, one for each class.
        judged: whether the evidence says anything about the labels. If not, all chances are halved.
    """

    chance: Floats
    doubtful: Flags
    best: Ints
    best_chance: Floats
    predicted: Ints
    rate: float
    interval: tuple[float, float]
    matrix: Floats
    weights: Floats
    judged: bool

    def classes_of(self, evidence: Sequence[Floats]) -> Floats:
        """P(class | example) of new examples: the evidence of the same models (N, K), pooled."""
        return _pooled(self.weights, _logarithms(evidence)).astype(np.float64)

    def classes_given(self, evidence: Sequence[Floats], given: Ints) -> Floats:
        """P(class | example, given label), (N, K)."""
        posterior = self.classes_of(evidence) * self.matrix.T[given]
        return np.asarray(posterior / posterior.sum(1, keepdims=True))

    @property
    def counts(self) -> tuple[float, float]:
        """The confidence interval of the number of wrong labels."""
        low, high = self.interval
        return low * len(self.chance), high * len(self.chance)


def fit_noise_model(evidence: Sequence[Floats], given: Ints) -> NoiseModel:
    """Fit the model, and say which labels look wrong.

    Args:
        evidence: class probabilities (N, K) of one or more models, each from training without the example.
        given: the given labels (N,).

    Example:
        >>> rng = np.random.default_rng(0)
        >>> true = rng.integers(3, size=900)
        >>> given = np.where(rng.random(900) < 0.2, (true + 1) % 3, true)
        >>> model = fit_noise_model([0.05 + 0.85 * np.eye(3)[true]], given)
        >>> round(model.rate, 2), round(float((model.chance > 0.5)[given != true].mean()), 2)
        (0.2, 1.0)

    Reference:
        Sukhbaatar et al., Training Convolutional Networks with Noisy Labels, ICLR 2015 workshop (T as the last layer);
        Beal, Variational Algorithms for Approximate Bayesian Inference, 2003 (the mean likelihood of the noise of each class).
    """
    from threadpoolctl import threadpool_limits

    with threadpool_limits(1, user_api="blas"):  # threads cost more than they save on matrices of this size
        return _fit_noise_model(evidence, given)


def _fit_noise_model(evidence: Sequence[Floats], given: Ints) -> NoiseModel:
    examples, classes = evidence[0].shape
    rows = _rows(examples, classes)
    part = _Fit.of([table[rows] for table in evidence], given[rows])
    fitted = _fitted(part, classes)
    return _judged(evidence, given, fitted, part.agrees(fitted.best.weights))


def _fitted(part: _Fit, classes: int) -> _Fitted:
    """The most likely noise, alike for all classes or of each class, and the likelihood of more or less noise of both kinds."""
    alike = part.profile(partial(_alike, classes=classes), part.start, classes)
    best = _most_likely(alike)
    of_classes = part.by_class(part.sharper, part.confusions(best.weights, classes))
    best = _most_likely((best, of_classes.best))
    single = part.single(classes)
    if single and _most_likely(single).likelihood > best.likelihood + _SURPRISE:
        return _Fitted(_most_likely(single), [single])
    return _Fitted(best, [alike, part.profile(of_classes.at, of_classes.best.weights, classes, of_classes.average)])


def _most_likely(points: Sequence[_Point]) -> _Point:
    return max(points, key=lambda point: point.likelihood)


def _rows(examples: int, classes: int) -> Ints:
    """The examples to fit on: all, or a random part of a very large table."""
    number = max(2000, _CELLS // classes)
    return np.arange(examples) if examples <= number else np.sort(np.random.default_rng(0).choice(examples, number, replace=False))


def _judged(evidence: Sequence[Floats], given: Ints, fitted: _Fitted, judged: bool) -> NoiseModel:
    """Apply the fitted model to all examples, block by block."""
    (examples, classes), several = evidence[0].shape, len(evidence) > 1
    best = fitted.best
    noises = [(1.0, best)]
    if several:
        noises = [(0.5, best), *((0.5 * share, point) for share, point in _shares(fitted.kinds) if share > 2e-4)]
    chance, share_of_other = np.empty(examples), np.empty(examples)
    other, predicted = np.empty((2, examples), dtype=np.int64)
    size = max(1, _CELLS // classes)
    for start in range(0, examples, size):
        part, rows = slice(start, start + size), np.arange(min(size, examples - start))
        labels, logarithms = given[part], _logarithms([table[part] for table in evidence])
        posterior = np.zeros((len(labels), classes))
        for share, point in noises:
            under = point.noise().T[labels]
            under *= _pooled(point.weights, logarithms)
            under *= share / under.sum(1, keepdims=True)
            posterior += under
        predicted[part] = _pooled(best.weights[: len(evidence)], logarithms).argmax(1)  # without the α
        posterior[rows, labels] = 0
        chance[part] = posterior.sum(1)  # exact also where it is tiny
        other[part] = posterior.argmax(1)
        share_of_other[part] = posterior[rows, other[part]] / np.maximum(chance[part], 1e-300)
    odd, contradicted = classes / examples, float(np.mean(predicted != given))
    chance *= chance.mean() / (chance.mean() + min(odd, _MOST_ODD))
    chance = _calibrated(chance) if several else chance
    low, high = _interval(fitted.kinds, float(chance.mean()), contradicted, odd)
    if not judged:
        low, high = 0.0, max(high, contradicted)
        chance *= 0.5
    doubtful = _doubtful(chance)
    label = np.where(doubtful | (share_of_other * chance > 1 - chance), other, given)
    label_chance = np.where(label == given, 1 - chance, share_of_other * chance)
    return NoiseModel(
        chance, doubtful, label, label_chance, predicted, float(chance.mean()), (low, high), best.noise(), best.weights, judged
    )


def _interval(kinds: Sequence[_Kind], rate: float, contradicted: float, odd: float) -> tuple[float, float]:
    """The interval of the share of wrong labels.

    The likelihood knows the error of a sample. How many contradictions noise does not explain says how wrong the models can be, and
    wrong labels can hide among them. Contradicted labels of odd examples look wrong and may be right.
    """
    low, high = _confidence(kinds, _DROP + _MISFIT * max(0.0, contradicted - rate))
    low, high = max(0.0, min(low, rate) - odd), max(high, rate)
    beyond = max(0.0, contradicted - high)
    return low, high + (beyond if beyond > _OVERLAP else beyond / 3)


def _doubtful(chance: Floats) -> Flags:
    """The first labels in order of their chances, as many as give the highest expected F1, none below the least chance."""
    order = np.argsort(-chance, kind="stable")
    found = chance[order].cumsum()
    number = 1 + int((found / (np.arange(1, len(order) + 1) + found[-1])).argmax())
    flags = np.zeros(len(order), dtype=bool)
    flags[order[:number]] = True
    return flags & (chance > _LEAST_CHANCE)


def _calibrated(chance: Floats) -> Floats:
    odds = np.exp(_SHIFT) * np.maximum(chance, 1e-12) / np.maximum(1 - chance, 1e-12)
    return np.asarray(odds / (1 + odds))


def _shares(kinds: Sequence[_Kind]) -> list[tuple[float, _Point]]:
    """How much each rate of each kind of noise counts, by its likelihood. All roots of rates are equally probable before that."""
    most = max(_most_likely(kind).likelihood for kind in kinds)
    found: list[tuple[float, _Point]] = []
    for kind in kinds:
        roots = np.sqrt([point.rate for point in kind])
        fine = np.linspace(0, roots[-1], 1000)
        weights = np.exp(_POWER * (np.interp(fine, roots, [point.likelihood for point in kind]) - most))
        hats = np.stack([np.interp(fine, roots, unit) for unit in np.eye(len(kind))])  # a rate between two points counts for both
        found += zip((hats @ weights).tolist(), kind, strict=True)
    total = sum(share for share, _ in found)
    return [(share / total, point) for share, point in found]


def _logarithms(evidence: Sequence[Floats]) -> Singles:
    """The logarithms of the evidence: (models, examples, classes)."""
    return np.stack([np.log(table + _LEAST).astype(np.float32) for table in evidence])


def _pooled(weights: Floats, logarithms: Singles) -> Singles:
    models = len(logarithms)
    scores = np.tensordot(weights[:models].astype(np.float32), logarithms, 1)
    scores += weights[models:].astype(np.float32) if len(weights) > models else 0
    scores -= np.ascontiguousarray(scores.T).max(0)[:, None]  # numpy is slow at the maximum, and the sum, of short rows
    np.exp(scores, out=scores)
    scores /= _row_sums(scores)[:, None]
    return scores


def _row_sums(table: Singles) -> Singles:
    return table @ np.ones(table.shape[-1], dtype=np.float32)


def _alike(rate: float, classes: int) -> Floats:
    """Noise that is alike for all classes."""
    matrix = np.full((classes, classes), rate / max(1, classes - 1))
    np.fill_diagonal(matrix, 1 - rate)
    return matrix


def _of_one(label: int, rate: float, classes: int) -> Floats:
    """Noise of a single class."""
    matrix = _alike(_ELSEWHERE, classes)
    matrix[label] = _alike(rate, classes)[label]
    return matrix


def _scaled(matrix: Floats, factor: float) -> Floats:
    """More or less noise of the same kind."""
    wrong = matrix * factor
    np.fill_diagonal(wrong, 0)
    wrong *= np.minimum(1, 0.95 / np.maximum(wrong.sum(1, keepdims=True), 1e-12))
    return wrong + np.diag(1 - wrong.sum(1))


def _off_diagonal(matrix: Floats, shares: Floats) -> float:
    return max(1e-6, float(shares @ (1 - np.diag(matrix))))


class _Point(NamedTuple):
    """A rate of a kind of noise: the best weights for it, and the logarithm of their likelihood."""

    rate: float
    likelihood: float
    weights: Floats
    noise: Callable[[], Floats]


_Kind = Sequence[_Point]
"""More and more noise of one kind."""


class _Fitted(NamedTuple):
    best: _Point
    kinds: list[_Kind]


class _OfClasses(NamedTuple):
    """Noise of each class.

    Args:
        best: the most likely one.
        shares: of the classes.
        average: is added to the logarithm of a likelihood for the best noise, which makes it about the mean over all such noise.
    """

    best: _Point
    shares: Floats
    average: float

    def at(self, rate: float) -> Floats:
        """More or less noise of this kind."""
        matrix = self.best.noise()
        shape = matrix + _alike(0.01, len(matrix)) - np.eye(len(matrix))
        return _scaled(shape, rate / _off_diagonal(shape, self.shares))


@dataclass(frozen=True, eq=False)
class _Fit:
    """The examples to fit on.

    Args:
        logarithms: of the evidence, (models, examples, classes).
        given: their labels.
        deviations: of the α, before any label is seen. The rarer a class, the more timid are models of it.
    """

    logarithms: Singles
    given: Ints
    deviations: Floats

    @classmethod
    def of(cls, evidence: Sequence[Floats], given: Ints) -> _Fit:
        logarithms = _logarithms(evidence)
        logarithms -= logarithms.mean(2, keepdims=True)
        classes = logarithms.shape[2]
        shares = (np.bincount(given, minlength=classes) + 1) / (len(given) + classes)
        deviations = np.maximum(np.minimum(np.log(classes * shares), 0) ** 2 / 2, _OFFSET)
        return cls(logarithms, given, deviations if classes <= _MOST_OFFSETS else deviations[:0])

    @property
    def start(self) -> Floats:
        models = len(self.logarithms)
        return np.concatenate([np.full(models, _SHARPNESS / models), np.zeros(len(self.deviations))])

    @property
    def sharper(self) -> Floats:
        """A start for noise of each class, which is taken to explain all contradictions at first: the classes are sharper then."""
        return 1.5 * self.start

    def profile(self, noise: Callable[[float], Floats], weights: Floats, classes: int, average: float = 0.0) -> list[_Point]:
        """The likelihood of every rate of noise, with the best weights for it."""
        points = []
        for rate in _RATES:
            if rate < 0.9 * (1 - 1 / classes):
                weights, likelihood = self.weighted(weights, noise(rate))
                points.append(_Point(rate, likelihood + average, weights, partial(noise, rate)))
        return points

    def single(self, classes: int) -> list[_Point]:
        """More and more noise of the rare class for which it is most likely; nothing if there is no rare class, or too many classes.

        A rare class borrows so much from the others that noise of it alone would be found improbable.
        """
        found = []
        counts = np.bincount(self.given, minlength=classes)
        rare = np.flatnonzero((counts > 0) & (counts < _RARE * len(self.given) / classes)).tolist()
        for label in rare if classes <= _MOST_SINGLE else ():
            points = self.profile(partial(_of_one, label, classes=classes), self.start, classes)
            share = float(np.linalg.solve(_most_likely(points).noise().T, counts / len(self.given))[label])
            found.append([point._replace(rate=point.rate * share) for point in points])
        return max(found, key=lambda points: _most_likely(points).likelihood, default=[])

    def weighted(self, weights: Floats, matrix: Floats, steps: int = _STEPS) -> tuple[Floats, float]:
        """The best weights for a noise, by Newton steps that are halved until they help."""
        noise = matrix.T[self.given].astype(np.float32)
        value, gradient, curvature = self._likelihood(weights, noise)
        for _ in range(steps):
            step = np.linalg.solve(curvature, gradient)
            for half in (1.0, 0.25):
                tried = weights + np.clip(half * step, -np.abs(weights) / 2 - 0.3, np.abs(weights) + 0.5)
                tried[: len(self.logarithms)] = np.maximum(tried[: len(self.logarithms)], 0.01)
                found = self._likelihood(tried, noise)
                if found[0] > value:
                    break
            else:
                break
            gained = found[0] - value
            weights, (value, gradient, curvature) = tried, found
            if gained < 0.01:
                break
        return weights, value

    def _likelihood(self, weights: Floats, noise: Singles) -> tuple[float, Floats, Floats]:
        """The logarithm of likelihood and prior, its gradient, and minus its curvature."""
        pooled = _pooled(weights, self.logarithms)
        posterior = pooled * noise
        given = _row_sums(posterior)
        posterior /= given[:, None]
        models, size = len(self.logarithms), len(weights)
        difference = posterior - pooled
        gradient = np.concatenate([np.tensordot(self.logarithms, difference, 2), difference.sum(0)[: size - models]]).astype(np.float64)
        before, after = (self._spread(table, size) for table in (pooled, posterior))
        prior = np.diag(np.concatenate([np.full(models, 1e-3), self.deviations**-2]))
        total, offsets = weights[:models].sum(), weights[models:]
        distance = np.log(total / _SHARPNESS)
        prior[:models, :models] += 1 / total**2
        gradient -= np.concatenate([np.full(models, distance / total), offsets / self.deviations**2])
        curvature = before - after + prior
        if np.linalg.eigvalsh(curvature).min() < 1e-3 * np.trace(before) / size:
            curvature = before + prior  # always positive: the step of expectation maximisation
        value = float(np.log(given.astype(np.float64)).sum()) - distance**2 / 2 - float(((offsets / self.deviations) ** 2).sum()) / 2
        return value, gradient, curvature

    def _spread(self, table: Singles, size: int) -> Floats:
        """The covariances of the logarithms, and of the classes, under each row, summed over the examples."""
        models = len(self.logarithms)
        weighted = self.logarithms * table
        means = _row_sums(weighted)
        spread = np.zeros((size, size))
        spread[:models, :models] = weighted.reshape(models, -1) @ self.logarithms.reshape(models, -1).T - means @ means.T
        if size > models:
            spread[:models, models:] = np.ones(len(table), dtype=np.float32) @ weighted - means @ table
            spread[models:, :models] = spread[:models, models:].T
            spread[models:, models:] = np.diag(table.sum(0)) - table.T @ table
        return spread

    def agrees(self, weights: Floats) -> bool:
        """Whether the evidence for the given labels is higher than for the same labels in a random order."""
        pooled = _pooled(weights, self.logarithms).astype(np.float64)
        pooled -= pooled.mean(0)
        shares = np.bincount(self.given, minlength=pooled.shape[1]) / len(pooled)
        mean = pooled @ shares
        agreement = (pooled[np.arange(len(pooled)), self.given] - mean).sum()
        return bool(agreement > _AGREEMENT * np.sqrt((pooled**2 @ shares - mean**2).sum()))

    def confusions(self, weights: Floats, classes: int) -> Floats:
        """How the labels would have been given if the evidence were right about every example."""
        predicted = _pooled(weights, self.logarithms).argmax(1)
        counts = np.bincount(predicted * classes + self.given, minlength=classes**2).reshape(classes, classes) + _alike(0.1, classes)
        return np.asarray(counts / counts.sum(1, keepdims=True))

    def by_class(self, weights: Floats, matrix: Floats) -> _OfClasses:
        """The noise of each class, by variational expectation maximisation; classes with few labels stay near the noise of all."""
        classes = len(matrix)
        for _ in range(_ROUNDS):
            pooled = _pooled(weights, self.logarithms).astype(np.float64)
            for _ in range(_STEPS):
                posterior = pooled * matrix.T[self.given]
                posterior /= posterior.sum(1, keepdims=True)
                counts = np.zeros((classes, classes))
                np.add.at(counts.T, self.given, posterior) if classes > 200 else self._count(counts, posterior)
                rate = float(np.clip(1 - np.trace(counts) / counts.sum(), 1e-4, 0.9 * (1 - 1 / classes)))
                borrowed = np.minimum(_BORROWED / max(rate, 0.01), counts.sum(1, keepdims=True))
                before = np.maximum(borrowed * _alike(rate, classes), 1e-6)
                matrix = np.exp(_mean_logarithms(before + counts))
            weights, bound = self.weighted(weights, matrix, 1)
        bound -= _divergence(before + counts, before)
        mean = (before + counts) / (before + counts).sum(1, keepdims=True)
        average = bound - self.weighted(weights, mean, 0)[1]
        return _OfClasses(_Point(rate, bound, weights, lambda: mean), counts.sum(1) / counts.sum(), average)

    def _count(self, counts: Floats, posterior: Floats) -> None:
        for label in range(len(counts)):
            counts[:, label] = posterior[self.given == label].sum(0)


def _mean_logarithms(counts: Floats) -> Floats:
    """The mean logarithms of the rows of a matrix, each with a Dirichlet distribution of these counts."""
    from scipy.special import digamma  # type: ignore[import-untyped]

    return np.asarray(digamma(counts) - digamma(counts.sum(1, keepdims=True)))


def _divergence(after: Floats, before: Floats) -> float:
    """The Kullback-Leibler divergence of Dirichlet distributions of rows, from those with the counts `before`."""
    from scipy.special import gammaln

    of_rows = gammaln(after.sum(1)) - gammaln(before.sum(1))
    return float(of_rows.sum() + (gammaln(before) - gammaln(after) + (after - before) * _mean_logarithms(after)).sum())


def _confidence(kinds: Sequence[_Kind], drop: float) -> tuple[float, float]:
    """The rates that a likelihood ratio test does not reject; between the points, the likelihood is interpolated."""
    least, most = kinds[0][0].rate, kinds[0][-1].rate
    fine = np.linspace(np.sqrt(least), np.sqrt(most), 400)
    of_kinds = [np.interp(fine, np.sqrt([point.rate for point in kind]), [point.likelihood for point in kind]) for kind in kinds]
    values = np.max(of_kinds, 0)
    inside = fine[values > values.max() - drop] ** 2
    low = 0.0 if inside[0] <= least else inside[0]
    return float(low), float(inside[-1])
