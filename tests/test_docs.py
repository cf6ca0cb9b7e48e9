"""The documentation: its code runs, its pages are short, every loss and public name is documented, and the site opens offline."""

import importlib.util
import inspect
import json
import re
import shlex
import shutil
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import typer
from typer.testing import CliRunner

import noisewise
from noisewise.cli import app
from noisewise.cli._app import COMMANDS
from noisewise.losses import available
from noisewise.spec import Registry
from prepared import Prepared, prepared
from quick_workers import PRELOADED

ROOT = Path(__file__).parent.parent
DOCS = ROOT / "docs"
README = ROOT / "README.md"
PAGES = [README, *sorted(DOCS.glob("*.md"))]
NOTEBOOKS = sorted((ROOT / "examples").glob("*.ipynb"))
NAVIGATION = (ROOT / "mkdocs.yml").read_text(encoding="utf-8").partition("\nnav:\n")[2].partition("\nmarkdown_extensions:")[0]
HOW_TO = re.findall(r"- ([\w-]+\.md)$", NAVIGATION.partition("- How to:")[2].partition("- Reference:")[0], re.MULTILINE)

# What most pages import, and what torch imports when it is first used.
_IMPORTED = (
    *PRELOADED,
    "noisewise.cli",
    "noisewise.audit",
    "noisewise.correct",
    "noisewise.draw",
    "noisewise.report",
    "torch._dynamo",
    "typer.testing",
    "sklearn.datasets",
    "sklearn.mixture",
    "pandas",
    "matplotlib.pyplot",
    "PIL.Image",
)

# A page runs as one program in one folder: its Python, and its commands in the same process.
_PROGRAM = """
import shlex
from pathlib import Path

def _command(line):
    from typer.testing import CliRunner
    from noisewise.cli import app

    done = CliRunner().invoke(app, shlex.split(line, comments=True)[1:])
    assert done.exit_code == 0, (line, done.output, done.exception)

if __name__ == "__main__":
    exec(compile(Path("page.txt").read_text(encoding="utf-8"), "page", "exec"), {"__name__": "__main__", "_command": _command})
"""


def _blocks(page: Path, language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", page.read_text(encoding="utf-8"), re.DOTALL | re.MULTILINE)


def _commands(block: str) -> list[str]:
    return [line for line in block.replace("\\\n", "").splitlines() if line.startswith("noisewise ")]


def _code(page: Path) -> str:
    """The code of a page in order, with commands as calls."""
    blocks = re.findall(r"^```(python|bash)\n(.*?)^```", page.read_text(encoding="utf-8"), re.DOTALL | re.MULTILINE)
    calls = [block if language == "python" else "".join(f"_command({line!r})\n" for line in _commands(block)) for language, block in blocks]
    return "\n".join(calls)


@pytest.fixture(scope="module")
def hooks() -> ModuleType:
    return _module("hooks")


def _module(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(f"documentation_{name}", DOCS / f"{name}.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def python() -> Iterator[Prepared]:
    with prepared(*_IMPORTED) as server:
        yield server


def _run(code: str, folder: Path, python: Prepared) -> None:
    (folder / "page.txt").write_text(code, encoding="utf-8")
    (folder / "page.py").write_text(_PROGRAM, encoding="utf-8")
    status, output = python.run(folder / "page.py")
    assert status == 0, output


@pytest.mark.parametrize("page", [page for page in PAGES if page != README and _code(page)], ids=lambda page: page.name)
def test_a_page_runs_from_top_to_bottom(page: Path, tmp_path: Path, python: Prepared) -> None:
    _run(_code(page), tmp_path, python)


def test_the_python_of_the_readme_runs(tmp_path: Path, python: Prepared) -> None:
    _run("\n".join(_blocks(README, "python")), tmp_path, python)


@pytest.mark.parametrize("notebook", NOTEBOOKS, ids=lambda path: path.name)
def test_a_notebook_runs_and_stores_no_outputs(notebook: Path, tmp_path: Path, python: Prepared) -> None:
    cells = [cell for cell in json.loads(notebook.read_text(encoding="utf-8"))["cells"] if cell["cell_type"] == "code"]
    assert cells and not any(cell["outputs"] for cell in cells)
    _run("\n".join("".join(cell["source"]) for cell in cells), tmp_path, python)


def test_every_notebook_is_a_page_of_the_site() -> None:
    notebooks = _module("notebooks")
    for path in NOTEBOOKS:
        assert f"- notebooks/{path.stem}.md" in NAVIGATION
        page = notebooks.page(path.name, json.loads(path.read_text(encoding="utf-8")))
        assert page.startswith("# ") and f"]({path.name})" in page and "```python\n" in page


@pytest.mark.parametrize("name", HOW_TO)
def test_a_how_to_page_starts_with_a_block_that_runs(name: str) -> None:
    lines = (DOCS / name).read_text(encoding="utf-8").splitlines()
    starts = [number for number, line in enumerate(lines, 1) if line in ("```python", "```bash")]
    assert starts and starts[0] <= 25


@pytest.mark.parametrize("page", PAGES[1:], ids=lambda page: page.name)
def test_a_page_is_short_and_so_are_its_paragraphs(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    assert len(text.splitlines()) <= 200
    prose = re.sub(r"^```.*?^```", "", text, flags=re.DOTALL | re.MULTILINE)
    paragraphs = [part for part in prose.split("\n\n") if not part.lstrip().startswith(("|", "- ", "#", "1. "))]
    assert [part for part in paragraphs if len(part.strip().splitlines()) > 5] == []


def test_every_page_is_in_the_navigation() -> None:
    assert [page.name for page in PAGES[1:] if f"- {page.name}\n" not in NAVIGATION + "\n"] == []


_README_COMMANDS = {line for block in _blocks(README, "bash") for line in _commands(block)}
_COMPARES, _AUDITS = ({line for line in _README_COMMANDS if line.startswith(f"noisewise {name} ")} for name in ("compare", "audit"))


@pytest.mark.parametrize("line", sorted(_README_COMMANDS - _COMPARES - _AUDITS))
def test_a_command_of_the_readme_works(line: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert CliRunner().invoke(app, shlex.split(line, comments=True)[1:]).exit_code == 0


def _printed(line: str) -> Any:
    done = CliRunner().invoke(app, [*shlex.split(line, comments=True)[1:], "--json"])
    assert done.exit_code == 0, done.stderr
    return json.loads(done.stdout)


@pytest.mark.slow
@pytest.mark.parametrize("line", sorted(_COMPARES))
def test_in_the_comparison_of_the_readme_the_robust_loss_is_better(line: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    results = {row["loss"]: row for row in _printed(line)["results"]}
    plain, robust = results.pop("ce"), results.popitem()[1]
    assert robust["final"]["mean"] > plain["final"]["mean"] + 0.1 and robust["noisy_subset"]["mean"] < plain["noisy_subset"]["mean"] / 3


@pytest.mark.parametrize("line", sorted(_AUDITS))
def test_the_audit_of_the_readme_doubts_few_correct_labels_and_reports_the_test_accuracy(
    line: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    summary = _printed(line)
    assert summary["labels"] == 1437 and summary["doubtful"] <= 15 and summary["caution"] is None
    (run,) = (tmp_path / "runs").iterdir()
    assert summary["test_accuracy"] == json.loads((run / "metrics.jsonl").read_text().splitlines()[-1])["test_accuracy"] > 0.9


def test_every_command_and_option_is_documented() -> None:
    guide, reference = (DOCS / "command-line.md").read_text(encoding="utf-8"), _module("commands").commands_page()
    commands = typer.main.get_command(app).commands  # type: ignore[attr-defined]
    assert set(commands) == set(COMMANDS)
    assert all(f"| `noisewise {name}` |" in guide and f"\n## noisewise {name}" in reference for name in commands)
    assert all(f"`{option.opts[-1]}`" in reference or f"{option.opts[-1]}`" in reference for option in commands["train"].params)


@pytest.mark.parametrize("target", ["demo", "test"])
def test_the_two_commands_of_the_readme_are_in_the_makefile(target: str) -> None:
    assert re.search(rf"^make {target}\b", "".join(_blocks(README, "bash")), re.MULTILINE)
    assert re.search(rf"^{target}:", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE)


def test_every_loss_has_a_page_and_is_in_the_list(hooks: ModuleType) -> None:
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


def test_every_method_is_in_its_table_and_has_a_page(hooks: ModuleType) -> None:
    text, pages = hooks.on_page_markdown((DOCS / "methods.md").read_text(encoding="utf-8"), None, None, None), hooks.method_pages()
    assert "{{" not in text and sorted(pages) == sorted(f"methods/{name}.md" for name in noisewise.methods.available())
    for path, page in pages.items():
        assert f"]({path}) |" in text
        assert all(f"## {section}" in page for section in ("Formula", "Example", "Reference"))


def test_the_times_of_methods_are_those_of_the_benchmark_and_left_out_without_one(
    hooks: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(hooks, "HERE", tmp_path / "docs")
    assert hooks.tables()["methods"].startswith("| method | what it does | needs | reference |")
    (tmp_path / "benchmarks").mkdir()
    measured: dict[str, Any] = {"command": "python benchmarks/methods.py", "gpu": "A GPU", "model": "resnet20", "plain": 2.0}
    measured["rows"] = [{"method": "elr(beta=0.7, lam=3.0)", "networks": 1, "ratio": 1.084}]
    (tmp_path / "benchmarks" / "methods.json").write_text(json.dumps(measured), encoding="utf-8")
    table, _, how = hooks.tables()["methods"].partition("\n\n")
    cells = {line.split("`")[1]: line.split(" | ")[-2] for line in table.splitlines()[2:]}
    assert (cells["elr"], cells["plain"], cells["co_teaching"]) == ("1.08 ×", "1.00 ×", "–")
    assert "on A GPU" in how and "`python benchmarks/methods.py`" in how


def test_the_page_of_the_leaderboard_has_its_results_and_rows(hooks: ModuleType) -> None:
    text = hooks.on_page_markdown((DOCS / "leaderboard.md").read_text(encoding="utf-8"), None, None, None)
    assert "{{" not in text and "### Methods: ResNet-20, 30 epochs: CIFAR-10\n" in text
    rows = {row.name for protocol in noisewise.leaderboard.board().protocols for row in protocol.rows}
    assert all(f"\n| {name} | " in text.partition("## The rows")[2] for name in rows)


def test_the_losses_the_readme_names_exist() -> None:
    rows = [line.split("|")[2] for line in README.read_text(encoding="utf-8").splitlines() if line.startswith("| ")]
    named = {name for row in rows for name in re.findall(r"`(\w+)`", row)}
    assert named and named <= set(available())


def test_the_settings_of_published_code_are_valid_losses() -> None:
    section = (DOCS / "which-loss.md").read_text(encoding="utf-8").partition("| | MNIST |")[2].partition("\n\n")[0]
    rows = [line for line in section.splitlines() if line.startswith("| ")]
    specs = [spec for row in rows for spec in re.findall(r"`(.+?)`", row)]
    assert len(specs) == 3 * len(rows) > 20
    for spec in specs:
        noisewise.get(spec)


def test_every_public_name_is_in_the_reference_and_documented(hooks: ModuleType) -> None:
    reference = hooks.reference_pages()
    for module_name in hooks.public_modules():
        module = importlib.import_module(f"noisewise.{module_name}")
        assert module.__doc__ and f"(api/{module_name}.md)" in reference["reference.md"]
        for name in hooks.public_names(module_name):
            assert re.search(rf"^::: noisewise\.{module_name}\.(\w+\.)?{name}$", reference[f"api/{module_name}.md"], re.MULTILINE)
            thing = getattr(module, name)
            assert not callable(thing) or thing.__doc__, f"noisewise.{module_name}.{name} needs a docstring"
            text = re.sub(r"`[^`]*`|^ *(>>>|\.\.\.).*", "", inspect.getdoc(thing) or "", flags=re.MULTILINE)
            assert not re.search(r"<[a-z]", text), f"a browser takes a part of noisewise.{module_name}.{name} for HTML"
    listed = {name for module_name in hooks.public_modules() for name in (module_name, *hooks.public_names(module_name))}
    assert set(noisewise.__all__) <= listed


def test_the_version_is_the_same_everywhere() -> None:
    assert f"\nversion: {noisewise.__version__}\n" in (ROOT / "CITATION.cff").read_text(encoding="utf-8")


_GENERATED = {"recipes.md", "claims.md", "commands.md", "reference.md"}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_between_pages_are_not_broken(page: Path) -> None:
    for target in re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", page.read_text(encoding="utf-8")):
        if target not in _GENERATED and not target.startswith(
            ("losses/", "methods/", "api/", "notebooks/", "figures/")
        ):  # made when the site is built
            assert (page.parent / target).exists(), target


def test_llms_txt_links_to_pages_of_the_site() -> None:
    links = re.findall(r"noisewise/([\w/-]+)\.html\)", (ROOT / "llms.txt").read_text(encoding="utf-8"))
    generated = {name.removesuffix(".md") for name in _GENERATED} | {"losses/index"} | {f"notebooks/{path.stem}" for path in NOTEBOOKS}
    assert links and set(links) - generated <= {page.stem for page in PAGES}


_SAMPLE = {"index.md": "Start", "my-csv.md": "How to", "losses/gce.md": "Reference", "margin-and-emphasis.md": "Understand"}


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory, hooks: ModuleType) -> Path:
    """One page of each part, built with the theme and the plugins of the site."""
    config = pytest.importorskip("mkdocs.config", reason="the site is built with mkdocs: pip install 'noisewise[docs]'")
    from mkdocs.commands.build import build

    folder = tmp_path_factory.mktemp("site")
    for name in ("assets", "gallery"):
        shutil.copytree(DOCS / name, folder / "docs" / name, ignore=shutil.ignore_patterns("*.html"))
    (folder / "docs" / "losses").mkdir()
    for name in _SAMPLE:
        text = hooks._page(noisewise.describe.describe("gce")) if name == "losses/gce.md" else (DOCS / name).read_text(encoding="utf-8")
        (folder / "docs" / name).write_text(text, encoding="utf-8")
    nav = [{part: [name]} for name, part in _SAMPLE.items()]
    build(config.load_config(str(ROOT / "mkdocs.yml"), docs_dir=str(folder / "docs"), site_dir=str(folder / "site"), nav=nav, hooks=[]))
    return folder / "site"


@pytest.mark.parametrize(
    ("theme", "width"),
    [("light", 390), ("dark", 1440), *(pytest.param(*case, marks=pytest.mark.slow) for case in (("dark", 390), ("light", 1440)))],
)
def test_the_site_opens_offline_in_both_themes_on_phones_and_desktops(site: Path, browser: Any, theme: str, width: int) -> None:
    context = browser.new_context(offline=True, viewport={"width": width, "height": 900}, color_scheme=theme)
    page, problems = context.new_page(), []
    page.on("console", lambda message: problems.append(message.text) if message.type == "error" else None)
    page.on("pageerror", lambda error: problems.append(str(error)))
    page.on("requestfailed", lambda request: problems.append(request.url))
    for name in _SAMPLE:
        page.goto((site / name).with_suffix(".html").as_uri())
        assert page.locator("body").get_attribute("data-md-color-scheme") == {"light": "default", "dark": "slate"}[theme]
        assert page.evaluate("document.documentElement.scrollWidth") <= width, f"{name} is wider than the screen"
    assert problems == []
    context.close()


def test_the_search_finds_a_page_without_a_server(site: Path, browser: Any) -> None:
    page = browser.new_context(offline=True, viewport={"width": 1440, "height": 900}).new_page()
    page.goto((site / "index.html").as_uri())
    page.locator("input[name=query]").click()
    page.locator("input[name=query]").press_sequentially("emphasis")
    page.locator(".md-search-result__link").first.wait_for(state="attached")
    assert "margin-and-emphasis.html" in page.locator(".md-search-result__list").inner_html()
