"""Recipes run end to end on small files in the official layouts, and their tables agree with the run folders."""

from __future__ import annotations

import json
import os
import re
import shutil
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from made import made, outcome, the_cell
from typer.testing import CliRunner, Result

from noisewise import papers, reproduce
from noisewise.cli import app
from noisewise.cli._reproduce import _progress
from noisewise.papers import Cell, Compared, Portion, Recipe, Results, available, compared, get, key
from noisewise.reproduce import _reproduce
from noisewise.reproduce._again import Again
from noisewise.reproduce._plan import QUICK
from noisewise.reproduce._reproduce import _data
from noisewise.runs import RunFolder
from refused import refused

RUN = [recipe for recipe in map(get, available()) if recipe.nothing is None]


@pytest.fixture(autouse=True)
def _here(small_data: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    monkeypatch.chdir(tmp_path)


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One output folder for all recipes, so that runs that several of them need are trained once."""
    return tmp_path_factory.mktemp("reproduced")


def _run(*arguments: Any, code: int = 0) -> Result:
    done = CliRunner().invoke(app, ["reproduce", *map(str, arguments)])
    assert done.exit_code == code, done.output
    return done


def _lines(folder: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]


def _choice(recipe: Recipe) -> str | None:
    """One run of a recipe: the one that most recipes share, so that few runs are trained in all."""
    if not recipe.runs:
        return None
    run = max(recipe.runs, key=lambda run: sum(run in other.runs for other in RUN))
    return ",".join(f"{name}={run[name]}" for name in ("data", "model", "loss", "noise") if name in run)


def _slow_if_alike() -> list[Any]:
    """All recipes. One is slow if it trains a large network, or if an earlier one trains the same network on the same data and draws the
    same kind of picture."""
    parameters, seen = [], set()
    for recipe in RUN:
        chosen = dict(part.split("=", 1) for part in (_choice(recipe) or "").split(",") if part.startswith(("data=", "model=")))
        parts = {tuple(chosen.values()), recipe.picture}
        large = chosen.get("model", "").startswith(("googlenet", "resnet34", "resnet50")) or chosen.get("data") == "vehicles10"
        alike = bool(recipe.runs) and (large or parts <= seen)
        parameters.append(pytest.param(recipe, id=recipe.id, marks=[pytest.mark.slow] if alike else []))
        seen |= set() if alike else parts
    return parameters


@pytest.mark.filterwarnings("ignore::noisewise.train.Underfitting")
@pytest.mark.parametrize("recipe", _slow_if_alike())
def test_a_recipe_runs_from_end_to_end(recipe: Recipe, shared: Path) -> None:
    done = reproduce.reproduce(reproduce.plan(recipe, only=_choice(recipe), quick=True, output=shared))
    assert (bool(done.runs), recipe.picture is not None) == (bool(recipe.runs), "picture" in done.files)
    assert all(file.stat().st_size > 0 for file in done.files.values())
    for run in done.runs:
        assert run.state == "finished" and run.metrics[-1]["step"] == QUICK["steps"]
        assert {run.settings.loss} <= {one["loss"] for one in recipe.runs} and run.settings.device == "cpu"
    assert all(done.results.holds(run.settings.as_json(), run.settings.seed) for run in done.runs)
    if done.cells:
        assert any(one.ours is not None for one in done.cells)


def test_our_numbers_agree_with_the_run_folder(tmp_path: Path) -> None:
    plan = reproduce.plan(get("imae/table6"), only="loss=mae,noise=symmetric(0.8),model=resnet20", quick=True, seeds=[3], output=tmp_path)
    done = reproduce.reproduce(plan)
    (run,) = done.runs
    given, true = (np.load(run.path / f"labels/{name}.npy") for name in ("given", "true"))
    predicted = np.load(run.path / "record/clean/predictions-00001.npy")
    tested = 100 * _lines(run.path)[-1]["test_accuracy"]
    expected = {
        "best": tested,
        "final": tested,
        "noisy_subset": 100 * (predicted == given)[given != true].mean(),
        "clean_subset": 100 * (predicted == given)[given == true].mean(),
        "hybrid": (tested * 4 + 100 * (predicted == true).sum()) / (4 + len(given)),
    }
    found = {one.cell.metric: one for one in done.cells if one.ours is not None}
    assert {name: one.ours for name, one in found.items()} == pytest.approx(expected)
    theirs = {"best": 27.7, "final": 27.5, "noisy_subset": 9.7, "clean_subset": 29.4, "hybrid": 27.8}
    assert {name: one.cell.value for name, one in found.items()} == theirs
    assert len(done.cells) == 90 and all(one.seeds == (one in found.values()) for one in done.cells)


def test_best_of_the_seeds_and_cost_of_the_noise(tmp_path: Path) -> None:
    plan = reproduce.plan(get("curriculum/table5"), only="loss=mae,noise=symmetric(0.4)", quick=True, seeds=[0, 1, 2], output=tmp_path)
    assert sorted({noise for _, noise, _ in plan.rows}) == ["none", "symmetric(0.4)"], "the clean runs that diff is measured against"
    done = reproduce.reproduce(plan)
    finals: dict[str, list[float]] = {"none": [], "symmetric(0.4)": []}
    snr = []
    for run in done.runs:
        line = _lines(run.path)[-1]
        finals[run.settings.noise].append(100 * line["test_accuracy"])
        if run.settings.noise != "none":
            clean, noisy = line["emphasis"]["clean"], line["emphasis"]["noisy"]
            snr.append((clean["pull"] / clean["eta"]) / (noisy["pull"] / noisy["eta"]))
    found = {one.cell.metric: one.ours for one in done.cells if one.settings["noise"] == "symmetric(0.4)" and one.ours is not None}
    best = int(np.argmax(finals["symmetric(0.4)"]))
    assert found == pytest.approx({"diff": finals["symmetric(0.4)"][best] - max(finals["none"]), "snr": snr[best]})


def test_the_seed_with_the_best_test_accuracy_counts_whichever_it_is() -> None:
    cells = [cell for cell in get("curriculum/table5").cells if cell.fits(loss="normalised(mae)", noise="symmetric(0.4)")]
    settings = dict(cells[0].settings or {})
    noisy = [outcome(settings, seed=seed, final=final, snr=snr) for seed, final, snr in ((0, 0.5, 1.0), (1, 0.7, 2.0), (2, 0.6, 3.0))]
    clean = [outcome({**settings, "noise": "none"}, seed=seed, final=final) for seed, final in enumerate((0.6, 0.8, 0.9))]
    held = Results([Portion("curriculum/table5", "2031-01-05T00:00:00+00:00", (*noisy, *clean))])
    ours = compared(get("curriculum/table5"), held)
    found = {one.cell.metric: one.ours for one in ours if one.cell in cells}
    assert found == pytest.approx({"diff": 70.0 - 90.0, "snr": 2.0})


def test_a_wrong_number_of_jobs_is_refused_before_anything_is_trained(tmp_path: Path) -> None:
    plan = reproduce.plan(get("imae/table1"), quick=True, output=tmp_path / "reproduced")
    for jobs in (0, -1):
        with refused("'jobs'", "reproduce", f"Got {jobs}"):
            reproduce.reproduce(plan, jobs=jobs)
    assert not (tmp_path / "reproduced").exists()


def test_several_seeds_give_a_mean_and_a_spread(tmp_path: Path) -> None:
    plan = reproduce.plan(
        get("gr/table9"),
        only="loss=ce,noise=none,weight_decay=0.0001,model=resnet44(dropout=0.2)",
        quick=True,
        seeds=[0, 1, 2],
        output=tmp_path,
    )
    done = reproduce.reproduce(plan)
    finals = [100 * _lines(run.path)[-1]["test_accuracy"] for run in done.runs]
    (one,) = (one for one in done.cells if one.ours is not None)
    assert (one.cell.words, one.seeds, len(finals)) == ("Dropout+L2", 3, 3)
    assert (one.ours, one.spread) == (pytest.approx(np.mean(finals)), pytest.approx(np.std(finals, ddof=1)))


def test_a_second_call_trains_only_what_has_no_results_yet(tmp_path: Path) -> None:
    first = reproduce.reproduce(reproduce.plan(get("imae/table1"), only="loss=ce", quick=True, output=tmp_path))
    files = {path: path.stat().st_mtime_ns for path in tmp_path.glob("runs/**/model.safetensors")}
    again = reproduce.reproduce(reproduce.plan(get("imae/table1"), only="loss=ce", quick=True, output=tmp_path))
    assert {path: path.stat().st_mtime_ns for path in tmp_path.glob("runs/**/model.safetensors")} == files and len(files) == 1
    assert (again.cells, again.results.portions) == (first.cells, first.results.portions)
    larger = reproduce.reproduce(
        reproduce.plan(get("imae/table6"), only="model=resnet56,noise=symmetric(0.4),loss=mae", quick=True, output=tmp_path)
    )
    assert sorted(run.settings.loss for run in larger.runs) == ["0.5*mae", "ce"], "table 1 and table 6 share a run"
    assert {path: path.stat().st_mtime_ns for path in files} == files
    one, six = papers.results(tmp_path).portions
    assert [[run.settings["loss"] for run in portion.runs] for portion in (one, six)] == [["ce"], ["0.5*mae"]], "a run is stored once"
    assert (
        "results"
        not in reproduce.reproduce(reproduce.plan(get("imae/figure4"), only="loss=ce,model=resnet56", quick=True, output=tmp_path)).files
    )


def _compared(metric: str, ours: float, theirs: float, deviation: float | None = None) -> Compared:
    return Compared(Cell("", {}, metric, metric, theirs, deviation, None), ours, None, 1)


def test_large_differences_are_marked() -> None:
    assert not _compared("final", 85.9, 84.0).beyond and _compared("final", 81.9, 84.0).beyond
    assert not _compared("final", 84.7, 84.0, 0.4).beyond and _compared("final", 84.9, 84.0, 0.4).beyond
    assert _compared("diff", -30.0, -33.0).beyond and not _compared("snr", 9.0, 1.0).beyond
    assert _compared("final", 81.5, 84.0).difference == -2.5


@pytest.mark.parametrize(
    ("recipe", "only", "mentions"),
    [
        ("imae/table6", "loss=gce", ["imae/table6", "loss=gce", "ce, 0.5*mae, 0.5*imae(T=0.5, normalise='batch'), "]),
        ("imae/table6", "lose=ce", ["'lose'", "'loss'"]),
        ("imae/table6", "imae", ["'only'", "imae/table6", "Got 'imae'"]),
        ("imae/table6", "noise=none,noise=symmetric(0.4)", ["'only'", "imae/table6", "Got 'noise=none,noise=symmetric(0.4)'"]),
        ("imae/figure1", "loss=ce", ["'only'", "imae/figure1"]),
        ("imae/table6", "device=cpu", ["'device'"]),
        ("imae/table6", "seed=1", ["'seed'"]),
        ("imae/table6", "keep=best", ["imae/table6", "keep=best", "last"]),
    ],
)
def test_a_wrong_choice_of_runs_is_refused(recipe: str, only: str, mentions: list[str]) -> None:
    with refused(*mentions):
        reproduce.plan(get(recipe), only=only)


@pytest.mark.parametrize(
    ("recipe", "only", "number"),
    [
        ("imae/table6", None, 18),
        ("imae/table6", "loss=imae", 6),
        ("imae/table6", "loss=imae(8), noise=symmetric(.4)", 2),
        ("gr/table3", "loss=gr(beta=12, lam=0.5)", 3),
        ("gr/table8", "model=resnet44(dropout=0.2),weight_decay=0.0001", 2),
        ("gr/table8", "weight_decay=1e-4", 4),
        ("gr/table8", "weight_decay=0", 4),
        ("curriculum/table3", "loss=mae", 5),
        ("curriculum/table3", "loss=scaled,noise=human", 2),
        ("imae/supplement-table5", "optimiser=adam", 12),
        ("imae/table6", "loss=0.5*imae(T=8, normalise='batch')", 2),
        ("imae/table6", "loss=0.00390625*imae(T=8.0, normalise='batch')", 2),
        ("imae/table6", "loss=imae(T=8)", 4),
        ("imae/table6", "epochs=None,keep=last,normalise=true,validation=0", 18),
    ],
)
def test_runs_are_chosen_by_the_name_of_a_spec_or_by_the_whole_spec(recipe: str, only: str | None, number: int) -> None:
    assert len(reproduce.plan(get(recipe), only=only, seeds=[0]).rows) == number


def test_a_plan_has_every_run_of_the_recipe_once() -> None:
    for recipe in RUN:
        plan = reproduce.plan(recipe, seeds=[0, 1])
        asked = [(key(task.settings.as_json()), task.settings.seed) for task in plan.tasks if not isinstance(task, Again)]
        assert sorted(asked) == sorted((key(run), seed) for run in recipe.runs for seed in (0, 1))
        assert len({task.folder for task in plan.tasks}) == len(plan.tasks)
        assert len(plan.tasks) - len(asked) == (4 if recipe.id == "gr/table11" else 0), "two of its runs are trained again"


@pytest.mark.parametrize("recipe", RUN, ids=lambda recipe: recipe.id)
def test_every_run_of_a_plan_has_its_own_name_in_the_progress_table(recipe: Recipe) -> None:
    rows = reproduce.plan(recipe, seeds=[0, 1]).rows
    assert len(set(rows)) == len(rows)


def test_names_of_runs_leave_out_settings_that_all_share() -> None:
    assert [noise for _, noise, _ in reproduce.plan(get("imae/table1")).rows] == ["symmetric(0.4)"] * 3
    assert reproduce.plan(get("imae/table6"), only="loss=ce,noise=none").rows == [("ce", "none, resnet20", 0), ("ce", "none, resnet56", 0)]


def test_the_seeds_of_the_paper_are_the_default() -> None:
    assert {seed for _, _, seed in reproduce.plan(get("imae/table4")).rows} == {123}
    assert {seed for _, _, seed in reproduce.plan(get("gr/table8")).rows} == {0, 1, 2, 3, 4}
    assert {seed for _, _, seed in reproduce.plan(get("gr/table8"), seeds=[7]).rows} == {7}


def test_the_list_has_every_recipe_and_its_status(tmp_path: Path) -> None:
    printed = _run().stdout
    assert all(name in printed for name in available())
    listed = {one["recipe"]: one for one in json.loads(_run("--json").stdout)}
    assert "imae/table6" in listed["imae/poster-table2"]["status"]
    assert len({listed[name]["status"] for name in ("imae/poster-table2", "curriculum/table9", "imae/figure1", "gr/table6")}) == 4
    assert (get("gr/table6").not_run or "").partition(":")[0] in listed["gr/table6"]["status"] and listed["gr/table6"]["runs"] == 3
    outcomes = made(tmp_path / "made", [(the_cell("gr/table3", row="CCE", column="final", noise="symmetric(0.4)"), 60.0)])
    for name, share in (("gr/table3", (1, 96, 1)), ("gr/table11", (1, 26, 1)), ("gr/figure2", (0, 0, 1))):
        progress = _progress(get(name), outcomes)
        assert "2031-01-02" in progress.status and progress.seeds == (1, 1)
        assert (progress.numbers_run, progress.numbers, progress.runs_with_results) == share
    assert _progress(get("gr/table4"), outcomes).seeds == () and "2031" not in _progress(get("gr/table4"), outcomes).status
    table6 = listed["imae/table6"]
    assert (table6["numbers_run"], table6["numbers"], table6["seeds"], table6["runs_with_results"]) == (84, 84, [1, 5], 18)
    assert table6["conditions"] == papers.verdicts(papers.results(), papers.CLAIMS)["imae/table6"]
    for name in ("imae/table6", "gr/table10"):
        assert re.search(rf"{name} .* {listed[name]['numbers_run']} of {listed[name]['numbers']} ", printed)
    total = [sum(one[field] for one in listed.values() if get(one["recipe"]).same_as is None) for field in ("numbers_run", "numbers")]
    assert f"{total[0]} of the papers' {total[1]} numbers were run" in printed and total[0] < total[1]
    assert "margins" in listed["curriculum/figure3"]["status"] and listed["curriculum/figure3"]["runs_with_results"] == 0


def test_the_command_prints_our_numbers_next_to_the_papers_and_what_it_wrote(tmp_path: Path) -> None:
    done = _run("gr/table11", "--quick", "--only", "loss=ce,noise=symmetric(0.2)", "-o", tmp_path / "out")
    assert "--quick" in done.stderr, "a warning"
    ((run,),) = (portion.runs for portion in papers.results(tmp_path / "out").portions)
    ours = 100 * (run.numbers["final"] or 0.0)
    assert re.search(rf"{ours:.1f} +76.8 +{re.escape(f'{ours - 76.8:+.1f}')} !", done.stdout) and re.search("– +–", done.stdout)
    assert f"1 run in {tmp_path / 'out'}\n" in done.stdout
    assert "λ = 1, β = 16" not in done.stdout and re.search(r"\d of .* 26 ", done.stdout)
    for name in ("gr-table11-2", "gr-table11.html"):
        assert str(tmp_path / "out" / name) in done.stdout


def test_the_command_prints_json(tmp_path: Path) -> None:
    asked = ("imae/supplement-table5", "--quick", "--only", "loss=ce,optimiser=adam(lr=0.005, eps=1.0)", "--seeds", "0,4", "--json")
    printed = json.loads(_run(*asked).stdout)
    assert printed["files"]["report"] == str(Path("reproduced-quick/imae-supplement-table5.html"))
    assert (printed["recipe"], printed["quick"], len(printed["runs"])) == ("imae/supplement-table5", True, 2)
    (cell,) = (cell for cell in printed["cells"] if cell["ours"] is not None)
    assert (cell["row"], cell["theirs"], cell["seeds"]) == ("CCE", 50.3, 2) and cell["spread"] is not None
    assert all((tmp_path / folder / "settings.json").exists() for folder in printed["runs"])
    written = Portion.read(tmp_path / printed["files"]["results"])
    assert [run.seed for run in written.runs] == [0, 4] and written.runs[0].made_with["device"] == "cpu"


def test_results_from_elsewhere_fill_the_table_and_train_nothing(tmp_path: Path) -> None:
    asked = ("imae/table1", "--quick", "--only", "loss=ce")
    _run(*asked, "-o", tmp_path / "there")
    done = _run(*asked, "-o", tmp_path / "here", "--with", tmp_path / "there")
    assert not list((tmp_path / "here").iterdir())
    assert " 63.3 " in done.stdout
    assert "--quick" in done.stderr, "a warning, also without training"
    assert str(tmp_path / "here") in _run(*asked, "--with", tmp_path / "here", code=2).stderr


def test_a_table_without_results_says_so_and_writes_nothing(tmp_path: Path) -> None:
    done = _run("curriculum/table12")
    assert get("curriculum/table12").nothing in done.stderr.replace("\n", " ") and not list(tmp_path.iterdir())


def test_a_table_that_is_computed_from_the_losses_equals_the_paper_and_writes_nothing(tmp_path: Path) -> None:
    printed = " ".join(_run("imae/supplement-table4").stdout.split())
    for ours in ("354.113 354.113 +0.000", "4.546 4.546 +0.000", "0.007 0.007 +0.000"):
        assert ours in printed
    assert not list(tmp_path.iterdir())


def test_a_figure_of_losses_needs_no_data(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("NOISEWISE_DATA", str(tmp_path))
    (what, file), *others = json.loads(_run("gr/figure1", "--json").stdout)["files"].items()
    assert (what, file, others) == ("picture", str(Path("reproduced/gr-figure1.html")), [])
    assert all(loss in Path(file).read_text(encoding="utf-8") for loss in ("gr(beta=8, lam=2, saturation=0)", "gce(q=0.7)"))


def test_wrong_seeds_are_refused() -> None:
    done = _run("imae/table6", "--seeds", "0;1", code=2)
    assert all(mention in done.stderr for mention in ("'seeds'", "reproduce", "Got '0;1'")) and done.stderr.count("\n") == 1


def test_missing_data_are_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("NOISEWISE_DATA", str(tmp_path))
    assert "'mnist'" in _run("curriculum/figure4", "--quick", code=2).stderr


@pytest.mark.slow
def test_two_jobs_give_the_same_numbers_as_one(tmp_path: Path) -> None:
    found = []
    for jobs in (1, 2):
        plan = reproduce.plan(get("curriculum/figure4"), only="loss=ce", quick=True, output=tmp_path / str(jobs))
        told: list[int] = []
        done = reproduce.reproduce(plan, jobs=jobs, watch=lambda progress, told=told: told.append(progress.place))
        assert set(told) == {0, 1, 2, 3}
        found.append([_lines(run.path)[-1]["test_accuracy"] for run in done.runs])
    assert len(found[0]) == 4 and found[0] == found[1]


def test_committed_results_are_shown_without_training(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NOISEWISE_DATA", str(tmp_path / "nowhere"))
    shown, where = json.loads(_run("imae/table6", "--show", "--json").stdout), {"noise": "symmetric(0.4)", "model": "resnet20"}
    wanted = {"row": "IMAE", "metric": "final", **where}
    (ours,) = (one["ours"] for one in shown["cells"] if wanted.items() <= one.items())
    committed = papers.results().of(the_cell("imae/table6", row="IMAE", column="final", **where).settings or {})
    assert (
        ours == pytest.approx(np.mean([100 * run.numbers["final"] for run in committed]))
        and not shown["runs"]
        and not list(tmp_path.iterdir())
    )
    assert re.search(r"\d of .* 96 ", _run("gr/table3", "--show").stdout)


@pytest.mark.parametrize("options", [("--quick",), ("--seeds", "3"), ("--show",), ("--only", "loss=ce", "--jobs", "2")], ids=" ".join)
def test_options_without_a_recipe_are_refused(options: tuple[str, ...]) -> None:
    error = _run(*options, code=2).stderr
    assert "'recipe'" in error and options[0] in error


def test_options_of_training_and_recipes_without_results_are_refused_with_show() -> None:
    error = _run("imae/table6", "--show", "--quick", "--jobs", "2", code=2).stderr
    assert all(mention in error for mention in ("'show'", "--quick", "--jobs"))
    for name in ("imae/table2", "curriculum/table9", "curriculum/figure3"):
        assert name in _run(name, "--show", code=2).stderr
    assert "--output" in _run("gr/table3", "--show", "-o", "x", code=2).stderr


def test_a_figure_is_drawn_from_the_committed_results(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NOISEWISE_DATA", str(tmp_path / "nowhere"))
    shown = json.loads(_run("gr/figure2", "--show", "--json").stdout)
    assert shown["files"] == {"picture": str(Path("shown/gr-figure2.svg"))} and not shown["runs"]
    assert "gr(beta=16, lam=1" in Path("shown/gr-figure2.svg").read_text(encoding="utf-8")
    assert [path.name for path in tmp_path.iterdir()] == ["shown"]


def test_a_table_without_results_can_be_printed_as_json() -> None:
    assert json.loads(_run("imae/table2", "--json").stdout)["cells"] == []


def test_the_standard_deviation_of_the_paper_is_printed_next_to_its_number() -> None:
    assert re.search(r"51\.1 +52\.8 ± 0\.4 +-1\.7 !", _run("gr/table8", "--show").stdout)


def test_missing_data_are_noticed_before_anything_is_trained(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with_all = Path(os.environ["NOISEWISE_DATA"])
    (tmp_path / "some").mkdir()
    (tmp_path / "some/cifar-10-batches-bin").symlink_to(next(with_all.glob("cifar-10-*")))
    monkeypatch.setenv("NOISEWISE_DATA", str(tmp_path / "some"))
    assert "'cifar100'" in _run("gr/table2", "--quick", "-o", "out", code=2).stderr
    assert "human(worst)" in _run("curriculum/table5", "--quick", "-o", "out", code=2).stderr
    assert not list(Path("out").iterdir())


@pytest.mark.parametrize("jobs", [1, pytest.param(2, marks=pytest.mark.slow)])
def test_a_failed_run_does_not_stop_the_others(tmp_path: Path, jobs: int) -> None:
    plan = reproduce.plan(get("imae/table1"), quick=True, output=tmp_path)
    first, *others = plan.tasks
    with (
        RunFolder(first.folder).lock(),
        refused("1 of 3", "ce", first.folder, kind=reproduce.RecipeFailedError) as failed,
    ):
        reproduce.reproduce(plan, jobs=jobs)
    done = failed.value.done
    assert [run.path for run in failed.value.finished] == [task.folder for task in others] == [run.path for run in done.runs]
    assert {one.cell.words for one in done.cells if one.ours is not None} == {"MAE", "IMAE"} and done.files.keys() == {"results", "report"}
    with RunFolder(first.folder).lock():
        partial = _run("imae/table1", "--quick", "-o", tmp_path, code=1)
    assert " 66.9 " in partial.stdout and "1 of 1" in partial.stderr, "the other results are shown"
    assert " 66.9 " in _run("imae/table1", "--quick", "-o", tmp_path).stdout


def test_a_run_that_another_call_trained_meanwhile_has_not_failed(tmp_path: Path) -> None:
    plan = reproduce.plan(get("imae/table1"), quick=True, output=tmp_path)
    other = reproduce.plan(get("imae/table1"), only="loss=mae", quick=True, output=tmp_path)
    with ExitStack() as in_use:
        in_use.enter_context(RunFolder(plan.tasks[1].folder).lock())
        failed = []

        def watch(progress: Any) -> None:
            failed.extend([progress.state] if str(plan.tasks[1].folder) in progress.state else [])
            if progress.place == 2 and progress.step == 1:  # the second run was tried by now
                in_use.close()
                reproduce.reproduce(other)

        done = reproduce.reproduce(plan, watch=watch)
    assert len(failed) == 1 and {one.cell.words for one in done.cells if one.ours is not None} == {"CCE", "MAE", "IMAE"}


def _while_in_use(plan: reproduce.Plan, index: int, then: Callable[[], Any]) -> reproduce.Reproduction:
    """Reproduce while another call uses the folder of one run; it releases the folder and calls `then` before the last run is trained."""
    with ExitStack() as in_use:
        in_use.enter_context(RunFolder(plan.tasks[index].folder).lock())

        def watch(progress: Any) -> None:
            if progress.place == len(plan.tasks) - 1 and progress.step == 1:
                in_use.close()
                then()

        return reproduce.reproduce(plan, watch=watch)


def _words(done: reproduce.Reproduction) -> set[str]:
    return {one.cell.words for one in done.cells if one.ours is not None}


def test_a_run_that_another_call_trained_counts_before_its_results_are_written(tmp_path: Path) -> None:
    plan = reproduce.plan(get("imae/table1"), quick=True, output=tmp_path)
    done = _while_in_use(plan, 1, lambda: plan.tasks[1].train(*_data("cifar10", plan), watch=lambda step, steps: None))
    assert _words(done) == {"CCE", "MAE", "IMAE"} and len(done.runs) == 3


def test_a_run_that_another_call_finishes_too_late_has_failed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    plan = reproduce.plan(get("imae/table1"), quick=True, output=tmp_path)
    report = _reproduce.report

    def after_another(*arguments: Any, **options: Any) -> Path:
        plan.tasks[1].train(*_data("cifar10", plan), watch=lambda step, steps: None)
        return report(*arguments, **options)

    monkeypatch.setattr(_reproduce, "report", after_another)
    with refused("1 of 3", "0.5*mae", plan.tasks[1].folder, kind=reproduce.RecipeFailedError) as failed:
        _while_in_use(plan, 1, lambda: None)
    assert _words(failed.value.done) == {"CCE", "IMAE"} and _words(reproduce.reproduce(plan)) == {"CCE", "MAE", "IMAE"}


@pytest.mark.parametrize("jobs", [1, 2])
def test_a_folder_with_another_run_is_refused_before_anything_is_trained(tmp_path: Path, jobs: int) -> None:
    plan = reproduce.plan(get("gr/table2"), only="loss=ce", quick=True, output=tmp_path)
    last = plan.tasks[-1]
    with pytest.raises(KeyboardInterrupt):
        replace(last, settings=replace(last.settings, checkpoint_every=9)).train(*_data("cifar100", plan), watch=_interrupt)
    with refused(last.folder, "checkpoint_every=9"):
        reproduce.reproduce(plan, jobs=jobs)
    assert len(list(tmp_path.glob("runs/**/settings.json"))) == 1


def _interrupt(step: int, steps: int) -> None:
    raise KeyboardInterrupt


def test_a_figure_of_margins_is_trained_again_if_its_results_have_no_margins(tmp_path: Path) -> None:
    only, figure = {"only": "loss=ce", "quick": True, "output": tmp_path}, get("curriculum/figure3")
    file = reproduce.reproduce(reproduce.plan(figure, **only)).files["results"]
    shutil.rmtree(tmp_path / "runs")
    portion = Portion.read(file)
    replace(portion, runs=tuple(replace(run, margins={}) for run in portion.runs)).write(tmp_path)
    assert len(reproduce.plan(figure, **only).tasks) == 1
    assert "picture" in reproduce.reproduce(reproduce.plan(figure, **only)).files
    assert not reproduce.plan(figure, **only).tasks


@pytest.mark.parametrize("seeds", [[0, 0], [], "0", 3, [0, 1, "1"]], ids=str)
def test_seeds_must_be_a_list_of_different_integers(seeds: Any) -> None:
    with refused("'seeds'", "reproduce", f"Got {seeds!r}"):
        reproduce.plan(get("imae/table1"), seeds=seeds)


def test_seeds_may_be_an_array() -> None:
    assert {seed for _, _, seed in reproduce.plan(get("imae/table1"), seeds=np.array([2, 5])).rows} == {2, 5}  # type: ignore[arg-type]


def test_an_output_file_that_would_be_overwritten_is_refused_before_anything_is_trained(tmp_path: Path) -> None:
    (tmp_path / "imae-table1.html").write_text("mine")
    with refused("imae-table1.html"):
        reproduce.reproduce(reproduce.plan(get("imae/table1"), quick=True, output=tmp_path))
    assert [path.name for path in tmp_path.iterdir()] == ["imae-table1.html"]


@pytest.mark.parametrize("missing", ["metrics.jsonl", "model.safetensors"])
def test_a_damaged_run_is_refused_before_anything_is_trained(missing: str, tmp_path: Path) -> None:
    (run,) = reproduce.reproduce(reproduce.plan(get("imae/table1"), only="loss=ce", quick=True, output=tmp_path)).runs
    for file in (*tmp_path.glob("*.json"), run.path / missing):
        file.unlink()
    with refused(run.path, missing):
        reproduce.reproduce(reproduce.plan(get("imae/table1"), only="loss=mae", quick=True, output=tmp_path))
    assert len(list(tmp_path.glob("runs/**/settings.json"))) == 1


@pytest.mark.parametrize(
    ("call", "mentions"),
    [
        (lambda: reproduce.plan("imae/table1"), ["'recipe'", "plan", "noisewise.papers.get", "Got 'imae/table1'"]),
        (lambda: papers.compared("imae/table1", Results()), ["'recipe'", "compared", "Got 'imae/table1'"]),
        (lambda: reproduce.show("imae/table1", Results()), ["'recipe'", "show", "Got 'imae/table1'"]),
        (lambda: papers.get([]), ["'recipe'", "get", "Got []"]),
        (lambda: papers.reported(5), ["'settings'", "reported", "Got 5"]),
    ],
)
def test_an_argument_of_the_wrong_type_is_refused(call: Callable[[], Any], mentions: list[str]) -> None:
    with refused(*mentions):
        call()
