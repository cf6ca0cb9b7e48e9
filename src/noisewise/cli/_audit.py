"""The commands that find doubtful labels, in a run or in the user's data, and correct them."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer
from rich.box import SIMPLE_HEAD
from rich.table import Table

from noisewise.audit import AUDIT_COLUMNS, EPOCHS, LOSS, Audit, audit_data, audit_run, check_data, check_judges, is_run
from noisewise.cli._app import AsJson, Console, Text, app, flag, inform, percent, print_json, print_lines, progress_bar
from noisewise.cli._beside import find_beside
from noisewise.cli._columns import print_columns
from noisewise.cli._options import read_for, read_test, with_reading, without_none
from noisewise.data import read
from noisewise.errors import InputError, invalid_parameter
from noisewise.output import check_output, check_replacing, is_page
from noisewise.tables import check_writable, has_columns

_SHOWN = 10
_LIST = Path("issues.csv")


@app.command()
@with_reading()
def audit(
    source: Annotated[str, typer.Argument(help="A run folder, or data to train a model on first.", metavar="RUN|DATA")],
    output: Annotated[
        Path | None, typer.Option("-o", "--output", help="The list to write: .csv, .json or .parquet. By default issues.csv for data.")
    ] = None,
    score: Annotated[str, typer.Option(help="The score to rank labels by.")] = "combined",
    model: Annotated[str | None, typer.Option(help="The model to train; by default mlp for numbers, resnet20 for images.")] = None,
    embeddings: Annotated[bool, typer.Option("--embeddings", help="The numbers are embeddings: train a linear model.")] = False,
    loss: Annotated[
        str | None, typer.Option(help=f"The loss to train with; by default {LOSS}, or ce with very many classes or a rare one.")
    ] = None,
    epochs: Annotated[int | None, typer.Option(help=f"The number of epochs; by default {EPOCHS}.", min=1)] = None,
    test: Annotated[
        str | None, typer.Option(help="Data with labels you trust, to estimate how often the model is wrong: a path or a name.")
    ] = None,
    test_features: Annotated[str | None, typer.Option(help="The file of embeddings of the test set, if --features is a file.")] = None,
    run_folder: Annotated[Path | None, typer.Option("--run", help="The run folder to train in; by default a new folder in runs/.")] = None,
    judge: Annotated[
        str,
        typer.Option(
            help="What judges the labels: features (models that do not see them), record (the trained run), or auto (features for numbers)."
        ),
    ] = "auto",
    review: Annotated[int | None, typer.Option(help="List only this many labels: those most likely to be wrong.", min=1)] = None,
    as_json: AsJson = False,
    **reading: Any,
) -> None:
    """Find labels that look wrong, in a run or in your data."""
    from noisewise.report import report

    check_judges(score, judge)
    trained = is_run(source)
    training: dict[str, Any] = {"model": model, "embeddings": embeddings or None, "loss": loss, "epochs": epochs}
    others = {"test": test, "test_features": test_features, "run": run_folder, "judge": None if judge == "auto" else judge}
    unused = list(map(flag, without_none(training | others | reading)))
    if unused and trained:
        raise InputError(f"{source!r} is a run, which is not trained again; leave out {', '.join(unused)}.")
    target = output if trained else output or _LIST
    page = None if target is None or trained else target.with_suffix(".html")
    if target is not None:
        check_writable(target)
        check_replacing(target, source, lambda file: has_columns(file, AUDIT_COLUMNS), "list")
    if page is not None:
        check_replacing(check_output(page, "audit", [".html"]), source, is_page, "page")
    if embeddings and model is not None:
        raise invalid_parameter("--model", "audit", "left out with --embeddings", model)
    if trained:
        run, issues, beside = None, audit_run(source, score=score), None
    else:
        check_data(source)
        with Console(stderr=True).status("reading the data"):
            data = read(source, **without_none(reading))
            test_set = read_test(source, test, without_none(reading), test_features)
        print_columns(data.encoding)
        run, issues = audit_data(data, test_set, score=score, judge=judge, folder=run_folder, stage=progress_bar, **training)
        beside = find_beside(data)
    written = [] if target is None else [issues.write(target, limit=review)]
    if run is not None and page is not None:
        audits = [issues] if score == "combined" else []
        written += [report(run.path, page, data=run.data, audits=audits, title="Which labels look wrong"), run.path]
    if as_json:
        print_json(_summary(issues) | ({} if beside is None else beside.as_json()) | {"written": list(map(str, written))})
        return
    _print_issues(issues)
    for sentence in [] if beside is None else beside.sentences():
        print_lines(sentence)
    for path in written:
        print_lines(path)


def _summary(issues: Audit) -> dict[str, Any]:
    return {
        "labels": len(issues),
        "doubtful": issues.count,
        "expected_precision": issues.expected_precision if issues.count else None,
        "interval": list(issues.interval or ()),
        "tested": issues.tested,
        "test_accuracy": issues.dynamics.best,
        "held_out_accuracy": max(issues.dynamics.held_out.values(), default=None),
        "agreement": issues.agreement,
        "caution": issues.caution,
        "worst": [{name: row[name] for name in ("id", "label_quality", "given_label", "suggested_label")} for row in issues.table(_SHOWN)],
    }


def _print_issues(issues: Audit) -> None:
    rows, (low, high) = issues.table(_SHOWN), issues.interval or (0.0, 0.0)
    title = f"The {len(rows)} {'most doubtful' if issues.count else 'least certain'} labels"
    table = Table(box=SIMPLE_HEAD, pad_edge=False, title=title, title_justify="left")
    for column in ("example", "given label", "suggested label", "quality"):
        table.add_column(column, overflow="fold", justify="right" if column == "quality" else "left")
    for row in rows:
        table.add_row(Text(row["id"]), Text(row["given_label"]), Text(row["suggested_label"]), f"{row['label_quality']:.3f}")
    Console().print(table, highlight=False)
    sentence = f"None of {len(issues):,} labels looks wrong"
    if issues.count:
        chance = percent(issues.expected_precision)
        sentence = f"{issues.count:,} of {len(issues):,} labels are doubtful; each is wrong with a mean probability of {chance}"
    caveat = "" if issues.tested or issues.model is not None else ", if the model makes few mistakes itself"
    basis = f"The model: {issues.basis}."
    if issues.model is not None:
        basis = f"Models that did not see a label predict {percent(issues.agreement)} of the labels."
    print_lines(f"{sentence}. Between {low:,.0f} and {high:,.0f} labels may be wrong{caveat}.", basis)
    if issues.caution is not None:
        inform(issues.caution)


@app.command()
@with_reading()
def correct(
    run: Annotated[Path, typer.Argument(help="The run folder.", metavar="RUN")],
    policy: Annotated[
        str | None, typer.Option(help="relabel, prune or soften; with a limit, for example 'prune(below=0.2)'. By default relabel.")
    ] = None,
    output: Annotated[
        Path | None, typer.Option("-o", "--output", help="The file of corrected labels; by default corrected.csv in the run folder.")
    ] = None,
    decisions: Annotated[
        Path | None, typer.Option(help="Apply only decisions made on a review page, in Label Studio or in Argilla.")
    ] = None,
    undo: Annotated[bool, typer.Option("--undo", help="Revert all changes in the file of corrected labels.")] = False,
    review: Annotated[Path | None, typer.Option(help="Change nothing; write a review page, a .html file, to decide on.")] = None,
    limit: Annotated[int | None, typer.Option(help="The number of suggestions on the review page; by default 200.", min=1)] = None,
    retrain: Annotated[bool, typer.Option("--retrain", help="Train again on the corrected labels, and say which run is better.")] = False,
    check: Annotated[
        bool | None, typer.Option("--check/--no-check", help="Whether to compare both runs on held-out labels. By default yes.")
    ] = None,
    run_folder: Annotated[Path | None, typer.Option("--run", help="The folder for the new run; by default RUN-corrected.")] = None,
    test: Annotated[str | None, typer.Option(help="The test set; by default that of the run.")] = None,
    data: Annotated[str | None, typer.Option(help="The training data; by default the path in the run.")] = None,
    **reading: Any,
) -> None:
    """Correct doubtful labels. The file lists every change, and changes can be undone."""
    from noisewise.correct import CORRECTION_COLUMNS, Soften, policies, read_decisions
    from noisewise.correct import correct as apply
    from noisewise.correct import review as write_review

    _check_options(
        undo=undo,
        review=review,
        retrain=retrain,
        decisions=decisions,
        policy=policy,
        limit=limit,
        run=run_folder,
        test=test,
        data=data,
        check=None if check is None else "given",
    )
    policy = policy or "relabel"
    if isinstance(policies.get(policy), Soften) and retrain:
        raise invalid_parameter("--policy", "correct --retrain", "relabel or prune, because a run has one label per example", policy)
    target = run / "corrected.csv" if output is None else output
    if review is not None:
        check_replacing(review, data or str(run), is_page, "page")
    elif not undo:
        check_replacing(target, data or str(run), lambda file: has_columns(file, CORRECTION_COLUMNS), "list of labels")
    source = read_for("correct", data, reading) if without_none(reading) else data
    if undo:
        _undo(run, target)
    elif review is not None:
        print_lines(write_review(audit_run(run), review, limit=limit or 200, data=source))
    else:
        correction = apply(audit_run(run), policy, decisions=None if decisions is None else read_decisions(decisions))
        check_output(target, "correct", (".csv",))
        changed = bool(correction.changed.any())
        lines = _retrain(run, correction, run_folder, source, test, check is not False) if retrain and changed else []
        print_lines(repr(correction), correction.write(target), *lines)  # written last, after everything that can fail
        if retrain and not changed:
            inform(f"no label was changed, so nothing was trained: keep {run}.")


def _check_options(**options: Any) -> None:
    """Refuse options of `correct` that contradict each other or would be ignored."""
    given = {name for name, value in options.items() if value not in (None, False)}
    for first, others in (("undo", ("review", "retrain", "decisions", "policy")), ("review", ("retrain", "decisions", "policy"))):
        for second in others:
            if {first, second} <= given:
                raise InputError(f"Options of correct exclude each other. Got --{first} and --{second}; give one of them.")
    for name, users in (
        ("run", ("retrain",)),
        ("test", ("retrain",)),
        ("check", ("retrain",)),
        ("limit", ("review",)),
        ("data", ("review", "retrain")),
    ):
        if name in given and not given & {*users}:
            needed = " or ".join(map(flag, users))
            raise InputError(f"An option of correct would be ignored. Got --{name} without {needed}; give {needed} too.")


def _undo(run: Path, target: Path) -> None:
    from noisewise.correct import Correction
    from noisewise.dynamics import Record

    correction = Correction.read(target, Record(run).classes)
    correction.undone().write(target)
    print_lines(f"Reverted {int(correction.changed.sum()):,} changes.", target)


def _retrain(folder: Path, correction: Any, output: Path | None, data: Any, test: str | None, check: bool) -> list[str]:
    """Train again; return lines with the accuracies before and after, and the folder of the better run."""
    from noisewise.correct import check_correction, retrain
    from noisewise.train import Run

    run = Run(folder)
    with progress_bar("training again on the corrected labels") as bar:
        again = retrain(run, correction, data=data, test=test, folder=output, watch=bar)
    before, after = run.dynamics.accuracy, again.dynamics.accuracy
    compared = "" if before is None else f"{percent(before)} before, "
    lines = [] if after is None else [f"test accuracy {compared}{percent(after)} after correction"]
    if not check:
        return [*lines, str(again.path)]
    with progress_bar("checking on held-out labels whether that helped") as bar:
        held_out = check_correction(run, correction, again, data=data, watch=bar)
    better, other = (again.path, folder) if held_out.helped else (folder, again.path)
    verdict = "the correction helped" if held_out.helped else "the correction did not help"
    verdict += "" if held_out.is_clear else ", but the difference may be chance"
    return [*lines, str(held_out), f"{verdict}: keep {better}, and not {other}", str(better)]
