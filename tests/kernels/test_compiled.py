"""A loss compiled for the CPU on request: the same numbers for any shape, and the loss itself where nothing can be compiled."""

import logging
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest
import torch

from noisewise.kernels import _switch, compiled
from registry import batch, build
from waiting import LIMIT


@pytest.mark.slow
def test_a_compiled_loss_gives_the_same_for_any_shape():
    """In a process of its own: the compiler warns of its own imports, and minds who imported what before."""
    script = """
        import torch
        from noisewise.kernels import compiled
        from registry import batch, build
        quick = compiled("imae(T=8)")  # never called before: what it keeps must not be made while it is traced
        for number, classes in ((16, 5), (9, 5), (12, 7)):
            scores, target = batch(number, classes, dtype=torch.float32)
            target[0] = -100
            results = []
            for call in (build("imae(T=8)"), quick):
                leaf = scores.clone().requires_grad_()
                value = call(leaf, target)
                value.backward()
                results.append((value.detach(), leaf.grad))
            for eager, fast in zip(*results, strict=True):
                torch.testing.assert_close(fast, eager, rtol=1e-5, atol=1e-6)
        assert not quick._failed
    """
    command = [sys.executable, "-c", textwrap.dedent(script)]
    ended = subprocess.run(command, cwd=Path(__file__).parent.parent, capture_output=True, text=True, timeout=LIMIT, check=False)
    assert ended.returncode == 0, ended.stderr[-2000:]


def test_where_nothing_can_be_compiled_it_is_the_loss_itself(monkeypatch, caplog):
    def broken(*args: object, **kwargs: object) -> None:
        raise RuntimeError("no compiler here")

    caplog.set_level(logging.DEBUG, logger="noisewise")
    _switch.log_once.cache_clear()
    monkeypatch.setattr(torch, "compile", lambda *args, **kwargs: broken)
    quick, (scores, target) = compiled("gce(q=0.7)"), batch()
    for _ in range(2):
        assert torch.equal(quick(scores, target), build("gce(q=0.7)")(scores, target))
    assert [record.message for record in caplog.records] == [
        "torch is used instead of a kernel: torch.compile cannot compile gce: RuntimeError"
    ]


def test_a_wrong_input_is_answered_as_the_loss_answers_it():
    quick = compiled("ce")
    with pytest.raises(ValueError, match="class indices from 0 to 2"):
        quick(torch.randn(2, 3), torch.tensor([0, 5]))
