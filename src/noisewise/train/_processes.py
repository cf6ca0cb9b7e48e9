"""What surrounds a run: other processes that `torchrun` started, other threads, and the global state of torch."""

from __future__ import annotations

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
"""The environment variable that says for how many seconds the processes of a run wait for each other."""
_DEFAULT_TIMEOUT = "600"
_ROLL_CALL = 5.0  # seconds in which a process that runs can say so, once it has waited in vain for another
_WAITED_IN_VAIN = re.compile(r"timed ?out|timeout|connection (closed|reset)", re.IGNORECASE)  # torch has no class of its own for these
_store: Any = None  # the key-value store of the group that `joined` made

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
    from torch.distributed.rendezvous import rendezvous

    global _store
    limit = _timeout()
    try:
        _store, rank, world = next(iter(rendezvous("env://", timeout=limit)))
        dist.init_process_group("nccl" if device.type == "cuda" else "gloo", store=_store, rank=rank, world_size=world, timeout=limit)
    except dist.DistError as error:
        raise WorkerLostError(f"The processes of the run did not find each other ({reason(error)}). Start all of them at once.") from error
    try:
        yield
    finally:
        time.sleep(_LETTING_GO)
        dist.destroy_process_group()
        _store = None


def _timeout() -> timedelta:
    seconds = os.environ.get(TIMEOUT, _DEFAULT_TIMEOUT)
    with suppress(ValueError, OverflowError):
        if real(float(seconds)) > 0:
            return timedelta(seconds=float(seconds))
    raise invalid_parameter(TIMEOUT, "the environment", "a number of seconds", seconds)


@contextmanager
def answered() -> Iterator[None]:
    """Say which processes did not answer, in one sentence, where this one waited for them in vain."""
    try:
        yield
    except RuntimeError as error:
        if _store is None or not _WAITED_IN_VAIN.search(str(error)):
            raise
        silent = ", ".join(map(str, _silent(_store))) or "unknown"
        raise WorkerLostError(
            f"Some of the {dist.get_world_size()} processes of the run did not answer for {_timeout().total_seconds():g} s: rank {silent}. "
            f"Find out why, then run the same command again: it resumes from the last checkpoint. {TIMEOUT} sets how long to wait."
        ) from error


def _silent(store: Any) -> list[int]:
    """The ranks of the processes that do not say that they are there. Those that run wait in vain too, and come here."""
    here, world = dist.get_rank(), dist.get_world_size()
    missing = set(range(world)) - {here}

    def call() -> None:
        store.set(f"here/{here}", "yes")
        for rank in sorted(missing):
            with suppress(RuntimeError):
                store.wait([f"here/{rank}"], timedelta(seconds=_ROLL_CALL))
                missing.discard(rank)

    # In a thread, because the first process answers for the store: where it stands still, asking takes for ever.
    thread = threading.Thread(target=call, daemon=True)
    thread.start()
    thread.join(_ROLL_CALL * (world + 1))
    return [0] if thread.is_alive() and here != 0 else sorted(missing)


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
        with answered():
            dist.barrier()


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
