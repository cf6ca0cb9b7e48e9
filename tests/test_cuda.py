"""On a GPU: every loss equals that on the CPU, does not synchronise, and can be captured in a CUDA graph."""

import pytest
import torch

import noisewise
from registry import EVERY, build

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")


def examples(classes: int, dtype: torch.dtype) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(0)
    scores = 4 * torch.randn(64, classes, generator=generator)
    return scores.to(dtype), torch.randint(classes, (64,), generator=generator)


@pytest.mark.parametrize("spec", [spec for spec in EVERY if not spec.startswith("peer(")])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_the_loss_on_a_gpu_equals_that_on_the_cpu(spec, dtype):
    scores, target = examples(10, dtype)
    results = []
    for device in ("cpu", "cuda"):
        leaf = scores.detach().to(device).requires_grad_()
        value = build(spec).to(device)(leaf, target.to(device))
        value.backward()
        results.append((value.detach().cpu().float(), leaf.grad.cpu().float()))
    tolerance = 4 * torch.finfo(dtype).eps
    for cpu, gpu in zip(*results, strict=True):
        torch.testing.assert_close(gpu, cpu, rtol=tolerance, atol=tolerance * float(cpu.abs().max()) + 1e-7)


@pytest.mark.filterwarnings("ignore:Synchronization debug mode")
@pytest.mark.parametrize("spec", EVERY)
def test_a_loss_does_not_synchronise_and_can_be_captured(spec):
    scores, target = (tensor.cuda() for tensor in examples(10, torch.float32))
    target[0] = -100
    scores.requires_grad_()
    loss = build(spec).cuda()
    side = torch.cuda.Stream()
    with torch.cuda.stream(side):
        for _ in range(3):
            scores.grad = None
            loss(scores, target).backward()
    torch.cuda.synchronize()
    torch.cuda.set_sync_debug_mode("error")
    try:
        loss(scores, target)
    finally:
        torch.cuda.set_sync_debug_mode("default")
    graph = torch.cuda.CUDAGraph()
    scores.grad = None
    with torch.cuda.graph(graph):
        value = loss(scores, target)
        value.backward()
    graph.replay()
    torch.cuda.synchronize()
    assert torch.isfinite(value) and torch.isfinite(scores.grad).all()
    if not loss.depends_on_batch or spec.startswith("imae"):
        torch.testing.assert_close(value, loss(scores.detach(), target))


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of the compiler
def test_a_compiled_loss_equals_the_plain_loss():
    scores, target = (tensor.cuda() for tensor in examples(100, torch.float32))
    for spec in ("imae(T=8)", "gce(q=0.7)"):
        loss = noisewise.get(spec)
        torch.testing.assert_close(torch.compile(loss, fullgraph=True)(scores, target), loss(scores, target))
