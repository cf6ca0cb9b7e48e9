"""Corrupting a million labels, beside the loop over examples that published code runs.

    python benchmarks/noise.py [--write]

The loop draws one label after the other from its class's row of the transition matrix with numpy's global generator; it is
timed on 20,000 labels. ``--write`` puts the table into benchmarks/RESULTS.md.
"""

from __future__ import annotations

import argparse
import shlex
import sys
import time

import numpy as np
import torch

from noisewise import corrupt
from results import write_section

NUMBER, FEW = 1_000_000, 20_000
SPECS = {"symmetric(0.4)": 10, "symmetric(0.4, flips='exact')": 10, "superclass_circular(0.4)": 100, "pair(0.4)": 1000}


def published(labels: np.ndarray, matrix: np.ndarray) -> np.ndarray:
    given = labels.copy()
    for position, label in enumerate(labels):
        given[position] = np.random.choice(len(matrix), p=matrix[label])
    return given


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--write", action="store_true")
    options = parser.parse_args()
    lines = [f"`{shlex.join(['python', 'benchmarks/noise.py', *sys.argv[1:]])}`: CPU seconds for {NUMBER:,} labels, best of three.", ""]
    lines += ["| noise | classes | seconds | times as fast as a loop, per label |", "|---|---|---|---|"]
    for spec, classes in SPECS.items():
        labels = torch.randint(classes, (NUMBER,), generator=torch.Generator().manual_seed(0))
        spent = []
        for seed in range(3):
            start = time.process_time()
            result = corrupt(labels, spec, num_classes=classes, seed=seed)
            spent.append(time.process_time() - start)
        assert result.expected is not None
        start = time.process_time()
        published(labels[:FEW].numpy(), result.expected.numpy())
        loop = (time.process_time() - start) / FEW
        lines.append(f"| {spec} | {classes} | {min(spent):.2f} | {loop / (min(spent) / NUMBER):,.0f} |")
    print("\n".join(lines))
    if options.write:
        write_section("Noise", lines)


if __name__ == "__main__":
    main()
