"""Sentences about data with thousands of classes or columns are still sentences: they name a few, and say how many there are."""

from __future__ import annotations

import pickle
import re
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

MANY = tuple(f"SKU{7 * number + 13:06d}" for number in range(5000))
FIRST = ", ".join(MANY[:20])
NUMBERS = tuple(str(7 * number + 13) for number in range(5000))
LABELS = torch.arange(5000)


def _wide(*, of: str) -> Dataset:
    return Dataset(torch.zeros(2, 5000), torch.tensor([0, 1]), ("a", "b"), features=tuple(f"{of}{name}" for name in MANY), name="wide")


def _table(folder: Path) -> Path:
    (folder / "wide.csv").write_text("\n".join([",".join(MANY), ",".join("1" for _ in MANY)]))
    return folder / "wide.csv"


@pytest.mark.parametrize(
    ("sentence", "call"),
    [
        (
            f"no column of wide.csv named 'diagnosis'. Known: {FIRST}, … (5,000 in all).",
            lambda f: from_table(_table(f), label="diagnosis"),
        ),
        (f"named 'apple'. Known: {FIRST}, … (5,000 in all).", lambda _: corrupt(LABELS, "class_map(1, {'apple': 'pear'})", classes=MANY)),
        ("other numbers (13, 20, 27,", lambda _: corrupt(LABELS, "class_map(1, {13: 20})", classes=NUMBERS)),
        ("(a list of 1,999 entries) instead.", lambda _: find_label_issues([0], np.full((1, 2000), 1 / 2000), classes=MANY[:1999])),
        (
            "(a list of 2,000 entries) instead.",
            lambda _: find_label_issues([0], np.full((1, 2000), 1 / 2000), classes=[*MANY[:1999], MANY[0]]),
        ),
        (
            "(a tuple of 5,001 entries) instead.",
            lambda _: from_arrays(torch.zeros(2, 1), MANY[:2], classes=[*MANY, MANY[1]]),
        ),
        ("has no column 'xSKU000013', ", lambda _: read_both(_wide(of="x"), _wide(of="y"))),
        ("'new' that is not in the training set, which has SKU000013,", lambda _: _tested_on_a_new_class()),
        ("Got ('SKU000013', ", lambda f: Correction.read(_table(f), ["a", "b"])),
    ],
)
def test_a_sentence_about_many_names_lists_a_few(sentence: str, call: Callable[[Path], Any], tmp_path: Path) -> None:
    with pytest.raises(InputError, match=re.escape(sentence)) as caught:
        call(tmp_path)
    assert len(str(caught.value)) < 1000
    assert "in all)" in str(caught.value) or "entries" in str(caught.value)


def _tested_on_a_new_class() -> None:
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
    ("call", "said"),
    [
        (lambda: noisewise.get("gce", q=_LONG), "0.5,… (a list of 100,000 entries) instead."),
        (lambda: noisewise.get("ce", weight=str(_LONG)), "… (a str, 500,002 characters) instead."),
        (lambda: noisewise.get("x" * 100_000), "… (a str, 100,002 characters). Known: "),
        (lambda: noisewise.fit("mlp", "digits", epochs=_LONG), "… (a list of 100,000 entries) instead."),
        (lambda: noisewise.fit("mlp", "digits", epochs=1, device="x" * 5000), "… (a str, 5,002 characters) instead."),
    ],
)
def test_what_was_given_is_shown_in_short(call: Callable[[], Any], said: str) -> None:
    with pytest.raises(InputError) as error:
        call()
    assert said in str(error.value) and len(str(error.value)) < 1000


def test_a_matrix_that_was_given_is_shown_whole() -> None:
    """As torch and numpy print it, which shorten large ones themselves, but in one line."""
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


def test_diverged_training_has_its_own_exit_code(tmp_path: Path) -> None:
    asked = ["train", "--data", "digits", "--model", "linear", "--epochs", "1", "--loss", "1e38*ce", "-o", str(tmp_path / "run")]
    failed = CliRunner().invoke(app, asked)
    assert failed.exit_code == DivergedError.exit_code and "not finite" in failed.stderr and "Traceback" not in failed.stderr
