"""Exchange with cleanlab's Datalab: audit a run there without cross-validation, and bring what it finds back."""

from __future__ import annotations

import os
from typing import Any

import numpy as np

from noisewise.audit import audit_run, run_probabilities
from noisewise.correct import Decision
from noisewise.dynamics import Dynamics
from noisewise.errors import InputError

try:
    from cleanlab import Datalab  # type: ignore[import-untyped]
except ImportError:  # Datalab is there only with the library of data sets
    raise InputError("Datalab needs cleanlab and datasets, which are not installed; run: pip install 'noisewise[cleanlab]'.") from None

_COLUMNS = ("index", "id", "label_quality", "suggested_label", "mean_margin", "first_fit", "forgetting", "mean_emphasis")
_INDEX, _ID, _LABEL = "index", "id", "label"


def to_datalab(run: str | os.PathLike[str] | Dynamics, *, features: Any = None, **options: Any) -> Any:
    """A Datalab of the training examples of a run, with the issues it finds.

    Datalab wants the probabilities of models that did not see an example, which takes cross-validation. It gets those of
    `noisewise.audit.run_probabilities`, from one run. Its data have the label ("label") and what the audit of the run says: the index and
    the id of the example, label_quality, suggested_label, mean_margin, first_fit, forgetting and mean_emphasis.

    Args:
        run: a run, its folder or its dynamics.
        features: numbers for each example, (N, columns), in the order of the record; with them Datalab also looks for outliers,
            near-duplicates and more.
        options: more options of ``Datalab.find_issues``, such as ``issue_types={"label": {}}``.

    Example:
        >>> import tempfile
        >>> from noisewise import fit
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     run = fit("mlp", "digits", noise="symmetric(0.2, flips='exact')", epochs=10, folder=folder, device="cpu")
        ...     lab = to_datalab(run, issue_types={"label": {}})
        ...     wrong = run.dynamics.record.wrong
        >>> bool(lab.get_issues("label").is_label_issue[wrong].mean() > 0.8)
        True
    """
    result = audit_run(run)
    rows = result.to_frame().iloc[np.argsort(result.order)]  # in the order of the record
    data = {name: rows[name].tolist() for name in _COLUMNS} | {_LABEL: rows["given_label"].tolist()}
    lab = Datalab(data=data, label_name=_LABEL, verbosity=0)
    probabilities = run_probabilities(run)[:, _columns_of(lab, result.classes)]
    probabilities /= probabilities.sum(1, keepdims=True)
    lab.find_issues(pred_probs=probabilities, features=None if features is None else np.asarray(features), **options)
    return lab


def _columns_of(lab: Any, classes: tuple[str, ...]) -> list[int]:
    """The columns of the classes in Datalab's order: sorted, and only those that have labels."""
    numbers = {name: number for number, name in enumerate(classes)}
    return [numbers[str(name)] for name in lab.class_names]


def from_datalab(lab: Any) -> dict[int, Decision]:
    """The label issues of a Datalab as decisions for `noisewise.correct.correct`: relabel with the class that Datalab predicts.

    Args:
        lab: a Datalab that has looked for label issues: of `to_datalab`, or of your own data in the order of the training data, with the
            class names of the run as labels.

    Returns:
        The decisions by the index of the example.

    Example:
        >>> from noisewise import correct
        >>> correct.correct(run, decisions=from_datalab(lab)).write("corrected.csv")  # doctest: +SKIP
    """
    issues, columns = lab.get_issues("label"), lab.data.column_names
    doubted = issues[issues["is_label_issue"]]
    index, ids = (lab.data[name] if name in columns else None for name in (_INDEX, _ID))
    decisions = {}
    for row, given, predicted in zip(doubted.index.tolist(), doubted["given_label"], doubted["predicted_label"], strict=True):
        if str(given) != str(predicted):
            decision = Decision("relabel", str(predicted), id=None if ids is None else str(ids[row]), given=str(given))
            decisions[row if index is None else int(index[row])] = decision
    return decisions
