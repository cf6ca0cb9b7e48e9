"""The evidence in a record equals the same sums in float64, one example and one epoch at a time."""

import json
import math
import os
import subprocess
import sys
import textwrap
from functools import partial

import numpy as np
import pytest

from costs import with_peak
from noisewise import losses
from noisewise.audit import _evidence, audit
from noisewise.dynamics import Dynamics
from refused import refused
from run_folders import write_run


def random_record(seed=0, number=40, classes=4, epochs=6):
    """Labels, and an epoch's margins and predictions; some examples are not seen in some epochs, the last one never."""
    rng = np.random.default_rng(seed)
    labels, training = rng.integers(classes, size=number), []
    for epoch in range(1, epochs + 1):
        margins = rng.normal(0, 3, number).astype(np.float16)
        predictions = rng.integers(classes, size=number).astype(np.int32)
        unseen = rng.random(number) < 0.2
        unseen[-1] = True
        margins[unseen], predictions[unseen] = np.nan, -1
        training.append((epoch, margins, predictions))
    return labels, training


def by_hand(labels, training, classes, emphasis):
    """The same in plain loops, where every label starts with two votes: once to see how many are outvoted, once more to count."""
    agreed = {}
    for epoch, _, predictions in training:
        seen = [place for place, predicted in enumerate(predictions) if predicted >= 0]
        agreed[epoch] = sum(predictions[place] == labels[place] for place in seen) / len(seen)
    first = {epoch: (4 * share * (1 - share)) ** 2 + 1e-9 for epoch, share in agreed.items()}
    voted = [row for row in count_votes(labels, training, classes, emphasis, first) if not math.isnan(row[0])]
    right = min(0.98, 1 - sum(other > given for given, other, *_ in voted) / len(voted))
    weights = {}
    for epoch, share in agreed.items():
        power = (share / right) ** 3 if share <= right else ((1 - share) / (1 - right)) ** 4
        weights[epoch] = min(1, 4 - 4 * share) * power + 1e-9
    return np.array(count_votes(labels, training, classes, emphasis, weights))


def count_votes(labels, training, classes, emphasis, weights):
    rows = []
    for place, label in enumerate(labels):
        votes, total, belief, probability, pull, times = [0.0] * classes, 0.0, 0.0, 0.0, 0.0, 0
        for epoch, margins, predictions in training:
            if predictions[place] >= 0:
                p = 1 / (1 + math.exp(-float(margins[place])))
                votes[predictions[place]] += weights[epoch]
                total += weights[epoch]
                belief += weights[epoch] * p
                probability, pull, times = probability + p, pull + emphasis(float(margins[place])), times + 1
        if not times:
            rows.append([math.nan] * 5 + [0.0])
            continue
        others = [vote for one, vote in enumerate(votes) if one != label]
        shares = [part / (total + 2) for part in (votes[label] + 2, max(others), belief + 2)]
        beyond = max(others) - 2
        lead = 0.0 if beyond <= 0 else beyond / votes[label] if votes[label] else math.inf
        rows.append([*shares, probability / times, pull / times, lead])
    return rows


@pytest.mark.parametrize(("loss", "wrong"), [("ce", True), ("gce(q=0.7)", True), ("ce", False)])
def test_votes_belief_and_emphasis_equal_plain_sums(tmp_path, loss, wrong):
    labels, training = random_record(epochs=20)
    true = np.where(wrong & (np.arange(len(labels)) % 3 == 0), (labels + 1) % 4, labels)  # a third of the labels is outvoted, or none
    for epoch, _, predictions in training:
        known = (predictions >= 0) & ((np.arange(len(labels)) + epoch) % 4 > 0)
        predictions[known] = true[known]
    folder = write_run(tmp_path / "run", labels, training=training, classes=4, loss=loss)
    evidence = _evidence.gather(Dynamics(folder))

    def emphasis(margin):
        p = 1 / (1 + math.exp(-margin))
        return 1 - p if loss == "ce" else p**0.7 * (1 - p)

    expected = by_hand(labels, training, 4, emphasis)
    names = ("given_share", "other_share", "belief", "probability", "emphasis", "lead")
    columns = np.stack([getattr(evidence, name) for name in names], 1)
    assert (evidence.lead > 1).any() == wrong and (evidence.lead == 0).any()
    np.testing.assert_allclose(columns, expected, rtol=1e-5, atol=1e-6)
    assert not (evidence.other == labels).any()


def test_the_block_size_does_not_change_the_evidence(tmp_path, monkeypatch):
    labels, training = random_record(number=41)
    dynamics = Dynamics(write_run(tmp_path / "run", labels, training=training, classes=4, loss="ce"))
    at_once = _evidence.gather(dynamics)
    monkeypatch.setattr(_evidence, "_VOTES", 4 * 7)
    for whole, in_parts in zip(at_once, _evidence.gather(dynamics), strict=True):
        np.testing.assert_array_equal(whole, in_parts)


def test_the_last_margin_comes_from_the_clean_pass_if_there_is_one(tmp_path):
    labels, training = random_record()
    seen = np.array([[math.nan if predicted < 0 else margin for margin, predicted in zip(*one[1:], strict=True)] for one in training])
    last = [column[~np.isnan(column)][-1] if not np.isnan(column).all() else math.nan for column in seen.T]
    alone = audit(write_run(tmp_path / "alone", labels, training=training, classes=4, loss="ce"))
    np.testing.assert_array_equal(alone.final_margin, last)
    clean = [(2, np.zeros(40), np.zeros(40)), (4, np.full(40, 1.5), np.full(40, 3))]
    both = audit(write_run(tmp_path / "both", labels, training=training, clean=clean, classes=4, loss="ce"))
    assert (both.final_margin == 1.5).all() and (both.predicted == 3).all()


def test_epochs_that_agree_with_no_label_or_with_all_hardly_count(tmp_path):
    labels = np.arange(20) % 2
    half = np.where(np.arange(20) < 10, labels, 1 - labels)
    training = [(1, np.zeros(20), 1 - labels), (2, np.zeros(20), half), (3, np.zeros(20), labels)]
    agreed = _evidence.agreement(Dynamics(write_run(tmp_path / "run", labels, training=training, classes=2)).record)
    assert agreed == {1: 0.0, 2: 0.5, 3: 1.0}
    for weights in (_evidence.first_weights(agreed), _evidence.epoch_weights(agreed, 0.5)):
        assert weights[2] == pytest.approx(1) and weights[1] == weights[3] < 1e-6


def test_labels_that_were_always_memorised_are_ranked_by_belief(tmp_path):
    labels, margins = np.arange(20) % 2, np.linspace(4, 1, 20)
    folder = write_run(tmp_path / "run", labels, training=[(epoch, margins, labels) for epoch in (1, 2, 3)], classes=2, loss="ce")
    np.testing.assert_array_equal(audit(folder).order, np.arange(20)[::-1])


def test_support_and_margin_are_weighted_sums(tmp_path):
    labels, training = random_record(epochs=8)
    dynamics = Dynamics(write_run(tmp_path / "run", labels, training=training, classes=4, loss="ce"))
    evidence, (_, ranking) = _evidence.gather(dynamics), _evidence._both_weights(dynamics)
    for place, label in enumerate(labels[:-1]):
        total, support, margin = 0.0, 0.0, 0.0
        for epoch, margins, predictions in training:
            if predictions[place] >= 0:
                weight = float(ranking[epoch][label])
                total, margin = total + weight, margin + weight * float(margins[place])
                support += weight * (1 / (1 + math.exp(-float(margins[place]))) + (predictions[place] == label)) / 2
        assert evidence.margin[place] == pytest.approx(margin / total, rel=1e-5)
        assert evidence.support[place] == pytest.approx((2 + support) / (2 + total), rel=1e-5)
    assert math.isnan(evidence.margin[-1]) and math.isnan(evidence.support[-1])


def test_with_few_wrong_labels_the_epochs_that_know_most_rank_them(tmp_path):
    rng = np.random.default_rng(0)
    labels = rng.integers(2, size=1000)
    wrong = np.arange(1000) < 5
    training = []
    for epoch, mistakes in enumerate((0.3, 0.2, 0.01, 0.01, 0.01, 0.01), 1):
        against = wrong if epoch > 2 else rng.random(1000) < mistakes  # the first epochs know nothing of the wrong labels
        against = against | (rng.random(1000) < mistakes)
        training.append((epoch, np.where(against, -3.0, 3.0), np.where(against, 1 - labels, labels)))
    found = audit(write_run(tmp_path / "run", labels, training=training, classes=2, loss="ce"))
    assert set(found.order[:5]) == {0, 1, 2, 3, 4}


def test_the_epoch_that_agrees_with_the_right_labels_only_counts_most():
    agreed = {epoch: epoch / 20 for epoch in range(21)}
    for wrong in (0.1, 0.3, 0.5):
        weights = _evidence.epoch_weights(agreed, wrong)
        best = max(weights, key=weights.get)
        assert 0 <= (1 - wrong) - agreed[best] <= 0.16, "at low noise a little earlier: full agreement has no information"
        rising, falling = [weights[epoch] for epoch in range(best + 1)], [weights[epoch] for epoch in range(best, 21)]
        assert rising == sorted(rising) and falling == sorted(falling, reverse=True)


@pytest.mark.parametrize(("epochs", "doubted"), [(1, False), (2, False), (3, True)])
def test_a_label_is_doubted_after_three_disagreeing_epochs(tmp_path, epochs, doubted):
    labels = np.arange(20) % 2
    contradicted = np.arange(20) >= 10  # half of them, so that every epoch has full weight
    margins, predictions = np.where(contradicted, -9.0, 9.0), np.where(contradicted, 1 - labels, labels)
    training = [(epoch, margins, predictions) for epoch in range(1, epochs + 1)]
    result = audit(write_run(tmp_path / "run", labels, training=training, classes=2, loss="ce"))
    np.testing.assert_array_equal(result.is_issue, contradicted & doubted)
    if doubted:
        np.testing.assert_allclose(result.quality[contradicted], 2 / (2 + epochs), atol=2e-3)
    assert (result.quality[contradicted] < 0.5).all() == doubted
    np.testing.assert_array_equal(result.order[:10], np.arange(10, 20))


def test_a_loss_of_more_than_the_margin_has_no_emphasis(tmp_path):
    labels, training = random_record()
    assert not isinstance(losses.get("nce"), losses.MarginLoss)
    result = audit(write_run(tmp_path / "run", labels, training=training, classes=4, loss="nce"))
    assert np.isnan(result.mean_emphasis).all() and result.table(1)[0]["emphasis_history"] == []


def test_a_run_with_an_unknown_loss_is_audited(tmp_path):
    labels, training = random_record()
    known = audit(write_run(tmp_path / "known", labels, training=training, classes=4, loss="ce"))
    unknown = audit(write_run(tmp_path / "unknown", labels, training=training, classes=4, loss="theirs(x=1)"))
    np.testing.assert_array_equal(unknown.quality, known.quality)
    assert np.isnan(unknown.mean_emphasis).all() and not np.isnan(known.mean_emphasis).all()


@pytest.mark.parametrize(("name", "content"), [("ids.json", ["a", "b"]), ("index.npy", [4, 5])])
def test_names_that_do_not_match_the_examples_are_refused(tmp_path, name, content):
    folder = write_run(tmp_path / "run", [0, 1, 2], training=[(1, [0.0, 1.0, 2.0], [0, 1, 2])], loss="ce")
    if name == "ids.json":
        (folder / "labels" / name).write_text(json.dumps(content))
    else:
        np.save(folder / "labels" / name, content)
    with refused(name, "3"):
        audit(folder).table()


def test_a_run_without_a_record_is_refused(tmp_path):
    folder = write_run(tmp_path / "run", [0, 1, 2])
    with refused(folder):
        audit(folder)


def test_labels_and_record_of_different_length_are_refused(tmp_path):
    folder = write_run(tmp_path / "run", [0, 1, 2], training=[(1, [0.0, 1.0], [0, 1])])
    with refused("margins-00001.npy", "(3,)", "(2,)"):
        audit(folder)


def test_labels_outside_the_classes_are_refused(tmp_path):
    folder = write_run(tmp_path / "run", [0, 1, 3], training=[(1, [0.0, 1.0, 2.0], [0, 1, 2])])
    with refused("given.npy", "0 to 2", "0 to 3"):
        audit(folder)


def test_predictions_outside_the_classes_are_refused(tmp_path):
    folder = write_run(tmp_path / "run", [0, 1, 2], training=[(1, [0.0, 1.0, 2.0], [0, 1, 3])])
    with refused("predictions-00001.npy", "0 to 3"):
        audit(folder)


SCALE = """
import resource, sys
from noisewise.audit import audit
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
result = audit(sys.argv[1])
after = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
print((after - before) * 1024, len(result))
"""


def test_memory_is_bounded_by_examples_not_by_examples_times_classes(tmp_path):
    number, classes = 50_000, 1000
    rng = np.random.default_rng(0)
    labels = rng.integers(classes, size=number)
    training = ((epoch, rng.normal(size=number), rng.integers(classes, size=number)) for epoch in range(1, 5))
    folder = write_run(tmp_path / "run", labels, training=training, classes=classes, loss="ce")
    script = [sys.executable, "-c", textwrap.dedent(SCALE), str(folder)]
    done = subprocess.run(script, check=True, capture_output=True, text=True, env={**os.environ, "OMP_NUM_THREADS": "1"})
    grown, length = map(int, done.stdout.split())
    votes = number * classes * 4
    assert length == number and grown < 0.85 * votes, json.dumps({"grown": grown, "votes": votes})


@pytest.mark.parametrize("summarise", [audit, Dynamics.summary])
def test_memory_does_not_grow_with_the_number_of_epochs(summarise, tmp_path):
    """The emphasis of a scheduled loss differs from epoch to epoch; its table of half a megabyte is not kept for each of them."""
    loss = "scheduled(gce, 'q', 0.3, 0.9)"
    peaks = []
    for epochs in (5, 20):
        labels, training = random_record(epochs=epochs)
        folder = write_run(tmp_path / str(epochs), labels, training=training, classes=4, loss=loss, epochs=epochs)
        runs = [Dynamics(folder), Dynamics(folder)]
        peaks.append(min(with_peak(partial(summarise, run))[1] for run in runs))  # the first may include an import
    assert peaks[1] < peaks[0] + 1e6
