"""Tests on the real data sets: they run where the folder named by NOISEWISE_DATA holds them, and say what it lacks where not."""

from __future__ import annotations

import os

import pytest

from noisewise.data import describe


def real(*names: str) -> pytest.MarkDecorator:
    root = os.environ.get("NOISEWISE_DATA")
    absent = [name for name in names if root is None or not describe(name, root).present]
    return pytest.mark.skipif(bool(absent), reason=f"NOISEWISE_DATA has no {', '.join(absent)}")
