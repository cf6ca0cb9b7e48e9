"""The examples a run was trained on.

They are not stored in the run folder. They are read again, and their inputs and labels must match the run. For a run on corrected labels,
the source has the labels from before the correction.
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
from noisewise.data import Dataset, Encoding, is_official, read
from noisewise.errors import InputError
from noisewise.runs._encoding import read_encoding
from noisewise.runs._files import exists, read_array
from noisewise.runs._format import read_names, read_provenance
from noisewise.runs._lineage import FIRST, read_origin
from noisewise.runs._provenance import has_inputs, may_have_inputs, read_recorded, reading_arguments
from noisewise.runs._record import Record

_INDEX, _IDS = "labels/index.npy", "labels/ids.json"


def numbers_of(record: Record) -> Ints:
    """The number of every example of a run in its source."""
    return _read_integers(record, _INDEX) if exists(record.folder, _INDEX) else np.arange(len(record.given))


def names_of(record: Record) -> list[str]:
    """The id of every example of a run, or its number if it has no id."""
    if not exists(record.folder, _IDS):
        return list(map(str, numbers_of(record).tolist()))
    names, number = read_names(record.folder, _IDS), len(record.given)
    if len(names) != number:
        path = str(Path(record.folder) / _IDS)
        raise InputError(f"The file {path!r} must name {number} examples. Got {len(names)} instead; copy the run folder again.")
    return list(names)


def first_labels(record: Record) -> Ints:
    """The labels that the examples of a run had before any correction."""
    return record.given if read_origin(Path(record.folder)) is None else _read_integers(record, FIRST)


def _read_integers(record: Record, name: str) -> Ints:
    values = read_array(record.folder, name)
    if values.dtype.kind != "i" or values.shape != record.given.shape:
        raise InputError(
            f"The file {str(Path(record.folder) / name)!r} must contain {len(record.given)} integers. "
            f"Got {values.dtype} shaped {values.shape}; copy the run folder again."
        )
    return values.astype(np.int64)


def examples_of(record: Record, data: Any = None, *, places: Any = None) -> Dataset:
    """The examples of a run, with the labels it was trained on. Corrected labels are applied to the examples of the first run.

    Args:
        record: the record of the run.
        data: the data of this run, or of the first run it came from; by default the data their settings name.
        places: the positions in the record of the wanted examples, in any order; by default all.
    """
    origin = read_origin(Path(record.folder))
    try:
        return examples_as_given(record, data, places=places)
    except InputError:
        if origin is None:
            raise
    examples = _matching(record.folder, origin.source, numbers_of(record), first_labels(record), data, places)
    labels = record.given if places is None else record.given[places]
    return replace(examples, labels=torch.from_numpy(np.array(labels)).to(examples.labels.device))


def examples_as_given(record: Record, data: Any = None, *, places: Any = None) -> Dataset:
    """The examples of a run in the order of its record, with the labels it was trained on.

    Args:
        record: the record of the run.
        data: the training data, as `noisewise.data.read` takes them; by default they are read from where the run read them.
        places: the positions in the record of the wanted examples, in any order; by default all.
    """
    return _matching(record.folder, record.settings, numbers_of(record), record.given, data, places)


def held_out_of(record: Record, data: Any = None) -> Dataset:
    """The examples that a run held out for validation, with their given labels. For a run that was trained on uncorrected labels.

    Args:
        record: the record of the run.
        data: the training data, as `noisewise.data.read` takes them; by default they are read from where the run read them.
    """
    numbers = numbers_of(record)
    examples, rows = _checked(record.folder, record.settings, numbers, record.given, data)
    others = torch.ones(len(examples), dtype=torch.bool)
    others[torch.from_numpy(rows)] = False
    return examples.take(others)


def _matching(folder: str | PathLike[str], settings: Mapping[str, Any], numbers: Ints, labels: Ints, data: Any, positions: Any) -> Dataset:
    """The examples with these numbers in their source, after a check. `positions` selects some of the numbers."""
    examples, rows = _checked(folder, settings, numbers, labels, data)
    return examples.take(torch.from_numpy(rows if positions is None else rows[positions])).read_from(examples.source)


def _checked(folder: str | PathLike[str], settings: Mapping[str, Any], numbers: Ints, labels: Ints, data: Any) -> tuple[Dataset, Ints]:
    """The source of a run, and the rows of the examples with these numbers, after a check of their labels and inputs.

    The settings give the noise and its seed, and the data if the provenance does not. A path or name as `data` is read with the options of
    the run.
    """
    advice = "Give what it was trained on with data=…."
    noise = settings.get("noise", "none")
    try:
        provenance = read_provenance(folder)
    except InputError:  # the settings may still name the data
        provenance = {}
    try:
        encoding = read_encoding(folder) if provenance.get("features") else None  # of the columns of a table
        if data is None or isinstance(data, str | PathLike):
            whole = _read_again(provenance, settings, data, encoding)
        else:
            whole = read(data) if encoding is None else read(data).encoded_by(encoding)
        examples = whole if noise == "none" else whole.corrupted(noise, seed=settings.get("seed", 0))
    except (InputError, OSError) as error:
        raise InputError(f"The data of the run in {str(folder)!r} cannot be read: {error} {advice}") from None
    assert examples.index is not None
    rows = rows_of(numbers, examples.index.cpu().numpy())
    # A run from an untrusted source may name any of the user's files as its data. Data that the user did not pass must have exactly the
    # inputs that the run recorded, unless they are an official data set, which is public. A loader may draw other inputs every time.
    recorded = {} if isinstance(data, DataLoader) else provenance.get("data", {}).get("train", {})
    trusted = data is not None or ("inputs" not in recorded and is_official(str((whole.source or {}).get("source"))))
    difference = "some are missing" if rows is None else _difference(examples, torch.from_numpy(rows), labels, recorded, trusted)
    if rows is None or difference is not None:
        raise InputError(f"The data {examples.name!r} are not those of the run in {str(folder)!r}: {difference}. {advice}")
    return examples.read_from(whole.source), rows


def _difference(examples: Dataset, rows: Tensor, labels: Ints, recorded: Mapping[str, Any], trusted: bool) -> str | None:
    """How examples differ from those of a run, or None; inputs that cannot be compared are accepted if they are trusted."""
    if not np.array_equal(examples.labels.cpu()[rows].numpy(), labels):
        return "their labels differ"
    same = may_have_inputs(recorded, examples, rows) if trusted else has_inputs(recorded, examples, rows)
    return None if same else "their inputs differ" if "inputs" in recorded else "the run does not record its inputs"


def _read_again(
    provenance: Mapping[str, Any], settings: Mapping[str, Any], instead: str | PathLike[str] | None, encoding: Encoding | None
) -> Dataset:
    """Read the training data of a run, or other data with the same options."""
    arguments = provenance.get("sources", {}).get("train")
    arguments = (arguments or {"source": settings["data"]}) if instead is None else reading_arguments(instead, arguments)
    return read_recorded(arguments, encoding)


def rows_of(numbers: Ints, index: Ints) -> Ints | None:
    """The position in an index of each number; None if one is missing."""
    order = np.argsort(index)
    rows = order[np.searchsorted(index, numbers, sorter=order).clip(max=len(index) - 1)]
    return rows if np.array_equal(index[rows], numbers) else None
