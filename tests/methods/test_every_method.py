"""What every method must do: train captured or not, resume to the same bits, and give the same result in two processes."""

from __future__ import annotations

import json
import shlex
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
from method_runs import SMALL, clusters, train
from typer.testing import CliRunner

import noisewise
from noisewise import methods
from noisewise.audit import audit
from noisewise.cli import app
from refused import refused
from two_processes import in_two_processes

SPECS = [spec for name in methods.available() for spec in methods.registry[name].examples]  # type: ignore[attr-defined]
FIRST = [methods.registry[name].examples[0] for name in methods.available()]  # type: ignore[attr-defined]
FIRST_BY_DEFAULT = [pytest.param(spec, marks=[] if spec in FIRST else [pytest.mark.slow]) for spec in SPECS]


def weights(run: noisewise.Run) -> dict[str, torch.Tensor]:
    return run.model().state_dict()


def test_every_method_has_specs_to_test() -> None:
    assert all(methods.registry[name].examples for name in methods.available())  # type: ignore[attr-defined]


@pytest.mark.parametrize("method", FIRST_BY_DEFAULT)
def test_a_stopped_run_resumes_to_the_same_bits(method: str, tmp_path: Path) -> None:
    whole = train(tmp_path / "whole", method)

    def stop(step: int, steps: int) -> None:
        if step == 12:  # in the third epoch
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        train(tmp_path / "stopped", method, watch=stop)
    resumed = train(tmp_path / "stopped", method)
    for name, value in weights(whole).items():
        assert torch.equal(value, weights(resumed)[name]), name
    for mine, theirs in zip(whole.metrics, resumed.metrics, strict=True):
        assert mine["train_loss"] == theirs["train_loss"]
    assert whole.predict(clusters()[0]).shape == (300, 3)


@pytest.fixture(scope="module")
def trained_together(tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest) -> Path:
    """Runs of all methods, each trained by two processes. They are started once, because that takes seconds."""
    folder = tmp_path_factory.mktemp("together")
    in_two_processes(_train_all, str(folder), SPECS if request.config.getoption("--slow") else FIRST)
    return folder


def _train_all(folder: str, specs: list[str]) -> None:
    dist.init_process_group("gloo")  # one group for all runs
    try:
        for spec in specs:
            train(Path(folder, str(SPECS.index(spec))), spec, epochs=2)
    finally:
        dist.destroy_process_group()


@pytest.mark.parametrize("method", FIRST_BY_DEFAULT)
def test_two_processes_train_like_one(method: str, trained_together: Path, tmp_path: Path) -> None:
    alone = train(tmp_path / "alone", method, epochs=2)
    together = noisewise.Run(trained_together / str(SPECS.index(method)))
    for name, value in weights(alone).items():
        torch.testing.assert_close(value, weights(together)[name], rtol=1e-3, atol=1e-4, msg=lambda text, name=name: f"{name}: {text}")


def test_methods_are_an_axis_of_a_comparison(tmp_path: Path) -> None:
    runs = noisewise.compare(
        "linear", clusters(), loss=["ce", "mae"], method=["plain", "elr"], folder=tmp_path, epochs=1, jobs=1, device="cpu"
    )
    assert [(run.settings.loss, run.settings.method) for run in runs] == [
        ("ce", "plain"),
        ("ce", "elr"),
        ("mae", "plain"),
        ("mae", "elr"),
    ]
    page = runs.report(tmp_path / "report.html").read_text()
    assert "2 losses, 2 methods, " in page and "ce, method=plain" in page and "ce, method=elr" in page


def test_the_command_compares_every_method_on_digits(tmp_path: Path) -> None:
    first = {spec.partition("(")[0]: spec for spec in reversed(SPECS)}
    settings = "--data digits --model mlp --noise 'symmetric(0.4)' --epochs 3 --clip 1 --jobs 1 --device cpu --json"
    words = [word for spec in first.values() for word in ("--method", spec)]
    done = CliRunner().invoke(app, ["compare", *shlex.split(settings), *words, "-o", str(tmp_path / "runs")])
    assert done.exit_code == 0, done.stderr
    accuracies = {row["method"]: row["final"]["mean"] for row in json.loads(done.stdout)["results"]}
    assert list(accuracies) == list(first.values())
    assert min(accuracies.values()) > 0.2, "even after three epochs, every method is better than chance"


@pytest.mark.parametrize(("method", "changes"), [("bootstrap_hard", True), ("elr", False)])
def test_the_audit_and_the_report_say_where_a_method_changed_the_targets(method: str, changes: bool, tmp_path: Path) -> None:
    run = train(tmp_path / "run", method, epochs=2)
    assert ("bootstrap_hard trained on other targets than the given labels" in audit(run).basis) is changes
    page = run.report(tmp_path / "report.html").read_text()
    assert (" trained on other targets than the given labels. Margins and " in page) is changes
    assert f"ce, method={run.settings.method}" in page


def test_a_new_file_is_a_new_method(tmp_path: Path) -> None:
    class Halved(methods.Method, name="halved_for_a_test"):
        def pulls(self, loss: Any, state: Any, batch: Any, scores: Any) -> Any:
            pull = loss.rows(scores[0], batch.labels)
            return (methods.Pull(0.5 * pull.gradient, 0.5 * pull.value),)

    halved = train(tmp_path / "halved", "halved_for_a_test", loss="ce", weight_decay=0.0)
    scaled = train(tmp_path / "scaled", "plain", loss="0.5*ce", weight_decay=0.0)
    for name, value in weights(halved).items():
        torch.testing.assert_close(value, weights(scaled)[name])


def test_bad_requests_are_refused_before_any_work(tmp_path: Path) -> None:
    with refused("elrr", "elr"):
        train(tmp_path / "run", "elrr")
    with refused("co_teaching", "accumulate=2"):
        train(tmp_path / "run", "co_teaching", accumulate=2)
    with refused("co_teaching", "spec of a model"):
        noisewise.fit(torch.nn.Linear(4, 3), clusters(), method="co_teaching", folder=tmp_path / "run", **SMALL)
    with refused("elr", "normalise='batch'"):
        train(tmp_path / "run", "elr", loss="imae(T=8, normalise='batch')")
    assert not (tmp_path / "run").exists()
