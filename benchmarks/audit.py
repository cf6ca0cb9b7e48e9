"""Finding wrong labels from one run, beside cleanlab on five-fold cross-validated probabilities of the same model.

    python benchmarks/audit.py [--quick] [--jobs 8] [--epochs 50] [--settings 'human(worst)' …] [--runs folder] [--json out.json] [--write]
    python benchmarks/audit.py --scale [--write]

By default CIFAR-10 with ResNet-20, human noise (CIFAR-10N) and symmetric, asymmetric and instance-dependent noise at 20 and 40 %;
it wants a GPU and the folder named by NOISEWISE_DATA. ``--quick`` does digits with an MLP on a CPU in a few minutes. Runs are kept
in ``--runs`` and not trained twice, so a comparison can be done in parts. ``--scale`` audits a made-up record of a million examples,
1000 classes and 100 epochs and measures time and memory. ``--write`` puts the tables into benchmarks/RESULTS.md, ``--read`` from JSON.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import resource
import shlex
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from sklearn.metrics import average_precision_score, roc_auc_score
from sklearn.model_selection import StratifiedKFold

from noisewise import Run, fit
from noisewise.audit import audit
from noisewise.correct import correct, retrain
from noisewise.data import augmentations, load
from results import write_section

FOLDS = 5
SEED = 1
FULL_NOISES = [
    *("human(worst)", "human(aggre)", "human(random1)", "symmetric(0.2)", "symmetric(0.4)"),
    *("class_map(0.2, 'cifar10')", "class_map(0.4, 'cifar10')", "instance(0.2)", "instance(0.4)"),
]
QUICK_NOISES = ["symmetric(0.2)", "symmetric(0.4)", "pair(0.2)", "pair(0.4)", "instance(0.2)", "instance(0.4)"]
FULL = {"model": "resnet20", "data": "cifar10", "epochs": 50, "augment": "crop(4) + flip", "optimiser": "sgd(lr=0.1, momentum=0.9)"}
QUICK = {"model": "mlp", "data": "digits", "epochs": 40, "batch_size": 64, "optimiser": "sgd(lr=0.03, momentum=0.9)", "weight_decay": 1e-3}
SPARING = {"evaluate_every": 1000, "checkpoint_every": 1000}  # at the last epoch only
RETRAINED = ("symmetric(0.2)", "symmetric(0.4)")


@dataclass(frozen=True)
class Task:
    """One training: a setting, whole or without a fold.

    Args:
        noise: the noise, applied to the whole data set.
        loss: the loss.
        fold: the fold that is left out; None for none.
        folder: of the run.
        settings: the other settings of `fit`.
    """

    noise: str
    loss: str
    fold: int | None
    folder: str
    settings: dict[str, Any]


def noisy(data: str, noise: str) -> Any:
    return load(data).corrupted(noise, seed=SEED)


def without(labels: np.ndarray, fold: int) -> tuple[np.ndarray, np.ndarray]:
    """The examples that are kept and those that are left out."""
    splits = StratifiedKFold(FOLDS, shuffle=True, random_state=0).split(np.zeros(len(labels)), labels)
    return list(splits)[fold]


def train(task: Task) -> None:
    """Train, and leave the seconds it took, and for a fold the probabilities of the examples that were left out."""
    torch.set_num_threads(1)
    finished = Path(task.folder) / "seconds.json"
    if finished.exists():
        return
    started, settings = time.perf_counter(), dict(task.settings)
    model, name = settings.pop("model"), settings.pop("data")
    data = noisy(name, task.noise)
    if task.fold is None:
        fit(model, data, test=load(name, "test"), folder=task.folder, loss=task.loss, **settings, **SPARING)
    else:
        kept, left = map(torch.from_numpy, without(data.labels.numpy(), task.fold))
        run = fit(model, data.take(kept), folder=task.folder, loss=task.loss, clean_pass=False, **settings, **SPARING)
        np.save(Path(task.folder) / "probabilities.npy", probabilities(run, data.inputs[left]).numpy())
    finished.write_text(json.dumps(time.perf_counter() - started))


@torch.no_grad()
def probabilities(run: Run, inputs: torch.Tensor) -> torch.Tensor:
    """What `Run.predict` gives, on the device the run was trained on."""
    device = run.settings.place()
    model, normalise = run.model().to(device), augmentations.get(run.provenance["normalise"])
    return torch.cat([model(normalise(part.to(device))).softmax(1).cpu() for part in inputs.split(1000)])


def tasks(noises: list[str], loss: str, folder: Path, settings: dict[str, Any]) -> Iterator[Task]:
    for noise in noises:
        for fold in (None, *range(FOLDS)):
            name = "whole" if fold is None else f"fold{fold}"
            yield Task(noise, loss, fold, str(folder / f"{settings['data']}-{noise}-{loss}".replace(" ", "") / name), settings)


def seconds(folder: Path) -> float:
    return float(json.loads((folder / "seconds.json").read_text()))


def measures(wrong: np.ndarray, doubt: np.ndarray) -> dict[str, float]:
    number = int(wrong.sum())
    worst = np.argsort(-doubt, kind="stable")[:number]
    return {
        "average_precision": float(average_precision_score(wrong, doubt)),
        "auroc": float(roc_auc_score(wrong, doubt)),
        "precision": float(wrong[worst].mean()),
    }


def judge(noise: str, loss: str, folder: Path, data: str) -> dict[str, Any]:
    """What every way of ranking finds in one setting."""
    from cleanlab.filter import find_label_issues
    from cleanlab.rank import get_label_quality_scores

    given = noisy(data, noise)
    wrong, labels = given.wrong.numpy(), given.labels.numpy()
    started = time.perf_counter()
    found = audit(folder / "whole")
    audited = time.perf_counter() - started
    held_out = np.zeros((len(labels), len(given.classes)))
    for fold in range(FOLDS):
        held_out[without(labels, fold)[1]] = np.load(folder / f"fold{fold}/probabilities.npy")
    started = time.perf_counter()
    flagged = find_label_issues(labels, held_out, n_jobs=1)
    quality = {method: get_label_quality_scores(labels, held_out, method=method) for method in ("self_confidence", "normalized_margin")}
    ranked = time.perf_counter() - started
    run, folds = seconds(folder / "whole"), sum(seconds(folder / f"fold{fold}") for fold in range(FOLDS))
    ways = {
        "noisewise": (-found.score, run + audited),
        "mean margin": (-found.mean_margin, run + audited),
        "final loss": (-found.final_margin, run + audited),
        "cleanlab, self-confidence": (-quality["self_confidence"], folds + ranked),
        "cleanlab, normalised margin": (-quality["normalized_margin"], folds + ranked),
    }
    return {
        "noise": noise,
        "loss": loss,
        "rate": float(wrong.mean()),
        "ways": {name: measures(wrong, doubt) | {"seconds": taken} for name, (doubt, taken) in ways.items()},
        "doubtful": found.count / len(labels),
        "interval": [bound / len(labels) for bound in found.interval],
        "expected_precision": found.expected_precision,
        "flagged": {"noisewise": share(wrong, found.is_issue), "cleanlab": share(wrong, flagged)},
    }


def share(wrong: np.ndarray, flags: np.ndarray) -> dict[str, float]:
    return {"precision": float(wrong[flags].mean()) if flags.any() else float("nan"), "recall": float(flags[wrong].mean())}


def corrected(noise: str, loss: str, folder: Path, settings: dict[str, Any]) -> dict[str, Any]:
    """Test accuracy before and after relabelling, one training each; GR table 11."""
    train(Task(noise, loss, None, str(folder / "whole"), settings))
    run = Run(folder / "whole")
    labels = correct(audit(run), "relabel")
    true = run.dynamics.record.true
    data = noisy(settings["data"], noise)
    again = retrain(run, labels, data=data, test=load(settings["data"], "test"), folder=folder / "corrected")
    return {
        "noise": noise,
        "loss": loss,
        "before": run.dynamics.final,
        "after": again.dynamics.final,
        "wrong_before": float((labels.given != true).mean()),
        "wrong_after": float((labels.labels != true).mean()),
    }


def scale(examples: int, classes: int, epochs: int) -> dict[str, Any]:
    """Seconds and resident memory of an audit of a made-up record, in a process of its own."""
    with tempfile.TemporaryDirectory() as folder:
        made_up(Path(folder), examples, classes, epochs)
        script = [sys.executable, __file__, "--audit", folder]
        done = subprocess.run(script, check=True, capture_output=True, text=True)
        return {"examples": examples, "classes": classes, "epochs": epochs, **json.loads(done.stdout)}


def made_up(folder: Path, examples: int, classes: int, epochs: int) -> None:
    """A record in which 20 % of the labels are wrong, and the model comes to know the right ones."""
    rng = np.random.default_rng(0)
    (folder / "labels").mkdir()
    (folder / "record/training").mkdir(parents=True)
    true = rng.integers(classes, size=examples)
    given = np.where(rng.random(examples) < 0.2, rng.integers(classes, size=examples), true)
    for name, content in {
        "settings": {
            "format": 1,
            "data": "made up",
            "model": "mlp",
            "loss": "ce",
            "noise": "none",
            "seed": 0,
            "epochs": epochs,
            "batch_size": 128,
        },
        "classes": [f"class {number}" for number in range(classes)],
        "status": {"state": "finished", "reason": None, "epoch": epochs, "step": 0},
        "provenance": {},
    }.items():
        (folder / f"{name}.json").write_text(json.dumps(content))
    np.save(folder / "labels/given.npy", given)
    np.save(folder / "labels/true.npy", true)
    for epoch in range(1, epochs + 1):
        known = rng.random(examples) < 0.9 * epoch / epochs
        predictions = np.where(known, true, rng.integers(classes, size=examples)).astype(np.int32)
        margins = np.where(predictions == given, 2.0, -4.0) + rng.normal(size=examples)
        np.save(folder / f"record/training/margins-{epoch:05d}.npy", margins.astype(np.float16))
        np.save(folder / f"record/training/predictions-{epoch:05d}.npy", predictions)


def audit_alone(folder: str) -> None:
    """What a process of its own prints: seconds, memory, and that it found the labels."""
    torch.set_num_threads(2)
    started = time.perf_counter()
    found = audit(folder)
    taken = time.perf_counter() - started
    wrong = found.dynamics.record.wrong
    assert wrong is not None
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    started = time.perf_counter()
    found.write(Path(folder) / "issues.csv")
    print(
        json.dumps(
            {
                "seconds": taken,
                "memory": memory,
                "list_seconds": time.perf_counter() - started,
                "list_memory": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024,
                "average_precision": float(average_precision_score(wrong, -found.score)),
            }
        )
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--settings", nargs="+", metavar="NOISE")
    parser.add_argument("--loss", default="ce")
    parser.add_argument("--retrain-loss", default="gr(beta=8, lam=0.5)")
    parser.add_argument("--epochs", type=int)
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--runs", type=Path)
    parser.add_argument("--scale", action="store_true")
    parser.add_argument("--size", nargs=3, type=int, default=(1_000_000, 1000, 100), metavar=("EXAMPLES", "CLASSES", "EPOCHS"))
    parser.add_argument("--audit", help=argparse.SUPPRESS)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--read", type=Path)
    parser.add_argument("--write", action="store_true")
    options = parser.parse_args()
    if options.audit:
        audit_alone(options.audit)
        return
    if options.read:
        report(json.loads(options.read.read_text()))
        return
    command = shlex.join(["python", "benchmarks/audit.py", *sys.argv[1:]])
    device = torch.cuda.get_device_name() if torch.cuda.is_available() else "CPU"
    result: dict[str, Any] = {"command": command, "device": device, "torch": torch.__version__}
    if options.scale:
        result["scale"] = scale(*options.size)
        print(json.dumps(result["scale"], indent=1))
    else:
        with tempfile.TemporaryDirectory() as folder:
            result |= compare(options, options.runs or Path(folder))
    if options.json:
        options.json.write_text(json.dumps(result, indent=1))
    if options.write:
        report(result)


def compare(options: argparse.Namespace, folder: Path) -> dict[str, Any]:
    settings = dict(QUICK if options.quick else FULL)
    if options.epochs:
        settings["epochs"] = options.epochs
    noises = options.settings or (QUICK_NOISES if options.quick else FULL_NOISES)
    todo = list(tasks(noises, options.loss, folder, settings))
    with multiprocessing.get_context("spawn").Pool(options.jobs) as pool:
        for number, _ in enumerate(pool.imap_unordered(train, todo), 1):
            print(f"{number} of {len(todo)} runs trained", file=sys.stderr, flush=True)
    rows = []
    for task in todo:
        if task.fold is None:
            rows.append(judge(task.noise, task.loss, Path(task.folder).parent, settings["data"]))
            best = {name: f"{100 * way['average_precision']:.1f}" for name, way in rows[-1]["ways"].items()}
            print(f"{task.noise:28} average precision {best}", flush=True)
    again = []
    for noise in RETRAINED:
        if noise in noises:
            again.append(corrected(noise, options.retrain_loss, folder / f"retrained-{settings['data']}-{noise}", settings))
            print(f"{noise:28} test accuracy {100 * again[-1]['before']:.2f} % before, {100 * again[-1]['after']:.2f} % after", flush=True)
    return {"settings": settings, "rows": rows, "retrained": again}


def report(result: dict[str, Any]) -> None:
    """Put the tables into the page of results."""
    head = [f"`{result['command']}`, {result['device']}, torch {result['torch']}.", ""]
    if "scale" in result:
        found = result["scale"]
        write_section(
            "Audit of a large record",
            [
                *head,
                "| examples | classes | epochs | audit | resident | with the list written | resident | average precision |",
                "|---|---|---|---|---|---|---|---|",
                f"| {found['examples']:,} | {found['classes']:,} | {found['epochs']} | {found['seconds']:.0f} s "
                f"| {found['memory'] / 2**30:.2f} GiB | {found['seconds'] + found['list_seconds']:.0f} s "
                f"| {found['list_memory'] / 2**30:.2f} GiB | {100 * found['average_precision']:.1f} |",
            ],
        )
        return
    settings = result["settings"]
    lines = [*head, f"{settings['data']}, {settings['model']}, {settings['epochs']} epochs, loss {result['rows'][0]['loss']}.", ""]
    lines += ["Average precision / AUROC / precision at the true number of wrong labels, in %; and seconds, training included.", ""]
    ways = list(result["rows"][0]["ways"])
    lines += [f"| noise | wrong | {' | '.join(ways)} |", "|---" * (len(ways) + 2) + "|"]
    for row in result["rows"]:
        best = max(way["average_precision"] for way in row["ways"].values())
        cells = []
        for way in row["ways"].values():
            average = f"{100 * way['average_precision']:.1f}"
            average = f"**{average}**" if way["average_precision"] == best else average
            cells.append(f"{average} / {100 * way['auroc']:.1f} / {100 * way['precision']:.1f}; {way['seconds']:.0f} s")
        lines.append(f"| {row['noise']} | {100 * row['rate']:.1f} % | {' | '.join(cells)} |")
    lines += ["", "Without labels known to be right: the share of doubtful labels, of those that may be wrong, and the flags.", ""]
    lines += ["| noise | wrong | doubtful | interval | precision of the flags, expected | measured | recall | cleanlab's | recall |"]
    lines += ["|---" * 9 + "|"]
    for row in result["rows"]:
        ours, theirs = row["flagged"]["noisewise"], row["flagged"]["cleanlab"]
        numbers = [row["rate"], row["doubtful"], row["expected_precision"], ours["precision"], ours["recall"], theirs["precision"]]
        wrong, doubtful, expected, measured, recall, other = (f"{100 * number:.1f} %" for number in numbers)
        low, high = (f"{100 * bound:.1f}" for bound in row["interval"])
        lines.append(
            f"| {row['noise']} | {wrong} | {doubtful} | {low} to {high} % | {expected} | {measured} | {recall} "
            f"| {other} | {100 * theirs['recall']:.1f} % |"
        )
    if result["retrained"]:
        lines += ["", "Trained again after relabelling what is doubtful: test accuracy, and the share of wrong labels.", ""]
        lines += ["| noise | loss | before | after | wrong before | wrong after |", "|---" * 6 + "|"]
        for row in result["retrained"]:
            numbers = [row["before"], row["after"], row["wrong_before"], row["wrong_after"]]
            cells = " | ".join(f"{100 * number:.1f} %" for number in numbers)
            lines.append(f"| {row['noise']} | {row['loss']} | {cells} |")
    write_section(f"Finding wrong labels: {settings['data']}", lines)


if __name__ == "__main__":
    main()
