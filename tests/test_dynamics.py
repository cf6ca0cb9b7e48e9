"""What is computed from the record of a run, checked on run folders with known answers."""

from __future__ import annotations

import itertools
import json
import math

import numpy as np
import pytest
import torch

import noisewise
from noisewise import curriculum, losses
from noisewise.dynamics import Dynamics
from refused import refused
from run_folders import NAN, TINY, write_run


@pytest.fixture
def tiny(tmp_path):
    return Dynamics(write_run(tmp_path / "run", **TINY))


def test_best_and_final_are_the_test_accuracies_over_the_run_and_at_its_end(tiny):
    assert (tiny.best, tiny.best_epoch, tiny.final) == (0.8, 2, 0.7)
    assert tiny.test == {2: 0.8, 3: 0.7}
    assert tiny.held_out == {3: 0.55}


def test_the_first_of_equally_good_epochs_is_the_best(tmp_path):
    metrics = [{"epoch": epoch, "test_accuracy": accuracy} for epoch, accuracy in ((1, 0.5), (2, 0.8), (3, 0.8), (4, 0.6))]
    assert Dynamics(write_run(tmp_path / "run", [0], metrics=metrics)).best_epoch == 2


def test_finding_the_best_epoch_reads_the_metrics_once(tmp_path, monkeypatch):
    reads, metric = [], Dynamics._metric
    monkeypatch.setattr(Dynamics, "_metric", lambda run, name: reads.append(name) or metric(run, name))
    metrics = [{"epoch": epoch, "test_accuracy": epoch % 7 / 7} for epoch in range(1, 50)]
    assert Dynamics(write_run(tmp_path / "run", [0], metrics=metrics)).best_epoch == 6
    assert reads == ["test_accuracy"]


def test_snr_is_missing_while_noisy_labels_have_no_emphasis(tmp_path):
    sums = ({"clean": {"pull": 0.2, "eta": 0.4}, "noisy": {"pull": pull, "eta": 0.2}} for pull in (0.0, 0.1))
    metrics = [{"epoch": epoch, "emphasis": emphasis} for epoch, emphasis in enumerate(sums, 1)]
    run = Dynamics(write_run(tmp_path / "run", [0], metrics=metrics))
    assert run.snr == {2: pytest.approx((0.4 / 0.8) / (0.1 / 0.4))}


def test_subset_accuracies_equal_those_computed_by_hand(tiny):
    assert tiny.measured_on == "training"
    assert tiny.fitting == {1: 1 / 3, 2: 2 / 4, 3: 3 / 4}
    assert tiny.clean_subset == {1: 1 / 2, 2: 2 / 3, 3: 2 / 3}
    assert tiny.noisy_subset == {1: 0.0, 2: 0.0, 3: 1.0}
    assert tiny.true_label_accuracy == {1: 2 / 3, 2: 3 / 4, 3: 2 / 4}
    assert tiny.hybrid == pytest.approx({2: (8 + 3) / 14, 3: (7 + 2) / 14})


def test_the_clean_record_is_preferred_and_only_its_epochs_are_evaluated(tmp_path):
    clean = [(2, [1.0] * 4, [0, 1, 2, 1])]
    run = Dynamics(write_run(tmp_path / "run", **TINY, clean=clean))
    assert run.measured_on == "clean"
    assert run.clean_subset == {2: 1.0}
    assert run.noisy_subset == {2: 0.0}
    assert run.true_label_accuracy == {2: 1.0}
    assert run.hybrid == pytest.approx({2: 12 / 14})
    assert run.first_fit.tolist() == [1, 2, 3, 3]  # still from the training steps


@pytest.mark.parametrize(
    ("test", "clean", "hybrid"),
    [(0.913, 1.0, 0.985), (0.892, 0.958, 0.947), (0.914, 0.998, 0.984), (0.922, 1.0, 0.987), (0.890, 0.961, 0.949), (0.922, 0.998, 0.985)],
)
def test_hybrid_accuracy_on_clean_labels_equals_the_table_of_the_imae_paper(tmp_path, test, clean, hybrid):
    """Table 6, noise rate 0: 10,000 test images and 50,000 training images, here a fiftieth of both."""
    labels = np.zeros(1000, dtype=int)
    predictions = (np.arange(1000) >= round(1000 * clean)).astype(int)
    metrics = [{"epoch": 1, "test_accuracy": test}]
    run = write_run(tmp_path / "run", labels, labels, clean=[(1, labels, predictions)], metrics=metrics, test_examples=200)
    assert Dynamics(run).hybrid[1] == pytest.approx(hybrid, abs=7e-4)
    assert Dynamics(run).noisy_subset == {}


def test_alpha_and_snr_equal_those_computed_by_hand(tiny):
    assert tiny.alpha == pytest.approx({1: 2 * 0.5 / 0.6, 2: 2 * 1.1 / 1.4, 3: 2 * 1.2 / 1.6})
    assert tiny.snr == pytest.approx({1: (0.2 / 0.4) / (0.3 / 0.2), 2: (0.7 / 1.0) / (0.4 / 0.4), 3: (0.8 / 1.1) / (0.4 / 0.5)})
    assert tiny.mean_emphasis == {1: 0.9, 3: 0.4}


def test_alpha_and_snr_equal_the_sums_over_steps_in_the_papers(tmp_path):
    """Every step has its own learning rate and batch. The sums go over steps, as the papers print them, not over epochs."""
    rng = np.random.default_rng(0)
    wrong = rng.random(30) < 0.4
    metrics, steps = [], []
    for epoch in (1, 2, 3):
        sums = {name: {"pull": 0.0, "eta": 0.0} for name in ("clean", "noisy")}
        for batch in rng.permutation(30).reshape(6, 5):
            rate = rng.uniform(0.01, 0.1)
            scores = torch.from_numpy(rng.normal(size=(5, 3)))
            norms = noisewise.emphasis(losses.IMAE(T=8), scores, torch.zeros(5, dtype=torch.int64), norm="l1").numpy()
            steps.append((rate, wrong[batch], norms))
            for name, members in (("clean", ~wrong[batch]), ("noisy", wrong[batch])):
                sums[name]["pull"] += rate * norms[members].sum() / 2
                sums[name]["eta"] += rate * members.sum()
        metrics.append({"epoch": epoch, "emphasis": sums})
    run = Dynamics(write_run(tmp_path / "run", [0] * 30, wrong.astype(int), metrics=metrics))
    for epoch in (1, 2, 3):
        past = steps[: 6 * epoch]
        alpha = sum(rate * norm for rate, _, norms in past for norm in norms) / sum(rate * len(norms) for rate, _, norms in past)
        means = []
        for side in (False, True):
            rows = [(rate, norm / 2) for rate, flags, norms in past for flag, norm in zip(flags, norms, strict=True) if flag == side]
            means.append(sum(rate * weight for rate, weight in rows) / sum(rate for rate, _ in rows))
        assert run.alpha[epoch] == pytest.approx(alpha, rel=1e-12)
        assert run.snr[epoch] == pytest.approx(means[0] / means[1], rel=1e-12)


def test_epochs_in_which_an_example_was_not_seen_are_skipped(tmp_path):
    training = [
        (1, [1, NAN, -1, 2], [0, -1, 1, 0]),
        (2, [NAN, 1, 1, -2], [-1, 0, 0, 1]),  # the first example was right in epoch 1; not being seen is not forgetting
        (3, [-3, -1, -1, 2], [1, 1, 1, 0]),
        (5, [1, -3, 3, -4], [0, 1, 0, 1]),
    ]
    run = Dynamics(write_run(tmp_path / "run", [0, 0, 0, 0], training=training))
    assert run.forgetting.tolist() == [1, 1, 1, 2]
    assert run.first_fit.tolist() == [1, 2, 2, 1]
    assert run.area_under_margin.tolist() == [-1 / 3, -1.0, 0.5, -0.5]


def test_unseen_examples_have_no_area_and_unfitted_ones_have_no_epoch(tmp_path):
    run = Dynamics(write_run(tmp_path / "run", [0, 0, 0], training=[(1, [NAN, -1, 1], [-1, 1, 0]), (2, [NAN, -2, -1], [-1, 1, 1])]))
    assert run.first_fit.tolist() == [-1, -1, 1]
    assert math.isnan(run.area_under_margin[0])
    assert run.area_under_margin[1:].tolist() == [-1.5, 0.0]
    assert run.fitting == {1: 0.5, 2: 0.0}
    assert run.summary()["never_fit"] == run.summary()["mean_forgetting"] == 0.5  # of the two that were seen


def test_an_infinite_margin_counts_as_the_largest_half_precision_number(tmp_path):
    run = Dynamics(write_run(tmp_path / "run", [0, 0], training=[(1, [np.inf, -np.inf], [0, 1])]))
    assert run.area_under_margin.tolist() == [65504.0, -65504.0]
    assert run.margin_histograms([-1, 0, 1]).counts["all"].tolist() == [[1, 1]]


@pytest.fixture(scope="module")
def random_run(tmp_path_factory):
    rng = np.random.default_rng(1)
    number, epochs = 400, 6
    true = rng.integers(4, size=number)
    labels = np.where(rng.random(number) < 0.3, rng.integers(4, size=number), true)
    training = []
    for epoch in range(1, epochs + 1):
        seen = rng.random(number) < 0.9
        margins = np.where(seen, rng.normal(epoch - 3, 2, size=number), np.nan).astype(np.float16)
        training.append((epoch, margins, np.where(seen, rng.integers(4, size=number), -1)))
    folder = tmp_path_factory.mktemp("random") / "run"
    write_run(folder, labels, true, training=training, classes=4, loss="gce(q=0.7)", epochs=epochs)
    return folder, labels, true, training


def test_histories_and_accuracies_equal_loops_over_single_examples(random_run):
    folder, labels, true, training = random_run
    run = Dynamics(folder)
    for example in range(len(labels)):
        past = [(epoch, float(margins[example]), predictions[example]) for epoch, margins, predictions in training]
        seen = [(epoch, margin, prediction == labels[example]) for epoch, margin, prediction in past if prediction >= 0]
        forgotten = sum(before[2] and not after[2] for before, after in itertools.pairwise(seen))
        assert run.forgetting[example] == forgotten
        assert run.first_fit[example] == next((epoch for epoch, _, right in seen if right), -1)
        assert run.area_under_margin[example] == pytest.approx(np.mean([margin for _, margin, _ in seen]))
    for epoch, _, predictions in training:
        rows = [(label, truth, prediction) for label, truth, prediction in zip(labels, true, predictions, strict=True) if prediction >= 0]
        assert run.fitting[epoch] == np.mean([label == prediction for label, _, prediction in rows])
        assert run.true_label_accuracy[epoch] == np.mean([truth == prediction for _, truth, prediction in rows])
        assert run.clean_subset[epoch] == np.mean([label == prediction for label, truth, prediction in rows if label == truth])
        assert run.noisy_subset[epoch] == np.mean([label == prediction for label, truth, prediction in rows if label != truth])


@pytest.mark.parametrize("bins", [7, [-4.0, -1.0, 0.0, 0.5, 3.0]])
def test_histograms_equal_those_of_numpy_and_count_every_margin(random_run, bins):
    folder, labels, true, training = random_run
    histograms = Dynamics(folder).margin_histograms(bins)
    assert histograms.epochs == (1, 2, 3, 4, 5, 6)
    everything = np.concatenate([margins[~np.isnan(margins)] for _, margins, _ in training]).astype(np.float64)
    expected_edges = np.linspace(everything.min(), everything.max(), 8) if bins == 7 else np.array(bins)
    assert histograms.edges.tolist() == expected_edges.tolist()
    for group, members in (("clean", labels == true), ("noisy", labels != true)):
        for row, (_, margins, _) in zip(histograms.counts[group], training, strict=True):
            kept = margins[members & ~np.isnan(margins)].astype(np.float64)
            inside = np.clip(kept, expected_edges[0], expected_edges[-1])
            assert row.tolist() == np.histogram(inside, expected_edges)[0].tolist()
            assert row.sum() == len(kept)


def test_invalid_bins_are_refused(tiny):
    for bins in (0, [1.0], [1.0, 1.0], [2.0, 1.0]):
        with refused("bins", "margin_histograms", bins):
            tiny.margin_histograms(bins)


def variances_by_hand(training, loss):
    variances = {}
    for epoch, margins, _ in training:
        kept = torch.from_numpy(np.asarray(margins, dtype=np.float16)[~np.isnan(margins)].astype(np.float64))
        variances[epoch] = float(loss.emphasis(kept).var(correction=0))
    return variances


def test_spread_is_the_variance_of_the_emphasis_of_the_recorded_margins(random_run):
    folder, _, _, training = random_run
    run = Dynamics(folder)
    assert run.spread == pytest.approx(variances_by_hand(training, losses.GCE(q=0.7)), rel=1e-9)
    assert run.focus == dict.fromkeys(range(1, 7), curriculum.focus("gce(q=0.7)"))


def test_spread_and_focus_follow_a_schedule_and_a_curriculum(tmp_path, random_run):
    _, labels, true, training = random_run
    scheduled = Dynamics(
        write_run(tmp_path / "a", labels, true, training=training, classes=4, loss="scheduled(gce, 'q', 0.2, 0.7)", epochs=6)
    )
    for epoch in range(1, 7):
        loss = losses.GCE(q=0.2 + 0.5 * (epoch - 1) / 5)
        assert scheduled.spread[epoch] == pytest.approx(variances_by_hand(training, loss)[epoch], rel=1e-9)
        assert scheduled.focus[epoch] == pytest.approx(loss.q / (1 + loss.q), abs=1e-6)
    scaled = Dynamics(write_run(tmp_path / "b", labels, true, training=training, classes=4, loss="scaled(mae, 2.0)", epochs=6))
    assert scaled.spread == pytest.approx(variances_by_hand(training, curriculum.Scaled("mae", 2.0, classes=4)), rel=1e-9)
    by_steps = Dynamics(
        write_run(
            tmp_path / "c",
            labels,
            training=training,
            classes=4,
            loss="scheduled(gce, 'q', 0.2, 0.7)",
            epochs=None,
            steps=26,
            batch_size=100,  # 400 examples: 4 steps an epoch, the seventh epoch is cut short
        )
    )
    assert by_steps.focus[4] == pytest.approx(0.45 / 1.45, abs=1e-6)
    settings = {"loss": "scheduled(gce, 'q', 0.2, 0.7)", "epochs": None, "steps": 21, "batch_size": 133}
    remainder = Dynamics(write_run(tmp_path / "d", labels, training=training, classes=4, **settings))  # 3 steps an epoch, seven epochs
    assert remainder.focus[4] == pytest.approx(0.45 / 1.45, abs=1e-6)


@pytest.mark.parametrize("factor", [1.0, 0.5])
def test_spread_of_a_loss_normalised_over_the_batch_is_relative_to_its_mean(tmp_path, random_run, factor):
    _, labels, _, training = random_run
    loss = f"{factor}*gr(beta=4.0, lam=1.0, normalise='batch')"
    run = Dynamics(write_run(tmp_path / "run", labels, training=training, classes=4, loss=loss))
    assert run.focus[1] == curriculum.focus(loss) == pytest.approx(curriculum.focus("gr(beta=4.0, lam=1.0)"), abs=1e-6)
    for epoch, margins, _ in training:
        pulls = losses.GR(beta=4.0, lam=1.0).emphasis(torch.from_numpy(margins[~np.isnan(margins)].astype(np.float64)))
        assert run.spread[epoch] == pytest.approx(factor**2 * float((pulls / pulls.mean()).var(correction=0)), rel=1e-9)


@pytest.mark.parametrize("loss", ["nce", "ce(label_smoothing=0.1)", "0.3*nce + 0.7*mae"])
def test_a_loss_that_is_not_a_function_of_the_margin_has_neither_spread_nor_focus(tmp_path, loss):
    run = Dynamics(write_run(tmp_path / "run", **TINY, loss=loss))
    assert run.spread == run.focus == {}


def test_the_focus_of_a_scheduled_loss_does_not_need_the_provenance(tmp_path):
    run = Dynamics(write_run(tmp_path / "run", **TINY, loss="scheduled(gce, 'q', 0.2, 0.7)"))
    (tmp_path / "run/provenance.json").unlink()
    assert run.focus[1] < run.focus[3]


def test_diff_is_the_accuracy_that_the_noise_cost(tmp_path, tiny):
    clean = write_run(tmp_path / "clean", [0, 1], [0, 1], metrics=[{"epoch": 1, "test_accuracy": 0.9}], loss="imae(T=8.0)")
    assert tiny.diff(clean) == tiny.diff(Dynamics(clean)) == pytest.approx(-0.2)
    with refused("clean labels"):
        tiny.diff(tiny)
    with refused("loss", "imae(T=8", "ce"):
        tiny.diff(write_run(tmp_path / "other", [0, 1], loss="ce"))
    assert tiny.diff(write_run(tmp_path / "untested", [0, 1])) is None


def test_without_true_labels_the_measures_that_need_them_are_empty(tmp_path):
    metrics = [{"epoch": 1, "emphasis": {"all": {"pull": 0.6, "eta": 0.4}}, "test_accuracy": 0.5}]
    run = Dynamics(write_run(tmp_path / "run", TINY["labels"], training=TINY["training"], metrics=metrics))
    assert run.record.true is None
    assert run.record.wrong is None
    assert run.clean_subset == run.noisy_subset == run.true_label_accuracy == run.hybrid == run.snr == {}
    assert run.fitting[3] == 3 / 4
    assert run.alpha == pytest.approx({1: 3.0})
    assert list(run.margin_histograms(4).counts) == ["all"]
    summary = run.summary()
    assert summary["noise_rate"] is None
    assert 0 < summary["estimated_noise_rate"] < 1


def test_a_run_without_a_finished_epoch_has_no_numbers_yet(tmp_path):
    run = Dynamics(write_run(tmp_path / "run", [0, 1], [0, 0], state="running"))
    assert run.record.metrics == ()
    assert run.record.epochs() == run.record.epochs("clean") == ()
    assert run.best is run.best_epoch is run.final is run.estimate is None
    summary = run.summary()
    assert summary["state"] == "running"
    assert summary["epochs"] == 0
    assert {name for name, value in summary.items() if value is not None} == {
        *("data", "model", "loss", "noise", "seed", "state", "epochs", "measured_on", "noise_rate")
    }
    assert run.margin_histograms(3).counts["noisy"].shape == (0, 3)


def test_an_unfinished_run_is_read_up_to_its_last_complete_epoch(tmp_path):
    folder = write_run(tmp_path / "run", **TINY, state="interrupted")
    (folder / "record/training/predictions-00003.npy").unlink()
    (folder / "record/training/.margins-00004.npy.part").write_bytes(b"half")
    run = Dynamics(folder)
    assert run.record.epochs() == (1, 2)
    assert run.first_fit.tolist() == [1, 2, -1, -1]


def test_the_summary_is_plain_json_and_complete(tiny):
    summary = tiny.summary()
    assert json.loads(json.dumps(summary, allow_nan=False)) == summary
    assert summary["loss"] == "imae(T=8)"
    assert summary["final"] == 0.7
    assert summary["clean_subset"] == 2 / 3
    assert summary["alpha"] == pytest.approx(1.5)
    assert (summary["first_mean_emphasis"], summary["mean_emphasis"]) == (0.9, 0.4)
    assert summary["mean_forgetting"] == 0.25
    assert summary["noise_rate"] == 0.25


def test_metrics_are_sorted_by_epoch_and_the_last_line_of_an_epoch_counts(tmp_path):
    metrics = [{"epoch": 2, "test_accuracy": 0.2}, {"epoch": 1, "test_accuracy": 0.1}, {"epoch": 2, "test_accuracy": 0.3}]
    run = Dynamics(write_run(tmp_path / "run", [0], metrics=metrics))
    assert list(run.test.items()) == [(1, 0.1), (2, 0.3)] and len(run.record.metrics) == 2


def test_margin_quantiles_equal_those_of_numpy_over_all_epochs(random_run):
    folder, _, _, training = random_run
    seen = np.concatenate([margins[~np.isnan(margins)] for _, margins, _ in training]).astype(np.float64)
    shares = [0.0, 0.001, 0.25, 0.5, 0.999, 1.0]
    np.testing.assert_array_equal(Dynamics(folder).margin_quantiles(shares), np.quantile(seen, shares, method="inverted_cdf"))


def test_quantiles_without_margins_are_nan(tmp_path):
    run = Dynamics(write_run(tmp_path / "run", [0, 1]))
    assert np.isnan(run.margin_quantiles([0.5])).all()


def test_quantiles_outside_0_to_1_are_refused(tiny):
    with refused("shares", "margin_quantiles", 99.9):
        tiny.margin_quantiles([99.9])


def test_the_emphasis_curve_is_that_of_the_loss_in_that_epoch(tmp_path, random_run):
    _, labels, _, training = random_run
    options = {"training": training, "classes": 4, "epochs": 6}
    margins = np.linspace(-8, 8, 33)
    p = 1 / (1 + np.exp(-margins))
    run = Dynamics(write_run(tmp_path / "scheduled", labels, loss="scheduled(imae(saturation=0), 'T', 0.0, 10.0)", **options))
    for epoch, strength in ((1, 0.0), (4, 6.0), (6, 10.0), (2, 2.0)):
        np.testing.assert_allclose(run.emphasis_curve(epoch, margins), np.exp(strength * p * (1 - p)) / 2, rtol=1e-9)
    with refused("1 to 6", 7):
        run.emphasis_curve(7, margins)
    assert Dynamics(write_run(tmp_path / "nce", labels, loss="nce", **options)).emphasis_curve(1, margins) is None


@pytest.mark.parametrize("factor", [1.0, 0.25])
def test_the_mean_of_an_emphasis_curve_normalised_over_the_batch_is_its_factor(tmp_path, random_run, factor):
    _, labels, _, training = random_run
    loss = f"{factor}*gr(beta=4.0, lam=1.0, normalise='batch')"
    run = Dynamics(write_run(tmp_path / "run", labels, training=training, classes=4, loss=loss))
    for epoch, margins, _ in training:
        assert run.emphasis_curve(epoch, margins[~np.isnan(margins)].astype(np.float64)).mean() == pytest.approx(factor, rel=1e-9)


def test_an_example_of_no_class_is_wrong_and_has_no_true_label(tmp_path):
    run = Dynamics(write_run(tmp_path / "run", **{**TINY, "true": [0, 1, 2, -1]}))
    assert run.record.wrong.tolist() == [False, False, False, True]
    assert run.noisy_subset == {1: 0.0, 2: 0.0, 3: 1.0}
    assert run.true_label_accuracy == {1: 0.5, 2: 2 / 3, 3: 2 / 3}, "over the seen examples that have a true label"
