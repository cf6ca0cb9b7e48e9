"""The scikit-learn classifier: it passes scikit-learn's own checks, and works with its tools."""

from __future__ import annotations

import pickle
from functools import partial
from pathlib import Path
from typing import Any

import joblib
import numpy as np
import pytest
import torch
from joblib.externals.loky import get_reusable_executor
from scipy.sparse import csr_array
from scipy.special import softmax
from sklearn.base import clone
from sklearn.datasets import load_breast_cancer, load_digits, load_iris, make_classification
from sklearn.ensemble import RandomForestClassifier
from sklearn.exceptions import ConvergenceWarning, NotFittedError
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import log_loss, recall_score
from sklearn.model_selection import GridSearchCV, StratifiedKFold, cross_val_predict, cross_val_score
from sklearn.neural_network import MLPClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import estimator_checks_generator
from torch import nn

import noisewise
from default_dtype import default_dtype
from noisewise.audit import find_label_issues
from noisewise.data import Dataset
from noisewise.integrations.sklearn import RobustClassifier, _held_out
from noisewise.train import Unlearned
from refused import refused, warned

_RANDOM = {  # one row of weight 2 and two rows get other random numbers, as in scikit-learn's own forests and networks
    "check_sample_weight_equivalence_on_dense_data",
    "check_sample_weight_equivalence_on_sparse_data",
}
_LEFT_OUT = {"check_array_api_input"}  # needs an environment variable that scipy reads when it is imported
_OF_NETWORKS = {"check_methods_subset_invariance"}  # demands 1e-7, but float32 sums vary with the number of rows; see a test below
_LEARNING = {"check_classifiers_train", "check_classifiers_classes"}  # check how well it predicts
_network = partial(RobustClassifier, "mlp")


def _checks(classifier: RobustClassifier, left_out: set[str]) -> list[Any]:
    return [check for _, check in estimator_checks_generator(classifier) if check.func.__name__ not in _RANDOM | _LEFT_OUT | left_out]


@pytest.mark.parametrize("check", _checks(RobustClassifier(), set()), ids=lambda check: check.func.__name__)
def test_the_classifier_passes_the_checks_of_scikit_learn(check: Any) -> None:
    check(RobustClassifier())


@pytest.mark.parametrize("check", _checks(_network(), _OF_NETWORKS), ids=lambda check: check.func.__name__)
def test_a_network_passes_the_checks_of_scikit_learn(check: Any) -> None:
    check(_network(epochs=15 if check.func.__name__ in _LEARNING else 2))


@pytest.fixture(scope="module")
def digits() -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Rows, labels, and the same labels with 40 % of them wrong."""
    rows, labels = load_digits(return_X_y=True)
    noisy = noisewise.corrupt(torch.from_numpy(labels), "symmetric(0.4, flips='exact')", num_classes=10, seed=0).labels.numpy()
    return rows, labels, noisy


def test_with_noisy_labels_it_is_better_than_the_network_of_scikit_learn(digits: tuple[np.ndarray, np.ndarray, np.ndarray]) -> None:
    rows, labels, noisy = digits
    train = np.arange(len(rows)) % 3 != 0
    ours = _network(random_state=0).fit(rows[train], noisy[train])
    theirs = make_pipeline(StandardScaler(), MLPClassifier((128,), random_state=0, max_iter=40, learning_rate_init=0.01, tol=0))
    with pytest.warns(ConvergenceWarning):
        theirs.fit(rows[train], noisy[train])
    accuracies = [classifier.score(rows[~train], labels[~train]) for classifier in (ours, theirs)]
    assert accuracies[0] > 0.85 > accuracies[1] + 0.15, accuracies


def test_predicting_single_rows_gives_the_same_as_predicting_all(digits: tuple[np.ndarray, np.ndarray, np.ndarray]) -> None:
    rows, _, noisy = digits
    ours = _network(epochs=2, random_state=0).fit(rows, noisy)
    single = np.concatenate([ours.decision_function(rows[[number]]) for number in range(20)])
    np.testing.assert_allclose(single, ours.decision_function(rows[:20]), rtol=1e-4, atol=1e-5)
    np.testing.assert_array_equal(ours.predict(rows), ours.decision_function(rows).argmax(1))


@pytest.mark.parametrize(("calibrate", "held_out"), [(True, 20 / 150), (False, 0.0)])
def test_the_same_seed_gives_the_same_model_as_fit(calibrate: bool, held_out: float, tmp_path: Path) -> None:
    rows, labels = load_iris(return_X_y=True)
    settings = {"loss": "ce", "epochs": 3, "batch_size": 16}
    run = noisewise.fit("mlp(hidden=(8,))", (rows, labels), **settings, seed=7, validation=held_out, folder=tmp_path / "run")
    ours = RobustClassifier("mlp(hidden=(8,))", **settings, random_state=7, calibrate=calibrate).fit(rows, labels)
    assert ours.temperature_ == run.temperature and (run.temperature == 1) is not calibrate
    np.testing.assert_allclose(ours.predict_proba(rows), run.predict(rows).numpy(), rtol=1e-5)
    again = clone(ours).fit(rows, labels)
    np.testing.assert_array_equal(again.predict_proba(rows), ours.predict_proba(rows))
    other = RobustClassifier("mlp(hidden=(8,))", "ce", epochs=3, batch_size=16).fit(rows, labels)
    assert not np.allclose(other.predict_proba(rows), ours.predict_proba(rows)), "without a seed, the network differs"


@pytest.mark.parametrize("processes", [1, pytest.param(2, marks=pytest.mark.slow)])
def test_a_grid_search_chooses_the_robust_loss(digits: tuple[np.ndarray, np.ndarray, np.ndarray], processes: int) -> None:
    rows, _, noisy = digits
    classifier = RobustClassifier(epochs=15, calibrate=False, random_state=0)
    search = GridSearchCV(classifier, {"loss": ["ce", "gce(q=0.7)"]}, cv=StratifiedKFold(2), n_jobs=processes, refit=False)
    try:
        search.fit(rows, noisy)
    finally:
        get_reusable_executor().shutdown()  # otherwise its processes keep waiting for work
    assert search.best_params_ == {"loss": "gce(q=0.7)"}, search.cv_results_["mean_test_score"]
    assert not list(Path().glob("runs")), "no folder is left behind"


def test_cross_validated_probabilities_find_the_wrong_labels(digits: tuple[np.ndarray, np.ndarray, np.ndarray]) -> None:
    rows, labels, noisy = digits
    ours = RobustClassifier(loss="gce(q=0.7)", epochs=20, calibrate=False, random_state=0)
    probabilities = cross_val_predict(ours, rows, noisy, method="predict_proba", cv=3)
    wrong, doubtful = noisy != labels, find_label_issues(noisy, probabilities).is_label_issue
    assert wrong[doubtful].mean() > 0.8 and doubtful[wrong].mean() > 0.9


def test_with_a_folder_the_run_is_kept_and_can_be_audited(digits: tuple[np.ndarray, np.ndarray, np.ndarray], tmp_path: Path) -> None:
    rows, labels, noisy = digits
    names = np.array([f"digit {number}" for number in range(10)])
    ours = _network(epochs=10, calibrate=False, random_state=0, folder=tmp_path / "run").fit(rows, names[noisy])
    assert ours.run_.classes == tuple(names) and len(ours.run_.metrics) == 10
    issues = ours.run_.find_label_issues()
    assert (noisy != labels)[issues.is_issue].mean() > 0.9
    with refused(tmp_path / "run"):
        clone(ours).fit(rows[:100], names[noisy[:100]])


def test_with_a_folder_the_default_keeps_a_network_and_its_own_evidence(
    digits: tuple[np.ndarray, np.ndarray, np.ndarray], tmp_path: Path
) -> None:
    rows, labels, noisy = (part[:600] for part in digits)
    ours = RobustClassifier(epochs=3, folder=tmp_path / "run").fit(rows, noisy)
    issues, wrong = ours.run_.find_label_issues(), noisy != labels
    assert len(issues) == 600 and issues.model is not None, "the evidence judges all rows"
    np.testing.assert_allclose(1 - issues.quality, ours.ensemble_.noise.chance, atol=1e-3)
    assert wrong[issues.is_issue].mean() > 0.9 and issues.is_issue[wrong].mean() > 0.9, "three epochs of a network find far fewer"
    without = RobustClassifier(random_state=0).fit(rows, noisy)
    np.testing.assert_array_equal(ours.predict_proba(rows), without.predict_proba(rows), "the run does not change the classifier")


@pytest.mark.parametrize("model", ["auto", "mlp"])
def test_fitting_again_into_a_folder_needs_no_seed_and_returns_the_run(model: str, tmp_path: Path) -> None:
    rows, labels = load_iris(return_X_y=True)
    ours = RobustClassifier(model, epochs=2, folder=tmp_path / "run").fit(rows, labels)
    written = (tmp_path / "run" / "model.safetensors").stat().st_mtime_ns
    again = clone(ours).fit(rows, labels)
    np.testing.assert_array_equal(again.predict_proba(rows), ours.predict_proba(rows))
    assert (tmp_path / "run" / "model.safetensors").stat().st_mtime_ns == written
    with refused(tmp_path / "run", "other data"):
        clone(ours).fit(rows + 1, labels)


@pytest.mark.parametrize("model", ["auto", "mlp"])
def test_rows_without_weight_are_left_out(model: str) -> None:
    rows, labels = load_iris(return_X_y=True)
    kept = np.arange(150) % 3 != 0
    ours = RobustClassifier(model, epochs=2, random_state=0)
    weighted = ours.fit(rows, labels, sample_weight=kept.astype(float)).predict_proba(rows)
    np.testing.assert_allclose(weighted, clone(ours).fit(rows[kept], labels[kept]).predict_proba(rows), atol=1e-6)


def test_a_row_of_weight_three_trains_a_network_like_three_rows(tmp_path: Path) -> None:
    rows, labels = (torch.tensor(part) for part in load_iris(return_X_y=True))
    rows = rows.float()
    weights = torch.randint(1, 4, (150,), generator=torch.Generator().manual_seed(0))
    settings = {"loss": "gce(q=0.7)", "epochs": 60, "batch_size": 1000, "normalise": False, "clip": 0.5}

    def trained(name: str, chosen: torch.Tensor, sample_weight: torch.Tensor | None = None) -> torch.Tensor:
        data = Dataset(rows[chosen], labels[chosen], ("a", "b", "c"), sample_weight=sample_weight)
        run = noisewise.fit("linear", data, folder=tmp_path / name, **settings)
        return run.predict(rows)

    repeated = trained("repeated", torch.arange(150).repeat_interleave(weights))
    weighted = trained("weighted", torch.arange(150), weights.double() / weights.double().mean())
    torch.testing.assert_close(weighted, repeated, atol=1e-4, rtol=0)
    assert (trained("plain", torch.arange(150)) - repeated).abs().max() > 1e-3
    with refused(tmp_path / "weighted", "other data"):
        trained("weighted", torch.arange(150))


@pytest.mark.parametrize("model", ["auto", "mlp"])
def test_weights_of_classes_are_the_same_as_weights_of_their_rows(model: str, rare: tuple[np.ndarray, ...]) -> None:
    rows, labels, others, true = (part[:700] for part in rare)
    ours = RobustClassifier(model, epochs=5, random_state=0)
    balanced = clone(ours).set_params(class_weight="balanced").fit(rows, labels)
    counts = np.bincount(labels)
    by_row = clone(ours).fit(rows, labels, sample_weight=(len(labels) / (2 * counts))[labels])
    np.testing.assert_allclose(balanced.predict_proba(others), by_row.predict_proba(others), atol=1e-6)
    by_class = clone(ours).set_params(class_weight={0: 1.0, 1: counts[0] / counts[1]}).fit(rows, labels)
    np.testing.assert_allclose(balanced.predict_proba(others), by_class.predict_proba(others), atol=1e-3)
    plain = clone(ours).fit(rows, labels)
    assert recall_score(true, balanced.predict(others)) >= recall_score(true, plain.predict(others))
    assert balanced.predict_proba(others)[:, 1].mean() > 1.2 * plain.predict_proba(others)[:, 1].mean()


@pytest.mark.parametrize("model", ["auto", "mlp"])
def test_sparse_rows_give_the_same_as_dense_rows(model: str) -> None:
    rows, labels = load_iris(return_X_y=True)
    rows[rows < 2] = 0
    ours = RobustClassifier(model, epochs=2, random_state=0)
    dense = clone(ours).fit(rows, labels).predict_proba(rows)
    sparse = csr_array(rows)
    np.testing.assert_array_equal(ours.fit(sparse, labels).predict_proba(sparse), dense)


def test_the_probabilities_of_the_default_are_calibrated_for_the_true_classes() -> None:
    rows, labels = make_classification(3000, 12, n_informative=6, n_redundant=0, n_classes=3, flip_y=0, class_sep=1.5, random_state=0)
    given = noisewise.corrupt(torch.from_numpy(labels), "symmetric(0.3, flips='exact')", num_classes=3, seed=0).labels.numpy()
    ours = RobustClassifier(random_state=0).fit(rows[:1500], given[:1500])
    forest = RandomForestClassifier(random_state=0).fit(rows[:1500], given[:1500])
    chances, true = ours.predict_proba(rows[1500:]), labels[1500:]
    assert log_loss(true, chances) < 0.8 * log_loss(true, forest.predict_proba(rows[1500:]))
    assert ours.score(rows[1500:], true) > forest.score(rows[1500:], true) + 0.01
    unsure = [abs(table.max(1).mean() - (table.argmax(1) == true).mean()) for table in (chances, forest.predict_proba(rows[1500:]))]
    assert unsure[0] < min(0.08, unsure[1] / 3), "nearly as sure as it is right"
    assert abs(ours.ensemble_.noise.rate - 0.3) < 0.05


def test_a_progress_bar_is_shown_on_request(capsys: pytest.CaptureFixture[str]) -> None:
    rows, labels = load_iris(return_X_y=True)
    for model in ("auto", "mlp"):
        RobustClassifier(model, epochs=1, random_state=0, verbose=1).fit(rows, labels)
        shown = capsys.readouterr()
        assert "100%" in shown.err and not shown.out
        RobustClassifier(model, epochs=1, random_state=0).fit(rows, labels)
        assert capsys.readouterr() == ("", "")


_LABELS = ([3, 1, 10], ["b", "a", "c"], [True, False], [0.0, 2.0, -1.0], ["01", "1", "1.0"])


@pytest.mark.parametrize("labels", [np.array(labels) for labels in _LABELS], ids=str)
def test_predictions_have_the_type_of_the_labels(labels: np.ndarray) -> None:
    rows = np.eye(len(labels)).repeat(10, axis=0)
    given = labels.repeat(10)
    ours = RobustClassifier(epochs=10, random_state=0).fit(rows, given)
    assert ours.classes_.dtype == labels.dtype
    np.testing.assert_array_equal(ours.classes_, np.unique(labels))
    np.testing.assert_array_equal(ours.predict(rows), given)
    np.testing.assert_array_equal(ours.classes_[ours.predict_proba(rows).argmax(1)], given)


def test_a_table_with_other_columns_is_refused() -> None:
    table = load_iris(as_frame=True)
    ours = RobustClassifier(epochs=2, random_state=0).fit(table.data, table.target)
    rows = table.data.to_numpy()
    assert list(ours.feature_names_in_) == list(table.data.columns)
    with pytest.raises(ValueError) as caught:
        ours.predict(table.data.rename(columns={"petal width (cm)": "petal width"}))
    assert "petal width (cm)" in str(caught.value)
    with pytest.raises(ValueError) as caught:
        ours.fit(rows, table.target).predict(rows[:, :3])
    assert "3 features" in str(caught.value) and "4 features" in str(caught.value)


def test_a_custom_module_is_copied() -> None:
    rows, labels = load_iris(return_X_y=True)
    module = nn.Sequential(nn.Linear(4, 16), nn.Tanh(), nn.Linear(16, 3))
    before = [parameter.clone() for parameter in module.parameters()]
    ours = RobustClassifier(module, random_state=0).fit(rows, labels)
    assert ours.score(rows, labels) > 0.9
    assert all(torch.equal(a, b) for a, b in zip(before, module.parameters(), strict=True))
    assert cross_val_score(RobustClassifier(module, random_state=0), rows, labels, cv=2).mean() > 0.9


@pytest.mark.parametrize("repeats", [1, pytest.param(4, marks=pytest.mark.slow)])
def test_training_in_threads_gives_the_same_as_training_alone(repeats: int) -> None:
    rows, labels = load_iris(return_X_y=True)
    ours, folds = _network(epochs=2, random_state=0), StratifiedKFold(6)
    alone = cross_val_predict(ours, rows, labels, cv=folds, method="predict_proba")
    for _ in range(repeats):
        with joblib.parallel_config(backend="threading"):
            np.testing.assert_array_equal(cross_val_predict(ours, rows, labels, cv=folds, method="predict_proba", n_jobs=4), alone)


def test_the_random_state_and_default_type_of_the_caller_do_not_change() -> None:
    rows, labels = load_iris(return_X_y=True)
    state, ours = torch.get_rng_state(), _network(epochs=2, random_state=0)
    expected = ours.fit(rows, labels).predict_proba(rows)
    assert torch.equal(torch.get_rng_state(), state)
    with default_dtype(torch.float64):
        np.testing.assert_array_equal(ours.fit(rows, labels).predict_proba(rows), expected)


@pytest.mark.parametrize("arranged", [lambda rows: rows[::-1], lambda rows: rows[:, ::-1], lambda rows: np.asfortranarray(rows)])
def test_rows_may_have_any_memory_layout(arranged: Any) -> None:
    rows, labels = load_iris(return_X_y=True)
    given = arranged(rows.astype(np.float32))
    given.setflags(write=False)
    plain = _network(epochs=2, random_state=0).fit(np.array(given), labels)
    np.testing.assert_array_equal(_network(epochs=2, random_state=0).fit(given, labels).predict_proba(given), plain.predict_proba(given))


def test_columns_far_from_zero_keep_their_differences() -> None:
    seconds = np.random.default_rng(0).uniform(0, 60, (400, 2))
    labels = seconds[:, 0] > 30
    now = seconds + np.array([1.7e9, 0])
    ours = RobustClassifier(epochs=20, random_state=0).fit(now, labels)
    assert ours.score(now, labels) > 0.95 and ours.offset_[1] == 0
    assert ours.predict(now[:1]) == labels[:1], "a single row"


def test_numbers_too_large_for_float32_are_refused() -> None:
    rows, labels = load_iris(return_X_y=True)
    ours = _network(epochs=2, random_state=0).fit(rows, labels)
    rows[3, 2] = 1e39
    for call in (lambda: ours.predict(rows), lambda: ours.fit(rows, labels)):
        with refused("Row 3", "column 2", "inf", "finite"):
            call()


def test_after_failed_training_it_is_not_fitted() -> None:
    rows, labels = load_iris(return_X_y=True)
    ours = _network(epochs=2, random_state=0).fit(rows, labels)
    with refused("gse"):
        ours.set_params(loss="gse").fit(rows[:, :2], labels)
    with pytest.raises(NotFittedError):
        ours.predict(rows)


def test_a_pickled_classifier_predicts_the_same() -> None:
    rows, labels = load_iris(return_X_y=True)
    ours = _network(epochs=3, random_state=0).fit(rows, labels)
    again = pickle.loads(pickle.dumps(ours))
    np.testing.assert_array_equal(again.predict_proba(rows), ours.predict_proba(rows))


def test_a_linear_model_with_cross_entropy_equals_logistic_regression() -> None:
    rows, labels = load_iris(return_X_y=True)
    scaled = StandardScaler().fit_transform(rows)
    scaled = np.column_stack([scaled, np.ones(len(rows))])  # weight decay is on the bias too
    theirs = LogisticRegression(C=1 / (len(rows) * 1e-2), fit_intercept=False, tol=1e-8).fit(scaled, labels)
    steps = {"epochs": 300, "batch_size": 150, "optimiser": "sgd(lr=0.5, momentum=0.9)", "random_state": 0}
    ours = RobustClassifier("linear", "ce", weight_decay=1e-2, calibrate=False, **steps)
    np.testing.assert_allclose(ours.fit(rows, labels).predict_proba(rows), theirs.predict_proba(scaled), atol=1e-4)


@pytest.fixture(scope="module")
def rare() -> tuple[np.ndarray, ...]:
    """Rows and clean labels to train on, 5 % of them of class 1, and others to test on."""
    options = {"n_informative": 6, "n_redundant": 2, "weights": [0.95], "flip_y": 0, "class_sep": 2}
    rows, labels = make_classification(3000, 12, random_state=0, **options)
    return rows[:2000], labels[:2000], rows[2000:], labels[2000:]


def test_a_rare_class_is_learned_by_default_and_an_unlearned_class_is_named(rare: tuple[np.ndarray, ...]) -> None:
    rows, labels, others, true = rare
    ours = _network(epochs=20, random_state=0).fit(rows, labels)
    assert recall_score(true, ours.predict(others)) > 0.7
    with warned("gce(q=0.7)", "'1'", kind=Unlearned):
        without = _network(loss="gce(q=0.7)", epochs=20, random_state=0).fit(rows, labels)
    assert recall_score(true, without.predict(others)) == 0


@pytest.mark.filterwarnings("ignore::noisewise.train.Unlearned")  # one epoch learns no rare class
def test_the_folder_has_the_evidence_also_if_the_network_was_trained_again(rare: tuple[np.ndarray, ...], tmp_path: Path) -> None:
    ours = RobustClassifier(epochs=1, folder=tmp_path / "run").fit(rare[0][:400], rare[1][:400])
    assert ours.run_.path == tmp_path / "run-again"
    np.testing.assert_array_equal(noisewise.audit(tmp_path / "run").quality, ours.run_.find_label_issues().quality)


def test_most_of_a_few_rare_examples_are_learned() -> None:
    rows, labels = load_breast_cancer(return_X_y=True)
    kept = np.concatenate([np.flatnonzero(labels == 1), np.flatnonzero(labels == 0)[:19]])
    ours = _network(random_state=0).fit(rows[kept], labels[kept])
    assert (ours.predict(rows[kept])[-19:] == 0).sum() > 14


@pytest.mark.parametrize("noise", [0, 0.4])
def test_calibration_lowers_the_log_loss_and_keeps_the_predictions(noise: float) -> None:
    rows, labels = make_classification(1200, 12, n_informative=5, n_redundant=0, n_classes=3, flip_y=0, random_state=0)
    given = labels[:600]
    if noise:
        given = noisewise.corrupt(torch.from_numpy(given), f"symmetric({noise})", num_classes=3, seed=0).labels.numpy()
    ours = _network(epochs=30, random_state=0).fit(rows[:600], given)
    plain = clone(ours).set_params(calibrate=False).fit(rows[:600], given)
    losses = [log_loss(labels[600:], classifier.predict_proba(rows[600:])) for classifier in (ours, plain)]
    assert losses[0] < 0.75 * losses[1], losses
    scores = ours.decision_function(rows[600:])
    np.testing.assert_array_equal(ours.predict_proba(rows[600:]).argmax(1), scores.argmax(1))
    np.testing.assert_allclose(ours.predict_proba(rows[600:]), softmax(scores / ours.temperature_, axis=1), rtol=1e-6)


@pytest.mark.parametrize(("rows", "held_out"), [(24, 0), (25, 5), (150, 20), (1000, 100)])
def test_a_tenth_of_the_rows_is_held_out_for_calibration_but_at_least_five(rows: int, held_out: int) -> None:
    assert round(_held_out(rows) * rows) == held_out


@pytest.mark.parametrize(
    ("settings", "mentions"),
    [
        ({"loss": "gse"}, ("'gse'", "'sce'")),
        ({"model": "mpl"}, ("'mpl'", "'mlp'")),
        ({"epochs": 0}, ("'epochs'", 0)),
        ({"epochs": None}, ("epochs=None", "steps=None")),
        ({"folder": ""}, ("empty",)),
        ({"random_state": -1}, ("'seed'", -1)),
    ],
)
def test_a_wrong_setting_is_refused(settings: dict[str, Any], mentions: tuple[object, ...]) -> None:
    rows, labels = load_iris(return_X_y=True)
    with refused(*mentions):
        RobustClassifier(**{"model": "mlp", **settings}).fit(rows, labels)


def test_labels_of_a_single_class_are_refused() -> None:
    with refused("two classes", "'a'"):
        RobustClassifier().fit([[0.0], [1.0]], ["a", "a"])
    with refused("two classes", "'b'"):
        RobustClassifier().fit([[0.0], [1.0]], ["a", "b"], sample_weight=[0, 1])


def test_a_frame_of_any_columns_is_encoded(tmp_path: Path) -> None:
    pandas = pytest.importorskip("pandas")
    draw = np.random.default_rng(0)
    labels = draw.integers(0, 2, 400)
    frame = pandas.DataFrame(
        {
            "colour": np.where(draw.random(400) < 0.9, labels, 1 - labels).astype(str).astype(object),
            "size": np.where(draw.random(400) < 0.1, np.nan, draw.normal(size=400) + labels),
            "day": pandas.Timestamp("2024-01-01") + pandas.to_timedelta(draw.integers(0, 300, 400), "D"),
        }
    )
    frame["colour"] = frame["colour"].map({"0": "red", "1": "blue"})
    classifier = _network(random_state=0, epochs=15, folder=tmp_path / "run").fit(frame[:300], labels[:300])
    assert [column.kind for column in classifier.encoding_.columns] == ["category", "number", "date"]
    assert classifier.score(frame[300:], labels[300:]) > 0.85
    assert np.array_equal(classifier.predict(frame[300:]), pickle.loads(pickle.dumps(classifier)).predict(frame[300:]))
    np.testing.assert_allclose(classifier.predict_proba(frame), classifier.run_.predict(frame).numpy(), atol=1e-6)
    with pytest.raises(ValueError) as caught:
        classifier.predict(frame.rename(columns={"size": "length"}))
    assert "length" in str(caught.value) and "size" in str(caught.value)
    with pytest.raises(ValueError) as caught:
        classifier.fit(frame, labels[:300])
    assert "400" in str(caught.value) and "300" in str(caught.value)
    numbers = _network(random_state=0, epochs=2).fit(frame[["size"]].fillna(0), labels)
    assert numbers.encoding_ is None and numbers.offset_.tolist() == [0]
