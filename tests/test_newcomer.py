"""What a newcomer sees: settings that were chosen without the test split, and guides that are all it takes to add a part."""

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import noisewise
from noisewise import demo
from noisewise.train import make_settings

_ROOT = Path(__file__).parent.parent
_GUIDES = {"loss": "losses/hill.py", "noise": "noise/adjacent.py", "model": "models/shallow.py", "data-set": "data/halves.py"}


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a copy of the package and the classes of the guides in it, each as a new file."""
    folder = tmp_path_factory.mktemp("newcomer")
    shutil.copytree(Path(noisewise.__file__).parent, folder / "noisewise", ignore=shutil.ignore_patterns("__pycache__"))
    for kind, file in _GUIDES.items():
        page = (_ROOT / "docs" / f"adding-a-{kind}.md").read_text(encoding="utf-8")
        block = re.findall(r"```python\n(.*?)```", page, re.DOTALL)[0]
        (folder / "noisewise" / file).write_text(block, encoding="utf-8")
    return folder


def _python(home: Path, *arguments: str) -> str:
    environment = {**os.environ, "PYTHONPATH": str(home)}
    done = subprocess.run([sys.executable, *arguments], cwd=home, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_one_file_is_listed_and_described(home: Path) -> None:
    rows = {row["name"]: row for row in json.loads(_python(home, "-m", "noisewise", "losses", "--json"))}
    assert rows["hill"]["emphasis"] == "p^a (1 − p)^b"
    assert rows["hill"]["focus"] == pytest.approx(0.5)
    assert rows["hill"]["parameters"][0]["requirement"] == "in (0, inf)"


def test_one_file_gives_a_whole_loss(home: Path) -> None:
    _python(
        home,
        "-c",
        f"""
import pathlib, torch, noisewise
assert pathlib.Path(noisewise.__file__).is_relative_to({str(home)!r})
loss = noisewise.get("hill(a=0.5, b=2)")
assert repr(loss) == "hill(a=0.5, b=2.0)" and noisewise.losses.Hill is type(loss)
scores = 3 * torch.randn(6, 5, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
labels = torch.arange(6) % 5
assert torch.autograd.gradcheck(lambda s: loss(s, labels), scores.requires_grad_())
try:
    noisewise.get("hill(a=0)")
except noisewise.InputError as error:
    assert str(error) == "The 'a' parameter of Hill must be in (0, inf). Got 0 instead."
else:
    raise AssertionError("a wrong setting was accepted")
""",
    )


def test_one_file_gives_a_noise_a_model_and_a_data_set(home: Path) -> None:
    _python(
        home,
        "-c",
        """
from noisewise import data, models, noise
assert noise.corrupt([0, 1, 2], "adjacent(1)").labels[1] != 1 and noise.Adjacent.__module__ == "noisewise.noise.adjacent"
assert repr(models.get("shallow", num_classes=3)) == "shallow(3)" and "Shallow" in models.__all__
assert data.describe("halves").summary == "100 points, 2 classes"
""",
    )


def test_its_docstring_example_runs(home: Path) -> None:
    _python(
        home,
        "-c",
        "import doctest, torch, noisewise.losses.hill as hill; "
        "outcome = doctest.testmod(hill, extraglobs={'torch': torch}); assert outcome.attempted == 1 and not outcome.failed",
    )


def _chosen(loss: str) -> str:
    """The number of epochs that benchmarks/demo_settings.py found best for a loss, the last if there are several."""
    section = (_ROOT / "benchmarks" / "RESULTS.md").read_text(encoding="utf-8").partition("## Settings of the demonstration\n")[2]
    lines = [line for line in section.partition("\n## ")[0].splitlines() if line.startswith("|")]
    head, _, *rows = ([cell.strip() for cell in line.strip("|").split("|")] for line in lines)
    return [row[0] for row in rows if row[head.index(f"`{loss}`")].startswith("**")][-1]


def test_the_demonstration_has_default_settings_and_epochs_chosen_on_held_out_noisy_labels() -> None:
    settings = make_settings({"data": "digits", "model": "mlp", **demo._SETTINGS})
    defaults = make_settings({"data": "digits", "model": "mlp", "epochs": settings.epochs})
    assert all(getattr(settings, name) == getattr(defaults, name) for name in ("batch_size", "optimiser", "schedule", "weight_decay"))
    assert str(settings.epochs) == _chosen("gce(q=0.7)")


def test_the_commands_of_the_readme_have_the_epochs_that_held_out_noisy_labels_chose() -> None:
    page = (_ROOT / "README.md").read_text(encoding="utf-8")
    assert re.findall(r"^noisewise compare .* --epochs (\d+)", page, re.MULTILINE) == [_chosen("gce(q=0.7)")]
    assert re.findall(r"^noisewise train .* --epochs (\d+)", page, re.MULTILINE) == [_chosen("imae(T=8)")]
