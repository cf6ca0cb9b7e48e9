"""A run that is killed or interrupted at any moment goes on, and ends in the same bits as one that never was."""

import contextlib
import json
import os
import random
import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import pytest
from test_fit import clusters, same_bits

from noisewise.train import Run

TRAINED = {
    "model": "mlp(hidden=(64, 64), dropout=0.1)",
    "data": clusters(800, 5),
    "noise": "symmetric(0.3)",
    "loss": "imae(T=8)",
    "epochs": 8,
    "batch_size": 32,
    "seed": 7,
    "device": "cpu",
    "checkpoint_every": 2,
}


class Trainer:
    """Trains in processes that can be killed. They are forked from one that has imported torch already, which saves seconds each."""

    SCRIPT = textwrap.dedent("""
        import os, signal, sys, torch, noisewise
        torch.set_num_threads(1)
        sys.path.insert(0, sys.argv[1])
        from test_killed import TRAINED
        for line in map(str.strip, sys.stdin):
            folder, last, number = line.split("\\t")
            child = os.fork()
            if child == 0:
                def watch(step, steps):
                    if str(step) == last:
                        os.kill(os.getpid(), int(number))
                try:
                    noisewise.fit(folder=folder, watch=watch, **TRAINED)
                except KeyboardInterrupt:
                    os._exit(130)
                os._exit(0)
            print(child, flush=True)
            print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)
    """)

    def __enter__(self):
        command = [sys.executable, "-c", self.SCRIPT, str(Path(__file__).parent)]
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        return self

    def __exit__(self, *error):
        self.process.communicate()

    def start(self, folder: Path, interrupted_after: int | None = None, how: signal.Signals = signal.SIGINT) -> int:
        self.process.stdin.write(f"{folder}\t{interrupted_after}\t{how.value}\n")
        self.process.stdin.flush()
        return int(self.process.stdout.readline())

    def wait(self) -> int:
        return int(self.process.stdout.readline())

    def begin(self, folder: Path) -> int:
        """Start, and wait until the run folder came to be."""
        child = self.start(folder)
        while not (folder / "settings.json").exists():
            time.sleep(0.001)
        return child

    def stop(self, folder: Path, how: signal.Signals, after: float) -> int:
        """Send a signal some seconds after the run folder came to be; return how the run ended."""
        child = self.begin(folder)
        time.sleep(after)
        with contextlib.suppress(ProcessLookupError):
            os.kill(child, how)
        return self.wait()


def kill_and_resume(tmp_path: Path, times: int, seed: int) -> None:
    chance = random.Random(seed)
    with Trainer() as trainer:
        for name in ("warm", "straight"):
            before = time.perf_counter()
            trainer.start(tmp_path / name)
            assert trainer.wait() == 0
        length = time.perf_counter() - before
        killed = 0
        for number in range(times):
            folder = tmp_path / f"killed-{number}"
            killed += trainer.stop(folder, signal.SIGKILL, chance.uniform(0, 0.7 * length)) != 0
            trainer.start(folder)
            assert trainer.wait() == 0
            same_bits(tmp_path / "straight", folder)
            assert not list(folder.rglob("*.part"))
    assert killed > times / 3, "too few kills arrived in time to show anything"


def test_killed_at_random_moments_and_resumed_a_run_ends_in_the_same_bits(tmp_path):
    kill_and_resume(tmp_path, times=20, seed=0)


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
            trainer.start(tmp_path / how.name, interrupted_after=60, how=how)
            assert trainer.wait() == end
            assert Run(tmp_path / how.name).state == "interrupted"
            assert json.loads((tmp_path / how.name / "status.json").read_text())["reason"].endswith(("the user", how.name))
        for name in ("straight", *(how.name for how in ends)):
            trainer.start(tmp_path / name)
            assert trainer.wait() == 0
    for how in ends:
        same_bits(tmp_path / "straight", tmp_path / how.name)
