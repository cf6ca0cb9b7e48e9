import numpy as np
from torch import Tensor

from noisewise.arrays import Floats
from noisewise.errors import invalid_parameter
from noisewise.losses._base import Loss, inner_loss
from noisewise.losses._corrected import Corrected, class_noise
from noisewise.noise import Noise
from noisewise.spec import setting

_LARGEST_CONDITION = 1e6  # of a matrix to invert: a float32 loss would have no correct digit left


class Backward(Corrected, name="backward"):
    """Backward correction: any loss, averaged over classes with the inverse transition matrix, so that the noise cancels on average.

    The expectation over noisy labels is the loss l with the true label. The inverse has negative entries, so the loss of one example
    can be negative and is not bounded below. `forward` usually trains better.

    Formula:
        L = Σ_j (T⁻¹)_yj l_j,  T_ij = P(given j | true i),  l_j the loss l with label j
        w: by differentiation

    Args:
        noise: a noise that depends on the class alone, or the matrix T, which must have an inverse.
        loss: the loss l.

    Example:
        >>> Backward("symmetric(0.4)")(torch.tensor([[2.0, 0.0, 0.0]]), torch.tensor([0]))
        tensor(-1.7605)
        >>> Backward([[0.9, 0.1], [0.4, 0.6]], loss="mae")(torch.tensor([[2.0, 0.0]]), torch.tensor([1]))
        tensor(2.9801)

    Reference:
        Patrini et al., Making deep neural networks robust to label noise: a loss correction approach, CVPR 2017.
    """

    examples = ("backward('symmetric(0.4)', loss=ce)", "backward('symmetric(0.2)', loss=gce(q=0.7))")

    noise: Noise = setting(check=class_noise("Backward"))
    loss: Loss = setting(default="ce", check=inner_loss)

    def per_class(self, scores: Tensor) -> Tensor:
        values = self.loss.per_class(scores).movedim(1, -1)
        return (values @ self.constants_for(scores).T).movedim(-1, 1)

    def constants(self, matrix: Floats) -> Floats:
        """The inverse of the matrix."""
        if not np.linalg.cond(matrix) < _LARGEST_CONDITION:
            raise invalid_parameter("noise", "Backward", "a noise whose transition matrix has an inverse", self.noise)
        return np.linalg.inv(matrix).astype(np.float64)
