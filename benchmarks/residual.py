"""The body of CIFAR residual networks on a GPU, forward and backward: kernels beside torch under autocast, in CUDA graphs.

    python benchmarks/residual.py [--tune] [--together 8] [--json FILE]

``--together 8`` lets eight work at the same time, as eight runs of a comparison do, and gives the time of one as an eighth of theirs. Every
network is checked before it is timed: kernels may be no further from float64 than autocast is, by half as much again.
``--tune`` tries other cuts of every kernel (`noisewise/kernels/_tuning.py`), each by itself and for each width, and prints the
fastest as they are written there. All of them are compiled first, by as many processes as there are cores.
"""

from __future__ import annotations

import argparse
import copy
import itertools
import json
import multiprocessing
import os
import statistics
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any
from unittest import mock

import torch
import torch.nn.functional as F
from torch import Tensor

from noisewise import models
from noisewise.kernels import _switch, _tuning, residual

BATCH = 128
NETWORKS = ("resnet20", "resnet56")
SIZES = {16: 32, 32: 16, 64: 8}  # of an image, by its channels
SHARES = {16: (44, 88, 132, 176), 32: (22, 44, 66, 88), 64: (8, 16, 24, 32)}  # of a weight gradient, tried by the channels
SLACK = 1.5


def by_torch(network: Any, x: Tensor) -> Tensor:
    x = F.relu(network.bn1(network.conv1(x)))
    for number in (1, 2, 3):
        x = getattr(network, f"layer{number}")(x)
    return x


def by_kernels(network: Any, x: Tensor) -> Tensor:
    found = residual(network, x)
    assert found is not None, "no kernels were taken"
    return found


def stepping(
    body: Callable[[Any, Tensor], Tensor], network: Any, x: Tensor, slope: Tensor, half: bool = True
) -> Callable[[], list[Tensor]]:
    """A step that gives the output and the gradients of all parameters."""
    parameters = [parameter for name, parameter in network.named_parameters() if not name.startswith("head")]

    def step() -> list[Tensor]:
        with torch.autocast("cuda", dtype=torch.bfloat16, enabled=half):
            output = body(network, x)
        return [output.detach(), *torch.autograd.grad(output, parameters, slope.to(output.dtype))]

    return step


def prepared(name: str) -> tuple[Any, Tensor, Tensor]:
    torch.manual_seed(0)
    network = models.get(name, num_classes=10).cuda().to(memory_format=torch.channels_last)
    x = torch.randn(BATCH, 3, 32, 32, device="cuda").contiguous(memory_format=torch.channels_last)
    return network, x, torch.randn(BATCH, 64, 8, 8, device="cuda").contiguous(memory_format=torch.channels_last)


def check(name: str) -> dict[str, float]:
    """How far kernels and autocast are from float64, over the output and all gradients; kernels that are wrong are of no interest."""
    network, x, slope = prepared(name)
    exact = stepping(by_torch, copy.deepcopy(network).double(), x.double(), slope, half=False)()
    found = {}
    for who, body in (("kernels", by_kernels), ("torch", by_torch)):
        tensors = stepping(body, copy.deepcopy(network), x, slope)()
        errors = [float((tensor.double() - true).norm() / true.norm()) for tensor, true in zip(tensors, exact, strict=True)]
        found[who] = statistics.fmean(errors)
    print(f"{name}: mean relative error of output and gradients {found['kernels']:.2e}, of torch {found['torch']:.2e}", flush=True)
    assert found["kernels"] <= SLACK * found["torch"], "the kernels are wrong"
    return found


def together(steps: Sequence[Callable[[], Any]], times: int = 1) -> Callable[[], list[Any]]:
    """A step that takes all these steps at the same time, each on its own stream and so many times."""
    streams = [torch.cuda.Stream() for _ in steps]

    def step() -> list[Any]:
        results = []
        for stream, each in zip(streams, steps, strict=True):
            stream.wait_stream(torch.cuda.current_stream())
            with torch.cuda.stream(stream):
                results.append([each() for _ in range(times)])
        for stream in streams:
            torch.cuda.current_stream().wait_stream(stream)
        return results

    return step


def captured(step: Callable[[], Any]) -> Callable[[], None]:
    """A function that replays the step."""
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(2):
            step()
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        step()

    def replay(reads: Callable[[], Any] = step) -> None:
        graph.replay()  # what the step reads lives as long as this function

    return replay


def microseconds(replay: Callable[[], None], replays: int, rounds: int = 5) -> float:
    """Median time of a replay."""
    times = []
    replay()
    for _ in range(rounds):
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        begin.record()
        for _ in range(replays):
            replay()
        end.record()
        torch.cuda.synchronize()
        times.append(1000 * begin.elapsed_time(end) / replays)
    return statistics.median(times)


def profiled(replay: Callable[[], None], replays: int = 5) -> list[tuple[str, float, int]]:
    """Every kernel's name, its time in one replay in µs, and how often it runs in it."""
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as seen:
        for _ in range(replays):
            replay()
        torch.cuda.synchronize()
    rows = [(event.key, event.self_device_time_total / replays, event.count // replays) for event in seen.key_averages()]
    return sorted((row for row in rows if row[1] > 0), key=lambda row: -row[1])


def measure(name: str, number: int) -> dict[str, Any]:
    found: dict[str, Any] = {"error": check(name), "together": number}
    for who, body in (("kernels", by_kernels), ("torch", by_torch)):
        found[who] = microseconds(captured(together([stepping(body, *prepared(name)) for _ in range(number)])), replays=50) / number
        replay = captured(stepping(body, *prepared(name)))
        table = found[f"{who}, each"] = profiled(replay)
        kernels = f"{sum(row[2] for row in table)} kernels of {sum(row[1] for row in table):.0f} µs"
        print(f"{name} by {who}, {number} at once: {found[who]:.0f} µs forward and backward; {kernels}")
        for kernel, took, count in table[:20]:
            print(f"    {took:8.1f} µs {count:5d} × {took / count:6.2f} µs  {kernel[:100]}", flush=True)
    print(f"{name}: {found['torch'] / found['kernels']:.2f} times as fast as torch", flush=True)
    return found


Variant = tuple[str, int, Any, int]  # table, width, what is tried, and into how many shares a weight gradient is cut


def in_turn() -> list[Variant]:
    """What is in use first, then what is tried, one of every table and width after the other: when time is up, none is left out."""
    groups: dict[tuple[str, int], list[Variant]] = {
        (table, width): [(table, width, getattr(_tuning, table)[width], _tuning.SHARES[width] if table == "CORRELATE" else 0)]
        for table in ("CONVOLVE", "PROPAGATE", "CORRELATE", "ELEMENTS")
        for width in SIZES
    }
    for variant in variants():
        groups[variant[:2]].append(variant)
    turns = itertools.zip_longest(*groups.values())
    return list(dict.fromkeys(variant for turn in turns for variant in turn if variant is not None))


def variants() -> Iterator[Variant]:
    """What is tried: at least 8 pixels to a warp, and no more sums to a thread than it has room for."""
    for width, shares in SHARES.items():
        for pixels, warps, stages in itertools.product((128, 64, 256, 32), (4, 2, 8), (1, 3, 2)):
            if 8 * warps <= pixels <= 2048 * warps // width:
                tiles = [_tuning.Tile(pixels, depth, warps, stages) for depth in (width, 2 * width)]
                yield from ((table, width, tile, 0) for table in ("CONVOLVE", "PROPAGATE") for tile in tiles)
        for pixels, depth, warps, stages in itertools.product((128, 64, 256), (64, 128, 32), (4, 8), (1, 2, 3)):
            yield from (("CORRELATE", width, _tuning.Tile(pixels, depth, warps, stages), number) for number in shares)
        yield from (("ELEMENTS", width, elements, 0) for elements in (1024, 2048, 4096, 8192))


def work(table: str, width: int, shares: int) -> Callable[[], None]:
    """The kernels that an entry of a table is about, in every form that a block has."""
    from noisewise.kernels import _convolution as kernels

    size = SIZES[width]
    torch.manual_seed(0)
    source, y, gradient = torch.randn(3, BATCH, size, size, width, device="cuda").bfloat16()
    weight, norm = torch.randn(width, 3, 3, width, device="cuda").bfloat16(), torch.rand(4, width, device="cuda")
    room, total = torch.empty(max(shares, 1), weight.numel(), device="cuda"), torch.empty(weight.numel(), device="cuda")

    def convolve() -> None:
        kernels.convolve(source, weight, 1)

    def propagate() -> None:
        kernels.propagate(gradient, weight, 1, y, norm, source, None)
        kernels.propagate(gradient, weight, 1, y, norm, source, gradient)

    def correlate() -> None:
        kernels.correlate(source, gradient, 1, room)
        kernels.add(room, total, _tuning.ADDED_WEIGHTS)

    def elements() -> None:
        kernels.join(y, norm, source, 1)
        kernels.denormalise(gradient, y, norm, norm[:2])

    return {"CONVOLVE": convolve, "PROPAGATE": propagate, "CORRELATE": correlate, "ELEMENTS": elements}[table]


def tried(variant: Variant, number: int) -> float | None:
    """How long each of so many takes in µs, or None where a variant does not fit on the GPU; with 0 it is only compiled."""
    import triton

    table, width, value, shares = variant
    with mock.patch.dict(getattr(_tuning, table), {width: value}):
        step = work(table, width, shares)
        try:
            step()
        except triton.runtime.errors.OutOfResources:
            return None
        torch.cuda.synchronize()
        if number == 0:
            return None
        steps = [step, *(work(table, width, shares) for _ in range(number - 1))]
        return microseconds(captured(together(steps, times=10)), replays=5, rounds=3) / (10 * number)


def compiled(group: list[Variant]) -> int:
    for variant in group:
        tried(variant, 0)
    return len(group)


def tune(until: float, number: int) -> dict[str, Any]:
    every = in_turn()
    distinct = list({variant[:3]: variant for variant in every}.values())
    workers = os.cpu_count() or 1
    started = time.perf_counter()
    groups = [distinct[first::workers] for first in range(workers)]
    with ProcessPoolExecutor(workers, multiprocessing.get_context("spawn")) as pool:
        done = sum(pool.map(compiled, groups))
    print(f"{done} kernels compiled in {time.perf_counter() - started:.0f} s by {workers} processes", flush=True)
    times: dict[tuple[str, int], dict[tuple[Any, int], float]] = {}
    for variant in every:
        if time.perf_counter() > until:
            print("the time is up: what follows is the fastest so far", flush=True)
            break
        took = tried(variant, number)
        if took is not None:
            times.setdefault(variant[:2], {})[variant[2:]] = took
    return reported(times)


def reported(times: dict[tuple[str, int], dict[tuple[Any, int], float]]) -> dict[str, Any]:
    """The fastest of every table and width, printed as `_tuning.py` has them; and all times."""
    best = {key: min(found, key=found.__getitem__) for key, found in times.items()}
    for (table, width), found in times.items():
        used = found.get((getattr(_tuning, table)[width], _tuning.SHARES[width] if table == "CORRELATE" else 0), float("nan"))
        print(f"{table} at {width} channels: {used:.2f} µs in use")
        for value, shares in sorted(found, key=found.__getitem__)[:4]:
            print(f"    {found[value, shares]:7.2f} µs  {value}{f', {shares} shares' if table == 'CORRELATE' else ''}", flush=True)
    for table in ("CONVOLVE", "PROPAGATE", "CORRELATE", "ELEMENTS"):
        values = {width: best[table, width][0] for width in SIZES if (table, width) in best}
        print(f"{table} = {values!r}")
    shares = {width: best["CORRELATE", width][1] for width in SIZES if ("CORRELATE", width) in best}
    print(f"SHARES = {shares!r}", flush=True)
    return {
        f"{table} {width}": {f"{value}, {shares}": took for (value, shares), took in found.items()}
        for (table, width), found in times.items()
    }


def main() -> None:
    started = time.perf_counter()
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tune", action="store_true")
    parser.add_argument("--together", type=int, default=1)
    parser.add_argument("--seconds", type=float, default=90.0, help="when to stop trying")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    if not torch.cuda.is_available():
        sys.exit("benchmarks/residual.py measures on a GPU and finds none.")
    _switch._switched_on = True
    number = options.together
    result = tune(started + options.seconds, number) if options.tune else {name: measure(name, number) for name in NETWORKS}
    if options.json:
        options.json.write_text(json.dumps({"gpu": torch.cuda.get_device_name(), "torch": torch.__version__, **result}, indent=1))


if __name__ == "__main__":
    main()
