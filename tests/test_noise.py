"""The named noises against closed forms, binomial bounds, slow transcriptions of their rules, and the real data sets."""

from __future__ import annotations

import hashlib
import json
import os
import pickle
import random
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import special, stats

from costs import Compared, with_peak
from noisewise.data import from_arrays
from noisewise.errors import InputError
from noisewise.noise import CIFAR100_SUPERCLASSES, CLASS_MAPS, Matrix, Stream, corrupt, registry

TEN = torch.arange(20_000) % 10
HUNDRED = torch.arange(50_000) % 100
T3 = ((0.7, 0.2, 0.1), (0.0, 1.0, 0.0), (0.25, 0.25, 0.5))
SUPERCLASSES = np.array(CIFAR100_SUPERCLASSES)
RECONSTRUCT = np.zeros(0).__reduce__()[0]  # how numpy unpickles an array, wherever this version of it keeps that

CLASS_NOISES: dict[str, torch.Tensor] = {
    "none": TEN,
    "symmetric(0.4)": TEN,
    "symmetric_inclusive(0.4)": TEN,
    "pair(0.3)": TEN,
    "class_map(0.4, cifar10)": TEN,
    "class_map(0.2, mnist)": TEN,
    "class_map(0.35, {0: 9, 5: 0})": TEN,
    "superclass_circular(0.4)": HUNDRED,
    "superclass_circular_legacy(0.4)": HUNDRED,
    "superclass_uniform(0.3)": HUNDRED,
    "superclass_swap(0.45)": HUNDRED,
    f"matrix({T3})": torch.arange(20_000) % 3,
}
OTHER_NOISES = ("instance(0.3)", "human(worst)", "open_set(0.2)")
RATED = [
    "symmetric(0.35)",
    "symmetric_inclusive(0.35)",
    "pair(0.35)",
    "superclass_circular(0.35)",
    "superclass_uniform(0.35)",
    "superclass_circular_legacy(0.35)",
]


def exact(spec: str) -> str:
    return spec[:-1] + ", flips='exact')"


def real_data(name: str) -> Path:
    folder = os.environ.get("NOISEWISE_DATA")
    if not folder or not (Path(folder) / name).exists():
        pytest.skip(f"needs {name} in the folder named by NOISEWISE_DATA")
    return Path(folder) / name


def counts(true: torch.Tensor, labels: torch.Tensor, num_classes: int) -> np.ndarray:
    table = np.zeros((num_classes, num_classes), dtype=int)
    np.add.at(table, (true.numpy(), labels.numpy()), 1)
    return table


def test_every_registered_noise_is_tested():
    assert {spec.split("(")[0] for spec in (*CLASS_NOISES, *OTHER_NOISES)} == set(registry)


@pytest.mark.parametrize(
    "spec", [*CLASS_NOISES, *OTHER_NOISES, *map(exact, RATED), "symmetric(0.4) + pair(0.1) + open_set(0.1, source=other)"]
)
def test_repr_reads_back(spec):
    noise = registry.get(spec)
    assert repr(registry.get(repr(noise))) == repr(noise)
    assert type(registry.get(repr(noise))) is type(noise)


@pytest.mark.parametrize("spec", CLASS_NOISES)
def test_transitions_are_within_binomial_bounds_over_seeds(spec):
    labels = CLASS_NOISES[spec]
    num_classes = int(labels.max()) + 1
    sizes = np.bincount(labels.numpy())[:, None]
    for seed in range(5):
        result = corrupt(labels, spec, seed=seed)
        table = counts(labels, result.labels, num_classes)
        low, high = stats.binom.interval(1 - 1e-8, sizes, result.expected.numpy())
        assert (low <= table).all()
        assert (table <= high).all()
        assert torch.equal(result.mask, result.labels != labels)
        np.testing.assert_allclose(result.realised, table / sizes, rtol=1e-12)


@pytest.mark.parametrize("spec", [spec for spec in CLASS_NOISES if spec != "none"])
def test_exact_transitions_are_within_the_same_bounds(spec):
    labels = CLASS_NOISES[spec]
    result = corrupt(labels, exact(spec), seed=7)
    assert torch.equal(result.expected, corrupt(labels, spec, seed=7).expected) or "swap" in spec
    sizes = np.bincount(labels.numpy())
    low, high = stats.binom.interval(1 - 1e-8, sizes[:, None], result.expected.numpy())
    table = counts(labels, result.labels, len(sizes))
    assert ((low <= table) & (table <= high)).all()
    assert int(result.mask.sum()) == round(float(sizes @ (1 - result.expected.numpy().diagonal())))


@pytest.mark.parametrize("seed", range(8))
def test_exact_changes_what_must_change_first(seed):
    labels = torch.arange(100) % 2
    result = corrupt(labels, "matrix(((0, 1), (0.5, 0.5)), flips='exact')", seed=seed)
    assert result.realised[0].tolist() == [0, 1] and int(result.mask.sum()) == 75


@pytest.mark.parametrize("rate", [0.0, 0.05, 0.1, 0.15, 0.4, 0.45, 1.0])
@pytest.mark.parametrize("number", [1, 7, 10, 999])
def test_exact_changes_exactly_round_rate_times_n_labels(rate, number):
    labels = torch.arange(number) % 10
    for rule in ("symmetric", "pair", "superclass_circular_legacy"):
        assert int(corrupt(labels, f"{rule}({rate}, flips='exact')", num_classes=10).mask.sum()) == round(rate * number)


def test_exact_counts_only_the_examples_the_rule_can_change():
    changed = corrupt(TEN, "class_map(0.35, mnist, flips='exact')").mask
    assert int(changed.sum()) == round(0.35 * 5 * 2000)
    inclusive = corrupt(TEN, "symmetric_inclusive(0.5, flips='exact')")
    assert int(inclusive.mask.sum()) == round(0.5 * 0.9 * len(TEN))


@pytest.mark.parametrize("flips", ["independent", "exact"])
def test_every_example_is_as_likely_to_change_as_any_other(flips):
    labels, seeds, rate = torch.arange(50) % 5, 2000, 0.3
    changed = sum(corrupt(labels, f"symmetric({rate}, flips={flips})", seed=seed).mask.int() for seed in range(seeds))
    low, high = stats.binom.interval(1 - 1e-6, seeds, rate)
    assert low <= int(changed.min())
    assert int(changed.max()) <= high


def test_symmetric_never_keeps_the_label():
    for seed in range(5):
        result = corrupt(TEN, "symmetric(1)", seed=seed)
        assert result.mask.all()
        assert (result.labels != TEN).all()
        assert result.realised.diagonal().sum() == 0


def test_symmetric_inclusive_keeps_one_label_in_k():
    kept = int((corrupt(TEN, "symmetric_inclusive(1)").labels == TEN).sum())
    low, high = stats.binom.interval(1 - 1e-8, len(TEN), 0.1)
    assert low <= kept <= high


def test_class_maps_are_the_published_ones():
    names = ["airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck"]
    published = {"truck": "automobile", "bird": "airplane", "deer": "horse", "cat": "dog", "dog": "cat"}
    labels = corrupt(torch.arange(10), "class_map(1, cifar10)").labels
    assert {names[i]: names[j] for i, j in enumerate(labels.tolist()) if i != j} == published
    labels = corrupt(torch.arange(10), "class_map(1, mnist)").labels
    assert {i: j for i, j in enumerate(labels.tolist()) if i != j} == {7: 1, 2: 7, 5: 6, 6: 5, 3: 8}
    assert {word: len(pairs) for word, pairs in CLASS_MAPS.items()} == {"cifar10": 5, "mnist": 5}


def test_a_class_map_may_name_classes_and_must_where_numbers_could_be_meant_either_way():
    spec = "class_map(1.0, {'cat': 'dog', 'dog': 'ant'})"
    assert repr(registry.get(spec)) == repr(registry.get(repr(registry.get(spec)))) == spec
    assert corrupt([0, 1, 2], spec, classes=["ant", "cat", "dog"]).labels.tolist() == [0, 2, 0]
    data = from_arrays(torch.zeros(3, 1), [1, 2, 3])
    assert data.corrupted("class_map(1, {'1': '2'})").labels.tolist() == [1, 1, 2]
    for call, map, sentence in (
        (data.corrupted, "{1: 2}", "other numbers (1, 2, 3). Got {1: 2}"),
        (data.corrupted, "{'1': '4'}", "There is no class named '4'"),
        (lambda noise: corrupt([0, 1], noise), "{'a': 'b'}", "the names of the classes are not known"),
        (registry.get, "{'a': 'a'}", "or a dictionary from classes to other classes"),
        (registry.get, "{'a': 1}", "or a dictionary from classes to other classes"),
        (
            lambda noise: corrupt([0, 1], noise, num_classes=2, classes=["a"]),
            "{0: 1}",
            "one name for each of the 2 classes. Got '1 of them'",
        ),
    ):
        with pytest.raises(InputError, match=re.escape(sentence)):
            call(f"class_map(1, {map})")


def test_a_class_map_finds_many_classes_without_comparing_each_with_all(monkeypatch):
    names = [Compared(f"class {number}") for number in range(300)]
    noise = registry.get("class_map", rate=1, map={f"class {number}": f"class {number - 1}" for number in range(1, 300)})
    monkeypatch.setattr(Compared, "times", 0)
    assert corrupt(torch.arange(300), noise, classes=names).labels.tolist() == [0, *range(299)]
    assert Compared.times < 50 * 300


def test_the_same_noise_does_not_undo_itself_on_labels_that_are_known_to_be_wrong():
    """With the numbers it drew before, two classes would all be right again."""
    data = from_arrays(torch.zeros(4000, 1), torch.arange(4000) % 2)
    once = data.corrupted("symmetric(0.4)")
    twice = once.corrupted("symmetric(0.4)")
    for again in (twice, twice.corrupted("symmetric(0.4)")):
        assert abs(float(again.wrong.double().mean()) - 0.5) < 0.05
    strange = from_arrays(torch.rand(2000, 1), torch.arange(2000) % 2).corrupted("open_set(0.4)").corrupted("open_set(0.4)")
    assert abs(float(strange.wrong.double().mean()) - 0.64) < 0.05, "and others are replaced than before"
    assert torch.equal(twice.labels, once.corrupted("symmetric(0.4)").labels) and once.corruption("symmetric(0.4)").seed == 0
    assert torch.equal(data.corrupted("symmetric(0.4)").labels, corrupt(data.labels, "symmetric(0.4)").labels)


def test_a_class_map_may_be_pairs():
    assert repr(registry.get("class_map(0.4, ((9, 1), (2, 0)))")) == "class_map(0.4, {9: 1, 2: 0})"


def test_cifar100_has_twenty_superclasses_of_five():
    assert np.bincount(SUPERCLASSES).tolist() == [5] * 20


def test_superclasses_are_those_of_the_real_cifar100():
    class Plain(pickle.Unpickler):
        def find_class(self, module: str, name: str) -> Any:
            allowed = {"_reconstruct": RECONSTRUCT, "ndarray": np.ndarray, "dtype": np.dtype}
            if module.startswith("numpy") and name in allowed:
                return allowed[name]
            raise pickle.UnpicklingError(f"{module}.{name}")

    with real_data("cifar-100-python/train").open("rb") as file:
        batch = Plain(file, encoding="latin1").load()
    assert SUPERCLASSES[batch["fine_labels"]].tolist() == batch["coarse_labels"]


@pytest.mark.parametrize("rule", ["superclass_circular", "superclass_uniform", "superclass_swap"])
def test_superclass_noises_stay_inside_the_superclass(rule):
    for seed in range(3):
        result = corrupt(HUNDRED, f"{rule}(0.8)", seed=seed)
        assert (SUPERCLASSES[result.labels.numpy()] == SUPERCLASSES[HUNDRED.numpy()]).all()
        assert result.mask.any()


def test_superclass_circular_visits_all_five_classes():
    following = corrupt(torch.arange(100), "superclass_circular(1)").labels
    at = torch.arange(100)
    for step in range(1, 6):
        at = following[at]
        assert (at == torch.arange(100)).all() == (step == 5)


def test_legacy_keeps_six_of_a_hundred_flips_inside_the_superclass():
    labels = corrupt(torch.arange(100), "superclass_circular_legacy(1)").labels.numpy()
    assert (labels != np.arange(100)).all()
    assert (labels // 5 == np.arange(100) // 5).all()
    assert (SUPERCLASSES[labels] == SUPERCLASSES).sum() == 6


def test_superclass_swap_flips_two_classes_of_each_superclass_to_each_other():
    pairs = set()
    for seed in range(20):
        partner = corrupt(torch.arange(100), "superclass_swap(1)", seed=seed).labels.numpy()
        assert (partner[partner] == np.arange(100)).all()
        moved = np.flatnonzero(partner != np.arange(100))
        assert np.bincount(SUPERCLASSES[moved]).tolist() == [2] * 20
        pairs.add(tuple(moved[SUPERCLASSES[moved] == 0].tolist()))
    assert len(pairs) > 5


def test_superclasses_say_how_many_classes_there_are():
    assert corrupt([0, 1], "superclass_circular(1)", superclasses=[0, 1, 0, 1]).labels.tolist() == [2, 3]


def test_a_class_alone_in_its_superclass_keeps_its_labels():
    for rule in ("superclass_circular", "superclass_uniform", "superclass_swap"):
        assert corrupt([0, 1, 2], f"{rule}(1)", superclasses=[0, 1, 0]).labels.tolist() == [2, 1, 0]


def digits() -> tuple[torch.Tensor, torch.Tensor]:
    from sklearn.datasets import load_digits

    data = load_digits()
    return torch.from_numpy(data.data) / 16, torch.from_numpy(data.target)


@pytest.mark.parametrize("rate", [0.1, 0.3, 0.5])
def test_instance_rate_is_the_truncated_normal_mean(rate):
    inputs, labels = digits()
    mean = stats.truncnorm(-rate / 0.1, (1 - rate) / 0.1, loc=rate, scale=0.1).mean()
    low, high = stats.binom.interval(1 - 1e-6, len(labels), mean)
    for seed in range(5):
        result = corrupt(labels, f"instance({rate})", inputs=inputs, seed=seed)
        assert low <= int(result.mask.sum()) <= high
        assert result.expected is None
    assert int(corrupt(labels, f"instance({rate}, flips='exact')", inputs=inputs).mask.sum()) == round(rate * len(labels))


@pytest.mark.parametrize("rate", [0.05, 0.4])
def test_instance_follows_the_algorithm_of_the_paper(rate):
    inputs, labels = digits()
    inputs, labels = inputs[:300], labels[:300]
    stream = Stream(3, f"0/instance({rate})")
    draws = stream.uniform(300, 3)
    projections = [stats.norm.ppf(stream.uniform(64, 10)) for _ in range(10)]
    expected = []
    for x, y, (u, v, w) in zip(inputs.numpy(), labels.tolist(), draws, strict=True):
        q = stats.truncnorm.ppf(u, -rate / 0.1, (1 - rate) / 0.1, loc=rate, scale=0.1)
        score = x @ projections[y]
        score[y] = -np.inf
        expected.append(int(np.searchsorted(np.cumsum(special.softmax(score)), w, side="right")) if v < q else y)
    assert corrupt(labels, f"instance({rate})", inputs=inputs, seed=3).labels.tolist() == expected


def test_instance_sends_alike_inputs_of_a_class_alike():
    labels = torch.zeros(4000, dtype=torch.int64)
    inputs = torch.cat([torch.full((2000, 8), 1.0), torch.full((2000, 8), -1.0)])
    flipped = corrupt(labels, "instance(0.5)", inputs=inputs, num_classes=10).labels
    first, second = (torch.bincount(part[part > 0], minlength=10).double() for part in flipped.split(2000))
    assert stats.chi2_contingency(torch.stack([first, second])[:, (first + second) > 20]).pvalue < 1e-6


def test_instance_reads_bytes_as_numbers_from_0_to_1():
    inputs = torch.randint(0, 256, (500, 3, 4, 4), dtype=torch.uint8, generator=torch.Generator().manual_seed(0))
    labels = torch.arange(500) % 10
    of_bytes, of_floats = (corrupt(labels, "instance(0.4)", inputs=given) for given in (inputs, inputs.double() / 255))
    assert torch.equal(of_bytes.labels, of_floats.labels)


def test_cifar10n_has_its_published_rates():
    path = real_data("CIFAR-N/CIFAR-10_human.pt")
    with torch.serialization.safe_globals(
        [(RECONSTRUCT, "numpy.core.multiarray._reconstruct"), np.ndarray, np.dtype, type(np.dtype(np.int64))]
    ):
        stored = torch.load(path, weights_only=True)
    names = {
        "aggre": "aggre_label",
        "random1": "random_label1",
        "random2": "random_label2",
        "random3": "random_label3",
        "worst": "worse_label",
    }
    human = {name: stored[key] for name, key in names.items()}
    rates = {name: round(100 * corrupt(stored["clean_label"], f"human({name})", human=human).rate, 2) for name in names}
    assert rates == {"aggre": 9.01, "random1": 17.23, "random2": 18.12, "random3": 17.64, "worst": 40.21}


def test_human_labels_replace_the_true_ones():
    people = torch.tensor([0, 2, 2, 1])
    result = corrupt([0, 1, 2, 0], "human(worst)", human={"worst": people, "unused": torch.tensor([-1])})
    assert torch.equal(result.labels, people)
    assert result.mask.tolist() == [False, True, False, True]
    assert result.expected is None
    assert result.realised.tolist() == [[0.5, 0.5, 0], [0, 0, 1], [0, 0, 1]]


@pytest.mark.parametrize("dtype", [torch.uint8, torch.int64, torch.float32, torch.bfloat16])
def test_open_set_replaces_inputs_and_keeps_labels(dtype):
    original = torch.randint(3, 200, (3000, 2, 5), generator=torch.Generator().manual_seed(0)).to(dtype)
    inputs = original.clone()
    labels = torch.arange(3000) % 10
    result = corrupt(labels, "open_set(0.3)", inputs=inputs)
    assert torch.equal(inputs, original)
    assert torch.equal(result.labels, labels)
    assert torch.equal((result.inputs != inputs).flatten(1).any(1), result.mask)
    assert torch.equal(result.replaced, result.mask) and corrupt(labels, "open_set(0)", inputs=inputs).replaced is None
    low, high = stats.binom.interval(1 - 1e-8, 3000, 0.3)
    assert low <= int(result.mask.sum()) <= high
    strange = result.inputs[result.mask].double().flatten()
    assert float(inputs.min()) <= float(strange.min()) < 10
    assert 190 < float(strange.max()) <= float(inputs.max())
    reference = stats.uniform(3, 197 if not dtype.is_floating_point else 196)
    assert abs(float(strange.mean()) - reference.mean()) < 5 * reference.std() / len(strange) ** 0.5 + 0.6
    assert torch.equal(result.expected, torch.eye(10, dtype=torch.float64))


def test_open_set_takes_every_other_input_once_before_any_twice():
    inputs, other = torch.zeros(100, 1), torch.arange(1.0, 41.0).unsqueeze(1)
    few = corrupt(torch.arange(100) % 2, "open_set(0.3, source=other, flips=exact)", inputs=inputs, other_inputs=other)
    assert len(few.inputs[few.mask].unique()) == 30
    many = corrupt(torch.arange(100) % 2, "open_set(1, source=other)", inputs=inputs, other_inputs=other)
    assert sorted(many.inputs.unique(return_counts=True)[1].tolist()) == [2] * 20 + [3] * 20


@pytest.mark.parametrize("suffix", ["npy", "csv", "json"])
def test_matrix_reads_files_and_its_repr_holds_the_numbers(tmp_path, suffix):
    path = tmp_path / f"T.{suffix}"
    match suffix:
        case "npy":
            np.save(path, np.array(T3))
        case "csv":
            np.savetxt(path, T3, delimiter=",")
        case "json":
            path.write_text(json.dumps(T3))
    noise = registry.get(f"matrix({str(path)!r})")
    path.unlink()
    assert repr(noise) == f"matrix({T3})"
    assert corrupt([0, 1, 2], noise).digest == corrupt([0, 1, 2], f"matrix({T3})").digest


def test_a_class_that_matrix_keeps_is_never_flipped_though_its_row_is_rounded():
    rounded = ((1 - 9e-7, 0.0), (0.5, 0.5))
    result = corrupt(torch.zeros(2_000_000, dtype=torch.int64), f"matrix({rounded}, flips=exact)", num_classes=2)
    assert not result.mask.any()


def test_a_sum_is_its_parts_in_order():
    inputs = torch.zeros(len(TEN), 1)
    inputs[0] = 1
    both = corrupt(TEN, "symmetric(0.4) + open_set(0.1)", inputs=inputs, seed=5)
    alone = corrupt(TEN, "symmetric(0.4)", seed=5)
    assert torch.equal(both.labels, alone.labels)
    replaced = (both.inputs != inputs).squeeze(1)
    assert torch.equal(both.mask, alone.mask | replaced)
    low, high = stats.binom.interval(1 - 1e-8, len(TEN), 1 - 0.6 * 0.9)
    assert low <= int(both.mask.sum()) <= high


def test_a_matrix_writes_its_numbers_once_and_again_when_they_are_others(monkeypatch):
    written, spec = [], Matrix.spec
    monkeypatch.setattr(Matrix, "spec", lambda noise, **instead: written.append(noise) or spec(noise, **instead))
    noise = Matrix(((0.5, 0.5), (0.0, 1.0)))
    assert corrupt([0, 1], noise).noise == repr(noise) == "matrix(((0.5, 0.5), (0.0, 1.0)))" and len(written) == 1
    noise.values = ((1, 0), (0, 1))
    noise.flips = "exact"
    assert repr(noise) == "matrix(((1.0, 0.0), (0.0, 1.0)), flips='exact')" and len(written) == 2


@pytest.mark.parametrize(
    ("spec", "matrices"),
    [
        ("none", 0.1),
        ("pair(0.4)", 0.1),
        ("symmetric(0.4)", 0.1),
        ("symmetric_inclusive(0.4) + pair(0.1)", 0.1),
        ("class_map(0.4, {2: 0})", 2.5),
    ],
)
def test_many_classes_take_no_more_matrices_than_a_noise_needs(spec, matrices):
    number = 2000
    result, peak = with_peak(lambda: corrupt(np.arange(number), spec))
    assert peak < matrices * 8 * number**2
    assert result.expected.shape == result.realised.shape == (number, number)
    assert torch.equal(result.realised.argmax(1), result.labels)


def test_the_matrix_of_a_sum_is_the_product():
    spec = "pair(0.3) + symmetric(0.2) + class_map(0.5, mnist)"
    result = corrupt(TEN, spec, seed=2)
    pair, symmetric, mapped = (corrupt(TEN, part).expected for part in spec.split(" + "))
    torch.testing.assert_close(result.expected, pair @ symmetric @ mapped)
    sizes = np.bincount(TEN.numpy())[:, None]
    low, high = stats.binom.interval(1 - 1e-8, sizes, result.expected.numpy())
    table = counts(TEN, result.labels, 10)
    assert ((low <= table) & (table <= high)).all()
    assert torch.equal(result.mask, result.labels != TEN)


def test_what_any_part_of_a_sum_replaced_is_marked():
    inputs = torch.arange(200.0)
    result = corrupt(TEN[:200], "open_set(0.2) + open_set(0.3)", inputs=inputs)
    assert torch.equal(result.mask, result.inputs != inputs)
    assert result.mask.sum() > corrupt(TEN[:200], "open_set(0.2)", inputs=inputs).mask.sum() > 0


def test_equal_parts_of_a_sum_draw_their_own_numbers():
    twice = corrupt(TEN, "pair(0.5) + pair(0.5)")
    low, high = stats.binom.interval(1 - 1e-8, len(TEN), 0.5)
    assert low <= int((twice.labels == (TEN + 1) % 10).sum()) <= high


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


def test_the_digest_tells_replaced_inputs_apart():
    inputs = torch.zeros(10, 2)
    results = [
        corrupt(range(10), "open_set(0.5, source=other)", inputs=inputs, other_inputs=torch.full((3, 2), fill)) for fill in (1.0, 2.0)
    ]
    assert torch.equal(results[0].mask, results[1].mask)
    assert results[0].digest != results[1].digest


def test_global_random_state_is_neither_read_nor_changed():
    inputs, labels = digits()
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


def test_labels_may_be_a_list_an_array_or_a_tensor_and_are_left_alone():
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
def test_any_noise_gives_labels_in_range_and_says_what_it_changed(labels, rate, rule, flips, seed):
    result = corrupt(labels, f"{rule}({rate!r}, flips={flips})", num_classes=7, seed=seed)
    assert 0 <= int(result.labels.min()) <= int(result.labels.max()) < 7
    assert torch.equal(result.mask, result.labels != torch.tensor(labels))
    np.testing.assert_allclose(result.expected.sum(1), 1)
    np.testing.assert_allclose(result.realised.sum(1), 1)
    assert rate > 0 or not result.mask.any()
    if rule != "symmetric_inclusive" and rate == 1:
        assert result.mask.all()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"noise": "symmetric(1.5)"}, r"The 'rate' parameter of Symmetric must be in \[0, 1\]. Got 1.5 instead."),
        ({"noise": "pair(-0.1)"}, "Got -0.1 instead"),
        ({"noise": "instance(0)"}, r"must be in \(0, 1\)"),
        ({"noise": "symmetric(nan)"}, "Got 'nan' instead"),
        ({"noise": "symetric(0.4)"}, "There is no noise named 'symetric'. Did you mean 'symmetric'"),
        ({"noise": "symmetric"}, "missing a required argument: 'rate'"),
        ({"noise": "symmetric(0.4, flips=exactly)"}, "must be one of 'independent', 'exact'. Got 'exactly'"),
        ({"noise": "2 * symmetric(0.4)"}, "cannot be read"),
        ({"noise": 0.4}, "must be a noise or its spec"),
        ({"noise": "class_map(0.4, cifar)"}, "There is no class map named 'cifar'. Did you mean 'cifar10'"),
        ({"noise": "class_map(0.4, {1: 1})"}, "dictionary from classes to other classes"),
        ({"noise": "class_map(0.4, {1: 0.5})"}, "dictionary from classes to other classes"),
        ({"noise": "class_map(0.4, 3)"}, "dictionary from classes to other classes"),
        ({"noise": "class_map(0.4, {1: 12})"}, "between classes below 4, the number of classes. Got 12"),
        ({"noise": "class_map(0.4, cifar10)"}, "'num_classes' parameter of the cifar10 class map must be 10. Got 4"),
        ({"noise": "superclass_circular(0.4)"}, "'superclasses' parameter of superclass_circular must be given, one for each of the 4"),
        ({"noise": "superclass_circular(0.4)", "superclasses": [0, 1]}, "one for each of the 4 classes. Got '2 of them'"),
        ({"noise": "superclass_circular_legacy(0.4)"}, "a multiple of 5. Got 4"),
        ({"noise": "matrix(((0.5, 0.4), (0, 1)))"}, "rows sum to one.*Got 'row 0 with sum 0.9'"),
        ({"noise": "matrix(((1.5, -0.5), (0, 1)))"}, "Got -0.5"),
        ({"noise": "matrix(((1.0, 0.0),))"}, r"Got 'shape \(1, 2\)'"),
        ({"noise": "matrix(((1.0, 0.0), (1.0,)))"}, "must be a square matrix"),
        ({"noise": "matrix(((1, 0), (0, 1)))"}, "each of 4 classes.*Got '2 rows'"),
        ({"noise": "matrix('nowhere.npy')"}, "nowhere.npy"),
        ({"noise": "matrix('T.txt')"}, "does not end in .npy, .csv or .json"),
        ({"noise": "human(worst)"}, "human labels"),
        ({"noise": "human(wrost)", "human": {"worst": [0] * 6, "aggre": [0] * 6}}, "named 'wrost'. Did you mean 'worst'"),
        ({"noise": "human(worst)", "human": {"worst": [0] * 5}}, "one label for each of the 6 examples. Got '5 labels'"),
        ({"noise": "human(worst)", "human": {"worst": [9] * 6}}, "human labels 'worst' given to corrupt must be from 0 to 3"),
        ({"noise": "symmetric(0.4) + human(worst)", "human": {"worst": [0] * 6}}, "human labels come first"),
        ({"noise": "instance(0.4)"}, "'inputs' parameter of instance must be given"),
        ({"noise": "instance(0.4)", "inputs": torch.full((6, 2), torch.nan)}, "finite"),
        ({"noise": "symmetric(0.4) + open_set(0.4)"}, "'inputs' parameter of open_set must be given"),
        ({"noise": "open_set(0.4)"}, "'inputs' parameter of open_set must be given"),
        ({"noise": "open_set(0.4)", "inputs": torch.full((6, 2), torch.nan)}, "'inputs' parameter of open_set must be finite numbers"),
        ({"noise": "open_set(0.4)", "inputs": torch.zeros(5, 2)}, "one input for each of the 6 labels"),
        ({"noise": "open_set(0.4, source=web)"}, "one of 'noise', 'other'. Got 'web'"),
        ({"noise": "open_set(0.4, source=other)", "inputs": torch.zeros(6, 2)}, "'other_inputs' parameter of open_set"),
        ({"noise": "open_set(0.4, source=other)", "inputs": torch.zeros(6, 2), "other_inputs": torch.zeros(6, 3)}, r"each shaped \(2,\)"),
        ({"labels": [0, 1, 4]}, "must be from 0 to 3, below num_classes. Got 0 to 4"),
        ({"labels": [0, -1]}, "Got -1 to 0"),
        ({"labels": [-1, 0], "num_classes": None}, "The labels given to corrupt must be 0 or more. Got -1"),
        ({"labels": [0.5, 1.0]}, "integers.*Got float64"),
        ({"labels": [[0, 1]]}, r"shaped \(1, 2\)"),
        ({"labels": []}, "non-empty"),
        ({"num_classes": 1}, r"an integer in \[2, inf\). Got 1"),
        ({"num_classes": 2.5}, r"an integer in \[2, inf\). Got 2.5"),
        ({"seed": 0.5}, "The 'seed' parameter of corrupt must be an integer"),
        ({"seed": True}, "The 'seed' parameter of corrupt must be an integer. Got True"),
    ],
)
def test_bad_input_gives_one_sentence(arguments, message):
    complete = {"labels": [0, 1, 2, 3, 0, 1], "noise": "symmetric(0.4)", "num_classes": 4, **arguments}
    with pytest.raises(InputError, match=message):
        corrupt(**complete)
