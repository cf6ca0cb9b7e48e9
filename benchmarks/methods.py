"""What every method costs beside plain training, in one run on one GPU.

    python benchmarks/methods.py [--model resnet20] [--methods elr dividemix] [--epochs 12] [--json benchmarks/methods.json] [--write]

Every method trains alone, one after the other, on random bytes in CIFAR's shape: only the time matters here. The time is the mean over
the epochs after the second, with all that a method does between epochs; in the first two the steps are captured. Methods have their
default settings, except that their warm-ups are over before the time counts. ``--write`` puts the table into benchmarks/RESULTS.md.
"""

from __future__ import annotations

import argparse
import json
import shlex
import statistics
import sys
import tempfile
from pathlib import Path

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


def seconds(model: str, method: str, epochs: int) -> float:
    """The mean time of an epoch."""
    with tempfile.TemporaryDirectory() as folder:
        run = fit(
            model,
            images(),
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
    parser.add_argument("--json", type=Path)
    parser.add_argument("--write", action="store_true")
    options = parser.parse_args()
    command = shlex.join(["python", "benchmarks/methods.py", *sys.argv[1:]])
    plain = seconds(options.model, "plain", options.epochs)
    rows = []
    for name in options.methods:
        method = methods.get(SPECS.get(name, name))
        ratio = seconds(options.model, repr(method), options.epochs) / plain
        rows.append({"method": repr(method), "networks": method.networks, "ratio": ratio})
        print(f"{rows[-1]['method']:60} {ratio:.2f} ×", flush=True)
        if options.json:
            result = {"command": command, "gpu": torch.cuda.get_device_name(), "model": options.model, "plain": plain, "rows": rows}
            options.json.write_text(json.dumps(result, indent=1))
    if options.write:
        lines = [f"`{command}` on {torch.cuda.get_device_name()}", "", "| method | networks | time of an epoch |", "|---|---|---|"]
        write_section("Methods", [*lines, *(f"| `{row['method']}` | {row['networks']} | {row['ratio']:.2f} × |" for row in rows)])


if __name__ == "__main__":
    main()
