"""The commands about doubtful labels: finding them, in a run or in the user's own data, and correcting them."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.box import SIMPLE_HEAD
from rich.table import Table

from noisewise.cli._app import AsJson, Console, Text, app, flag, percent, print_json, say, show, trained
from noisewise.cli._options import only_given, read_for, with_reading
from noisewise.errors import InputError, invalid_parameter, listed
from noisewise.output import check_output, check_replacing
from noisewise.spec import name_of

if TYPE_CHECKING:
    from noisewise.audit import Audit
    from noisewise.train import Run

_SHOWN = 10
_LIST = Path("issues.csv")
_EPOCHS = 30
_LEAST_CROPPED = 24  # pixels: the side of the smallest images that are shifted at random
_LOSS = "gce(q=0.7)"  # memorises little, so that nearly all epochs have something to say


@app.command()
@with_reading()
def audit(
    source: Annotated[str, typer.Argument(help="A run folder; or your own data, which a model is trained on first.", metavar="RUN|DATA")],
    output: Annotated[
        Path | None,
        typer.Option(
            "-o", "--output", help="The list to write, .csv, .json or .parquet; for your own data issues.csv.", show_default=False
        ),
    ] = None,
    score: Annotated[str, typer.Option(help="What to rank by.")] = "combined",
    model: Annotated[
        str | None,
        typer.Option(help="The model to train on your data: by default mlp on numbers, resnet20 on images.", show_default=False),
    ] = None,
    embeddings: Annotated[bool, typer.Option("--embeddings", help="The numbers are embeddings: train a linear model on them.")] = False,
    loss: Annotated[
        str | None,
        typer.Option(help=f"The loss to train it with: by default {_LOSS}, or ce if that would hardly start.", show_default=False),
    ] = None,
    epochs: Annotated[
        int | None, typer.Option(help=f"How many passes to train it for: by default {_EPOCHS}.", min=1, show_default=False)
    ] = None,
    test: Annotated[
        str | None,
        typer.Option(help="Examples with labels you trust, to tell its mistakes from wrong labels: a path or a name.", show_default=False),
    ] = None,
    run_folder: Annotated[
        Path | None, typer.Option("--run", help="Where the run on your data goes; by default runs/ and a name.", show_default=False)
    ] = None,
    as_json: AsJson = False,
    **reading: Any,
) -> None:
    """Find the labels that look wrong, in a run or in your own data."""
    from noisewise.audit import audit as find
    from noisewise.audit import score_function
    from noisewise.report import report

    score_function(score)
    own = not (Path(source) / "settings.json").is_file()
    training = {"model": model, "embeddings": embeddings or None, "loss": loss, "epochs": epochs, "test": test, "run": run_folder}
    given = list(map(flag, only_given(training | reading)))
    if given and not own:
        raise InputError(f"{source!r} is a run, which is audited as it is. Got {', '.join(given)}; leave that out.")
    target = _LIST if output is None and own else output
    page = None if target is None or not own else target.with_suffix(".html")
    _check_targets(target, page, source)
    run = _train(source, test, model, embeddings, loss, epochs or _EPOCHS, run_folder, reading) if own else None
    found = find(source if run is None else run, score=score)
    if run is not None and loss is None and run.settings.loss != "ce" and found.unlearned:
        say(f"{run.settings.loss} did not learn {listed(map(repr, found.unlearned))}; training again with ce.")
        beside = None if run_folder is None else run_folder.with_name(f"{run_folder.name}-ce")
        run = _train(source, test, model, embeddings, "ce", epochs or _EPOCHS, beside, reading)
        found = find(run, score=score)
    written = [] if target is None else [found.write(target)]
    if run is not None and page is not None:
        written += [report(run.path, page, data=run.data, title="Which labels look wrong"), run.path]  # the run is what correct takes
    if as_json:
        print_json(_summary(found) | {"written": list(map(str, written))})
        return
    _show(found)
    for path in written:
        show(path)


def _check_targets(target: Path | None, page: Path | None, source: str) -> None:
    """Refuse a list and a page that cannot be written, or that would replace what is not ours, before anything is trained."""
    from noisewise.audit import AUDIT_COLUMNS
    from noisewise.output import is_page
    from noisewise.tables import check_writable, has_columns

    if target is not None:
        check_writable(target)
        check_replacing(target, source, lambda file: has_columns(file, AUDIT_COLUMNS), "list")
    if page is not None:
        check_replacing(check_output(page, "audit", [".html"]), source, is_page, "page")


def _train(
    source: str,
    test: str | None,
    model: str | None,
    embeddings: bool,
    loss: str | None,
    epochs: int,
    folder: Path | None,
    reading: dict[str, Any],
) -> Run:
    """A run on the user's own data, with a model that suits them."""
    from noisewise.data import is_official, read
    from noisewise.dynamics import underfitting
    from noisewise.runs import RunFolder
    from noisewise.train import Unlearned, fit

    if RunFolder(source).damaged():
        raise InputError(f"The folder {source!r} looks like a damaged run: it has no settings.json. Copy it again, or train it again.")
    for inside in ("*/settings.json", "*/*/settings.json"):  # of a comparison, and of the demonstration
        for found in Path(source).glob(inside):
            raise InputError(f"The folder {source!r} holds runs. Audit one of them, like {str(found.parent)!r}.")
    if embeddings and model is not None:
        raise invalid_parameter("--model", "audit", "left out where the data are --embeddings", model)
    with Console(stderr=True).status("reading the data"):
        data = read(source, **only_given(reading))
    chosen = model or ("linear" if embeddings else "resnet20" if data.inputs.ndim == 4 else "mlp")
    loss = loss or (_LOSS if underfitting(_LOSS, len(data.classes)) is None else "ce")
    augment, test = _augmentation(data.inputs.shape, chosen), source if test is None and is_official(source) else test
    with trained(f"training {chosen} on {len(data):,} examples") as bar, warnings.catch_warnings():
        warnings.simplefilter("ignore", Unlearned)  # the audit says so itself
        return fit(chosen, data, test=test, loss=loss, epochs=epochs, folder=folder, augment=augment, evaluate_every=epochs, watch=bar)


def _augmentation(shape: Sequence[int], model: str) -> str:
    """Small random shifts where they help: not on tiny images, which lose too much, nor for a model of flattened pixels."""
    from noisewise.models import ImageClassifier, registry

    kind = registry[name_of(model)]
    convolves = isinstance(kind, type) and issubclass(kind, ImageClassifier)
    return "crop(2)" if convolves and len(shape) == 4 and min(shape[2:]) >= _LEAST_CROPPED else "none"


def _summary(found: Audit) -> dict[str, Any]:
    return {
        "labels": len(found),
        "doubtful": found.count,
        "expected_precision": found.expected_precision if found.count else None,
        "interval": list(found.interval),
        "tested": found.tested,
        "test_accuracy": found.dynamics.best,
        "held_out_accuracy": max(found.dynamics.held_out.values(), default=None),
        "agreement": found.agreement,
        "caution": found.caution,
        "worst": [{name: row[name] for name in ("id", "label_quality", "given_label", "suggested_label")} for row in found.table(_SHOWN)],
    }


def _show(found: Audit) -> None:
    summary = _summary(found)
    low, high = summary["interval"]
    title = f"The {len(summary['worst'])} {'most doubtful' if found.count else 'least certain'}"
    table = Table(box=SIMPLE_HEAD, pad_edge=False, title=title, title_justify="left")
    for column in ("example", "given label", "suggested label", "quality"):
        table.add_column(column, overflow="fold", justify="right" if column == "quality" else "left")
    for row in summary["worst"]:
        table.add_row(Text(row["id"]), Text(row["given_label"]), Text(row["suggested_label"]), f"{row['label_quality']:.3f}")
    Console().print(table, highlight=False)
    words = f"None of {len(found):,} labels looks wrong"
    if found.count:
        chance = percent(found.expected_precision)
        words = f"{found.count:,} of {len(found):,} labels are doubtful, with a mean chance of {chance} to be wrong"
    show(f"{words}; between {low:,.0f} and {high:,.0f} may be wrong{'' if found.tested else ', if the model makes few mistakes itself'}.")
    show(f"The model: {found.basis}.")
    if found.caution is not None:
        say(found.caution)


@app.command()
@with_reading()
def correct(
    run: Annotated[Path, typer.Argument(help="The run folder.", metavar="RUN")],
    policy: Annotated[
        str | None,
        typer.Option(help="relabel, prune or soften; with a bound, like 'prune(below=0.2)'. By default relabel.", show_default=False),
    ] = None,
    output: Annotated[
        Path | None, typer.Option("-o", "--output", help="The file of labels; by default corrected.csv in the run.", show_default=False)
    ] = None,
    decisions: Annotated[
        Path | None, typer.Option(help="Apply what was decided on a review page, and nothing else.", show_default=False)
    ] = None,
    undo: Annotated[bool, typer.Option("--undo", help="Take all changes in the file of labels back.")] = False,
    review: Annotated[
        Path | None, typer.Option(help="Write a page to decide on instead, a .html file, and change nothing.", show_default=False)
    ] = None,
    limit: Annotated[
        int | None, typer.Option(help="How many suggestions the page shows: by default 200.", min=1, show_default=False)
    ] = None,
    retrain: Annotated[bool, typer.Option("--retrain", help="Train again on the corrected labels.")] = False,
    run_folder: Annotated[
        Path | None, typer.Option("--run", help="Where the run on corrected labels goes; by default RUN-corrected.", show_default=False)
    ] = None,
    test: Annotated[str | None, typer.Option(help="What to test it on; by default what the run was tested on.", show_default=False)] = None,
    data: Annotated[
        str | None, typer.Option(help="What the run was trained on; by default where it says it read them.", show_default=False)
    ] = None,
    **reading: Any,
) -> None:
    """Correct doubtful labels; every change is listed in the file and can be undone."""
    from noisewise.audit import audit as find
    from noisewise.correct import Soften, policies, read_decisions
    from noisewise.correct import correct as apply
    from noisewise.correct import review as write_review

    for option, given in (("--run", run_folder), ("--test", test)):
        if given is not None and not retrain:
            raise InputError(f"Only training again has a run and a test set of its own. Got {option} without --retrain; give both.")
    _check_alone(undo=undo, review=review is not None, retrain=retrain, decisions=decisions is not None)
    for option, asked in (("--undo", undo), ("--review", review is not None)):
        if asked and policy is not None:
            raise InputError(f"The option {option} follows no policy. Got --policy as well; leave it out.")
    if data is not None and review is None and not retrain:
        raise InputError("Only a review page and training again read the examples. Got --data without --review or --retrain; leave it out.")
    policy = policy or "relabel"
    if isinstance(policies.get(policy), Soften) and retrain:
        raise invalid_parameter("--policy", "correct --retrain", "relabel or prune, because a run has one label per example", policy)
    if limit is not None and review is None:
        raise invalid_parameter("--limit", "correct", "given together with --review", limit)
    target = run / "corrected.csv" if output is None else output
    if not undo:
        _check_replacing(target, review, data or str(run))
    source = read_for("correct", data, reading) if only_given(reading) else data  # which is read as the run read its own
    if undo:
        _undo(run, target)
    elif review is not None:
        show(write_review(find(run), review, limit=limit or 200, data=source))
    else:
        decided = None if decisions is None else read_decisions(decisions)
        correction = apply(find(run), policy, decisions=decided)
        check_output(target, "correct", (".csv",))
        again = retrain and bool(correction.changed.any())
        lines = _retrain(run, correction, run_folder, source, test) if again else []
        show(repr(correction), correction.write(target), *lines)  # only now: all that could be refused has been checked
        if retrain and not again:
            say("no label was changed, so nothing was trained again.")


def _check_replacing(target: Path, review: Path | None, source: str) -> None:
    """Refuse a file that is not ours to replace, before anything is read."""
    from noisewise.correct import CORRECTION_COLUMNS
    from noisewise.output import is_page
    from noisewise.tables import has_columns

    if review is not None:
        check_replacing(review, source, is_page, "page")
    else:
        check_replacing(target, source, lambda file: has_columns(file, CORRECTION_COLUMNS), "list of labels")


def _check_alone(**asked: bool) -> None:
    """Refuse options that ask for different things at once."""
    for first, second in (("undo", "review"), ("undo", "retrain"), ("undo", "decisions"), ("review", "retrain"), ("review", "decisions")):
        if asked[first] and asked[second]:
            raise InputError(f"Correct does one thing at a time. Got --{first} and --{second}; give one of them.")


def _undo(run: Path, target: Path) -> None:
    from noisewise.correct import Correction
    from noisewise.dynamics import Record

    correction = Correction.read(target, Record(run).classes)
    correction.undone().write(target)
    show(f"Reverted {int(correction.changed.sum()):,} changes.\n{target}")


def _retrain(folder: Path, correction: Any, into: Path | None, data: Any, test: str | None) -> list[str]:
    """Train again; what came of it, in lines."""
    from noisewise.correct import retrain
    from noisewise.train import Run

    run = Run(folder)
    with trained("training again on the corrected labels") as bar:
        again = retrain(run, correction, data=data, test=test, folder=into, watch=bar)
    before, after = run.dynamics.accuracy, again.dynamics.accuracy
    compared = "" if before is None else f"{percent(before)} before, "
    return [*([] if after is None else [f"test accuracy {compared}{percent(after)} after correction"]), str(again.path)]
