"""What an audit makes of small tables, of rare classes and of a model that is no good, and what is true: what `noisewise audit` trains.

    python benchmarks/audit_small.py [--jobs 2] [--write]

An MLP with GCE for 30 epochs, or with cross-entropy where that did not learn a class. ``--write`` puts the table into
benchmarks/RESULTS.md.
"""

from __future__ import annotations

import argparse
import shlex
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
from sklearn.datasets import load_digits, load_iris, make_classification
from torch import multiprocessing

from audit import shares
from noisewise import fit
from noisewise.audit import Audit, audit
from noisewise.correct import correct
from results import write_section

NOISES = ("none", "symmetric(0.1)", "symmetric(0.2)", "pair(0.2)")
SEEDS = (0, 1, 2)
TABLES = {
    "digits, 300": "300 of digits",
    "digits, 1400": "1,400 of digits",
    "digits, rare": "digits, of five classes ten each",
    "iris": "iris",
    "drawn, far": "800 drawn in 4 classes 1.5 apart",
    "drawn, near": "800 drawn in 4 classes 0.8 apart",
}


def drawn(table: str, seed: int) -> tuple[Any, Any, Any, Any]:
    """Inputs and labels to train on, and others to test on."""
    if table.startswith("drawn"):
        apart = {"drawn, far": 1.5, "drawn, near": 0.8}[table]
        inputs, labels = make_classification(1600, 12, n_informative=5, n_redundant=0, n_classes=4, class_sep=apart, random_state=seed)
        return inputs[:800], labels[:800], inputs[800:], labels[800:]
    inputs, labels = (load_iris if table == "iris" else load_digits)(return_X_y=True)
    if table == "digits, rare":
        here = np.concatenate([np.flatnonzero(labels == label)[: 10 if label < 5 else None] for label in range(10)])
    else:
        here = np.random.default_rng(seed).permutation(len(labels))[: {"digits, 300": 300, "digits, 1400": 1400, "iris": 100}[table]]
    others = np.setdiff1d(np.arange(len(labels)), here)
    return inputs[here], labels[here], inputs[others], labels[others]


def audited(folder: Path, table: str, noise: str, seed: int, tested: bool, loss: str = "gce(q=0.7)") -> Audit:
    """The audit of a run like that of the command."""
    inputs, labels, *test = drawn(table, seed)
    how = {"epochs": 30, "evaluate_every": 30, "device": "cpu", "seed": seed, "noise": noise, "loss": loss}
    run = fit("mlp", (inputs.astype("float32"), labels), test=tuple(test) if tested else None, folder=folder / f"{tested} {loss}", **how)
    found = audit(run)
    return audited(folder, table, noise, seed, tested, "ce") if found.unlearned and loss != "ce" else found


def surveyed(task: tuple[str, str, int]) -> dict[str, Any]:
    """What audits of one table say, with and without a test set, and the truth."""
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as folder:
        found = {tested: audited(Path(folder), *task, tested=tested) for tested in (False, True)}
        one, record = found[False], found[False].dynamics.record
        true = record.given if record.true is None else record.true
        wrong = np.asarray(record.given != true)
        return {
            "table": task[0],
            "noise": task[1],
            "accuracy": found[True].dynamics.final,
            "wrong": wrong.mean(),
            "doubted": one.is_issue.mean(),
            "precision": shares(wrong, one.is_issue)["precision"] if wrong.any() else np.nan,
            "after": (correct(one).labels != true).mean(),
            **{f"held {tested}": said.interval[0] <= wrong.sum() <= said.interval[1] for tested, said in found.items()},
        }


def lines_of(rows: list[dict[str, Any]]) -> Iterator[str]:
    """One line for each table and noise: means over the seeds."""
    yield f"`{shlex.join(['python', 'benchmarks/audit_small.py', *sys.argv[1:]])}`, torch {torch.__version__}, CPU."
    yield ""
    yield f"Means over {len(SEEDS)} seeds, in percent: of all labels, of the test set, or of the doubted labels."
    yield ""
    yield "| labels | noise | test accuracy | wrong | doubted | of these wrong | wrong after `relabel` | interval held, untested | tested |"
    yield "|---" * 9 + "|"
    for table, noise in dict.fromkeys((row["table"], row["noise"]) for row in rows):
        own = [row for row in rows if (row["table"], row["noise"]) == (table, noise)]
        mean = {key: f"{100 * np.mean([row[key] for row in own]):.1f}" for key in ("accuracy", "wrong", "doubted", "precision", "after")}
        held = [f"{sum(bool(row[f'held {tested}']) for row in own)} of {len(own)}" for tested in (False, True)]
        yield f"| {TABLES[table]} | {noise} | {' | '.join([*mean.values(), *held]).replace('nan', '–')} |"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--write", action="store_true")
    options = parser.parse_args()
    tasks = [(table, noise, seed) for table in TABLES for noise in NOISES for seed in SEEDS]
    with multiprocessing.get_context("spawn").Pool(options.jobs) as pool:
        lines = list(lines_of(list(pool.imap(surveyed, tasks))))
    print("\n".join(lines))
    if options.write:
        write_section("Audits of small tables", lines)


if __name__ == "__main__":
    main()
