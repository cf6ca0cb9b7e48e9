"""Learning-rate schedules: compared with those of torch, and with the recipes of the papers."""

import math

import pytest
import torch
from torch.optim import lr_scheduler

from noisewise.train._optimisers import Constant, Cosine, MultiStep, Schedule, Step
from noisewise.train._optimisers import schedules as registry
from refused import refused


def torch_factors(kind, total, **settings):
    """The factors of a schedule of torch, stepped after every iteration."""
    optimiser = torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=1.0)
    scheduler = kind(optimiser, **settings)
    rates = []
    for _ in range(total):
        rates.append(optimiser.param_groups[0]["lr"])
        optimiser.step()
        scheduler.step()
    return torch.tensor(rates, dtype=torch.float64)


@pytest.mark.parametrize("total", [1, 2, 7, 500])
@pytest.mark.parametrize(
    ("spec", "kind", "settings"),
    [
        ("constant", lr_scheduler.ConstantLR, {"factor": 1.0}),
        ("step(1, factor=0.97)", lr_scheduler.StepLR, {"step_size": 1, "gamma": 0.97}),
        ("step(50)", lr_scheduler.StepLR, {"step_size": 50, "gamma": 0.1}),
        ("multistep((3, 160, 240))", lr_scheduler.MultiStepLR, {"milestones": [3, 160, 240], "gamma": 0.1}),
        ("multistep((5,), factor=0.2)", lr_scheduler.MultiStepLR, {"milestones": [5], "gamma": 0.2}),
        ("cosine", lr_scheduler.CosineAnnealingLR, {"eta_min": 0.0}),
        ("cosine(final=0.1)", lr_scheduler.CosineAnnealingLR, {"eta_min": 0.1}),
    ],
)
def test_a_schedule_equals_torchs_stepped_every_iteration(spec, kind, settings, total):
    if kind is lr_scheduler.CosineAnnealingLR:
        settings = settings | {"T_max": total}
    factors = registry.get(spec).factors(total)
    assert factors.dtype == torch.float64 and factors.shape == (total,)
    torch.testing.assert_close(factors, torch_factors(kind, total, **settings), rtol=1e-10, atol=1e-12)


def test_the_imae_recipe_divides_by_ten_at_32k_and_48k_of_100k():
    factors = registry.get("multistep((32000, 48000))").factors(100_000)
    values, lengths = torch.unique_consecutive(factors, return_counts=True)
    assert values.tolist() == pytest.approx([1, 0.1, 0.01], rel=1e-14)
    assert lengths.tolist() == [32_000, 16_000, 52_000]


def test_step_divides_by_ten_every_5k_steps():
    values, lengths = torch.unique_consecutive(registry.get("step(5000)").factors(12_000), return_counts=True)
    assert values.tolist() == pytest.approx([1, 0.1, 0.01], rel=1e-14)
    assert lengths.tolist() == [5_000, 5_000, 2_000]


def test_a_share_of_the_run_is_rounded_to_the_nearest_step():
    assert 0.29 * 100 < 29
    assert torch.equal(MultiStep((0.29,)).factors(100), MultiStep((29,)).factors(100))


@pytest.mark.parametrize("total", [8, 120, 1000])
def test_numbers_below_one_are_shares_of_the_run(total):
    assert torch.equal(MultiStep((0.5, 0.75)).factors(total), MultiStep((total // 2, 3 * total // 4)).factors(total))
    assert torch.equal(Step(0.25).factors(total), Step(total // 4).factors(total))
    assert torch.equal(Cosine(warmup=0.125).factors(total), Cosine(warmup=total // 8).factors(total))


def test_a_share_that_rounds_to_no_steps_gives_a_valid_schedule():
    assert torch.equal(Step(0.01, factor=0.5).factors(4), Step(1, factor=0.5).factors(4))
    assert torch.equal(Constant(warmup=0.01).factors(4), Constant().factors(4))


def test_a_share_of_less_than_one_step_counts_as_one_step():
    for spec in ("multistep((0.004,))", "step(0.004)"):
        assert registry.get(spec).factors(100)[:2].tolist() == pytest.approx([1.0, 0.1])


@pytest.mark.parametrize(
    "spec", ["constant(warmup=500)", "step(7)", "step(1, factor=0.97)", "multistep((0.3, 0.5), factor=0.2)", "cosine(final=0.1, warmup=20)"]
)
@pytest.mark.parametrize(("total", "epoch"), [(1, 1), (1001, 7), (20_000, 391)])
def test_the_factors_of_an_epoch_equal_those_of_the_whole_run_bit_for_bit(spec, total, epoch):
    schedule = registry.get(spec)
    epochs = [schedule.factors(total, first, min(epoch, total - first)) for first in range(0, total, epoch)]
    step = torch.arange(total, dtype=torch.float64)
    rising = torch.ones(()) if "warmup" not in spec else ((step + 1) / schedule.warmup).clamp(max=1)
    whole = schedule.shape(step, total) * rising
    assert torch.equal(torch.cat(epochs), whole) and torch.equal(schedule.factors(total), whole)


def test_the_factors_of_an_epoch_of_a_very_long_run_take_little_memory():
    total = 10**12
    assert Cosine().factors(total, total // 2, 3).tolist() == pytest.approx([0.5] * 3, abs=1e-11)
    assert MultiStep((0.5,)).factors(total, total // 2 - 1, 2).tolist() == pytest.approx([1.0, 0.1])
    assert len(Constant().factors(total, total - 2, 2)) == 2
    epochs = [Cosine().factors(100_000, first, 30_000) for first in range(0, 100_000, 30_000)]
    torch.testing.assert_close(torch.cat(epochs), Cosine().factors(100_000), rtol=0.0, atol=1e-15)


@pytest.mark.parametrize("spec", ["constant", "step(30)", "multistep((30, 60))", "cosine(final=0.2)"])
def test_warmup_rises_linearly_and_does_not_change_later_steps(spec):
    plain, warm = registry.get(spec).factors(100), registry.get(spec, warmup=20).factors(100)
    rise = (warm / plain)[:20]
    assert rise.tolist() == pytest.approx([step / 20 for step in range(1, 21)], rel=1e-12)
    assert torch.equal(warm[20:], plain[20:])


def test_the_order_of_milestones_does_not_matter():
    assert torch.equal(MultiStep((60, 30)).factors(100), MultiStep((30, 60)).factors(100))


@pytest.mark.parametrize("spec", ["constant", "step(0.2, factor=0.5)", "multistep((32000, 0.75))", "cosine(final=0.1, warmup=500)"])
def test_a_schedule_can_be_built_from_its_repr(spec):
    schedule = registry.get(spec)
    assert isinstance(schedule, Schedule)
    again = registry.get(repr(schedule))
    assert repr(again) == repr(schedule)
    assert torch.equal(again.factors(1000), schedule.factors(1000))


@pytest.mark.parametrize(
    ("spec", "mentions"),
    [
        ("step", ["'every'"]),
        ("step(0)", ["'every'", "Step", "Got 0"]),
        ("step(2.5)", ["'every'", "Step", "Got 2.5"]),
        ("step(True)", ["'every'", "Step", "Got True"]),
        ("step(5, factor=0)", ["'factor'", "Step", "(0, 1]", "Got 0"]),
        ("multistep(32000)", ["'milestones'", "MultiStep", "Got 32000"]),
        ("multistep(())", ["'milestones'", "MultiStep", "Got ()"]),
        ("multistep((10, -1))", ["'milestones'", "MultiStep", "Got -1"]),
        ("cosine(final=2)", ["'final'", "Cosine", "[0, 1]", "Got 2"]),
        ("constant(warmup=-1)", ["'warmup'", "Got -1"]),
        ("constant(warmup=False)", ["'warmup'", "Got False"]),
        ("cosin", ["'cosin'", "'cosine'"]),
    ],
)
def test_a_wrong_schedule_is_refused(spec, mentions):
    with refused(*mentions):
        registry.get(spec)


@pytest.mark.parametrize("length", [math.inf, math.nan, "10", 10**400])
def test_a_length_that_is_not_a_number_of_steps_is_refused(length):
    with refused("'every'", "Step"):
        Step(length)


@pytest.mark.parametrize("total", [0, -5, 2.0, True])
def test_a_run_has_at_least_one_step(total):
    with refused("'total_steps'", "Constant", f"Got {total}"):
        Constant().factors(total)
