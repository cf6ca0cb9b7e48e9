"""A folder with the model of a run and its model card, ready to push to a hub. It has no labels and no record."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterator, Mapping
from pathlib import Path, PurePath
from typing import Any

from noisewise.audit import audit_run
from noisewise.errors import InputError, listed
from noisewise.output import make_folder, written_output
from noisewise.runs import CALIBRATION, exists, read_json, regular_file
from noisewise.train import Run

_COPIED = ("model.safetensors", "classes.json", "metrics.jsonl", CALIBRATION, "encoding.json", "encoding.safetensors")
_NEEDED = ("shape", "type", "normalise", "features", "recorded")
"""What predicting needs of the provenance; the rest says where the run was trained."""

_MARK = "<!-- written by noisewise -->"
_SHOWN = ("model", "loss", "method", "noise", "epochs", "steps", "batch_size", "optimiser", "schedule", "weight_decay", "augment", "seed")


def write_card(
    run: str | os.PathLike[str], folder: str | os.PathLike[str], *, title: str | None = None, license: str | None = None
) -> Path:
    """Write a folder to publish: the model as safetensors, its settings, and a model card.

    The folder is a run without labels, record and paths, so that ``noisewise.Run(folder).predict(…)`` works after a download. A table's
    encoding contains the names of its columns and their categories.

    Args:
        run: a run or its folder.
        folder: a new folder, or one that this function wrote.
        title: the title of the card; by default the model and the data.
        license: the license of the model, such as "apache-2.0".

    Returns:
        The folder.

    Example:
        >>> import tempfile
        >>> from noisewise import fit
        >>> folder = tempfile.mkdtemp()
        >>> run = fit("linear", "digits", epochs=2, folder=f"{folder}/run", device="cpu")
        >>> sorted(file.name for file in write_card(run, f"{folder}/card").iterdir())[:3]
        ['README.md', 'classes.json', 'config.json']
    """
    source, target = Run(run), Path(folder)
    regular_file(source.path, "model.safetensors")  # a recorded loop may have none
    if target.exists() and any(target.iterdir()) and not _is_ours(target / "README.md"):
        raise InputError(f"The folder {str(target)!r} is not empty and has no model card that noisewise wrote. Give another folder.")
    make_folder(target)
    for name in _COPIED:
        (target / name).unlink(missing_ok=True)
        if exists(source.path, name):
            with written_output(target / name) as part:
                shutil.copyfile(regular_file(source.path, name), part)
    settings = read_json(source.path, "settings.json")
    settings["data"] = PurePath(str(settings["data"])).name
    title = title or f"{settings['model']} on {settings['data']}"
    provenance = {name: value for name, value in source.provenance.items() if name in _NEEDED}
    config = {"library_name": "noisewise", "classes": list(source.classes), "temperature": source.temperature, **settings, **provenance}
    status = read_json(source.path, "status.json") | {"reason": None}
    for name, content in (("settings", settings), ("provenance", provenance), ("status", status), ("config", config)):
        _write(target / f"{name}.json", json.dumps(content, indent=1, ensure_ascii=False) + "\n")
    _write(target / "README.md", "\n".join(_card(source, settings, title, license)) + "\n")
    return target


def _is_ours(file: Path) -> bool:
    return file.is_file() and _MARK in file.read_text(encoding="utf-8")


def _write(file: Path, text: str) -> None:
    with written_output(file) as part:
        part.write_text(text, encoding="utf-8")


def _card(run: Run, settings: Mapping[str, Any], title: str, license: str | None) -> Iterator[str]:
    """The lines of the card."""
    yield from _metadata(run, settings, title, license)
    yield from (_MARK, "", f"# {title}", "")
    yield f"A classifier of {len(run.classes)} classes, trained with the loss `{settings['loss']}` on labels that may be wrong."
    yield from ("", "## Use", "", "```python", "import noisewise", "from huggingface_hub import snapshot_download", "")
    into = ", into=module" if _is_custom(run) else ""
    yield 'run = noisewise.Run(snapshot_download("USER/NAME"))'
    yield f"probabilities = run.predict(inputs{into})  # a column for each of run.classes"
    yield from ("```", "", "## Results", "", "| | |", "|---|---|")
    for name, value in _results(run).items():
        yield f"| {name} | {value} |"
    yield from ("", "## Training", "", "| setting | value |", "|---|---|")
    for name in _SHOWN:
        if settings.get(name) is not None:
            yield f"| {name} | `{settings[name]}` |"
    yield from ("", "## Classes", "", listed(f"`{name}`" for name in run.classes))


def _is_custom(run: Run) -> bool:
    """Whether the model cannot be built from its name."""
    try:
        run.model()
    except InputError:
        return True
    return False


def _metadata(run: Run, settings: Mapping[str, Any], title: str, license: str | None) -> Iterator[str]:
    """The metadata block, as YAML whose values are JSON."""
    task = _task(run)
    facts: dict[str, Any] = {"library_name": "noisewise", "tags": ["noisewise", "label-noise", "robust-loss"]}
    facts |= {"license": license} if license else {}
    facts |= {"pipeline_tag": task} if task else {}
    if run.dynamics.accuracy is not None:
        metric = {"type": "accuracy", "value": run.dynamics.accuracy}
        data = {"type": settings["data"], "name": settings["data"], "split": "test"}
        results = [{"task": {"type": task or "other"}, "dataset": data, "metrics": [metric]}]
        facts["model-index"] = [{"name": title, "results": results}]
    yield "---"
    yield from (f"{name}: {json.dumps(value, ensure_ascii=False)}" for name, value in facts.items())
    yield "---"


def _task(run: Run) -> str | None:
    """The hub's name of the task, if it can be told from the inputs."""
    if run.provenance.get("features"):
        return "tabular-classification"
    return "image-classification" if len(run.provenance.get("shape") or ()) == 3 else None


def _results(run: Run) -> dict[str, str]:
    """Measurements of the run, by what they say."""
    dynamics = run.dynamics
    results = {} if dynamics.accuracy is None else {"test accuracy": _percent(dynamics.accuracy)}
    held_out = dynamics.model_value(dynamics.held_out)
    if held_out is not None:
        results["accuracy on held-out examples, by their given labels"] = _percent(held_out)
    for name, share in (dynamics.class_accuracies() or {}).items():
        results[f"test accuracy on `{name}`"] = _percent(share)
    if dynamics.record.epochs():
        issues = audit_run(run)
        low, high = issues.interval or (0.0, 0.0)
        results |= {
            "training labels": f"{len(issues):,}",
            "doubtful training labels": f"{issues.count:,}; between {low:,.0f} and {high:,.0f} may be wrong",
        }
        memorised = dynamics.model_value(dynamics.noisy_subset)
        results |= {} if memorised is None else {"wrong labels that the model learned": _percent(memorised)}
    return results


def _percent(share: float) -> str:
    return f"{100 * share:.1f} %"
