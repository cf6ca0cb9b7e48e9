"""Provenance: what a run was made with, and how to recognise and read its data again.

A run records versions, the commit, digests of its data, and the arguments its data were read with. Git's files are read directly and
no program is started, because git's own commands start programs that a repository's configuration names.
"""

from __future__ import annotations

import os
import platform
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

import noisewise
from noisewise.data import Dataset, EmbeddingCache, Encoding, digest, digest_of, is_official, is_table, read
from noisewise.errors import InputError, reason
from noisewise.noise import Corruption
from noisewise.spec import readable

_COMMIT = re.compile(r"[0-9a-f]{40}(?:[0-9a-f]{24})?")


def make_provenance(
    parts: Mapping[str, Dataset | None],
    read_from: Mapping[str, Mapping[str, Any] | None],
    corruption: Corruption | None,
    device: torch.device,
) -> dict[str, Any]:
    """The versions, digests and the commit that you need to trust or repeat a run.

    `parts` are the data sets by "train", "validation" and "test", and `read_from` the arguments that read the training and the test set.
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


def _checksums(data: Dataset) -> dict[str, Any]:
    """Digests that identify a data set."""
    return {
        "name": data.name,
        "examples": len(data),
        **data.input_digests(),
        "labels": digest(data.labels),
        "truth": None if data.true_labels is None else digest(data.true_labels),
        "names": digest_of([*data.classes, "", *(data.ids or ())]),
        **({} if data.sample_weight is None else {"weights": digest(data.sample_weight)}),
    }


def may_have_inputs(recorded: Mapping[str, Any], data: Dataset, rows: Tensor | None = None) -> bool:
    """Whether data that the user gave, or some of its rows, may have the inputs whose digests a run recorded.

    Images on disk may have moved since, or may have been in memory then; a `Recorder` does not record inputs.
    """
    now = data.input_digests(rows)
    if ("sizes" in recorded) != ("sizes" in now):
        return True
    name = "sizes" if "sizes" in now else "inputs"
    return bool(recorded.get(name, now[name]) == now[name])


def has_inputs(recorded: Mapping[str, Any], data: Dataset, rows: Tensor | None = None) -> bool:
    """Whether data, or some of its rows, have exactly the inputs that a run recorded."""
    now = data.input_digests(rows)
    return now == {name: recorded[name] for name in ("inputs", "sizes", "cells", "original") if name in recorded}


def read_recorded(source: Mapping[str, Any], encoding: Encoding | None = None) -> Dataset:
    """Read a data set with the arguments that a run recorded, and a table with the encoding of its training set."""
    if isinstance(folder := source.get("embed_cache"), str):  # the run may come from others: nothing is written where it says
        source = {**source, "embed_cache": EmbeddingCache(Path(folder), write=False)}
    is_encoded = encoding is not None and source_kind(source["source"]) == "table"
    options: dict[str, Any] = {**source, **({"encoding": encoding} if is_encoded else {})}
    try:
        return read(**options)
    except TypeError as error:
        raise InputError(
            f"The provenance.json of the run has wrong options for reading its data ({reason(error)}). Copy the run folder again."
        ) from None


def reading_arguments(source: str | os.PathLike[str], like: Mapping[str, Any] | None) -> dict[str, Any]:
    """Arguments of `read` for a path or a name, taken from those that read another data set, as far as both are of one kind."""
    arguments = dict(like or {})
    if arguments and source_kind(arguments["source"]) != source_kind(source):
        arguments = {name: arguments[name] for name in ("size", "memory", "unreadable") if name in arguments}
    return {**arguments, "source": source}


def source_kind(source: str | os.PathLike[str]) -> str:
    """Whether a name or path is an "official" data set, a "table" or a "folder"."""
    return "official" if isinstance(source, str) and is_official(source) else "table" if is_table(source) else "folder"


def head_commit(folder: Path) -> str | None:
    """The commit that is checked out in the repository around a folder; None if there is no repository, or no commit yet."""
    try:
        repository = _repository(folder.resolve())
        return None if repository is None else _commit(repository)
    except (OSError, ValueError):  # not readable, or not text
        return None


def _repository(folder: Path) -> Path | None:
    """Git's own folder. In a linked worktree and in a submodule, `.git` is a file with its path."""
    for marker in (parent / ".git" for parent in (folder, *folder.parents)):
        if marker.is_dir():
            return marker
        if marker.is_file():
            return marker.parent / marker.read_text(encoding="utf-8").removeprefix("gitdir:").strip()
    return None


def _commit(repository: Path) -> str | None:
    """The commit of HEAD. A linked worktree has its own HEAD; branches are in the main repository."""
    shared = repository / "commondir"
    common = repository / shared.read_text(encoding="utf-8").strip() if shared.is_file() else repository
    head = (repository / "HEAD").read_text(encoding="utf-8").strip()
    branch = head.removeprefix("ref: ")
    if branch.startswith("refs/") and ".." not in branch:
        head = ""
        if (common / branch).is_file():
            head = (common / branch).read_text(encoding="utf-8").strip()
        elif (common / "packed-refs").is_file():
            with (common / "packed-refs").open(encoding="utf-8") as lines:
                head = next((line.partition(" ")[0] for line in lines if line.strip().partition(" ")[2] == branch), "")
    return head if _COMMIT.fullmatch(head) else None
