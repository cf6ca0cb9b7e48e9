"""When torch is used instead of a kernel, and what is logged about it."""

import logging

import pytest
import torch

from noisewise.kernels import _switch, fused, loss_and_gradient
from refused import refused
from registry import build


@pytest.fixture
def log(caplog: pytest.LogCaptureFixture):
    _switch.log_once.cache_clear()
    caplog.set_level(logging.DEBUG, logger="noisewise")
    yield caplog
    _switch.log_once.cache_clear()


def call_twice(scores: torch.Tensor) -> None:
    for _ in range(2):
        assert fused(build("ce"), scores, torch.zeros(len(scores), dtype=torch.int64)) is None


def test_a_gpu_of_another_vendor_or_too_old_is_unsupported(monkeypatch):
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: (7, 5))
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda device: "T4")
    reason = _switch._unsupported.__wrapped__
    assert "T4" in reason(torch.device("cuda")) and "8.0" in reason(torch.device("cuda"))
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: (9, 4))
    assert reason(torch.device("cuda")) == ""
    monkeypatch.setattr(torch.version, "hip", "6.4")
    assert "NVIDIA" in reason(torch.device("cuda"))


def test_kernels_switched_off_are_logged_once(log, monkeypatch):
    monkeypatch.setattr(_switch, "_switched_on", False)
    call_twice(torch.randn(3, 4))
    (record,) = log.records
    assert record.levelname == "DEBUG" and "switched off" in record.message


def test_torch_is_used_for_tensors_on_the_cpu(log, monkeypatch):
    monkeypatch.setattr(_switch, "_switched_on", True)
    monkeypatch.setattr(_switch, "_interpreted", False)
    call_twice(torch.randn(3, 4))
    (record,) = log.records
    assert "cpu" in record.message


def test_torch_is_used_without_triton(log, monkeypatch):
    monkeypatch.setattr(_switch, "_switched_on", True)
    monkeypatch.setattr(_switch, "_interpreted", True)
    monkeypatch.setattr(_switch.importlib.util, "find_spec", lambda name: None)
    _switch._unsupported.cache_clear()
    call_twice(torch.randn(3, 4))
    _switch._unsupported.cache_clear()
    (record,) = log.records
    assert "Triton" in record.message


def test_torch_is_used_inside_function_transforms(monkeypatch):
    monkeypatch.setattr(_switch, "_switched_on", True)
    monkeypatch.setattr(_switch, "_interpreted", True)
    results = []
    torch.func.grad(lambda s: results.append(fused(build("ce"), s, torch.tensor([0]))) or s.sum())(torch.randn(1, 3))
    assert results == [None]


def test_losses_on_the_cpu_do_not_import_triton(tmp_path, python):
    code = """
import sys, torch, noisewise
from noisewise.kernels import linear_loss
loss = noisewise.get("imae(T=8)")
linear_loss(torch.randn(4, 3), torch.randn(5, 3), torch.randint(5, (4,)), loss=loss)
loss(torch.randn(4, 5), torch.randint(5, (4,)))
print("triton" in sys.modules, "noisewise.kernels._launch" in sys.modules)
"""
    (tmp_path / "program.py").write_text(code)
    assert python.run(tmp_path / "program.py") == (0, "False False\n")


def test_loss_and_gradient_agree_with_autograd_without_a_kernel():
    scores, target = torch.randn(6, 5, dtype=torch.float64), torch.tensor([0, 4, -100, 2, 1, 1])
    loss, each = build("0.3*nce + 0.7*mae", weight=torch.rand(5, dtype=torch.float64)), torch.rand(6, dtype=torch.float64)
    leaf = scores.clone().requires_grad_()
    value = loss(leaf, target, sample_weight=each)
    value.backward()
    result = loss_and_gradient(loss, scores, target, sample_weight=each, in_place=True)
    torch.testing.assert_close((result.value, result.gradient), (value.detach(), leaf.grad))
    assert result.gradient is scores
    bare = build("0.3*nce + 0.7*mae", reduction="none")
    again = leaf.detach().requires_grad_()
    bare(again, target).sum().backward()
    torch.testing.assert_close(result.emphasis, again.grad.abs().sum(1) / 2)
    assert result.margin.isnan().tolist() == [False, False, True, False, False, False]


@pytest.mark.parametrize("scores", [torch.randn(2, 3, 4), torch.randn(3, 4, requires_grad=True)])
def test_loss_and_gradient_needs_detached_rows(scores):
    with refused("scores", tuple(scores.shape)):
        loss_and_gradient("ce", scores, torch.zeros(scores.shape[:1] + scores.shape[2:], dtype=torch.int64))


def test_compiled_code_calls_an_untraced_function_without_looking_into_it() -> None:
    seen = []

    @_switch.untraced
    def remember(values: torch.Tensor) -> torch.Tensor:
        seen.append(values.tolist())  # the values exist, so this is not traced
        return values + 1

    def step(values: torch.Tensor) -> torch.Tensor:
        return 2 * remember(values.sin())

    compiled, values = torch.compile(step, backend="eager"), torch.tensor([0.0, 1.0])
    for _ in range(2):
        assert torch.equal(compiled(values), 2 * (values.sin() + 1))
    assert seen == [values.sin().tolist()] * 2
