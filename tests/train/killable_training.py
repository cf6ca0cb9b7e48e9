"""A training that a signal can end at any moment."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import textwrap
from dataclasses import dataclass
from pathlib import Path

from small_runs import clusters

TRAINED = {
    "model": "mlp(hidden=(64, 64), dropout=0.1)",
    "data": clusters(800, 5),
    "noise": "symmetric(0.3)",
    "loss": "imae(T=8)",
    "epochs": 6,
    "batch_size": 32,
    "seed": 7,
    "device": "cpu",
    "checkpoint_every": 2,
}
"""What is trained: 25 steps in each epoch."""


@dataclass(frozen=True)
class Ended:
    """How a training ended or was stopped: its process, its exit code (minus a signal) and the processor time it took."""

    process: int
    code: int
    seconds: float


class KillableTraining:
    """Trains in processes that can be killed. They are forked from a process that has imported torch, which saves seconds each."""

    SCRIPT = textwrap.dedent("""
        import json, os, signal, sys, torch, torch.fx.experimental.symbolic_shapes, noisewise.train
        torch.set_num_threads(1)
        os.fsync = lambda descriptor: None  # nothing here cuts the power
        signal.signal(signal.SIGHUP, signal.SIG_DFL)  # nohup ignores it
        sys.path.insert(0, sys.argv[1])
        from killable_training import TRAINED
        for line in sys.stdin:
            folder, seconds, last_step, number = json.loads(line)
            child = os.fork()
            if child == 0:
                def watch(step, steps):
                    if step == last_step:
                        os.kill(os.getpid(), number)
                signal.setitimer(signal.ITIMER_PROF, seconds)  # nothing handles its signal, so it kills
                try:
                    noisewise.fit(folder=folder, watch=watch, **TRAINED)
                except KeyboardInterrupt:
                    os._exit(130)
                os._exit(0)
            for options in (os.WUNTRACED, 0):
                _, status, usage = os.wait4(child, options)
                stopped = os.WIFSTOPPED(status)
                code = -os.WSTOPSIG(status) if stopped else os.waitstatus_to_exitcode(status)
                print(json.dumps([child, code, usage.ru_utime + usage.ru_stime]), flush=True)
                if not stopped:
                    break
    """)

    def __enter__(self) -> KillableTraining:
        command = [sys.executable, "-c", self.SCRIPT, str(Path(__file__).parent)]
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        return self

    def __exit__(self, *error: object) -> None:
        self.process.communicate()

    def train(self, folder: Path, *, seconds: float = 0.0, step: int = 0, send: signal.Signals = signal.SIGINT) -> Ended:
        """Train in a folder until the end, or until it stops.

        Args:
            folder: of the run.
            seconds: the processor time after which SIGPROF kills it. The load of the machine does not change how far it gets by then.
            step: the step after which it sends itself a signal.
            send: that signal.
        """
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps([str(folder), seconds, step, send]) + "\n")
        self.process.stdin.flush()
        return self.wait()

    def wait(self) -> Ended:
        """Wait until a training that was stopped has ended."""
        assert self.process.stdout is not None
        return Ended(*json.loads(self.process.stdout.readline()))
