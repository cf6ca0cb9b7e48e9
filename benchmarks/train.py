"""Images per second of the engine beside a plain eager loop, in one run on one GPU.

    python benchmarks/train.py [--models resnet20 resnet56] [--runs 1 8 16] [--epochs 8] [--json out.json] [--write]

``--write`` puts the table into benchmarks/RESULTS.md; ``--json`` keeps the numbers, and ``--read`` writes the table from them.

The plain loop is what published code does, with the data already on the GPU: eager float32, torch.optim.SGD, one batch after
the other. The engine is `noisewise.fit` and `noisewise.compare` as a user calls them, record of margins and all. Data are
random bytes in CIFAR's shape: only the time matters here.
"""

from __future__ import annotations

import argparse
import json
import shlex
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F

from noisewise import compare, models
from noisewise.data import Dataset, augmentations
from results import write_section


def images(number: int = 50_000) -> Dataset:
    generator = torch.Generator().manual_seed(0)
    pixels = torch.randint(0, 256, (number, 3, 32, 32), generator=generator, dtype=torch.uint8)
    return Dataset(pixels, torch.randint(10, (number,), generator=generator), tuple("0123456789"), name="random bytes")


def plain(name: str, data: Dataset, steps: int = 150) -> float:
    """Images per second of an eager float32 loop."""
    model = models.get(name, num_classes=10).cuda()
    optimiser = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9, weight_decay=1e-4)
    augment, generator = augmentations.get("crop(4) + flip"), torch.Generator("cuda").manual_seed(0)
    inputs, labels = data.inputs.cuda(), data.labels.cuda()
    started = 0.0
    for step in range(steps):
        if step == 50:
            torch.cuda.synchronize()
            started = time.perf_counter()
        index = torch.randint(len(labels), (128,), device="cuda")
        batch = augment(inputs[index], generator).float() / 255
        optimiser.zero_grad()
        F.cross_entropy(model(batch), labels[index]).backward()
        optimiser.step()
    torch.cuda.synchronize()
    return 128 * (steps - 50) / (time.perf_counter() - started)


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
    parser.add_argument("--models", nargs="+", default=["resnet20", "resnet56"])
    parser.add_argument("--runs", nargs="+", type=int, default=[1, 8, 16])
    parser.add_argument("--epochs", type=int, default=8)
    parser.add_argument("--compile", action="store_true")
    parser.add_argument("--json", type=Path)
    parser.add_argument("--read", type=Path)
    parser.add_argument("--write", action="store_true")
    options = parser.parse_args()
    if options.read:
        report(json.loads(options.read.read_text()))
        return
    data = images()
    rows = []
    for name in options.models:
        eager = plain(name, data)
        rows.append({"model": name, "runs": 1, "what": "plain eager loop", "steady": eager, "ratio": 1.0})
        print(f"{name:10} plain eager loop        {eager:10,.0f} images/s   1.0 ×", flush=True)
        for runs in options.runs:
            found = engine(name, data, runs, options.epochs, compile=options.compile)
            rows.append({"model": name, "runs": runs, "what": "noisewise", **found, "ratio": found["steady"] / eager})
            print(
                f"{name:10} noisewise, {runs:2d} at once {found['steady']:13,.0f} images/s   {found['steady'] / eager:.1f} ×   "
                f"({found['whole']:,.0f} from start to end)",
                flush=True,
            )
    command = shlex.join(["python", "benchmarks/train.py", *sys.argv[1:]])
    result = {"command": command, "gpu": torch.cuda.get_device_name(), "torch": torch.__version__, "rows": rows}
    if options.json:
        options.json.write_text(json.dumps(result, indent=1))
    if options.write:
        report(result)


def report(result: dict[str, Any]) -> None:
    """Put the table into the page of results."""
    lines = [f"`{result['command']}`, {result['gpu']}, torch {result['torch']}.", ""]
    lines += ["| model | | images/s | beside the eager loop | from start to end |", "|---|---|---|---|---|"]
    for row in result["rows"]:
        what = row["what"] if row["what"] != "noisewise" else f"noisewise, {row['runs']} at once"
        whole = f"{row['whole']:,.0f}" if "whole" in row else ""
        lines.append(f"| {row['model']} | {what} | {row['steady']:,.0f} | {row['ratio']:.1f} × | {whole} |")
    write_section("Training on a GPU", lines)


if __name__ == "__main__":
    main()
