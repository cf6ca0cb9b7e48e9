"""Training from the command line: what is asked reaches the engine, what is printed is what the run folders hold."""

import dataclasses
import errno
import json
import os
import re
import statistics
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image
from typer.testing import CliRunner

from noisewise.cli import app
from noisewise.cli._compare import progress_of_runs
from noisewise.train import Settings
from noisewise.train._compare import Progress
from prepared import Prepared
from waiting import interrupted

run = CliRunner().invoke
DIGITS = ["--data", "digits", "--model", "mlp(hidden=(16,))", "--device", "cpu"]
OWN = ["--data", "animals.csv", "--model", "linear", "--epochs", "2", "--device", "cpu"]


def _train(*arguments: object) -> Any:
    done = run(app, ["train", *map(str, arguments)])
    assert done.exit_code == 0, done.stderr
    return done


def _settings(folder: Path) -> dict[str, Any]:
    return dict(json.loads((folder / "settings.json").read_text(encoding="utf-8")))


def _written(folder: Path) -> int:
    return (folder / "model.safetensors").stat().st_mtime_ns


def _table(path: Path, number: int, kinds: tuple[str, ...] = ("ape", "bee", "cow"), seed: int = 0) -> Path:
    """Rows of three kinds of animals that two columns tell apart."""
    rng = np.random.default_rng(seed)
    places = {"ape": (0, 0), "bee": (8, 0), "cow": (0, 8)}
    rows = [(kind, *(rng.normal(places[kind]) + 0)) for kind in rng.choice(kinds, number)]
    path.write_text("kind,length,height,noise\n" + "".join(f"{kind},{x},{y},{rng.normal()}\n" for kind, x, y in rows), encoding="utf-8")
    return path


def test_every_setting_is_an_option(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    for command in ("train", "compare"):
        printed = run(app, [command, "--help"]).stdout
        for field in dataclasses.fields(Settings):
            assert f"--{field.name.replace('_', '-')} " in printed, field.name
            assert f"    {field.name}: " in (Settings.__doc__ or ""), "its help is what the docstring says of it"
        assert "Default: sgd(lr=0.1, momentum=0.9)." in printed


def test_every_option_reaches_the_engine(tmp_path: Path) -> None:
    asked = {
        "loss": "gce(q=0.5)",
        "noise": "symmetric(0.2)",
        "steps": 9,
        "seed": 3,
        "batch_size": 200,
        "optimiser": "adam(lr=0.01)",
        "schedule": "constant",
        "weight_decay": 0.01,
        "clip": 2.5,
        "accumulate": 2,
        "augment": "crop(1)",
        "validation": 0.25,
        "patience": 4,
        "keep": "best",
        "evaluate_every": 2,
        "checkpoint_every": 3,
        "precision": "float32",
    }
    options = [word for name, value in asked.items() for word in (f"--{name.replace('_', '-')}", value)]
    _train(*DIGITS, *options, "--no-normalise", "--no-clean-pass", "-o", tmp_path / "run")
    assert {**_settings(tmp_path / "run"), **asked, "normalise": False, "clean_pass": False} == _settings(tmp_path / "run")


def test_the_last_lines_are_the_results_and_the_folder(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    log = tmp_path / "log.jsonl"
    done = _train(*DIGITS, "--noise", "symmetric(0.4)", "--epochs", 3, "-o", folder, "--logger", f"jsonl('{log}')")
    given, true = (np.load(folder / f"labels/{name}.npy") for name in ("given", "true"))
    fits = np.load(folder / "record/clean/predictions-00003.npy") == given
    tested = [json.loads(line)["test_accuracy"] for line in (folder / "metrics.jsonl").read_text().splitlines()]
    assert done.stdout.splitlines() == [
        f"test accuracy {100 * tested[-1]:.1f} % (best {100 * max(tested):.1f} %, epoch {1 + int(np.argmax(tested))}), "
        f"right labels learned {100 * fits[given == true].mean():.1f} %, wrong labels learned {100 * fits[given != true].mean():.1f} %",
        str(folder),
    ]
    assert all(line.startswith("noisewise: ce did not learn ") for line in done.stderr.splitlines())
    assert tested[-1] == [json.loads(line) for line in log.read_text().splitlines() if "test_accuracy" in line][-1]["test_accuracy"]


def test_the_kept_model_is_reported(tmp_path: Path) -> None:
    asked = ("--noise", "symmetric(0.4)", "--epochs", 8, "--validation", 0.2, "--keep", "best", "--optimiser", "sgd(lr=0.3, momentum=0.9)")
    done = _train(*DIGITS, *asked, "-o", tmp_path / "run")
    lines = [json.loads(line) for line in (tmp_path / "run/metrics.jsonl").read_text().splitlines()]
    best = max(lines, key=lambda line: line["validation_accuracy"])
    assert best["epoch"] < 8, "else it is the last"
    given, true = (np.load(tmp_path / f"run/labels/{name}.npy") for name in ("given", "true"))
    fits = np.load(tmp_path / f"run/record/clean/predictions-{best['epoch']:05d}.npy") == given
    first = done.stdout.splitlines()[0]
    assert first.startswith(f"test accuracy {100 * best['test_accuracy']:.1f} % (best "), "of the model that learned what is told behind it"
    assert first.endswith(f"wrong labels learned {100 * fits[given != true].mean():.1f} %")
    assert done.stdout.splitlines()[1:] == [
        f"kept the model of epoch {best['epoch']}: held-out accuracy {100 * best['validation_accuracy']:.1f} %, "
        f"test accuracy {100 * best['test_accuracy']:.1f} %",
        str(tmp_path / "run"),
    ]


def test_a_finished_run_is_not_trained_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    first = _train(*DIGITS, "--epochs", 1)
    (folder,) = Path("runs").iterdir()
    before = _written(folder)
    again = _train(*DIGITS, "--epochs", 1)
    assert again.stdout == first.stdout and _written(folder) == before
    assert again.stderr.splitlines()[-1] == "noisewise: this run is already finished; nothing was trained."


def test_options_override_the_settings_file(tmp_path: Path) -> None:
    config = tmp_path / "run.toml"
    config.write_text(
        'data = "digits"\nmodel = "linear"\nloss = "mae"\nepochs = 5\nbatch_size = 300\nnormalise = false\n', encoding="utf-8"
    )
    _train("--config", config, "--loss", "gce(q=0.7)", "--steps", 2, "-o", tmp_path / "run")
    found = _settings(tmp_path / "run")
    assert (found["data"], found["model"], found["loss"], found["batch_size"]) == ("digits", "linear", "gce(q=0.7)", 300)
    assert (found["epochs"], found["steps"], found["normalise"]) == (None, 2, False)


def test_own_data_are_read_with_their_options(tmp_path: Path) -> None:
    train, test = _table(tmp_path / "animals.csv", 300), _table(tmp_path / "more.csv", 100, kinds=("bee", "cow"), seed=1)
    own = ["--data", train, "--test", test, "--label", "kind", "--feature", "length", "--feature", "height", "--model", "linear"]
    done = _train(*own, "--epochs", 5, "--batch-size", 30, "-o", tmp_path / "run")
    assert json.loads((tmp_path / "run/classes.json").read_text()) == ["ape", "bee", "cow"]
    tested = json.loads((tmp_path / "run/metrics.jsonl").read_text().splitlines()[-1])["test_accuracy"]
    assert tested > 0.95, "a test file without apes still calls its classes bee and cow"
    assert done.stdout.startswith(f"test accuracy {100 * tested:.1f} %")


def test_without_a_test_set_held_out_accuracy_and_learned_labels_are_printed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    own = ["--data", _table(tmp_path / "animals.csv", 300), "--label", "kind", "--model", "linear", "--epochs", 2, "--validation", 0.5]
    trained = _train(*own, "-o", tmp_path / "run")
    held_out = json.loads((tmp_path / "run/metrics.jsonl").read_text().splitlines()[-1])["validation_accuracy"]
    given = np.load(tmp_path / "run/labels/given.npy")
    learned = (np.load(tmp_path / "run/record/clean/predictions-00002.npy") == given).mean()
    told = f"held-out accuracy {100 * held_out:.1f} %, given labels learned {100 * learned:.1f} %"
    assert trained.stdout.splitlines()[0] == told
    compared = run(app, ["compare", *map(str, own), "-o", str(tmp_path / "runs")])
    assert compared.exit_code == 0, compared.stderr
    row = next(line for line in compared.stdout.splitlines() if line.strip().startswith("ce"))
    assert row.split() == ["ce", f"{100 * held_out:.1f}", f"{100 * learned:.1f}"], "the default loss, and no column that is empty"
    assert "Held out:" in compared.stdout and "Best:" not in compared.stdout and "Snr:" not in compared.stdout


def test_every_noise_is_printed_with_the_results_of_its_runs(tmp_path: Path) -> None:
    own = ["--data", str(_table(tmp_path / "animals.csv", 60)), "--label", "kind", "--model", "linear", "--steps", "2", "--jobs", "1"]
    done = run(app, ["compare", *own, "--noise", "none", "--noise", "symmetric(0.4)", "-o", str(tmp_path / "runs")])
    assert done.exit_code == 0, done.stderr
    as_given, corrupted = (part.partition("ce ")[0] for part in done.stdout.split("noise ")[1:3])
    assert "wrong" not in as_given, "which of these labels are wrong is not known"
    assert "right" in corrupted.lower() and "wrong" in corrupted.lower()
    legend = done.stdout.replace("\n", " ").lower()
    assert all(f" {words}: " in legend for words in ("labels learned", "right labels learned", "wrong labels learned", "snr"))
    page = (tmp_path / "runs/report.html").read_text(encoding="utf-8")
    assert all(f">{title}<span" in page for title in ("Labels learned", "Right labels learned", "Wrong labels learned"))


def test_the_output_of_a_comparison_fits_eighty_columns(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    grid = ["--noise", "symmetric(0.4)", "--seed", "0", "--seed", "1", "--validation", "0.2", "--steps", "3", "--jobs", "1"]
    compared = run(app, ["compare", *DIGITS, *grid, "-o", str(tmp_path / "runs")])
    assert compared.exit_code == 0, compared.stderr
    lines = compared.stdout.splitlines()
    assert max(map(len, (line for line in lines if " runs in " not in line))) <= 80
    (row,) = (line for line in lines if line.strip().startswith("ce"))
    columns = 6 + ("Balanced:" in compared.stdout)
    assert row.count("±") == columns and lines[lines.index(row) - 1].count(".") == columns


def test_a_loss_that_will_hardly_learn_is_named_in_one_line(tmp_path: Path) -> None:
    done = _train(*DIGITS, "--loss", "0.001*nce", "--steps", 1, "-o", tmp_path / "run")
    assert done.stderr.startswith("noisewise: 0.001*nce starts at") and done.stderr.count("starts at") == 1
    assert all(line.startswith("noisewise: ") for line in done.stderr.splitlines())


def _unbalanced(path: Path, seed: int = 0) -> Path:
    """Many animals of one kind and few of another, and a column that says nothing about the kind."""
    lengths = np.random.default_rng(seed).normal(size=200)
    kinds = ["ape"] * 190 + ["bee"] * 10
    path.write_text("kind,length\n" + "".join(f"{kind},{length}\n" for kind, length in zip(kinds, lengths, strict=True)), encoding="utf-8")
    return path


def test_a_class_that_is_not_learned_is_named_with_the_balanced_accuracy(tmp_path: Path) -> None:
    asked = ["--data", _unbalanced(tmp_path / "rare.csv"), "--label", "kind", "--test", _unbalanced(tmp_path / "test.csv", 1)]
    asked += ["--model", "linear", "--epochs", 10, "--device", "cpu"]
    learned = "ce did not learn 'bee' (1 of 2 classes)"
    done = _train(*asked, "-o", tmp_path / "run")
    assert done.stderr.count(learned) == 1 and done.stderr.splitlines()[-1].startswith(f"noisewise: {learned}")
    assert done.stdout.startswith("test accuracy 95.0 %, balanced 50.0 % (best "), done.stdout
    compared = run(app, ["compare", *map(str, asked), "--jobs", "1", "-o", str(tmp_path / "runs")])
    assert compared.exit_code == 0 and f"noisewise: noise none: {learned}" in compared.stderr
    assert "balanced" in compared.stdout and "50.0" in compared.stdout


def test_an_interrupted_run_says_how_to_resume_and_resumes(tmp_path: Path, python: Prepared) -> None:
    folder = tmp_path / "run"
    asked = ["train", *DIGITS, "--epochs", "8", "--no-clean-pass", "--evaluate-every", "4", "-o", str(folder)]
    stopped = python.interrupted(asked, folder / "record/training/margins-00004.npy")
    assert (stopped.returncode, stopped.stdout) == (130, "")
    assert stopped.stderr == "noisewise: interrupted; run the same command again to resume at the last checkpoint.\n"
    newest = max((folder / "checkpoints").iterdir()).stem.rpartition("-")[2]
    again = run(app, asked)
    assert again.exit_code == 0 and again.stderr == f"noisewise: resuming at step {12 * int(newest) + 1} of 96.\n"
    assert len((folder / "metrics.jsonl").read_text().splitlines()) == 8


def test_compare_tells_of_every_run_and_redoes_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    asked = ["compare", *DIGITS, "--noise", "symmetric(0.4)", "--seed", "0", "--seed", "1", "--epochs", "2", "--jobs", "1"]
    asked += ["--loss", "ce", "--loss", "0.001*nce", "-o", str(tmp_path)]
    first = run(app, asked)
    assert first.exit_code == 0
    lines = first.stderr.splitlines()
    assert lines[0].startswith("noisewise: 0.001*nce starts at") and "Warning" not in first.stderr
    assert sum(": finished (" in line for line in lines) == 4 and any(line.endswith("(4 of 4 finished)") for line in lines)
    report = tmp_path / "report.html"
    assert "0.001*nce" in report.read_text(encoding="utf-8") and str(report) in first.stdout.replace("\n", "")
    report.unlink()
    before = {folder: _written(folder) for folder in tmp_path.iterdir()}
    again = run(app, [*asked, "--json"])
    assert {folder: _written(folder) for folder in tmp_path.iterdir() if folder != report} == before
    found = json.loads(again.stdout)
    assert [(row["loss"], row["noise"], row["seeds"]) for row in found["results"]] == [
        ("ce", "symmetric(0.4)", [0, 1]),
        ("0.001*nce", "symmetric(0.4)", [0, 1]),
    ]
    assert {Path(one["folder"]) for one in found["runs"]} == set(before)
    for row in found["results"]:
        folders = [Path(one["folder"]) for one in found["runs"] if one["loss"] == row["loss"]]
        tested = [json.loads((folder / "metrics.jsonl").read_text().splitlines()[-1])["test_accuracy"] for folder in folders]
        mean, deviation = statistics.fmean(tested), statistics.stdev(tested)
        assert row["final"] == {"mean": pytest.approx(mean), "standard_deviation": pytest.approx(deviation)}
        assert f" {row['loss']} " in first.stdout and f" {100 * mean:.1f} ± {100 * deviation:.1f} " in first.stdout
    table = [line for line in first.stdout.splitlines() if " runs in " not in line]
    assert max(map(len, table)) <= 80 and "noise symmetric(0.4), seeds 0, 1" in first.stdout


def test_a_comparison_shows_what_finished_and_then_says_what_failed(tmp_path: Path) -> None:
    asked = ["compare", *DIGITS, "--loss", "ce", "--loss", "1e38*ce", "--epochs", "2", "--jobs", "1", "-o", str(tmp_path)]
    failed = run(app, asked)
    assert failed.exit_code == 1
    assert all(mention in failed.stderr.splitlines()[-1] for mention in ("noisewise: ", "1 of 2", "1e38*ce"))
    assert "1 run in " in failed.stdout and "1e38" not in failed.stdout
    assert failed.stderr.count("smaller learning rate") == 2
    assert (tmp_path / "report.html").exists()
    (row,) = json.loads(run(app, [*asked, "--json"]).stdout)["results"]
    assert row["loss"] == "ce" and row["final"]["mean"] > 0.5


def test_an_interrupted_comparison_says_how_to_resume(tmp_path: Path) -> None:
    config = tmp_path / "both.toml"
    config.write_text('loss = ["ce", "mae"]\nseed = 7\nepochs = 5000\n', encoding="utf-8")
    asked = ["compare", *DIGITS, "--config", str(config), "--jobs", "1", "-o", str(tmp_path / "runs")]
    stopped = interrupted(asked, tmp_path / "runs/none-ce-seed7/metrics.jsonl")
    assert (stopped.returncode, stopped.stdout) == (130, "")
    assert stopped.stderr.splitlines()[-1] == "noisewise: interrupted; run the same command again to resume at the last checkpoint."
    assert _settings(tmp_path / "runs/none-ce-seed7")["epochs"] == 5000


@pytest.mark.parametrize(
    ("arguments", "mentions"),
    [
        (["train", "--model", "mlp"], ("'data'", "run")),
        (["train", "--data", "digits", "--epochs", "1"], ("'model'", "run")),
        (["train", *DIGITS], ("epochs", "steps")),
        (["train", *DIGITS, "--epochs", "1", "--loss", "imea"], ("loss", "'imea'", "'imae'")),
        (["train", *DIGITS, "--epochs", "1", "--noise", "symetric(0.4)"], ("noise", "'symetric'", "'symmetric'")),
        (["train", "--data", "digit", "--model", "mlp", "--epochs", "1"], ("data set", "'digit'", "'digits'")),
        (["train", "--data", "digits", "--model", "mpl", "--epochs", "1"], ("model", "'mpl'", "'mlp'")),
        (["train", *DIGITS, "--epochs", "1", "--logger", "tensorbord"], ("logger", "'tensorbord'", "'tensorboard'")),
        (["train", *DIGITS, "--epochs", "0"], ("'epochs'", "[1, inf)", "0")),
        (["train", *DIGITS, "--epochs", "many"], ("'--epochs'", "integer")),
        (["train", *DIGITS, "--epoch", "1"], ("--epoch", "--epochs")),
        (["train", *DIGITS, "--epochs", "1", "--label", "kind"], ("'digits'", "'label'")),
        (["train", *OWN, "--label", "kind", "--size", "8"], ("'size'", "from_table")),
        (["train", *OWN, "--label", "kind", "--test", "digits"], ("test set", "'0'", "training set")),
        (["train", *OWN], ("animals.csv", "'label'", "height, kind, length, noise")),
        (["train", *OWN, "--label", "height", "--feature", "length"], ("animals.csv", "'height'")),
        (
            ["train", "--data", "legs.csv", "--label", "legs", "--column", "kind:number", "--model", "linear", "--epochs", "1"],
            ("legs.csv", "'kind'", "'cow'"),
        ),
        (["train", *OWN, "--label", "kind", "--augment", "crop(4)"], ('"none"', "'crop(4)'")),
        (["compare", *OWN, "--label", "kind", "--augment", "flip"], ('"none"', "'flip'")),
        (["train", *OWN, "--label", "kind", "--noise", "human(worst)"], ("human(worst)", "human labels")),
        (["train", *OWN, "--label", "kind", "-o", "animals.csv"], ("'animals.csv'", os.strerror(errno.EEXIST))),
        (["train", "--data", "pets", "--model", "mlp", "--epochs", "1"], ("'pets/dog/1.png'", "'size'")),
        (["train", *OWN, "--label", "kind", "--loss", "ce", "--loss", "mae"], ("--loss", "2")),
        (["train", "--data", "animals.csv", "--label", "knd", "--model", "mlp", "--epochs", "1"], ("'knd'", "'kind'")),
        (["train", "--config", "typo.toml"], ("'lose'", "'loss'")),
        (["train", "--config", "number.toml"], ("'loss'", "number.toml", "5")),
        (["train", "--config", "text.toml"], ("'size'", "text.toml", "'32'")),
        (["train", "--config", "broken.toml"], ("'broken.toml'",)),
        (["train", "--config", "missing.toml"], ("'missing.toml'",)),
        (["compare", "--model", "mlp", "--loss", "ce", "--epochs", "1"], ("'data'", "run")),
        (["compare", *DIGITS, "--epochs", "1", "--loss", "ce", "--loss", "gec"], ("loss", "'gec'", "'gce'")),
        (["compare", *DIGITS, "--epochs", "1", "--loss", "ce", "--loss", "ce"], ("comparison", "same")),
        (["compare", *DIGITS, "--epochs", "1", "--loss", "ce", "--jobs", "0"], ("'--jobs'", "1")),
    ],
)
def test_wrong_input_ends_in_one_sentence(
    arguments: list[str], mentions: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    _table(tmp_path / "animals.csv", 20)
    (tmp_path / "legs.csv").write_text("kind,legs\ncow,4\nape,2\ncow,4\n", encoding="utf-8")
    for number, kind in enumerate(("cat", "dog")):
        (tmp_path / "pets" / kind).mkdir(parents=True)
        Image.new("RGB", (8 + number, 8)).save(tmp_path / f"pets/{kind}/{number}.png")
    for name, text in (("typo", 'lose = "ce"'), ("number", "loss = 5"), ("text", 'size = "32"'), ("broken", "loss = ce")):
        (tmp_path / f"{name}.toml").write_text(text, encoding="utf-8")
    before = sorted(tmp_path.iterdir())
    failed = run(app, arguments)
    assert failed.exit_code == 2
    assert failed.stdout == ""
    assert failed.stderr.startswith("noisewise: ") and failed.stderr.count("\n") == 1
    assert all(mention in failed.stderr for mention in mentions), failed.stderr
    assert sorted(tmp_path.iterdir()) == before


@pytest.mark.parametrize("rows", [[], [("ce", "none", 0), ("mae", "none", 0)]])
def test_a_terminal_shows_bars_of_the_runs_in_training(
    rows: list[tuple[str, str, int]], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")  # a terminal, to rich
    with progress_of_runs(rows) as watch:
        for index in range(len(rows)):
            watch(Progress(index, "running", 1, 40))
        if rows:
            watch(Progress(0, "finished"))
    printed = re.sub(r"\x1b\[[\d;?]*\w", "", capsys.readouterr().err)
    assert "finished runs" in printed and "mae, none, seed 0" in printed and "1/40" in printed if rows else printed == ""
    assert not rows or "ce, none, seed 0: finished (1 of 2 finished)" in printed


@pytest.mark.parametrize("before", [None, "error::ImportWarning"])
def test_warnings_of_workers_are_kept_from_the_table_and_the_environment_is_left_as_it_was(before: str | None, monkeypatch) -> None:
    monkeypatch.delenv("PYTHONWARNINGS", raising=False)
    if before is not None:
        monkeypatch.setenv("PYTHONWARNINGS", before)
    with progress_of_runs([("ce", "none", 0)]):
        during = os.environ["PYTHONWARNINGS"]
    assert during == ",".join(filter(None, (before, "ignore::UserWarning")))
    assert os.environ.get("PYTHONWARNINGS") == before


def test_unreadable_images_are_reported_in_one_line(tmp_path: Path) -> None:
    for name in ("a/0", "a/1", "b/0", "b/1"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        Image.new("L", (4, 4), 50).save(tmp_path / f"{name}.png")
    (tmp_path / "b/2.png").write_text("404: not found")
    asked = ("--data", tmp_path, "--model", "linear", "--epochs", 1, "--device", "cpu", "-o", tmp_path.with_name("run"))
    refused = run(app, ["train", *map(str, asked)])
    assert refused.exit_code == 2 and "set 'unreadable' to 'skip'" in refused.stderr
    done = _train(*asked, "--unreadable", "skip")
    assert done.stderr.startswith("noisewise: ") and done.stderr.count("\n") == 1
    assert all(mention in done.stderr for mention in ("1 of the 5", tmp_path.name, "'b/2.png'"))


def test_labels_that_look_alike_are_one_line(tmp_path: Path) -> None:
    table = tmp_path / "t.csv"
    table.write_text("x,label\n" + "".join(f"{number},{('Yes', 'no', 'yes')[number % 3]}\n" for number in range(12)), encoding="utf-8")
    done = _train("--data", table, "--model", "linear", "--epochs", 1, "--device", "cpu", "-o", tmp_path / "run")
    lines = [line for line in done.stderr.splitlines() if "look alike" in line]
    assert len(lines) == 1 and lines[0].startswith("noisewise: The labels 'Yes' and 'yes'") and "2 classes" in lines[0]
