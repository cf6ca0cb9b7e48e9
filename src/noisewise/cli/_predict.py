"""The command that predicts the classes of new rows."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Annotated

import typer
from torch import Tensor

from noisewise.cli._app import app, inform, print_lines
from noisewise.data import images_below, is_table, is_vectors, read_ids, read_vectors
from noisewise.errors import InputError, invalid_parameter
from noisewise.output import check_replacing
from noisewise.tables import ROWS, Block, check_writable, has_columns, write_blocks


@app.command()
def predict(
    run: Annotated[Path, typer.Argument(help="The run folder.", metavar="RUN")],
    source: Annotated[
        Path,
        typer.Argument(
            help="A table with the columns that the run was trained on; for a run on embeddings also a file of them, or images.",
            metavar="TABLE|FILE",
        ),
    ],
    output: Annotated[Path, typer.Option("-o", "--output", help="The list to write: .csv, .json or .parquet.")] = Path("predictions.csv"),
    id: Annotated[str | None, typer.Option("--id", help="The column that names each row; by default that of the training table.")] = None,
) -> None:
    """Predict the class of every row of a table or of embeddings, with the probability of each class."""
    from noisewise.train import Run

    trained = Run(run)
    columns = ["id", "predicted_class", "probability", *(f"p({name})" for name in trained.classes)]
    check_writable(output)
    check_replacing(output, source, lambda file: has_columns(file, columns), "list of predictions")
    if not (is_table(source) or is_vectors(source) or (source.is_dir() and "embedder" in trained.provenance)):
        raise InputError(
            "New rows are read from a table (a CSV, Parquet or Excel file) or a file of embeddings (.npy, .npz or .safetensors). "
            f"Got {str(source)!r}."
        )
    ids, probabilities = _ids(trained, source, id), trained.predict(source).cpu()
    write_blocks(output, _blocks(ids or tuple(map(str, range(len(probabilities)))), probabilities, trained.classes), columns)
    counts = probabilities.argmax(1).bincount(minlength=len(trained.classes)).tolist()
    most = sorted(zip(counts, trained.classes, strict=True), key=lambda pair: -pair[0])
    print_lines(f"{len(probabilities):,} rows: {', '.join(f'{count:,} {name}' for count, name in most[:10])}", output)
    if trained.temperature == 1:
        inform("the probabilities are not calibrated, because the run held nothing out; train with --validation 0.1.")


def _ids(run: object, source: Path, id: str | None) -> tuple[str, ...] | None:
    """The names of the rows: from the given column, or from that of the training table if the new one has it."""
    if source.is_dir():
        return tuple(path.relative_to(source).as_posix() for path in images_below(source))
    if is_vectors(source):
        if id is not None:
            raise invalid_parameter("--id", "predict", "left out for a file of embeddings", id)
        return read_vectors(source).ids
    if id is not None:
        return read_ids(source, id)
    recorded = run.provenance.get("sources", {}).get("train") or {}  # type: ignore[attr-defined]
    try:
        return read_ids(source, recorded.get("id"))
    except InputError:  # the new rows have no such column
        return None


def _blocks(ids: tuple[str, ...], probabilities: Tensor, classes: tuple[str, ...]) -> Iterator[Block]:
    for start in range(0, len(ids), ROWS):
        shares, best = probabilities[start : start + ROWS].max(1)
        names = [classes[place] for place in best.tolist()]
        each = probabilities[start : start + ROWS].T.tolist()
        yield [list(ids[start : start + ROWS]), names, _rounded(shares.tolist()), *map(_rounded, each)]


def _rounded(shares: list[float]) -> list[float]:
    return [round(share, 6) for share in shares]
