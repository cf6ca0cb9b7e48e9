"""Triton kernels: a loss and its gradient in one pass over the scores, and the body of a CIFAR residual network.

You do not have to call anything here. On a GPU, losses and networks use their kernel where there is one, and torch otherwise; they call
`fused` and `residual` through `noisewise.extensions`. ``NOISEWISE_KERNELS=0`` in the environment turns kernels off.

Triton is imported when a kernel first runs, so never on a machine without a GPU.
"""

from noisewise.kernels._compiled import compiled
from noisewise.kernels._fused import Pass, fused, loss_and_gradient
from noisewise.kernels._linear import linear_loss
from noisewise.kernels._residual import residual
from noisewise.kernels._switch import usable

__all__ = ["Pass", "compiled", "fused", "linear_loss", "loss_and_gradient", "residual", "usable"]
