"""Methods: training rules that need more than a loss, such as two networks, corrected labels or selected examples.

Every module in this folder is imported, so that a new file registers the method it defines.

>>> from noisewise import methods
>>> methods.get("plain")
plain
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from noisewise.methods._base import Ensemble, Method, Scored, State, networks_of, refuse_batch_loss, registry, relabels
from noisewise.methods._batch import Batch
from noisewise.methods._pull import LossPull, Pull
from noisewise.spec import discover

__all__ = [
    "Batch",
    "Ensemble",
    "LossPull",
    "Method",
    "Pull",
    "Scored",
    "State",
    "available",
    "get",
    "networks_of",
    "refuse_batch_loss",
    "registry",
    "relabels",
]

_methods = discover(__name__, __path__, Method)
globals().update(_methods)
__all__ += list(_methods)

if TYPE_CHECKING:  # type checkers do not see the classes that are discovered at run time

    def __getattr__(name: str) -> Any: ...


available = registry.available
get = registry.get
