"""Build models without initialising their weights: to read their spec only, or to load weights into them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode

from noisewise.models._base import Classifier, get


class _NoInitialisation(TorchFunctionMode):
    """Skip random initialisation: on the meta device it would make torch load its compiler, which takes seconds."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return args[0] if func in (Tensor.normal_, Tensor.uniform_) else func(*args, **kwargs or {})


def without_weights(spec: str, **settings: Any) -> Classifier:
    """Build a model on the meta device, where tensors have shapes but no values; see `get`."""
    with torch.device("meta"), _NoInitialisation():
        return get(spec, **settings)


def with_weights(spec: str, tensors: Mapping[str, Tensor]) -> Classifier:
    """Build a model from a state dict, which it uses without a copy. No random numbers are drawn, and tensors keep their type."""
    model = without_weights(spec)
    model.load_state_dict(tensors, assign=True)
    if any(tensor.is_meta for tensor in (*model.parameters(), *model.buffers())):  # some buffers are not in the state dict
        model = get(spec)
        model.load_state_dict(tensors)
    return model
