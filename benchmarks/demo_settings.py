"""Choose how long the demonstration and the commands of the README train. The test split is never read.

    python benchmarks/demo_settings.py [--jobs 2] [--write]

Everything but the number of epochs is the default of a run. The number is judged by the accuracy at the end of training on a share of
the training split that was held out, against its noisy labels, with other seeds than those of the demonstration and the README.
``--write`` puts the table into benchmarks/RESULTS.md.
"""

from __future__ import annotations

import argparse
import itertools
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch
from torch import multiprocessing

from noisewise import data, demo, fit
from results import write_section

EPOCHS = (10, 20, 40)
LOSSES = ("ce", "gce(q=0.7)", "imae(T=8)")
SEEDS = (2, 3)
SHARE = 0.2
Task = tuple[int, str, int]


def held_out_accuracy(task: Task) -> float:
    """Accuracy on the held-out share, against its noisy labels."""
    epochs, loss, seed = task
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as folder:
        run = fit(
            "mlp",
            data.load("digits"),
            loss=loss,
            noise=demo.NOISE,
            seed=seed,
            epochs=epochs,
            validation=SHARE,
            evaluate_every=epochs,
            checkpoint_every=epochs,
            clean_pass=False,
            device="cpu",
            folder=Path(folder) / "run",
        )
        return float(run.metrics[-1]["validation_accuracy"])


def table(accuracies: Sequence[float]) -> list[str]:
    """A row for every number of epochs with the mean over seeds for every loss; the best of every column is bold."""
    means = np.array(accuracies).reshape(len(EPOCHS), len(LOSSES), len(SEEDS)).mean(2)
    lines = [f"| epochs | {' | '.join(f'`{loss}`' for loss in LOSSES)} |", "|---" * (1 + len(LOSSES)) + "|"]
    for epochs, row in zip(EPOCHS, means, strict=True):
        cells = [
            f"**{100 * mean:.1f}**" if np.isclose(mean, best) else f"{100 * mean:.1f}" for mean, best in zip(row, means.max(0), strict=True)
        ]
        lines.append(f"| {epochs} | {' | '.join(cells)} |")
    return lines


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--write", action="store_true")
    options = parser.parse_args(arguments)
    tasks, accuracies = list(itertools.product(EPOCHS, LOSSES, SEEDS)), []
    with multiprocessing.get_context("spawn").Pool(options.jobs) as pool:
        for number, (task, accuracy) in enumerate(zip(tasks, pool.imap(held_out_accuracy, tasks), strict=True), 1):
            accuracies.append(accuracy)
            print(f"{number} of {len(tasks)}: {task} {accuracy:.4f}", file=sys.stderr)
    lines = [
        f"`python benchmarks/demo_settings.py --write`, torch {torch.__version__}. An MLP on digits, {demo.NOISE}: accuracy (%) on",
        f"{SHARE:.0%} of the training split, held out, against their noisy labels; mean of seeds {' and '.join(map(str, SEEDS))}.",
        "The demonstration and `noisewise compare` in the README train for the epochs that are best for `gce(q=0.7)`, and",
        "`noisewise train` for the longest that are best for `imae(T=8)`.",
        "",
        *table(accuracies),
    ]
    print("\n".join(lines))
    if options.write:
        write_section("Settings of the demonstration", lines)


if __name__ == "__main__":
    main()
