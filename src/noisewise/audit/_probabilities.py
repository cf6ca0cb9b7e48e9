"""Find doubtful labels from the class probabilities of any models, with a model of the noise or with cleanlab."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from noisewise.arrays import Flags, Floats, Ints
from noisewise.audit._issues import LabelIssues
from noisewise.audit._noise_model import NoiseModel, fit_noise_model
from noisewise.data import Column, encode
from noisewise.errors import InputError, invalid_parameter
from noisewise.transition import as_labels, as_probabilities

_METHODS = ("noise_model", "confident_learning")


def find_label_issues(
    labels: Any,
    pred_probs: Any,
    *,
    method: str = "noise_model",
    classes: Sequence[str] | None = None,
    ids: Sequence[Any] | None = None,
) -> LabelIssues:
    """Find doubtful labels from class probabilities of one or more models.

    Formula:
        P(class k | example) = softmax_k(Σ_m β_m log q_mk);  P(given label j | class k) = T_kj
        label_quality = P(class = given label | example, given label), with the β and T under which the given labels are most likely

    Args:
        labels: the given labels (N,): column indices of ``pred_probs``, or names if classes are given.
        pred_probs: class probabilities (N, classes) from a model that was not trained on the example, as
            `sklearn.model_selection.cross_val_predict` returns them; or a list of several, as `evidence_from_features` returns them.
        method: "noise_model", or "confident_learning", which needs cleanlab and one array.
        classes: the names of the columns of ``pred_probs``, such as scikit-learn's ``classes_``. Integer labels are then column indices,
            unless the name of a class is a number.
        ids: a unique id for each example.

    Returns:
        Flags, qualities, suggestions and an interval, in the order of the labels.

    Example:
        >>> probabilities = [[0.9, 0.1], [0.1, 0.9], [0.2, 0.8], [0.1, 0.9]] * 25
        >>> issues = find_label_issues([0, 0, 1, 1] * 25, probabilities)
        >>> issues.is_label_issue[:4]
        array([False,  True, False, False])

    Reference:
        Northcutt et al., Confident Learning: Estimating Uncertainty in Dataset Labels, JAIR 2021.
    """
    if method not in _METHODS:
        raise invalid_parameter("method", "find_label_issues", "one of " + ", ".join(map(repr, _METHODS)), method)
    evidence = _tables(pred_probs)
    if method == "confident_learning" and len(evidence) > 1:
        raise invalid_parameter("pred_probs", "find_label_issues", "one array for confident learning", f"{len(evidence)} arrays")
    given, names = _numbered(labels, classes, evidence[0].shape[1])
    if len(given) != len(evidence[0]):
        raise invalid_parameter(
            "pred_probs", "find_label_issues", f"one row for each of the {len(given)} labels", f"{len(evidence[0])} rows"
        )
    if ids is not None and len(ids) != len(given):
        raise invalid_parameter("ids", "find_label_issues", f"one for each of the {len(given)} labels", f"{len(ids)} ids")
    example_ids = None if ids is None else Column(ids, "the ids").ids()
    if method == "confident_learning":
        flags, quality = _confident_learning(given, evidence[0])
        predicted = evidence[0].argmax(1)
        share = evidence[0].max(1)
        return LabelIssues(flags, quality, given, predicted, np.where(flags, predicted, given), share, None, names, example_ids, True)
    return issues_of(fit_noise_model(evidence, given), given, names, example_ids)


def issues_of(model: NoiseModel, given: Ints, classes: tuple[str, ...], ids: Sequence[str] | None = None) -> LabelIssues:
    """What a fitted noise model says of each label."""
    return LabelIssues(
        is_label_issue=model.doubtful,
        label_quality=1 - model.chance,
        given_label=given,
        predicted_label=model.predicted,
        suggested_label=model.best,
        suggestion_probability=model.best_chance,
        interval=model.counts,
        classes=classes,
        example_ids=ids,
        judged=model.judged,
    )


def _tables(pred_probs: Any) -> list[Floats]:
    """One or more arrays of probabilities, checked."""
    several = isinstance(pred_probs, list | tuple) and len(pred_probs) > 0 and all(np.ndim(table) == 2 for table in pred_probs)
    tables = list(pred_probs) if several or (hasattr(pred_probs, "ndim") and pred_probs.ndim == 3) else [pred_probs]
    checked = [as_probabilities(table, what="pred_probs", owner="find_label_issues").numpy() for table in tables]
    if len({table.shape for table in checked}) > 1:
        shapes = ", ".join(str(table.shape) for table in checked)
        raise invalid_parameter("pred_probs", "find_label_issues", "arrays of one shape", shapes)
    return checked


def _numbered(labels: Any, classes: Sequence[str] | None, number: int) -> tuple[Ints, tuple[str, ...]]:
    """The labels as column indices, and the names of the columns."""
    owner = "find_label_issues"
    if classes is None:
        try:
            return as_labels(labels, owner=owner, num_classes=number).numpy(), tuple(map(str, range(number)))
        except InputError:
            if isinstance(labels, Iterable) and any(isinstance(label, str) for label in labels):
                needed = "given if labels are names: the name of each column of pred_probs, in order"
                raise invalid_parameter("classes", owner, needed, classes) from None
            raise
    if len(classes) != number or len(set(map(str, classes))) != number:
        raise invalid_parameter("classes", owner, f"the {number} different names of the columns of pred_probs", list(classes))
    if np.ndim(labels) != 1 or not len(labels):
        raise invalid_parameter("labels", owner, "names or numbers in one row, at least one", f"labels shaped {tuple(np.shape(labels))}")
    numbered, _, names = encode(Column(labels, "the labels"), None, classes)
    return numbered.numpy(), names


def _confident_learning(given: Ints, probabilities: Floats) -> tuple[Flags, Floats]:
    try:
        from cleanlab import filter as confident  # type: ignore[import-untyped]
        from cleanlab import rank
    except ImportError:
        raise InputError("Confident learning needs cleanlab, which is not installed; run: pip install 'noisewise[cleanlab]'.") from None
    flags = confident.find_label_issues(given, probabilities, n_jobs=1)
    return np.asarray(flags, dtype=bool), np.asarray(rank.get_label_quality_scores(given, probabilities), dtype=np.float64)
