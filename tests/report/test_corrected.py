"""The page compares a run with the one that was retrained on its corrected labels."""

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
from gathering import gather_folder, run_in, verdict_text
from typer.testing import CliRunner

from noisewise import fit
from noisewise.audit import audit
from noisewise.cli import app
from noisewise.correct import correct, retrain
from noisewise.data import load
from noisewise.report import report
from noisewise.train import Run

SETTINGS: dict[str, Any] = {"epochs": 8, "batch_size": 64, "optimiser": "sgd(lr=0.03, momentum=0.9)", "device": "cpu"}


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
    """Change what a corrected run has recorded about its origin."""
    written = json.loads((folder / "correction.json").read_text())
    (folder / "correction.json").write_text(json.dumps({**written, "before": {**written["before"], **before}}))


def keep_only(folder: Path, *names: str) -> Path:
    """Delete all runs but these."""
    for path in folder.iterdir():
        if path.name not in names:
            shutil.rmtree(path)
    return folder


def correction_in(facts: Any, label: str = "ce, relabelled") -> Any:
    return next(correction for task in facts["tasks"] for correction in task["corrections"] if correction["label"] == label)


def test_a_retrained_run_belongs_to_the_task_of_its_origin_and_seeds_are_averaged(runs: Path) -> None:
    facts = gather_folder(runs)
    assert [(task["data"], task["noise"]) for task in facts["tasks"]] == [("digits", "symmetric(0.4)")]
    seeds = {group["loss"]: group["seeds"] for group in facts["groups"]}
    assert seeds == {"ce": [0, 1], "ce, relabelled": [0, 1], "ce, pruned (prune(below=0.4))": [0]}
    drawn = {trace["name"] for trace in facts["tasks"][0]["dynamics"]["data"] if trace.get("showlegend")}
    assert drawn == set(seeds)
    assert facts["counts"] == "5 runs: 1 loss, 1 noise, 1 model, 1 data set, 2 seeds"
    assert run_in(facts, runs / "seed0-corrected")["loss"] == "ce, relabelled"
    assert run_in(facts, runs / "seed0-corrected")["command"].startswith("noisewise.fit('mlp', data, ")


def test_the_numbers_before_and_after_are_those_of_the_two_runs(runs: Path) -> None:
    shown = {one["title"]: one for one in correction_in(gather_folder(runs))["measures"]}
    for place, name in (("before", ""), ("after", "-corrected")):
        folders = [runs / f"seed{seed}{name}" for seed in (0, 1)]
        wrong = [np.mean(np.load(folder / "labels/given.npy") != np.load(folder / "labels/true.npy")) for folder in folders]
        assert shown["Test accuracy of the model"][place]["mean"] == pytest.approx(np.mean([accuracies(folder)[-1] for folder in folders]))
        assert shown["Test accuracy, best"][place]["mean"] == pytest.approx(np.mean([max(accuracies(folder)) for folder in folders]))
        assert shown["Wrong labels"][place]["mean"] == pytest.approx(np.mean(wrong))
        assert shown["Wrong labels"][place]["deviation"] == pytest.approx(np.std(wrong, ddof=1))


@pytest.mark.parametrize(("name", "label"), [("seed0-corrected", "ce, relabelled"), ("seed0-pruned", "ce, pruned (prune(below=0.4))")])
def test_changes_are_counted_class_by_class(runs: Path, name: str, label: str) -> None:
    correction = correction_in(gather_folder(runs), label)
    with (runs / name / "labels/corrected.csv").open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    given, now = Counter(row["given_label"] for row in rows), Counter(row["label"] for row in rows if row["label"])
    moved = [row for row in rows if row["label"] and row["label"] != row["given_label"]]
    away, into = Counter(row["given_label"] for row in moved), Counter(row["label"] for row in moved)
    left_out = Counter(row["given_label"] for row in rows if not row["label"])
    assert sum(left_out.values()) + sum(away.values()) > 50
    for one in correction["classes"]:
        kind = one["name"]
        counts = (one["before"], one["away"], one["into"], one["left_out"], one["after"])
        assert counts == (given[kind], away[kind], into[kind], left_out[kind], now[kind])
    assert {one["name"] for one in correction["classes"]} == set(away) | set(into) | set(left_out)


def test_a_corrected_run_without_its_origin_has_the_same_comparison_and_a_note(copied: Path) -> None:
    both = gather_folder(keep_only(copied, "seed0", "seed0-corrected"))
    beside = correction_in(both)
    assert beside["notes"] == [] and beside["origin"] == "ce"
    shutil.rmtree(copied / "seed0")
    alone = gather_folder(copied)
    assert [group["loss"] for group in alone["groups"]] == ["ce, relabelled"]
    (note,) = correction_in(alone)["notes"]
    assert "seed0" in note
    assert {**correction_in(alone), "notes": []} == beside
    assert all(example["image"] for example in alone["tasks"][0]["doubt"]["examples"])


def test_missing_origins_are_named_in_one_note(copied: Path) -> None:
    for seed in (0, 1):
        shutil.rmtree(copied / f"seed{seed}")
    (note,) = correction_in(gather_folder(keep_only(copied, "seed0-corrected", "seed1-corrected")))["notes"]
    assert "seed0, seed1" in note


def test_runs_that_keep_their_best_model_are_compared_by_it(tmp_path: Path) -> None:
    settings = {"epochs": 8, "validation": 0.2, "keep": "best", "device": "cpu", "optimiser": "sgd(lr=0.3, momentum=0.9)"}
    run = fit("mlp", "digits", noise="symmetric(0.4)", folder=tmp_path / "runs/seed0", **settings)
    again = retrain(run, correct(audit(run)), validation=0.2, keep="best")
    before, after = (accuracies(one.path)[one.kept_epoch - 1] for one in (run, again))
    assert all(accuracies(one.path)[-1] != accuracies(one.path)[one.kept_epoch - 1] for one in (run, again)), "else they are the last"
    correction = correction_in(gather_folder(tmp_path / "runs"))
    shown = {one["title"]: (one["before"]["mean"], one["after"]["mean"]) for one in correction["measures"]}
    assert shown["Test accuracy of the model"] == pytest.approx((before, after))
    assert all(f"{100 * accuracy:.1f} %" in correction["text"] for accuracy in (before, after))
    ran = CliRunner().invoke(
        app, ["correct", str(run.path), "-o", str(tmp_path / "labels.csv"), "--retrain", "--run", str(tmp_path / "new")]
    )
    assert 0 < ran.stdout.find(f"{100 * before:.1f} %") < ran.stdout.rfind(f"{100 * accuracies(tmp_path / 'new')[-1]:.1f} %")


def test_an_origin_that_was_moved_is_recognised(copied: Path, tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    (copied / "seed0").rename(tmp_path / "elsewhere/renamed")
    keep_only(copied, "seed0-corrected")
    page = report([tmp_path / "elsewhere", copied], tmp_path / "page.html").read_text(encoding="utf-8")
    assert 'id="correction"' in page and ">renamed<" not in page and "seed0." not in page


@pytest.mark.parametrize(("change", "tone"), [(-0.05, "good"), (0.05, "warning"), (0, "plain")])
def test_the_verdict_states_whether_accuracy_rose(copied: Path, change: float, tone: str) -> None:
    keep_only(copied, "seed1", "seed1-corrected")
    after = accuracies(copied / "seed1-corrected")[-1]
    rewrite(copied / "seed1-corrected", final=after + change)
    facts = gather_folder(copied)
    (sentence,) = [sentence for sentence in facts["verdict"] if sentence["text"] == correction_in(facts)["text"]]
    shown, before = round(100 * after, 1), round(100 * (after + change), 1)
    assert sentence["tone"] == tone and f"{shown:.1f} %" in sentence["text"]
    if change:
        side = "above" if change < 0 else "below"
        assert f"{abs(shown - before):.1f} points {side}" in sentence["text"] and f"{before:.1f} %" in sentence["text"]


def test_a_difference_within_the_spread_of_the_seeds_is_neither_gain_nor_loss(copied: Path) -> None:
    for seed, change in ((0, 0.05), (1, -0.04)):
        rewrite(copied / f"seed{seed}-corrected", final=accuracies(copied / f"seed{seed}-corrected")[-1] + change)
    facts = gather_folder(copied)
    (sentence,) = [sentence for sentence in facts["verdict"] if sentence["text"] == correction_in(facts)["text"]]
    assert sentence["tone"] == "plain" and "spread of the seeds" in sentence["text"]


def test_other_differences_between_the_runs_are_named(runs: Path, tmp_path: Path) -> None:
    run = Run(runs / "seed0")
    retrain(run, correct(audit(run), "relabel(below=0.3)"), folder=tmp_path / "runs/other", loss="gce(q=0.7)", epochs=3, seed=7)
    shutil.copytree(run.path, tmp_path / "runs/seed0")
    facts = gather_folder(tmp_path / "runs")
    assert [group["loss"] for group in facts["groups"]] == ["gce(q=0.7), relabelled (relabel(below=0.3)), epochs=3", "ce, epochs=8"]
    correction = correction_in(facts, "gce(q=0.7), relabelled (relabel(below=0.3)), epochs=3")
    assert "epochs, loss, seed" in correction["text"]
    assert correction["origin"] == "ce, epochs=8" and correction["notes"] == []


def test_the_classes_that_changed_most_are_shown(tmp_path: Path) -> None:
    chance = torch.Generator().manual_seed(0)
    labels = torch.arange(1500) % 30
    inputs = 4 * torch.randn(30, 8, generator=chance)[labels] + torch.randn(1500, 8, generator=chance)
    run = fit("mlp", (inputs, labels), noise="symmetric(0.3)", folder=tmp_path / "first", **SETTINGS)
    again = retrain(run, correct(audit(run)), epochs=1)
    with (again.path / "labels/corrected.csv").open(encoding="utf-8", newline="") as file:
        changes = [row for row in csv.DictReader(file) if row["change"]]
    moved = Counter(name for row in changes for name in (row["given_label"], row["label"]))
    correction = correction_in(gather_folder(tmp_path), "ce, relabelled, epochs=1")
    assert "20 of 30" in correction["classes_title"] and len(moved) == 30
    assert sorted(one["away"] + one["into"] for one in correction["classes"]) == sorted(moved.values())[-20:]


def test_the_curve_of_a_loss_has_the_colour_of_its_uncorrected_run(runs: Path, tmp_path: Path) -> None:
    for place, name in enumerate(("seed0-corrected", "seed0")):
        shutil.copytree(runs / name, tmp_path / f"{place}")
    task = gather_folder(tmp_path)["tasks"][0]
    looks = {line["name"]: line["line"]["color"] for line in task["dynamics"]["data"]}
    assert {line["line"]["color"] for line in task["curves"]["data"] if "color" in line.get("line", {})} == {looks["ce"]}
    assert looks["ce"] != looks["ce, relabelled"]


def test_doubtful_labels_come_from_an_uncorrected_run(runs: Path) -> None:
    facts = gather_folder(runs)
    wrong = np.load(runs / "seed0/labels/given.npy") != np.load(runs / "seed0/labels/true.npy")
    assert f"{wrong.sum():,} " in facts["tasks"][0]["doubt"]["intro"]
    assert all(example["image"] for example in facts["tasks"][0]["doubt"]["examples"])
    assert "ce, relabelled learned" not in verdict_text(facts), "the wrong labels it has left are not those the others had"


def test_without_true_labels_and_a_test_set_only_the_changes_are_shown(tmp_path: Path) -> None:
    digits = load("digits").corrupted("symmetric(0.4)")
    run = fit("mlp", (digits.inputs.float(), digits.labels), folder=tmp_path / "run", **SETTINGS)
    again = retrain(run, correct(audit(run)))
    facts = gather_folder(tmp_path)
    assert len(facts["tasks"]) == 1 and [group["loss"] for group in facts["groups"]] == ["ce", "ce, relabelled"]
    correction = correction_in(facts)
    assert "not known" in correction["text"] and "%" not in correction["text"]
    assert correction["measures"] == [], "a row of dashes has no information"
    assert ": before and after" not in report([run, again], tmp_path / "page.html").read_text(encoding="utf-8")
    moved = (np.load(run.path / "labels/given.npy") != np.load(again.path / "labels/given.npy")).sum()
    assert sum(one["away"] for one in correction["classes"]) == sum(one["into"] for one in correction["classes"]) == moved > 50


@pytest.mark.parametrize("content", ["{", "[]", '{"before": {}}', '{"folder": "x", "settings": 3}'])
def test_a_damaged_correction_file_removes_only_the_comparison(copied: Path, content: str) -> None:
    (copied / "seed0-pruned/correction.json").write_text(content)
    facts = gather_folder(copied)
    run = run_in(facts, copied / "seed0-pruned")
    assert "correction.json" in " ".join(run["notes"]) and run["measures"]["final"] is not None
    assert [one["label"] for one in facts["tasks"][run["task"]]["corrections"]] == []
    assert correction_in(facts)["notes"] == []


def test_a_list_of_changes_that_does_not_fit_is_not_shown(copied: Path) -> None:
    shutil.copy(copied / "seed1-corrected/labels/corrected.csv", copied / "seed0-corrected/labels/corrected.csv")
    facts = gather_folder(copied)
    assert correction_in(facts)["classes"] == []
    assert "corrected.csv" in " ".join(run_in(facts, copied / "seed0-corrected")["notes"])


def test_the_browser_shows_numbers_before_and_after(runs: Path, tmp_path: Path, visit: Any) -> None:
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
