"""The papers' tables and figures as data: what was trained, with which settings, and the numbers that were printed.

A recipe is read from a TOML file beside this module, one file per paper and one table of it per table or figure:

    [settings.cifar10]            settings of a run, under a name that recipes `use`
    [chosen]                      what we chose where the paper is silent, and why, under names that recipes list
    [why]                         why numbers of ours differ from the paper's, where that is known, likewise
    [table6]                      id "imae/table6"
    caption, use, chosen, …       and any setting of a run, for all its blocks
    [[table6.block]]              a part of the table with some settings in common
    columns                       what the columns are: metrics, or values of the setting named by `across`
    rows                          what the paper calls it, what was trained (a loss spec, or a table of settings), the numbers
    differs                       where numbers differ: tables that name a row, a column or settings, whichever it takes to tell
                                  the cells apart, and `why`

A number is as printed: 84.0, "56.11 ± 1.35", or "–" for none. Rows of a block that is `quoted` from elsewhere have no settings
and are never trained. This module reads and checks; it must not train, nor know how results are shown.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields
from functools import cache
from importlib.resources import files
from typing import Any

from noisewise.errors import InputError, invalid_parameter, unknown
from noisewise.papers._metrics import METRICS
from noisewise.runs import Settings

_OF_A_PAPER = {"name", "short", "title", "authors", "reference", "settings", "chosen", "why"}
_OF_A_BLOCK = {"across", "columns", "metric", "quoted", "rows", "times"}
_OF_A_RECIPE = {"caption", "use", "chosen", "slips", "not_run", "nothing", "seeds", "over", "reading", "tested"} | {
    *("same_as", "of", "computed", "picture", "losses", "classes", "block", "differs")
}
PICTURES = ("curves", "dynamics", "margins")


@cache
def _settings() -> set[str]:
    """The settings that a recipe may have."""
    return {field.name for field in fields(Settings)} - {"seed"}


@dataclass(frozen=True)
class Paper:
    """One of the three papers."""

    name: str
    short: str
    title: str
    authors: str
    reference: str


@dataclass(frozen=True)
class Cell:
    """One number of a table.

    Args:
        words: what the paper calls what was trained.
        settings: of the run, all but the seed; None for a number that is not ours to train.
        column: what the paper's column is, in its own words or as a spec.
        metric: which number of the run; one of `METRICS`, or a hyper-parameter's name in a table of those.
        value: as printed, accuracies in %; None where the paper has none.
        deviation: what stands after ±, or None.
        quoted: from where the paper took the number, or None.
    """

    words: str
    settings: Mapping[str, Any] | None
    column: str
    metric: str
    value: float | None
    deviation: float | None
    quoted: str | None

    def fits(self, row: str | None = None, column: str | None = None, **settings: Any) -> bool:
        """Whether it is trained and is what is asked for; what is not said may be anything.

        Args:
            row: what the paper calls what was trained.
            column: what the paper's column is.
            **settings: of the run.
        """
        if self.settings is None or row not in (None, self.words) or column not in (None, self.column):
            return False
        return all(self.settings.get(name) == value for name, value in settings.items())


@dataclass(frozen=True)
class Recipe:
    """A table or a figure of a paper.

    Args:
        id: such as "imae/table6".
        paper: whose.
        words: such as "IMAE table 6".
        caption: what it shows.
        cells: its numbers.
        runs: the settings of every run it needs, all but the seed, each once.
        seeds: the seeds it is run with.
        over: how several seeds become one number: "mean", or "best", the run with the best test accuracy.
        chosen: what we chose where the paper is silent.
        slips: what is misprinted or cannot be meant as printed.
        differs: why numbers of ours differ from the paper's: what `Cell.fits` takes, and the reason.
        not_run: why the full-size results are not there; None where they can be had.
        nothing: why there is nothing to train; None where there is.
        same_as: the recipe that has the same numbers, if another one does.
        reading: options for the reader of the data.
        tested: whether there is a test set with the same classes.
        computed: whether its numbers follow from the losses alone.
        picture: which picture draws it: "curves", "dynamics" or "margins"; None for a table.
        losses: for "curves", the losses, by what the paper calls them.
        classes: for "curves", the number of classes, which decides where margins start.
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
    not_run: str | None = None
    nothing: str | None = None
    same_as: str | None = None
    reading: Mapping[str, Any] | None = None
    tested: bool = True
    computed: bool = False
    picture: str | None = None
    losses: Mapping[str, str] | None = None
    classes: int = 10

    @property
    def metrics(self) -> tuple[str, ...]:
        """The metrics of the cells that are trained, in the order of the table."""
        return tuple(dict.fromkeys(cell.metric for cell in self.cells if cell.settings is not None))

    def why(self, cell: Cell) -> str | None:
        """Why our number of a cell differs from the paper's, if that is known."""
        return next((why for where, why in self.differs if cell.fits(**where)), None)


def available() -> list[str]:
    """The ids of all recipes, paper by paper, in the papers' order.

    Example:
        >>> [name for name in available() if name.startswith("imae/table")]
        ['imae/table1', 'imae/table2', 'imae/table3', 'imae/table4', 'imae/table5', 'imae/table6']
    """
    return list(_all())


def check_recipe(recipe: Any, owner: str) -> None:
    """Refuse what is no recipe, such as its name alone."""
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
    found: dict[str, Recipe] = {}
    folder = files("noisewise.papers")
    for name in ("imae", "gradient-rescaling", "curriculum"):
        written = tomllib.loads((folder / f"{name}.toml").read_text(encoding="utf-8"))
        found |= {recipe.id: recipe for recipe in read(written)}
    return found


def read(written: Mapping[str, Any]) -> list[Recipe]:
    """The recipes of one paper, from its file."""
    paper = Paper(*(written[field.name] for field in fields(Paper)))
    read_so_far: dict[str, Recipe] = {}
    for key, content in written.items():
        if key not in _OF_A_PAPER:
            read_so_far[key] = _recipe(paper, key, content, written, read_so_far)
    return list(read_so_far.values())


def _recipe(paper: Paper, key: str, content: Mapping[str, Any], written: Mapping[str, Any], earlier: Mapping[str, Recipe]) -> Recipe:
    name = f"{paper.name}/{key}"
    for entry in content:
        if entry not in _OF_A_RECIPE | _OF_A_BLOCK | _settings():
            raise unknown(f"entry of {name}", entry, _OF_A_RECIPE | _OF_A_BLOCK | _settings())
    shared = {**_named("settings", written["settings"], content.get("use")), **{one: content[one] for one in content if one in _settings()}}
    blocks = [{**{one: content[one] for one in content if one in _OF_A_BLOCK}, **block} for block in content.get("block", ())]
    parts = [_block(name, shared, block) for block in blocks]
    cells = tuple(cell for part, _ in parts for cell in part)
    runs: list[Mapping[str, Any]] = [run for _, part in parts for run in part]
    if "same_as" in content:
        other = _named("table above", earlier, content["same_as"])
        cells, runs = other.cells, list(other.runs)
    for chosen in content.get("of", ()):
        others = _named("table above", earlier, chosen["table"]).runs
        runs += [run for run in others if all(run[one] in chosen[one] for one in chosen if one != "table")]
    if content.get("picture", "curves") not in PICTURES:
        raise invalid_parameter("picture", name, "one of " + ", ".join(PICTURES), content["picture"])
    plain = ("caption", "not_run", "nothing", "over", "reading", "tested", "computed", "picture", "losses", "classes")
    return Recipe(
        id=name,
        paper=paper,
        words=f"{paper.short} {_in_words(key)}",
        cells=cells,
        runs=() if content.get("computed") else tuple(_once(runs)),
        seeds=tuple(content.get("seeds", (0,))),
        chosen=tuple(_named("choice", written["chosen"], one) for one in content.get("chosen", ())),
        slips=tuple(content.get("slips", ())),
        differs=tuple(_difference(name, cells, one, written.get("why", {})) for one in content.get("differs", ())),
        same_as=f"{paper.name}/{content['same_as']}" if "same_as" in content else None,
        **{one: content[one] for one in plain if one in content},
    )


def _difference(
    name: str, cells: tuple[Cell, ...], written: Mapping[str, Any], reasons: Mapping[str, str]
) -> tuple[Mapping[str, Any], str]:
    """Where a number differs, and why."""
    where = {one: value for one, value in written.items() if one != "why"}
    if not written.get("why"):
        raise InputError(f"What differs in {name} must say why. Got {where}; give it a why.")
    if not any(cell.fits(**where) for cell in cells):
        raise InputError(f"What differs in {name} must be a cell that is trained. Got {where}; name a row, a column or settings it has.")
    return where, _named("reason", reasons, written["why"])


def _named(kind: str, known: Mapping[str, Any], name: str | None) -> Any:
    """What stands under a name elsewhere in the file; nothing under no name."""
    if name is not None and name not in known:
        raise unknown(kind, name, known)
    return {} if name is None else known[name]


def _in_words(key: str) -> str:
    """ "supplement-table5" as one says it: "supplement, table 5"."""
    return re.sub(r"(table|figure)(\w+)", r"\1 \2", key.replace("-", ", "))


def _block(name: str, shared: Mapping[str, Any], block: Mapping[str, Any]) -> tuple[list[Cell], list[dict[str, Any]]]:
    """The cells of a part of a table, and the settings of its runs."""
    across, columns, quoted = block.get("across", "metric"), block.get("columns", []), block.get("quoted")
    fixed = {**shared, **{one: block[one] for one in block if one in _settings()}}
    cells, runs = [], []
    for row in block["rows"]:
        words, what, numbers = (row[0], None, row[1:]) if quoted else (row[0], row[1], row[2:])
        if len(numbers) != len(columns):
            raise InputError(f"The row {words!r} of {name} must have {len(columns)} numbers, one for each column. Got {len(numbers)}.")
        given = {"loss": what} if isinstance(what, str) else what
        if given is not None and not columns:
            runs.append({**fixed, **given})
        for column, number in zip(columns, numbers, strict=True):
            metric = column if across == "metric" else block["metric"]
            settings = None if given is None else {**fixed, **given, **({} if across == "metric" else {across: column})}
            value, deviation = _number(number, block.get("times", 1))
            cells.append(Cell(words, settings, column, metric, value, deviation, quoted))
            if settings is not None:
                _check(name, metric, settings)
                runs.append(settings)
    return cells, runs


def _check(name: str, metric: str, settings: Mapping[str, Any]) -> None:
    if metric not in METRICS:
        raise unknown(f"metric of {name}", metric, METRICS)
    for one in settings:
        if one not in _settings():
            raise unknown(f"setting of {name}", one, _settings())


def _number(printed: float | str, times: float) -> tuple[float | None, float | None]:
    """The value and what stands after ±."""
    if printed == "–":
        return None, None
    value, *deviation = (round(times * float(part), 6) for part in str(printed).split("±"))
    return value, deviation[0] if deviation else None


def _once(runs: list[Mapping[str, Any]]) -> Iterator[Mapping[str, Any]]:
    for place, run in enumerate(runs):
        if run not in runs[:place]:
            yield run
