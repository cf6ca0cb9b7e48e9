"""Measure what the audit finds beside label errors: outliers, near-duplicates, and the consensus of annotators.

    python benchmarks/beside_label_errors.py [--write]

The rules were chosen on other data: outliers and near-duplicates on scikit-learn's digits, wine, breast cancer, iris and diabetes and on
normal, uniform and lognormal numbers; the clusters of three densities were also used for near-duplicates. The values that the smoothing is
chosen from were chosen on annotators that were simulated with other seeds. ``--write`` puts the tables into benchmarks/RESULTS.md.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence

import numpy as np
from sklearn.datasets import make_classification, make_swiss_roll

from noisewise.audit import consensus, near_duplicates, outliers
from results import write_section

ROWS = 2000
PLANTED = 20
SMOOTHINGS = (0.0, 4.0, None)
SEEDS = range(10)
VOTES = {
    "2 classes, 10 annotators, 3 labels": (300, 10, 2, 3),
    "5 classes, 50 annotators, 3 labels": (1000, 50, 5, 3),
    "10 classes, 100 annotators, 3 labels": (1000, 100, 10, 3),
    "4 classes, 5 annotators, 5 labels": (300, 5, 4, 5),
    "3 classes, 30 annotators, 2 labels": (500, 30, 3, 2),
    "10 classes, 10 annotators, 5 labels": (400, 10, 10, 5),
}


def tables_of_numbers(rng: np.random.Generator) -> Iterator[tuple[str, np.ndarray]]:
    """Tables of different shapes: heavy tails, correlated columns, clusters of different density, curved surfaces, whole numbers."""
    for columns in (3, 8, 32):
        yield f"Student t, 4 degrees, {columns} columns", rng.standard_t(4, size=(ROWS, columns))
        mixed = rng.normal(size=(ROWS, columns)) @ rng.normal(size=(columns, columns))
        yield f"correlated normal, {columns} columns", mixed
        spread = rng.choice([0.3, 1.0, 3.0], ROWS)[:, None]
        centres = 10 * rng.normal(size=(6, columns))
        yield (
            f"clusters of three densities, {columns} columns",
            centres[rng.integers(0, 6, ROWS)] + spread * rng.normal(size=(ROWS, columns)),
        )
    yield "Swiss roll, 3 columns", make_swiss_roll(ROWS, noise=0.2, random_state=0)[0]
    yield "make_classification, 20 columns", make_classification(ROWS, 20, n_informative=8, random_state=0)[0]
    yield "whole numbers from 0 to 20, 6 columns", np.unique(rng.integers(0, 21, size=(ROWS, 6)), axis=0).astype(float)


def outlier_table() -> list[str]:
    lines = ["| data | ordinary examples flagged | planted outliers found |", "|---|---|---|"]
    rng = np.random.default_rng(7)
    for name, rows in tables_of_numbers(rng):
        direction = rng.normal(size=(PLANTED, rows.shape[1]))
        direction *= 3 * np.linalg.norm(rows.std(0)) / np.linalg.norm(direction, axis=1, keepdims=True)
        spread = np.linalg.norm((rows - rows.mean(0)), axis=1)[:, None]
        planted = rows.mean(0) + direction + direction * np.quantile(spread, 0.99) / np.linalg.norm(direction, axis=1, keepdims=True)
        flags = outliers(np.concatenate([rows, planted])).is_outlier
        lines.append(f"| {name} | {100 * flags[: len(rows)].mean():.1f} % | {100 * flags[len(rows) :].mean():.0f} % |")
    return lines


def duplicate_table() -> list[str]:
    noises = (0.001, 0.01, 0.05)
    head = " | ".join(f"noise of {100 * noise:g} %" for noise in noises)
    lines = [f"| data | different examples flagged | copies found, {head} |", "|---" * (2 + len(noises)) + "|"]
    rng = np.random.default_rng(8)
    for name, rows in tables_of_numbers(rng):
        cells = [f"{len(near_duplicates(rows).index)} of {len(rows):,}"]
        for noise in noises:
            copied = rng.choice(len(rows), PLANTED, replace=False)
            copies = rows[copied] + noise * rows.std(0) * rng.normal(size=(PLANTED, rows.shape[1]))
            found = near_duplicates(np.concatenate([rows, copies])).index
            cells.append(f"{100 * np.isin(np.arange(len(rows), len(rows) + PLANTED), found).mean():.0f} %")
        lines.append(f"| {name} | {' | '.join(cells)} |")
    return lines


def simulated(rng: np.random.Generator, number: int, annotators: int, classes: int, each: int, kind: str) -> tuple[np.ndarray, ...]:
    """True classes, and rows of example, annotator and label."""
    true = rng.integers(0, classes, number)
    right = rng.uniform(0.4, 0.95, annotators)
    if kind == "spammers":
        right = np.where(rng.random(annotators) < 0.6, rng.uniform(0.7, 0.95, annotators), 1 / classes)
    wrong = {
        "any class": np.full((annotators, classes, classes), 1 / (classes - 1)) * (1 - np.eye(classes)),
        "spammers": np.full((annotators, classes, classes), 1 / (classes - 1)) * (1 - np.eye(classes)),
        "the next class": np.tile(np.roll(np.eye(classes), 1, axis=1), (annotators, 1, 1)),
        "a few classes": rng.dirichlet(np.full(classes, 0.5), size=(annotators, classes)),
    }[kind]
    confusion = right[:, None, None] * np.eye(classes) + (1 - right[:, None, None]) * wrong
    example = np.repeat(np.arange(number), each)
    annotator = np.concatenate([rng.permutation(annotators)[:each] for _ in range(number)])
    chances = confusion[annotator, true[example]].cumsum(1)
    label = (rng.random((len(example), 1)) > chances[:, :-1]).sum(1)
    return true, example, annotator, label


def consensus_table() -> list[str]:
    named = ["majority", "Dawid and Skene", "smoothing 4", "default"]
    lines = [f"| labels | {' | '.join(named)} | stated by the default |", "|---" * (2 + len(named)) + "|"]
    kinds = ("any class", "the next class", "a few classes", "spammers")
    for name, shape in VOTES.items():
        accuracy = np.zeros(1 + len(named))
        for seed in SEEDS:
            for kind in kinds:
                true, example, annotator, label = simulated(np.random.default_rng(1000 + seed), *shape, kind)
                names = list(map(str, range(shape[2])))
                results = [consensus(label, example, annotator, classes=names, method="majority")]
                results += [consensus(label, example, annotator, classes=names, smoothing=smoothing) for smoothing in SMOOTHINGS]
                accuracy += [*(np.mean(result.labels == true) for result in results), results[-1].probability.mean()]
        cells = [f"{100 * value / (len(SEEDS) * len(kinds)):.1f}" for value in accuracy]
        lines.append(f"| {name} | {' | '.join(cells)} |")
    return lines


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--write", action="store_true")
    options = parser.parse_args(arguments)
    lines = [
        f"`python benchmarks/beside_label_errors.py --write`. {ROWS:,} rows and {PLANTED} planted examples; defaults.",
        "",
        "Outliers, planted in random directions beyond the 99 % quantile of the distance from the mean plus three standard deviations:",
        "",
        *outlier_table(),
        "",
        "Near-duplicates; the noise of a copy is relative to the standard deviation of each column:",
        "",
        *duplicate_table(),
        "",
        f"Consensus: examples with the right label (%), mean of {len(SEEDS)} seeds and four kinds of annotators, and the mean probability",
        "that the consensus states. Mistakes are of any class, the next class or a few classes, or 40 % of the annotators guess.",
        "",
        *consensus_table(),
    ]
    print("\n".join(lines))
    if options.write:
        write_section("Beside label errors", lines)


if __name__ == "__main__":
    main()
