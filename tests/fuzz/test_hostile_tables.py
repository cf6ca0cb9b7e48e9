"""A hundred hostile tables: each is read, or refused in one sentence. Nothing else may happen: no other error, no warning but ours."""

from __future__ import annotations

import random
import string
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fuzzing import confined, mutated
from noisewise.data import Dataset, read
from noisewise.errors import InputError, NoisewiseWarning

ROWS = 12
_GOOD = "age,city,joined,note,label\n" + "".join(
    f"{20 + row},{'Bern' if row % 3 else 'Genf'},2024-0{1 + row % 9}-11,a note of row {row},{'yes' if row % 2 else 'no'}\n"
    for row in range(ROWS)
)


def _column(cells: list[str], name: str = "x", separator: str = ",") -> bytes:
    """A table of one column of cells, and labels."""
    quoted = ('"' + cell.replace('"', '""') + '"' for cell in cells)
    return "\n".join([f"{name}{separator}label", *(f"{cell}{separator}{'ab'[row % 2]}" for row, cell in enumerate(quoted))]).encode()


def _repeated(*cells: str) -> bytes:
    return _column([cells[row % len(cells)] for row in range(ROWS)])


def _files() -> Iterator[tuple[str, bytes]]:
    """Files by a name that says what is wrong with them."""
    good = _GOOD.encode()
    yield "empty", b""
    yield "only spaces", b"   \n \n"
    yield "only a line end", b"\n"
    yield "only a header", b"age,label\n"
    yield "only a byte order mark", b"\xef\xbb\xbf"
    yield "byte order mark", b"\xef\xbb\xbf" + good
    yield "byte order mark twice", b"\xef\xbb\xbf\xef\xbb\xbf" + good
    yield "UTF-16 little", _GOOD.encode("utf-16")
    yield "UTF-16 big", b"\xfe\xff" + _GOOD.encode("utf-16-be")
    yield "UTF-16 without mark", _GOOD.encode("utf-16-le")
    yield "UTF-16 cut", _GOOD.encode("utf-16")[:-1]
    yield "UTF-32", _GOOD.encode("utf-32")
    yield "latin-1", _GOOD.replace("Bern", "Zürich").encode("latin-1")
    yield "late latin-1", good + "40,Zürich,2024-01-01,x,yes\n".encode("latin-1")
    yield "binary", bytes(range(256)) * 20
    yield "a picture", b"\x89PNG\r\n\x1a\n" + bytes(range(64))
    yield "NUL bytes", good.replace(b"Bern", b"Be\0rn")
    yield "only NUL bytes", b"\0" * 1000
    yield "NUL in the header", good.replace(b"age", b"a\0ge")
    yield "Windows line ends", good.replace(b"\n", b"\r\n")
    yield "old Mac line ends", good.replace(b"\n", b"\r")
    yield "mixed line ends", good.replace(b"\n", b"\r\n", 3)
    yield "no last line end", good.rstrip()
    yield "blank lines", good.replace(b"\n", b"\n\n")
    yield "unclosed quote", good.replace(b"Bern", b'"Bern', 1)
    yield "quote in a cell", good.replace(b"Bern", b'Be"rn', 1)
    yield "doubled quotes", good.replace(b"Bern", b'"Be""rn"')
    yield "text after a quote", good.replace(b"Bern", b'"Be"rn')
    yield "line break in a cell", good.replace(b"Bern", b'"Be\nrn"')
    yield "single quotes", good.replace(b"Bern", b"'Bern'")
    yield "a row too short", good + b"40,Bern\n"
    yield "a row too long", good + b"40,Bern,2024-01-01,x,yes,more\n"
    yield "a separator at the end of rows", good.replace(b"\n", b",\n")
    yield "a separator at the end of the rows only", good.replace(b"\n", b",\n").replace(b"label,", b"label", 1)
    yield "comment before the header", b"# exported today\n" + good
    yield "two headers", good.split(b"\n")[0] + b"\n" + good
    yield "a sum below", good + b"total,,,,\n"
    yield "no header", good.split(b"\n", 1)[1]
    yield "duplicate names", good.replace(b"city", b"age")
    yield "duplicate labels", good.replace(b"city", b"label")
    yield "names of spaces", good.replace(b"city", b"  ")
    yield "names without a name", good.replace(b"age,city", b",")
    yield "huge name", good.replace(b"age", b"a" * 200_000)
    yield "name with a line break", good.replace(b"age", b'"a\nge"')
    yield "name that controls a terminal", good.replace(b"age", b"\x1b[2Jage")
    yield "name that is a formula", good.replace(b"age", b"=1+1")
    yield "huge cell", good.replace(b"Genf", b"G" * 100_000, 1)
    yield "cell above the limit", good.replace(b"Genf", b"G" * 200_000, 1)
    yield "huge word", _column(["w" * 50_000 + f" and {row} more words" for row in range(ROWS)])
    yield "semicolons", good.replace(b",", b";")
    yield "tabs", good.replace(b",", b"\t")
    yield "bars", good.replace(b",", b"|")
    yield "spaces", good.replace(b",", b" ")
    yield "semicolons with decimal commas", _column([f"{row},5" for row in range(ROWS)], separator=";")
    yield "thousands and decimal commas", _column([f"{row + 1}.000,5" for row in range(ROWS)], separator=";")
    yield "decimal commas and points", _column([f"{row}{'.,'[row % 2]}5" for row in range(ROWS)], separator=";")
    yield "decimal commas in quotes", _column([f"{row},25" for row in range(ROWS)])
    yield "thousands", _column([f"{row + 1},234.5" for row in range(ROWS)])
    yield "one separator only", b"," * 50 + b"\n" + b"," * 50
    yield "empty label", good.replace(b",yes\n", b",\n")
    yield "all labels empty", good.replace(b",yes\n", b",\n").replace(b",no\n", b",\n")
    yield "one class", good.replace(b",yes\n", b",no\n")
    yield "a class per row", _GOOD.replace("yes", "{}").format(*range(ROWS)).encode()
    yield "labels that are fractions", good.replace(b"yes", b"0.5").replace(b",no", b",1")
    yield "labels that look alike", good.replace(b",yes", b",No")
    for name, cells in {
        "all gaps": [""],
        "gaps of spaces": ["  ", "\t"],
        "words for gaps": ["NA", "n/a", "null", "?", "-", "None"],
        "infinite": ["inf", "-inf", "nan"],
        "huge numbers": ["1e308", "-1e308", "1e-320"],
        "numbers too large": ["1e400", "2"],
        "numbers of many digits": ["9" * 5000, "1"],
        "numbers with underscores": ["1_000", "2_0"],
        "other digits": ["١٢", "３", "4"],
        "one number": ["5"],
        "numbers and a word": ["1", "2", "3", "4", "old"],
        "numbers and words": ["1", "b", "3", "d"],
        "prices": ["$1,200.50", "$3", "$ 12"],
        "prices in two currencies": ["$12", "€5"],
        "percentages": ["12%", "7.5 %"],
        "hexadecimal": ["0xff", "0x1f"],
        "leading zeros": ["007", "0123"],
        "plus signs": ["+5", "-3"],
        "truths": ["TRUE", "false", ""],
        "truths and a word": ["true", "false", "rather"],
        "ISO dates": ["2024-02-29", "2023-12-31T23:59:59Z", "2024-01-01T00:00:00+14:00"],
        "German dates": ["31.12.2023", "1.1.2024 13:45", ""],
        "American dates": ["12/31/2023", "1/2/2024 1:45 PM"],
        "dates of two orders": ["31/12/2023", "12/31/2023"],
        "dates at the ends of time": ["0001-01-01", "9999-12-31", "0001-01-01T00:00:00+14:00"],
        "impossible dates": ["2023-02-30", "2023-13-01", "2023-00-00"],
        "words for dates": ["today", "tomorrow at 5"],
        "times": ["12:30", "23:59:59"],
        "lists": ["[1, 2]", "[3]"],
        "objects": ['{"a": 1}', "{}"],
        "markup": ["<script>alert(1)</script>", "<b>x</b>"],
        "formulas": ["=1+1", "@SUM(A1)"],
        "text that controls a terminal": ["\x1b[2Jx", "\u202egnp"],
        "emoji": ["🙂🙃 so good", "👍 yes", ""],
        "Chinese text": ["今天天气很好我们去公园", "这个产品质量非常差"],
        "combining accents": ["e\u0301te\u0301", "été"],
        "text of signs": ["!!! ??? ...", "--- *** +++"],
        "zero-width text": ["\u200b", "\u200b\u200b"],
        "texts": ["a rather long text about nothing much", "another long text that says a few words", "third text, of some words"],
    }.items():
        yield name, _repeated(*cells)
    yield "ids", _column([f"{row:08x}-aa" for row in range(ROWS)])
    yield "long text in every row", _column([f"text number {row} says something " * 50 for row in range(ROWS)])
    yield "10,000 columns of numbers", _wide(["1.5", "2", ""])
    yield "2,000 columns of words", _wide(["red", "blue", "x y"], 2000)
    yield "10,000 names and no rows", ",".join(map(str, range(10_000))).encode()
    for seed in range(5):
        yield f"mutated {seed}", mutated(good, random.Random(seed))


def _wide(cells: list[str], columns: int = 10_000) -> bytes:
    rows = [",".join(cells[(row + place) % len(cells)] for place in range(columns)) + f",{row % 2}" for row in range(4)]
    return "\n".join([",".join([*(f"c{place}" for place in range(columns)), "label"]), *rows]).encode()


FILES = dict(_files())


def test_there_are_a_hundred() -> None:
    assert len(FILES) >= 100


@pytest.mark.parametrize("name", FILES)
def test_a_hostile_file_is_read_or_refused_in_one_sentence(name: str, tmp_path: Path) -> None:
    path = tmp_path / "hostile.csv"
    path.write_bytes(FILES[name])
    _check(path, tmp_path)


def _check(source: Any, folder: Path, **options: Any) -> Dataset | None:
    """Read a table, and the inputs again with the encoding it was read with; or refuse it in one sentence."""
    with confined(folder), warnings.catch_warnings():
        warnings.simplefilter("ignore", NoisewiseWarning)
        try:
            data = read(source, **options)
        except InputError as error:
            assert "\n" not in str(error) and "\x1b" not in str(error) and str(error)[-1] in ".?!)", str(error)[:500]
            assert len(str(error)) < 2000, "a sentence is short"
            return None
        again = read(source, **options, encoding=data.encoding)
    assert data.inputs.isfinite().all() and data.inputs.equal(again.inputs)
    assert data.encoding is not None and data.encoding.names == data.features
    return data


@pytest.mark.parametrize(
    ("name", "features"),
    [
        ("semicolons with decimal commas", ("x",)),
        ("thousands and decimal commas", ("x",)),
        ("thousands", ("x",)),
        ("prices", ("x",)),
        ("percentages", ("x",)),
        ("UTF-16 little", ("age", "city = Bern", "city = Genf", "joined", "joined month", "joined weekday")),
        ("truths", ("x", "x is a gap")),
        ("numbers and a word", ("x", "x is a gap")),
        ("German dates", ("x", "x is a gap", "x month", "x weekday", "x hour")),
        ("American dates", ("x", "x month", "x weekday", "x hour")),
    ],
)
def test_what_people_write_is_read(name: str, features: tuple[str, ...], tmp_path: Path) -> None:
    path = tmp_path / "table.csv"
    path.write_bytes(FILES[name])
    names = read(path).features
    assert names is not None and names[: len(features)] == features


@pytest.mark.parametrize("seed", range(10))
def test_a_frame_of_any_objects_is_read_or_refused_in_one_sentence(seed: int, tmp_path: Path) -> None:
    pandas = pytest.importorskip("pandas")
    random_rows = np.random.default_rng(seed)
    pool = [None, np.nan, pandas.NA, pandas.NaT, 1, 2.5, True, "text", b"bytes", "", 10**400, complex(1, 2), pandas.Timestamp("2024-01-01")]
    pool += [pandas.Timestamp("2024-01-01", tz="Asia/Tokyo"), pandas.Timedelta("1h"), pandas.Period("2024-01"), "\ud800", object, [1], {}]
    few = [pool[place] for place in random_rows.choice(len(pool), 4)]
    frame = {name: [few[place] for place in random_rows.integers(0, len(few), ROWS)] for name in string.ascii_letters[:5]}
    _check(pandas.DataFrame(frame | {"label": list("ab") * (ROWS // 2)}), tmp_path)
