"""The guides are enough to add losses, methods, noises, models and data sets; the settings of the demo were chosen without test data."""

import re
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

import noisewise
from noisewise import demo
from noisewise.train import make_settings
from prepared import Prepared, python_with

_ROOT = Path(__file__).parent.parent
_GUIDES = {
    "loss": "losses/hill.py",
    "method": "methods/self_label.py",
    "noise": "noise/adjacent.py",
    "model": "models/shallow.py",
    "data-set": "data/halves.py",
}


@pytest.fixture(scope="module")
def extended(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Prepared, Path]]:
    """Python with a copy of the package that contains the classes of the guides, each as a new file; and the folder of the copy."""
    folder = tmp_path_factory.mktemp("newcomer")
    shutil.copytree(Path(noisewise.__file__).parent, folder / "noisewise", ignore=shutil.ignore_patterns("__pycache__"))
    for kind, file in _GUIDES.items():
        page = (_ROOT / "docs" / f"adding-a-{kind}.md").read_text(encoding="utf-8")
        block = re.findall(r"```python\n(.*?)```", page, re.DOTALL)[0]
        (folder / "noisewise" / file).write_text(block, encoding="utf-8")
    with python_with("torch", "noisewise", PYTHONPATH=str(folder)) as python:
        yield python, folder


def _run(extended: tuple[Prepared, Path], program: str) -> None:
    python, folder = extended
    (folder / "program.py").write_text(program, encoding="utf-8")
    status, output = python.run(folder / "program.py")
    assert status == 0, output


def test_a_new_loss_is_listed_and_described(extended: tuple[Prepared, Path]) -> None:
    _run(
        extended,
        """
import json
from typer.testing import CliRunner
from noisewise.cli import app
rows = {row["name"]: row for row in json.loads(CliRunner().invoke(app, ["losses", "--json"]).stdout)}
assert rows["hill"]["emphasis"] == "p^a (1 − p)^b"
assert abs(rows["hill"]["focus"] - 0.5) < 1e-6
assert rows["hill"]["parameters"][0]["requirement"] == "in (0, inf)"
""",
    )


def test_a_new_loss_works_like_a_built_in_one(extended: tuple[Prepared, Path]) -> None:
    _run(
        extended,
        f"""
import pathlib, torch, noisewise
assert pathlib.Path(noisewise.__file__).is_relative_to({str(extended[1])!r})
loss = noisewise.get("hill(a=0.5, b=2)")
assert repr(loss) == "hill(a=0.5, b=2.0)" and noisewise.losses.Hill is type(loss)
scores = 3 * torch.randn(6, 5, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
labels = torch.arange(6) % 5
assert torch.autograd.gradcheck(lambda s: loss(s, labels), scores.requires_grad_())
try:
    noisewise.get("hill(a=0)")
except noisewise.InputError as error:
    assert all(mention in str(error) for mention in ("'a'", "Hill", "(0, inf)", "0"))
else:
    raise AssertionError("a wrong setting was accepted")
""",
    )


def test_a_new_method_is_registered_listed_described_and_in_the_table_of_the_documentation(extended: tuple[Prepared, Path]) -> None:
    _run(
        extended,
        f"""
import importlib.util, json
from typer.testing import CliRunner
from noisewise import methods
from noisewise.cli import app
assert repr(methods.get("self_label(0.5)")) == "self_label(threshold=0.5, warm_up=5)" and "SelfLabel" in methods.__all__
rows = {{row["name"]: row for row in json.loads(CliRunner().invoke(app, ["methods", "--json"]).stdout)}}
assert rows["self_label"]["parameters"][0]["requirement"] == "in [0, 1]" and rows["self_label"]["needs"] == []
assert "loss(argmax p)" in CliRunner().invoke(app, ["methods", "self_label"]).stdout
spec = importlib.util.spec_from_file_location("hooks", {str(_ROOT / "docs" / "hooks.py")!r})
hooks = importlib.util.module_from_spec(spec)
spec.loader.exec_module(hooks)
assert "| [`self_label`](methods/self_label.md) | Replace the label" in hooks.tables()["methods"]
assert "loss(argmax p)" in hooks.method_pages()["methods/self_label.md"]
""",
    )


def test_a_new_method_trains_and_its_record_is_of_the_given_labels(extended: tuple[Prepared, Path], tmp_path: Path) -> None:
    _run(
        extended,
        f"""
import numpy as np, noisewise
settings = dict(noise="symmetric(0.4)", epochs=3, device="cpu", augment="none")
plain, mine = (
    noisewise.fit("linear", "digits", method=method, folder={str(tmp_path)!r} + "/" + method[:5], **settings)
    for method in ("plain", "self_label(threshold=0, warm_up=2)")
)
margins = [np.load(next((run.path / "record" / "training").glob("margins-*2.npy"))) for run in (plain, mine)]
assert np.array_equal(*margins)  # during the warm-up
given = np.load(mine.path / "labels/given.npy")
last = sorted((mine.path / "record" / "training").glob("margins-*.npy"))[-1]
predicted = np.load(str(last).replace("margins", "predictions"))
assert (np.load(last)[predicted != given] <= 0).all()  # the margins of the predictions would be positive
""",
    )


def test_a_new_noise_model_and_data_set_are_registered(extended: tuple[Prepared, Path]) -> None:
    _run(
        extended,
        """
from noisewise import data, models, noise
assert noise.corrupt([0, 1, 2], "adjacent(1)").labels[1] != 1 and noise.Adjacent.__module__ == "noisewise.noise.adjacent"
assert repr(models.get("shallow", num_classes=3)) == "shallow(3)" and "Shallow" in models.__all__
assert data.describe("halves").summary == "100 points, 2 classes"
""",
    )


def test_the_example_in_the_docstring_of_a_new_loss_runs(extended: tuple[Prepared, Path]) -> None:
    _run(
        extended,
        """
import doctest, torch, noisewise.losses.hill as hill
outcome = doctest.testmod(hill, extraglobs={"torch": torch})
assert outcome.attempted == 1 and not outcome.failed
""",
    )


def _chosen(loss: str) -> str:
    """The best number of epochs for a loss according to benchmarks/demo_settings.py; the last if there are several."""
    section = (_ROOT / "benchmarks" / "RESULTS.md").read_text(encoding="utf-8").partition("## Settings of the demonstration\n")[2]
    lines = [line for line in section.partition("\n## ")[0].splitlines() if line.startswith("|")]
    head, _, *rows = ([cell.strip() for cell in line.strip("|").split("|")] for line in lines)
    return [row[0] for row in rows if row[head.index(f"`{loss}`")].startswith("**")][-1]


def test_the_demo_uses_default_settings_and_epochs_chosen_on_held_out_noisy_labels() -> None:
    settings = make_settings({"data": "digits", "model": "mlp", **demo._SETTINGS})
    defaults = make_settings({"data": "digits", "model": "mlp", "epochs": settings.epochs})
    assert all(getattr(settings, name) == getattr(defaults, name) for name in ("batch_size", "optimiser", "schedule", "weight_decay"))
    assert str(settings.epochs) == _chosen("gce(q=0.7)")


def test_the_commands_of_the_readme_use_epochs_chosen_on_held_out_noisy_labels() -> None:
    page = (_ROOT / "README.md").read_text(encoding="utf-8")
    assert re.findall(r"^noisewise compare .* --epochs (\d+)", page, re.MULTILINE) == [_chosen("gce(q=0.7)")]
    assert re.findall(r"^noisewise train .* --epochs (\d+)", page, re.MULTILINE) == [_chosen("imae(T=8)")]
