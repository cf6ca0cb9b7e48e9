"""The command that trains many runs, their progress, and the table of their results."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich import progress as bars
from rich.box import SIMPLE_HEAD
from rich.table import Table

from noisewise.cli._app import AsJson, Console, Text, app, inform, percent, print_json, print_lines, resumable
from noisewise.cli._columns import print_columns
from noisewise.cli._options import Config, Jobs, Request, as_list, with_settings
from noisewise.cli._report import write as write_report
from noisewise.dynamics import MEASURES, Spread, informative_measures, over_seeds, unlearned_sentence
from noisewise.spec import in_short

if TYPE_CHECKING:
    from noisewise.data import Dataset
    from noisewise.train import Progress, Runs, Task, Tuned

_MEASURES = [name for name in MEASURES if name not in ("hybrid", "alpha")]
_MOST_ON_ONE_LINE = 5  # columns of "mean ± deviation" that fit into 80 characters beside the loss


@app.command()
@with_settings("loss", "noise", "method", "seed", training=("on", "search"))
def compare(
    output: Annotated[Path, typer.Option("-o", "--output", help="The folder for the run folders.")] = Path("runs"),
    jobs: Jobs = None,
    config: Config = None,
    as_json: AsJson = False,
    **options: Any,
) -> None:
    """Train every loss with every noise, method and seed. Run the same command again to resume; finished runs are kept."""
    from noisewise import data, train
    from noisewise.dynamics import underfitting
    from noisewise.train import plan

    request = Request.of(options, config)
    axes = {"loss": "ce", "noise": "none", "method": "plain", "seed": 0}
    grid = {name: as_list(request.settings.pop(name, default)) for name, default in axes.items()}
    train.make_settings(request.settings)
    model = request.settings["model"]
    plan(model, request.settings["data"], **grid, folder=output, **request.others)  # check it before the data are read
    source, test = request.sources()
    examples = data.read(source)
    print_columns(examples.encoding)
    classes = len(examples.classes)
    for warning in filter(None, (underfitting(loss, classes) for loss in grid["loss"])):
        inform(warning)
    grids = [grid] if request.search is None else _tuned_grids(request, examples, grid, output, jobs)
    finished, failed = train.Runs(), None
    for each in grids:
        tasks = plan(model, request.settings["data"], **each, folder=output, **request.others)
        with resumable(), progress_of_runs(_rows(tasks)) as watch:
            try:
                runs = train.compare(
                    model, source, test=test, folder=output, jobs=jobs, watch=watch, on=request.on, **each, **request.others
                )
            except train.RunsFailedError as error:
                runs, failed = error.finished, error
        finished = train.Runs([*finished, *runs])
    if finished:
        _print_results(finished, output, source, as_json)
    if failed is not None:
        raise failed


def _tuned_grids(request: Request, examples: Dataset, grid: Mapping[str, Any], output: Path, jobs: int | None) -> list[dict[str, Any]]:
    """The grids of the best losses: one for every noise and method, because each has its own best losses."""
    grids: dict[tuple[str, str], dict[str, Any]] = {}
    for tuned in search_losses(request, examples, grid, output, jobs):
        noise, method = tuned.settings.noise, tuned.settings.method
        best = grids.setdefault((noise, method), {**grid, "noise": [noise], "method": [method], "loss": []})["loss"]
        if tuned.loss not in best:
            best.append(tuned.loss)
    return list(grids.values())


def search_losses(request: Request, examples: Dataset, grid: Mapping[str, Any], output: Path, jobs: int | None) -> list[Tuned]:
    """Search the hyper-parameters of the losses of a grid with its first seed, and say what was found.

    Args:
        request: what the user asked for, except the grid.
        examples: the training data.
        grid: loss, noise, method and seed, a list each.
        output: the folder of the run folders.
        jobs: the number of trials at a time.
    """
    from noisewise import train

    data, model = request.settings["data"], request.settings["model"]
    axes, (seed, *_) = {name: values for name, values in grid.items() if name != "seed"}, grid["seed"]
    assert request.search is not None
    studies = train.plan_studies(model, examples, data, seed=seed, search=request.search, folder=output, **axes, **request.others)
    trials = [task for study in studies for task in study.tasks()]
    with resumable(), progress_of_runs(_rows(trials), "trials") as watch:
        outcomes = train.run_studies(studies, examples, jobs=jobs, watch=watch, on=request.on)
    for tuned in outcomes:
        given = _trained_with(vars(tuned.settings))
        if tuned.accuracy is None:
            inform(f"{given} has no hyper-parameters to search.")
        else:
            inform(
                f"{given}, {in_short(tuned.settings.noise)}: the best of {tuned.trials} trials ({tuned.pruned} stopped early) is "
                f"{in_short(tuned.loss)}, with a held-out accuracy of {percent(tuned.accuracy)}. They are in {tuned.folder}."
            )
    return outcomes


def _rows(tasks: Iterable[Task]) -> list[tuple[str, str, int]]:
    """Loss, noise and seed of every task, for the display of their progress."""
    return [(_trained_with(vars(task.settings)), in_short(task.settings.noise), task.settings.seed) for task in tasks]


def _print_results(runs: Runs, output: Path, source: Any, as_json: bool) -> None:
    """Write the report and print the results."""
    page = write_report([run.path for run in runs], output / "report.html", data=source)
    summaries = [{"folder": str(run.path), **run.dynamics.summary()} for run in runs]
    results = _results(summaries)
    for row in results:
        if row["unlearned"]:
            sentence = unlearned_sentence(_trained_with(row), row["unlearned"], len(runs[0].classes))
            inform(f"noise {in_short(row['noise'])}: {sentence}")
    if as_json:
        print_json({"results": results, "runs": summaries})
    else:
        _print_tables(results)
        print_lines(f"{len(runs)} run{'s' if len(runs) > 1 else ''} in {output}. Report: {page}")


@contextmanager
def progress_of_runs(rows: Sequence[tuple[str, str, int]], kind: str = "runs") -> Iterator[Callable[[Progress], None]]:
    """Show the progress of runs on stderr: a line when one starts or ends and, on a terminal, a bar for each run in training.

    Worker processes do not print warnings inside this context: they would repeat them for every run.

    Args:
        rows: loss, noise and seed of every run.
        kind: what they are.
    """
    console, states, running = Console(stderr=True), ["waiting"] * len(rows), dict[int, bars.TaskID]()
    columns = (bars.TextColumn("{task.description}", markup=False), bars.BarColumn(), bars.MofNCompleteColumn())
    before = os.environ.get("PYTHONWARNINGS")
    os.environ["PYTHONWARNINGS"] = ",".join(filter(None, (before, "ignore::UserWarning")))
    try:
        with bars.Progress(*columns, console=console, transient=True, disable=not console.is_terminal or not rows) as shown:
            total = shown.add_task(f"finished {kind}", total=len(rows))

            def update(progress: Progress) -> None:
                run, (loss, noise, seed) = progress.place, rows[progress.place]
                name, changed = f"{loss}, {noise}, seed {seed}", states[run] != progress.state
                states[run] = progress.state
                if progress.state == "running":
                    running[run] = running[run] if run in running else shown.add_task(name, total=None)
                    shown.update(running[run], completed=progress.step, total=progress.steps or None)
                elif run in running:
                    shown.remove_task(running.pop(run))
                shown.update(total, completed=states.count("finished"))
                if changed:
                    console.out(f"{name}: {progress.state} ({states.count('finished')} of {len(rows)} finished)", highlight=False)

            yield update
    finally:
        if before is None:
            del os.environ["PYTHONWARNINGS"]
        else:
            os.environ["PYTHONWARNINGS"] = before


def _results(summaries: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    """Mean and standard deviation over seeds for every loss, noise and method, in the order of the runs."""
    groups: dict[tuple[str, str, str], list[dict[str, Any]]] = {}
    for summary in summaries:
        groups.setdefault((summary["loss"], summary["noise"], summary["method"]), []).append(summary)
    return [
        {"loss": loss, "noise": noise, "method": method, "seeds": [summary["seed"] for summary in group]}
        | {name: _as_json(over_seeds(summary[name] for summary in group)) for name in _MEASURES}
        | {"unlearned": list(dict.fromkeys(name for summary in group for name in summary["unlearned"] or ()))}
        for (loss, noise, method), group in groups.items()
    ]


def _trained_with(row: Mapping[str, Any]) -> str:
    """The loss, and the method if it is not the plain one."""
    loss = in_short(row["loss"])
    return loss if row["method"] == "plain" else f"{loss}, {in_short(row['method'])}"


def _as_json(spread: Spread | None) -> dict[str, float | None] | None:
    return None if spread is None else {"mean": spread.mean, "standard_deviation": spread.deviation}


def _print_tables(results: list[dict[str, Any]]) -> None:
    console = Console()
    for noise in dict.fromkeys(row["noise"] for row in results):
        rows = [row for row in results if row["noise"] == noise]
        columns = informative_measures(_MEASURES, rows)
        separator = " ± " if len(columns) <= _MOST_ON_ONE_LINE else "\n± "
        seeds = rows[0]["seeds"]
        console.print(Text(f"noise {in_short(noise)}, seed{'s' if len(seeds) > 1 else ''} {', '.join(map(str, seeds))}", style="italic"))
        table = Table(box=SIMPLE_HEAD, pad_edge=False)
        table.add_column("loss", overflow="fold", vertical="bottom")
        for name in columns:
            table.add_column(MEASURES[name].title.replace(" ", "\n"), justify="right", no_wrap=True, vertical="bottom")
        for row in rows:
            table.add_row(Text(_trained_with(row)), *(_cell(row[name], 1 if name == "snr" else 100, separator) for name in columns))
        console.print(table, highlight=False)
    legend = [f"{MEASURES[name].title}: {MEASURES[name].meaning}" for name in informative_measures(_MEASURES, results)]
    console.print(Text(" ".join(["Accuracies in %, ± the standard deviation over seeds.", *legend]), style="dim italic"))


def _cell(spread: dict[str, float | None] | None, scale: int, separator: str) -> str:
    if spread is None:
        return "–"
    digits = 1 if scale == 100 else 2
    return separator.join(f"{scale * value:.{digits}f}" for value in spread.values() if value is not None)
