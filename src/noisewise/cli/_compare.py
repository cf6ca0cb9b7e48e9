"""The command that trains many runs, what is shown while they train, and the table of their results."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.box import SIMPLE_HEAD
from rich.console import ConsoleOptions, RenderResult
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table

from noisewise.cli._app import AsJson, Console, Text, app, print_json, resumable, say, show
from noisewise.cli._options import Asked, Config, as_list, with_settings
from noisewise.cli._report import write as write_report
from noisewise.dynamics import MEASURES, Spread, informative_measures, over_seeds, unlearned_sentence
from noisewise.spec import in_short

if TYPE_CHECKING:
    from noisewise.train import Progress, Runs

_MEASURES = [name for name in MEASURES if name not in ("hybrid", "alpha")]
_ABREAST = 5  # so many columns of a mean ± a deviation leave room for the loss at eighty letters


@app.command()
@with_settings("loss", "noise", "seed")
def compare(
    output: Annotated[Path, typer.Option("-o", "--output", help="Where the run folders go, one for every run.")] = Path("runs"),
    jobs: Annotated[
        int | None,
        typer.Option(help="How many runs at a time; by default one per processor, or eight on a GPU.", min=1, show_default=False),
    ] = None,
    config: Config = None,
    as_json: AsJson = False,
    **given: Any,
) -> None:
    """Train every loss on every noise with every seed. The same command again redoes nothing that is finished."""
    from noisewise import data, train
    from noisewise.dynamics import underfitting
    from noisewise.train import plan

    asked = Asked.of(given, config)
    grid = {name: as_list(asked.settings.pop(name, default)) for name, default in (("loss", "ce"), ("noise", "none"), ("seed", 0))}
    train.make_settings(asked.settings)
    tasks = plan(asked.settings["model"], asked.settings["data"], **grid, folder=output, **asked.others)
    source, test = asked.sources()
    classes = len(data.read(source).classes)
    for line in filter(None, (underfitting(loss, classes) for loss in grid["loss"])):
        say(line)
    rows = [(in_short(task.settings.loss), in_short(task.settings.noise), task.settings.seed) for task in tasks]
    failed = None
    with resumable(), shown(rows) as watch:
        try:
            runs = train.compare(asked.settings["model"], source, test=test, folder=output, jobs=jobs, watch=watch, **grid, **asked.others)
        except train.RunsFailedError as error:
            runs, failed = error.finished, error
    if runs:
        _tell(runs, output, source, as_json)
    if failed is not None:
        raise failed


def _tell(runs: Runs, output: Path, source: Any, as_json: bool) -> None:
    """Print what came out, and write the page about it."""
    page = write_report([run.path for run in runs], output / "report.html", data=source)
    summaries = [{"folder": str(run.path), **run.dynamics.summary()} for run in runs]
    results = _results(summaries)
    for row in results:
        if row["unlearned"]:
            sentence = unlearned_sentence(in_short(row["loss"]), row["unlearned"], len(runs[0].classes))
            say(f"noise {in_short(row['noise'])}: {sentence}")
    if as_json:
        print_json({"results": results, "runs": summaries})
    else:
        _show(results)
        show(f"{len(runs)} run{'s' if len(runs) > 1 else ''} in {output}, and a page about {'them' if len(runs) > 1 else 'it'}: {page}")


class Board:
    """What every run of a comparison is doing, as a table that renders anew each time it is looked at.

    Args:
        rows: loss, noise and seed of every run.
    """

    def __init__(self, rows: Sequence[tuple[str, str, int]]) -> None:
        self.rows = rows
        self.states = ["waiting"] * len(rows)
        self.shares = [0.0] * len(rows)
        self.ended = False

    def take(self, news: Progress) -> bool:
        """Note how far a run is; return whether its state changed."""
        before, self.states[news.place] = self.states[news.place], news.state
        self.shares[news.place] = 1.0 if news.state == "finished" else news.step / max(1, news.steps)
        return self.states[news.place] != before

    @property
    def finished(self) -> str:
        return f"{self.states.count('finished')} of {len(self.rows)} finished"

    def line(self, place: int) -> str:
        loss, noise, seed = self.rows[place]
        return f"{loss}, {noise}, seed {seed}: {self.states[place]} ({self.finished})"

    def __rich_console__(self, console: Any, options: ConsoleOptions) -> RenderResult:
        """All rows in their order; where they have no room, what is under way first and what is finished last.

        Until the end no more rows are laid out than there could be room for: it is done several times a second.
        """
        places = list(range(len(self.rows)))
        if len(places) > console.height or len(console.render_lines(self._table(places), options)) > console.height:
            places.sort(key=lambda place: {"waiting": 1, "finished": 2}.get(self.states[place], 0))
        yield self._table(places if self.ended else places[: console.height])

    def _table(self, places: Sequence[int]) -> Table:
        table = Table(box=SIMPLE_HEAD, pad_edge=False, title=self.finished, title_justify="left")
        for column in ("loss", "noise", "seed", "", "state"):
            table.add_column(column, overflow="fold", min_width=len("finished") if column == "state" else None)
        for place in places:
            loss, noise, seed = self.rows[place]
            table.add_row(Text(loss), Text(noise), str(seed), ProgressBar(1.0, self.shares[place], width=20), Text(self.states[place]))
        return table


@contextmanager
def shown(rows: Sequence[tuple[str, str, int]]) -> Iterator[Any]:
    """Show a comparison on stderr: a live table, or a line for every change where stderr is no terminal. Of no runs nothing is shown.

    Warnings of the worker processes are not shown: they would come once per run, across the table.
    """
    board, console = Board(rows), Console(stderr=True)
    before = os.environ.get("PYTHONWARNINGS")
    os.environ["PYTHONWARNINGS"] = ",".join(filter(None, (before, "ignore::UserWarning")))
    try:
        if console.is_terminal and rows:
            with Live(board, console=console):
                try:
                    yield board.take
                finally:
                    board.ended = True  # the table that stays has every row
        else:

            def tell(news: Progress) -> None:
                if board.take(news):
                    console.out(board.line(news.place), highlight=False)

            yield tell
    finally:
        if before is None:
            del os.environ["PYTHONWARNINGS"]
        else:
            os.environ["PYTHONWARNINGS"] = before


def _results(summaries: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    """Mean and standard deviation over seeds, for every noise and loss in the order they were asked for."""
    groups: dict[tuple[str, str], list[dict[str, Any]]] = {}
    for summary in summaries:
        groups.setdefault((summary["loss"], summary["noise"]), []).append(summary)
    return [
        {"loss": loss, "noise": noise, "seeds": [one["seed"] for one in group]}
        | {name: _named(over_seeds(one[name] for one in group)) for name in _MEASURES}
        | {"unlearned": list(dict.fromkeys(name for one in group for name in one["unlearned"] or ()))}
        for (loss, noise), group in groups.items()
    ]


def _named(spread: Spread | None) -> dict[str, float | None] | None:
    return None if spread is None else {"mean": spread.mean, "standard_deviation": spread.deviation}


def _show(results: list[dict[str, Any]]) -> None:
    console, all_columns = Console(), informative_measures(_MEASURES, results)
    for noise in dict.fromkeys(row["noise"] for row in results):
        rows = [row for row in results if row["noise"] == noise]
        columns = informative_measures(_MEASURES, rows)
        between = " ± " if len(columns) <= _ABREAST else "\n± "
        seeds = rows[0]["seeds"]
        console.print(Text(f"noise {in_short(noise)}, seed{'s' if len(seeds) > 1 else ''} {', '.join(map(str, seeds))}", style="italic"))
        table = Table(box=SIMPLE_HEAD, pad_edge=False)
        table.add_column("loss", overflow="fold", vertical="bottom")
        for name in columns:
            table.add_column(MEASURES[name].title.replace(" ", "\n"), justify="right", no_wrap=True, vertical="bottom")
        for row in rows:
            table.add_row(Text(in_short(row["loss"])), *(_cell(row[name], 1 if name == "snr" else 100, between) for name in columns))
        console.print(table, highlight=False)
    told = (
        "Accuracies in %, ± the standard deviation over seeds.",
        *(f"{MEASURES[name].title}: {MEASURES[name].meaning}" for name in all_columns),
    )
    console.print(Text(" ".join(told), style="dim italic"))


def _cell(spread: dict[str, float | None] | None, scale: int, between: str) -> str:
    if spread is None:
        return "–"
    digits = 1 if scale == 100 else 2
    return between.join(f"{scale * value:.{digits}f}" for value in spread.values() if value is not None)
