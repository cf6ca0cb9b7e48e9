"""Test the network of a finished run by retrieval, as the tables on MARS do; the result is kept in the run's folder."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch

from noisewise.data import ImageFiles, files
from noisewise.errors import InputError
from noisewise.retrieval import retrieve
from noisewise.runs import RunFolder, exists, read_shares
from noisewise.train import Run

_FILE = "retrieval.json"
_FEW = 2  # people among the queries of a quick run


def check_queries(data: str) -> None:
    """Check that the test tracklets have queries."""
    if "query" not in files(data, "test").groups:
        raise InputError(f"The test tracklets of {data!r} have no queries. Put the info folder of the data set beside its images.")


def measure(run: Run, size: int | None, quick: bool) -> None:
    """Rank the gallery, by default all test tracklets, for every query and write the result, unless it exists.

    Args:
        run: a finished run.
        size: the size images are resized to, as in training.
        quick: use only one frame of a few tracklets.
    """
    if exists(run.path, _FILE):
        return
    test = files(run.settings.data, "test")
    if quick:
        test = _few(test)
    gallery = test.take(test.groups["gallery"] == 1) if "gallery" in test.groups else test
    retrieved = retrieve(run, test.take(test.groups["query"] == 1), gallery, size=size)
    RunFolder(run.path).write_json(_FILE, retrieved.summary())


def numbers(run: Path) -> dict[str, float | None]:
    """The measured shares of a run; empty if nothing was measured."""
    return read_shares(run, _FILE) if exists(run, _FILE) else {}


def _few(test: ImageFiles) -> ImageFiles:
    """The first frame of every tracklet of the first people among the queries."""
    identities, queries, tracklets = (test.groups[name].numpy() for name in ("identity", "query", "tracklet"))
    first = np.unique(tracklets, return_index=True)[1]
    people = np.unique(identities[queries == 1])[:_FEW]
    return test.take(torch.from_numpy(first[np.isin(identities[first], people)]))
