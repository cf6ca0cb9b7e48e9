"""Provenance: what a run was made with, and how to recognise and read its data again.

A run records versions, the commit, digests of its data, and the arguments its data were read with. Git's files are read directly and
no program is started, because git's own commands start programs that a repository's configuration names.
"""

from __future__ import annotations

import hashlib
import os
import platform
import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

import noisewise
from noisewise.data import Dataset, Stream, is_official, is_table, read
from noisewise.errors import InputError, reason
from noisewise.noise import Corruption
from noisewise.spec import readable

_COMMIT = re.compile(r"[0-9a-f]{40}(?:[0-9a-f]{24})?")
_LINKS = 5  # symbolic references that point to each other are followed this far, as git does


def make_provenance(
    parts: Mapping[str, Dataset | None],
    read_from: Mapping[str, Mapping[str, Any] | None],
    corruption: Corruption | None,
    device: torch.device,
) -> dict[str, Any]:
    """Versions, digests and the commit: what one needs to know to trust or repeat a run.

    Args:
        parts: the data sets, by "train", "validation" and "test".
        read_from: the arguments that read the training and the test set.
        corruption: what the noise did; None without noise.
        device: what the run is trained on.
    """
    commit = head_commit(Path.cwd())
    return {
        "noisewise": noisewise.__version__,
        "python": platform.python_version(),
        "torch": torch.__version__,
        "numpy": np.__version__,
        "platform": platform.platform(),
        "device": torch.cuda.get_device_name(device) if device.type == "cuda" else "cpu",
        "sources": dict(read_from),
        "data": {name: _checksums(part) for name, part in parts.items() if part is not None},
        "noise": None if corruption is None else {"spec": readable(corruption.noise), "digest": corruption.digest, "rate": corruption.rate},
        "git": None if commit is None else {"commit": commit},
    }


def recorded_sources(provenance: Mapping[str, Any], settings: Mapping[str, Any]) -> Mapping[str, Mapping[str, Any] | None]:
    """What the training and the test set of a run can be read from again, by "train" and "test": arguments of `read`, or None.

    Args:
        provenance: of the run. One from before sources were written has only the name of its data, in the settings.
        settings: of the run.
    """
    if "sources" in provenance:
        return provenance["sources"]  # type: ignore[no-any-return]
    data = str(settings["data"])
    named = is_official(data) or "/" in data or "." in data
    return {"train": {"source": data} if named else None, "test": {"source": data, "split": "test"} if is_official(data) else None}


def _checksums(data: Dataset) -> dict[str, Any]:
    """What identifies a data set."""
    return {
        "name": data.name,
        "examples": len(data),
        **_input_digests(data),
        "labels": digest(data.labels),
        "truth": None if data.true_labels is None else digest(data.true_labels),
        "names": digest_of([*data.classes, "", *(data.ids or ())]),
    }


def _input_digests(data: Dataset, rows: Tensor | None = None) -> dict[str, str]:
    """What identifies the inputs of a data set; images that stay on disk are known by their paths and the sizes of their files."""
    if not isinstance(data, Stream):
        return {"inputs": digest(data.inputs, rows)}
    paths = data.paths if rows is None else [data.paths[row] for row in rows.tolist()]
    return {"inputs": digest_of(paths), "sizes": digest_of(map(_size, paths))}


def may_have_inputs(recorded: Mapping[str, Any], data: Dataset, rows: Tensor | None = None) -> bool:
    """Whether data that the user gave may have the inputs of a run.

    Images on disk may have moved since, and may have been in memory then; a run of a `Recorder` says nothing of its inputs.

    Args:
        recorded: what the run's provenance says of its training set.
        data: a data set.
        rows: the positions in it of the examples of the run, in order; by default all.
    """
    now = _input_digests(data, rows)
    if ("sizes" in recorded) != ("sizes" in now):
        return True
    name = "sizes" if "sizes" in now else "inputs"
    return bool(recorded.get(name, now[name]) == now[name])


def has_inputs(recorded: Mapping[str, Any], data: Dataset, rows: Tensor | None = None) -> bool:
    """Whether data have exactly the inputs that a run recorded; see `may_have_inputs` for the arguments."""
    now = _input_digests(data, rows)
    return now == {name: recorded[name] for name in ("inputs", "sizes") if name in recorded}


def read_recorded(source: Mapping[str, Any]) -> Dataset:
    """Read a data set with the arguments that a run recorded."""
    try:
        return read(**source)
    except TypeError as error:
        raise InputError(
            f"The provenance.json of the run has wrong options for reading its data ({reason(error)}). Copy the run folder again."
        ) from None


def digest_of(lines: Iterable[str]) -> str:
    """What tells a list of lines from others."""
    return hashlib.sha256("\n".join(lines).encode()).hexdigest()


def _size(path: str) -> str:
    try:
        return str(Path(path).stat().st_size)
    except OSError:
        return "missing"  # which is said where it is read


def digest(values: Tensor, rows: Tensor | None = None) -> str:
    """What identifies a tensor, or some of its rows; it is read in parts, because it may fill the memory."""
    shape = tuple(values.shape) if rows is None else (len(rows), *values.shape[1:])
    found = hashlib.sha256(f"{values.dtype} {shape}".encode())
    for part in _parts(values.detach().view(1) if values.dim() == 0 else values.detach(), rows):
        found.update(part.resolve_conj().resolve_neg().contiguous().cpu().view(-1).view(torch.uint8).numpy().data)
    return found.hexdigest()


def _parts(values: Tensor, rows: Tensor | None) -> Iterator[Tensor]:
    size = max(1, 2**24 // max(1, values[:1].numel() * values.element_size()))
    for start in range(0, len(values if rows is None else rows), size):
        part = slice(start, start + size)
        yield values[part if rows is None else rows[part]]


def as_before(source: str | os.PathLike[str], before: Mapping[str, Any] | None) -> dict[str, Any]:
    """Arguments of `read` that read one thing as another was read, as far as the two are of one kind.

    Args:
        source: a path or a name.
        before: the arguments the other was read with; None where nobody knows.
    """
    given = dict(before or {})
    if given and source_kind(given["source"]) != source_kind(source):
        given = {name: given[name] for name in ("size", "memory", "unreadable") if name in given}
    return {**given, "source": source}


def source_kind(source: str | os.PathLike[str]) -> str:
    """Whether a name or path is an "official" data set, a "table" or a "folder"."""
    return "official" if isinstance(source, str) and is_official(source) else "table" if is_table(source) else "folder"


def head_commit(folder: Path) -> str | None:
    """The commit that is checked out in the repository around a folder; None where there is no repository, or no commit yet.

    Args:
        folder: any folder of the work tree.
    """
    try:
        repository = _repository(folder.resolve())
        return None if repository is None else _resolved(repository, "HEAD")
    except (OSError, ValueError):  # not readable, or not text: then it is not known
        return None


def _repository(folder: Path) -> Path | None:
    """Git's own folder. In a linked worktree and in a submodule, `.git` is a file that says where it is."""
    for marker in (parent / ".git" for parent in (folder, *folder.parents)):
        if marker.is_dir():
            return marker
        if marker.is_file():
            return marker.parent / marker.read_text(encoding="utf-8").removeprefix("gitdir:").strip()
    return None


def _resolved(repository: Path, reference: str) -> str | None:
    """The commit a reference stands for; those of a linked worktree lie in the main repository, but for its own HEAD."""
    shared = repository / "commondir"
    common = repository / shared.read_text(encoding="utf-8").strip() if shared.is_file() else repository
    for _ in range(_LINKS):
        content = _content(repository, common, reference)
        if not content.startswith("ref: refs/") or ".." in content:
            return content if _COMMIT.fullmatch(content) else None
        reference = content.removeprefix("ref: ")
    return None


def _content(repository: Path, common: Path, reference: str) -> str:
    for folder in (repository, common):
        if (folder / reference).is_file():
            return (folder / reference).read_text(encoding="utf-8").strip()
    if (common / "packed-refs").is_file():
        with (common / "packed-refs").open(encoding="utf-8") as lines:
            for line in lines:
                commit, _, name = line.strip().partition(" ")
                if name == reference:
                    return commit
    return ""
