"""Check the settings of the demonstration, and choose the epochs of the commands in the README. The test split is never read.

    python benchmarks/demo_settings.py [--jobs 2] [--write]

Every setting is judged by the accuracy at the end of training on a share of the training split that was held out, against its
noisy labels, with other seeds than those of the demonstration and the README. ``--write`` puts the tables into
benchmarks/RESULTS.md.
"""

from __future__ import annotations

import argparse
import itertools
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from torch import multiprocessing

from noisewise import data, demo, fit
from results import write_section


class Setting(NamedTuple):
    """What is chosen; the defaults are those of a run."""

    epochs: int
    batch_size: int = 128
    lr: float = 0.1
    weight_decay: float = 1e-4


class Grid(NamedTuple):
    """Settings to choose from, the losses to choose them for, and over which seeds and share of the training split."""

    settings: list[Setting]
    losses: tuple[str, ...]
    seeds: tuple[int, ...]
    share: float


# The demonstration has the defaults of a run, if they are not clearly worse on average for the robust losses than the best of these.
# The README leaves all but the epochs at their defaults: the best for the loss that a command is about.
DEMO = Grid([Setting(*one) for one in itertools.product((30, 60), (64, 128), (0.03, 0.1), (1e-4, 1e-3))], demo.LOSSES[1:], (1,), 0.3)
README = Grid([Setting(epochs) for epochs in (10, 20, 40)], ("ce", "gce(q=0.7)", "imae(T=8)"), (2, 3), 0.2)
Task = tuple[Setting, str, int, float]


def tasks_of(grid: Grid) -> list[Task]:
    return list(itertools.product(grid.settings, grid.losses, grid.seeds, [grid.share]))


def held_out_accuracy(task: Task) -> float:
    """Accuracy on the held-out share, against its noisy labels."""
    setting, loss, seed, share = task
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as folder:
        run = fit(
            "mlp",
            data.load("digits"),
            loss=loss,
            noise=demo.NOISE,
            seed=seed,
            epochs=setting.epochs,
            batch_size=setting.batch_size,
            optimiser=f"sgd(lr={setting.lr}, momentum=0.9)",
            weight_decay=setting.weight_decay,
            validation=share,
            evaluate_every=setting.epochs,
            checkpoint_every=setting.epochs,
            clean_pass=False,
            device="cpu",
            folder=Path(folder) / "run",
        )
        return float(run.metrics[-1]["validation_accuracy"])


def table(grid: Grid, accuracies: Mapping[Task, float]) -> list[str]:
    """A row for every setting with the mean over seeds for every loss and over all losses; the best of every column is bold."""
    means = np.array([accuracies[task] for task in tasks_of(grid)]).reshape(len(grid.settings), len(grid.losses), -1).mean(2)
    columns = np.column_stack([means, means.mean(1)])
    lines = [f"| {' | '.join([*Setting._fields, *(f'`{loss}`' for loss in grid.losses), 'mean'])} |"]
    lines.append("|---" * (len(Setting._fields) + len(grid.losses) + 1) + "|")
    for setting, row in zip(grid.settings, columns, strict=True):
        best = np.isclose(row, columns.max(0))
        cells = [f"**{100 * mean:.1f}**" if bold else f"{100 * mean:.1f}" for mean, bold in zip(row, best, strict=True)]
        lines.append(f"| {' | '.join([*map(str, setting), *cells])} |")
    return lines


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--write", action="store_true")
    options = parser.parse_args(arguments)
    tasks, accuracies = [*tasks_of(README), *tasks_of(DEMO)], {}
    with multiprocessing.get_context("spawn").Pool(options.jobs) as pool:
        for number, (task, accuracy) in enumerate(zip(tasks, pool.imap(held_out_accuracy, tasks), strict=True), 1):
            accuracies[task] = accuracy
            print(f"{number} of {len(tasks)}: {task} {accuracy:.4f}", file=sys.stderr)
    lines = [
        f"`python benchmarks/demo_settings.py`, torch {torch.__version__}. An MLP on digits with {demo.NOISE}: accuracy (%) on a held-out",
        "share of the training split, against its noisy labels. The demonstration (seed 1, 30 % held out):",
        "",
        *table(DEMO, accuracies),
        "",
        "The commands of the README (mean of the seeds 2 and 3, 20 % held out):",
        "",
        *table(README, accuracies),
    ]
    print("\n".join(lines))
    if options.write:
        write_section("Settings of the demonstration", lines)


if __name__ == "__main__":
    main()
