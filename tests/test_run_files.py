"""Unusual files in a run folder: links, pipes, values of the wrong kind, and files that cannot be opened."""

import errno
import json
import os
import resource
import shutil
import sys
import threading
from pathlib import Path

import numpy as np
import pytest
import torch

from noisewise import fit
from noisewise.audit import audit
from noisewise.data import Dataset, read
from noisewise.dynamics import Dynamics
from noisewise.errors import InputError
from noisewise.report import report
from noisewise.report._report import gather
from noisewise.runs import RunFolder, examples_as_given, read_json, read_tensors
from noisewise.train import Run
from refused import refused
from waiting import LIMIT

SETTINGS = {"epochs": 3, "batch_size": 16, "device": "cpu"}


def pets() -> Dataset:
    labels = torch.arange(48) % 3
    inputs = 3 * torch.eye(3, 4)[labels] + torch.randn(48, 4, generator=torch.Generator().manual_seed(0))
    return Dataset(inputs, labels, ("cat", "dog", "eel"), name="pets", ids=tuple(f"row {row}" for row in range(48)))


@pytest.fixture(scope="module")
def runs(tmp_path_factory) -> Path:
    """A finished run and one that was interrupted in its third epoch."""
    folder = tmp_path_factory.mktemp("runs")
    fit("linear", pets(), folder=folder / "finished", **SETTINGS)

    def stop(done, of):
        if done == 8:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        fit("linear", pets(), folder=folder / "stopped", watch=stop, **SETTINGS)
    return folder


@pytest.fixture
def finished(runs: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(runs / "finished", tmp_path / "run"))


@pytest.fixture
def stopped(runs: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(runs / "stopped", tmp_path / "run"))


def replace_by_link(run: Path, name: str) -> Path:
    """Move a file or folder out of a run, and leave a link to it."""
    outside = run.parent / "outside" / name
    outside.parent.mkdir(parents=True)
    (run / name).rename(outside)
    (run / name).symlink_to(outside)
    return outside


def test_resuming_deletes_nothing_behind_a_link(stopped):
    outside = stopped.parent / "outside"
    outside.mkdir()
    (outside / "thesis-00099.npy").write_bytes(b"mine")
    (outside / "margins-00099.npy").write_bytes(b"mine")
    (stopped / "record/x").symlink_to(outside)
    (stopped / "record/training/margins-00098.npy").symlink_to(outside / "margins-00099.npy")
    assert fit("linear", pets(), folder=stopped, **SETTINGS).state == "finished"
    assert sorted(path.name for path in outside.iterdir()) == ["margins-00099.npy", "thesis-00099.npy"]


@pytest.mark.parametrize("name", ["record/training", "checkpoints", ".lock", "labels"])
def test_training_neither_reads_nor_writes_behind_a_link(stopped, name):
    outside = replace_by_link(stopped, name)
    before = {path: path.read_bytes() for path in [outside, *outside.rglob("*")] if path.is_file()}
    with refused(stopped / name, "link"):
        fit("linear", pets(), folder=stopped, **SETTINGS)
    assert {path: path.read_bytes() for path in [outside, *outside.rglob("*")] if path.is_file()} == before


@pytest.mark.parametrize("name", ["settings.json", "metrics.jsonl", "labels/given.npy", "labels/ids.json", "model.safetensors", "record"])
def test_no_reader_follows_a_link_out_of_a_run(finished, name):
    replace_by_link(finished, name)
    with refused(finished / name, "link"):
        run = Run(finished)
        run.predict(torch.zeros(1, 4))
        _ = run.find_label_issues().ids


def test_a_run_behind_a_link_and_links_inside_a_run_are_followed(finished):
    link = finished.parent / "link"
    link.symlink_to(finished)
    (finished / "record").rename(finished / "kept")
    (finished / "record").symlink_to("kept")
    assert audit(link).ids == audit(finished).ids == list(pets().ids)


READERS = {
    "settings.json": lambda folder: Run(folder),
    "provenance.json": lambda folder: Run(folder).predict(torch.zeros(1, 4)),
    "classes.json": lambda folder: Run(folder).classes,
    "status.json": lambda folder: Run(folder).state,
    "metrics.jsonl": lambda folder: Run(folder).metrics,
    "labels/given.npy": lambda folder: audit(folder),
    "labels/true.npy": lambda folder: Dynamics(folder).summary(),
    "labels/index.npy": lambda folder: audit(folder).index,
    "labels/ids.json": lambda folder: audit(folder).ids,
    "record/training/margins-00002.npy": lambda folder: audit(folder),
    "record/clean/predictions-00003.npy": lambda folder: audit(folder).table(),
    "model.safetensors": lambda folder: Run(folder).predict(torch.zeros(1, 4)),
}


@pytest.mark.parametrize("name", READERS)
def test_a_pipe_is_refused_and_not_waited_for(finished, name):
    (finished / name).unlink(missing_ok=True)
    os.mkfifo(finished / name)
    errors = []

    def read():
        try:
            READERS[name](finished)
        except InputError as error:
            errors.append(str(error))

    reader = threading.Thread(target=read, daemon=True)
    reader.start()
    reader.join(LIMIT)
    assert not reader.is_alive() and str(finished / name) in errors[0]


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("labels/ids.json", "5"),
        ("labels/ids.json", "[null]"),
        ("labels/ids.json", "[" * 100_000),
        ("labels/ids.json", json.dumps([1] * 48)),
        ("labels/index.npy", "not an array"),
        ("settings.json", '{"data": "digits", "model": "linear", "loss": 5}'),
        ("settings.json", '{"data": "digits", "model": "linear", "batch_size": true}'),
        ("status.json", '{"state": "finished", "epoch": -1, "step": 0}'),
        ("status.json", '{"state": "finished", "epoch": 1e999, "step": 0}'),
        ("status.json", '{"state": ["finished"], "epoch": 1, "step": 0}'),
        ("metrics.jsonl", '{"epoch": 1, "step": 3, "test_accuracy": NaN}'),
        ("metrics.jsonl", '{"epoch": 1, "step": 3, "test_accuracy": 10}'),
        ("metrics.jsonl", '{"epoch": true}'),
        ("metrics.jsonl", '{"epoch": -3}'),
        ("classes.json", '["cat", 2, null]'),
        ("classes.json", '["\\ud800", "dog", "eel"]'),
        ("provenance.json", '{"data": {"train": 5}, "normalise": null}'),
        ("provenance.json", '{"sources": [], "normalise": null}'),
        ("provenance.json", '{"normalise": "crop(4)"}'),
    ],
)
def test_a_value_of_the_wrong_kind_names_its_file(finished, name, content):
    (finished / name).write_text(content)
    with refused(name):
        READERS[name](finished)


@pytest.mark.parametrize("dtype", [np.float64, np.uint8, np.complex64])
def test_an_index_of_the_wrong_type_is_refused(finished, dtype):
    np.save(finished / "labels/index.npy", np.arange(48).astype(dtype))
    with refused("labels/index.npy"):
        audit(finished).index  # noqa: B018


def test_a_settings_file_of_a_terabyte_is_not_read(finished):
    with (finished / "settings.json").open("ab") as file:
        file.truncate(2**40)  # takes no room on the disk
    with refused("settings.json", "1,099,511,627,776"):
        Run(finished)


@pytest.mark.parametrize("read", [lambda folder: audit(folder), lambda folder: read_tensors(folder, "model.safetensors")])
def test_with_too_many_open_files_the_error_gives_this_reason(finished, read):
    audit(finished)  # imports what it needs
    limit, files = resource.getrlimit(resource.RLIMIT_NOFILE), []
    resource.setrlimit(resource.RLIMIT_NOFILE, (256, limit[1]))
    try:
        with pytest.raises(OSError) as caught:
            while True:
                files.append((finished / "status.json").open())
        assert caught.value.errno == errno.EMFILE
        with refused(os.strerror(errno.EMFILE)):
            read(finished)
    finally:
        for file in files:
            file.close()
        resource.setrlimit(resource.RLIMIT_NOFILE, limit)
    read(finished)


def test_without_permission_the_error_gives_this_reason(finished, monkeypatch):
    def denied(self, *arguments, **options):
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(self))

    monkeypatch.setattr(Path, "read_text", denied)  # the tests may run as root, who may read everything
    with refused("settings.json", os.strerror(errno.EACCES)):
        read_json(finished, "settings.json")


def test_a_checkpoint_that_cannot_be_opened_is_not_skipped(stopped, monkeypatch):
    def denied(self, *arguments, **options):
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(self))

    monkeypatch.setattr(Path, "open", denied)
    with refused("epoch-00002.safetensors", os.strerror(errno.EACCES)):
        next(RunFolder(stopped).checkpoints())


@pytest.mark.skipif(not Path("/proc/self/fd").exists(), reason="needs to count open files")
def test_runs_keep_no_files_open(finished):
    def number() -> int:
        return len(os.listdir("/proc/self/fd"))  # noqa: PTH208

    read = [Dynamics(finished) for _ in range(3)]
    before = number()
    audits = [audit(run) for run in read]
    assert all(run.record.given is not None and run.summary() for run in read) and len(audits) == 3
    assert number() == before


def table(path: Path, secret: str = "1") -> Path:
    rows = [f"{row % 7},{secret}{row},{('cat', 'dog')[row % 2]}" for row in range(40)]
    path.write_text("\n".join(["age,code,kind", *rows]) + "\n")
    return path


@pytest.fixture
def on_a_table(tmp_path: Path) -> Path:
    fit("linear", read(table(tmp_path / "pets.csv"), label="kind"), folder=tmp_path / "run", epochs=2, device="cpu")
    return tmp_path / "run"


def test_a_run_that_names_another_file_does_not_show_its_rows(on_a_table, tmp_path):
    shown = gather([on_a_table], title="t")["tasks"][0]["doubt"]
    assert shown["note"] is None and ["code", "10"] in [pair for example in shown["examples"] for pair in example["fields"]]
    other = table(tmp_path / "salaries.csv", secret="9")  # the same labels
    provenance = json.loads((on_a_table / "provenance.json").read_text())
    provenance["sources"]["train"]["source"] = str(other)
    (on_a_table / "provenance.json").write_text(json.dumps(provenance))
    doubt = gather([on_a_table], title="t")["tasks"][0]["doubt"]
    assert doubt["note"] is not None and not any(example["fields"] for example in doubt["examples"])
    with refused("inputs", "salaries"):
        examples_as_given(Dynamics(on_a_table).record)
    for digests in ({}, {"sizes": "0"}):  # as of a run that recorded no inputs, and of one on images
        del provenance["data"]["train"]["inputs"]
        provenance["data"]["train"] |= digests
        (on_a_table / "provenance.json").write_text(json.dumps(provenance))
        assert gather([on_a_table], title="t")["tasks"][0]["doubt"]["note"] is not None
        provenance["data"]["train"]["inputs"] = "0"


def test_the_data_given_by_the_user_must_have_the_inputs_of_the_run(on_a_table, tmp_path):
    record = Dynamics(on_a_table).record
    shutil.move(tmp_path / "pets.csv", tmp_path / "moved.csv")
    assert len(examples_as_given(record, tmp_path / "moved.csv")) == 40
    with refused("inputs", "salaries"):
        examples_as_given(record, table(tmp_path / "salaries.csv", secret="9"))


DAMAGES = [
    ("settings.json", None),
    ("settings.json", '{"data": "digits", "model": 5, "loss": "ce"}'),
    ("settings.json", "[" * 100_000),
    ("classes.json", '["\\ud800"]'),
    ("classes.json", "5"),
    ("provenance.json", '{"data": [1]}'),
    ("status.json", '{"state": {}, "kept": []}'),
    ("metrics.jsonl", '{"epoch": 1, "step": [], "test_accuracy": 1e400}'),
    ("correction.json", '{"steps": 5}'),
    ("correction.json", None),
]


def damage(path: Path, content: str | None) -> None:
    """Write something else into a file, or put a pipe in its place."""
    if content is None:
        path.unlink(missing_ok=True)
        os.mkfifo(path)
    else:
        path.write_text(content)


@pytest.mark.parametrize(("name", "content"), DAMAGES)
def test_a_damaged_run_does_not_affect_other_runs_of_a_report(runs, finished, name, content):
    damage(finished / name, content)
    facts = gather([runs / "finished", finished], title="t")
    notes = {run["folder"]: run["notes"] for run in facts["runs"]} | {run["folder"]: [run["reason"]] for run in facts["broken"]}
    assert any(name in note for note in notes[str(finished)]) and not any(name in note for note in notes[str(runs / "finished")])
    assert facts["tasks"][0]["dynamics"] is not None


def test_a_report_with_a_damaged_run_shows_the_others_and_names_it(runs, tmp_path):
    for number in range(3):
        shutil.copytree(runs / "finished", tmp_path / f"runs/run{number}")
    damage(tmp_path / "runs/run1/settings.json", "[" * 100_000)
    page = report(tmp_path / "runs", tmp_path / "report.html").read_text(encoding="utf-8")
    assert all(str(tmp_path / f"runs/run{number}") in page for number in range(3))
    assert "1 folder" in page and "settings.json" in page


MANY_CLASSES = """
import resource, torch
from noisewise import Recorder
from noisewise.report import report
record = Recorder("run", torch.arange(20), loss="ce", classes=list(map(str, range(100_000))))
scores = torch.zeros(20, 100_000)
scores[:, 5] = 1.0
for _ in range(3):
    record.log(torch.arange(20), scores)
    record.end_epoch()
record.finish()
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
report("run", "report.html")
print((resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) * 1024)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="counts memory as Linux does")
def test_a_report_on_many_classes_takes_little_memory(tmp_path, python):
    (tmp_path / "program.py").write_text(MANY_CLASSES)
    status, output = python.run(tmp_path / "program.py")
    assert status == 0, output
    assert int(output) < 300 * 2**20
