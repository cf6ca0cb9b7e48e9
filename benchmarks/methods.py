"""What a step of every method costs beside plain training, in one run on one GPU.

    python benchmarks/methods.py [--model resnet20] [--methods "elr(lam=3)" dividemix] [--epochs 6] [--json out.json] [--write]

Every method trains alone, one after the other, on random bytes in CIFAR's shape: only the time matters here. The time of an epoch is
the median of all but the first, in which the step is captured, and the last. ``--write`` puts the table into benchmarks/RESULTS.md.
"""

from __future__ import annotations

import argparse
import json
import shlex
import statistics
import sys
import tempfile
from pathlib import Path

import torch

from noisewise import fit, methods
from results import write_section
from train import images


def seconds(model: str, method: str, epochs: int) -> float:
    """The median time of an epoch."""
    with tempfile.TemporaryDirectory() as folder:
        run = fit(
            model,
            images(),
            method=method,
            noise="symmetric(0.4)",
            epochs=epochs,
            folder=Path(folder, "run"),
            augment="crop(4) + flip",
            optimiser="sgd(lr=0.001, momentum=0.9)",
            evaluate_every=epochs,
            checkpoint_every=epochs,
            clean_pass=False,
            device="cuda",
        )
        return statistics.median(line["seconds"] for line in run.metrics[1:-1])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="resnet20")
    parser.add_argument("--methods", nargs="+", default=[methods.registry[name].examples[0] for name in methods.available()])
    parser.add_argument("--epochs", type=int, default=6)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--write", action="store_true")
    options = parser.parse_args()
    command = shlex.join(["python", "benchmarks/methods.py", *sys.argv[1:]])
    plain = seconds(options.model, "plain", options.epochs)
    rows = []
    for method in options.methods:
        ratio = seconds(options.model, method, options.epochs) / plain
        rows.append({"method": method, "networks": methods.get(method).networks, "ratio": ratio})
        print(f"{method:60} {ratio:.2f} ×", flush=True)
        if options.json:
            result = {"command": command, "gpu": torch.cuda.get_device_name(), "model": options.model, "plain": plain, "rows": rows}
            options.json.write_text(json.dumps(result, indent=1))
    if options.write:
        lines = [f"`{command}` on {torch.cuda.get_device_name()}", "", "| method | networks | time per step |", "|---|---|---|"]
        write_section("Methods", [*lines, *(f"| `{row['method']}` | {row['networks']} | {row['ratio']:.2f} × |" for row in rows)])


if __name__ == "__main__":
    main()
