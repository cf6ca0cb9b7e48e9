"""Whether kernels can be used. If not, torch is used instead, and the reason is logged at debug level."""

from __future__ import annotations

import contextlib
import functools
import importlib.util
import logging
import os
import sys
import threading
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor

from noisewise.exact import going_forward

TYPES = (torch.float32, torch.bfloat16, torch.float16)
LONGEST = 2**18
OLDEST = (8, 0)  # the first compute capability with bfloat16


_logger = logging.getLogger("noisewise")
_switched_on = os.environ.get("NOISEWISE_KERNELS") != "0"
_thread_state = threading.local()
_interpreted = os.environ.get("TRITON_INTERPRET", "0") not in ("0", "")


def usable(scores: Tensor) -> bool:
    """Whether kernels can be used for scores shaped (…, C)."""
    reason = _reason(scores)
    if reason and not torch.compiler.is_compiling():
        log_once(reason)
    return not reason


def _reason(scores: Tensor) -> str:
    if scores.dtype not in TYPES:
        return f"no kernels for scores in {scores.dtype}"
    return unready(scores) or (f"no kernels for more than {LONGEST} classes" if scores.shape[-1] > LONGEST else "")


def unready(tensor: Tensor) -> str:
    """Why no kernel can be used for a tensor; empty if kernels can be used."""
    if not _switched_on or (not torch.compiler.is_compiling() and getattr(_thread_state, "off", False)):
        return "kernels are switched off"
    if torch._C._are_functorch_transforms_active() or going_forward():
        return "torch.func transforms and forward-mode derivatives use torch"
    if tensor.device.type != "cuda" and not (_interpreted and tensor.device.type == "cpu"):
        return f"no kernels for tensors on {tensor.device.type}"
    return _missing(tensor.device)


@contextlib.contextmanager
def off() -> Iterator[None]:
    """Turn kernels off inside the block, in this thread."""
    before, _thread_state.off = getattr(_thread_state, "off", False), True
    try:
        yield
    finally:
        _thread_state.off = before


def untraced(function: Callable[..., Any]) -> Callable[..., Any]:
    """`torch.compiler.disable` for a function, applied only once the compiler is loaded: the decorator would load it, for seconds."""
    disabled: list[Callable[..., Any]] = []  # a functools.cache would warn when it is traced

    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        if "torch._dynamo" not in sys.modules:
            return function(*args, **kwargs)
        if not disabled:
            disabled.append(torch.compiler.disable(function))  # type: ignore[no-untyped-call]
        return disabled[0](*args, **kwargs)

    call._torchdynamo_disable = True  # type: ignore[attr-defined]  # the compiler must not look into `call` either
    return call


def _missing(device: torch.device) -> str:
    return _unsupported(device)


# As torch.compiler.assume_constant_result sets it; the decorator would import the whole compiler.
_missing._dynamo_marked_constant = True  # type: ignore[attr-defined]


@functools.cache
def _unsupported(device: torch.device) -> str:
    if importlib.util.find_spec("triton") is None:
        return "Triton is not installed"
    if device.type == "cuda" and torch.version.hip is not None:
        return "kernels need an NVIDIA GPU"
    if device.type == "cuda" and torch.cuda.get_device_capability(device) < OLDEST:
        return f"{torch.cuda.get_device_name(device)} is older than compute capability {OLDEST[0]}.{OLDEST[1]}"
    return ""


@functools.cache
def log_once(reason: str) -> None:
    """Log a reason at debug level, once per process."""
    _logger.debug("torch is used instead of a kernel: %s", reason)
