"""What an audit says of labels and what is true, over many small runs: briefly and for long, with many kinds of noise and without any.

    python benchmarks/audit_survey.py [--jobs 2] [--json FILE] [--write]

Small networks on digits and on a part of Fashion-MNIST, which is looked for in the folder named by NOISEWISE_DATA; no GPU is needed.
``--write`` puts the table into benchmarks/RESULTS.md.
"""

from __future__ import annotations

import argparse
import json
import shlex
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import multiprocessing

from audit import SEED, measures, shares
from noisewise import fit
from noisewise.audit import audit
from noisewise.correct import correct
from noisewise.data import load
from results import write_section

EPOCHS = {"digits": (5, 10, 20, 40), "fashion_mnist": (6, 12, 60)}
NOISES = ["none", "symmetric(0.05)", "symmetric(0.2)", "symmetric(0.4)", "pair(0.1)", "pair(0.3)", "instance(0.3)"]
PART = 12000  # examples of Fashion-MNIST


def surveyed(task: tuple[str, int, str, str]) -> dict[str, Any]:
    """What an audit of one short run says, and the truth."""
    name, epochs, noise, loss = task
    torch.set_num_threads(1)
    data, test = load(name), load(name, "test")
    data = data.take(torch.arange(min(len(data), PART)))
    with tempfile.TemporaryDirectory() as folder:
        how = {"batch_size": 64, "device": "cpu", "seed": SEED, "checkpoint_every": 1000, "evaluate_every": max(1, epochs // 6)}
        run = fit("mlp", data, test=test, loss=loss, noise=noise, epochs=epochs, folder=folder, **how)
        found, wrong, true = audit(run), run.dynamics.record.wrong, data.labels.numpy()
        low, high = found.interval
        after = {policy: float((correct(found, policy).labels != true).mean()) for policy in ("relabel", "relabel(lead=1)")}
    return {
        "data": name,
        "epochs": epochs,
        "noise": noise,
        "loss": loss,
        "wrong": float(wrong.mean()),
        "doubtful": found.count,
        **({**measures(wrong, -found.score), **shares(wrong, found.is_issue)} if wrong.any() else {}),
        "expected_precision": found.expected_precision,
        "held": bool(low <= wrong.sum() <= high),
        "after": after,
    }


def survey(jobs: int) -> dict[str, Any]:
    """All runs, the longest first."""
    lengths = [(name, epochs) for name in EPOCHS for epochs in EPOCHS[name]]
    tasks = [(*length, noise, loss) for length in lengths for noise in NOISES for loss in ("ce", "gce(q=0.7)")]
    with multiprocessing.get_context("spawn").Pool(jobs) as pool:
        rows = list(pool.imap(surveyed, tasks[::-1]))[::-1]
    return {"command": shlex.join(["python", "benchmarks/audit_survey.py", *sys.argv[1:]]), "torch": torch.__version__, "rows": rows}


def lines_of(result: dict[str, Any]) -> list[str]:
    """One line for each length of training; ranges are over kinds of noise and losses."""
    lines = [
        f"`{result['command']}`, torch {result['torch']}, CPU.",
        "",
        f"One seed, an MLP, cross-entropy and GCE; {', '.join(NOISES[1:])}, and none.",
        "",
        "Average precision; of the doubtful labels how many were wrong, and of the wrong ones how many were doubtful (medians, and the",
        "worst); how often the interval held the number of wrong labels; how many of the wrong labels are left after relabelling (means),",
        "and how often there were more than before; and how many of all labels were doubted where none was wrong.",
        "",
        "| data, epochs | average precision | precision | recall | interval | left by `relabel` | more | by `relabel(lead=1)` | more "
        "| doubted of right ones |",
        "|---" * 10 + "|",
    ]
    for name, epochs in dict.fromkeys((row["data"], row["epochs"]) for row in result["rows"]):
        own = [row for row in result["rows"] if (row["data"], row["epochs"]) == (name, epochs)]
        noisy, clean = [row for row in own if row["wrong"]], [row for row in own if not row["wrong"]]
        total = min(PART, len(load(name)))
        cells = [f"{100 * np.mean([row['average_precision'] for row in noisy]):.1f}"]
        for key in ("precision", "recall"):
            values = [row[key] for row in noisy]
            cells.append(f"{100 * np.nanmedian(values):.0f}, {100 * np.nanmin(values):.0f} %")
        cells.append(f"{sum(row['held'] for row in noisy)} of {len(noisy)}")
        for policy in ("relabel", "relabel(lead=1)"):
            left = [row["after"][policy] / row["wrong"] for row in noisy]
            cells += [f"{100 * np.mean(left):.0f} %", str(sum(share > 1 for share in left))]
        cells.append(f"{100 * np.mean([row['doubtful'] for row in clean]) / total:.1f} %")
        lines.append(f"| {name}, {epochs} | {' | '.join(cells)} |")
    return lines


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--write", action="store_true")
    options = parser.parse_args()
    result = survey(options.jobs)
    text = json.dumps(result, indent=1)
    options.json.write_text(text) if options.json else print(text)
    if options.write:
        write_section("What an audit says and the truth", lines_of(result))


if __name__ == "__main__":
    main()
