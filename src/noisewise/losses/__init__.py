"""The losses, one file each. A new file in this folder is imported, registered, listed, documented and tested automatically.

>>> from noisewise import losses
>>> losses.get("gce(q=0.7)")
gce(q=0.7)
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from noisewise.extensions import extension
from noisewise.losses._adaptive import Adaptive
from noisewise.losses._base import CONTRACT, Combination, Loss, MarginLoss, get, inner_margin_loss, registry
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
    "Adaptive",
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


extension("curricula")  # imports `noisewise.curriculum`, which registers `scaled`, `shifted`, `normalised` and `scheduled`
