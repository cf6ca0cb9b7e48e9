"""Test accuracy of every method and the main losses on CIFAR-10 with wrong labels.

    python benchmarks/accuracy.py [--noise "symmetric(0.4)" worst] [--rows ce elr] [--seeds 0 1 2] [--jobs 8] [--write]

All train ResNet-20 for the same 30 epochs with the same optimiser. Runs with a result in benchmarks/accuracy.json are not trained again,
so the table can be made in portions. ``--write`` puts the table into benchmarks/RESULTS.md, with the cost that benchmarks/methods.py
measured (runs here share the GPU, so their times say little). CIFAR-10 and CIFAR-10N are read from the folder that NOISEWISE_DATA names.

A method that needs the noise rate is told the true one, as in the published comparisons. All other settings are those of the papers for
CIFAR-10, with epochs scaled to this budget, except for warm-ups in which the network must learn the classes. The learning rate is that of
the authors of ELR, DivideMix and SOP; with 0.1, tried first on CIFAR-10N, several methods and GR did not train. JoCoR has lam=0.5, which
its authors advise for a ResNet. A first run on CIFAR-10N (one seed) showed methods that collapsed: their mistakes were found by reading
the authors' code and corrected, and rows whose settings were not the papers' were set to them.
"""

from __future__ import annotations

import argparse
import json
import shlex
import statistics
import sys
import tempfile
from collections import defaultdict
from itertools import product
from pathlib import Path
from typing import Any

from noisewise import Run
from noisewise.spec import name_of
from noisewise.train import Progress, Task, plan, train_each
from results import write_section

RESULTS = Path(__file__).with_name("accuracy.json")
COSTS = Path(__file__).with_name("methods.json")
SETTINGS: dict[str, Any] = {
    "epochs": 30,
    "batch_size": 128,
    "optimiser": "sgd(lr=0.02, momentum=0.9)",
    "schedule": "cosine",
    "weight_decay": 5e-4,
    "augment": "crop(4) + flip",
    "evaluate_every": 10,
    "checkpoint_every": 30,
    "clean_pass": False,
}

NOISES = {
    "symmetric(0.2)": 0.2,
    "symmetric(0.4)": 0.4,
    "symmetric(0.8)": 0.8,
    "class_map(0.4, cifar10)": 0.2,
    "worst": 0.4,
}
"""The noises, and the share of wrong labels that a method is told. "class_map" is the usual asymmetric noise, which changes five of the
ten classes; "worst" are the human labels of CIFAR-10N."""

LOSSES = {
    "ce": "ce",
    "gce": "gce(q=0.7)",
    "sce": "0.1*ce + rce",
    "imae": "imae(T=8)",
    "gr": "0.5*gr(beta=12, lam=0.5, normalise='batch')",
    "jal": "ce + 10*amse(a=30)",
}

METHODS = {
    "backward_correction": "backward_correction('anchor', warm_up=10, quantile=0.97)",
    "bilevel": "bilevel(trusted=1000)",
    "bootstrap_hard": "bootstrap_hard",
    "bootstrap_soft": "bootstrap_soft",
    "co_teaching": "co_teaching(rate={rate}, warm_up=6)",
    "co_teaching_plus": "co_teaching_plus(rate={rate}, warm_up=6, burn_in=3)",
    "d2l": "d2l(warm_up=3)",
    "decoupling": "decoupling(burn_in=3)",
    "dividemix": "dividemix(warm_up=10)",
    "elr": "elr(beta=0.7, lam=3)",
    "elr_plus": "elr_plus(beta=0.7, lam=3)",
    "forward_correction": "forward_correction('anchor', warm_up=10, quantile=0.97)",
    "forward_correction, dual T": "forward_correction('dual_t', warm_up=10, quantile=0.97)",
    "ido": "ido(warm_up=10)",
    "jocor": "jocor(rate={rate}, warm_up=6, lam=0.5)",
    "joint_optimisation": "joint_optimisation(warm_up=10, average=3)",
    "masking": "masking('symmetric(0.5)', warm_up=10)",
    "mentornet_dd": "mentornet_dd(trusted=5000)",
    "mentornet_pd": "mentornet_pd",
    "mixup": "mixup(alpha=1)",
    "ogc": "ogc",
    "proselflc": "proselflc",
    "rockafellian": "rockafellian(rate={rate}, mu=1, every=3)",
    "s_adaptation": "s_adaptation(warm_up=10)",
    "self_paced": "self_paced",
    "sop": "sop",
    "t_revision": "t_revision('anchor', warm_up=10, quantile=0.97, fixed=10)",
    "truncated_gce": "truncated_gce(warm_up=10, every=3)",
}

OTHER_LOSS = {"truncated_gce": "gce(q=0.7)"}
"""The losses of methods that do not use cross-entropy."""


def task(row: str, noise: str, seed: int, folder: Path) -> Task:
    """The run of one row of the table."""
    human = noise == "worst"
    (made,) = plan(
        "resnet20",
        "cifar10n(worst)" if human else "cifar10",
        loss=[LOSSES.get(row) or OTHER_LOSS.get(row, "ce")],
        noise=["none" if human else noise],
        method=["plain" if row in LOSSES else METHODS[row].format(rate=NOISES[noise])],
        seed=[seed],
        folder=folder / noise / row,
        **SETTINGS,
    )
    return made


def result(row: str, noise: str, seed: int, run: Run) -> dict[str, Any]:
    """What the table keeps of a run."""
    tested = [line["test_accuracy"] for line in run.metrics if line.get("test_accuracy") is not None]
    settings = {"loss": run.settings.loss, "method": run.settings.method, "epochs": run.settings.epochs}
    return {"row": row, "noise": noise, "seed": seed, **settings, "final": tested[-1], "best": max(tested)}


def train(wanted: list[tuple[str, str, int]], results: list[dict[str, Any]], jobs: int | None) -> None:
    """Train what has no result yet, and add every result to the file as soon as its run is finished."""
    with tempfile.TemporaryDirectory() as name:
        every = {key: task(*key, Path(name)) for key in wanted}
        for each in every.values():
            each.check()  # all of them, before any run is trained
        for human in (True, False):
            keys = [key for key in wanted if (key[1] == "worst") == human]
            tasks = [every[key] for key in keys]

            def watch(progress: Progress, keys: list[Any] = keys, tasks: list[Task] = tasks) -> None:
                if progress.state not in ("waiting", "running"):
                    row, noise, seed = keys[progress.place]
                    if progress.state != "finished":
                        print(f"{row}, {noise}, seed {seed}: {progress.state}", flush=True)
                        return
                    results.append(result(row, noise, seed, Run(tasks[progress.place].folder)))
                    RESULTS.write_text("[\n" + ",\n".join(json.dumps(each) for each in results) + "\n]\n", encoding="utf-8")
                    print(f"{row:28} {noise:16} seed {seed}  {100 * results[-1]['final']:.2f}", flush=True)

            if tasks:
                train_each(tasks, "cifar10n(worst)" if human else "cifar10", jobs=jobs, watch=watch)


def table(results: list[dict[str, Any]]) -> list[str]:
    """The table in Markdown: the accuracy after the last epoch, and the time of an epoch relative to plain training."""
    accuracy = defaultdict(list)
    for each in results:
        accuracy[each["row"], each["noise"]].append(100 * each["final"])
    measured = json.loads(COSTS.read_text(encoding="utf-8"))["rows"] if COSTS.exists() else []
    costs = dict.fromkeys(LOSSES, 1.0) | {name_of(row["method"]): row["ratio"] for row in measured}
    lines = [f"| trained with | {' | '.join(NOISES)} | time of an epoch |", "|---|" + "---|" * (len(NOISES) + 1)]
    for row in [*LOSSES, *METHODS]:
        cells = [mean_and_deviation(accuracy[row, noise]) for noise in NOISES]
        cost = costs.get(row.partition(",")[0])
        if any(cells):
            lines.append(f"| {row} | {' | '.join(cells)} | {'' if cost is None else f'{cost:.1f} ×'} |")
    return lines


def mean_and_deviation(values: list[float]) -> str:
    """Such as "84.1 ± 0.3"; the deviation is that of a sample, and absent for a single value."""
    if not values:
        return ""
    return f"{statistics.mean(values):.1f}" + (f" ± {statistics.stdev(values):.1f}" if len(values) > 1 else "")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--noise", nargs="+", default=list(NOISES), choices=list(NOISES))
    parser.add_argument("--rows", nargs="+", default=[*LOSSES, *METHODS], choices=[*LOSSES, *METHODS])
    parser.add_argument("--seeds", nargs="+", type=int, default=[0, 1, 2])
    parser.add_argument("--jobs", type=int)
    parser.add_argument("--write", action="store_true")
    options = parser.parse_args()
    results = json.loads(RESULTS.read_text(encoding="utf-8")) if RESULTS.exists() else []
    finished = {(each["row"], each["noise"], each["seed"]) for each in results}
    wanted = [(row, noise, seed) for noise, seed, row in product(options.noise, options.seeds, options.rows)]
    train([key for key in wanted if key not in finished], results, options.jobs)
    if options.write:
        command = shlex.join(["python", "benchmarks/accuracy.py", *sys.argv[1:]])
        write_section(
            "Accuracy of methods", [f"`{command}`: ResNet-20, 30 epochs, test accuracy after the last one, in %.", "", *table(results)]
        )


if __name__ == "__main__":
    main()
