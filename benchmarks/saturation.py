"""IMAE and GR on real CIFAR-10 with 40 % wrong labels, beside cross-entropy, MAE and GCE: do the scores stay finite, what is learned?

    NOISEWISE_DATA=… python benchmarks/saturation.py [--steps 30000] [--folder runs/saturation] [--write]

ResNet-20, batch 128, learning rate 0.1 divided by 10 at 8/15 and 4/5 of the run, pad-crop and flip, one seed. Needs a GPU to be
done in minutes. ``--write`` puts the table into benchmarks/RESULTS.md.
"""

from __future__ import annotations

import argparse
import json
import shlex
import sys
from pathlib import Path
from typing import Any

from noisewise import Run, compare
from results import write_section

LOSSES = ["imae(T=8)", "imae(T=8, saturation=5e-9)", "imae(T=8, saturation=0)", "gr(beta=8, lam=0.5)", "ce", "mae", "gce(q=0.7)"]


def train(steps: int, folder: Path) -> list[Run]:
    return compare(
        "resnet20",
        "cifar10",
        loss=LOSSES,
        noise=["symmetric(0.4)"],
        folder=folder,
        jobs=len(LOSSES),
        steps=steps,
        schedule="multistep((0.533333, 0.8))",
        augment="crop(4) + flip",
        weight_decay=1e-4,
        evaluate_every=13,
        checkpoint_every=40,
    )


def table(summaries: list[dict[str, Any]]) -> list[str]:
    lines = ["| loss | test final (best) | clean subset | noisy subset | snr | seconds |", "|---|---|---|---|---|---|"]
    for found in summaries:
        final, best, clean, noisy = (f"{100 * found[key]:.1f}" for key in ("final", "best", "clean_subset", "noisy_subset"))
        lines.append(f"| {found['loss']} | {final} ({best}) | {clean} | {noisy} | {found['snr']:.2f} | {found['seconds']:.0f} |")
    return lines


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=30_000)
    parser.add_argument("--folder", type=Path, default=Path("runs/saturation"))
    parser.add_argument("--json", type=Path)
    parser.add_argument("--write", action="store_true")
    options = parser.parse_args()
    runs = train(options.steps, options.folder)
    found = [{**run.dynamics.summary(), "seconds": sum(line["seconds"] for line in run.metrics)} for run in runs]
    origin = runs[0].provenance
    command = shlex.join(["python", "benchmarks/saturation.py", *sys.argv[1:]])
    lines = [f"`{command}`, {origin['device']}, torch {origin['torch']}, all runs at once.", "", *table(found)]
    print("\n".join(lines))
    if options.json:
        options.json.write_text(json.dumps(found, indent=1))
    if options.write:
        write_section("Saturation: IMAE and GR on CIFAR-10", lines)


if __name__ == "__main__":
    main()
