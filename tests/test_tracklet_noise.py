"""Abnormal tracklets: whole tracklets with a wrong identity, and tracklets whose frames show no person."""

from __future__ import annotations

from collections import defaultdict

import numpy as np
import pytest
import torch
from scipy import stats

from noisewise import data
from noisewise.data import Dataset, ImageFiles, Stream
from noisewise.noise import corrupt
from real_data import real
from refused import refused

PEOPLE, FRAMES = 30, 4
TRACKLETS = torch.arange(2 * PEOPLE).repeat_interleave(FRAMES) * 3 + 5  # numbers need not start at 0
LABELS = torch.arange(PEOPLE).repeat_interleave(2 * FRAMES)
IMAGES = torch.randint(0, 256, (len(LABELS), 3, 6, 16), dtype=torch.uint8, generator=torch.Generator().manual_seed(0))


def people() -> Dataset:
    order = torch.randperm(len(LABELS), generator=torch.Generator().manual_seed(1))  # frames of a tracklet need not be neighbours
    names = tuple(f"person {number}" for number in range(PEOPLE))
    return Dataset(IMAGES[order], LABELS[order], names, true_labels=LABELS[order], groups={"tracklet": TRACKLETS[order]})


def changed_tracklets(before: Dataset, after: Dataset) -> set[int]:
    """The abnormal tracklets; all frames of a tracklet must be abnormal, or none."""
    flags = defaultdict(set)
    assert after.wrong is not None
    for tracklet, wrong in zip(before.groups["tracklet"].tolist(), after.wrong.tolist(), strict=True):
        flags[tracklet].add(wrong)
    assert all(len(each) == 1 for each in flags.values())
    return {tracklet for tracklet, each in flags.items() if True in each}


@pytest.mark.parametrize("name", ["wrong_identity", "no_person"])
@pytest.mark.parametrize("rate", [0.0, 0.1, 0.25, 1.0])
def test_the_share_of_abnormal_tracklets_is_the_rate(name: str, rate: float) -> None:
    before = people()
    assert len(changed_tracklets(before, before.corrupted(f"{name}({rate}, flips='exact')"))) == round(2 * PEOPLE * rate)
    numbers = [len(changed_tracklets(before, before.corrupted(f"{name}({rate})", seed=seed))) for seed in range(20)]
    low, high = stats.binom.interval(1 - 1e-6, 20 * 2 * PEOPLE, rate)
    assert low <= sum(numbers) <= high


@pytest.mark.parametrize("noise", ["wrong_identity(0.3)", "no_person(0.3)", "wrong_identity(0.2) + no_person(0.2)"])
def test_abnormal_tracklets_depend_on_the_seed_only(noise: str) -> None:
    first, again, other = (people().corruption(noise, seed=seed) for seed in (3, 3, 4))
    assert first.digest == again.digest != other.digest
    assert torch.equal(first.labels, again.labels) and torch.equal(first.mask, again.mask)
    assert not torch.equal(first.mask, other.mask)


def test_a_tracklet_gets_one_wrong_identity() -> None:
    before = people()
    after = before.corrupted("wrong_identity(1)")
    given = defaultdict(set)
    for tracklet, label in zip(before.groups["tracklet"].tolist(), after.labels.tolist(), strict=True):
        given[tracklet].add(label)
    assert all(len(each) == 1 for each in given.values())
    assert (after.labels != before.labels).all() and torch.equal(after.inputs, before.inputs)


def test_wrong_identities_are_uniform_over_the_other_people() -> None:
    labels = torch.zeros(6000, dtype=torch.int64)
    given = corrupt(labels, "wrong_identity(1)", num_classes=5, tracklets=torch.arange(6000)).labels
    counts = np.bincount(given, minlength=5)
    assert counts[0] == 0 and stats.chisquare(counts[1:]).pvalue > 1e-3


def test_frames_without_a_person_show_the_edges_of_the_image() -> None:
    before = people()
    after = before.corrupted("no_person(0.5, flips='exact')")
    assert torch.equal(after.labels, before.labels) and after.true_labels is not None
    abnormal = after.true_labels == -1
    assert 0 < abnormal.sum() < len(before) and torch.equal(after.inputs[~abnormal], before.inputs[~abnormal])
    for old, new in zip(before.inputs[abnormal], after.inputs[abnormal], strict=True):
        edges = {tuple(old[:, :, column].flatten().tolist()) for column in (0, 1, 14, 15)}  # an eighth of the width on each side
        assert {tuple(new[:, :, column].flatten().tolist()) for column in range(16)} == edges


def test_tracklets_stay_with_their_examples() -> None:
    before = people()
    some = before.take(torch.arange(0, len(before), 7))
    assert torch.equal(some.groups["tracklet"], before.groups["tracklet"][::7])
    files = ImageFiles(("a.png", "b.png"), torch.tensor([0, 1]), ("Ann", "Bob"), groups={"tracklet": torch.tensor([4, 2])})
    assert Stream.of(files, (8, 8), workers=0).groups["tracklet"].tolist() == [4, 2]


def test_bad_requests_are_refused() -> None:
    with refused("wrong_identity(0.2)", "tracklets"):
        corrupt([0, 1], "wrong_identity(0.2)")
    with refused("'tracklets'", "2 labels", "3"):
        corrupt([0, 1], "wrong_identity(0.2)", tracklets=[0, 1, 2])
    with refused("'inputs'", "no_person", "(2, 4)"):
        corrupt([0, 1], "no_person(0.2)", tracklets=[0, 1], inputs=torch.zeros(2, 4))
    with refused("'rate'", "1.2"):
        corrupt([0, 1], "no_person(1.2)", tracklets=[0, 1])


@real("pku_reid")
def test_real_tracklets_become_abnormal() -> None:
    before = data.read("pku_reid")
    assert len(before.groups["tracklet"].unique()) == 124
    after = before.corrupted("wrong_identity(0.2, flips='exact') + no_person(0.2, flips='exact')")
    number = len(changed_tracklets(before, after))
    assert 25 <= number <= 50  # 25 of each kind; some may be both
