from functools import partial
from typing import Any

import torch
from torch import Tensor

from noisewise.data import Dataset
from noisewise.losses import Loss
from noisewise.methods._transition import class_noise, known_matrix
from noisewise.methods.s_adaptation import SAdaptation
from noisewise.noise import Noise
from noisewise.spec import setting


class Masking(SAdaptation, name="masking"):
    """Masking: learn the transition matrix in a last layer, with 0 for the wrong labels that a person considers impossible.

    Formula:
        L = loss(p′),    p′_y = Σ_i p_i T_iy,    T_ij = exp(b_ij) / Σ_l exp(b_il) over the allowed labels l, else 0
        b ← b − rate · lr · ∂L / ∂b

    Only the idea of the paper is implemented, not its model. In the paper a generative adversarial network draws transition matrices,
    and a discriminator pulls their structure towards that of the prior. Here there is one matrix, no generator and no discriminator: it
    is learned by gradient descent as in `s_adaptation`, and the structure is a hard constraint. A label that it does not allow has
    probability 0.

    Args:
        structure: the labels that are possible for every true class, as a noise such as 'pair(0.1)' or as a transition matrix. Only
            its zeros matter, not its rates. The true label is always possible.
        warm_up: the number of epochs with the plain loss, before the layer is added.
        rate: the learning rate of the layer, as a multiple of that of the network.

    Example:
        >>> Masking("pair(0.1)", warm_up=5)
        masking('pair(0.1)', warm_up=5, rate=1.0)

    Reference:
        Han et al., Masking: a new perspective of noisy supervision, NeurIPS 2018.
    """

    examples = ("masking('pair(0.1)', warm_up=1)",)

    structure: Noise = setting(check=partial(class_noise, "structure"))  # type: ignore[misc]  # required settings come first in every signature

    def check(self, loss: Loss, data: Dataset) -> None:
        super().check(loss, data)
        self.allowed(len(data.classes))

    def allowed(self, classes: int) -> Tensor:
        return (known_matrix(self, self.structure, classes) > 0) | torch.eye(classes, dtype=torch.bool)

    def _literal(self, key: str) -> Any:
        return repr(self.structure) if key == "structure" else super()._literal(key)
