"""Training a run again on corrected labels: the same settings, the same examples, other labels."""

from __future__ import annotations

import os
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from noisewise import losses
from noisewise.correct._correction import Correction
from noisewise.correct._origin import Origin, digest, examples_of, first_labels, read_origin
from noisewise.data._own import is_official
from noisewise.errors import InputError
from noisewise.spec import in_short
from noisewise.train import Run, fit
from noisewise.train._fit import Watch
from noisewise.train._folder import RunFolder
from noisewise.train._sources import read_recorded, recorded_sources

# The noise is in the labels already, and the share that was held out stays out.
_OTHERWISE = {"noise": "none", "validation": 0.0, "patience": None, "keep": "last"}


def retrain(
    run: Run | str | os.PathLike[str],
    correction: Correction,
    *,
    data: Any = None,
    test: Any = None,
    folder: str | os.PathLike[str] | None = None,
    watch: Watch | None = None,
    **settings: Any,
) -> Run:
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
        The new run.

    Reference:
        Wang et al., Derivative manipulation for general example weighting (gradient rescaling), arXiv:1905.11233, appendix E.
    """
    correction.check_one_label_each()
    run = run if isinstance(run, Run) else Run(run)
    _check_model(run, settings)
    old = run.path if run.path.name.strip(".") else run.path.resolve()  # "." and ".." are no names
    target = Path(f"{old}-corrected" if folder is None else folder)
    _check_free(target, correction)
    source = run.data if data is None else data
    examples = examples_of(run.dynamics.record, source)
    first = first_labels(run.dynamics.record)
    before, earlier = run.settings.as_json(), read_origin(run.path)
    sources = recorded_sources(run.provenance, before if earlier is None else earlier.settings)
    if test is None and sources["test"] is not None:
        test = read_recorded(sources["test"])
    elif test is None and run.test is not None:
        test = run.test
    elif test is None and sources["train"] is not None and is_official(sources["train"]["source"]):
        test = read_recorded({**sources["train"], "split": "test"})
    elif test is None and "test" in run.provenance.get("data", {}):
        why = f"The run in {str(run.path)!r} does not say where its test set came from, so the new one is not tested"
        warnings.warn(f"{why}; give it with test=… or --test.", stacklevel=2)
    otherwise = {**_OTHERWISE, **({} if "loss" in settings else _without_forward(before["loss"]))}
    asked = {**before, **otherwise, **_as_long(run), **settings}
    model, _ = asked.pop("model"), asked.pop("data")
    corrected = correction.apply(examples).read_from(examples.source)
    again = fit(model, corrected, test=test, folder=target, watch=watch, **asked)
    changed = [name for name in ("data", *otherwise) if name not in settings]
    Origin.of(run.dynamics, correction, again.dynamics, changed).write(first, correction, again.dynamics.record)
    return again


def _check_model(run: Run, settings: Mapping[str, Any]) -> None:
    """Refuse to train what is not known: a loop or a module of the user's own."""
    origin = run.provenance
    if "model" in settings:
        return
    if origin.get("recorded"):
        raise InputError(
            f"The run in {str(run.path)!r} was recorded in a loop of your own. Train there on the corrected labels, or give model=… and "
            "how to train it."
        )
    if origin.get("model") is not None:
        raise InputError(f"The run in {str(run.path)!r} has a model of your own. Give one to train anew with model=….")


def _as_long(run: Run) -> dict[str, int]:
    """The length of a run that stopped early: nothing is held out any more that could stop the new one."""
    asked, length = run.settings, "epochs" if run.settings.epochs is not None else "steps"
    if asked.patience is None or run.state != "finished":
        return {}
    return {length: RunFolder(run.path).status()[length.removesuffix("s")]}


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
    if held is not None and held.labels != digest(correction.labels[correction.kept]):
        raise InputError(
            f"The folder {str(folder)!r} holds a run on labels that were corrected in another way ({held.policy}). "
            "Give another with folder=… or --run."
        )
