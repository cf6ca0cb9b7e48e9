"""Training a run again on corrected labels: the same settings, the same examples, other labels."""

from __future__ import annotations

import os
from typing import Any

from noisewise.correct._correction import Correction
from noisewise.correct._origin import Origin, examples_of, read_origin
from noisewise.data import available, read
from noisewise.train import Run, fit
from noisewise.train._fit import Watch

# The noise is in the labels already, and the share that was held out stays out.
_OTHERWISE = {"noise": "none", "validation": 0.0, "patience": None}


def retrain(
    run: Run,
    correction: Correction,
    *,
    data: Any = None,
    test: Any = None,
    folder: str | os.PathLike[str] | None = None,
    watch: Watch | None = None,
    **settings: Any,
) -> Run:
    """Train a run again from scratch on corrected labels.

    Args:
        run: the run whose labels were corrected.
        correction: the labels.
        data: what it was trained on; by default what its settings name.
        test: what to test on; an official data set brings its own.
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
    examples = correction.apply(examples_of(run.dynamics.record, run.data if data is None else data))
    before, earlier = run.settings.as_json(), read_origin(run.path)
    source = before["data"] if earlier is None else str(earlier.settings["data"])
    if test is None and source.partition("(")[0].strip() in available():
        test = read(source, split="test")
    asked = {**before, **_OTHERWISE, **settings}
    model, _ = asked.pop("model"), asked.pop("data")
    again = fit(model, examples, test=test, folder=f"{run.path}-corrected" if folder is None else folder, watch=watch, **asked)
    changed = [name for name in ("data", *_OTHERWISE) if name not in settings]
    Origin.of(run.dynamics, correction, again.dynamics, changed).write(again.path, correction)
    return again
