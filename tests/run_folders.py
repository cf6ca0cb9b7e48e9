"""Run folders with known contents, written by hand."""

from __future__ import annotations

import json
import math
from pathlib import Path

import numpy as np

SETTINGS = {
    "format": 1,
    "data": "tiny",
    "model": "mlp",
    "loss": "imae(T=8)",
    "noise": "symmetric(0.4)",
    "seed": 0,
    "epochs": 3,
    "batch_size": 2,
}


def write_run(
    folder: Path,
    labels,
    true=None,
    *,
    training=(),
    clean=(),
    metrics=(),
    classes=3,
    state="finished",
    test_examples=10,
    **settings,
) -> Path:
    """A run folder. `training` and `clean` hold (epoch, margins, predictions)."""
    folder.mkdir(parents=True)
    for name, content in {
        "settings": SETTINGS | settings,
        "provenance": {"noisewise": "0.1.0", "data": {"test": {"examples": test_examples}}},
        "classes": [f"class {number}" for number in range(classes)],
        "status": {"state": state, "reason": None, "epoch": len(metrics), "step": 0},
    }.items():
        (folder / f"{name}.json").write_text(json.dumps(content))
    (folder / "labels").mkdir()
    np.save(folder / "labels/given.npy", np.asarray(labels, dtype=np.int64))
    if true is not None:
        np.save(folder / "labels/true.npy", np.asarray(true, dtype=np.int64))
    for of, epochs in (("training", training), ("clean", clean)):
        for epoch, margins, predictions in epochs:
            (folder / "record" / of).mkdir(parents=True, exist_ok=True)
            np.save(folder / f"record/{of}/margins-{epoch:05d}.npy", np.asarray(margins, dtype=np.float16))
            np.save(folder / f"record/{of}/predictions-{epoch:05d}.npy", np.asarray(predictions, dtype=np.int32))
    if metrics:
        (folder / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in metrics))
    return folder


NAN = math.nan
TINY = {
    "labels": [0, 1, 2, 0],
    "true": [0, 1, 2, 1],  # the last label is wrong
    "training": [
        (1, [1.0, -1.0, NAN, -3.0], [0, 0, -1, 1]),  # a partial epoch: the third example was not seen
        (2, [2.0, 1.0, -2.0, -1.0], [0, 1, 0, 1]),
        (3, [3.0, -1.5, 0.5, 0.25], [0, 2, 2, 0]),
    ],
    "metrics": [
        {"epoch": 1, "emphasis": {"clean": {"pull": 0.2, "eta": 0.4}, "noisy": {"pull": 0.3, "eta": 0.2}}, "mean_emphasis": 0.9},
        {"epoch": 2, "emphasis": {"clean": {"pull": 0.5, "eta": 0.6}, "noisy": {"pull": 0.1, "eta": 0.2}}, "test_accuracy": 0.8},
        {
            "epoch": 3,
            "emphasis": {"clean": {"pull": 0.1, "eta": 0.1}, "noisy": {"pull": 0.0, "eta": 0.1}},
            "mean_emphasis": 0.4,
            "test_accuracy": 0.7,
            "validation_accuracy": 0.55,
        },
    ],
}
