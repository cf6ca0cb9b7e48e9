from torch import Tensor
from torch.nn.functional import logsigmoid

from noisewise.losses._base import expm1_over
from noisewise.losses._normalising import NORMALISATIONS, Normalising, fade
from noisewise.spec import setting


class GR(Normalising, name="gr"):
    """Gradient rescaling: choose which examples to emphasise (lam) and how strongly (beta).

    With g = "identity" it contains the classics: (beta, lam) = (2, 0) is cross-entropy, (4, 1) MAE, (2, q) GCE. With "exp" and
    lam = 1 it is IMAE. A large beta needs a normalisation or a smaller learning rate: at beta = 12, lam = 0.5 the largest
    emphasis is 50. `saturation` reduces the emphasis of learned examples, as in IMAE; it is ignored with "identity", whose emphasis
    ends at zero anyway.

    Formula:
        l(p) = −∫ w dΔ from Δ = 0; with "identity" beta (1 − p^lam) / (2 lam), and −beta / 2 · log p for lam = 0
        w = exp(beta p^lam (1 − p)) / 2 · (1 − p) / (1 − p + saturation); with "identity" beta p^lam (1 − p) / 2

    Args:
        beta: how strongly to emphasise; 0 treats all examples equally.
        lam: which examples to emphasise: the focus is at p = lam / (1 + lam).
        g: "exp" or "identity".
        saturation: the 1 − p at which an example counts as learned; 5e-9 is the authors' code, 0 the bare formula.
        normalise: "none", "maximum" (unit maximum), "integral" (unit area over p) or "batch" (unit mean over the batch).

    Example:
        >>> GR(beta=8, lam=0.5, saturation=0).emphasis(torch.tensor(0.0))  # exp(8 · 0.5^0.5 · 0.5) / 2
        tensor(8.4594)

    Reference:
        Wang et al., Derivative manipulation for general example weighting (gradient rescaling), arXiv:1905.11233.
    """

    examples = (
        "gr(beta=8.0, lam=0.5)",
        "gr(beta=4.0, lam=0.0)",
        "gr(beta=16.0, lam=2.0, saturation=0, normalise='integral')",
        "gr(beta=2.0, lam=0.3, g='identity')",
        "gr(beta=2.0, lam=0.0, g='identity', normalise='maximum')",
    )

    beta: float = setting(default=8.0, bounds="[0, inf)")
    lam: float = setting(default=0.5, bounds="[0, inf)")
    g: str = setting(default="exp", choices=("exp", "identity"))
    saturation: float = setting(default=1e-3, bounds="[0, inf)")
    normalise: str = setting(default="none", choices=NORMALISATIONS)

    def normalisation(self) -> str:
        return self.normalise

    def pull(self, d: Tensor) -> Tensor:
        rest = (-d).sigmoid()
        wanted = self.beta * rest
        if self.lam > 0:
            wanted = wanted * (self.lam * logsigmoid(d)).exp()
        return 0.5 * (wanted if self.g == "identity" else wanted.exp() * fade(rest, self.saturation))

    def _has_closed_form(self) -> bool:
        return self.g == "identity"

    def value(self, d: Tensor) -> Tensor:
        if not self._has_closed_form():
            return super().value(d)
        return self.beta / 2 * -expm1_over(logsigmoid(d), self.lam) / self._scale
