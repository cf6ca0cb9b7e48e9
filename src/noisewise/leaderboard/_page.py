"""The tables of the leaderboard in Markdown, for the documentation."""

from __future__ import annotations

from collections.abc import Iterator

from noisewise.leaderboard._board import board
from noisewise.leaderboard._results import Results
from noisewise.leaderboard._results import results as committed_results
from noisewise.leaderboard._tables import Table, cost_in_words, number, seeds_in_words, tables


def page(results: Results | None = None) -> str:
    """All tables of protocols that are not hidden, in Markdown; by default of the results that come with the package."""
    found = tables(board().chosen(), committed_results() if results is None else results)
    return "\n".join(line for table in found for line in _section(table)) or "There are no results yet.\n"


def rows_page() -> str:
    """The rows with the source of their settings, in Markdown."""
    every = {row.name: row for protocol in board().protocols for row in protocol.rows}
    lines = ["| row | published setting | other settings to choose from | source |", "|---|---|---|---|"]
    for row in every.values():
        published = ", ".join(f"`{spec}`" for spec in dict.fromkeys(row.published.values()))
        others = dict.fromkeys(str(spec) for specs in row.choices.values() for spec in specs if spec not in row.published.values())
        shown = ", ".join(f"`{spec}`" for spec in others) if row.published else "all"
        lines.append(f"| {row.name} | {published} | {shown} | {row.source} |")
    return "\n".join([*lines, ""])


def _section(table: Table) -> Iterator[str]:
    yield from (f"### {table.title}", "", table.protocol.about, "", "Test accuracy after the last epoch, in %:", "")
    head = ["", *(condition.short for condition in table.conditions), "mean rank", "seeds", "cost"]
    yield from ("| " + " | ".join(head) + " |", "|" + "---|" * len(head))
    for entry in table.entries:
        cells = [_nowrap(number(cell.over_seeds())) if (cell := entry.cells.get(each.name)) else "" for each in table.conditions]
        rank = "" if entry.rank is None else f"{entry.rank:.1f}"
        yield "| " + " | ".join([entry.name, *cells, rank, seeds_in_words(entry), cost_in_words(entry)]) + " |"
    for mark in table.marks:
        published = [f"{mark.accuracy[each.name]:.1f}" if each.name in mark.accuracy else "" for each in table.conditions]
        yield "| " + " | ".join([f"*{mark.name}, published*", *published, "", "", ""]) + " |"
    yield ""
    for mark in table.marks:
        yield f"- *{mark.name}, published*: {mark.source}; {mark.trained}."
    yield from ([""] if table.marks else [])
    yield from _learned(table)


def _learned(table: Table) -> Iterator[str]:
    """The share of wrong labels that was learned, for the rows and conditions that have it."""
    spreads = {(entry.name, name): cell.over_seeds("learned") for entry in table.entries for name, cell in entry.cells.items()}
    conditions = [each for each in table.conditions if any(spreads.get((entry.name, each.name)) for entry in table.entries)]
    if not conditions:
        return
    head = ["", *(condition.short for condition in conditions)]
    yield from ("Share of the wrong labels that were learned, in %:", "", "| " + " | ".join(head) + " |", "|" + "---|" * len(head))
    for entry in table.entries:
        cells = [number(spreads.get((entry.name, each.name))) for each in conditions]
        if any(cells):
            yield "| " + " | ".join([entry.name, *map(_nowrap, cells)]) + " |"
    yield ""


def _nowrap(text: str) -> str:
    return text.replace(" ", "\N{NO-BREAK SPACE}")
