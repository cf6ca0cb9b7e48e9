"""How long `noisewise audit` takes on 100,000 embeddings of 768 dimensions in ten classes, a tenth of them with a random label.

    OMP_NUM_THREADS=2 python benchmarks/embeddings.py [--write]

The command runs as a user runs it: a table of labels, a .npy file of embeddings, all defaults; it trains a linear model for 30 epochs,
finds doubtful labels, and writes the list, the page and the run. Time is that of the processor, summed over threads, because other
programs on the machine slow the clock and not the processor. The bar: under a minute. ``--write`` puts the table into
benchmarks/RESULTS.md.
"""

from __future__ import annotations

import argparse
import csv
import os
import platform
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import torch

from results import write_section


def write_data(folder: Path, examples: int, dimensions: int, classes: int = 10) -> np.ndarray:
    """Write labels.csv and vectors.npy; return which labels are wrong."""
    draw = np.random.default_rng(0)
    true = draw.integers(classes, size=examples)
    centres = draw.normal(size=(classes, dimensions)).astype(np.float32)
    np.save(folder / "vectors.npy", draw.normal(size=(examples, dimensions)).astype(np.float32) + 0.15 * centres[true])
    given = np.where(draw.random(examples) < 0.1, draw.integers(classes, size=examples), true)
    with (folder / "labels.csv").open("w", newline="") as file:
        csv.writer(file).writerows([["name", "label"], *([f"row {place}", f"class {label}"] for place, label in enumerate(given))])
    return given != true


def measure(folder: Path, *arguments: str) -> tuple[float, float]:
    """The seconds of the processor and of the clock that a command of noisewise takes."""
    command = [sys.executable, "-m", "noisewise", *arguments]
    before, started = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    subprocess.run(command, cwd=folder, check=True, stdout=subprocess.DEVNULL, env=os.environ)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime, time.perf_counter() - started


def found(folder: Path, wrong: np.ndarray) -> tuple[float, float]:
    """The shares of the doubtful labels that are wrong, and of the wrong ones that are doubtful."""
    with (folder / "issues.csv").open(newline="") as file:
        doubtful = np.array([int(row["index"]) for row in csv.DictReader(file) if row["is_label_issue"] == "True"])
    return float(wrong[doubtful].mean()), float(wrong[doubtful].sum() / wrong.sum())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--write", action="store_true")
    parser.add_argument("--examples", type=int, default=100_000)
    parser.add_argument("--dimensions", type=int, default=768)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        wrong = write_data(folder, options.examples, options.dimensions)
        processor, clock = measure(folder, "audit", "labels.csv", "--id", "name", "--features", "vectors.npy")
        precision, recall = found(folder, wrong)
    threads = os.environ.get("OMP_NUM_THREADS", "default")
    lines = [
        f"`OMP_NUM_THREADS={threads} python benchmarks/embeddings.py --write`, torch {torch.__version__}, {platform.machine()}: the whole",
        "command `noisewise audit labels.csv --features vectors.npy`, in seconds of the processor, summed over threads.",
        "",
        "| embeddings | threads | processor | clock (shared machine) | doubtful labels that are wrong | wrong labels that are doubtful |",
        "|---|---|---|---|---|---|",
        f"| {options.examples:,} × {options.dimensions} | {threads} | {processor:.0f} s | {clock:.0f} s | {precision:.1%} | {recall:.1%} |",
    ]
    print("\n".join(lines))
    if options.write:
        write_section("An audit of embeddings", lines)


if __name__ == "__main__":
    main()
