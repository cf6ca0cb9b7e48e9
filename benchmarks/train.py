"""Images per second of the engine beside a plain eager loop, in one run on one GPU, or with ``--cpu`` on one core.

    python benchmarks/train.py [--models resnet20 resnet56] [--runs 1 8 16] [--epochs 8] [--seconds 600] [--json out.json] [--write]
    python benchmarks/train.py --cpu [--models resnet20] [--rounds 3] [--write]

``--write`` puts the table into benchmarks/RESULTS.md; ``--json`` keeps the numbers, and ``--read`` writes the table from them. Both
are written after every row; rows that no longer fit into ``--seconds`` are left out and named. On the CPU both take turns, and what
counts is CPU time: other work on the machine hardly matters.

The plain loop is what published code does, with the data already on the GPU: eager float32, torch.optim.SGD, one batch after
the other. The engine is `noisewise.fit` and `noisewise.compare` as a user calls them, record of margins and all. Data are
random bytes in CIFAR's shape: only the time matters here.
"""

from __future__ import annotations

import argparse
import json
import platform
import shlex
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F

from noisewise import compare, fit, models
from noisewise.data import Dataset, augmentations
from results import write_section


def images(number: int = 50_000) -> Dataset:
    generator = torch.Generator().manual_seed(0)
    pixels = torch.randint(0, 256, (number, 3, 32, 32), generator=generator, dtype=torch.uint8)
    return Dataset(pixels, torch.randint(10, (number,), generator=generator), tuple("0123456789"), name="random bytes")


def plain(name: str, data: Dataset, device: str = "cuda", warm: int = 50, steps: int = 100) -> float:
    """Images per second of an eager float32 loop: of a GPU by the clock, of a core by CPU time."""
    model = models.get(name, num_classes=10).to(device)
    optimiser = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9, weight_decay=1e-4)
    augment, generator = augmentations.get("crop(4) + flip"), torch.Generator(device).manual_seed(0)
    inputs, labels = data.inputs.to(device), data.labels.to(device)
    started = 0.0
    for step in range(warm + steps):
        if step == warm:
            started = _now(device)
        index = torch.randint(len(labels), (128,), device=device)
        batch = augment(inputs[index], generator).float() / 255
        optimiser.zero_grad()
        F.cross_entropy(model(batch), labels[index]).backward()
        optimiser.step()
    return 128 * steps / (_now(device) - started)


def _now(device: str) -> float:
    if device == "cpu":
        return time.process_time()
    torch.cuda.synchronize()
    return time.perf_counter()


def on_a_core(name: str, rounds: int) -> tuple[float, float]:
    """Images per second of CPU time, of the plain loop and of all that `fit` does, taking turns on one thread: the medians."""
    torch.set_num_threads(1)
    data, rates = images(10 * 128), []
    for _ in range(rounds):
        eager = plain(name, data, "cpu", warm=1, steps=10)
        with tempfile.TemporaryDirectory() as folder:
            started = time.process_time()
            asked: dict[str, Any] = {"loss": "imae(T=8)", "noise": "symmetric(0.4)", "augment": "crop(4) + flip", "clean_pass": False}
            fit(name, data, folder=Path(folder, "run"), epochs=1, device="cpu", **asked)
            rates.append((eager, len(data) / (time.process_time() - started)))
    eager, ours = (statistics.median(each) for each in zip(*rates, strict=True))
    return eager, ours


def engine(name: str, data: Dataset, runs: int, epochs: int, **settings: object) -> dict[str, float]:
    """Images per second of so many runs at once: while all of them train, and over everything from start to end."""
    with tempfile.TemporaryDirectory() as folder:
        started = time.perf_counter()
        found = compare(
            name,
            data,
            loss=["imae(T=8)"],
            noise=["symmetric(0.4)"],
            seed=list(range(runs)),
            folder=Path(folder),
            jobs=runs,
            epochs=epochs,
            augment="crop(4) + flip",
            evaluate_every=epochs,
            checkpoint_every=epochs,
            clean_pass=False,
            device="cuda",
            **settings,
        )
        whole = time.perf_counter() - started
        rates = [sorted(len(data) / line["seconds"] for line in run.metrics[1:-1]) for run in found]
        steady = sum(rate[len(rate) // 2] for rate in rates)
    return {"steady": steady, "whole": runs * epochs * len(data) / whole}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", nargs="+")
    parser.add_argument("--cpu", action="store_true")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--runs", nargs="+", type=int, default=[1, 8, 16])
    parser.add_argument("--epochs", type=int, default=8)
    parser.add_argument("--compile", action="store_true")
    parser.add_argument("--seconds", type=float, default=600.0, help="when to stop starting measurements")
    parser.add_argument("--json", type=Path)
    parser.add_argument("--read", type=Path)
    parser.add_argument("--write", action="store_true")
    options = parser.parse_args()
    if options.read:
        report(json.loads(options.read.read_text()))
        return
    command = shlex.join(["python", "benchmarks/train.py", *sys.argv[1:]])
    if options.cpu:
        cores(options.models or ["resnet20", "cnn8"], options.rounds, command, options.write)
        return
    result = {"command": command, "gpu": torch.cuda.get_device_name(), "torch": torch.__version__, "rows": [], "left out": []}
    for _ in fill(result, options):
        if options.json:
            options.json.write_text(json.dumps(result, indent=1))
        if options.write:
            report(result)


def fill(result: dict[str, Any], options: argparse.Namespace) -> Iterator[None]:
    """Measure row after row: every model alone first, and then more runs at once."""
    data, names, until = images(), options.models or ["resnet20", "resnet56"], time.perf_counter() + options.seconds
    eager = {}
    for name, runs in [(name, runs) for runs in (0, *options.runs) for name in names]:
        what = f"noisewise, {runs} at once" if runs else "plain eager loop"
        if time.perf_counter() > until:
            result["left out"].append(f"{name}: {what}")
            continue
        rates = engine(name, data, runs, options.epochs, compile=options.compile) if runs else {"steady": plain(name, data)}
        eager.setdefault(name, rates["steady"])
        result["rows"].append({"model": name, "runs": runs, "what": what, **rates, "ratio": rates["steady"] / eager[name]})
        result["rows"].sort(key=lambda row: (names.index(row["model"]), row["runs"]))
        whole = f"   ({rates['whole']:,.0f} from start to end)" if runs else ""
        print(f"{name:10} {what:23} {rates['steady']:10,.0f} images/s   {rates['steady'] / eager[name]:.1f} ×{whole}", flush=True)
        yield
    yield


def cores(names: list[str], rounds: int, command: str, write: bool) -> None:
    """Measure on one core, print the table and put it into the page of results."""
    lines = [f"`{command}`, torch {torch.__version__}, {platform.machine()}: images per second of CPU time, one thread.", ""]
    lines += ["| model | plain eager loop | noisewise, from start to end | ratio |", "|---|---|---|---|"]
    for name in names:
        eager, ours = on_a_core(name, rounds)
        lines.append(f"| {name} | {eager:.0f} | {ours:.0f} | {ours / eager:.2f} × |")
    print("\n".join(lines))
    if write:
        write_section("Training on the CPU", lines)


def report(result: dict[str, Any]) -> None:
    """Put the table into the page of results."""
    lines = [f"`{result['command']}`, {result['gpu']}, torch {result['torch']}.", ""]
    lines += ["| model | | images/s | beside the eager loop | from start to end |", "|---|---|---|---|---|"]
    for row in result["rows"]:
        whole = f"{row['whole']:,.0f}" if "whole" in row else ""
        lines.append(f"| {row['model']} | {row['what']} | {row['steady']:,.0f} | {row['ratio']:.1f} × | {whole} |")
    if result.get("left out"):
        lines += ["", f"Left out for want of time: {', '.join(result['left out'])}."]
    write_section("Training on a GPU", lines)


if __name__ == "__main__":
    main()
