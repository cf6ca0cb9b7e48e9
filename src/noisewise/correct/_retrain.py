"""Train a run again on corrected labels: the same settings, the same examples, other labels.

The new run folder says where it came from. This module must not know how runs are trained: it asks `fit` for it.
"""

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
from noisewise.data import is_official
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
    read_origin,
    read_recorded,
    regular_file,
    rows_of,
)
from noisewise.spec import in_short

_DONE = {"relabel": "relabelled", "prune": "pruned"}
# The noise is in the labels already, and the share that was held out stays out.
_OTHERWISE = {"noise": "none", "validation": 0.0, "patience": None, "keep": "last"}


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
    """Train a run again from scratch on corrected labels, a forward-corrected loss as the one inside it.

    What was held out stays out. A run that stopped early is trained as long as it was; its schedule then goes by that length.

    Args:
        run: the run whose labels were corrected, or its folder.
        correction: the labels.
        data: what it was trained on; by default where it says it read them.
        test: what to test on; by default what the run was tested on, where it is at hand or the run says it read it. An official data
            set brings its own.
        folder: of the new run; by default the old one's with "-corrected" behind it. The labels are kept in it, and where they
            came from, so that a report sets the two runs side by side.
        watch: called after every step, as by `fit`.
        **settings: what to do otherwise than before.

    Returns:
        The new run, a `noisewise.Run`.

    Reference:
        Wang et al., Derivative manipulation for general example weighting (gradient rescaling), arXiv:1905.11233, appendix E.
    """
    correction.check_one_label_each()
    path, before_run = Path(run), Dynamics(os.fspath(run))
    record = before_run.record
    _check_model(record, settings)
    old = path if path.name.strip(".") else path.resolve()  # "." and ".." are not names
    target = Path(f"{old}-corrected" if folder is None else folder)
    _check_free(target, correction)
    examples = examples_of(record, getattr(run, "data", None) if data is None else data)
    first = first_labels(record)
    before = {name: value for name, value in record.settings.items() if name != "format"}
    test = _test_set(record, getattr(run, "test", None)) if test is None else test
    otherwise = {**_OTHERWISE, **({} if "loss" in settings else _without_forward(before["loss"]))}
    asked = {**before, **otherwise, **_as_long(record), **settings}
    model, _ = asked.pop("model"), asked.pop("data")
    corrected = correction.apply(examples).read_from(examples.source)
    again = extension("fit")(model, corrected, test=test, folder=target, watch=watch, **asked)
    changed = [name for name in ("data", *otherwise) if name not in settings]
    _write_origin(_origin(before_run, correction, again.dynamics, changed), first, correction, again.dynamics.record)
    return again


def _test_set(record: Record, held: Any) -> Any:
    """The test set of a run; None where there was none, or where nobody knows what it was.

    Args:
        record: of the run.
        held: the test set that the run has at hand.
    """
    sources = record.provenance.get("sources", {})
    train, test = sources.get("train"), sources.get("test")
    if test is not None:
        return read_recorded(test)
    if held is not None:
        return held
    if train is not None and is_official(train["source"]):
        return read_recorded({**train, "split": "test"})
    if "test" in record.provenance.get("data", {}):
        why = f"The run in {str(record.folder)!r} does not say where its test set came from, so the new one is not tested"
        warnings.warn(f"{why}; give it with test=… or --test.", stacklevel=3)
    return None


def _check_model(record: Record, settings: Mapping[str, Any]) -> None:
    """Refuse to train a model that cannot be built from the run: of a recorded loop, or one that was given as an object."""
    if "model" in settings:
        return
    if record.recorded:
        raise InputError(
            f"The run in {str(record.folder)!r} was written by a Recorder. Train on the corrected labels in the same loop, or give model=… "
            "and how to train it."
        )
    if record.provenance.get("model") is not None:
        raise InputError(f"The run in {str(record.folder)!r} has a custom model. Give a new one to train with model=….")


def _as_long(record: Record) -> dict[str, int]:
    """The length of a run that stopped early: the new one has no validation share that could stop it."""
    asked, status = record.settings, record.status
    length = "epochs" if asked["epochs"] is not None else "steps"
    if asked["patience"] is None or status["state"] != "finished":
        return {}
    return {length: status[length.removesuffix("s")]}


def _without_forward(spec: str) -> dict[str, str]:
    """The loss inside a forward correction: the noise that it reckons with is no longer in the labels."""
    loss = losses.get(spec)
    if isinstance(loss, losses.Forward):
        return {"loss": loss.loss.spec(**loss.contract)}
    if any(isinstance(part, losses.Forward) for part in loss.modules()):
        raise InputError(
            f"The loss {in_short(spec)} reckons with a noise that is no longer in corrected labels. Give retrain another with loss=…."
        )
    return {}


def _check_free(folder: Path, correction: Correction) -> None:
    """Refuse a folder that holds a run on labels that were corrected in another way."""
    held = read_origin(folder)
    if held is not None and held.labels != label_digest(correction.labels[correction.kept]):
        raise InputError(
            f"The folder {str(folder)!r} holds a run on labels that were corrected in another way ({held.policy}). "
            "Give another with folder=… or --run."
        )


def _origin(run: Dynamics, correction: Correction, again: Dynamics, changed: Collection[str]) -> Origin:
    """Where a run came from that was trained on corrected labels.

    Args:
        run: the one whose labels were corrected.
        correction: the labels.
        again: the new one.
        changed: the names of the settings that differ only because of the correction.
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
    """Write where a run came from into its folder, with the list of changes and the labels of the first run.

    Args:
        origin: where it came from.
        first: the labels before any correction, in the order of the correction.
        correction: the labels.
        again: the record of the new run, which has some of its examples.
    """
    rows = rows_of(numbers_of(again), correction.index)
    assert rows is not None
    correction.write(inside(again.folder, CHANGES))
    folder = RunFolder(again.folder)
    folder.write_array(FIRST, first[rows])
    folder.write_json(ORIGIN, asdict(origin))


def read_changes(folder: Path, origin: Origin, classes: Collection[str]) -> Correction:
    """The list of changes a run was trained with, after a check that it is this one.

    Args:
        folder: of the run.
        origin: where it came from.
        classes: the name of every class, in order.
    """
    correction = Correction.read(regular_file(folder, CHANGES), classes)
    if (label_digest(correction.given), label_digest(correction.labels[correction.kept])) != (origin.before.labels, origin.labels):
        raise InputError(
            f"The file {str(folder / CHANGES)!r} does not list the changes the run was trained with. Copy the run folder again."
        )
    return correction


def _step(correction: Correction) -> str:
    """What was done to the labels, in a phrase that distinguishes one correction from another."""
    done = " and ".join(_DONE[kind] for kind in correction.changes) or "unchanged"
    return done if correction.policy in policies else f"{done} ({correction.policy})"
