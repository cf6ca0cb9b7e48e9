"""The losses. Each is one file of this folder; a file dropped in is found, registered, listed, documented and tested.

>>> from noisewise import losses
>>> losses.get("gce(q=0.7)")
gce(q=0.7)
"""

from __future__ import annotations

import importlib
import pkgutil
from typing import TYPE_CHECKING, Any

from torch.nn import CrossEntropyLoss

from noisewise.errors import InputError
from noisewise.losses._base import CONTRACT, Loss, MarginLoss, registry
from noisewise.losses._normalising import Accumulation, before_size, by_itself, over_the_batch

__all__ = ["CONTRACT", "Accumulation", "Loss", "MarginLoss", "available", "before_size", "by_itself", "get", "over_the_batch"]

for _found in pkgutil.iter_modules(__path__):
    if not _found.name.startswith("_"):
        _module = importlib.import_module(f"{__name__}.{_found.name}")
        for _thing in vars(_module).values():
            if isinstance(_thing, type) and issubclass(_thing, Loss) and _thing.__module__ == _module.__name__:
                globals()[_thing.__name__] = _thing
                __all__ += [_thing.__name__]

if TYPE_CHECKING:  # the classes are found at run time, one file each

    def __getattr__(name: str) -> Any: ...


available = registry.available
_THEIRS: dict[type, str] = {CrossEntropyLoss: "; torch's own is 'ce'"}


def get(spec: str | Loss, **settings: Any) -> Loss:
    """The loss a spec string names.

    Args:
        spec: such as ``"imae(T=8)"`` or ``"0.3*nce + 0.7*mae"``; a loss is returned as it is.
        **settings: hyper-parameters of a spec that is one name, and `weight`, `ignore_index`, `reduction`, `label_smoothing`.

    Example:
        >>> get("0.3*nce + 0.7*mae", reduction="sum")
        0.3*nce(reduction='sum') + 0.7*mae(reduction='sum')
    """
    if not isinstance(spec, str | Loss):
        raise InputError(f"A loss is given as a spec string or a Loss. Got {type(spec).__name__} instead{_THEIRS.get(type(spec), '')}.")
    contract = {key: settings.pop(key) for key in CONTRACT if key in settings and isinstance(spec, str)}
    loss: Loss = registry.get(spec, **settings)
    for key, value in contract.items():
        setattr(loss, key, value)
    return loss
