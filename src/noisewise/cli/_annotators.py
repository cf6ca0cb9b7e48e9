"""The command that finds one label per example from the labels of several annotators."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.box import SIMPLE_HEAD
from rich.table import Table

from noisewise.cli._app import AsJson, Console, Text, app, percent, print_json, print_lines
from noisewise.errors import InputError
from noisewise.tables import check_writable

if TYPE_CHECKING:
    from noisewise.audit import Consensus

_SHOWN = 10
_ANNOTATOR, _LABEL = "annotator", "label"


@app.command()
def consensus(
    votes: Annotated[Path, typer.Argument(help="A CSV file with a row for each label that an annotator gave.", metavar="VOTES.csv")],
    output: Annotated[Path, typer.Option("-o", "--output", help="The labels to write: .csv, .json or .parquet.")] = Path("labels.csv"),
    example: Annotated[str, typer.Option(help="The column with the names of the examples.")] = "example",
    annotator: Annotated[str, typer.Option(help="The column with the names of the annotators.")] = _ANNOTATOR,
    label: Annotated[str, typer.Option(help="The column with the labels.")] = _LABEL,
    wide: Annotated[bool, typer.Option("--wide", help="The file has a row per example, and a column per annotator.")] = False,
    method: Annotated[
        str, typer.Option(help="dawid_skene weighs annotators by their quality; majority counts them the same.")
    ] = "dawid_skene",
    annotators: Annotated[Path | None, typer.Option(help="Also write the quality of each annotator to this file.")] = None,
    as_json: AsJson = False,
) -> None:
    """Find one label per example from the labels of several annotators."""
    from noisewise.audit import consensus as find
    from noisewise.audit import read_votes

    if wide and (annotator, label) != (_ANNOTATOR, _LABEL):
        raise InputError("With --wide, every column but the examples is an annotator. Got --annotator or --label; leave that out.")
    for path in (output, annotators):
        if path is not None:
            check_writable(path)
            if path.exists() and votes.exists() and path.samefile(votes):
                raise InputError(f"The file {str(path)!r} is the input and would be lost. Give another output file.")
    result = find(**read_votes(votes, example=example, annotator=None if wide else annotator, label=label), method=method)
    written = [result.write(output), *([] if annotators is None else [result.write_annotators(annotators)])]
    if as_json:
        print_json(_summary(result) | {"written": list(map(str, written))})
        return
    _print(result)
    print_lines(*written)


def _summary(result: Consensus) -> dict[str, Any]:
    rows = [{name: None if value != value else value for name, value in row.items()} for row in result.annotator_table()]
    return {
        "examples": len(result),
        "labels": int(result.votes.sum()),
        "classes": list(result.classes),
        "expected_wrong": float((1 - result.probability).sum()),
        "need_another": [result.examples[place] for place in result.order if result.needs_another[place]],
        "annotators": rows,
    }


def _print(result: Consensus) -> None:
    rows = result.annotator_table()
    title = "The annotators" if len(rows) <= _SHOWN else f"The {_SHOWN} annotators of the lowest quality, of {len(rows):,}"
    table = Table(box=SIMPLE_HEAD, pad_edge=False, title=title, title_justify="left")
    for column in ("annotator", "labels", "quality", "agrees with others", "most frequent mistake"):
        table.add_column(column, overflow="fold", justify="right" if column in ("labels", "quality", "agrees with others") else "left")
    for row in rows[-_SHOWN:]:
        agreement = row["agreement"] if row["agreement"] == row["agreement"] else None
        cells = f"{row['labels']:,}", percent(row["quality"]), percent(agreement)
        table.add_row(Text(row["annotator"]), *cells, Text(row["most_frequent_mistake"]))
    Console().print(table, highlight=False)
    print_lines(repr(result) + ".")
    doubtful = [result.examples[place] for place in result.order[:_SHOWN] if result.needs_another[place]]
    if doubtful:
        print_lines(f"Another label helps most for: {', '.join(doubtful)}.")
