from noisewise.methods._base import Method


class Plain(Method, name="plain"):
    """Ordinary training: one network, and the gradient of the loss.

    Formula:
        L = loss(y)

    Example:
        >>> Plain()
        plain

    Reference:
        LeCun et al., Efficient BackProp, 1998.
    """

    examples = ("plain",)
