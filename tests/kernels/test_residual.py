"""The body of a residual network in kernels: compared with torch in float64, and when torch is used instead.

In the interpreter everything is float32 and the bounds are tight. On a GPU it is bfloat16, and the bound is the error of torch's
autocast on the same network.
"""

import contextlib
import copy
import logging

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.autograd import forward_ad

from noisewise.kernels import _residual, _switch, _tuning, residual
from noisewise.models.resnet import CifarResNet, PaddedBlock, ResNet20

SLACK = 1.5  # how much further from float64 than torch's autocast kernels may be


class Tiny(CifarResNet):
    depths = (1, 1, 1)


class Uneven(CifarResNet):
    depths = (2, 1, 1)


@pytest.fixture(autouse=True)
def _few_programs(device, monkeypatch):
    """The time of the interpreter depends on the number of programs, so it gets few large ones. A GPU gets the real numbers."""
    if device == "cpu":
        for name in ("CONVOLVE", "PROPAGATE", "CORRELATE"):
            monkeypatch.setattr(_tuning, name, dict.fromkeys((16, 32, 64), _tuning.Tile(64, 256, 4, 1)))
        monkeypatch.setattr(_tuning, "SHARES", {16: 3, 32: 2, 64: 2})
        for name, number in (("ADDED_ROWS", 2), ("ADDED_STATISTICS", 16), ("ADDED_WEIGHTS", 8192)):
            monkeypatch.setattr(_tuning, name, number)


def random_network(kind: type[CifarResNet], device: str, **settings) -> CifarResNet:
    torch.manual_seed(1)
    network = kind(10, **settings).to(device, memory_format=torch.channels_last)
    for layer in network.modules():
        if isinstance(layer, nn.BatchNorm2d):
            nn.init.uniform_(layer.weight, 0.5, 1.5)
            nn.init.normal_(layer.bias, std=0.3)
    return network


def images(device: str, *shape: int) -> Tensor:
    return torch.randn(shape).to(device, memory_format=torch.channels_last)


def computing(device: str) -> contextlib.AbstractContextManager[object]:
    return torch.autocast("cuda", dtype=torch.bfloat16) if device == "cuda" else contextlib.nullcontext()


def by_kernels(network: CifarResNet, x: Tensor) -> Tensor:
    with computing(x.device.type):
        features = residual(network, x)
    assert features is not None
    return features


def by_torch(network: CifarResNet, x: Tensor) -> Tensor:
    x = F.relu(network.bn1(network.conv1(x)))
    for number in (1, 2, 3):
        x = getattr(network, f"layer{number}")(x)
    return x


def by_autocast(network: CifarResNet, x: Tensor) -> Tensor:
    with computing(x.device.type):
        return by_torch(network, x)


def stepped(network: CifarResNet, body, x: Tensor, slope: Tensor, steps: int = 2) -> dict[str, Tensor]:
    """Outputs, gradients and buffers of training steps, with an update after each."""
    results = {}
    for step in range(steps):
        network.zero_grad()
        output = body(network, x)
        output.backward(slope.to(output.dtype))
        results |= {f"output {step}": output.detach()}
        results |= {f"gradient {step} of {name}": each.grad for name, each in network.named_parameters() if each.grad is not None}
        results |= {f"{name} {step}": each.clone() for name, each in network.named_buffers()}
        with torch.no_grad():
            for parameter in network.parameters():
                if parameter.grad is not None:
                    parameter -= 0.02 * parameter.grad / parameter.grad.norm()
    return {name: each.double() for name, each in results.items()}


def errors(actual: dict[str, Tensor], exact: dict[str, Tensor]) -> dict[str, float]:
    assert actual.keys() == exact.keys()
    return {name: float((actual[name] - exact[name]).norm() / exact[name].norm()) for name in exact}


@pytest.mark.parametrize(
    ("kind", "shape"),
    [(Tiny, (3, 3, 8, 8)), (Uneven, (2, 3, 12, 12)), (Tiny, (5, 1, 9, 7)), (ResNet20, (2, 3, 8, 8))],
    ids=["tiny", "uneven", "odd sizes, one channel", "resnet20"],
)
def test_training_steps_equal_those_of_torch(kind, shape, device):
    if device == "cpu" and (kind, shape[1]) != (Tiny, 3):
        pytest.skip("needs a CUDA device: takes minutes in the interpreter")
    if device == "cuda":
        shape = (33, 3, 32, 32) if shape[1] == 3 else (81, *shape[1:])  # few sizes: each is compiled separately
    network, x = random_network(kind, device, channels=shape[1]), images(device, *shape)
    slope = torch.randn(by_torch(copy.deepcopy(network), x).shape, device=device).bfloat16().float()
    exact = stepped(copy.deepcopy(network).double(), by_torch, x.double(), slope.double())
    ours = errors(stepped(copy.deepcopy(network), by_kernels, x, slope), exact)
    if device == "cpu":
        assert max(ours.values()) < 5e-6
    else:
        theirs = errors(stepped(copy.deepcopy(network), by_autocast, x, slope), exact)
        for part in ("output", "gradient", "running_mean", "running_var"):
            our, their = (sum(error**2 for name, error in each.items() if part in name) ** 0.5 for each in (ours, theirs))
            assert our <= SLACK * their + 1e-6, part
        assert all(ours[name] == 0 for name in ours if "num_batches_tracked" in name)


@pytest.mark.usefixtures("costly_if_interpreted")
@pytest.mark.parametrize("memory", [torch.channels_last, torch.contiguous_format])
def test_a_gradient_has_the_memory_format_of_its_parameter(memory, device):
    network = random_network(Tiny, device).to(memory_format=memory)
    by_kernels(network, images(device, 2, 3, 8, 8)).sum().backward()
    body = [parameter for name, parameter in network.named_parameters() if not name.startswith("head")]
    assert all(parameter.grad.stride() == parameter.stride() for parameter in body)


@pytest.mark.usefixtures("costly_if_interpreted")
def test_the_incoming_gradient_may_have_any_strides(device):
    network = random_network(Tiny, device)
    output = by_kernels(network, images(device, 3, 3, 8, 8))
    wide = torch.randn(3, 64, 1, 1, device=device, dtype=output.dtype).expand_as(output)
    body = [parameter for name, parameter in network.named_parameters() if not name.startswith("head")]
    plain, *others = (
        torch.autograd.grad(output, body, slope, retain_graph=True) for slope in (wide.contiguous(), wide, wide.mT.contiguous().mT)
    )
    assert all(torch.equal(expected, features) for other in others for expected, features in zip(plain, other, strict=True))


@pytest.mark.usefixtures("costly_if_interpreted")
def test_the_same_step_gives_the_same_bits(device):
    network, x = random_network(Tiny, device), images(device, 3, 3, 8, 8)
    slope = torch.randn(3, 64, 2, 2, device=device)
    first, second = (stepped(copy.deepcopy(network), by_kernels, x, slope, steps=1) for _ in range(2))
    assert all(torch.equal(first[name], second[name]) for name in first)


def test_a_variance_far_from_zero_does_not_cancel(device):
    network, x = random_network(Tiny, device), images(device, 4, 3, 8, 8)
    with torch.no_grad():
        network.conv1.weight.zero_()
        network.conv1.weight[:, 0, 1, 1] = 1.0
    x[:, 0] = 4096 + 32 * torch.randint(-2, 3, x[:, 0].shape, device=device)  # integers that bfloat16 has
    by_kernels(network, x).sum().backward()
    exact = 0.9 + 0.1 * x[:, 0].double().var()
    torch.testing.assert_close(network.bn1.running_var.double(), exact.expand(16), rtol=1e-6, atol=0)


@pytest.mark.usefixtures("costly_if_interpreted")
def test_a_nan_is_passed_on(device):
    network, x = random_network(Tiny, device), images(device, 2, 3, 8, 8)
    x[1, 2, 3, 4] = torch.nan
    output = by_kernels(network, x)
    output.sum().backward()
    assert output.isnan().all() and network.conv1.weight.grad.isnan().all() and network.bn1.running_var.isnan().all()


@pytest.mark.usefixtures("costly_if_interpreted")
def test_a_frozen_parameter_gets_no_gradient_and_changes_no_other(device):
    network, x = random_network(Tiny, device), images(device, 2, 3, 8, 8)
    by_kernels(network, x).sum().backward()
    frozen = random_network(Tiny, device)
    frozen.layer2[0].conv1.weight.requires_grad_(False)
    by_kernels(frozen, x).sum().backward()
    assert frozen.layer2[0].conv1.weight.grad is None
    for (name, whole), part in zip(network.named_parameters(), frozen.parameters(), strict=True):
        assert name.startswith("head") or name == "layer2.0.conv1.weight" or torch.equal(whole.grad, part.grad)


@pytest.mark.usefixtures("costly_if_interpreted")
def test_backward_can_run_twice_but_has_no_second_derivative(device):
    network, x = random_network(Tiny, device), images(device, 2, 3, 8, 8)
    value = by_kernels(network, x).float().square().sum()
    weight = network.conv1.weight
    (first,), (second,) = (torch.autograd.grad(value, weight, retain_graph=True) for _ in range(2))
    assert torch.equal(first, second)
    (slope,) = torch.autograd.grad(value, weight, create_graph=True)
    with pytest.raises(RuntimeError) as caught:
        slope.sum().backward()
    assert "once_differentiable" in str(caught.value)


def test_the_embedding_of_a_training_step_comes_from_kernels(device):
    network, x = random_network(Tiny, device), images(device, 2, 3, 8, 8)
    with computing(device):
        features = network.features(x)
        with _switch.off():
            expected = network.features(x)
    assert "_Body" in type(features.grad_fn.next_functions[0][0]).__name__
    tolerance = 1e-5 if device == "cpu" else 0.05
    torch.testing.assert_close(features, expected, rtol=tolerance, atol=tolerance)


def test_without_gradients_a_training_step_has_the_same_scores_and_statistics(device):
    network, x = random_network(Tiny, device), images(device, 2, 3, 8, 8)
    other = copy.deepcopy(network)
    features = by_kernels(network, x)
    with torch.no_grad():
        assert torch.equal(by_kernels(other, x), features)
    assert all(torch.equal(mine, own) for mine, own in zip(network.buffers(), other.buffers(), strict=True))


@pytest.mark.parametrize("shape", [(2, 3, 8, 8), (3, 3, 9, 7)])
def test_evaluation_uses_the_running_statistics_and_changes_nothing(shape, device, request):
    if shape == (3, 3, 9, 7):
        request.getfixturevalue("costly_if_interpreted")
    network, x = random_network(Tiny, device), images(device, *shape)
    for layer in network.modules():
        if isinstance(layer, nn.BatchNorm2d):
            layer.running_mean.normal_(0, 0.3)
            layer.running_var.uniform_(0.2, 3)
    network.eval()
    before = copy.deepcopy(network.state_dict())
    with computing(device), torch.no_grad():
        features = residual(network, x)
        assert features is not None and torch.equal(residual(network, x), features)
    assert all(torch.equal(value, before[name]) for name, value in network.state_dict().items())
    with torch.no_grad(), _switch.off():
        exact = network.double()
        expected = F.relu(exact.bn1(exact.conv1(x.double())))
        for number in (1, 2, 3):
            expected = getattr(exact, f"layer{number}")(expected)
    error = (features.double() - expected).norm() / expected.norm()
    assert error < (1e-5 if device == "cpu" else 0.02)


class Softer(PaddedBlock):
    pass


class Softened(Tiny):
    block = Softer


class Loud(nn.Conv2d):
    pass


def _replace(name: str, layer: nn.Module):
    return lambda network: setattr(network.layer2[0], name, layer.to(network.head.weight.device))


CHANGES = {
    "evaluation": lambda network: network.eval(),
    "one layer in evaluation": lambda network: network.layer3[0].bn1.eval(),
    "hook before": lambda network: network.layer1[0].register_forward_pre_hook(lambda *_: None),
    "hook after": lambda network: network.layer1[0].conv2.register_forward_hook(lambda *_: None),
    "hook behind": lambda network: network.bn1.register_full_backward_hook(lambda *_: None),
    "averaged statistics": lambda network: setattr(network.layer2[0].bn2, "momentum", None),
    "no statistics": _replace("bn1", nn.BatchNorm2d(32, track_running_stats=False)),
    "no scale": _replace("bn2", nn.BatchNorm2d(32, affine=False)),
    "another normalisation": _replace("bn2", nn.GroupNorm(4, 32)),
    "a bias": _replace("conv2", nn.Conv2d(32, 32, 3, padding=1)),
    "a larger convolution": _replace("conv2", nn.Conv2d(32, 32, 5, padding=2, bias=False)),
    "another convolution": _replace("conv2", Loud(32, 32, 3, padding=1, bias=False)),
    "float64": lambda network: network.layer1.double(),
}


@pytest.mark.parametrize("change", CHANGES)
def test_torch_is_used_for_unusual_networks(change, device):
    network, x = random_network(Tiny, device), images(device, 2, 3, 4, 4)
    with computing(device):
        CHANGES[change](network)
        assert residual(network, x) is None


def test_torch_is_used_with_a_global_hook(device):
    network, x = random_network(Tiny, device), images(device, 2, 3, 8, 8)
    handle = nn.modules.module.register_module_forward_hook(lambda *_: None)
    try:
        with computing(device):
            assert residual(network, x) is None
    finally:
        handle.remove()


def test_torch_is_used_for_other_blocks(device):
    with computing(device):
        assert residual(random_network(Softened, device), images(device, 2, 3, 8, 8)) is None


def test_torch_is_used_for_unusual_calls(device, monkeypatch):
    network, x = random_network(Tiny, device), images(device, 2, 3, 8, 8)
    with computing(device):
        assert residual(network, x.clone().requires_grad_()) is None
        assert residual(network, x.double()) is None
        assert residual(network, x[:, :1]) is None
        assert residual(network, x[0]) is None
        assert residual(network, x[:0]) is None
        assert residual(network, x[:1, :, :4, :4]) is None
        assert residual(network, x.as_subclass(type("Marked", (Tensor,), {}))) is None
        with torch.no_grad():
            network.layer3[0].bn2.eval()
            assert residual(network, x) is None
            network.layer3[0].bn2.train()
        with _switch.off():
            assert residual(network, x) is None
        with monkeypatch.context() as patch:
            patch.setattr(_residual, "LARGEST", 64 * 2 * 8 * 8)
            assert residual(network, x) is None
    with torch.autocast(device, dtype=torch.float16, enabled=device == "cuda"):
        assert device == "cpu" or residual(network, x) is None
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert residual(network, x) is None


@pytest.mark.filterwarnings("ignore:.*torch.jit.trace:DeprecationWarning", "ignore:.*torch.jit.script.* is deprecated:DeprecationWarning")
def test_torch_is_used_while_tracing_and_inside_transforms(device):
    network, x, results = random_network(Tiny, device), images(device, 2, 3, 8, 8), []
    with computing(device):
        torch.func.grad(lambda x: results.append(residual(network, x)) or x.sum())(x)
        torch.jit.trace(lambda x: results.append(residual(network, x)) or x.sum(), x, check_trace=False)
        torch.compile(lambda x: x + 1 if residual(network, x) is None else x, backend="eager", fullgraph=True)(x)
        with forward_ad.dual_level():
            results.append(residual(network, forward_ad.make_dual(x, torch.ones_like(x))))
            with torch.no_grad():
                results.append(residual(network.eval(), forward_ad.make_dual(x, torch.ones_like(x))))
    assert results == [None] * 4


def test_the_reason_to_use_torch_is_logged_once(device, caplog):
    network, x = random_network(Tiny, device).eval(), images(device, 2, 3, 8, 8)
    _switch.log_once.cache_clear()
    caplog.set_level(logging.DEBUG, logger="noisewise")
    for _ in range(2):
        with computing(device):
            network.features(x)
    _switch.log_once.cache_clear()
    (record,) = caplog.records
    assert "gradients" in record.message and "evaluation" in record.message


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_on_a_gpu_a_captured_step_is_the_step(device):
    network, x = random_network(ResNet20, device), images(device, 128, 3, 32, 32)
    slope = torch.randn(128, 64, 8, 8, device=device, dtype=torch.bfloat16)
    start = copy.deepcopy(network.state_dict())
    body = [parameter for name, parameter in network.named_parameters() if not name.startswith("head")]

    def step() -> list[Tensor]:
        output = by_kernels(network, x)
        return [output.detach(), *torch.autograd.grad(output, body, slope), *network.buffers()]

    expected = [tensor.clone() for tensor in step()]
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        step()
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        captured = step()
    for _ in range(3):
        network.load_state_dict(start)
        graph.replay()
        assert all(torch.equal(actual, wanted) for actual, wanted in zip(captured, expected, strict=True))
