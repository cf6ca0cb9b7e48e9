"""The examples a run was trained on.

They are not in its folder: they are read again, and must have the inputs and labels of the run. The source of a run on corrected labels
has the labels from before the correction.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import DataLoader

from noisewise.arrays import Ints
from noisewise.data import Dataset, is_official, read
from noisewise.errors import InputError
from noisewise.runs._files import exists, read_array
from noisewise.runs._format import read_names, read_provenance
from noisewise.runs._lineage import FIRST, read_origin
from noisewise.runs._provenance import as_before, has_inputs, may_have_inputs, read_recorded, recorded_sources
from noisewise.runs._record import Record

_INDEX, _IDS = "labels/index.npy", "labels/ids.json"


def numbers_of(record: Record) -> Ints:
    """The number of every example of a run in its source."""
    if not exists(record.folder, _INDEX):
        return np.arange(len(record.given))
    numbers = read_array(record.folder, _INDEX)
    if numbers.dtype.kind != "i" or numbers.shape != record.given.shape:
        raise InputError(
            f"The file {str(Path(record.folder) / _INDEX)!r} must hold {len(record.given)} integers. "
            f"Got {numbers.dtype} shaped {numbers.shape}; copy the run folder again."
        )
    return numbers.astype(np.int64)


def names_of(record: Record) -> list[str]:
    """What the user calls every example of a run; where it has no name, its number."""
    if not exists(record.folder, _IDS):
        return list(map(str, numbers_of(record).tolist()))
    names, number = read_names(record.folder, _IDS), len(record.given)
    if len(names) != number:
        raise InputError(
            f"The file {str(Path(record.folder) / _IDS)!r} must name {number} examples. "
            f"Got {len(names)} instead; copy the run folder again."
        )
    return list(names)


def examples_of(record: Record, data: Any = None, *, places: Any = None) -> Dataset:
    """The examples of a run with the labels it was trained on; corrected ones are looked for under the labels of the first run.

    Args:
        record: of the run.
        data: what it, or the first run it came from, was trained on; by default what their settings name.
        places: the positions in the record of those that are wanted, in any order; by default all.
    """
    origin = read_origin(Path(record.folder))
    try:
        return examples_as_given(record, data, places=places)
    except InputError:
        if origin is None:
            raise
    examples = _matching(record.folder, origin.source, numbers_of(record), first_labels(record), data, places=places)
    now = record.given if places is None else record.given[places]
    return replace(examples, labels=torch.from_numpy(np.array(now)).to(examples.labels.device))


def first_labels(record: Record) -> Ints:
    """The labels that the examples of a run had before any correction."""
    if read_origin(Path(record.folder)) is None:
        return record.given
    labels = read_array(record.folder, FIRST)
    if labels.dtype != np.int64 or labels.shape != record.given.shape:
        raise InputError(
            f"The file {str(Path(record.folder) / FIRST)!r} must hold int64 shaped {record.given.shape}. "
            f"Got {labels.dtype} shaped {labels.shape}; copy the run folder again."
        )
    return labels


def examples_as_given(record: Record, data: Any = None, *, places: Any = None) -> Dataset:
    """The examples of a run in the order of its record, with the labels it was trained on.

    Args:
        record: of the run.
        data: what it was trained on, as `noisewise.data.read` takes it; by default where it says it read them.
        places: the positions in the record of those that are wanted, in any order; by default all.
    """
    return _matching(record.folder, record.settings, numbers_of(record), record.given, data, places=places)


def _matching(
    folder: str | PathLike[str], settings: Mapping[str, Any], numbers: Ints, labels: Ints, data: Any = None, *, places: Any = None
) -> Dataset:
    """The examples of some numbers, after a check that they have the labels they should have.

    Args:
        folder: of the run they are for.
        settings: what names the noise and its seed; and the data, where nothing else says what they were read from.
        numbers: of the examples in their source.
        labels: what their labels must be.
        data: what to look in instead of the data the run was read from; a path or name is read with the same options.
        places: the positions among the numbers of those that are wanted; by default all.
    """
    advice = "Give what it was trained on with data=…."
    noise = settings.get("noise", "none")
    try:
        provenance = read_provenance(folder)
    except InputError:  # the settings may name the data all the same
        provenance = {}
    try:
        whole = _read_again(provenance, settings, data) if data is None or isinstance(data, str | PathLike) else read(data)
        given = whole if noise == "none" else whole.corrupted(noise, seed=settings.get("seed", 0))
    except (InputError, OSError) as error:
        raise InputError(f"The data of the run in {str(folder)!r} cannot be read: {error} {advice}") from None
    assert given.index is not None
    rows = rows_of(numbers, given.index.cpu().numpy())
    # A run from a stranger may name any file of yours as its data. What you did not name yourself must have the very inputs that the run
    # recorded, unless it is an official data set, which everybody has. A loader may draw other inputs every time.
    recorded = {} if isinstance(data, DataLoader) else provenance.get("data", {}).get("train", {})
    trusted = data is not None or ("inputs" not in recorded and is_official(str((whole.source or {}).get("source"))))
    other = None if rows is None else _difference(given, torch.from_numpy(rows), labels, recorded, trusted)
    if rows is None or other is not None:
        raise InputError(f"The data {given.name!r} are not those of the run in {str(folder)!r}: {other or 'some are missing'}. {advice}")
    return given.take(torch.from_numpy(rows if places is None else rows[places])).read_from(whole.source)


def _difference(given: Dataset, rows: Tensor, labels: Ints, recorded: Mapping[str, Any], trusted: bool) -> str | None:
    """How examples differ from those of a run; None if they are the same.

    Args:
        given: the data set.
        rows: the positions of the examples in it.
        labels: what their labels must be.
        recorded: what the run's provenance says of its training set.
        trusted: whether inputs that cannot be compared will do.
    """
    if not np.array_equal(given.labels.cpu()[rows].numpy(), labels):
        return "their labels differ"
    same = may_have_inputs(recorded, given, rows) if trusted else has_inputs(recorded, given, rows)
    return None if same else "their inputs differ" if "inputs" in recorded else "the run does not record its inputs"


def _read_again(provenance: Mapping[str, Any], settings: Mapping[str, Any], instead: str | PathLike[str] | None) -> Dataset:
    """What a run was trained on, from where it was read or from elsewhere, as it was read then."""
    before = recorded_sources(provenance, settings)["train"]
    if instead is not None:
        return read_recorded(as_before(instead, before))
    return read_recorded(before or {"source": settings["data"]})


def rows_of(numbers: Ints, index: Ints) -> Ints | None:
    """Where the examples of some numbers stand among those of an index; None if one of them is not there."""
    order = np.argsort(index)
    rows = order[np.searchsorted(index, numbers, sorter=order).clip(max=len(index) - 1)]
    return rows if np.array_equal(index[rows], numbers) else None
