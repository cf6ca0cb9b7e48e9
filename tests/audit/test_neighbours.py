"""Outliers and near-duplicates, against all pairs compared one by one, and with examples that were planted."""

import csv

import numpy as np
import pytest
import torch
from sklearn.datasets import load_breast_cancer, load_digits, make_blobs

from noisewise.audit import near_duplicates, outliers
from noisewise.errors import InputError


def all_distances(rows):
    return np.array([[np.sqrt(sum((a - b) ** 2)) for b in rows] for a in rows])


@pytest.mark.parametrize("columns", [3, 20])  # a tree, and blocks of pairs
def test_the_distance_of_an_outlier_is_the_mean_over_its_neighbours(columns):
    rows = np.random.default_rng(0).normal(size=(60, columns)) * 5 + 1000
    expected = np.sort(all_distances((rows - rows.mean(0)) / rows.std(0)), 1)[:, 1:5].mean(1)
    result = outliers(rows, neighbours=4)
    assert result.distance == pytest.approx(expected, rel=1e-9)
    assert result.order.tolist() == np.argsort(-expected).tolist()
    assert outliers(torch.tensor(rows).reshape(60, 1, columns), neighbours=4).distance == pytest.approx(expected, rel=1e-9)


def test_metrics_are_those_of_their_definition():
    rows = np.random.default_rng(1).normal(size=(40, 12)) * np.arange(1, 13)
    unit = rows / np.linalg.norm(rows, axis=1, keepdims=True)
    for metric, space in (("euclidean", rows), ("cosine", unit)):
        assert outliers(rows, neighbours=1, metric=metric).distance == pytest.approx(np.sort(all_distances(space), 1)[:, 1], rel=1e-9)
    assert outliers(rows * 1000 + 7).distance == pytest.approx(outliers(rows).distance, rel=1e-9)  # units do not matter


@pytest.mark.parametrize("columns", [2, 5, 64])
@pytest.mark.parametrize("kind", ["normal", "uniform", "lognormal", "blobs"])
def test_planted_outliers_are_found_and_few_ordinary_examples_are_flagged(kind, columns):
    rng = np.random.default_rng(columns)
    rows = {
        "normal": lambda: rng.normal(size=(1000, columns)),
        "uniform": lambda: rng.uniform(size=(1000, columns)),
        "lognormal": lambda: np.exp(rng.normal(size=(1000, columns))),
        "blobs": lambda: make_blobs(1000, columns, centers=5, random_state=0)[0],
    }[kind]()
    planted = rows.mean(0) + rows.std(0) * 30 * np.eye(columns)[rng.integers(0, columns, 8)] * rng.uniform(1, 3, size=(8, 1))
    result = outliers(np.concatenate([rows, planted]))
    assert result.is_outlier[-8:].all() and result.is_outlier[:1000].mean() <= 0.016
    assert (np.diff(result.outlier_quality[result.order]) >= 0).all()


def test_new_examples_are_compared_with_the_training_set_only():
    rng = np.random.default_rng(0)
    train, new = rng.normal(size=(500, 4)), rng.normal(size=(100, 4))
    new[:30] = 50 + rng.normal(size=(30, 4)) / 10  # many alike: each other's neighbours, but far from the training set
    assert outliers(new, among=train).is_outlier[:30].all() and outliers(new, among=train).is_outlier[30:].mean() < 0.1


def test_copies_alone_have_no_outliers():
    assert outliers([[1.0, 2.0]] * 30).count == 0
    assert outliers([[9.0, 9.0]], among=[[1.0, 2.0]] * 30).count == 1
    rare = [[20.0 + place, 0.0] for place in range(30)]
    assert outliers([*[[1.0, 2.0]] * 300, *rare, [500.0, 0.0]], metric="euclidean").is_outlier.tolist() == [False] * 330 + [True]


def test_different_examples_are_not_duplicates():
    rng = np.random.default_rng(0)
    heavy = np.exp(rng.normal(size=(1000, 3)) * 1.5)
    for rows in (rng.normal(size=(1000, 2)), heavy, load_digits().data, load_breast_cancer().data):
        assert len(near_duplicates(rows)) == 0


@pytest.mark.parametrize("noise", [0.0, 0.01])
def test_planted_duplicates_are_found_within_and_across_sets(noise):
    rng, data = np.random.default_rng(0), load_breast_cancer()
    spread, labels = data.data.std(0), data.target.tolist()

    def near(index):
        return data.data[index] + noise * spread * rng.normal(size=len(spread))

    train = np.concatenate([data.data[:400], [near(3), near(3), near(10)]])
    test = np.concatenate([data.data[400:], [near(10), near(20)]])
    train_labels, test_labels = [*labels[:400], labels[3], 1 - labels[3], labels[10]], [*labels[400:], labels[10], labels[20]]
    result = near_duplicates(train, test, labels=train_labels, other_labels=test_labels)
    first, second, third = (
        (
            {(bool(result.in_other[entry]), int(result.index[entry])) for entry in group}
            for group in sorted(result.groups, key=len, reverse=True)
        )
        if len(result) == 3
        else (set(), set(), set())
    )
    assert {(False, 3), (False, 400), (False, 401)} in (first, second, third)
    assert {(False, 10), (False, 402), (True, 169)} in (first, second, third)
    assert {(False, 20), (True, 170)} in (first, second, third)
    assert result.index[result.labels_differ].tolist() == [3, 400, 401] and set(result.group[result.labels_differ]) == {0}
    assert set(result.index[result.crosses & ~result.in_other]) == {10, 402, 20}
    assert result.is_exact.all() == (noise == 0) and (result.distance <= result.limit).all()
    assert result.copies().tolist() == [10, 20, 400, 401, 402]  # without these, no training example has a duplicate
    assert repr(result) == "NearDuplicates(3 groups of 8 examples, 2 across the two sets, 1 with different labels)"
    kept = np.setdiff1d(np.arange(len(train)), result.copies())
    assert len(near_duplicates(train[kept], test)) == 0


def test_many_copies_of_one_example_are_one_group():
    rng = np.random.default_rng(0)
    rows = np.concatenate(
        [rng.normal(size=(300, 10)), np.zeros((1, 10)) + rng.normal(size=(40, 10)) / 1000, np.ones((100, 10)), -0.0 * np.ones((3, 10))]
    )
    result = near_duplicates(rows)
    sizes = sorted(len(group) for group in result.groups)
    assert sizes == [43, 100]


def test_a_limit_of_zero_finds_exact_copies_only():
    rows = [[0.0, 0.0], [0.0, 0.0], [1e-9, 0.0], [5.0, 5.0]]
    assert near_duplicates(rows, limit=0, metric="euclidean").index.tolist() == [0, 1]
    assert near_duplicates(rows, limit=1e-6, metric="euclidean").index.tolist() == [0, 1, 2]


def test_the_lists_are_written_and_shown(tmp_path):
    rows = [[0, 0], [5, 1], [0, 0], [2, 7]]
    result = near_duplicates(rows, labels=["cat", "dog", "dog", "cat"], ids=["a", "b", "c", "d"])
    assert result.table()[1] == {
        "group": 0,
        "set": "first",
        "index": 2,
        "id": "c",
        "label": "dog",
        "labels_differ": True,
        "crosses_sets": False,
        "is_exact": True,
        "distance": 0.0,
    }
    with result.write(tmp_path / "copies.csv").open() as file:
        assert [row["id"] for row in csv.DictReader(file)] == ["a", "c"]
    frame = outliers(rows, neighbours=2, ids=["a", "b", "c", "d"]).to_frame()
    assert frame["id"][0] == "d" and list(frame)[:4] == ["index", "id", "is_outlier", "outlier_quality"]
    assert near_duplicates(np.eye(4)).write(tmp_path / "none.csv").read_text().count("\n") == 1
    assert near_duplicates(np.eye(4)).to_frame().empty


@pytest.mark.parametrize(
    ("call", "sentence"),
    [
        (lambda: outliers([1.0, 2.0]), "The 'features' parameter of outliers must be an array of numbers with a row for each example."),
        (lambda: outliers([[1.0], [np.inf]]), "Row 1 has inf in column 0"),
        (lambda: outliers([[1.0], [2.0]], neighbours=2), "The 'neighbours' parameter of outliers must be from 1 to 1"),
        (lambda: outliers([[1.0], [2.0]], neighbours=1, share=2), "The 'share' parameter"),
        (lambda: outliers([[0.0], [2.0]], neighbours=1, metric="cosine"), "row 0 is zero"),
        (lambda: outliers([[0.0], [2.0]], neighbours=1, metric="l1"), "The 'metric' parameter of outliers must be one of 'standardised'"),
        (
            lambda: outliers([[0.0], [2.0]], neighbours=1, ids=["a"]),
            "The 'ids' parameter of outliers must be one for each of the 2 examples",
        ),
        (lambda: near_duplicates([[0.0], [2.0]], [[1.0, 2.0]]), "arrays with the same columns, here 1"),
        (lambda: near_duplicates([[0.0], [2.0]], labels=[1]), "one for each of the 2 examples. Got '1 labels' instead."),
        (lambda: near_duplicates([[0.0], [2.0]], [[1.0]], labels=[1, 2]), "The 'other_labels' parameter of near_duplicates must be given"),
        (lambda: near_duplicates([[0.0], [2.0]], limit=-1), "The 'limit' parameter of near_duplicates must be 0 or more"),
    ],
)
def test_wrong_input_gives_one_sentence(call, sentence):
    with pytest.raises(InputError) as error:
        call()
    assert sentence in str(error.value)
