from noisewise.losses._every_class import ShareOfCosts
from noisewise.spec import setting


class NFL(ShareOfCosts, name="nfl"):
    """Normalised focal loss: focal loss divided by the sum of the focal losses of all classes.

    Formula:
        L = focal(p_y) / Σ_i focal(p_i)
        w: by differentiation

    Args:
        q: the focal exponent (γ in the paper).

    Example:
        >>> NFL(q=0.5)(torch.tensor([[2.0, 0.0, 0.0]]), torch.tensor([0]))
        tensor(0.0254)

    Reference:
        Ma et al., Normalized loss functions for deep learning with noisy labels, ICML 2020.
    """

    examples = ("nfl(q=0.5)", "nfl(q=2.0)")

    q: float = setting(default=0.5, bounds="[0, inf)")
