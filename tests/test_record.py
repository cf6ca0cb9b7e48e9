"""The record of a run: its epochs, damaged files, and the memory it takes to read it."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from costs import with_peak
from noisewise.dynamics import Dynamics, Record
from refused import refused
from run_folders import TINY, write_run


def test_the_record_returns_epochs_as_they_were_written(tmp_path):
    record = Record(write_run(tmp_path / "run", **TINY))
    assert record.epochs() == (1, 2, 3)
    assert record.predictions(1).tolist() == [0, 0, -1, 1]
    np.testing.assert_array_equal(record.margins(3), np.array([3.0, -1.5, 0.5, 0.25], dtype=np.float16))
    assert [number for number, _, _ in record.stream()] == [1, 2, 3]
    with refused("training", tmp_path / "run", "1 to 3", 4):
        record.margins(4)
    with refused("clean", tmp_path / "run", "epoch"):
        record.predictions(1, of="clean")
    with refused("'training', 'clean'", "'test'"):
        record.epochs("test")
    with refused("'training', 'clean'", "'./training'"):
        record.margins(1, of="./training")
    with refused("1 to 3", "'1'"):
        record.predictions("1")


def test_an_existing_epoch_is_read_without_listing_the_record(tmp_path, monkeypatch):
    record = Record(write_run(tmp_path / "run", **TINY))
    monkeypatch.setattr(Record, "epochs", lambda *_: pytest.fail("the folder was listed"))
    assert [record.margins(epoch).shape == record.predictions(epoch).shape == (4,) for epoch in (1, 2, 3)] == [True] * 3


def test_a_folder_without_a_run_is_refused(tmp_path):
    for kind in (Record, Dynamics):
        with refused(tmp_path / "nowhere"):
            kind(tmp_path / "nowhere")


def test_a_run_of_a_newer_format_is_refused(tmp_path):
    with refused("format 2", "format 1"):
        Record(write_run(tmp_path / "newer", [0, 1], format=2))


def corrupt(folder: Path, name: str, content: bytes | np.ndarray | None) -> None:
    path = folder / name
    if content is None:
        path.unlink()
    elif isinstance(content, bytes):
        path.write_bytes(content)
    else:
        np.save(path, content)


@pytest.mark.parametrize(
    ("name", "content", "mentions"),
    [
        ("record/training/margins-00002.npy", None, ()),
        ("record/training/predictions-00001.npy", None, ()),
        ("record/training/margins-00002.npy", b"", ()),
        ("record/training/margins-00002.npy", b"PK\x03\x04 something else", ()),
        ("record/training/margins-00002.npy", np.zeros(3, dtype=np.float16), ("float16", "(4,)", "(3,)")),
        ("record/training/margins-00002.npy", np.zeros(4, dtype=np.float64), ("float16", "(4,)", "float64")),
        ("record/training/predictions-00002.npy", np.zeros(4), ("integers", "(4,)", "float64")),
        ("labels/given.npy", None, ()),
        ("labels/given.npy", np.array([0, 1, 3, 0]), ("0 to 2", "0 to 3")),
        ("labels/given.npy", np.zeros((0,), dtype=np.int64), ("(0,)",)),
        ("labels/true.npy", np.zeros(5, dtype=np.int64), ("int64", "(4,)", "(5,)")),
        ("metrics.jsonl", b'{"epoch": 1}\n{"epo', ("Line 2",)),
        ("metrics.jsonl", b'{"step": 1}\n', ("Line 1",)),
        ("status.json", None, ()),
        ("classes.json", b"{}", ("dict",)),
        ("provenance.json", b"{", ("JSON",)),
    ],
)
def test_a_damaged_file_is_named(tmp_path, name, content, mentions):
    folder = write_run(tmp_path / "run", **TINY)
    corrupt(folder, name, content)
    with refused(name, *mentions):
        Dynamics(folder).summary()


def test_a_truncated_array_is_named(tmp_path):
    folder = write_run(tmp_path / "run", **TINY)
    path = folder / "record/training/predictions-00002.npy"
    path.write_bytes(path.read_bytes()[:-5])
    with refused(path):
        Dynamics(folder).summary()


def test_a_long_record_is_read_in_the_memory_of_a_few_epochs(tmp_path):
    number, epochs = 200_000, 50
    rng = np.random.default_rng(0)
    labels = rng.integers(3, size=number)
    margins, predictions = rng.normal(size=number).astype(np.float16), rng.integers(3, size=number).astype(np.int32)
    folder = write_run(tmp_path / "run", labels, np.roll(labels, 1), epochs=epochs)
    training = folder / "record/training"
    training.mkdir(parents=True)
    for epoch in range(1, epochs + 1):
        np.save(training / f"margins-{epoch:05d}.npy", np.roll(margins, epoch))
        np.save(training / f"predictions-{epoch:05d}.npy", np.roll(predictions, epoch))
    whole = epochs * (margins.nbytes + predictions.nbytes)
    run = Dynamics(folder)
    _, peak = with_peak(lambda: (run.summary(), run.margin_histograms(50)))
    assert peak < 0.45 * whole
    assert peak < 130 * number  # the labels and a dozen float64 columns, whatever the number of epochs
