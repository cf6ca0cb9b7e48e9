"""How long `noisewise audit` and `noisewise report` take on a CSV file of 100,000 rows, a tenth of them with a wrong label.

    OMP_NUM_THREADS=2 python benchmarks/large_table.py [--rows 100000] [--write]

The commands run as a user runs them, with all defaults. The table has ten numbers, five categories with 3 to 400 values, a date, a yes/no
column and four classes; some cells are empty. Time is that of the processor, summed over threads, because other programs on the machine
slow the clock more than the processor; the bar is a minute. ``--write`` puts the table into benchmarks/RESULTS.md.
"""

from __future__ import annotations

import argparse
import csv
import os
import platform
import tempfile
from pathlib import Path

import numpy as np
import torch

from embeddings import found, measure
from results import write_section

CLASSES = np.array(["bronze", "silver", "gold", "platinum"])
SHARES = (0.4, 0.3, 0.2, 0.1)
CATEGORIES = (3, 8, 20, 60, 400)
EMPTY = 0.03  # of the cells of three columns


def write_data(path: Path, rows: int) -> np.ndarray:
    """Write the table; return which labels are wrong."""
    draw = np.random.default_rng(0)
    true = draw.choice(4, rows, p=SHARES)
    numbers = (1.2 * draw.normal(size=(4, 10)))[true] + draw.normal(size=(rows, 10))
    columns = {f"x{place}": column.astype("U8") for place, column in enumerate((numbers @ draw.normal(size=(10, 10)) / 3).T)}
    for number in CATEGORIES:
        chances = draw.dirichlet(np.ones(number), 4)
        places = np.empty(rows, dtype=int)
        for label in range(4):
            places[true == label] = draw.choice(number, int((true == label).sum()), p=chances[label])
        columns[f"category_of_{number}"] = np.char.add("v", places.astype(str))
    columns["joined"] = (np.datetime64("2015-01-01") + draw.integers(0, 3000, rows)).astype(str)
    columns["active"] = np.where(draw.random(rows) < 0.3 + 0.1 * true, "yes", "no")
    for name in ("x3", "x7", "category_of_20"):
        columns[name] = np.where(draw.random(rows) < EMPTY, "", columns[name])
    given = np.where(draw.random(rows) < 0.1, (true + draw.integers(1, 4, rows)) % 4, true)
    with path.open("w", newline="") as file:
        csv.writer(file).writerows([[*columns, "label"], *zip(*columns.values(), CLASSES[given], strict=True)])
    return given != true


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--write", action="store_true")
    parser.add_argument("--rows", type=int, default=100_000)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        wrong = write_data(folder / "table.csv", options.rows)
        times = [measure(folder, "audit", "table.csv", "--run", "run"), measure(folder, "report", "run")]
        precision, recall = found(folder, wrong)
    threads = os.environ.get("OMP_NUM_THREADS", "default")
    lines = [
        f"`OMP_NUM_THREADS={threads} python benchmarks/large_table.py --write`, torch {torch.__version__}, {platform.machine()}:",
        f"{options.rows:,} rows and 17 columns, in seconds of the processor, summed over threads. Of the doubtful labels {precision:.1%}",
        f"are wrong, and {recall:.1%} of the wrong labels are doubtful.",
        "",
        "| command | threads | processor | clock (shared machine) |",
        "|---|---|---|---|",
    ]
    for command, (processor, clock) in zip(("audit table.csv", "report run"), times, strict=True):
        lines.append(f"| `noisewise {command}` | {threads} | {processor:.0f} s | {clock:.0f} s |")
    print("\n".join(lines))
    if options.write:
        write_section("An audit of a table", lines)


if __name__ == "__main__":
    main()
