"""Damaged files of decisions and of corrected labels are read or refused in one sentence."""

import json
import random

import numpy as np
import pytest
import torch

from fuzzing import mutated, survives
from noisewise.audit import audit
from noisewise.correct import Correction, correct, read_decisions
from noisewise.data import Dataset
from noisewise.train import fit

CLASSES = ("cat", "dog", "eel")
ENTRIES = [
    {"index": 3, "id": "3", "given_label": "cat", "decision": "relabel", "label": "dog"},
    {"index": 7, "decision": "unsure", "label": "eel"},
    {"index": 1, "decision": "drop"},
]
DECISIONS = {
    ".json": json.dumps(ENTRIES).encode(),
    ".csv": b"index,id,given_label,decision,label\n3,3,cat,relabel,dog\n7,,,unsure,eel\n1,,,drop,\n",
    ".jsonl": "".join(json.dumps(entry) + "\n" for entry in ENTRIES).encode(),
}
CORRECTED = (
    b"index,id,given_label,label,share,change\n3,a,cat,dog,1.0,relabel\n4,b,dog,,1.0,prune\n5,c,eel,cat,0.25,soften\n6,d,cat,cat,1.0,\n"
)
AWKWARD = [
    True,
    None,
    -1,
    1.5,
    "1",
    "",
    "relabel",
    "a\nb",
    "\x1b[2J",
    [],
    {},
    [[]],
    2**63,
    10**400,
    float("inf"),
    float("nan"),
    "\ud800",
    "eel",
]


def entries(data: bytes, draw: random.Random) -> bytes:
    """Replace a value of a decision, or change the bytes."""
    if draw.random() < 0.4:
        return mutated(data, draw)
    content = json.loads(data)
    place = draw.randrange(len(content))
    if draw.random() < 0.1:
        content[place] = draw.choice(AWKWARD)
    else:
        content[place][draw.choice(list(ENTRIES[0]))] = draw.choice(AWKWARD)
    return json.dumps(content).encode()


@pytest.fixture(scope="module")
def issues(tmp_path_factory):
    data = Dataset(torch.randn(12, 2), torch.arange(12) % 3, CLASSES, name="pets")
    return audit(fit("linear", data, epochs=2, folder=tmp_path_factory.mktemp("runs") / "run", device="cpu"))


@pytest.mark.parametrize(("suffix", "mutate"), [(".json", entries), (".csv", mutated), (".jsonl", mutated)])
def test_any_decisions_are_read_or_refused(tmp_path, times, suffix, mutate):
    path = tmp_path / f"decisions{suffix}"

    def read(content: bytes) -> None:
        path.write_bytes(content)
        read_decisions(path)

    survives(read, [DECISIONS[suffix]], 500 * times, tmp_path, mutate=mutate)


def test_any_decisions_that_are_read_are_applied_or_refused(issues, tmp_path, times):
    path = tmp_path / "decisions.json"

    def apply(content: bytes) -> None:
        path.write_bytes(content)
        correct(issues, decisions=read_decisions(path))

    place = int(np.flatnonzero(issues.given == 0)[0])
    seed = [{"index": int(issues.index[place]), "given_label": "cat", "decision": "relabel", "label": "dog"}]
    survives(apply, [json.dumps(seed).encode()], 300 * times, tmp_path, mutate=entries)


def test_any_corrected_labels_are_read_or_refused(tmp_path, times):
    path = tmp_path / "corrected.csv"

    def read(content: bytes) -> None:
        path.write_bytes(content)
        correction = Correction.read(path, CLASSES)
        _ = repr(correction), correction.probabilities(), list(correction.rows())
        correction.write(tmp_path / "again.csv")

    survives(read, [CORRECTED], 500 * times, tmp_path)
