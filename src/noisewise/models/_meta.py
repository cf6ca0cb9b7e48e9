"""Models that are built without drawing their weights: to be named only, or to get those of a file."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode

from noisewise.models._base import Classifier, get


class _Undrawn(TorchFunctionMode):
    """Draws no random numbers: without memory for weights, torch would load its compiler to do so, for seconds."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return args[0] if func in (Tensor.normal_, Tensor.uniform_) else func(*args, **kwargs or {})


def unfilled(spec: str, **settings: Any) -> Classifier:
    """Build a model on the meta device.

    Args:
        spec: what `get` takes.
        **settings: likewise.
    """
    with torch.device("meta"), _Undrawn():
        return get(spec, **settings)


def filled(spec: str, tensors: Mapping[str, Tensor]) -> Classifier:
    """Build a model that has its weights already: nothing is drawn, so that no generator moves, and they keep their type.

    Args:
        spec: what `get` takes.
        tensors: its state, which it takes as its own.
    """
    model = unfilled(spec)
    model.load_state_dict(tensors, assign=True)
    if any(tensor.is_meta for tensor in (*model.parameters(), *model.buffers())):  # has buffers that no state holds
        model = get(spec)
        model.load_state_dict(tensors)
    return model
