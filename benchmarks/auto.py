"""How good `auto` is beside fixed losses, on small trainings that a CPU can do.

    python benchmarks/auto.py [--suites NAME …] [--noises NAME …] [--seeds 0] [--keep FILE] [--write]

A suite is data, a network and its training. In the first three, networks memorise wrong labels; in the last, they do not. Fashion-MNIST is
read from the folder that NOISEWISE_DATA names. Results are kept in a file; stopped, it resumes.
"""

from __future__ import annotations

import argparse
import json
import shlex
import statistics
import sys
import tempfile
import warnings
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from sklearn.datasets import make_classification

import noisewise
from noisewise.data import from_arrays, read
from results import write_section

LOSSES = ("ce", "gce(q=0.3)", "gce(q=0.5)", "gce(q=0.7)", "gce(q=0.9)", "scaled(normalised(mae), tau=2)", "imae(T=8, normalise='maximum')")
NOISES = ("none", "symmetric(0.2)", "symmetric(0.4)", "symmetric(0.8)", "pair(0.4)", "instance(0.4)")
SETTINGS: dict[str, Any] = {
    "epochs": 30,
    "batch_size": 128,
    "optimiser": "sgd(lr=0.1, momentum=0.9)",
    "schedule": "cosine",
    "weight_decay": 5e-4,
    "evaluate_every": 30,
    "clean_pass": False,
    "device": "cpu",
}
TESTED = 4000


class Data(NamedTuple):
    """Inputs and true labels, for training and for tests."""

    inputs: Any
    labels: np.ndarray
    test_inputs: Any
    test_labels: np.ndarray


def fashion() -> Data:
    """6,000 images of Fashion-MNIST."""
    train, test = read("fashion_mnist"), read("fashion_mnist", split="test")
    rows = np.random.default_rng(0).permutation(len(train))[:6000]
    return Data(train.inputs.flatten(1)[rows], train.labels.numpy()[rows], test.inputs.flatten(1)[:TESTED], test.labels.numpy()[:TESTED])


def clusters() -> Data:
    """A hundred classes that overlap, 80 examples of each."""
    inputs, labels = make_classification(
        8000 + TESTED,
        40,
        n_informative=25,
        n_redundant=5,
        n_classes=100,
        n_clusters_per_class=1,
        class_sep=1.9,
        flip_y=0,
        random_state=0,
    )
    inputs = torch.from_numpy(inputs.astype(np.float32))
    return Data(inputs[:8000], labels[:8000], inputs[8000:], labels[8000:])


SHORT: dict[str, Any] = {"epochs": 10, "evaluate_every": 10, "optimiser": "sgd(lr=0.02, momentum=0.9)", "weight_decay": 5e-3}
SUITES: dict[str, tuple[str, Callable[[], Data], str, dict[str, Any]]] = {
    "fashion": ("Fashion-MNIST, MLP", cache(fashion), "mlp(hidden=(256, 256))", {}),
    "fashion-norm": ("Fashion-MNIST, MLP with batch normalisation", cache(fashion), "mlp(hidden=(256, 256), norm='batch')", {}),
    "clusters": ("100 clusters, MLP with batch normalisation", cache(clusters), "mlp(hidden=(256, 256), norm='batch')", {}),
    "fashion-short": ("Fashion-MNIST, MLP with dropout, 10 epochs", cache(fashion), "mlp(hidden=(128,), dropout=0.5)", SHORT),
}


def trained(suite: str, noise: str, loss: str, seed: int) -> dict[str, Any]:
    """The result of one run."""
    _, load, model, more = SUITES[suite]
    data = load()
    classes = int(data.labels.max()) + 1
    inputs = torch.as_tensor(data.inputs).float()
    given = noisewise.corrupt(data.labels, noise, num_classes=classes, seed=seed, inputs=inputs).labels
    names = [str(label) for label in range(classes)]
    train = from_arrays(data.inputs, given, true_labels=data.labels, classes=names, name=suite)
    test = from_arrays(data.test_inputs, data.test_labels, classes=names, name=suite)
    with tempfile.TemporaryDirectory() as folder, warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that classes were not learned, which the table shows
        run = noisewise.fit(model, train, test=test, loss=loss, seed=seed, folder=Path(folder) / "run", **{**SETTINGS, **more})
        last, adapted = run.metrics[-1], run.metrics[-1].get("adapted", {})
        predicted = np.bincount(run.predict(data.test_inputs).argmax(1).numpy(), minlength=classes)
    return {
        "suite": suite,
        "noise": noise,
        "loss": loss,
        "seed": seed,
        "wrong": float((given.numpy() != data.labels).mean()),
        "accuracy": last["test_accuracy"],
        "missing": int((predicted < 0.1 * np.bincount(data.test_labels, minlength=classes)).sum()),
        **{name: adapted.get(name) for name in ("noise_low", "noise_high")},
        "estimate": adapted.get("noise"),
    }


def table(rows: list[dict[str, Any]], suite: str) -> list[str]:
    """The accuracies of a suite, in percent; the estimates of `auto`."""
    own = [row for row in rows if row["suite"] == suite]
    noises = [noise for noise in NOISES if any(row["noise"] == noise for row in own)]
    lines = [f"| {SUITES[suite][0]} | " + " | ".join(noises) + " |", "|---" * (len(noises) + 1) + "|"]
    for loss in dict.fromkeys(row["loss"] for row in own):
        cells = [[row for row in own if row["loss"] == loss and row["noise"] == noise] for noise in noises]
        lines.append(f"| `{loss}` | " + " | ".join(map(_cell, cells)) + " |")
    return lines


def _cell(rows: list[dict[str, Any]]) -> str:
    if not rows:
        return ""
    text = f"{100 * statistics.fmean(row['accuracy'] for row in rows):.1f}"
    missing = max(row["missing"] for row in rows)
    estimates = [row["estimate"] for row in rows if row["estimate"] is not None]
    notes = ([f"{missing} lost"] if missing else []) + ([f"{100 * statistics.fmean(estimates):.0f} %"] if estimates else [])
    return text + (f" ({', '.join(notes)})" if notes else "")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--suites", nargs="+", default=list(SUITES), choices=list(SUITES))
    parser.add_argument("--noises", nargs="+", default=list(NOISES))
    parser.add_argument("--losses", nargs="+", default=["auto", *LOSSES])
    parser.add_argument("--seeds", nargs="+", type=int, default=[0])
    parser.add_argument("--keep", type=Path, default=Path("auto.jsonl"), help="the file of results")
    parser.add_argument("--write", action="store_true", help="put the tables into benchmarks/RESULTS.md")
    asked = parser.parse_args()
    torch.set_num_threads(1)
    rows = [json.loads(line) for line in asked.keep.read_text().splitlines()] if asked.keep.exists() else []
    known = {(row["suite"], row["noise"], row["loss"], row["seed"]) for row in rows}
    for suite in asked.suites:
        for noise in asked.noises:
            for loss in asked.losses:
                for seed in asked.seeds:
                    if (suite, noise, loss, seed) not in known:
                        rows.append(trained(suite, noise, loss, seed))
                        with asked.keep.open("a") as file:
                            file.write(json.dumps(rows[-1]) + "\n")
                        print(rows[-1], flush=True)
    lines = [
        f"`{shlex.join(['python', 'benchmarks/auto.py', *sys.argv[1:]])}`, torch {torch.__version__}, one CPU thread, seeds "
        f"{', '.join(map(str, sorted({row['seed'] for row in rows})))}, {SETTINGS['epochs']} epochs.",
        "",
        "Test accuracy (%); of `auto` also the estimated share of wrong labels at the end. `lost`: classes that are predicted for less",
        "than a tenth of their test examples. These settings were looked at while `auto` was designed.",
    ]
    for suite in asked.suites:
        lines += ["", *table(rows, suite)]
    print("\n".join(lines))
    if asked.write:
        write_section("auto beside fixed losses, on a CPU", lines)


if __name__ == "__main__":
    main()
