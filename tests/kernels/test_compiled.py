"""A loss compiled for the CPU: the same numbers for any shape, and the plain loss if compiling fails."""

import logging
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest
import torch

from noisewise.kernels import _switch, compiled
from refused import refused
from registry import batch, build
from waiting import LIMIT


@pytest.mark.slow
def test_a_compiled_loss_gives_the_same_for_any_shape():
    """In a separate process: the compiler warns about its own imports, and depends on what was imported before."""
    script = """
        import torch
        from noisewise.kernels import compiled
        from registry import batch, build
        quick = compiled("imae(T=8)")  # never called before: its caches must not be filled while it is traced
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


def test_if_compiling_fails_the_plain_loss_is_used_and_the_reason_logged_once(monkeypatch, caplog):
    def broken(*args: object, **kwargs: object) -> None:
        raise RuntimeError("no compiler here")

    caplog.set_level(logging.DEBUG, logger="noisewise")
    _switch.log_once.cache_clear()
    monkeypatch.setattr(torch, "compile", lambda *args, **kwargs: broken)
    quick, (scores, target) = compiled("gce(q=0.7)"), batch()
    for _ in range(2):
        assert torch.equal(quick(scores, target), build("gce(q=0.7)")(scores, target))
    (record,) = caplog.records
    assert all(mention in record.message for mention in ("torch.compile", "gce", "RuntimeError"))


def test_a_wrong_input_is_refused_as_by_the_plain_loss():
    quick = compiled("ce")
    with refused("0 to 2", 5):
        quick(torch.randn(2, 3), torch.tensor([0, 5]))
