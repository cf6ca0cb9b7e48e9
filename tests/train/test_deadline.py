"""A deadline stops the runs that would not finish, so that the others do, and begins no run that would take too long."""

from __future__ import annotations

from pathlib import Path

import pytest

from noisewise.train import OUT_OF_TIME, Deadline, Progress, Task, make_settings

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


def test_runs_that_would_take_too_long_do_not_begin(tmp_path: Path) -> None:
    """A run of size 2 took 20 s. With 35 s left, one of size 3 may begin, and one of size 4 may not."""
    now = [0.0]
    deadline = Deadline(60, tmp_path, lambda: now[0])
    task = Task(make_settings({"data": "digits", "model": "linear", "epochs": 1}), tmp_path / "run")
    for place, size in enumerate((2, 3, 4)):
        deadline.timed(task, place, size)
    deadline.watch(Progress(0, "running", 0, STEPS))
    now[0] = 20.0
    deadline.watch(Progress(0, "finished"))
    now[0] = 25.0
    deadline.watch(Progress(1, "waiting"))
    assert {path.name for path in tmp_path.iterdir()} == {"2"}
