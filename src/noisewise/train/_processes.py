"""One run over several processes, as `torchrun` starts them: each finds the others here, and the GPU that is its own."""

from __future__ import annotations

import importlib
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager

import torch
import torch.distributed as dist

# Gloo's threads give back what their last work held after it is done, and need the interpreter's lock for that. Destroying the group
# joins them with the lock held, so a thread that is late would wait for ever: seconds in which it can take the lock.
_LETTING_GO = 0.5


@contextmanager
def joined(device: torch.device) -> Iterator[None]:
    """Join the other processes for the length of the block, if torchrun started some and the caller has not joined them yet."""
    if dist.is_initialized() or int(os.environ.get("WORLD_SIZE", "1")) < 2:
        yield
        return
    # Its functions keep, as default argument, the group that exists when it is first imported. Imported by the first data-parallel
    # model, it would keep this run's group, whose threads then outlive the interpreter: once in a few hundred runs that aborts.
    importlib.import_module("torch.distributed.nn")
    dist.init_process_group("nccl" if device.type == "cuda" else "gloo")
    try:
        yield
    finally:
        time.sleep(_LETTING_GO)
        dist.destroy_process_group()


def speaks_for_all() -> bool:
    """Whether this process is the one that warns, so that nothing is told as often as there are processes; also before they have joined."""
    if dist.is_initialized():
        return dist.get_rank() == 0
    return int(os.environ.get("WORLD_SIZE", "1")) < 2 or int(os.environ.get("RANK", "0")) == 0


def own_gpu() -> torch.device:
    """The GPU of this process."""
    return torch.device("cuda", int(os.environ.get("LOCAL_RANK", "0")))


def wait_for_all() -> None:
    """Go on when every process of the run has come this far."""
    if dist.is_initialized():
        dist.barrier()
