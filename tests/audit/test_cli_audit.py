"""`noisewise audit` and `noisewise correct`: what they print, write and refuse."""

import csv
import json
import re
import shutil
import signal

import numpy as np
import pytest
from PIL import Image
from sklearn.datasets import load_breast_cancer, load_digits
from typer.testing import CliRunner

from noisewise.audit import audit
from noisewise.cli import app
from noisewise.correct import Correction
from test_dynamics import write_run
from waiting import interrupted


def noisewise(*arguments):
    return CliRunner().invoke(app, list(map(str, arguments)))


def refused(*arguments):
    done = noisewise(*arguments)
    assert done.exit_code == 2 and not done.stdout
    return done.stderr


def rows_of(path):
    with path.open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def table(path, inputs, labels, header):
    with path.open("w", encoding="utf-8", newline="") as file:
        csv.writer(file).writerows([header, *([*row, label] for row, label in zip(inputs, labels, strict=True))])


@pytest.fixture
def run(digits_run, tmp_path):
    """A copy of the run that a test may write in."""
    return shutil.copytree(digits_run.path, tmp_path / "run")


def test_a_run_is_audited_and_listed(run, tmp_path):
    done = noisewise("audit", run, "-o", tmp_path / "issues.csv")
    found = audit(run)
    assert done.exit_code == 0 and f"{found.is_issue.sum():,} of 1,437 labels are doubtful" in done.stdout
    rows = rows_of(tmp_path / "issues.csv")
    assert [int(row["index"]) for row in rows] == found.order.tolist()
    assert sum(row["is_label_issue"] == "True" for row in rows) == found.is_issue.sum()


def test_a_run_that_learned_little_is_said_to_be_no_judge_on_the_terminal_and_the_page(tmp_path):
    inputs, labels = load_digits(return_X_y=True)
    table(tmp_path / "digits.csv", inputs, labels, [*(f"x{place}" for place in range(64)), "label"])
    asked = ("--epochs", 1, "--loss", "mae", "--run", tmp_path / "run", "-o", tmp_path / "issues.csv")
    done = noisewise("audit", tmp_path / "digits.csv", *asked)
    caution = audit(tmp_path / "run").caution
    assert done.exit_code == 0 and f"noisewise: {caution}" in done.stderr
    page = (tmp_path / "issues.html").read_text(encoding="utf-8")
    assert "<h1>Which labels look wrong</h1>" in page and 0 < page.find("labels (0.0 %) look wrong") < page.find(caution) < page.find(
        "was tested"
    )
    assert json.loads(noisewise("audit", tmp_path / "run", "--json").stdout)["caution"] == caution


def test_where_no_label_looks_wrong_none_is_called_doubtful(tmp_path):
    folder = write_run(tmp_path / "run", [0, 1, 2], training=[(epoch, [2.0, 3.0, 1.0], [0, 1, 2]) for epoch in (1, 2, 3)])
    done = noisewise("audit", folder)
    assert done.exit_code == 0 and "The 3 least certain" in done.stdout and "None of 3 labels looks wrong. Between 0 and" in done.stdout
    assert noisewise("report", folder, "-o", tmp_path / "report.html").exit_code == 0
    page = (tmp_path / "report.html").read_text(encoding="utf-8")
    assert "The 3 least certain:" in page and "doubtful" not in done.stdout and "most doubtful" not in page


def test_json_says_the_same_in_plain_data(run):
    said = json.loads(noisewise("audit", run, "--json").stdout)
    found = audit(run)
    assert said["doubtful"] == found.is_issue.sum() and said["interval"] == pytest.approx(found.interval)
    assert said["worst"][0]["id"] == str(found.order[0]) and said["written"] == []


def test_wrong_labels_in_a_table_are_found_by_a_model_trained_for_that(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    bunch = load_breast_cancer()
    rng = np.random.default_rng(0)
    wrong = rng.random(len(bunch.target)) < 0.1
    kinds = bunch.target_names[np.where(wrong, 1 - bunch.target, bunch.target)]
    table(tmp_path / "cells.csv", bunch.data, kinds, [*(f"x{number}" for number in range(30)), "kind"])
    done = noisewise("audit", "cells.csv", "--label", "kind", "--epochs", 20)
    assert done.exit_code == 0, done.stderr
    rows = rows_of(tmp_path / "issues.csv")
    listed = [wrong[int(row["index"])] for row in rows[: wrong.sum()]]
    assert np.mean(listed) > 0.7
    assert {row["given_label"] for row in rows} == {"benign", "malignant"}
    assert "<html" in (tmp_path / "issues.html").read_text(encoding="utf-8")
    (folder,) = (tmp_path / "runs").iterdir()
    assert json.loads((folder / "settings.json").read_text())["model"] == "mlp"


def test_embeddings_get_a_linear_model_and_images_a_convolutional_one_and_shifts_where_they_are_large(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    rng = np.random.default_rng(0)
    labels = np.arange(60) % 2
    table(tmp_path / "embedded.csv", rng.normal(size=(60, 5)) + labels[:, None], labels, [*"abcde", "label"])
    assert noisewise("audit", "embedded.csv", "--embeddings", "--epochs", 2, "--run", "embedded").exit_code == 0
    assert json.loads((tmp_path / "embedded/settings.json").read_text())["model"] == "linear"
    for kind, level in (("dark", 40), ("light", 200)):
        (tmp_path / "shades" / kind).mkdir(parents=True)
        for number in range(8):
            pixels = rng.integers(level - 30, level + 30, (24, 24, 3), dtype=np.uint8)
            Image.fromarray(pixels).save(tmp_path / "shades" / kind / f"{number}.png")
    for model, side, augment in ((None, 24, "crop(2)"), ("resnet20", 16, "none"), ("mlp", 24, "none")):
        asked = ("--size", side, "--epochs", 1, "--run", f"shaded-{model}", "-o", "shades.json")
        done = noisewise("audit", "shades", *asked, *(() if model is None else ("--model", model)))
        assert done.exit_code == 0, done.stderr
        settings = json.loads((tmp_path / f"shaded-{model}/settings.json").read_text())
        assert (settings["model"], settings["augment"]) == (model or "resnet20", augment)
    assert {row["id"] for row in json.loads((tmp_path / "shades.json").read_text())} >= {"dark/0.png", "light/7.png"}


def test_a_robust_loss_that_would_hardly_start_gives_way_to_cross_entropy(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for classes, loss in ((10, "gce(q=0.7)"), (200, "ce")):
        labels = np.arange(2 * classes) % classes
        table(tmp_path / f"{classes}.csv", np.random.default_rng(0).normal(size=(2 * classes, 3)), labels, [*"abc", "label"])
        done = noisewise("audit", f"{classes}.csv", "--epochs", 1, "--run", classes, "-o", f"issues{classes}.csv")
        assert done.exit_code == 0, done.stderr
        assert json.loads((tmp_path / f"{classes}/settings.json").read_text())["loss"] == loss


def test_classes_that_a_robust_loss_does_not_learn_are_trained_again_and_a_test_set_tells_mistakes_from_wrong_labels(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    inputs, labels = load_digits(return_X_y=True)
    header = [*(f"x{place}" for place in range(64)), "label"]
    few = np.concatenate([np.flatnonzero(labels == label)[: 10 if label < 5 else 60] for label in range(10)])
    table(tmp_path / "rare.csv", inputs[few], labels[few], header)
    done = noisewise("audit", "rare.csv", "--run", "rare")
    assert done.exit_code == 0 and "noisewise: gce(q=0.7) did not learn '0', '1'" in done.stderr
    assert done.stdout.splitlines()[-1] == "rare-ce" and "may be wrong, if the model makes few mistakes itself." in done.stdout
    assert audit("rare").unlearned and not audit("rare-ce").unlearned
    others = np.setdiff1d(np.arange(len(labels)), few)[:300]
    table(tmp_path / "others.csv", inputs[others], labels[others], header)
    done = noisewise("audit", "rare.csv", "--test", "others.csv", "--loss", "gce(q=0.7)", "--run", "tested")
    assert done.exit_code == 0 and "may be wrong.\n" in done.stdout and f"noisewise: {audit('tested').caution}" in done.stderr
    assert json.loads(noisewise("audit", "tested", "--json").stdout)["tested"] is True
    assert audit("tested").interval[0] < audit("rare").interval[0]
    assert "leave that out" in refused("audit", "tested", "--test", "others.csv")


def test_what_audit_cannot_do_is_said_before_anything_is_trained_or_written(run, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    deeper = write_run(tmp_path / "demo/runs/ce", [0, 1, 2])
    before = sorted(tmp_path.rglob("*"))
    assert "There is no score named 'combine'" in refused("audit", run, "--score", "combine")
    assert "must be a file that ends in .csv or .json or .parquet" in refused("audit", run, "-o", "issues.txt")
    assert "is a run, which is not trained again. Got --label; leave that out." in refused("audit", run, "--label", "kind")
    said = refused("audit", run, "--epochs", 50, "--model", "mlp", "--loss", "mae", "--embeddings", "--run", "x", "--feature", "a")
    assert "Got --model, --embeddings, --loss, --epochs, --run, --feature; leave that out." in said
    assert "There is no data set named 'nothing'" in refused("audit", "nothing")
    assert "must be left out with --embeddings" in refused("audit", "digits", "--embeddings", "--model", "mlp")
    assert f"contains runs. Audit one of them, such as '{run}'" in refused("audit", tmp_path)
    assert f"contains runs. Audit one of them, such as '{deeper}'" in refused("audit", tmp_path / "demo")
    without = write_run(tmp_path / "without", [0, 1, 2])
    assert "has no recorded margins" in refused("audit", without, "-o", "issues.csv")
    shutil.rmtree(without)
    assert sorted(tmp_path.rglob("*")) == before


@pytest.mark.parametrize("left", ["all", "record", "labels", "checkpoints", "provenance.json"])
def test_a_run_that_lost_its_settings_is_not_taken_for_images(run, tmp_path, monkeypatch, left):
    monkeypatch.chdir(tmp_path)
    (run / "settings.json").unlink()
    for other in list(run.iterdir()):
        if left not in ("all", other.name):
            shutil.rmtree(other) if other.is_dir() else other.unlink()
    assert "The folder 'run' looks like a damaged run: it has no settings.json." in refused("audit", "run")


def own_table(path, number=60, wrong=0):
    rng = np.random.default_rng(0)
    labels = np.arange(number) % 2
    given = np.where(np.arange(number) < wrong, 1 - labels, labels)
    table(path, rng.normal(size=(number, 4)) + 2 * labels[:, None], given, [*"abcd", "kind"])
    return path


def test_an_audit_names_its_run_which_is_corrected_trained_again_and_tested(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    done = noisewise("audit", own_table(tmp_path / "mine.csv", wrong=6), "--label", "kind", "--epochs", 20)
    *_, page, run = done.stdout.splitlines()
    assert page == "issues.html" and (tmp_path / run / "settings.json").is_file()
    done = noisewise("correct", run, "--retrain", "--test", "mine.csv", "--run", "again")
    assert done.exit_code == 0, done.stderr
    measured = json.loads((tmp_path / "again/metrics.jsonl").read_text().splitlines()[-1])["test_accuracy"]
    assert done.stdout.splitlines()[-2:] == [f"test accuracy {100 * measured:.1f} % after correction", "again"]


@pytest.mark.parametrize("ending", ["csv", "json", "parquet"])
def test_a_list_and_its_page_are_written_again_but_nothing_that_is_not_ours(tmp_path, monkeypatch, ending):
    if ending == "parquet":
        pytest.importorskip("pyarrow.parquet").write_table(pytest.importorskip("pyarrow").table({"a": [1]}), tmp_path / "other.parquet")
    monkeypatch.chdir(tmp_path)
    asked = ["audit", own_table(tmp_path / "mine.csv"), "--label", "kind", "--epochs", 2]
    for _ in range(2):
        done = noisewise(*asked, "-o", f"issues.{ending}")
        assert done.exit_code == 0, done.stderr
    (tmp_path / f"broken.{ending}").write_bytes(b"\x00\xff no list at all")
    (tmp_path / "keep.html").write_text("<html><p>by hand")
    shutil.copy("mine.csv", "other.csv")
    (tmp_path / "other.json").write_text('[\n{"a": 1}\n]\n')
    before = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    assert "'mine.csv' is the input and would be lost" in refused(*asked, "-o", "mine.csv")
    for other in (f"broken.{ending}", f"other.{ending}"):
        assert f"{other!r} already exists" in refused(*asked, "-o", other)
    assert "'keep.html' already exists" in refused(*asked, "-o", f"keep.{ending}")
    assert {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()} == before


def test_corrected_labels_and_review_pages_replace_only_their_own_kind(run, tmp_path):
    for _ in range(2):
        assert noisewise("correct", run, "-o", tmp_path / "labels.csv").exit_code == 0
        assert noisewise("correct", run, "--review", tmp_path / "review.html").exit_code == 0
    mine, page = own_table(tmp_path / "mine.csv"), tmp_path / "keep.html"
    page.write_text("<html><p>by hand")
    before = mine.read_bytes(), page.read_bytes()
    assert "already exists" in refused("correct", run, "-o", mine)
    assert "already exists" in refused("correct", run, "--review", page)
    assert (mine.read_bytes(), page.read_bytes()) == before


@pytest.mark.parametrize(
    ("command", "file"),
    [
        (["audit", "run", "-o"], "issues.csv"),
        (["correct", "run", "-o"], "labels.csv"),
        (["correct", "run", "--review"], "review.html"),
        (["report", "run", "-o"], "report.html"),
        (["figure", "curves", "ce", "-o"], "curves.html"),
        (["figure", "curves", "ce", "-o"], "curves.svg"),
    ],
)
def test_where_the_disk_is_full_one_sentence_says_so_and_the_file_is_as_it_was(run, tmp_path, monkeypatch, command, file):
    resource = pytest.importorskip("resource")
    monkeypatch.chdir(tmp_path)
    assert noisewise(*command, file).exit_code == 0
    before = (tmp_path / file).read_bytes()
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (2000, hard))  # no file may grow beyond that
    try:
        said = refused(*command, file)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert f"{file!r} cannot be written (File too large). Give another output." in said
    assert (tmp_path / file).read_bytes() == before and not list(tmp_path.glob(".*"))


def test_all_that_trains_shows_how_far_it_is(tmp_path, monkeypatch):
    told = []
    monkeypatch.setattr("noisewise.cli._app.Bar.__call__", lambda bar, step, steps: told.append((step, steps)))
    monkeypatch.chdir(tmp_path)
    audited = noisewise("audit", own_table(tmp_path / "mine.csv", 400), "--label", "kind", "--epochs", 3, "--run", "run")
    assert audited.exit_code == 0, audited.stderr
    assert told == [(step, 12) for step in range(1, 13)]
    told.clear()
    (tmp_path / "decisions.json").write_text('[{"index": 0, "decision": "accept"}]')
    again = noisewise("correct", "run", "--policy", "prune", "--decisions", "decisions.json", "--retrain")
    assert again.exit_code == 0, again.stderr
    assert told == [(step, 12) for step in range(1, 13)]


def test_an_audit_that_was_asked_to_end_goes_on_where_it_was(tmp_path):
    folder = tmp_path / "run"
    mine = own_table(tmp_path / "mine.csv", 400)
    asked = ["audit", mine, "--label", "kind", "--epochs", 80, "--run", folder, "-o", tmp_path / "issues.csv"]
    stopped = interrupted(asked, folder / "record/training/margins-00004.npy", signal.SIGTERM)
    assert (stopped.returncode, stopped.stdout) == (128 + signal.SIGTERM, "") and stopped.stderr.count("\n") == 1
    assert stopped.stderr.startswith("noisewise: stopped by SIGTERM; run the same command again")
    status = json.loads((folder / "status.json").read_text())
    assert (status["state"], status["reason"]) == ("interrupted", "stopped by SIGTERM")
    reached = status["epoch"]
    assert 3 <= reached < 80
    first = folder / "record/training/margins-00001.npy"
    before = first.stat().st_mtime_ns
    again = noisewise(*asked)
    assert again.exit_code == 0, again.stderr
    (after,) = re.findall(r"noisewise: resuming at step (\d+) of 320\.\n", again.stderr)
    assert int(after) - 1 in (4 * reached - 4, 4 * reached), "an epoch is written down before its checkpoint"
    assert first.stat().st_mtime_ns == before, "the first epoch was not trained again"
    assert json.loads((folder / "status.json").read_text()) == {"state": "finished", "reason": None, "epoch": 80, "step": 80 * 4}
    assert len(rows_of(tmp_path / "issues.csv")) == 400


@pytest.mark.parametrize(
    ("labels", "training", "sentence"),
    [
        ([0, 1, 2], [], "has no recorded margins"),
        ([0, 1, 2], [(1, [0.0, 1.0], [0, 1])], "shaped (3,)"),
        ([0, 1, 3], [(1, [0.0, 1.0, 2.0], [0, 1, 2])], "labels from 0 to 2"),
        ([0, 1, 2], [(1, [0.0, 1.0, 2.0], [0, 1, 3])], "predictions-00001.npy"),
    ],
)
def test_a_record_that_does_not_fit_its_labels_is_one_sentence_and_nothing_is_written(tmp_path, labels, training, sentence):
    folder = write_run(tmp_path / "run", labels, training=training)
    before = sorted(tmp_path.rglob("*"))
    for command in (
        ("audit", folder, "-o", tmp_path / "issues.csv"),
        ("correct", folder, "--retrain"),
        ("correct", folder, "--review", "a.html"),
    ):
        said = refused(*command)
        assert sentence in " ".join(said.split()) and "Traceback" not in said
    assert sorted(tmp_path.rglob("*")) == before


def test_labels_are_corrected_listed_and_taken_back(run):
    found = audit(run)
    done = noisewise("correct", run)
    assert done.exit_code == 0 and f"{found.is_issue.sum():,} relabelled" in done.stdout
    path = run / "corrected.csv"
    assert sum(row["change"] == "relabel" for row in rows_of(path)) == found.is_issue.sum()
    done = noisewise("correct", run, "--undo")
    assert f"Reverted {found.is_issue.sum():,} changes" in done.stdout
    undone = Correction.read(path, found.dynamics.record.classes)
    assert not undone.changed.any() and (undone.labels == found.given).all()


def test_a_policy_with_a_bound_goes_to_the_file_that_is_named(run, tmp_path):
    assert noisewise("correct", run, "--policy", "prune(below=0.2)", "-o", tmp_path / "labels.csv").exit_code == 0
    found = audit(run)
    left_out = [row["label"] == "" for row in rows_of(tmp_path / "labels.csv")]
    np.testing.assert_array_equal(left_out, found.is_issue & (found.quality < 0.2))
    assert 0 < sum(left_out) < found.count
    assert not (run / "corrected.csv").exists()


def test_decisions_from_a_review_page_are_applied(run, tmp_path):
    assert noisewise("correct", run, "--review", tmp_path / "review.html", "--limit", 5).exit_code == 0
    page = (tmp_path / "review.html").read_text(encoding="utf-8")
    cards = json.loads(page.partition('id="content">')[2].partition("</script>")[0])["cards"]
    assert len(cards) == 5 and not (run / "corrected.csv").exists()
    chosen = [{"index": cards[0]["index"], "decision": "accept"}, {"index": cards[1]["index"], "decision": "reject"}]
    (tmp_path / "decisions.json").write_text(json.dumps(chosen))
    assert noisewise("correct", run, "--decisions", tmp_path / "decisions.json").exit_code == 0
    changed = [row for row in rows_of(run / "corrected.csv") if row["change"]]
    assert [(int(row["index"]), row["given_label"], row["label"]) for row in changed] == [
        (cards[0]["index"], cards[0]["given"], cards[0]["suggested"])
    ]


def test_the_run_one_stands_in_is_corrected_into_a_folder_beside_it(run, monkeypatch):
    monkeypatch.chdir(run)
    assert noisewise("correct", ".", "--retrain").stdout.splitlines()[-1] == str(run.parent / "run-corrected")


def test_correcting_and_training_again_is_one_command(run):
    done = noisewise("correct", run, "--retrain")
    assert done.exit_code == 0, done.stderr
    assert "before," in done.stdout and "after correction" in done.stdout
    assert (run.parent / "run-corrected/model.safetensors").exists()
    done = noisewise("report", run, run.parent / "run-corrected", "-o", run.parent / "report.html")
    assert done.exit_code == 0, done.stderr
    page = (run.parent / "report.html").read_text(encoding="utf-8")
    assert "Before and after the correction" in page and "ce, relabelled" in page
    done = noisewise("correct", run.parent / "run-corrected", "--policy", "prune", "--retrain")
    assert done.exit_code == 0 and (run.parent / "run-corrected-corrected/model.safetensors").exists(), done.stderr


def test_labels_that_stay_as_they_are_are_not_trained_on_again(run, tmp_path):
    (tmp_path / "decisions.json").write_text("[]")
    done = noisewise("correct", run, "--decisions", tmp_path / "decisions.json", "--retrain")
    assert done.exit_code == 0 and "none changed" in done.stdout
    assert done.stderr == "noisewise: no label was changed, so nothing was trained.\n"
    assert not (run.parent / "run-corrected").exists() and (run / "corrected.csv").exists()


def test_what_correct_cannot_do_is_said_and_changes_nothing(run, tmp_path):
    before = sorted(run.rglob("*"))
    assert "There is no policy named 'relable'" in refused("correct", run, "--policy", "relable")
    assert "must be relabel or prune, because a run has one label" in refused("correct", run, "--policy", "soften", "--retrain")
    assert "Got --undo and --retrain" in refused("correct", run, "--undo", "--retrain")
    assert "Got --limit without --review" in refused("correct", run, "--limit", 5)
    assert "Got --undo and --policy" in refused("correct", run, "--undo", "--policy", "prune")
    assert "Got --review and --policy" in refused("correct", run, "--review", tmp_path / "r.html", "--policy", "prune")
    assert "Got --data without --review or --retrain" in refused("correct", run, "--data", "digits")
    assert "cannot be read" in refused("correct", run, "--undo")
    assert "cannot be read" in refused("correct", run, "--decisions", tmp_path / "none.json")
    assert "must be given together with --label" in refused("correct", run, "--label", "kind")
    assert "There is no run in" in refused("correct", tmp_path / "nowhere")
    (tmp_path / "taken").mkdir()
    (tmp_path / "taken/thesis.tex").write_text("mine")
    assert "is not empty" in refused("correct", run, "--retrain", "--run", tmp_path / "taken")
    assert sorted(run.rglob("*")) == before
