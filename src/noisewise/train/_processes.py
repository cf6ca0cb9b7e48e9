"""One run over several processes, as `torchrun` starts them: each finds the others here, and the GPU that is its own."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager

import torch
import torch.distributed as dist

# Its functions keep, as default argument, the group that exists when it is first imported. Imported by the first data-parallel
# model it would keep this run's group, whose threads then outlive the interpreter: once in a few hundred runs that aborts.
import torch.distributed.nn


@contextmanager
def joined(device: torch.device) -> Iterator[None]:
    """Join the other processes for the length of the block, if torchrun started some and the caller has not joined them yet."""
    if dist.is_initialized() or int(os.environ.get("WORLD_SIZE", "1")) < 2:
        yield
        return
    dist.init_process_group("nccl" if device.type == "cuda" else "gloo")
    try:
        yield
    finally:
        dist.destroy_process_group()


def own_gpu() -> torch.device:
    """The GPU of this process."""
    return torch.device("cuda", int(os.environ.get("LOCAL_RANK", "0")))


def wait_for_all() -> None:
    """Go on when every process of the run has come this far."""
    if dist.is_initialized():
        dist.barrier()
