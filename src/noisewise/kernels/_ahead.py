"""Compile all kernels of a step together, before the first of them is launched.

Triton compiles a kernel when it is first launched. A residual network has some forty kernels, and one after the other they take half a
minute. Inside `compiled_ahead` kernels are not launched but noted, and they are compiled in threads when the block ends.
"""

from __future__ import annotations

import os
import random
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor

_thread_state = threading.local()


def launch(kernel: Any, grid: tuple[int, ...], *args: Any, **sizes: Any) -> None:
    """Launch a kernel, or note it inside `compiled_ahead`."""
    noted = getattr(_thread_state, "noted", None)
    if noted is None:
        kernel[grid](*args, **sizes)
        return
    types = tuple(arg.dtype if isinstance(arg, Tensor) else arg for arg in args)
    noted[kernel, types, tuple(sizes.items())] = None


@contextmanager
def compiled_ahead() -> Iterator[None]:
    """Compile the kernels that the block would launch. What they would write in the block is not defined."""
    noted: dict[tuple[Any, ...], None] = {}
    _thread_state.noted = noted
    try:
        with torch.autograd.set_multithreading_enabled(False):  # the backward pass must be in this thread, which notes
            yield
    finally:
        _thread_state.noted = None
    if noted:
        _compile(list(noted))


def _compile(kernels: list[tuple[Any, ...]]) -> None:
    """Compile kernels in as many threads as torch may use.

    Triton stores compiled kernels on the disk. Processes that need the same kernels start in different orders, so each of them finds most
    kernels there.
    """
    import triton  # type: ignore[import-untyped, import-not-found, unused-ignore]

    random.Random(os.getpid()).shuffle(kernels)
    with ThreadPoolExecutor(torch.get_num_threads()) as threads, triton.AsyncCompileMode(threads):
        for kernel, types, sizes in kernels:
            kernel.warmup(*types, grid=(1,), **dict(sizes))
