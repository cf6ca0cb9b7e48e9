"""Which runs are on the same data. Different data sets with the same name, such as "arrays", are numbered.

A run may be damaged: what cannot be read of it is ignored.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from noisewise.runs._lineage import read_origin
from noisewise.runs._record import Record

Value = TypeVar("Value")


def data_set_numbers(records: Sequence[Record]) -> list[int]:
    """For each run, the number of its data set among the data sets of the same name, from 1."""
    sources, numbers = [_source(record) for record in records], [1] * len(records)
    known: dict[Any, list[tuple[_Source, int]]] = {}
    for position, source in enumerate(sources):
        namesakes = known.setdefault(source.name, [])
        same = [number for other, number in namesakes if source.may_be(other)]
        numbers[position] = same[0] if same else 1 + max((number for _, number in namesakes), default=0)
        namesakes.append((source, numbers[position]))
    return numbers


class _Source(NamedTuple):
    """What identifies the data of a run; None if the run does not say.

    Args:
        name: the name of the data, before any correction.
        classes: the names of the classes.
        test: the digests of the test set.
        examples: the number of training and validation examples; a correction may drop some.
    """

    name: Any
    classes: tuple[str, ...] | None
    test: tuple[Any, Any] | None
    examples: int | None

    def may_be(self, other: _Source) -> bool:
        """Whether nothing says that two runs are on different data."""
        if self.test is not None and other.test is not None:
            return self.classes == other.classes and self.test == other.test
        return self.classes == other.classes and (None in (self.examples, other.examples) or self.examples == other.examples)


def _source(record: Record) -> _Source:
    origin = _attempt(lambda: read_origin(Path(record.folder)))
    data = (_attempt(lambda: record.provenance) or {}).get("data") or {}
    test = data.get("test") or {}
    parts = [data[name]["examples"] for name in ("train", "validation") if "examples" in (data.get(name) or {})]
    return _Source(
        name={**record.settings, **({} if origin is None else origin.settings)}.get("data"),
        classes=_attempt(lambda: record.classes),
        test=(test.get("sizes", test["inputs"]), test.get("labels")) if "inputs" in test else None,
        examples=sum(parts) if parts and origin is None else None,
    )


def _attempt(read: Callable[[], Value]) -> Value | None:
    try:
        return read()
    except Exception:  # a damaged run must not affect the others
        return None
