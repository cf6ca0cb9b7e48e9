"""Batches of a data set, from memory or from disk.

A `Stream` keeps its images on disk; worker processes decode them a few batches ahead. The same seed and epoch give the same batches
from memory and from disk, with any number of workers.
"""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
from collections import deque
from collections.abc import Generator, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack, closing
from dataclasses import dataclass, replace
from pathlib import Path
from queue import SimpleQueue

import numpy as np
import torch
from torch import Tensor

from noisewise.data import _decoder
from noisewise.data._dataset import Dataset, as_positions, digest_of
from noisewise.data._files import ImageFiles, decode
from noisewise.errors import InputError, invalid_parameter
from noisewise.spec import as_int


def number_of_batches(examples: int, size: int) -> int:
    """The number of batches of an epoch. A single last example joins the batch before it, because batch norm needs two.

    Example:
        >>> [number_of_batches(examples, 64) for examples in (1, 64, 65, 66, 128, 129)]
        [1, 1, 1, 2, 2, 2]
    """
    return max(1, examples // size + (examples % size > 1))


def cut(positions: Tensor, size: int) -> list[Tensor]:
    """Split the positions of an epoch into batches, see `number_of_batches`.

    Example:
        >>> import torch
        >>> [batch.tolist() for batch in cut(torch.arange(7), 3)]
        [[0, 1, 2], [3, 4, 5, 6]]
    """
    starts = range(size, size * number_of_batches(len(positions), size), size)
    return list(positions.tensor_split(tuple(starts)))


def smallest_part(size: int, parts: int) -> int:
    """The smallest allowed part when a batch of ``size`` is divided: two examples if possible, because one has no variance.

    Example:
        >>> [smallest_part(size, 2) for size in (1, 3, 4, 128)]
        [1, 1, 2, 2]
    """
    return 2 if size >= 2 * parts else 1


@dataclass(frozen=True)
class Batch:
    """A few examples of a data set; it unpacks as ``inputs, labels, index``.

    Args:
        inputs: images or features, (batch, …).
        labels: their given labels, (batch,).
        index: their positions in the data set, (batch,): ``data.labels[batch.index]`` equals `labels`.
    """

    inputs: Tensor
    labels: Tensor
    index: Tensor

    def __iter__(self) -> Iterator[Tensor]:
        return iter((self.inputs, self.labels, self.index))


@dataclass(frozen=True, repr=False)
class Stream(Dataset):
    """A data set whose images stay on disk. Make one with `Stream.of`.

    It is a `Dataset` whose `inputs` are on the device "meta", with a shape and a type but no pixels. `batches` decodes the images and
    puts them on the device of the labels.

    Args:
        paths: the file of every example.
        workers: how many processes decode files; 0 decodes in the current process.
        prefetch: how many decoded batches may wait, besides one for every worker.
    """

    paths: tuple[str, ...] = ()
    workers: int = 0
    prefetch: int = 2

    def __post_init__(self) -> None:
        super().__post_init__()
        for name, value in {"workers": self.workers, "prefetch": self.prefetch}.items():
            as_int(name, "Stream", value, 0)

    @classmethod
    def of(cls, files: ImageFiles, size: tuple[int, int], *, workers: int | None = None, prefetch: int = 2) -> Stream:
        """Stream image files.

        Args:
            files: the files and their labels.
            size: the (height, width) every image is resized to.
            workers: how many processes decode files; by default one per processor, at most 16.
            prefetch: how many decoded batches may wait.
        """
        return cls(
            inputs=torch.empty((len(files), 3, *size), dtype=torch.uint8, device="meta"),
            labels=files.labels,
            classes=files.classes,
            true_labels=files.true_labels,
            ids=files.ids or files.paths,
            name=files.name,
            groups=files.groups,
            paths=files.paths,
            workers=min(os.cpu_count() or 1, 16) if workers is None else workers,
            prefetch=prefetch,
        )

    def __repr__(self) -> str:
        return super().__repr__().replace("Dataset", "Stream", 1)

    @property
    def size(self) -> tuple[int, int]:
        """The (height, width) of every image."""
        return self.inputs.shape[2], self.inputs.shape[3]

    def take(self, which: Tensor | Sequence[int]) -> Stream:
        positions = as_positions(which, len(self))
        taken = super().take(positions)
        assert isinstance(taken, Stream)
        return replace(taken, paths=tuple(self.paths[position] for position in positions.tolist()))

    def input_digests(self, rows: Tensor | None = None) -> dict[str, str]:
        """Digests of the paths and of the sizes of the files."""
        paths = self.paths if rows is None else [self.paths[row] for row in rows.tolist()]
        return {"inputs": digest_of(map(os.path.abspath, paths)), "sizes": digest_of(map(_file_size, paths))}

    def to(self, device: torch.device | str) -> Stream:
        empty = replace(self, inputs=torch.empty(len(self), 0))  # a meta tensor cannot be copied to a device
        moved = replace(Dataset.to(empty, device), inputs=self.inputs).read_from(self.source)
        assert isinstance(moved, Stream)
        return moved

    def images(self, batches: Sequence[Tensor]) -> Generator[Tensor, None, None]:
        """The images of every batch of positions, decoded a few batches ahead.

        Raises:
            InputError: a file cannot be read, or crashed the worker that read it; the message names the file.
        """
        if not self.workers:
            for batch in batches:
                images = [decode(self.paths[position], self.size) for position in batch.tolist()]
                yield torch.stack(images).to(self.labels.device)
            return
        with ExitStack() as stack:
            workers = [stack.enter_context(closing(_Worker(self.size))) for _ in range(min(self.workers, len(batches)))]
            threads = stack.enter_context(ThreadPoolExecutor(max(1, len(workers))))
            for worker in workers:
                stack.callback(worker.process.kill)  # on leaving, before the threads are joined, so that none waits for a worker
            stack.callback(threads.shutdown, wait=False, cancel_futures=True)
            idle: SimpleQueue[_Worker] = SimpleQueue()
            for worker in workers:
                idle.put(worker)
            ahead: deque[Future[Tensor]] = deque()
            for batch in batches:
                ahead.append(threads.submit(self._decode, batch, idle))
                if len(ahead) > self.prefetch + len(workers):
                    yield self._to_device(ahead.popleft())
            while ahead:
                yield self._to_device(ahead.popleft())

    def _decode(self, batch: Tensor, idle: SimpleQueue[_Worker]) -> Tensor:
        images = torch.empty((len(batch), *self.size, 3), dtype=torch.uint8, pin_memory=self.labels.is_cuda)
        worker = idle.get()
        try:
            for position, pixels in zip(batch.tolist(), images.numpy(), strict=True):
                worker.decode(self.paths[position], pixels)
        finally:
            idle.put(worker)  # even if it died: another batch may wait for it
        return images

    def _to_device(self, images: Future[Tensor]) -> Tensor:
        return images.result().to(self.labels.device, non_blocking=True).permute(0, 3, 1, 2).contiguous()


class _Worker:
    """A process that decodes image files, see `_decoder`."""

    def __init__(self, size: tuple[int, int]) -> None:
        self._size = size
        command = [sys.executable, "-P", "-W", "ignore", str(Path(_decoder.__file__)), *map(str, size)]
        self.process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
            start_new_session=True,  # Ctrl-C goes to the training process only; this one ends with it
        )

    def decode(self, path: str, pixels: np.ndarray) -> None:
        """Write the pixels of a file to an array shaped (height, width, 3)."""
        requests, replies = self.process.stdin, self.process.stdout
        assert isinstance(requests, io.BufferedWriter) and isinstance(replies, io.BufferedReader)
        try:
            requests.write(json.dumps(path).encode() + b"\n")
            requests.flush()
            status = replies.read(1)
        except BrokenPipeError:
            status = b""
        if status == b"\0":
            pixels[:] = decode(path, self._size).permute(1, 2, 0).numpy()  # raises the error that says why
        elif not status or replies.readinto(pixels.data) < pixels.nbytes:
            raise InputError(
                f"The process that decoded the image {path!r} ended with status {self.process.wait()}. "
                "Replace or delete the file; if the file is fine, memory may have run out: use fewer workers."
            )

    def close(self) -> None:
        self.process.kill()
        self.process.communicate()


def batches(
    data: Dataset, batch_size: int, *, shuffle: bool, seed: int = 0, epoch: int = 0, drop_last: bool = False, group: int = 1
) -> Iterator[Batch]:
    """Iterate over a data set once.

    Args:
        data: a data set in memory, or a stream.
        batch_size: the number of examples in a batch; the last one may have fewer.
        shuffle: whether to shuffle the examples.
        seed: the seed of the random order, together with the epoch; the order is the same on every device.
        epoch: the number of the epoch.
        drop_last: whether to drop a last batch that is not full.
        group: how many examples in a row share a label in the random order: a batch of 128 in groups of 16 has at most eight classes.

    Returns:
        An iterator of batches on the device of the data set. Closing it, or leaving the loop, ends the workers of a stream.

    Example:
        >>> data = Dataset(torch.arange(10.0).view(5, 2), torch.tensor([0, 1, 0, 1, 0]), ("a", "b"))
        >>> [batch.index.tolist() for batch in batches(data, 2, shuffle=False)]
        [[0, 1], [2, 3], [4]]
    """
    for name, value, lowest in (("batch_size", batch_size, 1), ("seed", seed, 0), ("epoch", epoch, 0), ("group", group, 1)):
        as_int(name, "batches", value, lowest)
    if drop_last and batch_size > len(data):
        raise invalid_parameter("batch_size", "batches", f"at most the number of examples, {len(data)}, with drop_last", batch_size)
    positions = order(data.labels, seed, epoch, group) if shuffle else torch.arange(len(data))
    kept = len(data) - len(data) % batch_size if drop_last else len(data)
    return _batches(data, positions[:kept], int(batch_size))


def order(labels: Tensor, seed: int, epoch: int, group: int = 1) -> Tensor:
    """The random order of one epoch. It is drawn on the CPU, so that it is the same on every device.

    Args:
        labels: the labels of all examples.
        seed: the seed, together with the epoch.
        epoch: the number of the epoch.
        group: how many examples in a row share a label. The rest of each class comes last, in a random order of the classes.

    Example:
        >>> labels = torch.tensor([0, 1, 0, 1, 0, 1, 0, 1, 1])
        >>> labels[order(labels, seed=0, epoch=1, group=2)].tolist()
        [1, 1, 0, 0, 1, 1, 0, 0, 1]
    """
    shuffled = torch.randperm(len(labels), generator=_generator(seed, epoch))
    if group == 1:
        return shuffled
    labels = labels.cpu()
    by_class = shuffled[labels[shuffled].argsort(stable=True)]
    sizes = torch.bincount(labels)
    rank = torch.arange(len(labels)) - torch.repeat_interleave(sizes.cumsum(0) - sizes, sizes)  # of an example within its class
    full = rank < torch.repeat_interleave(sizes - sizes % group, sizes)
    groups, rest = by_class[full].view(-1, group), by_class[~full]
    generator = _generator(seed, epoch, group)
    mixed = torch.randperm(len(groups), generator=generator)
    turn = torch.randperm(len(sizes), generator=generator)
    return torch.cat([groups[mixed].flatten(), rest[turn[labels[rest]].argsort(stable=True)]])


def _generator(*numbers: int) -> torch.Generator:
    (mixed,) = np.random.SeedSequence(numbers).generate_state(1, np.uint64)
    return torch.Generator().manual_seed(int(mixed) >> 1)


def _batches(data: Dataset, positions: Tensor, batch_size: int) -> Iterator[Batch]:
    chosen = torch.split(positions.to(data.labels.device), batch_size)
    if not isinstance(data, Stream):
        for index in chosen:
            yield Batch(data.inputs[index], data.labels[index], index)
        return
    with closing(data.images(torch.split(positions, batch_size))) as images:
        for index, inputs in zip(chosen, images, strict=True):
            yield Batch(inputs, data.labels[index], index)


def _file_size(path: str) -> str:
    try:
        return str(Path(path).stat().st_size)
    except OSError:
        return "missing"  # reading it raises the error
