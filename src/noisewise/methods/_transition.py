"""Transition matrices that methods are given or estimate from the scores of the training set, and losses that are corrected by them."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from noisewise.data import Dataset
from noisewise.errors import InputError, invalid_parameter
from noisewise.losses import Loss, MarginLoss
from noisewise.methods._base import Method
from noisewise.methods._pull import LossPull, Pull
from noisewise.noise import ClassNoise, Matrix, Noise, NoNoise, matrix_of
from noisewise.noise import registry as noises
from noisewise.spec import name_of
from noisewise.transition import anchor_points, confident_joint, dual_t

ESTIMATES = ("anchor", "dual_t", "confident_joint")
"""The estimates of the transition matrix, by name."""

_LEAST = 1e-6  # the smallest entry of an estimate: a label that seems impossible must not have an infinite loss


def class_noise(parameter: str, value: Any, others: str = "") -> Noise:
    """A noise that depends on the class alone, from its spec or from a transition matrix, or raise `InputError`.

    Args:
        parameter: the name of the setting, for the error.
        value: the noise, its spec, or a matrix.
        others: other values that the setting accepts, for the error.
    """
    wanted = f"{others}a noise that depends only on the class, such as 'symmetric(0.4)', or a transition matrix"
    if isinstance(value, str) and name_of(value) not in noises:
        raise invalid_parameter(parameter, "the method", wanted, value)
    matrix = value.detach().cpu() if isinstance(value, Tensor) else value
    noise = noises.get(value) if isinstance(value, str | Noise) else Matrix(matrix)
    if not all(isinstance(part, ClassNoise | NoNoise) for part in noise.parts):
        raise invalid_parameter(parameter, "the method", wanted, value)
    return noise


def estimate_or_noise(value: Any) -> str | Noise:
    """The name of an estimate, or a noise with a known transition matrix; or raise `InputError`."""
    names = ", ".join(map(repr, ESTIMATES))
    return value if isinstance(value, str) and value in ESTIMATES else class_noise("matrix", value, f"{names}, ")


def known_matrix(method: Method, noise: Noise, classes: int) -> Tensor:
    """The transition matrix of a noise for a number of classes, float64, or raise `InputError`. It must not depend on the seed."""
    matrix, other = (matrix_of(noise, classes, seed) for seed in (0, 1))
    assert matrix is not None and other is not None, "it depends on the class alone"
    if not np.array_equal(matrix, other):
        raise InputError(f"The matrix of {noise!r} is drawn with the seed of a run. Give {method.name} the matrix itself.")
    return torch.from_numpy(np.array(matrix))


def estimate(name: str, labels: Tensor, scores: Tensor, quantile: float) -> Tensor:
    """Estimate the transition matrix from the scores of a network that was trained on the given labels.

    Args:
        name: one of `ESTIMATES`.
        labels: the given labels, (n,).
        scores: of the same examples, (n, classes).
        quantile: which example of a class is its anchor point; not used by the confident joint.

    Example:
        >>> scores = torch.tensor([[0.9, 0.1], [0.2, 0.8], [0.5, 0.5]]).log()
        >>> estimate("anchor", torch.tensor([0, 1, 1]), scores, 1.0)
        tensor([[0.9000, 0.1000],
                [0.2000, 0.8000]], dtype=torch.float64)
    """
    given, probabilities = labels.cpu(), scores.cpu().double().softmax(1)
    if name == "anchor":
        matrix = anchor_points(probabilities, quantile=quantile)
    elif name == "dual_t":
        matrix = dual_t(given, probabilities, quantile=quantile)
    else:
        matrix = confident_joint(given, probabilities)
    matrix = (matrix / matrix.sum(1, keepdim=True)).clamp(min=_LEAST)
    return matrix / matrix.sum(1, keepdim=True)


class Given(NamedTuple):
    """The given labels of a batch under a transition matrix.

    Args:
        log_p: log p′ = log Σ_i p_i T_iy, the probability of the given label: (n, 1).
        log_rest: log(1 − p′).
        posterior: P(true class i | given label) = p_i T_iy / p′, (n, classes).
        rest: the same for the event that another label was given, p_i (1 − T_iy) / (1 − p′).
    """

    log_p: Tensor
    log_rest: Tensor
    posterior: Tensor
    rest: Tensor


def given_labels(log_p: Tensor, labels: Tensor, matrix: Tensor) -> Given:
    """The probability of the given labels, from the logarithms of the predicted probabilities and a transition matrix.

    Example:
        >>> matrix = torch.tensor([[0.9, 0.1], [0.4, 0.6]])
        >>> given_labels(torch.tensor([[0.5, 0.5]]).log(), torch.tensor([1]), matrix).log_p.exp()
        tensor([[0.3500]])
    """
    share = matrix.T[labels].to(log_p.dtype)
    from_class, other = log_p + share.log(), log_p + (1 - share).clamp(min=0).log()
    return Given(from_class.logsumexp(1, keepdim=True), other.logsumexp(1, keepdim=True), from_class.softmax(1), other.softmax(1))


class Corrected(NamedTuple):
    """A batch with forward correction.

    Args:
        pull: the gradient with respect to the scores.
        by_log_matrix: the gradient of the sum of the losses with respect to log T, (classes, classes).
    """

    pull: Pull
    by_log_matrix: Tensor


def forward_corrected(loss: LossPull, scores: Tensor, labels: Tensor, matrix: Tensor) -> Corrected:
    """The pull of a margin loss at the probability p′ of the given label. Nothing is infinite if probabilities underflow."""
    given = given_labels(scores.log_softmax(1), labels, matrix)
    with torch.enable_grad():
        margin = (given.log_p - given.log_rest).squeeze(1).detach().requires_grad_()
        values = loss.loss.of_margin(margin, scores.shape[1])  # type: ignore[operator]
        slope = torch.autograd.grad(values.sum(), margin)[0].unsqueeze(1)
    # ∂Δ / ∂s is the difference of two softmaxes, and ∂Δ / ∂ log T_iy = posterior_i / (1 − p′).
    gradient = slope * (given.posterior - given.rest)
    weight = slope / given.log_rest.exp().clamp(min=1e-30)
    return Corrected(Pull(gradient, values.detach()), _by_label(given.posterior, weight, labels))


def _by_label(rows: Tensor, weight: Tensor, labels: Tensor) -> Tensor:
    """Σ over the examples with given label j of weight · row: column j of a matrix. A product gives the same bits every time."""
    return rows.T @ (weight * torch.nn.functional.one_hot(labels, rows.shape[1]).to(rows.dtype))


class Reweighted(NamedTuple):
    """A batch whose losses are multiplied by β = p_y / p′.

    Args:
        pull: of β · loss, with β as a constant.
        by_matrix: the gradient of the sum of β · loss with respect to T, (classes, classes).
    """

    pull: Pull
    by_matrix: Tensor


def reweighted(loss: LossPull, scores: Tensor, labels: Tensor, matrix: Tensor) -> Reweighted:
    """Multiply the loss of every example by the probability of its label as the true class over that as the given label."""
    pull = loss.rows(scores, labels)
    assert pull.value is not None
    log_p, label = scores.log_softmax(1), labels.unsqueeze(1)
    given = given_labels(log_p, labels, matrix)
    beta = (log_p.gather(1, label) - given.log_p).exp()
    values = beta * pull.value.unsqueeze(1)
    by_matrix = -_by_label((log_p - given.log_p).exp(), values, labels)  # ∂ log β / ∂T_iy = −p_i / p′
    return Reweighted(Pull(beta * pull.gradient, values.squeeze(1)), by_matrix)


def refuse_settings(method: Method, loss: Loss) -> None:
    """Refuse a loss with class weights, label smoothing or ignored labels, which a corrected loss does not have."""
    if loss.contract:
        raise InputError(f"The method {method!r} needs a loss without {', '.join(loss.contract)}. Got the loss {loss!r}.")


def refuse_other_than_margin(method: Method, loss: Loss) -> None:
    """Refuse a loss that is not a function of the margin alone, for methods that change the margin."""
    if not isinstance(loss, MarginLoss) or loss.depends_on_batch:
        raise InputError(f"The method {method!r} needs a loss of the margin alone, such as 'ce' or 'gce(q=0.7)'. Got the loss {loss!r}.")
    refuse_settings(method, loss)


def refuse_impossible_labels(method: Method, matrix: Tensor, data: Dataset) -> None:
    """Refuse a matrix with which some given label of the data cannot occur, because its loss would be infinite."""
    sizes = torch.bincount(data.labels.cpu(), minlength=len(data.classes))
    impossible = (sizes > 0) & (matrix.sum(0) == 0)
    if bool(impossible.any()):
        label = data.classes[int(impossible.long().argmax())]
        raise InputError(f"The data have the label {label!r}, which the matrix of the method {method!r} never gives.")


def refuse_absent_classes(method: Method, data: Dataset) -> None:
    """Refuse data in which a class has no label, for estimates that need one of every class."""
    sizes = torch.bincount(data.labels, minlength=len(data.classes))
    if not bool((sizes > 0).all()):
        absent = data.classes[int(sizes.argmin())]
        raise InputError(f"The method {method!r} needs at least one label of every class. Got none of the class {absent!r}.")
