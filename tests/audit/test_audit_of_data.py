"""`noisewise.audit` takes a run, its folder, or data; it does what the command of the same name does."""

import csv

import numpy as np
import pandas
import pytest
from typer.testing import CliRunner

import noisewise
from noisewise.cli import app
from refused import refused
from run_folders import write_run


@pytest.fixture(scope="module")
def table():
    """Two clusters in which every tenth label is wrong, as a DataFrame."""
    rng = np.random.default_rng(0)
    labels = np.arange(120) % 2
    wrong = np.arange(120) % 10 == 0
    rows = pandas.DataFrame(rng.normal(size=(120, 3)) + 3 * labels[:, None], columns=list("abc"))
    rows["name"] = [f"row {number}" for number in range(120)]
    rows["kind"] = np.array(["low", "high"])[np.where(wrong, 1 - labels, labels)]
    return rows, wrong


def test_a_run_its_folder_and_its_dynamics_are_audited_alike(digits_run, digits_audit):
    for run in (digits_run, str(digits_run.path), digits_run.dynamics):
        np.testing.assert_array_equal(noisewise.audit(run).quality, digits_audit.quality)
    corrected = noisewise.correct(digits_audit)
    assert corrected.changes == noisewise.correct(digits_run).changes != {}


def test_data_in_memory_and_a_file_are_audited_like_on_the_command_line(table, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    rows, wrong = table
    rows.to_csv("rows.csv", index=False)
    done = CliRunner().invoke(app, ["audit", "rows.csv", "--label", "kind", "--id", "name", "--epochs", "3", "--run", "theirs"])
    assert done.exit_code == 0, done.stderr
    with (tmp_path / "issues.csv").open(encoding="utf-8", newline="") as file:
        expected = list(csv.DictReader(file))
    steps = []
    from_file = noisewise.audit(
        "rows.csv", label="kind", id="name", epochs=3, folder="ours", watch=lambda step, steps_in_all: steps.append(step)
    )
    assert [row["id"] for row in expected] == [from_file.ids[place] for place in from_file.order] and steps[0] == 1
    np.testing.assert_allclose([float(row["label_quality"]) for row in expected], np.sort(from_file.quality), atol=1e-6)
    frame = noisewise.audit(rows, label="kind", id="name", epochs=3, folder="frame")
    pair = noisewise.audit((rows[["a", "b", "c"]].to_numpy(), rows["kind"].tolist()), epochs=3, folder="pair")
    assert frame.ids == from_file.ids and wrong[frame.order[:12]].mean() > 0.9 and wrong[pair.order[:12]].mean() > 0.9
    assert noisewise.report(frame.dynamics.folder, "page.html", data=noisewise.data.read(rows, label="kind", id="name")).is_file()


def test_the_record_judges_if_it_is_asked_to(table, tmp_path):
    rows, _ = table
    audit = noisewise.audit(
        rows.drop(columns="name"), label="kind", judge="record", model="linear", loss="ce", epochs=2, folder=tmp_path / "run"
    )
    run = noisewise.Run(tmp_path / "run")
    assert audit.model is None and (run.settings.model, run.settings.loss, run.settings.epochs) == ("linear", "ce", 2)


def test_wrong_arguments_are_refused_before_training(table, digits_run, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    rows, _ = table
    deeper = write_run(tmp_path / "runs/ce", [0, 1, 2])
    with refused("epochs, label", "is a run"):
        noisewise.audit(digits_run, epochs=3, label="kind")
    with refused("'judges'", "'judge'"):
        noisewise.audit(rows, label="kind", judges="record")
    with refused("'judge'", "'nobody'"):
        noisewise.audit(rows, label="kind", judge="nobody")
    with refused(str(deeper)):
        noisewise.audit(tmp_path / "runs")
    with refused("model", "embeddings"):
        noisewise.audit(rows.drop(columns="name"), label="kind", model="mlp", embeddings=True)
    assert [path.name for path in tmp_path.iterdir()] == ["runs"]
