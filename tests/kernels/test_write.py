"""Losses translated for kernels: which losses are covered, the code, and the precision of tables. No kernel runs here."""

import copy
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from noisewise.kernels._encoding import decode, encode, written
from noisewise.kernels._table import CELLS, tabulate
from noisewise.kernels._write import NotCoveredError, covered, write
from noisewise.losses import MarginLoss
from registry import EVERY, MARGIN, build

COVERED = [spec for spec in EVERY if covered(build(spec))]


def test_every_margin_loss_and_the_losses_of_all_costs_are_covered():
    assert set(MARGIN) < set(COVERED)
    others = {spec for spec in COVERED if spec not in MARGIN}
    assert {spec.split("(")[0] for spec in others} == {"nce", "gls", "ls", "cr", "0.3*nce + 0.7*mae"}


@pytest.mark.parametrize("spec", COVERED)
def test_an_encoded_loss_computes_the_same_as_the_loss(spec):
    loss, d = build(spec), torch.linspace(-20, 20, 41, dtype=torch.float64)
    again = decode(*encode(loss, 10, passes_now=True))
    scores = torch.stack([d, -d, d / 2], 1)
    target = torch.arange(41) % 3
    assert torch.equal(again(scores, target), loss(scores, target))


def test_changing_a_hyper_parameter_does_not_change_the_code():
    assert write(build("gce(q=0.7)"), 10).source == write(build("gce(q=0.2)"), 100).source
    assert write(build("imae(T=8)"), 10).source == write(build("imae(T=0.5)"), 10).source


def test_translating_losses_in_many_threads_does_not_change_torch():
    before = nn.Module.__call__, nn.Module.__getattr__
    with ThreadPoolExecutor(12) as threads:
        programs = list(threads.map(lambda number: written("gce(q={})", (0.05 + number / 100,), 10), range(24)))
    assert before == (nn.Module.__call__, nn.Module.__getattr__)
    assert len({program.source for program in programs}) == 1 and len({program.numbers for program in programs}) == 24


def test_only_values_that_are_integrals_are_tabulated():
    for spec in ("imae(T=8)", "gr(beta=8)", "focal_detached(q=2)", "0.5*ce + 2*imae(T=4)"):
        assert write(build(spec), 10).source.count("look_up") == 1
    for spec in ("ce", "js(pi=0.5)", "agce(a=0.6, q=0.6)", "phuber_ce(tau=10)", "gr(beta=2, lam=0.3, g='identity')", "0.3*nce + 0.7*mae"):
        assert write(build(spec), 10).table is None


def looked_up(table: Tensor, margins: np.ndarray) -> np.ndarray:
    """The table lookup of the kernel, in NumPy."""
    size = np.abs(margins).astype(np.float32)
    bits = (size + np.float32(1)).view(np.int32) >> 16
    cell = np.minimum(bits - 0x3F80, CELLS - 1)
    low = ((cell + 0x3F80) << 16).astype(np.int32).view(np.float32) - np.float32(1)
    rows = table.numpy()[cell + np.where(margins < 0, 0, CELLS)]
    step = size - low
    return rows[:, 0] + step * (rows[:, 1] + step * (rows[:, 2] + step * rows[:, 3]))


@pytest.mark.parametrize("spec", ["ce", "gce(q=0.7)", "imae(T=16, saturation=5e-9)", "gr(beta=12, lam=0.5)", "js(pi=0.1)"])
@pytest.mark.parametrize("method", ["value", "emphasis"])
def test_a_table_is_exact_to_a_millionth(spec, method):
    function = getattr(build(spec), method)
    table, error = tabulate(function)
    assert error <= 1
    margins = np.concatenate([np.linspace(-40, 40, 4001), np.geomspace(1e-6, 3e4, 500), -np.geomspace(1e-6, 3e4, 500)])
    margins = margins.astype(np.float32).astype(np.float64)
    exact = function(torch.from_numpy(margins)).numpy()
    size = np.abs(function(torch.linspace(-1, 1, 33, dtype=torch.float64)).numpy()).max()
    assert (np.abs(looked_up(table, margins) - exact) <= 1e-6 * (np.abs(exact) + size)).all()


def test_a_value_near_its_zero_keeps_its_relative_precision():
    value = build("imae(T=8)").value
    margins = np.array([-1e-4, -1e-6, 1e-7, 1e-5, 1e-3], dtype=np.float32).astype(np.float64)
    exact = value(torch.from_numpy(margins)).numpy()
    np.testing.assert_allclose(looked_up(tabulate(value)[0], margins), exact, rtol=3e-7)


def test_beyond_its_end_a_table_is_linear():
    table, _ = tabulate(build("ce").value)
    np.testing.assert_allclose(looked_up(table, np.array([-1e5, 1e6])), [1e5, 0.0], rtol=1e-6)


def test_a_loss_with_a_kink_is_not_covered():
    class Kinked(MarginLoss):
        def value(self, d: Tensor) -> Tensor:
            return torch.erf((d - 0.3).abs())

    with pytest.raises(NotCoveredError):
        write(Kinked(), 10)


def test_an_operation_with_unknown_arguments_is_tabulated():
    class Rounded(MarginLoss):
        def value(self, d: Tensor) -> Tensor:
            return torch.nn.functional.softplus(-d, beta=2.0)

    assert "look_up" in write(Rounded(), 10).source


class Multiple(MarginLoss):
    """Cross-entropy times a plain attribute."""

    name = "multiple"

    def __init__(self, factor):
        super().__init__()
        self.factor = factor

    def value(self, margin):
        return self.factor * torch.nn.functional.softplus(-margin)

    def emphasis(self, margin):
        return self.factor * torch.sigmoid(-margin)


def test_the_encoding_of_a_custom_loss_depends_on_its_attributes():
    loss = Multiple(2.0)
    for whole in (loss, 0.5 * loss + build("mae"), build("scaled(mae, 3)") + loss):
        text, _ = encode(whole, 10)
        loss.factor = 3.0
        assert encode(whole, 10)[0] != text
        loss.factor = 2.0
        assert encode(whole, 10)[0] == text


def test_equal_custom_losses_share_a_kernel_and_different_ones_do_not():
    text, _ = encode(Multiple(2.0), 10)
    assert encode(copy.copy(Multiple(2.0)), 10)[0] == text  # training makes a copy in every step
    summed = Multiple(2.0)
    summed.reduction = "sum"
    assert encode(summed, 10)[0] == text  # the reduction is passed separately
    other = type("Multiple", (Multiple,), {"emphasis": lambda self, margin: 0 * margin})
    assert encode(other(2.0), 10)[0] != text
    loss = Multiple(2.0)
    again = decode(*encode(loss, 10, passes_now=True))
    loss.factor = 5.0
    assert again.factor == decode(text, []).factor == 2.0


def test_a_custom_loss_with_a_tensor_is_not_encoded():
    loss = Multiple(torch.tensor(2.0))
    assert encode(loss, 10) is None  # the tensor may change in place without notice
    assert encode(0.5 * loss + build("mae"), 10) is None
    with_buffer = Multiple(1.0)
    with_buffer.register_buffer("scale", torch.ones(()))
    assert encode(with_buffer, 10) is None
    weighted = Multiple(2.0)
    weighted.weight = torch.ones(10)
    assert encode(weighted, 10) is not None  # class weights are passed separately
