"""Losses that underfit many classes, and classes that a run did not learn."""

import json
import math

import numpy as np
import pytest
import torch
from sklearn.metrics import recall_score

import noisewise
from noisewise.dynamics import Dynamics, class_accuracies, underfitting, unlearned_classes
from refused import refused
from run_folders import write_run


def remedy(warning: str | None) -> str:
    """The loss that a warning recommends: its last words."""
    assert warning is not None
    return warning.rpartition(" use ")[2].removesuffix(".")


SEVERE = [("mae", 100), ("mae", 50), ("mae", 200), ("mae", 400), ("aul(a=3.0, q=0.7)", 100), ("agce(a=1.6, q=2.0)", 100)]
TRAINS = [
    *(("ce", 10), ("ce", 100), ("gce(q=0.3)", 10), ("gce(q=0.3)", 100), ("sce(alpha=0.3, beta=0.7, A=-1.0)", 100)),
    *(("mae", 10), ("aul(a=1.1, q=5.0)", 10), ("aul(a=1.1, q=5.0)", 100), ("agce(a=0.1, q=0.1)", 10), ("agce(a=0.1, q=0.1)", 100)),
    *(("aul(a=3.0, q=0.7)", 10), ("agce(a=1.6, q=2.0)", 10), ("nce", 10), ("10.0*nce + 1.0*mae", 100)),
    *(("scaled(mae, tau=2.0)", 50), ("scaled(mae, tau=2.0)", 100), ("shifted(mae, tau=2.0)", 100), ("scaled(mae, tau=1.6)", 400)),
    ("scaled(agce(a=1.6, q=2.0), tau=2.6)", 100),
]
OTHERS = [("aul(a=5.5, q=3.0)", 100), ("agce(a=0.6, q=0.6)", 100), ("nce", 100), ("truncated_gce(q=0.7)", 10), ("0.5*mae", 100)]


@pytest.mark.parametrize(("loss", "classes"), SEVERE + OTHERS)
def test_a_loss_that_underfits_is_named_with_a_loss_that_does_not(loss, classes):
    warning = underfitting(loss, classes)
    assert warning is not None
    assert "\n" not in warning
    assert repr(noisewise.get(loss)) in warning
    assert underfitting(remedy(warning), classes) is None


@pytest.mark.parametrize(
    ("loss", "classes"),
    [
        *TRAINS,
        ("gce(q=0.7)", 10),
        ("imae(T=8)", 10),
        ("imae(T=8)", 100),
        ("gr(beta=12.0, lam=0.5)", 100),
        ("gr(beta=16.0, normalise='batch')", 100),
        ("binary(mae)", 100),  # its margins are not those of classes
    ],
)
def test_a_loss_that_trains_gives_no_warning(loss, classes):
    assert underfitting(loss, classes) is None


def test_the_warning_recommends_a_curriculum():
    assert remedy(underfitting("mae", 100)) == "scaled(mae, tau=2.0)"
    assert remedy(underfitting("scaled(mae, tau=6.0)", 100)) == "scaled(mae, tau=2.0)"
    assert remedy(underfitting("mae(label_smoothing=0.1)", 100)) == "scaled(mae, tau=2.0, label_smoothing=0.1)"
    assert remedy(underfitting("nce", 100)) == "nce + scaled(mae, tau=2.0)"


def test_measured_margins_replace_simulated_ones():
    assert remedy(underfitting("mae", 10, margins=torch.full((8,), -7.0))) == "scaled(mae, tau=2.0, expected=-7.0)"
    assert underfitting("mae", 100, margins=np.array([-0.5, 0.5, np.nan])) is None
    assert underfitting("mae", 100, margins=[9.0]) is None  # learned: cross-entropy has a small emphasis too
    assert "expected=-" in underfitting("mae", 100, std=2.0)
    with refused("margins", "finite"):
        underfitting("mae", 100, margins=[math.nan])
    with refused("classes", 1):
        underfitting("mae", 1)


def test_the_warning_gives_the_mean_emphasis_as_a_share_of_the_largest():
    margins = torch.linspace(-7, -3, 50, dtype=torch.float64)
    share = float((margins.sigmoid() * (1 - margins.sigmoid())).mean()) / 0.25
    assert f"{100 * share:.0f} %" in underfitting("mae", 100, margins=margins)


@pytest.mark.parametrize("std", [1.0, 3.0])
def test_a_loss_that_is_not_a_function_of_the_margin_is_judged_at_scores_of_the_given_deviation(std):
    scores = (std * torch.randn(20_000, 20, dtype=torch.float64)).requires_grad_()
    costs = -scores.log_softmax(1)
    pulls = [
        torch.autograd.grad(value.sum(), scores, retain_graph=True)[0].abs().sum() for value in (costs[:, 0] / costs.sum(1), costs[:, 0])
    ]
    share = float(pulls[0] / pulls[1])
    assert abs(share - 0.01) > 0.001, "too near the threshold to test anything"
    assert (underfitting("nce", 20, std=std) is not None) == (share < 0.01)


def test_a_negative_loss_is_judged_without_an_error():
    assert underfitting("-1*ce", 10) is None
    warning = underfitting("mae + -0.5*ce", 10)
    assert "1.0*mae + -0.5*ce" in warning and " 0 %" in warning


@pytest.mark.parametrize(
    ("given", "predicted", "expected"),
    [
        ([0] * 95 + [1] * 5, [0] * 100, [1]),
        ([0] * 96 + [1] * 4, [0] * 100, []),  # too few labels to decide
        ([0] * 50 + [1] * 50, [0] * 95 + [1] * 5, []),  # a tenth as often as it is labelled
        ([0] * 50 + [1] * 50, [0] * 96 + [1] * 4, [1]),
        ([0] * 50 + [1] * 50, [0] * 50 + [-1] * 50, []),  # class 1 was not seen
    ],
)
def test_a_class_predicted_far_less_often_than_it_is_labelled_is_unlearned(given, predicted, expected):
    assert unlearned_classes(np.array(given), np.array(predicted), 3).tolist() == expected


def test_unlearned_classes_belong_to_the_epoch_whose_model_is_kept(tmp_path):
    given = np.array([0] * 20 + [1] * 10 + [2] * 10)
    everything, nothing, margins = given, np.zeros(40, dtype=int), np.zeros(40)
    epochs = [(1, margins, everything), (2, margins, nothing)]
    folder = write_run(tmp_path / "run", given, training=epochs, metrics=[{"epoch": 1}, {"epoch": 2}])
    run = Dynamics(folder)
    assert run.unlearned == ("class 1", "class 2") and run.summary()["unlearned"] == ["class 1", "class 2"]
    status = json.loads((folder / "status.json").read_text())
    (folder / "status.json").write_text(json.dumps(status | {"kept": 1}))
    assert Dynamics(folder).unlearned == ()


def test_class_accuracies_equal_the_recalls_of_scikit_learn():
    rng = np.random.default_rng(0)
    labels, predicted = rng.integers(0, 4, 50), rng.integers(0, 5, 50)
    accuracies = class_accuracies(labels, predicted, 5)
    np.testing.assert_allclose(accuracies[:4], recall_score(labels, predicted, labels=range(4), average=None))
    assert math.isnan(accuracies[4]), "it has no examples"
