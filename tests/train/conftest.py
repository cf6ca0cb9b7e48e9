"""Fixtures of the tests of training."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from killable_training import KillableTraining


@pytest.fixture(scope="session")
def killable() -> Iterator[KillableTraining]:
    """A training that can be killed."""
    with KillableTraining() as training:
        yield training


@pytest.fixture(scope="session")
def uninterrupted(killable: KillableTraining, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, float]:
    """A run that was not interrupted, and the processor time it took. The first run of the process takes longer, so it is not used."""
    folder = tmp_path_factory.mktemp("runs")
    for name in ("first", "second"):
        ended = killable.train(folder / name)
        assert ended.code == 0
    return folder / "second", ended.seconds
