"""The losses, one file each. A new file in this folder is imported, registered, listed, documented and tested automatically.

>>> from noisewise import losses
>>> losses.get("gce(q=0.7)")
gce(q=0.7)
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from noisewise.errors import InputError
from noisewise.extensions import extension
from noisewise.losses._base import CONTRACT, Combination, Loss, MarginLoss, inner_margin_loss, registry
from noisewise.losses._normalising import (
    NORMALISATIONS,
    Accumulation,
    Normalising,
    as_whole_batch,
    batch_normalised,
    before_batch_normalisation,
)
from noisewise.spec import discover

__all__ = [
    "CONTRACT",
    "NORMALISATIONS",
    "Accumulation",
    "Combination",
    "Loss",
    "MarginLoss",
    "Normalising",
    "as_whole_batch",
    "available",
    "batch_normalised",
    "before_batch_normalisation",
    "get",
    "inner_margin_loss",
    "registry",
]

_losses = discover(__name__, __path__, Loss)
globals().update(_losses)
__all__ += list(_losses)

if TYPE_CHECKING:  # type checkers do not see the classes that are discovered at run time

    def __getattr__(name: str) -> Any: ...


available = registry.available


def get(spec: str | Loss, **settings: Any) -> Loss:
    """Build a loss from a spec string.

    Args:
        spec: for example ``"imae(T=8)"`` or ``"0.3*nce + 0.7*mae"``; a loss is returned unchanged.
        **settings: hyper-parameters, if the spec is a single name; and `weight`, `ignore_index`, `reduction`, `label_smoothing`.

    Example:
        >>> get("0.3*nce + 0.7*mae", reduction="sum")
        0.3*nce(reduction='sum') + 0.7*mae(reduction='sum')
    """
    if not isinstance(spec, str | Loss):
        raise InputError(f"A loss must be a spec string or a Loss (torch's cross-entropy is 'ce'). Got {type(spec).__name__} instead.")
    contract = {key: settings.pop(key) for key in CONTRACT if key in settings and isinstance(spec, str)}
    loss: Loss = registry.get(spec, **settings)
    for key, value in contract.items():
        setattr(loss, key, value)
    return loss


extension("curricula")  # imports `noisewise.curriculum`, which registers `scaled`, `shifted`, `normalised` and `scheduled`
