"""Which runs are on the same data. Different data sets with the same name, such as "arrays", are numbered.

A run may be damaged: what cannot be read of it is left out. This module must not know how runs are compared or shown.
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
    """Of several data sets that are called the same, which one each run is of, counted from 1."""
    sources, numbers = [_Source(record) for record in records], [1] * len(records)
    seen: dict[Any, list[tuple[_Source, int]]] = {}
    for place, source in sorted(enumerate(sources), key=lambda one: one[1].corrections):
        known = seen.setdefault(source.name, [])
        came_from = next((number for other, number in known if source.came_from(other)), None)
        alike = came_from or next((number for other, number in known if source.is_like(other)), None)
        numbers[place] = alike or 1 + max((number for _, number in known), default=0)
        known.append((source, numbers[place]))
    return numbers


@dataclass(frozen=True)
class _Source:
    """What the data of a run are known by; None for what it does not say."""

    record: Record

    def came_from(self, other: _Source) -> bool:
        """Whether its labels are those of another run, corrected."""
        return self._origin is not None and self._origin.before.labels == other._labels

    def is_like(self, other: _Source) -> bool:
        """Whether two runs may be on the same data: they were tested on the same, or have as many examples, where both say so."""
        if self._classes != other._classes:
            return False
        if self._test_set is not None and other._test_set is not None:
            return bool(self._test_set == other._test_set)
        return self._examples is None or other._examples is None or self._examples == other._examples

    @property
    def name(self) -> Any:
        """What they are called; of corrected ones, what they were called before."""
        return {**self.record.settings, **({} if self._origin is None else self._origin.settings)}.get("data")

    @property
    def corrections(self) -> int:
        """How many times its labels were corrected."""
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
        """How many examples they have, those that were held out included."""
        parts = [self._data[name]["examples"] for name in ("train", "validation") if "examples" in (self._data.get(name) or {})]
        return sum(parts) if parts and self._origin is None else None  # a correction may leave some out

    @cached_property
    def _data(self) -> Mapping[str, Any]:
        return (_attempt(lambda: self.record.provenance) or {}).get("data") or {}


def _attempt(read: Callable[[], Value]) -> Value | None:
    """What `read` gives; None if it cannot."""
    try:
        return read()
    except Exception:  # one damaged run must not cost the others
        return None
