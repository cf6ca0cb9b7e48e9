"""Let `compare` fork its workers from a process that has imported torch already, because importing torch takes seconds."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

import pytest
import torch.multiprocessing as multiprocessing

PRELOADED = [
    "pytest",
    "torch",
    "torch.fx.experimental.symbolic_shapes",  # torch imports it in the first training
    "noisewise",
    "noisewise.train",
    "noisewise.data",
    "noisewise.models",
    "noisewise.losses",
]


@contextmanager
def quick_workers() -> Iterator[None]:
    """Replace the start method of the workers. One test in test_compare.py starts them as users do."""
    from noisewise.train import _compare

    multiprocessing.set_forkserver_preload(PRELOADED)
    context = multiprocessing.get_context("forkserver")

    def process(target: Callable[..., None], args: tuple[Any, ...], **options: Any) -> Any:
        return context.Process(target=_work, args=(dict(os.environ), target, args), **options)

    quick = SimpleNamespace(Pipe=context.Pipe, Process=process)
    with pytest.MonkeyPatch.context() as monkeypatch:
        monkeypatch.setattr(_compare, "multiprocessing", SimpleNamespace(get_context=lambda method: quick))
        yield


def _work(environment: dict[str, str], work: Callable[..., None], arguments: tuple[Any, ...]) -> None:
    """Work in the environment of the process that started this one, not in that of the process it was forked from."""
    os.environ.clear()
    os.environ |= environment
    work(*arguments)
