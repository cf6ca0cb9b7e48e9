"""The commands `noisewise audit` and `noisewise correct`: output, files and errors."""

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

from noisewise import Run
from noisewise.audit import audit, evidence_from_features, find_label_issues
from noisewise.cli import app
from noisewise.correct import Correction
from run_folders import write_run


def noisewise(*arguments):
    return CliRunner().invoke(app, list(map(str, arguments)))


def check_refused(*arguments, mentions):
    """The command prints one error that mentions these names and values, and nothing else."""
    done = noisewise(*arguments)
    error = " ".join(done.stderr.split())
    assert done.exit_code == 2 and not done.stdout and error.startswith("noisewise: ") and "Traceback" not in error
    missing = [mention for mention in map(str, mentions) if mention not in error]
    assert not missing, f"{missing} not mentioned in: {error}"


UNTESTED = "if the model makes few mistakes"  # a condition that is dropped if the model was tested


def rows_of(path):
    with path.open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def write_table(path, inputs, labels, header):
    with path.open("w", encoding="utf-8", newline="") as file:
        csv.writer(file).writerows([header, *([*row, label] for row, label in zip(inputs, labels, strict=True))])


@pytest.fixture
def run(digits_run, tmp_path):
    """A copy of the run that a test may write in."""
    return shutil.copytree(digits_run.path, tmp_path / "run")


def test_a_run_is_audited_and_listed(run, tmp_path):
    done = noisewise("audit", run, "-o", tmp_path / "issues.csv")
    result = audit(run)
    assert done.exit_code == 0 and f"{result.count:,} of 1,437 " in done.stdout
    rows = rows_of(tmp_path / "issues.csv")
    assert [int(row["index"]) for row in rows] == result.order.tolist()
    assert sum(row["is_label_issue"] == "True" for row in rows) == result.is_issue.sum()


def test_the_caution_about_a_weak_model_is_on_the_terminal_and_the_page(tmp_path):
    inputs, labels = load_digits(return_X_y=True)
    write_table(tmp_path / "digits.csv", inputs, labels, [*(f"x{place}" for place in range(64)), "label"])
    options = ("--epochs", 1, "--loss", "mae", "--judge", "record", "--run", tmp_path / "run", "-o", tmp_path / "issues.csv")
    done = noisewise("audit", tmp_path / "digits.csv", *options)
    caution = audit(tmp_path / "run").caution
    assert done.exit_code == 0 and f"noisewise: {caution}" in done.stderr
    page = (tmp_path / "issues.html").read_text(encoding="utf-8")
    assert 0 < page.find("(0.0 %)") < page.find(caution), "the caution follows the number"
    assert json.loads(noisewise("audit", tmp_path / "run", "--json").stdout)["caution"] == caution


def test_without_wrong_looking_labels_none_is_called_doubtful(tmp_path):
    folder = write_run(tmp_path / "run", [0, 1, 2], training=[(epoch, [2.0, 3.0, 1.0], [0, 1, 2]) for epoch in (1, 2, 3)])
    done = noisewise("audit", folder)
    assert done.exit_code == 0 and "The 3 least certain" in done.stdout and "of 3 labels" in done.stdout
    assert noisewise("report", folder, "-o", tmp_path / "report.html").exit_code == 0
    page = (tmp_path / "report.html").read_text(encoding="utf-8")
    assert "The 3 least certain" in page and "doubtful" not in done.stdout and "most doubtful" not in page


def test_json_has_the_numbers_of_the_audit(run):
    summary = json.loads(noisewise("audit", run, "--json").stdout)
    result = audit(run)
    assert summary["doubtful"] == result.is_issue.sum() and summary["interval"] == pytest.approx(result.interval)
    assert summary["worst"][0]["id"] == str(result.order[0]) and summary["written"] == []


def test_an_audit_of_a_table_trains_a_model_and_lists_wrong_labels_first(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    bunch = load_breast_cancer()
    rng = np.random.default_rng(0)
    wrong = rng.random(len(bunch.target)) < 0.1
    kinds = bunch.target_names[np.where(wrong, 1 - bunch.target, bunch.target)]
    write_table(tmp_path / "cells.csv", bunch.data, kinds, [*(f"x{number}" for number in range(30)), "kind"])
    done = noisewise("audit", "cells.csv", "--label", "kind", "--epochs", 20)
    assert done.exit_code == 0, done.stderr
    rows = rows_of(tmp_path / "issues.csv")
    listed = [wrong[int(row["index"])] for row in rows[: wrong.sum()]]
    assert np.mean(listed) > 0.7
    given = (kinds == bunch.target_names[1]).astype(int)
    alone = find_label_issues(given, evidence_from_features(bunch.data, given))
    listed = {int(row["index"]): float(row["label_quality"]) for row in rows}
    assert [listed[place] for place in range(len(given))] == pytest.approx(alone.label_quality, abs=0.1), "the features judge the labels"
    assert {row["given_label"] for row in rows} == {"benign", "malignant"}
    assert "<html" in (tmp_path / "issues.html").read_text(encoding="utf-8")
    (folder,) = (tmp_path / "runs").iterdir()
    assert json.loads((folder / "settings.json").read_text())["model"] == "mlp"


def test_the_default_model_and_augmentation_depend_on_the_data(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    rng = np.random.default_rng(0)
    labels = np.arange(60) % 2
    write_table(tmp_path / "embedded.csv", rng.normal(size=(60, 5)) + labels[:, None], labels, [*"abcde", "label"])
    assert noisewise("audit", "embedded.csv", "--embeddings", "--epochs", 2, "--run", "embedded").exit_code == 0
    assert json.loads((tmp_path / "embedded/settings.json").read_text())["model"] == "linear"
    for kind, level in (("dark", 40), ("light", 200)):
        (tmp_path / "shades" / kind).mkdir(parents=True)
        for number in range(8):
            pixels = rng.integers(level - 30, level + 30, (24, 24, 3), dtype=np.uint8)
            Image.fromarray(pixels).save(tmp_path / "shades" / kind / f"{number}.png")
    for model, side, augment in ((None, 24, "crop(2)"), ("resnet20", 16, "none"), ("mlp", 24, "none")):
        options = ("--size", side, "--epochs", 1, "--run", f"shaded-{model}", "-o", "shades.json")
        done = noisewise("audit", "shades", *options, *(() if model is None else ("--model", model)))
        assert done.exit_code == 0, done.stderr
        settings = json.loads((tmp_path / f"shaded-{model}/settings.json").read_text())
        assert (settings["model"], settings["augment"]) == (model or "resnet20", augment)
    assert {row["id"] for row in json.loads((tmp_path / "shades.json").read_text())} >= {"dark/0.png", "light/7.png"}


def test_the_default_loss_is_cross_entropy_for_many_classes(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for classes, loss in ((10, "gce(q=0.7)"), (200, "ce")):
        labels = np.arange(2 * classes) % classes
        write_table(tmp_path / f"{classes}.csv", np.random.default_rng(0).normal(size=(2 * classes, 3)), labels, [*"abc", "label"])
        done = noisewise("audit", f"{classes}.csv", "--epochs", 1, "--run", classes, "-o", f"issues{classes}.csv")
        assert done.exit_code == 0, done.stderr
        assert json.loads((tmp_path / f"{classes}/settings.json").read_text())["loss"] == loss


def test_unlearned_classes_are_retrained_with_cross_entropy_and_a_test_set_lowers_the_estimate(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    inputs, labels = load_digits(return_X_y=True)
    header = [*(f"x{place}" for place in range(64)), "label"]
    few = np.concatenate([np.flatnonzero(labels == label)[: 10 if label < 5 else 60] for label in range(10)])
    write_table(tmp_path / "rare.csv", inputs[few], labels[few], header)
    done = noisewise("audit", "rare.csv", "--judge", "record", "--run", "rare")
    assert done.exit_code == 0 and all(name in done.stderr for name in ("gce(q=0.7)", "'0', '1'"))
    assert done.stdout.splitlines()[-1] == "rare-ce" and UNTESTED in done.stdout
    assert audit("rare").unlearned and not audit("rare-ce").unlearned
    others = np.setdiff1d(np.arange(len(labels)), few)[:300]
    write_table(tmp_path / "others.csv", inputs[others], labels[others], header)
    done = noisewise("audit", "rare.csv", "--judge", "record", "--test", "others.csv", "--loss", "gce(q=0.7)", "--run", "tested")
    assert done.exit_code == 0 and UNTESTED not in done.stdout and f"noisewise: {audit('tested').caution}" in done.stderr
    assert json.loads(noisewise("audit", "tested", "--json").stdout)["tested"] is True
    assert audit("tested").interval[0] < audit("rare").interval[0]
    check_refused("audit", "tested", "--test", "others.csv", mentions=["--test"])


def test_rows_that_occur_twice_or_are_far_from_all_others_are_mentioned(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    inputs = np.random.default_rng(0).normal(size=(150, 5))
    labels = (inputs[:, 0] > 0).astype(int)
    inputs[20], inputs[31], inputs[140] = inputs[10], inputs[30], 60
    labels[20] = 1 - labels[10]
    rows = np.column_stack([np.arange(1000, 1150), inputs, labels])
    np.savetxt(tmp_path / "rows.csv", rows, ["%d", *["%.9f"] * 5, "%d"], ",", header="name,a,b,c,d,e,label", comments="")
    done = noisewise("audit", "rows.csv", "--id", "name", "--epochs", 1, "--run", "run")
    assert "2 rows occur more than once, 1 with different labels: 1010 = 1020, 1030 = 1031." in done.stdout
    assert "1 row is far from all others: 1140." in done.stdout
    found = json.loads(noisewise("audit", "rows.csv", "--id", "name", "--epochs", 1, "--run", "run", "--json").stdout)
    assert found["copies"] == [["1010", "1020"], ["1030", "1031"]] and found["outliers"] == ["1140"]
    kept = np.r_[:20, 21:31, 32:140, 141:150]
    np.savetxt(tmp_path / "plain.csv", rows[kept], ["%d", *["%.9f"] * 5, "%d"], ",", header="name,a,b,c,d,e,label", comments="")
    done = noisewise("audit", "plain.csv", "--id", "name", "--epochs", 1, "--run", "plain")
    assert "occur" not in done.stdout and "far from" not in done.stdout


def test_invalid_audits_are_refused_before_anything_is_trained_or_written(run, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    deeper = write_run(tmp_path / "demo/runs/ce", [0, 1, 2])
    before = sorted(tmp_path.rglob("*"))
    check_refused("audit", run, "--score", "combine", mentions=["'combine'", "'combined'"])
    check_refused("audit", run, "-o", "issues.txt", mentions=["issues.txt", ".csv", ".json", ".parquet"])
    check_refused("audit", run, "--label", "kind", mentions=["--label"])
    options = ["--epochs", 50, "--model", "mlp", "--loss", "mae", "--embeddings", "--run", "x", "--feature", "a"]
    check_refused("audit", run, *options, mentions=["--model, --embeddings, --loss, --epochs, --run, --feature"])
    check_refused("audit", "nothing", mentions=["'nothing'"])
    check_refused("audit", "digits", "--embeddings", "--model", "mlp", mentions=["--embeddings"])
    check_refused("audit", tmp_path, mentions=[f"'{run}'"])
    check_refused("audit", tmp_path / "demo", mentions=[f"'{deeper}'"])
    without = write_run(tmp_path / "without", [0, 1, 2])
    check_refused("audit", without, "-o", "issues.csv", mentions=[without])
    shutil.rmtree(without)
    assert sorted(tmp_path.rglob("*")) == before


@pytest.mark.parametrize("left", ["all", "record", "labels", "checkpoints", "provenance.json"])
def test_a_run_without_settings_is_not_read_as_images(run, tmp_path, monkeypatch, left):
    monkeypatch.chdir(tmp_path)
    (run / "settings.json").unlink()
    for other in list(run.iterdir()):
        if left not in ("all", other.name):
            shutil.rmtree(other) if other.is_dir() else other.unlink()
    check_refused("audit", "run", mentions=["'run'", "settings.json"])


def write_clusters(path, number=60, wrong=0):
    """A table of two clusters in which the first labels are wrong."""
    rng = np.random.default_rng(0)
    labels = np.arange(number) % 2
    given = np.where(np.arange(number) < wrong, 1 - labels, labels)
    write_table(path, rng.normal(size=(number, 4)) + 2 * labels[:, None], given, [*"abcd", "kind"])
    return path


def test_the_run_of_an_audit_can_be_corrected_retrained_and_tested(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    done = noisewise("audit", write_clusters(tmp_path / "mine.csv", wrong=6), "--label", "kind", "--epochs", 20)
    *_, page, run = done.stdout.splitlines()
    assert page == "issues.html" and (tmp_path / run / "settings.json").is_file()
    done = noisewise("correct", run, "--retrain", "--test", "mine.csv", "--run", "again")
    assert done.exit_code == 0, done.stderr
    measured = json.loads((tmp_path / "again/metrics.jsonl").read_text().splitlines()[-1])["test_accuracy"]
    *_, accuracy, agreement, verdict, better = done.stdout.splitlines()
    assert f"{100 * measured:.1f} %" in accuracy and "12 held-out labels" in agreement
    assert better == ("again" if "helped" in verdict else run)


@pytest.mark.parametrize("ending", ["csv", "json", "parquet"])
def test_an_audit_replaces_its_own_list_and_page_only(tmp_path, monkeypatch, ending):
    if ending == "parquet":
        pytest.importorskip("pyarrow.parquet").write_table(pytest.importorskip("pyarrow").table({"a": [1]}), tmp_path / "other.parquet")
    monkeypatch.chdir(tmp_path)
    command = ["audit", write_clusters(tmp_path / "mine.csv"), "--label", "kind", "--epochs", 2]
    for _ in range(2):
        done = noisewise(*command, "-o", f"issues.{ending}")
        assert done.exit_code == 0, done.stderr
    (tmp_path / f"broken.{ending}").write_bytes(b"\x00\xff no list at all")
    (tmp_path / "keep.html").write_text("<html><p>by hand")
    shutil.copy("mine.csv", "other.csv")
    (tmp_path / "other.json").write_text('[\n{"a": 1}\n]\n')
    before = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    check_refused(*command, "-o", "mine.csv", mentions=["'mine.csv'"])
    for other in (f"broken.{ending}", f"other.{ending}"):
        check_refused(*command, "-o", other, mentions=[repr(other)])
    check_refused(*command, "-o", f"keep.{ending}", mentions=["'keep.html'"])
    assert {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()} == before


def test_corrected_labels_and_review_pages_replace_only_files_of_their_kind(run, tmp_path):
    for _ in range(2):
        assert noisewise("correct", run, "-o", tmp_path / "labels.csv").exit_code == 0
        assert noisewise("correct", run, "--review", tmp_path / "review.html").exit_code == 0
    mine, page = write_clusters(tmp_path / "mine.csv"), tmp_path / "keep.html"
    page.write_text("<html><p>by hand")
    before = mine.read_bytes(), page.read_bytes()
    check_refused("correct", run, "-o", mine, mentions=[mine])
    check_refused("correct", run, "--review", page, mentions=[page])
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
def test_a_full_disk_is_reported_and_the_old_file_is_kept(run, tmp_path, monkeypatch, command, file):
    resource = pytest.importorskip("resource")
    monkeypatch.chdir(tmp_path)
    assert noisewise(*command, file).exit_code == 0
    before = (tmp_path / file).read_bytes()
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (2000, hard))  # no file may grow beyond that
    try:
        check_refused(*command, file, mentions=[repr(file), "File too large"])
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert (tmp_path / file).read_bytes() == before and not list(tmp_path.glob(".*"))


def test_audit_and_retrain_report_progress(tmp_path, monkeypatch):
    progress = []
    monkeypatch.setattr("noisewise.cli._app.Bar.__call__", lambda bar, step, steps: progress.append((step, steps)))
    monkeypatch.chdir(tmp_path)
    audited = noisewise("audit", write_clusters(tmp_path / "mine.csv", 400), "--label", "kind", "--epochs", 3, "--run", "run")
    assert audited.exit_code == 0, audited.stderr
    assert progress == [(step, 12) for step in range(1, 13)]
    progress.clear()
    (tmp_path / "decisions.json").write_text('[{"index": 0, "decision": "relabel"}]')
    again = noisewise("correct", "run", "--policy", "prune", "--decisions", "decisions.json", "--retrain")
    assert again.exit_code == 0, again.stderr
    assert progress[:12] == [(step, 12) for step in range(1, 13)] and len(progress) > 12, "and then both trainings of the check"


def test_a_stopped_audit_is_resumed(tmp_path, python):
    folder = tmp_path / "run"
    mine = write_clusters(tmp_path / "mine.csv", 400)
    command = ["audit", mine, "--label", "kind", "--epochs", 8, "--run", folder, "-o", tmp_path / "issues.csv"]
    stopped = python.interrupted(command, folder / "record/training/margins-00004.npy", signal.SIGTERM)
    assert (stopped.returncode, stopped.stdout) == (128 + signal.SIGTERM, "") and stopped.stderr.count("\n") == 1
    assert stopped.stderr.startswith("noisewise: ") and "SIGTERM" in stopped.stderr
    status = json.loads((folder / "status.json").read_text())
    assert (status["state"], status["reason"]) == ("interrupted", "stopped by SIGTERM")
    reached = status["epoch"]
    assert 3 <= reached < 8
    first = folder / "record/training/margins-00001.npy"
    before = first.stat().st_mtime_ns
    again = noisewise(*command)
    assert again.exit_code == 0, again.stderr
    (after,) = re.findall(r"^noisewise: .*step (\d+) of 32", again.stderr, re.MULTILINE)
    assert int(after) - 1 in (4 * reached - 4, 4 * reached), "an epoch is recorded before its checkpoint"
    assert first.stat().st_mtime_ns == before, "the first epoch was not repeated"
    assert json.loads((folder / "status.json").read_text()) == {"state": "finished", "reason": None, "epoch": 8, "step": 8 * 4}
    assert len(rows_of(tmp_path / "issues.csv")) == 400


@pytest.mark.parametrize(
    ("labels", "training", "mentions"),
    [
        ([0, 1, 2], [], ("run",)),
        ([0, 1, 2], [(1, [0.0, 1.0], [0, 1])], ("(3,)",)),
        ([0, 1, 3], [(1, [0.0, 1.0, 2.0], [0, 1, 2])], ("given.npy", "0 to 2")),
        ([0, 1, 2], [(1, [0.0, 1.0, 2.0], [0, 1, 3])], ("predictions-00001.npy",)),
    ],
)
def test_a_record_that_does_not_fit_its_labels_is_refused_and_nothing_is_written(tmp_path, labels, training, mentions):
    folder = write_run(tmp_path / "run", labels, training=training)
    before = sorted(tmp_path.rglob("*"))
    for command in (
        ("audit", folder, "-o", tmp_path / "issues.csv"),
        ("correct", folder, "--retrain"),
        ("correct", folder, "--review", "a.html"),
    ):
        check_refused(*command, mentions=mentions)
    assert sorted(tmp_path.rglob("*")) == before


def test_labels_are_corrected_listed_and_reverted(run):
    result = audit(run)
    done = noisewise("correct", run)
    assert done.exit_code == 0 and f"{result.count:,} relabelled" in done.stdout
    path = run / "corrected.csv"
    assert sum(row["change"] == "relabel" for row in rows_of(path)) == result.is_issue.sum()
    done = noisewise("correct", run, "--undo")
    assert f" {result.count:,} " in done.stdout
    undone = Correction.read(path, result.dynamics.record.classes)
    assert not undone.changed.any() and (undone.labels == result.given).all()


def test_labels_corrected_with_a_bound_are_written_to_the_given_file(run, tmp_path):
    assert noisewise("correct", run, "--policy", "prune(below=0.2)", "-o", tmp_path / "labels.csv").exit_code == 0
    result = audit(run)
    left_out = [row["label"] == "" for row in rows_of(tmp_path / "labels.csv")]
    np.testing.assert_array_equal(left_out, result.is_issue & (result.quality < 0.2))
    assert 0 < sum(left_out) < result.count
    assert not (run / "corrected.csv").exists()


def test_decisions_from_a_review_page_are_applied(run, tmp_path):
    assert noisewise("correct", run, "--review", tmp_path / "review.html", "--limit", 5).exit_code == 0
    page = (tmp_path / "review.html").read_text(encoding="utf-8")
    cards = json.loads(page.partition('id="content">')[2].partition("</script>")[0])["cards"]
    assert len(cards) == 5 and not (run / "corrected.csv").exists()
    index, given, suggested, *_ = cards[0]
    chosen = [{"index": index, "decision": "relabel"}, {"index": cards[1][0], "decision": "keep"}]
    (tmp_path / "decisions.json").write_text(json.dumps(chosen))
    assert noisewise("correct", run, "--decisions", tmp_path / "decisions.json").exit_code == 0
    changed = [row for row in rows_of(run / "corrected.csv") if row["change"]]
    assert [(int(row["index"]), row["given_label"], row["label"]) for row in changed] == [(index, str(given), str(suggested))]


def test_correct_can_retrain_the_run_in_the_current_folder_and_the_report_compares_both(run, monkeypatch):
    monkeypatch.chdir(run)
    done = noisewise("correct", ".", "--retrain")
    assert done.exit_code == 0, done.stderr
    assert done.stdout.splitlines()[-1] == str(run.parent / "run-corrected")
    before, after = (f"{100 * Run(folder).dynamics.final:.1f} %" for folder in (run, run.parent / "run-corrected"))
    assert 0 < done.stdout.find(before) < done.stdout.rfind(after)
    assert (run.parent / "run-corrected/model.safetensors").exists()
    done = noisewise("report", run, run.parent / "run-corrected", "-o", run.parent / "report.html")
    assert done.exit_code == 0, done.stderr
    page = (run.parent / "report.html").read_text(encoding="utf-8")
    assert 'id="correction"' in page and "ce, relabelled" in page
    done = noisewise("correct", run.parent / "run-corrected", "--policy", "prune", "--retrain")
    assert done.exit_code == 0 and (run.parent / "run-corrected-corrected/model.safetensors").exists(), done.stderr


def test_unchanged_labels_are_not_retrained(run, tmp_path):
    (tmp_path / "decisions.json").write_text("[]")
    done = noisewise("correct", run, "--decisions", tmp_path / "decisions.json", "--retrain")
    assert done.exit_code == 0 and done.stderr.startswith("noisewise: ") and done.stderr.count("\n") == 1
    assert not (run.parent / "run-corrected").exists() and (run / "corrected.csv").exists()


def test_invalid_corrections_are_refused_and_change_nothing(run, tmp_path):
    before = sorted(run.rglob("*"))
    check_refused("correct", run, "--policy", "relable", mentions=["'relable'", "'relabel'"])
    check_refused("correct", run, "--policy", "soften", "--retrain", mentions=["relabel", "prune", "soften"])
    check_refused("correct", run, "--undo", "--retrain", mentions=["--undo", "--retrain"])
    check_refused("correct", run, "--limit", 5, mentions=["--limit", "--review"])
    check_refused("correct", run, "--undo", "--policy", "prune", mentions=["--undo", "--policy"])
    check_refused("correct", run, "--review", tmp_path / "r.html", "--policy", "prune", mentions=["--review", "--policy"])
    check_refused("correct", run, "--data", "digits", mentions=["--data", "--review", "--retrain"])
    check_refused("correct", run, "--undo", mentions=[run / "corrected.csv"])
    check_refused("correct", run, "--decisions", tmp_path / "none.json", mentions=[tmp_path / "none.json"])
    check_refused("correct", run, "--label", "kind", mentions=["--label"])
    check_refused("correct", tmp_path / "nowhere", mentions=[tmp_path / "nowhere"])
    (tmp_path / "taken").mkdir()
    (tmp_path / "taken/thesis.tex").write_text("mine")
    check_refused("correct", run, "--retrain", "--run", tmp_path / "taken", mentions=[tmp_path / "taken"])
    assert sorted(run.rglob("*")) == before
