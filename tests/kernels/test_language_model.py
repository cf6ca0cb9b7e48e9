"""The example of a language model learns, does not see later words, and runs from end to end."""

import importlib.util
import sys
from pathlib import Path

import pytest
import torch

PATH = Path(__file__).parents[2] / "examples" / "language_model.py"


@pytest.fixture(scope="module")
def example():
    spec = importlib.util.spec_from_file_location("language_model", PATH)
    module = importlib.util.module_from_spec(spec)
    sys.modules["language_model"] = module  # dataclasses look their module up
    spec.loader.exec_module(module)
    yield module
    del sys.modules["language_model"]


def test_no_position_sees_a_later_word(example):
    model = example.LanguageModel(20, width=8, layers=1)
    tokens = torch.randint(20, (2, 10))
    later = tokens.clone()
    later[:, 6:] = (later[:, 6:] + 1) % 20
    before, after = model(tokens), model(later)
    torch.testing.assert_close(before[:, :6], after[:, :6])
    assert not torch.allclose(before[:, 6:], after[:, 6:])


@pytest.mark.parametrize("loss", ["ce", "gce(q=0.7)"])
def test_the_model_learns_a_repeating_text_despite_wrong_targets(example, loss):
    stream = torch.arange(2000) % 7
    noisy, clean = example.Text.of(stream, "symmetric(0.3)", 7), example.Text.of(stream, None, 7)
    assert 0.25 < noisy.wrong.float().mean() < 0.35 and not clean.wrong.any()
    model = example.LanguageModel(7, width=16, layers=1)
    example.train(model, noisy, loss, steps=60, rate=1e-2, batch=16)
    assert example.accuracy(model, clean) > 0.95
    right, wrong = example.believed(model, noisy)
    assert right > 0.9 and wrong < 0.1


def test_the_example_runs_from_end_to_end(example, monkeypatch):
    monkeypatch.setattr(example, "MODULES", ["json", "bisect", "heapq", "string"])
    results = example.run(steps=2, words=60)
    assert list(results) == ["before", *example.LOSSES]
    assert all(0 <= value <= 1 for measures in results.values() for value in measures.values())
