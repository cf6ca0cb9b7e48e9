"""The training and test data of a run: read alike, checked, recorded in the provenance and read again."""

import csv
import hashlib
import json
import shlex
import subprocess
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from torch.utils.data import TensorDataset
from typer.testing import CliRunner

from costs import Compared
from noisewise import fit
from noisewise.cli import app
from noisewise.data import Dataset, read
from noisewise.report.sections.runs import repeat
from noisewise.runs import digest, examples_as_given, examples_of, head_commit
from noisewise.train import Run, make_settings
from noisewise.train._request import gather, read_both
from refused import refused

HEADER = ["id", "a", "b", "c", "d", "kind"]
READ_ARGUMENTS = ("--label", "kind", "--id", "id")
READING = {"label": "kind", "id": "id"}


def _write(path: Path, columns: list[str], rows: list[dict[str, Any]]) -> Path:
    with path.open("w", newline="", encoding="utf-8") as file:
        csv.writer(file).writerows([columns, *([row[name] for name in columns] for row in rows)])
    return path


@pytest.fixture
def tables(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The current folder, with good.csv, the same table as digits.csv, and tables with other columns."""
    monkeypatch.chdir(tmp_path)
    rng = np.random.default_rng(0)
    values = rng.normal(size=(200, 4)) * [1, 10, 1, 1]
    right = values[:, 0] > 0
    values[:, 0] += np.where(right, 2, -2)
    given = right ^ (rng.random(200) < 0.15)
    rows = [
        {**dict(zip("abcd", map(float, row), strict=True)), "id": f"row {number}", "kind": ("cat", "dog")[int(label)], "note": "unused"}
        for number, (row, label) in enumerate(zip(values.round(4), given, strict=True))
    ]
    for name in ("good", "digits"):
        _write(tmp_path / f"{name}.csv", HEADER, rows)
    _write(tmp_path / "swapped.csv", ["note", "kind", "b", "a", "d", "c", "id"], rows)
    _write(tmp_path / "fewer.csv", ["id", "a", "b", "c", "kind"], rows)
    return tmp_path


def _noisewise(*arguments: Any) -> Any:
    return CliRunner().invoke(app, list(map(str, arguments)))


def _train(data: str, *arguments: Any) -> Any:
    return _noisewise(
        "train", "--data", data, *READ_ARGUMENTS, "--model", "mlp", "--epochs", 15, "--batch-size", 32, "--device", "cpu", *arguments
    )


def _accuracies(folder: Path) -> list[float]:
    return [line["test_accuracy"] for line in Run(folder).metrics]


def test_the_columns_of_a_test_table_are_selected_by_name(tables: Path) -> None:
    for name in ("good", "swapped"):
        done = _train("good.csv", "--test", f"{name}.csv", "-o", name)
        assert done.exit_code == 0, done.stderr
    assert _accuracies(tables / "good") == _accuracies(tables / "swapped")
    train = read("good.csv", **READING)
    others = read("swapped.csv", features=["d", "c", "b", "a"], **READING)
    for test in (others, "swapped.csv"):  # a data set, or a path that is read like the training set
        _, test_set = read_both(train, test)
        assert test_set is not None and test_set.features == ("a", "b", "c", "d") and torch.equal(test_set.inputs, train.inputs)


def test_a_test_table_with_missing_columns_is_refused_before_anything_is_written(tables: Path) -> None:
    done = _train("good.csv", "--test", "fewer.csv", "-o", "run")
    assert done.exit_code == 2 and "fewer.csv" in done.stderr and "'d'" in done.stderr and not (tables / "run").exists()
    with refused("'fewer'", "'d'", "'good'"):
        read_both(read("good.csv", **READING), read("fewer.csv", **READING))
    assert _train("good.csv", "--test", "good.csv", "-o", "run").exit_code == 0


def test_the_digest_of_data_covers_all_bytes() -> None:
    values = torch.zeros(3, 2**23, dtype=torch.uint8)
    for last in (0, 1):
        values[-1, -1] = last
        expected = hashlib.sha256(b"torch.uint8 (3, 8388608)" + values.numpy().tobytes()).hexdigest()
        assert digest(values) == expected


def test_the_seed_decides_which_examples_are_held_out() -> None:
    data = (torch.randn(100, 4), torch.arange(100) % 2)
    asked = {"data": "arrays", "model": "mlp", "epochs": 1, "validation": 0.3}
    parts = [gather(data, None, make_settings({**asked, "seed": seed})) for seed in (0, 0, 1)]
    held_out = [set(part.validation.index.tolist()) for part in parts if part.validation is not None and part.validation.index is not None]
    assert held_out[0] == held_out[1] != held_out[2] and list(map(len, held_out)) == [30, 30, 30]
    assert held_out[0].isdisjoint(parts[0].train.index.tolist())


def test_true_labels_of_a_test_set_are_numbered_like_the_classes_of_the_training_set() -> None:
    train = read(([[0.0]] * 3, ["ant", "bee", "cat"]))
    test = read(([[0.0]] * 3, ["bee", "cat", "cat"]), true_labels=["cat", "cat", "bee"])
    _, test_set = read_both(train, test)
    assert test_set is not None and test_set.true_labels is not None
    assert test_set.labels.tolist() == test_set.true_labels.tolist() == [2, 2, 1]
    truth = torch.tensor([-1, 1, 0])  # the first example has no class and keeps its given label
    _, test_set = read_both(train, replace(test, true_labels=truth))
    assert test_set is not None and test_set.labels.tolist() == [1, 2, 1]


def test_a_test_set_with_another_shape_is_refused_before_anything_is_written(tmp_path: Path) -> None:
    inputs, labels = torch.randn(60, 4), torch.arange(60) % 2
    with refused((4,), "Got (3,)"):
        fit("mlp", (inputs, labels), test=(inputs[:, :3], labels), epochs=1, folder=tmp_path / "run", device="cpu")
    assert not (tmp_path / "run").exists()


def test_a_data_set_knows_how_to_read_it_again_unless_it_was_changed(tables: Path) -> None:
    data = read(Path("good.csv"), features=np.array(["c", "a"]), classes=("dog", "cat"), image=None, **READING)
    assert data.source == {"source": str(tables / "good.csv"), "features": ["c", "a"], "classes": ["dog", "cat"], **READING}
    again = read(**json.loads(json.dumps(data.source)))
    assert again.classes == data.classes and torch.equal(again.inputs, data.inputs)
    assert data.to("cpu").source == data.source
    assert data.take(torch.arange(5)).source is None and data.corrupted("symmetric(0.2)").source is None
    assert read("digits", split="test").source == {"source": "digits", "split": "test"}
    assert read((data.inputs, data.labels)).source is None


@pytest.mark.parametrize("name", ["good", "digits"])  # a table may have the name of an official data set
def test_a_run_on_a_table_can_be_repeated_from_any_folder(tables: Path, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    assert _train(f"{name}.csv", "--test", "swapped.csv", "-o", "run").exit_code == 0
    monkeypatch.chdir("/")
    record = Run(tables / "run").dynamics.record
    assert torch.equal(examples_as_given(record).inputs, read(tables / "good.csv", **READING).inputs)
    words = shlex.split(repeat(record.settings, tables / "again", record.provenance))
    done = _noisewise(*words[1:])
    assert words[0] == "noisewise" and done.exit_code == 0, done.stderr
    assert Run(tables / "again").provenance["data"] == record.provenance["data"]
    assert Run(tables / "again").settings == Run(tables / "run").settings


def test_a_run_that_no_command_can_repeat_is_shown_as_python(tables: Path) -> None:
    settings = {"data": "good", "model": "mlp", "epochs": 3}
    train = {"source": str(tables / "good.csv"), "classes": ["dog", "cat"], **READING}
    with_classes = repeat(settings, Path("run"), {"sources": {"train": train, "test": None}})
    read_again = "noisewise.data.read('good.csv', classes=['dog', 'cat'], label='kind', id='id')"
    assert with_classes == f"noisewise.fit('mlp', {read_again}, epochs=3, folder='run')"
    unknown = repeat(settings, Path("run"), {"sources": {"train": None, "test": None}, "data": {"train": {}, "test": {}}})
    assert unknown == "noisewise.fit('mlp', data, test=test, epochs=3, folder='run')"
    named = {"source": str(tables / "digits")}  # a relative path would name the official data set
    assert repeat(settings, Path("run"), {"sources": {"train": named, "test": None}}).startswith(f"noisewise train --data {tables}/digits ")


def _contents(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_retraining_on_corrected_labels_reads_the_same_training_and_test_tables(tables: Path) -> None:
    assert _train("digits.csv", "--test", "swapped.csv", "--noise", "symmetric(0.1)", "-o", "run").exit_code == 0
    done = _noisewise("correct", "run", "--retrain", "--policy", "prune(below=0.9)")
    assert done.exit_code == 0 and Run(tables / "run-corrected").state == "finished", done.stderr
    first, again = Run(tables / "run").provenance, Run(tables / "run-corrected").provenance
    assert again["data"]["test"] == first["data"]["test"] and again["sources"] == first["sources"]
    kept = Run(tables / "run-corrected").dynamics.record
    whole = read("good.csv", **READING)
    places = np.load(tables / "run-corrected/labels/index.npy")
    assert len(places) < len(whole) and torch.equal(examples_of(kept).inputs, whole.inputs[torch.from_numpy(places)])


def test_a_table_that_was_moved_is_read_with_the_same_options(tables: Path) -> None:
    assert _train("good.csv", "-o", "run").exit_code == 0
    Path("good.csv").rename("moved.csv")
    assert _noisewise("correct", "run", "--review", "page.html", "--data", "moved.csv").exit_code == 0
    done = _noisewise("correct", "run", "--retrain", "--policy", "prune(below=0.9)", "--data", "moved.csv")
    assert done.exit_code == 0, done.stderr
    kept = examples_of(Run(tables / "run-corrected").dynamics.record, "moved.csv")
    assert kept.ids is not None and kept.ids[0].startswith("row ") and kept.classes == ("cat", "dog")
    other = _noisewise("correct", "run", "--review", "page.html", "--data", "swapped.csv", "--label", "id")
    assert other.exit_code == 2 and "their labels differ" in other.stderr, "given options replace the earlier ones"


def test_retraining_checks_everything_before_it_writes_labels(tables: Path) -> None:
    assert _train("good.csv", "--test", "good.csv", "-o", "run").exit_code == 0
    assert _noisewise("correct", "run", "--retrain", "--policy", "prune(below=0.9)").exit_code == 0
    before = _contents(tables)
    for arguments, mentions in (
        (["--retrain", "--policy", "relabel(below=0.9)"], ["run-corrected"]),
        (["--retrain", "--run", "other", "--test", "fewer.csv"], ["fewer.csv", "'d'"]),
        (["--retrain", "--run", "other", "--data", "nowhere.csv"], ["'nowhere.csv'"]),
        (["--retrain", "--run", "other", "-o", "nowhere/labels.csv"], ["nowhere"]),
        (["--run", "other"], ["--run", "--retrain"]),
        (["--test", "good.csv"], ["--test", "--retrain"]),
    ):
        done = _noisewise("correct", "run", *arguments)
        assert done.exit_code == 2 and all(mention in done.stderr for mention in mentions), done.stderr
        assert _contents(tables) == before
    done = _noisewise("correct", "run", "--retrain", "--policy", "relabel", "--run", "other", "--test", "swapped.csv")
    assert done.exit_code == 0 and done.stdout.splitlines()[-1] == "other", done.stderr
    assert Run(tables / "other").provenance["sources"]["test"]["source"] == str(tables / "swapped.csv")


@pytest.mark.parametrize(("name", "value", "shown"), [("label", "kind", "'kind'"), ("size", 32, "32"), ("features", ["a", "b"], "…")])
def test_an_option_of_reading_is_not_a_setting_and_the_error_says_where_to_give_it(tables: Path, name: str, value: Any, shown: str) -> None:
    with refused(repr(name), f"noisewise.data.read(…, {name}={shown})"):
        fit("mlp", "good.csv", epochs=1, folder=tables / "run", **{name: value})
    with refused("'lable'"):
        fit("mlp", "good.csv", epochs=1, folder=tables / "run", lable="kind")


def test_data_in_memory_are_trained_on_and_found_again_by_their_content(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pandas = pytest.importorskip("pandas")
    monkeypatch.chdir(tmp_path)
    inputs = torch.randn(40, 2, generator=torch.Generator().manual_seed(0))
    labels = (inputs[:, 0] > 0).long()
    frame = pandas.DataFrame(inputs.numpy(), columns=["a", "b"]).assign(label=labels.numpy())
    shared: dict[str, Any] = {"epochs": 1, "device": "cpu"}
    expected = fit("mlp", (inputs, labels), test=(inputs, labels), **shared)

    def weights(run: Run) -> list[torch.Tensor]:
        return list(run.model().state_dict().values())

    for name, first, second in (
        ("DataFrame", frame, frame.copy()),
        ("TensorDataset", TensorDataset(inputs, labels), TensorDataset(inputs, labels)),
    ):
        run = fit("mlp", first, test=second, **shared)
        assert run.settings.data == name and fit("mlp", second, test=first, **shared).path == run.path
        assert all(torch.equal(ours, theirs) for ours, theirs in zip(weights(run), weights(expected), strict=True))
        assert run.path.name.startswith(f"{name}-mlp-ce-none-seed0-")


def test_a_run_folder_inside_its_folder_of_images_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for kind in ("cat", "dog"):
        (tmp_path / "pets" / kind).mkdir(parents=True)
        Image.new("L", (8, 8), 100).save(tmp_path / "pets" / kind / "1.png")
    monkeypatch.chdir(tmp_path / "pets")
    for folder in (None, "../pets/run"):
        with refused("pets'"):
            fit("linear", ".", epochs=1, folder=folder, device="cpu")
    assert sorted(path.name for path in Path().iterdir()) == ["cat", "dog"]
    fit("linear", ".", epochs=1, folder="../run", device="cpu")


def test_many_classes_and_columns_are_matched_without_comparing_each_with_all(monkeypatch: pytest.MonkeyPatch) -> None:
    def names(kind: str) -> tuple[str, ...]:
        return tuple(Compared(f"{kind} {number}") for number in range(500))

    inputs, labels = torch.rand(500, 500), torch.arange(500)
    train = Dataset(inputs, labels, names("class"), features=names("column"))
    test = Dataset(inputs.flip(1), labels.flip(0), names("class")[::-1], features=names("column")[::-1])
    monkeypatch.setattr(Compared, "times", 0)
    _, alike = read_both(train, test)
    assert Compared.times < 20 * 500
    assert alike is not None and torch.equal(alike.inputs, inputs) and torch.equal(alike.labels, labels)


def _git(folder: Path, *arguments: str) -> str:
    settings = ["-c", "user.name=x", "-c", "user.email=x@example.org"]
    return subprocess.run(["git", *settings, *arguments], cwd=folder, capture_output=True, text=True, check=True).stdout.strip()


def test_the_commit_is_read_without_running_hooks_of_the_repository(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _git(tmp_path, "init", "-q")
    (tmp_path / "code.py").write_text("1")
    _git(tmp_path, "add", "code.py")
    _git(tmp_path, "commit", "-qm", "first")
    hook = tmp_path / "hook"
    hook.write_text(f"#!/bin/sh\ntouch '{tmp_path}/ran'\n")
    hook.chmod(0o755)
    _git(tmp_path, "config", "core.fsmonitor", str(hook))
    monkeypatch.chdir(tmp_path)
    fit("linear", (torch.eye(4), torch.tensor([0, 1, 0, 1])), epochs=1, folder=tmp_path / "run", device="cpu")
    assert not (tmp_path / "ran").exists()
    _git(tmp_path, "config", "--unset", "core.fsmonitor")
    assert json.loads((tmp_path / "run/provenance.json").read_text())["git"] == {"commit": _git(tmp_path, "rev-parse", "HEAD")}


def test_the_commit_is_found_wherever_git_keeps_it(tmp_path: Path) -> None:
    main, linked, below = tmp_path / "main", tmp_path / "linked", tmp_path / "main/src/deep"
    below.mkdir(parents=True)
    assert head_commit(main) is None
    _git(main, "init", "-q")
    assert head_commit(main) is None, "there is no commit yet"
    for number in range(2):
        _git(main, "commit", "-q", "--allow-empty", "-m", str(number))
    _git(main, "worktree", "add", "-q", "-b", "topic/other", str(linked), "HEAD~1")

    def agree(*folders: Path) -> None:
        for folder in folders:
            assert head_commit(folder) == _git(folder, "rev-parse", "HEAD")

    agree(main, below, linked)
    assert head_commit(main) != head_commit(linked)
    _git(main, "pack-refs", "--all")
    agree(main, below, linked)
    _git(main, "checkout", "-q", "--detach", "HEAD~1")
    agree(main, below)
    for broken in (b"ref: refs/heads/../../secret", b"\xff\xfe", b"", b"ref: HEAD", b"0" * 39):
        (main / ".git/HEAD").write_bytes(broken)
        assert head_commit(main) is None
