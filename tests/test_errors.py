"""Error messages: one line that is safe to print, short even for thousands of names, and one exit code for each kind."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from typer.testing import CliRunner

import noisewise
from noisewise.audit import find_label_issues
from noisewise.cli import app
from noisewise.correct import Correction
from noisewise.data import Dataset, from_arrays, from_table
from noisewise.errors import (
    DivergedError,
    InputError,
    NoisewiseError,
    StorageError,
    WorkerLostError,
    invalid_parameter,
    listed,
    shown,
    unknown,
)
from noisewise.noise import corrupt
from noisewise.train._request import read_both
from refused import refused

MANY = tuple(f"SKU{7 * number + 13:06d}" for number in range(5000))
FIRST = ", ".join(MANY[:20])
NUMBERS = tuple(str(7 * number + 13) for number in range(5000))
LABELS = torch.arange(5000)


def _wide(*, prefix: str) -> Dataset:
    features = tuple(f"{prefix}{name}" for name in MANY)
    return Dataset(torch.zeros(2, 5000), torch.tensor([0, 1]), ("a", "b"), features=features, name="wide")


def _table(folder: Path) -> Path:
    (folder / "wide.csv").write_text("\n".join([",".join(MANY), ",".join("1" for _ in MANY)]))
    return folder / "wide.csv"


@pytest.mark.parametrize(
    ("call", "mentions"),
    [
        (lambda f: from_table(_table(f), label="diagnosis"), ("wide.csv", "'diagnosis'", f"{FIRST}, … (5,000 in all)")),
        (lambda _: corrupt(LABELS, "class_map(1, {'apple': 'pear'})", classes=MANY), ("'apple'", f"{FIRST}, … (5,000 in all)")),
        (lambda _: corrupt(LABELS, "class_map(1, {13: 20})", classes=NUMBERS), ("13, 20, 27,",)),
        (lambda _: find_label_issues([0], np.full((1, 2000), 1 / 2000), classes=MANY[:1999]), ("1,999 entries",)),
        (lambda _: find_label_issues([0], np.full((1, 2000), 1 / 2000), classes=[*MANY[:1999], MANY[0]]), ("2,000 entries",)),
        (lambda _: from_arrays(torch.zeros(2, 1), MANY[:2], classes=[*MANY, MANY[1]]), ("5,001 entries",)),
        (lambda _: read_both(_wide(prefix="x"), _wide(prefix="y")), ("'xSKU000013'",)),
        (lambda _: _test_on_a_new_class(), ("'new'", "SKU000013,")),
        (lambda f: Correction.read(_table(f), ["a", "b"]), ("'SKU000013', ",)),
    ],
)
def test_an_error_about_many_names_lists_a_few(call: Callable[[Path], Any], mentions: tuple[str, ...], tmp_path: Path) -> None:
    with refused(*mentions) as caught:
        call(tmp_path)
    assert len(str(caught.value)) < 1000
    assert "in all)" in str(caught.value) or "entries" in str(caught.value)


def _test_on_a_new_class() -> None:
    inputs, labels = torch.zeros(2, 1), torch.tensor([0, 1])
    read_both(Dataset(inputs, labels, MANY), Dataset(inputs, labels, ("new", MANY[0])))


def test_a_correction_that_empties_many_classes_names_a_few() -> None:
    given = LABELS.numpy()
    gone = Correction(given, MANY, given, np.zeros_like(given), np.ones(5000), np.ones(5000, dtype=bool), MANY, "relabel")
    assert repr(gone).endswith("'SKU000153', … (4,999 in all))") and len(repr(gone)) < 1000


def test_a_few_names_are_all_listed() -> None:
    assert listed(MANY[:50]) == ", ".join(MANY[:50])
    assert str(unknown("loss", "?", MANY[:3])) == "There is no loss named '?'. Known: SKU000013, SKU000020, SKU000027."


_LONG = [0.5] * 100_000


@pytest.mark.parametrize(
    ("call", "value"),
    [
        (lambda: noisewise.get("gce", q=_LONG), "0.5,… (a list of 100,000 entries)"),
        (lambda: noisewise.get("ce", weight=str(_LONG)), "… (a str, 500,002 characters)"),
        (lambda: noisewise.get("x" * 100_000), "… (a str, 100,002 characters)"),
        (lambda: noisewise.fit("mlp", "digits", epochs=_LONG), "… (a list of 100,000 entries)"),
        (lambda: noisewise.fit("mlp", "digits", epochs=1, device="x" * 5000), "… (a str, 5,002 characters)"),
    ],
)
def test_a_long_value_is_shortened(call: Callable[[], Any], value: str) -> None:
    with refused(value) as caught:
        call()
    assert len(str(caught.value)) < 1000


def test_a_matrix_is_shown_as_torch_and_numpy_print_it_but_in_one_line() -> None:
    for given in (torch.zeros(3, 3), np.zeros((2, 2))):
        assert f"Got {' '.join(repr(given).split())} instead." in str(invalid_parameter("T", "Forward", "a matrix", given))


def test_an_error_is_one_line_that_is_safe_to_print() -> None:
    error = InputError("There is no class named cat\x1b[2J\x9b31m\u202egod.\nGive another\u2028one. Straße, 猫, می‌خواهم stay.")
    assert str(error) == "There is no class named cat\\x1b[2J\\x9b31m\\u202egod. Give another one. Straße, 猫, می‌خواهم stay."
    assert str(pickle.loads(pickle.dumps(error))) == str(error)
    assert shown(10**5000) == "a value of type int that is too long to show"


def test_every_kind_of_error_has_its_own_exit_code() -> None:
    kinds = (NoisewiseError, InputError, DivergedError, StorageError, WorkerLostError)
    assert [kind.exit_code for kind in kinds] == [1, 2, 3, 4, 5]
    assert all(issubclass(kind, NoisewiseError) for kind in kinds)


def test_the_command_exits_with_the_code_of_the_error(tmp_path: Path) -> None:
    options = ["--data", "digits", "--model", "linear", "--epochs", "1", "--loss", "1e38*ce", "-o", str(tmp_path / "run")]
    failed = CliRunner().invoke(app, ["train", *options])
    assert failed.exit_code == DivergedError.exit_code and "finite" in failed.stderr and "Traceback" not in failed.stderr
