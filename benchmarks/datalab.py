"""cleanlab's Datalab with probabilities from one run, and from cross-validation of the same network: wrong labels found.

    python benchmarks/datalab.py

Digits were used to choose how epochs are weighted; the synthetic tables were not.
"""

from __future__ import annotations

import tempfile
import warnings
from typing import Any

import numpy as np
import torch
from sklearn.datasets import load_digits, make_classification
from sklearn.model_selection import cross_val_predict

import noisewise
from noisewise.integrations.cleanlab import Datalab, to_datalab
from noisewise.integrations.sklearn import RobustClassifier

_NETWORK: dict[str, Any] = {"loss": "ce", "epochs": 40, "batch_size": 32, "device": "cpu"}


def tables() -> dict[str, tuple[np.ndarray, np.ndarray]]:
    """Rows and true labels."""
    options = {"n_informative": 12, "n_classes": 6, "class_sep": 1.5, "flip_y": 0}
    synthetic = {f"synthetic {seed}": make_classification(1500, 20, random_state=100 + seed, **options) for seed in range(3)}
    return {"digits": load_digits(return_X_y=True), **synthetic}


def found(lab: Any, wrong: np.ndarray) -> str:
    doubted = lab.get_issues("label").is_label_issue.to_numpy()
    return f"{doubted[wrong].mean():6.1%} found, {wrong[doubted].mean():6.1%} of the found wrong"


def main() -> None:
    warnings.simplefilter("ignore")
    for name, (rows, true) in tables().items():
        rows, classes = rows.astype(np.float32), int(true.max()) + 1
        given = noisewise.corrupt(torch.from_numpy(true), "symmetric(0.3, flips='exact')", num_classes=classes, seed=0).labels.numpy()
        with tempfile.TemporaryDirectory() as folder:
            run = noisewise.fit("mlp", (rows, given), folder=f"{folder}/run", **_NETWORK)
            print(f"{name:12} one run          {found(to_datalab(run, issue_types={'label': {}}), given != true)}", flush=True)
        classifier = RobustClassifier("mlp", calibrate=False, random_state=0, **_NETWORK)
        lab = Datalab({"label": given.tolist()}, label_name="label", verbosity=0)
        lab.find_issues(pred_probs=cross_val_predict(classifier, rows, given, method="predict_proba", cv=3), issue_types={"label": {}})
        print(f"{name:12} cross-validation {found(lab, given != true)}", flush=True)


if __name__ == "__main__":
    main()
