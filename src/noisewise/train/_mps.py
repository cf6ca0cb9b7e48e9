"""NVIDIA's multi-process service (MPS), with which the kernels of several processes run on one GPU at the same time.

Without it the processes of a comparison take turns on the GPU. If no service is set up, one is started for the duration of a block.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager

_CONTROL = "nvidia-cuda-mps-control"
_PIPES, _LOGS = "CUDA_MPS_PIPE_DIRECTORY", "CUDA_MPS_LOG_DIRECTORY"


@contextmanager
def gpu_for_many() -> Iterator[None]:
    """Let the processes that are started in the block share the GPU, if the service can be started."""
    if _PIPES in os.environ or shutil.which(_CONTROL) is None:
        yield
        return
    with tempfile.TemporaryDirectory(prefix="noisewise-mps-") as folder:
        variables = {_PIPES: folder, _LOGS: folder}
        started = subprocess.run([_CONTROL, "-d"], env={**os.environ, **variables}, capture_output=True, check=False).returncode == 0
        if started:
            os.environ.update(variables)
        try:
            yield
        finally:
            if started:
                subprocess.run([_CONTROL], input=b"quit\n", env={**os.environ, **variables}, capture_output=True, check=False)
                for name in variables:
                    del os.environ[name]
