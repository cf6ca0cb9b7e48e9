"""A linear layer and a loss in one function: exact for every loss, in any chunks, on the CPU in float64."""

import pytest
import torch
from torch.autograd import gradcheck

from noisewise.kernels import linear_loss
from refused import refused
from registry import SEPARATE, build


def layer(rows: int = 5, width: int = 3, classes: int = 4, dtype: torch.dtype = torch.float64) -> list[torch.Tensor]:
    """Inputs, weight and bias of a layer."""
    return [torch.randn(*shape, dtype=dtype, requires_grad=True) for shape in ((rows, width), (classes, width), (classes,))]


@pytest.fixture
def small_chunks(monkeypatch):
    monkeypatch.setattr("noisewise.kernels._linear.CHUNK_BYTES", 2 * 4 * 8 * 8)  # two rows of four float64 scores


@pytest.mark.parametrize("spec", SEPARATE)
def test_every_loss_equals_the_loss_of_the_scores(spec, small_chunks):
    hidden, weight, bias = layer()
    target, each = torch.tensor([0, 3, -100, 1, 2]), torch.rand(5, dtype=torch.float64)
    loss = build(spec, weight=torch.rand(4, dtype=torch.float64))
    results = []
    for value in (
        linear_loss(hidden, weight, target, loss=loss, bias=bias, sample_weight=each),
        loss(hidden @ weight.T + bias, target, sample_weight=each),
    ):
        results.append((value.detach(), *torch.autograd.grad(value, (hidden, weight, bias))))
    for actual, plain in zip(*results, strict=True):
        torch.testing.assert_close(actual, plain, rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
def test_the_gradient_agrees_with_finite_differences(reduction, small_chunks):
    target, loss = torch.tensor([0, 3, -100, 1, 2]), build("gce(q=0.7)", reduction=reduction)
    assert gradcheck(lambda hidden, weight, bias: linear_loss(hidden, weight, target, loss=loss, bias=bias), layer())


def test_backward_can_run_twice(small_chunks):
    hidden, weight, _ = layer()
    value = 3 * linear_loss(hidden, weight, torch.tensor([0, 3, 2, 1, 2]), loss="imae(T=8)")
    first = torch.autograd.grad(value, (hidden, weight), retain_graph=True)
    kept = [gradient.clone() for gradient in first]
    again = torch.autograd.grad(value, (hidden, weight))
    torch.testing.assert_close(list(again), kept)
    torch.testing.assert_close(list(first), kept)


def test_positions_of_a_sequence_are_rows(small_chunks):
    hidden, weight, _ = layer(rows=6)
    target = torch.tensor([[0, 3, 2], [1, 2, 0]])
    each = linear_loss(hidden.view(2, 3, 3), weight, target, loss=build("ce", reduction="none"))
    assert each.shape == (2, 3)
    plain = torch.nn.functional.cross_entropy(hidden @ weight.T, target.reshape(-1), reduction="none")
    torch.testing.assert_close(each.reshape(-1), plain)


def test_only_the_required_gradients_are_computed():
    hidden, weight, bias = layer()
    value = linear_loss(hidden.detach(), weight, torch.tensor([0, 3, 2, 1, 2]), bias=bias.detach())
    value.backward()
    assert hidden.grad is None and bias.grad is None and weight.grad.shape == weight.shape
    assert not linear_loss(hidden.detach(), weight.detach(), torch.tensor([0, 3, 2, 1, 2])).requires_grad


def test_the_scores_of_all_rows_are_never_in_memory_at_once():
    rows, classes = 512, 20_000
    hidden, weight, _ = layer(rows, 2, classes, torch.float32)
    largest = 0

    class Watch(torch.utils._python_dispatch.TorchDispatchMode):
        def __torch_dispatch__(self, function, types, args=(), kwargs=None):
            nonlocal largest
            out = function(*args, **(kwargs or {}))
            for tensor in out if isinstance(out, tuple | list) else (out,):
                if isinstance(tensor, torch.Tensor) and tensor.device.type != "meta":
                    largest = max(largest, tensor.numel())
            return out

    with pytest.MonkeyPatch.context() as patch, Watch():
        patch.setattr("noisewise.kernels._linear.CHUNK_BYTES", 8 * 4 * classes * 16)  # sixteen rows
        linear_loss(hidden, weight, torch.randint(classes, (rows,)), loss="gce(q=0.7)").backward()
    assert largest <= 16 * classes


def test_under_autocast_the_products_are_in_half_precision():
    hidden, weight, bias = layer(dtype=torch.float32)
    target = torch.tensor([0, 3, 2, 1, 2])
    with torch.autocast("cpu", dtype=torch.float16):
        value = linear_loss(hidden, weight, target, loss="gce(q=0.7)", bias=bias)
        plain = build("gce(q=0.7)")(torch.nn.functional.linear(hidden, weight, bias), target)
    assert value.dtype == torch.float32
    torch.testing.assert_close(value, plain)
    actual = torch.autograd.grad(value, (hidden, weight, bias))
    for gradient, exact in zip(actual, torch.autograd.grad(plain, (hidden, weight, bias)), strict=True):
        assert gradient.dtype == torch.float32
        torch.testing.assert_close(gradient, exact, rtol=5e-3, atol=1e-3)


def test_every_example_ignored_gives_zero():
    hidden, weight, _ = layer()
    value = linear_loss(hidden, weight, torch.full((5,), -100))
    value.backward()
    assert value == 0 and not hidden.grad.any() and not weight.grad.any()


@pytest.mark.parametrize(
    ("argument", "mentions"),
    [
        ({"weight": torch.randn(4, 2)}, ("(V, H)",)),
        ({"weight": torch.randn(4, 3, dtype=torch.float16)}, ("torch.float32", "torch.float16")),
        ({"bias": torch.randn(4, dtype=torch.float64)}, ("torch.float32", "torch.float64")),
        ({"bias": torch.randn(3)}, ("'bias'",)),
        ({"target": torch.zeros(4, dtype=torch.int64)}, ("'target'",)),
        ({"target": torch.full((5,), 4)}, ("0 to 3", 4)),
        ({"target": torch.zeros(5)}, ("integers",)),
        ({"sample_weight": torch.ones(4)}, ("'sample_weight'",)),
        ({"sample_weight": torch.ones(5, requires_grad=True)}, ("gradient", "detach")),
        ({"loss": "imae(normalise='batch')"}, ("batch",)),
        ({"skip": -0.1}, ("'skip'", -0.1)),
        ({"loss": build("ce", weight=torch.ones(3))}, ("'weight'", "CE")),
        ({"weight": torch.randn(1, 3), "target": torch.zeros(5, dtype=torch.int64)}, ("two classes",)),
        ({"hidden": torch.randn(0, 3), "target": torch.zeros(0, dtype=torch.int64)}, ("example",)),
    ],
)
def test_a_wrong_argument_is_refused(argument, mentions):
    arguments = {"hidden": torch.randn(5, 3), "weight": torch.randn(4, 3), "target": torch.zeros(5, dtype=torch.int64), **argument}
    with refused(*mentions):
        linear_loss(**arguments)
