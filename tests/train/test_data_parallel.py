"""One run over two processes is the run of one process with the same batches."""

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from test_fit import QUICK, clusters

from noisewise import fit
from noisewise.train import Run
from two_processes import in_two_processes

SETTINGS = {**QUICK, "noise": "symmetric(0.2)", "batch_size": 64, "epochs": 3}


def worker(folder: str, loss: str) -> None:
    fit("mlp(hidden=(32,))", clusters(), test=clusters(seed=1), loss=loss, folder=folder, **SETTINGS)
    left = [thread for thread in Path("/proc/self/task").glob("*/comm") if "gloo" in thread.read_text()]
    assert not left, "threads of a process group that outlive it abort the interpreter at its end, now and then"


def test_torchrun_trains_from_the_command_line(tmp_path):
    common = ["train", "--data", "digits", "--model", "mlp(hidden=(16,))", "--epochs", "2", "--device", "cpu"]
    one = [sys.executable, "-m", "noisewise", *common, "-o", str(tmp_path / "one")]
    launcher = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    two = [*launcher, "-m", "noisewise", *common, "-o", str(tmp_path / "two")]
    for command in (one, two):
        subprocess.run(command, check=True, capture_output=True, timeout=120, env={**os.environ, "OMP_NUM_THREADS": "1"})
    first, second = Run(tmp_path / "one"), Run(tmp_path / "two")
    assert second.state == "finished"
    for name, value in first.model().state_dict().items():
        torch.testing.assert_close(second.model().state_dict()[name], value, rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("loss", ["ce", "imae(T=8, normalise='batch')"])
def test_two_processes_train_like_one(tmp_path, loss):
    in_two_processes(worker, str(tmp_path / "two"), loss)
    fit("mlp(hidden=(32,))", clusters(), test=clusters(seed=1), loss=loss, folder=tmp_path / "one", **SETTINGS)
    one, two = Run(tmp_path / "one"), Run(tmp_path / "two")
    for name, value in one.model().state_dict().items():
        torch.testing.assert_close(two.model().state_dict()[name], value, rtol=1e-4, atol=1e-5)
    for first, second in zip(one.metrics, two.metrics, strict=True):
        assert first["test_accuracy"] == second["test_accuracy"]
        for group in ("clean", "noisy"):
            assert np.isclose(first["emphasis"][group]["pull"], second["emphasis"][group]["pull"], rtol=1e-4)
            assert np.isclose(first["emphasis"][group]["eta"], second["emphasis"][group]["eta"], rtol=1e-6)
    for epoch in (1, 2, 3):
        for name in ("margins", "predictions"):
            alone = np.load(tmp_path / f"one/record/training/{name}-{epoch:05d}.npy").astype(float)
            together = np.load(tmp_path / f"two/record/training/{name}-{epoch:05d}.npy").astype(float)
            assert np.isfinite(together).all(), "an example was recorded by no process"
            np.testing.assert_allclose(together, alone, rtol=5e-3, atol=5e-3)
