"""The documentation is true: its code runs, and it leaves out no loss and no public name."""

import importlib.util
import json
import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import typer
from typer.testing import CliRunner

import noisewise
from noisewise.cli import app
from noisewise.losses import available
from noisewise.spec import Registry
from prepared import Prepared, prepared

ROOT = Path(__file__).parent.parent
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]


def _blocks(page: Path, language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", page.read_text(encoding="utf-8"), re.DOTALL | re.MULTILINE)


@pytest.fixture(scope="module")
def hooks() -> ModuleType:
    spec = importlib.util.spec_from_file_location("documentation_hooks", ROOT / "docs" / "hooks.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def python() -> Iterator[Prepared]:
    with prepared() as server:
        yield server


@pytest.mark.parametrize("page", [page for page in PAGES if _blocks(page, "python")], ids=lambda page: page.name)
def test_python_of_a_page_runs_from_top_to_bottom(page: Path, tmp_path: Path, python: Prepared) -> None:
    (tmp_path / "page.py").write_text("\n".join(_blocks(page, "python")), encoding="utf-8")
    code, output = python.run(tmp_path / "page.py")
    assert code == 0, output


_COMMANDS = {line for page in PAGES for block in _blocks(page, "bash") for line in block.splitlines() if line.startswith("noisewise ")}
_COMPARES, _AUDITS = ({line for line in _COMMANDS if line.startswith(f"noisewise {name} ")} for name in ("compare", "audit"))


@pytest.mark.parametrize("line", sorted(_COMMANDS - _COMPARES - _AUDITS))
def test_a_documented_command_works(line: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert CliRunner().invoke(app, shlex.split(line, comments=True)[1:]).exit_code == 0


def _printed(line: str) -> Any:
    done = CliRunner().invoke(app, [*shlex.split(line, comments=True)[1:], "--json"])
    assert done.exit_code == 0, done.stderr
    return json.loads(done.stdout)


@pytest.mark.parametrize("line", sorted(_COMPARES))
def test_a_documented_comparison_shows_the_robust_loss_ahead(line: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    results = {row["loss"]: row for row in _printed(line)["results"]}
    plain, robust = results.pop("ce"), results.popitem()[1]
    assert robust["final"]["mean"] > plain["final"]["mean"] + 0.1 and robust["noisy_subset"]["mean"] < plain["noisy_subset"]["mean"] / 3


@pytest.mark.parametrize("line", sorted(_AUDITS))
def test_a_documented_audit_of_right_labels_doubts_few_and_says_how_good_its_model_is(
    line: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    summary = _printed(line)
    assert summary["labels"] == 1437 and summary["doubtful"] <= 15 and summary["caution"] is None
    (run,) = (tmp_path / "runs").iterdir()
    assert summary["test_accuracy"] == json.loads((run / "metrics.jsonl").read_text().splitlines()[-1])["test_accuracy"] > 0.9


def test_the_page_on_the_command_line_leaves_out_no_command() -> None:
    page = (ROOT / "docs" / "command-line.md").read_text(encoding="utf-8")
    assert all(f"noisewise {name}" in page for name in typer.main.get_command(app).commands)  # type: ignore[attr-defined]


@pytest.mark.parametrize("target", ["demo", "test"])
def test_the_two_commands_of_the_readme_are_in_the_makefile(target: str) -> None:
    assert re.search(rf"^make {target}\b", "".join(_blocks(ROOT / "README.md", "bash")), re.MULTILINE)
    assert re.search(rf"^{target}:", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE)


def test_pages_have_what_the_switch_between_light_and_dark_sets(hooks: ModuleType) -> None:
    shown = hooks.on_post_page("<html><head></head><body></body></html>", None, None)
    assert re.findall(r'<style id="(.+?)"></style>', shown.partition("</head>")[0]) == ["hljs-light", "hljs-dark"]


def test_every_loss_has_a_page_and_stands_in_the_list(hooks: ModuleType) -> None:
    pages = hooks.loss_pages()
    assert sorted(pages) == sorted(["losses/index.md", *(f"losses/{name}.md" for name in available())])
    for name in available():
        assert f"[{name}]({name}.md)" in pages["losses/index.md"]
        page = pages[f"losses/{name}.md"]
        assert all(f"## {section}" in page for section in ("Formula", "Example", "Reference"))


@pytest.mark.parametrize(
    ("page", "name", "listed"),
    [
        ("noise.md", "noises", noisewise.noise.registry),
        ("models.md", "models", noisewise.models.registry),
        ("data.md", "data sets", noisewise.data.registry),
    ],
)
def test_every_noise_model_and_data_set_is_in_its_table(hooks: ModuleType, page: str, name: str, listed: Registry[Any]) -> None:
    text = hooks.on_page_markdown((ROOT / "docs" / page).read_text(encoding="utf-8"), None, None, None)
    assert "{{" not in text and hooks.tables()[name] in text
    assert all(re.search(rf"^\| `{known}[`(]", text, re.MULTILINE) for known in listed)


def test_the_losses_the_readme_names_exist() -> None:
    rows = [line.split("|")[2] for line in (ROOT / "README.md").read_text(encoding="utf-8").splitlines() if line.startswith("| ")]
    named = {name for row in rows for name in re.findall(r"`(\w+)`", row)}
    assert named and named <= set(available())


def test_the_settings_that_published_code_trains_with_are_losses() -> None:
    rows = [line for line in (ROOT / "docs" / "questions.md").read_text(encoding="utf-8").splitlines() if line.startswith("| ")]
    specs = [spec for row in rows for spec in re.findall(r"`(.+?)`", row)]
    assert len(specs) == 3 * (len(rows) - 1)
    for spec in specs:
        noisewise.get(spec)


def test_every_public_name_is_in_the_reference_and_documented(hooks: ModuleType) -> None:
    reference = hooks.reference_page()
    for module_name in hooks.public_modules():
        module = importlib.import_module(f"noisewise.{module_name}")
        assert module.__doc__
        for name in hooks.public_names(module_name):
            assert f"::: noisewise.{module_name}.{name}\n" in reference
            thing = getattr(module, name)
            assert not callable(thing) or thing.__doc__, f"noisewise.{module_name}.{name} needs a docstring"
    listed = {name for module_name in hooks.public_modules() for name in (module_name, *hooks.public_names(module_name))}
    assert set(noisewise.__all__) <= listed


def test_the_version_is_the_same_everywhere() -> None:
    assert f"\nversion: {noisewise.__version__}\n" in (ROOT / "CITATION.cff").read_text(encoding="utf-8")


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_between_pages_lead_somewhere(page: Path) -> None:
    for target in re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", page.read_text(encoding="utf-8")):
        if not target.startswith("losses/"):  # made when the documentation is built
            assert (page.parent / target).exists(), target
