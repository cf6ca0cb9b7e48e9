"""What the page says is what the runs hold; a run that is broken says so and costs the others nothing."""

import base64
import io
import json
import math
import os
import shlex
import shutil
import statistics
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import plotly.graph_objects as go
import pytest
import torch
from PIL import Image
from sklearn.datasets import load_digits
from sklearn.metrics import confusion_matrix
from torch.nn import functional

from costs import with_peak
from noisewise import Recorder, compare, fit
from noisewise.audit import audit
from noisewise.correct import correct, retrain
from noisewise.data import Dataset, features, load, read
from noisewise.errors import InputError
from noisewise.report import _report, report
from noisewise.report._render import _unfinished
from noisewise.report._report import gather
from noisewise.report.sections.doubt import _matrices
from noisewise.spec import in_short
from noisewise.train import Run

LOSSES = ["ce", "mae", "nce"]
HOSTILE = "<script>alert(1)</script>"


@pytest.fixture(scope="module")
def runs(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("compared") / "runs"
    shared = {"loss": LOSSES, "seed": [0, 1], "epochs": 4, "folder": folder, "jobs": 2, "device": "cpu"}
    compare("linear", "digits", noise=["symmetric(0.4)", "none"], **shared)
    return folder


@pytest.fixture(scope="module")
def facts(runs: Path):
    return facts_of(runs)


@pytest.fixture
def copied(runs: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(runs, tmp_path / "runs"))


def facts_of(folder: Path, **options):
    return gather(sorted(one.parent for one in folder.rglob("settings.json")), title="t", **options)


def the_run(facts, folder: Path):
    return next(run for run in facts["runs"] if run["folder"] == str(folder))


def spoken(facts) -> str:
    return " ".join(sentence["text"] for sentence in facts["verdict"])


def test_measures_are_those_of_the_metrics_file(facts) -> None:
    assert len(facts["runs"]) == 12 and len(facts["tasks"]) == 2 and len(facts["groups"]) == 6
    for run in facts["runs"]:
        lines = [json.loads(line) for line in (Path(run["folder"]) / "metrics.jsonl").read_text().splitlines()]
        accuracies = [line["test_accuracy"] for line in lines]
        assert (run["measures"]["final"], run["measures"]["best"]) == (accuracies[-1], max(accuracies))
        given, true = (np.load(Path(run["folder"]) / f"labels/{name}.npy") for name in ("given", "true"))
        predicted = np.load(Path(run["folder"]) / "record/clean/predictions-00004.npy")
        wrong = given != true
        assert run["measures"]["clean_subset"] == pytest.approx((predicted == given)[~wrong].mean())
        if wrong.any():
            assert run["measures"]["noisy_subset"] == pytest.approx((predicted == given)[wrong].mean())


def test_averages_are_over_the_seeds_of_one_loss_and_the_best_mean_wins(facts) -> None:
    for group in facts["groups"]:
        finals = [run["measures"]["final"] for run in facts["runs"] if (run["task"], run["loss"]) == (group["task"], group["loss"])]
        assert group["seeds"] == [0, 1]
        assert group["measures"]["final"]["mean"] == pytest.approx(statistics.fmean(finals))
        assert group["measures"]["final"]["deviation"] == pytest.approx(statistics.stdev(finals))
    for task in (0, 1):
        same = [group for group in facts["groups"] if group["task"] == task]
        best = max(same, key=lambda group: group["measures"]["final"]["mean"])
        assert [group["loss"] for group in same if group["winner"]] == [best["loss"]]
        assert any(
            best["loss"] in sentence["text"] and "won" in sentence["text"] for sentence in facts["verdict"] if sentence["task"] == task
        )


def test_of_runs_that_are_level_none_is_best(tmp_path: Path) -> None:
    run = fit("linear", "digits", loss="ce", epochs=1, folder=tmp_path / "ce", device="cpu")
    again = retrain(run, correct(audit(run), decisions={}), folder=tmp_path / "again")
    facts = gather([run.path, again.path], title="t")
    assert "are level" in facts["verdict"][0]["text"]
    assert [group["winner"] for group in facts["groups"]] == [False, False]


def test_runs_that_differ_in_more_than_the_seed_are_not_averaged(tmp_path: Path) -> None:
    for rate in (0.1, 0.01):
        fit("linear", "digits", epochs=1, optimiser=f"sgd(lr={rate})", folder=tmp_path / str(rate), device="cpu")
    assert len(facts_of(tmp_path)["groups"]) == 2


def test_data_of_one_name_that_are_not_the_same_are_neither_compared_nor_averaged(tmp_path: Path) -> None:
    inputs, labels = torch.randn(60, 4, generator=torch.Generator().manual_seed(0)), torch.arange(60) % 3
    asked = {"epochs": 1, "device": "cpu", "noise": "symmetric(0.2)"}
    for seed in range(2):  # the seed decides the noise and the share that is held out
        fit("linear", (inputs, labels), test=(inputs, labels), validation=0.2, seed=seed, folder=tmp_path / f"a{seed}", **asked)
    fit("linear", (inputs, labels), test=(-inputs, labels), seed=2, folder=tmp_path / "b", **asked)
    facts = facts_of(tmp_path)
    assert [task["data"] for task in facts["tasks"]] == ["arrays", "arrays (2)"] and "2 data sets" in facts["counts"]
    assert [(group["task"], group["seeds"]) for group in facts["groups"]] == [(0, [0, 1]), (1, [2])]
    assert not any("won" in sentence["text"] for sentence in facts["verdict"])


def test_data_that_may_be_the_same_are_not_told_apart(tmp_path: Path) -> None:
    """With a test set or without, a share held out or none, trained again or not."""
    inputs, labels = torch.randn(60, 4, generator=torch.Generator().manual_seed(0)), torch.arange(60) % 3
    asked = {"epochs": 2, "device": "cpu"}
    tested = fit("linear", (inputs, labels), test=(inputs, labels), folder=tmp_path / "tested", **asked)
    fit("linear", (inputs, labels), validation=0.2, folder=tmp_path / "held out", **asked)
    worst = audit(tested)
    pruned = retrain(tested, correct(worst, "prune", decisions={int(worst.index[0]): True}), folder=tmp_path / "pruned")
    twice = audit(pruned)
    retrain(pruned, correct(twice, "prune", decisions={int(twice.index[0]): True}), data=(inputs, labels), folder=tmp_path / "twice")
    facts = facts_of(tmp_path)
    assert [task["data"] for task in facts["tasks"]] == ["arrays"] and "1 data set," in facts["counts"]
    provenance = json.loads((tmp_path / "tested/provenance.json").read_text())
    (tmp_path / "tested/provenance.json").write_text(json.dumps({name: told for name, told in provenance.items() if name != "data"}))
    assert [task["data"] for task in facts_of(tmp_path)["tasks"]] == ["arrays"], "a run that does not say"


def test_a_correction_of_the_second_of_two_data_sets_stands_beside_it(tmp_path: Path) -> None:
    for name, number in (("first", 40), ("second", 60)):
        run = fit("linear", (torch.randn(number, 4), torch.arange(number) % 3), epochs=2, folder=tmp_path / name, device="cpu")
    retrain(run, correct(audit(run), decisions={}), folder=tmp_path / "again")
    facts = facts_of(tmp_path)
    assert {Path(one["folder"]).name: one["data"] for one in facts["runs"]} == {
        "first": "arrays",
        "second": "arrays (2)",
        "again": "arrays (2)",
    }


def test_a_page_about_nothing_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"'runs' parameter of report must be at least one run or folder of runs"):
        report([], tmp_path / "report.html")


def test_recorded_loops_over_different_numbers_of_examples_are_told_apart(tmp_path: Path) -> None:
    for number in (30, 40):
        recorder = Recorder(tmp_path / str(number), torch.arange(number) % 2, loss="ce")
        recorder.log(torch.arange(number), torch.zeros(number, 2))
        recorder.end_epoch(test_accuracy=0.5)
        recorder.finish()
    assert [task["data"] for task in facts_of(tmp_path)["tasks"]] == ["own", "own (2)"]


def test_runs_go_by_one_name_in_the_tables_and_charts_and_an_average_says_what_it_left_out(tmp_path: Path) -> None:
    for rate, seed in ((0.1, 0), (0.1, 1), (0.01, 0)):
        fit("linear", "digits", epochs=2, optimiser=f"sgd(lr={rate})", seed=seed, folder=tmp_path / f"{rate}-{seed}", device="cpu")
    cut, untrained = tmp_path / "0.1-1", tmp_path / "0.01-0"
    (cut / "status.json").write_text(json.dumps({"state": "interrupted", "reason": None, "epoch": 1, "step": 12}))
    (cut / "metrics.jsonl").write_text((cut / "metrics.jsonl").read_text().splitlines()[0] + "\n")
    (untrained / "metrics.jsonl").unlink()
    facts = facts_of(tmp_path)
    slow, fast = "ce, optimiser=sgd(lr=0.01)", "ce, optimiser=sgd(lr=0.1)"
    assert [run["loss"] for run in facts["runs"]] == [group["loss"] for group in facts["groups"] for _ in group["seeds"]] + [fast]
    shown = facts["tasks"][0]["dynamics"]["data"]
    assert {line["name"] for line in shown} == {fast}, "the line has the table's name, though the other run has no line"
    assert [list(line["x"]) for line in shown if line["xaxis"] == "x"] == [[12, 24]], "one that was cut off does not cut the line"
    assert [_unfinished(group, facts["runs"]) for group in facts["groups"]] == ["", "1 of 2 runs not finished"]
    assert facts["groups"][0]["loss"] == slow


def test_a_loss_looks_the_same_in_the_curves_and_the_dynamics(tmp_path: Path) -> None:
    for place, loss in enumerate(("nce", "mae", "ce")):  # the first has no curve
        fit("linear", "digits", loss=loss, epochs=1, folder=tmp_path / f"{place}-{loss}", device="cpu")
    task = facts_of(tmp_path)["tasks"][0]
    looks = {line["name"]: (line["line"]["color"], line["line"]["dash"]) for line in task["dynamics"]["data"]}
    curves = {
        line["name"].partition(":")[0]: (line["line"]["color"], line["line"]["dash"])
        for line in task["curves"]["data"]
        if "dash" in line.get("line", {})
    }
    assert curves == {loss: looks[loss] for loss in ("ce", "mae")} and len(set(looks.values())) == 3


def test_every_figure_is_one_plotly_accepts(facts) -> None:
    for task in facts["tasks"]:
        for figure in (task["curves"], task["dynamics"]):
            go.Figure(figure)
        assert "nce" in task["curves_note"] and "ce: focus" in json.dumps(task["curves"], default=list)


def test_the_film_counts_every_example_in_every_frame(facts) -> None:
    for task in facts["tasks"]:
        assert [film["label"] for film in task["films"]] == ["ce, seed 0", "mae, seed 0", "nce, seed 0"]
        for film in task["films"]:
            assert film["epochs"] == [1, 2, 3, 4]
            total = np.sum([np.sum(counts, axis=1) for counts in film["counts"].values()], axis=0)
            np.testing.assert_array_equal(total, 1437)
            assert (film["emphasis"] is None) == film["label"].startswith("nce")


def test_doubtful_examples_are_shown_as_the_pictures_the_run_saw(facts) -> None:
    shown = facts["tasks"][1]["doubt"]
    assert shown["note"] is None and len(shown["examples"]) == 60
    pictures = load_digits().images
    for example in shown["examples"][:10]:
        pixels = np.asarray(Image.open(io.BytesIO(base64.b64decode(example["image"].partition(",")[2]))), dtype=float)
        original = pictures[int(example["id"].removeprefix("example "))]
        assert np.corrcoef(pixels.ravel(), original.ravel())[0, 1] > 0.999
        assert len(example["margins"]) == 4
    wrong = [example["given"] != example["true"] for example in shown["examples"]]
    assert np.mean(wrong) > 0.8, "with 40 % noise the most doubtful labels are mostly wrong"
    estimated, true = shown["matrices"]
    assert (estimated["title"], true["title"]) == ("Estimated", "True")
    data = load("digits").corrupted("symmetric(0.4)")
    np.testing.assert_array_equal(true["counts"], confusion_matrix(data.labels, data.true_labels))
    np.testing.assert_allclose(np.sum(true["shares"], axis=1), 1)


def test_many_films_have_fewer_frames_and_a_loss_alone_is_no_winner(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = fit("linear", (torch.randn(40, 3), torch.arange(40) % 2), epochs=15, folder=tmp_path / "run", validation=0.2, device="cpu")
    assert [len(film["epochs"]) for film in gather([run.path], title="t")["tasks"][0]["films"]] == [15]
    monkeypatch.setattr(_report, "_ALL_FRAMES", 12)
    facts = gather([run.path], title="t")
    (film,) = facts["tasks"][0]["films"]
    assert len(film["epochs"]) == 12 and (film["epochs"][0], film["epochs"][-1]) == (1, 15)
    assert [group["winner"] for group in facts["groups"]] == [False]


def test_a_heat_map_of_some_classes_says_of_how_many(tmp_path: Path) -> None:
    inputs, labels = torch.randn(300, 4), torch.arange(300) % 30
    data = Dataset(inputs, labels, tuple(f"class {place}" for place in range(30)), name="thirty")
    run = fit("linear", data, noise="symmetric(0.4)", epochs=1, folder=tmp_path / "run", device="cpu")
    shown = gather([run.path], title="t", data=data)["tasks"][0]["doubt"]["matrices"]
    assert [len(matrix["names"]) for matrix in shown] == [20, 20]
    assert [matrix["title"] for matrix in shown] == [
        f"{title}, the 20 of 30 classes that are confused most" for title in ("Estimated", "True")
    ]


def test_a_heat_map_of_some_classes_shows_what_a_table_of_all_has(tmp_path: Path) -> None:
    number, random = 60, np.random.default_rng(0)
    given, true = random.integers(number, size=2000), random.integers(-1, number, size=2000)
    record = Recorder(tmp_path / "run", given, loss="ce", classes=list(map(str, range(number))), true_labels=np.where(true < 0, 0, true))
    predicted = torch.from_numpy(np.where(random.random(2000) < 0.3, np.roll(given, 1), given))
    for _ in range(20):
        record.log(torch.arange(2000), 20 * functional.one_hot(predicted, number).float())
        record.end_epoch()
    record.finish()
    np.save(tmp_path / "run/labels/true.npy", true)
    estimated = confusion_matrix(given, audit(tmp_path / "run").best, labels=range(number))
    known = confusion_matrix(given[true >= 0], true[true >= 0], labels=range(number))
    moved = sum(table.sum(0) + table.sum(1) - 2 * table.diagonal() for table in (estimated, known))
    most = np.sort(np.argsort(-moved, kind="stable")[:20])
    shown = gather([tmp_path / "run"], title="t")["tasks"][0]["doubt"]["matrices"]
    assert np.count_nonzero(estimated - np.diag(estimated.diagonal())) > 100
    for matrix, table in zip(shown, (estimated, known), strict=True):
        assert matrix["names"] == list(map(str, most))
        np.testing.assert_array_equal(matrix["counts"], table[np.ix_(most, most)])
        np.testing.assert_array_equal(matrix["shares"], (table / np.maximum(table.sum(1, keepdims=True), 1))[np.ix_(most, most)])


def test_a_heat_map_of_some_classes_makes_no_table_of_all(tmp_path: Path) -> None:
    number = 3000
    record = Recorder(tmp_path / "run", torch.arange(number), loss="ce", classes=list(map(str, range(number))))
    record.log(torch.arange(8), torch.randn(8, number))
    record.end_epoch()
    record.finish()
    reading = _report._read(tmp_path / "run")
    assert reading.audit is not None
    matrices, peak = with_peak(lambda: _matrices(reading, reading.audit))
    assert len(matrices[0]["names"]) == 20
    assert peak < number**2


def test_what_can_be_done_about_doubtful_labels_is_a_command_that_does_it(facts, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    shown = next(task["doubt"] for task in facts["tasks"] if task["noise"] == "symmetric(0.4)")
    for step in shown["steps"]:
        subprocess.run([sys.executable, "-m", *shlex.split(step["command"])], check=True, capture_output=True)
    assert {file.name for file in tmp_path.iterdir()} == {"issues.csv", "review.html"}


def test_other_data_than_the_run_saw_are_not_shown(runs: Path) -> None:
    other = Dataset(torch.zeros(2000, 1, 8, 8), torch.zeros(2000, dtype=torch.long), tuple("0123456789"), name="other")
    shown = gather([next(runs.glob("none-ce-seed0"))], title="t", data=other)["tasks"][0]["doubt"]
    assert "not those of the run" in shown["note"] and all(example["image"] is None for example in shown["examples"])


def test_an_unfinished_run_says_so_and_is_left_out_of_averages(copied: Path) -> None:
    folder = copied / "symmetric_0.4-ce-seed1"
    (folder / "status.json").write_text(json.dumps({"state": "interrupted", "reason": None, "epoch": 4, "step": 48}))
    facts = facts_of(copied)
    assert "interrupted after 4 epochs" in " ".join(the_run(facts, folder)["notes"])
    assert "1 of 12 runs is not finished; averages leave it out where others finished." in spoken(facts)
    group = next(one for one in facts["groups"] if one["loss"] == "ce" and facts["tasks"][one["task"]]["noise"] == "symmetric(0.4)")
    assert group["seeds"] == [0]


def test_a_loss_that_alone_was_trained_to_its_end_is_no_winner(copied: Path) -> None:
    for folder in (one for one in copied.glob("none-*") if not one.name.startswith("none-ce-")):
        (folder / "status.json").write_text(json.dumps({"state": "interrupted", "reason": None, "epoch": 4, "step": 48}))
    facts = facts_of(copied)
    (task,) = (place for place, one in enumerate(facts["tasks"]) if one["noise"] == "none")
    assert not any(group["winner"] for group in facts["groups"] if group["task"] == task)
    assert "digits, clean labels, ce reached" in spoken(facts) and "of 2 comparisons" not in spoken(facts)


def test_a_run_without_a_finished_epoch_is_listed(copied: Path) -> None:
    folder = copied / "none-ce-seed0"
    for name in ("metrics.jsonl", "record", "status.json"):
        shutil.rmtree(folder / name) if (folder / name).is_dir() else (folder / name).unlink()
    (folder / "status.json").write_text(json.dumps({"state": "running", "reason": None, "epoch": 0, "step": 0}))
    facts = facts_of(copied)
    assert the_run(facts, folder)["measures"]["final"] is None
    assert "still training" in " ".join(the_run(facts, folder)["notes"])


def test_a_run_that_has_lost_its_status_shows_what_it_has(copied: Path) -> None:
    folder = copied / "none-ce-seed0"
    before = the_run(facts_of(copied), folder)["measures"]
    (folder / "status.json").unlink()
    facts = facts_of(copied)
    run = the_run(facts, folder)
    assert not facts["broken"] and (run["state"], run["measures"]) == ("unknown", before)
    assert "status.json" in " ".join(run["notes"])


def test_a_run_that_failed_is_in_the_verdict(copied: Path) -> None:
    folder = copied / "none-mae-seed0"
    reason = "the loss mae was not finite at step 7"
    (folder / "status.json").write_text(json.dumps({"state": "failed", "reason": reason, "epoch": 1, "step": 7}))
    assert f"mae did not finish: Failed after 1 epoch: {reason}" in spoken(facts_of(copied))


def test_a_damaged_record_costs_only_what_is_read_off_it(copied: Path) -> None:
    folder = copied / "symmetric_0.4-mae-seed0"
    for kind in ("clean", "training"):
        path = folder / f"record/{kind}/predictions-00002.npy"
        path.write_bytes(path.read_bytes()[:100])
    facts = facts_of(copied)
    run = the_run(facts, folder)
    assert run["measures"]["final"] is not None and run["measures"]["clean_subset"] is None
    assert "predictions-00002.npy" in " ".join(run["notes"])
    assert all(task["dynamics"] is not None for task in facts["tasks"])


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        ('{"format": 99, "data": "digits"}', "format 99"),
        ('{"format": 1}', "have no data"),
    ],
)
def test_a_run_that_cannot_be_read_is_named_with_the_reason(copied: Path, content: str, reason: str) -> None:
    folder = copied / "none-ce-seed0"
    (folder / "settings.json").write_text(content)
    facts = facts_of(copied)
    assert [one["folder"] for one in facts["broken"]] == [str(folder)]
    assert reason in facts["broken"][0]["reason"]
    assert len(facts["runs"]) == 11 and "1 folder could not be read" in spoken(facts)


def test_a_run_of_an_older_version_shows_what_it_has(copied: Path) -> None:
    folder = copied / "none-ce-seed0"
    settings = json.loads((folder / "settings.json").read_text())
    del settings["clean_pass"], settings["seed"]
    (folder / "settings.json").write_text(json.dumps(settings | {"a_setting_of_old": 1, "loss": "a_loss_of_old(q=1)"}))
    lines = [json.dumps({"epoch": epoch, "step": epoch, "test_accuracy": 0.5}) for epoch in (1, 2)]
    (folder / "metrics.jsonl").write_text("\n".join(lines))
    (folder / "provenance.json").unlink()
    facts = facts_of(copied)
    run = the_run(facts, folder)
    assert run["measures"]["final"] == 0.5 and run["loss"] == "a_loss_of_old(q=1), a_setting_of_old=1"
    assert "a_loss_of_old" in " ".join(run["notes"])


def test_a_run_that_keeps_its_best_model_says_which(tmp_path: Path) -> None:
    asked = {"epochs": 4, "validation": 0.2, "noise": "symmetric(0.4)", "device": "cpu"}
    kept = fit("mlp", "digits", keep="best", folder=tmp_path / "kept", **asked)
    last = fit("mlp", "digits", folder=tmp_path / "last", **asked)
    notes = [gather([run.path], title="t")["runs"][0]["notes"] for run in (kept, last)]
    assert notes == [
        [f"The model is that of epoch {kept.kept_epoch}, the best on the validation share, and accuracies are those of this model."],
        [],
    ]


def test_a_run_from_before_there_was_a_choice_of_models_is_a_seed_of_others(tmp_path: Path) -> None:
    runs = [fit("linear", "digits", epochs=1, seed=seed, folder=tmp_path / str(seed), device="cpu") for seed in (0, 1)]
    settings = json.loads((tmp_path / "0/settings.json").read_text())
    del settings["keep"]
    (tmp_path / "0/settings.json").write_text(json.dumps(settings))
    assert [(one["loss"], one["seeds"]) for one in gather([run.path for run in runs], title="t")["groups"]] == [("ce", [0, 1])]


def test_only_what_some_run_has_is_a_column_and_own_labels_are_not_called_clean(facts, tmp_path: Path) -> None:
    told_apart = ["final", "best", "clean_subset", "noisy_subset", "hybrid", "snr", "alpha"]
    assert [measure["key"] for measure in facts["measures"]] == told_apart
    assert {task["name"] for task in facts["tasks"]} == {"digits, clean labels", "digits, symmetric(0.4) noise"}
    inputs = torch.randn(100, 5, generator=torch.Generator().manual_seed(0))
    run = fit("linear", (inputs, inputs[:, 0] > 0), epochs=2, validation=0.2, folder=tmp_path / "run", device="cpu")
    own = gather([run.path], title="t")
    assert [measure["key"] for measure in own["measures"]] == ["held_out", "fitting", "alpha"]
    (line,) = own["runs"]
    assert line["measures"]["held_out"] == run.metrics[-1]["validation_accuracy"]
    record = run.dynamics.record
    learned = (record.predictions(2, "clean") == record.given).mean()
    assert line["measures"]["fitting"] == pytest.approx(learned)
    assert own["tasks"][0]["name"] == "arrays, labels as given" and "clean" not in spoken(own)


def test_without_true_labels_the_page_says_so_and_shows_the_rest(tmp_path: Path) -> None:
    torch.manual_seed(0)
    inputs = torch.randn(300, 5)
    labels = (inputs[:, 0] > 0).long()
    run = fit("mlp", (inputs, labels), test=(inputs, labels), epochs=3, folder=tmp_path / "run", device="cpu")
    facts = gather([run.path], title="t", data=(inputs, labels))
    assert "not known" in " ".join(facts["runs"][0]["notes"])
    assert facts["runs"][0]["measures"]["noisy_subset"] is None and facts["runs"][0]["measures"]["final"] is not None
    assert set(facts["tasks"][0]["films"][0]["counts"]) == {"all"}
    assert [matrix["title"] for matrix in facts["tasks"][0]["doubt"]["matrices"]] == ["Estimated"]
    assert facts["tasks"][0]["doubt"]["examples"][0]["fields"][0][0] == "features"
    values = facts["tasks"][0]["doubt"]["examples"][0]["fields"][0][1]
    assert values in run.report(tmp_path / "page.html").read_text(), "fit(…).report() shows the arrays it was given"


def test_the_values_of_a_table_stand_under_the_names_of_its_columns(tmp_path: Path) -> None:
    rows = [f"{row % 2 + row / 100},{row},{'dog' if row % 2 else 'cat'}" for row in range(40)]
    (tmp_path / "pets.csv").write_text("\n".join(["width,day,label", *rows]))
    pets = read(tmp_path / "pets.csv")
    run = fit("linear", pets, epochs=2, folder=tmp_path / "run", device="cpu")
    first, *_ = gather([run.path], title="t")["tasks"][0]["doubt"]["examples"]
    row = int(first["id"].removeprefix("example "))
    assert first["fields"] == [["width", f"{pets.inputs[row, 0]:.4g}"], ["day", str(row)]]
    wide = replace(pets, inputs=pets.inputs[:, :1].expand(-1, 30), features=tuple(f"column {place}" for place in range(30)))
    assert features(wide, 0)[-2:] == [["column 19", "0"], ["…", ""]]


def test_runs_are_reported_on_as_objects_with_the_data_all_of_them_hold(tmp_path: Path) -> None:
    def trained(name: str, data) -> Run:
        return fit("linear", data, epochs=2, noise="symmetric(0.4)", folder=tmp_path / name, device="cpu")

    def page(given) -> str:
        return report(given, tmp_path / "page.html").read_text()

    inputs = torch.randn(100, 3, generator=torch.Generator().manual_seed(0))
    ours, others = (inputs, (inputs[:, 0] > 0).long()), (inputs, (inputs[:, 1] > 0).long())
    run, beside, another = trained("run", ours), trained("beside", ours), trained("another", others)
    missing = "The examples themselves are not shown"
    assert page(run) == page([run]) == run.report(tmp_path / "page.html").read_text()
    assert missing not in page(run) + page([run, beside]) and missing in page(run.path)
    assert page([run, another]) == page([run.path, another.path]), "neither run's data are taken for the other's"
    assert missing in page([run, beside.path])


def test_hostile_names_stay_text(tmp_path: Path) -> None:
    inputs = torch.randn(60, 3)
    data = Dataset(inputs, torch.arange(60) % 2, (HOSTILE, "b"), name=HOSTILE)
    run = fit("linear", data, epochs=1, folder=tmp_path / "run", device="cpu")
    page = run.report(tmp_path / "page.html").read_text()
    assert HOSTILE not in page and "&lt;script&gt;alert(1)&lt;/script&gt;" in page


def test_a_run_can_be_repeated_by_the_command_it_shows(facts, tmp_path: Path) -> None:
    shown = next(run for run in facts["runs"] if run["loss"] == "mae" and run["noise"] != "none" and run["seed"] == 1)
    words = shlex.split(shown["command"])
    words[words.index("--output") + 1] = str(tmp_path / "again")
    one_thread = {**os.environ, "OMP_NUM_THREADS": "1"}  # as each run of a comparison has; more add up in another order
    subprocess.run([sys.executable, "-m", *words], check=True, capture_output=True, env=one_thread)
    again, before = Run(tmp_path / "again"), Run(shown["folder"])
    assert again.settings == before.settings
    for name, value in before.model().state_dict().items():
        assert torch.equal(again.model().state_dict()[name], value), name


def test_a_noise_too_long_to_read_is_told_in_short_with_the_file_that_has_it(tmp_path: Path) -> None:
    number = 60
    file, data = tmp_path / "noise.npy", (torch.randn(240, 3), torch.arange(240) % number)
    np.save(file, np.random.default_rng(0).dirichlet(np.ones(number), number))
    run = fit("linear", data, noise=f"matrix({str(file)!r})", epochs=1, folder=tmp_path / "run", device="cpu")
    shown = facts_of(tmp_path)["runs"][0]
    assert len(run.settings.noise) > 50_000 and len(json.dumps(run.provenance)) < 5_000
    assert shown["settings"]["noise"] == shown["versions"]["noise spec"] == shown["noise"] == in_short(run.settings.noise)
    assert shown["command"].endswith("  # settings.json of the run has the full noise") and f"noise='{shown['noise']}'" in shown["command"]
    assert run.report(tmp_path / "with.html").stat().st_size < 1.1 * report(_short_run(tmp_path, data), tmp_path / "w.html").stat().st_size


def _short_run(tmp_path: Path, data: tuple[torch.Tensor, torch.Tensor]) -> Run:
    return fit("linear", data, noise="symmetric(0.4)", epochs=1, folder=tmp_path / "short", device="cpu")


def test_bad_input_is_refused_before_anything_is_read(runs: Path, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"ends in \.html"):
        report(runs, tmp_path / "page.pdf")
    with pytest.raises(InputError, match="cannot be written"):
        report(runs, tmp_path / "nowhere/page.html")
    with pytest.raises(InputError, match="no run in"):
        report(tmp_path, tmp_path / "page.html")
    with pytest.raises(InputError, match=r"must be folders or runs\. Got 3"):
        report(3, tmp_path / "page.html")
    assert not list(tmp_path.iterdir())


def test_a_page_from_runs_that_moved_to_another_machine(copied: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for folder in copied.iterdir():  # there the data set is not at hand
        settings = json.loads((folder / "settings.json").read_text())
        (folder / "settings.json").write_text(json.dumps(settings | {"data": "/somewhere/else.csv"}))
        provenance = json.loads((folder / "provenance.json").read_text())
        del provenance["sources"]  # as in a run from before they were written
        (folder / "provenance.json").write_text(json.dumps(provenance))
    page = report(copied, tmp_path / "page.html").read_text()
    assert "The examples themselves are not shown" in page
    assert math.isclose(len(page), Path("page.html").stat().st_size, rel_tol=0.05)
