"""Before and after a correction, on real runs: the page compares the two runs and says whether the correction gained."""

from __future__ import annotations

import csv
import json
import shutil
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from test_gather import facts_of, spoken, the_run
from typer.testing import CliRunner

from noisewise import fit
from noisewise.audit import audit
from noisewise.cli import app
from noisewise.correct import correct, retrain
from noisewise.data import load
from noisewise.report import report
from noisewise.train import Run

SETTINGS: dict[str, Any] = {"epochs": 12, "batch_size": 64, "optimiser": "sgd(lr=0.03, momentum=0.9)", "device": "cpu"}


@pytest.fixture(scope="module")
def runs(tmp_path_factory) -> Path:
    """Two seeds of cross-entropy, each trained again after relabelling; the first also after pruning."""
    torch.set_num_threads(1)
    folder = tmp_path_factory.mktemp("corrected") / "runs"
    for seed in (0, 1):
        run = fit("mlp", "digits", noise="symmetric(0.4)", seed=seed, validation=0.1, folder=folder / f"seed{seed}", **SETTINGS)
        retrain(run, correct(audit(run)))
    retrain(Run(folder / "seed0"), correct(audit(folder / "seed0"), "prune(below=0.4)"), folder=folder / "seed0-pruned")
    return folder


@pytest.fixture
def copied(runs: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(runs, tmp_path / "runs"))


def accuracies(folder: Path) -> list[float]:
    return [json.loads(line)["test_accuracy"] for line in (folder / "metrics.jsonl").read_text().splitlines()]


def rewrite(folder: Path, **before: Any) -> None:
    """Change what a corrected run knows of the one before it."""
    written = json.loads((folder / "correction.json").read_text())
    (folder / "correction.json").write_text(json.dumps({**written, "before": {**written["before"], **before}}))


def only(folder: Path, *names: str) -> Path:
    """Leave only some of the runs."""
    for one in folder.iterdir():
        if one.name not in names:
            shutil.rmtree(one)
    return folder


def the_correction(facts: Any, label: str = "ce, relabelled") -> Any:
    return next(one for task in facts["tasks"] for one in task["corrections"] if one["label"] == label)


def test_a_retrained_run_stands_beside_the_run_it_came_from_and_seeds_are_averaged(runs: Path) -> None:
    facts = facts_of(runs)
    assert [(task["data"], task["noise"]) for task in facts["tasks"]] == [("digits", "symmetric(0.4)")]
    seeds = {group["loss"]: group["seeds"] for group in facts["groups"]}
    assert seeds == {"ce": [0, 1], "ce, relabelled": [0, 1], "ce, pruned (prune(below=0.4))": [0]}
    drawn = {trace["name"] for trace in facts["tasks"][0]["dynamics"]["data"] if trace.get("showlegend")}
    assert drawn == set(seeds)
    assert facts["counts"] == "5 runs: 1 loss, 1 noise, 1 model, 1 data set, 2 seeds"
    assert the_run(facts, runs / "seed0-corrected")["loss"] == "ce, relabelled"
    assert the_run(facts, runs / "seed0-corrected")["command"].startswith("noisewise.fit('mlp', data, ")


def test_the_numbers_before_and_after_are_those_of_the_two_runs(runs: Path) -> None:
    shown = {one["title"]: one for one in the_correction(facts_of(runs))["measures"]}
    for place, name in (("before", ""), ("after", "-corrected")):
        folders = [runs / f"seed{seed}{name}" for seed in (0, 1)]
        wrong = [np.mean(np.load(folder / "labels/given.npy") != np.load(folder / "labels/true.npy")) for folder in folders]
        assert shown["Test accuracy of the model"][place]["mean"] == pytest.approx(np.mean([accuracies(folder)[-1] for folder in folders]))
        assert shown["Test accuracy, best"][place]["mean"] == pytest.approx(np.mean([max(accuracies(folder)) for folder in folders]))
        assert shown["Wrong labels"][place]["mean"] == pytest.approx(np.mean(wrong))
        assert shown["Wrong labels"][place]["deviation"] == pytest.approx(np.std(wrong, ddof=1))


@pytest.mark.parametrize(("name", "label"), [("seed0-corrected", "ce, relabelled"), ("seed0-pruned", "ce, pruned (prune(below=0.4))")])
def test_changes_are_counted_class_by_class(runs: Path, name: str, label: str) -> None:
    correction = the_correction(facts_of(runs), label)
    with (runs / name / "labels/corrected.csv").open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    given, now = Counter(row["given_label"] for row in rows), Counter(row["label"] for row in rows if row["label"])
    moved = [row for row in rows if row["label"] and row["label"] != row["given_label"]]
    away, into = Counter(row["given_label"] for row in moved), Counter(row["label"] for row in moved)
    left_out = Counter(row["given_label"] for row in rows if not row["label"])
    assert sum(left_out.values()) + sum(away.values()) > 50
    for one in correction["classes"]:
        kind = one["name"]
        found = (one["before"], one["away"], one["into"], one["left_out"], one["after"])
        assert found == (given[kind], away[kind], into[kind], left_out[kind], now[kind])
    assert {one["name"] for one in correction["classes"]} == set(away) | set(into) | set(left_out)


def test_the_corrected_run_alone_says_the_same_and_that_the_first_is_not_there(copied: Path) -> None:
    both = facts_of(only(copied, "seed0", "seed0-corrected"))
    beside = the_correction(both)
    assert beside["notes"] == [] and beside["origin"] == "ce"
    shutil.rmtree(copied / "seed0")
    alone = facts_of(copied)
    assert [group["loss"] for group in alone["groups"]] == ["ce, relabelled"]
    assert the_correction(alone)["notes"] == [
        "Not among the runs of this page: seed0. Its numbers are those it had when its labels were corrected."
    ]
    assert {**the_correction(alone), "notes": []} == beside
    assert all(example["image"] for example in alone["tasks"][0]["doubt"]["examples"])


def test_first_runs_that_are_not_there_are_told_of_together(copied: Path) -> None:
    for seed in (0, 1):
        shutil.rmtree(copied / f"seed{seed}")
    (note,) = the_correction(facts_of(only(copied, "seed0-corrected", "seed1-corrected")))["notes"]
    assert note.endswith("seed0, seed1. Their numbers are those they had when their labels were corrected.")


def test_runs_that_keep_their_best_models_are_compared_by_those(tmp_path: Path) -> None:
    asked = {"epochs": 8, "validation": 0.2, "keep": "best", "device": "cpu", "optimiser": "sgd(lr=0.3, momentum=0.9)"}
    run = fit("mlp", "digits", noise="symmetric(0.4)", folder=tmp_path / "runs/seed0", **asked)
    again = retrain(run, correct(audit(run)), validation=0.2, keep="best")
    before, after = (accuracies(one.path)[one.kept_epoch - 1] for one in (run, again))
    assert all(accuracies(one.path)[-1] != accuracies(one.path)[one.kept_epoch - 1] for one in (run, again)), "else they are the last"
    found = the_correction(facts_of(tmp_path / "runs"))
    shown = {one["title"]: (one["before"]["mean"], one["after"]["mean"]) for one in found["measures"]}
    assert shown["Test accuracy of the model"] == pytest.approx((before, after))
    assert f"ce reached {100 * after:.1f} % test accuracy, " in found["text"] and f"the {100 * before:.1f} % before" in found["text"]
    ran = CliRunner().invoke(
        app, ["correct", str(run.path), "-o", str(tmp_path / "labels.csv"), "--retrain", "--run", str(tmp_path / "new")]
    )
    assert f"test accuracy {100 * before:.1f} % before, {100 * accuracies(tmp_path / 'new')[-1]:.1f} % after correction" in ran.stdout


def test_a_first_run_that_has_moved_is_recognised(copied: Path, tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    (copied / "seed0").rename(tmp_path / "elsewhere/renamed")
    only(copied, "seed0-corrected")
    page = report([tmp_path / "elsewhere", copied], tmp_path / "page.html").read_text(encoding="utf-8")
    assert "Before and after the correction" in page and "Not among the runs of this page" not in page


@pytest.mark.parametrize(
    ("change", "tone", "start"), [(-0.05, "good", "The correction gained"), (0.05, "warning", "The correction lost"), (0, "plain", "The")]
)
def test_whether_it_gained_is_said_plainly(copied: Path, change: float, tone: str, start: str) -> None:
    only(copied, "seed1", "seed1-corrected")
    after = accuracies(copied / "seed1-corrected")[-1]
    rewrite(copied / "seed1-corrected", final=after + change)
    facts = facts_of(copied)
    (sentence,) = [one for one in facts["verdict"] if one["text"].startswith("The correction")]
    shown, before = round(100 * after, 1), round(100 * (after + change), 1)
    side = {"good": "above", "warning": "below"}.get(tone)
    difference = f"{abs(shown - before):.1f} points {side} the {before:.1f} % before." if side else "as before."
    assert sentence["tone"] == tone and sentence["text"].startswith(start) and difference in sentence["text"]
    assert f"ce reached {shown:.1f} % test accuracy" in sentence["text"]
    assert "With one run each, a small difference may be chance." in sentence["text"]
    assert the_correction(facts)["text"] == sentence["text"]


def test_a_difference_within_the_spread_of_the_seeds_is_no_gain(copied: Path) -> None:
    for seed, change in ((0, 0.05), (1, -0.04)):
        rewrite(copied / f"seed{seed}-corrected", final=accuracies(copied / f"seed{seed}-corrected")[-1] + change)
    text = the_correction(facts_of(copied))["text"]
    assert text.startswith("The correction neither gained nor lost") and "within the spread of the seeds." in text


def test_a_difference_that_is_not_the_corrections_alone_is_said_to_be_so(runs: Path, tmp_path: Path) -> None:
    run = Run(runs / "seed0")
    retrain(run, correct(audit(run), "relabel(below=0.3)"), folder=tmp_path / "runs/other", loss="gce(q=0.7)", epochs=3, seed=7)
    shutil.copytree(run.path, tmp_path / "runs/seed0")
    facts = facts_of(tmp_path / "runs")
    assert [group["loss"] for group in facts["groups"]] == ["gce(q=0.7), relabelled (relabel(below=0.3)), epochs=3", "ce, epochs=12"]
    correction = the_correction(facts, "gce(q=0.7), relabelled (relabel(below=0.3)), epochs=3")
    assert "Not only the labels differ, but also epochs, loss, seed." in correction["text"]
    assert correction["origin"] == "ce, epochs=12" and correction["notes"] == []


def test_of_many_classes_those_that_changed_most_are_shown(tmp_path: Path) -> None:
    chance = torch.Generator().manual_seed(0)
    labels = torch.arange(1500) % 30
    inputs = 4 * torch.randn(30, 8, generator=chance)[labels] + torch.randn(1500, 8, generator=chance)
    run = fit("mlp", (inputs, labels), noise="symmetric(0.3)", folder=tmp_path / "first", **SETTINGS)
    again = retrain(run, correct(audit(run)), epochs=1)
    with (again.path / "labels/corrected.csv").open(encoding="utf-8", newline="") as file:
        changes = [row for row in csv.DictReader(file) if row["change"]]
    moved = Counter(name for row in changes for name in (row["given_label"], row["label"]))
    correction = the_correction(facts_of(tmp_path), "ce, relabelled, epochs=1")
    assert correction["classes_title"] == "Labels by class: the 20 of 30 that changed most, seed 0" and len(moved) == 30
    assert sorted(one["away"] + one["into"] for one in correction["classes"]) == sorted(moved.values())[-20:]


def test_a_curve_has_the_look_of_the_line_on_the_labels_as_they_were_given(runs: Path, tmp_path: Path) -> None:
    for place, name in enumerate(("seed0-corrected", "seed0")):
        shutil.copytree(runs / name, tmp_path / f"{place}")
    task = facts_of(tmp_path)["tasks"][0]
    looks = {line["name"]: line["line"]["color"] for line in task["dynamics"]["data"]}
    assert {line["line"]["color"] for line in task["curves"]["data"] if "color" in line.get("line", {})} == {looks["ce"]}
    assert looks["ce"] != looks["ce, relabelled"]


def test_doubtful_labels_are_judged_by_a_run_on_the_labels_as_they_were_given(runs: Path) -> None:
    facts = facts_of(runs)
    wrong = np.load(runs / "seed0/labels/given.npy") != np.load(runs / "seed0/labels/true.npy")
    assert f"{wrong.sum():,} are known to be wrong" in facts["tasks"][0]["doubt"]["intro"]
    assert all(example["image"] for example in facts["tasks"][0]["doubt"]["examples"])
    assert "ce, relabelled learned" not in spoken(facts), "the wrong labels it has left are not those the others had"


def test_without_true_labels_and_without_a_test_the_changes_are_shown_and_the_gain_is_not_known(tmp_path: Path) -> None:
    digits = load("digits").corrupted("symmetric(0.4)")
    run = fit("mlp", (digits.inputs.float(), digits.labels), folder=tmp_path / "run", **SETTINGS)
    again = retrain(run, correct(audit(run)))
    facts = facts_of(tmp_path)
    assert len(facts["tasks"]) == 1 and [group["loss"] for group in facts["groups"]] == ["ce", "ce, relabelled"]
    correction = the_correction(facts)
    assert correction["text"].startswith("Whether the correction gained is not known: ce was not tested before and after, with ")
    assert "wrong before" not in correction["text"]
    assert correction["measures"] == [], "a row of dashes says nothing"
    assert ": before and after" not in report([run, again], tmp_path / "page.html").read_text(encoding="utf-8")
    moved = (np.load(run.path / "labels/given.npy") != np.load(again.path / "labels/given.npy")).sum()
    assert sum(one["away"] for one in correction["classes"]) == sum(one["into"] for one in correction["classes"]) == moved > 50


@pytest.mark.parametrize("content", ["{", "[]", '{"before": {}}', '{"folder": "x", "settings": 3}'])
def test_a_damaged_note_of_the_origin_costs_only_the_comparison(copied: Path, content: str) -> None:
    (copied / "seed0-pruned/correction.json").write_text(content)
    facts = facts_of(copied)
    run = the_run(facts, copied / "seed0-pruned")
    assert "correction.json" in " ".join(run["notes"]) and run["measures"]["final"] is not None
    assert [one["label"] for one in facts["tasks"][run["task"]]["corrections"]] == []
    assert the_correction(facts)["notes"] == []


def test_a_list_of_other_changes_is_not_shown(copied: Path) -> None:
    shutil.copy(copied / "seed1-corrected/labels/corrected.csv", copied / "seed0-corrected/labels/corrected.csv")
    facts = facts_of(copied)
    assert the_correction(facts)["classes"] == []
    assert "does not list the changes" in " ".join(the_run(facts, copied / "seed0-corrected")["notes"])


def test_the_page_shows_before_and_after_in_a_browser(runs: Path, tmp_path: Path, visit: Any) -> None:
    page = report([runs / "seed0", runs / "seed0-corrected"], tmp_path / "page.html").read_text(encoding="utf-8")
    opened = visit(page)
    section = opened.page.locator("#correction")
    assert opened.page.locator("nav a[href='#correction']").is_visible()
    final = section.locator("tbody tr", has_text="Test accuracy of the model").locator("td").all_inner_texts()
    assert final == [f"{100 * accuracies(runs / name)[-1]:.1f}" for name in ("seed0", "seed0-corrected")]
    assert section.locator("thead th").all_inner_texts()[:3] == ["%", "ce", "ce, relabelled"]
    assert section.locator(".outcome").inner_text() in opened.page.locator("#verdict").inner_text()
    assert section.locator("details tbody tr:visible").count() == 10
    assert opened.page.locator("[data-view]:not([hidden]) tbody th").all_inner_texts()[-1].startswith("ce, relabelled")
    opened.page.locator("#dynamics .plot").scroll_into_view_if_needed()
    opened.page.locator("#dynamics .legendtext").first.wait_for()
    assert opened.page.locator("#dynamics .legendtext").all_text_contents() == ["ce", "ce, relabelled"]
    assert opened.complaints == []
