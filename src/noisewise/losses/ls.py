from noisewise.losses.gls import GLS
from noisewise.spec import setting


class LS(GLS, name="ls"):
    """Label smoothing: cross-entropy with targets slightly below certainty.

    Formula:
        L = −Σ_i ((1 − alpha) [i = y] + alpha / k) log p_i
        w: (1 − alpha) (1 − p_y) plus the pull of the smoothing

    Args:
        alpha: the share spread over all classes.

    Example:
        >>> LS(alpha=0.1)(torch.tensor([[2.0, 0.0, 0.0]]), torch.tensor([0]))
        tensor(0.3729)

    Reference:
        Szegedy et al., Rethinking the inception architecture for computer vision, CVPR 2016.
    """

    examples = ("ls(alpha=0.1)", "ls(alpha=0.5)")

    alpha: float = setting(default=0.1, bounds="[0, 1]")
