"""Let `compare` fork its workers from a process that has imported torch already, because importing torch takes seconds."""

from types import SimpleNamespace

import pytest
import torch.multiprocessing as multiprocessing

from noisewise.train import _compare

PRELOADED = ["pytest", "torch", "noisewise", "noisewise.train", "noisewise.data", "noisewise.models", "noisewise.losses"]


def fork_workers(monkeypatch: pytest.MonkeyPatch) -> None:
    """Replace the start method of the workers. One test in test_compare.py starts them as users do."""
    multiprocessing.set_forkserver_preload(PRELOADED)
    context = multiprocessing.get_context("forkserver")
    monkeypatch.setattr(_compare, "multiprocessing", SimpleNamespace(get_context=lambda method: context))
