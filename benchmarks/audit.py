"""Finding wrong labels from one run, beside cleanlab on cross-validated probabilities of the same model.

    python benchmarks/audit.py --train --pack part.npz [--settings NOISE …] [--quick] [--epochs 24] [--folds 5] [--jobs 8]
    python benchmarks/audit.py --train --pack part.npz --retrain [--seeds 3] [--settings] …
    python benchmarks/audit.py --judge part.npz … [--json out.json] [--write]
    python benchmarks/audit.py --scale [--write]

``--train`` trains, for every noise, one run on all examples and one without each fold, and packs what judging needs into one file of
about 4 MB per noise; it wants a GPU and the folder named by NOISEWISE_DATA, but not cleanlab. By default CIFAR-10 with ResNet-20,
human noise (CIFAR-10N) and symmetric, asymmetric and instance-dependent noise at 20 and 40 %; ``--quick`` does digits with an MLP on a
CPU. ``--retrain`` adds runs that are relabelled from their own record and trained again (GR table 11), each ``--seeds`` times;
``--settings`` without a noise trains nothing else. ``--judge`` makes the tables from any number of such files, on any machine with
cleanlab. ``--scale`` audits a made-up record of a million examples, 1000 classes and 100 epochs and measures time and memory.
``--write`` puts the tables into benchmarks/RESULTS.md.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import shlex
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator
from contextlib import nullcontext
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, multiprocessing

from noisewise import Run, fit
from noisewise.audit import audit
from noisewise.correct import correct, retrain
from noisewise.data import Dataset, augmentations, load
from noisewise.output import check_output, written_whole
from noisewise.train._mps import gpu_for_many
from results import write_section

SEED = 1
FULL_NOISES = [
    *("human(worst)", "human(aggre)", "human(random1)", "symmetric(0.2)", "symmetric(0.4)"),
    *("class_map(0.2, 'cifar10')", "class_map(0.4, 'cifar10')", "instance(0.2)", "instance(0.4)"),
]
QUICK_NOISES = ["symmetric(0.2)", "symmetric(0.4)", "pair(0.2)", "pair(0.4)", "instance(0.2)", "instance(0.4)"]
RETRAINED = ["symmetric(0.2)", "symmetric(0.4)"]
LOSS, RETRAINED_LOSS = "ce", "gr(beta=8, lam=0.5)"
FULL = {"model": "resnet20", "data": "cifar10", "epochs": 24, "augment": "crop(4) + flip", "optimiser": "sgd(lr=0.1, momentum=0.9)"}
QUICK = {"model": "mlp", "data": "digits", "epochs": 40, "batch_size": 64, "optimiser": "sgd(lr=0.03, momentum=0.9)", "weight_decay": 1e-3}
SPARING = {"evaluate_every": 1000, "checkpoint_every": 1000}  # at the last epoch only
Arrays = dict[str, np.ndarray]


@dataclass(frozen=True)
class Task:
    """One training, or one and its repetition on corrected labels.

    Args:
        kind: "whole" for all examples, "fold" for all but one fold, "corrected" for a run that is relabelled and trained again.
        place: of the noise among all.
        noise: its spec.
        labels: what it made of the labels.
        left: the examples that are left out.
        seed: of the noise and of the training.
    """

    kind: str
    place: int
    noise: str
    labels: Tensor
    left: np.ndarray | None = None
    seed: int = SEED


@dataclass(frozen=True)
class Shared:
    """What all trainings have in common: one copy of the data in memory, whatever their number."""

    data: Dataset
    test: Dataset
    settings: dict[str, Any]
    folder: str


@dataclass(frozen=True)
class Trained:
    """What a training left: numbers, and arrays to judge by."""

    task: Task
    facts: dict[str, Any]
    arrays: Arrays


def folds(labels: np.ndarray, number: int) -> np.ndarray:
    """The fold of every example: each class is dealt out evenly, in an order of chance."""
    dealt = np.empty(len(labels), dtype=np.int64)
    dealt[np.lexsort((np.random.default_rng(0).random(len(labels)), labels))] = np.arange(len(labels)) % number
    return dealt


def tasks(data: Dataset, noises: list[str], retrained: list[str], number: int, seeds: int) -> Iterator[Task]:
    """The longest first."""
    for place, noise in enumerate(retrained):
        for seed in range(SEED, SEED + seeds):
            yield Task("corrected", place, noise, data.corruption(noise, seed=seed).labels, seed=seed)
    for place, noise in enumerate(noises):
        labels = data.corruption(noise, seed=SEED).labels
        fold = folds(labels.numpy(), number)
        yield Task("whole", place, noise, labels)
        yield from (Task("fold", place, noise, labels, np.flatnonzero(fold == one)) for one in range(number))


def share(everything: Shared) -> None:
    global shared
    torch.set_num_threads(1)
    shared = everything


def train(task: Task) -> Trained:
    """Do a task in a worker."""
    data = replace(shared.data, labels=task.labels, true_labels=shared.data.labels)
    started = time.perf_counter()
    with tempfile.TemporaryDirectory(dir=shared.folder) as folder:
        facts, arrays = {"whole": whole, "fold": one_fold, "corrected": corrected}[task.kind](task, data, Path(folder))
    return Trained(task, {"seconds": time.perf_counter() - started, **facts}, arrays)


def trained(data: Dataset, folder: Path, **settings: Any) -> Run:
    asked = {**shared.settings, **SPARING, "seed": SEED, **settings}
    model, _ = asked.pop("model"), asked.pop("data")
    return fit(model, data, folder=folder, **asked)


def whole(task: Task, data: Dataset, folder: Path) -> tuple[dict[str, Any], Arrays]:
    """The record of a run on all examples: in training, and of the pass without augmentation at the end."""
    run = trained(data, folder / "run", test=shared.test, loss=LOSS)
    record = run.dynamics.record
    last = record.epochs("clean")[-1]
    small = np.int8 if len(record.classes) < 128 else np.int16
    arrays = {
        "given": record.given.astype(small),
        "true": data.true_labels.numpy().astype(small),
        "margins": np.stack([record.margins(epoch) for epoch in record.epochs()]),
        "predictions": np.stack([record.predictions(epoch) for epoch in record.epochs()]).astype(small),
        "clean_margins": np.asarray(record.margins(last, "clean"))[None],
        "clean_predictions": np.asarray(record.predictions(last, "clean")).astype(small)[None],
    }
    return {"test_accuracy": run.dynamics.final, "examples": len(data)}, arrays


def one_fold(task: Task, data: Dataset, folder: Path) -> tuple[dict[str, Any], Arrays]:
    """What a run without some examples says of them."""
    kept, left = np.setdiff1d(np.arange(len(data)), task.left), torch.from_numpy(task.left)
    run = trained(data.take(torch.from_numpy(kept)), folder / "run", loss=LOSS, clean_pass=False)
    # As logarithms half precision tells apart the smallest probabilities, by which cleanlab ranks the most doubtful labels.
    held_out = log_probabilities(run, data.inputs[left]).numpy().astype(np.float16)
    right = held_out.argmax(1) == data.true_labels[left].numpy()
    return {"held_out_accuracy": float(right.mean()), "examples": len(kept)}, {"held_out": held_out}


@torch.no_grad()
def log_probabilities(run: Run, inputs: Tensor) -> Tensor:
    """The logarithms of what `Run.predict` gives, on the device the run was trained on."""
    device = run.settings.place()
    model, normalise = run.model().to(device), augmentations.get(run.provenance["normalise"])
    return torch.cat([model(normalise(part.to(device))).float().log_softmax(1).cpu() for part in inputs.split(1000)])


def corrected(task: Task, data: Dataset, folder: Path) -> tuple[dict[str, Any], Arrays]:
    """Test accuracy before and after relabelling from the run's own record, one training each; GR table 11."""
    run = trained(data, folder / "run", test=shared.test, loss=RETRAINED_LOSS, seed=task.seed)
    labels = correct(audit(run), "relabel")
    again = retrain(run, labels, data=data, test=shared.test)
    facts = {
        "seed": task.seed,
        "before": run.dynamics.final,
        "after": again.dynamics.final,
        "changed": int(labels.changed.sum()),
        "wrong_before": float(run.dynamics.record.wrong.mean()),
        "wrong_after": float(again.dynamics.record.wrong.mean()),
        "examples": 2 * len(data),
    }
    return facts, {}


def train_all(options: argparse.Namespace) -> None:
    """Train everything in one pool, and pack it."""
    target = check_output(options.pack, "--train --pack", [".npz"])
    settings = {**(QUICK if options.quick else FULL), **({"epochs": options.epochs} if options.epochs else {})}
    noises = options.settings if options.settings is not None else QUICK_NOISES if options.quick else FULL_NOISES
    data, test = load(settings["data"]), load(settings["data"], "test")
    todo = list(tasks(data, noises, RETRAINED if options.retrain else [], options.folds, options.seeds))
    on_gpu = torch.cuda.is_available()
    results, started = [], time.perf_counter()
    with tempfile.TemporaryDirectory() as folder, gpu_for_many() if on_gpu and options.jobs > 1 else nullcontext():
        everything = Shared(data, test, settings, folder)
        with multiprocessing.get_context("spawn").Pool(options.jobs, share, (everything,)) as pool:
            for one in pool.imap_unordered(train, todo):
                results.append(one)
                told = {name: value for name, value in one.facts.items() if name != "examples"}
                print(f"{len(results)} of {len(todo)}: {one.task.kind}, {one.task.noise}, {told}", flush=True)
    taken = time.perf_counter() - started
    speed = settings["epochs"] * sum(one.facts["examples"] for one in results) / taken
    about = {
        "command": shlex.join(["python", "benchmarks/audit.py", *sys.argv[1:]]),
        "device": torch.cuda.get_device_name() if on_gpu else "CPU",
        "torch": torch.__version__,
        "settings": settings,
        "loss": LOSS,
        "jobs": options.jobs,
        "seconds": taken,
        "images_per_second": speed,
        "classes": list(data.classes),
        "rows": [row(noise, place, results) for place, noise in enumerate(noises)],
        "retrained": [
            {"noise": one.task.noise, "loss": RETRAINED_LOSS, **one.facts}
            for one in sorted(results, key=lambda one: (one.task.place, one.task.seed))
            if one.task.kind == "corrected"
        ],
    }
    pack(target, about, results)
    print(f"{len(todo)} tasks in {taken:.0f} s, {speed:,.0f} images/s; {target} has {target.stat().st_size / 2**20:.1f} MiB")


def row(noise: str, place: int, results: list[Trained]) -> dict[str, Any]:
    """The numbers of one noise: of its run, and of its folds together."""
    own = [one for one in results if one.task.place == place]
    (run,), left = [one for one in own if one.task.kind == "whole"], [one for one in own if one.task.kind == "fold"]
    return {
        "noise": noise,
        "folds": len(left),
        "run_seconds": run.facts["seconds"],
        "fold_seconds": sum(one.facts["seconds"] for one in left),
        "test_accuracy": run.facts["test_accuracy"],
        "held_out_accuracy": float(
            np.average([one.facts["held_out_accuracy"] for one in left], weights=[len(one.task.left) for one in left])
        ),
    }


def pack(target: Path, about: dict[str, Any], results: list[Trained]) -> None:
    """One file: the numbers as JSON, and under the place of each noise its arrays."""
    arrays: Arrays = {}
    for one in results:
        if one.task.kind == "fold":
            shape = len(one.task.labels), len(about["classes"])
            arrays.setdefault(f"{one.task.place}/held_out", np.zeros(shape, dtype=np.float16))[one.task.left] = one.arrays["held_out"]
        else:
            arrays |= {f"{one.task.place}/{name}": values for name, values in one.arrays.items()}
    with written_whole(target) as part, part.open("wb") as file:
        np.savez_compressed(file, about=np.array(json.dumps(about)), **arrays)


def judge(files: list[Path]) -> dict[str, Any]:
    """What every way of ranking finds, from packed files."""
    result: dict[str, Any] = {"parts": [], "rows": [], "retrained": []}
    for path in files:
        with np.load(path, allow_pickle=False) as packed:
            about = json.loads(str(packed["about"]))
            for place, facts in enumerate(about.pop("rows")):
                arrays = {name.partition("/")[2]: packed[name] for name in packed.files if name.startswith(f"{place}/")}
                result["rows"].append({**facts, **ranked(about, facts, arrays)})
                print_row(result["rows"][-1])
        result["retrained"] += about.pop("retrained")
        result["parts"].append(about)
    for one in result["retrained"]:
        print(f"{one['noise']:28} test accuracy {100 * one['before']:.2f} % before, {100 * one['after']:.2f} % after relabelling")
    return result


def trained_with(path: Path) -> str:
    """What must be the same in files that are put into one table."""
    with np.load(path, allow_pickle=False) as packed:
        about = json.loads(str(packed["about"]))
    return json.dumps([about["settings"], about["loss"], about["device"]])


def ranked(about: dict[str, Any], facts: dict[str, Any], arrays: Arrays) -> dict[str, Any]:
    """What every way of ranking finds under one noise."""
    from cleanlab.filter import find_label_issues
    from cleanlab.rank import get_label_quality_scores

    given, wrong = arrays["given"].astype(np.int64), arrays["given"] != arrays["true"]
    with tempfile.TemporaryDirectory() as folder:
        rebuild(Path(folder), about, facts, arrays)
        started = time.perf_counter()
        found = audit(folder)
        audited = time.perf_counter() - started
        after = float((correct(found).labels != arrays["true"]).mean())
    held_out = np.exp(arrays["held_out"].astype(np.float64))
    held_out /= held_out.sum(1, keepdims=True)
    started = time.perf_counter()
    flagged = find_label_issues(given, held_out, n_jobs=1)
    quality = {method: get_label_quality_scores(given, held_out, method=method) for method in ("self_confidence", "normalized_margin")}
    judged = time.perf_counter() - started
    ours, theirs = facts["run_seconds"] + audited, facts["fold_seconds"] + judged
    ways = {
        "noisewise": (-found.score, ours),
        "mean margin": (-found.mean_margin, ours),
        "final loss": (-found.final_margin, ours),
        "cleanlab, self-confidence": (-quality["self_confidence"], theirs),
        "cleanlab, normalised margin": (-quality["normalized_margin"], theirs),
    }
    return {
        "rate": float(wrong.mean()),
        "ways": {name: measures(wrong, doubt) | {"seconds": taken} for name, (doubt, taken) in ways.items()},
        "doubtful": found.count / len(given),
        "after": after,
        "interval": [bound / len(given) for bound in found.interval],
        "expected_precision": found.expected_precision,
        "flagged": {"noisewise": shares(wrong, found.is_issue), "cleanlab": shares(wrong, flagged)},
    }


def rebuild(folder: Path, about: dict[str, Any], facts: dict[str, Any], arrays: Arrays) -> None:
    """The run folder an audit reads, from packed arrays."""
    epochs = zip(arrays["margins"], arrays["predictions"], strict=True)
    clean = zip(arrays["clean_margins"], arrays["clean_predictions"], strict=True)
    settings = {**about["settings"], "loss": about["loss"]}
    write_run(folder, settings, about["classes"], arrays["given"], arrays["true"], {"training": epochs, "clean": clean})
    tested = {"epoch": len(arrays["margins"]), "test_accuracy": facts["test_accuracy"]}
    (folder / "metrics.jsonl").write_text(json.dumps(tested) + "\n", encoding="utf-8")


def write_run(
    folder: Path, settings: dict[str, Any], classes: list[str], given: np.ndarray, true: np.ndarray, record: dict[str, Iterable[Any]]
) -> None:
    """The files of a run that an audit reads; a record is margins and predictions, epoch by epoch."""
    (folder / "labels").mkdir()
    for name, content in {
        "settings": {"format": 1, "noise": "none", "seed": SEED, "batch_size": 128, **settings},
        "classes": classes,
    }.items():
        (folder / f"{name}.json").write_text(json.dumps(content))
    for name, labels in {"given": given, "true": true}.items():
        np.save(folder / f"labels/{name}.npy", labels.astype(np.int64))
    for kind, epochs in record.items():
        (folder / f"record/{kind}").mkdir(parents=True)
        for epoch, (margins, predictions) in enumerate(epochs, 1):
            np.save(folder / f"record/{kind}/margins-{epoch:05d}.npy", margins)
            np.save(folder / f"record/{kind}/predictions-{epoch:05d}.npy", predictions)


def measures(wrong: np.ndarray, doubt: np.ndarray) -> dict[str, float]:
    from sklearn.metrics import average_precision_score, roc_auc_score

    worst = np.argsort(-doubt, kind="stable")[: int(wrong.sum())]
    return {
        "average_precision": float(average_precision_score(wrong, doubt)),
        "auroc": float(roc_auc_score(wrong, doubt)),
        "precision": float(wrong[worst].mean()),
    }


def shares(wrong: np.ndarray, flags: np.ndarray) -> dict[str, float]:
    return {"precision": float(wrong[flags].mean()) if flags.any() else float("nan"), "recall": float(flags[wrong].mean())}


def lead(row: dict[str, Any]) -> float:
    """How far the audit's average precision lies above the better of cleanlab's."""
    theirs = max(way["average_precision"] for name, way in row["ways"].items() if name.startswith("cleanlab"))
    return float(row["ways"]["noisewise"]["average_precision"] - theirs)


def print_row(row: dict[str, Any]) -> None:
    found = ", ".join(f"{name} {100 * way['average_precision']:.1f}" for name, way in row["ways"].items())
    print(f"{row['noise']:28} average precision: {found}", flush=True)


def scale(examples: int, classes: int, epochs: int) -> dict[str, Any]:
    """Seconds and resident memory of an audit of a made-up record, in a process of its own."""
    with tempfile.TemporaryDirectory() as folder:
        made_up(Path(folder), examples, classes, epochs)
        script = [sys.executable, __file__, "--audit", folder]
        done = subprocess.run(script, check=True, capture_output=True, text=True)
        about = {"command": shlex.join(["python", "benchmarks/audit.py", *sys.argv[1:]]), "torch": torch.__version__}
        return {**about, "cores": os.cpu_count(), "examples": examples, "classes": classes, "epochs": epochs, **json.loads(done.stdout)}


def made_up(folder: Path, examples: int, classes: int, epochs: int) -> None:
    """A record in which 20 % of the labels are wrong, and the model comes to know the right ones."""
    rng = np.random.default_rng(0)
    true = rng.integers(classes, size=examples)
    given = np.where(rng.random(examples) < 0.2, rng.integers(classes, size=examples), true)

    def record() -> Iterator[tuple[np.ndarray, np.ndarray]]:
        for epoch in range(1, epochs + 1):
            known = rng.random(examples) < 0.9 * epoch / epochs
            predictions = np.where(known, true, rng.integers(classes, size=examples)).astype(np.int32)
            margins = np.where(predictions == given, 2.0, -4.0) + rng.normal(size=examples)
            yield margins.astype(np.float16), predictions

    names = [f"class {number}" for number in range(classes)]
    write_run(folder, {"data": "made up", "model": "mlp", "loss": "ce", "epochs": epochs}, names, given, true, {"training": record()})


def audit_alone(folder: str) -> None:
    """What a process of its own prints: seconds, memory, and that it found the labels."""
    torch.set_num_threads(2)
    started = time.perf_counter()
    found = audit(folder)
    taken = time.perf_counter() - started
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    started = time.perf_counter()
    found.write(Path(folder) / "issues.csv")
    listed = {"list_seconds": time.perf_counter() - started, "list_memory": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024}
    precision = measures(found.dynamics.record.wrong, -found.score)["average_precision"]
    print(json.dumps({"seconds": taken, "memory": memory, **listed, "average_precision": precision}))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--train", action="store_true")
    parser.add_argument("--pack", type=Path, default=Path("audit.npz"))
    parser.add_argument("--settings", nargs="*", metavar="NOISE")
    parser.add_argument("--retrain", action="store_true")
    parser.add_argument("--seeds", type=int, default=1, help="how often each retrained run is made, noise and all")
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--epochs", type=int)
    parser.add_argument("--folds", type=int, default=5)
    parser.add_argument("--jobs", type=int, default=8 if torch.cuda.is_available() else 1)
    parser.add_argument("--judge", nargs="+", type=Path, metavar="FILE")
    parser.add_argument("--scale", action="store_true")
    parser.add_argument("--size", nargs=3, type=int, default=(1_000_000, 1000, 100), metavar=("EXAMPLES", "CLASSES", "EPOCHS"))
    parser.add_argument("--audit", help=argparse.SUPPRESS)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--write", action="store_true")
    options = parser.parse_args()
    if options.audit:
        audit_alone(options.audit)
    elif options.train:
        train_all(options)
    elif options.judge or options.scale:
        if options.judge and len({trained_with(path) for path in options.judge}) > 1:
            parser.error("the files were trained with different settings: judge each by itself")
        result = judge(options.judge) if options.judge else scale(*options.size)
        if options.json or options.scale:
            text = json.dumps(result, indent=1)
            options.json.write_text(text) if options.json else print(text)
        if options.write:
            (write_comparison if options.judge else write_scale)(result)
    else:
        parser.error("give --train, --judge or --scale")


def write_scale(found: dict[str, Any]) -> None:
    write_section(
        "Audit of a large record",
        [
            f"`{found['command']}`, torch {found['torch']}, {found['cores']} cores. The bar: under 2 GB resident, under two minutes.",
            "",
            "| examples | classes | epochs | audit | resident | with the list written | resident | average precision |",
            "|---" * 8 + "|",
            f"| {found['examples']:,} | {found['classes']:,} | {found['epochs']} | {found['seconds']:.0f} s "
            f"| {found['memory'] / 1e9:.2f} GB | {found['seconds'] + found['list_seconds']:.0f} s "
            f"| {found['list_memory'] / 1e9:.2f} GB | {100 * found['average_precision']:.1f} |",
        ],
    )


def write_comparison(result: dict[str, Any]) -> None:
    part = result["parts"][0]
    settings, made = part["settings"], [f"`{one['command']}`, {one['device']}, torch {one['torch']}.  " for one in result["parts"]]
    described = f"{settings['data']}, {settings['model']}, {settings['epochs']} epochs"
    if result["rows"]:
        about = f"{described}, loss {part['loss']}; cleanlab on {result['rows'][0]['folds']} folds; {part['jobs']} runs at a time."
        lines = [*made, "", about, "", *ranking_table(result["rows"]), "", *flags_table(result["rows"])]
        write_section(f"Finding wrong labels: {settings['data']}", lines)
    if result["retrained"]:
        about = f"{described}, trained again after relabelling what is doubtful: test accuracy, and the share of wrong labels."
        lines = [*made, "", about, "", *retrained_table(result["retrained"])]
        write_section(f"Trained again on corrected labels: {settings['data']}, {settings['epochs']} epochs", lines)


def retrained_table(rows: list[dict[str, Any]]) -> list[str]:
    """Means over seeds, and how far single seeds are from them where there are several."""
    lines = ["| noise | loss | seeds | before | after | gain | wrong before | wrong after |", "|---" * 8 + "|"]
    for noise in dict.fromkeys(row["noise"] for row in rows):
        own = [row for row in rows if row["noise"] == noise]
        columns = [[row[name] for row in own] for name in ("before", "after", "wrong_before", "wrong_after")]
        columns.insert(2, [after - before for before, after in zip(*columns[:2], strict=True)])
        spread = [f" ± {100 * np.std(column, ddof=1):.1f}" if len(own) > 1 else "" for column in columns]
        cells = [f"{100 * np.mean(column):.1f}{around} %" for column, around in zip(columns, spread, strict=True)]
        lines.append(f"| {noise} | {own[0]['loss']} | {len(own)} | {' | '.join(cells)} |")
    return lines


def ranking_table(rows: list[dict[str, Any]]) -> list[str]:
    ways, ahead = list(rows[0]["ways"]), sum(lead(row) > 0 for row in rows)
    lines = ["Average precision / AUROC / precision at the true number of wrong labels, in %; and seconds, training included.", ""]
    lines += [f"| noise | wrong | test accuracy | {' | '.join(ways)} |", "|---" * (len(ways) + 3) + "|"]
    for row in rows:
        best = max(way["average_precision"] for way in row["ways"].values())
        cells = []
        for way in row["ways"].values():
            average = f"{100 * way['average_precision']:.1f}"
            average = f"**{average}**" if way["average_precision"] == best else average
            cells.append(f"{average} / {100 * way['auroc']:.1f} / {100 * way['precision']:.1f}; {way['seconds']:.0f} s")
        lines.append(f"| {row['noise']} | {100 * row['rate']:.1f} % | {100 * row['test_accuracy']:.1f} % | {' | '.join(cells)} |")
    return [*lines, "", f"noisewise, from one run, is ahead of the better of cleanlab's scores in {ahead} of {len(rows)} settings."]


def flags_table(rows: list[dict[str, Any]]) -> list[str]:
    lines = ["Without labels known to be right: the share of doubtful labels, of those that may be wrong, and the flags.", ""]
    columns = ["noise", "wrong", "left by `relabel`", "doubtful", "interval", "precision of the flags, expected", "measured"]
    columns += ["recall", "cleanlab's", "recall"]
    lines += [f"| {' | '.join(columns)} |", "|---" * len(columns) + "|"]
    for row in rows:
        ours, theirs = row["flagged"]["noisewise"], row["flagged"]["cleanlab"]
        numbers = [
            row["rate"],
            row["after"],
            row["doubtful"],
            row["expected_precision"],
            ours["precision"],
            ours["recall"],
            theirs["precision"],
        ]
        wrong, after, doubtful, expected, measured, recall, other = (f"{100 * number:.1f} %" for number in numbers)
        low, high = (f"{100 * bound:.1f}" for bound in row["interval"])
        lines.append(
            f"| {row['noise']} | {wrong} | {after} | {doubtful} | {low} to {high} % | {expected} | {measured} | {recall} "
            f"| {other} | {100 * theirs['recall']:.1f} % |"
        )
    return lines


if __name__ == "__main__":
    main()
