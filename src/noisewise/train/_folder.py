"""The run folder: what was asked, what happened, the record of margins, the model. Any tool can read it.

    settings.json  provenance.json  classes.json  status.json
    labels/given.npy  labels/true.npy               labels trained on; the right ones where they are known
    metrics.jsonl                                   one line per finished epoch
    record/training/margins-00001.npy  predictions-00001.npy     of every example, from the training steps of epoch 1
    record/clean/…                                  the same from a pass in eval mode, at evaluations
    checkpoints/epoch-00010.safetensors  model.safetensors
    correction.json  labels/corrected.csv           only of a run on corrected labels: where it came from, what was changed

Every file appears under its name only when it is whole. There is no pickle anywhere. This module must not know what the
numbers mean.
"""

from __future__ import annotations

import io
import json
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from noisewise.errors import InputError
from noisewise.output import written_whole

FORMAT = 1
KEPT_CHECKPOINTS = 2


def mark_interrupted(folder: RunFolder) -> None:
    """Say of a run that was under way that it was stopped."""
    if folder.exists() and (status := folder.read_json("status.json"))["state"] == "running":
        folder.write_json("status.json", {**status, "state": "interrupted", "reason": "stopped by the user"})


class RunFolder:
    """Reads and writes the files of one run."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(path)

    def create(self) -> None:
        """Make the folder and try to write in it."""
        try:
            self.path.mkdir(parents=True, exist_ok=True)
            self._write("status.json.try", b"")
            (self.path / "status.json.try").unlink()
        except OSError as error:
            raise InputError(
                f"The run folder {str(self.path)!r} cannot be written ({error.strerror}). Give another with folder=…"
            ) from None

    def exists(self) -> bool:
        return (self.path / "settings.json").exists()

    def write_json(self, name: str, content: Any) -> None:
        self._write(name, (json.dumps(content, indent=1, ensure_ascii=False, allow_nan=False) + "\n").encode())

    def read_json(self, name: str) -> Any:
        try:
            return json.loads((self.path / name).read_text(encoding="utf-8"))
        except (OSError, ValueError) as error:
            raise InputError(f"The run folder {str(self.path)!r} has no readable {name} ({error}). Is it a run folder?") from None

    def write_array(self, name: str, values: NDArray[Any]) -> None:
        buffer = io.BytesIO()
        np.save(buffer, values, allow_pickle=False)
        self._write(name, buffer.getvalue())

    def write_metrics(self, lines: list[dict[str, Any]]) -> None:
        self._write("metrics.jsonl", "".join(json.dumps(line, allow_nan=False) + "\n" for line in lines).encode())

    def metrics(self) -> list[dict[str, Any]]:
        try:
            text = (self.path / "metrics.jsonl").read_text(encoding="utf-8")
        except FileNotFoundError:
            return []
        return [json.loads(line) for line in text.splitlines()]

    def write_record(self, of: str, epoch: int, margins: NDArray[np.float16], predictions: NDArray[Any]) -> None:
        self.write_array(f"record/{of}/margins-{epoch:05d}.npy", margins)
        self.write_array(f"record/{of}/predictions-{epoch:05d}.npy", predictions)

    def write_tensors(self, name: str, tensors: Mapping[str, Tensor], notes: Mapping[str, Any]) -> None:
        from safetensors.torch import save

        held = {key: value.detach().contiguous() for key, value in tensors.items()}
        self._write(name, save(held, {"noisewise": json.dumps(notes)}))

    def read_tensors(self, name: str) -> tuple[dict[str, Tensor], dict[str, Any]]:
        from safetensors import safe_open

        with safe_open(self.path / name, framework="pt") as file:
            notes = json.loads(file.metadata()["noisewise"])
            return {key: file.get_tensor(key) for key in file.keys()}, notes  # noqa: SIM118  (not a mapping)

    def write_checkpoint(self, epoch: int, tensors: Mapping[str, Tensor], notes: Mapping[str, Any]) -> None:
        self.write_tensors(f"checkpoints/epoch-{epoch:05d}.safetensors", tensors, notes)
        for old in self._checkpoints()[:-KEPT_CHECKPOINTS]:
            old.unlink()

    def checkpoints(self) -> Iterator[tuple[dict[str, Tensor], dict[str, Any]]]:
        """The checkpoints that can be read, the newest first."""
        for path in reversed(self._checkpoints()):
            try:
                yield self.read_tensors(f"checkpoints/{path.name}")
            except Exception:  # a damaged file has the reader's own errors; the one before it will do
                continue

    def _checkpoints(self) -> list[Path]:
        return sorted((self.path / "checkpoints").glob("epoch-*.safetensors"))

    def forget_after(self, epoch: int) -> None:
        """Remove what was written after an epoch: training goes on from there."""
        self.write_metrics([line for line in self.metrics() if line["epoch"] <= epoch])
        for path in (self.path / "record").glob("*/*-*.npy"):
            if int(path.stem.rpartition("-")[2]) > epoch:
                path.unlink()

    def _write(self, name: str, content: bytes) -> None:
        path = self.path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        with written_whole(path) as part, part.open("wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
