"""Transition matrices: counted if the true labels are known, otherwise estimated from the probabilities of a model.

Matrices have the true label first: ``T[i, j] = P(given label j | true label i)``. The estimates need probabilities of the GIVEN labels
for examples the model was not trained on, as from `sklearn.model_selection.cross_val_predict`.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor

from noisewise.errors import InputError, invalid_parameter


def as_labels(values: Any, *, what: str = "labels", owner: str, num_classes: int | None = None) -> Tensor:
    """Copy labels to an int64 tensor on the CPU, or raise `InputError`.

    Args:
        values: a tensor, an array or a list of integers.
        what: the name of the labels in errors.
        owner: the name of the function they were passed to, for errors.
        num_classes: the number of classes, which all labels must be below.

    Example:
        >>> as_labels([0, 3], owner="corrupt", num_classes=3)
        Traceback (most recent call last):
        noisewise.errors.InputError: The labels given to corrupt must be from 0 to 2, below num_classes. Got 0 to 3 instead.
    """
    try:
        array = np.asarray(values.cpu() if isinstance(values, Tensor) else values)
    except (TypeError, ValueError):
        array = np.empty(0)
    if array.ndim != 1 or array.dtype.kind not in "iu" or not len(array):
        fractions = array[array != np.floor(array)] if array.dtype.kind == "f" else np.empty(0)
        got = f"{array.dtype} shaped {array.shape}{f', such as {fractions[0]}' if fractions.size else ''}"
        raise InputError(f"The {what} given to {owner} must be a non-empty sequence of integers. Got {got} instead.")
    if array.min() < 0 or (num_classes is not None and array.max() >= num_classes):
        limits = "0 or more" if num_classes is None else f"from 0 to {num_classes - 1}, below num_classes"
        raise InputError(f"The {what} given to {owner} must be {limits}. Got {array.min()} to {array.max()} instead.")
    return torch.from_numpy(array.astype(np.int64))


def as_probabilities(values: Any, *, what: str = "probabilities", owner: str) -> Tensor:
    """Copy class probabilities to a float64 tensor on the CPU, without gradients, or raise `InputError`.

    Rows whose sum differs from one by rounding are normalised.

    Args:
        values: a tensor, an array or lists, (examples, classes).
        what: the name of the probabilities in errors.
        owner: the name of the function they were passed to, for errors.

    Example:
        >>> as_probabilities([[0.5, 0.5], [0.5, 0.4]], owner="dual_t")
        Traceback (most recent call last):
        noisewise.errors.InputError: The 'probabilities' parameter of dual_t must be at least zero, with rows that sum to one. \
Got 'row 1: [0.5, 0.4]' instead.
    """
    try:
        if isinstance(values, Tensor):
            probabilities = values.detach().to("cpu", torch.float64, copy=True)
        else:
            probabilities = torch.from_numpy(np.array(values, dtype=np.float64))
    except (TypeError, ValueError, RuntimeError) as error:
        raise invalid_parameter(what, owner, "numbers shaped (examples, classes)", str(error)) from None
    if probabilities.dim() != 2 or probabilities.shape[0] < 1 or probabilities.shape[1] < 2:
        raise invalid_parameter(what, owner, "shaped (examples, classes), with two classes or more", tuple(probabilities.shape))
    sums = probabilities.sum(1)
    wrong = ~((probabilities.amin(1) >= 0) & ((sums - 1).abs() < 1e-3))
    if wrong.any():
        row = int(wrong.int().argmax())
        raise invalid_parameter(what, owner, "at least zero, with rows that sum to one", f"row {row}: {probabilities[row].tolist()[:10]}")
    return probabilities.div_(sums.unsqueeze(1))


def _labelled(labels: Any, probabilities: Any, owner: str) -> tuple[Tensor, Tensor]:
    checked = as_probabilities(probabilities, owner=owner)
    given = as_labels(labels, owner=owner, num_classes=checked.shape[1])
    if len(given) != len(checked):
        raise invalid_parameter("labels", owner, f"one for each of the {len(checked)} rows of probabilities", f"{len(given)} labels")
    return given, checked


def _counts(rows: Tensor, columns: Tensor, num_classes: int) -> Tensor:
    return torch.bincount(rows * num_classes + columns, minlength=num_classes**2).view(num_classes, num_classes).double()


def counted(true_labels: Any, labels: Any, num_classes: int) -> Tensor:
    """Count the transition matrix between two sets of labels.

    T[i, j] = #(true i, given j) / #(true i). A class without examples has the row of the identity matrix.

    Example:
        >>> counted([0, 0, 1, 1], [0, 1, 1, 1], 2)
        tensor([[0.5000, 0.5000],
                [0.0000, 1.0000]], dtype=torch.float64)
    """
    true = as_labels(true_labels, what="true labels", owner="counted", num_classes=num_classes)
    given = as_labels(labels, owner="counted", num_classes=num_classes)
    if len(given) != len(true):
        raise invalid_parameter("labels", "counted", f"one for each of the {len(true)} true labels", f"{len(given)} labels")
    counts = _counts(true, given, num_classes)
    totals = counts.sum(1)
    counts /= totals.clamp(min=1).unsqueeze(1)
    counts.diagonal().masked_fill_(totals == 0, 1)
    return counts


def anchor_points(probabilities: Any, *, quantile: float = 1.0) -> Tensor:
    """Estimate the transition matrix from anchor points, the most confident example of each class.

    T[i, j] = p(j | x_i),  x_i = argmax_x p(i | x).

    It is accurate if the probabilities are calibrated and every class has an example that certainly belongs to it.

    Args:
        probabilities: the probabilities of the given labels, (examples, classes).
        quantile: in (0, 1]: use the example at this quantile of p(i | x), because the most confident one may be an outlier. The share
            of examples above it must be well below that of the smallest class: 0.97 suits ten classes, not a hundred.

    Returns:
        T, float64 (classes, classes).

    Example:
        >>> anchor_points([[0.8, 0.2], [0.6, 0.4], [0.3, 0.7]])
        tensor([[0.8000, 0.2000],
                [0.3000, 0.7000]], dtype=torch.float64)

    Reference:
        Patrini et al., Making Deep Neural Networks Robust to Label Noise: a Loss Correction Approach, CVPR 2017.
    """
    checked = as_probabilities(probabilities, owner="anchor_points")
    if not 0 < quantile <= 1:
        raise invalid_parameter("quantile", "anchor_points", "in (0, 1]", quantile)
    position = 1 + int(quantile * (len(checked) - 1))
    return checked[checked.kthvalue(position, dim=0).indices]


def dual_t(labels: Any, probabilities: Any, *, quantile: float = 1.0) -> Tensor:
    """Estimate the transition matrix in two steps: true class to predicted class, predicted class to given label.

    T = A · B,  A from anchor points,  B[l, j] = #(predicted l, given j) / #(predicted l).

    It suits overconfident models, whose anchor points alone show hardly any noise. If the probabilities are calibrated, A already
    contains the noise and B adds it again: use `anchor_points`.

    Args:
        labels: the given labels, (examples,).
        probabilities: the probabilities of the given labels, (examples, classes).
        quantile: as for `anchor_points`.

    Returns:
        T, float64 (classes, classes).

    Example:
        >>> dual_t([0, 1, 1, 1], [[1.0, 0.0], [1.0, 0.0], [0.0, 1.0], [0.0, 1.0]])
        tensor([[0.5000, 0.5000],
                [0.0000, 1.0000]], dtype=torch.float64)

    Reference:
        Yao et al., Dual T: Reducing Estimation Error for Transition Matrix in Label-noise Learning, NeurIPS 2020.
    """
    given, checked = _labelled(labels, probabilities, "dual_t")
    return anchor_points(checked, quantile=quantile) @ counted(checked.argmax(1), given, checked.shape[1])


def confident_joint(labels: Any, probabilities: Any) -> Tensor:
    """Estimate the joint distribution of true and given labels by counting confident predictions.

    The estimated true class is i = argmax p(i | x) over the classes with p(i | x) ≥ t_i, where t_i is the mean of p(i | x) over the
    examples labelled i; an example without such a class is ignored. Each column is scaled to the share of the given label.

    Args:
        labels: the given labels, (examples,); every class must have one.
        probabilities: the probabilities of the given labels, (examples, classes).

    Returns:
        J[i, j] = P(true i, given j), float64 (classes, classes), which sums to one. ``J / J.sum(1, keepdim=True)`` is T.

    Example:
        >>> confident_joint([0, 0, 1, 1], [[0.9, 0.1], [0.1, 0.9], [0.2, 0.8], [0.1, 0.9]])
        tensor([[0.2500, 0.0000],
                [0.2500, 0.5000]], dtype=torch.float64)

    Reference:
        Northcutt et al., Confident Learning: Estimating Uncertainty in Dataset Labels, JAIR 2021.
    """
    given, checked = _labelled(labels, probabilities, "confident_joint")
    num_classes = checked.shape[1]
    sizes = torch.bincount(given, minlength=num_classes).double()
    if (sizes == 0).any():
        raise invalid_parameter("labels", "confident_joint", "at least one of every class", f"none of class {int(sizes.argmin())}")
    own = checked.gather(1, given.unsqueeze(1)).squeeze(1)
    thresholds = torch.zeros_like(sizes).index_add_(0, given, own) / sizes
    # Slack for rounding: equal probabilities must not fall below their mean.
    confident = checked >= thresholds - 1e-6
    some = confident.any(1)
    guess = checked.where(confident, torch.tensor(-1.0, dtype=torch.float64)).argmax(1)
    counts = _counts(guess[some], given[some], num_classes)
    counts.diagonal().clamp_(min=1)
    return counts / counts.sum(0) * (sizes / len(given))


def noise_rate(labels: Any, probabilities: Any) -> float:
    """Estimate the share of wrong labels from the confident joint: 1 − Σ_i P(true i, given i).

    Args:
        labels: the given labels, (examples,); every class must have one.
        probabilities: the probabilities of the given labels, (examples, classes).

    Example:
        >>> noise_rate([0, 0, 1, 1], [[0.9, 0.1], [0.1, 0.9], [0.2, 0.8], [0.1, 0.9]])
        0.25

    Reference:
        Northcutt et al., Confident Learning: Estimating Uncertainty in Dataset Labels, JAIR 2021.
    """
    return 1 - float(confident_joint(labels, probabilities).trace())
