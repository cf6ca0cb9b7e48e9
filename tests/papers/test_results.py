"""Results of several folders are combined: runs are identified by their settings, and the newest counts."""

from __future__ import annotations

import json
import shutil
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from made import outcome

from noisewise import fit, reproduce
from noisewise.papers import Outcome, Portion, Results, available, compared, get, key, results
from noisewise.reproduce import outcome as outcome_of
from noisewise.reproduce import quick_size
from noisewise.train import Settings
from refused import refused

RUN = {"data": "digits", "model": "mlp", "loss": "ce", "epochs": 3}


def _portion(started: str, *runs: Outcome) -> Portion:
    return Portion("imae/table6", started, runs)


def test_the_newest_of_equal_runs_counts(tmp_path: Path) -> None:
    older, newer = (outcome(RUN, final=final, finished=f"2031-01-0{day}T00:00:00+00:00") for day, final in ((1, 0.5), (2, 0.6)))
    other_seed, other_run = outcome(RUN, seed=3, final=0.7), outcome({**RUN, "noise": "symmetric(0.4)"}, final=0.8)
    _portion("2031-01-05T00:00:00+00:00", older, other_seed).write(tmp_path)
    _portion("2031-01-04T00:00:00+00:00", newer, other_run).write(tmp_path)
    combined = results(tmp_path)
    assert [(run.seed, run.numbers["final"]) for run in combined.of(RUN)] == [(0, 0.6), (3, 0.7)]
    assert [run.numbers["final"] for run in combined.of({**RUN, "noise": "symmetric(.4)"})] == [0.8]
    assert combined.of({**RUN, "epochs": 4}) == []


def test_a_file_of_results_that_is_given_twice_counts_once(tmp_path: Path) -> None:
    then = _portion("2031-01-05T00:00:00+00:00", outcome(RUN, final=0.5))
    begun = replace(then, runs=())  # a copy that was made before the run was added
    assert Results([then, begun]).portions == Results([begun, then]).portions == (then,)
    then.write(tmp_path)
    assert results(tmp_path, tmp_path / then.name).portions == (then,)


@pytest.mark.parametrize(
    "change", [{"compile": True}, {"device": "cpu"}, {"precision": "float32"}, {"checkpoint_every": 9}, {"seed": 5}, {"noise": "none"}]
)
def test_settings_of_how_a_run_is_computed_do_not_identify_it(change: dict[str, Any]) -> None:
    assert key({**RUN, **change}) == key(RUN)


@pytest.mark.parametrize(
    "name", [name for name in Settings.__dataclass_fields__ if name not in ("compile", "device", "precision", "checkpoint_every", "seed")]
)
def test_every_other_setting_identifies_a_run(name: str) -> None:
    assert key({**RUN, name: "something else"}) != key(RUN)


@pytest.mark.parametrize(("name", "whole", "fraction"), [("weight_decay", 0, 0.0), ("clip", 5, 5.0), ("validation", 0, 0.0)])
def test_equal_numbers_give_the_same_key(name: str, whole: int, fraction: float) -> None:
    """Folders are named by the key, so it must be the same in every process."""
    for number in (whole, fraction):
        assert f'"{name}": {fraction!r}' in key({**RUN, name: number})
    assert key({**RUN, "normalise": True}) != key({**RUN, "normalise": 1}), "1 is not a valid value of normalise"


def test_an_outcome_is_small_and_agrees_with_the_run_folder(tmp_path: Path) -> None:
    generator = torch.Generator().manual_seed(0)
    inputs, labels = torch.randn(12, 4, generator=generator), torch.arange(12) % 3
    asked = {"loss": "imae(T=8)", "noise": "symmetric(0.4)", "epochs": 130, "batch_size": 5, "device": "cpu", "seed": 7}
    run = fit("mlp", (inputs, labels), test=(inputs, labels), folder=tmp_path / "run", **asked)
    came = outcome_of(run)
    assert len(json.dumps(asdict(came))) < 10_000
    lines = [json.loads(line) for line in (tmp_path / "run/metrics.jsonl").read_text().splitlines()]
    tested = [line["test_accuracy"] for line in lines]
    assert (came.numbers["best"], came.numbers["final"]) == (max(tested), tested[-1])
    given, true = (np.load(tmp_path / f"run/labels/{name}.npy") for name in ("given", "true"))
    epochs = came.curves["epoch"]
    assert (epochs[0], epochs[-1], len(epochs)) == (1, 130, 100)
    assert came.curves["test"] == pytest.approx([tested[int(epoch or 0) - 1] for epoch in epochs], rel=1e-3)
    predicted = [np.load(tmp_path / f"run/record/clean/predictions-{epoch:05d}.npy") for epoch in epochs]
    assert came.curves["noisy_subset"] == pytest.approx([(classes == given)[given != true].mean() for classes in predicted], abs=1e-4)
    assert came.curves.keys() == {"epoch", "test", "clean_subset", "noisy_subset", "fitting", "validation", "snr", "alpha"}
    assert came.settings["model"] == "mlp" and came.settings["loss"] == "imae(T=8)" and "compile" not in came.settings
    assert (came.steps, came.seed) == (130 * 3, 7)
    assert came.made_with["precision"] == "float32" and came.made_with["compile"] is False and came.made_with["device"] == "cpu"
    part = Portion("imae/table6", "2031-01-05T00:00:00+00:00", (came,))
    assert Portion.read(part.write(tmp_path)) == part


_HELD = asdict(outcome(RUN))
_HEAD = {"recipe": "imae/table1", "started": "2031-01-05T00:00:00+00:00", "runs": [_HELD]}


@pytest.mark.parametrize(
    "content",
    [
        *("", "[]", "{}", '{"recipe": "x", "started": "y", "runs": [{"folder": "z"}]}'),
        *(json.dumps({**_HEAD, **wrong}) for wrong in ({"started": "x"}, {"started": 5}, {"recipe": 5})),
        *(json.dumps({**_HEAD, "runs": wrong}) for wrong in (5, [5], [{**_HELD, "settings": []}], [{**_HELD, "seed": "a"}])),
        json.dumps({**_HEAD, "runs": [{**_HELD, "settings": {"data": "digits"}}]}),
    ],
)
def test_a_file_without_results_is_refused(content: str, tmp_path: Path) -> None:
    (tmp_path / "other.json").write_text(content)
    with refused("other.json'"):
        results(tmp_path)


def test_files_with_other_names_in_the_output_folder_are_ignored(tmp_path: Path) -> None:
    for name in ("imae-table1-2031-01-02.json", "._imae-table1-20310102-030405-000000.json", "mine.json"):
        (tmp_path / name).write_text("{}")
    assert len(reproduce.plan(get("imae/table1"), output=tmp_path).tasks) == 3


def test_a_folder_without_results_is_refused(tmp_path: Path) -> None:
    with refused(tmp_path):
        results(tmp_path)
    with refused(tmp_path / "nowhere"):
        results(tmp_path / "nowhere")


def test_committed_results_are_of_full_size_and_belong_to_recipes() -> None:
    wanted = {key(run) for recipe in map(get, available()) for run in recipe.runs}
    for portion in results().portions:
        assert portion.recipe in available()
        for run in portion.runs:
            assert key(run.settings) in wanted, (portion.name, run.settings)
            assert len(json.dumps(asdict(run))) < 10_000


def _trained(only: str, output: Path, recipe: str = "imae/table6", **more: Any) -> reproduce.Reproduction:
    return reproduce.reproduce(
        reproduce.plan(get(recipe), only=f"model=resnet56,noise=symmetric(0.4),{only}", quick=True, output=output, **more)
    )


@pytest.mark.usefixtures("small_data")
def test_results_of_two_folders_fill_one_table(tmp_path: Path) -> None:
    first = _trained("loss=ce", tmp_path / "one")
    second = _trained("loss=mae", tmp_path / "two")
    both = tmp_path / "both"
    both.mkdir()
    for portion in (first, second):
        shutil.copy(portion.files["results"], both)
    shutil.move(second.files["results"], both / "any name.json")
    together = compared(quick_size(get("imae/table6")), results(both))
    assert {one.cell.words for one in together if one.ours is not None} == {"CCE", "MAE"}
    for part in (first, second):
        assert all(now.ours == then.ours for now, then in zip(together, part.cells, strict=True) if then.ours is not None)


@pytest.mark.usefixtures("small_data")
def test_folders_that_were_copied_and_extended_are_combined_in_any_order(tmp_path: Path) -> None:
    monday, tuesday = tmp_path / "monday", tmp_path / "tuesday"
    first = _trained("loss=ce", monday)
    tuesday.mkdir()
    shutil.copy(first.files["results"], tuesday)
    assert {one.cell.words for one in _trained("loss=mae", tuesday).cells if one.ours is not None} == {"CCE", "MAE"}
    _trained("loss=imae", monday)
    for folders in ((monday, tuesday), (tuesday, monday)):
        together = results(*folders)
        assert {one.cell.words for one in compared(quick_size(get("imae/table6")), together) if one.ours is not None} == {
            "CCE",
            "MAE",
            "IMAE",
        }
        assert len(together.portions) == 3
    assert not reproduce.plan(get("imae/table1"), only="loss=ce", quick=True, output=tuesday).tasks, "the run has results in this folder"


@pytest.mark.usefixtures("small_data")
def test_two_calls_in_one_folder_at_once_keep_the_results_of_both(tmp_path: Path) -> None:
    meanwhile = []

    def watch(progress: Any) -> None:
        if not meanwhile and progress.step:
            meanwhile.append(_trained("loss=mae", tmp_path))

    plan = reproduce.plan(get("imae/table1"), only="loss=ce", quick=True, output=tmp_path)
    done = reproduce.reproduce(plan, watch=watch)
    held = [run.settings["loss"] for portion in results(tmp_path).portions for run in portion.runs]
    assert sorted(held) == ["0.5*mae", "ce"] and {one.cell.words for one in done.cells if one.ours is not None} == {"CCE", "MAE"}


@pytest.mark.usefixtures("small_data")
def test_runs_with_results_elsewhere_count_and_are_not_trained_again(tmp_path: Path) -> None:
    _trained("loss=ce", tmp_path / "one")
    held = results(tmp_path / "one")
    plan = reproduce.plan(get("imae/table1"), quick=True, output=tmp_path / "two", held=held)
    assert [loss for loss, _, _ in plan.rows] == ["0.5*mae", "0.00390625*imae(T=8, normalise='batch')"], "table 1 and table 6 share a run"
    second = reproduce.reproduce(replace(plan, tasks=plan.tasks[:1]))
    assert {one.cell.words for one in second.cells if one.ours is not None} == {"CCE", "MAE"}
    (written,) = results(tmp_path / "two").portions
    assert [run.settings["loss"] for run in written.runs] == ["0.5*mae"], "results from elsewhere are not copied"
    assert second.results.portions == (*held.portions, written)
    later = _trained("loss=imae", tmp_path / "three", held=results(tmp_path / "one", tmp_path / "two"))
    assert len(later.results.portions) == 3 and sum(one.ours is not None for one in later.cells) == 15


@pytest.mark.usefixtures("small_data")
def test_an_interrupted_reproduction_keeps_the_results_of_finished_runs(tmp_path: Path) -> None:
    def stop(progress: Any) -> None:
        if progress.place == 1 and progress.step:
            raise KeyboardInterrupt

    plan = reproduce.plan(get("imae/table1"), quick=True, output=tmp_path)
    with pytest.raises(KeyboardInterrupt):
        reproduce.reproduce(plan, watch=stop)
    (portion,) = results(tmp_path).portions
    assert [run.settings["loss"] for run in portion.runs] == ["ce"]
    again = reproduce.plan(get("imae/table1"), quick=True, output=tmp_path)
    assert [loss for loss, _, _ in again.rows] == ["0.5*mae", "0.00390625*imae(T=8, normalise='batch')"]
    done = reproduce.reproduce(again)
    first, then = done.results.portions
    assert first == portion and [run.settings["loss"] for run in then.runs] == [loss for loss, _, _ in again.rows]
    assert sum(one.ours is not None for one in done.cells) == 9


@pytest.mark.usefixtures("small_data")
def test_a_finished_run_counts_if_only_its_compile_and_precision_differ(tmp_path: Path) -> None:
    (run,) = _trained("loss=ce", tmp_path).runs
    written = json.loads((run.path / "settings.json").read_text())
    (run.path / "settings.json").write_text(json.dumps({**written, "compile": True, "precision": "auto"}))
    again = _trained("loss=ce", tmp_path)
    assert sum(one.ours is not None for one in again.cells) == 5


def test_wide_networks_are_compiled_only_on_a_gpu_and_at_full_size(monkeypatch: pytest.MonkeyPatch) -> None:
    def compiled(recipe: str, **options: Any) -> set[bool]:
        return {task.settings.compile for task in reproduce.plan(get(recipe), seeds=[0], **options).tasks}

    assert compiled("curriculum/table5") == {False}, "without a GPU"
    folders = [task.folder for task in reproduce.plan(get("curriculum/table3")).tasks]
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    assert compiled("curriculum/table5") == compiled("curriculum/table3") == compiled("gr/table6") == {True}
    assert compiled("imae/table6") == compiled("curriculum/table5", quick=True) == compiled("curriculum/table5", compile=False) == {False}
    assert [task.folder for task in reproduce.plan(get("curriculum/table3")).tasks] == folders


_ROWS = {  # the rows of the table in the README: recipe, network and noise
    "CIFAR-10, ResNet-20": ("imae/table6", "resnet20", "symmetric(0.4)"),
    "CIFAR-10, ResNet-56": ("gr/table3", "resnet56", "symmetric(0.4)"),
    "CIFAR-10 labelled by people, CNN of 8 layers": ("curriculum/table5", "cnn8", "human(worst)"),
    "CIFAR-100, ResNet-34": ("curriculum/table3", "resnet34(init=kaiming_uniform)", "symmetric(0.4)"),
}


def test_the_table_in_the_readme_shows_the_committed_results() -> None:
    text = (Path(__file__).parents[2] / "README.md").read_text(encoding="utf-8")
    first = next(iter(_ROWS))
    table = f"| {first} " + text.partition(f"| {first} ")[2].partition("\n\n")[0]
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in table.splitlines() if line.startswith("|") and "`" in line]
    assert {words for words, *_ in rows if words} == _ROWS.keys()
    named = ""
    for words, loss, tested, learned in rows:
        named = words or named
        recipe, model, noise = _ROWS[named]
        (run,) = (run for run in get(recipe).runs if (run["model"], run["noise"], f"`{run['loss']}`") == (model, noise, loss))
        final, wrong = ([100 * (each.numbers[name] or 0) for each in results().of(run)] for name in ("final", "noisy_subset"))
        spread = f" ± {np.std(final, ddof=1):.1f}" if len(final) > 1 else ""
        assert tested.strip("*") == f"{np.mean(final):.1f}{spread} %"
        assert learned == f"{np.mean(wrong):.1f} %"
