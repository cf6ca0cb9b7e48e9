"""The benchmark on tables, run on two small tables that scikit-learn contains."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

BENCHMARK = Path(__file__).parents[2] / "benchmarks/tables.py"


def test_the_audit_is_ahead_of_forest_and_logistic_regression(tmp_path):
    pytest.importorskip("cleanlab")
    part = ["--tables", "breast_cancer", "--noises", "none", "sym 20", "--seeds", "0", "--half", "report"]
    options = ["--kinds", "noisewise", "forest", "logistic", "--cache", tmp_path, "--prepare", "--judge"]
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": ""}
    done = subprocess.run([sys.executable, BENCHMARK, *part, *options], capture_output=True, text=True, env=environment, check=False)
    assert done.returncode == 0, done.stderr
    tables = [[cell.strip() for cell in line.strip("|").split("|")] for line in done.stdout.splitlines() if line.startswith("|")]
    precision, calibration = {}, {}
    for cells in tables[2:6]:
        precision[cells[0]] = float(cells[1])
    for cells in tables[-3:]:
        calibration[cells[0]] = cells[1:]
    assert precision["noisewise"] > max(precision["forest out of bag"], precision["logistic"]) > 0.5
    assert calibration["none"][0] == "100.0 %" and float(calibration["none"][3].split()[0]) <= 2, "hardly any clean label is flagged"
    assert float(calibration["sym 20"][4].split()[0]) == pytest.approx(float(calibration["sym 20"][5].split()[0]), abs=15)
