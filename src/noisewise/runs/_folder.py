"""The run folder: settings, provenance, metrics, the record of margins and the model. Any tool can read it.

    settings.json  provenance.json  classes.json  status.json
    encoding.json  encoding.safetensors             only for tables: what was done to each column; the arrays of columns of text
    labels/given.npy  labels/true.npy               the labels trained on; the true labels, if known
    metrics.jsonl                                   one line per finished epoch
    record/training/margins-00001.npy  predictions-00001.npy     of every example, from the training steps of epoch 1
    record/clean/…                                  the same from a pass in eval mode, at evaluations
    checkpoints/epoch-00010.safetensors  model.safetensors
    correction.json  labels/corrected.csv  labels/first.npy      only for runs on corrected labels: the run before, the changes,
                                                    and the labels before any correction
    decisions.jsonl                                 what a person decided on doubtful labels, one line each; added to, never rewritten
    .lock                                           empty; the process that trains or reviews locks it

Every other file appears under its name only when it is complete. There is no pickle anywhere.
"""

from __future__ import annotations

import hashlib
import io
import itertools
import json
import os
import re
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import IO, Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from noisewise.data import Dataset, Encoding
from noisewise.errors import InputError, NoisewiseError, cannot_write, reason
from noisewise.output import PART, sync_folders, written_whole
from noisewise.runs._files import CannotOpenError, exists, inside, list_numbered, open_array, read_tensors
from noisewise.runs._format import EVALUATED, FORMAT, KINDS, RECORDS, check_checkpoint, read_metrics, read_provenance, read_status
from noisewise.signals import Stopped
from noisewise.spec import in_short

KEPT_CHECKPOINTS = 2
_LONGEST_NAME = 100  # two specs and a seed make a name that is valid on every file system
_METRICS = "metrics.jsonl"
ENCODING, ENCODING_ARRAYS = "encoding.json", "encoding.safetensors"
_FIRST = "provenance.json"
_START = (
    _FIRST,
    "classes.json",
    ENCODING,
    ENCODING_ARRAYS,
    "labels/given.npy",
    "labels/index.npy",
    "labels/true.npy",
    "labels/ids.json",
    "status.json",
)
"""The files that are written before the settings, in this order."""
_LAST = ("status.json", "settings.json", "model.safetensors")
"""Files that are written after others they depend on: the names of those must be on the disk too."""


def folder_name(spec: str) -> str:
    """A spec as a part of a folder's name: letters, digits, points, and the signs of negative numbers.

    A long spec is cut, and a spec that is cut or has parentheses around a sum ends in a digest of the whole spec.

    Example:
        >>> folder_name("0.3*nce + 0.7*mae"), folder_name("2*(nce + mae)")
        ('0.3_nce_0.7_mae', '2_nce_mae_6caf5796')
    """
    words = re.sub(r"(?:(?!(?<![A-Za-z0-9.])-[0-9.])[^A-Za-z0-9.])+", "_", in_short(spec)).strip("_")
    if len(words) <= _LONGEST_NAME and not re.search(r"(?<!\w)\(\s*[a-z]", spec):
        return words
    return f"{words[: _LONGEST_NAME - 9]}_{hashlib.sha256(spec.encode()).hexdigest()[:8]}"


def end_state(error: BaseException) -> tuple[str, str]:
    """The state of a run that an error ended, and the reason."""
    if not isinstance(error, Exception):
        return "interrupted", f"stopped by {error}" if isinstance(error, Stopped) else "stopped by the user"
    return "failed", str(error) if isinstance(error, NoisewiseError) else f"{type(error).__name__}: {error}"


def mark_ended(folder: RunFolder, state: str, reason: str) -> None:
    """Write how a run ended whose process could not do so. A run that another call trains is left unchanged."""
    if folder.exists():
        with suppress(NoisewiseError), folder.lock():
            if folder.status()["state"] == "running":
                folder.write_status(state, reason)


class FolderInUseError(InputError):
    """Another call trains in a run folder or reviews it."""


class RunFolder:
    """Reads and writes the files of one run."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        if not isinstance(path, str | os.PathLike):
            raise InputError(f"A run folder must be a path. Got {path!r} instead.")
        self.path = Path(path)
        self._unsynced: set[Path] = set()

    @contextmanager
    def lock(self) -> Iterator[None]:
        """Make the folder, and keep other calls from training in it during the block."""
        with ExitStack() as stack:
            try:
                self.path.mkdir(parents=True, exist_ok=True)
                file = stack.enter_context(inside(self.path, ".lock").open("ab"))
                locked = stack.enter_context(_file_lock(file))
            except BlockingIOError:
                raise FolderInUseError(
                    f"The run folder {str(self.path)!r} is in use: another call trains in it or reviews it. "
                    "Wait until it ends, or give another folder."
                ) from None
            except OSError as error:
                raise cannot_write(self.path, error, "Give another folder.") from None
            if locked:
                for part in self.path.rglob(f".*{PART}"):  # of a killed process; rglob does not follow links to folders
                    with suppress(OSError):
                        part.unlink()
            yield

    def in_use(self) -> bool:
        """Whether another call trains in the folder or reviews it."""
        try:
            if (self.path / ".lock").exists():
                with self.lock():
                    pass
        except FolderInUseError:
            return True
        return False

    def wait_until_free(self, seconds: float) -> None:
        """Wait for the other call that uses the folder, but not longer than this."""
        end = time.monotonic() + seconds
        while self.in_use() and time.monotonic() < end:
            time.sleep(0.2)

    def exists(self) -> bool:
        return (self.path / "settings.json").exists()

    def damaged(self) -> bool:
        """Whether the folder contains parts of a run, but no settings."""
        parts = exists(self.path, "labels/given.npy") or exists(self.path, "record/training") or bool(self._checkpoints())
        return not self.exists() and (self._begun() or parts)

    def check_free(self) -> None:
        """Refuse a folder with files that are neither a run nor the beginning of one that was interrupted."""
        names = [path.relative_to(self.path).as_posix() for path in (*self.path.glob("*"), *self.path.glob("labels/*"))]
        expected = {".lock", "labels", *_START} if self._begun() else {".lock"}
        foreign = sorted(name for name in names if name not in expected and not name.endswith(PART))
        if foreign and "settings.json" not in names:
            raise InputError(
                f"The folder {str(self.path)!r} is not empty and is not a run: it has {foreign[0]!r} and no settings.json. "
                "Give another folder, or empty it."
            )

    def _begun(self) -> bool:
        """Whether the folder has the first file that `begin` writes."""
        with suppress(InputError):
            return "noisewise" in self.provenance()
        return False

    def remove(self, name: str) -> None:
        """Remove a file, if it exists."""
        inside(self.path, name).unlink(missing_ok=True)

    def check_whole(self, epoch: int, clean: Iterable[int]) -> None:
        """Refuse a run with missing metrics or records up to an epoch, or of the clean passes in eval mode at some epochs."""
        missing = sorted(set(range(1, epoch + 1)) - {line["epoch"] for line in self.metrics()})
        if missing:
            raise InputError(
                f"The run in {str(self.path)!r} was trained for {epoch} epochs, but its metrics.jsonl has no epoch {missing[0]}. "
                "Copy the run folder again, or give another folder."
            )
        open_array(self.path, "labels/given.npy")
        for of, numbers in zip(RECORDS, (range(1, epoch + 1), clean), strict=True):
            for name in (f"record/{of}/{kind}-{number:05d}.npy" for number in numbers for kind in KINDS):
                open_array(self.path, name)

    def write_json(self, name: str, content: Any) -> None:
        self._write(name, (json.dumps(content, indent=1, ensure_ascii=False, allow_nan=False) + "\n").encode())

    def provenance(self, needs: Sequence[str] = ()) -> dict[str, Any]:
        return read_provenance(self.path, needs)

    def status(self) -> dict[str, Any]:
        return read_status(self.path, needs=("state", "epoch", "step"))

    def write_array(self, name: str, values: NDArray[Any]) -> None:
        buffer = io.BytesIO()
        np.save(buffer, values, allow_pickle=False)
        self._write(name, buffer.getvalue())

    def add_metrics(self, line: Mapping[str, Any]) -> None:
        """Add the line of an epoch. Earlier lines are copied without parsing, because there may be thousands."""
        path = inside(self.path, _METRICS)
        before = path.read_bytes() if path.exists() else b""
        self._write(_METRICS, before + _as_line(line))

    def metrics(self) -> list[dict[str, Any]]:
        return list(read_metrics(self.path))

    def begin(self, settings: Mapping[str, Any], provenance: Mapping[str, Any], data: Dataset) -> None:
        """Write settings, provenance and labels. After this the folder is a run folder."""
        self.check_free()
        for name in _START[1:]:  # of an interrupted start; its first file stays and marks the folder
            self.remove(name)
        self.write_json(_FIRST, provenance)
        self.write_json("classes.json", list(data.classes))
        if data.encoding is not None:
            self._write_encoding(data.encoding)
        self.write_array("labels/given.npy", data.labels.cpu().numpy())
        self.write_array("labels/index.npy", data.index.cpu().numpy())  # type: ignore[union-attr]
        if data.true_labels is not None:
            self.write_array("labels/true.npy", data.true_labels.cpu().numpy())
        if data.ids is not None:
            self.write_json("labels/ids.json", list(data.ids))
        self.write_status("running", epoch=0, step=0)
        self.write_settings(settings)  # last, because it marks a run folder

    def _write_encoding(self, encoding: Encoding) -> None:
        self.write_json(ENCODING, encoding.as_json())
        if arrays := encoding.arrays():
            self.write_tensors(ENCODING_ARRAYS, {name: torch.from_numpy(values) for name, values in arrays.items()}, {})

    def write_settings(self, settings: Mapping[str, Any]) -> None:
        self.write_json("settings.json", {"format": FORMAT, **settings})

    def write_status(self, state: str, reason: str | None = None, **reached: int) -> None:
        """Write the state of the run, and its epoch and step if they changed."""
        before = {} if reached.keys() == {"epoch", "step"} else self.status()
        self.write_json("status.json", {**before, "state": state, "reason": reason, **reached})

    def write_record(self, of: str, epoch: int, margins: Tensor, predictions: Tensor) -> None:
        limit = float(np.finfo(np.float16).max)
        self.write_array(f"record/{of}/margins-{epoch:05d}.npy", margins.clamp(-limit, limit).half().cpu().numpy())
        self.write_array(f"record/{of}/predictions-{epoch:05d}.npy", predictions.to(torch.int32).cpu().numpy())

    def write_tensors(self, name: str, tensors: Mapping[str, Tensor], notes: Mapping[str, Any]) -> None:
        from safetensors.torch import save

        check_storable(tensors)
        self._write(name, save(_separate(tensors), {"noisewise": json.dumps(notes)}))

    def read_tensors(self, name: str) -> tuple[dict[str, Tensor], dict[str, Any]]:
        return read_tensors(self.path, name)

    def write_checkpoint(self, epoch: int, tensors: Mapping[str, Tensor], notes: Mapping[str, Any]) -> None:
        self.write_tensors(f"checkpoints/epoch-{epoch:05d}.safetensors", tensors, notes)
        for old in list(self._checkpoints().values())[:-KEPT_CHECKPOINTS]:
            old.unlink()
        self._prune_bests()

    def write_best(self, epoch: int, tensors: Mapping[str, Tensor]) -> None:
        """Write a model that is better than all before it."""
        self.write_tensors(_best(epoch), tensors, {"epoch": epoch})
        self._prune_bests()

    def read_best(self, epoch: int) -> dict[str, Tensor]:
        """The model of an epoch that was better than all before it."""
        return self.read_tensors(_best(epoch))[0]

    def _prune_bests(self) -> None:
        """Remove old best models. Resuming from a checkpoint needs the model that was best at its epoch."""
        bests = self._bests()
        needed = ([best for best in bests if best <= checkpoint][-1:] for checkpoint in self._checkpoints())
        for old in bests.keys() - {*list(bests)[-1:], *itertools.chain(*needed)}:
            bests[old].unlink()

    def checkpoints(self) -> Iterator[tuple[dict[str, Tensor], dict[str, Any]]]:
        """The checkpoints that can be read, the newest first."""
        for epoch, path in reversed(self._checkpoints().items()):
            try:
                tensors, notes = self.read_tensors(f"checkpoints/{path.name}")
                check_checkpoint(repr(str(path)), notes, epoch)
            except CannotOpenError:  # it may be intact, and skipping it would lose epochs
                raise
            except InputError:  # damaged: use the checkpoint before it
                continue
            yield tensors, notes

    def _checkpoints(self) -> dict[int, Path]:
        return list_numbered(self.path, "checkpoints", "epoch-", ".safetensors")

    def _bests(self) -> dict[int, Path]:
        return list_numbered(self.path, "checkpoints", "best-", ".safetensors")

    def forget_after(self, epoch: int) -> None:
        """Remove everything after an epoch, so that training can resume there."""
        self._write(_METRICS, b"".join(_as_line(line) for line in self.metrics() if line["epoch"] <= epoch))
        records = [(of, kind) for of in RECORDS for kind in KINDS] + [(of, "accuracies") for of in EVALUATED]
        for files in (*(list_numbered(self.path, f"record/{of}", f"{kind}-", ".npy") for of, kind in records), self._bests()):
            for number, path in files.items():
                if number > epoch:
                    path.unlink()

    def _write(self, name: str, content: bytes) -> None:
        path = inside(self.path, name)
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            with written_whole(path, sweep=False, later=self._unsynced) as part:  # `lock` has swept
                part.write_bytes(content)
            if name in _LAST or name.startswith("checkpoints/"):
                sync_folders(self._unsynced)
        except OSError as error:
            advice = "Free some space and run the same command again: it resumes from the last checkpoint."
            raise cannot_write(self.path, error, advice) from error


@contextmanager
def _file_lock(file: IO[bytes]) -> Iterator[bool]:
    """Lock a file until the block or the process ends; yields False on systems without locks.

    Raises:
        BlockingIOError: another process has locked it.
    """
    if sys.platform == "win32":
        yield False
        return
    import fcntl

    locked = True
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise
    except OSError:  # some network disks have no locks
        locked = False
    try:
        yield locked
    finally:
        if locked:
            fcntl.flock(file, fcntl.LOCK_UN)  # closing the file is not enough if a process was forked meanwhile


def check_storable(tensors: Mapping[str, Any]) -> None:
    """Refuse entries of a `state_dict` that a safetensors file cannot store, by trying each of them."""
    from safetensors.torch import save

    for name, value in tensors.items():
        try:
            save({"": value.detach().flatten()[:0].cpu()})
        except Exception as error:  # torch and safetensors raise various errors
            raise InputError(
                f"The state_dict() of the model has an entry that a run folder cannot store: {name!r} ({reason(error)}). "
                "Keep only dense tensors of numbers in it."
            ) from None


def _separate(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Contiguous tensors that share no memory, as safetensors needs them; tied weights are copied."""
    separate: dict[str, Tensor] = {}
    storages: set[int] = set()
    for name, value in tensors.items():
        tensor = value.detach().contiguous()
        storage = tensor.untyped_storage().data_ptr()
        separate[name] = tensor.clone() if storage in storages else tensor
        storages.add(storage)
    return separate


def _best(epoch: int) -> str:
    return f"checkpoints/best-{epoch:05d}.safetensors"


def _as_line(line: Mapping[str, Any]) -> bytes:
    return (json.dumps(line, allow_nan=False) + "\n").encode()


class Writer:
    """Writes the files of an epoch while the next epoch trains: it makes calls in one thread, in the order in which they were submitted.

    After a call that fails, no other call is made, so no file appears without the files before it. Every later `flush` raises the error.

    Example:
        >>> written = []
        >>> with Writer() as writer:
        ...     writer.submit(written.append, "record")
        ...     writer.submit(written.append, "metrics")
        ...     writer.flush()
        >>> written
        ['record', 'metrics']
    """

    def __init__(self) -> None:
        self._thread = ThreadPoolExecutor(1, "noisewise-writer")  # starts the thread at the first call
        self._pending: list[Future[None]] = []
        self._error: BaseException | None = None

    def submit(self, call: Callable[..., Any], *args: Any, **kwargs: Any) -> None:
        """Make a call in the background. Its arguments must not change before the next `flush`."""
        self._pending.append(self._thread.submit(self._make, call, args, kwargs))

    def _make(self, call: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        if self._error is None:
            try:
                call(*args, **kwargs)
            except BaseException as error:
                self._error = error

    def flush(self) -> None:
        """Wait until all calls are made, and raise the error of the call that failed."""
        while self._pending:
            self._pending[0].result()
            self._pending.pop(0)
        if self._error is not None:
            raise self._error

    def __enter__(self) -> Writer:
        return self

    def __exit__(self, *error: object) -> None:
        self._thread.shutdown()
