"""Forward and backward of losses, against torch's cross-entropy and against the published formulations.

All contenders of a shape take turns in one run, in a new order every round, so that whatever else the machine does hits them
alike; what is compared is the median of CPU time. A ratio below 1 is faster than `torch.nn.functional.cross_entropy`. With two
threads it is the least CPU time: if another process takes a core, one thread waits for the other in a busy loop, so the time of a
round is either right or up to forty times too long.

    python benchmarks/losses.py [--rounds 15] [--threads 1 2] [--compiled] [--every-class] [--write]

Memory that is given back is kept by the process: else whoever is dealt fresh pages pays for them, which can double a time.

``--every-class`` measures the losses that look at every class, with one thread, instead of the losses of the margin and NCE.

``--compiled`` adds a few losses through torch.compile, which needs a C++ compiler.

``--write`` puts the tables into benchmarks/RESULTS.md. The published formulations are written here from their descriptions:
softmax, one-hot, clamp at 1e-7.
"""

from __future__ import annotations

import argparse
import ctypes
import math
import os
import platform
import random
import shlex
import statistics
import sys
import time
from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor

from noisewise.describe import one
from noisewise.kernels import compiled
from noisewise.losses import MarginLoss, available, get
from results import write_section

Criterion = Callable[[Tensor, Tensor], Tensor]

SHAPES = ((200_000, 10), (20_000, 100), (2_000, 1_000), (100, 32_000), (128, 10), (128, 100))  # examples, classes
BARS = {(20_000, 100): 1.05, (2_000, 1_000): 1.05, (100, 32_000): 1.05, (128, 10): 2.5, (128, 100): 2.5}  # of losses of the margin
YARDSTICK = "F.cross_entropy"
COMPILED = ("gce", "imae", "nce")
EVERY_CLASS_SHAPES = ((1_024, 1_000), (4_096, 100), (20_000, 10), (64, 32_000), (128, 10))


def _clamped(scores: Tensor) -> Tensor:
    return scores.softmax(1).clamp(1e-7, 1.0)


def _one_hot(scores: Tensor, target: Tensor) -> Tensor:
    return F.one_hot(target, scores.shape[1]).to(scores.dtype)


def published_gce(scores: Tensor, target: Tensor) -> Tensor:
    p = (_one_hot(scores, target) * _clamped(scores)).sum(1)
    return ((1 - p**0.7) / 0.7).mean()


def published_mae(scores: Tensor, target: Tensor) -> Tensor:
    return (2 * (1 - (_one_hot(scores, target) * _clamped(scores)).sum(1))).mean()


def published_sce(scores: Tensor, target: Tensor) -> Tensor:
    label = _one_hot(scores, target).clamp(1e-4, 1.0)
    reverse = -(_clamped(scores) * label.log()).sum(1)
    return 0.1 * F.cross_entropy(scores, target) + reverse.mean()


def published_nce(scores: Tensor, target: Tensor) -> Tensor:
    log_p = scores.log_softmax(1)
    return (-(_one_hot(scores, target) * log_p).sum(1) / -log_p.sum(1)).mean()


def published_mse(scores: Tensor, target: Tensor) -> Tensor:
    return ((scores.softmax(1) - _one_hot(scores, target)) ** 2).sum(1).mean()


def published_amse(scores: Tensor, target: Tensor) -> Tensor:
    return ((scores.softmax(1) - 30 * _one_hot(scores, target)) ** 2).mean()


def published_eps_softmax(scores: Tensor, target: Tensor) -> Tensor:
    p = scores.softmax(1)
    raised = (p + torch.zeros_like(p).scatter_(1, p.argmax(1, keepdim=True), 1e5)) / (1 + 1e5)
    return F.nll_loss(raised.clamp(1e-7, 1.0).log(), target)


def published_nfl(scores: Tensor, target: Tensor) -> Tensor:
    log_p = scores.log_softmax(1)
    focal = -((1 - log_p.exp()) ** 0.5) * log_p
    return (focal.gather(1, target.unsqueeze(1)).squeeze(1) / focal.sum(1)).mean()


def _published_negative(costs: Tensor, label: Tensor, most: float) -> Tensor:
    return 1 - (most - (label * costs).sum(1)) / (most - costs).sum(1)


def published_anl_ce(scores: Tensor, target: Tensor) -> Tensor:
    negative = _published_negative(-_clamped(scores).log(), _one_hot(scores, target), -math.log(1e-7))
    return 5 * published_nce(scores, target) + 5 * negative.mean()


def published_anl_fl(scores: Tensor, target: Tensor) -> Tensor:
    p = _clamped(scores)
    negative = _published_negative(-((1 - p) ** 0.5) * p.log(), _one_hot(scores, target), -math.log(1e-7))
    return 5 * published_nfl(scores, target) + 5 * negative.mean()


def _published_gradient(scores: Tensor, target: Tensor, weight: Callable[[Tensor], Tensor]) -> Tensor:
    """A gradient made by hand from probabilities, handed to the scores through a product that has it as its derivative."""
    with torch.no_grad():
        probabilities, label = scores.softmax(1), _one_hot(scores, target)
        p = (label * probabilities).sum(1, keepdim=True)
        w = weight(p)
        gradient = (probabilities - label) / (2 * (1 - p) + 1e-8) * w / w.sum()
    return (scores * gradient).sum()


def published_imae(scores: Tensor, target: Tensor) -> Tensor:
    return _published_gradient(scores, target, lambda p: (8 * p * (1 - p)).exp())


def published_gr(scores: Tensor, target: Tensor) -> Tensor:
    return _published_gradient(scores, target, lambda p: (8 * (1 - p) * (p + 1e-8) ** 0.5).exp())


PUBLISHED: dict[str, Criterion] = {
    "gce": published_gce,
    "mae": published_mae,
    "sce": published_sce,
    "nce": published_nce,
    "imae": published_imae,
    "gr": published_gr,
}
PUBLISHED_EVERY_CLASS: dict[str, Criterion] = {
    "nce": published_nce,
    "nfl": published_nfl,
    "anl_ce": published_anl_ce,
    "anl_fl": published_anl_fl,
    "eps_softmax": published_eps_softmax,
    "mse": published_mse,
    "amse": published_amse,
}


def ours() -> dict[str, Criterion]:
    """Every registered loss of the margin alone, and NCE; one that needs arguments by its first example."""
    built = {name: get(one(name)[1].spec) for name in available()}
    return {name: loss for name, loss in built.items() if isinstance(loss, MarginLoss) or name == "nce"}


def step(criterion: Criterion, scores: Tensor, target: Tensor) -> None:
    """One forward and backward, as far as the scores: in training they are no leaf, so nothing is stored there."""
    torch.autograd.grad(criterion(scores, target), scores)


def measure(contenders: dict[str, Criterion], examples: int, classes: int, rounds: int) -> dict[str, float]:
    """CPU seconds of one forward and backward, all contenders taking turns: the median, or the least with several threads."""
    generator = torch.Generator().manual_seed(0)
    scores = (3 * torch.randn(examples, classes, generator=generator)).requires_grad_()
    target = torch.randint(classes, (examples,), generator=generator)
    repeats = max(1, 400_000 // (examples * classes))
    spent: dict[str, list[float]] = {name: [] for name in contenders}
    order = list(contenders)
    shuffle = random.Random(0).shuffle
    for _ in range(rounds):
        shuffle(order)
        for name in order:
            step(contenders[name], scores, target)  # not counted: it pays for memory the one before has given back
            start = time.process_time()
            for _ in range(repeats):
                step(contenders[name], scores, target)
            spent[name].append((time.process_time() - start) / repeats)
    typical = statistics.median if torch.get_num_threads() == 1 else min
    return {name: typical(times) for name, times in spent.items()}


def table(threads: int, rounds: int, through_compiler: bool) -> tuple[list[str], list[str]]:
    """A table of ratios to cross-entropy as lines of Markdown, and what misses the bar."""
    torch.set_num_threads(threads)
    mine = ours()
    contenders = {YARDSTICK: F.cross_entropy, **mine, **{f"{name}, published": how for name, how in PUBLISHED.items()}}
    if through_compiler:
        contenders |= {f"{name}, compiled": compiled(name) for name in COMPILED}
    columns = [measure(contenders, examples, classes, rounds) for examples, classes in SHAPES]
    lines = ratios(columns, SHAPES)
    margin_losses = [name for name, loss in mine.items() if isinstance(loss, MarginLoss)]
    missed = []
    for column, shape in zip(columns, SHAPES, strict=True):
        bar = BARS.get(shape, math.inf)
        over = [f"{name} {column[name] / column[YARDSTICK]:.2f}" for name in margin_losses if column[name] > bar * column[YARDSTICK]]
        if over:
            size = f"{shape[0]} × {shape[1]}, {_threads(threads)}, above {bar}"
            missed.append(f"{size}: {len(over)} of {len(margin_losses)} ({', '.join(over)})")
    return lines, missed


def every_class_table(rounds: int) -> tuple[list[str], list[str]]:
    """A table of the losses that look at every class, each above its published formulation, with one thread; and which are slower."""
    torch.set_num_threads(1)
    contenders: dict[str, Criterion] = {YARDSTICK: F.cross_entropy}
    for name, how in PUBLISHED_EVERY_CLASS.items():
        contenders |= {name: get(one(name)[1].spec), f"{name}, published": how}
    columns = [measure(contenders, examples, classes, rounds) for examples, classes in EVERY_CLASS_SHAPES]
    slower = [
        f"{examples} × {classes}: {', '.join(names)}"
        for column, (examples, classes) in zip(columns, EVERY_CLASS_SHAPES, strict=True)
        if (names := [name for name in PUBLISHED_EVERY_CLASS if column[name] > column[f"{name}, published"]])
    ]
    return ratios(columns, EVERY_CLASS_SHAPES), slower


def ratios(columns: list[dict[str, float]], shapes: tuple[tuple[int, int], ...]) -> list[str]:
    """Lines of Markdown: seconds of cross-entropy, and of the others as ratios to it."""
    lines = ["| | " + " | ".join(f"{examples} × {classes}" for examples, classes in shapes) + " |", "|---" * (len(shapes) + 1) + "|"]
    lines.append(f"| {YARDSTICK}, ms | " + " | ".join(f"{1000 * column[YARDSTICK]:.2f}" for column in columns) + " |")
    for name in list(columns[0])[1:]:
        lines.append(f"| {name} | " + " | ".join(f"{column[name] / column[YARDSTICK]:.2f}" for column in columns) + " |")
    return lines


def keep_memory() -> None:
    """Have the C library (glibc) neither give memory back to the system nor map large tensors anew each time."""
    library = ctypes.CDLL(None)
    if hasattr(library, "mallopt"):
        trim_threshold, most_maps = -1, -4  # their numbers in malloc.h
        library.mallopt(trim_threshold, 2**31 - 1)
        library.mallopt(most_maps, 0)


def _threads(number: int) -> str:
    return f"{number} thread{'s' * (number > 1)}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=15, help="how often each contender is measured")
    parser.add_argument("--threads", type=int, nargs="+", default=[1, 2], help="how many threads to measure with")
    parser.add_argument("--compiled", action="store_true", help="a few losses through torch.compile too")
    parser.add_argument("--every-class", action="store_true", help="the losses that look at every class instead")
    parser.add_argument("--write", action="store_true", help="write benchmarks/RESULTS.md")
    arguments = parser.parse_args()
    keep_memory()
    command = shlex.join(["python", "benchmarks/losses.py", *sys.argv[1:]])
    lines = [
        f"`{command}`, torch {torch.__version__}, Python {platform.python_version()}, {platform.machine()}, {os.cpu_count()} cores,",
        f"load average before the run {os.getloadavg()[0]:.1f} (a quiet machine is below 0.2).",
        "",
    ]
    if arguments.every_class:
        lines += ["Forward and backward on the CPU in float32, one thread: median CPU time as a ratio to `F.cross_entropy`.", ""]
        rows, slower = every_class_table(arguments.rounds)
        lines += [*rows, "", "### Slower than published code", "", *([f"- {each}" for each in slower] or ["None."])]
        print("\n".join(lines))
        if arguments.write:
            write_section("Losses of every class on the CPU", lines)
        return
    lines += [
        "Forward and backward on the CPU in float32: median CPU time as a ratio to `F.cross_entropy`; below 1 is faster. With two threads",
        "the least CPU time of all rounds, because a thread that waits for a core keeps the other one busy. The bar is 1.05 for losses of",
        "the margin with 100 classes or more, and 2.5 for the two small batches.",
    ]
    missed: list[str] = []
    for threads in arguments.threads:
        rows, late = table(threads, arguments.rounds, arguments.compiled)
        lines += ["", f"### {_threads(threads)}", "", *rows]
        missed += late
    lines += ["", "### Over the bar", "", *([f"- {miss}" for miss in missed] or ["None."])]
    print("\n".join(lines))
    if arguments.write:
        write_section("Losses on the CPU", lines)


if __name__ == "__main__":
    main()
