"""Optimisers: compared with those of torch over twenty steps; gradient clipping; saving and loading their state."""

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import nn

from noisewise.train._optimisers import SGD, Adam
from noisewise.train._optimisers import optimisers as registry
from refused import refused

RULES = {
    "sgd(lr=0.2, momentum=0)": (torch.optim.SGD, {}),
    "sgd(lr=0.05, momentum=0.9)": (torch.optim.SGD, {"momentum": 0.9}),
    "sgd(lr=0.05, momentum=0.8, nesterov=True)": (torch.optim.SGD, {"momentum": 0.8, "nesterov": True}),
    "adam(lr=0.01)": (torch.optim.Adam, {}),
    "adam(lr=0.01, beta1=0.7, beta2=0.95, eps=0.1)": (torch.optim.Adam, {"betas": (0.7, 0.95), "eps": 0.1}),
    "adam(lr=0.1, eps=1)": (torch.optim.Adam, {"eps": 1.0}),
    "adamw(lr=0.01)": (torch.optim.AdamW, {}),
}


@pytest.fixture(autouse=True, scope="module")
def one_thread():
    """Small steps are faster in one thread."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


def network(dtype=torch.float32, device="cpu"):
    torch.manual_seed(0)
    layers = [nn.Conv2d(3, 6, 3, padding=1), nn.Conv2d(6, 8, 1), nn.Tanh(), nn.Flatten(), nn.Linear(8 * 16, 4)]
    model = nn.Sequential(*layers).to(device, dtype)
    return model.to(memory_format=torch.channels_last)


def problem(seed, dtype=torch.float32, device="cpu"):
    generator = torch.Generator().manual_seed(seed)
    inputs = torch.randn(16, 3, 4, 4, generator=generator, dtype=dtype)
    return inputs.to(device), torch.randint(4, (16,), generator=generator).to(device)


def descend(model, updater, steps, first=0, clip=None, lr=None):
    parameter = next(model.parameters())
    for number in range(first, first + steps):
        inputs, labels = problem(number, parameter.dtype, parameter.device)
        if lr is not None:
            updater.lr.fill_(lr(number))
        updater.zero_grad()
        nn.functional.cross_entropy(model(inputs), labels).backward()
        if clip is not None:
            updater.clip(clip)
        updater.step()
    return [parameter.detach().clone() for parameter in model.parameters()]


def descend_with_torch(model, rule, weight_decay, steps, clip, lr):
    kind, settings = RULES[rule]
    optimiser = kind(model.parameters(), lr=1.0, weight_decay=weight_decay, **settings)
    for number in range(steps):
        optimiser.param_groups[0]["lr"] = float(torch.tensor(lr(number), dtype=torch.float32))
        optimiser.zero_grad()
        inputs, labels = problem(number, next(model.parameters()).dtype)
        nn.functional.cross_entropy(model(inputs), labels).backward()
        if clip is not None:
            nn.utils.clip_grad_norm_(model.parameters(), clip)
        optimiser.step()
    return [parameter.detach() for parameter in model.parameters()]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("clip", [None, 0.2])
@pytest.mark.parametrize("weight_decay", [0.0, 0.05])
@pytest.mark.parametrize("rule", RULES)
def test_twenty_steps_equal_those_of_torch_while_the_learning_rate_changes(rule, weight_decay, clip, dtype):
    optimiser = registry.get(rule)

    def lr(number):
        return optimiser.lr / (1 + number % 3)

    model, theirs = network(dtype), network(dtype)
    start = [parameter.detach().clone() for parameter in model.parameters()]
    ours = descend(model, optimiser.make(model.named_parameters(), weight_decay), 20, clip=clip, lr=lr)
    expected = descend_with_torch(theirs, rule, weight_decay, 20, clip, lr)
    tolerance = {torch.float32: 1e-6, torch.float64: 1e-13}[dtype]
    for before, actual, desired in zip(start, ours, expected, strict=True):
        torch.testing.assert_close(actual, desired, rtol=tolerance, atol=tolerance)
        assert (actual - before).abs().max() > 1e-3


@pytest.mark.parametrize("rule", RULES)
def test_a_parameter_without_a_gradient_and_its_state_do_not_change(rule):
    kind, settings = RULES[rule]
    ours, theirs = (nn.ParameterDict({name: nn.Parameter(torch.ones(3)) for name in "ab"}) for _ in range(2))
    updater = registry.get(rule).make(ours.named_parameters(), 0.05)
    reference = kind(theirs.parameters(), lr=registry.get(rule).lr, weight_decay=0.05, **settings)
    updater.step()
    assert all((parameter == 1).all() for parameter in ours.values())
    for number in range(6):
        for parameters, optimiser in ((ours, updater), (theirs, reference)):
            optimiser.zero_grad()
            used = parameters["a"] if number % 2 else parameters["a"] + parameters["b"]
            used.square().sum().backward()
            optimiser.step()
    for name in "ab":
        torch.testing.assert_close(ours[name], theirs[name], rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("strided", ["a stride of a dimension of size 1", "another order in memory"])
@pytest.mark.parametrize("rule", RULES)
def test_a_gradient_may_have_other_strides_than_its_parameter(rule, strided):
    values = torch.arange(12.0) - 5
    updated = []
    for differs in (False, True):
        parameter = nn.Parameter(torch.ones(4, 3, 1, 1).to(memory_format=torch.channels_last))
        parameter.grad = values.view(4, 3, 1, 1).to(memory_format=torch.channels_last)
        if differs and strided == "another order in memory":
            parameter.grad = values.view(4, 3).t().contiguous().t()[:, :, None, None]
        elif differs:
            parameter.grad = values.view(4, 3, 1, 1)
        assert (parameter.grad.stride() != parameter.stride()) == differs
        updater = registry.get(rule).make([("a", parameter)], 0.01)
        updater.step()
        updated.append(parameter.detach())
    assert torch.equal(*updated)
    assert len(updated[0].unique()) > 1


@pytest.mark.parametrize("max_norm", [0.1, 100.0])
def test_clipping_scales_the_whole_gradient_to_the_norm(max_norm):
    model = network()
    updater = SGD().make(model.named_parameters())
    inputs, labels = problem(0)
    nn.functional.cross_entropy(model(inputs), labels).backward()
    before = [parameter.grad.double().numpy().copy() for parameter in updater.parameters]
    norm = np.sqrt(sum((gradient**2).sum() for gradient in before))
    assert 0.1 < norm < 100
    assert float(updater.clip(max_norm)) == pytest.approx(norm, rel=1e-6)
    for gradient, parameter in zip(before, updater.parameters, strict=True):
        np.testing.assert_allclose(parameter.grad.numpy(), gradient * min(1, max_norm / (norm + 1e-6)), rtol=1e-5, atol=1e-9)


def test_zero_grad_deletes_the_gradients():
    model = network()
    updater = SGD().make(model.named_parameters())
    model(problem(0)[0]).sum().backward()
    assert all(parameter.grad is not None for parameter in model.parameters())
    updater.zero_grad()
    assert all(parameter.grad is None for parameter in model.parameters())


@pytest.mark.parametrize("rule", RULES)
def test_training_resumes_from_a_saved_state_bit_for_bit(rule, tmp_path):
    whole = network()
    expected = descend(whole, registry.get(rule).make(whole.named_parameters(), 0.01), 8)

    model = network()
    updater = registry.get(rule).make(model.named_parameters(), 0.01)
    descend(model, updater, 5)
    save_file({name: tensor.contiguous() for name, tensor in updater.state().items()}, tmp_path / "state.safetensors")
    again = registry.get(rule).make(model.named_parameters(), 0.01)
    addresses = {name: tensor.data_ptr() for name, tensor in again.state().items()}
    again.load(load_file(tmp_path / "state.safetensors"))
    assert {name: tensor.data_ptr() for name, tensor in again.state().items()} == addresses
    for actual, desired in zip(descend(model, again, 3, first=5), expected, strict=True):
        assert torch.equal(actual, desired)


def test_the_state_is_named_after_the_parameters_and_starts_at_zero():
    model = nn.Linear(3, 2)
    assert SGD(momentum=0.0).make(model.named_parameters()).state() == {}
    assert set(SGD().make(model.named_parameters()).state()) == {"weight.momentum", "bias.momentum"}
    state = Adam().make(model.named_parameters()).state()
    assert set(state) == {f"{name}.{kind}" for name in ("weight", "bias") for kind in ("first", "second", "steps")}
    assert all((tensor == 0).all() and not tensor.requires_grad for tensor in state.values())


@pytest.mark.parametrize("change", ["missing", "surplus", "misshapen"])
def test_a_state_that_does_not_match_is_refused_and_nothing_is_loaded(change):
    updater = SGD().make(nn.Linear(3, 2).named_parameters())
    state = {name: torch.ones_like(tensor) for name, tensor in updater.state().items()}
    if change == "missing":
        del state["bias.momentum"]
    elif change == "surplus":
        state["head.bias.momentum"] = torch.ones(1)
    else:
        state["bias.momentum"] = torch.ones(5)
    with refused("sgd(", "bias.momentum'"):
        updater.load(state)
    assert all((tensor == 0).all() for tensor in updater.state().values())


def test_a_step_reads_the_learning_rate_written_in_place():
    parameter = nn.Parameter(torch.zeros(2))
    updater = SGD(lr=0.5, momentum=0.0).make([("a", parameter)])
    assert updater.lr.shape == () and float(updater.lr) == 0.5
    parameter.grad = torch.ones(2)
    updater.lr.fill_(0.125)
    updater.step()
    assert torch.equal(parameter.detach(), torch.full((2,), -0.125))


@pytest.mark.parametrize("rule", RULES)
def test_an_optimiser_can_be_built_from_its_repr(rule):
    optimiser = registry.get(rule)
    assert repr(registry.get(repr(optimiser))) == repr(optimiser)


@pytest.mark.parametrize(
    ("spec", "mentions"),
    [
        ("sgd(lr=-1)", ["'lr'", "SGD", "Got -1"]),
        ("sgd(momentum=1)", ["'momentum'", "SGD", "Got 1"]),
        ("sgd(momentum=0, nesterov=True)", ["'momentum'", "SGD", "(0, 1)", "nesterov", "Got 0"]),
        ("sgd(nesterov=1)", ["'nesterov'", "SGD", "Got 1"]),
        ("adam(beta2=1)", ["'beta2'", "Adam", "Got 1"]),
        ("adamw(eps=-1)", ["'eps'", "AdamW", "Got -1"]),
        ("adm", ["'adm'", "'adam'"]),
    ],
)
def test_a_wrong_optimiser_is_refused(spec, mentions):
    with refused(*mentions):
        registry.get(spec)


def test_parameters_must_have_one_dtype_and_be_on_the_device():
    for parameters in ([], [("a", torch.ones(1)), ("b", torch.ones(1, dtype=torch.float64))], [("a", torch.ones(1, device="meta"))]):
        with refused("'parameters'", "SGD", "cpu"):
            SGD().make(parameters)
    for weight_decay in (-0.1, float("nan"), float("inf")):
        with refused("'weight_decay'", "SGD", f"Got {weight_decay}"):
            SGD().make([("a", torch.ones(1))], weight_decay)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
@pytest.mark.filterwarnings("ignore:Synchronization debug mode is a prototype")
@pytest.mark.parametrize("rule", RULES)
def test_a_captured_step_uses_the_current_learning_rate_and_equals_an_eager_step(rule):
    optimiser = registry.get(rule)
    inputs, labels = problem(0, device="cuda")

    def learn(model, updater):
        updater.zero_grad()
        nn.functional.cross_entropy(model(inputs), labels).backward()
        updater.clip(0.2)
        updater.step()

    models = [network(device="cuda") for _ in range(2)]
    updaters = [optimiser.make(model.named_parameters(), 0.01, "cuda") for model in models]
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for model, updater in zip(models, updaters, strict=True):
            for _ in range(3):
                learn(model, updater)
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        learn(models[1], updaters[1])
    for number in range(10):
        for updater in updaters:
            updater.lr.fill_(optimiser.lr / (1 + number))
        torch.cuda.set_sync_debug_mode("error")
        try:
            learn(models[0], updaters[0])
        finally:
            torch.cuda.set_sync_debug_mode("default")
        graph.replay()
    for eager, captured in zip(models[0].parameters(), models[1].parameters(), strict=True):
        torch.testing.assert_close(captured, eager, rtol=1e-5, atol=1e-6)
    for (name, eager), captured in zip(updaters[0].state().items(), updaters[1].state().values(), strict=True):
        torch.testing.assert_close(captured, eager, rtol=1e-4, atol=1e-6, msg=name)
