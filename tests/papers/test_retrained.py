"""Training again on corrected labels: the number is that of a run on the labels one would correct by hand, and it is made once."""

from __future__ import annotations

import json
import re
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from made import outcome, the_cell
from typer.testing import CliRunner

from noisewise import fit, reproduce
from noisewise.audit import audit
from noisewise.cli import app
from noisewise.data import load
from noisewise.papers import Outcome, Portion, Recipe, Results, get, page, results
from noisewise.papers._recipes import read
from noisewise.reproduce import Reproduction

ABOUT = dict.fromkeys(("name", "short", "title", "authors", "reference"), "x")
EPOCHS = 40  # enough, at a constant rate, to memorise wrong labels: the numbers of both trainings are far apart
SETTINGS = {"data": "digits", "model": "mlp", "noise": "symmetric(0.4)", "epochs": EPOCHS, "schedule": "constant", "device": "cpu"}
SETTINGS |= dict.fromkeys(("evaluate_every", "checkpoint_every"), EPOCHS)
ROWS = [["CE", "ce", 50.0, 60.0], ["GCE", "gce(q=0.7)", 50.0, "–"]]
GR = "model=resnet56,noise=symmetric(0.2),loss=gr(beta=12, lam=0.5)"


def _digits() -> Recipe:
    """A table whose first run is trained again and whose second is not."""
    table = {"caption": "", **SETTINGS, "columns": ["final", "retrained"], "block": [{"rows": ROWS}]}
    (recipe,) = read({**ABOUT, "settings": {}, "chosen": {}, "table1": table})
    return recipe


@pytest.fixture(scope="module")
def done(tmp_path_factory: pytest.TempPathFactory) -> Reproduction:
    return reproduce.reproduce(reproduce.plan(_digits(), output=tmp_path_factory.mktemp("reproduced")), jobs=1)


def _outcomes(done: Reproduction) -> list[Outcome]:
    (portion,) = done.results.portions
    return list(portion.runs)


def _second(done: Reproduction) -> Path:
    (folder,) = done.runs[0].path.parent.glob("*-corrected")
    return folder


def _labels(folder: Path, name: str) -> Any:
    return np.load(folder / f"labels/{name}.npy")


def _final(folder: Path) -> float:
    return float(json.loads((folder / "metrics.jsonl").read_text().splitlines()[-1])["test_accuracy"])


def test_the_number_is_that_of_a_run_on_labels_corrected_by_hand(done: Reproduction, tmp_path: Path) -> None:
    found = audit(done.runs[0])
    by_hand = torch.from_numpy(np.where(found.is_issue & (found.lead > 2), found.suggested, found.given))
    digits = load("digits")
    asked = {name: value for name, value in SETTINGS.items() if name not in ("model", "data", "noise")}
    again = fit("mlp", replace(digits, labels=by_hand, true_labels=digits.labels), test=load("digits", "test"), folder=tmp_path, **asked)
    ours = {one.cell.words: one.ours for one in done.cells if one.cell.metric == "retrained"}
    assert ours == {"CE": pytest.approx(100 * _final(tmp_path), abs=1e-9), "GCE": None}
    assert again.settings.seed == done.runs[0].settings.seed and _final(_second(done)) == _final(tmp_path)
    assert _final(tmp_path) > _final(done.runs[0].path) + 0.1


def test_an_outcome_says_what_the_correction_did(done: Reproduction) -> None:
    once, other = _outcomes(done)
    before, after = (_labels(folder, "given") for folder in (done.runs[0].path, _second(done)))
    true = _labels(done.runs[0].path, "true")
    assert once.numbers["retrained"] == _final(_second(done)) and once.numbers["final"] == _final(done.runs[0].path)
    assert once.numbers["changed"] == (before != after).sum() > 100
    assert once.numbers["wrong_before"] == pytest.approx((before != true).mean(), abs=1e-12)
    assert once.numbers["wrong_after"] == pytest.approx((after != true).mean(), abs=1e-12)
    assert (after != true).sum() < 0.5 * (before != true).sum(), "a real correction"
    assert "retrained" not in other.numbers and other.settings["loss"] == "gce(q=0.7)"
    assert len(json.dumps(asdict(once))) < 10_000 and once.steps == EPOCHS * 12


def test_the_file_of_results_has_both_trainings(done: Reproduction) -> None:
    (portion,) = done.results.portions
    assert Portion.read(done.files["results"]) == portion


def test_the_report_has_both_trainings_side_by_side(done: Reproduction) -> None:
    shown = done.files["report"].read_text(encoding="utf-8")
    assert "ce, relabelled" in shown and [run.settings.loss for run in done.runs] == ["ce", "gce(q=0.7)"]


def _reproduced(recipe: str, output: Path, **more: Any) -> Reproduction:
    return reproduce.reproduce(reproduce.plan(get(recipe), only=GR, quick=True, output=output, **more))


def _rows(output: Path, **more: Any) -> list[str]:
    return [noise for _, noise, _ in reproduce.plan(get("gr/table11"), only=GR, quick=True, output=output, **more).rows]


def _models(output: Path) -> dict[Path, int]:
    return {file: file.stat().st_mtime_ns for file in output.glob("runs/**/model.safetensors")}


BOTH = ["symmetric(0.2)", "symmetric(0.2), corrected"]


@pytest.mark.usefixtures("small_data")
def test_a_finished_run_gets_its_second_training_alone(tmp_path: Path) -> None:
    _reproduced("gr/table3", tmp_path)
    first = _models(tmp_path)
    assert _rows(tmp_path) == BOTH[1:] and len(first) == 1
    done = _reproduced("gr/table11", tmp_path)
    assert {file: _models(tmp_path)[file] for file in first} == first and len(_models(tmp_path)) == 2
    three, eleven = results(tmp_path).portions
    assert ["retrained" in run.numbers for portion in (three, eleven) for run in portion.runs] == [False, True]
    assert {name: eleven.runs[0].numbers[name] for name in three.runs[0].numbers} == three.runs[0].numbers
    (ours,) = (one.ours for one in done.cells if one.cell.metric == "retrained" and one.ours is not None)
    assert ours == pytest.approx(100 * _final(_second(done)))
    models = _models(tmp_path)
    assert _rows(tmp_path) == [] and _reproduced("gr/table11", tmp_path).cells == done.cells and _models(tmp_path) == models
    assert _reproduced("gr/table3", tmp_path).results.portions == (three, eleven), "table 3 takes the run as it is"


@pytest.mark.usefixtures("small_data")
def test_a_run_known_by_its_numbers_alone_is_trained_twice_and_one_with_all_of_them_not_at_all(tmp_path: Path) -> None:
    _reproduced("gr/table3", tmp_path / "three")
    held = results(tmp_path / "three")
    assert _rows(tmp_path / "eleven", held=held) == BOTH, "the correction needs the record"
    done = _reproduced("gr/table11", tmp_path / "eleven", held=held)
    assert sum(one.cell.metric == "retrained" and one.ours is not None for one in done.cells) == 1
    both = results(tmp_path / "three", tmp_path / "eleven")
    assert _rows(tmp_path / "elsewhere", held=both) == _rows(tmp_path / "three", held=both) == []


@pytest.mark.usefixtures("small_data")
@pytest.mark.parametrize("jobs", [1, pytest.param(2, marks=pytest.mark.slow)])
def test_a_second_training_that_is_cut_short_costs_nothing_that_is_finished(tmp_path: Path, jobs: int) -> None:
    def stop(progress: Any) -> None:
        if progress.place == 1 and progress.step:
            raise KeyboardInterrupt

    plan = reproduce.plan(get("gr/table11"), only=GR, quick=True, output=tmp_path)
    with pytest.raises(KeyboardInterrupt):
        reproduce.reproduce(plan, watch=stop)
    assert list(tmp_path.glob("runs/**/*-corrected/settings.json")), "it was begun"
    ((run,),) = (portion.runs for portion in results(tmp_path).portions)
    assert "retrained" not in run.numbers and run.numbers["final"] is not None
    assert _rows(tmp_path) == BOTH[1:]
    again = reproduce.plan(get("gr/table11"), only=GR, quick=True, output=tmp_path)
    (once,), (whole,) = (portion.runs for portion in reproduce.reproduce(again, jobs=jobs).results.portions)
    assert once == run and "retrained" in whole.numbers and whole.finished >= run.finished


@pytest.mark.usefixtures("small_data")
def test_a_second_training_that_ended_without_a_note_is_noted_and_not_trained_again(tmp_path: Path) -> None:
    done = _reproduced("gr/table11", tmp_path)
    (_second(done) / "correction.json").unlink()
    done.files["results"].unlink()  # which is written after it
    models = _models(tmp_path)
    assert _rows(tmp_path) == BOTH[1:]
    assert _reproduced("gr/table11", tmp_path).cells == done.cells and _models(tmp_path) == models


CELL = {"row": "λ = 0.5, β = 12", "column": "retrained"}
NUMBERS = {"final": 0.878, "retrained": 0.893, "changed": 9812, "wrong_before": 0.1806, "wrong_after": 0.0312}


def _settings() -> dict[str, Any]:
    return dict(the_cell("gr/table11", **CELL).settings or {})


def _found(*runs: Outcome) -> Results:
    return Results([Portion("gr/table11", f"2031-01-0{day}", (run,)) for day, run in enumerate(runs, 1)])


def test_the_run_that_finished_last_counts_with_its_number_or_without() -> None:
    settings = _settings()
    alone = [outcome(settings, final=0.86, finished=f"2031-01-0{day}T00:00:00+00:00") for day in (1, 3)]
    again = outcome(settings, finished="2031-01-02T00:00:00+00:00", **NUMBERS)
    for order in ((alone[0], again), (again, alone[0])):
        assert _found(*order).of(settings) == [again] and _found(*order).holds(settings, 0, retrained=True)
    newer = _found(again, alone[1])
    assert newer.of(settings) == [alone[1]] and newer.holds(settings, 0) and not newer.holds(settings, 0, retrained=True)


def test_the_page_says_what_became_of_the_labels() -> None:
    shown = page(_found(outcome(_settings(), **NUMBERS)))
    assert "- `symmetric" not in shown and "\nCorrected before the second training:\n\n" in shown
    assert "\n- symmetric(0.2), λ = 0.5, β = 12, seed 0: 9,812 labels changed; wrong before 18.1 %, after 3.1 %\n" in shown
    assert "| 89.3\N{NO-BREAK SPACE}/ 89.3 |\n" in shown
    assert "seed 0: 1 label" in page(_found(outcome(_settings(), **{**NUMBERS, "changed": 1})))
    untold = page(_found(outcome(_settings(), **{**NUMBERS, "wrong_before": None, "wrong_after": None})))  # type: ignore[arg-type]
    assert "9,812 labels changed; wrong before unknown, after unknown\n" in untold
    assert "Corrected before" not in page(_found(outcome(_settings(), final=0.878)))


@pytest.mark.usefixtures("small_data")
def test_the_command_trains_again_and_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    ran = CliRunner().invoke(app, ["reproduce", "gr/table11", "--quick", "--only", GR, "-o", str(tmp_path)])
    assert ran.exit_code == 0, ran.output
    ((run,),) = (portion.runs for portion in results(tmp_path).portions)
    ours = 100 * (run.numbers["retrained"] or 0.0)
    assert re.search(rf"{ours:.1f} +89\.3 +{re.escape(f'{ours - 89.3:+.1f}')} !", ran.stdout)
    assert re.search(r"λ = 0.5, β = 12, seed 0: \d labels? changed; wrong before \d+\.0 %, after \d+\.0 %\n", ran.stdout)
    assert "symmetric(0.2), corrected, seed 0: finished (2 of 2 finished)" in ran.stderr


@pytest.mark.slow
def test_second_trainings_in_worker_processes_give_the_same(done: Reproduction, tmp_path: Path) -> None:
    table = replace(_digits(), cells=tuple(replace(one, value=1.0) for one in _digits().cells))
    pooled = reproduce.reproduce(reproduce.plan(table, output=tmp_path), jobs=2)
    assert all("retrained" in run.numbers for run in _outcomes(pooled)) and len(pooled.runs) == 2
    (mine,) = (run.numbers for run in _outcomes(pooled) if run.settings["loss"] == "ce")
    assert mine == pytest.approx(_outcomes(done)[0].numbers, abs=1e-3)
