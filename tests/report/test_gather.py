"""The facts on a page are those of the runs; a broken run is named and does not affect the others."""

import base64
import io
import json
import math
import shlex
import shutil
import statistics
from dataclasses import replace
from pathlib import Path

import numpy as np
import plotly.graph_objects as go
import pytest
import torch
from gathering import gather_folder, run_in, verdict_text
from PIL import Image
from sklearn.datasets import load_digits
from sklearn.metrics import confusion_matrix
from torch.nn import functional
from typer.testing import CliRunner

from costs import with_peak
from noisewise import Recorder, compare, fit
from noisewise.audit import audit
from noisewise.cli import app
from noisewise.correct import correct, retrain
from noisewise.data import Dataset, features, load, read
from noisewise.report import _report, _tasks, report
from noisewise.report._render import _unfinished
from noisewise.report._report import gather
from noisewise.report.sections.doubt import _matrices
from noisewise.spec import in_short
from noisewise.train import Run
from refused import refused

LOSSES = ["ce", "mae", "nce"]
HOSTILE = "<script>alert(1)</script>"


@pytest.fixture(scope="module")
def runs(tmp_path_factory) -> Path:
    """Three losses, two noises and two seeds."""
    torch.set_num_threads(1)
    folder = tmp_path_factory.mktemp("compared") / "runs"
    shared = {"loss": LOSSES, "seed": [0, 1], "epochs": 4, "folder": folder, "device": "cpu"}
    compare("linear", "digits", noise=["symmetric(0.4)", "none"], **shared)
    return folder


@pytest.fixture(scope="module")
def facts(runs: Path):
    return gather_folder(runs)


@pytest.fixture
def copied(runs: Path, tmp_path: Path) -> Path:
    """Copies of six runs that a test may damage: ce with both seeds and mae with one, on both noises."""
    for name in ("ce-seed0", "ce-seed1", "mae-seed0"):
        for noise in ("none", "symmetric_0.4"):
            shutil.copytree(runs / f"{noise}-{name}", tmp_path / f"runs/{noise}-{name}")
    return tmp_path / "runs"


def shows_examples(page: str) -> bool:
    """Whether the doubtful examples of a page have an image or their values."""
    return 'class="card"' in page or 'class="field"' in page


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


def test_runs_with_equal_accuracy_have_no_winner(tmp_path: Path) -> None:
    run = fit("linear", "digits", loss="ce", epochs=1, folder=tmp_path / "ce", device="cpu")
    again = retrain(run, correct(audit(run), decisions={}), folder=tmp_path / "again")
    facts = gather([run.path, again.path], title="t")
    assert "won" not in facts["verdict"][0]["text"]
    assert [group["winner"] for group in facts["groups"]] == [False, False]


def test_runs_that_differ_in_more_than_the_seed_are_not_averaged(tmp_path: Path) -> None:
    for rate in (0.1, 0.01):
        fit("linear", "digits", epochs=1, optimiser=f"sgd(lr={rate})", folder=tmp_path / str(rate), device="cpu")
    assert len(gather_folder(tmp_path)["groups"]) == 2


def test_different_data_of_one_name_are_neither_compared_nor_averaged(tmp_path: Path) -> None:
    inputs, labels = torch.randn(60, 4, generator=torch.Generator().manual_seed(0)), torch.arange(60) % 3
    settings = {"epochs": 1, "device": "cpu", "noise": "symmetric(0.2)"}
    for seed in range(2):  # the seed decides the noise and the share that is held out
        fit("linear", (inputs, labels), test=(inputs, labels), validation=0.2, seed=seed, folder=tmp_path / f"a{seed}", **settings)
    fit("linear", (inputs, labels), test=(-inputs, labels), seed=2, folder=tmp_path / "b", **settings)
    facts = gather_folder(tmp_path)
    assert [task["data"] for task in facts["tasks"]] == ["arrays", "arrays (2)"] and "2 data sets" in facts["counts"]
    assert [(group["task"], group["seeds"]) for group in facts["groups"]] == [(0, [0, 1]), (1, [2])]
    assert not any("won" in sentence["text"] for sentence in facts["verdict"])


def test_data_that_may_be_equal_are_one_data_set(tmp_path: Path) -> None:
    """With or without a test set, held-out examples or corrections."""
    inputs, labels = torch.randn(60, 4, generator=torch.Generator().manual_seed(0)), torch.arange(60) % 3
    settings = {"epochs": 2, "device": "cpu"}
    tested = fit("linear", (inputs, labels), test=(inputs, labels), folder=tmp_path / "tested", **settings)
    fit("linear", (inputs, labels), validation=0.2, folder=tmp_path / "held out", **settings)
    worst = audit(tested)
    pruned = retrain(tested, correct(worst, "prune", decisions={int(worst.index[0]): True}), folder=tmp_path / "pruned")
    twice = audit(pruned)
    retrain(pruned, correct(twice, "prune", decisions={int(twice.index[0]): True}), data=(inputs, labels), folder=tmp_path / "twice")
    facts = gather_folder(tmp_path)
    assert [task["data"] for task in facts["tasks"]] == ["arrays"] and "1 data set," in facts["counts"]
    provenance = json.loads((tmp_path / "tested/provenance.json").read_text())
    (tmp_path / "tested/provenance.json").write_text(json.dumps({name: value for name, value in provenance.items() if name != "data"}))
    assert [task["data"] for task in gather_folder(tmp_path)["tasks"]] == ["arrays"], "a run whose provenance has no data"


def test_a_corrected_run_belongs_to_the_data_set_of_its_origin(tmp_path: Path) -> None:
    for name, number in (("first", 40), ("second", 60)):
        run = fit("linear", (torch.randn(number, 4), torch.arange(number) % 3), epochs=2, folder=tmp_path / name, device="cpu")
    retrain(run, correct(audit(run), decisions={}), folder=tmp_path / "again")
    facts = gather_folder(tmp_path)
    assert {Path(run["folder"]).name: run["data"] for run in facts["runs"]} == {
        "first": "arrays",
        "second": "arrays (2)",
        "again": "arrays (2)",
    }


def test_a_report_on_no_runs_is_refused(tmp_path: Path) -> None:
    with refused("runs", "report"):
        report([], tmp_path / "report.html")


def test_recorded_runs_with_different_numbers_of_examples_are_different_data_sets(tmp_path: Path) -> None:
    for number in (30, 40):
        recorder = Recorder(tmp_path / str(number), torch.arange(number) % 2, loss="ce")
        recorder.log(torch.arange(number), torch.zeros(number, 2))
        recorder.end_epoch(test_accuracy=0.5)
        recorder.finish()
    assert [task["data"] for task in gather_folder(tmp_path)["tasks"]] == ["own", "own (2)"]


def test_tables_and_charts_use_the_same_names_and_averages_count_unfinished_runs(tmp_path: Path) -> None:
    for rate, seed in ((0.1, 0), (0.1, 1), (0.01, 0)):
        fit("linear", "digits", epochs=2, optimiser=f"sgd(lr={rate})", seed=seed, folder=tmp_path / f"{rate}-{seed}", device="cpu")
    cut, untrained = tmp_path / "0.1-1", tmp_path / "0.01-0"
    (cut / "status.json").write_text(json.dumps({"state": "interrupted", "reason": None, "epoch": 1, "step": 12}))
    (cut / "metrics.jsonl").write_text((cut / "metrics.jsonl").read_text().splitlines()[0] + "\n")
    (untrained / "metrics.jsonl").unlink()
    facts = gather_folder(tmp_path)
    slow, fast = "ce, optimiser=sgd(lr=0.01)", "ce, optimiser=sgd(lr=0.1)"
    assert [run["loss"] for run in facts["runs"]] == [group["loss"] for group in facts["groups"] for _ in group["seeds"]] + [fast]
    shown = facts["tasks"][0]["dynamics"]["data"]
    assert {line["name"] for line in shown} == {fast}, "the line has the name from the table, although the other run has no line"
    assert [list(line["x"]) for line in shown if line["xaxis"] == "x"] == [[12, 24]], "an interrupted run does not shorten the line"
    assert [_unfinished(group, facts["runs"]) for group in facts["groups"]] == ["", "1 of 2 runs not finished"]
    assert facts["groups"][0]["loss"] == slow


def test_a_loss_has_the_same_line_style_in_curves_and_dynamics(tmp_path: Path) -> None:
    for place, loss in enumerate(("nce", "mae", "ce")):  # the first has no curve
        fit("linear", "digits", loss=loss, epochs=1, folder=tmp_path / f"{place}-{loss}", device="cpu")
    task = gather_folder(tmp_path)["tasks"][0]
    looks = {line["name"]: (line["line"]["color"], line["line"]["dash"]) for line in task["dynamics"]["data"]}
    curves = {
        line["name"].partition(":")[0]: (line["line"]["color"], line["line"]["dash"])
        for line in task["curves"]["data"]
        if "dash" in line.get("line", {})
    }
    assert curves == {loss: looks[loss] for loss in ("ce", "mae")} and len(set(looks.values())) == 3


def test_plotly_accepts_every_figure(facts) -> None:
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


def test_an_audit_that_is_given_is_shown_and_not_made_again(runs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = runs / "symmetric_0.4-ce-seed0"
    given = audit(run)
    expected = gather([run], title="t")["tasks"][0]["doubt"]
    monkeypatch.setattr(_tasks, "audit_run", lambda *args: pytest.fail("the run is audited again"))
    assert gather([run], title="t", audits=[given])["tasks"][0]["doubt"] == expected


def test_doubtful_examples_are_shown_with_their_images(facts) -> None:
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


def test_many_films_have_fewer_frames_and_a_single_loss_does_not_win(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = fit("linear", (torch.randn(40, 3), torch.arange(40) % 2), epochs=15, folder=tmp_path / "run", validation=0.2, device="cpu")
    assert [len(film["epochs"]) for film in gather([run.path], title="t")["tasks"][0]["films"]] == [15]
    monkeypatch.setattr(_report, "_ALL_FRAMES", 12)
    facts = gather([run.path], title="t")
    (film,) = facts["tasks"][0]["films"]
    assert len(film["epochs"]) == 12 and (film["epochs"][0], film["epochs"][-1]) == (1, 15)
    assert [group["winner"] for group in facts["groups"]] == [False]


def test_a_heat_map_of_some_classes_states_how_many_there_are(tmp_path: Path) -> None:
    inputs, labels = torch.randn(300, 4), torch.arange(300) % 30
    data = Dataset(inputs, labels, tuple(f"class {place}" for place in range(30)), name="thirty")
    run = fit("linear", data, noise="symmetric(0.4)", epochs=1, folder=tmp_path / "run", device="cpu")
    shown = gather([run.path], title="t", data=data)["tasks"][0]["doubt"]["matrices"]
    assert [len(matrix["names"]) for matrix in shown] == [20, 20]
    for matrix, title in zip(shown, ("Estimated", "True"), strict=True):
        assert matrix["title"].startswith(title) and "20 of 30 classes" in matrix["title"]


def test_a_heat_map_of_some_classes_is_a_part_of_the_confusion_matrix(tmp_path: Path) -> None:
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


def test_a_heat_map_of_some_classes_needs_little_memory(tmp_path: Path) -> None:
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


def test_the_suggested_commands_write_a_list_and_a_review_page(facts, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    shown = next(task["doubt"] for task in facts["tasks"] if task["noise"] == "symmetric(0.4)")
    for step in shown["steps"]:
        program, *arguments = shlex.split(step["command"])
        done = CliRunner().invoke(app, arguments)
        assert program == "noisewise" and done.exit_code == 0, done.stderr
    assert {file.name for file in tmp_path.iterdir()} == {"issues.csv", "review.html"}


def test_data_of_another_run_are_not_shown(runs: Path) -> None:
    other = Dataset(torch.zeros(2000, 1, 8, 8), torch.zeros(2000, dtype=torch.long), tuple("0123456789"), name="other")
    shown = gather([next(runs.glob("none-ce-seed0"))], title="t", data=other)["tasks"][0]["doubt"]
    assert shown["note"] is not None and all(example["image"] is None for example in shown["examples"])


def test_an_unfinished_run_is_reported_and_left_out_of_averages(copied: Path) -> None:
    folder = copied / "symmetric_0.4-ce-seed1"
    (folder / "status.json").write_text(json.dumps({"state": "interrupted", "reason": None, "epoch": 4, "step": 48}))
    facts = gather_folder(copied)
    assert "4 epochs" in " ".join(run_in(facts, folder)["notes"]) and run_in(facts, folder)["state"] == "interrupted"
    assert f"1 of {len(facts['runs'])} runs" in verdict_text(facts)
    group = next(group for group in facts["groups"] if group["loss"] == "ce" and facts["tasks"][group["task"]]["noise"] == "symmetric(0.4)")
    assert group["seeds"] == [0]


def test_the_only_finished_loss_does_not_win(copied: Path) -> None:
    for folder in (path for path in copied.glob("none-*") if not path.name.startswith("none-ce-")):
        (folder / "status.json").write_text(json.dumps({"state": "interrupted", "reason": None, "epoch": 4, "step": 48}))
    facts = gather_folder(copied)
    (number,) = (number for number, task in enumerate(facts["tasks"]) if task["noise"] == "none")
    assert not any(group["winner"] for group in facts["groups"] if group["task"] == number)
    assert "ce reached" in verdict_text(facts) and "of 2 comparisons" not in verdict_text(facts)


def test_a_run_without_a_finished_epoch_is_listed(copied: Path) -> None:
    folder = copied / "none-ce-seed0"
    for name in ("metrics.jsonl", "record", "status.json"):
        shutil.rmtree(folder / name) if (folder / name).is_dir() else (folder / name).unlink()
    (folder / "status.json").write_text(json.dumps({"state": "running", "reason": None, "epoch": 0, "step": 0}))
    facts = gather_folder(copied)
    assert run_in(facts, folder)["measures"]["final"] is None
    assert run_in(facts, folder)["state"] == "running" and run_in(facts, folder)["notes"]


def test_a_run_without_a_status_file_is_shown(copied: Path) -> None:
    folder = copied / "none-ce-seed0"
    before = run_in(gather([folder], title="t"), folder)["measures"]
    (folder / "status.json").unlink()
    facts = gather_folder(copied)
    run = run_in(facts, folder)
    assert not facts["broken"] and (run["state"], run["measures"]) == ("unknown", before)
    assert "status.json" in " ".join(run["notes"])


def test_a_run_that_failed_is_in_the_verdict(copied: Path) -> None:
    folder = copied / "none-mae-seed0"
    reason = "the loss mae was not finite at step 7"
    (folder / "status.json").write_text(json.dumps({"state": "failed", "reason": reason, "epoch": 1, "step": 7}))
    (sentence,) = [sentence["text"] for sentence in gather_folder(copied)["verdict"] if reason in sentence["text"]]
    assert sentence.startswith("mae ") and "1 epoch" in sentence


def test_a_damaged_record_removes_only_the_measures_that_need_it(copied: Path) -> None:
    folder = copied / "symmetric_0.4-mae-seed0"
    for kind in ("clean", "training"):
        path = folder / f"record/{kind}/predictions-00002.npy"
        path.write_bytes(path.read_bytes()[:100])
    facts = gather_folder(copied)
    run = run_in(facts, folder)
    assert run["measures"]["final"] is not None and run["measures"]["clean_subset"] is None
    assert "predictions-00002.npy" in " ".join(run["notes"])
    assert all(task["dynamics"] is not None for task in facts["tasks"])


@pytest.mark.parametrize(
    ("content", "mention"),
    [
        ('{"format": 99, "data": "digits"}', "format 99"),
        ('{"format": 1}', "data"),
    ],
)
def test_an_unreadable_run_is_listed_with_the_reason(copied: Path, content: str, mention: str) -> None:
    folder = copied / "none-ce-seed0"
    (folder / "settings.json").write_text(content)
    facts = gather_folder(copied)
    assert [run["folder"] for run in facts["broken"]] == [str(folder)]
    assert mention in facts["broken"][0]["reason"]
    assert len(facts["runs"]) == len(list(copied.iterdir())) - 1 and "1 folder" in verdict_text(facts)


def test_a_run_of_an_older_version_is_shown(copied: Path) -> None:
    folder = copied / "none-ce-seed0"
    settings = json.loads((folder / "settings.json").read_text())
    del settings["clean_pass"], settings["seed"]
    (folder / "settings.json").write_text(json.dumps(settings | {"a_setting_of_old": 1, "loss": "a_loss_of_old(q=1)"}))
    lines = [json.dumps({"epoch": epoch, "step": epoch, "test_accuracy": 0.5}) for epoch in (1, 2)]
    (folder / "metrics.jsonl").write_text("\n".join(lines))
    (folder / "provenance.json").unlink()
    facts = gather_folder(copied)
    run = run_in(facts, folder)
    assert run["measures"]["final"] == 0.5 and run["loss"] == "a_loss_of_old(q=1), a_setting_of_old=1"
    assert "a_loss_of_old" in " ".join(run["notes"])


def test_a_run_that_keeps_its_best_model_names_the_epoch(tmp_path: Path) -> None:
    settings = {"epochs": 4, "validation": 0.2, "noise": "symmetric(0.4)", "device": "cpu"}
    kept = fit("mlp", "digits", keep="best", folder=tmp_path / "kept", **settings)
    last = fit("mlp", "digits", folder=tmp_path / "last", **settings)
    notes = [gather([run.path], title="t")["runs"][0]["notes"] for run in (kept, last)]
    assert len(notes[0]) == 1 and f"epoch {kept.kept_epoch}" in notes[0][0] and notes[1] == []


def test_a_run_without_the_setting_keep_is_averaged_with_newer_ones(tmp_path: Path) -> None:
    runs = [fit("linear", "digits", epochs=1, seed=seed, folder=tmp_path / str(seed), device="cpu") for seed in (0, 1)]
    settings = json.loads((tmp_path / "0/settings.json").read_text())
    del settings["keep"]
    (tmp_path / "0/settings.json").write_text(json.dumps(settings))
    assert [(group["loss"], group["seeds"]) for group in gather([run.path for run in runs], title="t")["groups"]] == [("ce", [0, 1])]


def test_columns_without_values_are_left_out_and_user_labels_are_not_called_clean(facts, tmp_path: Path) -> None:
    expected = ["final", "best", "clean_subset", "noisy_subset", "hybrid", "snr", "alpha"]
    assert [measure["key"] for measure in facts["measures"]] == expected
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
    assert own["tasks"][0]["name"] == "arrays, labels as given" and "clean" not in verdict_text(own)


def test_a_run_without_true_labels_is_shown_without_what_needs_them(tmp_path: Path) -> None:
    torch.manual_seed(0)
    inputs = torch.randn(300, 5)
    labels = (inputs[:, 0] > 0).long()
    run = fit("mlp", (inputs, labels), test=(inputs, labels), epochs=3, folder=tmp_path / "run", device="cpu")
    facts = gather([run.path], title="t", data=(inputs, labels))
    assert len(facts["runs"][0]["notes"]) == 1
    assert facts["runs"][0]["measures"]["noisy_subset"] is None and facts["runs"][0]["measures"]["final"] is not None
    assert set(facts["tasks"][0]["films"][0]["counts"]) == {"all"}
    assert [matrix["title"] for matrix in facts["tasks"][0]["doubt"]["matrices"]] == ["Estimated"]
    assert facts["tasks"][0]["doubt"]["examples"][0]["fields"][0][0] == "features"
    values = facts["tasks"][0]["doubt"]["examples"][0]["fields"][0][1]
    assert values in run.report(tmp_path / "page.html").read_text(), "fit(…).report() shows the arrays it was given"


def test_values_of_a_table_are_shown_with_their_column_names(tmp_path: Path) -> None:
    rows = [f"{row % 2 + row / 100},{row},{'dog' if row % 2 else 'cat'}" for row in range(40)]
    (tmp_path / "pets.csv").write_text("\n".join(["width,day,label", *rows]))
    pets = read(tmp_path / "pets.csv")
    run = fit("linear", pets, epochs=2, folder=tmp_path / "run", device="cpu")
    first, *_ = gather([run.path], title="t")["tasks"][0]["doubt"]["examples"]
    row = int(first["id"].removeprefix("example "))
    assert first["fields"] == [["width", f"{pets.inputs[row, 0]:.4g}"], ["day", str(row)]]
    wide = replace(pets, inputs=pets.inputs[:, :1].expand(-1, 30), features=tuple(f"column {place}" for place in range(30)))
    assert features(wide, 0)[-2:] == [["column 19", "0"], ["…", ""]]


def test_reports_on_run_objects_show_the_data_that_all_of_them_share(tmp_path: Path) -> None:
    def trained(name: str, data) -> Run:
        return fit("linear", data, epochs=2, noise="symmetric(0.4)", folder=tmp_path / name, device="cpu")

    def page(given) -> str:
        return report(given, tmp_path / "page.html").read_text()

    inputs = torch.randn(100, 3, generator=torch.Generator().manual_seed(0))
    ours, others = (inputs, (inputs[:, 0] > 0).long()), (inputs, (inputs[:, 1] > 0).long())
    run, beside, another = trained("run", ours), trained("beside", ours), trained("another", others)
    assert page(run) == page([run]) == run.report(tmp_path / "page.html").read_text()
    assert shows_examples(page(run)) and shows_examples(page([run, beside])) and not shows_examples(page(run.path))
    assert page([run, another]) == page([run.path, another.path]), "neither run uses the data of the other"
    assert not shows_examples(page([run, beside.path]))


def test_markup_in_names_is_escaped(tmp_path: Path) -> None:
    inputs = torch.randn(60, 3)
    data = Dataset(inputs, torch.arange(60) % 2, (HOSTILE, "b"), name=HOSTILE)
    run = fit("linear", data, epochs=1, folder=tmp_path / "run", device="cpu")
    page = run.report(tmp_path / "page.html").read_text()
    assert HOSTILE not in page and "&lt;script&gt;alert(1)&lt;/script&gt;" in page


def test_the_command_on_the_page_repeats_the_run(facts, tmp_path: Path) -> None:
    shown = next(run for run in facts["runs"] if run["loss"] == "mae" and run["noise"] != "none" and run["seed"] == 1)
    program, *arguments = shlex.split(shown["command"])
    arguments[arguments.index("--output") + 1] = str(tmp_path / "again")
    done = CliRunner().invoke(app, arguments)
    assert program == "noisewise" and done.exit_code == 0, done.stderr
    again, before = Run(tmp_path / "again"), Run(shown["folder"])
    assert again.settings == before.settings
    for name, value in before.model().state_dict().items():
        assert torch.equal(again.model().state_dict()[name], value), name


def test_a_long_noise_is_abbreviated(tmp_path: Path) -> None:
    number = 60
    file, data = tmp_path / "noise.npy", (torch.randn(240, 3), torch.arange(240) % number)
    np.save(file, np.random.default_rng(0).dirichlet(np.ones(number), number))
    run = fit("linear", data, noise=f"matrix({str(file)!r})", epochs=1, folder=tmp_path / "run", device="cpu")
    shown = gather_folder(tmp_path)["runs"][0]
    assert len(run.settings.noise) > 50_000 and len(json.dumps(run.provenance)) < 5_000
    assert shown["settings"]["noise"] == shown["versions"]["noise spec"] == shown["noise"] == in_short(run.settings.noise)
    assert "# settings.json" in shown["command"] and f"noise='{shown['noise']}'" in shown["command"]
    assert run.report(tmp_path / "with.html").stat().st_size < 1.1 * report(_short_run(tmp_path, data), tmp_path / "w.html").stat().st_size


def _short_run(tmp_path: Path, data: tuple[torch.Tensor, torch.Tensor]) -> Run:
    return fit("linear", data, noise="symmetric(0.4)", epochs=1, folder=tmp_path / "short", device="cpu")


def test_bad_input_is_refused_before_anything_is_read(runs: Path, tmp_path: Path) -> None:
    with refused(".html", "page.pdf"):
        report(runs, tmp_path / "page.pdf")
    with refused("page.html", "nowhere"):
        report(runs, tmp_path / "nowhere/page.html")
    with refused(tmp_path):
        report(tmp_path, tmp_path / "page.html")
    with refused("runs", 3):
        report(3, tmp_path / "page.html")
    assert not list(tmp_path.iterdir())


def test_runs_whose_data_are_missing_are_reported_without_examples(copied: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for folder in copied.iterdir():  # as on a machine without the data set
        settings = json.loads((folder / "settings.json").read_text())
        (folder / "settings.json").write_text(json.dumps(settings | {"data": "/somewhere/else.csv"}))
        provenance = json.loads((folder / "provenance.json").read_text())
        del provenance["sources"]  # as in a run of an older version
        (folder / "provenance.json").write_text(json.dumps(provenance))
    page = report(copied, tmp_path / "page.html").read_text()
    assert "<figure" in page and not shows_examples(page)
    assert math.isclose(len(page), Path("page.html").stat().st_size, rel_tol=0.05)
