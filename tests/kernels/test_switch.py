"""When the torch path is taken, and what is said about it."""

import logging
import subprocess
import sys

import pytest
import torch

from noisewise.kernels import _switch, fused, loss_and_gradient
from registry import build


@pytest.fixture
def said(caplog: pytest.LogCaptureFixture):
    _switch.log_once.cache_clear()
    caplog.set_level(logging.DEBUG, logger="noisewise")
    yield caplog
    _switch.log_once.cache_clear()


def twice(scores: torch.Tensor) -> None:
    for _ in range(2):
        assert fused(build("ce"), scores, torch.zeros(len(scores), dtype=torch.int64)) is None


def test_a_gpu_of_another_maker_or_too_old_takes_the_torch_path(monkeypatch):
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: (7, 5))
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda device: "T4")
    found = _switch._unsupported.__wrapped__
    assert found(torch.device("cuda")) == "T4 is older than compute capability 8.0"
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: (9, 4))
    assert found(torch.device("cuda")) == ""
    monkeypatch.setattr(torch.version, "hip", "6.4")
    assert found(torch.device("cuda")) == "kernels need an NVIDIA GPU"


def test_kernels_switched_off_say_so_once(said, monkeypatch):
    monkeypatch.setattr(_switch, "_switched_on", False)
    twice(torch.randn(3, 4))
    assert [(record.levelname, record.message) for record in said.records] == [
        ("DEBUG", "torch is used instead of a kernel: kernels are switched off")
    ]


def test_a_cpu_tensor_takes_the_torch_path(said, monkeypatch):
    monkeypatch.setattr(_switch, "_switched_on", True)
    monkeypatch.setattr(_switch, "_interpreted", False)
    twice(torch.randn(3, 4))
    assert [record.message for record in said.records] == ["torch is used instead of a kernel: no kernels for tensors on cpu"]


def test_without_triton_the_torch_path_is_taken(said, monkeypatch):
    monkeypatch.setattr(_switch, "_switched_on", True)
    monkeypatch.setattr(_switch, "_interpreted", True)
    monkeypatch.setattr(_switch.importlib.util, "find_spec", lambda name: None)
    _switch._unsupported.cache_clear()
    twice(torch.randn(3, 4))
    _switch._unsupported.cache_clear()
    assert [record.message for record in said.records] == ["torch is used instead of a kernel: Triton is not installed"]


def test_under_a_function_transform_the_torch_path_is_taken(monkeypatch):
    monkeypatch.setattr(_switch, "_switched_on", True)
    monkeypatch.setattr(_switch, "_interpreted", True)
    found = []
    torch.func.grad(lambda s: found.append(fused(build("ce"), s, torch.tensor([0]))) or s.sum())(torch.randn(1, 3))
    assert found == [None]


def test_no_loss_on_the_cpu_imports_triton():
    code = """
import sys, torch, noisewise
from noisewise.kernels import linear_loss
loss = noisewise.get("imae(T=8)")
linear_loss(torch.randn(4, 3), torch.randn(5, 3), torch.randint(5, (4,)), loss=loss)
loss(torch.randn(4, 5), torch.randint(5, (4,)))
print("triton" in sys.modules, "noisewise.kernels._launch" in sys.modules)
"""
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert ended.stdout.split() == ["False", "False"]


def test_loss_and_gradient_agree_with_autograd_without_a_kernel():
    scores, target = torch.randn(6, 5, dtype=torch.float64), torch.tensor([0, 4, -100, 2, 1, 1])
    loss, each = build("0.3*nce + 0.7*mae", weight=torch.rand(5, dtype=torch.float64)), torch.rand(6, dtype=torch.float64)
    leaf = scores.clone().requires_grad_()
    value = loss(leaf, target, sample_weight=each)
    value.backward()
    found = loss_and_gradient(loss, scores, target, sample_weight=each, in_place=True)
    torch.testing.assert_close((found.value, found.gradient), (value.detach(), leaf.grad))
    assert found.gradient is scores
    bare = build("0.3*nce + 0.7*mae", reduction="none")
    again = leaf.detach().requires_grad_()
    bare(again, target).sum().backward()
    torch.testing.assert_close(found.emphasis, again.grad.abs().sum(1) / 2)
    assert found.margin.isnan().tolist() == [False, False, True, False, False, False]


@pytest.mark.parametrize("scores", [torch.randn(2, 3, 4), torch.randn(3, 4, requires_grad=True)])
def test_loss_and_gradient_wants_detached_rows(scores):
    with pytest.raises(ValueError, match="must be shaped"):
        loss_and_gradient("ce", scores, torch.zeros(scores.shape[:1] + scores.shape[2:], dtype=torch.int64))
