"""Two processes that find each other as those of torchrun do."""

import os
import socket
from collections.abc import Callable
from typing import Any

import torch
import torch.multiprocessing as multiprocessing


def in_two_processes(work: Callable[..., None], *arguments: Any) -> None:
    """Call a function of a module in two processes; an exception in either is raised here."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    multiprocessing.spawn(_process, (port, work, arguments), nprocs=2)


def _process(rank: int, port: int, work: Callable[..., None], arguments: tuple[Any, ...]) -> None:
    torch.set_num_threads(1)
    os.environ |= {"RANK": str(rank), "WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
    work(*arguments)
