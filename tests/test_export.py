"""Exported models: other programs compute the probabilities of `Run.predict` from what the JSON file beside the model describes."""

from __future__ import annotations

import builtins
import json
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pandas
import pytest
import torch
from onnx.reference import ReferenceEvaluator
from typer.testing import CliRunner

import noisewise
from noisewise.cli import app
from noisewise.integrations import export as module
from noisewise.integrations.export import export
from refused import refused

IMAGES = torch.from_numpy(np.random.default_rng(0).integers(0, 256, (48, 3, 8, 8), dtype=np.uint8))
LABELS = np.arange(48) % 3


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> noisewise.Run:
    """A convolutional network on bytes, with normalisation and a temperature."""
    bright = (IMAGES.int() + 40 * torch.from_numpy(LABELS).view(-1, 1, 1, 1)).clamp(max=255).byte()
    classes = [("cat", "dog", "füchs")[label] for label in LABELS]
    folder = tmp_path_factory.mktemp("runs") / "run"
    run = noisewise.fit("cnn8", (bright, classes), epochs=2, batch_size=16, validation=0.25, folder=folder, device="cpu")
    assert run.temperature != 1
    return run


def by_onnx(file: Path, inputs: Any) -> np.ndarray:
    model = onnx.load(file)
    onnx.checker.check_model(model, full_check=True)
    return np.asarray(ReferenceEvaluator(model).run(["probabilities"], {"inputs": np.asarray(inputs)})[0])


def test_onnx_and_a_pytorch_program_predict_like_the_run_for_batches_of_any_size(run: noisewise.Run, tmp_path: Path) -> None:
    expected = run.predict(IMAGES).numpy()
    done = CliRunner().invoke(app, ["export", str(run.path), "-o", str(tmp_path / "model.onnx")])
    assert done.exit_code == 0 and done.stdout.split() == [str(tmp_path / "model.onnx"), str(tmp_path / "model.json")], done.stderr
    program = torch.export.load(run.export(tmp_path / "model.pt2")).module()
    for number in (1, 5):
        np.testing.assert_allclose(by_onnx(tmp_path / "model.onnx", IMAGES[:number]), expected[:number], atol=2e-5)
        np.testing.assert_allclose(program(IMAGES[:number]).numpy(), expected[:number], atol=2e-5)
    model = onnx.load(tmp_path / "model.onnx")
    metadata = {entry.key: entry.value for entry in model.metadata_props}
    described = json.loads((tmp_path / "model.json").read_text(encoding="utf-8"))
    assert json.loads(metadata["classes"]) == described["classes"] == ["cat", "dog", "füchs"]
    assert described["inputs"] == {"name": "inputs", "type": "uint8", "shape": ["batch", 3, 8, 8]}
    (size, *_) = model.graph.input[0].type.tensor_type.shape.dim
    assert size.dim_param == "batch"


def test_the_description_says_how_a_table_becomes_numbers(tmp_path: Path) -> None:
    generator = np.random.default_rng(0)
    table = pandas.DataFrame({"age": generator.normal(40, 10, 60), "town": generator.choice(["Bonn", "Kiel", "Ulm"], 60)})
    table["plan"] = np.where(table["town"] == "Ulm", "big", "small")
    table.loc[3, "age"] = np.nan
    run = noisewise.fit("mlp", noisewise.data.read(table, label="plan"), epochs=1, folder=tmp_path / "run", device="cpu")
    export(run, tmp_path / "model.onnx")
    described = json.loads((tmp_path / "model.json").read_text(encoding="utf-8"))
    assert "encoding" in described["before"] and described["classes"] == ["big", "small"]
    age, town = described["encoding"]["encoders"]
    assert (
        described["columns"][0] == age["name"] == "age" and town["name"] == "town" and any("Ulm" in name for name in described["columns"])
    )
    arrays = {name: np.asarray(values) for name, values in described["arrays"].items()}
    encoding = noisewise.data.Encoding.load(described["encoding"], arrays)
    rows = noisewise.data.read_rows(table[["age", "town"]], encoding)
    np.testing.assert_allclose(by_onnx(tmp_path / "model.onnx", rows), run.predict(table).numpy(), atol=2e-5)


def test_what_cannot_be_exported_is_refused(run: noisewise.Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with refused("model.txt", ".onnx", ".pt2"):
        export(run, tmp_path / "model.txt")
    (tmp_path / "theirs.pt2").write_bytes(b"not ours")
    with refused("theirs.pt2"):
        export(run, tmp_path / "theirs.pt2")
    with noisewise.Recorder(tmp_path / "recorded", LABELS, loss="ce") as recorder:
        recorder.log(torch.arange(48), torch.zeros(48, 3))
        recorder.end_epoch()
    with refused("recorded", "Recorder"):
        export(tmp_path / "recorded", tmp_path / "model.pt2")
    monkeypatch.setattr(module, "find_spec", lambda name: None)
    with refused("onnx", "pip install 'noisewise[onnx]'"):
        export(run, tmp_path / "model.onnx")
    assert [path.name for path in tmp_path.iterdir() if path.name.startswith("model")] == []


def test_a_model_that_depends_on_the_values_of_its_inputs_is_refused_in_one_sentence(tmp_path: Path) -> None:
    class Branching(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = torch.nn.Linear(2, 2)

        def forward(self, inputs: torch.Tensor) -> torch.Tensor:
            return self.layer(inputs if builtins.float(inputs.sum()) > 0 else -inputs)

    data = (np.random.default_rng(0).normal(size=(20, 2)).astype(np.float32), np.arange(20) % 2)
    run = noisewise.fit(Branching(), data, epochs=1, folder=tmp_path / "run", device="cpu")
    with refused("cannot be exported", str(run.path)):
        run.export(tmp_path / "model.pt2", into=Branching())
