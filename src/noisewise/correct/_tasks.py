"""Write the doubtful labels of an audit as tasks for Label Studio or Argilla, whose exports `read_decisions` reads."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from xml.sax.saxutils import quoteattr

from noisewise.audit import Audit
from noisewise.correct._cards import Cards
from noisewise.correct._correction import audited
from noisewise.correct._exports import NONE, QUESTION
from noisewise.dynamics import Dynamics
from noisewise.errors import invalid_parameter
from noisewise.output import check_output, check_replacing, written_output
from noisewise.spec import as_int

_SIDE = 512  # of a picture, in pixels
_AGENT = "noisewise"


def write_tasks(
    audit_or_run: Audit | Dynamics | str | os.PathLike[str],
    output: str | os.PathLike[str] = "tasks.json",
    *,
    tool: str = "label-studio",
    limit: int = 200,
    data: Any = None,
    url: str | None = None,
) -> list[Path]:
    """Write the doubtful labels of an audit as tasks to import into another labelling tool, with the suggested labels as predictions.

    `read_decisions` reads what the tool exports, and `correct` applies it. The answer "(none of these)" leaves an example out, and a
    skipped one is not changed. If several people answered, most of them decide.

    Args:
        audit_or_run: the audit; or a run, its folder or its dynamics, which is audited first.
        output: the file to write; it ends in .json.
        tool: "label-studio" or "argilla".
        limit: the number of labels, the most doubtful first.
        data: the training data, to show the examples; by default the source that the run names. If it is gone, tasks show the id.
        url: the address of an image, such as "https://example.com/{id}"; by default images are in the file.

    Returns:
        The files that were written: the tasks, and for Label Studio the labelling configuration, which ends in .xml.

    Example:
        >>> import tempfile
        >>> from noisewise import fit
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     run = fit("mlp", "digits", noise="symmetric(0.2, flips='exact')", epochs=10, folder=f"{folder}/run", device="cpu")
        ...     files = write_tasks(run, f"{folder}/tasks.json", limit=5)
        ...     len(json.loads(files[0].read_text())), [file.name for file in files]
        (5, ['tasks.json', 'tasks.xml'])
    """
    if tool not in _TASKS:
        raise invalid_parameter("tool", "write_tasks", f"one of {', '.join(map(repr, _TASKS))}", tool)
    if url is not None and "{id}" not in url:
        raise invalid_parameter("url", "write_tasks", "an address with {id} in it", url)
    target = check_output(output, "write_tasks", [".json"])
    check_replacing(target, None, is_tasks, "file of tasks")
    cards = Cards(audited(audit_or_run, "write_tasks"), as_int("limit", "write_tasks", limit, 1), data)
    config = target.with_suffix(".xml")
    if tool == "label-studio":
        check_replacing(config, None, _is_configuration, "labelling configuration")
    with written_output(target) as part:
        tasks = map(_TASKS[tool], _facts(cards, url))
        part.write_text("[\n" + ",\n".join(json.dumps(task, ensure_ascii=False) for task in tasks) + "\n]\n", encoding="utf-8")
    if tool != "label-studio":
        return [target]
    with written_output(config) as part:
        part.write_text(_configuration(cards, url), encoding="utf-8")
    return [target, config]


def is_tasks(file: Path) -> bool:
    """Whether an existing file has tasks that noisewise wrote."""
    with file.open("rb") as opened:
        return f'"{_AGENT}"'.encode() in opened.read(512)


def _is_configuration(file: Path) -> bool:
    return file.read_text(encoding="utf-8").startswith(f"<View><!-- {_AGENT} -->")


def _field(cards: Cards, url: str | None) -> str:
    """What an example is shown as: "image" or "text"."""
    return "image" if url is not None or cards.has_pictures else "text"


def _facts(cards: Cards, url: str | None) -> Iterator[dict[str, Any]]:
    """What a tool shows of each card, and what the decisions are checked with."""
    names, field = cards.classes, _field(cards, url)
    details = cards.details(range(len(cards)))
    for number, ((index, given, suggested, chance, share), card) in enumerate(zip(cards.summaries(), details, strict=True)):
        if url is not None:
            shown = url.replace("{id}", card["id"])
        elif field == "image":
            shown = cards.picture(number, side=_SIDE) or ""
        else:
            shown = "\n".join(f"{name}: {value}" for name, value in card["values"]) or card["id"]
        yield {
            "index": int(index),
            "example": card["id"],
            "given_label": names[int(given)],
            "suggested_label": names[int(suggested)],
            "chance_wrong": chance,
            "suggestion_probability": share,
            field: shown,
        }


def _label_studio(facts: dict[str, Any]) -> dict[str, Any]:
    value = {"choices": [facts["suggested_label"]]}
    result = {"id": QUESTION, "from_name": QUESTION, "to_name": "example", "type": "choices", "value": value}
    prediction = {"model_version": _AGENT, "score": facts["suggestion_probability"], "result": [result]}
    return {"predictions": [prediction], "data": facts}


def _argilla(facts: dict[str, Any]) -> dict[str, Any]:
    suggestion = {"agent": _AGENT, "value": facts["suggested_label"], "score": facts["suggestion_probability"]}
    fields = {name: facts[name] for name in ("image", "text", "given_label", "example") if name in facts}
    return {
        "suggestions": {QUESTION: suggestion},
        "id": str(facts["index"]),
        "fields": fields,
        "responses": {},
        "metadata": {},
        "vectors": {},
    }


_TASKS: dict[str, Callable[[dict[str, Any]], dict[str, Any]]] = {"label-studio": _label_studio, "argilla": _argilla}


def _configuration(cards: Cards, url: str | None) -> str:
    """The labelling configuration of Label Studio: the example, its given label, and a choice for every class."""
    kind = {"image": "Image", "text": "Text"}[_field(cards, url)]
    choices = "\n".join(f"    <Choice value={quoteattr(name)}/>" for name in [*cards.classes, NONE])
    return (
        f'<View><!-- {_AGENT} -->\n  <{kind} name="example" value="${kind.lower()}"/>\n  <Header value="given label:"/>\n'
        f'  <Text name="given" value="$given_label"/>\n  <Choices name="{QUESTION}" toName="example" choice="single">\n'
        f"{choices}\n  </Choices>\n</View>\n"
    )
