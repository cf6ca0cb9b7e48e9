"""Where the time goes from a command to its report: a grid of runs by `compare`, and one short run by the command line.

    python benchmarks/start_to_end.py [grid] [one] [--runs 16] [--epochs 30] [--again] [--json out.json] [--write]

``grid`` trains sixteen ResNet-20 runs (four losses, four seeds) with the settings a user gets by default, with an empty kernel cache;
``--again`` trains as many with other seeds in the same process, with the caches filled. ``one`` runs ``noisewise train`` for five epochs
and ``noisewise report`` as two cold commands. Data are random bytes in CIFAR-10's shape and files: only the time matters here.

The phases are measured from outside: this file wraps functions of the engine with a clock, in the main process and, because worker
processes import it too, in every worker. A phase does not contain the phases inside it, so the phases of a process add up to its life.
"""

# ruff: noqa: E402 - the clock starts before the imports, which are part of what a user waits for

from __future__ import annotations

import time

TOP = time.time()

import argparse
import functools
import importlib
import json
import os
import shlex
import shutil
import subprocess
import sys
import tempfile
import threading
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

TRACE = "NOISEWISE_BENCHMARK_TRACE"
"""The environment variable with the folder that every process writes its phases to."""

PHASES = [
    ("noisewise.train._compare", "read_both", "data"),
    ("noisewise.train._compare", "_worker", "waiting for a task"),
    ("noisewise.train._compare", "train", "run, other"),
    ("noisewise.train._fit", "train", "run, other"),
    ("noisewise.train._fit", "gather", "data"),
    ("noisewise.train._request", "Sources.provenance", "digests"),
    ("noisewise.train._request", "Sources.to", "data to the device"),
    ("noisewise.train._fit", "_scale_of", "normalisation"),
    ("noisewise.train._fit", "_Training.__init__", "build"),
    ("noisewise.train._fit", "_Training._dry_run", "dry run"),
    ("noisewise.train._fit", "_Training._open", "build"),
    ("noisewise.train._fit", "_Training._compile", "compile"),
    ("noisewise.train._fit", "_Training._epoch", "steps"),
    ("noisewise.train._fit", "_Training._evaluate", "evaluation"),
    ("noisewise.train._fit", "_Training._write", "writing"),
    ("noisewise.train._fit", "_Training._checkpoint", "writing"),
    ("noisewise.train._fit", "_Training._finish", "finish"),
    ("noisewise.train._fit", "_checked", "finish"),
    ("noisewise.train._step", "GraphedStep._capture", "capture"),
    ("noisewise.train._step", "GraphedStep.note_kernels", "note the kernels"),
    ("noisewise.runs._folder", "RunFolder._write", "writing"),
    ("noisewise.report", "report", "report"),
    ("triton.compiler", "compile", "compile"),
    ("triton.compiler", "CompiledKernel._init_handles", "load kernels"),
    ("triton.backends.nvidia.driver", "CudaUtils.__init__", "load kernels"),
]
"""Functions and what they spend their time on."""

LOSSES = ["ce", "gce(q=0.7)", "imae(T=8)", "0.3*nce + 0.7*mae"]
SETTINGS: dict[str, Any] = {"noise": ["symmetric(0.4)"], "augment": "crop(4) + flip"}


class Clock:
    """Writes the time of every phase of this process, without the phases inside it."""

    def __init__(self, folder: str) -> None:
        self._file = Path(folder, f"{os.getpid()}.jsonl").open("a", buffering=1)  # noqa: SIM115 - open until the process ends
        self._here = threading.local()

    def add(self, name: str, start: float, end: float, alone: float | None = None) -> None:
        background = threading.current_thread() is not threading.main_thread()
        line = {"name": f"{name}, in the background" if background else name, "start": start, "end": end}
        self._file.write(json.dumps({**line, "seconds": end - start if alone is None else alone}) + "\n")

    @contextmanager
    def phase(self, name: str) -> Iterator[None]:
        inner: list[float] = self._here.__dict__.setdefault("inner", [])
        inner.append(0.0)
        start = time.time()
        try:
            yield
        finally:
            end = time.time()
            inside = inner.pop()
            if inner:
                inner[-1] += end - start
            self.add(name, start, end, end - start - inside)

    def wrap(self, module: str, path: str, name: str) -> None:
        """Measure a function of a module, or a method of its class; a version of the engine may not have it."""
        owner: Any = importlib.import_module(module)
        *parts, last = path.split(".")
        for part in parts:
            owner = getattr(owner, part, None)
        original = getattr(owner, last, None)
        if original is None:
            return

        @functools.wraps(original)
        def timed(*args: Any, **kwargs: Any) -> Any:
            with self.phase(name):
                return original(*args, **kwargs)

        setattr(owner, last, timed)


def started() -> float:
    """When this process was started; Linux counts from the start of the machine."""
    ticks = int(Path("/proc/self/stat").read_text().rpartition(")")[2].split()[19])
    return time.time() - (time.clock_gettime(time.CLOCK_BOOTTIME) - ticks / os.sysconf("SC_CLK_TCK"))


def instrument(folder: str) -> Clock:
    """Measure the phases of this process."""
    clock = Clock(folder)
    clock.add("start of the process", started(), TOP)
    with clock.phase("import torch"):
        import torch
    with clock.phase("import noisewise"):
        importlib.import_module("noisewise.train")
    has_triton = importlib.util.find_spec("triton") is not None  # type: ignore[attr-defined]
    for module, path, name in PHASES:
        if (has_triton or not module.startswith("triton")) and (module != "noisewise.report" or "report" in sys.argv):
            clock.wrap(module, path, name)
    move = sys.modules["noisewise.train._request"].Sources.to

    def moved(self: Any, device: torch.device) -> Any:
        with clock.phase("CUDA context"):
            torch.zeros(1, device=device)
        return move(self, device)

    sys.modules["noisewise.train._request"].Sources.to = moved  # type: ignore[attr-defined]
    return clock


if os.environ.get(TRACE) and __name__ == "__mp_main__":
    instrument(os.environ[TRACE])


def data(number: int) -> Any:
    """Random bytes in CIFAR-10's shape."""
    import torch

    from noisewise.data import Dataset

    generator = torch.Generator().manual_seed(number)
    pixels = torch.randint(0, 256, (number, 3, 32, 32), generator=generator, dtype=torch.uint8)
    return Dataset(pixels, torch.randint(10, (number,), generator=generator), tuple("0123456789"), name="random bytes")


def write_cifar(root: Path) -> None:
    """Random bytes as the files of CIFAR-10."""
    import numpy as np

    chance = np.random.default_rng(0)
    folder = root / "cifar-10-batches-bin"
    folder.mkdir(parents=True)
    for name in (*(f"data_batch_{number}" for number in range(1, 6)), "test_batch"):
        rows = chance.integers(0, 256, (10_000, 3073), dtype=np.uint8)
        rows[:, 0] %= 10
        rows.tofile(folder / f"{name}.bin")
    (folder / "batches.meta.txt").write_text(
        "\n".join(["airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck"]) + "\n\n"
    )


def phases(folder: Path, wall: float) -> dict[str, Any]:
    """Seconds per phase: of the main process, and the mean of its workers."""
    files = sorted(folder.glob("*.jsonl"), key=lambda file: file.stat().st_ctime)
    lines = {file.stem: [json.loads(line) for line in file.read_text().splitlines()] for file in files}
    workers = {name: each for name, each in lines.items() if int(name) != os.getpid()}
    seconds: dict[str, float] = defaultdict(float)
    times: dict[str, float] = defaultdict(float)
    for line in (line for each in workers.values() for line in each):
        seconds[line["name"]] += line["seconds"] / len(workers)
        times[line["name"]] += 1 / len(workers)
    return {"wall": wall, "phases": dict(seconds), "times": dict(times)}


def grid(options: argparse.Namespace, seeds: int) -> dict[str, Any]:
    """Train the grid, its kernels compiled before or not."""
    import torch

    from noisewise import compare

    train, test = data(options.images), data(options.images // 5)
    with tempfile.TemporaryDirectory() as folder:
        trace = Path(folder, "trace")
        trace.mkdir()
        os.environ[TRACE] = str(trace)
        begun = time.perf_counter()
        number = options.runs // len(LOSSES)
        runs = compare(
            options.model,
            train,
            test=test,
            loss=LOSSES,
            seed=list(range(seeds, seeds + number)),
            folder=Path(folder, "runs"),
            jobs=options.jobs,
            epochs=options.epochs,
            device="cuda" if torch.cuda.is_available() else "cpu",
            **SETTINGS,
        )
        wall = time.perf_counter() - begun
        del os.environ[TRACE]
        epochs = sorted(line["seconds"] for run in runs for line in run.metrics[1:])
        rates = {"images/s": len(runs) * options.epochs * len(train) / wall, "median epoch": epochs[len(epochs) // 2]}
        return {**rates, **phases(trace, wall)}


def one(options: argparse.Namespace) -> dict[str, Any]:
    """Train and report one run by two commands, each in its own process."""
    with tempfile.TemporaryDirectory() as folder:
        trace = Path(folder, "trace")
        trace.mkdir()
        write_cifar(Path(folder, "data"))
        environment = {**os.environ, TRACE: str(trace), "NOISEWISE_DATA": str(Path(folder, "data"))}
        settings = f"--data cifar10 --model {options.model} --loss imae(T=8) --noise symmetric(0.4) --epochs {options.short}".split()
        train = ["train", *settings, "--augment", SETTINGS["augment"], "-o", f"{folder}/run"]
        commands = [train, ["report", f"{folder}/run", "-o", f"{folder}/report.html"]]
        walls = []
        for command in commands:
            begun = time.perf_counter()
            subprocess.run([sys.executable, __file__, "--command", *command], env=environment, check=True)
            walls.append(time.perf_counter() - begun)
        found = phases(trace, sum(walls))
        for column in ("phases", "times"):
            found[column] = {name: len(commands) * number for name, number in found[column].items()}
        return {"train": walls[0], "report": walls[1], **found}


def command(words: list[str]) -> None:
    """Run a command of noisewise with its phases measured."""
    clock = instrument(os.environ[TRACE])
    with clock.phase("import the command line"):
        from noisewise.cli import app
    with clock.phase("command, other"):
        app(words, prog_name="noisewise")


def table(title: str, found: dict[str, Any]) -> list[str]:
    """A table of phases in Markdown: seconds per worker, and how often."""
    lines = [f"| {title} | seconds | times |", "|---|---|---|"]
    lines += [f"| **{name}** | {found[name]:.2f} | |" for name in ("wall", "train", "report", "median epoch") if name in found]
    for name, seconds in sorted(found["phases"].items(), key=lambda item: -item[1]):
        lines.append(f"| {name} | {seconds:.2f} | {found['times'].get(name, 0):.0f} |")
    if "images/s" in found:
        lines.append(f"| **images/s** | {found['images/s']:,.0f} | |")
    return [*lines, ""]


def empty_cache(name: str, folder: str) -> None:
    """Let processes from here on compile every kernel again."""
    shutil.rmtree(Path(folder, name), ignore_errors=True)
    os.environ["TRITON_CACHE_DIR"] = str(Path(folder, name))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", nargs="*", default=["grid", "one"], help="grid, one, or both")
    parser.add_argument("--model", default="resnet20")
    parser.add_argument("--runs", type=int, default=16)
    parser.add_argument("--jobs", type=int)
    parser.add_argument("--epochs", type=int, default=30)
    parser.add_argument("--short", type=int, default=5)
    parser.add_argument("--images", type=int, default=50_000)
    parser.add_argument("--again", action="store_true")
    parser.add_argument("--json", type=Path)
    parser.add_argument("--write", action="store_true")
    options = parser.parse_args()
    results: dict[str, Any] = {"command": shlex.join(["python", "benchmarks/start_to_end.py", *sys.argv[1:]])}
    work: list[tuple[str, Callable[[], dict[str, Any]]]] = []
    if "one" in options.what:
        work.append(("one run, cold", lambda: one(options)))
    if "grid" in options.what:
        work.append(("grid, cold", lambda: grid(options, 0)))
        if options.again:
            work.append(("grid, warm", lambda: grid(options, 100)))
    with tempfile.TemporaryDirectory() as caches:
        for title, measure in work:
            if "cold" in title:
                empty_cache("triton", caches)
            results[title] = measure()
            print("\n".join(table(title, results[title])), flush=True)
            if options.json:
                options.json.write_text(json.dumps(results, indent=1))
    if options.write:
        from results import write_section

        write_section("From start to end", [f"`{results.pop('command')}`", "", *(row for item in results.items() for row in table(*item))])


if __name__ == "__main__":
    if sys.argv[1:2] == ["--command"]:
        command(sys.argv[2:])
    else:
        main()
