"""Classes that a run did not learn: they are named, and every class has its own accuracy."""

from __future__ import annotations

import warnings
from pathlib import Path

import numpy as np
import pytest
import torch
from sklearn.datasets import make_classification
from sklearn.metrics import balanced_accuracy_score, recall_score

from noisewise import fit
from noisewise.report._report import gather
from noisewise.train import Run, Unlearned
from refused import warned


@pytest.fixture(scope="module")
def rare() -> tuple[tuple[np.ndarray, np.ndarray], tuple[np.ndarray, np.ndarray]]:
    """A table with clean labels, 5 % of them of class 1, and a test table."""
    asked = {"n_informative": 6, "n_redundant": 2, "weights": [0.95], "flip_y": 0, "class_sep": 2}
    rows, labels = make_classification(3000, 12, random_state=0, **asked)
    rows = rows.astype(np.float32)
    return (rows[:2000], labels[:2000]), (rows[2000:], labels[2000:])


@pytest.fixture(scope="module")
def runs(rare, tmp_path_factory) -> dict[str, Run]:
    """A run that does not learn class 1, and one that does."""
    folder, trained = tmp_path_factory.mktemp("rare"), {}
    for name, loss in (("gce", "gce(q=0.7)"), ("imae", "imae(T=8)")):
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            asked = {"epochs": 20, "evaluate_every": 10, "validation": 0.2, "device": "cpu"}
            trained[name] = fit("mlp", rare[0], test=rare[1], loss=loss, folder=folder / name, **asked)
        unlearned = [warning for warning in caught if warning.category is Unlearned]
        assert len(unlearned) == (name == "gce"), "one warning, at the end of training"
        for warning in unlearned:
            assert all(mention in str(warning.message) for mention in ("gce(q=0.7)", "'1'", "1 of 2")) and warning.filename == __file__
    return trained


def test_a_class_that_is_never_predicted_is_named(runs) -> None:
    predicted = np.load(runs["gce"].path / "record/clean/predictions-00020.npy")
    assert not (predicted == 1).any(), "otherwise the test checks nothing"
    assert runs["gce"].unlearned == ("1",) and repr(runs["gce"]).endswith(" '1')")
    assert runs["imae"].unlearned == () and "'1'" not in repr(runs["imae"])
    assert runs["gce"].dynamics.summary()["unlearned"] == ["1"]


def test_a_finished_run_warns_again(rare, runs) -> None:
    run = runs["gce"]
    settings = {"epochs": 20, "evaluate_every": 10, "validation": 0.2, "device": "cpu", "loss": "gce(q=0.7)"}
    with warned("'1'", kind=Unlearned):
        fit("mlp", rare[0], test=rare[1], folder=run.path, **settings)


def test_balanced_accuracy_equals_that_of_scikit_learn(rare, runs) -> None:
    rows, labels = rare[1]
    for run in runs.values():
        predicted = run.predict(rows).argmax(1).numpy()
        line, summary = run.metrics[-1], run.dynamics.summary()
        assert line["test_balanced_accuracy"] == pytest.approx(balanced_accuracy_score(labels, predicted))
        assert summary["balanced"] == line["test_balanced_accuracy"]
        assert list(summary["class_accuracies"].values()) == pytest.approx(recall_score(labels, predicted, average=None).tolist())
        held_out = run.dynamics.class_accuracies("validation")
        assert line["validation_balanced_accuracy"] == pytest.approx(np.mean(list(held_out.values()))) and set(held_out) == {"0", "1"}
        assert run.dynamics.balanced.keys() == {10, 20}


def test_a_class_without_test_examples_is_left_out(tmp_path: Path) -> None:
    rows = torch.eye(3).repeat(10, 1)
    labels = torch.arange(30) % 3
    run = fit("linear", (rows, labels), test=(rows[labels < 2], labels[labels < 2]), epochs=1, folder=tmp_path, device="cpu")
    predicted = run.predict(rows[labels < 2]).argmax(1).numpy()
    expected = recall_score(labels[labels < 2], predicted, labels=[0, 1], average=None, zero_division=0)
    assert run.dynamics.class_accuracies() == pytest.approx(dict(zip("01", expected, strict=True)))
    assert run.metrics[0]["test_balanced_accuracy"] == pytest.approx(expected.mean())


def test_many_unlearned_classes_are_listed_in_short(tmp_path: Path) -> None:
    labels = np.repeat(np.arange(100), np.geomspace(100, 6, 100).astype(int))
    rng = np.random.default_rng(0)
    rows = (rng.normal(size=(100, 20)) * 2)[labels] + rng.normal(size=(len(labels), 20))
    with pytest.warns(Unlearned) as caught:
        run = fit("mlp", (rows.astype(np.float32), labels), loss="gce(q=0.7)", epochs=5, clean_pass=False, folder=tmp_path, device="cpu")
    predicted = np.load(tmp_path / "record/training/predictions-00005.npy")
    assert {str(label) for label in range(100) if label not in predicted} <= set(run.unlearned) and 50 < len(run.unlearned) < 100
    text = str(caught[0].message)
    assert f"{len(run.unlearned)} of 100" in text and len(text) < 400


def test_the_report_shows_the_worst_classes_first_and_balanced_accuracy(runs) -> None:
    facts = gather([run.path for run in runs.values()], title="t")
    warnings_shown = [sentence["text"] for sentence in facts["verdict"] if sentence["tone"] == "warning" and "'1'" in sentence["text"]]
    assert any("gce(q=0.7)" in text for text in warnings_shown) and not any(text.startswith("imae(T=8)") for text in warnings_shown)
    assert "balanced" in [measure["key"] for measure in facts["measures"]]
    table = facts["tasks"][0]["classes"]
    assert table["losses"] == ["gce(q=0.7)", "imae(T=8)"] and [row["name"] for row in table["rows"]] == ["1", "0"]
    given = np.load(runs["gce"].path / "labels/given.npy")
    assert [row["labels"] for row in table["rows"]] == [(given == 1).sum(), (given == 0).sum()]
    for place, run in enumerate(runs.values()):
        assert {row["name"]: row["accuracies"][place] for row in table["rows"]} == run.dynamics.class_accuracies()


def test_the_report_of_balanced_classes_has_no_balanced_accuracy(tmp_path: Path) -> None:
    run = fit("linear", "digits", epochs=3, folder=tmp_path / "run", device="cpu")
    facts = gather([run.path], title="t")
    assert "balanced" not in [measure["key"] for measure in facts["measures"]]
    accuracies = [row["accuracies"][0] for row in facts["tasks"][0]["classes"]["rows"]]
    assert accuracies == sorted(accuracies) and len(accuracies) == 10
