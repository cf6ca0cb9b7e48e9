"""Damaged and forged run folders: whatever a file of a run contains, every reader works or raises one `InputError`."""

import json
import random
import shutil
from functools import partial
from pathlib import Path

import numpy as np
import pytest
import torch

from fuzzing import confined, mutated, survives
from noisewise import InputError, fit
from noisewise.audit import audit
from noisewise.correct import correct, read_changes, retrain
from noisewise.data import Dataset
from noisewise.draw._history import _over_steps
from noisewise.dynamics import Dynamics
from noisewise.report import report
from noisewise.runs import RunFolder, examples_of, first_labels, read_origin
from noisewise.train import Run

AWKWARD = [
    *(None, True, False, -1, 0, 1, 2, 0.5, -0.5, 1e308, float("inf"), float("nan"), 2**31, 2**63, 10**30, 10**400),
    *("", "1", "none", "linear", "../../etc/passwd", "a\nb", "\x1b[2J", "\ud800", "ce + ce", "mlp(10, 10**9)", "normalise((0,), (0,))"),
    *([], {}, [0], [None], {"": 0}, {"train": None, "test": None}, {"source": "/dev/null"}, json.loads("[" * 60 + "]" * 60)),
]
SETTINGS = {"epochs": 3, "batch_size": 16, "noise": "symmetric(0.3)", "device": "cpu", "validation": 0.25, "keep": "best"}


def pets() -> Dataset:
    draw = torch.Generator().manual_seed(0)
    labels = torch.arange(48) % 3
    inputs = 3 * torch.eye(3, 4)[labels] + torch.randn(48, 4, generator=draw)
    return Dataset(inputs, labels, ("cat", "dog", "eel"), name="pets", ids=tuple(f"row {row}" for row in range(48)))


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A finished run, one that was trained again on corrected labels, and one that was interrupted."""
    root = tmp_path_factory.mktemp("runs")
    run = fit("linear", pets(), test=pets(), folder=root / "run", **SETTINGS)
    retrain(run, correct(audit(run), "prune"), folder=root / "again", test=pets())

    def stop(done, of):
        if done == 5:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        fit("linear", pets(), test=pets(), folder=root / "stopped", watch=stop, **SETTINGS)
    return root


def awkward(data: bytes, draw: random.Random) -> bytes:
    """Replace or remove a value of a JSON file, or change its bytes."""
    if draw.random() < 0.3:
        return mutated(data, draw)
    lines = data.decode().splitlines() if data.count(b'"epoch"') > 1 else [data.decode()]
    line = draw.randrange(len(lines))
    content = json.loads(lines[line])
    places = list(_places(content))
    holder, key = draw.choice(places)
    if draw.random() < 0.2:
        del holder[key]
    else:
        holder[key] = draw.choice(AWKWARD)
    lines[line] = json.dumps(content)
    return "\n".join(lines).encode()


def _places(content):
    for key in list(content) if isinstance(content, dict) else range(len(content)):
        yield content, key
        if isinstance(content[key], dict | list):
            yield from _places(content[key])


def array(data: bytes, draw: random.Random) -> bytes:
    """Change the type, the shape or the content of an array, or its bytes."""
    change, end = draw.randrange(4), data.index(b"\n") + 1
    if change == 0:
        return mutated(data[:end], draw) + data[end:]
    if change == 1:
        return data[:end] + mutated(data[end:], draw)
    if change == 2:
        return data[:10] + data[10:end].replace(b"(", draw.choice([b"(-", b"(9", b"(" + b"9" * 30, b"(2, ", b"(0", b"(("])) + data[end:]
    kinds = ["<i8", ">i8", "<f8", "<c8", "|O", "<U3", "<M8[s]", "|b1", "<u8", "<i1", "|V4", "<f2", "<i4"]
    return data[:10] + data[10:end].replace(data[21:24], draw.choice(kinds).encode()) + data[end:]


def replaced(path: Path, read, content: bytes) -> None:
    """Read a run after the content of a file is replaced."""
    path.write_bytes(content)
    read()


def read_settings(folder: Path) -> None:
    run = Run(folder)
    _ = repr(run), run.kept_epoch, run.dynamics.measured_on


def read_provenance(folder: Path) -> None:
    dynamics = Run(folder).dynamics
    _ = dynamics.record.recorded, dynamics.hybrid


def read_metrics(folder: Path) -> None:
    dynamics = Dynamics(folder)
    _ = dynamics.best, dynamics.snr, dynamics.alpha, dynamics.mean_emphasis, dynamics.held_out, _over_steps(dynamics, dynamics.test)


def read_labels(folder: Path) -> None:
    record = Dynamics(folder).record
    _ = record.classes, record.given, record.true, record.wrong


def read_names(folder: Path) -> None:
    issues = audit(folder)
    _ = issues.ids, issues.index, issues.table(3)


def read_corrected(folder: Path) -> None:
    record, origin = Dynamics(folder).record, read_origin(folder)
    _ = first_labels(record)
    if origin is not None:
        read_changes(folder, origin, record.classes)
        origin.name("ce"), origin.name_before("ce")


def predict(folder: Path) -> None:
    Run(folder).predict(torch.zeros(2, 4))


JSON = [
    ("settings.json", read_settings, 400),
    ("status.json", read_settings, 200),
    ("provenance.json", read_provenance, 250),
    ("provenance.json", predict, 100),
    ("metrics.jsonl", read_metrics, 400),
    ("classes.json", read_labels, 300),
    ("labels/ids.json", read_names, 30),
]
ARRAYS = [
    *((name, read_labels, 300) for name in ("labels/given.npy", "labels/true.npy")),
    ("labels/index.npy", read_names, 30),
    *((f"record/{of}/{kind}-00002.npy", read_names, 20) for of in ("training", "clean") for kind in ("margins", "predictions")),
]


@pytest.mark.parametrize(("name", "read", "cases", "mutate"), [(*case, awkward) for case in JSON] + [(*case, array) for case in ARRAYS])
def test_any_content_of_a_file_is_read_or_refused(folder, tmp_path, times, name, read, cases, mutate):
    run = Path(shutil.copytree(folder / "run", tmp_path / "run"))
    survives(partial(replaced, run / name, lambda: read(run)), [(run / name).read_bytes()], cases * times, tmp_path, mutate=mutate)


@pytest.mark.parametrize(
    ("name", "cases", "mutate"),
    [("correction.json", 400, awkward), ("labels/corrected.csv", 300, mutated), ("labels/first.npy", 150, array)],
)
def test_any_origin_of_a_corrected_run_is_read_or_refused(folder, tmp_path, times, name, cases, mutate):
    run = Path(shutil.copytree(folder / "again", tmp_path / "run"))
    read = partial(replaced, run / name, lambda: read_corrected(run))
    survives(read, [(run / name).read_bytes()], cases * times, tmp_path, mutate=mutate)


def test_any_model_is_read_or_refused(folder, tmp_path, times):
    run = Path(shutil.copytree(folder / "run", tmp_path / "run"))
    name = run / "model.safetensors"
    survives(partial(replaced, name, lambda: predict(run)), [name.read_bytes()], 300 * times, tmp_path)


def test_any_checkpoint_is_read_or_left_out(folder, tmp_path, times):
    run = Path(shutil.copytree(folder / "stopped", tmp_path / "run"))
    name = sorted((run / "checkpoints").glob("epoch-*"))[-1]
    read = partial(replaced, name, lambda: list(RunFolder(run).checkpoints()))
    assert survives(read, [name.read_bytes()], 300 * times, tmp_path) == 0


def damage(run: Path, draw: random.Random) -> None:
    """Change a random file of a run."""
    path = draw.choice(sorted(path for path in run.rglob("*") if path.is_file() and path.name != ".lock"))
    mutate = {".json": awkward, ".jsonl": awkward, ".npy": array}.get(path.suffix, mutated)
    path.write_bytes(mutate(path.read_bytes(), draw))


def test_a_damaged_run_does_not_affect_other_runs_of_a_report(folder, tmp_path, times):
    draw = random.Random(0)
    for number in range(4 * times):
        runs = tmp_path / str(number)
        shutil.copytree(folder / "run", runs / "good")
        shutil.copytree(folder / "again", runs / "bad")
        damage(runs / "bad", draw)
        with confined(tmp_path):
            page = report(runs, runs / "report.html").read_text(encoding="utf-8")
        assert str(runs / "good") in page and str(runs / "bad") in page
        shutil.rmtree(runs)


def test_a_damaged_run_is_resumed_or_refused(folder, tmp_path, times, monkeypatch):
    monkeypatch.setattr("noisewise.runs._provenance.head_commit", lambda folder: None)
    draw, resumed = random.Random(0), 0
    for number in range(8 * times):
        run = Path(shutil.copytree(folder / "stopped", tmp_path / str(number)))
        damage(run, draw)
        with confined(tmp_path):
            try:
                resumed += len(fit("linear", pets(), test=pets(), folder=run, **SETTINGS).metrics) == 3
            except InputError as error:
                assert "\n" not in str(error) and "\x1b" not in str(error)
        shutil.rmtree(run)
    assert resumed


def test_examples_of_a_damaged_run_are_found_or_refused(folder, tmp_path, times):
    run = Path(shutil.copytree(folder / "again", tmp_path / "run"))
    name, record = run / "provenance.json", Dynamics(run).record
    np.testing.assert_array_equal(examples_of(record, pets()).index, np.load(run / "labels/index.npy"))
    survives(
        partial(replaced, name, lambda: examples_of(Dynamics(run).record, pets())),
        [name.read_bytes()],
        100 * times,
        tmp_path,
        mutate=awkward,
    )
