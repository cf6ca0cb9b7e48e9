"""The demo trains a small network on digits with 40 % wrong labels, with several losses, in less than a minute on two cores.

The digits come with scikit-learn, so nothing is downloaded. All settings are defaults, except the number of epochs, which was chosen for
`gce(q=0.7)` on held-out noisy labels with other seeds (benchmarks/demo_settings.py). Cross-entropy does better with early stopping.
One data set, one network and one seed illustrate the losses; they do not rank them.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from noisewise.dynamics import Dynamics
from noisewise.output import make_folder, written_whole
from noisewise.spec import as_int
from noisewise.train import Run, compare

# IMAE and GR are scaled to the largest emphasis of cross-entropy, 1, so that one learning rate suits all five.
LOSSES = ("ce", "mae", "gce(q=0.7)", "imae(T=8, normalise='maximum')", "gr(beta=8, lam=0.5, normalise='maximum')")
NOISE = "symmetric(0.4)"
EPOCHS = 40
RUNS = "runs"
CAPTION = (
    f"Digits with {NOISE} label noise; an MLP 64-256-256-10 after {EPOCHS} epochs. "
    "Label errors found: if there are n wrong labels, how many of them are among the n examples with the smallest mean margin. "
    "Settings are defaults; the epochs were chosen on held-out noisy labels, not on the test set. One seed: an illustration, not a ranking."
)

# Always on the CPU, so that the numbers are the same everywhere.
_SETTINGS: dict[str, Any] = {"epochs": EPOCHS, "evaluate_every": 4, "checkpoint_every": 10, "device": "cpu"}


@dataclass(frozen=True)
class Result:
    """The results of one loss.

    Args:
        loss: its spec.
        test: accuracy on test data.
        clean_subset: the share of training examples with right labels that are predicted as labelled.
        noisy_subset: the share of training examples with wrong labels that are predicted as labelled, that is, memorised.
        errors_found: the share of wrong labels among the n examples with the smallest mean margin, where n labels are wrong.
        folder: the run folder, relative to the folder of the results.
    """

    loss: str
    test: float
    clean_subset: float
    noisy_subset: float
    errors_found: float
    folder: str


def check(folder: Path, seed: int) -> None:
    """Refuse a folder that cannot be written and an invalid seed, before any training."""
    as_int("seed", "demo", seed, 0)
    make_folder(folder)


def run(folder: Path, *, seed: int = 0, watch: Callable[[Any], None] | None = None) -> list[Result]:
    """Train once per loss, two at a time, and write the run folders, ``results.json`` and ``report.html`` to the folder.

    Args:
        folder: the folder of the results; it is created if it does not exist.
        seed: the seed of the noise, the starting weights and the order of examples.
        watch: called whenever a run makes progress; see `noisewise.compare`.
    """
    check(folder, seed)
    runs = compare("mlp", "digits", loss=LOSSES, noise=[NOISE], seed=[seed], folder=folder / RUNS, jobs=2, watch=watch, **_SETTINGS)
    results = [_result(run, folder) for run in runs]
    summary = {
        "noise": NOISE,
        "seed": seed,
        "epochs": EPOCHS,
        "corrupted": int(_wrong(runs[0].dynamics).sum()),
        "results": [asdict(result) for result in results],
    }
    with written_whole(folder / "results.json") as part:
        part.write_text(json.dumps(summary, indent=2) + "\n", encoding="utf-8")
    runs.report(folder / "report.html")
    return results


def _result(run: Run, folder: Path) -> Result:
    dynamics = run.dynamics
    summary, wrong = dynamics.summary(), _wrong(dynamics)
    suspects = np.argsort(dynamics.area_under_margin, kind="stable")[: wrong.sum()]
    return Result(
        loss=run.settings.loss,
        test=summary["final"],
        clean_subset=summary["clean_subset"],
        noisy_subset=summary["noisy_subset"],
        errors_found=float(wrong[suspects].mean()),
        folder=run.path.relative_to(folder).as_posix(),
    )


def _wrong(dynamics: Dynamics) -> Any:
    assert dynamics.record.wrong is not None  # the demo made the noise
    return dynamics.record.wrong
