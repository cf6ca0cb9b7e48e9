"""The audit of a run or of data: for data, a suitable model is trained first, and what judges the labels is chosen."""

from __future__ import annotations

import inspect
import os
import warnings
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any

from noisewise.audit._audit import Audit, add_evidence, audit_run
from noisewise.audit._evidence import score_function
from noisewise.data import READ_OPTIONS, Dataset, read
from noisewise.dynamics import Dynamics, underfitting
from noisewise.errors import InputError, invalid_parameter, listed, unknown, warn
from noisewise.models import ImageClassifier, registry
from noisewise.runs import RunFolder
from noisewise.spec import name_of

if TYPE_CHECKING:
    from noisewise.train import Run

EPOCHS = 30
LOSS = "gce(q=0.7)"  # memorises little, so that nearly all epochs are informative
_RARE = 0.3  # of the mean class size: on the tables of benchmarks/customers.py the robust loss learned no rarer class
_JUDGES = ("auto", "features", "record")
_SMALLEST_CROPPED = 24  # pixels a side; smaller images are not shifted at random

Stage = Callable[[str], AbstractContextManager[Any]]
"""Called with a line about what begins; a context manager whose value watches the steps of training, or is None."""


def audit(
    run_or_data: Any,
    *,
    score: str = "combined",
    features: Any = None,
    judge: str = "auto",
    model: str | None = None,
    embeddings: bool = False,
    loss: str | None = None,
    epochs: int | None = None,
    test: Any = None,
    folder: str | os.PathLike[str] | None = None,
    watch: Callable[[int, int], None] | None = None,
    **reading: Any,
) -> Audit:
    """Find labels that look wrong, in a run or in data. For data, a model is trained first.

    Args:
        run_or_data: a run, its folder or its dynamics; or data: what `noisewise.data.read` takes, such as a path, a DataFrame or a pair of
            inputs and labels. All other arguments but `score` and `features` are for data.
        score: ranks the labels: "combined", "area_under_margin", "final_margin", "emphasis", "forgetting" or "mixture". It decides the
            order of the qualities; the number of wrong labels and the suggestions always come from the votes of the epochs. With evidence
            from features, "combined" is the chance that it gives; the others are refused.
        features: for a run, one row of numbers for each of its examples; models that do not see the label then judge it. For data, the
            option of `noisewise.data.read`.
        judge: what judges the labels: "features" (models that do not see the label), "record" (the trained run), or "auto".
        model: the model to train; by default mlp for numbers, resnet20 for images.
        embeddings: the numbers are embeddings: train a linear model.
        loss: the loss to train with; by default gce(q=0.7), or ce with very many classes or a rare one.
        epochs: the number of epochs; by default 30.
        test: data with labels that you trust, to estimate how often the model is wrong.
        folder: the run folder to train in; by default a new folder in ``runs/``.
        watch: called after every step of training, as by `fit`.
        **reading: the options of `noisewise.data.read`, such as ``label="plan"``.

    Returns:
        The audit. Its ``dynamics.folder`` is the run folder.

    Example:
        >>> import tempfile
        >>> import noisewise
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     run = noisewise.fit("mlp", "digits", noise="symmetric(0.2, flips='exact')", epochs=10, folder=folder, device="cpu")
        ...     result = noisewise.audit(run)
        ...     wrong = run.dynamics.record.wrong
        >>> int(wrong.sum()), bool(wrong[result.order[:200]].mean() > 0.95)
        (287, True)
    """
    if is_run(run_or_data):
        own = {
            "model": model,
            "embeddings": embeddings or None,
            "loss": loss,
            "epochs": epochs,
            "test": test,
            "folder": folder,
            "watch": watch,
        }
        given = {**own, "judge": None if judge == "auto" else judge, **reading}
        if unused := [name for name, value in given.items() if value is not None]:
            raise InputError(f"{str(run_or_data)!r} is a run, which is not trained again. Got {', '.join(unused)}; leave that out.")
        return audit_run(run_or_data, score=score, features=features)
    reading |= {} if features is None else {"features": features}
    for name in reading:
        if name not in READ_OPTIONS:
            raise unknown("option", name, READ_OPTIONS | {*inspect.signature(audit).parameters} - {"run_or_data", "reading"})
    check_judges(score, judge)
    check_data(run_or_data)
    _, issues = audit_data(
        read(run_or_data, **reading),
        test,
        score=score,
        judge=judge,
        model=model,
        embeddings=embeddings,
        loss=loss,
        epochs=epochs,
        folder=folder,
        stage=lambda line: nullcontext(watch),
    )
    return issues


def is_run(source: Any) -> bool:
    """Whether this is a run, its folder or its dynamics, and not data."""
    return isinstance(source, Dynamics) or (isinstance(source, str | os.PathLike) and RunFolder(source).exists())


def check_judges(score: str, judge: str) -> None:
    """Refuse an unknown score or judge, before anything is trained."""
    score_function(score)
    if judge not in _JUDGES:
        raise invalid_parameter("judge", "audit", "one of " + ", ".join(map(repr, _JUDGES)), judge)


def check_data(source: Any) -> None:
    """Refuse the path of a damaged run, or of a folder of runs, which would be read as data."""
    if not isinstance(source, str | os.PathLike):
        return
    if RunFolder(source).damaged():
        raise InputError(f"The folder {str(source)!r} looks like a damaged run: it has no settings.json. Copy it again, or train it again.")
    for pattern in ("*/settings.json", "*/*/settings.json"):  # the folders of compare and of demo
        for settings in Path(source).glob(pattern):
            raise InputError(f"The folder {str(source)!r} contains runs. Audit one of them, such as {str(settings.parent)!r}.")


def audit_data(
    data: Dataset,
    test: Any,
    *,
    score: str,
    judge: str,
    model: str | None,
    embeddings: bool | None,
    loss: str | None,
    epochs: int | None,
    folder: str | os.PathLike[str] | None,
    stage: Stage,
) -> tuple[Run, Audit]:
    """Train a run on data that were read, and audit it; the arguments are those of `audit`, and a `Stage`."""
    if embeddings and model is not None:
        raise invalid_parameter("model", "audit", "left out with embeddings", model)
    model = model or ("linear" if embeddings or data.embedder is not None else "resnet20" if data.inputs.ndim == 4 else "mlp")
    by_features = judge == "features" or (judge == "auto" and score == "combined" and data.inputs.ndim == 2)
    chosen = loss or _default_loss(data, by_features)

    def audited(loss: str, folder: str | os.PathLike[str] | None) -> tuple[Run, Audit]:
        run = _train(model, data, test, loss, epochs or EPOCHS, folder, stage)
        if by_features:
            with stage("judging the labels by their features"):
                add_evidence(run, data.inputs.flatten(1).numpy())
        return run, audit_run(run, score=score)

    run, issues = audited(chosen, folder)
    missing = issues.unlearned if issues.model is None else run.dynamics.unlearned
    if loss is None and chosen != "ce" and missing:
        warn(f"{chosen} did not learn {listed(map(repr, missing))}; training again with ce.")
        run, issues = audited("ce", None if folder is None else Path(folder).with_name(f"{Path(folder).name}-ce"))
    return run, issues


def _default_loss(data: Dataset, by_features: bool) -> str:
    """The robust loss, or cross-entropy where that would not learn: with very many classes, or a rare one.

    If the record judges the labels, the robust loss is tried first all the same, because the record of cross-entropy is worse.
    """
    rarest = int(data.labels.bincount(minlength=len(data.classes)).min())
    is_rare = rarest < _RARE * len(data) / len(data.classes)
    return "ce" if underfitting(LOSS, len(data.classes)) is not None or (is_rare and by_features) else LOSS


def _train(model: str, data: Dataset, test: Any, loss: str, epochs: int, folder: str | os.PathLike[str] | None, stage: Stage) -> Run:
    from noisewise.train import Unlearned, fit

    augment = _augmentation(data.inputs.shape, model)
    with stage(f"training {model} on {len(data):,} examples") as watch, warnings.catch_warnings():
        warnings.simplefilter("ignore", Unlearned)  # the audit reports it
        return fit(model, data, test=test, loss=loss, epochs=epochs, folder=folder, augment=augment, evaluate_every=epochs, watch=watch)


def _augmentation(shape: Sequence[int], model: str) -> str:
    """Small random shifts for convolutional networks, except on tiny images, which lose too much."""
    kind = registry[name_of(model)]
    convolves = isinstance(kind, type) and issubclass(kind, ImageClassifier)
    return "crop(2)" if convolves and len(shape) == 4 and min(shape[2:]) >= _SMALLEST_CROPPED else "none"
