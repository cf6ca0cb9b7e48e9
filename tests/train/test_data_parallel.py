"""A run in two processes equals the run of one process with the same batches."""

import os
import signal
import subprocess
import sys
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest
import torch
from PIL import Image
from small_runs import QUICK, clusters, same_up_to_rounding
from torch import nn
from torch.distributed import distributed_c10d
from typer.testing import CliRunner

from noisewise import DivergedError, WorkerLostError, fit
from noisewise.cli import app
from noisewise.data import Stream, _files, _stream, order, read
from noisewise.train import Run, _processes
from noisewise.train._processes import join
from refused import refused
from two_processes import in_two_processes
from waiting import LIMIT, wait_until

SETTINGS = {**QUICK, "noise": "symmetric(0.2)", "batch_size": 64, "epochs": 3}


def train(folder: Path, loss: str) -> Run:
    return fit("mlp(hidden=(32,))", clusters(), test=clusters(seed=1), loss=loss, folder=folder, **SETTINGS)


def in_own_group(folder: Path) -> None:
    train(folder, "ce")
    wait_until(lambda: not _gloo_threads())  # threads that outlive their process group sometimes abort the interpreter at its end


def _gloo_threads() -> list[Path]:
    return [thread for thread in Path("/proc/self/task").glob("*/comm") if "gloo" in thread.read_text()]


COMMAND = ["train", "--data", "digits", "--model", "mlp(hidden=(16,))", "--epochs", "2", "--device", "cpu"]


def train_from_command_line(folder: Path) -> Run:
    done = CliRunner().invoke(app, [*COMMAND, "-o", str(folder)])
    assert done.exit_code == 0, done.output
    return Run(folder)


@pytest.mark.slow
def test_torchrun_trains_from_the_command_line(tmp_path):
    """The test below runs the same command in two processes, without the launcher."""
    launcher = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    command = [*launcher, "-m", "noisewise", *COMMAND, "-o", str(tmp_path / "two")]
    subprocess.run(command, check=True, capture_output=True, timeout=LIMIT, env={**os.environ, "OMP_NUM_THREADS": "1"})
    same_up_to_rounding(train_from_command_line(tmp_path / "one"), Run(tmp_path / "two"))


def test_the_command_line_trains_two_processes_like_one(tmp_path, two):
    same_up_to_rounding(train_from_command_line(tmp_path / "one"), Run(two / "command"))


def test_two_processes_that_fit_connects_train_like_one(tmp_path):
    in_two_processes(in_own_group, tmp_path / "two")
    same_up_to_rounding(train(tmp_path / "one", "ce"), Run(tmp_path / "two"))


BATCH = "imae(T=8, normalise='batch')"


def test_a_loss_of_the_whole_batch_trains_two_processes_like_one(tmp_path, two):
    same_up_to_rounding(train(tmp_path / "one", BATCH), Run(two / "batch"))


def last_batch_of_one(folder: Path) -> None:
    """A last batch of which a process gets one example is refused if the model cannot use it."""
    model = nn.Sequential(nn.Linear(8, 4), nn.BatchNorm1d(4), nn.Linear(4, 3))
    with refused("Sequential", "Expected more than 1 value"):
        fit(model, clusters(66), folder=folder, **QUICK)
    assert not folder.exists()


def diverging(folder: Path) -> None:
    """The first step that was not finite is named, whichever process had it."""
    inputs, labels = clusters()
    inputs[order(labels, 0, 1)[64]] = 3e38  # the first example of the second batch, which belongs to the first process
    model = nn.Linear(8, 3)
    nn.init.ones_(model.weight)
    with refused("step 2", kind=DivergedError):
        fit(model, (inputs, labels), folder=folder, **QUICK, normalise=False)


def test_a_run_that_diverged_has_failed(two):
    assert Run(two / "diverging").state == "failed"


BEST = {**QUICK, "epochs": 12, "noise": "symmetric(0.4)", "validation": 0.3, "keep": "best", "optimiser": "sgd(lr=0.3, momentum=0.9)"}


def keep_best(folder: Path) -> Run:
    return fit("mlp(hidden=(64,))", clusters(200), folder=folder, **BEST)


def test_two_processes_keep_the_same_best_model_as_one(tmp_path, two):
    expected, run = keep_best(tmp_path / "one"), Run(two / "best")
    assert run.kept_epoch == expected.kept_epoch < BEST["epochs"]
    for name, value in expected.model().state_dict().items():
        torch.testing.assert_close(run.model().state_dict()[name], value, rtol=1e-3, atol=1e-4)


# Two processes get 17 and 16 examples of a last batch of 33, and one process gets none of a last batch of one.
UNEVEN = {
    "one left": (65, {"batch_size": 32}),
    "one left, normalised": (65, {"batch_size": 32, "loss": "0.5*imae(T=8, normalise='batch') + 0.5*ce"}),
    "one left, adaptive": (65, {"batch_size": 32, "loss": "auto", "noise": "symmetric(0.4)", "epochs": 3}),
    "one left, weighted": (65, {"batch_size": 32, "loss": "ce(weight=(1.0, 5.0, 2.0))"}),
    "one left, parts": (65, {"batch_size": 32, "accumulate": 3, "loss": "0.5*imae(T=8, normalise='batch')"}),
    "parts": (97, {"batch_size": 64, "accumulate": 8}),
    "parts, normalised": (97, {"batch_size": 64, "accumulate": 8, "loss": "0.5*imae(T=8, normalise='batch')"}),
    "parts, weighted": (97, {"batch_size": 64, "accumulate": 8, "loss": "ce(weight=(1.0, 5.0, 2.0))"}),
    "as many parts as examples": (15, {"batch_size": 15, "accumulate": 15}),
}


def uneven(folder: Path, name: str) -> Run:
    number, settings = UNEVEN[name]
    return fit("mlp(hidden=(16,))", clusters(number), folder=folder / name, **{**SETTINGS, "epochs": 2, **settings})


def streamed(folder: Path, images: Path) -> Run:
    data = replace(read(images, size=4, memory=0.0), workers=0)
    assert isinstance(data, Stream) and len(data) == 9
    return fit("mlp(hidden=(16,))", data, folder=folder / "stream", **{**SETTINGS, "epochs": 2, "batch_size": 4})


def decoding(folder: Path, images: Path) -> None:
    """A process decodes only the images that it trains on."""
    decoded = []
    _stream.decode = lambda path, size: decoded.append(path) or _files.decode(path, size)
    data = replace(read(images, size=4, memory=0.0), workers=0)
    fit("mlp(hidden=(16,))", data, folder=folder, **{**SETTINGS, "epochs": 2, "batch_size": 4, "clean_pass": False})
    first_process = os.environ["RANK"] == "0"
    per_epoch = 5 if first_process else 4  # batches of 4 and 5 examples
    before = len(data) + 2  # all images for their mean and variance, and two for the dry run
    assert len(decoded) == before + 2 * per_epoch + (2 if first_process else 0)  # the first process reads two images after training


def in_shared_group(folder: Path, images: Path) -> None:
    """Everything that can share one process group, because starting two processes takes longer than all of these runs."""
    with join(torch.device("cpu")):
        train(folder / "batch", BATCH)
        for name in UNEVEN:
            uneven(folder, name)
        streamed(folder, images)
        last_batch_of_one(folder / "normalised")
        diverging(folder / "diverging")
        decoding(folder / "decoded", images)
        keep_best(folder / "best")
        train_from_command_line(folder / "command")


@pytest.fixture(scope="module")
def images(tmp_path_factory):
    folder = tmp_path_factory.mktemp("images")
    for position in range(9):
        path = folder / "ab"[position % 2] / f"{position}.png"
        path.parent.mkdir(exist_ok=True)
        Image.new("L", (4, 4), 20 * position).save(path)
    return folder


@pytest.fixture(scope="module")
def two(tmp_path_factory, images):
    """Runs of two processes."""
    folder = tmp_path_factory.mktemp("two")
    in_two_processes(in_shared_group, folder, images)
    return folder


@pytest.mark.parametrize("name", UNEVEN)
def test_uneven_batches_train_two_processes_like_one(tmp_path, two, name):
    same_up_to_rounding(uneven(tmp_path, name), Run(two / name))


def test_a_stream_with_uneven_batches_trains_two_processes_like_one(tmp_path, two, images):
    same_up_to_rounding(streamed(tmp_path, images), Run(two / "stream"))


def is_stopped(process: int) -> bool:
    """Whether a process was stopped by a signal."""
    return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] == "T"


def stop_one(folder: Path, stopped: str) -> None:
    """Stop one process after step 5. The other process waits until then with a long timeout, and afterwards with a short one."""
    rank, other = os.environ["RANK"], folder / "10"[int(os.environ["RANK"])]
    os.environ["NOISEWISE_TIMEOUT"] = "1300"
    _processes._ROLL_CALL = 0.2
    (folder / f"{rank}.part").write_text(str(os.getpid()))
    (folder / f"{rank}.part").rename(folder / rank)
    wait_until(other.exists)

    def watch(step: int, steps: int) -> None:
        if step == 5 and rank == stopped:
            os.kill(os.getpid(), signal.SIGSTOP)
        elif step == 5:
            wait_until(lambda: is_stopped(int(other.read_text())))
            group = distributed_c10d._get_default_group()._get_backend(torch.device("cpu"))
            assert group.options._timeout.total_seconds() == 1300
            os.environ["NOISEWISE_TIMEOUT"] = "0.5"
            distributed_c10d._set_pg_timeout(timedelta(seconds=0.5))

    with pytest.raises(WorkerLostError) as caught:
        fit("mlp(hidden=(32,))", clusters(), folder=folder / "run", watch=watch, **SETTINGS)
    if rank != stopped:
        os.kill(int(other.read_text()), signal.SIGCONT)
        assert all(mention in str(caught.value) for mention in (f"rank {stopped}", "NOISEWISE_TIMEOUT", "0.5 s"))


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="needs to know whether a process is stopped")
@pytest.mark.parametrize("stopped", ["1", pytest.param("0", marks=pytest.mark.slow)])
def test_a_process_that_does_not_answer_is_named_by_the_others(tmp_path, stopped):
    in_two_processes(stop_one, tmp_path, stopped)
    assert Run(tmp_path / "run").state == "failed"
