"""Finding label errors that people verified, and labels that people gave, beside AUM, the loss and cleanlab.

    python benchmarks/verified.py --verified FILE --data mnist --model cnn4 --epochs 10 --folds [--seed 2] --json a.json
    python benchmarks/verified.py --verified FILE --data cifar10 --model resnet20 --features test.npy --json b.json
    python benchmarks/verified.py --human aggre worst --features train.npy --json c.json
    python benchmarks/verified.py --write a.json b.json c.json [--about TEXT]

``--verified`` is a file of votes of crowd workers on the labels of a test set, as published with "Pervasive Label Errors in Test Sets"
(Northcutt et al. 2021; ``mturk/mnist_mturk.json`` and ``mturk/cifar10_mturk.json``). The test images are then the training set: everything
is judged with the published labels as given labels. Trained runs are kept in ``--runs``. ``--human`` judges the labels of CIFAR-10N on the
training images. ``--features`` are one row of numbers for each image, in the official order, from a network that no label of the data set
went into. Folders are below NOISEWISE_DATA. ``--write`` puts the tables into benchmarks/RESULTS.md.
"""

from __future__ import annotations

import argparse
import json
import shlex
import sys
import tempfile
import time
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import average_precision_score, log_loss, roc_auc_score
from sklearn.model_selection import StratifiedKFold

from noisewise import Run, fit
from noisewise.audit import evidence_from_features, find_label_issues
from noisewise.data import Dataset, load
from results import write_section

FOLDS = 5
STRENGTHS = (0.001, 0.0001, 0.00001)  # C of logistic regression
FIRST = (100, 500)
CAUTION = (
    "cleanlab chose the labels that workers were shown, so errors that it does not find are not known, and the comparison favours it. "
    "AUM is the mean of the recorded margins."
)
OPTIMISER = {"cnn4": "sgd(lr=0.05, momentum=0.9)", "resnet20": "sgd(lr=0.1, momentum=0.9)"}
AUGMENT = {"mnist": "none", "cifar10": "crop(4) + flip"}
Scores = dict[str, np.ndarray]
"""A number for each label, by what computed it; the higher, the more doubtful."""


class Verified(NamedTuple):
    """What crowd workers said of the labels of a test set; arrays over its examples.

    Args:
        shown: whether workers were asked about the label. cleanlab had chosen these labels.
        rejected: fewer than three workers kept the label. These are the errors that the paper counts: 15 of MNIST, 54 of CIFAR-10.
        replaced: more workers chose the other label that they were offered than kept the given one.
    """

    shown: np.ndarray
    rejected: np.ndarray
    replaced: np.ndarray


def read_verified(path: Path, given: np.ndarray) -> Verified:
    """Read the votes, and check that they are about these labels."""
    flags = Verified(*(np.zeros(len(given), dtype=bool) for _ in Verified._fields))
    for entry in json.loads(path.read_text(encoding="utf-8")):
        place, votes = entry["id"], entry["mturk"]
        if given[place] != entry["given_original_label"]:
            raise SystemExit(f"{path} is about other labels: example {place} has label {given[place]}.")
        flags.shown[place] = True
        flags.rejected[place] = votes["given"] < 3
        flags.replaced[place] = votes["guessed"] > votes["given"]
    return flags


def run_of(data: Dataset, options: argparse.Namespace, folder: Path) -> Run:
    """The run in a folder; it is trained first if it is not there."""
    if not (folder / "model.safetensors").exists():
        trained(data, options, folder)
    return Run(folder)


def trained(data: Dataset, options: argparse.Namespace, folder: Path, **settings: Any) -> Run:
    augment = "crop(4) + flip" if options.data == "cifar10" else "none"
    sparing = {"evaluate_every": options.epochs, "checkpoint_every": options.epochs}
    how = {"loss": "ce", "optimiser": "sgd(lr=0.05, momentum=0.9)", "augment": augment, "seed": options.seed, "device": "cpu"}
    return fit(options.model, data, epochs=options.epochs, folder=folder, **how, **sparing, **settings)


def by_record(run: Run) -> Scores:
    """What one run says of the labels it was trained on: noisewise, and two scores computed from its record without noisewise."""
    issues, record = run.find_label_issues(), run.dynamics.record
    margins = np.stack([record.margins(epoch) for epoch in record.epochs()]).astype(np.float64)
    final = np.asarray(record.margins(record.epochs("clean")[-1], "clean"), dtype=np.float64)
    return {"noisewise, by the record": -issues.score, "AUM": -margins.mean(0), "loss at the end": np.logaddexp(0, -final)}


def network_folds(data: Dataset, options: argparse.Namespace, folder: Path) -> np.ndarray:
    """Class probabilities by the same network, trained without the fold of the example; kept in the folder."""
    if (folder / "folds.npy").exists():
        return np.asarray(np.load(folder / "folds.npy"))
    given, probabilities = data.labels.numpy(), np.zeros((len(data), len(data.classes)))
    for kept, left in StratifiedKFold(FOLDS, shuffle=True, random_state=options.seed).split(given, given):
        with tempfile.TemporaryDirectory() as place:
            run = trained(data.take(torch.from_numpy(kept)), options, Path(place) / "run", clean_pass=False)
            probabilities[left] = run.predict(data.inputs[torch.from_numpy(left)]).double().numpy()
    np.save(folder / "folds.npy", probabilities)
    return probabilities


def logistic_folds(features: np.ndarray, given: np.ndarray) -> tuple[np.ndarray, float]:
    """Class probabilities by logistic regression on standardised features, without the fold of the example; and its C.

    The C that predicts the given labels of the first fold best is used for all.
    """
    table = (features - features.mean(0)) / np.maximum(features.std(0), 1e-6)
    folds = list(StratifiedKFold(FOLDS, shuffle=True, random_state=0).split(given, given))

    def predicted(strength: float, kept: np.ndarray, left: np.ndarray) -> np.ndarray:
        return np.asarray(LogisticRegression(C=strength, max_iter=100).fit(table[kept], given[kept]).predict_proba(table[left]))

    first = {strength: predicted(strength, *folds[0]) for strength in STRENGTHS}
    best = min(first, key=lambda strength: log_loss(given[folds[0][1]], first[strength]))
    probabilities = np.zeros((len(given), int(given.max()) + 1))
    probabilities[folds[0][1]] = first[best]
    for kept, left in folds[1:]:
        probabilities[left] = predicted(best, kept, left)
    return probabilities, best


def by_cleanlab(given: np.ndarray, probabilities: np.ndarray, what: str) -> Scores:
    """cleanlab's two scores of label quality."""
    from cleanlab.rank import get_label_quality_scores

    names = {"self_confidence": "self-confidence", "normalized_margin": "normalised margin"}
    return {f"cleanlab, {what}, {name}": -get_label_quality_scores(given, probabilities, method=method) for method, name in names.items()}


def by_features(features: np.ndarray, given: np.ndarray) -> tuple[Scores, dict[str, Any]]:
    """What noisewise says of labels from features, and cleanlab from logistic regression on the same features in folds."""
    started = time.process_time()
    issues = find_label_issues(given, evidence_from_features(features, given))
    taken = time.process_time() - started
    probabilities, strength = logistic_folds(features, given)
    facts = {
        "features": list(features.shape),
        "seconds": taken,
        "seconds_of_logistic": time.process_time() - started - taken,
        "strength": strength,
        "interval": [bound / len(given) for bound in issues.interval],
        "expected_precision": issues.expected_precision,
        "flags": issues.is_label_issue,
        "predicted": issues.predicted_label,
        "predicted_by_logistic": probabilities.argmax(1),
    }
    scores = {"noisewise, by features": -issues.label_quality}
    return scores | by_cleanlab(given, probabilities, "logistic regression on the features"), facts


def measures(wrong: np.ndarray, doubt: np.ndarray) -> dict[str, Any]:
    """How well a score finds wrong labels."""
    order = np.argsort(-doubt, kind="stable")
    return {
        "average_precision": float(average_precision_score(wrong, doubt)),
        "auroc": float(roc_auc_score(wrong, doubt)),
        "hits": [int(wrong[order[:number]].sum()) for number in FIRST],
    }


def judge_verified(options: argparse.Namespace) -> dict[str, Any]:
    """Every score on the labels of a test set, against what the workers said."""
    data = load(options.data, "test")
    given = data.labels.numpy()
    verified, scores = read_verified(options.verified, given), Scores()
    if options.model:
        folder = options.runs / f"{options.data}-{options.model}-{options.epochs}-{options.seed}"
        scores |= by_record(run_of(data, options, folder))
        if options.folds:
            scores |= by_cleanlab(given, network_folds(data, options, folder), "the same network in folds")
    if options.features:
        scores |= by_features(joined(options.features), given)[0]
    return {
        "kind": "verified",
        "data": options.data,
        "model": options.model,
        "epochs": options.epochs,
        "seed": options.seed,
        "counts": {name: int(flags.sum()) for name, flags in verified._asdict().items()},
        "scores": {
            name: {
                "rejected": measures(verified.rejected, doubt),
                "replaced": measures(verified.replaced, doubt),
                "among the shown": measures(verified.rejected[verified.shown], doubt[verified.shown]),
            }
            for name, doubt in scores.items()
        },
    }


def judge_human(options: argparse.Namespace, kind: str) -> dict[str, Any]:
    """The labels of CIFAR-10N by features, against the true ones."""
    data = load(f"cifar10n(labels='{kind}')")
    given, true = data.labels.numpy(), data.true_labels.numpy()
    scores, facts = by_features(joined(options.features), given)
    wrong, flags = given != true, facts.pop("flags")
    return {
        "kind": "human",
        "labels": kind,
        "wrong": float(wrong.mean()),
        "precision": float(wrong[flags].mean()),
        "recall": float(flags[wrong].mean()),
        "accuracy": float((facts.pop("predicted") == true).mean()),
        "accuracy_of_logistic": float((facts.pop("predicted_by_logistic") == true).mean()),
        **facts,
        "scores": {name: measures(wrong, doubt) for name, doubt in scores.items()},
    }


def joined(paths: list[Path]) -> np.ndarray:
    """The columns of all files beside each other."""
    return np.concatenate([np.load(path, allow_pickle=False) for path in paths], 1).astype(np.float32)


def verified_lines(rows: list[dict[str, Any]]) -> list[str]:
    """A table for each data set; numbers are means over seeds."""
    lines = []
    for data in dict.fromkeys(row["data"] for row in rows):
        own = [row for row in rows if row["data"] == data]
        counts = own[0]["counts"]
        trained = sorted({f"{row['model']}, {row['epochs']} epochs, seed {row['seed']}" for row in own if row["model"]})
        lines += [
            f"{data}, the 10,000 test images with their published labels: workers were shown {counts['shown']} of them. "
            f"{counts['rejected']} were rejected (fewer than three of five workers kept the label; the errors that the paper counts), "
            f"{counts['replaced']} replaced (more workers chose the other label than kept the given one). {'; '.join(trained)}.",
            "",
            "| score | average precision, rejected | AUROC | hits among the first 100 | first 500 | average precision, replaced "
            "| average precision among the shown, rejected |",
            "|---" * 7 + "|",
        ]
        for name in dict.fromkeys(name for row in own for name in row["scores"]):
            found = [row["scores"][name] for row in own if name in row["scores"]]
            rejected = [one["rejected"] for one in found]
            cells = [
                mean_of([100 * one["average_precision"] for one in rejected]),
                mean_of([100 * one["auroc"] for one in rejected]),
                *(mean_of([one["hits"][place] for one in rejected]) for place in range(len(FIRST))),
                *(mean_of([100 * one[kind]["average_precision"] for one in found]) for kind in ("replaced", "among the shown")),
            ]
            lines.append(f"| {name} | {' | '.join(cells)} |")
        lines.append("")
    return lines


def mean_of(values: list[float]) -> str:
    """The mean, and the standard deviation of single seeds where there are several."""
    return f"{np.mean(values):.1f}" + (f" ± {np.std(values, ddof=1):.1f}" if len(values) > 1 else "")


def human_lines(rows: list[dict[str, Any]]) -> list[str]:
    lines = []
    for row in rows:
        low, high = (100 * bound for bound in row["interval"])
        lines += [
            f"CIFAR-10N, {row['labels']}: {100 * row['wrong']:.1f} % of 50,000 labels are wrong; {row['features'][1]:,} columns. "
            f"noisewise predicts {100 * row['accuracy']:.1f} % of the true labels and takes {row['seconds']:.0f} s of one core; logistic "
            f"regression (C = {row['strength']:g}) {100 * row['accuracy_of_logistic']:.1f} %. Flags of noisewise: precision "
            f"{100 * row['precision']:.1f} % (expected {100 * row['expected_precision']:.1f} %), recall {100 * row['recall']:.1f} %; "
            f"interval {low:.1f} to {high:.1f} %.",
            "",
            "| score | average precision | AUROC | hits among the first 100 | first 500 |",
            "|---" * 5 + "|",
        ]
        for name, one in row["scores"].items():
            hits = " | ".join(map(str, one["hits"]))
            lines.append(f"| {name} | {100 * one['average_precision']:.1f} | {100 * one['auroc']:.1f} | {hits} |")
        lines.append("")
    return lines


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--verified", type=Path)
    parser.add_argument("--human", nargs="+", default=[])
    parser.add_argument("--data", choices=["mnist", "cifar10"])
    parser.add_argument("--model", choices=["cnn4", "resnet20"])
    parser.add_argument("--epochs", type=int, default=20)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--folds", action="store_true", help="also train the same network in folds, for cleanlab")
    parser.add_argument("--features", type=Path, nargs="+", help="files whose columns are joined")
    parser.add_argument("--runs", type=Path, default=Path("runs/verified"), help="trained runs are kept here")
    parser.add_argument("--json", type=Path)
    parser.add_argument("--write", type=Path, nargs="+")
    parser.add_argument("--about", default="", help="with --write: where the features come from")
    options = parser.parse_args()
    if options.write:
        parts = [json.loads(path.read_text(encoding="utf-8")) for path in options.write]
        rows = [row for part in parts for row in part["rows"]]
        commands = [f"`{part['command']}`  " for part in parts]
        kinds = {kind: [row for row in rows if row["kind"] == kind] for kind in ("verified", "human")}
        lines = [*commands, "", options.about, "", CAUTION, "", *verified_lines(kinds["verified"]), *human_lines(kinds["human"])]
        write_section("Verified label errors and human labels", lines)
        return
    rows = [judge_human(options, kind) for kind in options.human] + ([judge_verified(options)] if options.verified else [])
    result = {"command": shlex.join(["python", "benchmarks/verified.py", *(Path(word).name for word in sys.argv[1:])]), "rows": rows}
    for row in rows:
        for name, one in row["scores"].items():
            print(f"{name:70}", one.get("rejected", one))
    if options.json:
        options.json.write_text(json.dumps(result, indent=1), encoding="utf-8")


if __name__ == "__main__":
    main()
