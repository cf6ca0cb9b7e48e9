"""Names that count how often they are compared, for tests of what must not compare each with all."""

from __future__ import annotations


class Compared(str):
    """A name that counts how often it is compared with another."""

    times = 0

    def __str__(self) -> str:
        return self

    def __eq__(self, other: object) -> bool:
        Compared.times += 1
        return str.__eq__(self, other)

    __hash__ = str.__hash__
