"""Which runs are on the same data. Different data sets with the same name, such as "arrays", are numbered.

A run may be damaged: files that cannot be read are ignored.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, TypeVar

from noisewise.runs._lineage import Origin, label_digest, read_origin
from noisewise.runs._record import Record

Value = TypeVar("Value")


def data_set_numbers(records: Sequence[Record]) -> list[int]:
    """For each run, the number of its data set among the data sets of the same name, from 1."""
    sources, numbers = [_Source(record) for record in records], [1] * len(records)
    seen: dict[Any, list[tuple[_Source, int]]] = {}
    for position, source in sorted(enumerate(sources), key=lambda numbered: numbered[1].corrections):
        known = seen.setdefault(source.name, [])
        came_from = next((number for other, number in known if source.came_from(other)), None)
        alike = came_from or next((number for other, number in known if source.is_like(other)), None)
        numbers[position] = alike or 1 + max((number for _, number in known), default=0)
        known.append((source, numbers[position]))
    return numbers


@dataclass(frozen=True)
class _Source:
    """What identifies the data of a run; None for what is not recorded."""

    record: Record

    def came_from(self, other: _Source) -> bool:
        """Whether its labels are the corrected labels of another run."""
        return self._origin is not None and self._origin.before.labels == other._labels

    def is_like(self, other: _Source) -> bool:
        """Whether two runs may be on the same data: the same classes, and the same test set or number of examples if both are recorded."""
        if self._classes != other._classes:
            return False
        if self._test_set is not None and other._test_set is not None:
            return bool(self._test_set == other._test_set)
        return self._examples is None or other._examples is None or self._examples == other._examples

    @property
    def name(self) -> Any:
        """The name of the data; for corrected data, the name before the correction."""
        return {**self.record.settings, **({} if self._origin is None else self._origin.settings)}.get("data")

    @property
    def corrections(self) -> int:
        """How often the labels were corrected."""
        return 0 if self._origin is None else len(self._origin.steps)

    @cached_property
    def _origin(self) -> Origin | None:
        return _attempt(lambda: read_origin(Path(self.record.folder)))

    @cached_property
    def _labels(self) -> str | None:
        return _attempt(lambda: label_digest(self.record.given))

    @cached_property
    def _classes(self) -> tuple[str, ...]:
        return _attempt(lambda: tuple(map(str, self.record.classes))) or ()

    @cached_property
    def _test_set(self) -> Any:
        test = self._data.get("test") or {}
        return (test.get("sizes", test["inputs"]), test.get("labels")) if "inputs" in test else None

    @cached_property
    def _examples(self) -> int | None:
        """The number of examples, held-out ones included."""
        parts = [self._data[name]["examples"] for name in ("train", "validation") if "examples" in (self._data.get(name) or {})]
        return sum(parts) if parts and self._origin is None else None  # a correction may leave some out

    @cached_property
    def _data(self) -> Mapping[str, Any]:
        return (_attempt(lambda: self.record.provenance) or {}).get("data") or {}


def _attempt(read: Callable[[], Value]) -> Value | None:
    """The result of `read`, or None if it fails."""
    try:
        return read()
    except Exception:
        return None
