"""All GPU tables of benchmarks/RESULTS.md in one run of at most ten minutes: from start to end, kernels, training, methods.

    make bench-gpu [PYTHON=python3] [PAGE=FILE]
    python benchmarks/gpu.py [--seconds 570] [--only start_to_end kernels train methods] [--page FILE]

Each part is a script of this folder, run as its section of the page says, with a share of the time that is left; what a part does not
use goes to those after it. The cold start is measured first. Parts print as they go and write after every row, so a run that is cut
short keeps what it measured. ``--page`` writes to a copy of the page. It needs a Python with a CUDA build of torch.
"""

from __future__ import annotations

import argparse
import ctypes
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import results

FOLDER = Path(__file__).parent
SHARES = {"start_to_end": 4.0, "kernels": 3.0, "train": 2.7, "methods": 2.5}
ARGUMENTS = {
    "start_to_end": "one grid --again --json {json}",
    "kernels": "--write --seconds {seconds:.0f}",
    "train": "--write --seconds {seconds:.0f} --models resnet20 resnet56 cnn8 resnet34 --runs 1 8 --epochs 4",
    "methods": "--write --seconds {seconds:.0f} --epochs 6 --images 20000",
}


def run(part: str, seconds: float, folder: Path) -> bool:
    """Run a part, and end it with all its workers when its time is over; the last 15 % are for what it began. Whether it failed."""
    arguments = ARGUMENTS[part].format(seconds=0.85 * seconds, json=folder / "start_to_end.json").split()
    print(f"\n{part}: at most {seconds:.0f} s", flush=True)
    process = subprocess.Popen([sys.executable, FOLDER / f"{part}.py", *arguments], start_new_session=True)
    try:
        return process.wait(seconds) != 0
    except subprocess.TimeoutExpired:
        print(f"{part}: its time was over", flush=True)
        return False
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()


def write_start_to_end(path: Path) -> None:
    """Put what was measured from start to end into the page; its script writes the page only when all is measured."""
    from start_to_end import table

    measured = json.loads(path.read_text())
    lines = [f"`{measured.pop('command').replace(str(path), 'FILE')}`", ""]
    results.write_section("From start to end", [*lines, *(row for item in measured.items() for row in table(*item))])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=570.0, help="the time of all parts together")
    parser.add_argument("--only", nargs="+", choices=list(SHARES), default=list(SHARES), metavar="PART", help=", ".join(SHARES))
    parser.add_argument("--page", type=Path, help="write to a copy of the page")
    options = parser.parse_args()
    try:
        ctypes.CDLL("libcuda.so.1")  # importing torch to ask would warm the machine for the first part
    except OSError:
        sys.exit("benchmarks/gpu.py measures on a GPU and finds none; give it a Python with a build of torch for CUDA.")
    if options.page:
        shutil.copy(results.PAGE, options.page)
        os.environ[results.PAGE_VARIABLE] = str(options.page)
        results.PAGE = options.page
    failed, until = [], time.perf_counter() + options.seconds
    with tempfile.TemporaryDirectory() as folder:
        for number, part in enumerate(options.only):
            left = sum(SHARES[other] for other in options.only[number:])
            if run(part, (until - time.perf_counter()) * SHARES[part] / left, Path(folder)):
                failed.append(part)
            path = Path(folder, "start_to_end.json")
            if part == "start_to_end" and path.exists():
                write_start_to_end(path)
    if failed:
        sys.exit(f"These parts failed: {', '.join(failed)}.")


if __name__ == "__main__":
    main()
