"""Losses for frameworks without torch, such as JAX and Keras: tables of value and emphasis, and reference values, as numpy arrays."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from noisewise import losses
from noisewise.errors import InputError
from noisewise.losses import Loss, MarginLoss

Floats = NDArray[np.float64]

TABLE_COLUMNS = ("margin", "p", "value", "emphasis")
_REACH, _STEP = 32, 1 / 32  # beyond it, no emphasis changes by more than e⁻³²


def emphasis_table(loss: str | Loss, *, classes: int = 2) -> dict[str, Floats]:
    """The value and the emphasis of a loss at margins from −32 to 32, in steps of 1/32, to interpolate between.

    Such a loss is −w·Δ in any framework, where w is the interpolated emphasis, without gradient, and Δ is the margin: its gradient is that
    of the loss. The error of linear interpolation is about 1e-5.

    Args:
        loss: a loss that is a function of the margin, or its spec.
        classes: the number of classes, for losses that depend on it, such as scaled(normalised(mae), 2.6).

    Returns:
        The columns "margin", "p", "value" and "emphasis".

    Example:
        >>> table = emphasis_table("gce(q=0.7)")
        >>> w = np.interp(1.3, table["margin"], table["emphasis"])
        >>> round(float(w), 4), round(float(losses.get("gce(q=0.7)").emphasis(torch.tensor(1.3))), 4)
        (0.1809, 0.1809)
    """
    chosen = losses.get(loss)
    if not isinstance(chosen, MarginLoss) or chosen.depends_on_batch or chosen.contract:
        raise InputError(f"A table needs a loss of the margin alone. Got {chosen!r}; use value_and_gradient for other losses.")
    margins = torch.arange(-_REACH, _REACH + _STEP, _STEP, dtype=torch.float64).requires_grad_()
    values = chosen.of_margin(margins, classes)
    (slope,) = torch.autograd.grad(values.sum(), margins)
    columns = (margins, margins.sigmoid(), values, 0 - slope)
    return {name: column.detach().numpy() for name, column in zip(TABLE_COLUMNS, columns, strict=True)}


def value_and_gradient(loss: str | Loss, scores: Any, labels: Any) -> tuple[Floats, Floats]:
    """The value of any loss and its gradient with respect to the scores, in float64: a reference to test your own code with.

    Args:
        loss: any loss, or its spec.
        scores: (N, classes), before softmax.
        labels: class numbers (N,), or probabilities of the classes (N, classes).

    Returns:
        What the loss returns (the mean over the examples, unless the loss has another reduction), and the gradient of its sum.

    Example:
        >>> value, gradient = value_and_gradient("nce", [[2.0, 0.0, 0.0]], [0])
        >>> float(value.round(4)), gradient.round(4)
        (0.0508, array([[-0.0598,  0.0299,  0.0299]]))
    """
    leaf = torch.from_numpy(np.array(scores, dtype=np.float64)).requires_grad_()
    value = losses.get(loss)(leaf, torch.from_numpy(np.array(labels)))
    (gradient,) = torch.autograd.grad(value.sum(), leaf)
    return value.detach().numpy(), gradient.numpy()
