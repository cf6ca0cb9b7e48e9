"""cleanlab's Datalab on the record of one run, without cross-validation, and its findings as corrections."""

from __future__ import annotations

import runpy
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from sklearn.model_selection import cross_val_predict

import noisewise
from noisewise.audit import add_evidence, run_probabilities
from noisewise.correct import correct
from noisewise.integrations import cleanlab
from noisewise.integrations.cleanlab import Datalab, from_datalab, to_datalab
from noisewise.integrations.sklearn import RobustClassifier
from noisewise.train import Run
from refused import refused


def only_labels() -> dict[str, dict[str, object]]:
    """What to look for; Datalab writes into it."""
    return {"label": {}}


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    """A run with cross-entropy, which memorises most of the wrong labels."""
    settings = {"noise": "symmetric(0.3, flips='exact')", "loss": "ce", "epochs": 40, "batch_size": 32, "device": "cpu", "validation": 0.1}
    return noisewise.fit("mlp", "digits", folder=tmp_path_factory.mktemp("run") / "run", **settings)


def found(issues: np.ndarray, wrong: np.ndarray) -> tuple[float, float]:
    """Recall and precision."""
    return float(issues[wrong].mean()), float(wrong[issues].mean())


def test_datalab_finds_the_wrong_labels_that_the_final_model_memorised(run: Run) -> None:
    record = run.dynamics.record
    wrong = record.wrong
    assert wrong is not None and (record.predictions(40) == record.given)[wrong].mean() > 0.5
    issues = to_datalab(run, issue_types=only_labels()).get_issues("label").is_label_issue.to_numpy()
    recall, precision = found(issues, wrong)
    assert recall > 0.8 and precision > 0.9, (recall, precision)


def test_datalab_is_right_more_often_from_one_run_than_from_cross_validation(run: Run) -> None:
    data = noisewise.data.load("digits")
    record = run.dynamics.record
    wrong, rows = record.wrong, data.inputs.flatten(1).numpy()[run.find_label_issues().index]
    assert wrong is not None
    ours = found(to_datalab(run, issue_types=only_labels()).get_issues("label").is_label_issue.to_numpy(), wrong)
    classifier = RobustClassifier(loss="ce", epochs=40, batch_size=32, calibrate=False, random_state=0, device="cpu")
    held_out = cross_val_predict(classifier, rows, record.given, method="predict_proba", cv=3)
    lab = Datalab({"label": record.given.tolist()}, label_name="label", verbosity=0)
    lab.find_issues(pred_probs=held_out, issue_types=only_labels())
    theirs = found(lab.get_issues("label").is_label_issue.to_numpy(), wrong)
    assert ours[0] > 0.8 and ours[1] > theirs[1] + 0.2, (ours, theirs)


def test_probabilities_of_a_record_are_the_weighted_mean_of_its_epochs(tmp_path: Path) -> None:
    labels = torch.tensor([0, 1, 2, 0])
    with noisewise.Recorder(tmp_path / "run", labels, loss="ce") as recorder:
        scores = torch.tensor([[2.0, 0.0, 0.0], [3.0, 0.0, 1.0], [0.0, 0.0, 1.0]])
        recorder.log([0, 1, 2], scores)  # example 3 is not seen; example 1 is predicted as 0
        run = recorder.finish()
    p = scores.softmax(1).gather(1, labels[:3, None]).flatten().tolist()
    expected = [
        [p[0], (1 - p[0]) / 2, (1 - p[0]) / 2],
        [1 - p[1], p[1], 0],
        [(1 - p[2]) / 2, (1 - p[2]) / 2, p[2]],
        [1 / 3, 1 / 3, 1 / 3],
    ]
    np.testing.assert_allclose(run_probabilities(run), expected, atol=1e-3)


def test_evidence_from_features_is_preferred_to_the_record(run: Run, tmp_path: Path) -> None:
    generator = np.random.default_rng(0)
    rows = generator.normal(size=(200, 3))
    labels = (rows[:, 0] > 0).astype(int)
    with noisewise.Recorder(tmp_path / "run", labels, loss="ce") as recorder:
        recorder.log(torch.arange(200), torch.zeros(200, 2))
        other = recorder.finish()
    before = run_probabilities(other)
    add_evidence(other, rows)
    after = run_probabilities(other)
    assert (before.argmax(1) == labels).mean() < 0.7 < 0.9 < (after.argmax(1) == labels).mean()
    np.testing.assert_allclose(after.sum(1), 1)


def test_what_datalab_finds_corrects_the_labels(run: Run) -> None:
    lab = to_datalab(run, issue_types=only_labels())
    corrected = correct(run, decisions=from_datalab(lab))
    record = run.dynamics.record
    assert record.true is not None and (record.given != record.true).mean() > 0.2 > 0.1 > (corrected.labels != record.true).mean()
    doubted = lab.get_issues("label").is_label_issue.to_numpy()
    assert (corrected.changed <= doubted).all() and corrected.changed.sum() > 0.9 * doubted.sum()


def test_features_find_other_issues_too_in_the_order_of_the_record(tmp_path: Path) -> None:
    generator = np.random.default_rng(0)
    rows = generator.normal(size=(150, 4)) + 6 * np.eye(3, 4)[np.arange(150) % 3]
    rows[7], rows[20] = 100, rows[50]
    names = np.array(["a", "b", "c"])[np.arange(150) % 3]
    run = noisewise.fit("linear", (rows.astype(np.float32), names), folder=tmp_path / "run", epochs=8, loss="ce", device="cpu")
    lab = to_datalab(run, features=rows)
    assert lab.get_issues("outlier").is_outlier_issue[7]
    assert lab.get_issues("near_duplicate").near_duplicate_sets[20].tolist() == [50]
    np.testing.assert_allclose(lab.data["mean_margin"], run.dynamics.area_under_margin)
    assert lab.class_names == ["a", "b", "c"] and lab.data["id"][:3] == ["0", "1", "2"]


def test_findings_in_your_own_datalab_are_taken_by_row(tmp_path: Path) -> None:
    lab = Datalab({"label": ["cat", "dog"] * 50}, label_name="label", verbosity=0)
    probabilities = np.tile([[0.95, 0.05], [0.05, 0.95]], (50, 1))
    probabilities[4] = [0.02, 0.98]
    lab.find_issues(pred_probs=probabilities, issue_types=only_labels())
    (decision,) = from_datalab(lab).items()
    assert decision[0] == 4 and (decision[1].action, decision[1].label, decision[1].given) == ("relabel", "dog", "cat")


def test_without_cleanlab_the_command_to_install_it_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "cleanlab", None)
    with refused("pip install 'noisewise[cleanlab]'"):
        runpy.run_path(cleanlab.__file__)
