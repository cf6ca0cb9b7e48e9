"""The model card: the hub's library reads it, the folder predicts like the run, and nothing private is in it."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from huggingface_hub import ModelCard
from torch import nn
from typer.testing import CliRunner

import noisewise
from noisewise.cli import app
from noisewise.report import write_card
from noisewise.train import Run
from refused import refused


@pytest.fixture(scope="module")
def table(tmp_path_factory: pytest.TempPathFactory) -> Run:
    folder, draw = tmp_path_factory.mktemp("private"), np.random.default_rng(0)
    lines = ["person,age,city,plan"]
    for row in range(200):
        lines.append(f"person-{row},{draw.normal() + 4 * (row % 2):.2f},{'ab'[row % 2]},{'pro' if row % 2 else 'free: 1'}")
    (folder / "customers.csv").write_text("\n".join(lines), encoding="utf-8")
    data = noisewise.data.read(folder / "customers.csv", label="plan", id="person")
    return noisewise.fit("mlp", data, test=data, folder=folder / "run", epochs=5, loss="gce(q=0.7)", device="cpu", validation=0.2)


def test_the_hub_reads_the_card_and_its_results(table: Run, tmp_path: Path) -> None:
    folder = write_card(table, tmp_path / "card", title='Plans: "A" & B', license="apache-2.0")
    card = ModelCard.load(folder / "README.md")
    assert (card.data.library_name, card.data.license, card.data.pipeline_tag) == ("noisewise", "apache-2.0", "tabular-classification")
    (result,) = card.data.eval_results
    assert card.data.model_name == 'Plans: "A" & B' and result.metric_type == "accuracy" and result.dataset_name == "customers"
    assert result.metric_value == table.dynamics.accuracy
    config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    assert config["classes"] == list(table.classes) and config["loss"] == "gce(q=0.7)"
    assert "`gce(q=0.7)`" in card.text and f"{100 * table.dynamics.accuracy:.1f} %" in card.text


def test_the_folder_predicts_like_the_run_and_has_no_labels_or_paths(table: Run, tmp_path: Path) -> None:
    done = CliRunner().invoke(app, ["card", str(table.path), "-o", str(tmp_path / "card")])
    assert done.exit_code == 0, done.output
    source = table.path.parent / "customers.csv"
    assert table.temperature != 1 and torch.equal(Run(tmp_path / "card").predict(source), table.predict(source))
    content = b"".join(file.read_bytes() for file in (tmp_path / "card").iterdir())
    assert b"person-" not in content and str(table.path.parent).encode() not in content
    assert not [file for file in (tmp_path / "card").iterdir() if file.is_dir()]
    command = ["predict", str(tmp_path / "card"), str(source), "-o", str(tmp_path / "out.csv")]
    assert CliRunner().invoke(app, command).exit_code == 0


def test_a_recorded_module_is_loaded_into_its_class(tmp_path: Path) -> None:
    model = nn.Linear(4, 3)
    with noisewise.Recorder(tmp_path / "run", torch.arange(30) % 3, loss="ce", model="mine") as recorder:
        recorder.log(torch.arange(30), model(torch.randn(30, 4)))
        run = recorder.finish(model)
    folder = write_card(run, tmp_path / "card")
    inputs = torch.randn(5, 4)
    assert "into=module" in (folder / "README.md").read_text(encoding="utf-8")
    assert torch.allclose(Run(folder).predict(inputs, into=nn.Linear(4, 3)), model(inputs).softmax(1))
    ModelCard.load(folder / "README.md")


def test_only_folders_of_its_own_are_written_again(table: Run, tmp_path: Path) -> None:
    write_card(table, tmp_path / "card", title="first")
    assert "# second" in (write_card(table, tmp_path / "card", title="second") / "README.md").read_text(encoding="utf-8")
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "README.md").write_text("mine")
    with refused(tmp_path / "other"):
        write_card(table, tmp_path / "other")
    with noisewise.Recorder(tmp_path / "run", torch.arange(4) % 2, loss="ce") as recorder:
        recorder.log(torch.arange(4), torch.zeros(4, 2))
    with refused("model.safetensors"):
        write_card(tmp_path / "run", tmp_path / "new")
    assert not (tmp_path / "new").exists()
