"""A newcomer's day: the one file of the walk-through, dropped into a copy of the package, is all it takes to add a loss."""

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import noisewise

_WALK_THROUGH = Path(__file__).parent.parent / "docs" / "adding-a-loss.md"


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a copy of the package and the walk-through's loss in it."""
    folder = tmp_path_factory.mktemp("newcomer")
    shutil.copytree(Path(noisewise.__file__).parent, folder / "noisewise", ignore=shutil.ignore_patterns("__pycache__"))
    blocks = re.findall(r"```python\n(.*?)```", _WALK_THROUGH.read_text(encoding="utf-8"), re.DOTALL)
    (folder / "noisewise" / "losses" / "hill.py").write_text(blocks[0], encoding="utf-8")
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


def test_its_docstring_example_runs(home: Path) -> None:
    _python(
        home,
        "-c",
        "import doctest, torch, noisewise.losses.hill as hill; "
        "outcome = doctest.testmod(hill, extraglobs={'torch': torch}); assert outcome.attempted == 1 and not outcome.failed",
    )
