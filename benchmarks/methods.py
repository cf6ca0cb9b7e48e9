"""What every method costs beside plain training, in one run on one GPU.

    python benchmarks/methods.py [--model resnet20] [--methods elr dividemix] [--epochs 12] [--images 50000] [--seconds 600]
                                 [--json benchmarks/methods.json] [--write]

Every method trains alone, one after the other, on random bytes in CIFAR's shape: only the time matters here. The time is the mean over
the epochs after the second, with all that a method does between epochs; in the first two the steps are captured. Methods have their
default settings, except that their warm-ups are over before the time counts. ``--write`` puts the table into benchmarks/RESULTS.md.
The results are written after every method; methods that no longer fit into ``--seconds`` are left out and named.
"""

from __future__ import annotations

import argparse
import json
import shlex
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import torch

from noisewise import fit, methods
from results import write_section
from train import images

SPECS = {
    "backward_correction": "backward_correction(warm_up=1)",
    "co_teaching": "co_teaching(warm_up=1)",
    "co_teaching_plus": "co_teaching_plus(warm_up=1)",
    "d2l": "d2l(warm_up=1)",
    "dividemix": "dividemix(warm_up=1)",
    "forward_correction": "forward_correction(warm_up=1)",
    "ido": "ido(warm_up=1)",
    "jocor": "jocor(warm_up=1)",
    "joint_optimisation": "joint_optimisation(warm_up=1)",
    "masking": "masking('pair(0.1)', warm_up=1)",
    "mentornet_dd": "mentornet_dd(burn_in=0.1)",
    "s_adaptation": "s_adaptation(warm_up=1)",
    "t_revision": "t_revision(warm_up=1, fixed=0)",
    "truncated_gce": "truncated_gce(warm_up=1)",
}
"""Methods with a warm-up, and those with a required setting. The others have their default settings."""


def seconds(options: argparse.Namespace, method: str) -> float:
    """The mean time of an epoch."""
    epochs = options.epochs
    with tempfile.TemporaryDirectory() as folder:
        run = fit(
            options.model,
            images(options.images),
            method=method,
            noise="symmetric(0.4)",
            epochs=epochs,
            folder=Path(folder, "run"),
            augment="crop(4) + flip",
            optimiser="sgd(lr=0.001, momentum=0.9)",
            evaluate_every=epochs,
            checkpoint_every=epochs,
            clean_pass=False,
            device="cuda",
        )
        return statistics.mean(line["seconds"] for line in run.metrics[2:-1])  # the last is evaluated


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="resnet20")
    parser.add_argument("--methods", nargs="+", default=[name for name in methods.available() if name != "plain"])
    parser.add_argument("--epochs", type=int, default=12)
    parser.add_argument("--images", type=int, default=50_000)
    parser.add_argument("--seconds", type=float, default=600.0, help="when to stop starting measurements")
    parser.add_argument("--json", type=Path)
    parser.add_argument("--write", action="store_true")
    options = parser.parse_args()
    until = time.perf_counter() + options.seconds
    result: dict[str, Any] = {
        "command": shlex.join(["python", "benchmarks/methods.py", *sys.argv[1:]]),
        "gpu": torch.cuda.get_device_name(),
        "torch": torch.__version__,
        "model": options.model,
        "plain": seconds(options, "plain"),
        "rows": [],
        "left out": [],
    }
    for name in options.methods:
        if time.perf_counter() > until:
            result["left out"].append(name)
            continue
        method = methods.get(SPECS.get(name, name))
        ratio = seconds(options, repr(method)) / result["plain"]
        result["rows"].append({"method": repr(method), "networks": method.networks, "ratio": ratio})
        print(f"{method!r:60} {ratio:.2f} ×", flush=True)
        keep(result, options)
    keep(result, options)


def keep(result: dict[str, Any], options: argparse.Namespace) -> None:
    """Write what was measured so far."""
    if options.json:
        options.json.write_text(json.dumps(result, indent=1))
    if options.write:
        lines = [f"`{result['command']}`, {result['gpu']}, torch {result['torch']}; {result['model']}.", ""]
        lines += ["| method | networks | time of an epoch |", "|---|---|---|"]
        lines += [f"| `{row['method']}` | {row['networks']} | {row['ratio']:.2f} × |" for row in result["rows"]]
        if result["left out"]:
            lines += ["", f"Left out for want of time: {', '.join(result['left out'])}."]
        write_section("Methods on a GPU", lines)


if __name__ == "__main__":
    main()
