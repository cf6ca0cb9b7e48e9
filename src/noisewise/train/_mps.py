"""One GPU for many processes: NVIDIA's multi-process service, which lets their kernels run side by side.

Without it the processes of a comparison take turns on the GPU. The service runs during a block, with its own folder, unless one is already
set up.
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
