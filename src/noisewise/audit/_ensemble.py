"""A classifier for tables with wrong labels, made of the models that judge the labels.

It knows neither runs nor networks.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from noisewise.arrays import Floats, Ints
from noisewise.audit._features import FeatureModels
from noisewise.audit._noise_model import NoiseModel, fit_noise_model

_TREES, _POWER = 100, 1.2
_CELLS_OF_A_TREE = 250_000  # rows times classes; the trees of a very large table see a part of the rows each, and take 400 MB in all
STAGES = 3
"""How often `RobustEnsemble.fit` calls `watch`."""


@dataclass(frozen=True, eq=False)
class RobustEnsemble:
    """Models of tables or embeddings (see `FeatureModels`) and extremely randomised trees, which do not believe every label.

    Formula:
        q₁ = P(class | row) by the model of classes and noise, which pools the former (see `find_label_issues`)
        q₂ = the mean of P(class | row, given label) over the leaves of extra trees, which are grown on these soft labels
        P(class | row) ∝ v (q₁ + q₂)^1.2,  where v is the mean weight of the examples labelled with the class

    The former are fitted to the given labels. How often they contradict labels that they have not seen says how many labels are
    wrong and how sure the classes are, so q₁ is calibrated for the true classes. The extra trees then learn from labels whose doubtful
    part is shared between the classes. The parts and the power, which makes up for the mean being less sure than its parts, were chosen
    on half of the tables of benchmarks/defaults.py, before logistic regressions were added to what judges labels.

    Args:
        models: for tables a forest, a kernel and logistic regressions; `models.evidence` judges the labels.
        noise: the model of classes and noise.

    Example:
        >>> rng = np.random.default_rng(0)
        >>> rows = rng.normal(size=(600, 4))
        >>> true = (rows[:, 0] > 0).astype(int)
        >>> given = np.where(rng.random(600) < 0.2, 1 - true, true)
        >>> ensemble = RobustEnsemble.fit(rows, given)
        >>> round(ensemble.noise.rate, 1), bool((ensemble.probabilities(rows).argmax(1) == true).mean() > 0.95)
        (0.2, True)

    Reference:
        Patrini et al., Making Deep Neural Networks Robust to Label Noise: a Loss Correction Approach, CVPR 2017 (the matrix of the noise);
        Geurts et al., Extremely randomized trees, Machine Learning 2006.
    """

    models: FeatureModels
    noise: NoiseModel
    _trees: Any
    _class_weights: Floats

    @classmethod
    def fit(
        cls,
        features: Floats,
        labels: Ints,
        *,
        num_classes: int | None = None,
        seed: int = 0,
        weights: Floats | None = None,
        watch: Callable[[int, int], None] | None = None,
    ) -> RobustEnsemble:
        """Fit the models.

        Args:
            features: numbers (N, columns).
            labels: the given labels (N,), class numbers from 0.
            num_classes: the number of classes; by default the largest label plus one.
            seed: of the trees and of the rows that the kernel is built on.
            weights: how often each row counts (N,), above 0; by default once. The mean weight of a class shifts the probabilities at the
                end, so that rare classes are not taken for wrong labels because they count more.
            watch: called with the number of finished stages and of all stages.
        """
        from sklearn.ensemble import ExtraTreesRegressor

        def finished(stage: int) -> None:
            if watch is not None:
                watch(stage, STAGES)

        classes = int(labels.max()) + 1 if num_classes is None else num_classes
        of_class, within = _split_weights(labels, classes, weights)
        models = FeatureModels.fit(features, labels, num_classes=classes, seed=seed, weights=within)
        finished(1)
        noise = fit_noise_model(models.evidence, labels)
        finished(2)
        most = _CELLS_OF_A_TREE // classes
        subsample = {"bootstrap": True, "max_samples": most} if len(features) > most else {}
        trees = ExtraTreesRegressor(_TREES, max_features="sqrt", random_state=seed, **subsample)
        trees.fit(features, noise.classes_given(models.evidence, labels), sample_weight=within)
        finished(3)
        return cls(models, noise, trees, of_class)

    def probabilities(self, features: Floats) -> Floats:
        """Class probabilities of rows (N, columns): (N, classes)."""
        both = self.noise.classes_of(self.models.predict(features)) + self._trees.predict(features)
        chances = both**_POWER * self._class_weights
        return np.asarray(chances / chances.sum(1, keepdims=True))


def _split_weights(labels: Ints, classes: int, weights: Floats | None) -> tuple[Floats, Floats | None]:
    """The mean weight of each class, and the weights of the rows relative to it; None if these are all one."""
    if weights is None:
        return np.ones(classes), None
    counts = np.bincount(labels, minlength=classes)
    of_class = np.where(counts > 0, np.bincount(labels, weights, minlength=classes) / np.maximum(counts, 1), 1.0)
    within = weights / of_class[labels]
    return of_class, None if np.allclose(within, 1) else within
