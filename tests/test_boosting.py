"""Robust losses in XGBoost, LightGBM and CatBoost: their slopes, and what the libraries learn with them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import catboost
import lightgbm
import numpy as np
import pytest
import torch
import xgboost
from sklearn.datasets import load_breast_cancer, load_digits, make_classification

import noisewise
from noisewise import losses
from noisewise.integrations.boosting import error_rate, objective, probabilities
from refused import refused

TREES: dict[str, Any] = {"max_depth": 3, "eta": 0.3, "nthread": 1, "base_score": 0.5}


def digits(number: int = 600) -> tuple[np.ndarray, np.ndarray]:
    rows, labels = load_digits(return_X_y=True)
    return rows[:number], labels[:number]


@pytest.mark.parametrize("classes", [2, 10])
def test_cross_entropy_is_the_objective_of_xgboost(classes: int) -> None:
    rows, labels = digits(300) if classes == 10 else (part[:300] for part in load_breast_cancer(return_X_y=True))
    own = {"objective": "binary:logistic"} if classes == 2 else {"objective": "multi:softprob", "num_class": classes}
    weight = np.linspace(0.5, 2, len(labels))
    data = xgboost.DMatrix(rows, labels, weight=weight)
    theirs = xgboost.train({**TREES, **own}, data, 5).predict(data)
    ours = xgboost.train({**TREES, **own}, data, 5, obj=objective("ce").native).predict(data)
    np.testing.assert_allclose(ours, theirs, atol=1e-6)


@pytest.mark.parametrize("spec", ["ce", "gce(q=0.7)", "imae(T=8)", "mae", "0.3*nce + 0.7*mae"])
@pytest.mark.parametrize("binary", [False, True])
def test_slopes_are_the_derivatives_of_the_loss(spec: str, binary: bool) -> None:
    generator = np.random.default_rng(0)
    scores, labels = generator.normal(size=(12,) if binary else (12, 3)) * 2, generator.integers(2 if binary else 3, size=12)
    loss, step = losses.get(spec, reduction="sum"), 1e-5

    def value(at: np.ndarray) -> float:
        columns = np.stack([np.zeros(12), at], 1) if binary else at
        return float(loss(torch.from_numpy(columns), torch.from_numpy(labels)))

    slope, curvature = objective(spec, normalise=False)(labels.astype(float), scores)
    for place in np.ndindex(scores.shape):
        moved = np.zeros_like(scores)
        moved[place] = step
        assert slope[place] == pytest.approx((value(scores + moved) - value(scores - moved)) / (2 * step), abs=1e-6)
    assert (curvature > 0).all()
    normalised, _ = objective(spec)(labels, scores)
    np.testing.assert_allclose(normalised * np.abs(slope).sum(), slope * np.abs(normalised).sum(), atol=1e-12)


def test_weights_multiply_slope_and_curvature() -> None:
    scores, labels = np.array([[1.0, 0.0], [0.0, 2.0]]), [0, 0]
    whole, weighted = objective("gce")(labels, scores), objective("gce")(labels, scores, [1.0, 3.0])
    for part, times in zip(whole, weighted, strict=True):
        np.testing.assert_allclose(times, part * [[1.0], [3.0]])


def test_saturated_scores_have_finite_slopes_and_curvatures() -> None:
    for spec in ("ce", "gce(q=0.7)", "imae(T=8)"):
        slope, curvature = objective(spec)([0, 1, 1], [[800.0, 0.0], [800.0, 0.0], [-800.0, 0.0]])
        assert np.isfinite(slope).all() and np.isfinite(curvature).all() and (curvature > 0).all()


def test_a_robust_loss_learns_more_from_wrong_labels_than_cross_entropy() -> None:
    rows, labels = make_classification(
        1500, 8, n_informative=6, n_redundant=2, n_classes=4, n_clusters_per_class=1, class_sep=1.5, random_state=1
    )
    noisy = noisewise.corrupt(torch.from_numpy(labels), "symmetric(0.4)", num_classes=4, seed=0).labels.numpy()

    def accuracy(spec: str) -> float:
        model = lightgbm.LGBMClassifier(objective=objective(spec), n_estimators=60, n_jobs=1, verbose=-1).fit(rows[:700], noisy[:700])
        return float((model.predict(rows[700:], raw_score=True).argmax(1) == labels[700:]).mean())

    assert accuracy("gce(q=0.7)") > accuracy("ce") + 0.02


@pytest.mark.filterwarnings("ignore:.*eval_set")  # LightGBM's, of its own wrapper for scikit-learn
@pytest.mark.parametrize("classes", [2, 4])
def test_training_stops_early_at_the_best_round_of_an_evaluation_set(classes: int) -> None:
    rows, labels = (part[load_digits().target < classes] for part in load_digits(return_X_y=True))
    noisy = noisewise.corrupt(torch.from_numpy(labels), "symmetric(0.2)", num_classes=classes, seed=0).labels.numpy()
    half = len(labels) // 2
    held_out, given, chosen = rows[half:], noisy[half:], objective("gce(q=0.7)")

    ours = xgboost.XGBClassifier(objective=chosen, n_estimators=60, max_depth=3, n_jobs=1, early_stopping_rounds=4)
    ours.set_params(eval_metric="mlogloss" if classes > 2 else "logloss")
    ours.fit(rows[:half], noisy[:half], eval_set=[(held_out, given)], verbose=False)
    ((losses_of_rounds,),) = (list(history.values()) for history in ours.evals_result().values())
    chances = probabilities(ours.predict(held_out, output_margin=True))
    assert ours.best_iteration < len(losses_of_rounds) - 1 < 59
    assert -np.log(chances[np.arange(len(given)), given]).mean() == pytest.approx(min(losses_of_rounds), abs=1e-5)

    theirs = lightgbm.LGBMClassifier(objective=chosen, n_estimators=60, n_jobs=1, verbose=-1, metric="None")
    stop = lightgbm.early_stopping(4, verbose=False)
    theirs.fit(rows[:half], noisy[:half], eval_set=[(held_out, given)], eval_metric=error_rate, callbacks=[stop])
    errors = theirs.evals_result_["valid_0"]["error_rate"]
    wrong = probabilities(theirs.predict(held_out, raw_score=True)).argmax(1) != given
    assert theirs.best_iteration_ < len(errors) < 60 and wrong.mean() == pytest.approx(min(errors))


@pytest.mark.filterwarnings("ignore:Failed to import numba")
@pytest.mark.parametrize("classes", [2, 4])
def test_examples_of_no_weight_are_not_learned(classes: int) -> None:
    rows, labels = (part[load_digits().target < classes] for part in load_digits(return_X_y=True))
    noisy = noisewise.corrupt(torch.from_numpy(labels), "symmetric(0.4)", num_classes=classes, seed=0).labels.numpy()
    weight, chosen = (noisy == labels).astype(float), objective("ce")
    for model in (
        xgboost.XGBClassifier(objective=chosen, n_estimators=10, max_depth=4, n_jobs=1),
        lightgbm.LGBMClassifier(objective=chosen, n_estimators=10, n_jobs=1, verbose=-1),
    ):
        raw = {"output_margin": True} if isinstance(model, xgboost.XGBClassifier) else {"raw_score": True}
        right = [
            (probabilities(model.fit(rows, noisy, sample_weight=each).predict(rows, **raw)).argmax(1) == labels).mean()
            for each in (weight, None)
        ]
        assert right[0] > 0.97 and right[0] > right[1] + 0.02


@pytest.mark.filterwarnings("ignore:Failed to import numba")
def test_catboost_learns_two_classes_and_several() -> None:
    for classes in (2, 3):
        rows, labels = digits()
        kept = labels < classes
        settings = {"iterations": 8, "depth": 3, "verbose": 0, "thread_count": 1, "allow_writing_files": False}
        metric = "Logloss" if classes == 2 else "MultiClass"
        model = catboost.CatBoostClassifier(loss_function=objective("gce(q=0.7)"), eval_metric=metric, **settings)
        scores = model.fit(rows[kept], labels[kept]).predict(rows[kept], prediction_type="RawFormulaVal")
        assert (probabilities(scores).argmax(1) == labels[kept]).mean() > 0.95


def test_a_hundred_classes_are_learned() -> None:
    generator = np.random.default_rng(0)
    labels = np.arange(1000) % 100
    rows = generator.normal(size=(1000, 6)) + 8 * generator.normal(size=(100, 6))[labels]
    model = xgboost.XGBClassifier(objective=objective("gce(q=0.7)"), n_estimators=15, max_depth=4, n_jobs=1).fit(rows, labels)
    assert (model.predict(rows, output_margin=True).argmax(1) == labels).mean() > 0.8


def test_the_rounds_are_recorded_and_audited(tmp_path: Path) -> None:
    rows, labels = digits()
    noisy = noisewise.corrupt(torch.from_numpy(labels), "symmetric(0.2)", num_classes=10, seed=0).labels.numpy()
    recorder = noisewise.Recorder(tmp_path / "run", noisy, loss="gce(q=0.7)", true_labels=labels, model="xgboost")
    xgboost.XGBClassifier(objective=objective("gce(q=0.7)", recorder=recorder), n_estimators=15, max_depth=3, n_jobs=1).fit(rows, noisy)
    run = recorder.finish()
    assert len(run.metrics) == 15
    wrong = noisy != labels
    doubtful = run.find_label_issues().order[: wrong.sum()]
    assert wrong[doubtful].mean() > 0.8


def test_what_cannot_be_boosted_is_refused() -> None:
    with refused("imae"):
        objective("imae(T=8, normalise='batch')")
    with refused("y_true", "2"):
        objective("ce")([0, 2], [[0.0, 1.0], [1.0, 0.0]])
    with refused("y_true", "0.5"):
        objective("ce")([0.5, 1.0], [0.0, 1.0])
