"""What theory says about a loss alone: which noise leaves its best model unchanged, and how much harder one example pulls than another.

It knows nothing about training. A loss that is robust here may still learn too slowly, and one that is not may do well.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from noisewise.errors import invalid_parameter
from noisewise.losses import Loss, MarginLoss, get
from noisewise.spec import as_int, real
from noisewise.transition import as_probabilities

_STEPS = 400  # of a grid over p
_FAR = 350.0  # a margin where p is as good as 0; twice that is still a float64


def asymmetry_ratio(loss: Loss | str) -> float | None:
    """How much a gain of p at least counts, compared with the same gain from p = 0; None for a loss that is not a function of p alone.

    The best model under class-dependent noise is the one under clean labels if, for every class, each wrong label is given less than this
    ratio times as often as the right one (`noise_ratio`). The ratio is 1 for MAE and 0 for losses that are unbounded at p = 0.

    Formula:
        inf (l(u) − l(u + v)) / (l(0) − l(v)),  u, v ≥ 0, u + v ≤ 1

    Example:
        >>> asymmetry_ratio("mae"), asymmetry_ratio("ce"), round(asymmetry_ratio("aul(a=2, q=2)"), 6)
        (1.0, 0.0, 0.5)

    Reference:
        Zhou et al., Asymmetric loss functions for learning with noisy labels, ICML 2021.
    """
    loss = get(loss)
    if not isinstance(loss, MarginLoss):
        return None
    steepness = _steepness(loss, torch.tensor([-2 * _FAR, -_FAR], dtype=torch.float64))
    if steepness[0] > (1 + 1e-6) * steepness[1]:  # l is infinitely steep at 0
        return 0.0
    ratios = [_finite_gains(loss)]
    if steepness[0] > 0:
        small = _steepness(loss, torch.linspace(-_FAR, _FAR, 140_001, dtype=torch.float64)) / steepness[0]
        ratios.append(small.min())
    return round(float(min(ratios)), 9)


def _steepness(loss: MarginLoss, d: Tensor) -> Tensor:
    """−dl/dp at some margins."""
    return loss.emphasis(d) / (d.sigmoid() * (-d).sigmoid())


def _finite_gains(loss: MarginLoss) -> Tensor:
    """The smallest ratio of gains over a grid of p; gains from 0 that do not change the loss do not count."""
    p = torch.linspace(0, 1, _STEPS + 1, dtype=torch.float64)
    value = loss.value(p.logit().clamp(-2 * _FAR, 2 * _FAR))
    start, end = torch.triu_indices(_STEPS + 1, _STEPS + 1, offset=1)
    from_zero = value[0] - value[end - start]
    counts = from_zero > 0
    return ((value[start] - value[end])[counts] / from_zero[counts]).min()


def noise_ratio(transition: Any) -> float:
    """How often the most frequent wrong label is given compared with the right one, for the class where that is worst.

    Args:
        transition: T, (classes, classes), with the true label first.

    Example:
        >>> round(noise_ratio([[0.6, 0.4, 0.0], [0.1, 0.8, 0.1], [0.0, 0.0, 1.0]]), 4)
        0.6667
    """
    matrix = as_probabilities(transition, what="transition", owner="noise_ratio")
    if matrix.shape[0] != matrix.shape[1]:
        raise invalid_parameter("transition", "noise_ratio", "square", tuple(matrix.shape))
    right = matrix.diagonal()
    wrong = matrix.clone().fill_diagonal_(0).amax(1)
    return float((wrong / right).max())


def tolerates(loss: Loss | str, transition: Any) -> bool | None:
    """Whether the best model under this noise is certainly the one under clean labels; None for a loss that is not a function of p alone.

    The condition is sufficient, not necessary, and is about the smallest possible mean loss: no network reaches that exactly.

    Formula:
        max T[y, i] / T[y, y] ≤ asymmetry ratio, and < 1

    Args:
        loss: the loss.
        transition: T, (classes, classes), with the true label first.

    Example:
        >>> noise = [[0.6, 0.4], [0.4, 0.6]]
        >>> tolerates("mae", noise), tolerates("aul(a=2, q=2)", noise), tolerates("ce", noise)
        (True, False, False)
    """
    ratio, noise = asymmetry_ratio(loss), noise_ratio(transition)
    return None if ratio is None else noise < 1 and noise <= ratio


def tolerated_rate(loss: Loss | str, classes: int) -> float | None:
    """The rate of symmetric noise below which `tolerates` is true; None for a loss that is not a function of p alone.

    Formula:
        ρ (k − 1) / (1 + ρ (k − 1)),  ρ the asymmetry ratio, at most 1;  (k − 1) / k for MAE and other symmetric losses

    Args:
        loss: the loss.
        classes: k.

    Example:
        >>> tolerated_rate("mae", 10), round(tolerated_rate("aul(a=2, q=2)", 10), 4), tolerated_rate("ce", 10)
        (0.9, 0.8182, 0.0)

    Reference:
        Ghosh, Kumar & Sastry, Robust loss functions under label noise for deep neural networks, AAAI 2017.
    """
    others = as_int("classes", "tolerated_rate", classes, 2) - 1
    ratio = asymmetry_ratio(loss)
    return None if ratio is None else min(ratio, 1.0) * others / (1 + min(ratio, 1.0) * others)


def sum_over_labels(loss: Loss | str, scores: Tensor) -> Tensor:
    """The sum of a loss over all labels, for each row of scores. A loss is symmetric if this is the same for all scores.

    Example:
        >>> sum_over_labels("mae", torch.tensor([[3.0, 0.0, -1.0], [0.0, 0.0, 0.0]]))
        tensor([4., 4.])

    Reference:
        Ghosh, Kumar & Sastry, Robust loss functions under label noise for deep neural networks, AAAI 2017.
    """
    each = get(loss, reduction="none") if isinstance(loss, str) else loss
    labels = torch.arange(scores.shape[1], device=scores.device).unsqueeze(1).expand(-1, len(scores))
    return torch.stack([each(scores, label) for label in labels.unbind()]).sum(0)


def impact_ratio(loss: Loss | str, p: float, other: float) -> float | None:
    """How much harder an example pulls than another, by their p; None for a loss that is not a function of p alone.

    A factor in front of a loss does not change it.

    Formula:
        w(p) / w(other)

    Args:
        loss: the loss.
        p: the probability that an example gives to its label.
        other: that of the other example.

    Example:
        >>> impact_ratio("ce", 0.1, 0.9), round(impact_ratio("imae(T=8, saturation=0)", 0.5, 0.9), 3)
        (9.0, 3.597)

    Reference:
        IMAE, sections 1 and 4.1.
    """
    loss = get(loss)
    if not isinstance(loss, MarginLoss):
        return None
    margins = torch.tensor([_probability("p", p), _probability("other", other)], dtype=torch.float64).logit()
    pull, other_pull = loss.emphasis(margins).tolist()
    return float(round(pull / other_pull, 9))


def _probability(name: str, value: Any) -> float:
    probability: float = real(value)
    if not 0 < probability < 1:
        raise invalid_parameter(name, "impact_ratio", "in (0, 1)", value)
    return probability


def squared_error(alpha: float) -> Loss:
    """MAE with a regulariser that evens out predictions: the squared error `mse` for alpha = 1/2, `mae` for 0.

    Formula:
        L = 2 (1 − p_y) + 2 α (Σ_i p_i² − 1) = (1 − 2α) mae + 2α mse

    Args:
        alpha: the weight of the regulariser.

    Example:
        >>> squared_error(0.25)
        0.5*mae + 0.5*mse

    Reference:
        A curriculum view of robust loss functions, appendix A.5.
    """
    if alpha in (0, 0.5):
        return get("mse" if alpha else "mae")
    return get(f"{1 - 2 * alpha:.12g}*mae + {2 * alpha:.12g}*mse")
