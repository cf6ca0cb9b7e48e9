"""The evidence about the labels of one table under one noise, computed once and kept in small files.

A file is named FOLDER/TABLE/NOISE-SEED/KIND.npz. Each kind of evidence has its own, so that a stopped computation resumes where it was.
"""

from __future__ import annotations

import tempfile
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from sklearn.ensemble import HistGradientBoostingClassifier, RandomForestClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import StratifiedKFold, cross_val_predict
from sklearn.neighbors import NearestNeighbors

from noisewise import fit
from noisewise.audit import audit
from noisewise.noise import corrupt
from noisewise.train import Unlearned

EPOCHS, FOLDS = 30, 5
NOISES = ("none", "sym 2", "sym 5", "sym 10", "sym 20", "sym 40", "pair 20", "instance 20", "hard 20", "imbalanced 20")
NAMED = {
    **{f"sym {rate}": f"symmetric({rate / 100}, flips='exact')" for rate in (2, 5, 10, 20, 40)},
    "pair 20": "pair(0.2, flips='exact')",
    "instance 20": "instance(0.2, flips='exact')",
}
SMALLEST_SHARE, SMALLEST_CLASS = 0.1, 8  # of an imbalanced table: the rarest class, relative to before


class Setting(NamedTuple):
    """One table under one noise: features, the labels as given and as they should be."""

    features: np.ndarray
    given: np.ndarray
    true: np.ndarray

    @property
    def classes(self) -> int:
        return int(self.true.max()) + 1


def setting(features: np.ndarray, true: np.ndarray, noise: str, seed: int) -> Setting:
    """Corrupt labels."""
    if noise.startswith("imbalanced"):
        features, true = thinned(features, true, seed)
        noise = noise.replace("imbalanced", "sym")
    if noise == "none":
        given = true
    elif noise.startswith("hard"):
        given = confused(features, true, int(noise.split()[1]) / 100, seed)
    else:
        classes = int(true.max()) + 1
        given = corrupt(true, NAMED[noise], num_classes=classes, seed=seed, inputs=torch.from_numpy(features)).labels.numpy()
    return Setting(features, given, true)


def thinned(features: np.ndarray, true: np.ndarray, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Make classes rarer in geometric steps, in a random order of the classes."""
    rng = np.random.default_rng([seed, 1])
    counts = np.bincount(true)
    shares = np.geomspace(1, SMALLEST_SHARE, len(counts))[rng.permutation(len(counts))]
    kept = [
        rng.permutation(np.flatnonzero(true == label))[: max(min(SMALLEST_CLASS, number), round(share * number))]
        for label, (number, share) in enumerate(zip(counts, shares, strict=True))
    ]
    rows = np.sort(np.concatenate(kept))
    return features[rows], true[rows]


def confused(features: np.ndarray, true: np.ndarray, rate: float, seed: int) -> np.ndarray:
    """Labels that a person could confuse: an example gets the class of its nearest neighbour in another class, more often the nearer it is.

    An example is chosen with a chance proportional to (distance to its own class / distance to the other class)².
    """
    rng = np.random.default_rng([seed, 2])
    own, other, label = np.full((3, len(true)), np.inf)
    for number in np.unique(true):
        inside = np.flatnonzero(true == number)
        distance, _ = NearestNeighbors(n_neighbors=2).fit(features[inside]).kneighbors(features)
        nearest = np.where(true == number, distance[:, 1], distance[:, 0])
        own = np.where(true == number, nearest, own)
        closer = (true != number) & (nearest < other)
        other, label = np.where(closer, nearest, other), np.where(closer, number, label)
    weight = ((own + 1e-6) / (other + 1e-6)) ** 2
    weight = np.minimum(weight, np.quantile(weight, 0.95))
    chosen = rng.choice(len(true), round(rate * len(true)), replace=False, p=weight / weight.sum())
    given = true.copy()
    given[chosen] = label[chosen].astype(given.dtype)
    return given


Arrays = dict[str, np.ndarray]


def cross_validated(model: object, case: Setting, seed: int) -> np.ndarray:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # a class rarer than the folds
        folds = StratifiedKFold(FOLDS, shuffle=True, random_state=seed)
        found = cross_val_predict(model, case.features, case.given, cv=folds, method="predict_proba")
    probabilities = np.zeros((len(case.given), case.classes))
    probabilities[:, np.unique(case.given)] = found
    return probabilities


def forest(case: Setting, seed: int) -> Arrays:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # a row that is in no bag
        model = RandomForestClassifier(100, oob_score=True, random_state=seed).fit(case.features, case.given)
    probabilities = np.zeros((len(case.given), case.classes))
    probabilities[:, model.classes_] = model.oob_decision_function_
    return {"probabilities": np.nan_to_num(probabilities, nan=1 / case.classes)}


def logistic(case: Setting, seed: int) -> Arrays:
    return {"probabilities": cross_validated(LogisticRegression(max_iter=1000), case, seed)}


def boosting(case: Setting, seed: int) -> Arrays:
    """Fewer and longer steps than scikit-learn's default, which takes minutes with ten classes."""
    model = HistGradientBoostingClassifier(max_iter=30, learning_rate=0.2, random_state=seed)
    return {"probabilities": cross_validated(model, case, seed)}


def network(case: Setting, seed: int, loss: str) -> Arrays:
    """The record of one network, and what today's audit says of it."""
    with tempfile.TemporaryDirectory() as folder, warnings.catch_warnings():
        warnings.simplefilter("ignore", Unlearned)
        run = _trained(case, seed, loss, folder)
        found = audit(run)
        record = run.dynamics.record
        return {
            "margins": np.stack([record.margins(epoch) for epoch in record.epochs()]),
            "predictions": np.stack([record.predictions(epoch) for epoch in record.epochs()]).astype(np.int8),
            "clean_margins": np.asarray(record.margins(record.epochs("clean")[-1], "clean")),
            "score": found.score,
            "order": found.order,
            "flags": found.is_issue,
            "interval": np.asarray(found.interval),
            "expected_precision": np.asarray(found.expected_precision),
            "unlearned": np.asarray(len(found.unlearned)),
            "cautioned": np.asarray(found.caution is not None),
        }


def _trained(case: Setting, seed: int, loss: str, folder: str, **settings: object) -> object:
    settings = {"epochs": EPOCHS, "evaluate_every": EPOCHS, "checkpoint_every": EPOCHS, "device": "cpu", "seed": seed, **settings}
    return fit("mlp", (case.features.astype(np.float32), case.given), loss=loss, folder=folder, **settings)


def network_folds(case: Setting, seed: int) -> Arrays:
    """The same network with cross-entropy in five folds."""
    probabilities = np.zeros((len(case.given), case.classes))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for kept, left in StratifiedKFold(FOLDS, shuffle=True, random_state=seed).split(case.features, case.given):
            part = Setting(case.features[kept], case.given[kept], case.true[kept])
            present, numbers = np.unique(part.given, return_inverse=True)
            with tempfile.TemporaryDirectory() as folder:
                run = _trained(part._replace(given=numbers), seed, "ce", folder, clean_pass=False)
                scores = run.predict(torch.from_numpy(case.features[left].astype(np.float32)))
                probabilities[np.ix_(left, present)] = scores.double().numpy()
    return {"probabilities": probabilities}


def features(case: Setting, seed: int) -> Arrays:
    """What noisewise computes from features."""
    from noisewise.audit import evidence_from_features

    return {"tables": np.stack(evidence_from_features(case.features, case.given, num_classes=case.classes, seed=seed)).astype(np.float32)}


KINDS: dict[str, Callable[[Setting, int], Arrays]] = {
    "noisewise": features,
    "forest": forest,
    "logistic": logistic,
    "network ce": lambda case, seed: network(case, seed, "ce"),
    "network gce": lambda case, seed: network(case, seed, "gce(q=0.7)"),
    "boosting": boosting,
    "network folds": network_folds,
}
"""In the order in which they are computed."""


def keep(case: Setting, seed: int, kind: str, folder: Path) -> None:
    """Compute one kind of evidence unless its file exists."""
    target = folder / f"{kind}.npz"
    if target.exists():
        return
    started = time.process_time()
    arrays = KINDS[kind](case, seed)
    taken = time.process_time() - started
    small = {name: values.astype(np.float32) if name == "probabilities" else values for name, values in arrays.items()}
    folder.mkdir(parents=True, exist_ok=True)
    part = target.with_suffix(".part.npz")
    np.savez_compressed(part, seconds=np.asarray(taken), **small)
    part.replace(target)
