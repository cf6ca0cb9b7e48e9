"""The audit of a run finds wrong labels, estimates how many there are, ranks them better than cross-validation, and writes lists."""

import csv
import json
import math

import numpy as np
import pytest
import torch
from sklearn.metrics import average_precision_score, confusion_matrix, roc_auc_score
from sklearn.mixture import GaussianMixture
from sklearn.model_selection import StratifiedKFold
from torch.nn import functional
from training_settings import QUICK, SETTINGS

from costs import with_peak
from noisewise import fit, tables
from noisewise.audit import _evidence, _listing, audit, find_label_issues
from noisewise.audit._evidence import judge_labels
from noisewise.data import Dataset, load
from noisewise.dynamics import Record
from real_data import real
from refused import refused
from run_folders import write_run


def held_out_probabilities(model, data: Dataset, folder, folds=5, **settings) -> np.ndarray:
    """Probabilities of models that were not trained on the example."""
    probabilities = np.zeros((len(data), len(data.classes)))
    splits = StratifiedKFold(folds, shuffle=True, random_state=0).split(probabilities, data.labels)
    for fold, (kept, left) in enumerate(splits):
        run = fit(model, data.take(torch.from_numpy(kept)), folder=folder / str(fold), **settings)
        probabilities[left] = run.predict(data.inputs[torch.from_numpy(left)]).numpy()
    return probabilities


def compare_with_cleanlab(data: Dataset, noise: str, folder, model="mlp", **settings) -> tuple[float, float]:
    """Average precision of the audit of one run, and of the better of cleanlab's scores on cross-validated probabilities."""
    from cleanlab.rank import get_label_quality_scores

    noisy = data.corrupted(noise, seed=1)
    wrong, given = noisy.wrong.numpy(), noisy.labels.numpy()
    ours = audit(fit(model, noisy, folder=folder / "run", **settings))
    probabilities = held_out_probabilities(model, noisy, folder / "folds", **settings)
    theirs = [get_label_quality_scores(given, probabilities, method=method) for method in ("self_confidence", "normalized_margin")]
    assert (np.diff(ours.quality[ours.order]) >= 0).all()
    return average_precision_score(wrong, -ours.quality), max(average_precision_score(wrong, -scores) for scores in theirs)


@pytest.mark.parametrize(
    "noise", ["symmetric(0.4)", *(pytest.param(noise, marks=pytest.mark.slow) for noise in ("pair(0.2)", "instance(0.4)"))]
)
def test_one_run_ranks_labels_better_than_cleanlab_on_five_folds(tmp_path, noise):
    ours, theirs = compare_with_cleanlab(load("digits"), noise, tmp_path, epochs=12, **SETTINGS, **QUICK)
    assert ours > theirs


def drawn_digits(number: int) -> Dataset:
    """As many digits as Fashion-MNIST has examples: real ones, randomly rotated, scaled, shifted and blurred."""
    digits, chance = load("digits"), torch.Generator().manual_seed(0)
    chosen = torch.randint(len(digits), (number,), generator=chance)
    turn = (torch.rand(number, generator=chance) - 0.5) * math.pi / 6
    size = 0.8 + 0.5 * torch.rand(number, generator=chance)
    across, down = (torch.rand(2, number, generator=chance) - 0.5) * 0.5
    rows = torch.stack([size * turn.cos(), -size * turn.sin(), across, size * turn.sin(), size * turn.cos(), down], 1).unflatten(1, (2, 3))
    grid = functional.affine_grid(rows, [number, 1, 8, 8], align_corners=False)
    images = functional.grid_sample(digits.inputs[chosen].float(), grid, align_corners=False)
    images += 0.3 * images.std() * torch.randn(images.shape, generator=chance)
    return Dataset(images.flatten(1), digits.labels[chosen], digits.classes, name="drawn digits")


@pytest.mark.slow
def test_one_run_on_sixty_thousand_examples_ranks_labels_better_than_cleanlab_on_five_folds(tmp_path):
    # Under pair noise, cleanlab is ahead of a network this small; see docs/how-well-does-it-work.md.
    settings = {"epochs": 8, "batch_size": 512, "optimiser": "sgd(lr=0.2, momentum=0.9)", "device": "cpu", **QUICK}
    ours, theirs = compare_with_cleanlab(drawn_digits(60_000), "instance(0.4)", tmp_path, "mlp(hidden=(128, 128))", **settings)
    assert ours > theirs


@pytest.mark.slow
@real("fashion_mnist")
@pytest.mark.parametrize("noise", ["symmetric(0.2)", "symmetric(0.4)", "pair(0.2)", "pair(0.4)", "instance(0.2)", "instance(0.4)"])
def test_one_run_ranks_fashion_mnist_better_than_cleanlab_on_five_folds(tmp_path, noise):
    data = load("fashion_mnist")
    some = data.take(torch.randperm(len(data), generator=torch.Generator().manual_seed(0))[:5000])
    ours, theirs = compare_with_cleanlab(some, noise, tmp_path, epochs=15, **SETTINGS, **QUICK)
    assert ours > theirs


def test_the_true_labels_are_not_used(digits_run, tmp_path, digits_audit):
    with_truth = digits_audit
    (digits_run.path / "labels/true.npy").rename(tmp_path / "true.npy")
    try:
        without = audit(digits_run.path)
    finally:
        (tmp_path / "true.npy").rename(digits_run.path / "labels/true.npy")
    np.testing.assert_array_equal(with_truth.quality, without.quality)
    np.testing.assert_array_equal(with_truth.is_issue, without.is_issue)


def test_doubtful_labels_are_wrong_and_their_suggestions_right(digits_run, digits_audit):
    result, record = digits_audit, digits_run.dynamics.record
    right = result.suggested[result.is_issue] == record.true[result.is_issue]
    assert record.wrong[result.is_issue].mean() > 0.95
    assert result.is_issue[record.wrong].mean() > 0.75
    assert right.mean() > 0.9
    assert (result.suggested != result.given)[result.is_issue].all()


@pytest.mark.parametrize("loss", ["ce", "gce(q=0.7)"])
def test_right_labels_are_not_doubted_and_most_wrong_ones_are(tmp_path, loss):
    settings = {"loss": loss, "epochs": 20, "device": "cpu", **QUICK}
    clean = audit(fit("mlp", "digits", folder=tmp_path / "clean", **settings))
    assert clean.count <= 0.01 * len(clean) and clean.interval[0] <= 0.01 * len(clean)
    result = audit(fit("mlp", "digits", noise="symmetric(0.1)", folder=tmp_path / "noisy", **settings))
    wrong = result.dynamics.record.wrong
    assert wrong[result.is_issue].mean() >= 0.9 and result.is_issue[wrong].mean() > 0.7


def test_the_interval_contains_the_number_of_wrong_labels_and_expected_precision_is_cautious(digits_run, digits_audit):
    result, wrong = digits_audit, digits_run.dynamics.record.wrong
    assert result.interval[0] <= wrong.sum() <= result.interval[1]
    assert result.interval[1] - result.interval[0] < 0.5 * wrong.sum()
    assert result.expected_precision == pytest.approx((1 - result.quality)[result.is_issue].mean())
    assert 0 < wrong[result.is_issue].mean() - result.expected_precision < 0.3
    low, high = result.interval
    for numbers in (f"{result.is_issue.sum()} of 1,437", f"{low:.0f} and {high:.0f}", f"{100 * result.dynamics.final:.1f} %"):
        assert numbers in repr(result)


@pytest.mark.parametrize("score", ["combined", "final_margin"])
def test_the_matrix_counts_the_doubtful_labels_from_given_to_suggested(digits_run, score):
    result = audit(digits_run, score=score)
    best = np.where(result.is_issue, result.suggested, result.given)
    np.testing.assert_array_equal(result.matrix, confusion_matrix(result.given, best, labels=range(10)))
    assert result.matrix.sum() - result.matrix.trace() == result.count == result.is_issue.sum() > 0


def test_a_run_that_learned_little_gets_a_caution(tmp_path, digits_audit):
    assert digits_audit.caution is None
    run = fit("linear", "digits", noise="symmetric(0.4)", epochs=3, folder=tmp_path, device="cpu")
    result, record = audit(run), run.dynamics.record
    contradicted = np.count_nonzero(record.predictions(3, "clean") != record.given)
    assert result.interval[1] < record.wrong.sum(), "the count of doubtful labels claims too little here"
    assert f"{contradicted:,} of 1,437" in result.caution
    assert result.basis in repr(result) and result.caution in repr(result) and digits_audit.basis in repr(digits_audit)


@pytest.mark.parametrize(
    ("metrics", "mentions", "weak"),
    [
        ([{"epoch": 10, "test_accuracy": 0.7}, {"epoch": 20, "test_accuracy": 0.75}], ("test", "best", "75.0 %"), True),
        ([{"epoch": 20, "test_accuracy": 0.95, "validation_accuracy": 0.5}], ("test", "95.0 %"), False),
        ([{"epoch": 20, "validation_accuracy": 0.65}], ("no test set", "held-out", "65.0 %"), True),
        ([{"epoch": 20, "validation_accuracy": 0.75}], ("no test set", "held-out", "75.0 %"), False),
        ([{"epoch": 20}], ("no test set", "90.0 %"), False),
    ],
)
def test_an_audit_states_the_accuracy_of_the_model_and_cautions_if_it_is_low(tmp_path, metrics, mentions, weak):
    """Of 100 labels 10 are contradicted in every epoch: held-out labels are wrong as often, so 75 % of them is a good model."""
    given = np.arange(100) % 3
    said = np.where(np.arange(100) < 10, (given + 1) % 3, given)
    training = [(epoch, np.where(given == said, 3.0, -3.0), said) for epoch in range(1, 21)]
    result = audit(write_run(tmp_path / "run", given, training=training, metrics=metrics, loss="ce"))
    assert result.count == 10 and result.basis in repr(result)
    assert all(mention in result.basis for mention in mentions)
    assert (result.caution is not None and result.basis in result.caution) == weak and (result.caution is None) != weak


def test_a_class_that_was_not_learned_is_named(tmp_path):
    """Of class 1 most labels are right, though the run never says so."""
    given, said = np.array([0] * 30 + [1] * 6 + [2] * 30), np.array([0] * 30 + [2] * 6 + [2] * 28 + [0] * 2)
    margins = np.where(given == said, 3.0, -3.0)
    result = audit(write_run(tmp_path / "run", given, training=[(epoch, margins, said) for epoch in range(1, 21)], classes=3, loss="ce"))
    assert result.unlearned == ("class 1",) and result.count == 8
    assert "'class 1'" in result.caution
    assert not result.tested


def test_a_robust_loss_does_not_doubt_labels_of_a_class_before_it_is_learned(tmp_path):
    """Class 1 is learned after half of the epochs; with a loss that memorises, late agreement may be memorisation."""
    given = np.array([0] * 40 + [1] * 20)
    wrong = np.isin(np.arange(60), [0, 1, 2, 50, 51])
    late = np.where(wrong, 1 - given, given)
    early = np.zeros(60, dtype=int)
    training = [(epoch, np.where(said == given, 3.0, -3.0), said) for epoch, said in enumerate([early] * 20 + [late] * 20, 1)]
    results = {
        loss: audit(write_run(tmp_path / loss, given, training=training, classes=2, loss=loss)) for loss in ("gce(q=0.7)", "mae", "ce")
    }
    for loss in ("gce(q=0.7)", "mae"):
        assert not (results[loss].is_issue & ~wrong).any() and results[loss].is_issue[50:52].all()
    assert (results["ce"].is_issue & ~wrong).sum() == 18


def test_find_label_issues_of_a_run_is_its_audit(digits_run):
    for score in ("combined", "area_under_margin"):
        np.testing.assert_array_equal(digits_run.find_label_issues(score=score).quality, audit(digits_run, score=score).quality)


def test_every_score_finds_wrong_labels_and_ranks_as_it_says(digits_run):
    dynamics, wrong = digits_run.dynamics, digits_run.dynamics.record.wrong
    results = {name: audit(dynamics, score=name) for name in ("combined", "area_under_margin", "final_margin", "emphasis", "mixture")}
    for result in results.values():
        assert roc_auc_score(wrong, -result.score) > 0.85
        assert (np.diff(result.quality[result.order]) >= 0).all()
    ranked = zip(dynamics.area_under_margin, results["combined"].score, strict=True)
    assert results["area_under_margin"].order.tolist() == [index for index, _ in sorted(enumerate(ranked), key=lambda pair: pair[1])]
    precision = {name: average_precision_score(wrong, -result.score) for name, result in results.items()}
    assert max(precision, key=precision.get) == "combined", "the default must be the best after a loss that memorises"


def test_forgotten_and_never_learned_examples_come_first(tmp_path):
    training = [
        (epoch, [1.0] * 4, predictions) for epoch, predictions in enumerate([[0, 0, 1, 0], [0, 1, 1, 1], [0, 0, 1, 0], [0, 1, 1, 0]], 1)
    ]
    result = audit(write_run(tmp_path / "run", [0, 0, 0, 0], training=training, classes=2, loss="ce"), score="forgetting")
    assert result.order.tolist() == [2, 1, 3, 0]


@pytest.mark.parametrize("score", ["forgetting", "emphasis", "combined"])
def test_what_is_doubtful_does_not_depend_on_the_order_of_the_examples(digits_run, tmp_path, score):
    record = digits_run.dynamics.record
    results = {}
    for name, order in (("as they were", np.arange(1437)), ("shuffled", np.random.default_rng(0).permutation(1437))):
        training = [(epoch, record.margins(epoch)[order], record.predictions(epoch)[order]) for epoch in record.epochs()]
        results[name] = audit(write_run(tmp_path / name, record.given[order], training=training, classes=10, loss="ce"), score=score), order
    (before, _), (after, order) = results.values()
    np.testing.assert_array_equal(after.is_issue, before.is_issue[order])
    np.testing.assert_allclose(after.quality, before.quality[order])
    np.testing.assert_array_equal(order[after.order], before.order)


def test_an_unknown_score_is_refused_before_anything_is_read(tmp_path):
    with refused("combine", "combined"):
        audit(tmp_path / "nowhere", score="combine")


def test_trajectories_are_the_margins_of_the_record(digits_run, digits_audit):
    result = digits_audit
    worst = result.order[:5]
    histories = result.trajectories(worst)
    epochs = len(digits_run.metrics)
    assert histories.shape == (5, epochs)
    np.testing.assert_array_equal(histories[:, 6], digits_run.dynamics.record.margins(7)[worst])
    np.testing.assert_array_equal(result.trajectories(worst, moments=3), histories[:, [0, (epochs - 1) // 2, epochs - 1]])
    np.testing.assert_array_equal(result.trajectories(worst, moments=100), histories)


def test_trajectories_accept_masks_and_refuse_invalid_positions(digits_run, digits_audit):
    result = digits_audit
    doubtful = result.trajectories(np.flatnonzero(result.is_issue))
    for mask in (result.is_issue, torch.from_numpy(result.is_issue), result.is_issue.tolist()):
        np.testing.assert_array_equal(result.trajectories(mask), doubtful)
    assert result.trajectories([]).shape == (0, len(digits_run.metrics))
    for wrong in (result.is_issue[:-1], [0.5], [1437], [-1], 3, ["3"]):
        with refused("indices", "1436", "1437"):
            result.trajectories(wrong)


def test_unseen_examples_are_not_issues_and_come_last(tmp_path):
    unseen = 20
    training = [(epoch, [2.0, -2.0, 1.0, *[np.nan] * unseen], [0, 0, 1, *[-1] * unseen]) for epoch in range(1, 9)]
    result = audit(write_run(tmp_path / "run", [0, 1, 1, *[0] * unseen], training=training, classes=2, loss="ce"))
    assert result.seen.tolist() == [True, True, True, *[False] * unseen]
    assert result.is_issue.tolist() == [False, True, False, *[False] * unseen]
    assert (result.order[3:] >= 3).all() and result.interval[1] <= 3
    assert result.caution is None, "an unseen example contradicts no label"
    last = result.table()[-1]
    assert last["predicted_label"] is None and np.isnan(last["label_quality"]) and np.isnan(last["emphasis_history"]).all()
    result.write(tmp_path / "issues.json")
    written = json.loads((tmp_path / "issues.json").read_text(encoding="utf-8"))[-1]
    assert written["label_quality"] is None and written["emphasis_history"] == [None] * 8


def test_the_record_is_listed_equally_often_for_any_number_of_blocks_and_epochs(tmp_path, monkeypatch):
    listed, epochs_of = [], Record.epochs
    monkeypatch.setattr(Record, "epochs", lambda record, of="training": listed.append(of) or epochs_of(record, of))
    monkeypatch.setattr(_evidence, "_VOTES", 2)  # a block for every example
    often = []
    for epochs in (2, 20):
        passes = [(epoch, [2.0, -2.0, 1.0], [0, 0, 1]) for epoch in range(1, epochs + 1)]
        audit(write_run(tmp_path / str(epochs), [0, 1, 1], training=passes, clean=passes[-1:], classes=2, loss="ce"))
        often.append(len(listed))
        listed.clear()
    assert often[0] == often[1] < 15


def test_a_table_has_the_columns_of_cleanlab_and_the_worst_first(digits_audit):
    result = digits_audit
    rows = result.table(limit=50)
    assert len(rows) == 50 and {"is_label_issue", "label_quality", "given_label", "predicted_label"} <= rows[0].keys()
    assert [row["index"] for row in rows] == result.order[:50].tolist()
    assert rows[0]["given_label"] == str(result.given[result.order[0]])
    first = rows[0]
    p = torch.sigmoid(torch.from_numpy(result.trajectories(result.order[:1])[0, [0, -1]])).numpy()
    np.testing.assert_allclose([first["emphasis_history"][0], first["emphasis_history"][-1]], 1 - p, atol=1e-5)
    assert len(first["emphasis_history"]) == 20


def test_csv_json_and_parquet_have_the_same_content(tmp_path, digits_audit):
    from pyarrow import parquet

    result = digits_audit
    for suffix in ("csv", "json", "parquet"):
        result.write(tmp_path / f"issues.{suffix}")
    rows = result.table()
    with (tmp_path / "issues.csv").open(encoding="utf-8", newline="") as file:
        from_csv = list(csv.DictReader(file))
    from_json = json.loads((tmp_path / "issues.json").read_text(encoding="utf-8"))
    from_parquet = parquet.read_table(tmp_path / "issues.parquet").to_pylist()
    assert from_json == rows == from_parquet
    assert [row["id"] for row in from_csv] == [row["id"] for row in rows]
    np.testing.assert_allclose([float(row["label_quality"]) for row in from_csv], result.quality[result.order])
    assert len(from_csv[0]["emphasis_history"].split()) == 20


def test_lists_written_in_blocks_equal_lists_written_at_once(tmp_path, monkeypatch, digits_audit):
    from pyarrow import parquet

    result = digits_audit
    whole, parts = ([tmp_path / f"{name}.{suffix}" for suffix in ("csv", "json", "parquet")] for name in ("whole", "parts"))
    for path in whole:
        result.write(path)
    monkeypatch.setattr(_listing, "ROWS", 500)
    result.write(parts[1])
    monkeypatch.setattr(tables, "rows_of", lambda *_: pytest.fail("columns were converted to rows"))
    for path in (parts[0], parts[2]):
        result.write(path)
    assert [path.read_bytes() for path in parts[:2]] == [path.read_bytes() for path in whole[:2]]
    assert parquet.read_table(parts[2]).equals(parquet.read_table(whole[2])) and parquet.ParquetFile(parts[2]).num_row_groups == 3


UNWRITABLE = [("issues.xlsx", ("path", "issues.xlsx", ".csv", ".json", ".parquet")), ("nowhere/issues.csv", ("issues.csv", "nowhere"))]


@pytest.mark.parametrize(("name", "mentions"), UNWRITABLE)
def test_a_file_that_cannot_be_written_is_refused_and_leaves_nothing(tmp_path, name, mentions, digits_audit):
    with refused(*mentions):
        digits_audit.write(tmp_path / name)
    assert not list(tmp_path.iterdir())


def test_a_negative_limit_is_refused(digits_audit):
    with refused("limit", "table", -1):
        digits_audit.table(-1)


def test_equal_beliefs_form_one_group():
    line = judge_labels(np.full(3, 0.25), np.ones(3, dtype=bool))
    np.testing.assert_allclose(line.quality, 0.25)
    assert line.is_issue.all()


def test_a_label_is_doubtful_if_it_is_more_likely_wrong_than_right():
    """Equal beliefs are one group, where the chance is one minus the belief."""
    outvoted = np.ones(3, dtype=bool)
    assert judge_labels(np.full(3, 0.49), outvoted).is_issue.all()
    assert not judge_labels(np.full(3, 0.51), outvoted).is_issue.any()


def two_groups(low, high):
    rng = np.random.default_rng(0)
    return np.clip(np.concatenate([rng.normal(low, 0.08, 300), rng.normal(high, 0.08, 700)]), 0, 1)


def test_the_chance_of_a_wrong_label_is_mixture_times_disbelief():
    belief = two_groups(0.2, 0.8)
    line = judge_labels(belief, belief < 0.5)
    mixture = GaussianMixture(2, random_state=0, tol=1e-8, max_iter=1000).fit(belief[:, None])
    low = mixture.predict_proba(belief[:, None])[:, mixture.means_[:, 0].argmin()]
    np.testing.assert_allclose(1 - line.quality, low * (1 - belief), atol=0.01)
    fewest, most = (low * (1 - belief)).sum(), max(low.sum(), (belief < 0.5).sum())
    expected = fewest - 2 * np.sqrt(fewest * (1 - fewest / 1000)), most + 2 * np.sqrt(most * (1 - most / 1000))
    np.testing.assert_allclose(line.interval, expected, atol=1)


def test_the_interval_ends_at_the_number_of_labels():
    belief = np.array([0.1, 0.2, 0.1, 0.9, np.nan])
    assert judge_labels(belief, belief < 0.5).interval[1] == 4, "3 + 2 √(3 · 1/4) is more than the four known labels"


def test_mistakes_of_the_model_lower_the_interval():
    """1,000 labels of which 200 are outvoted, by a model that gets a tenth of right labels wrong: (200 − 100) / 0.9 at least."""
    belief = np.where(np.arange(1000) < 200, 0.02, 0.98) + np.random.default_rng(0).normal(0, 0.005, 1000)
    low, high = judge_labels(belief, belief < 0.5).interval
    lower, same = judge_labels(belief, belief < 0.5, mistakes=0.1).interval
    assert same == high and low > 150
    count = 100 / 0.9
    assert lower == pytest.approx(count - 2 * np.sqrt(count * (1 - count / 1000)))
    assert judge_labels(belief, belief < 0.5, mistakes=0.5).interval[0] == 0


def test_the_mistakes_of_a_run_are_those_of_its_best_epoch_on_test_data(tmp_path):
    labels = np.arange(100) % 2
    predictions = np.where(np.arange(100) < 30, 1 - labels, labels)
    training = [(epoch, np.where(predictions == labels, 9.0, -9.0), predictions) for epoch in range(1, 9)]
    lows = []
    for name, accuracies in (("untested", ()), ("tested", (0.5, 0.8, 0.7))):
        metrics = [{"epoch": epoch, "test_accuracy": accuracy} for epoch, accuracy in enumerate(accuracies, 1)]
        result = audit(write_run(tmp_path / name, labels, training=training, metrics=metrics, classes=2, loss="ce"))
        assert result.count == 30
        lows.append(result.interval[0])
    least = (30 - 0.2 * 100) / 0.8
    assert lows[0] > 15 and lows[1] == pytest.approx(least - 2 * np.sqrt(least * (1 - least / 100)))


def test_a_lower_group_of_believed_labels_is_not_doubted():
    belief = two_groups(0.65, 0.9)
    line = judge_labels(belief, belief < 0.5)
    assert not line.is_issue[belief > 0.5].any() and line.is_issue.sum() < 20
    assert line.interval[0] <= 20 and line.interval[1] < 150, "the 300 labels of the group are not all counted"


PROBABILITIES = [[0.9, 0.1, 0.0], [0.1, 0.8, 0.1], [0.2, 0.2, 0.6]]


@pytest.mark.parametrize(
    ("labels", "probabilities", "mentions"),
    [
        ([0, 1], PROBABILITIES, ("pred_probs", "find_label_issues", "2", "3")),
        ([0, 1, 3], PROBABILITIES, ("find_label_issues", "0", "2", "num_classes", "3")),
        ([0, 1, 2], np.array(PROBABILITIES) * 0.9, ("pred_probs", "row 0")),
        ([0, 1, 2], [[0.5, 0.5, 0.0], [1.5, -0.5, 0.0], [0.0, 0.0, 1.0]], ("pred_probs", "row 1")),
        ([0, 1, 2], [0.5, 0.2, 0.3], ("pred_probs", "(3,)")),
        ([0, 1, 2], [[1.0], [1.0], [1.0]], ("pred_probs", "(3, 1)")),
        ([0, 1, 2], [[0.5, 0.5], [1.0], [0.5, 0.5]], ("pred_probs",)),
        ([0, 1, 2], [["a", "b"]] * 3, ("pred_probs", "'a'")),
        ([0, 1, 2], {"a": 1}, ("pred_probs", "dict")),
        ([0, 1, 2], [[np.nan, 0.5, 0.5]] * 3, ("pred_probs", "row 0", "nan")),
    ],
)
def test_bad_probabilities_are_refused(labels, probabilities, mentions):
    with refused(*mentions):
        find_label_issues(labels, probabilities)


def test_probabilities_may_require_gradients():
    issues = find_label_issues([0, 1, 2], torch.tensor(PROBABILITIES, requires_grad=True))
    np.testing.assert_allclose(issues.label_quality, find_label_issues([0, 1, 2], np.array(PROBABILITIES)).label_quality, atol=1e-6)


NAMES = ["cat", "dog", "bird"]
GIVEN = [0, 1, 1, 2, 0]
SURE = [[0.9, 0.1, 0.0], [0.1, 0.8, 0.1], [0.0, 0.1, 0.9], [0.1, 0.1, 0.8], [0.2, 0.7, 0.1]]


@pytest.mark.parametrize("kind", [np.float64, np.float32])
def test_probabilities_are_copied_once_and_not_changed(kind):
    number, classes = 1000, 400
    given = np.random.default_rng(0).dirichlet(np.ones(classes), number).astype(kind)
    labels, before = given.argmax(1), given.copy()
    from_tensor, peak = with_peak(lambda: find_label_issues(labels, torch.from_numpy(given)))
    assert peak < 8 * 8 * given.size, "the tensor itself is not counted here; the noise model works on single precision"
    from_array = find_label_issues(labels, given)
    np.testing.assert_array_equal(from_tensor.label_quality, from_array.label_quality)
    np.testing.assert_array_equal(given, before)


def test_labels_may_be_names_of_the_columns_of_probabilities():
    pandas = pytest.importorskip("pandas")
    expected = find_label_issues(GIVEN, SURE)
    words = [NAMES[label] for label in GIVEN]
    for labels in (words, np.array(words), pandas.Series(words), pandas.Categorical(words), GIVEN, torch.tensor(GIVEN)):
        issues = find_label_issues(labels, SURE, classes=NAMES)
        np.testing.assert_array_equal(issues.given_label, GIVEN)
        np.testing.assert_array_equal(issues.label_quality, expected.label_quality)
        assert issues.classes == tuple(NAMES)
    turned = find_label_issues(words, np.array(SURE)[:, ::-1], classes=NAMES[::-1])
    np.testing.assert_allclose(turned.label_quality, expected.label_quality, atol=1e-3)


def test_class_names_may_be_numbers():
    assert find_label_issues([10, 30, 30, 20, 10], SURE, classes=np.array([10, 30, 20])).given_label.tolist() == GIVEN


def test_lists_from_probabilities_have_the_columns_of_an_audit(tmp_path, digits_audit):
    from pyarrow import parquet

    ids = [f"{name}.png" for name in "abcde"]
    issues = find_label_issues(GIVEN, SURE, classes=NAMES, ids=ids)
    for suffix in ("csv", "json", "parquet"):
        assert issues.write(tmp_path / f"issues.{suffix}") == tmp_path / f"issues.{suffix}"
    rows = json.loads((tmp_path / "issues.json").read_text(encoding="utf-8"))
    assert parquet.read_table(tmp_path / "issues.parquet").to_pylist() == rows
    with (tmp_path / "issues.csv").open(encoding="utf-8", newline="") as file:
        assert list(csv.DictReader(file)) == [{name: str(value) for name, value in row.items()} for row in rows]
    assert list(rows[0]) == list(digits_audit.table(1)[0])[: len(rows[0])], "the audit's first columns"
    assert [row["index"] for row in rows] == issues.order.tolist() == sorted(range(5), key=lambda place: issues.label_quality[place])
    assert [row["id"] for row in rows] == [ids[place] for place in issues.order]
    assert {row["index"]: (row["given_label"], row["predicted_label"]) for row in rows} == {
        0: ("cat", "cat"), 1: ("dog", "dog"), 2: ("dog", "bird"), 3: ("bird", "bird"), 4: ("cat", "dog")
    }  # fmt: skip
    assert {row["index"] for row in rows if row["is_label_issue"]} == set(np.flatnonzero(issues.is_label_issue).tolist())


def test_without_names_classes_and_examples_are_numbered(tmp_path):
    issues = find_label_issues(GIVEN, SURE)
    first = json.loads(issues.write(tmp_path / "issues.json").read_text(encoding="utf-8"))[0]
    assert (first["index"], first["id"], first["given_label"], first["predicted_label"]) == (2, "2", "1", "2")


@pytest.mark.parametrize(("name", "mentions"), UNWRITABLE)
def test_a_list_from_probabilities_that_cannot_be_written_is_refused(tmp_path, name, mentions):
    with refused(*mentions):
        find_label_issues(GIVEN, SURE).write(tmp_path / name)
    assert not list(tmp_path.iterdir())


def test_the_repr_of_label_issues_has_counts_and_interval():
    labels, probabilities = GIVEN * 1000, SURE * 1000
    issues = find_label_issues(labels, probabilities)
    low, high = issues.interval
    assert issues.count == issues.is_label_issue.sum() == 2000 and 0 < low <= issues.expected_count <= high < 5000 == len(issues)
    assert all(number in repr(issues) for number in ("2,000 of 5,000", f"{low:,.0f} and {high:,.0f}"))
    borrowed = find_label_issues(labels, probabilities, method="confident_learning")
    assert f"{borrowed.count:,} of 5,000" in repr(borrowed) and borrowed.interval is None


@pytest.mark.parametrize(
    ("labels", "options", "mentions"),
    [
        (["cat", "dog", "bird"], {}, ("classes", "find_label_issues")),
        (["cat", "dog", "cow"], {"classes": NAMES}, ("Row 2", "cow", "3", "cat", "dog", "bird")),
        (["cat", None, "dog"], {"classes": NAMES}, ("Row 1", "labels")),
        ([0, 1, 3], {"classes": NAMES}, ("Row 2", "3")),
        (
            [],
            {"classes": NAMES},
            ("labels", "find_label_issues", "(0,)"),
        ),
        ([0, 1, 2], {"classes": NAMES[:2]}, ("classes", "find_label_issues", "3")),
        (
            [0, 1, 2],
            {"classes": ["cat", "dog", "cat"]},
            ("3", "pred_probs", "['cat', 'dog', 'cat']"),
        ),
        ([0, 1, 2], {"ids": ["a", "b"]}, ("ids", "find_label_issues", "3", "2")),
        ([0, 1, 2], {"ids": ["a", "b", "a"]}, ("Row 2", "'a'", "row 0")),
        (["cat", "dog"], {"classes": NAMES}, ("2", "3")),
        ([[0], [1, 2]], {}, ("labels", "find_label_issues")),
        (None, {}, ("labels", "find_label_issues")),
        (3, {"classes": NAMES}, ("labels", "()")),
    ],
)
def test_bad_names_and_ids_are_refused(labels, options, mentions):
    with refused(*mentions):
        find_label_issues(labels, PROBABILITIES, **options)


def test_an_unknown_method_is_refused():
    with refused("method", "noise_model", "entropy"):
        find_label_issues([0, 1, 2], PROBABILITIES, method="entropy")


def test_probabilities_are_ranked_like_cleanlab_ranks_them():
    from cleanlab.filter import find_label_issues as confident
    from cleanlab.rank import get_label_quality_scores

    rng = np.random.default_rng(0)
    true = rng.integers(5, size=2000)
    labels = np.where(rng.random(2000) < 0.2, rng.integers(5, size=2000), true)
    scores = rng.normal(size=(2000, 5)) + 2.5 * np.eye(5)[true]
    probabilities = np.exp(scores) / np.exp(scores).sum(1, keepdims=True)
    issues, wrong = find_label_issues(labels, probabilities), labels != true
    theirs = max(
        average_precision_score(wrong, -get_label_quality_scores(labels, probabilities, method=method))
        for method in ("self_confidence", "normalized_margin")
    )
    assert average_precision_score(wrong, -issues.label_quality) > theirs - 0.01
    assert (issues.predicted_label == probabilities.argmax(1)).all()
    assert (issues.predicted_label != labels)[issues.is_label_issue].all()
    assert wrong[issues.is_label_issue].mean() > 3 * wrong.mean() and issues.is_label_issue[wrong].mean() > 0.8
    borrowed = find_label_issues(labels, torch.from_numpy(probabilities), method="confident_learning")
    np.testing.assert_array_equal(borrowed.is_label_issue, confident(labels, probabilities, n_jobs=1))
    np.testing.assert_allclose(borrowed.label_quality, get_label_quality_scores(labels, probabilities))
    assert list(borrowed.columns()) == ["is_label_issue", "label_quality", "given_label", "predicted_label"]


def test_anything_but_a_run_or_data_is_refused():
    with refused("source", "int"):
        audit(3)
