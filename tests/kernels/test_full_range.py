"""On a GPU: kernels over their full range against the torch path in float64, without synchronisation, in CUDA graphs, in little memory.

    pytest tests/kernels/test_full_range.py -s --error-table errors.json

prints the errors, divided by the tolerance, and writes them to a file.
"""

import pytest
import torch

import noisewise
from noisewise.kernels import fused, linear_loss
from noisewise.kernels._encoding import encode, written
from noisewise.losses import Loss, MarginLoss
from registry import build

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")

CLASSES = [2, 3, 10, 100, 1000, 1001, 4099, 32000, 32768, 32769, 50257, 128256, 262144]
SPECS = ["ce", "mae", "gce(q=0.7)", "imae(T=8.0)", "gr(beta=8.0, lam=0.5)", "tce(q=3)", "nce", "ls(alpha=0.1)", "0.3*nce + 0.7*mae"]


def batch(classes: int, dtype: torch.dtype) -> tuple[torch.Tensor, torch.Tensor]:
    """Rows of every kind: undecided, decided, far beyond where probabilities round to 0 and 1, and ignored."""
    number = max(7, min(4099, 2**22 // classes))
    generator = torch.Generator("cuda").manual_seed(classes)
    scores = 3 * torch.randn(number, classes, device="cuda", generator=generator)
    target = torch.randint(classes, (number,), device="cuda", generator=generator)
    scores[0] = 0
    scores[1, target[1]] += 40
    scores[2, target[2]] -= 300
    scores[3] *= 3000
    scores[4].clamp_(-1e4, 1e4).mul_(1e4)
    target[5] = -100
    return scores.clamp_(-1e4, 1e4).to(dtype), target


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("classes", CLASSES)
def test_errors_stay_within_the_tolerance_of_the_type(classes, dtype, device, error_table):
    scores, target = batch(classes, dtype)
    known = target.clamp(min=0)
    for spec in SPECS:
        loss, results = build(spec, reduction="none"), []
        for leaf in (scores.clone().requires_grad_(), scores.double().requires_grad_()):
            value = fused(loss, leaf, target) if leaf.dtype == dtype else loss(leaf, target)
            value.sum().backward()
            results.append((value.detach().double(), leaf.grad.double()))
        (value, gradient), (exact, slopes) = results
        margin = noisewise.margin(scores.double(), known).abs()
        eps = 1e-6 * (1 + margin) + (0 if dtype == torch.float32 else 1.01 * torch.finfo(dtype).eps)
        tiny = torch.finfo(dtype).tiny
        near = exact.abs() < torch.finfo(dtype).max
        of_value = (value - exact).abs() / (eps * (exact.abs() + terms(loss, scores, known)) + tiny)
        size = slopes.abs().amax(1) + (0.0 if isinstance(loss, MarginLoss) else 1.0)
        of_gradient = (gradient - slopes).abs().amax(1) / (eps * size + tiny)
        worst = float(of_value[near].max()), float(of_gradient.max())
        error_table.append({"loss": spec, "classes": classes, "type": str(dtype)[6:], "value": worst[0], "gradient": worst[1]})
        assert max(worst) <= 1, (spec, worst)


def terms(loss: Loss, scores: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
    """What is added to the value to measure its error: for a loss of every class, the terms of which it is a difference; for a
    tabulated loss, its size within one unit of Δ = 0, as in `noisewise.kernels._table.TOLERANCE`."""
    if isinstance(loss, MarginLoss):
        text, numbers = encode(loss, scores.shape[1])
        tabled = written(text, tuple(numbers), scores.shape[1]).table is not None
        near = loss.value(torch.linspace(-1, 1, 33, dtype=torch.float64)).abs().max() if tabled else torch.zeros(())
        return near.to(scores.device, torch.float64).expand(len(scores))
    costs = -scores.double().log_softmax(1)
    return costs.gather(1, target.unsqueeze(1)).squeeze(1) + costs.mean(1)


@pytest.mark.filterwarnings("ignore:Synchronization debug mode")
@pytest.mark.parametrize("classes", [10, 1000, 50257])
@pytest.mark.parametrize("spec", ["gce(q=0.7)", "imae(T=8.0)", "0.3*nce + 0.7*mae"])
def test_a_kernel_does_not_synchronise_and_can_be_captured(spec, classes, device):
    scores, target = batch(classes, torch.bfloat16)
    scores.requires_grad_()
    loss = build(spec, weight=torch.rand(classes, device="cuda"))
    side = torch.cuda.Stream()
    with torch.cuda.stream(side):
        for _ in range(3):
            (gradient,) = torch.autograd.grad(fused(loss, scores, target), scores)
    torch.cuda.synchronize()
    torch.cuda.set_sync_debug_mode("error")
    try:
        torch.autograd.grad(fused(loss, scores, target), scores)
    finally:
        torch.cuda.set_sync_debug_mode("default")
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        value = fused(loss, scores, target)
        (captured,) = torch.autograd.grad(value, scores)
    captured.zero_()
    graph.replay()
    torch.cuda.synchronize()
    assert torch.equal(captured, gradient)
    torch.testing.assert_close(value, fused(loss, scores.detach(), target))


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of the compiler
@pytest.mark.parametrize("spec", ["gce(q=0.7)", "imae(T=8.0)", "0.3*nce + 0.7*mae"])
def test_a_compiled_model_and_loss_match(spec, device):
    layer, inputs = torch.nn.Linear(32, 1000, device="cuda"), torch.randn(64, 32, device="cuda")
    target, loss = torch.randint(1000, (64,), device="cuda"), build(spec)

    def step(inputs: torch.Tensor) -> torch.Tensor:
        with torch.autocast("cuda", dtype=torch.bfloat16):
            return fused(loss, layer(inputs), target)

    results = []
    for call in (step, torch.compile(step, fullgraph=True)):
        layer.zero_grad()
        value = call(inputs)
        value.backward()
        assert value.dtype == torch.float32
        results.append((value.detach(), layer.weight.grad.clone()))
    torch.testing.assert_close(results[1][0], results[0][0], rtol=1e-3, atol=1e-4)
    torch.testing.assert_close(results[1][1], results[0][1], rtol=0.05, atol=0.01 * float(results[0][1].abs().max()))


@pytest.mark.parametrize("spec", ["ce", "imae(T=8.0)"])
def test_a_linear_layer_with_a_loss_takes_little_memory(spec, device):
    rows, width, classes = 8192, 512, 131072
    hidden = (torch.randn(rows, width, device="cuda") / width**0.5).bfloat16().requires_grad_()
    weight = torch.randn(classes, width, device="cuda").bfloat16().requires_grad_()
    target = torch.randint(classes, (rows,), device="cuda")
    torch.cuda.synchronize()
    before = torch.cuda.memory_allocated()
    torch.cuda.reset_peak_memory_stats()
    gradients = torch.autograd.grad(linear_loss(hidden, weight, target, loss=spec), (hidden, weight))
    peak = torch.cuda.max_memory_allocated() - before
    assert peak <= sum(gradient.nbytes for gradient in gradients) + 512 * 2**20
    loss, part = build(spec, reduction="sum"), slice(0, 512)
    (exact,) = torch.autograd.grad(loss(hidden.double()[part] @ weight.double().T, target[part]) / rows, hidden)
    error = (gradients[0][part] - exact[part]).double().norm() / exact[part].double().norm()
    assert error < 0.01
