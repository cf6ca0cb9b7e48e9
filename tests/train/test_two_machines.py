"""One run over two machines: torchrun in two network namespaces that only a cable joins."""

from __future__ import annotations

import os
import secrets
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from small_runs import same_up_to_rounding

import noisewise

SETTINGS = ["--data", "digits", "--model", "linear", "--loss", "gce(q=0.7)", "--epochs", "2", "--batch-size", "100", "--device", "cpu"]


def _ip(*words: str) -> None:
    subprocess.run(["ip", *words], check=True, capture_output=True)


@pytest.fixture
def machines() -> Iterator[list[str]]:
    """Two network namespaces, with the addresses 10.77.0.1 and 10.77.0.2."""
    names = [f"nw{secrets.token_hex(3)}{side}" for side in "ab"]
    try:
        if shutil.which("ip") is None:
            pytest.skip("there is no ip command to make network namespaces with")
        try:
            for name in names:
                _ip("netns", "add", name)
            _ip("link", "add", names[0], "netns", names[0], "type", "veth", "peer", "name", names[1], "netns", names[1])
        except subprocess.CalledProcessError as error:
            pytest.skip(f"network namespaces cannot be made here: {error.stderr.decode().strip()}")
        for number, name in enumerate(names, 1):
            _ip("-n", name, "addr", "add", f"10.77.0.{number}/24", "dev", name)
            for device in ("lo", name):
                _ip("-n", name, "link", "set", device, "up")
        yield names
    finally:
        for name in names:
            subprocess.run(["ip", "netns", "delete", name], capture_output=True, check=False)


@pytest.mark.slow  # test_data_parallel.py trains in two processes of one machine
def test_a_run_over_two_machines_equals_one_on_one_machine(machines: list[str], tmp_path: Path) -> None:
    train = ["-m", "noisewise", "train", *SETTINGS, "-o", str(tmp_path / "two")]
    processes = []
    for rank, name in enumerate(machines):
        options = [
            "--nnodes",
            "2",
            "--node-rank",
            str(rank),
            "--nproc-per-node",
            "1",
            "--master-addr",
            "10.77.0.1",
            "--master-port",
            "29511",
        ]
        command = ["ip", "netns", "exec", name, sys.executable, "-m", "torch.distributed.run", *options, *train]
        environment = {**os.environ, "GLOO_SOCKET_IFNAME": name, "OMP_NUM_THREADS": "1"}
        processes.append(subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True))
    outputs = [process.communicate()[0] for process in processes]
    assert [process.returncode for process in processes] == [0, 0], "\n".join(outputs)
    alone = noisewise.fit("linear", "digits", loss="gce(q=0.7)", epochs=2, batch_size=100, device="cpu", folder=tmp_path / "one")
    same_up_to_rounding(noisewise.Run(tmp_path / "two"), alone)
