"""Letting go of what is learned: the factor that IMAE and GR leave out of their formulas and have in their code."""

from torch import Tensor


def fade(d: Tensor, saturation: float) -> Tensor | float:
    """(1 − p) / (1 − p + saturation): one until an example is learned to within `saturation`, then falling to zero."""
    if saturation == 0:
        return 1.0
    rest = (-d).sigmoid()
    return rest / (rest + saturation)
