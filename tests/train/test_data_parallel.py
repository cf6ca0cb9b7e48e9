"""One run over two processes is the run of one process with the same batches."""

import os
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from PIL import Image
from small_runs import QUICK, clusters, same_up_to_rounding
from torch import nn
from typer.testing import CliRunner

from noisewise import DivergedError, InputError, WorkerLostError, fit
from noisewise.cli import app
from noisewise.data import Stream, _files, _stream, order, read
from noisewise.train import Run
from noisewise.train._processes import join
from two_processes import in_two_processes
from waiting import LIMIT

SETTINGS = {**QUICK, "noise": "symmetric(0.2)", "batch_size": 64, "epochs": 3}


def plain_run(folder: Path, loss: str) -> Run:
    return fit("mlp(hidden=(32,))", clusters(), test=clusters(seed=1), loss=loss, folder=folder, **SETTINGS)


def worker(folder: Path) -> None:
    plain_run(folder, "ce")
    left = [thread for thread in Path("/proc/self/task").glob("*/comm") if "gloo" in thread.read_text()]
    assert not left, "threads of a process group that outlive it abort the interpreter at its end, now and then"


def test_torchrun_trains_from_the_command_line(tmp_path):
    common = ["train", "--data", "digits", "--model", "mlp(hidden=(16,))", "--epochs", "2", "--device", "cpu"]
    assert CliRunner().invoke(app, [*common, "-o", str(tmp_path / "one")]).exit_code == 0
    launcher = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    command = [*launcher, "-m", "noisewise", *common, "-o", str(tmp_path / "two")]
    subprocess.run(command, check=True, capture_output=True, timeout=LIMIT, env={**os.environ, "OMP_NUM_THREADS": "1"})
    first, second = Run(tmp_path / "one"), Run(tmp_path / "two")
    assert second.state == "finished"
    for name, value in first.model().state_dict().items():
        torch.testing.assert_close(second.model().state_dict()[name], value, rtol=1e-3, atol=1e-4)


def test_two_processes_train_like_one(tmp_path):
    in_two_processes(worker, tmp_path / "two")
    same_up_to_rounding(plain_run(tmp_path / "one", "ce"), Run(tmp_path / "two"))


BATCH = "imae(T=8, normalise='batch')"


def test_two_processes_train_like_one_on_a_loss_of_the_whole_batch(tmp_path, two):
    same_up_to_rounding(plain_run(tmp_path / "one", BATCH), Run(two / "batch"))


def last_batch_of_one(folder: Path) -> None:
    """A last batch that leaves a process one example is refused to a model that cannot take it."""
    model = nn.Sequential(nn.Linear(8, 4), nn.BatchNorm1d(4), nn.Linear(4, 3))
    with pytest.raises(InputError, match="cannot be trained on batches of one example: Expected more than 1 value"):
        fit(model, clusters(66), folder=folder, **QUICK)
    assert not folder.exists()


def broken(folder: Path) -> None:
    """The first step that broke is named, whichever process had it."""
    inputs, labels = clusters()
    inputs[order(labels, 0, 1)[64]] = 3e38  # the first example of the second batch, which the first process has
    model = nn.Linear(8, 3)
    nn.init.ones_(model.weight)
    with pytest.raises(DivergedError, match="at step 2"):
        fit(model, (inputs, labels), folder=folder, **QUICK, normalise=False)


def test_a_run_that_broke_has_failed(two):
    assert Run(two / "broken").state == "failed"


# Two processes get 17 and 16 examples of a last batch of 33, and one of them nothing of a last batch of one.
UNEVEN = {
    "one left": (65, {"batch_size": 32}),
    "one left, normalised": (65, {"batch_size": 32, "loss": "0.5*imae(T=8, normalise='batch') + 0.5*ce"}),
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
    data = read(images, size=4, memory=0.0)
    assert isinstance(data, Stream) and len(data) == 9
    return fit("mlp(hidden=(16,))", data, folder=folder / "stream", **{**SETTINGS, "epochs": 2, "batch_size": 4})


def decoding(folder: Path, images: Path) -> None:
    """A process decodes the images that it trains on and no others."""
    decoded = []
    _stream.decode = lambda path, size: decoded.append(path) or _files.decode(path, size)
    data = replace(read(images, size=4, memory=0.0), workers=0)
    fit("mlp(hidden=(16,))", data, folder=folder, **{**SETTINGS, "epochs": 2, "batch_size": 4, "clean_pass": False})
    own = 5 if os.environ["RANK"] == "0" else 4  # of 4 and 5 examples
    before = len(data) + 2  # all of so few for their mean and variance, and two more
    assert len(decoded) == before + 2 * own + (2 if os.environ["RANK"] == "0" else 0)  # the first process looks at two afterwards


def joint_worker(folder: Path, images: Path) -> None:
    """Everything that needs two processes and no process group of its own: starting them takes longer than all of it."""
    with join(torch.device("cpu")):
        plain_run(folder / "batch", BATCH)
        for name in UNEVEN:
            uneven(folder, name)
        streamed(folder, images)
        last_batch_of_one(folder / "normalised")
        broken(folder / "broken")
        decoding(folder / "decoded", images)


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
    in_two_processes(joint_worker, folder, images)
    return folder


@pytest.mark.parametrize("name", UNEVEN)
def test_batches_that_do_not_divide_evenly_train_two_processes_like_one(tmp_path, two, name):
    same_up_to_rounding(uneven(tmp_path, name), Run(two / name))


def test_a_stream_that_leaves_a_process_without_an_example_trains_two_processes_like_one(tmp_path, two, images):
    same_up_to_rounding(streamed(tmp_path, images), Run(two / "stream"))


def stopping_worker(folder: Path, stopped: str) -> None:
    rank, other = os.environ["RANK"], "10"[int(os.environ["RANK"])]
    os.environ["NOISEWISE_TIMEOUT"] = "6"
    (folder / rank).write_text(str(os.getpid()))
    while not (folder / other).exists() or not (folder / other).read_text():  # so that neither waits for the other's start
        time.sleep(0.01)

    def watch(step: int, steps: int) -> None:
        if rank == stopped and step == 5:
            os.kill(os.getpid(), signal.SIGSTOP)

    with pytest.raises(WorkerLostError) as caught:
        fit("mlp(hidden=(32,))", clusters(), folder=folder / "run", watch=watch, **SETTINGS)
    if rank != stopped:
        os.kill(int((folder / other).read_text()), signal.SIGCONT)
        assert f"rank {stopped}." in str(caught.value) and "NOISEWISE_TIMEOUT" in str(caught.value) and "6 s" in str(caught.value)


@pytest.mark.parametrize("stopped", ["1", pytest.param("0", marks=pytest.mark.slow)])
def test_a_process_that_stands_still_is_named_by_the_others(tmp_path, stopped):
    in_two_processes(stopping_worker, tmp_path, stopped)
    assert Run(tmp_path / "run").state == "failed"
