"""The papers' tables and figures as data: what was trained, with which settings, and the numbers that were printed.

A recipe is read from a TOML file beside this module, one file per paper and one table of it per table or figure:

    [settings.cifar10]            settings of a run, under a name that recipes `use`
    [chosen]                      what we chose where the paper does not say, and why, under names that recipes list
    [why]                         reasons why our numbers differ from the paper's that runs support, under names that `differs` uses
    [perhaps]                     reasons that no run supports yet, under other names
    [table6]                      the recipe "imae/table6"
    caption, use, chosen, …       and any setting of a run, for all its blocks
    [[table6.block]]              a part of the table whose rows share settings
    columns                       the columns: metrics, or values of the setting named by `across`
    rows                          the paper's name of the row, what was trained (a loss spec or a table of settings), the numbers
    differs                       where our numbers differ: a row, a column or settings that select the cells, and `why`

A number is written as printed: 84.0, "56.11 ± 1.35", or "–" for none. Rows of a block that is `quoted` from another paper have no
settings and are never trained. Tests check the files; a mistake in one raises a KeyError or a ValueError here.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterable, Mapping, Set
from dataclasses import dataclass, fields
from functools import cache
from importlib.resources import files
from typing import Any

from noisewise.errors import invalid_parameter, unknown
from noisewise.papers._metrics import METRICS
from noisewise.runs import Settings

_FILES = ("imae", "gradient-rescaling", "curriculum", "pku-reid", "findings")
_PAPER_ENTRIES = {"name", "short", "title", "authors", "reference", "settings", "chosen", "why", "perhaps"}
_BLOCK_ENTRIES = {"across", "columns", "metric", "quoted", "rows", "times"}
_RECIPE_ENTRIES = {"caption", "use", "chosen", "slips", "not_run", "nothing", "seeds", "over", "reading", "tested"} | {
    *("same_as", "of", "computed", "picture", "losses", "networks", "sweep", "classes", "block", "differs")
}


@cache
def _settings() -> set[str]:
    """The settings that a recipe may have."""
    return {field.name for field in fields(Settings)} - {"seed"}


@dataclass(frozen=True)
class Paper:
    """One of the three papers, or an experiment of this package."""

    name: str
    short: str
    title: str
    authors: str
    reference: str


@dataclass(frozen=True)
class Cell:
    """One number of a table.

    Args:
        words: the paper's name of the row.
        settings: the settings of the run without the seed; None for a number that is not trained.
        column: the paper's name of the column, or a spec.
        metric: one of `METRICS`, or the name of a hyper-parameter in a table of those.
        value: the number as printed, accuracies in %; None if the paper prints none.
        deviation: the number after ±, or None.
        quoted: the paper that the number was taken from, or None.
    """

    words: str
    settings: Mapping[str, Any] | None
    column: str
    metric: str
    value: float | None
    deviation: float | None
    quoted: str | None

    def fits(self, row: str | None = None, column: str | None = None, **settings: Any) -> bool:
        """Whether the cell is trained and has this row, this column and these settings; None matches any."""
        if self.settings is None or row not in (None, self.words) or column not in (None, self.column):
            return False
        return all(self.settings.get(name) == value for name, value in settings.items())


@dataclass(frozen=True)
class Recipe:
    """A table or a figure of a paper.

    Args:
        id: such as "imae/table6".
        paper: the paper.
        words: such as "IMAE table 6".
        caption: what it shows.
        cells: its numbers.
        runs: the settings of every run it needs, without the seed, each once.
        seeds: the seeds of the runs.
        over: the number over several seeds: "mean", or "best" for the run with the best test accuracy.
        chosen: what we chose where the paper does not say.
        slips: misprints.
        differs: why some of our numbers differ: arguments of `Cell.fits`, and the reason.
        guesses: those reasons that no run supports.
        not_run: why there are no results of full size, or None.
        nothing: why there is nothing to train, or None.
        same_as: the recipe that has the same numbers, or None.
        reading: options for reading the data.
        tested: whether there is a test set with the same classes.
        computed: whether the numbers are computed from the losses, without training.
        picture: the figure to draw: "curves", "dynamics", "margins", "start", "sweep" or "classes"; None for a table.
        losses: for "curves", the losses by the paper's names.
        networks: for "start", the network of every data set.
        sweep: for "sweep" and "classes": "x", the words of the axis, and which setting has "panels" and "lines" of its own; "row"
            is the first part of the name of a row, whose second part is the value on the axis: "CE, 1/4".
        classes: for "curves", the number of classes.
    """

    id: str
    paper: Paper
    words: str
    caption: str
    cells: tuple[Cell, ...]
    runs: tuple[Mapping[str, Any], ...]
    seeds: tuple[int, ...] = (0,)
    over: str = "mean"
    chosen: tuple[str, ...] = ()
    slips: tuple[str, ...] = ()
    differs: tuple[tuple[Mapping[str, Any], str], ...] = ()
    guesses: frozenset[str] = frozenset()
    not_run: str | None = None
    nothing: str | None = None
    same_as: str | None = None
    reading: Mapping[str, Any] | None = None
    tested: bool = True
    computed: bool = False
    picture: str | None = None
    losses: Mapping[str, str] | None = None
    networks: Mapping[str, str] | None = None
    sweep: Mapping[str, str] | None = None
    classes: int = 10

    @property
    def metrics(self) -> tuple[str, ...]:
        """The metrics of the trained cells, in the order of the table."""
        return tuple(dict.fromkeys(cell.metric for cell in self.cells if cell.settings is not None))

    def why(self, cell: Cell) -> str | None:
        """Why our number differs from the paper's in this cell, or None."""
        return next((why for where, why in self.differs if cell.fits(**where)), None)


def available() -> list[str]:
    """The ids of all recipes, in the order of the papers and their tables.

    Example:
        >>> [name for name in available() if name.startswith("imae/table")]
        ['imae/table1', 'imae/table2', 'imae/table3', 'imae/table4', 'imae/table5', 'imae/table6']
    """
    return list(_all())


def check_recipe(recipe: Any, owner: str) -> None:
    """Refuse anything but a recipe, such as its id."""
    if not isinstance(recipe, Recipe):
        raise invalid_parameter("recipe", owner, "a recipe, as noisewise.papers.get gives it", recipe)


def get(recipe: str) -> Recipe:
    """The recipe of a table or figure.

    Args:
        recipe: its id.

    Example:
        >>> get("imae/table6").caption
        'CCE, MAE and IMAE on CIFAR-10 with different noise rates'
    """
    if not isinstance(recipe, str):
        raise invalid_parameter("recipe", "get", "an id, such as imae/table6", recipe)
    if recipe not in _all():
        raise unknown("recipe", recipe, _all())
    return _all()[recipe]


@cache
def _all() -> dict[str, Recipe]:
    folder = files("noisewise.papers")
    contents = [(folder / f"{name}.toml").read_text(encoding="utf-8") for name in _FILES]
    return {recipe.id: recipe for content in contents for recipe in read(tomllib.loads(content))}


def read(written: Mapping[str, Any]) -> list[Recipe]:
    """The recipes of one paper, from the content of its file."""
    paper = Paper(*(written[field.name] for field in fields(Paper)))
    recipes: dict[str, Recipe] = {}
    for key, content in written.items():
        if key not in _PAPER_ENTRIES:
            recipes[key] = _recipe(paper, key, content, written, recipes)
    return list(recipes.values())


def _recipe(paper: Paper, key: str, content: Mapping[str, Any], written: Mapping[str, Any], earlier: Mapping[str, Recipe]) -> Recipe:
    name = f"{paper.name}/{key}"
    _check_names(f"entry of {name}", content, _RECIPE_ENTRIES | _BLOCK_ENTRIES | _settings())
    shared = {**(written["settings"][content["use"]] if "use" in content else {}), **_only(content, _settings())}
    parts = [_block(name, shared, {**_only(content, _BLOCK_ENTRIES), **block}) for block in content.get("block", ())]
    cells = tuple(cell for part, _ in parts for cell in part)
    runs: list[Mapping[str, Any]] = [run for _, part in parts for run in part]
    if "same_as" in content:
        other = earlier[content["same_as"]]
        cells, runs = other.cells, list(other.runs)
    for selection in content.get("of", ()):
        others = earlier[selection["table"]].runs
        runs += [run for run in others if all(run[name] in selection[name] for name in selection if name != "table")]
    known = {**written.get("why", {}), **written.get("perhaps", {})}
    plain = {"caption", "not_run", "nothing", "over", "reading", "tested", "computed", "picture", "losses", "networks", "sweep", "classes"}
    return Recipe(
        id=name,
        paper=paper,
        words=re.sub(r"(table|figure)(\w+)", r"\1 \2", f"{paper.short} {key.replace('-', ', ')}"),
        cells=cells,
        runs=() if content.get("computed") else tuple(run for index, run in enumerate(runs) if run not in runs[:index]),
        seeds=tuple(content.get("seeds", (0,))),
        chosen=tuple(written["chosen"][choice] for choice in content.get("chosen", ())),
        slips=tuple(content.get("slips", ())),
        differs=tuple((_only(where, where.keys() - {"why"}), known[where["why"]]) for where in content.get("differs", ())),
        guesses=frozenset(written.get("perhaps", {}).values()),
        same_as=f"{paper.name}/{content['same_as']}" if "same_as" in content else None,
        **_only(content, plain),
    )


def _only(entries: Mapping[str, Any], names: Set[str]) -> dict[str, Any]:
    return {name: value for name, value in entries.items() if name in names}


def _check_names(kind: str, names: Iterable[str], known: Set[str]) -> None:
    for name in names:
        if name not in known:
            raise unknown(kind, name, known)


def _block(name: str, shared: Mapping[str, Any], block: Mapping[str, Any]) -> tuple[list[Cell], list[dict[str, Any]]]:
    """The cells of a part of a table, and the settings of its runs."""
    across, columns, quoted = block.get("across", "metric"), block.get("columns", []), block.get("quoted")
    fixed = {**shared, **_only(block, _settings())}
    cells, runs = [], []
    for row in block["rows"]:
        words, what, numbers = (row[0], None, row[1:]) if quoted else (row[0], row[1], row[2:])
        own = {"loss": what} if isinstance(what, str) else what
        if own is not None and not columns:
            runs.append({**fixed, **own})
        for column, number in zip(columns, numbers, strict=True):
            metric = column if across == "metric" else block["metric"]
            settings = None if own is None else {**fixed, **own, **({} if across == "metric" else {across: column})}
            value, deviation = _number(number, block.get("times", 1))
            cells.append(Cell(words, settings, column, metric, value, deviation, quoted))
            if settings is not None:
                _check_names(f"metric of {name}", [metric], METRICS.keys())
                _check_names(f"setting of {name}", settings, _settings())
                runs.append(settings)
    return cells, runs


def _number(printed: float | str, times: float) -> tuple[float | None, float | None]:
    """The value and the deviation after ±."""
    if printed == "–":
        return None, None
    value, *deviation = (round(times * float(part), 6) for part in str(printed).split("±"))
    return value, deviation[0] if deviation else None
