"""The benchmark of verified label errors: what votes mean, and what scores find."""

import importlib.util
import json
import sys
from pathlib import Path

import numpy as np
import pytest

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"


@pytest.fixture
def verified(monkeypatch):
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    spec = importlib.util.spec_from_file_location("verified", BENCHMARKS / "verified.py")
    module = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, "verified", module)
    spec.loader.exec_module(module)
    yield module
    sys.modules.pop("results", None)


def votes(place, given, guessed, neither):
    return {"id": place, "given_original_label": 7, "mturk": {"given": given, "guessed": guessed, "neither": neither}}


def test_a_label_is_rejected_by_a_majority_and_replaced_if_the_other_label_has_more_votes(verified, tmp_path):
    path = tmp_path / "votes.json"
    path.write_text(json.dumps([votes(1, 5, 0, 0), votes(2, 2, 3, 0), votes(3, 2, 0, 3), votes(4, 3, 2, 0)]))
    found = verified.read_verified(path, np.full(6, 7))
    assert np.flatnonzero(found.shown).tolist() == [1, 2, 3, 4]
    assert np.flatnonzero(found.rejected).tolist() == [2, 3]
    assert np.flatnonzero(found.replaced).tolist() == [2]
    with pytest.raises(SystemExit):  # the test set has other labels
        verified.read_verified(path, np.zeros(6, dtype=int))


def test_hits_are_counted_from_the_most_doubtful_label(verified):
    wrong = np.arange(1000) < 30
    found = verified.measures(wrong, np.where(np.arange(1000) < 20, 2.0, np.where(wrong, 0.0, 1.0)))
    assert found["hits"] == [20, 20] and 0.6 < found["average_precision"] < 1
