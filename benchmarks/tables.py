"""Finding wrong labels in tables: noisewise beside cleanlab's configurations, on tables of numbers and categories.

    python benchmarks/tables.py --prepare [--seeds 0 1 2] [--half choose|report] [--kinds KIND …]
    python benchmarks/tables.py --judge [--seeds 0 1 2] [--half …] [--write]

``--prepare`` downloads the tables (`table_sources.py`) and computes what takes long (`table_evidence.py`) into the folder named by
``--cache``; stopped, it resumes.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import torch

import table_evidence
import table_sources

STAGES = (("forest", "logistic"), ("network ce", "network gce"), ("network folds",), ("boosting",))
"""What is computed for all tables of a half before the next."""


def prepare(cache: Path, seeds: list[int], half: str | None, kinds: list[str]) -> None:
    """Compute the evidence that is missing."""
    table_sources.fetch(cache / "packages")
    torch.set_num_threads(1)
    of_table = table_sources.halves()
    order = [(stage, seed, one) for stage in STAGES[:-1] for seed in seeds for one in ("choose", "report")]
    order.sort(key=lambda task: (task[1], task[2]))  # all of a seed and half first
    for stage, seed, one in [*order, *((STAGES[-1], seed, one) for seed in seeds for one in ("choose", "report"))]:
        if half not in (None, one):
            continue
        for name in (name for name in table_sources.NAMES if of_table[name] == one):
            for noise in table_evidence.NOISES:
                case = None
                for kind in (kind for kind in stage if kind in kinds):
                    folder = cache / "evidence" / name / f"{noise}-{seed}"
                    if not (folder / f"{kind}.npz").exists():
                        case = case or case_of(cache, name, noise, seed)
                        table_evidence.keep(case, seed, kind, folder)
            print(seed, one, *stage, name, flush=True)


def case_of(cache: Path, name: str, noise: str, seed: int) -> table_evidence.Setting:
    """One table under one noise."""
    return table_evidence.setting(*table_sources.sample(name, cache / "packages", seed), noise, seed)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--prepare", action="store_true")
    parser.add_argument("--cache", type=Path, default=Path("/tmp/noisewise-tables"))
    parser.add_argument("--seeds", type=int, nargs="+", default=[0])
    parser.add_argument("--half", choices=("choose", "report"))
    parser.add_argument("--kinds", nargs="+", default=list(table_evidence.KINDS))
    options = parser.parse_args()
    if options.prepare:
        prepare(options.cache, options.seeds, options.half, options.kinds)


if __name__ == "__main__":
    main()
