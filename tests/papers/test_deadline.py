"""A portion that must end at some time finishes the runs that it can, and continues the others in the next call."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from noisewise import reproduce
from noisewise.errors import NoisewiseError
from noisewise.papers import get, results
from noisewise.reproduce import _reproduce
from noisewise.reproduce._deadline import OUT_OF_TIME, Deadline
from noisewise.train import Progress, Run
from refused import refused

STEPS = 1000


def _follow(deadline: Deadline, now: list[float], paces: dict[int, float], until: float) -> None:
    """Report the progress of runs, which take a number of steps per second, every second."""
    while now[0] < until:
        now[0] += 1
        for place, pace in paces.items():
            deadline.watch(Progress(place, "running", int(pace * now[0]), STEPS))


@pytest.mark.parametrize(
    ("paces", "seconds", "stopped"),
    [
        ({0: 10, 1: 10, 2: 10, 3: 10}, 120, set()),  # 100 s each
        ({0: 10, 1: 10, 2: 10, 3: 10}, 70, {"2", "3", "new"}),  # 85 s more: in 55 s, two can finish if they are alone
        ({0: 10, 1: 9, 2: 3, 3: 2}, 100, {"2", "3", "new"}),
        ({0: 1, 1: 1}, 60, {"1", "new"}),  # none would finish: one is left that may become faster
    ],
)
def test_the_slowest_runs_are_stopped_so_that_the_others_finish(
    paces: dict[int, float], seconds: float, stopped: set[str], tmp_path: Path
) -> None:
    now = [0.0]
    deadline = Deadline(seconds, tmp_path, lambda: now[0])
    _follow(deadline, now, paces, 9)
    assert not list(tmp_path.iterdir()), "the pace is not known yet"
    _follow(deadline, now, paces, 16)
    assert {path.name for path in tmp_path.iterdir()} == stopped


def test_runs_that_share_a_machine_become_faster_and_finish(tmp_path: Path) -> None:
    """Four runs of 100 s on one machine that they share: in 70 s two can finish, and no more are stopped than the other two."""
    now, done, running = [0.0], dict.fromkeys(range(4), 0.0), {0, 1, 2, 3}
    deadline = Deadline(70, tmp_path, lambda: now[0])
    while running and now[0] < 80:
        now[0] += 1
        for place in sorted(running):
            done[place] += 40 / len(running)
            state = OUT_OF_TIME if (tmp_path / str(place)).exists() else "finished" if done[place] >= STEPS else "running"
            deadline.watch(Progress(place, state, int(done[place]), STEPS))
            running -= {place} if state != "running" else set()
    assert [place for place, steps in done.items() if steps >= STEPS] == [0, 1]
    assert {path.name for path in tmp_path.iterdir()} == {"2", "3", "new"} and now[0] < 70


def test_all_runs_are_stopped_at_the_end_of_the_time(tmp_path: Path) -> None:
    now = [0.0]
    deadline = Deadline(5, tmp_path, lambda: now[0])
    _follow(deadline, now, {0: 1, 1: 1}, 5)
    assert {path.name for path in tmp_path.iterdir()} == {"0", "1", "new"}


def test_a_finished_run_no_longer_counts(tmp_path: Path) -> None:
    now = [0.0]
    deadline = Deadline(200, tmp_path, lambda: now[0])
    _follow(deadline, now, {0: 100, 1: 10}, 10)
    deadline.watch(Progress(0, "finished"))
    _follow(deadline, now, {1: 10}, 90)
    assert not list(tmp_path.iterdir())


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
