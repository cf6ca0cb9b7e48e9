"""What other labelling tools export, as entries of a file of decisions. The formats are those that the tools document."""

from __future__ import annotations

from collections import Counter
from typing import Any

QUESTION = "label"
"""The name of the question, or of the choices, in the tool."""

NONE = "(none of these)"
"""The answer that leaves an example out."""


def from_tool(entry: Any) -> Any:
    """An entry of an export of Label Studio or Argilla as one of a file of decisions; None if nobody has answered. Others are unchanged."""
    if not isinstance(entry, dict):
        return entry
    if {"data", "annotations"} <= entry.keys():
        data = entry["data"]
        answers = [_choice(annotation) for annotation in entry["annotations"]]
        return _entry(data["index"], data["example"], data["given_label"], answers)
    if {"fields", "responses"} <= entry.keys():
        fields = entry["fields"]
        answers = [response["value"] for response in entry["responses"].get(QUESTION, [])]
        return _entry(entry["id"], fields["example"], fields["given_label"], answers)
    return entry


def _choice(annotation: dict[str, Any]) -> str | None:
    """What an annotator of Label Studio chose; None if the task was skipped."""
    chosen = [result["value"]["choices"][0] for result in annotation["result"] if result["from_name"] == QUESTION]
    return None if annotation.get("was_cancelled") or not chosen else str(chosen[0])


def _entry(index: Any, example: str, given: str, answers: list[str | None]) -> dict[str, Any] | None:
    """The answer that most annotators gave; "unsure" if no answer has the most votes."""
    if not answers:
        return None
    counts = Counter(answers).most_common(2)
    answer = counts[0][0] if len(counts) == 1 or counts[0][1] > counts[1][1] else None
    decision = {None: "unsure", NONE: "drop", given: "keep"}.get(answer, "relabel")
    label = {"label": answer} if decision == "relabel" else {}
    return {"index": index, "id": example, "given_label": given, "decision": decision, **label}
