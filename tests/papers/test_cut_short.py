"""A portion that must end at some time finishes the runs that it can, and continues the others in the next call."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from noisewise import reproduce
from noisewise.errors import NoisewiseError
from noisewise.papers import get, results
from noisewise.reproduce import _reproduce
from noisewise.train import Deadline, Progress, Run
from refused import refused


def test_a_portion_that_is_cut_short_keeps_what_it_trained(small_data: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The first run finishes. The second is stopped at its 40th step, and the next call continues it at its last checkpoint."""
    now, steps = [0.0], list[int]()

    def watch(progress: Progress) -> None:
        if progress.place == 1 and progress.step:
            steps.append(progress.step)
            now[0] = 1000.0 if len(steps) == 40 else now[0]

    monkeypatch.setattr(_reproduce, "Deadline", lambda seconds, folder: Deadline(seconds, folder, lambda: now[0]))
    monkeypatch.setattr(_reproduce, "_write", lambda plan, runs, log, results: {"results": log.file})  # no report, which takes seconds
    plan = reproduce.plan(get("curriculum/figure4"), only="loss=ce", quick=True, output=tmp_path)
    short, long = (replace(task, settings=replace(task.settings, model="linear")) for task in plan.tasks[:2])
    settings = replace(long.settings, steps=60, evaluate_every=60, checkpoint_every=5, clean_pass=False)
    plan = replace(plan, tasks=(short, replace(long, settings=settings)))
    done = reproduce.reproduce(plan, jobs=1, minutes=9, watch=watch)
    assert done.left == 1 and Run(long.folder).state == "failed"
    kept = results(done.files["results"])
    assert kept.holds(short.settings.as_json(), 0) and not kept.holds(settings.as_json(), 0)
    steps[:], now[0] = [], 0.0
    done = reproduce.reproduce(plan, jobs=1, minutes=9, watch=watch)
    assert 30 < steps[0] <= 41 and steps[-1] == 60, "it continued at its last checkpoint"
    assert done.left == 0 and Run(long.folder).state == "finished"


def test_no_run_begins_when_the_time_is_over(small_data: None, tmp_path: Path) -> None:
    (tmp_path / "signs").mkdir()
    deadline = Deadline(60, tmp_path / "signs")
    (task, *_) = reproduce.plan(get("curriculum/figure4"), quick=True, output=tmp_path).tasks
    (tmp_path / "signs/new").touch()
    with refused("in time", kind=NoisewiseError):
        deadline.timed(task, 0).train(None, None, lambda step, steps: None)
    with refused("minutes", 0):
        reproduce.reproduce(reproduce.plan(get("curriculum/figure4"), quick=True, output=tmp_path), minutes=0)
