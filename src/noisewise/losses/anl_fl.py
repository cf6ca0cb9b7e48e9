from noisewise.losses._every_class import ActiveNegative
from noisewise.spec import setting


class ANLFL(ActiveNegative, name="anl_fl"):
    """Active negative loss on focal loss: normalised focal plus a normalised negative one.

    The paper also uses an L1 penalty on all weights of the model; set that in the optimiser.

    Formula:
        L = alpha l_y / Σ_i l_i + beta (1 − (A − m_y) / Σ_i (A − m_i)),  l_i = focal(p_i),  m_i = min(l_i, A),  A = focal(p_min)
        w: by differentiation

    Args:
        alpha: factor of the active part.
        beta: factor of the negative part.
        q: the focal exponent (γ in the paper).
        p_min: the cost of a class in the negative part is capped at that of this probability; below 1 / number of classes.

    Example:
        >>> ANLFL(alpha=5, beta=5, q=0.5)(torch.tensor([[2.0, 0.0, 0.0]]), torch.tensor([0]))
        tensor(3.3086)

    Reference:
        Ye et al., Active negative loss functions for learning with noisy labels, NeurIPS 2023.
    """

    examples = ("anl_fl(alpha=5.0, beta=5.0, q=0.5)", "anl_fl(alpha=1.0, beta=1.0, q=2.0)")

    alpha: float = setting(default=5.0, bounds="[0, inf)")
    beta: float = setting(default=5.0, bounds="[0, inf)")
    q: float = setting(default=0.5, bounds="[0, inf)")
    p_min: float = setting(default=1e-7, bounds="(0, 1)")
