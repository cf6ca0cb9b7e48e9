"""What a run shares: with the other processes that `torchrun` started, with other threads, and the global state of torch."""

from __future__ import annotations

import gc
import importlib
import os
import re
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist

from noisewise.errors import WorkerLostError, invalid_parameter, reason
from noisewise.spec import real

TIMEOUT = "NOISEWISE_TIMEOUT"
"""The environment variable that sets how many seconds the processes of a run wait for each other."""
_DEFAULT_TIMEOUT = "600"
_ROLL_CALL = 5.0  # seconds for a live process to answer after a timeout
_TIMED_OUT = re.compile(r"timed ?out|timeout|connection (closed|reset)", re.IGNORECASE)  # torch has no exception class for these
_store: Any = None  # the key-value store of the group that `join` made

# Seconds to wait before a process group is destroyed. Gloo's threads need the interpreter's lock to finish, and destroying the group waits
# for them while it holds that lock: a thread that has not finished by then would wait forever.
_RELEASE = 0.5


@contextmanager
def join(device: torch.device) -> Iterator[None]:
    """Form a process group with the other processes during the block, if torchrun started some and the caller has no group yet."""
    if dist.is_initialized() or int(os.environ.get("WORLD_SIZE", "1")) < 2:
        yield
        return
    # Import it before there is a group: its functions keep the current group as a default argument. If a data-parallel model imported it
    # later, the threads of this run's group would outlive the interpreter, which then aborts once in a few hundred runs.
    importlib.import_module("torch.distributed.nn")
    from torch.distributed.rendezvous import rendezvous

    global _store
    limit = _timeout()
    try:
        _store, rank, world = next(iter(rendezvous("env://", timeout=limit)))
        dist.init_process_group("nccl" if device.type == "cuda" else "gloo", store=_store, rank=rank, world_size=world, timeout=limit)
    except dist.DistError as error:
        raise WorkerLostError(f"The processes of the run could not connect ({reason(error)}). Start all of them at once.") from error
    try:
        yield
    finally:
        gc.collect()  # the data-parallel model keeps the group, and other objects of the run refer to it in cycles
        time.sleep(_RELEASE)
        dist.destroy_process_group()
        _store = None


def _timeout() -> timedelta:
    seconds = os.environ.get(TIMEOUT, _DEFAULT_TIMEOUT)
    with suppress(ValueError, OverflowError):
        if real(float(seconds)) > 0:
            return timedelta(seconds=float(seconds))
    raise invalid_parameter(TIMEOUT, "the environment", "a number of seconds", seconds)


@contextmanager
def report_lost_workers() -> Iterator[None]:
    """Turn a timeout in the block into an error that names the processes that do not answer."""
    try:
        yield
    except RuntimeError as error:
        if _store is None or not _TIMED_OUT.search(str(error)):
            raise
        silent = ", ".join(map(str, _silent(_store))) or "unknown"
        raise WorkerLostError(
            f"Some of the {dist.get_world_size()} processes of the run did not answer for {_timeout().total_seconds():g} s: rank {silent}. "
            f"Find out why, then run the same command again: it resumes from the last checkpoint. {TIMEOUT} sets how long to wait."
        ) from error


def _silent(store: Any) -> list[int]:
    """The ranks of the processes that do not answer. Live processes time out too, and answer here."""
    here, world = dist.get_rank(), dist.get_world_size()
    missing = set(range(world)) - {here}

    def call() -> None:
        store.set(f"here/{here}", "yes")
        for rank in sorted(missing):
            with suppress(RuntimeError):
                store.wait([f"here/{rank}"], timedelta(seconds=_ROLL_CALL))
                missing.discard(rank)

    # In a thread, because rank 0 serves the store: if it hangs, a request never returns.
    thread = threading.Thread(target=call, daemon=True)
    thread.start()
    thread.join(_ROLL_CALL * (world + 1))
    return [0] if thread.is_alive() and here != 0 else sorted(missing)


def is_main_process() -> bool:
    """Whether this is the process that gives warnings. It may be called before the processes form a group."""
    if dist.is_initialized():
        return dist.get_rank() == 0
    return int(os.environ.get("WORLD_SIZE", "1")) < 2 or int(os.environ.get("RANK", "0")) == 0


def own_gpu() -> torch.device:
    """The GPU of this process."""
    return torch.device("cuda", int(os.environ.get("LOCAL_RANK", "0")))


def wait_for_all() -> None:
    """Wait until every process of the run has reached this point."""
    if dist.is_initialized():
        with report_lost_workers():
            dist.barrier()


one_at_a_time = threading.RLock()
"""Threads train one after the other, because they share torch's random generators."""


@contextmanager
def isolate_torch_state(training_device: torch.device) -> Iterator[None]:
    """Use fixed modes, generators and kernels of torch in the block, whatever the caller has set, and restore them afterwards."""
    with ExitStack() as modes:
        modes.enter_context(torch.inference_mode(False))
        modes.enter_context(torch.enable_grad())
        for device in {"cpu", training_device.type}:  # without its cache, which keeps old weights until the outermost block ends
            modes.enter_context(torch.autocast(device, enabled=False, cache_enabled=False))
        modes.enter_context(torch.random.fork_rng([training_device] if training_device.type == "cuda" else []))
        cudnn = torch.backends.cudnn
        modes.callback(_set_defaults, cudnn.benchmark, cudnn.deterministic, torch.get_default_dtype())
        _set_defaults(False, True, torch.float32)
        yield


def _set_defaults(benchmark: bool, deterministic: bool, dtype: torch.dtype) -> None:
    torch.backends.cudnn.benchmark, torch.backends.cudnn.deterministic = benchmark, deterministic
    torch.set_default_dtype(dtype)
