"""A run that is killed or interrupted at any moment resumes, and ends in the same bits as a run that was not."""

import json
import random
import signal
from pathlib import Path

import pytest
from killable_training import KillableTraining
from small_runs import same_bits

from noisewise.train import Run


def kill_and_resume(killable: KillableTraining, uninterrupted: tuple[Path, float], tmp_path: Path, times: int, seed: int) -> None:
    generator, (expected, seconds), killed = random.Random(seed), uninterrupted, 0
    for number in range(times):
        folder = tmp_path / f"killed-{number}"
        killed += killable.train(folder, seconds=generator.uniform(0.001, seconds)).code == -signal.SIGPROF
        assert killable.train(folder).code == 0
        same_bits(expected, folder)
        assert not list(folder.rglob("*.part"))
    assert killed >= times / 3, "too few runs were killed before their end for this to be a test"


def test_a_run_killed_at_random_moments_ends_in_the_same_bits(killable, uninterrupted, tmp_path):
    kill_and_resume(killable, uninterrupted, tmp_path, times=3, seed=0)


@pytest.mark.slow
def test_two_hundred_killed_runs_end_in_the_same_bits(killable, uninterrupted, tmp_path):
    kill_and_resume(killable, uninterrupted, tmp_path, times=200, seed=1)


@pytest.mark.parametrize(
    ("number", "code"),
    [(signal.SIGINT, 130), (signal.SIGTERM, -signal.SIGTERM), (signal.SIGHUP, -signal.SIGHUP)],  # the last two as if nobody handled them
)
def test_an_interrupted_run_resumes(killable, uninterrupted, tmp_path, number, code):
    folder = tmp_path / "run"
    assert killable.train(folder, step=60, send=number).code == code
    assert Run(folder).state == "interrupted"
    assert json.loads((folder / "status.json").read_text())["reason"].endswith(("the user", number.name))
    assert killable.train(folder).code == 0
    same_bits(uninterrupted[0], folder)
