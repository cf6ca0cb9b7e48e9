"""Robust losses as objectives of gradient boosting, with XGBoost, LightGBM and CatBoost.

Boosting needs the slope and a positive curvature of the loss at every score. A robust loss pulls an example like cross-entropy with a
weight, r = emphasis / (1 − p_y), and the curvature here is that of this weighted cross-entropy. None of the three libraries is imported.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from noisewise import losses
from noisewise.errors import InputError, invalid_parameter
from noisewise.losses import Loss
from noisewise.margin import margin
from noisewise.methods import LossPull
from noisewise.train import Recorder

Floats = NDArray[np.float64]

_LEAST_CURVATURE = 1e-16  # XGBoost's


class Objective:
    """The objective of a loss. See `objective`."""

    def __init__(self, loss: str | Loss, *, normalise: bool = True, recorder: Recorder | None = None) -> None:
        self.loss = losses.get(loss)
        if self.loss.depends_on_batch:
            raise InputError(f"Boosting needs the loss of each example alone. Got {self.loss!r}, which depends on the whole batch.")
        self.normalise, self.recorder = normalise, recorder

    def __repr__(self) -> str:
        return f"objective({self.loss!r})"

    def __call__(self, y_true: Any, y_pred: Any, sample_weight: Any = None) -> tuple[Floats, Floats]:
        """Slope and curvature, as `XGBClassifier` and `LGBMClassifier` ask for them."""
        labels = _as_labels(y_true)
        scores = torch.from_numpy(np.array(y_pred, dtype=np.float64))
        if scores.dim() == 1:
            scores = scores.view(len(labels), -1) if scores.numel() != len(labels) else scores
        binary = scores.dim() == 1
        slope, curvature = self._of_classes(_two_classes(scores) if binary else scores, labels)
        if binary:
            slope, curvature = slope[:, 1], curvature[:, 1] / 2
        if sample_weight is not None:
            weight = torch.from_numpy(np.array(sample_weight, dtype=np.float64))
            slope, curvature = (part * (weight if binary else weight.unsqueeze(1)) for part in (slope, curvature))
        return slope.numpy(), curvature.clamp(min=_LEAST_CURVATURE).numpy()

    def native(self, scores: Any, data: Any) -> tuple[Floats, Floats]:
        """Slope and curvature, as `xgboost.train` and `lightgbm.train` ask for them."""
        weight = data.get_weight()
        return self(data.get_label(), scores, None if weight is None or np.size(weight) == 0 else weight)

    def calc_ders_range(
        self, approxes: Sequence[Any], targets: Sequence[float], weights: Sequence[float] | None
    ) -> list[tuple[float, float]]:
        """Negative slopes and curvatures for two classes, as CatBoost asks for them."""
        slope, curvature = self(np.asarray(targets), np.asarray(approxes), weights)
        return list(zip((-slope).tolist(), (-curvature).tolist(), strict=True))

    def calc_ders_multi(self, approxes: Sequence[float], target: float, weight: float) -> tuple[list[float], list[list[float]]]:
        """Negative slopes and curvatures of one example, as CatBoost asks for them with several classes."""
        slope, curvature = self(np.array([target]), np.array([approxes]), None if weight is None else [weight])
        return (-slope[0]).tolist(), np.diag(-curvature[0]).tolist()

    def _of_classes(self, scores: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
        """The slope of each score and a positive curvature, (N, classes)."""
        if int(labels.max()) >= scores.shape[1]:
            raise invalid_parameter(
                "y_true", "objective", f"class numbers below {scores.shape[1]}, one score for each class", int(labels.max())
            )
        if self.recorder is not None:
            self.recorder.log(torch.arange(len(labels)), scores)
            self.recorder.end_epoch()
        gradient = LossPull(self.loss).rows(scores, labels).gradient
        p = scores.softmax(1)
        # At a saturated score both are 0 in the limit; the slope is exact, and only the curvature needs the ratio.
        weight = 0.5 * gradient.abs().sum(1, keepdim=True) / margin(scores, labels).neg().sigmoid().unsqueeze(1).clamp(min=1e-300)
        curvature = 2 * weight * p * (1 - p)
        if self.normalise and len(labels) > 1:
            mean = weight.mean().clamp(min=1e-300)
            gradient, curvature = gradient / mean, curvature / mean
        return gradient, curvature


def objective(loss: str | Loss, *, normalise: bool = True, recorder: Recorder | None = None) -> Objective:
    """An objective for gradient boosting with a robust loss, for two or more classes.

    Formula:
        slope = ∂L/∂s,    curvature = 2 r p (1 − p)  (r p (1 − p) with one score for two classes),    r = emphasis / (1 − p_y)

    With cross-entropy, r = 1 and these are XGBoost's own slopes and curvatures.

    Args:
        loss: a loss or its spec. It must not depend on the whole batch.
        normalise: divide both by the mean of r in every round. Steps are the same, but regularisation (`min_child_weight`, `lambda`) acts
            as with cross-entropy; without it, losses with little emphasis may not split at all. CatBoost asks for one example at a time
            with several classes, which are not normalised.
        recorder: records the scores of every round as an epoch, so that the rounds can be audited.

    Returns:
        A callable for ``XGBClassifier(objective=…)`` and ``LGBMClassifier(objective=…)``. Its method `native` is for ``xgboost.train(…,
        obj=…)`` and for the ``objective`` of ``lightgbm.train``. The object itself is for ``CatBoostClassifier(loss_function=…)``.

    Example:
        >>> slope, curvature = objective("ce")([1, 0], [0.0, 0.0])
        >>> slope, curvature
        (array([-0.5,  0.5]), array([0.25, 0.25]))
    """
    return Objective(loss, normalise=normalise, recorder=recorder)


def probabilities(scores: Any) -> Floats:
    """Class probabilities (N, classes) from raw scores: libraries return raw scores if they do not know the objective.

    Args:
        scores: (N, classes), or (N,) for two classes.

    Example:
        >>> probabilities([0.0, 2.0]).round(3)
        array([[0.5  , 0.5  ],
               [0.119, 0.881]])
    """
    values = torch.from_numpy(np.array(scores, dtype=np.float64))
    return (_two_classes(values) if values.dim() == 1 else values).softmax(1).numpy()


def error_rate(y_true: Any, y_pred: Any, weight: Any = None) -> tuple[str, float, bool]:
    """The share of wrong predictions, for ``eval_metric`` of LightGBM, whose own metrics take raw scores for probabilities.

    Example:
        >>> error_rate([0, 1, 1], [-2.0, 1.0, -0.5])
        ('error_rate', 0.3333333333333333, False)
    """
    scores = np.asarray(y_pred, dtype=np.float64)
    predicted = (scores > 0).astype(int) if scores.ndim == 1 else scores.argmax(1)
    return "error_rate", float(np.average(predicted != np.asarray(y_true), weights=weight)), False


def _two_classes(scores: Tensor) -> Tensor:
    return torch.stack([torch.zeros_like(scores), scores], 1)


def _as_labels(values: Any) -> Tensor:
    """Class numbers as integers; the libraries give them as floating point."""
    numbers = np.asarray(values)
    labels = numbers.astype(np.int64)
    if labels.ndim != 1 or not np.array_equal(labels, numbers) or labels.min(initial=0) < 0:
        raise invalid_parameter("y_true", "objective", "the number of a class for each row", values)
    return torch.from_numpy(labels)
