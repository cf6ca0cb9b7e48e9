"""Small files in the layouts of the data sets, where the package looks for them."""

from __future__ import annotations

from pathlib import Path

import pytest
from layouts import write_all


@pytest.fixture(scope="session")
def written_data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("data")
    write_all(root)
    return root


@pytest.fixture
def small_data(written_data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NOISEWISE_DATA", str(written_data))
