"""The named noises, compared with closed forms, binomial bounds, slow transcriptions of their rules, and real data sets."""

from __future__ import annotations

import json
import os
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from scipy import special, stats
from sklearn.datasets import load_digits

from costs import Compared, with_peak
from noisewise.data import from_arrays
from noisewise.noise import CIFAR100_SUPERCLASSES, CLASS_MAPS, Matrix, Stream, corrupt, registry
from refused import refused

TEN = torch.arange(20_000) % 10
HUNDRED = torch.arange(50_000) % 100
T3 = ((0.7, 0.2, 0.1), (0.0, 1.0, 0.0), (0.25, 0.25, 0.5))
SUPERCLASSES = np.array(CIFAR100_SUPERCLASSES)
RECONSTRUCT = np.zeros(0).__reduce__()[0]  # the function with which this version of numpy unpickles an array

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
OTHER_NOISES = ("instance(0.3)", "human(worst)", "open_set(0.2)", "wrong_identity(0.2)", "no_person(0.2)")
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
def test_the_repr_of_a_noise_is_its_spec(spec):
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
def test_exact_flips_change_the_labels_that_must_change_first(seed):
    labels = torch.arange(100) % 2
    result = corrupt(labels, "matrix(((0, 1), (0.5, 0.5)), flips='exact')", seed=seed)
    assert result.realised[0].tolist() == [0, 1] and int(result.mask.sum()) == 75


@pytest.mark.parametrize("rate", [0.0, 0.05, 0.1, 0.15, 0.4, 0.45, 1.0])
@pytest.mark.parametrize("number", [1, 7, 10, 999])
def test_exact_flips_change_exactly_round_rate_times_n_labels(rate, number):
    labels = torch.arange(number) % 10
    for rule in ("symmetric", "pair", "superclass_circular_legacy"):
        assert int(corrupt(labels, f"{rule}({rate}, flips='exact')", num_classes=10).mask.sum()) == round(rate * number)


def test_exact_flips_count_only_the_examples_the_rule_can_change():
    changed = corrupt(TEN, "class_map(0.35, mnist, flips='exact')").mask
    assert int(changed.sum()) == round(0.35 * 5 * 2000)
    inclusive = corrupt(TEN, "symmetric_inclusive(0.5, flips='exact')")
    assert int(inclusive.mask.sum()) == round(0.5 * 0.9 * len(TEN))


@pytest.mark.parametrize("flips", ["independent", "exact"])
def test_every_example_is_equally_likely_to_change(flips):
    labels, seeds, rate = torch.arange(50) % 5, 1000, 0.3
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


def test_class_maps_equal_the_published_ones():
    names = ["airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck"]
    published = {"truck": "automobile", "bird": "airplane", "deer": "horse", "cat": "dog", "dog": "cat"}
    labels = corrupt(torch.arange(10), "class_map(1, cifar10)").labels
    assert {names[i]: names[j] for i, j in enumerate(labels.tolist()) if i != j} == published
    labels = corrupt(torch.arange(10), "class_map(1, mnist)").labels
    assert {i: j for i, j in enumerate(labels.tolist()) if i != j} == {7: 1, 2: 7, 5: 6, 6: 5, 3: 8}
    assert {word: len(pairs) for word, pairs in CLASS_MAPS.items()} == {"cifar10": 5, "mnist": 5}


def test_a_class_map_may_name_classes_and_must_if_numbers_are_ambiguous():
    spec = "class_map(1.0, {'cat': 'dog', 'dog': 'ant'})"
    assert repr(registry.get(spec)) == repr(registry.get(repr(registry.get(spec)))) == spec
    assert corrupt([0, 1, 2], spec, classes=["ant", "cat", "dog"]).labels.tolist() == [0, 2, 0]
    data = from_arrays(torch.zeros(3, 1), [1, 2, 3])
    assert data.corrupted("class_map(1, {'1': '2'})").labels.tolist() == [1, 1, 2]
    for call, map, mentions in (
        (data.corrupted, "{1: 2}", ("1, 2, 3", "{1: 2}")),
        (data.corrupted, "{'1': '4'}", ("'4'",)),
        (lambda noise: corrupt([0, 1], noise), "{'a': 'b'}", ("names of the classes",)),
        (registry.get, "{'a': 'a'}", ("dictionary", "{'a': 'a'}")),
        (registry.get, "{'a': 1}", ("dictionary", "{'a': 1}")),
        (lambda noise: corrupt([0, 1], noise, num_classes=2, classes=["a"]), "{0: 1}", ("name", "2 classes", "1")),
    ):
        with refused(*mentions):
            call(f"class_map(1, {map})")


def test_a_class_map_of_many_classes_does_not_compare_all_pairs_of_names(monkeypatch):
    names = [Compared(f"class {number}") for number in range(300)]
    noise = registry.get("class_map", rate=1, map={f"class {number}": f"class {number - 1}" for number in range(1, 300)})
    monkeypatch.setattr(Compared, "times", 0)
    assert corrupt(torch.arange(300), noise, classes=names).labels.tolist() == [0, *range(299)]
    assert Compared.times < 50 * 300


def test_the_same_noise_applied_again_draws_new_numbers():
    """With the same numbers, the second application would restore the labels of two classes."""
    data = from_arrays(torch.zeros(4000, 1), torch.arange(4000) % 2)
    once = data.corrupted("symmetric(0.4)")
    twice = once.corrupted("symmetric(0.4)")
    for again in (twice, twice.corrupted("symmetric(0.4)")):
        assert abs(float(again.wrong.double().mean()) - 0.5) < 0.05
    replaced = from_arrays(torch.rand(2000, 1), torch.arange(2000) % 2).corrupted("open_set(0.4)").corrupted("open_set(0.4)")
    assert abs(float(replaced.wrong.double().mean()) - 0.64) < 0.05, "the second application replaces other inputs"
    assert torch.equal(twice.labels, once.corrupted("symmetric(0.4)").labels) and once.corruption("symmetric(0.4)").seed == 0
    assert torch.equal(data.corrupted("symmetric(0.4)").labels, corrupt(data.labels, "symmetric(0.4)").labels)


def test_a_class_map_may_be_given_as_pairs():
    assert repr(registry.get("class_map(0.4, ((9, 1), (2, 0)))")) == "class_map(0.4, {9: 1, 2: 0})"


def test_cifar100_has_twenty_superclasses_of_five():
    assert np.bincount(SUPERCLASSES).tolist() == [5] * 20


def test_superclasses_equal_those_of_the_real_cifar100():
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


def test_the_legacy_rule_keeps_six_of_a_hundred_flips_inside_the_superclass():
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


def test_the_number_of_classes_follows_from_the_superclasses():
    assert corrupt([0, 1], "superclass_circular(1)", superclasses=[0, 1, 0, 1]).labels.tolist() == [2, 3]


def test_a_class_alone_in_its_superclass_keeps_its_labels():
    for rule in ("superclass_circular", "superclass_uniform", "superclass_swap"):
        assert corrupt([0, 1, 2], f"{rule}(1)", superclasses=[0, 1, 0]).labels.tolist() == [2, 1, 0]


def digits() -> tuple[torch.Tensor, torch.Tensor]:
    data = load_digits()
    return torch.from_numpy(data.data) / 16, torch.from_numpy(data.target)


@pytest.mark.parametrize("rate", [0.1, 0.3, 0.5])
def test_the_rate_of_instance_noise_is_the_mean_of_a_truncated_normal(rate):
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


def test_instance_noise_flips_different_inputs_of_a_class_to_different_classes():
    labels = torch.zeros(4000, dtype=torch.int64)
    inputs = torch.cat([torch.full((2000, 8), 1.0), torch.full((2000, 8), -1.0)])
    flipped = corrupt(labels, "instance(0.5)", inputs=inputs, num_classes=10).labels
    first, second = (torch.bincount(part[part > 0], minlength=10).double() for part in flipped.split(2000))
    assert stats.chi2_contingency(torch.stack([first, second])[:, (first + second) > 20]).pvalue < 1e-6


def test_instance_noise_reads_bytes_as_numbers_from_0_to_1():
    inputs = torch.randint(0, 256, (500, 3, 4, 4), dtype=torch.uint8, generator=torch.Generator().manual_seed(0))
    labels = torch.arange(500) % 10
    from_bytes, from_floats = (corrupt(labels, "instance(0.4)", inputs=images) for images in (inputs, inputs.double() / 255))
    assert torch.equal(from_bytes.labels, from_floats.labels)


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


def test_open_set_uses_every_other_input_once_before_any_twice():
    inputs, other = torch.zeros(100, 1), torch.arange(1.0, 41.0).unsqueeze(1)
    few = corrupt(torch.arange(100) % 2, "open_set(0.3, source=other, flips=exact)", inputs=inputs, other_inputs=other)
    assert len(few.inputs[few.mask].unique()) == 30
    many = corrupt(torch.arange(100) % 2, "open_set(1, source=other)", inputs=inputs, other_inputs=other)
    assert sorted(many.inputs.unique(return_counts=True)[1].tolist()) == [2] * 20 + [3] * 20


@pytest.mark.parametrize("suffix", ["npy", "csv", "json"])
def test_a_matrix_is_read_from_a_file_and_its_repr_contains_the_numbers(tmp_path, suffix):
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


def test_a_class_that_a_matrix_keeps_is_never_flipped_because_of_rounding():
    rounded = ((1 - 9e-7, 0.0), (0.5, 0.5))
    result = corrupt(torch.zeros(2_000_000, dtype=torch.int64), f"matrix({rounded}, flips=exact)", num_classes=2)
    assert not result.mask.any()


def test_a_sum_applies_its_parts_in_order():
    inputs = torch.zeros(len(TEN), 1)
    inputs[0] = 1
    both = corrupt(TEN, "symmetric(0.4) + open_set(0.1)", inputs=inputs, seed=5)
    alone = corrupt(TEN, "symmetric(0.4)", seed=5)
    assert torch.equal(both.labels, alone.labels)
    replaced = (both.inputs != inputs).squeeze(1)
    assert torch.equal(both.mask, alone.mask | replaced)
    low, high = stats.binom.interval(1 - 1e-8, len(TEN), 1 - 0.6 * 0.9)
    assert low <= int(both.mask.sum()) <= high


def test_the_spec_of_a_matrix_is_written_once_and_again_after_a_change(monkeypatch):
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
def test_many_classes_take_no_more_memory_than_the_matrices_a_noise_needs(spec, matrices):
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


def test_inputs_replaced_by_any_part_of_a_sum_are_marked():
    inputs = torch.arange(200.0)
    result = corrupt(TEN[:200], "open_set(0.2) + open_set(0.3)", inputs=inputs)
    assert torch.equal(result.mask, result.inputs != inputs)
    assert result.mask.sum() > corrupt(TEN[:200], "open_set(0.2)", inputs=inputs).mask.sum() > 0


def test_equal_parts_of_a_sum_draw_different_numbers():
    twice = corrupt(TEN, "pair(0.5) + pair(0.5)")
    low, high = stats.binom.interval(1 - 1e-8, len(TEN), 0.5)
    assert low <= int((twice.labels == (TEN + 1) % 10).sum()) <= high
