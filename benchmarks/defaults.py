"""How accurate `RobustClassifier` is on clean test labels after training on wrong ones, beside other classifiers of tables.

    python benchmarks/defaults.py [--half report] [--seeds 0] [--noises none "sym 20" …] [--methods …] [--write]

Each table of `table_sources.py` gets at most 1,000 rows to train on and 2,000 others to test on. The ensemble was designed on the tables
of the half "choose" (about forty combinations, seed 0); the half "report" was not looked at. Results are kept in the folder named by
``--cache``; stopped, it resumes. ``--write`` puts the tables into benchmarks/RESULTS.md. ``--time`` measures the CPU time of the network
beside scikit-learn's.
"""

from __future__ import annotations

import argparse
import json
import shlex
import sys
import tempfile
import time
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import sklearn
import torch
from cleanlab.classification import CleanLearning
from sklearn.datasets import load_digits
from sklearn.ensemble import HistGradientBoostingClassifier, RandomForestClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.neural_network import MLPClassifier

import table_sources
from noisewise import corrupt
from noisewise.audit import audit
from noisewise.correct import check_correction, correct, retrain
from noisewise.integrations.sklearn import RobustClassifier
from noisewise.train import Unlearned
from results import write_section
from table_evidence import NAMED

TRAIN, TEST = 1000, 2000
NOISES = ("none", "sym 20", "sym 40", "pair 20")
LEAST = 1e-4  # of a probability in the log loss


def split(name: str, folder: Path, seed: int) -> tuple[np.ndarray, ...]:
    """Rows and true labels to train on, and others to test on; classes with very few rows are left out."""
    features, labels = table_sources.whole(name, folder)
    order = np.random.default_rng([seed, *name.encode()]).permutation(len(labels))
    number = min(TRAIN, len(labels) * 2 // 3)
    train, test = order[:number], order[number : number + TEST]
    classes = np.flatnonzero(np.bincount(labels[train]) >= table_sources.FEWEST_OF_A_CLASS)
    train, test = (rows[np.isin(labels[rows], classes)] for rows in (train, test))
    return features[train], np.searchsorted(classes, labels[train]), features[test], np.searchsorted(classes, labels[test])


Method = Callable[[np.ndarray, np.ndarray, np.ndarray, int], Any]


def fitted(make: Callable[[int], Any]) -> Method:
    """Fit a classifier of scikit-learn; its class probabilities of other rows."""

    def probabilities(rows: np.ndarray, given: np.ndarray, others: np.ndarray, seed: int) -> Any:
        model = make(seed).fit(rows, given)
        found = np.zeros((len(others), int(given.max()) + 1))
        found[:, getattr(model, "clf", model).classes_] = model.predict_proba(others)
        return found

    return probabilities


def forest(seed: int) -> Any:
    return RandomForestClassifier(random_state=seed)


def boosting(seed: int) -> Any:
    """Fewer and longer steps than scikit-learn's default, which takes minutes with ten classes."""
    return HistGradientBoostingClassifier(max_iter=30, learning_rate=0.2, random_state=seed)


def cleaned(model: Any, seed: int) -> Any:
    return CleanLearning(model, seed=seed, find_label_issues_kwargs={"n_jobs": 1})


def corrected(rows: np.ndarray, given: np.ndarray, others: np.ndarray, seed: int) -> dict[str, Any]:
    """audit → correct → retrain: the network before or after, as its held-out check says; and the ensemble on the corrected labels."""
    with tempfile.TemporaryDirectory() as folder:
        run = RobustClassifier(epochs=30, random_state=seed, device="cpu", folder=Path(folder, "run")).fit(rows, given).run_
        correction = correct(audit(run), "relabel")
        again = retrain(run, correction, folder=Path(folder, "again"))
        better = again if check_correction(run, correction, again).helped else run
        kept = correction.kept
        return {
            CORRECTED: better.predict(others.astype(np.float32)).numpy(),
            ENSEMBLE_CORRECTED: fitted(lambda seed: RobustClassifier(random_state=seed))(rows[kept], correction.labels[kept], others, seed),
        }


OURS, NETWORK, PLAIN = "RobustClassifier()", 'RobustClassifier("mlp")', "the same network with ce"
CORRECTED, ENSEMBLE_CORRECTED = "audit → correct → retrain, network", "audit → correct, RobustClassifier()"
METHODS: dict[str, Method] = {
    OURS: fitted(lambda seed: RobustClassifier(random_state=seed)),
    "random forest": fitted(forest),
    "CleanLearning(forest)": fitted(lambda seed: cleaned(forest(seed), seed)),
    "CleanLearning(boosting)": fitted(lambda seed: cleaned(boosting(seed), seed)),
    "boosting": fitted(boosting),
    "logistic regression": fitted(lambda seed: LogisticRegression(max_iter=1000)),
    NETWORK: fitted(lambda seed: RobustClassifier("mlp", epochs=30, random_state=seed, device="cpu")),
    PLAIN: fitted(lambda seed: RobustClassifier("mlp", "ce", epochs=30, random_state=seed, device="cpu")),
    CORRECTED: corrected,
}
"""In the order in which they are computed; the last gives two results."""


def measure(task: tuple[str, str, int, str], cache: Path) -> None:
    """Keep what one method makes of one table with a noise and a seed."""
    name, noise, seed, method = task
    target = cache / "defaults" / name / f"{noise}-{seed}-{list(METHODS).index(method)}.json"
    if target.exists():
        return
    rows, given, others, true = split(name, cache / "packages", seed)
    classes = int(given.max()) + 1
    if noise != "none":
        given = corrupt(given, NAMED[noise], num_classes=classes, seed=seed).labels.numpy()
    started = time.process_time()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", Unlearned)
        found = METHODS[method](rows, given, others, seed)
    seconds = time.process_time() - started
    results = []
    for label, chances in (found if isinstance(found, dict) else {method: found}).items():
        floored = np.maximum(chances, LEAST)
        own = (floored / floored.sum(1, keepdims=True))[np.arange(len(true)), true]
        accuracy, loss = float((chances.argmax(1) == true).mean()), float(-np.log(own).mean())
        results.append({"table": name, "noise": noise, "seed": seed, "method": label, "accuracy": accuracy, "loss": loss, "s": seconds})
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_text(json.dumps(results), encoding="utf-8")


def lines_of(results: list[dict[str, Any]], noises: list[str]) -> Iterator[str]:
    """Mean accuracy, mean log loss and CPU time of every method, over the tables that all methods have."""
    names = [name for name in (*METHODS, ENSEMBLE_CORRECTED) if any(row["method"] == name for row in results)]
    for key, title, scale, digits in (("accuracy", "test accuracy in percent", 100, 1), ("loss", "log loss", 1, 2)):
        yield f"| {title} | {' | '.join(noises)} | mean |"
        yield "|---" * (len(noises) + 2) + "|"
        for name in names:
            means = [np.mean([row[key] for row in results if (row["method"], row["noise"]) == (name, noise)]) for noise in noises]
            yield f"| {name} | {' | '.join(f'{scale * mean:.{digits}f}' for mean in [*means, np.mean(means)])} |"
        yield ""
    yield f"| {OURS} against | ahead or level in accuracy | mean lead in points | CPU time, times a forest's |"
    yield "|---" * 4 + "|"
    by = {(row["method"], row["table"], row["noise"], row["seed"]): row for row in results}
    seconds = {name: sum(row["s"] for row in results if row["method"] == name) for name in names}
    for name in names:
        pairs = [(row["accuracy"], by[OURS, *key[1:]]["accuracy"]) for key, row in by.items() if key[0] == name]
        leads = np.array([ours - theirs for theirs, ours in pairs])
        against = f"{np.mean(leads >= 0):.0%} of {len(leads)} | {100 * leads.mean():+.1f}" if name != OURS else "|"
        yield f"| {name} | {against} | {seconds[name] / seconds['random forest']:.1f} |"


def ratio(epochs: int = 20) -> Iterator[str]:
    """The CPU time of our network beside scikit-learn's, with the same layers, epochs, batches and optimiser, on digits."""
    rows, labels = load_digits(return_X_y=True)
    scaled = (rows - rows.mean(0)) / (rows.std(0) + 1e-9)
    yield "| layers | batch | scikit-learn's MLPClassifier | RobustClassifier | ratio |"
    yield "|---|---|---|---|---|"
    for hidden in ((256, 256), (100,)):
        for size in (32, 200):
            options = {"solver": "sgd", "learning_rate_init": 0.1, "n_iter_no_change": epochs, "max_iter": epochs, "random_state": 0}
            theirs = MLPClassifier(hidden, batch_size=size, tol=0, **options)
            ours = RobustClassifier(f"mlp(hidden={hidden})", "ce", epochs=epochs, batch_size=size, random_state=0, device="cpu")
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # that scikit-learn's did not converge
                times = [min(_seconds(model, table, labels) for _ in range(3)) for model, table in ((theirs, scaled), (ours, rows))]
            yield f"| {hidden} | {size} | {times[0]:.2f} s | {times[1]:.2f} s | {times[1] / times[0]:.1f} |"


def _seconds(model: Any, rows: np.ndarray, labels: np.ndarray) -> float:
    started = time.process_time()
    model.fit(rows, labels)
    return time.process_time() - started


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cache", type=Path, default=Path("noisewise-tables"), help="by default noisewise-tables in this folder")
    parser.add_argument("--half", choices=("choose", "report"), default="report")
    parser.add_argument("--seeds", type=int, nargs="+", default=[0])
    parser.add_argument("--noises", nargs="+", choices=NOISES, default=NOISES)
    parser.add_argument("--methods", nargs="+", choices=METHODS, default=list(METHODS))
    parser.add_argument("--time", action="store_true", help="only measure the CPU time of the network")
    parser.add_argument("--write", action="store_true")
    options = parser.parse_args()
    torch.set_num_threads(1)
    command = f"`{shlex.join(['python', 'benchmarks/defaults.py', *sys.argv[1:]])}`, scikit-learn {sklearn.__version__}, one CPU thread."
    title = "CPU time of RobustClassifier's network"
    lines = [command, ""]
    if options.time:
        lines += ratio()
    else:
        title = f"RobustClassifier on the tables of the half {options.half}: {', '.join(options.noises)}"
        lines += compared(options)
    print("\n".join(lines))
    if options.write:
        write_section(title, lines)


def compared(options: argparse.Namespace) -> Iterator[str]:
    """Measure what is missing, and make the tables."""
    table_sources.fetch(options.cache / "packages")
    names = [name for name in table_sources.NAMES if table_sources.halves()[name] == options.half]
    for seed in options.seeds:
        for method in options.methods:
            for name in names:
                for noise in options.noises:
                    measure((name, noise, seed, method), options.cache)
            print(seed, method, file=sys.stderr, flush=True)
    files = [
        options.cache / "defaults" / name / f"{noise}-{seed}-{list(METHODS).index(method)}.json"
        for name in names
        for noise in options.noises
        for seed in options.seeds
        for method in options.methods
    ]
    yield f"{len(names)} tables, {len(options.seeds)} seed{'s' if len(options.seeds) > 1 else ''}. Networks train for 30 epochs."
    yield ""
    yield from lines_of([row for file in files for row in json.loads(file.read_text(encoding="utf-8"))], list(options.noises))


if __name__ == "__main__":
    main()
