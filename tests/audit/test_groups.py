"""Ambiguous examples against the true chances of simulated classes, and weak groups against exact tests and planted groups."""

import itertools
import math

import numpy as np
import pytest
from scipy.stats import binomtest, fisher_exact

from noisewise.audit import ambiguous, weak_groups
from noisewise.errors import InputError


def two_classes(number=2000):
    """Two overlapping normal distributions: the rows, the labels and the true chance of class 1."""
    rng = np.random.default_rng(0)
    labels = rng.integers(0, 2, number)
    rows = rng.normal(size=(number, 2)) + np.array([2.5, 0]) * labels[:, None]
    return rows, labels, 1 / (1 + np.exp(-(2.5 * rows[:, 0] - 2.5**2 / 2)))


def test_ambiguous_examples_are_those_whose_true_chance_is_near_one_half():
    rows, labels, chance = two_classes()
    result = ambiguous(labels, np.stack([1 - chance, chance], 1), rows)
    between = np.minimum(chance, 1 - chance)
    assert result.count > 50 and between[result.is_ambiguous].min() >= 1 / 3 - 1e-9
    assert not result.is_ambiguous[between < 0.3].any()
    alone = ambiguous(labels, np.stack([1 - chance, chance], 1))
    assert (alone.is_ambiguous == (between >= 1 / 3)).all() and alone.count > result.count


def test_a_sure_model_or_agreeing_neighbours_make_an_example_unambiguous():
    rows, labels = [[0.0, place] for place in range(12)], [0, 1] * 6
    torn, sure = np.full((12, 2), 0.5), np.tile([0.9, 0.1], (12, 1))
    assert ambiguous(labels, torn, rows).is_ambiguous.all() and not ambiguous(labels, sure, rows).is_ambiguous.any()
    apart = [[0.0, place + 1000 * (place > 19)] for place in range(40)]
    assert not ambiguous([0] * 20 + [1] * 20, np.full((40, 2), 0.5), apart).is_ambiguous.any()


def test_pairs_of_classes_are_counted():
    probabilities = [[0.5, 0.5, 0.0], [0.4, 0.6, 0.0], [0.0, 0.4, 0.6], [1.0, 0.0, 0.0]]
    result = ambiguous(["a", "b", "c", "a"], probabilities, classes=["a", "b", "c"], ids=["w", "x", "y", "z"])
    assert result.pairs == [("a", "b", 2), ("b", "c", 1)]
    assert [row["id"] for row in result.table(3)] == ["w", "x", "y"] and result.table(2)[1]["first_class"] == "b"


def test_the_p_values_are_those_of_fishers_test_with_holms_correction():
    rng = np.random.default_rng(3)
    group = rng.integers(0, 6, 400)
    correct = rng.random(400) < np.where(group == 2, 0.6, 0.9)
    result = weak_groups(correct, {"camera": group})
    raw = {}
    for value in range(6):
        inside, outside = correct[group == value], correct[group != value]
        table = [[inside.sum(), (~inside).sum()], [outside.sum(), (~outside).sum()]]
        raw[f"camera = {value}"] = fisher_exact(table, alternative="less").pvalue
        place = result.names.index(f"camera = {value}")
        interval = binomtest(int(inside.sum()), len(inside)).proportion_ci(method="exact")
        assert (result.low[place], result.high[place]) == pytest.approx((interval.low, interval.high))
        assert (result.accuracy[place], result.rest[place]) == pytest.approx((inside.mean(), outside.mean()))
    ordered = sorted(raw.items(), key=lambda pair: pair[1])
    running = 0.0
    for place, (name, p) in enumerate(ordered):
        running = max(running, min(1, p * (len(ordered) - place)))
        assert result.names[place] == name and result.p_value[place] == pytest.approx(running)
    assert [name for name, weak in zip(result.names, result.is_weak, strict=True) if weak] == ["camera = 2"]


def test_no_group_is_reported_when_a_model_is_equally_good_everywhere():
    rng = np.random.default_rng(0)
    reported = [
        weak_groups(rng.random(600) < 0.9, {"a": rng.integers(0, 8, 600), "b": rng.normal(size=600)}).is_weak.any() for _ in range(100)
    ]
    assert np.mean(reported) <= 0.05 + 2 * math.sqrt(0.05 * 0.95 / 100)


def test_a_region_of_the_features_in_which_the_model_is_weak_is_found():
    rng = np.random.default_rng(0)
    rows = rng.normal(size=(3000, 3)) + 10 * rng.integers(0, 2, size=(3000, 3))
    inside = (rows > 5).all(1)
    result = weak_groups(rng.random(3000) < np.where(inside, 0.5, 0.95), features=rows)
    weak = np.unique(np.concatenate([rows for rows, weak in zip(result.members, result.is_weak, strict=True) if weak]))
    assert inside[weak].mean() > 0.9 and np.isin(np.flatnonzero(inside), weak).mean() > 0.9


def test_numbers_are_cut_into_quarters_and_gaps_are_a_group():
    age = [float(number) for number in range(100)] + [math.nan] * 20
    city = ["Bern"] * 60 + ["Zug"] * 40 + [None] * 10 + ["  "] * 10
    name = [f"person {number}" for number in range(120)]
    result = weak_groups([True, False] * 60, {"age": age, "city": city, "name": name})
    sizes = dict(zip(result.names, map(len, result.members), strict=True))
    assert sizes == {
        "0 ≤ age ≤ 24.75": 25,
        "24.75 < age ≤ 49.5": 25,
        "49.5 < age ≤ 74.25": 25,
        "74.25 < age ≤ 99": 25,
        "age is empty": 20,
        "city = Bern": 60,
        "city = Zug": 40,
        "city is empty": 20,
    }
    assert not set(itertools.chain(*result.members[:1])) - set(range(120)) and len(result.to_frame()) == 8


@pytest.mark.parametrize(
    ("call", "sentence"),
    [
        (lambda: weak_groups([0.5, 1.0], {"a": [1, 2]}), "The 'correct' parameter of weak_groups must be true or false for each example."),
        (lambda: weak_groups([True, False]), "Got neither columns nor features; give one of them."),
        (lambda: weak_groups([True, False], {"a": [1]}), "a value for each of the 2 examples. Got \"1 in 'a'\" instead."),
        (lambda: weak_groups([True, False], features=[[1.0]]), "one row for each of the 2 examples"),
        (lambda: ambiguous([0, 1], [[0.5, 0.5]]), "one row for each of the 2 labels"),
        (lambda: ambiguous([0], [[0.5, 0.5]], classes=["a"]), "the names of the 2 columns of pred_probs"),
    ],
)
def test_wrong_input_gives_one_sentence(call, sentence):
    with pytest.raises(InputError) as error:
        call()
    assert sentence in str(error.value)
