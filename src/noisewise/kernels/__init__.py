"""Triton kernels: a loss and its gradient in one pass over the scores, and the body of a CIFAR residual network.

You do not have to call anything here: on a GPU, losses and networks use their kernel if there is one, and torch otherwise. Set
``NOISEWISE_KERNELS=0`` in the environment to turn kernels off. Triton is imported when a kernel first runs.
"""

from noisewise.kernels._ahead import compiled_ahead
from noisewise.kernels._compiled import compiled
from noisewise.kernels._fused import Pass, counted, fused, loss_and_gradient
from noisewise.kernels._linear import linear_loss
from noisewise.kernels._residual import residual
from noisewise.kernels._switch import usable

__all__ = ["Pass", "compiled", "compiled_ahead", "counted", "fused", "linear_loss", "loss_and_gradient", "residual", "usable"]
