"""Run a function in two processes that connect as those of torchrun do.

They are forked from a process that has imported torch already, because importing torch takes seconds.
"""

import os
from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist
import torch.multiprocessing as multiprocessing

from quick_workers import PRELOADED


def in_two_processes(work: Callable[..., None], *arguments: Any) -> None:
    """Call a function of a module in two processes; an exception in either is raised here."""
    store = dist.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)  # keeps its port, so that no other process can take it
    multiprocessing.set_forkserver_preload(PRELOADED)
    multiprocessing.start_processes(_process, (store.port, work, arguments), nprocs=2, start_method="forkserver")


def _process(rank: int, port: int, work: Callable[..., None], arguments: tuple[Any, ...]) -> None:
    torch.set_num_threads(1)
    os.environ |= {"RANK": str(rank), "WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
    os.environ["TORCHELASTIC_USE_AGENT_STORE"] = "True"  # join the store that exists instead of starting one
    work(*arguments)
