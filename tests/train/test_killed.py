"""A run that is killed or interrupted at any moment goes on, and ends in the same bits as one that never was."""

import random
import signal
from pathlib import Path

import pytest
from test_fit import same_bits
from trainer import Trainer

from noisewise.train import Run


def kill_and_resume(tmp_path: Path, times: int, seed: int) -> None:
    chance = random.Random(seed)
    with Trainer() as trainer:
        for name in ("warm", "straight"):
            whole = trainer.train(tmp_path / name)
            assert whole.code == 0
        killed = 0
        for number in range(times):
            folder = tmp_path / f"killed-{number}"
            killed += trainer.train(folder, seconds=chance.uniform(0.001, whole.seconds)).code == -signal.SIGPROF
            assert trainer.train(folder).code == 0
            same_bits(tmp_path / "straight", folder)
            assert not list(folder.rglob("*.part"))
    assert killed > times / 3, "too few kills arrived in time to show anything"


def test_killed_at_random_moments_and_resumed_a_run_ends_in_the_same_bits(tmp_path):
    kill_and_resume(tmp_path, times=8, seed=0)


@pytest.mark.slow
def test_killed_two_hundred_times_it_ends_in_the_same_bits(tmp_path):
    kill_and_resume(tmp_path, times=200, seed=1)


def test_an_interrupt_leaves_a_run_that_goes_on(tmp_path):
    with Trainer() as trainer:
        assert trainer.train(tmp_path / "run", step=60).code == 130
        assert Run(tmp_path / "run").state == "interrupted"
        for name in ("run", "straight"):
            assert trainer.train(tmp_path / name).code == 0
    same_bits(tmp_path / "straight", tmp_path / "run")
