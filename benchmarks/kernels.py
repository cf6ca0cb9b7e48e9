"""Loss and gradient on a GPU: kernels beside torch's cross-entropy and the published formulations, as multiples of a device copy.

    python benchmarks/kernels.py [--seconds 240] [--json FILE] [--write] [--profile FILE] [--tune] [--only rows|linear]
    python benchmarks/kernels.py --read FILE --write
    python benchmarks/kernels.py --errors FILE --write

The floor of a loss and its gradient is one read of the scores and one write of the gradient: a device copy of the same bytes.
Times are medians of CUDA-graph replays, or of plain calls where a contender cannot be captured (marked †). Rivals are measured if
they import: Liger, Cut-Cross-Entropy, and F.linear_cross_entropy of newer versions of torch. Contenders come in the order of their
interest; those that no longer fit into ``--seconds`` are left out and named. ``--json`` and ``--write`` write after every shape.
``--profile`` lists the time of each of our kernels. ``--tune`` tries other cuts of the rows (`noisewise/kernels/_tuning.py`) and
prints the fastest.
"""

from __future__ import annotations

import argparse
import functools
import itertools
import json
import os
import shlex
import statistics
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any
from unittest import mock

import torch
import torch.multiprocessing
import torch.nn.functional as F
from torch import Tensor

import noisewise
from noisewise.kernels import _switch, _tuning, fused, linear_loss
from results import write_section

Criterion = Callable[[Tensor, Tensor], Tensor]

SHAPES = (
    (65536, 1000, torch.float32),
    (16384, 32000, torch.bfloat16),
    (8192, 128256, torch.bfloat16),
    (8192, 50257, torch.bfloat16),
    (4096, 262144, torch.bfloat16),
    (16384, 4096, torch.float32),
    (65536, 100, torch.float32),
    (128, 10, torch.float32),
    (128, 100, torch.float32),
)
LINEAR = ((8192, 4096, 131072), (4096, 2048, 32000))  # rows, width, classes; bf16
OURS = ("ce", "gce(q=0.7)", "mae", "imae(T=8)", "js(pi=0.5)", "tce(q=3)", "nce", "0.3*nce + 0.7*mae")


def ours(spec: str) -> Criterion:
    loss = noisewise.get(spec)

    def criterion(scores: Tensor, target: Tensor) -> Tensor:
        value = fused(loss, scores, target)
        assert value is not None, f"{spec} took no kernel"
        return value

    return criterion


def composed_gce(scores: Tensor, target: Tensor) -> Tensor:
    """The honest rival: a margin loss is a function of the cross-entropy of each row."""
    each = F.cross_entropy(scores.float(), target, reduction="none")
    return (-torch.expm1(-0.7 * each) / 0.7).mean()


def published_gce(scores: Tensor, target: Tensor) -> Tensor:
    p = scores.float().softmax(1).clamp(1e-7, 1.0)
    own = (F.one_hot(target, scores.shape[1]).to(p.dtype) * p).sum(1)
    return ((1 - own**0.7) / 0.7).mean()


def published_nce(scores: Tensor, target: Tensor) -> Tensor:
    log_p = scores.float().log_softmax(1)
    return (-(F.one_hot(target, scores.shape[1]).to(log_p.dtype) * log_p).sum(1) / -log_p.sum(1)).mean()


def published_sce(scores: Tensor, target: Tensor) -> Tensor:
    p = scores.float().softmax(1).clamp(1e-7, 1.0)
    label = F.one_hot(target, scores.shape[1]).to(p.dtype).clamp(1e-4, 1.0)
    return 0.1 * F.cross_entropy(scores.float(), target) - (p * label.log()).sum(1).mean()


def liger() -> Criterion | None:
    try:
        from liger_kernel.transformers import LigerCrossEntropyLoss
    except ImportError:
        return None
    return LigerCrossEntropyLoss()  # type: ignore[no-any-return]


def contenders() -> dict[str, Callable[[], Criterion | None]]:
    """How each is made, in the order of interest; compiling is done only when its turn comes."""
    return {
        **{f"noisewise {spec}": lambda spec=spec: ours(spec) for spec in OURS},
        "F.cross_entropy": lambda: F.cross_entropy,
        "F.cross_entropy, compiled": lambda: torch.compile(F.cross_entropy),
        "Liger cross-entropy": liger,
        "gce of F.cross_entropy": lambda: composed_gce,
        "gce of F.cross_entropy, compiled": lambda: torch.compile(composed_gce),
        "gce, published": lambda: published_gce,
        "nce, published": lambda: published_nce,
        "sce, published": lambda: published_sce,
        "gce, published, compiled": lambda: torch.compile(published_gce),
        "nce, published, compiled": lambda: torch.compile(published_nce),
    }


def waits(step: Callable[[], Any]) -> bool:
    """Whether a step waits for the GPU, as Liger's does to count the targets. Capturing such a step fails, and after a failed capture
    torch never frees the memory of any graph."""
    torch.cuda.set_sync_debug_mode("error")
    try:
        step()
    except RuntimeError:
        return True
    finally:
        torch.cuda.set_sync_debug_mode("default")
    return False


def milliseconds(step: Callable[[], Any], seconds: float = 0.25) -> tuple[float, bool]:
    """Median time of a step, and whether it could be captured in a CUDA graph."""
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(3):
            step()
        captured = not waits(step)
    torch.cuda.synchronize()
    graph, kept = torch.cuda.CUDAGraph(), None
    if captured:
        with torch.cuda.graph(graph):
            kept = step()  # its memory must outlive the capture
    took = median_of(graph.replay if captured else step, seconds)
    # The graph goes first, then what it holds, then the memory of both: while the next step is captured, torch frees nothing.
    graph.reset()
    del graph, kept
    torch.cuda.empty_cache()
    return took, captured


def median_of(run: Callable[[], Any], seconds: float) -> float:
    """Median over five rounds of about a fifth of the seconds each, in milliseconds per call."""
    started = time.perf_counter()
    run()
    torch.cuda.synchronize()
    number = max(3, min(200, int(seconds / 5 / max(1e-6, time.perf_counter() - started))))
    times = []
    for _ in range(5):
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        begin.record()
        for _ in range(number):
            run()
        end.record()
        torch.cuda.synchronize()
        times.append(begin.elapsed_time(end) / number)
    return statistics.median(times)


def batch(rows: int, classes: int, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    generator = torch.Generator("cuda").manual_seed(0)
    scores = (3 * torch.randn(rows, classes, device="cuda", generator=generator)).to(dtype)
    return scores.requires_grad_(), torch.randint(classes, (rows,), device="cuda", generator=generator)


def step_of(criterion: Criterion, scores: Tensor, target: Tensor) -> Callable[[], Tensor]:
    return lambda: torch.autograd.grad(criterion(scores, target), scores)[0]


def copying(scores: Tensor) -> float:
    source = scores.detach()
    room = torch.empty_like(source)
    return milliseconds(lambda: room.copy_(source))[0]


def checked(scores: Tensor, target: Tensor) -> None:
    """A kernel that is fast and wrong is of no interest."""
    part = slice(0, 256)
    found = step_of(ours("gce(q=0.7)"), scores[part].detach().requires_grad_(), target[part])().double()
    leaf = scores[part].detach().double().requires_grad_()
    (exact,) = torch.autograd.grad(noisewise.get("gce(q=0.7)")(leaf, target[part]), leaf)
    error = float((found - exact).norm() / exact.norm())
    assert error < (1e-5 if scores.dtype == torch.float32 else 5e-3), f"the gradient is off by {error:.2g}"


def measure_rows(until: float, found: list[dict[str, Any]]) -> Iterator[None]:
    """Fill in all shapes by the kernels and their nearest rivals first, then by the others: what is left out is of the least interest."""
    for rows, classes, dtype in SHAPES:
        scores, target = batch(rows, classes, dtype)
        checked(scores, target)
        found.append({"shape": f"{rows} × {classes} {str(dtype)[6:]}", "copy": copying(scores), "ms": {}, "left out": []})
        del scores, target
    for first in (True, False):
        for row, shape in zip(found, SHAPES, strict=True):
            makers = {name: make for name, make in contenders().items() if name.startswith(("noisewise", "F.", "Liger")) == first}
            measure_shape(row, shape, makers, until)
            yield


def measure_shape(
    row: dict[str, Any], shape: tuple[int, int, torch.dtype], makers: dict[str, Callable[[], Criterion | None]], until: float
) -> None:
    scores, target = batch(*shape)
    for name, make in makers.items():
        with turn(row, name, until) as has_time:
            criterion = make() if has_time else None
            if criterion is not None:
                took, captured = milliseconds(step_of(criterion, scores, target))
                row["ms"][name + ("" if captured else "†")] = took
                print(f"{row['shape']:24} {name:36} {took:9.4f} ms {took / row['copy']:7.2f} copies", flush=True)
    torch._dynamo.reset()
    del scores, target
    torch.cuda.empty_cache()


@contextmanager
def turn(row: dict[str, Any], name: str, until: float) -> Iterator[bool]:
    """Whether there is time for this contender. A rival that breaks is named, and does not cost the others their turn."""
    has_time = time.perf_counter() < until
    if not has_time:
        row["left out"].append(name)
    try:
        yield has_time
    except Exception as error:
        if name.startswith("noisewise"):
            raise
        print(f"{row['shape']:24} {name:36} {type(error).__name__}: {error}", flush=True)
        row.setdefault("broken", []).append(f"{name} ({type(error).__name__})")


def plain_linear(hidden: Tensor, weight: Tensor, target: Tensor) -> Tensor:
    return F.cross_entropy(F.linear(hidden, weight).float(), target)


def linear_contenders() -> dict[str, Callable[[Tensor, Tensor, Tensor], Tensor]]:
    found: dict[str, Callable[[Tensor, Tensor, Tensor], Tensor]] = {
        f"noisewise.linear_loss {spec}": lambda hidden, weight, target, spec=spec: linear_loss(hidden, weight, target, loss=spec)
        for spec in ("ce", "gce(q=0.7)", "imae(T=8)", "nce")
    }
    if hasattr(F, "linear_cross_entropy"):
        found["F.linear_cross_entropy"] = F.linear_cross_entropy
    if hasattr(torch.nn, "LinearCrossEntropyOptions"):
        options = torch.nn.LinearCrossEntropyOptions()
        found["F.linear_cross_entropy, chunked"] = functools.partial(F.linear_cross_entropy, options=options)
    with suppress(ImportError):
        from liger_kernel.transformers import LigerFusedLinearCrossEntropyLoss

        fused_linear = LigerFusedLinearCrossEntropyLoss()
        found["Liger fused linear cross-entropy"] = lambda hidden, weight, target: fused_linear(weight, hidden, target)
    with suppress(ImportError):
        from cut_cross_entropy import linear_cross_entropy

        found["Cut-Cross-Entropy"] = linear_cross_entropy
    return {**found, "F.linear and F.cross_entropy": plain_linear}


def linear_batch(rows: int, width: int, classes: int) -> tuple[tuple[Tensor, Tensor], Tensor]:
    generator = torch.Generator("cuda").manual_seed(0)
    hidden = torch.randn(rows, width, device="cuda", generator=generator).bfloat16().requires_grad_()
    weight = (torch.randn(classes, width, device="cuda", generator=generator) / width**0.5).bfloat16().requires_grad_()
    return (hidden, weight), torch.randint(classes, (rows,), device="cuda", generator=generator)


def measure_linear(until: float, found: list[dict[str, Any]]) -> Iterator[None]:
    """Fill in all shapes of a linear layer."""
    for rows, width, classes in LINEAR:
        inputs, target = linear_batch(rows, width, classes)
        row: dict[str, Any] = {"shape": f"{rows} × {width} × {classes}", "floor": floor(*inputs), "ms": {}, "peak": {}, "left out": []}
        found.append(row)
        for name, criterion in linear_contenders().items():
            with turn(row, name, until) as has_time:
                if has_time:
                    measure_product(row, name, criterion, inputs, target)
            torch.cuda.empty_cache()
        yield


def measure_product(row: dict[str, Any], name: str, criterion: Any, inputs: tuple[Tensor, Tensor], target: Tensor) -> None:
    """Time of a step and its memory, beyond what there was before and the gradients."""

    def step() -> Any:
        return torch.autograd.grad(criterion(*inputs, target), inputs)

    step()
    torch.cuda.synchronize()
    before = torch.cuda.memory_allocated()
    torch.cuda.reset_peak_memory_stats()
    step()
    row["peak"][name] = (torch.cuda.max_memory_allocated() - before - sum(each.nbytes for each in inputs)) / 2**20
    row["ms"][name] = timed(step)
    print(f"{row['shape']:24} {name:36} {row['ms'][name]:9.2f} ms  {row['peak'][name]:8.0f} MiB beyond the gradients", flush=True)


def timed(step: Callable[[], Any], number: int = 5) -> float:
    """Median of plain calls: a step of tens of milliseconds needs no graph."""
    times = []
    for _ in range(number):
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        begin.record()
        step()
        end.record()
        torch.cuda.synchronize()
        times.append(begin.elapsed_time(end))
    return statistics.median(times)


def floor(hidden: Tensor, weight: Tensor) -> float:
    """Three matrix products at the rate of a large one, and one read and write of the scores at the rate of a copy; measured here."""
    a, b = torch.randn(2, 8192, 8192, device="cuda").bfloat16()
    rate = 2 * 8192**3 / timed(lambda: a @ b)
    room = torch.empty_like(weight)
    bandwidth = 2 * weight.nbytes / timed(lambda: room.copy_(weight.detach()))
    rows, classes = len(hidden), len(weight)
    return 6 * rows * hidden.shape[1] * classes / rate + 4 * rows * classes / bandwidth


def cuts(classes: int) -> list[_tuning.Cut]:
    """Ways to cut rows of so many classes that are worth a try."""
    block = 1 << (classes - 1).bit_length()
    found = []
    if block <= 512:
        found += [_tuning.Cut(tile // block, block, warps, True) for tile in (512, 1024, 2048, 4096) for warps in (1, 2, 4, 8)]
    if 128 <= block <= 32768:
        found += [_tuning.Cut(1, block, warps, True) for warps in (1, 2, 4, 8, 16, 32)]
    if classes > 4096:
        found += [_tuning.Cut(1, part, warps, False) for part in (2048, 4096, 8192, 16384) for warps in (4, 8, 16, 32)]
    return [cut for cut in found if 4 <= cut.rows * cut.block // (32 * cut.warps) <= 64]


def trials() -> list[tuple[tuple[int, int, torch.dtype], str, _tuning.Cut]]:
    """Cross-entropy and one loss of every class over the shapes."""
    return [(shape, spec, cut) for shape in SHAPES[:7] for spec in ("ce", "nce") for cut in cuts(shape[1])]


def compile_part(part: int, parts: int) -> None:
    """Fill Triton's cache: what a worker of `tune` does."""
    _switch._switched_on = True
    for (_, classes, dtype), spec, cut in trials()[part::parts]:
        with mock.patch.object(_tuning, "cut", lambda *about, cut=cut: cut):
            step_of(ours(spec), *batch(256, classes, dtype))()


def tune(until: float) -> None:
    """Try other cuts of the rows; they are compiled by all processors first."""
    context, number = torch.multiprocessing.get_context("spawn"), max(1, (os.cpu_count() or 1) - 2)
    workers = [context.Process(target=compile_part, args=(part, number)) for part in range(number)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    print("compiled", flush=True)
    for (shape, spec), group in itertools.groupby(trials(), key=lambda trial: trial[:2]):
        scores, target = batch(*shape)
        copy, times = copying(scores), {}
        for _, _, cut in group:
            if time.perf_counter() < until:
                with mock.patch.object(_tuning, "cut", lambda *about, cut=cut: cut):
                    times[cut] = milliseconds(step_of(ours(spec), scores, target), 0.03)[0] / copy
        used = _tuning.cut(shape[1], scores.element_size())
        print(f"{shape[0]} × {shape[1]} {str(shape[2])[6:]}, {spec}: in use {times.get(used, float('nan')):.2f} copies {used}")
        for cut in sorted(times, key=lambda cut: times[cut])[:4]:
            print(f"    {times[cut]:.2f} copies  {cut}", flush=True)


def profile(path: Path) -> None:
    """Every kernel of ours over the shapes, and of the linear layers: how long, how often."""
    tables = []
    for rows, classes, dtype in SHAPES:
        tables.append(f"{rows} × {classes} {dtype}\n" + profiled(step_of(ours("gce(q=0.7)"), *batch(rows, classes, dtype))))
    for shape in LINEAR:
        inputs, target = linear_batch(*shape)
        criterion = linear_contenders()["noisewise.linear_loss gce(q=0.7)"]

        def step(criterion: Any = criterion, inputs: Any = inputs, target: Tensor = target) -> Any:
            return torch.autograd.grad(criterion(*inputs, target), inputs)

        tables.append(f"{' × '.join(map(str, shape))}\n" + profiled(step))
    path.write_text("\n".join(tables), encoding="utf-8")


def profiled(step: Callable[[], Any]) -> str:
    step()
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as seen:
        for _ in range(5):
            step()
    return str(seen.key_averages().table(sort_by="cuda_time_total", row_limit=8))


def lines_of(result: dict[str, Any]) -> list[str]:
    """The result as Markdown."""
    lines = [f"`{result['command']}`, {result['gpu']}, torch {result['torch']}, Triton {result['triton']}.", ""]
    if result["rows"]:
        lines += [
            "Loss and gradient in device copies of the same bytes (one read, one write); a copy in ms. † not captured in a graph.",
            "",
        ]
        lines += table_of(result["rows"], "a copy, ms", "copy", lambda row, ms: f"{ms / row['copy']:.2f}")
    if result["linear"]:
        lines += [
            "",
            "A linear layer and its loss, with both gradients, bf16: ms, and MiB beyond the gradients. The floor is three products and",
            "one read and write of the scores, at rates measured in the same run.",
            "",
        ]
        lines += table_of(result["linear"], "the floor, ms", "floor", None)
    for row in result["rows"] + result["linear"]:
        if row["left out"]:
            lines += ["", f"Left out for want of time at {row['shape']}: {', '.join(row['left out'])}."]
        if row.get("broken"):
            lines += ["", f"Raised an error at {row['shape']}: {', '.join(row['broken'])}."]
    return lines


def lines_of_errors(rows: list[dict[str, Any]]) -> list[str]:
    """What `tests/kernels/test_full_range.py` found, as Markdown: the worst over scores, values and gradients of each loss."""
    losses, kinds = (list(dict.fromkeys(row[key] for row in rows)) for key in ("loss", "type"))
    kinds.sort(key=["float32", "bfloat16", "float16"].index)
    lines = [
        "`NOISEWISE_KERNELS=1 pytest tests/kernels/test_full_range.py --error-table FILE`, then",
        "`python benchmarks/kernels.py --errors FILE --write`.",
        "",
        f"Worst error against float64 in units of what is allowed, {len(rows)} cases: value / gradient, in {', '.join(kinds)}, over",
        "scores from −10⁴ to 10⁴. Allowed in float32 are 10⁻⁶ (1 + |Δ|) of the value and of the row's largest slope, in the others one",
        "rounding more; of a loss whose value is a table (IMAE, GR) also 10⁻⁶ of its size near Δ = 0; of a loss of every class 10⁻⁶ of",
        "its terms.",
        "",
        "| classes | " + " | ".join(losses) + " |",
        "|---" * (len(losses) + 1) + "|",
    ]
    for classes in sorted({row["classes"] for row in rows}):
        cells = []
        for loss in losses:
            found = {row["type"]: row for row in rows if row["classes"] == classes and row["loss"] == loss}
            cells.append(", ".join(f"{found[kind]['value']:.2f} / {found[kind]['gradient']:.2f}" for kind in kinds if kind in found))
        lines.append(f"| {classes:,} | " + " | ".join(cells) + " |")
    return lines


def table_of(rows: list[dict[str, Any]], yardstick: str, key: str, cell: Callable[[dict[str, Any], float], str] | None) -> list[str]:
    names = list(dict.fromkeys(name for row in rows for name in row["ms"]))
    lines = ["| | " + " | ".join(row["shape"] for row in rows) + " |", "|---" * (len(rows) + 1) + "|"]
    lines.append(f"| {yardstick} | " + " | ".join(f"{row[key]:.4g}" for row in rows) + " |")
    for name in names:
        cells = []
        for row in rows:
            ms = row["ms"].get(name)
            cells.append("" if ms is None else cell(row, ms) if cell else f"{ms:.1f}, {row['peak'][name]:.0f} MiB")
        lines.append(f"| {name} | " + " | ".join(cells) + " |")
    return lines


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=240.0, help="when to stop starting measurements")
    parser.add_argument("--only", choices=("rows", "linear"))
    parser.add_argument("--json", type=Path)
    parser.add_argument("--read", type=Path)
    parser.add_argument("--errors", type=Path, help="the error table that the tests wrote")
    parser.add_argument("--write", action="store_true", help="put the tables into benchmarks/RESULTS.md")
    parser.add_argument("--profile", type=Path)
    parser.add_argument("--tune", action="store_true")
    options = parser.parse_args()
    if options.errors:
        lines = lines_of_errors(json.loads(options.errors.read_text()))
        print("\n".join(lines))
        if options.write:
            write_section("Errors of the kernels", lines)
        return
    if options.read:
        result = json.loads(options.read.read_text())
    else:
        if not torch.cuda.is_available():
            sys.exit("benchmarks/kernels.py measures on a GPU and finds none; --read writes the tables of an earlier run.")
        _switch._switched_on = True
        if options.tune:
            tune(time.perf_counter() + options.seconds)
            return
        if options.profile:
            profile(options.profile)
            return
        for result in measured(options):
            keep(result, options)
    print("\n".join(lines_of(result)))
    keep(result, options)


def keep(result: dict[str, Any], options: argparse.Namespace) -> None:
    """Write what was measured so far."""
    if options.json:
        options.json.write_text(json.dumps(result, indent=1))
    if options.write:
        write_section("Kernels on a GPU", lines_of(result))


def measured(options: argparse.Namespace) -> Iterator[dict[str, Any]]:
    """All that was measured so far, after every shape."""
    import triton

    until = time.perf_counter() + options.seconds
    result: dict[str, Any] = {
        "command": shlex.join(["python", "benchmarks/kernels.py", *sys.argv[1:]]),
        "gpu": torch.cuda.get_device_name(),
        "torch": torch.__version__,
        "triton": triton.__version__,
        "rows": [],
        "linear": [],
    }
    # The linear layers come first: they are few and short.
    linear = () if options.only == "rows" else measure_linear(until, result["linear"])
    rows = () if options.only == "linear" else measure_rows(until, result["rows"])
    for _ in itertools.chain(linear, rows):
        yield result


if __name__ == "__main__":
    main()
