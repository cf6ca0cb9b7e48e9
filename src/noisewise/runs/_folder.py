"""The run folder: what was asked, what happened, the record of margins, the model. Any tool can read it.

    settings.json  provenance.json  classes.json  status.json
    labels/given.npy  labels/true.npy               labels trained on; the right ones where they are known
    metrics.jsonl                                   one line per finished epoch
    record/training/margins-00001.npy  predictions-00001.npy     of every example, from the training steps of epoch 1
    record/clean/…                                  the same from a pass in eval mode, at evaluations
    checkpoints/epoch-00010.safetensors  model.safetensors
    correction.json  labels/corrected.csv  labels/first.npy      only of a run on corrected labels: where it came from, what was changed,
                                                    and the labels before any correction
    .lock                                           empty; whoever trains holds a lock on it

Every file appears under its name only when it is whole. There is no pickle anywhere. This module must not know what the
numbers mean.
"""

from __future__ import annotations

import hashlib
import io
import itertools
import json
import os
import re
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import IO, Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from noisewise.data import Dataset
from noisewise.errors import InputError, NoisewiseError, cannot_write, reason
from noisewise.output import PART, sync_folders, written_whole
from noisewise.runs._files import CannotOpenError, exists, inside, list_numbered, open_array, read_tensors
from noisewise.runs._format import EVALUATED, FORMAT, KINDS, RECORDS, check_checkpoint, read_metrics, read_provenance, read_status
from noisewise.signals import Stopped
from noisewise.spec import in_short

KEPT_CHECKPOINTS = 2
_LONGEST_WORDS = 100  # two of them and a seed make a name that every file system takes
_METRICS = "metrics.jsonl"
_FIRST = "provenance.json"
_START = (_FIRST, "classes.json", "labels/given.npy", "labels/index.npy", "labels/true.npy", "labels/ids.json", "status.json")
"""What is written before the settings, the first of them first."""
_LAST = ("status.json", "settings.json", "model.safetensors")
"""What is written after other files that it stands for: now the names of those must be on the disk too."""


def in_a_name(spec: str) -> str:
    """A spec as a part of a folder's name: letters, digits, points, and the signs of negative numbers.

    What is too long for a name is cut, and a digest of all of it stands at the end; so it does where parentheses are more than a name's.

    Example:
        >>> in_a_name("0.3*nce + 0.7*mae"), in_a_name("2*(nce + mae)")
        ('0.3_nce_0.7_mae', '2_nce_mae_6caf5796')
    """
    words = re.sub(r"(?:(?!(?<![A-Za-z0-9.])-[0-9.])[^A-Za-z0-9.])+", "_", in_short(spec)).strip("_")
    if len(words) <= _LONGEST_WORDS and not re.search(r"(?<!\w)\(\s*[a-z]", spec):
        return words
    return f"{words[: _LONGEST_WORDS - 9]}_{hashlib.sha256(spec.encode()).hexdigest()[:8]}"


def ending(error: BaseException) -> tuple[str, str]:
    """How a run ended that did not finish, and why."""
    if not isinstance(error, Exception):
        return "interrupted", f"stopped by {error}" if isinstance(error, Stopped) else "stopped by the user"
    return "failed", str(error) if isinstance(error, NoisewiseError) else f"{type(error).__name__}: {error}"


def mark_ended(folder: RunFolder, state: str, reason: str) -> None:
    """Say of a run that was under way, and cannot say so itself, how it ended; one that another call trains is left alone."""
    if folder.exists():
        with suppress(NoisewiseError), folder.held():
            if folder.status()["state"] == "running":
                folder.write_status(state, reason)


class RunFolder:
    """Reads and writes the files of one run."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        if not isinstance(path, str | os.PathLike):
            raise InputError(f"A run folder must be a path. Got {path!r} instead.")
        self.path = Path(path)
        self._unsynced: set[Path] = set()

    @contextmanager
    def held(self) -> Iterator[None]:
        """Make the folder, and keep everyone else from training in it for the length of the block."""
        with ExitStack() as stack:
            try:
                self.path.mkdir(parents=True, exist_ok=True)
                file = stack.enter_context(inside(self.path, ".lock").open("ab"))
                alone = stack.enter_context(_locked(file))
            except BlockingIOError:
                raise InputError(
                    f"The run folder {str(self.path)!r} is in use: another call trains in it. Wait until it ends, or give another folder."
                ) from None
            except OSError as error:
                raise cannot_write(self.path, error, "Give another folder.") from None
            if alone:
                for left in self.path.rglob(f".*{PART}"):  # by one that was killed; links to folders are not followed
                    with suppress(OSError):
                        left.unlink()
            yield

    def exists(self) -> bool:
        return (self.path / "settings.json").exists()

    def damaged(self) -> bool:
        """Whether there is something that only a run leaves, and yet no settings."""
        left = exists(self.path, "labels/given.npy") or exists(self.path, "record/training") or bool(self._checkpoints())
        return not self.exists() and (self._begun() or left)

    def check_free(self) -> None:
        """Refuse a folder that holds something other than a run, or than what a start that was cut short left of one."""
        found = [path.relative_to(self.path).as_posix() for path in (*self.path.glob("*"), *self.path.glob("labels/*"))]
        ours = {".lock", "labels", *_START} if self._begun() else {".lock"}
        foreign = sorted(name for name in found if name not in ours and not _is_part(name))
        if foreign and "settings.json" not in found:
            raise InputError(
                f"The folder {str(self.path)!r} is not empty and holds no run: it has {foreign[0]!r} and no settings.json. "
                "Give another folder, or empty it."
            )

    def _begun(self) -> bool:
        """Whether the first file that a start writes is there."""
        with suppress(InputError):
            return "noisewise" in self.provenance()
        return False

    def _clear_start(self) -> None:
        """Remove what a start that was cut short left, but for the first file: while there is anything, it says whose that is."""
        for name in _START[1:]:
            self.remove(name)

    def remove(self, name: str) -> None:
        """Remove a file, if it is there."""
        inside(self.path, name).unlink(missing_ok=True)

    def check_whole(self, epoch: int, clean: Iterable[int]) -> None:
        """Refuse a run that lacks something of its epochs.

        Args:
            epoch: the last of them.
            clean: those that had a pass in eval mode.
        """
        known = {line["epoch"] for line in self.metrics()}
        for number in range(1, epoch + 1):
            if number not in known:
                raise InputError(
                    f"The run in {str(self.path)!r} was trained for {epoch} epochs, and its metrics.jsonl lacks epoch {number}. "
                    "Copy the run folder again, or give another."
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
        """Write down one more epoch; those before it are copied as they are, because there may be thousands."""
        path = inside(self.path, _METRICS)
        before = path.read_bytes() if path.exists() else b""
        if before and not before.endswith(b"\n"):  # an editor may have taken it away
            before += b"\n"
        self._write(_METRICS, before + _as_line(line))

    def metrics(self) -> list[dict[str, Any]]:
        return list(read_metrics(self.path))

    def begin(self, settings: Mapping[str, Any], provenance: Mapping[str, Any], data: Dataset) -> None:
        """Write down what is trained and on what: from here on it is a run folder."""
        self.check_free()
        self._clear_start()
        self.write_json(_FIRST, provenance)
        self.write_json("classes.json", list(data.classes))
        self.write_array("labels/given.npy", data.labels.cpu().numpy())
        self.write_array("labels/index.npy", data.index.cpu().numpy())  # type: ignore[union-attr]
        if data.true_labels is not None:
            self.write_array("labels/true.npy", data.true_labels.cpu().numpy())
        if data.ids is not None:
            self.write_json("labels/ids.json", list(data.ids))
        self.write_status("running", epoch=0, step=0)
        self.write_settings(settings)  # last: now it is a run folder

    def write_settings(self, settings: Mapping[str, Any]) -> None:
        self.write_json("settings.json", {"format": FORMAT, **settings})

    def write_status(self, state: str, reason: str | None = None, **reached: int) -> None:
        """Say what became of the run, and which epoch and step it reached where that has changed."""
        before = {} if reached.keys() == {"epoch", "step"} else self.status()
        self.write_json("status.json", {**before, "state": state, "reason": reason, **reached})

    def write_record(self, of: str, epoch: int, margins: Tensor, predictions: Tensor) -> None:
        limit = float(np.finfo(np.float16).max)
        self.write_array(f"record/{of}/margins-{epoch:05d}.npy", margins.clamp(-limit, limit).half().cpu().numpy())
        self.write_array(f"record/{of}/predictions-{epoch:05d}.npy", predictions.to(torch.int32).cpu().numpy())

    def write_tensors(self, name: str, tensors: Mapping[str, Tensor], notes: Mapping[str, Any]) -> None:
        from safetensors.torch import save

        check_kept(tensors)
        self._write(name, save(_apart(tensors), {"noisewise": json.dumps(notes)}))

    def read_tensors(self, name: str) -> tuple[dict[str, Tensor], dict[str, Any]]:
        return read_tensors(self.path, name)

    def write_checkpoint(self, epoch: int, tensors: Mapping[str, Tensor], notes: Mapping[str, Any]) -> None:
        self.write_tensors(f"checkpoints/epoch-{epoch:05d}.safetensors", tensors, notes)
        for old in list(self._checkpoints().values())[:-KEPT_CHECKPOINTS]:
            old.unlink()
        self._prune_bests()

    def write_best(self, epoch: int, tensors: Mapping[str, Tensor]) -> None:
        """Write down a model that is better than all before it."""
        self.write_tensors(_best(epoch), tensors, {"epoch": epoch})
        self._prune_bests()

    def read_best(self, epoch: int) -> dict[str, Tensor]:
        """The model of an epoch that was better than all before it."""
        return self.read_tensors(_best(epoch))[0]

    def _prune_bests(self) -> None:
        """Remove the best models that are no longer needed: resuming from a checkpoint needs the one that was best by then."""
        bests = self._bests()
        by_then = ([best for best in bests if best <= checkpoint][-1:] for checkpoint in self._checkpoints())
        for old in bests.keys() - {*list(bests)[-1:], *itertools.chain(*by_then)}:
            bests[old].unlink()

    def checkpoints(self) -> Iterator[tuple[dict[str, Tensor], dict[str, Any]]]:
        """The checkpoints that can be read, the newest first."""
        for epoch, path in reversed(self._checkpoints().items()):
            try:
                tensors, notes = self.read_tensors(f"checkpoints/{path.name}")
                check_checkpoint(repr(str(path)), notes, epoch)
            except CannotOpenError:  # a good one that is left out would cost the epochs since the one before it
                raise
            except InputError:  # a damaged one; the one before it will do
                continue
            yield tensors, notes

    def _checkpoints(self) -> dict[int, Path]:
        return list_numbered(self.path, "checkpoints", "epoch-", ".safetensors")

    def _bests(self) -> dict[int, Path]:
        return list_numbered(self.path, "checkpoints", "best-", ".safetensors")

    def forget_after(self, epoch: int) -> None:
        """Remove what was written after an epoch: training resumes there."""
        self._write(_METRICS, b"".join(_as_line(line) for line in self.metrics() if line["epoch"] <= epoch))
        recorded = [list_numbered(self.path, f"record/{of}", f"{kind}-", ".npy") for of in RECORDS for kind in KINDS]
        by_class = [list_numbered(self.path, f"record/{of}", "accuracies-", ".npy") for of in EVALUATED]
        for files in (*recorded, *by_class, self._bests()):
            for number, path in files.items():
                if number > epoch:
                    path.unlink()

    def _write(self, name: str, content: bytes) -> None:
        path = inside(self.path, name)
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            with written_whole(path, sweep=False, later=self._unsynced) as part:  # `held` has swept
                part.write_bytes(content)
            if name in _LAST or name.startswith("checkpoints/"):
                sync_folders(self._unsynced)
        except OSError as error:
            advice = "Free some space and run the same command again: it resumes from the last checkpoint."
            raise cannot_write(self.path, error, advice) from error


@contextmanager
def _locked(file: IO[bytes]) -> Iterator[bool]:
    """Hold the lock on a file, which the system lets go of when the process dies; False where there are no locks.

    Raises:
        BlockingIOError: another holds it.
    """
    if sys.platform == "win32":
        yield False
        return
    import fcntl

    held = True
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise
    except OSError:  # some network disks have no locks
        held = False
    try:
        yield held
    finally:
        if held:
            fcntl.flock(file, fcntl.LOCK_UN)  # closing the file is not enough where a process was forked meanwhile


def check_kept(tensors: Mapping[str, Any]) -> None:
    """Refuse entries of a `state_dict` that a safetensors file cannot hold, by trying each of them."""
    from safetensors.torch import save

    for name, value in tensors.items():
        try:
            save({"": value.detach().flatten()[:0].cpu()})
        except Exception as error:  # whatever torch or safetensors say of it
            raise InputError(
                f"The state_dict() of the model has an entry that a run folder cannot store: {name!r} ({reason(error)}). "
                "Keep only dense tensors of numbers in it."
            ) from None


def _apart(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The tensors as a file can hold them: in one piece each, and none a part of another, as tied weights are."""
    found: dict[str, Tensor] = {}
    places: set[int] = set()
    for name, value in tensors.items():
        held = value.detach().resolve_conj().resolve_neg().contiguous()  # a file holds the numbers alone, and no word of their sign
        place = held.untyped_storage().data_ptr()
        found[name] = held.clone() if place in places else held
        places.add(place)
    return found


def _best(epoch: int) -> str:
    return f"checkpoints/best-{epoch:05d}.safetensors"


def _as_line(line: Mapping[str, Any]) -> bytes:
    return (json.dumps(line, allow_nan=False) + "\n").encode()


def _is_part(name: str) -> bool:
    last = name.rpartition("/")[2]
    return last.startswith(".") and last.endswith(PART)
