"""The command that trains one run."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import typer

from noisewise.cli._app import Console, app, inform, percent, print_lines, progress_bar
from noisewise.cli._columns import print_columns
from noisewise.cli._compare import search_losses
from noisewise.cli._options import Config, Request, with_settings
from noisewise.data import Dataset, is_official, read
from noisewise.dynamics import Dynamics, balance_matters
from noisewise.runs import read_encoding
from noisewise.spec import in_short
from noisewise.train import Run


@app.command()
@with_settings(training=("search",))
def train(
    output: Annotated[Path | None, typer.Option("-o", "--output", help="The run folder; by default a new folder in runs/.")] = None,
    config: Config = None,
    logger: Annotated[
        list[str] | None, typer.Option(help="Also log to tensorboard, mlflow, wandb or jsonl('file'); may be repeated.")
    ] = None,
    **options: Any,
) -> None:
    """Train one run. Run the same command again to resume an interrupted run."""
    from noisewise.train import fit, make_settings

    request = Request.of(options, config)
    settings = make_settings(request.settings)
    with Console(stderr=True).status("reading the data"):
        data, test = request.sources()
    if isinstance(data, Dataset):
        print_columns(data.encoding)
    if request.search is not None:
        grid = {name: [getattr(settings, name)] for name in ("loss", "noise", "method", "seed")}
        rest = replace(request, settings={name: value for name, value in request.settings.items() if name not in grid})
        (tuned,) = search_losses(rest, read(data), grid, Path("runs") if output is None else output.parent, None)
        request.settings["loss"] = tuned.loss
        settings = make_settings(request.settings)
    with progress_bar(in_short(settings.loss)) as bar:
        run = fit(settings.model, data, test=test, folder=output, loggers=logger or (), watch=bar, **request.others)
    if not isinstance(data, Dataset) and not is_official(data):
        print_columns(read_encoding(run.path))
    if not bar.moved:
        inform("this run is already finished; nothing was trained.")
    print_lines(f"{_results(run.dynamics)}{_kept(run) if settings.keep != 'last' else ''}\n{run.path}")


def _kept(run: Run) -> str:
    line = next(line for line in run.metrics if line["epoch"] == run.kept_epoch)
    names = {"validation_accuracy": "held-out accuracy", "test_accuracy": "test accuracy"}
    accuracies = ", ".join(f"{title} {percent(line[name])}" for name, title in names.items() if name in line)
    return f"\nkept the model of epoch {run.kept_epoch}{accuracies and ': ' + accuracies}"


def _results(run: Dynamics) -> str:
    """The accuracies of the model that the run keeps."""
    learned = ("fitting", "clean_subset", "noisy_subset", "held_out", "balanced")
    summary = {name: run.model_value(getattr(run, name)) for name in learned} | {"final": run.final, "kept": run.kept}
    parts = [f"given labels learned {percent(summary['fitting'])}"]
    if summary["noisy_subset"] is not None:
        parts = [f"right labels learned {percent(summary['clean_subset'])}, wrong labels learned {percent(summary['noisy_subset'])}"]
    if summary["held_out"] is not None:
        parts.insert(0, f"held-out accuracy {percent(summary['held_out'])}")
    if run.accuracy is not None:
        balanced = f", balanced {percent(summary['balanced'])}" if balance_matters(summary) else ""
        parts.insert(0, f"test accuracy {percent(run.accuracy)}{balanced} (best {percent(run.best)}, epoch {run.best_epoch})")
    return ", ".join(parts)
