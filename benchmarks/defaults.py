"""Which loss `RobustClassifier` should have by default, and how honest its probabilities are, on small tables with wrong labels.

    python benchmarks/defaults.py [--jobs 2] [--seeds 1] [--tables iris wine] [--write]

IMAE was chosen among the losses on the first four tables, and the other four only reported. The default, GCE and then IMAE where a
class was left out, was thought of after the losses had been seen on all eight: for it none of them is unseen data. ``--write`` puts
the tables into benchmarks/RESULTS.md.
"""

from __future__ import annotations

import argparse
import shlex
import sys
import warnings
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import torch
from sklearn.datasets import load_breast_cancer, load_digits, load_iris, load_wine, make_classification
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import balanced_accuracy_score, log_loss, recall_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from torch import multiprocessing

from noisewise import corrupt
from noisewise.integrations.sklearn import RobustClassifier
from noisewise.train import Unlearned
from results import write_section

NOISES = (0.0, 0.2, 0.4)
DEFAULT = "the default"
LOSSES = ("gce(q=0.7)", "gce(q=0.3)", "ce", "imae(T=8.0, normalise='maximum')", DEFAULT)
DRAWN: dict[str, dict[str, Any]] = {
    "drawn, 95 to 5": {"n_samples": 3000, "n_informative": 6, "n_redundant": 2, "weights": [0.95], "class_sep": 2.0},
    "drawn, 4 classes": {"n_samples": 1200, "n_informative": 5, "n_redundant": 0, "n_classes": 4, "class_sep": 1.5},
    "drawn, 82 to 12 to 6": {"n_samples": 1800, "n_informative": 6, "n_redundant": 2, "n_classes": 3, "weights": [0.82, 0.12, 0.06]},
}
GROUPS = {
    "chosen on": ("iris", "breast cancer, 19 malignant", "drawn, 95 to 5", "drawn, 4 classes"),
    "reported on": ("wine", "breast cancer", "digits, 3 rare classes", "drawn, 82 to 12 to 6"),
}
TABLES = [table for tables in GROUPS.values() for table in tables]
LOADERS = {"iris": load_iris, "wine": load_wine, "breast": load_breast_cancer, "digits": load_digits}


def drawn(table: str, seed: int) -> tuple[Any, Any, Any, Any]:
    """Rows and labels to train on, and others to test on."""
    if table in DRAWN:
        rows, labels = make_classification(n_features=12, flip_y=0, random_state=seed, **DRAWN[table])
        order = np.arange(len(labels))
    else:
        rows, labels = LOADERS[table.partition(",")[0].partition(" ")[0]](return_X_y=True)
        order = np.random.default_rng(seed).permutation(len(labels))
    here = order[: len(order) * 2 // 3]
    if table == "breast cancer, 19 malignant":
        here = np.concatenate([order[labels[order] == 0][:19], order[labels[order] == 1][:280]])
    if table == "digits, 3 rare classes":
        here = np.concatenate([order[labels[order] == digit][: 12 if digit < 3 else 80] for digit in range(10)])
    others = np.setdiff1d(order, here)
    return rows[here], labels[here], rows[others], labels[others]


def measured(task: tuple[str, float, int]) -> list[dict[str, Any]]:
    """What every loss makes of one table with a noise and a seed."""
    torch.set_num_threads(1)
    table, noise, seed = task
    rows, labels, others, true = drawn(table, seed)
    classes = int(labels.max()) + 1
    if noise:
        labels = corrupt(torch.from_numpy(labels), f"symmetric({noise}, flips='exact')", num_classes=classes, seed=seed).labels.numpy()
    regression = make_pipeline(StandardScaler(), LogisticRegression(max_iter=1000)).fit(rows, labels)
    found = [_row(task, "logistic regression", true, regression.predict_proba(others))]
    for loss in LOSSES:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", Unlearned)
            ours = RobustClassifier(loss=None if loss == DEFAULT else loss, random_state=seed, device="cpu").fit(rows, labels)
        chances = ours.predict_proba(others)
        unscaled = chances**ours.temperature_ / (chances**ours.temperature_).sum(1, keepdims=True)
        found.append(_row(task, loss, true, chances) | {"unscaled": log_loss(true, unscaled, labels=range(classes))})
    return found


def _row(task: tuple[str, float, int], loss: str, true: Any, chances: Any) -> dict[str, Any]:
    said, classes = chances.argmax(1), range(chances.shape[1])
    return {
        "table": task[0],
        "noise": task[1],
        "loss": loss,
        "balanced": 100 * balanced_accuracy_score(true, said),
        "worst": 100 * recall_score(true, said, average=None, labels=classes, zero_division=0).min(),
        "log loss": log_loss(true, chances, labels=classes),
    }


def lines_of(rows: list[dict[str, Any]], seeds: int, asked: Sequence[str]) -> Iterator[str]:
    """Balanced accuracy of every loss, then the log loss of the default, for every table and noise."""
    groups = [(heading, [table for table in tables if table in asked]) for heading, tables in GROUPS.items()]
    groups = [(heading, tables) for heading, tables in groups if tables]
    yield f"`{shlex.join(['python', 'benchmarks/defaults.py', *sys.argv[1:]])}`, torch {torch.__version__}, CPU."
    yield ""
    yield f"Means over {seeds} seed{'s' if seeds > 1 else ''}; symmetric noise; `RobustClassifier` with 50 epochs. Test labels are clean."
    yield "The default was thought of after the losses had been seen on all eight tables, so for it none of them is unseen data."
    if len(asked) < len(TABLES):
        yield f"{len(asked)} of the {len(TABLES)} tables were run."
    yield ""
    yield "Balanced test accuracy in percent, with the recall of the worst class in brackets:"
    yield ""
    yield f"| table | noise | {' | '.join(LOSSES)} |"
    yield "|---" * (2 + len(LOSSES)) + "|"
    for heading, tables in groups:
        for table in tables:
            for noise in NOISES:
                cells = [
                    f"{_mean(rows, 'balanced', table, noise, loss):.1f} ({_mean(rows, 'worst', table, noise, loss):.0f})" for loss in LOSSES
                ]
                yield f"| {table} | {noise:.0%} | {' | '.join(cells)} |"
        cells = [f"{np.mean([row['balanced'] for row in rows if row['loss'] == loss and row['table'] in tables]):.1f}" for loss in LOSSES]
        yield f"| **mean, {heading}** | | {' | '.join(cells)} |"
    yield ""
    yield "Log loss of the default without and with its temperature, and of logistic regression:"
    yield ""
    yield "| tables | noise | without | with | logistic regression |"
    yield "|---" * 5 + "|"
    for heading, tables in groups:
        for noise in NOISES:
            numbers = [("unscaled", DEFAULT), ("log loss", DEFAULT), ("log loss", "logistic regression")]
            cells = [f"{np.mean([_mean(rows, key, table, noise, loss) for table in tables]):.2f}" for key, loss in numbers]
            yield f"| {heading} | {noise:.0%} | {' | '.join(cells)} |"


def _mean(rows: Sequence[dict[str, Any]], key: str, table: str, noise: float, loss: str) -> float:
    return float(np.mean([row[key] for row in rows if (row["table"], row["noise"], row["loss"]) == (table, noise, loss)]))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--tables", nargs="+", choices=TABLES, default=TABLES)
    parser.add_argument("--write", action="store_true")
    options = parser.parse_args()
    tasks = [(table, noise, seed) for seed in range(options.seeds) for table in options.tables for noise in NOISES]
    with multiprocessing.get_context("spawn").Pool(options.jobs) as pool:
        lines = list(lines_of([row for rows in pool.imap(measured, tasks) for row in rows], options.seeds, options.tables))
    print("\n".join(lines))
    if options.write:
        write_section("Defaults of RobustClassifier", lines)


if __name__ == "__main__":
    main()
