"""The survey of audits: a row has the numbers of its run, and the table summarises the rows."""

import importlib.util
import sys
from pathlib import Path

import numpy as np
import pytest

from noisewise import fit
from noisewise.audit import audit

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"


@pytest.fixture(scope="module")
def survey():
    sys.path.insert(0, str(BENCHMARKS))
    try:
        spec = importlib.util.spec_from_file_location("audit_survey", BENCHMARKS / "audit_survey.py")
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        yield module
    finally:
        sys.path.remove(str(BENCHMARKS))
        for name in ("audit", "results"):
            sys.modules.pop(name, None)


def test_a_row_has_the_numbers_of_the_audit(survey, tmp_path):
    row = survey.surveyed(("digits", 10, "symmetric(0.2)", "ce"))
    run = fit("mlp", "digits", loss="ce", noise="symmetric(0.2)", epochs=10, batch_size=64, device="cpu", seed=1, folder=tmp_path / "run")
    result, wrong = audit(run), run.dynamics.record.wrong
    flagged = np.flatnonzero(result.is_issue)
    assert row["doubtful"] == len(flagged) and row["precision"] == pytest.approx(np.mean([wrong[place] for place in flagged]))
    assert row["recall"] == pytest.approx(len(set(flagged) & set(np.flatnonzero(wrong))) / wrong.sum())
    assert row["after"]["relabel"] < 0.3 * row["wrong"] and row["average_precision"] > 0.95


def test_the_table_counts_failed_corrections_and_false_doubts(survey):
    def row(noise, wrong, after, **more):
        kept = {"data": "digits", "epochs": 5, "loss": "ce", "expected_precision": 0.5, "doubtful": 0, "held": True}
        return {**kept, "noise": noise, "wrong": wrong, "after": dict.fromkeys(("relabel", "relabel(lead=1)"), after), **more}

    measured = {"average_precision": 0.5, "precision": 0.8, "recall": 0.6}
    rows = [
        row("symmetric(0.2)", 0.2, 0.1, **measured),
        row("pair(0.1)", 0.1, 0.2, **measured | {"precision": 0.4, "held": False}),
        row("none", 0.0, 0.0, doubtful=1437 // 10),
    ]
    last = survey.lines_of({"command": "c", "torch": "t", "rows": rows})[-1]
    assert last == "| digits, 5 | 50.0 | 60, 40 % | 60, 60 % | 1 of 2 | 125 % | 1 | 125 % | 1 | 10.0 % |"
