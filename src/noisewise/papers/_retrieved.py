"""Retrieval by the network of a finished run, as the tables on MARS have it: measured once, and kept in the run's folder.

This module must not know recipes, nor how retrieval is measured.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch

from noisewise.data import ImageFiles, files
from noisewise.errors import InputError
from noisewise.retrieval import retrieve
from noisewise.runs import RunFolder, exists, read_shares
from noisewise.train import Run

METRICS = ("mAP", "CMC-1")
"""What the papers call what is measured here."""

_FILE = "retrieval.json"
_FEW = 2  # people that a quick try asks for


def check_queries(data: str) -> None:
    """Refuse, before any work, tracklets of which nobody says which are asked for."""
    if "query" not in _tested(data).groups:
        raise InputError(f"The test tracklets of {data!r} have no queries. Put the makers' info folder beside their images.")


def measure(run: Run, size: int | None, quick: bool) -> None:
    """Rank the test tracklets for those that are asked for, all of them being the gallery, unless that was done before.

    Args:
        run: a finished one.
        size: what images are resized to, as they were for training.
        quick: only try that it works: one frame of a few tracklets.
    """
    if exists(run.path, _FILE):
        return
    test = _tested(run.settings.data)
    if quick:
        test = _few(test)
    found = retrieve(run, test.take(test.groups["query"] == 1), test, size=size)
    RunFolder(run.path).write_json(_FILE, found.summary())


def numbers(run: Path) -> dict[str, float | None]:
    """What was measured of a run, as shares; nothing where nothing was."""
    return read_shares(run, _FILE) if exists(run, _FILE) else {}


def _tested(data: str) -> ImageFiles:
    return files(data, "test")


def _few(test: ImageFiles) -> ImageFiles:
    """The first frame of all tracklets of the first people that are asked for."""
    identities, queries, tracklets = (test.groups[name].numpy() for name in ("identity", "query", "tracklet"))
    first = np.unique(tracklets, return_index=True)[1]
    asked = np.unique(identities[queries == 1])[:_FEW]
    return test.take(torch.from_numpy(first[np.isin(identities[first], asked)]))
