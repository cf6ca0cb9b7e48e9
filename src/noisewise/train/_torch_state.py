"""What the caller has set for all of torch, and other threads: training is the same whatever it is, and leaves it as it was."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

import torch

one_at_a_time = threading.RLock()
"""Threads train one after the other: they share the generators that weights and dropout are drawn from."""


@contextmanager
def undisturbed(place: torch.device) -> Iterator[None]:
    """Train alike whatever the caller has set: torch's modes, its generators, its kernels. Afterwards all are as they were."""
    with ExitStack() as modes:
        modes.enter_context(torch.inference_mode(False))
        modes.enter_context(torch.enable_grad())
        for device in {"cpu", place.type}:  # without its cache, which holds the first weights until the outermost block ends
            modes.enter_context(torch.autocast(device, enabled=False, cache_enabled=False))
        modes.enter_context(torch.random.fork_rng([place] if place.type == "cuda" else []))  # training seeds them
        cudnn = torch.backends.cudnn
        modes.callback(_set_defaults, cudnn.benchmark, cudnn.deterministic, torch.get_default_dtype())
        _set_defaults(False, True, torch.float32)
        yield


def _set_defaults(benchmark: bool, deterministic: bool, dtype: torch.dtype) -> None:
    """Whether cuDNN tries its kernels out or takes the same ones every time, and what new tensors are."""
    torch.backends.cudnn.benchmark, torch.backends.cudnn.deterministic = benchmark, deterministic
    torch.set_default_dtype(dtype)
