"""The suggestion says the right kind of noise, and what to run."""

from __future__ import annotations

import json
import shlex
from pathlib import Path

import numpy as np
import pytest
from sklearn.datasets import load_breast_cancer, load_digits, load_wine
from typer.testing import CliRunner

import noisewise
from noisewise.cli._app import app
from noisewise.data import read
from noisewise.noise import corrupt
from real_data import real
from refused import refused

DIGITS = load_digits(return_X_y=True)


@pytest.mark.parametrize(("spec", "kind"), [("symmetric(0.3)", "uniform"), ("pair(0.2)", "class pairs")])
def test_made_noise_on_digits_is_named_and_the_rate_is_near(spec: str, kind: str) -> None:
    inputs, labels = DIGITS
    noisy = corrupt(labels, spec, seed=3)
    found = noisewise.suggest((inputs, noisy.labels))
    assert found.noise.kind == kind and found.noise.rate == pytest.approx(noisy.rate, abs=0.03)
    if kind == "class pairs":
        pairs = {(int(pair.true), int(pair.given)) for pair in found.noise.pairs}
        assert pairs == {(label, (label + 1) % 10) for label in range(10)}
    assert found.take != "ce" and found.gain > 0 and found.held_out[found.take] - found.held_out["ce"] == pytest.approx(found.gain)


def test_clean_tables_have_no_noise() -> None:
    for load in (load_wine, load_breast_cancer):
        found = noisewise.suggest(load(return_X_y=True))
        assert found.noise.kind == "none" and found.noise.rate is not None and found.noise.rate < 0.02


@real("fashion_mnist")
def test_class_pairs_on_fashion_mnist_are_named() -> None:
    images = read("fashion_mnist").corrupted("pair(0.2)", seed=1)
    found = noisewise.suggest(images)
    assert found.probed == 3000 and found.noise.kind == "class pairs"
    assert sum((images.classes.index(pair.given) - images.classes.index(pair.true)) % 10 == 1 for pair in found.noise.pairs) >= 8


def test_labels_that_inputs_do_not_predict_are_unclear_and_no_rate_is_given() -> None:
    rng = np.random.default_rng(0)
    found = noisewise.suggest((rng.normal(size=(300, 3)), rng.integers(3, size=300)))
    assert found.noise.kind == "unclear" and found.noise.rate is None and found.noise.interval[1] > 0.5
    assert "cannot be told" in str(found)


def test_with_many_classes_it_warns_of_mae() -> None:
    rng = np.random.default_rng(0)
    labels = np.arange(400) % 100
    found = noisewise.suggest((rng.normal(size=(100, 8))[labels], labels))
    assert found.underfitting is not None and found.underfitting.startswith("mae starts at")


def test_the_command_prints_json_and_a_command_that_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    inputs, labels = load_wine(return_X_y=True)
    given = corrupt(labels, "symmetric(0.2)", seed=1).labels
    rows = [",".join([*map(str, row), f"class {label}"]) for row, label in zip(inputs.tolist(), given.tolist(), strict=True)]
    header = ",".join([f"x{column}" for column in range(inputs.shape[1])] + ["my label"])
    Path("wine.csv").write_text("\n".join([header, *rows]))
    done = CliRunner().invoke(app, ["suggest", "wine.csv", "--label", "my label", "--json"])
    assert done.exit_code == 0, done.output
    found = json.loads(done.stdout)
    assert found["noise"]["kind"] == "uniform" and found["take"] in found["held_out"]
    command = next(line for line in found["commands"] if line.startswith("noisewise"))
    words = shlex.split(command)[1:]
    assert words[words.index("--label") + 1] == "my label"
    again = CliRunner().invoke(app, words)
    assert again.exit_code == 0, again.output


def test_a_run_is_refused(tmp_path: Path) -> None:
    run = noisewise.fit("mlp", "digits", epochs=1, folder=tmp_path / "run", device="cpu")
    with refused("is a run. Give the data, or audit the run."):
        noisewise.suggest(run.path)
