"""Figures of runs: the numbers they show, checked on runs written by hand, and the files."""

from __future__ import annotations

import json
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
from noisewise import draw
from noisewise.audit import audit
from noisewise.cli import app
from noisewise.correct import correct, retrain
from noisewise.draw import _default_epochs, film
from noisewise.draw._history import CURVES, _edges, histories, history, labels
from noisewise.dynamics import Dynamics, _dynamics, find_runs
from noisewise.runs import data_set_numbers
from noisewise.train import Settings
from refused import refused
from run_folders import write_run

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


def _run(folder: Path, tests: dict[int, float], **settings: Any) -> Dynamics:
    """A run with the given test accuracies by step; of four labels the last is wrong, and the second is not learned."""
    metrics = [_line(epoch, step, test) for epoch, (step, test) in enumerate(tests.items(), 1)]
    training = _epochs(len(tests), [2.0, -1.0, 1.0, -2.0], [0, 0, 2, 1])
    return Dynamics(write_run(folder, [0, 1, 2, 0], [0, 1, 2, 1], training=training, metrics=metrics, **settings))


def test_lines_are_means_over_seeds_at_the_iterations_they_share(tmp_path: Path) -> None:
    whole = _run(tmp_path / "0", {10: 0.5, 20: 0.7, 30: 0.8}, seed=0)
    short = _run(tmp_path / "1", {10: 0.6, 20: 0.6}, seed=1)
    sparse = _run(tmp_path / "2", {10: 0.1, 15: 0.9, 20: 0.2, 30: 0.9}, seed=2)
    (line,) = history([whole, short, sparse]).lines
    course = line.curves["test"]
    assert line.runs == 3 and course.steps.tolist() == [10, 20]
    for position, values in enumerate([(0.5, 0.6, 0.1), (0.7, 0.6, 0.2)]):
        mean, deviation = statistics.mean(values), statistics.stdev(values)
        assert course.low is not None and course.high is not None
        band = (course.low[position], course.mean[position], course.high[position])
        assert band == pytest.approx((mean - deviation, mean, mean + deviation))


def test_unfinished_seeds_are_left_out_if_others_are_finished(tmp_path: Path) -> None:
    stopped = [_run(tmp_path / f"{seed}", {10: 0.6}, seed=seed, state="interrupted") for seed in (0, 1)]
    whole = _run(tmp_path / "2", {10: 0.5, 20: 0.7}, seed=2)
    lost = _run(tmp_path / "3", {10: 0.1}, seed=3)
    (tmp_path / "3/status.json").unlink()
    mixed = history([*stopped, whole, lost])
    assert mixed.left_out == tuple(str(tmp_path / name) for name in "013")
    assert mixed.lines[0].runs == 1 and mixed.lines[0].curves["test"].mean.tolist() == [0.5, 0.7]
    unfinished = history(stopped)
    assert unfinished.left_out == () and unfinished.lines[0].runs == 2


@pytest.mark.filterwarnings("always::UserWarning")
def test_the_figure_of_dynamics_warns_in_one_line_which_runs_it_leaves_out(tmp_path: Path) -> None:
    for seed, state in enumerate(("interrupted", "finished", "finished")):
        _run(tmp_path / f"runs/{seed}", {10: 0.5, 20: 0.7}, seed=seed, state=state)
    with pytest.warns(UserWarning) as caught:
        assert "2 seeds" in _words(draw.dynamics(tmp_path / "runs", tmp_path / "x.svg"))
    (warning,) = caught
    text = str(warning.message)
    assert warning.filename == __file__
    assert "1 of 3 runs" in text and repr(str(tmp_path / "runs/0")) in text and "\n" not in text
    done = CliRunner().invoke(app, ["figure", "dynamics", str(tmp_path / "runs"), "-o", str(tmp_path / "y.svg")])
    assert done.exit_code == 0 and done.stderr == f"noisewise: {text}\n"
    words = _words(draw.margins(tmp_path / "runs", tmp_path / "z.svg"))
    assert "seed 1" in words and "seed 0" not in words, "the figure of margins shows a finished run"


def test_a_single_seed_has_no_deviation(tmp_path: Path) -> None:
    course = history([_run(tmp_path / "0", {10: 0.5, 20: 0.7})]).lines[0].curves["test"]
    assert course.mean.tolist() == [0.5, 0.7] and course.low is None and course.high is None


def test_every_measure_follows_its_definition_in_the_papers(tmp_path: Path) -> None:
    metrics = [_line(1, 12, 0.4, (1.0, 2.0), (0.3, 1.0)), _line(2, 24, 0.5, (0.2, 1.0), (0.4, 0.5))]
    training = [(1, [2, -1, 1, -2], [0, 0, 2, 1]), (2, [2, 1, 1, 2], [0, 1, 2, 0])]
    run = Dynamics(write_run(tmp_path / "run", [0, 1, 2, 0], [0, 1, 2, 1], training=training, metrics=metrics))
    measures = {name: course.mean.tolist() for name, course in history([run]).lines[0].curves.items()}
    assert measures == {
        "test": [0.4, 0.5],
        "clean_subset": pytest.approx([2 / 3, 1.0]),
        "noisy_subset": [0.0, 1.0],
        "alpha": pytest.approx([2 * 1.3 / 3, 2 * 1.9 / 4.5]),
        "clean_emphasis": pytest.approx([0.5, 0.2]),
        "noisy_emphasis": pytest.approx([0.3, 0.8]),
    }


def test_without_true_labels_the_measures_are_over_all_examples(tmp_path: Path) -> None:
    metrics = [{"epoch": 1, "step": 5, "emphasis": {"all": {"pull": 0.9, "eta": 3.0}}, "adapted": {"noise": 0.2}}]
    run = Dynamics(write_run(tmp_path / "run", [0, 1], training=[(1, [1, -1], [0, 0])], metrics=metrics))
    measures = {name: course.mean.tolist() for name, course in history([run]).lines[0].curves.items()}
    assert measures == {"fitting": [0.5], "alpha": pytest.approx([0.6]), "emphasis": pytest.approx([0.3]), "noise": [0.2]}
    known = _run(tmp_path / "known", {5: 0.5}, loss="ce")
    assert history([known, run]).measures == tuple(CURVES), "runs with and without true labels can be drawn together"


def test_a_run_without_an_epoch_is_left_out_and_others_keep_their_colours(tmp_path: Path) -> None:
    waiting = _run(tmp_path / "waiting", {}, loss="mae", state="running")
    trained = _run(tmp_path / "trained", {10: 0.5}, loss="ce")
    both, later = history([waiting, trained]), history([_run(tmp_path / "started", {10: 0.1}, loss="mae"), trained])
    assert [line.label for line in both.lines] == ["ce"]
    assert both.lines[0].colour == later.lines[1].colour != later.lines[0].colour


def test_lines_are_in_the_order_of_the_runs_and_labelled_by_their_differences(tmp_path: Path) -> None:
    alike = [
        _run(tmp_path / name, {10: 0.5}, loss=loss, seed=seed) for name, loss, seed in (("a", "mae", 0), ("b", "ce", 0), ("c", "mae", 1))
    ]
    same_task = history(alike)
    assert same_task.task == "tiny, mlp, symmetric(0.4)"
    assert [(line.label, line.runs) for line in same_task.lines] == [("mae", 2), ("ce", 1)]
    mixed = history([*alike, _run(tmp_path / "d", {10: 0.5}, loss="mae", noise="none", weight_decay=0.1, device="cuda")])
    assert mixed.task == "tiny, mlp"
    assert [line.label for line in mixed.lines] == [
        "mae, symmetric(0.4)",
        "ce, symmetric(0.4)",
        "mae, no noise, weight_decay=0.1",
    ]


def test_runs_are_seeds_of_the_same_line_unless_a_setting_that_matters_differs() -> None:
    ignored = {"accumulate", "clean_pass", "checkpoint_every", "compile", "device", "evaluate_every", "keep", "precision"}
    for name in (field.name for field in fields(Settings) if field.name != "loss"):
        first, second = labels([{"loss": "ce", name: 1}, {"loss": "ce", name: 2}])
        assert (first == second) == (name in ignored | {"seed"}), name


def test_a_long_run_is_subsampled_evenly_and_keeps_its_ends(tmp_path: Path) -> None:
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
    seven = film(Dynamics(folder), bins=40, frames=7)
    assert len(seven.epochs) == 7 and (seven.epochs[0], seven.epochs[-1]) == (1, 100) and np.ptp(np.diff(seven.epochs)) <= 1
    assert 20 <= len(seven.edges) - 1 <= 40 and 0.0 in seven.edges
    for row, epoch in enumerate(seven.epochs):
        margins = epochs[epoch - 1].astype(np.float64)
        for group, members in (("clean", ~wrong), ("noisy", wrong)):
            inside = np.clip(margins[members & ~np.isnan(margins)], seven.edges[0], seven.edges[-1] - 1e-9)
            np.testing.assert_array_equal(seven.counts[group][row], np.histogram(inside, seven.edges)[0])


def test_two_examples_far_away_do_not_flatten_the_film(recorded: tuple[Path, np.ndarray, list[np.ndarray]]) -> None:
    folder, _, epochs = recorded
    edges = film(Dynamics(folder)).edges
    low, high = np.nanquantile(np.concatenate(epochs).astype(np.float64), (0.001, 0.999))
    assert edges[0] <= low and high <= edges[-1] and edges[-1] - edges[0] < 1.1 * (high - low)


@given(st.floats(-6e4, 6e4, width=16), st.floats(-6e4, 6e4, width=16), st.integers(4, 200))
def test_bins_are_round_numbers_that_cover_the_range_and_zero(first: float, second: float, bins: int) -> None:
    low, high = sorted((first, second))
    edges = np.array(_edges(low, high, bins))
    width = edges[1] - edges[0]
    assert edges[0] <= low + 1e-9 * abs(low) and high - 1e-9 * abs(high) <= edges[-1]
    assert 1 <= len(edges) - 1 <= bins and 0.0 in edges
    assert float(f"{width:.6e}".split("e")[0]) in (1, 2, 2.5, 5)
    np.testing.assert_allclose(np.diff(edges), width)


def test_a_film_shows_the_given_epochs(recorded: tuple[Path, np.ndarray, list[np.ndarray]]) -> None:
    run = Dynamics(recorded[0])
    whole, some = film(run, frames=100), film(run, frames=[90, 3])
    assert some.epochs == (90, 3)
    np.testing.assert_array_equal(some.counts["noisy"], whole.counts["noisy"][[89, 2]])
    with refused("1 to 100", 101):
        film(run, frames=[1, 101])
    with refused("bins", "film", 4, 3):
        film(run, bins=3)


def test_a_film_counts_only_the_margins_of_its_frames(
    recorded: tuple[Path, np.ndarray, list[np.ndarray]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """All epochs are read once, for the range of the bins."""
    counted, counts = [], _dynamics._counts
    monkeypatch.setattr(_dynamics, "_counts", lambda margins: counted.append(len(margins)) or counts(margins))
    film(Dynamics(recorded[0]), frames=7)
    assert len(counted) == 100 + 3 * 7  # a frame counts clean labels, noisy labels, and margins for the emphasis


def test_margins_are_drawn_at_the_start_a_quarter_a_half_and_the_end() -> None:
    assert _default_epochs(range(1, 42)) == (1, 11, 21, 41)
    assert _default_epochs((3, 5, 8)) == (3, 5, 8) and _default_epochs((7,)) == (7,)


def test_the_emphasis_of_a_film_has_a_single_row_unless_the_loss_changes(tmp_path: Path) -> None:
    given = {"labels": [0, 1], "training": _epochs(5, [1.0, -3.0], [0, 0]), "epochs": 5}
    fixed = film(Dynamics(write_run(tmp_path / "ce", loss="ce", **given)))
    np.testing.assert_allclose(fixed.emphasis, 1 / (1 + np.exp(fixed.margins))[None], atol=1e-12)
    assert fixed.counts.keys() == {"all"}
    moving = film(Dynamics(write_run(tmp_path / "moving", loss="scheduled(imae(saturation=0), 'T', 0.0, 8.0)", **given)))
    p = 1 / (1 + np.exp(-moving.margins))
    np.testing.assert_allclose(moving.emphasis, [np.exp(strength * p * (1 - p)) / 2 for strength in (0, 2, 4, 6, 8)], rtol=1e-9)
    assert film(Dynamics(write_run(tmp_path / "nce", loss="nce", **given))).emphasis is None


def test_a_film_of_a_run_without_an_epoch_is_empty(tmp_path: Path) -> None:
    empty = film(Dynamics(write_run(tmp_path / "run", [0, 1])))
    assert empty.epochs == () and empty.counts["all"].shape == (0, len(empty.edges) - 1) and empty.emphasis is None


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
    whole, peak = with_peak(lambda: film(run))
    assert len(whole.epochs) == epochs and sum(int(counts.sum()) for counts in whole.counts.values()) == number * epochs
    assert peak < 35 * number, "given and true labels and one epoch of margins, whatever the number of epochs"


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two losses with two seeds each, trained on digits."""
    folder = tmp_path_factory.mktemp("trained")
    for loss in ("ce", "imae(T=8)"):
        for seed in (0, 1):
            path = folder / f"{loss.partition('(')[0]}-{seed}"
            noisewise.fit("mlp", "digits", loss=loss, noise="symmetric(0.4)", epochs=5, seed=seed, folder=path, device="cpu")
    return folder


def _words(file: Path) -> str:
    return " ".join(ElementTree.fromstring(file.read_bytes()).itertext())


def test_the_figure_of_dynamics_names_what_it_shows(trained: Path, tmp_path: Path) -> None:
    words = _words(draw.dynamics(trained, tmp_path / "x.svg"))
    assert "digits, mlp, symmetric(0.4)" in words and "2 seeds" in words
    for measure in ("test", "clean_subset", "noisy_subset", "alpha", "clean_emphasis", "noisy_emphasis"):
        assert CURVES[measure].title in words
    assert all(loss in words for loss in ("ce", "imae(T=8)", "iterations"))


def test_runs_on_differently_corrected_labels_have_separate_lines(tmp_path: Path) -> None:
    run = noisewise.fit("linear", "digits", noise="symmetric(0.4)", epochs=4, folder=tmp_path / "runs/first", device="cpu")
    for policy in ("relabel", "prune"):
        retrain(run, correct(audit(run), policy), folder=tmp_path / "runs" / policy)
    for figure in (draw.dynamics, draw.margins):
        words = _words(figure(tmp_path / "runs", tmp_path / "x.svg"))
        assert "digits, linear, symmetric(0.4)" in words and "seed" not in words
        assert "ce, relabelled" in words and "ce, pruned" in words


def test_runs_on_different_data_of_the_same_name_have_separate_lines(tmp_path: Path) -> None:
    inputs, labels = torch.randn(60, 4, generator=torch.Generator().manual_seed(0)), torch.arange(60) % 3
    for seed, sign in enumerate((1, 1, -1)):
        path = tmp_path / f"runs/{seed}"
        noisewise.fit("linear", (inputs, labels), test=(sign * inputs, labels), seed=seed, epochs=2, folder=path, device="cpu")
    for figure in (draw.dynamics, draw.margins):
        different = _words(figure(tmp_path / "runs", tmp_path / "x.svg"))
        assert "arrays (2)" in different and "3 seeds" not in different and "arrays, linear" not in different
        same = _words(figure([tmp_path / "runs/0", tmp_path / "runs/1"], tmp_path / "y.svg"))
        assert "arrays, linear" in same and "arrays (2)" not in same


def test_runs_with_unknown_data_count_as_the_same_data_set(tmp_path: Path) -> None:
    runs = [_run(tmp_path / name, {5: 0.5}) for name in ("a", "b")]
    provenance = {"data": {"train": {"examples": 4}, "test": {"inputs": "1f", "labels": "2e"}}}
    (tmp_path / "a/provenance.json").write_text(json.dumps(provenance))
    (tmp_path / "b/provenance.json").unlink()
    assert data_set_numbers([run.record for run in runs]) == [1, 1]


def test_data_of_the_same_name_with_different_classes_are_different_data_sets(tmp_path: Path) -> None:
    runs = [_run(tmp_path / name, {5: 0.5}) for name in ("a", "b", "c")]
    (tmp_path / "b/classes.json").write_text(json.dumps(["ape", "bee", "cow"]))
    assert data_set_numbers([run.record for run in runs]) == [1, 2, 1]


def test_pruned_data_are_the_same_data_set(tmp_path: Path) -> None:
    inputs, labels = torch.randn(60, 4, generator=torch.Generator().manual_seed(0)), torch.arange(60) % 3
    first, other = (
        noisewise.fit("linear", (inputs, labels), seed=seed, noise="symmetric(0.4)", epochs=4, folder=tmp_path / str(seed), device="cpu")
        for seed in (0, 1)
    )
    pruned = retrain(first, correct(first.find_label_issues(), "prune"), data=(inputs, labels))
    assert len(pruned.dynamics.record.given) < 60
    assert data_set_numbers([run.dynamics.record for run in (other, pruned)]) == [1, 1], "even without the run before the correction"


def test_the_figure_of_margins_names_what_it_shows(trained: Path, tmp_path: Path) -> None:
    words = _words(draw.margins(trained, tmp_path / "x.svg"))
    assert all(part in words for part in ("ce, seed 0", "imae(T=8), seed 0", "clean labels", "noisy labels", "emphasis w(Δ)", "margin Δ"))
    assert all(f"epoch {epoch}" in words for epoch in (1, 2, 3, 5)) and "epoch 4" not in words
    words = _words(draw.margins(trained / "ce-1", tmp_path / "y.svg", epochs=[4, 2]))
    assert words.index("epoch 4") < words.index("epoch 2") and "seed" not in words


@pytest.mark.parametrize(
    ("figure", "ending"),
    [
        (draw.dynamics, "pdf"),
        (draw.margins, "svg"),
        *(pytest.param(draw.dynamics, ending, marks=pytest.mark.slow) for ending in ("svg", "png")),
        *(pytest.param(draw.margins, ending, marks=pytest.mark.slow) for ending in ("pdf", "png")),
    ],
)
def test_the_same_runs_give_the_same_bytes_under_any_matplotlib_configuration(
    trained: Path, tmp_path: Path, figure: Any, ending: str
) -> None:
    content = figure(trained / "ce-0", tmp_path / f"a.{ending}").read_bytes()
    with matplotlib.rc_context({"font.size": 20, "axes.facecolor": "black", "pdf.fonttype": 3, "svg.hashsalt": "another"}):
        assert figure(trained / "ce-0", tmp_path / f"b.{ending}").read_bytes() == content
    assert b"dc:date" not in content and b"CreationDate" not in content
    if ending == "pdf":
        assert b"/CIDFontType2" in content and b"/Type3" not in content, "journals want their fonts embedded as TrueType"


def test_runs_can_be_paths_folders_runs_or_dynamics(tmp_path: Path) -> None:
    for seed in (0, 1):
        _run(tmp_path / f"runs/{seed}", {10: 0.5, 20: 0.6 + 0.1 * seed}, seed=seed)
    folder = tmp_path / "runs"
    paths = find_runs(folder)
    given = [folder, [str(path) for path in paths], map(noisewise.Run, paths), [Dynamics(path) for path in paths], [*paths, folder]]
    contents = {draw.dynamics(runs, tmp_path / f"{number}.svg").read_bytes() for number, runs in enumerate(given)}
    assert len(paths) == 2 and len(contents) == 1


def _saved_figures(monkeypatch: pytest.MonkeyPatch) -> list[Figure]:
    """A list to which every figure is added when it is saved."""
    kept: list[Figure] = []
    save = Figure.savefig

    def keep(figure: Figure, *args: Any, **kwargs: Any) -> None:
        kept.append(figure)
        save(figure, *args, **kwargs)

    monkeypatch.setattr(Figure, "savefig", keep)
    return kept


@pytest.mark.parametrize("number", [pytest.param(1, marks=pytest.mark.slow), pytest.param(3, marks=pytest.mark.slow), 8])
@pytest.mark.parametrize("name", [pytest.param("gce(q=0.{})", marks=pytest.mark.slow), LONG], ids=["short", "long"])
def test_legends_and_panels_do_not_overlap_and_fit_the_page(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int, name: str
) -> None:
    figures, tolerance = _saved_figures(monkeypatch), 2  # pixels
    specs = [name.format(position + 1) for position in range(number)]
    runs = [_run(tmp_path / f"{position}", {1000: 0.123, 100_000: 0.9}, loss=spec) for position, spec in enumerate(specs)]
    draw.curves(specs, tmp_path / "a.svg")
    draw.dynamics(runs, tmp_path / "b.svg")
    draw.margins(runs, tmp_path / "c.svg")
    draw.dynamics([*runs, _run(tmp_path / "other", {1000: 0.1}, noise="none")], tmp_path / "d.svg")
    for figure in figures:
        page, legend = figure.bbox, figure.legends[0].get_window_extent()
        assert page.x0 <= legend.x0 and legend.x1 <= page.x1 and legend.y1 <= page.y1 and figure.get_figheight() < 11
        for axes in figure.axes:
            box = axes.get_tightbbox()
            assert box is not None and box.y1 <= legend.y0 + tolerance, "the legend is above every panel and its title"
            assert page.x0 <= box.x0 and box.x1 <= page.x1 + tolerance and page.y0 <= box.y0
            assert axes.get_window_extent().height > 0.3 * figure.dpi, "a panel is too flat"


def test_every_task_has_its_own_panels_and_a_loss_has_the_same_style_in_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tasks = [("symmetric(0.2)", "mae"), ("symmetric(0.2)", "ce"), ("symmetric(0.4)", "ce"), ("symmetric(0.4)", "gce(q=0.7)")]
    steps = {10: 0.5, 20: 0.6}
    runs = [_run(tmp_path / f"{position}", steps, noise=noise, loss=loss, data="digits") for position, (noise, loss) in enumerate(tasks)]
    by_task, figures = histories(runs), _saved_figures(monkeypatch)
    words = _words(draw.dynamics(runs, tmp_path / "x.svg"))
    assert {task: [line.label for line in panel.lines] for task, panel in by_task.items()} == {
        "symmetric(0.2)": ["mae", "ce"],
        "symmetric(0.4)": ["ce", "gce(q=0.7)"],
    }
    styles = {(line.label, line.colour, line.dash) for panel in by_task.values() for line in panel.lines}
    assert len(styles) == len({colour for _, colour, _ in styles}) == 3, "every loss has one style, and no two losses share one"
    tested = [axes for axes in figures[0].axes if CURVES["test"].title in axes.get_title("left")]
    assert [len(axes.get_lines()) for axes in tested] == [2, 2]
    assert [text.get_text() for text in figures[0].legends[0].get_texts()] == ["mae", "ce", "gce(q=0.7)"]
    assert "digits, mlp" in words and words.index("symmetric(0.2)") < words.index("symmetric(0.4)")


def test_special_characters_in_names_are_shown_as_they_are(tmp_path: Path) -> None:
    words = _words(draw.dynamics(_run(tmp_path / "run", {5: 0.5, 10: 0.6}, data="a $folder$/x_1^2 & <y>"), tmp_path / "x.svg"))
    assert "a $folder$/x_1^2 & <y>, mlp, symmetric(0.4)" in words


def test_measures_that_only_some_runs_have_are_drawn_too(tmp_path: Path) -> None:
    metrics = [{"epoch": 1, "step": 5, "emphasis": {"all": {"pull": 0.9, "eta": 3.0}}, "adapted": {"noise": 0.2}}]
    unknown = Dynamics(write_run(tmp_path / "unknown", [0, 1], training=[(1, [1, -1], [0, 0])], metrics=metrics, loss="nce"))
    words = _words(draw.dynamics([_run(tmp_path / "known", {5: 0.5, 10: 0.6}), unknown], tmp_path / "x.svg"))
    assert all(measure.title in words for measure in CURVES.values())
    words = _words(draw.margins(unknown, tmp_path / "y.svg"))
    assert "all examples" in words and "noisy labels" not in words and "emphasis" not in words


def test_a_repeated_seed_starts_a_second_line(tmp_path: Path) -> None:
    settings = [("a", 0, 1), ("b", 1, 1), ("c", 0, 5), ("d", 1, 5)]
    runs = [_run(tmp_path / name, {5: 0.5}, loss="ce", seed=seed, evaluate_every=often) for name, seed, often in settings]
    assert [(line.label, line.runs) for line in history(runs).lines] == [("ce", 2), ("ce, run 2", 2)]


def test_recorded_runs_without_seeds_are_averaged(tmp_path: Path) -> None:
    for name in ("a", "b"):
        with noisewise.Recorder(tmp_path / name, [0, 1], loss="ce") as recorder:
            recorder.log([0, 1], torch.eye(2))
            recorder.end_epoch()
            recorder.finish()
    assert [(line.label, line.runs) for line in history([Dynamics(tmp_path / name) for name in ("a", "b")]).lines] == [("ce", 2)]


def test_a_run_with_an_unknown_custom_loss_is_drawn(tmp_path: Path) -> None:
    known = _run(tmp_path / "known", {5: 0.5}, loss="ce")
    custom = Dynamics(write_run(tmp_path / "custom", [0, 1], training=[(1, [1, -1], [0, 0])], loss="custom(x=1)"))
    words = _words(draw.margins([known, custom], tmp_path / "x.svg"))
    assert "custom(x=1)" in words and "emphasis" in words
    assert (custom.focus, custom.spread, custom.emphasis_curve(1, [0.0])) == ({}, {}, None)


@pytest.mark.parametrize("figure", [draw.dynamics, draw.margins])
def test_runs_and_files_that_cannot_be_drawn_are_refused(tmp_path: Path, figure: Any) -> None:
    waiting = _run(tmp_path / "waiting", {}, state="running")
    for runs, name, mention in (
        (waiting, "a.html", ".svg, .pdf, .png"),
        (waiting, "nowhere/a.svg", tmp_path / "nowhere"),
        ([], "a.svg", "run"),
        (tmp_path / "none", "a.svg", tmp_path / "none"),
        (waiting, "a.svg", "no run"),
    ):
        with refused(mention):
            figure(runs, tmp_path / name)
    assert not list(tmp_path.glob("a.*"))


def test_more_epochs_than_fit_a_page_are_refused(tmp_path: Path) -> None:
    with refused("epochs", "margins", "1 to 8"):
        draw.margins(_run(tmp_path / "run", {1: 0.5}), tmp_path / "a.svg", epochs=range(1, 10))


def test_the_commands_write_their_output_files(trained: Path, tmp_path: Path) -> None:
    for words in (
        ["curves", "ce", "imae(T=8)", "--classes", "100", "-o", "a.html"],
        ["curves", "ce", "mae", "-o", "a.pdf"],
        ["dynamics", str(trained / "ce-0"), str(trained), "-o", "b.svg"],
        ["margins", str(trained / "ce-0"), "--epochs", "1,4", "-o", "c.svg"],
    ):
        output = tmp_path / words.pop()
        done = CliRunner().invoke(app, ["figure", *words, str(output)])
        assert done.exit_code == 0 and str(output) in done.stdout and done.stdout.count("\n") == 1 and output.exists()
    assert "100 classes" in (tmp_path / "a.html").read_text(encoding="utf-8")
    assert "epoch 4" in _words(tmp_path / "c.svg") and "epoch 5" not in _words(tmp_path / "c.svg")


@pytest.mark.parametrize(
    ("words", "mentions"),
    [
        (["margins", "nowhere", "-o", "a.svg"], ("'nowhere'",)),
        (["margins", "nowhere", "--epochs", "1;2", "-o", "a.svg"], ("integers", "'1;2'")),
        (["curves"], ("LOSS",)),
        (["curves", "ce", "--classes", "many"], ("--classes", "integer")),
        (["curves", "ce", "--classes", "1"], ("classes", "[2, inf)")),
        (["curves", "ce", "nce", "-o", "a.svg"], ("'nce'",)),
        (["curves", "ce", "-o", "nowhere/a.html"], ("nowhere",)),
        (["curves", "ce", "-o", "a.jpg"], (".html, .svg, .pdf, .png",)),
        (["dynamic", "runs"], ("'dynamic'", "'dynamics'")),
    ],
)
def test_a_wrong_command_is_answered_in_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, words: list[str], mentions: tuple[str, ...]
) -> None:
    monkeypatch.chdir(tmp_path)
    done = CliRunner().invoke(app, ["figure", *words])
    assert done.exit_code == 2 and done.stderr.count("\n") == 1
    assert all(mention in done.stderr for mention in mentions), done.stderr
    assert not list(tmp_path.iterdir())


def test_a_single_spec_instead_of_a_list_is_refused(tmp_path):
    with refused("specs", "curves", "list", "'ce'"):
        draw.curves("ce", tmp_path / "x.svg")
