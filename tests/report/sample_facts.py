"""Invented facts for a page, with an example of everything that a page can show. The numbers mean nothing."""

from __future__ import annotations

import base64
import copy
import io
from typing import Any

import numpy as np
import torch
from PIL import Image
from sklearn.datasets import load_digits

from noisewise.draw import as_text, curves_figure, dynamics_figure
from noisewise.draw._history import History, LossCurves, MeanCurve, line_style
from noisewise.losses import get
from noisewise.report._facts import Facts, TaskFacts

LOSSES = ("ce", "imae(T=8.0)", "gce(q=0.7)", "mae", "0.3*nce + 0.7*mae")
NOISES = ("symmetric(0.4)", "pair(0.2)", "symmetric(0.8)", "symmetric(0.2)", "none", "pair(0.45)")
HOSTILE = "</script><script>window.hacked = 1</script>\"><img src=x onerror='window.hacked = 1'><b>bold</b> &lt;i&gt;"
MEASURES = (
    ("final", "Test, final", "Test accuracy at the end of training.", "%"),
    ("best", "Test, best", "The best test accuracy of any epoch.", "%"),
    ("clean_subset", "Right labels learned", "Training accuracy on the examples whose labels are right.", "%"),
    ("noisy_subset", "Wrong labels learned", "Wrongly labelled examples predicted as labelled: memorised.", "%"),
    ("snr", "snr", "Mean emphasis of rightly over that of wrongly labelled examples.", ""),
    ("alpha", "α", "Mean of the gradient norm: how hard the loss pulled.", ""),
)
ACCURACY = {
    "ce": (0.671, 0.812, 0.933, 0.343),
    "imae(T=8.0)": (0.844, 0.852, 0.940, 0.055),
    "gce(q=0.7)": (0.838, 0.846, 0.921, 0.049),
    "mae": (0.0925, 0.759, 0.846, 0.068),
}


def sample(tasks: int = 2, losses: int = 4, seeds: int = 3, examples: int = 24, frames: int = 30) -> Facts:
    """A report on some tasks, each with some losses and seeds; the last run was interrupted, and one folder is broken."""
    random = np.random.default_rng(0)
    measured = [_task(NOISES[place], LOSSES[:losses], seeds, examples, frames, random) for place in range(tasks)]
    groups: list[Any] = []
    runs: list[Any] = []
    for place, task in enumerate(measured):
        for loss in LOSSES[:losses]:
            members = [_run(place, task, loss, seed, random) for seed in range(seeds)]
            groups.append(_group(place, loss, members))
            runs += members
    runs[-1] |= {
        "state": "interrupted",
        "notes": ["Not finished: it was interrupted after 12 epochs. Run the same command to resume it."],
        "measures": dict.fromkeys(runs[-1]["measures"]),
    }
    facts: Facts = {
        "title": "Robust losses on digits",
        "made": "15 November 2026, noisewise 0.4.0",
        "counts": f"{len(runs)} runs: {losses} losses × {tasks} noises × {seeds} seeds",
        "verdict": _verdict(tasks),
        "measures": [{"key": key, "title": title, "help": words, "unit": unit} for key, title, words, unit in MEASURES],
        "groups": groups,
        "runs": runs,
        "broken": [{"folder": "runs/half-copied", "reason": "It has no settings.json. Copy the folder again."}],
        "tasks": measured,
    }
    return facts


def hostile() -> Facts:
    """The sample with markup in every name that a user can choose."""
    facts = sample(tasks=2, losses=2, seeds=1, examples=4, frames=3)
    facts["title"] = facts["made"] = facts["counts"] = HOSTILE
    facts["verdict"][0]["text"] = HOSTILE
    for run in facts["runs"]:
        run |= {"loss": HOSTILE, "noise": HOSTILE, "data": HOSTILE, "folder": HOSTILE, "command": HOSTILE, "notes": [HOSTILE]}
        run |= {"settings": {HOSTILE: HOSTILE}, "versions": {HOSTILE: HOSTILE}, "reported": {"value": HOSTILE, "source": HOSTILE}}
    for group in facts["groups"]:
        group |= {"loss": HOSTILE, "reported": {"value": HOSTILE, "source": HOSTILE}}
    for task in facts["tasks"]:
        task |= {"name": HOSTILE, "noise": HOSTILE, "curves_note": HOSTILE}
        assert task["classes"] is not None
        task["classes"] |= {"title": HOSTILE, "note": HOSTILE, "losses": [HOSTILE] * len(task["classes"]["losses"])}
        for row in task["classes"]["rows"]:
            row["name"] = HOSTILE
        for column in task["columns"]["rows"]:
            column |= {"name": HOSTILE, "done": HOSTILE}
        for correction in task["corrections"]:
            correction |= {"origin": HOSTILE, "label": HOSTILE, "text": HOSTILE, "notes": [HOSTILE], "classes_title": HOSTILE}
            for change in correction["classes"]:
                change["name"] = HOSTILE
        for drawn in (task["curves"], task["dynamics"]):
            assert drawn is not None
            for trace in drawn["data"]:
                trace["name"] = as_text(HOSTILE)
        for film in task["films"]:
            film["label"] = HOSTILE
        doubt = task["doubt"]
        assert doubt is not None
        doubt |= {"intro": HOSTILE, "note": HOSTILE}
        for example in doubt["examples"]:
            example |= {"id": HOSTILE, "given": HOSTILE, "suggested": HOSTILE + "!", "true": HOSTILE, "fields": [[HOSTILE, HOSTILE]]}
        doubt["examples"][0]["image"] = None
        for matrix in doubt["matrices"]:
            matrix |= {"title": HOSTILE, "names": [HOSTILE] * len(matrix["names"])}
    facts["broken"] = [{"folder": HOSTILE, "reason": HOSTILE}]
    return facts


def _verdict(tasks: int) -> list[Any]:
    sentences = [
        (
            "good",
            "On digits, mlp, symmetric(0.4), imae(T=8.0) won: 84.4 ± 0.4 % test accuracy over 3 seeds, 0.6 points above gce(q=0.7).",
            0,
        ),
        ("plain", "imae(T=8.0) learned 5.5 ± 0.2 % of the wrong labels and 94.0 ± 0.3 % of the right ones.", 0),
        (
            "warning",
            "mae underfits: it learned 84.6 ± 1.1 % of the right labels, others 94.0 %. Try shifted(mae, tau=2).",
            min(1, tasks - 1),
        ),
    ]
    return [{"tone": tone, "text": text, "task": task} for tone, text, task in sentences]


def _run(place: int, task: TaskFacts, loss: str, seed: int, random: np.random.Generator) -> dict[str, Any]:
    shares = [max(0.0, share + random.normal(0, 0.004)) for share in ACCURACY.get(loss, (0.8, 0.82, 0.9, 0.1))]
    values: list[float | None] = [*shares, None if loss == "mae" else float(random.uniform(1, 12)), float(random.uniform(0.1, 1.4))]
    return {
        "task": place,
        "loss": loss,
        "noise": task["noise"],
        "model": task["model"],
        "data": task["data"],
        "seed": seed,
        "state": "finished",
        "notes": [],
        "measures": dict(zip((key for key, *_ in MEASURES), values, strict=True)),
        "reported": {"value": "84.0", "source": "IMAE, table 6"} if loss.startswith("imae") else None,
        "folder": f"runs/{task['noise']}-{loss}-seed{seed}",
        "settings": {"epochs": "120", "batch_size": "128", "optimiser": "sgd(momentum=0.9)", "learning_rate": "0.1", "schedule": "cosine"},
        "versions": {"noisewise": "0.4.0", "torch": "2.13.0", "python": "3.11.2", "device": "cpu"},
        "command": f"noisewise train --data {task['data']} --model {task['model']} --noise '{task['noise']}' --loss '{loss}' --seed {seed}",
    }


def _group(place: int, loss: str, members: list[dict[str, Any]]) -> dict[str, Any]:
    averages: dict[str, Any] = {}
    for key, *_ in MEASURES:
        values = [run["measures"][key] for run in members if run["measures"][key] is not None]
        deviation = float(np.std(values, ddof=1)) if len(values) > 1 else None
        averages[key] = {"mean": float(np.mean(values)), "deviation": deviation} if values else None
    return {
        "task": place,
        "loss": loss,
        "seeds": [run["seed"] for run in members],
        "measures": averages,
        "reported": members[0]["reported"],
        "winner": loss.startswith("imae"),
    }


def _task(noise: str, losses: tuple[str, ...], seeds: int, examples: int, frames: int, random: np.random.Generator) -> TaskFacts:
    drawable = [loss for loss in losses if "nce" not in loss]
    return {
        "name": f"digits, mlp, {noise}",
        "data": "digits",
        "model": "mlp",
        "noise": noise,
        "corrections": [_correction()] if noise == NOISES[0] else [],
        "classes": _classes(losses),
        "columns": _columns(),
        "curves": curves_figure(drawable, 10),
        "curves_note": "0.3*nce + 0.7*mae is not a function of the margin alone and has no curve." if len(drawable) < len(losses) else None,
        "dynamics": _dynamics(losses),
        "films": [
            film | {"label": f"{loss}, seed {seed}"} for loss in losses for film in [_film(loss, frames, random)] for seed in range(seeds)
        ],
        "doubt": _doubt(examples, random),
    }


def _classes(losses: tuple[str, ...]) -> dict[str, Any]:
    rows: list[Any] = [
        {"name": str(place), "labels": 140 + place, "accuracies": [None if place == 9 else 0.05 * place] * len(losses)}
        for place in range(10)
    ]
    return {"title": "Test accuracy by class", "note": "The 10 worst of 100 classes.", "losses": list(losses), "rows": rows}


def _columns() -> dict[str, Any]:
    rows = [
        {"name": "age", "kind": "number", "done": "scaled by quartiles; gaps: the median, marked", "gaps": 1200, "distinct": 61},
        {"name": "customer", "kind": "left out", "done": "nearly every row has its own value", "gaps": 0, "distinct": 3000},
    ]
    return {"rows": rows, "inputs": 2, "note": "The first 60 of 61 columns."}


def _correction() -> dict[str, Any]:
    changes = np.array([[150, 60, 55, 0, 145], [140, 50, 52, 0, 142], [1300, 40, 43, 0, 1303]])
    return {
        "origin": "ce",
        "label": "ce, relabelled",
        "text": "The correction gained: with 571 of 1,437 labels relabelled, ce reached 83.0 %, 15.9 points above the 67.1 % before.",
        "notes": ["Not among the runs of this page: ce-seed0. Its numbers are those it had when its labels were corrected."],
        "measures": [
            {
                "title": "Test accuracy of the model",
                "before": {"mean": 0.671, "deviation": 0.01},
                "after": {"mean": 0.83, "deviation": None},
            },
            {"title": "Wrong labels", "before": None, "after": None},
        ],
        "classes_title": "Labels by class, seed 0",
        "classes": [
            {"name": str(place), "before": before, "away": away, "into": into, "left_out": left_out, "after": after}
            for place, (before, away, into, left_out, after) in enumerate(changes.tolist())
        ],
    }


def _dynamics(losses: tuple[str, ...]) -> dict[str, Any] | None:
    steps = np.arange(0, 30001, 500)
    reached = {"test": 0.8, "clean_subset": 0.93, "noisy_subset": 0.08, "alpha": 0.5, "clean_emphasis": 0.4, "noisy_emphasis": 0.3}
    lines = []
    for place, loss in enumerate(losses):
        learned = 1 - np.exp(-steps / (3000 + 2000 * place))
        means = {name: (height + 0.3 * (name == "noisy_subset" and place == 0)) * learned for name, height in reached.items()}
        courses = {name: MeanCurve(steps, mean, 0.97 * mean, 1.03 * mean) for name, mean in means.items()}
        lines.append(LossCurves(loss, *line_style(place), 3, courses))
    return dynamics_figure(History("", tuple(lines)))


def _film(loss: str, frames: int, random: np.random.Generator) -> dict[str, Any]:
    edges = np.linspace(-10, 10, 61)
    epochs = np.unique(np.linspace(1, 120, frames).astype(int))
    learned = 1 - np.exp(-epochs / 30)
    clean = [np.histogram(random.normal(-2.6 + 6 * share, 1 + share, 3000).clip(-10, 10), edges)[0].tolist() for share in learned]
    noisy = [np.histogram(random.normal(-2.6 - 2 * share, 1 + share, 2000).clip(-10, 10), edges)[0].tolist() for share in learned]
    margins = np.linspace(-10, 10, 201)
    known = get(loss)
    values = known.emphasis(torch.from_numpy(margins)).tolist() if "nce" not in loss else None
    return {
        "label": loss,
        "edges": edges.tolist(),
        "epochs": epochs.tolist(),
        "counts": {"clean": clean, "noisy": noisy},
        "emphasis": None if values is None else {"margins": margins.tolist(), "values": [values]},
    }


def _doubt(examples: int, random: np.random.Generator) -> dict[str, Any]:
    digits = load_digits()
    shown: list[Any] = []
    for place in range(examples):
        true = int(digits.target[place])
        history = np.linspace(-2.6, -4 + 0.1 * place, 40) + random.normal(0, 0.3, 40)
        shown.append(
            {
                "id": f"#{place}",
                "given": str((true + 3) % 10),
                "suggested": str(true),
                "true": str(true) if place % 3 else None,
                "chance": 1 - 0.03 * place / examples - 0.4 * (place / examples) ** 2,
                "margins": [None if epoch == 5 else float(margin) for epoch, margin in enumerate(history)],
                "image": _png((digits.images[place] * (255 / 16)).astype(np.uint8)),
                "fields": [],
            }
        )
    counts = random.poisson(3, (10, 10)) + np.diag(random.poisson(90, 10))
    shares = counts / counts.sum(1, keepdims=True)
    names = [str(digit) for digit in range(10)]
    return {
        "intro": f"imae(T=8.0) doubts 571 of 1,437 labels; these {examples} most.",
        "note": None,
        "steps": [{"words": "List them:", "command": "noisewise audit runs/ce -o issues.csv"}],
        "examples": shown,
        "matrices": [
            {"title": title, "names": names, "shares": shares.tolist(), "counts": counts.tolist()} for title in ("Estimated", "True")
        ],
    }


def _png(pixels: Any) -> str:
    buffer = io.BytesIO()
    Image.fromarray(pixels).save(buffer, "PNG")
    return "data:image/png;base64," + base64.b64encode(buffer.getvalue()).decode()


def without_images(facts: Facts) -> Facts:
    """The same facts about a table: examples are rows of fields."""
    facts = copy.deepcopy(facts)
    for task in facts["tasks"]:
        assert task["doubt"] is not None
        for place, example in enumerate(task["doubt"]["examples"]):
            example |= {"image": None, "fields": [["age", str(20 + place)], ["job", "engineer, retired"], ["city", "Saint-Rémy"]]}
    return facts
