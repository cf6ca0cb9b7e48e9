"""A run that is killed or interrupted at any moment goes on, and ends in the same bits as one that never was."""

import json
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
    kill_and_resume(tmp_path, times=4, seed=0)


@pytest.mark.slow
def test_killed_two_hundred_times_it_ends_in_the_same_bits(tmp_path):
    kill_and_resume(tmp_path, times=200, seed=1)


def test_an_interrupt_leaves_a_run_that_goes_on(tmp_path):
    ends = {
        signal.SIGINT: 130,
        signal.SIGTERM: -signal.SIGTERM,
        signal.SIGHUP: -signal.SIGHUP,
    }  # the last two as if nobody had handled them
    with Trainer() as trainer:
        for how, end in ends.items():
            assert trainer.train(tmp_path / how.name, step=60, send=how).code == end
            assert Run(tmp_path / how.name).state == "interrupted"
            assert json.loads((tmp_path / how.name / "status.json").read_text())["reason"].endswith(("the user", how.name))
        for name in ("straight", *(how.name for how in ends)):
            assert trainer.train(tmp_path / name).code == 0
    for how in ends:
        same_bits(tmp_path / "straight", tmp_path / how.name)
