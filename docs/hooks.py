"""Generates the pages that are made from the package: the losses, the methods, the API, and the recipes and claims of the papers.

They are made at every build, so they always match the code. `notebooks.py` and `commands.py` generate the other pages.
"""

from __future__ import annotations

import functools
import importlib
import inspect
import json
import operator
import pkgutil
import tempfile
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import noisewise
from noisewise import data, describe, draw, integrations, leaderboard, methods, models, noise, papers, reproduce
from noisewise.spec import name_of

HERE = Path(__file__).parent
_BOUNDS = ("ce", "mae", "aul(a=2, q=2)", "agce(a=0.1, q=0.1)", "tce(3)")
_WITHOUT_REFERENCE = ("cli", "demo", "describe", "output", "spec")  # used by the command line and by the authors of losses


def on_config(config: Any) -> Any:
    """Complete the navigation: a page per loss, per method and per module, and those of our findings that have results."""
    understand = next(part["Understand"] for part in config.nav if "Understand" in part)
    finished = [f"research/{name.partition('/')[2]}.md" for name in papers.FINDINGS if papers.has_results(name)]
    after = understand.index("research/auto.md") + 1
    understand[after:after] = finished
    reference = next(part["Reference"] for part in config.nav if "Reference" in part)
    reference[reference.index("losses/index.md")] = {"Losses": list(loss_pages())}
    reference[reference.index("methods.md")] = {"Methods": ["methods.md", *method_pages()]}
    reference[reference.index("reference.md")] = {"API": list(reference_pages())}
    return config


def on_files(files: Any, config: Any) -> Any:
    """Add the generated pages, and llms.txt, to those found in the folder."""
    from mkdocs.structure.files import File

    generated = {"recipes.md": papers.page(), "claims.md": papers.claims_page()}
    generated["llms.txt"] = (HERE.parent / "llms.txt").read_text(encoding="utf-8")
    for path, text in {**loss_pages(), **method_pages(), **reference_pages(), **generated, **pictures()}.items():
        files.append(File.generated(config, path, content=text))
    return files


def pictures() -> dict[str, str]:
    """The papers' figures that follow from losses or from the committed results, and the bounds of some losses, drawn, by path."""
    found, made = papers.results(), {}
    with tempfile.TemporaryDirectory() as folder:
        made["figures/bounds.svg"] = draw.bounds(_BOUNDS, Path(folder, "bounds.svg")).read_text(encoding="utf-8")
        for recipe in map(papers.get, papers.available()):
            if papers.can_draw(recipe, found):
                made[papers.picture_file(recipe)] = reproduce.picture(recipe, found, Path(folder, "drawn.svg")).read_text(encoding="utf-8")
    return made


def on_page_markdown(markdown: str, page: Any, config: Any, files: Any) -> str:
    """Fill in the tables that pages ask for, as in ``{{ table of noises }}``."""
    for name, table in tables().items():
        markdown = markdown.replace(f"{{{{ table of {name} }}}}", table)
    return markdown


def tables() -> dict[str, str]:
    """Tables of the noises, the methods, the models and the official data sets, made from their classes."""
    noises = [(_spec(noise.registry[name]), _summary(noise.registry[name]), _cited(noise.registry[name])) for name in noise.registry]
    networks = [(_spec(models.registry[name]), _summary(models.registry[name])) for name in models.registry]
    return {
        "noises": _table(("spec", "rule", "reference"), noises),
        "methods": _methods(),
        "models": _table(("name", "network"), networks),
        "data sets": _table(("spec", "what", "size", "licence", "how to get it"), map(_data_set, data.available())),
        **{f"results of {name}": papers.finding(name) for name in papers.FINDINGS},
        "leaderboard": _leaderboard()[0],
        "leaderboard rows": _leaderboard()[1],
        "data folders": _table(("data set", "in the data folder"), filter(operator.itemgetter(1), map(_folders, data.available()))),
    }


@functools.cache
def _leaderboard() -> tuple[str, str]:
    """The tables of results, and that of the rows."""
    return leaderboard.page(), leaderboard.rows_page()


def _methods() -> str:
    """A row per method; the column of times, and how they were measured, are left out until there is a measurement."""
    file = HERE.parent / "benchmarks" / "methods.json"
    measured = json.loads(file.read_text(encoding="utf-8")) if file.exists() else None
    times = {} if measured is None else {"plain": 1.0, **{name_of(row["method"]): row["ratio"] for row in measured["rows"]}}
    rows = []
    for name in methods.available():
        described = describe.describe_method(name)
        needed = ", ".join(describe.needs(name)) or "–"
        time = (f"{times[name]:.2f} ×" if name in times else "–",) if times else ()
        rows.append((f"[`{name}`](methods/{name}.md)", described.summary, needed, *time, described.reference))
    table = _table(("method", "what it does", "needs", *(("time",) if times else ()), "reference"), rows)
    if measured is None:
        return table
    how = f"Time: of an epoch with `{measured['model']}`, divided by that of plain training, on {measured['gpu']}"
    return f"{table}\n\n{how} (`{measured['command']}`)."


def _data_set(name: str) -> tuple[str, ...]:
    described = data.describe(name)
    kind: Any = data.registry[name]
    how = (
        f"`noisewise data get {name}`"
        if kind.holdings
        else f"on request from [its makers]({described.home})"
        if kind.places
        else "built in"
    )
    return _spec(kind), described.summary, described.size, described.licence, how


def _folders(name: str) -> tuple[str, str]:
    kind: Any = data.registry[name]
    return _code(name), " and ".join(" or ".join(map(_code, either)) for either in kind.places)


def _spec(kind: Any) -> str:
    """The name of a class and its positional settings, as code."""
    positional = [key for key, declared in kind.settings.items() if not declared.kw_only and key not in ("num_classes", "inputs")]
    return _code(f"{kind.name}({', '.join(positional)})" if positional else kind.name)


def _summary(kind: Any) -> str:
    return " ".join(str(inspect.getdoc(kind)).partition("\n\n")[0].split())


def _cited(kind: Any) -> str:
    return " ".join(str(inspect.getdoc(kind)).partition("Reference:")[2].split())


def _table(head: tuple[str, ...], rows: Iterable[tuple[str, ...]]) -> str:
    lines = [head, ("---",) * len(head), *(tuple(map(_cell, row)) for row in rows)]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


@functools.cache
def loss_pages() -> dict[str, str]:
    """The list of losses and a page for each, by path."""
    rows = describe.table()
    pages = {"losses/index.md": _list(rows)}
    return pages | {f"losses/{described.name}.md": _page(described) for described, _ in rows}


def _list(rows: list[tuple[describe.Description, describe.Figures]]) -> str:
    lines = [
        "# Losses",
        "",
        "Every loss with its default hyper-parameters, or those of an example if one is required. Focus is the p with the largest",
        "emphasis. Spread is the variance of ‖∂L/∂s‖₁, twice the emphasis, over uniform p. Only functions of p alone have them.",
        "[Which loss?](../which-loss.md) helps you choose.",
        "",
        "| loss | what it does | emphasis w | focus | spread |",
        "|---|---|---|---|---|",
    ]
    for described, figures in rows:
        cells = (_code(described.emphasis), _figure(figures.focus), _figure(figures.spread))
        lines.append(f"| [{described.name}]({described.name}.md) | {described.summary} | {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def _page(described: describe.Description) -> str:
    contract = [
        "Every loss also takes `weight`, `ignore_index`, `reduction` and, unless it looks at the whole batch, `label_smoothing`,",
        "as `torch.nn.CrossEntropyLoss` does.",
        "",
    ]
    measured = [each for each in map(describe.measure, described.specs) if each.focus is not None]
    figures: list[str] = []
    if measured:
        figures = ["## Figures", "", "| spec | focus | spread |", "|---|---|---|"]
        figures += [f"| {_code(each.spec)} | {_figure(each.focus)} | {_figure(each.spread)} |" for each in measured]
        figures.append("")
    return "\n".join([*_opening(described), *contract, *_example(described), *figures, "## Reference", "", described.reference, ""])


@functools.cache
def method_pages() -> dict[str, str]:
    """A page for each method, by path."""
    return {f"methods/{name}.md": _method_page(name) for name in methods.available()}


def _method_page(name: str) -> str:
    described = describe.describe_method(name)
    needs = ["## Needs", "", *(f"- {need}" for need in describe.needs(name)), ""] if describe.needs(name) else []
    specs = ["Specs that the tests use:", "", *(f"- {_code(spec)}" for spec in described.specs), ""]
    reference = ["## Reference", "", described.reference, "", "[All methods](../methods.md)", ""]
    return "\n".join([*_opening(described), *needs, *_example(described), *specs, *reference])


def _opening(described: describe.Description) -> list[str]:
    lines = [f"# {described.name}", ""]
    for paragraph in (described.summary, *described.details):
        lines += [paragraph, ""]
    lines += ["## Formula", "", *_fenced("text", *described.formula)]
    for paragraph in described.notes:
        lines += [paragraph, ""]
    if described.parameters:
        lines += ["## Hyper-parameters", "", "| name | default | may be | meaning |", "|---|---|---|---|"]
        for one in described.parameters:
            default = "required" if one.default is None else f"`{one.default}`"
            lines.append(f"| `{one.name}` | {default} | {_cell(one.requirement)} | {_cell(one.meaning)} |")
        lines.append("")
    return lines


def _example(described: describe.Description) -> list[str]:
    return ["## Example", "", *_fenced("pycon", *described.session)]


@functools.cache
def reference_pages() -> dict[str, str]:
    """The list of public modules and a page for each, by path; mkdocstrings fills in their names."""
    lines = ["# API", "", "::: noisewise", "    options: {members: false, show_root_heading: false}", "", "| module | |", "|---|---|"]
    pages = {}
    for name in public_modules():
        summary = (importlib.import_module(f"noisewise.{name}").__doc__ or "").partition("\n\n")[0]
        lines.append(f"| [noisewise.{name}](api/{name}.md) | {_cell(' '.join(summary.split()))} |")
        directives = [f"::: {_defined(name, public)}\n" for public in public_names(name)]
        module = [f"::: noisewise.{name}", "    options: {members: false, show_root_heading: false}", ""]
        pages[f"api/{name}.md"] = "\n".join([f"# noisewise.{name}", "", *module, *directives])
    return {"reference.md": "\n".join([*lines, ""]), **pages}


def _defined(module: str, public: str) -> str:
    """Where mkdocstrings finds a public name: classes that a package discovers by file are in their own modules."""
    named = getattr(importlib.import_module(f"noisewise.{module}"), public)
    own = getattr(named, "__module__", "")
    return (
        f"{own}.{public}"
        if inspect.isclass(named) and own.startswith(f"noisewise.{module}.") and "._" not in own
        else f"noisewise.{module}.{public}"
    )


def public_modules() -> list[str]:
    """The modules a user imports from."""
    own = [module.name for module in pkgutil.iter_modules(noisewise.__path__) if module.name != "integrations"]
    guests = [f"integrations.{module.name}" for module in pkgutil.iter_modules(integrations.__path__)]
    return [name for name in sorted(own + guests) if not name.startswith("_") and name not in _WITHOUT_REFERENCE]


def public_names(module_name: str) -> list[str]:
    """The documented names of a module: those in `__all__`, or else those it defines. Losses and methods have their own pages."""
    module = importlib.import_module(f"noisewise.{module_name}")
    listed = getattr(module, "__all__", [name for name, thing in vars(module).items() if _is_own(thing, module.__name__)])
    paged = set()
    if module_name == "losses":
        paged = {described.title for described, _ in describe.table()}
    elif module_name == "methods":
        paged = {describe.describe_method(name).title for name in methods.available()}
    return [name for name in listed if not name.startswith("_") and name not in paged]


def _is_own(thing: object, module_name: str) -> bool:
    return (inspect.isclass(thing) or inspect.isfunction(thing)) and thing.__module__ == module_name


def _figure(number: float | None) -> str:
    return "–" if number is None else f"{number:.3g}"


def _cell(text: str) -> str:
    return text.replace("|", "\\|")


def _code(text: str) -> str:
    return f"`{_cell(text)}`"


def _fenced(language: str, *lines: str) -> list[str]:
    return [f"```{language}", *lines, "```", ""]
