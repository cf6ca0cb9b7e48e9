"""`corrupt`: its random numbers and digests are reproducible, labels may have any type, and bad input is refused."""

from __future__ import annotations

import hashlib
import random
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats
from sklearn.datasets import load_digits

from noisewise.noise import corrupt
from refused import refused

TEN = torch.arange(20_000) % 10


def philox(key: int, number: int) -> list[int]:
    """Philox4x64-10 as published (Salmon et al., Parallel Random Numbers: As Easy as 1, 2, 3, 2011), counting from 1."""
    mask, words = 2**64 - 1, []
    for counter in range(1, number // 4 + 2):
        a, b, c, d = counter, 0, 0, 0
        k, m = key & mask, key >> 64
        for _ in range(10):
            first, second = 0xD2E7470EE14C6C93 * a, 0xCA5A826395121157 * c
            a, b, c, d = (second >> 64) ^ b ^ k, second & mask, (first >> 64) ^ d ^ m, first & mask
            k, m = (k + 0x9E3779B97F4A7C15) & mask, (m + 0xBB67AE8584CAA73B) & mask
        words += [a, b, c, d]
    return words[:number]


def test_labels_come_from_the_documented_stream():
    labels = [index * 7 % 5 for index in range(60)]
    key = int.from_bytes(hashlib.sha256(b"11/0/symmetric(0.4)").digest()[:16], "little")
    draws = [((word >> 12) + 0.5) / 2**52 for word in philox(key, 120)]
    expected = []
    for label, flip, where in zip(labels, draws[::2], draws[1::2], strict=True):
        others = [other for other in range(5) if other != label]
        expected.append(others[int(where * 4)] if flip < 0.4 else label)
    assert corrupt(labels, "symmetric(0.4)", seed=11).labels.tolist() == expected


DIGESTS = {
    "none": "e65cd437396894af",
    "symmetric(0.4)": "e547d94a7d5fcf80",
    "symmetric(0.4, flips='exact')": "4a0689b24ee3fbed",
    "symmetric_inclusive(0.4)": "dda865f409190cca",
    "pair(0.4)": "6570d196df79e871",
    "class_map(0.4, cifar10)": "edd70d39368bce12",
    "superclass_circular(0.4)": "d61870326a323a9a",
    "superclass_circular_legacy(0.4)": "3354dd6de376b4ae",
    "superclass_uniform(0.4)": "f4265dd8bbd6e804",
    "superclass_swap(0.4)": "961435ff9b15e776",
    "instance(0.4)": "ab407612e837315a",
    "human(worst)": "dcf05f768d0d94f1",
    "open_set(0.4)": "48eb2e6cbae150d9",
    "symmetric(0.4) + open_set(0.2)": "563ea0797327bf80",
}


def small_case(spec: str) -> dict[str, Any]:
    number = 100
    return {
        "labels": torch.arange(number) * 37 % 10 if "superclass" not in spec else torch.arange(number),
        "inputs": (torch.arange(number * 12) * 101 % 256).to(torch.uint8).view(number, 3, 2, 2),
        "human": {"worst": torch.arange(number) * 37 // 2 % 10},
        "num_classes": 100 if "superclass" in spec else 10,
    }


@pytest.mark.parametrize("spec", DIGESTS)
def test_digests_do_not_change_between_versions_and_platforms(spec):
    assert corrupt(**small_case(spec), noise=spec, seed=42).digest[:16] == DIGESTS[spec]


def test_the_digest_is_of_labels_mask_noise_and_seed():
    result = corrupt([0, 1, 2, 1], "pair(0.5)", seed=9)
    content = np.array(result.labels.tolist(), dtype="<i8").tobytes() + bytes(result.mask.tolist()) + b"pair(0.5)/9"
    assert result.digest == hashlib.sha256(content).hexdigest()


def test_the_digest_depends_on_the_replaced_inputs():
    inputs = torch.zeros(10, 2)
    results = [
        corrupt(range(10), "open_set(0.5, source=other)", inputs=inputs, other_inputs=torch.full((3, 2), fill)) for fill in (1.0, 2.0)
    ]
    assert torch.equal(results[0].mask, results[1].mask)
    assert results[0].digest != results[1].digest


def test_global_random_state_is_neither_read_nor_changed():
    rows, target = load_digits(return_X_y=True)
    inputs, labels = torch.from_numpy(rows) / 16, torch.from_numpy(target)
    spec = "symmetric(0.4) + instance(0.2) + open_set(0.1)"
    torch.manual_seed(1), np.random.seed(1), random.seed(1)
    before = torch.get_rng_state(), np.random.get_state()[1].tolist(), random.getstate()
    first = corrupt(labels, spec, inputs=inputs).digest
    assert torch.equal(torch.get_rng_state(), before[0])
    assert np.random.get_state()[1].tolist() == before[1]
    assert random.getstate() == before[2]
    torch.manual_seed(2), np.random.seed(2), random.seed(2)
    assert corrupt(labels, spec, inputs=inputs).digest == first


def test_seeds_and_rates_give_independent_noise():
    masks = [corrupt(TEN, spec, seed=seed).mask for spec in ("symmetric(0.5)", "pair(0.5)") for seed in (0, 1, -1)]
    low, high = stats.binom.interval(1 - 1e-6, len(TEN), 0.25)
    for i, first in enumerate(masks):
        for second in masks[:i]:
            assert low <= int((first & second).sum()) <= high


@pytest.mark.parametrize("spec", ["symmetric(0.4)", "class_map(0.4, mnist)", "pair(0.2) + symmetric(0.3)"])
def test_examples_added_at_the_end_change_nothing_before_them(spec):
    assert torch.equal(corrupt(TEN[:500], spec).labels, corrupt(TEN, spec).labels[:500])


def test_labels_may_be_a_list_an_array_or_a_tensor_and_are_not_changed():
    given = [2, 0, 1, 1, 2, 0] * 20
    kinds = [given, np.array(given, dtype=np.uint8), torch.tensor(given, dtype=torch.int32), torch.tensor(given)]
    results = [corrupt(kind, "symmetric(0.5)") for kind in kinds]
    assert {result.digest for result in results} == {results[0].digest}
    assert all(result.labels.dtype == torch.int64 for result in results)
    assert kinds[3].tolist() == given
    untouched = corrupt(kinds[3], "none").labels
    untouched[:] = 0
    assert kinds[3].tolist() == given


def test_classes_without_examples_have_the_identity_row():
    result = corrupt([0] * 50, "symmetric(0.5)", num_classes=3)
    assert result.realised[1:].tolist() == [[0, 1, 0], [0, 0, 1]]


@settings(max_examples=60)
@given(
    labels=st.lists(st.integers(0, 6), min_size=1, max_size=200),
    rate=st.floats(0, 1),
    rule=st.sampled_from(["symmetric", "symmetric_inclusive", "pair"]),
    flips=st.sampled_from(["independent", "exact"]),
    seed=st.integers(-(2**70), 2**70),
)
def test_any_noise_gives_labels_in_range_and_marks_the_changed_ones(labels, rate, rule, flips, seed):
    result = corrupt(labels, f"{rule}({rate!r}, flips={flips})", num_classes=7, seed=seed)
    assert 0 <= int(result.labels.min()) <= int(result.labels.max()) < 7
    assert torch.equal(result.mask, result.labels != torch.tensor(labels))
    np.testing.assert_allclose(result.expected.sum(1), 1)
    np.testing.assert_allclose(result.realised.sum(1), 1)
    assert rate > 0 or not result.mask.any()
    if rule != "symmetric_inclusive" and rate == 1:
        assert result.mask.all()


@pytest.mark.parametrize(
    ("arguments", "mentions"),
    [
        ({"noise": "symmetric(1.5)"}, ("'rate'", "Symmetric", "[0, 1]", 1.5)),
        ({"noise": "pair(-0.1)"}, ("'rate'", -0.1)),
        ({"noise": "instance(0)"}, ("'rate'", "(0, 1)", 0)),
        ({"noise": "symmetric(nan)"}, ("'rate'", "'nan'")),
        ({"noise": "symetric(0.4)"}, ("'symetric'", "'symmetric'")),
        ({"noise": "symmetric"}, ("'symmetric'", "'rate'")),
        ({"noise": "symmetric(0.4, flips=exactly)"}, ("'flips'", "'independent', 'exact'", "'exactly'")),
        ({"noise": "2 * symmetric(0.4)"}, ("2 * symmetric(0.4)",)),
        ({"noise": 0.4}, ("noise", "spec", 0.4)),
        ({"noise": "class_map(0.4, cifar)"}, ("'cifar'", "'cifar10'")),
        ({"noise": "class_map(0.4, {1: 1})"}, ("dictionary", "{1: 1}")),
        ({"noise": "class_map(0.4, {1: 0.5})"}, ("dictionary", "{1: 0.5}")),
        ({"noise": "class_map(0.4, 3)"}, ("dictionary", 3)),
        ({"noise": "class_map(0.4, {1: 12})"}, (4, 12)),
        ({"noise": "class_map(0.4, cifar10)"}, ("num_classes", "cifar10", 10, 4)),
        ({"noise": "superclass_circular(0.4)"}, ("'superclasses'", "superclass_circular", 4)),
        ({"noise": "superclass_circular(0.4)", "superclasses": [0, 1]}, ("'superclasses'", "4 classes", 2)),
        ({"noise": "superclass_circular_legacy(0.4)"}, ("multiple of 5", 4)),
        ({"noise": "matrix(((0.5, 0.4), (0, 1)))"}, ("row 0", 0.9)),
        ({"noise": "matrix(((1.5, -0.5), (0, 1)))"}, (-0.5,)),
        ({"noise": "matrix(((1.0, 0.0),))"}, ((1, 2),)),
        ({"noise": "matrix(((1.0, 0.0), (1.0,)))"}, ("square",)),
        ({"noise": "matrix(((1, 0), (0, 1)))"}, ("4 classes", "2 rows")),
        ({"noise": "matrix('nowhere.npy')"}, ("nowhere.npy",)),
        ({"noise": "matrix('T.txt')"}, ("T.txt", ".npy", ".csv", ".json")),
        ({"noise": "human(worst)"}, ("human",)),
        ({"noise": "human(wrost)", "human": {"worst": [0] * 6, "aggre": [0] * 6}}, ("'wrost'", "'worst'")),
        ({"noise": "human(worst)", "human": {"worst": [0] * 5}}, ("6 examples", "5 labels")),
        ({"noise": "human(worst)", "human": {"worst": [9] * 6}}, ("human", "'worst'", "0 to 3", 9)),
        ({"noise": "symmetric(0.4) + human(worst)", "human": {"worst": [0] * 6}}, ("human", "first")),
        ({"noise": "instance(0.4)"}, ("'inputs'", "instance")),
        ({"noise": "instance(0.4)", "inputs": torch.full((6, 2), torch.nan)}, ("'inputs'", "instance", "finite")),
        ({"noise": "symmetric(0.4) + open_set(0.4)"}, ("'inputs'", "open_set")),
        ({"noise": "open_set(0.4)"}, ("'inputs'", "open_set")),
        ({"noise": "open_set(0.4)", "inputs": torch.full((6, 2), torch.nan)}, ("'inputs'", "open_set", "finite")),
        ({"noise": "open_set(0.4)", "inputs": torch.zeros(5, 2)}, ("input", "6 labels", 5)),
        ({"noise": "open_set(0.4, source=web)"}, ("'source'", "'noise', 'other'", "'web'")),
        ({"noise": "open_set(0.4, source=other)", "inputs": torch.zeros(6, 2)}, ("'other_inputs'", "open_set")),
        ({"noise": "open_set(0.4, source=other)", "inputs": torch.zeros(6, 2), "other_inputs": torch.zeros(6, 3)}, ("(2,)",)),
        ({"labels": [0, 1, 4]}, ("labels", "0 to 3", "num_classes", "0 to 4")),
        ({"labels": [0, -1]}, ("labels", "-1 to 0")),
        ({"labels": [-1, 0], "num_classes": None}, ("labels", "corrupt", -1)),
        ({"labels": [0.5, 1.0]}, ("integers", "float64")),
        ({"labels": [[0, 1]]}, ((1, 2),)),
        ({"labels": []}, ("labels", "empty")),
        ({"num_classes": 1}, ("'num_classes'", "[2, inf)", 1)),
        ({"num_classes": 2.5}, ("'num_classes'", "[2, inf)", 2.5)),
        ({"seed": 0.5}, ("'seed'", "corrupt", "integer", 0.5)),
        ({"seed": True}, ("'seed'", "corrupt", "integer", True)),
    ],
)
def test_bad_input_is_refused(arguments, mentions):
    complete = {"labels": [0, 1, 2, 3, 0, 1], "noise": "symmetric(0.4)", "num_classes": 4, **arguments}
    with refused(*mentions):
        corrupt(**complete)
