"""A warning that the active negative losses share: their gradient is singular where no class can be above `p_min`."""

import warnings

import torch

from noisewise.losses._base import Loss


def check_p_min(loss: Loss, p_min: float, classes: int) -> None:
    """Warn once per loss and number of classes where p_min ≥ 1 / classes: all classes may cost the most then, and Σ_i (A − m_i) is 0.

    Only the shape of the scores decides, so nothing waits for a device; torch.compile traces no warning.
    """
    if torch.compiler.is_compiling() or p_min * classes < 1:
        return
    warned: set[int] = loss.__dict__.setdefault("_warned_of", set())
    if classes not in warned:
        warned.add(classes)
        warnings.warn(
            f"The gradient of {loss!r} is singular with {classes} classes, which can all have a probability of p_min = {p_min:g} or less; "
            f"choose p_min below 1/{classes} = {1 / classes:.3g}.",
            stacklevel=2,
        )
