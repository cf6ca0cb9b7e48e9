"""Train a run again on corrected labels, with the same settings and examples. The new run folder notes where it came from."""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable, Collection, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from noisewise import losses
from noisewise.arrays import Ints
from noisewise.correct._correction import Correction
from noisewise.correct._policies import policies
from noisewise.data import is_official, is_vectors
from noisewise.dynamics import Dynamics
from noisewise.errors import InputError
from noisewise.extensions import extension
from noisewise.runs import (
    CHANGES,
    FIRST,
    ORIGIN,
    Before,
    Origin,
    Record,
    RunFolder,
    examples_of,
    first_labels,
    inside,
    label_digest,
    numbers_of,
    read_encoding,
    read_origin,
    read_recorded,
    regular_file,
    rows_of,
)
from noisewise.spec import in_short

_DONE = {"relabel": "relabelled", "prune": "pruned"}
# The labels already contain the noise, and held-out examples stay held out.
CHANGED_SETTINGS = {"noise": "none", "validation": 0.0, "patience": None, "keep": "last"}


def retrain(
    run: str | os.PathLike[str],
    correction: Correction,
    *,
    data: Any = None,
    test: Any = None,
    folder: str | os.PathLike[str] | None = None,
    watch: Callable[..., None] | None = None,
    **settings: Any,
) -> Any:
    """Train a run again from scratch on corrected labels. A loss that is corrected by a matrix is replaced by the loss inside it.

    Held-out examples stay held out. A run that stopped early is trained for the same length, which also sets its schedule.

    Args:
        run: the run whose labels were corrected, or its folder.
        correction: the corrected labels.
        data: the training data; by default the source that the run names.
        test: the test set; by default that of the run, if the run has it or names its source. Official data sets have one.
        folder: the folder of the new run; by default the old folder with the suffix "-corrected". It also stores the corrections, so that
            a report can compare the two runs.
        watch: called after each step, as by `fit`.
        **settings: settings to change.

    Returns:
        The new run, a `noisewise.Run`.

    Reference:
        Wang et al., Derivative manipulation for general example weighting (gradient rescaling), arXiv:1905.11233, appendix E.
    """
    correction.check_one_label_each()
    path, before_run = Path(run), Dynamics(os.fspath(run))
    record = before_run.record
    check_model(record, settings)
    old = path if path.name.strip(".") else path.resolve()  # "." and ".." have no name
    target = Path(f"{old}-corrected" if folder is None else folder)
    _check_free(target, correction)
    examples = examples_of(record, getattr(run, "data", None) if data is None else data)
    first = first_labels(record)
    before = settings_of(record)
    test = _test_set(record, getattr(run, "test", None)) if test is None else test
    changes = {**CHANGED_SETTINGS, **({} if "loss" in settings else _without_matrix(before["loss"]))}
    new = {**before, **changes, **same_length(record), **settings}
    model, _ = new.pop("model"), new.pop("data")
    corrected = correction.apply(examples).read_from(examples.source)
    again = extension("fit")(model, corrected, test=test, folder=target, watch=watch, **new)
    changed = [name for name in ("data", *changes) if name not in settings]
    _write_origin(_origin(before_run, correction, again.dynamics, changed), first, correction, again.dynamics.record)
    return again


def settings_of(record: Record) -> dict[str, Any]:
    """The settings of a run, as `fit` takes them."""
    return {name: value for name, value in record.settings.items() if name != "format"}


def _test_set(record: Record, available: Any) -> Any:
    """The test set of a run: from its recorded source, else the one that the `Run` object has; None if there is none."""
    sources = record.provenance.get("sources", {})
    train, test = sources.get("train"), sources.get("test")
    if test is not None:
        return read_recorded(test, read_encoding(record.folder))
    if available is not None:
        return available
    if train is not None and is_official(train["source"]) and not is_vectors(train.get("embed")):
        return read_recorded({**train, "split": "test"})
    if "test" in record.provenance.get("data", {}):
        why = f"The run in {str(record.folder)!r} does not name the source of its test set, so the new run is not tested"
        warnings.warn(f"{why}; give it with test=… or --test.", stacklevel=3)
    return None


def check_model(record: Record, settings: Mapping[str, Any]) -> None:
    """Check that the model can be built from the run, which does not work for a `Recorder` or a custom model."""
    if "model" in settings:
        return
    if record.recorded:
        raise InputError(
            f"The run in {str(record.folder)!r} was written by a Recorder. Train on the corrected labels in the same loop, or give model=… "
            "and training settings."
        )
    if record.provenance.get("model") is not None:
        raise InputError(f"The run in {str(record.folder)!r} has a custom model. Give a new one to train with model=….")


def same_length(record: Record) -> dict[str, int]:
    """The length of a run that stopped early; the new run has no validation share to stop it."""
    old, status = record.settings, record.status
    length = "epochs" if old["epochs"] is not None else "steps"
    if old["patience"] is None or status["state"] != "finished":
        return {}
    return {length: status[length.removesuffix("s")]}


def _without_matrix(spec: str) -> dict[str, str]:
    """The loss inside a forward or backward correction, which assumes noise that is no longer in the labels."""
    loss = losses.get(spec)
    if isinstance(loss, (losses.Forward, losses.Backward)):
        return {"loss": loss.loss.spec(**loss.contract)}
    if any(isinstance(part, (losses.Forward, losses.Backward)) for part in loss.modules()):
        raise InputError(
            f"The loss {in_short(spec)} assumes noise that is no longer in the corrected labels. Give retrain another loss with loss=…."
        )
    return {}


def _check_free(folder: Path, correction: Correction) -> None:
    """Check that the folder does not contain a run on other corrected labels."""
    origin = read_origin(folder)
    if origin is not None and origin.labels != label_digest(correction.labels[correction.kept]):
        raise InputError(
            f"The folder {str(folder)!r} contains a run on labels that were corrected in another way ({origin.policy}). "
            "Give another folder with folder=… or --run."
        )


def _origin(run: Dynamics, correction: Correction, again: Dynamics, changed: Collection[str]) -> Origin:
    """The origin of a run on corrected labels.

    Args:
        run: the run whose labels were corrected.
        correction: the corrected labels.
        again: the new run.
        changed: the names of the settings that retraining had to change.
    """
    earlier = read_origin(Path(run.folder))
    old, new, wrong = run.record.settings, again.record.settings, run.record.wrong
    return Origin(
        folder=os.path.relpath(run.folder, again.folder),
        settings={**{name: old[name] for name in changed if name in old}, **({} if earlier is None else earlier.settings)},
        otherwise={name: value for name, value in old.items() if name not in changed and new.get(name) != value},
        source={name: old[name] for name in ("data", "noise", "seed") if name in old} if earlier is None else earlier.source,
        steps=(*(() if earlier is None else earlier.steps), _step(correction)),
        policy=correction.policy,
        changes=correction.changes,
        labels=label_digest(correction.labels[correction.kept]),
        before=Before(label_digest(correction.given), len(correction), None if wrong is None else int(wrong.sum()), run.accuracy, run.best),
    )


def _write_origin(origin: Origin, first: Ints, correction: Correction, again: Record) -> None:
    """Write the origin of a run into its folder, with the list of changes and the labels before any correction (`first`)."""
    rows = rows_of(numbers_of(again), correction.index)
    assert rows is not None
    correction.write(inside(again.folder, CHANGES))
    folder = RunFolder(again.folder)
    folder.write_array(FIRST, first[rows])
    folder.write_json(ORIGIN, asdict(origin))


def read_changes(folder: Path, origin: Origin, classes: Collection[str]) -> Correction:
    """Read the list of changes that a run was trained with, and check that it belongs to the run."""
    correction = Correction.read(regular_file(folder, CHANGES), classes)
    if (label_digest(correction.given), label_digest(correction.labels[correction.kept])) != (origin.before.labels, origin.labels):
        raise InputError(
            f"The file {str(folder / CHANGES)!r} does not list the changes that the run was trained with. Copy the run folder again."
        )
    return correction


def _step(correction: Correction) -> str:
    """What was done to the labels, as a phrase that names the run."""
    done = " and ".join(_DONE[kind] for kind in correction.changes) or "unchanged"
    return done if correction.policy in policies else f"{done} ({correction.policy})"
