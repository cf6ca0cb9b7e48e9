"""Kernels behind the same functions: a margin loss and its gradient in one pass over the scores.

Nothing here has to be called: on a GPU a loss finds its kernel by itself, and takes the torch path where there is none.
``NOISEWISE_KERNELS=0`` in the environment turns kernels off. The names below are for what a loss's own call cannot say.

Triton is imported by `_launch` alone, when a kernel first runs: never on a machine without a GPU.
"""

from noisewise.kernels._compiled import compiled
from noisewise.kernels._fused import Pass, fused, loss_and_gradient
from noisewise.kernels._linear import linear_loss
from noisewise.kernels._switch import usable

__all__ = [
    "Pass",
    "compiled",
    "fused",
    "linear_loss",
    "loss_and_gradient",
    "usable",
]
