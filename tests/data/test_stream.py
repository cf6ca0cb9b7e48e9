"""Streams give the same batches as images in memory, and their workers end when something goes wrong."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from noisewise.data import Dataset, ImageFiles, Stream, batches, order, split
from refused import refused
from waiting import LIMIT, wait_until

SIZE = (10, 8)
NUMBER = 37


@pytest.fixture
def files(tmp_path: Path) -> ImageFiles:
    rng = np.random.default_rng(0)
    paths = [tmp_path / f"{position} é\n.{'jpg' if position % 3 else 'png'}" for position in range(NUMBER)]
    for position, path in enumerate(paths):
        shape = (12 + position % 4, 9) if position % 5 else (12, 9, 3)  # some are grey, and the sizes differ
        Image.fromarray(rng.integers(0, 256, shape, dtype=np.uint8)).save(path)
    return ImageFiles(
        tuple(map(str, paths)), torch.arange(NUMBER) % 3, ("a", "b", "c"), true_labels=torch.zeros(NUMBER).long(), name="pets"
    )


@pytest.mark.parametrize("workers", [0, 1, 3])
def test_a_stream_gives_the_same_batches_as_images_in_memory(files: ImageFiles, workers: int) -> None:
    in_memory, stream = files.load(SIZE), Stream.of(files, SIZE, workers=workers)
    for options in ({"shuffle": True, "seed": 5, "epoch": 2}, {"shuffle": False}, {"shuffle": True, "drop_last": True}):
        expected = list(batches(in_memory, 8, **options))  # type: ignore[arg-type]
        streamed = list(batches(stream, 8, **options))  # type: ignore[arg-type]
        assert len(expected) == len(streamed)
        for ours, theirs in zip(streamed, expected, strict=True):
            assert all(torch.equal(*pair) for pair in zip(ours, theirs, strict=True))
            assert ours.inputs.dtype == torch.uint8 and ours.inputs.is_contiguous()


def test_batches_contain_every_example_once_with_its_index() -> None:
    data = Dataset(torch.arange(NUMBER).float().view(-1, 1), torch.arange(NUMBER) % 3, ("a", "b", "c"))
    seen = list(batches(data, 8, shuffle=True, seed=1))
    assert [len(batch.index) for batch in seen] == [8, 8, 8, 8, 5]
    assert torch.equal(torch.cat([batch.index for batch in seen]).sort().values, torch.arange(NUMBER))
    for inputs, labels, index in seen:
        assert torch.equal(inputs, data.inputs[index]) and torch.equal(labels, data.labels[index])
    assert [len(batch.index) for batch in batches(data, 8, shuffle=True, drop_last=True)] == [8] * 4


def test_another_seed_or_epoch_gives_another_order() -> None:
    data = Dataset(torch.zeros(100, 1), torch.arange(100) % 2, ("a", "b"))

    def drawn(seed: int, epoch: int) -> tuple[int, ...]:
        return tuple(next(batches(data, 100, shuffle=True, seed=seed, epoch=epoch)).index.tolist())

    assert drawn(0, 1) == drawn(0, 1)
    assert len({drawn(seed, epoch) for seed in range(5) for epoch in range(5)}) == 25


@pytest.mark.parametrize("group", [1, 3, 8])
def test_batches_in_groups_have_few_classes_and_contain_every_example_once(group: int) -> None:
    labels = torch.from_numpy(np.random.default_rng(0).integers(0, 5, 500))
    data = Dataset(torch.zeros(500, 1), labels, tuple("abcde"))
    whole = sum(int((labels == label).sum()) // group for label in range(5))
    seen = {seed: torch.cat([batch.index for batch in batches(data, 24, shuffle=True, seed=seed, group=group)]) for seed in range(3)}
    for index in seen.values():
        assert torch.equal(index.sort().values, torch.arange(500))
        groups = labels[index][: whole * group].view(-1, group)
        assert (groups == groups[:, :1]).all()
        assert len(index) - whole * group < 5 * group
    orders = {tuple(index.tolist()) for index in seen.values()}
    assert len(orders) == 3
    first = seen[0][: whole * group].view(-1, group)
    changes = int((labels[first[1:, 0]] != labels[first[:-1, 0]]).sum())
    assert 0.7 * len(first) < changes < 0.9 * len(first)  # of five classes in a random order four in five neighbours differ


def test_the_leftovers_of_the_classes_end_an_epoch_in_random_order() -> None:
    labels = torch.arange(70) % 10  # seven of each: a group of four, and three left over
    left = torch.stack([labels[order(labels, seed=0, epoch=epoch, group=4)][40:].view(10, 3) for epoch in range(300)])
    assert (left == left[:, :, :1]).all()
    last = torch.bincount(left[:, -1, 0], minlength=10)
    assert last.min() > 10 and last.max() < 55  # 30 on average, with a deviation of 5.2


def test_a_group_is_drawn_from_all_of_its_class() -> None:
    data = Dataset(torch.zeros(400, 1), torch.arange(400) % 2, ("a", "b"))
    first = [next(batches(data, 8, shuffle=True, epoch=epoch, group=8)).index for epoch in range(200)]
    counted = torch.bincount(torch.cat(first) // 4, minlength=100)
    assert counted.min() > 0 and counted.max() < 40  # 16 on average


def test_a_stream_is_a_data_set(files: ImageFiles) -> None:
    stream = Stream.of(files, SIZE, workers=2)
    assert repr(stream) == "Stream(pets: 37 × (3, 10, 8) torch.uint8, 3 classes, 64.86 % wrong)"
    assert stream.wrong is not None and int(stream.wrong.sum()) == 24
    noisy = replace(stream, labels=(stream.labels + 1) % 3)
    first, rest = split(noisy, 0.5, seed=0)
    assert isinstance(first, Stream) and len(first) + len(rest) == NUMBER
    assert stream.read_from({"source": "pets"}).to("cpu").source == {"source": "pets"} and first.source is None
    few = first.to("cpu").take(torch.arange(5))
    assert isinstance(few, Stream)
    (batch,) = batches(few, 5, shuffle=False)
    assert first.index is not None and torch.equal(batch.inputs, files.load(SIZE).inputs[first.index[:5]])
    assert torch.equal(batch.labels, noisy.labels[first.index[:5]])


class RecordingPaths(tuple):
    """Paths that record which positions were read."""

    def __init__(self, paths: tuple[str, ...]) -> None:
        self.positions: list[int] = []

    def __getitem__(self, position: int) -> str:  # type: ignore[override]
        self.positions.append(position)
        return tuple.__getitem__(self, position)


@pytest.mark.parametrize(("workers", "prefetch"), [(1, 0), (2, 1), (2, 3)])
def test_workers_and_prefetch_limit_how_far_ahead_images_are_decoded(files: ImageFiles, workers: int, prefetch: int) -> None:
    stream = Stream.of(files, SIZE, workers=workers, prefetch=prefetch)
    paths = RecordingPaths(stream.paths)
    going = batches(replace(stream, paths=paths), 2, shuffle=False)
    next(going)
    allowed = 2 * (1 + workers + prefetch)
    wait_until(lambda: len(paths.positions) >= allowed)
    time.sleep(0.2)  # a stream without a limit would decode more in this time
    assert sorted(paths.positions) == list(range(allowed))


@pytest.mark.parametrize("workers", [0, 1, 2])
def test_an_unreadable_file_is_named(files: ImageFiles, workers: int) -> None:
    Path(files.paths[20]).write_bytes(b"not an image")
    going = batches(Stream.of(files, SIZE, workers=workers), 4, shuffle=False)
    sound = [next(going) for _ in range(5)]
    assert torch.cat([batch.index for batch in sound]).tolist() == list(range(20))
    with refused("/20 é"):
        next(going)


def test_a_missing_file_is_named(files: ImageFiles) -> None:
    Path(files.paths[3]).unlink()
    with refused("/3 é"):
        list(batches(Stream.of(files, SIZE, workers=1), 4, shuffle=False))


def status(process: int | str) -> list[str]:
    """State and parent of a process; an empty list if it does not exist."""
    try:
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[:2]
    except OSError:
        return []


def children(process: int) -> set[int]:
    return {int(entry.name) for entry in Path("/proc").iterdir() if entry.name.isdecimal() and status(entry.name)[1:] == [str(process)]}


def is_running(process: int) -> bool:
    return status(process)[:1] not in ([], ["Z"])


linux = pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")


@linux
def test_a_worker_that_dies_names_the_file_it_was_reading(files: ImageFiles) -> None:
    """The file is a pipe that stays empty, so that the worker is still reading it when it is killed."""
    path = Path(files.paths[5])
    path.unlink()
    os.mkfifo(path)
    before = children(os.getpid())
    going = batches(Stream.of(files, SIZE, workers=1), 4, shuffle=False)
    first = threading.Thread(target=next, args=(going,))
    first.start()
    with path.open("wb"):  # waits until the worker opens the other end
        (worker,) = children(os.getpid()) - before
        os.kill(worker, signal.SIGKILL)
        first.join()
        with refused("/5 é", "-9"):
            next(going)
    wait_until(lambda: not is_running(worker))


@linux
def test_leaving_the_loop_ends_the_workers(files: ImageFiles) -> None:
    before = children(os.getpid())
    going = batches(Stream.of(files, SIZE, workers=2), 4, shuffle=False)
    next(going)
    workers = children(os.getpid()) - before
    assert len(workers) == 2
    going.close()  # type: ignore[attr-defined]
    wait_until(lambda: not any(map(is_running, workers)))


SCRIPT = """
import signal, sys, torch
from noisewise.data import ImageFiles, Stream, batches
paths = tuple(sys.argv[1:])
stream = Stream.of(ImageFiles(paths, torch.arange(len(paths)) % 2, ("a", "b")), (10, 8), workers=2)
for batch in batches(stream, 2, shuffle=True):
    print(len(batch.index), flush=True)
    signal.pause()
"""


@linux
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL], ids=lambda number: number.name)
def test_no_worker_outlives_the_process_that_reads(files: ImageFiles, number: signal.Signals) -> None:
    """The script needs no `if __name__ == "__main__"`."""
    script = [sys.executable, "-c", SCRIPT, *files.paths]
    with subprocess.Popen(script, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True) as process:
        assert process.stdout is not None and process.stdout.readline() == "2\n"
        workers = children(process.pid)
        assert len(workers) == 2
        os.killpg(process.pid, number)
        assert process.wait(timeout=LIMIT) != 0
    wait_until(lambda: not any(map(is_running, workers)))


@pytest.mark.parametrize(
    ("options", "mentions"),
    [
        ({"batch_size": 0}, ("batch_size", "0")),
        ({"batch_size": 4, "seed": -1}, ("seed", "-1")),
        ({"batch_size": 4, "epoch": 0.5}, ("epoch", "0.5")),
        ({"batch_size": 40, "drop_last": True}, ("batch_size", "37", "40")),
    ],
)
def test_a_bad_argument_is_refused_before_anything_starts(files: ImageFiles, options: dict[str, int], mentions: tuple[str, ...]) -> None:
    with refused(*mentions):
        batches(Stream.of(files, SIZE), shuffle=True, **options)  # type: ignore[arg-type]


@pytest.mark.parametrize("option", ["workers", "prefetch"])
def test_a_negative_number_of_workers_or_batches_is_refused(files: ImageFiles, option: str) -> None:
    with refused(option, "Stream", -1):
        Stream.of(files, SIZE, **{option: -1})  # type: ignore[arg-type]
