"""Suggest how to train on data: how much noise their labels have and of which kind, which loss to take, and what it gains.

Models that do not see a label judge it, as in the audit. A few losses are compared on a held-out share of the examples with the labels they
have. This module trains short runs in a temporary folder and knows neither reports nor the command line.
"""

from __future__ import annotations

import os
import shlex
import tempfile
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from noisewise.arrays import Floats, Ints
from noisewise.audit import RobustEnsemble, is_run
from noisewise.data import Dataset, read
from noisewise.dynamics import underfitting
from noisewise.errors import InputError

KINDS = ("none", "uniform", "class pairs", "input-dependent", "unclear")
"""What `Suggestion.kind` can be."""

_ROWS, _COLUMNS, _KEPT = 3000, 200, 50  # more rows are sampled; more columns than that become so many principal components
_HELD_OUT, _EPOCHS = 0.2, 30
_CLASSIFIER = "RobustClassifier"
_SURE = 0.9  # the probability of its class that makes an example sure
_MANY = 0.75  # with fewer sure examples, the rate may include overlaps of classes
_FEWEST = 10  # contradicted labels of sure examples that show a kind
# Chosen on digits, iris, wine and breast cancer with made noise; docs/suggest.md says how well they do on other data.
_NONE, _UNKNOWN = 0.03, 0.25  # no noise below this rate; nothing is known if the interval is wider than this
_EVEN, _PAIRED = 0.35, 0.7  # how far the wrong labels are from even (0) to one wrong class for each class (1)
_DEPENDS = 2.0  # deviations by which features predict the wrong label better than the class does


@dataclass(frozen=True)
class Pair:
    """Examples of one class that have the label of another.

    Args:
        true: the class that the examples look like.
        given: the label that they have.
        share: the share of the class with this label, among the examples whose class is sure.
    """

    true: str
    given: str
    share: float


@dataclass(frozen=True)
class Noise:
    """How much noise the labels have, and of which kind.

    Args:
        rate: the estimated share of wrong labels; None if the kind is unclear and nothing can be said but the interval.
        interval: an interval of that share.
        kind: one of `KINDS`.
        pairs: the pairs of classes, for the kind "class pairs", or those that stand out.
        reason: a sentence on what the kind is based on, and what it cannot exclude.
    """

    rate: float | None
    interval: tuple[float, float]
    kind: str
    pairs: tuple[Pair, ...]
    reason: str


@dataclass(frozen=True)
class Suggestion:
    """What `suggest` found; `print` shows it in words, `as_dict` is for JSON.

    Args:
        name: the name of the data.
        examples: the number of examples.
        probed: how many of them were looked at.
        classes: the number of classes.
        noise: how much noise there is, and of which kind.
        underfitting: what happens with MAE-like losses with so many classes; None if nothing does.
        take: the loss to take, or "RobustClassifier".
        held_out: for each loss that was tried, the share of held-out labels, which may be wrong, that it predicts.
        gain: how much larger this share is than with ce.
        deviation: the standard deviation of the gain.
        commands: what to run.
    """

    name: str
    examples: int
    probed: int
    classes: int
    noise: Noise
    underfitting: str | None
    take: str
    held_out: Mapping[str, float]
    gain: float
    deviation: float
    commands: tuple[str, ...]

    def as_dict(self) -> dict[str, Any]:
        """Everything as numbers, text, lists and dictionaries."""
        return asdict(self)

    def __str__(self) -> str:
        noise, (low, high) = self.noise, self.noise.interval
        sample = "" if self.probed == self.examples else f" (from {self.probed:,} of {self.examples:,} examples)"
        rate = "cannot be told" if noise.rate is None else f"about {100 * noise.rate:.0f} %"
        held_out = ", ".join(f"{name} {100 * share:.1f} %" for name, share in self.held_out.items())
        gain = f"{100 * self.gain:+.1f} ± {100 * self.deviation:.1f} points over ce" if self.take != "ce" else "none, ce is taken"
        pairs = [f"  {pair.true} labelled as {pair.given}: {100 * pair.share:.0f} %" for pair in noise.pairs]
        lines = [
            f"Wrong labels: {rate}, between {100 * low:.0f} and {100 * high:.0f} %{sample}",
            f"Kind: {noise.kind}. {noise.reason}",
            *pairs,
            f"MAE-like losses: {self.underfitting or f'learn with {self.classes} classes'}",
            f"Take: {self.take}",
            f"Gain: {gain}, in predicting held-out labels as they are ({held_out})",
            "Run:",
            *(f"  {command}" for command in self.commands),
        ]
        return "\n".join(lines)


def suggest(data: Any, *, seed: int = 0, **reading: Any) -> Suggestion:
    """Estimate the noise of labels, and suggest a loss.

    Args:
        data: what `noisewise.data.read` takes, such as a path, a DataFrame or a pair of inputs and labels.
        seed: of the sample, of the models and of the held-out share.
        **reading: the options of `noisewise.data.read`, such as ``label="plan"``.

    Returns:
        The suggestion; `print` it.

    Example:
        >>> from sklearn.datasets import load_wine
        >>> from noisewise.noise import corrupt
        >>> inputs, labels = load_wine(return_X_y=True)
        >>> suggestion = suggest((inputs, corrupt(labels, "symmetric(0.3)", seed=1).labels))
        >>> suggestion.noise.kind
        'uniform'
    """
    if is_run(data):
        raise InputError(f"{str(data)!r} is a run. Give the data, or audit the run.")
    examples = read(data, **reading)
    if examples.inputs.is_meta:
        raise InputError(f"The inputs of {examples.name} are on disk. Read them into memory with a larger 'memory', or embed them.")
    chosen = np.random.default_rng(seed).permutation(len(examples))[:_ROWS]
    part = replace(examples.take(torch.from_numpy(chosen)), true_labels=None)
    with _one_thread():
        features, labels = _features(part, seed), part.labels.numpy()
        ensemble = RobustEnsemble.fit(features, labels, num_classes=len(part.classes), seed=seed)
        noise = _noise(ensemble, features, labels, part.classes, seed)
        right = _held_out(part, features, noise, seed)
    take = _best(right, noise)
    difference = right[take].astype(float) - right["ce"]
    return Suggestion(
        examples.name,
        len(examples),
        len(part),
        len(part.classes),
        noise,
        underfitting("mae", len(part.classes)),
        take,
        {name: float(hits.mean()) for name, hits in right.items()},
        float(difference.mean()),
        float(difference.std() / np.sqrt(len(difference))),
        _commands(data, reading, take, examples.inputs.ndim == 4, noise.kind),
    )


@contextmanager
def _one_thread() -> Iterator[None]:
    """Compute in one thread: several cost more than they gain on so little data, and far more on a busy machine."""
    from threadpoolctl import threadpool_limits

    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        with threadpool_limits(1):
            yield
    finally:
        torch.set_num_threads(threads)


def _features(data: Dataset, seed: int) -> Floats:
    """The inputs as one row of numbers each; very many columns become their principal components, which takes much less time."""
    table = data.inputs.flatten(1).double().numpy()
    if table.shape[1] <= _COLUMNS:
        return np.asarray(table)
    from sklearn.decomposition import PCA

    return np.asarray(PCA(min(_KEPT, len(table)), random_state=seed).fit_transform(table))


def _noise(ensemble: RobustEnsemble, features: Floats, labels: Ints, classes: tuple[str, ...], seed: int) -> Noise:
    """How much noise there is, and of which kind.

    The kind is read off the examples whose class is sure: where classes overlap, a wrong label looks like a right one.
    """
    model, number = ensemble.noise, len(classes)
    probabilities = model.classes_of(ensemble.models.evidence)
    predicted, sure = probabilities.argmax(1), probabilities.max(1) > _SURE
    low, high = model.interval
    counts = _confusions(predicted[sure], labels[sure], number)
    pairs = _pairs(counts, classes)
    contradicted = float((predicted != labels).mean())
    if not model.judged or high - low > _UNKNOWN:
        every = _pairs(_confusions(predicted, labels, number), classes)
        reason = (
            f"Models that did not see a label contradict {100 * contradicted:.0f} % of them. Overlapping classes and wrong labels look "
            "alike here, so it cannot be told which they are. Better features may help, such as embeddings"
        )
        return Noise(None, (low, high), "unclear", every, reason + _ended(every))
    if model.rate < _NONE and low <= 0:
        hidden = f" Up to {100 * high:.0f} % could hide where classes overlap." if high > 2 * _NONE else ""
        return Noise(model.rate, (low, high), "none", (), f"Examples whose class is sure have the right label.{hidden}")
    wrong = sure & (predicted != labels)
    if wrong.sum() < _FEWEST:
        reason = f"Only {int(wrong.sum())} examples whose class is sure have another label, too few to tell the kind."
        return Noise(model.rate, (low, high), "unclear", (), reason)
    kind, reason = _kind(counts, features[wrong], predicted[wrong], labels[wrong], seed)
    if sure.mean() < _MANY:
        overlap = f"Only {100 * sure.mean():.0f} % of the examples have a sure class, so the rate may include overlaps of classes."
        reason = f"{overlap} {reason}"
    return Noise(model.rate, (low, high), kind, () if kind == "uniform" else pairs, reason + ("" if kind == "uniform" else _ended(pairs)))


def _ended(pairs: tuple[Pair, ...]) -> str:
    return ":" if pairs else "."


def _confusions(predicted: Ints, labels: Ints, classes: int) -> Ints:
    """How many examples look like each class (row) and have each label (column)."""
    return np.bincount(predicted * classes + labels, minlength=classes**2).reshape(classes, classes)


def _wrong(counts: Ints) -> Ints:
    return np.asarray(counts * (1 - np.eye(len(counts), dtype=np.int64)))


def _pairs(counts: Ints, classes: tuple[str, ...]) -> tuple[Pair, ...]:
    """The wrong labels that are most of those of their class, and more than chance gives them; the most frequent first."""
    from scipy.stats import binomtest  # type: ignore[import-untyped]

    wrong, number = _wrong(counts), len(classes)
    found = []
    for true in range(number):
        given, total = int(wrong[true].argmax()), int(wrong[true].sum())
        most = int(wrong[true, given])
        if number == 2:  # compare the two directions
            other = wrong[given, true] / max(1, counts[given].sum())
            surprising = total > 0 and binomtest(most, int(counts[true].sum()), min(1.0, max(3 * other, 0.01)), "greater").pvalue < 0.01
        else:
            surprising = most > 0.6 * total and binomtest(most, total, 1 / (number - 1), "greater").pvalue < 0.05
        if surprising:
            found.append(Pair(classes[true], classes[given], most / int(counts[true].sum())))
    return tuple(sorted(found, key=lambda pair: -pair.share))


def _kind(counts: Ints, features: Floats, predicted: Ints, labels: Ints, seed: int) -> tuple[str, str]:
    """The kind of noise, from the wrong labels of sure examples: how even they are, and whether the features predict them."""
    wrong, number = _wrong(counts), len(counts)
    where = f"{int(wrong.sum())} examples whose class is sure have another label"
    if number == 2:
        if _pairs(counts, ("0", "1")):
            return "class pairs", f"{where}, nearly all of one class"
        return "uniform", f"{where}, in both classes. With two classes, uniform noise and a pair of classes are the same."
    concentration = _concentration(wrong, seed)
    if concentration <= _EVEN:
        return "uniform", f"{where}, spread over all other classes. Noise that depends on the input can look the same."
    if concentration >= _PAIRED:
        return "class pairs", f"{where}, mostly one wrong class for each class"
    if _prediction_by_features(features, predicted, labels, number, seed) > _DEPENDS:
        return "input-dependent", f"{where}; which one depends on the example, not only on its class"
    reason = "more often some classes than others, but not one for each class; it cannot be told whether that depends on the example"
    return "unclear", f"{where}, {reason}"


def _concentration(wrong: Ints, seed: int) -> float:
    """0 if all wrong labels of a class are as frequent as chance makes them, 1 if there is only one for each class."""
    rows = wrong.sum(1)
    draw = np.random.default_rng(seed)
    even = np.full(len(wrong) - 1, 1 / (len(wrong) - 1))
    by_chance = np.mean([draw.multinomial(rows, even).max(1).sum() for _ in range(200)]) / rows.sum()
    return float((wrong.max(1).sum() / rows.sum() - by_chance) / max(1e-9, 1 - by_chance))


def _prediction_by_features(features: Floats, predicted: Ints, labels: Ints, classes: int, seed: int) -> float:
    """How much better a forest that sees the features predicts wrong labels than the class alone, in standard deviations."""
    from sklearn.ensemble import RandomForestClassifier
    from sklearn.model_selection import KFold

    table = np.concatenate([features, np.eye(classes)[predicted]], 1)
    by_class, by_features = np.zeros((2, len(labels)), dtype=np.int64)
    for train, test in KFold(5, shuffle=True, random_state=seed).split(table):
        by_class[test] = _wrong(_confusions(predicted[train], labels[train], classes)).argmax(1)[predicted[test]]
        forest = RandomForestClassifier(100, min_samples_leaf=2, max_features=0.3, random_state=seed).fit(table[train], labels[train])
        chances = np.zeros((len(test), classes))
        chances[:, forest.classes_] = forest.predict_proba(table[test])
        chances[np.arange(len(test)), predicted[test]] = -1  # the label is another one
        by_features[test] = chances.argmax(1)
    ahead, behind = ((first == labels) & (second != labels) for first, second in ((by_features, by_class), (by_class, by_features)))
    return float((ahead.sum() - behind.sum()) / np.sqrt(max(1, ahead.sum() + behind.sum())))


def _losses(classes: int, noise: Noise, names: tuple[str, ...]) -> list[str]:
    """The losses worth a try: few classes need no help to start, and known pairs can be put into a loss."""
    robust = "gce(q=0.7)" if underfitting("gce(q=0.7)", classes) is None else "scaled(mae, tau=2)"
    pairs = {names.index(pair.true): names.index(pair.given) for pair in noise.pairs}
    if noise.kind != "class pairs":
        return ["ce", robust]
    rate = round(float(np.mean([pair.share for pair in noise.pairs])), 2) if pairs else 0
    return ["ce", robust, *([f"forward('class_map({rate}, {pairs})')"] if pairs else [])]


def _held_out(data: Dataset, features: Floats, noise: Noise, seed: int) -> dict[str, Any]:
    """Whether each loss, trained on most examples, predicts the labels of the others as they are."""
    from noisewise.train import Unlearned, fit

    order = np.random.default_rng([seed, 1]).permutation(len(data))
    number = max(1, round(_HELD_OUT * len(data)))
    held_out, rest = order[:number], order[number:]
    train, labels = data.take(torch.from_numpy(rest)), data.labels.numpy()
    right: dict[str, Any] = {}
    with tempfile.TemporaryDirectory() as folder, warnings.catch_warnings():
        warnings.simplefilter("ignore", Unlearned)  # such a loss is not the best
        for place, loss in enumerate(_losses(len(data.classes), noise, data.classes)):
            run = fit("mlp", train, loss=loss, epochs=_EPOCHS, seed=seed, folder=Path(folder) / str(place), device="cpu")
            right[loss] = np.asarray(run.predict(data.inputs[torch.from_numpy(held_out)])).argmax(1) == labels[held_out]
    if data.inputs.ndim == 2:
        ensemble = RobustEnsemble.fit(features[rest], labels[rest], num_classes=len(data.classes), seed=seed)
        right[_CLASSIFIER] = ensemble.probabilities(features[held_out]).argmax(1) == labels[held_out]
    return right


def _best(right: Mapping[str, Any], noise: Noise) -> str:
    """The best on held-out labels; of those that chance could have put behind it, the first, or with noise the second."""
    names = list(right)
    usual = names[0] if noise.kind == "none" else names[1]
    best = max(names, key=lambda name: (right[name].mean(), name == usual))
    difference = right[best].astype(float) - right[usual]
    return usual if difference.mean() <= difference.std() / np.sqrt(len(difference)) else best


def _commands(source: Any, reading: Mapping[str, Any], take: str, images: bool, kind: str) -> tuple[str, ...]:
    """What to run: for a file, commands; for other data, Python."""
    model, loss = "resnet20" if images else "mlp", "gce(q=0.7)" if take == _CLASSIFIER else take
    classifier = ["from noisewise.integrations.sklearn import RobustClassifier", "RobustClassifier().fit(inputs, labels)"]
    if not isinstance(source, str | os.PathLike):
        fitted = f"noisewise.fit({model!r}, data, loss={loss!r}, epochs={_EPOCHS}, validation=0.1)"
        return (*(classifier if take == _CLASSIFIER else [fitted]), *(["noisewise.audit(data)"] if kind != "none" else []))
    given = [word for name, value in reading.items() for word in _words(name, value)]
    train = ["noisewise", "train", "--data", str(source), *given, "--model", model, "--loss", loss]
    train += ["--epochs", str(_EPOCHS), "--validation", "0.1"]
    audit = ["noisewise", "audit", str(source), *given]
    lines = [*(classifier if take == _CLASSIFIER else [shlex.join(train)])]
    return (*lines, *([shlex.join(audit)] if kind != "none" else []))


def _words(name: str, value: Any) -> list[str]:
    """An option of `read` as the command line takes it."""
    name = {"features": "feature", "columns": "column", "embed": "features", "embed_cache": "features-cache"}.get(name, name)
    option = f"--{name.replace('_', '-')}"
    if value is True:
        return [option]
    return [word for each in (value if isinstance(value, list | tuple) else [value]) for word in (option, str(each))]
