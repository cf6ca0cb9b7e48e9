"""Tasks for Label Studio and Argilla, and their exports as decisions. The tools' own libraries check the files where they are installed."""

from __future__ import annotations

import base64
import io
import json
import xml.etree.ElementTree
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image
from typer.testing import CliRunner

import noisewise
from noisewise.cli import app
from noisewise.correct import correct, read_decisions, write_tasks
from noisewise.train import Run
from refused import refused

NONE = "(none of these)"


@pytest.fixture(scope="module")
def table(tmp_path_factory: pytest.TempPathFactory) -> Run:
    """A run on a CSV file with names of examples and classes; of 300 labels, 30 are wrong."""
    folder, draw = tmp_path_factory.mktemp("table"), np.random.default_rng(0)
    lines = ["name,length,width,kind"]
    for row in range(300):
        true = row % 3
        given = (true + 1) % 3 if row % 10 == 0 else true
        length, width = draw.normal(size=2) + 6 * np.array([true, -true])
        lines.append(f"flower {row},{length:.3f},{width:.3f},{('iris', 'rose & co', '<lily>')[given]}")
    (folder / "flowers.csv").write_text("\n".join(lines), encoding="utf-8")
    data = noisewise.data.read(folder / "flowers.csv", label="kind", id="name")
    return noisewise.fit("mlp", data, folder=folder / "run", epochs=10, loss="gce(q=0.7)", device="cpu")


def written(run: Run, folder: Path, **options: Any) -> list[dict[str, Any]]:
    tasks = json.loads(write_tasks(run, folder / "tasks.json", **options)[0].read_text(encoding="utf-8"))
    assert isinstance(tasks, list)
    return tasks


def from_label_studio(tasks: list[dict[str, Any]], answers: list[list[str | None]]) -> list[dict[str, Any]]:
    """An export in the format that Label Studio documents as "JSON"; None is a skipped task."""

    def annotation(answer: str | None) -> dict[str, Any]:
        value = {
            "value": {"choices": [answer]},
            "id": "x",
            "from_name": "label",
            "to_name": "example",
            "type": "choices",
            "origin": "manual",
        }
        return {"id": 1, "completed_by": 1, "result": [] if answer is None else [value], "was_cancelled": answer is None, "lead_time": 2.5}

    return [
        {"id": number, "annotations": list(map(annotation, answer)), "data": task["data"], "predictions": [], "meta": {}, "project": 1}
        for number, (task, answer) in enumerate(zip(tasks, answers, strict=True), 1)
    ]


def from_argilla(tasks: list[dict[str, Any]], answers: list[list[str | None]]) -> list[dict[str, Any]]:
    """An export of ``records.to_json``: an answer per user, without discarded ones."""
    return [
        {**task, "responses": {"label": [{"value": value, "user_id": str(user)} for user, value in enumerate(answer)]} if answer else {}}
        for task, answer in zip(tasks, answers, strict=True)
    ]


@pytest.mark.parametrize(("tool", "export"), [("label-studio", from_label_studio), ("argilla", from_argilla)])
def test_what_people_answered_is_applied(tool: str, export: Any, table: Run, tmp_path: Path) -> None:
    tasks = written(table, tmp_path, tool=tool, limit=5)
    facts = [task["data"] if tool == "label-studio" else {**task["fields"], "index": task["id"]} for task in tasks]
    audit = table.find_label_issues()
    assert [fact["example"] for fact in facts] == [f"flower {row}" for row in audit.review_first(5)]
    given, others = [fact["given_label"] for fact in facts], [["iris", "rose & co", "<lily>"] for _ in facts]
    new = [next(name for name in names if name != label) for names, label in zip(others, given, strict=True)]
    answers = [[new[0]], [given[1]], [NONE], [], [new[4], given[4], new[4]]]
    (tmp_path / "export.json").write_text(json.dumps(export(tasks, answers)), encoding="utf-8")
    decisions = read_decisions(tmp_path / "export.json")
    assert {index: decision.action for index, decision in decisions.items()} == dict(
        zip([int(facts[place]["index"]) for place in (0, 1, 2, 4)], ["relabel", "keep", "drop", "relabel"], strict=True)
    )
    corrected = correct(audit, decisions=decisions)
    position = {name: place for place, name in enumerate(corrected.ids)}
    places = [position[fact["example"]] for fact in facts]
    assert corrected.changed.sum() == 3 and not corrected.kept[places[2]]
    assert [corrected.classes[corrected.labels[places[row]]] for row in (0, 4)] == [new[0], new[4]]


@pytest.mark.parametrize("answer", [[None], ["iris", "<lily>"]], ids=["skipped", "a tie"])
def test_without_a_decision_nothing_changes(answer: list[str | None], table: Run, tmp_path: Path) -> None:
    export = from_label_studio(written(table, tmp_path, limit=1), [answer])
    (tmp_path / "export.json").write_text(json.dumps(export), encoding="utf-8")
    decisions = read_decisions(tmp_path / "export.json")
    assert [decision.action for decision in decisions.values()] == ["unsure"] and not correct(table, decisions=decisions).changed.any()


def test_an_export_of_another_run_is_refused(table: Run, tmp_path: Path) -> None:
    export = from_label_studio(written(table, tmp_path, limit=1), [["iris"]])
    export[0]["data"]["example"] = "flower x"
    (tmp_path / "export.json").write_text(json.dumps(export), encoding="utf-8")
    with refused("'flower x'", "id"):
        correct(table, decisions=read_decisions(tmp_path / "export.json"))
    del export[0]["data"]["index"]
    (tmp_path / "export.json").write_text(json.dumps(export), encoding="utf-8")
    with refused("Entry 1", "index"):
        read_decisions(tmp_path / "export.json")


def test_a_task_shows_the_row_and_the_configuration_has_all_classes(table: Run, tmp_path: Path) -> None:
    task = written(table, tmp_path, limit=1)[0]
    assert {line.split(": ")[0] for line in task["data"]["text"].splitlines()} == {"length", "width"}
    assert task["predictions"][0]["result"][0]["value"]["choices"] == [task["data"]["suggested_label"]]
    root = xml.etree.ElementTree.fromstring((tmp_path / "tasks.xml").read_text(encoding="utf-8"))
    assert [choice.get("value") for choice in root.iter("Choice")] == [*table.classes, NONE]
    write_tasks(table, tmp_path / "tasks.json", limit=2)  # its own files are replaced
    (tmp_path / "tasks.json").write_text("[{}]")
    with refused("tasks.json"):
        write_tasks(table, tmp_path / "tasks.json")


def test_images_are_in_the_file_or_at_an_address(tmp_path: Path) -> None:
    run = noisewise.fit("mlp", "digits", noise="symmetric(0.2)", epochs=8, folder=tmp_path / "run", device="cpu")
    record, source = run.dynamics.record, noisewise.data.load("digits")
    data = written(run, tmp_path, limit=1)[0]["data"]
    kind, _, content = data["image"].partition(",")
    pixels = np.asarray(Image.open(io.BytesIO(base64.b64decode(content))))
    assert kind == "data:image/png;base64" and np.array_equal(pixels, source.inputs[data["index"], 0].numpy())
    assert data["given_label"] == record.classes[record.given[data["index"]]]
    address = written(run, tmp_path, limit=1, url="https://example.com/{id}.png")[0]["data"]["image"]
    assert address == f"https://example.com/{data['example']}.png"


@pytest.mark.parametrize(
    ("options", "mentions"),
    [({"tool": "prodigy"}, ("'argilla'", "'prodigy'")), ({"url": "https://x"}, ("{id}",)), ({"limit": 0}, ("limit",))],
)
def test_a_wrong_option_is_refused(options: dict[str, Any], mentions: tuple[str, ...], table: Run, tmp_path: Path) -> None:
    with refused(*mentions):
        write_tasks(table, tmp_path / "tasks.json", **options)


def test_the_commands_go_there_and_back(table: Run, tmp_path: Path) -> None:
    done = CliRunner().invoke(app, ["tasks", str(table.path), "-o", str(tmp_path / "tasks.json"), "--tool", "argilla", "--limit", "3"])
    assert done.exit_code == 0 and "tasks.json" in done.stdout
    tasks = json.loads((tmp_path / "tasks.json").read_text(encoding="utf-8"))
    (tmp_path / "export.json").write_text(json.dumps(from_argilla(tasks, [[NONE]] * 3)), encoding="utf-8")
    command = ["correct", str(table.path), "--decisions", str(tmp_path / "export.json"), "-o", str(tmp_path / "corrected.csv")]
    assert "3 left out" in CliRunner().invoke(app, command).stdout


def test_label_studio_accepts_the_tasks(table: Run, tmp_path: Path) -> None:
    interface = pytest.importorskip("label_studio_sdk.label_interface", reason="needs label-studio-sdk")
    tasks = written(table, tmp_path, limit=4)
    checked = interface.LabelInterface((tmp_path / "tasks.xml").read_text(encoding="utf-8"))
    checked.validate()
    for task in tasks:
        assert checked.validate_prediction(task["predictions"][0]), task
        assert task["data"].keys() >= {"text", "given_label"}
    assert not checked.validate_prediction({**tasks[0]["predictions"][0], "result": [{"from_name": "other"}]})


def test_argilla_reads_the_tasks_and_its_export_is_read_back(table: Run, tmp_path: Path) -> None:
    argilla = pytest.importorskip("argilla", reason="needs argilla")
    from argilla.records._io import JsonIO

    path, *_ = write_tasks(table, tmp_path / "tasks.json", tool="argilla", limit=4)
    records = JsonIO._records_from_json(path)
    assert [record.suggestions["label"].agent for record in records] == ["noisewise"] * 4
    given = records[0].fields["given_label"]
    records[0].responses.add(argilla.Response("label", given, user_id="00000000-0000-0000-0000-000000000001"))
    JsonIO.to_json(records, tmp_path / "export.json")
    ((index, decision),) = read_decisions(tmp_path / "export.json").items()
    assert decision.action == "keep" and decision.given == given and index == int(records[0].id)
