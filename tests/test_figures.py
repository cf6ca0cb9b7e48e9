"""Figures of runs: the numbers behind them against hand-made runs, and the files themselves."""

from __future__ import annotations

import json
import re
import statistics
from dataclasses import fields
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import matplotlib
import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from matplotlib.figure import Figure
from typer.testing import CliRunner

import noisewise
from costs import with_peak
from noisewise import InputError, draw
from noisewise.audit import audit
from noisewise.cli import app
from noisewise.correct import correct, retrain
from noisewise.draw import _default_epochs, film
from noisewise.draw._history import CURVES, _edges, histories, history, labels
from noisewise.dynamics import Dynamics, _dynamics, find_runs
from noisewise.runs import data_set_numbers
from noisewise.train import Settings
from test_dynamics import write_run

LONG = "0.12345678*ce + 0.23456789*mae + 0.34567891*gce(q=0.{}) + 0.45678912*tce(q=2) + 0.56789123*aul(a=2.0, q=0.9)"


def _line(epoch: int, step: int, test: float, clean: tuple[float, float] = (1.0, 2.0), noisy: tuple[float, float] = (0.3, 1.0)) -> Any:
    groups = {"clean": clean, "noisy": noisy}
    return {
        "epoch": epoch,
        "step": step,
        "test_accuracy": test,
        "emphasis": {name: {"pull": pull, "eta": eta} for name, (pull, eta) in groups.items()},
    }


def _epochs(number: int, margins: list[float], predictions: list[int]) -> list[Any]:
    return [(epoch, margins, predictions) for epoch in range(1, number + 1)]


def _run(folder: Path, tests: dict[int, float], **asked: Any) -> Dynamics:
    """A run with the given test accuracies by step; of four labels the last is wrong, and the second is not learned."""
    metrics = [_line(epoch, step, test) for epoch, (step, test) in enumerate(tests.items(), 1)]
    training = _epochs(len(tests), [2.0, -1.0, 1.0, -2.0], [0, 0, 2, 1])
    return Dynamics(write_run(folder, [0, 1, 2, 0], [0, 1, 2, 1], training=training, metrics=metrics, **asked))


def test_lines_are_means_over_seeds_at_the_iterations_they_share(tmp_path: Path) -> None:
    whole = _run(tmp_path / "0", {10: 0.5, 20: 0.7, 30: 0.8}, seed=0)
    short = _run(tmp_path / "1", {10: 0.6, 20: 0.6}, seed=1)
    sparse = _run(tmp_path / "2", {10: 0.1, 15: 0.9, 20: 0.2, 30: 0.9}, seed=2)
    (line,) = history([whole, short, sparse]).lines
    course = line.curves["test"]
    assert line.runs == 3 and course.steps.tolist() == [10, 20]
    for place, values in enumerate([(0.5, 0.6, 0.1), (0.7, 0.6, 0.2)]):
        mean, deviation = statistics.mean(values), statistics.stdev(values)
        assert course.low is not None and course.high is not None
        assert (course.low[place], course.mean[place], course.high[place]) == pytest.approx((mean - deviation, mean, mean + deviation))


def test_a_seed_that_is_not_finished_is_left_out_where_others_are(tmp_path: Path) -> None:
    stopped = [_run(tmp_path / f"{seed}", {10: 0.6}, seed=seed, state="interrupted") for seed in (0, 1)]
    whole = _run(tmp_path / "2", {10: 0.5, 20: 0.7}, seed=2)
    lost = _run(tmp_path / "3", {10: 0.1}, seed=3)
    (tmp_path / "3/status.json").unlink()
    found = history([*stopped, whole, lost])
    assert found.left_out == tuple(str(tmp_path / name) for name in "013")
    assert found.lines[0].runs == 1 and found.lines[0].curves["test"].mean.tolist() == [0.5, 0.7]
    unfinished = history(stopped)
    assert unfinished.left_out == () and unfinished.lines[0].runs == 2


@pytest.mark.filterwarnings("always::UserWarning")
def test_the_figure_of_dynamics_says_in_one_line_which_runs_it_leaves_out(tmp_path: Path) -> None:
    for seed, state in enumerate(("interrupted", "finished", "finished")):
        _run(tmp_path / f"runs/{seed}", {10: 0.5, 20: 0.7}, seed=seed, state=state)
    told = f"1 of 3 runs is not finished and is left out, because other seeds are finished: {str(tmp_path / 'runs/0')!r}."
    with pytest.warns(UserWarning, match=f"^{re.escape(told)}$") as warned:
        assert "over 2 seeds" in _words(draw.dynamics(tmp_path / "runs", tmp_path / "x.svg"))
    assert [one.filename for one in warned] == [__file__]
    done = CliRunner().invoke(app, ["figure", "dynamics", str(tmp_path / "runs"), "-o", str(tmp_path / "y.svg")])
    assert done.exit_code == 0 and done.stderr == f"noisewise: {told}\n"
    words = _words(draw.margins(tmp_path / "runs", tmp_path / "z.svg"))
    assert "seed 1" in words and "seed 0" not in words, "a finished run stands for its seeds"


def test_one_seed_has_no_deviation(tmp_path: Path) -> None:
    course = history([_run(tmp_path / "0", {10: 0.5, 20: 0.7})]).lines[0].curves["test"]
    assert course.mean.tolist() == [0.5, 0.7] and course.low is None and course.high is None


def test_every_measure_is_what_the_papers_say(tmp_path: Path) -> None:
    metrics = [_line(1, 12, 0.4, (1.0, 2.0), (0.3, 1.0)), _line(2, 24, 0.5, (0.2, 1.0), (0.4, 0.5))]
    training = [(1, [2, -1, 1, -2], [0, 0, 2, 1]), (2, [2, 1, 1, 2], [0, 1, 2, 0])]
    run = Dynamics(write_run(tmp_path / "run", [0, 1, 2, 0], [0, 1, 2, 1], training=training, metrics=metrics))
    found = {name: course.mean.tolist() for name, course in history([run]).lines[0].curves.items()}
    assert found == {
        "test": [0.4, 0.5],
        "clean_subset": pytest.approx([2 / 3, 1.0]),
        "noisy_subset": [0.0, 1.0],
        "alpha": pytest.approx([2 * 1.3 / 3, 2 * 1.9 / 4.5]),
        "clean_emphasis": pytest.approx([0.5, 0.2]),
        "noisy_emphasis": pytest.approx([0.3, 0.8]),
    }


def test_without_true_labels_fitting_and_all_examples_take_the_place_of_the_subsets(tmp_path: Path) -> None:
    metrics = [{"epoch": 1, "step": 5, "emphasis": {"all": {"pull": 0.9, "eta": 3.0}}}]
    run = Dynamics(write_run(tmp_path / "run", [0, 1], training=[(1, [1, -1], [0, 0])], metrics=metrics))
    found = {name: course.mean.tolist() for name, course in history([run]).lines[0].curves.items()}
    assert found == {"fitting": [0.5], "alpha": pytest.approx([0.6]), "emphasis": pytest.approx([0.3])}
    known = _run(tmp_path / "known", {5: 0.5}, loss="ce")
    assert history([known, run]).measures == tuple(CURVES), "known and unknown truth stand side by side"


def test_a_run_without_an_epoch_is_absent_and_others_keep_their_colours(tmp_path: Path) -> None:
    waiting = _run(tmp_path / "waiting", {}, loss="mae", state="running")
    trained = _run(tmp_path / "trained", {10: 0.5}, loss="ce")
    both, later = history([waiting, trained]), history([_run(tmp_path / "started", {10: 0.1}, loss="mae"), trained])
    assert [line.label for line in both.lines] == ["ce"]
    assert both.lines[0].colour == later.lines[1].colour != later.lines[0].colour


def test_losses_stand_in_the_order_of_the_runs_and_say_what_tells_them_apart(tmp_path: Path) -> None:
    alike = [
        _run(tmp_path / name, {10: 0.5}, loss=loss, seed=seed) for name, loss, seed in (("a", "mae", 0), ("b", "ce", 0), ("c", "mae", 1))
    ]
    found = history(alike)
    assert found.task == "tiny, mlp, symmetric(0.4)"
    assert [(line.label, line.runs) for line in found.lines] == [("mae", 2), ("ce", 1)]
    found = history([*alike, _run(tmp_path / "d", {10: 0.5}, loss="mae", noise="none", weight_decay=0.1, device="cuda")])
    assert found.task == "tiny, mlp"
    assert [line.label for line in found.lines] == [
        "mae, symmetric(0.4)",
        "ce, symmetric(0.4)",
        "mae, no noise, weight_decay=0.1",
    ]


def test_runs_are_seeds_of_one_another_unless_what_was_done_differs() -> None:
    how = {"accumulate", "clean_pass", "checkpoint_every", "compile", "device", "evaluate_every", "keep", "precision"}
    for name in (field.name for field in fields(Settings) if field.name != "loss"):
        first, second = labels([{"loss": "ce", name: 1}, {"loss": "ce", name: 2}])
        assert (first == second) == (name in how | {"seed"}), name


def test_a_long_run_is_thinned_evenly_and_keeps_its_ends(tmp_path: Path) -> None:
    metrics = [_line(epoch, 7 * epoch, 0.5) for epoch in range(1, 1001)]
    steps = history([Dynamics(write_run(tmp_path / "run", [0], metrics=metrics))]).lines[0].curves["test"].steps
    assert len(steps) == 200 and (steps[0], steps[-1]) == (7, 7000)
    assert set(np.diff(steps)) == {5 * 7, 6 * 7}


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, np.ndarray, list[np.ndarray]]:
    """A hundred epochs of margins that move apart; two examples have gone far away, and some are not seen."""
    rng = np.random.default_rng(3)
    number = 4000
    true = rng.integers(3, size=number)
    given = np.where(rng.random(number) < 0.3, (true + 1) % 3, true)
    epochs = []
    for epoch in range(1, 101):
        margins = rng.normal(np.where(given == true, 0.05, -0.03) * epoch, 1)
        margins[rng.random(number) < 0.1] = np.nan
        margins[:2] = (3000, -3000)
        epochs.append(margins.astype(np.float16))
    folder = tmp_path_factory.mktemp("film") / "run"
    training = [(epoch, margins, np.where(np.isnan(margins), -1, 0)) for epoch, margins in enumerate(epochs, 1)]
    write_run(folder, given, true, training=training, loss="mae", epochs=100)
    return folder, given != true, epochs


def test_a_film_counts_what_numpy_counts(recorded: tuple[Path, np.ndarray, list[np.ndarray]]) -> None:
    folder, wrong, epochs = recorded
    found = film(Dynamics(folder), bins=40, frames=7)
    assert len(found.epochs) == 7 and (found.epochs[0], found.epochs[-1]) == (1, 100) and np.ptp(np.diff(found.epochs)) <= 1
    assert 20 <= len(found.edges) - 1 <= 40 and 0.0 in found.edges
    for row, epoch in enumerate(found.epochs):
        margins = epochs[epoch - 1].astype(np.float64)
        for group, members in (("clean", ~wrong), ("noisy", wrong)):
            inside = np.clip(margins[members & ~np.isnan(margins)], found.edges[0], found.edges[-1] - 1e-9)
            np.testing.assert_array_equal(found.counts[group][row], np.histogram(inside, found.edges)[0])


def test_two_examples_far_away_do_not_flatten_the_film(recorded: tuple[Path, np.ndarray, list[np.ndarray]]) -> None:
    folder, _, epochs = recorded
    edges = film(Dynamics(folder)).edges
    low, high = np.nanquantile(np.concatenate(epochs).astype(np.float64), (0.001, 0.999))
    assert edges[0] <= low and high <= edges[-1] and edges[-1] - edges[0] < 1.1 * (high - low)


@given(st.floats(-6e4, 6e4, width=16), st.floats(-6e4, 6e4, width=16), st.integers(4, 200))
def test_bins_are_round_reach_over_the_range_and_have_an_edge_at_zero(one: float, other: float, bins: int) -> None:
    low, high = sorted((one, other))
    edges = np.array(_edges(low, high, bins))
    width = edges[1] - edges[0]
    assert edges[0] <= low + 1e-9 * abs(low) and high - 1e-9 * abs(high) <= edges[-1]
    assert 1 <= len(edges) - 1 <= bins and 0.0 in edges
    assert float(f"{width:.6e}".split("e")[0]) in (1, 2, 2.5, 5)
    np.testing.assert_allclose(np.diff(edges), width)


def test_a_film_takes_the_epochs_it_is_told(recorded: tuple[Path, np.ndarray, list[np.ndarray]]) -> None:
    run = Dynamics(recorded[0])
    whole, some = film(run, frames=100), film(run, frames=[90, 3])
    assert some.epochs == (90, 3)
    np.testing.assert_array_equal(some.counts["noisy"], whole.counts["noisy"][[89, 2]])
    with pytest.raises(InputError, match=r"has epochs 1 to 100\. Got epoch 101 instead"):
        film(run, frames=[1, 101])
    with pytest.raises(InputError, match="'bins' parameter of film must be at least 4"):
        film(run, bins=3)


def test_a_film_counts_the_margins_of_its_own_frames_alone(
    recorded: tuple[Path, np.ndarray, list[np.ndarray]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Thousands of epochs are gone through once, for the range of the bins."""
    counted, counts = [], _dynamics._counts
    monkeypatch.setattr(_dynamics, "_counts", lambda margins: counted.append(len(margins)) or counts(margins))
    film(Dynamics(recorded[0]), frames=7)
    assert len(counted) == 100 + 3 * 7  # of clean labels, of noisy ones, and for the emphasis


def test_margins_are_drawn_at_the_start_after_a_quarter_and_a_half_and_at_the_end() -> None:
    assert _default_epochs(range(1, 42)) == (1, 11, 21, 41)
    assert _default_epochs((3, 5, 8)) == (3, 5, 8) and _default_epochs((7,)) == (7,)


def test_the_emphasis_of_a_film_is_one_row_unless_the_loss_changes(tmp_path: Path) -> None:
    given = {"labels": [0, 1], "training": _epochs(5, [1.0, -3.0], [0, 0]), "epochs": 5}
    fixed = film(Dynamics(write_run(tmp_path / "ce", loss="ce", **given)))
    np.testing.assert_allclose(fixed.emphasis, 1 / (1 + np.exp(fixed.margins))[None], atol=1e-12)
    assert fixed.counts.keys() == {"all"}
    moving = film(Dynamics(write_run(tmp_path / "moving", loss="scheduled(imae(saturation=0), 'T', 0.0, 8.0)", **given)))
    p = 1 / (1 + np.exp(-moving.margins))
    np.testing.assert_allclose(moving.emphasis, [np.exp(strength * p * (1 - p)) / 2 for strength in (0, 2, 4, 6, 8)], rtol=1e-9)
    assert film(Dynamics(write_run(tmp_path / "nce", loss="nce", **given))).emphasis is None


def test_a_film_of_a_run_without_an_epoch_is_empty(tmp_path: Path) -> None:
    found = film(Dynamics(write_run(tmp_path / "run", [0, 1])))
    assert found.epochs == () and found.counts["all"].shape == (0, len(found.edges) - 1) and found.emphasis is None


def test_a_film_of_many_examples_takes_the_memory_of_one_epoch(tmp_path: Path) -> None:
    number, epochs = 200_000, 20
    rng = np.random.default_rng(0)
    labels = rng.integers(3, size=number)
    folder = write_run(tmp_path / "run", labels, np.roll(labels, 1), epochs=epochs, loss="ce")
    (folder / "record/training").mkdir(parents=True)
    for epoch in range(1, epochs + 1):
        np.save(folder / f"record/training/margins-{epoch:05d}.npy", rng.normal(epoch, 3, size=number).astype(np.float16))
        np.save(folder / f"record/training/predictions-{epoch:05d}.npy", labels.astype(np.int32))
    run = Dynamics(folder)
    found, peak = with_peak(lambda: film(run))
    assert len(found.epochs) == epochs and sum(int(counts.sum()) for counts in found.counts.values()) == number * epochs
    assert peak < 35 * number, "given and true labels and one epoch of margins, however many epochs there are"


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two losses with two seeds each, really trained."""
    folder = tmp_path_factory.mktemp("trained")
    for loss in ("ce", "imae(T=8)"):
        for seed in (0, 1):
            where = folder / f"{loss.partition('(')[0]}-{seed}"
            noisewise.fit("mlp", "digits", loss=loss, noise="symmetric(0.4)", epochs=5, seed=seed, folder=where, device="cpu")
    return folder


def _words(file: Path) -> str:
    return " ".join(ElementTree.fromstring(file.read_bytes()).itertext())


def test_the_figure_of_dynamics_names_what_it_shows(trained: Path, tmp_path: Path) -> None:
    words = _words(draw.dynamics(trained, tmp_path / "x.svg"))
    assert "digits, mlp, symmetric(0.4); mean ± s.d. over 2 seeds" in words
    for measure in ("test", "clean_subset", "noisy_subset", "alpha", "clean_emphasis", "noisy_emphasis"):
        assert CURVES[measure].title in words
    assert all(loss in words for loss in ("ce", "imae(T=8)", "iterations"))


@pytest.mark.parametrize("figure", [draw.dynamics, draw.margins])
def test_runs_on_labels_corrected_in_other_ways_are_no_seeds_of_one_another(tmp_path: Path, figure: Any) -> None:
    run = noisewise.fit("mlp", "digits", noise="symmetric(0.4)", epochs=6, folder=tmp_path / "runs/first", device="cpu")
    for policy in ("relabel", "prune"):
        retrain(run, correct(audit(run), policy), folder=tmp_path / "runs" / policy)
    words = _words(figure(tmp_path / "runs", tmp_path / "x.svg"))
    assert "digits, mlp, symmetric(0.4)" in words and "ce, relabelled" in words and "ce, pruned" in words and "seed" not in words


@pytest.mark.parametrize("figure", [draw.dynamics, draw.margins])
def test_runs_on_other_data_of_one_name_are_no_seeds_of_one_another(tmp_path: Path, figure: Any) -> None:
    inputs, labels = torch.randn(60, 4, generator=torch.Generator().manual_seed(0)), torch.arange(60) % 3
    for seed, sign in enumerate((1, 1, -1)):
        where = tmp_path / f"runs/{seed}"
        noisewise.fit("linear", (inputs, labels), test=(sign * inputs, labels), seed=seed, epochs=2, folder=where, device="cpu")
    apart = _words(figure(tmp_path / "runs", tmp_path / "x.svg"))
    assert "arrays (2)" in apart and "3 seeds" not in apart and "arrays, linear" not in apart
    together = _words(figure([tmp_path / "runs/0", tmp_path / "runs/1"], tmp_path / "y.svg"))
    assert "arrays, linear" in together and "arrays (2)" not in together


def test_a_run_whose_data_are_not_told_is_told_apart_from_none(tmp_path: Path) -> None:
    runs = [_run(tmp_path / name, {5: 0.5}) for name in ("a", "b")]
    told = {"data": {"train": {"examples": 4}, "test": {"inputs": "1f", "labels": "2e"}}}
    (tmp_path / "a/provenance.json").write_text(json.dumps(told))
    (tmp_path / "b/provenance.json").unlink()
    assert data_set_numbers([run.record for run in runs]) == [1, 1]


def test_data_of_one_name_with_other_classes_are_others(tmp_path: Path) -> None:
    runs = [_run(tmp_path / name, {5: 0.5}) for name in ("a", "b", "c")]
    (tmp_path / "b/classes.json").write_text(json.dumps(["ape", "bee", "cow"]))
    assert data_set_numbers([run.record for run in runs]) == [1, 2, 1]


def test_data_of_which_a_correction_left_some_out_are_the_same(tmp_path: Path) -> None:
    inputs, labels = torch.randn(60, 4, generator=torch.Generator().manual_seed(0)), torch.arange(60) % 3
    first, other = (
        noisewise.fit("linear", (inputs, labels), seed=seed, noise="symmetric(0.4)", epochs=4, folder=tmp_path / str(seed), device="cpu")
        for seed in (0, 1)
    )
    pruned = retrain(first, correct(first.find_label_issues(), "prune"), data=(inputs, labels))
    assert len(pruned.dynamics.record.given) < 60
    assert data_set_numbers([run.dynamics.record for run in (other, pruned)]) == [1, 1], "the run it came from is not there to tell"


def test_the_figure_of_margins_names_what_it_shows(trained: Path, tmp_path: Path) -> None:
    words = _words(draw.margins(trained, tmp_path / "x.svg"))
    assert all(part in words for part in ("ce, seed 0", "imae(T=8), seed 0", "clean labels", "noisy labels", "emphasis w(Δ)", "margin Δ"))
    assert all(f"epoch {epoch}" in words for epoch in (1, 2, 3, 5)) and "epoch 4" not in words
    words = _words(draw.margins(trained / "ce-1", tmp_path / "y.svg", epochs=[4, 2]))
    assert words.index("epoch 4") < words.index("epoch 2") and "seed" not in words


@pytest.mark.parametrize(
    ("figure", "ending"),
    [
        *((draw.dynamics, ending) for ending in ("svg", "pdf", "png")),
        *(pytest.param(draw.margins, ending, marks=[] if ending == "svg" else pytest.mark.slow) for ending in ("svg", "pdf", "png")),
    ],
)
def test_the_same_runs_give_the_same_bytes_whatever_the_users_matplotlib_is_set_to(
    trained: Path, tmp_path: Path, figure: Any, ending: str
) -> None:
    content = figure(trained, tmp_path / f"a.{ending}").read_bytes()
    with matplotlib.rc_context({"font.size": 20, "axes.facecolor": "black", "pdf.fonttype": 3, "svg.hashsalt": "another"}):
        assert figure(trained, tmp_path / f"b.{ending}").read_bytes() == content
    assert b"dc:date" not in content and b"CreationDate" not in content
    if ending == "pdf":
        assert b"/CIDFontType2" in content and b"/Type3" not in content, "journals want their fonts embedded as TrueType"


def test_runs_can_be_paths_folders_runs_or_dynamics(trained: Path, tmp_path: Path) -> None:
    paths = find_runs(trained)
    given = [trained, [str(path) for path in paths], map(noisewise.Run, paths), [Dynamics(path) for path in paths], [*paths, trained]]
    contents = {draw.dynamics(runs, tmp_path / f"{place}.svg").read_bytes() for place, runs in enumerate(given)}
    assert len(contents) == 1


def _drawn(monkeypatch: pytest.MonkeyPatch) -> list[Figure]:
    """The figures that are saved from now on."""
    kept: list[Figure] = []
    save = Figure.savefig

    def keep(figure: Figure, *args: Any, **kwargs: Any) -> None:
        kept.append(figure)
        save(figure, *args, **kwargs)

    monkeypatch.setattr(Figure, "savefig", keep)
    return kept


@pytest.mark.parametrize("number", [pytest.param(1, marks=pytest.mark.slow), pytest.param(3, marks=pytest.mark.slow), 8])
@pytest.mark.parametrize("name", [pytest.param("gce(q=0.{})", marks=pytest.mark.slow), LONG], ids=["short", "long"])
def test_no_word_stands_on_another_or_outside(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int, name: str) -> None:
    kept, touching = _drawn(monkeypatch), 2  # pixels
    specs = [name.format(place + 1) for place in range(number)]
    runs = [_run(tmp_path / f"{place}", {1000: 0.123, 100_000: 0.9}, loss=spec) for place, spec in enumerate(specs)]
    draw.curves(specs, tmp_path / "a.svg")
    draw.dynamics(runs, tmp_path / "b.svg")
    draw.margins(runs, tmp_path / "c.svg")
    draw.dynamics([*runs, _run(tmp_path / "other", {1000: 0.1}, noise="none")], tmp_path / "d.svg")
    for figure in kept:
        page, above = figure.bbox, figure.legends[0].get_window_extent()
        assert page.x0 <= above.x0 and above.x1 <= page.x1 and above.y1 <= page.y1 and figure.get_figheight() < 11
        for axes in figure.axes:
            box = axes.get_tightbbox()
            assert box is not None and box.y1 <= above.y0 + touching, "the legend stands above every panel and its title"
            assert page.x0 <= box.x0 and box.x1 <= page.x1 + touching and page.y0 <= box.y0
            assert axes.get_window_extent().height > 0.3 * figure.dpi, "no panel is squeezed flat"


def test_every_task_has_panels_of_its_own_in_which_a_loss_looks_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = [("symmetric(0.2)", "mae"), ("symmetric(0.2)", "ce"), ("symmetric(0.4)", "ce"), ("symmetric(0.4)", "gce(q=0.7)")]
    steps = {10: 0.5, 20: 0.6}
    runs = [_run(tmp_path / f"{place}", steps, noise=noise, loss=loss, data="digits") for place, (noise, loss) in enumerate(asked)]
    found, kept = histories(runs), _drawn(monkeypatch)
    words = _words(draw.dynamics(runs, tmp_path / "x.svg"))
    assert {words: [line.label for line in one.lines] for words, one in found.items()} == {
        "symmetric(0.2)": ["mae", "ce"],
        "symmetric(0.4)": ["ce", "gce(q=0.7)"],
    }
    looks = {(line.label, line.colour, line.dash) for one in found.values() for line in one.lines}
    assert len(looks) == len({colour for _, colour, _ in looks}) == 3, "one look for every loss, and no two alike"
    tested = [axes for axes in kept[0].axes if axes.get_title("left").strip() == "(a) test accuracy (%)"]
    assert [len(axes.get_lines()) for axes in tested] == [2, 2]
    assert [text.get_text() for text in kept[0].legends[0].get_texts()] == ["mae", "ce", "gce(q=0.7)"]
    assert "digits, mlp" in words and words.index("symmetric(0.2)") < words.index("symmetric(0.4)")


def test_signs_in_names_stay_what_they_are(tmp_path: Path) -> None:
    words = _words(draw.dynamics(_run(tmp_path / "run", {5: 0.5, 10: 0.6}, data="a $folder$/x_1^2 & <y>"), tmp_path / "x.svg"))
    assert "a $folder$/x_1^2 & <y>, mlp, symmetric(0.4)" in words


def test_measures_that_only_some_runs_have_get_panels_of_their_own(tmp_path: Path) -> None:
    metrics = [{"epoch": 1, "step": 5, "emphasis": {"all": {"pull": 0.9, "eta": 3.0}}}]
    unknown = Dynamics(write_run(tmp_path / "unknown", [0, 1], training=[(1, [1, -1], [0, 0])], metrics=metrics, loss="nce"))
    words = _words(draw.dynamics([_run(tmp_path / "known", {5: 0.5, 10: 0.6}), unknown], tmp_path / "x.svg"))
    assert all(measure.title in words for measure in CURVES.values())
    words = _words(draw.margins(unknown, tmp_path / "y.svg"))
    assert "all examples" in words and "noisy labels" not in words and "emphasis" not in words


def test_one_seed_twice_is_not_two_seeds(tmp_path: Path) -> None:
    asked = [("a", 0, 1), ("b", 1, 1), ("c", 0, 5), ("d", 1, 5)]
    runs = [_run(tmp_path / name, {5: 0.5}, loss="ce", seed=seed, evaluate_every=often) for name, seed, often in asked]
    assert [(line.label, line.runs) for line in history(runs).lines] == [("ce", 2), ("ce, run 2", 2)]


def test_loops_of_the_users_own_whose_seeds_nobody_wrote_down_are_averaged(tmp_path: Path) -> None:
    for name in ("a", "b"):
        with noisewise.Recorder(tmp_path / name, [0, 1], loss="ce") as recorder:
            recorder.log([0, 1], torch.eye(2))
            recorder.end_epoch()
            recorder.finish()
    assert [(line.label, line.runs) for line in history([Dynamics(tmp_path / name) for name in ("a", "b")]).lines] == [("ce", 2)]


def test_a_loss_of_the_users_own_is_drawn_where_its_code_is_not(tmp_path: Path) -> None:
    known = _run(tmp_path / "known", {5: 0.5}, loss="ce")
    theirs = Dynamics(write_run(tmp_path / "theirs", [0, 1], training=[(1, [1, -1], [0, 0])], loss="theirs(x=1)"))
    words = _words(draw.margins([known, theirs], tmp_path / "x.svg"))
    assert "theirs(x=1)" in words and "emphasis" in words
    assert (theirs.focus, theirs.spread, theirs.emphasis_curve(1, [0.0])) == ({}, {}, None)


@pytest.mark.parametrize("figure", [draw.dynamics, draw.margins])
def test_what_cannot_be_drawn_is_refused(tmp_path: Path, figure: Any) -> None:
    waiting = _run(tmp_path / "waiting", {}, state="running")
    for runs, name, sentence in (
        (waiting, "a.html", "must be a file that ends in .svg, .pdf, .png. Got"),
        (waiting, "nowhere/a.svg", "does not exist. Make it first"),
        ([], "a.svg", "nothing to draw. Give at least one run"),
        (tmp_path / "none", "a.svg", "no run in .*none"),
        (waiting, "a.svg", "nothing to draw: no run has"),
    ):
        with pytest.raises(InputError, match=sentence):
            figure(runs, tmp_path / name)
    assert not list(tmp_path.glob("a.*"))


def test_more_epochs_than_fit_a_page_are_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="'epochs' parameter of margins must be 1 to 8 epochs"):
        draw.margins(_run(tmp_path / "run", {1: 0.5}), tmp_path / "a.svg", epochs=range(1, 10))


def test_the_commands_write_the_files_they_name(trained: Path, tmp_path: Path) -> None:
    for words in (
        ["curves", "ce", "imae(T=8)", "--classes", "100", "-o", "a.html"],
        ["curves", "ce", "mae", "-o", "a.pdf"],
        ["dynamics", str(trained / "ce-0"), str(trained), "-o", "b.svg"],
        ["margins", str(trained), "--epochs", "1,4", "-o", "c.svg"],
    ):
        output = tmp_path / words.pop()
        done = CliRunner().invoke(app, ["figure", *words, str(output)])
        assert done.exit_code == 0 and done.stdout == f"Wrote {output}\n" and output.exists()
    assert "100 classes" in (tmp_path / "a.html").read_text(encoding="utf-8")
    assert "epoch 4" in _words(tmp_path / "c.svg") and "epoch 5" not in _words(tmp_path / "c.svg")


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["margins", "nowhere", "-o", "a.svg"], "There is no run in 'nowhere'"),
        (
            ["margins", "nowhere", "--epochs", "1;2", "-o", "a.svg"],
            "integers, such as 0,1,2. Got '1;2' instead",
        ),
        (["curves"], "Missing argument 'LOSS...'."),
        (["curves", "ce", "--classes", "many"], "Invalid value for '--classes'"),
        (["curves", "ce", "--classes", "1"], "must be an integer in [2, inf). Got 1 instead."),
        (["curves", "ce", "nce", "-o", "a.svg"], "Leave out 'nce'."),
        (["curves", "ce", "-o", "nowhere/a.html"], "does not exist."),
        (["curves", "ce", "-o", "a.jpg"], "ends in .html, .svg, .pdf, .png"),
        (["dynamic", "runs"], "no command named 'dynamic'. Did you mean 'dynamics'?"),
    ],
)
def test_a_wrong_command_ends_in_one_sentence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, words: list[str], sentence: str) -> None:
    monkeypatch.chdir(tmp_path)
    done = CliRunner().invoke(app, ["figure", *words])
    assert done.exit_code == 2 and sentence in done.stderr and done.stderr.count("\n") == 1
    assert not list(tmp_path.iterdir())


def test_one_loss_is_no_list_of_losses(tmp_path):
    with pytest.raises(InputError, match=r"'specs' parameter of curves must be a list\. Got 'ce'"):
        draw.curves("ce", tmp_path / "x.svg")
