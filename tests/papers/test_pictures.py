"""Figures are drawn from results as they would be from the runs' folders, and every picture the page shows can be drawn."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from made import made, the_cell

from noisewise import draw, papers, reproduce
from noisewise.draw._history import history, history_of_curves
from noisewise.papers import Results, available, can_draw, get, page, picture_file, results
from noisewise.reproduce import picture
from noisewise.reproduce._pictures import as_curves, as_film
from noisewise.reproduce._start import margins_before_training


def test_results_draw_the_lines_that_the_folders_do(small_data: None, tmp_path: Path) -> None:
    recipe = get("imae/figure4")
    plan = reproduce.plan(recipe, only="model=resnet20", quick=True, output=tmp_path)
    done = reproduce.reproduce(plan, jobs=1)
    kept = results(done.files["results"])
    from_results = history_of_curves([as_curves(kept.of(run.settings.as_json())) for run in done.runs])
    from_folders = history([run.dynamics for run in done.runs])
    assert from_results.task == from_folders.task and [one.label for one in from_results.lines] == [one.label for one in from_folders.lines]
    for ours, theirs in zip(from_results.lines, from_folders.lines, strict=True):
        assert {"test", "clean_subset", "noisy_subset", "alpha"} <= ours.curves.keys() and "fitting" not in ours.curves
        for name, course in ours.curves.items():
            np.testing.assert_array_equal(course.steps, theirs.curves[name].steps)
            np.testing.assert_allclose(course.mean, theirs.curves[name].mean, rtol=1e-3)


def test_a_quick_try_is_drawn_from_quick_runs_alone(small_data: None, tmp_path: Path) -> None:
    asked: dict[str, Any] = {"only": "model=resnet20,loss=ce", "quick": True}
    done = reproduce.reproduce(reproduce.plan(get("imae/figure4"), held=results(), output=tmp_path / "here", **asked))
    drawn = done.files["picture"].read_text()
    assert "cifar10, resnet20" in drawn and "resnet56" not in drawn, "and not from results of full size"
    held = results(done.files["results"])
    elsewhere = reproduce.reproduce(reproduce.plan(get("imae/figure4"), held=held, output=tmp_path / "elsewhere", **asked))
    assert not elsewhere.runs and "cifar10, resnet20" in elsewhere.files["picture"].read_text()


def test_seeds_are_a_mean_with_its_spread() -> None:
    recipe = get("imae/figure4")
    (run, *_) = (outcome for settings in recipe.runs for outcome in results().of(settings))
    shifted = type(run)(**{**vars(run), "seed": 7, "curves": {**run.curves, "test": [(value or 0) + 0.02 for value in run.curves["test"]]}})
    (line,) = history_of_curves([as_curves([run, shifted])]).lines
    np.testing.assert_allclose(line.curves["test"].mean, np.array(run.curves["test"], float) + 0.01)
    assert line.curves["test"].high is not None and line.curves["test"].low is not None
    np.testing.assert_allclose(line.curves["test"].high - line.curves["test"].low, 2 * 0.02 / np.sqrt(2))
    assert line.curves["test"].steps[-1] == run.steps and line.runs == 2


def test_the_committed_figure_is_drawn_without_training(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NOISEWISE_DATA", str(tmp_path / "no data"))
    plan = reproduce.plan(get("imae/figure4"), held=results(), output=tmp_path)
    assert not plan.tasks
    drawn = reproduce.reproduce(plan).files["picture"].read_text()
    assert all(f">{words}</text>" in drawn for words in ("ce", "0.5*mae", "resnet20", "resnet56"))


def test_what_has_no_results_is_not_drawn(tmp_path: Path) -> None:
    nothing = Results()
    assert not can_draw(get("imae/figure4"), nothing) and can_draw(get("imae/figure1"), nothing)
    assert "figures/imae-figure4.svg" not in page(nothing) and "figures/imae-figure1.svg" in page(nothing)
    of_margins = the_cell("curriculum/table5", row="CE", column="diff", noise="symmetric(0.4)")
    assert not can_draw(get("curriculum/figure3"), made(tmp_path, [(of_margins, -30.0)])), "these results have no margins"


def test_results_draw_the_margins_that_the_folders_do(small_data: None, tmp_path: Path) -> None:
    recipe = get("curriculum/figure10")
    plan = reproduce.plan(recipe, only="loss=gce", quick=True, output=tmp_path)
    done = reproduce.reproduce(plan, jobs=1)
    kept = results(done.files["results"])
    for run in done.runs:
        ours, theirs = as_film(*kept.of(run.settings.as_json())), draw.film_of(run.dynamics)
        assert ours.loss == theirs.loss and ours.epochs == theirs.epochs and {*ours.counts} == {*theirs.counts} == {"clean", "noisy"}
        for group, counts in theirs.counts.items():
            np.testing.assert_array_equal(ours.counts[group], counts)
        np.testing.assert_array_equal(ours.edges, theirs.edges)
        np.testing.assert_allclose(ours.margins, theirs.margins)
        assert theirs.emphasis is not None
        np.testing.assert_allclose(ours.emphasis, theirs.emphasis, rtol=1e-3)
    assert can_draw(plan.recipe, kept) and ">epoch 1</text>" in picture(plan.recipe, kept, tmp_path / "kept.svg").read_text(
        encoding="utf-8"
    )
    assert not reproduce.plan(recipe, only="loss=gce", quick=True, output=tmp_path / "elsewhere", held=kept).tasks


def test_a_table_keeps_the_margins_of_the_runs_that_a_figure_shows() -> None:
    shown = {run["noise"] for run in get("curriculum/table5").runs if papers.shows_margins({**run, "seed": 3})}
    assert shown == {"symmetric(0.2)", "symmetric(0.4)", "human(worst)"}
    assert not any(map(papers.shows_margins, get("imae/table6").runs))


def test_margins_before_training_are_drawn_beside_simulated_ones(small_data: None, tmp_path: Path) -> None:
    recipe = replace(get("curriculum/figure6"), networks={"cifar10": "cnn8", "mnist": "cnn4"})
    drawn = picture(recipe, Results(), tmp_path / "x.svg").read_text(encoding="utf-8")
    assert "cifar10, cnn8" in drawn and "simulated -2.6" in drawn.replace("\N{MINUS SIGN}", "-")
    margins, classes = margins_before_training("mnist", "cnn4")
    assert classes == 10 and len(margins) == 12 and np.isfinite(margins).all()
    np.testing.assert_array_equal(margins, margins_before_training("mnist", "cnn4")[0])


def test_the_page_shows_every_picture_that_can_be_drawn() -> None:
    found = results()
    drawable = [picture_file(one) for one in map(get, available()) if can_draw(one, found)]
    assert re.findall(r"!\[[^]]+\]\(([^)]+)\)", page(found)) == drawable
    assert {"figures/imae-figure4.svg", "figures/imae-figure10.svg", "figures/curriculum-figure4.svg"} <= {*drawable}


def test_curves_of_losses_need_no_results(tmp_path: Path) -> None:
    drawn = picture(get("imae/figure1"), Results(), tmp_path / "figure1.svg").read_text()
    assert ">imae(T=8, saturation=0)</text>" in drawn
