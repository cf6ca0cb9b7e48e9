"""The record and what is read off it, on run folders with known answers written here; the estimate against scikit-learn."""

from __future__ import annotations

import itertools
import json
import math
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.metrics import recall_score
from sklearn.mixture import GaussianMixture

import noisewise
from costs import with_peak
from noisewise import InputError, curriculum, losses
from noisewise.dynamics import Dynamics, Record, class_accuracies, split_estimate, underfitting, unlearned_classes
from noisewise.dynamics._estimate import _grouped

ASKED = {
    "format": 1,
    "data": "tiny",
    "model": "mlp",
    "loss": "imae(T=8)",
    "noise": "symmetric(0.4)",
    "seed": 0,
    "epochs": 3,
    "batch_size": 2,
}


def write_run(
    folder: Path,
    labels,
    true=None,
    *,
    training=(),
    clean=(),
    metrics=(),
    classes=3,
    state="finished",
    test_examples=10,
    **asked,
) -> Path:
    """A run folder. `training` and `clean` hold (epoch, margins, predictions)."""
    folder.mkdir(parents=True)
    for name, content in {
        "settings": ASKED | asked,
        "provenance": {"noisewise": "0.1.0", "data": {"test": {"examples": test_examples}}},
        "classes": [f"class {number}" for number in range(classes)],
        "status": {"state": state, "reason": None, "epoch": len(metrics), "step": 0},
    }.items():
        (folder / f"{name}.json").write_text(json.dumps(content))
    (folder / "labels").mkdir()
    np.save(folder / "labels/given.npy", np.asarray(labels, dtype=np.int64))
    if true is not None:
        np.save(folder / "labels/true.npy", np.asarray(true, dtype=np.int64))
    for of, epochs in (("training", training), ("clean", clean)):
        for epoch, margins, predictions in epochs:
            (folder / "record" / of).mkdir(parents=True, exist_ok=True)
            np.save(folder / f"record/{of}/margins-{epoch:05d}.npy", np.asarray(margins, dtype=np.float16))
            np.save(folder / f"record/{of}/predictions-{epoch:05d}.npy", np.asarray(predictions, dtype=np.int32))
    if metrics:
        (folder / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in metrics))
    return folder


NAN = math.nan
TINY = {
    "labels": [0, 1, 2, 0],
    "true": [0, 1, 2, 1],  # the last label is wrong
    "training": [
        (1, [1.0, -1.0, NAN, -3.0], [0, 0, -1, 1]),  # a partial epoch: the third example was not seen
        (2, [2.0, 1.0, -2.0, -1.0], [0, 1, 0, 1]),
        (3, [3.0, -1.5, 0.5, 0.25], [0, 2, 2, 0]),
    ],
    "metrics": [
        {"epoch": 1, "emphasis": {"clean": {"pull": 0.2, "eta": 0.4}, "noisy": {"pull": 0.3, "eta": 0.2}}, "mean_emphasis": 0.9},
        {"epoch": 2, "emphasis": {"clean": {"pull": 0.5, "eta": 0.6}, "noisy": {"pull": 0.1, "eta": 0.2}}, "test_accuracy": 0.8},
        {
            "epoch": 3,
            "emphasis": {"clean": {"pull": 0.1, "eta": 0.1}, "noisy": {"pull": 0.0, "eta": 0.1}},
            "mean_emphasis": 0.4,
            "test_accuracy": 0.7,
            "validation_accuracy": 0.55,
        },
    ],
}


@pytest.fixture
def tiny(tmp_path):
    return Dynamics(write_run(tmp_path / "run", **TINY))


def test_best_and_final_are_the_test_accuracies_over_the_run_and_at_its_end(tiny):
    assert (tiny.best, tiny.best_epoch, tiny.final) == (0.8, 2, 0.7)
    assert tiny.test == {2: 0.8, 3: 0.7}
    assert tiny.held_out == {3: 0.55}


def test_of_epochs_that_are_equally_good_the_first_is_the_best(tmp_path):
    metrics = [{"epoch": epoch, "test_accuracy": accuracy} for epoch, accuracy in ((1, 0.5), (2, 0.8), (3, 0.8), (4, 0.6))]
    assert Dynamics(write_run(tmp_path / "run", [0], metrics=metrics)).best_epoch == 2


def test_the_best_of_thousands_of_epochs_is_found_in_one_look_at_them(tmp_path, monkeypatch):
    looks, metric = [], Dynamics._metric
    monkeypatch.setattr(Dynamics, "_metric", lambda run, name: looks.append(name) or metric(run, name))
    metrics = [{"epoch": epoch, "test_accuracy": epoch % 7 / 7} for epoch in range(1, 50)]
    assert Dynamics(write_run(tmp_path / "run", [0], metrics=metrics)).best_epoch == 6
    assert looks == ["test_accuracy"]


def test_where_noisy_labels_pulled_nothing_yet_there_is_no_ratio(tmp_path):
    sums = ({"clean": {"pull": 0.2, "eta": 0.4}, "noisy": {"pull": pull, "eta": 0.2}} for pull in (0.0, 0.1))
    run = Dynamics(write_run(tmp_path / "run", [0], metrics=[{"epoch": epoch, "emphasis": one} for epoch, one in enumerate(sums, 1)]))
    assert run.snr == {2: pytest.approx((0.4 / 0.8) / (0.1 / 0.4))}


def test_subset_accuracies_by_hand(tiny):
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
def test_hybrid_accuracy_is_the_imae_papers_where_all_labels_are_clean(tmp_path, test, clean, hybrid):
    """Table 6, noise rate 0: 10,000 test images and 50,000 training images, here a fiftieth of both."""
    labels = np.zeros(1000, dtype=int)
    predictions = (np.arange(1000) >= round(1000 * clean)).astype(int)
    metrics = [{"epoch": 1, "test_accuracy": test}]
    run = write_run(tmp_path / "run", labels, labels, clean=[(1, labels, predictions)], metrics=metrics, test_examples=200)
    assert Dynamics(run).hybrid[1] == pytest.approx(hybrid, abs=7e-4)
    assert Dynamics(run).noisy_subset == {}


def test_alpha_and_snr_by_hand(tiny):
    assert tiny.alpha == pytest.approx({1: 2 * 0.5 / 0.6, 2: 2 * 1.1 / 1.4, 3: 2 * 1.2 / 1.6})
    assert tiny.snr == pytest.approx({1: (0.2 / 0.4) / (0.3 / 0.2), 2: (0.7 / 1.0) / (0.4 / 0.4), 3: (0.8 / 1.1) / (0.4 / 0.5)})
    assert tiny.mean_emphasis == {1: 0.9, 3: 0.4}


def test_alpha_and_snr_are_the_papers_sums_over_steps(tmp_path):
    """Steps with their own learning rates and batches, summed as the papers print it and not by epoch."""
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


def test_histories_by_hand_skip_epochs_that_did_not_see_an_example(tmp_path):
    training = [
        (1, [1, NAN, -1, 2], [0, -1, 1, 0]),
        (2, [NAN, 1, 1, -2], [-1, 0, 0, 1]),  # the first was right in epoch 1 and is not forgotten by not being seen
        (3, [-3, -1, -1, 2], [1, 1, 1, 0]),
        (5, [1, -3, 3, -4], [0, 1, 0, 1]),
    ]
    run = Dynamics(write_run(tmp_path / "run", [0, 0, 0, 0], training=training))
    assert run.forgetting.tolist() == [1, 1, 1, 2]
    assert run.first_fit.tolist() == [1, 2, 2, 1]
    assert run.area_under_margin.tolist() == [-1 / 3, -1.0, 0.5, -0.5]


def test_an_example_never_seen_has_no_area_and_one_never_fitted_has_no_epoch(tmp_path):
    run = Dynamics(write_run(tmp_path / "run", [0, 0, 0], training=[(1, [NAN, -1, 1], [-1, 1, 0]), (2, [NAN, -2, -1], [-1, 1, 1])]))
    assert run.first_fit.tolist() == [-1, -1, 1]
    assert math.isnan(run.area_under_margin[0])
    assert run.area_under_margin[1:].tolist() == [-1.5, 0.0]
    assert run.fitting == {1: 0.5, 2: 0.0}
    assert run.summary()["never_fit"] == run.summary()["mean_forgetting"] == 0.5  # of the two that were seen


def test_an_infinite_margin_counts_as_the_largest_half_precision_has(tmp_path):
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
def test_histograms_equal_numpys_and_lose_nothing(random_run, bins):
    folder, labels, true, training = random_run
    found = Dynamics(folder).margin_histograms(bins)
    assert found.epochs == (1, 2, 3, 4, 5, 6)
    everything = np.concatenate([margins[~np.isnan(margins)] for _, margins, _ in training]).astype(np.float64)
    expected_edges = np.linspace(everything.min(), everything.max(), 8) if bins == 7 else np.array(bins)
    assert found.edges.tolist() == expected_edges.tolist()
    for group, members in (("clean", labels == true), ("noisy", labels != true)):
        for row, (_, margins, _) in zip(found.counts[group], training, strict=True):
            kept = margins[members & ~np.isnan(margins)].astype(np.float64)
            inside = np.clip(kept, expected_edges[0], expected_edges[-1])
            assert row.tolist() == np.histogram(inside, expected_edges)[0].tolist()
            assert row.sum() == len(kept)


def test_bins_that_are_no_bins_are_refused(tiny):
    for bins in (0, [1.0], [1.0, 1.0], [2.0, 1.0]):
        with pytest.raises(InputError, match="'bins' parameter of margin_histograms"):
            tiny.margin_histograms(bins)


def variances_by_hand(training, loss):
    found = {}
    for epoch, margins, _ in training:
        kept = torch.from_numpy(np.asarray(margins, dtype=np.float16)[~np.isnan(margins)].astype(np.float64))
        found[epoch] = float(loss.emphasis(kept).var(correction=0))
    return found


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
    one_left = Dynamics(write_run(tmp_path / "d", labels, training=training, classes=4, **settings))  # 3 steps an epoch, seven epochs
    assert one_left.focus[4] == pytest.approx(0.45 / 1.45, abs=1e-6)


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
def test_a_loss_of_more_than_the_margin_has_neither_spread_nor_focus(tmp_path, loss):
    run = Dynamics(write_run(tmp_path / "run", **TINY, loss=loss))
    assert run.spread == run.focus == {}


def test_a_scheduled_loss_is_known_where_the_run_does_not_say_what_it_was_done_with(tmp_path):
    run = Dynamics(write_run(tmp_path / "run", **TINY, loss="scheduled(gce, 'q', 0.2, 0.7)"))
    (tmp_path / "run/provenance.json").unlink()
    assert run.focus[1] < run.focus[3]


def test_diff_is_what_the_noise_cost_the_same_loss(tmp_path, tiny):
    clean = write_run(tmp_path / "clean", [0, 1], [0, 1], metrics=[{"epoch": 1, "test_accuracy": 0.9}], loss="imae(T=8.0)")
    assert tiny.diff(clean) == tiny.diff(Dynamics(clean)) == pytest.approx(-0.2)
    with pytest.raises(InputError, match="run on clean labels"):
        tiny.diff(tiny)
    with pytest.raises(InputError, match="same loss"):
        tiny.diff(write_run(tmp_path / "other", [0, 1], loss="ce"))
    assert tiny.diff(write_run(tmp_path / "untested", [0, 1])) is None


def test_without_the_truth_only_what_needs_none_is_told(tmp_path):
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


def test_a_run_that_has_not_finished_an_epoch_has_no_numbers_yet(tmp_path):
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


def test_an_unfinished_run_is_read_up_to_its_last_whole_epoch(tmp_path):
    folder = write_run(tmp_path / "run", **TINY, state="interrupted")
    (folder / "record/training/predictions-00003.npy").unlink()
    (folder / "record/training/.margins-00004.npy.part").write_bytes(b"half")
    run = Dynamics(folder)
    assert run.record.epochs() == (1, 2)
    assert run.first_fit.tolist() == [1, 2, -1, -1]


def test_the_summary_is_plain_and_complete(tiny):
    summary = tiny.summary()
    assert json.loads(json.dumps(summary, allow_nan=False)) == summary
    assert summary["loss"] == "imae(T=8)"
    assert summary["final"] == 0.7
    assert summary["clean_subset"] == 2 / 3
    assert summary["alpha"] == pytest.approx(1.5)
    assert (summary["first_mean_emphasis"], summary["mean_emphasis"]) == (0.9, 0.4)
    assert summary["mean_forgetting"] == 0.25
    assert summary["noise_rate"] == 0.25


def test_metrics_are_told_in_the_order_of_the_epochs_and_the_last_word_on_each_counts(tmp_path):
    metrics = [{"epoch": 2, "test_accuracy": 0.2}, {"epoch": 1, "test_accuracy": 0.1}, {"epoch": 2, "test_accuracy": 0.3}]
    run = Dynamics(write_run(tmp_path / "run", [0], metrics=metrics))
    assert list(run.test.items()) == [(1, 0.1), (2, 0.3)] and len(run.record.metrics) == 2


def test_the_record_hands_out_epochs_as_they_were_written(tmp_path):
    record = Record(write_run(tmp_path / "run", **TINY))
    assert record.epochs() == (1, 2, 3)
    assert record.predictions(1).tolist() == [0, 0, -1, 1]
    np.testing.assert_array_equal(record.margins(3), np.array([3.0, -1.5, 0.5, 0.25], dtype=np.float16))
    assert [number for number, _, _ in record.stream()] == [1, 2, 3]
    with pytest.raises(InputError, match=r"training record in .* has epochs 1 to 3. Got epoch 4"):
        record.margins(4)
    with pytest.raises(InputError, match=r"clean record in .* has no epoch"):
        record.predictions(1, of="clean")
    with pytest.raises(InputError, match=r"one of 'training', 'clean'\. Got 'test'"):
        record.epochs("test")
    with pytest.raises(InputError, match=r"one of 'training', 'clean'\. Got '\./training'"):
        record.margins(1, of="./training")
    with pytest.raises(InputError, match=r"has epochs 1 to 3\. Got epoch '1'"):
        record.predictions("1")


def test_an_epoch_that_is_there_is_read_without_listing_the_record(tmp_path, monkeypatch):
    record = Record(write_run(tmp_path / "run", **TINY))
    monkeypatch.setattr(Record, "epochs", lambda *_: pytest.fail("the folder was listed"))
    assert [record.margins(epoch).shape == record.predictions(epoch).shape == (4,) for epoch in (1, 2, 3)] == [True] * 3


def test_a_folder_without_a_run_is_refused_at_once(tmp_path):
    for kind in (Record, Dynamics):
        with pytest.raises(InputError, match=r"There is no run in '.*nowhere'"):
            kind(tmp_path / "nowhere")
    with pytest.raises(InputError, match="format 2; this noisewise reads format 1"):
        Record(write_run(tmp_path / "newer", [0, 1], format=2))


def corrupt(folder: Path, name: str, content: bytes | np.ndarray | None) -> None:
    path = folder / name
    if content is None:
        path.unlink()
    elif isinstance(content, bytes):
        path.write_bytes(content)
    else:
        np.save(path, content)


@pytest.mark.parametrize(
    ("name", "content", "said"),
    [
        ("record/training/margins-00002.npy", None, "has no record/training/margins-00002.npy"),
        ("record/training/predictions-00001.npy", None, "has no record/training/predictions-00001.npy"),
        ("record/training/margins-00002.npy", b"", "margins-00002.npy' is not a complete .npy file"),
        ("record/training/margins-00002.npy", b"PK\x03\x04 something else", "margins-00002.npy' is not a complete .npy file"),
        ("record/training/margins-00002.npy", np.zeros(3, dtype=np.float16), r"float16 shaped \(4,\). Got float16 shaped \(3,\)"),
        ("record/training/margins-00002.npy", np.zeros(4, dtype=np.float64), r"float16 shaped \(4,\). Got float64"),
        ("record/training/predictions-00002.npy", np.zeros(4), r"integers shaped \(4,\). Got float64"),
        ("labels/given.npy", None, "has no labels/given.npy"),
        ("labels/given.npy", np.array([0, 1, 3, 0]), "given.npy' .* 0 to 2 .* 0 to 3"),
        ("labels/given.npy", np.zeros((0,), dtype=np.int64), r"given.npy' .* Got shape \(0,\)"),
        ("labels/true.npy", np.zeros(5, dtype=np.int64), r"true.npy' .* int64 shaped \(4,\). Got int64 shaped \(5,\)"),
        ("metrics.jsonl", b'{"epoch": 1}\n{"epo', "Line 2 of .*metrics.jsonl' is not the metrics of an epoch"),
        ("metrics.jsonl", b'{"step": 1}\n', "Line 1 of .*metrics.jsonl' is not the metrics of an epoch"),
        ("status.json", None, "has no status.json"),
        ("classes.json", b"{}", "classes.json' .* Got dict"),
        ("provenance.json", b"{", "provenance.json' cannot be read as JSON"),
    ],
)
def test_a_damaged_file_is_named(tmp_path, name, content, said):
    folder = write_run(tmp_path / "run", **TINY)
    corrupt(folder, name, content)
    with pytest.raises(InputError, match=said):
        Dynamics(folder).summary()


def test_a_truncated_array_is_named(tmp_path):
    folder = write_run(tmp_path / "run", **TINY)
    path = folder / "record/training/predictions-00002.npy"
    path.write_bytes(path.read_bytes()[:-5])
    with pytest.raises(InputError, match=r"predictions-00002.npy' is not a complete .npy file"):
        Dynamics(folder).summary()


def test_a_long_record_is_read_in_the_memory_of_a_few_epochs(tmp_path):
    number, epochs = 200_000, 50
    rng = np.random.default_rng(0)
    labels = rng.integers(3, size=number)
    margins, predictions = rng.normal(size=number).astype(np.float16), rng.integers(3, size=number).astype(np.int32)
    folder = write_run(tmp_path / "run", labels, np.roll(labels, 1), epochs=epochs)
    training = folder / "record/training"
    training.mkdir(parents=True)
    for epoch in range(1, epochs + 1):
        np.save(training / f"margins-{epoch:05d}.npy", np.roll(margins, epoch))
        np.save(training / f"predictions-{epoch:05d}.npy", np.roll(predictions, epoch))
    whole = epochs * (margins.nbytes + predictions.nbytes)
    run = Dynamics(folder)
    _, peak = with_peak(lambda: (run.summary(), run.margin_histograms(50)))
    assert peak < 0.45 * whole
    assert peak < 130 * number  # the labels and a dozen float64 columns, however many epochs there are


def test_margin_quantiles_are_numpys_over_all_epochs(random_run):
    folder, _, _, training = random_run
    seen = np.concatenate([margins[~np.isnan(margins)] for _, margins, _ in training]).astype(np.float64)
    shares = [0.0, 0.001, 0.25, 0.5, 0.999, 1.0]
    np.testing.assert_array_equal(Dynamics(folder).margin_quantiles(shares), np.quantile(seen, shares, method="inverted_cdf"))


def test_without_a_margin_there_is_no_quantile_and_no_share_beyond_one(tmp_path):
    run = Dynamics(write_run(tmp_path / "run", [0, 1]))
    assert np.isnan(run.margin_quantiles([0.5])).all()
    with pytest.raises(InputError, match="'shares' parameter of margin_quantiles must be in"):
        run.margin_quantiles([99.9])


def test_the_emphasis_curve_is_that_of_the_loss_in_that_epoch(tmp_path, random_run):
    _, labels, _, training = random_run
    asked = {"training": training, "classes": 4, "epochs": 6}
    margins = np.linspace(-8, 8, 33)
    p = 1 / (1 + np.exp(-margins))
    run = Dynamics(write_run(tmp_path / "scheduled", labels, loss="scheduled(imae(saturation=0), 'T', 0.0, 10.0)", **asked))
    for epoch, strength in ((1, 0.0), (4, 6.0), (6, 10.0), (2, 2.0)):
        np.testing.assert_allclose(run.emphasis_curve(epoch, margins), np.exp(strength * p * (1 - p)) / 2, rtol=1e-9)
    with pytest.raises(InputError, match=r"has epochs 1 to 6\. Got epoch 7 instead"):
        run.emphasis_curve(7, margins)
    assert Dynamics(write_run(tmp_path / "nce", labels, loss="nce", **asked)).emphasis_curve(1, margins) is None


@pytest.mark.parametrize("factor", [1.0, 0.25])
def test_the_emphasis_curve_of_a_loss_normalised_over_the_batch_has_a_mean_of_one_times_its_factor(tmp_path, random_run, factor):
    _, labels, _, training = random_run
    loss = f"{factor}*gr(beta=4.0, lam=1.0, normalise='batch')"
    run = Dynamics(write_run(tmp_path / "run", labels, training=training, classes=4, loss=loss))
    for epoch, margins, _ in training:
        assert run.emphasis_curve(epoch, margins[~np.isnan(margins)].astype(np.float64)).mean() == pytest.approx(factor, rel=1e-9)


def test_an_example_of_no_class_is_wrong_and_has_no_true_label_to_be_predicted(tmp_path):
    run = Dynamics(write_run(tmp_path / "run", **{**TINY, "true": [0, 1, 2, -1]}))
    assert run.record.wrong.tolist() == [False, False, False, True]
    assert run.noisy_subset == {1: 0.0, 2: 0.0, 3: 1.0}
    assert run.true_label_accuracy == {1: 0.5, 2: 2 / 3, 3: 2 / 3}, "of those with a class that were seen"


def draw(rng, number, rate, low, high):
    noisy = rng.random(number) < rate
    return np.where(noisy, rng.normal(*low, size=number), rng.normal(*high, size=number)), noisy


@pytest.mark.parametrize(
    ("rate", "low", "high"),
    [
        (0.4, (-3, 1), (3, 1)),
        (0.2, (-2, 1.5), (2.5, 0.8)),
        (0.6, (-1, 0.5), (4, 3)),
        (0.05, (-600, 40), (800, 90)),
        (0.5, (0, 1), (2.2, 1)),
    ],
)
def test_the_mixture_is_scikit_learns(rate, low, high):
    values, _ = draw(np.random.default_rng(2), 5000, rate, low, high)
    found = split_estimate(values)
    theirs = GaussianMixture(2, tol=1e-10, max_iter=5000, reg_covar=0, random_state=0).fit(values[:, None])
    order = theirs.means_[:, 0].argsort()
    assert found.means == pytest.approx(tuple(theirs.means_[order, 0]), rel=1e-3, abs=1e-3)
    assert found.deviations == pytest.approx(tuple(theirs.covariances_[order, 0, 0] ** 0.5), rel=1e-3)
    assert found.rate == pytest.approx(theirs.weights_[order][0], abs=1e-3)
    between = (values > found.means[0]) & (values < found.means[1])  # beyond the means ours does not turn back
    expected = theirs.predict_proba(values[between, None])[:, order[0]]
    np.testing.assert_allclose(found.noisy[between], expected, atol=2e-3)


def test_the_estimated_rate_is_near_the_true_one_and_the_right_examples_are_named():
    values, noisy = draw(np.random.default_rng(3), 20_000, 0.3, (-3, 1.2), (3, 1.5))
    found = split_estimate(values)
    assert abs(found.rate - noisy.mean()) < 0.01
    assert ((found.noisy > 0.5) == noisy).mean() > 0.98
    assert found.separation > 3
    assert "estimated" in str(found)
    assert "not clearly separated" not in str(found)


def test_a_value_that_stands_alone_is_no_group_of_no_width():
    values = np.append(np.random.default_rng(0).normal(size=500), -50.0)
    found = split_estimate(values)
    assert found.means[0] == pytest.approx(-50) and found.deviations[0] == pytest.approx(1e-3 * values.std())


def test_one_group_is_said_not_to_be_two():
    assert "not clearly separated" in str(split_estimate(np.random.default_rng(4).normal(size=5000)))


@settings(max_examples=40)
@given(
    rate=st.floats(0.05, 0.95),
    low=st.floats(0.1, 5),
    high=st.floats(0.1, 5),
    gap=st.floats(0.0, 10),
    size=st.integers(2, 300),
    seed=st.integers(0, 9),
)
def test_the_probability_never_rises_with_the_margin(rate, low, high, gap, size, seed):
    values, _ = draw(np.random.default_rng(seed), size, rate, (0, low), (gap, high))
    found = split_estimate(values)
    assert (np.diff(found.noisy[values.argsort()]) <= 1e-12).all()
    assert 0 <= found.rate <= 1
    assert found.means[0] <= found.means[1]


def test_the_estimate_is_of_the_finite_values_and_unmoved_by_their_order_and_unit():
    values, _ = draw(np.random.default_rng(5), 3000, 0.4, (-2, 1), (2, 1))
    found = split_estimate(values)
    holed = split_estimate(np.concatenate([values, [np.nan, -np.inf, np.inf]]))
    np.testing.assert_array_equal(holed.noisy[:-3], found.noisy)
    assert math.isnan(holed.noisy[-3])
    assert holed.noisy[-2] == found.noisy.max()
    assert holed.noisy[-1] == found.noisy.min()
    np.testing.assert_allclose(split_estimate(values[::-1]).noisy[::-1], found.noisy, atol=1e-12)
    np.testing.assert_allclose(split_estimate(1e5 + 10 * values).noisy, found.noisy, atol=1e-6)


def test_a_million_values_are_fitted_in_groups_and_give_what_all_of_them_say():
    values, noisy = draw(np.random.default_rng(6), 1_000_000, 0.35, (-3, 1), (2, 1.5))
    assert len(_grouped(np.sort(values))[0]) < 10_000, "the fit goes over groups of values, of which there are not more for a million"
    found = split_estimate(values)
    for side, component in ((noisy, 0), (~noisy, 1)):
        assert abs(found.means[component] - values[side].mean()) < 0.02
        assert abs(found.deviations[component] - values[side].std()) < 0.02
    assert abs(found.rate - noisy.mean()) < 0.003


@pytest.mark.parametrize("values", [[], [1.0], [2.0, 2.0, 2.0], [math.nan, 1.0], [[1.0, 2.0]]])
def test_values_that_cannot_be_split_are_refused(values):
    with pytest.raises(InputError, match="at least two different finite numbers"):
        split_estimate(values)


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
def test_the_alarm_names_a_loss_that_underfits_and_a_remedy_that_is_none(loss, classes):
    said = underfitting(loss, classes)
    assert said is not None
    assert "\n" not in said
    assert said.startswith(repr(noisewise.get(loss)))
    remedy = said.rpartition(": use ")[2].removesuffix(".")
    assert "scaled(" in remedy
    assert underfitting(remedy, classes) is None


@pytest.mark.parametrize(
    ("loss", "classes"),
    [
        *TRAINS,
        ("gce(q=0.7)", 10),
        ("imae(T=8)", 10),
        ("imae(T=8)", 100),
        ("gr(beta=12.0, lam=0.5)", 100),
        ("gr(beta=16.0, normalise='batch')", 100),
        ("binary(mae)", 100),  # whose margins are not those of classes
    ],
)
def test_no_alarm_for_what_trains(loss, classes):
    assert underfitting(loss, classes) is None


def test_the_alarm_names_the_curriculum():
    assert underfitting("mae", 100).endswith("use scaled(mae, tau=2.0).")
    assert underfitting("scaled(mae, tau=6.0)", 100).endswith("use scaled(mae, tau=2.0).")
    assert underfitting("mae(label_smoothing=0.1)", 100).endswith("use scaled(mae, tau=2.0, label_smoothing=0.1).")
    assert underfitting("nce", 100).endswith("use nce + scaled(mae, tau=2.0).")


def test_measured_margins_count_instead_of_simulated_ones():
    assert underfitting("mae", 10, margins=torch.full((8,), -7.0)).endswith("use scaled(mae, tau=2.0, expected=-7.0).")
    assert underfitting("mae", 100, margins=np.array([-0.5, 0.5, np.nan])) is None
    assert underfitting("mae", 100, margins=[9.0]) is None  # learned, as cross-entropy would have it too
    assert "expected=-" in underfitting("mae", 100, std=2.0)
    with pytest.raises(InputError, match="at least one finite margin"):
        underfitting("mae", 100, margins=[math.nan])
    with pytest.raises(InputError, match="'classes' parameter"):
        underfitting("mae", 1)


def test_the_share_the_alarm_tells_is_that_of_the_mean_emphasis():
    margins = torch.linspace(-7, -3, 50, dtype=torch.float64)
    share = float((margins.sigmoid() * (1 - margins.sigmoid())).mean()) / 0.25
    assert f"starts at {100 * share:.0f} % of its largest emphasis" in underfitting("mae", 100, margins=margins)


@pytest.mark.parametrize("std", [1.0, 3.0])
def test_a_loss_of_more_than_the_margin_is_judged_at_scores_as_wide_as_said(std):
    scores = (std * torch.randn(20_000, 20, dtype=torch.float64)).requires_grad_()
    costs = -scores.log_softmax(1)
    pulls = [
        torch.autograd.grad(value.sum(), scores, retain_graph=True)[0].abs().sum() for value in (costs[:, 0] / costs.sum(1), costs[:, 0])
    ]
    share = float(pulls[0] / pulls[1])
    assert abs(share - 0.01) > 0.001, "so near the line this shows nothing"
    assert (underfitting("nce", 20, std=std) is not None) == (share < 0.01)


@pytest.mark.parametrize(("loss", "said"), [("-1*ce", None), ("mae + -0.5*ce", "1.0*mae + -0.5*ce starts at 0 % of its largest emphasis")])
def test_a_loss_that_pushes_away_is_no_error(loss, said):
    found = underfitting(loss, 10)
    assert found is None if said is None else found.startswith(said)


@pytest.mark.parametrize(
    ("given", "predicted", "expected"),
    [
        ([0] * 95 + [1] * 5, [0] * 100, [1]),
        ([0] * 96 + [1] * 4, [0] * 100, []),  # too few labels to say so
        ([0] * 50 + [1] * 50, [0] * 95 + [1] * 5, []),  # a tenth as often as it is labelled
        ([0] * 50 + [1] * 50, [0] * 96 + [1] * 4, [1]),
        ([0] * 50 + [1] * 50, [0] * 50 + [-1] * 50, []),  # class 1 was not seen
    ],
)
def test_a_class_predicted_far_less_often_than_it_is_labelled_is_unlearned(given, predicted, expected):
    assert unlearned_classes(np.array(given), np.array(predicted), 3).tolist() == expected


def test_unlearned_classes_are_those_of_the_model_that_is_kept(tmp_path):
    given = np.array([0] * 20 + [1] * 10 + [2] * 10)
    everything, nothing, margins = given, np.zeros(40, dtype=int), np.zeros(40)
    epochs = [(1, margins, everything), (2, margins, nothing)]
    folder = write_run(tmp_path / "run", given, training=epochs, metrics=[{"epoch": 1}, {"epoch": 2}])
    run = Dynamics(folder)
    assert run.unlearned == ("class 1", "class 2") and run.summary()["unlearned"] == ["class 1", "class 2"]
    status = json.loads((folder / "status.json").read_text())
    (folder / "status.json").write_text(json.dumps(status | {"kept": 1}))
    assert Dynamics(folder).unlearned == ()


def test_accuracies_by_class_are_scikit_learns_recalls():
    rng = np.random.default_rng(0)
    labels, predicted = rng.integers(0, 4, 50), rng.integers(0, 5, 50)
    found = class_accuracies(labels, predicted, 5)
    np.testing.assert_allclose(found[:4], recall_score(labels, predicted, labels=range(4), average=None))
    assert math.isnan(found[4]), "it has no examples"
