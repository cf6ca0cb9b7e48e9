"""Losses outside torch: tables and reference values against torch's automatic differentiation, and losses inside other trainers."""

from __future__ import annotations

import importlib.util
import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from scipy.special import logsumexp
from typer.testing import CliRunner

import noisewise
from noisewise.cli import app
from noisewise.integrations.numpy import emphasis_table, value_and_gradient
from noisewise.losses import available
from refused import refused

PAGE = Path(__file__).parent.parent / "docs" / "other-frameworks.md"


@pytest.fixture
def batch() -> tuple[np.ndarray, np.ndarray]:
    draw = np.random.default_rng(0)
    return 4 * draw.normal(size=(50, 5)), draw.integers(0, 5, 50)


@pytest.mark.parametrize(
    "spec", ["ce", "mae", "gce(q=0.7)", "imae(T=8)", "gr(beta=16, lam=1)", "tce", "0.3*mae + ce", "scaled(mae, tau=2)"]
)
def test_an_interpolated_table_has_the_gradient_of_the_loss(spec: str, batch: tuple[np.ndarray, np.ndarray]) -> None:
    scores, labels = batch
    table, rows = emphasis_table(spec, classes=5), np.arange(50)
    others = scores.copy()
    others[rows, labels] = -np.inf
    margins = scores[rows, labels] - logsumexp(others, axis=1)
    emphasis = np.interp(margins, table["margin"], table["emphasis"])
    slope = np.exp(others - logsumexp(others, axis=1, keepdims=True))  # −∂Δ/∂s of the other classes
    slope[rows, labels] = -1
    gradient = torch.from_numpy(scores).requires_grad_()
    noisewise.get(spec)(gradient, torch.from_numpy(labels)).backward()
    np.testing.assert_allclose(emphasis[:, None] * slope / 50, gradient.grad, atol=1e-5 * table["emphasis"].max())
    values = noisewise.get(spec, reduction="none")(torch.from_numpy(scores), torch.from_numpy(labels))
    np.testing.assert_allclose(np.interp(margins, table["margin"], table["value"]), values, atol=2e-4 * np.ptp(table["value"]))


@pytest.mark.parametrize("spec", ["nce", "imae(T=8, normalise='batch')", "ce(label_smoothing=0.1)"])
def test_a_loss_that_is_no_function_of_the_margin_has_no_table(spec: str) -> None:
    with refused(noisewise.get(spec), "value_and_gradient"):
        emphasis_table(spec)


# deft holds a factor of its gradient constant, and peer draws labels; the others need more than a name.
@pytest.mark.parametrize("name", [name for name in available() if name not in ("forward", "backward", "binary", "peer", "deft")])
def test_every_loss_has_reference_values(name: str, batch: tuple[np.ndarray, np.ndarray]) -> None:
    from noisewise.losses import registry

    scores, labels = batch
    spec = name if not registry[name].examples else registry[name].examples[0]
    value, gradient = value_and_gradient(spec, scores, labels)
    step, direction = 1e-6, np.random.default_rng(1).normal(size=scores.shape)
    above, below = (value_and_gradient(spec, scores + sign * step * direction, labels)[0] for sign in (1, -1))
    assert value.shape == () and (above - below) / (2 * step) == pytest.approx((gradient * direction).sum(), rel=1e-4, abs=1e-6)


def test_the_command_writes_the_table(tmp_path: Path) -> None:
    done = CliRunner().invoke(app, ["losses", "gce(q=0.7)", "--table", str(tmp_path / "gce.json")])
    assert done.exit_code == 0 and "gce.json" in done.stdout
    rows, expected = json.loads((tmp_path / "gce.json").read_text()), emphasis_table("gce(q=0.7)")
    assert all([row[name] for row in rows] == column.tolist() for name, column in expected.items())
    assert CliRunner().invoke(app, ["losses", "--table", str(tmp_path / "all.json")]).exit_code == 2


@pytest.mark.parametrize("framework", ["jax", "keras"])
def test_the_example_of_a_framework_runs_where_it_is_installed(framework: str, tmp_path: Path) -> None:
    if importlib.util.find_spec(framework) is None:
        pytest.skip(f"needs {framework}")
    blocks: list[Any] = re.findall(r"^```py\n(.*?)^```", PAGE.read_text(encoding="utf-8"), re.DOTALL | re.MULTILINE)
    (code,) = [block for block in blocks if re.search(rf"^(import|from) {framework}\b", block, re.MULTILINE)]
    done = subprocess.run([sys.executable, "-W", "ignore", "-c", code], cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
