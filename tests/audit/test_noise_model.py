"""Labels judged from class probabilities and from features: chances, intervals and cautions against the truth."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.stats import dirichlet
from sklearn.datasets import load_digits, make_classification
from sklearn.decomposition import PCA
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import average_precision_score
from sklearn.model_selection import cross_val_predict
from sklearn.neighbors import NearestNeighbors
from sklearn.preprocessing import StandardScaler

from noisewise import fit
from noisewise.audit import _features, _noise_model, add_evidence, audit, evidence_from_features, find_label_issues
from noisewise.correct import correct
from noisewise.noise import corrupt
from refused import refused
from run_folders import write_run


def simulated(seed, rate, classes=4, number=1500, spread=2.5):
    """Classes that overlap a little, noisy labels, and the true probabilities of the noisy labels' classes before noise."""
    rng = np.random.default_rng(seed)
    scores = spread * rng.normal(size=(number, classes))
    probabilities = np.exp(scores) / np.exp(scores).sum(1, keepdims=True)
    true = (probabilities.cumsum(1) > rng.random((number, 1))).argmax(1)
    wrong = rng.random(number) < rate
    return probabilities, np.where(wrong, (true + rng.integers(1, classes, number)) % classes, true), wrong


@pytest.mark.parametrize("rate", [0.1, 0.3])
def test_chances_are_calibrated_on_known_posteriors(rate):
    """Of the labels with a chance in each tenth, about that share is wrong, and the chance is near the one by Bayes' rule."""
    probabilities, given, wrong = simulated(0, rate, number=6000)
    issues = find_label_issues(given, probabilities)
    chance = 1 - issues.label_quality
    noise = np.full((4, 4), rate / 3) + (1 - rate - rate / 3) * np.eye(4)
    joint = probabilities * noise[:, given].T
    exact = 1 - joint[np.arange(6000), given] / joint.sum(1)
    assert np.abs(chance - exact).mean() < 0.03
    for low in np.arange(0, 1, 0.2):
        own = (chance >= low) & (chance < low + 0.2)
        if own.sum() > 100:
            assert abs(chance[own].mean() - wrong[own].mean()) < 0.06
    assert issues.expected_precision == pytest.approx(wrong[issues.is_label_issue].mean(), abs=0.05)


def test_the_interval_holds_the_number_of_wrong_labels():
    held, widths = [], []
    for seed in range(20):
        rate = (0.02, 0.1, 0.2, 0.35)[seed % 4]
        probabilities, given, wrong = simulated(seed, rate, spread=5)
        low, high = find_label_issues(given, probabilities).interval
        held.append(low <= wrong.sum() <= high)
        widths.append((high - low) / len(given))
    assert np.mean(held) >= 0.9 and np.median(widths) < 0.08


@pytest.mark.parametrize(("spread", "share"), [(8, 1 / 3), (3, 1.0)])
def test_the_interval_includes_contradictions_where_wrong_labels_can_hide(spread, share):
    """All labels are right, but classes overlap: a third of the contradictions is included, and all if they are many."""
    probabilities, given, _ = simulated(0, 0.0, spread=spread)
    issues = find_label_issues(given, probabilities)
    contradicted = np.count_nonzero(issues.predicted_label != given)
    assert issues.expected_count < 0.05 * len(given) and issues.interval[0] == 0
    assert issues.interval[1] >= issues.expected_count + share * (contradicted - issues.expected_count)


def test_overlap_is_not_taken_for_noise_of_each_class():
    """Few examples of many classes that overlap, all labels right, and models that err: noise of each class would fit them well."""
    for seed in range(3):
        probabilities, given, _ = simulated(seed, 0.0, classes=15, number=360, spread=4)
        rng = np.random.default_rng(seed)
        evidence = [probabilities * np.exp(rng.normal(size=probabilities.shape)) for _ in range(3)]
        issues = find_label_issues(given, [table / table.sum(1, keepdims=True) for table in evidence])
        assert issues.agreement < 0.75 and issues.is_label_issue.mean() < 0.01


def test_the_divergence_of_dirichlet_distributions_is_the_mean_difference_of_their_logarithms():
    after, before = np.array([[16.5, 3.0], [1.5, 8.5]]), np.array([[9.0, 1.0], [0.5, 4.5]])
    rng = np.random.default_rng(0)
    sampled = 0.0
    for row, prior in zip(after, before, strict=True):
        drawn = rng.dirichlet(row, 50_000).T
        sampled += (dirichlet.logpdf(drawn, row) - dirichlet.logpdf(drawn, prior)).mean()
    assert _noise_model._divergence(after, before) == pytest.approx(sampled, abs=0.02)


def test_distorted_probabilities_give_the_same_answer():
    """Overconfident or underconfident models are calibrated on the given labels."""
    probabilities, given, wrong = simulated(3, 0.2)
    expected = find_label_issues(given, probabilities)
    for power in (0.5, 2.0):
        distorted = probabilities**power / (probabilities**power).sum(1, keepdims=True)
        issues = find_label_issues(given, distorted)
        assert issues.expected_count == pytest.approx(wrong.sum(), rel=0.35)
        assert (issues.is_label_issue == expected.is_label_issue).mean() > 0.95


def test_useless_evidence_does_not_harm():
    probabilities, given, wrong = simulated(4, 0.2)
    useless = np.random.default_rng(0).dirichlet(np.ones(4), len(given))
    alone, both = (find_label_issues(given, evidence) for evidence in ([probabilities], [probabilities, useless]))
    precision = [average_precision_score(wrong, -issues.label_quality) for issues in (alone, both)]
    assert precision[1] > precision[0] - 0.01


def test_noise_of_single_classes_is_found():
    """Only labels of class 0 are wrong: a third of them came from class 1."""
    probabilities, given, _ = simulated(5, 0.0, spread=5, number=3000)
    turned = (given == 1) & (np.random.default_rng(0).random(3000) < 0.3)
    issues = find_label_issues(np.where(turned, 0, given), probabilities)
    assert issues.is_label_issue[turned].mean() > 0.7 and turned[issues.is_label_issue].mean() > 0.8
    assert issues.matrix[0, 1] > 10 * max(issues.matrix[2, 3], 1)


def rare(seed, missed):
    """The posterior of a rare class, 5 % of 3,000 examples, and labels that miss a share of it."""
    rng = np.random.default_rng(seed)
    true = rng.random(3000) < 0.05
    odds = np.log(0.05 / 0.95) + rng.normal(np.where(true, 8, -8), 4)  # normal, so the logarithm of the odds is exactly this
    posterior = 1 / (1 + np.exp(-odds))
    wrong = true & (rng.random(3000) < missed)
    return np.stack([1 - posterior, posterior], 1), (true & ~wrong).astype(int), wrong


def test_missed_members_of_a_rare_class_are_found_and_none_is_invented():
    found, precise, held = [], [], []
    for seed in range(3):
        probabilities, given, wrong = rare(seed, 0.2)
        issues = find_label_issues(given, probabilities)
        found.append(issues.is_label_issue[wrong].mean())
        precise.append(wrong[issues.is_label_issue].mean())
        held.append(issues.interval[0] <= wrong.sum() <= issues.interval[1])
        probabilities, given, _ = rare(seed, 0.0)
        assert find_label_issues(given, probabilities).is_label_issue.mean() < 0.002
    assert min(found) > 0.6 and min(precise) > 0.6 and sum(held) >= 2


@pytest.fixture(scope="module")
def digits():
    features, labels = load_digits(return_X_y=True)
    return features[:1000], labels[:1000]


def test_hardly_any_clean_label_is_flagged(digits):
    issues = find_label_issues(digits[1], evidence_from_features(*digits))
    assert issues.is_label_issue.mean() <= 0.01 and issues.interval[1] < 0.05 * len(issues) and issues.caution is None


def test_wrong_labels_of_a_table_are_ranked_better_than_by_folds_of_logistic_regression(digits):
    features, labels = digits
    noisy = corrupt(labels, "symmetric(0.2)", seed=1)
    given, wrong = noisy.labels.numpy(), noisy.mask.numpy()
    issues = find_label_issues(given, evidence_from_features(features, given))
    probabilities = cross_val_predict(LogisticRegression(max_iter=200), features / 16, given, method="predict_proba")
    logistic = average_precision_score(wrong, -probabilities[np.arange(len(given)), given])
    assert average_precision_score(wrong, -issues.label_quality) > max(logistic, 0.97)
    assert issues.interval[0] <= wrong.sum() <= issues.interval[1]
    assert (issues.suggested_label == labels)[issues.is_label_issue].mean() > 0.9


def test_missed_rare_positives_are_found():
    """A table with 5 % positives, a fifth of which are labelled "no"."""
    features, true = make_classification(2500, 12, n_informative=6, weights=[0.95], class_sep=2, flip_y=0, random_state=4)
    missed = (true == 1) & (np.random.default_rng(0).random(2500) < 0.2)
    given = np.where(missed, 0, true)
    issues = find_label_issues(given, evidence_from_features(features, given))
    assert issues.is_label_issue[missed].mean() >= 0.6 and missed[issues.is_label_issue].mean() >= 0.6


def test_labels_that_features_cannot_predict_are_not_judged():
    rng = np.random.default_rng(0)
    issues = find_label_issues(labels := rng.integers(3, size=400), evidence_from_features(rng.normal(size=(400, 6)), labels))
    assert "cannot be judged" in issues.caution and issues.count < 40


def sparse(rng, rows, columns):
    """Counts of words, such as those of short texts: classes differ in how frequent each word is."""
    true = rng.integers(4, size=rows)
    return (rng.random((rows, columns)) < (rng.random((4, columns)) * 0.02)[true]).astype(float), true


def dense(rng, rows, columns):
    """Normal noise; a tenth of the columns says a little about the class."""
    true = rng.integers(3, size=rows)
    means = 0.3 * rng.normal(size=(3, columns)) * (rng.random((3, columns)) < 0.1)
    return rng.normal(size=(rows, columns)) + means[true], true


@pytest.mark.parametrize("kind", [sparse, dense])
def test_on_wide_data_wrong_labels_are_found_as_by_logistic_regression_or_the_caution_says_so(kind):
    """More columns than rows, where a network would memorise every label at once."""
    confident = pytest.importorskip("cleanlab.filter")
    rng = np.random.default_rng(0)
    features, true = kind(rng, 700, 1200)
    given = np.where(rng.random(700) < 0.4, rng.integers(true.max() + 1, size=700), true)
    issues, wrong = find_label_issues(given, evidence_from_features(features, given)), given != true
    probabilities = cross_val_predict(LogisticRegression(max_iter=200), features, given, method="predict_proba")
    theirs = confident.find_label_issues(given, probabilities, n_jobs=1)
    assert issues.interval[1] >= wrong.sum() or issues.caution is not None
    assert issues.caution is not None or (issues.is_label_issue & wrong).sum() >= (theirs & wrong).sum()
    logistic = average_precision_score(wrong, -probabilities[np.arange(700), given])
    assert average_precision_score(wrong, -issues.label_quality) > logistic - 0.05


def embeddings_of(true, rng):
    return rng.normal(size=(len(true), 40)) + 1.5 * rng.normal(size=(3, 40))[true]


def test_models_of_embeddings_find_wrong_labels_and_predict_new_rows(monkeypatch):
    monkeypatch.setattr(_features, "_MANY_ROWS", 300)
    monkeypatch.setattr(_features, "_MANY_COLUMNS", 40)
    rng = np.random.default_rng(0)
    true = rng.integers(3, size=500)
    features = embeddings_of(true, rng)
    given = np.where(rng.random(400) < 0.2, (true[:400] + 1) % 3, true[:400])
    models = _features.FeatureModels.fit(features[:400], given)
    issues, wrong = find_label_issues(given, models.evidence), given != true[:400]
    assert average_precision_score(wrong, -issues.label_quality) > 0.95
    for table in (*models.evidence, *models.predict(features)):
        np.testing.assert_allclose(table.sum(1), 1, rtol=1e-5)
    for table in models.predict(features[400:]):
        assert (table.argmax(1) == true[400:]).mean() > 0.9


@pytest.mark.parametrize(
    ("rows", "columns", "values", "expected"), [(2000, 128, 1000, True), (1999, 128, 1000, False), (2000, 128, 2, False)]
)
def test_many_columns_of_measurements_are_embeddings_and_categories_are_not(rows, columns, values, expected):
    table = np.random.default_rng(0).integers(values, size=(rows, columns)).astype(float)
    assert _features._are_embeddings(table) is expected


def test_components_and_neighbours_of_embeddings_are_those_of_scikit_learn(monkeypatch):
    monkeypatch.setattr(_features, "_BLOCK", 64)
    monkeypatch.setattr(_features, "_COMPONENTS", 6)
    table = (np.random.default_rng(0).normal(size=(300, 20)) @ np.random.default_rng(1).normal(size=(20, 20)) + 5).astype(np.float32)
    components = _features._Components.of(table)
    expected = PCA(6).fit(StandardScaler().fit_transform(table.astype(float)))
    np.testing.assert_allclose(components.variances, expected.explained_variance_, rtol=1e-4)
    projected = expected.transform(StandardScaler().fit_transform(table.astype(float)))
    np.testing.assert_allclose(np.abs(components(table)), np.abs(projected), rtol=1e-2, atol=1e-3)
    directions = components.directions(components(table))
    search = NearestNeighbors(n_neighbors=5, metric="cosine", algorithm="brute").fit(directions[:200])
    assert (_features._nearest(directions, directions[:200], 5) == search.kneighbors(directions, return_distance=False)).mean() > 0.99


def test_models_of_embeddings_do_not_see_the_label_they_judge(monkeypatch):
    monkeypatch.setattr(_features, "_MANY_ROWS", 300)
    monkeypatch.setattr(_features, "_MANY_COLUMNS", 40)
    rng = np.random.default_rng(1)
    features, given = rng.normal(size=(400, 40)), rng.integers(2, size=400)
    for table in _features.FeatureModels.fit(features, given).evidence:
        assert abs((table.argmax(1) == given).mean() - 0.5) < 0.12, "labels of chance cannot be predicted"


def test_a_single_wrong_label_per_class_is_flagged_on_clear_classes(digits):
    features, labels = digits
    given = labels.copy()
    places = np.flatnonzero(labels == 0)[:5]
    given[places] = np.arange(1, 6)
    issues = find_label_issues(given, evidence_from_features(features, given))
    assert issues.is_label_issue[places].all() and (issues.suggested_label[places] == 0).all()
    assert issues.count <= 25


def test_a_doubtful_label_has_another_suggestion_and_a_chance_above_two_fifths():
    probabilities, given, _ = simulated(6, 0.3, spread=1.2)
    weaker = probabilities**0.5
    issues = find_label_issues(given, [probabilities, weaker / weaker.sum(1, keepdims=True)])
    doubtful = issues.is_label_issue
    assert (doubtful & (issues.label_quality > 0.5)).any()
    assert (issues.suggested_label != given)[doubtful].all() and (issues.label_quality[doubtful] < 0.6).all()
    assert issues.label_quality[doubtful].max() <= issues.label_quality[~doubtful].min()
    # No other length of the list has a higher expected F1, unless its last chances are below two fifths.
    chance = np.sort(1 - issues.label_quality)[::-1]
    expected = chance.cumsum() / (np.arange(1, len(chance) + 1) + chance.sum())
    assert issues.count == min(int(expected.argmax()) + 1, np.count_nonzero(chance > 0.4))


def test_an_audit_uses_the_evidence_beside_a_run(digits, tmp_path):
    features, labels = digits
    noisy = corrupt(labels, "symmetric(0.1)", seed=0)
    given = noisy.labels.numpy()
    run = fit("mlp", (features.astype("float32"), given), epochs=1, loss="ce", folder=tmp_path / "run", device="cpu")
    before = audit(run)
    add_evidence(run, features)
    after, alone = audit(run), find_label_issues(given, evidence_from_features(features, given))
    assert before.model is None and after.model is not None
    assert after.label_quality == pytest.approx(alone.label_quality, abs=1e-3) and after.interval == pytest.approx(alone.interval, rel=0.05)
    assert noisy.mask.numpy()[after.review_first(50)].mean() > 0.95
    corrected = correct(run, "relabel")
    assert (corrected.labels == labels).mean() > (given == labels).mean() + 0.05
    assert run.find_label_issues(features=features).label_quality == pytest.approx(after.label_quality)
    with refused("score", "combined"):
        audit(run, score="forgetting")
    with refused("features", "1000", "3 rows"):
        add_evidence(run, features[:3])


def test_a_run_that_memorised_all_labels_says_that_it_cannot_judge(tmp_path):
    given = np.arange(200) % 4
    record = [(epoch, np.full(200, 9.0), given) for epoch in range(1, 4)]
    run = write_run(tmp_path / "run", given, training=record, classes=4, loss="ce")
    assert "cannot judge" in audit(run).caution
    tested = [{"epoch": 3, "test_accuracy": 0.97}]
    assert audit(write_run(tmp_path / "tested", given, training=record, classes=4, loss="ce", metrics=tested)).caution is None


def test_the_list_is_a_frame_with_cleanlabs_columns(tmp_path):
    pandas = pytest.importorskip("pandas")
    probabilities, given, _ = simulated(0, 0.1, number=300)
    issues = find_label_issues(given, probabilities, ids=[f"row {place}" for place in range(300)])
    frame = issues.to_frame()
    assert list(frame)[:6] == ["index", "id", "is_label_issue", "label_quality", "given_label", "predicted_label"]
    assert frame["index"].tolist() == issues.order.tolist() and frame["label_quality"].is_monotonic_increasing
    path = issues.write(tmp_path / "first.csv", limit=20)
    assert pandas.read_csv(path)["id"].tolist() == [f"row {place}" for place in issues.review_first(20)]


@pytest.mark.parametrize(
    ("features", "labels", "mentions"),
    [
        (np.ones((3, 2)), [0, 1], ("features", "(3, 2)", "(2,)")),
        (np.ones((2, 2)), [0.5, 1.0], ("features", "float64")),
        (np.full((2, 2), np.nan), [0, 1], ("features", "NaN")),
        (np.ones((2, 2)), [1, 1], ("two classes",)),
    ],
)
def test_bad_features_are_refused(features, labels, mentions):
    with refused(*mentions):
        evidence_from_features(features, labels)
