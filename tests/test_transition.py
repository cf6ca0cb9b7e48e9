"""Estimates of the noise, compared with the truth, a slow transcription of the paper, and cleanlab."""

from __future__ import annotations

from functools import partial

import numpy as np
import pytest
import torch
from sklearn.datasets import load_digits
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import confusion_matrix
from sklearn.model_selection import cross_val_predict

import noisewise
from noisewise import Recorder, margin
from noisewise.audit import find_label_issues
from noisewise.data import from_arrays
from noisewise.kernels import loss_and_gradient
from noisewise.noise import Corruption, corrupt
from noisewise.transition import anchor_points, as_probabilities, confident_joint, counted, dual_t, noise_rate
from refused import refused

T = torch.tensor([[0.7, 0.2, 0.1], [0.0, 0.9, 0.1], [0.3, 0.1, 0.6]], dtype=torch.float64)


@pytest.fixture(scope="module", params=["symmetric(0.3)", "class_map(0.4, mnist)"])
def predicted(request) -> tuple[Corruption, np.ndarray]:
    """Digits with known noise, and out-of-sample probabilities of a model trained on the noisy labels."""
    data = load_digits()
    noisy = corrupt(data.target, request.param)
    model = LogisticRegression(C=0.1, max_iter=500, tol=1e-3)
    return noisy, cross_val_predict(model, data.data / 16, noisy.labels.numpy(), cv=4, method="predict_proba")


def distance(first: torch.Tensor, second: torch.Tensor) -> float:
    """How much of a row's probability is in the wrong place, on average over rows."""
    return float((first - second).abs().sum(1).mean() / 2)


def test_counted_is_the_normalised_confusion_matrix():
    true, given = torch.arange(500) % 4, torch.arange(500) * 7 % 5 % 4
    expected = confusion_matrix(true, given, normalize="true", labels=range(4))
    np.testing.assert_allclose(counted(true, given, 4), expected)


def test_counted_gives_an_absent_class_the_identity_row():
    assert counted([0, 0], [1, 1], 3).tolist() == [[0, 1, 0], [0, 1, 0], [0, 0, 1]]


def test_anchor_points_recover_the_matrix_from_exact_probabilities():
    true_posterior = torch.distributions.Dirichlet(torch.full((3,), 0.3)).sample((400,)).double()
    true_posterior[[10, 200, 399]] = torch.eye(3, dtype=torch.float64)
    torch.testing.assert_close(anchor_points(true_posterior @ T), T)


def test_anchor_points_at_a_quantile_ignore_outliers():
    probabilities = torch.eye(3, dtype=torch.float64)[torch.arange(300) % 3] @ T
    probabilities[[0, 1, 2]] = torch.eye(3, dtype=torch.float64)
    assert torch.equal(anchor_points(probabilities), torch.eye(3, dtype=torch.float64))
    torch.testing.assert_close(anchor_points(probabilities, quantile=0.97), T)


@pytest.mark.parametrize("quantile", [0.01, 0.3, 0.5, 0.995, 1.0])
def test_the_probability_of_an_anchor_point_equals_the_quantile_of_numpy(quantile):
    probabilities = torch.distributions.Dirichlet(torch.ones(3, dtype=torch.float64)).sample((101,))
    expected = np.quantile(probabilities.numpy(), quantile, axis=0, method="lower")
    np.testing.assert_allclose(anchor_points(probabilities, quantile=quantile).diagonal(), expected, rtol=1e-14)


def test_dual_t_recovers_the_matrix_from_an_overconfident_model_that_is_right():
    true = torch.arange(3000) % 3
    noisy = corrupt(true, f"matrix({tuple(map(tuple, T.tolist()))})")
    overconfident = torch.eye(3)[true]
    assert torch.equal(anchor_points(overconfident), torch.eye(3, dtype=torch.float64))
    torch.testing.assert_close(dual_t(noisy.labels, overconfident), noisy.realised)


def test_dual_t_adds_the_noise_twice_to_calibrated_probabilities():
    true = torch.arange(3000) % 3
    noisy = corrupt(true, f"matrix({tuple(map(tuple, T.tolist()))})")
    calibrated = torch.eye(3, dtype=torch.float64)[true] @ T
    torch.testing.assert_close(dual_t(noisy.labels, calibrated), T @ noisy.realised)


def test_anchor_points_find_the_noise_a_calibrated_model_was_trained_on(predicted):
    noisy, probabilities = predicted
    assert distance(anchor_points(probabilities), noisy.realised) < min(0.17, 0.85 * distance(torch.eye(10), noisy.realised))


def test_dual_t_finds_the_noise_that_overconfidence_hides_from_anchor_points(predicted):
    noisy, probabilities = predicted
    sharpened = torch.softmax(12 * torch.from_numpy(probabilities).log(), 1)
    nothing_found = distance(torch.eye(10), noisy.realised)
    assert distance(anchor_points(sharpened), noisy.realised) > 0.95 * nothing_found
    assert distance(dual_t(noisy.labels, sharpened), noisy.realised) < 0.65 * nothing_found


def test_the_confident_joint_finds_the_noise_a_model_was_trained_on(predicted):
    noisy, probabilities = predicted
    joint = confident_joint(noisy.labels, probabilities)
    assert distance(joint / joint.sum(1, keepdim=True), noisy.realised) < 0.06
    assert abs(noise_rate(noisy.labels, probabilities) - noisy.rate) < 0.03


def test_the_confident_joint_keeps_the_shares_of_the_given_labels(predicted):
    noisy, probabilities = predicted
    joint = confident_joint(noisy.labels, probabilities)
    torch.testing.assert_close(joint.sum(0), torch.bincount(noisy.labels).double() / len(noisy.labels))
    assert noise_rate(noisy.labels, probabilities) == pytest.approx(1 - float(joint.diagonal().sum()))


def test_the_confident_joint_follows_the_paper(predicted):
    noisy, probabilities = predicted
    labels = noisy.labels.numpy()
    thresholds = [np.mean([p[c] for p, label in zip(probabilities, labels, strict=True) if label == c]) for c in range(10)]
    table = np.zeros((10, 10))
    for p, label in zip(probabilities, labels, strict=True):
        confident = [c for c in range(10) if p[c] >= thresholds[c]]
        if confident:
            table[max(confident, key=lambda c, p=p: p[c]), label] += 1
    expected = table / table.sum(0) * np.bincount(labels) / len(labels)
    np.testing.assert_allclose(confident_joint(labels, probabilities), expected, rtol=1e-12)


def test_the_confident_joint_equals_that_of_cleanlab(predicted):
    count = pytest.importorskip("cleanlab.count", reason="needs cleanlab")
    noisy, probabilities = predicted
    labels = noisy.labels.numpy()
    theirs = count.estimate_joint(labels, probabilities)
    # cleanlab rounds the joint to whole examples.
    np.testing.assert_allclose(confident_joint(labels, probabilities).T, theirs, atol=1 / len(labels))
    assert noise_rate(labels, probabilities) == pytest.approx(1 - np.trace(theirs), abs=10 / len(labels))


def test_labels_of_a_class_without_confident_examples_count_as_right():
    joint = confident_joint([0, 0, 1], [[0.9, 0.1], [0.9, 0.1], [0.9, 0.1]])
    torch.testing.assert_close(joint, torch.tensor([[2 / 3, 1 / 6], [0, 1 / 6]], dtype=torch.float64))


def test_equal_probabilities_are_not_below_their_rounded_mean():
    sure = [0.8, 0.2]  # the mean of three of them is rounded above 0.8
    joint = confident_joint([0, 0, 0, 1, 1, 1], [sure, sure, sure, sure, [0.1, 0.9], [0.1, 0.9]])
    torch.testing.assert_close(joint, torch.tensor([[1 / 2, 1 / 6], [0, 1 / 3]], dtype=torch.float64))


@pytest.mark.parametrize(
    ("call", "mentions"),
    [
        (lambda: anchor_points([0.5, 0.5]), ("(examples, classes)", "(2,)")),
        (lambda: anchor_points([[0.5, 0.5], [1.0]]), ("'probabilities'", "anchor_points", "(examples, classes)")),
        (lambda: anchor_points([[0.5, 0.6]]), ("rows", "sum", [0.5, 0.6])),
        (lambda: anchor_points([[1.5, -0.5]]), ("zero", [1.5, -0.5])),
        (lambda: anchor_points([[0.5, 0.5], *[[np.nan, 0.5]] * 99]), ("zero", "row 1", "[nan, 0.5]")),
        (lambda: anchor_points([[0.5, 0.5]], quantile=0), ("'quantile'", "(0, 1]", 0)),
        (lambda: dual_t([0, 2], [[0.5, 0.5], [0.5, 0.5]]), ("labels", "dual_t", "0 to 1", 2)),
        (lambda: dual_t([0], [[0.5, 0.5], [0.5, 0.5]]), ("labels", "2 rows", "1 label")),
        (lambda: confident_joint([[0.5, 0.5]], [0]), ("'probabilities'", "confident_joint", "(examples, classes)")),
        (lambda: noise_rate([0, 0], [[0.5, 0.5], [0.5, 0.5]]), ("'labels'", "confident_joint", "class 1")),
        (lambda: counted([0, 1], [0], 2), ("2 true labels", 1)),
        (lambda: counted([0, 2], [0, 0], 2), ("true labels", "counted", "0 to 1", 2)),
    ],
)
def test_bad_input_is_refused(call, mentions):
    with refused(*mentions):
        call()


FRACTIONS = {
    "corrupt": lambda labels, _: corrupt(labels, "symmetric(0.4)", num_classes=2),
    "counted": lambda labels, _: counted([0, 1], labels, 2),
    "find_label_issues": lambda labels, _: find_label_issues(labels, [[0.5, 0.5]] * 2),
    "find_label_issues with classes": lambda labels, _: find_label_issues(labels, [[0.5, 0.5]] * 2, classes=["a", "b"]),
    "from_arrays": lambda labels, _: from_arrays(torch.zeros(2, 3), labels),
    "Recorder": lambda labels, folder: Recorder(folder / "run", labels, loss="ce"),
}


@pytest.mark.parametrize("call", FRACTIONS.values(), ids=FRACTIONS)
@pytest.mark.parametrize("kind", [list, np.array, torch.tensor])
def test_labels_with_fractions_are_refused(call, kind, tmp_path):
    with refused(1.5):
        call(kind([0.0, 1.5]), tmp_path)


@pytest.mark.parametrize("call", [noisewise.get("gce"), margin, partial(loss_and_gradient, "ce")], ids=["loss", "margin", "pass"])
def test_losses_refuse_labels_with_fractions(call):
    with refused("integers"):
        call(torch.zeros(2, 3), torch.tensor([0.5, 1.5]))


def test_probabilities_are_normalised_in_a_single_copy(monkeypatch):
    copies, array = [], np.array
    monkeypatch.setattr(np, "array", lambda *args, **options: copies.append(array(*args, **options)) or copies[-1])
    given = array([[0.5, 0.5004], [0.25, 0.75]])
    probabilities = as_probabilities(given, owner="dual_t")
    assert np.shares_memory(probabilities.numpy(), copies[0]) and probabilities[0].sum() == 1
    assert torch.equal(as_probabilities(torch.from_numpy(given), owner="dual_t"), probabilities) and given[0, 1] == 0.5004
