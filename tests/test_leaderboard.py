"""The leaderboard: its file is valid, choices and ranks are right, and runs are trained, kept and found again."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from scipy.stats import rankdata
from typer.testing import CliRunner
from typer.testing import Result as Printed

from noisewise import fit, leaderboard, losses, methods
from noisewise.cli import app
from noisewise.data import Dataset
from noisewise.leaderboard import (
    Result,
    Results,
    Spec,
    held_out,
    missing,
    oracle,
    ranks,
    read_board,
    read_file,
    results,
    tables,
    write_file,
)
from noisewise.noise import matrix_of
from noisewise.noise import registry as noises
from noisewise.papers import key
from noisewise.train import RunsFailedError, make_settings
from refused import refused

BOARD = leaderboard.board()

SMALL = """
[protocols.small]
title = "Small"
about = "For tests."
rows = ["losses", "methods"]
conditions = ["digits *"]
tuned = true
[protocols.small.settings]
model = "linear"
epochs = 1
optimiser = "sgd(lr=0.1)"
validation = 0.1
device = "cpu"
[data.digits]
title = "digits"
examples = 1437
[data.digits.conditions]
"clean" = { noise = "none", wrong = 0.0 }
"sym 40" = { noise = "symmetric(0.4)", wrong = 0.4 }
[losses.CE]
published = "ce"
source = "the baseline"
[losses.GCE]
published = "gce(q=0.7)"
candidates = ["gce(q=0.3)"]
source = "a paper"
[losses."Any loss"]
all_above = true
source = "all"
[methods.co_teaching]
method = "co_teaching(rate={rate})"
[[marks]]
name = "CE"
source = "a paper"
trained = "longer"
protocols = ["small"]
accuracy = { "digits sym 40" = 99.0 }
"""


def _made(condition: str, loss: str, seed: int = 0, method: str = "plain", **numbers: Any) -> Result:
    """A result of the small protocol with chosen numbers."""
    (protocol,) = read_board(SMALL).protocols
    (where,) = [each for each in protocol.conditions if each.short == condition]
    known = {"finished": "2031-01-02T00:00:00+00:00", **numbers}
    return Result(protocol.settings_of(where, Spec(loss, method)), seed, **known)


def _run(*arguments: Any, code: int = 0) -> Printed:
    done = CliRunner().invoke(app, ["leaderboard", *map(str, arguments)])
    assert done.exit_code == code, done.output
    return done


def test_every_run_of_the_leaderboard_can_be_planned() -> None:
    labels = torch.arange(5000) % 10
    data = Dataset(torch.zeros(5000, 1), labels, classes=tuple("abcdefghij"), true_labels=labels.roll(1))
    for protocol in BOARD.protocols:
        for condition in protocol.conditions:
            runs = [protocol.settings_of(condition, spec) for spec in protocol.specs(condition)]
            make_settings(runs[0])
            assert len(set(map(key, runs))) == len(runs), "two specs are the same, written differently"
    for spec in {spec for protocol in BOARD.protocols for condition in protocol.conditions for spec in protocol.specs(condition)}:
        settings = make_settings({"data": "cifar10", "model": "resnet20", "loss": spec.loss, "method": spec.method, "epochs": 30})
        methods.get(settings.method).check(losses.get(settings.loss), data)


def test_every_loss_and_method_has_a_row_or_a_reason() -> None:
    specs = {spec for protocol in BOARD.protocols for condition in protocol.conditions for spec in protocol.specs(condition)}
    used = {type(part).__name__ for spec in specs for part in losses.get(spec.loss).modules()}
    named = {name for name in losses.available() if losses.Loss.registry[name].__name__ in used}
    assert named | set(BOARD.left_out) == set(losses.available()) and not named & set(BOARD.left_out)
    own = {name for name in methods.available() if not name.endswith("_for_a_test")}  # another test may have added a method
    assert {methods.get(spec.method).name for spec in specs} == own - {"osm_caa"}  # it is for retrieval


def test_methods_are_told_the_true_share_of_wrong_labels() -> None:
    (protocol,) = BOARD.chosen(["methods"]).protocols
    for condition in protocol.conditions:
        matrix = matrix_of(noises.get(condition.noise), 10, 0) if condition.short != "worst" else None
        assert matrix is None or condition.wrong == pytest.approx(1 - matrix.diagonal().mean())
        assert Spec("ce", f"co_teaching(rate={condition.wrong}, warm_up=6)") in protocol.specs(condition)


def test_every_committed_result_belongs_to_a_run_of_the_leaderboard() -> None:
    committed = results()
    seeds = sorted({result.seed for result in committed})
    wanted = len(missing(BOARD, Results(), seeds))
    used = wanted - len(missing(BOARD, committed, seeds))
    assert used == len(list(committed)) > 0, "some results have settings that no row has: delete them or train them again"


def test_ranks_are_those_of_scipy() -> None:
    values = [70.0, 90.0, 80.0, 80.0, 70.0, 80.0]
    assert ranks(values) == rankdata([-value for value in values]).tolist()


def test_the_oracle_has_the_best_mean_and_held_out_labels_choose_for_each_seed() -> None:
    one, other, diverging = Spec("gce(q=0.3)"), Spec("gce(q=0.7)"), Spec("gce(q=0.9)")
    trained = {
        one: {0: _made("clean", "ce", final=0.6, held_out=0.5), 1: _made("clean", "ce", final=0.9, held_out=0.3)},
        other: {
            0: _made("clean", "ce", final=0.7, held_out=0.4),
            1: _made("clean", "ce", final=0.7, held_out=0.4),
            2: _made("clean", "ce", final=0.99, held_out=0.9),  # the first spec has no such seed
        },
    }
    assert oracle(trained) == {0: one, 1: one}
    assert held_out(trained) == {0: one, 1: other}
    failed = {0: _made("clean", "ce", diverged="not finite"), 1: _made("clean", "ce", final=0.99, held_out=0.9)}
    assert oracle({**trained, diverging: failed}) == {0: one, 1: one}
    assert held_out({**trained, diverging: failed}) == {0: one, 1: diverging}
    assert oracle({}) == held_out({}) == {}
    assert held_out({one: {0: _made("clean", "ce", final=0.6)}}) == {}


def test_a_table_has_choices_ranks_and_costs() -> None:
    fast, slow = {"images_per_second": 100.0}, {"images_per_second": 50.0}
    made = Results(
        [
            _made("sym 40", "ce", 0, final=0.50, held_out=0.3, **fast),
            _made("sym 40", "ce", 1, final=0.54, held_out=0.3, **fast),
            *(_made("sym 40", "gce(q=0.7)", seed, final=0.60, held_out=0.4, **slow) for seed in (0, 1)),
            *(_made("sym 40", "gce(q=0.3)", seed, final=0.70, held_out=0.35, **slow) for seed in (0, 1)),
            _made("sym 40", "ce", 0, "co_teaching(rate=0.4)", final=0.65, learned=0.2, **slow),
            _made("clean", "ce", 0, final=0.95, **fast),
        ]
    )
    (table,) = tables(read_board(SMALL), made)
    shown = {entry.name: (leaderboard.number(entry.cells["digits sym 40"].over_seeds()), entry.rank, entry.cost) for entry in table.entries}
    assert shown == {
        "co_teaching": ("65.0", 1.0, 2.0),
        "GCE": ("60.0 ± 0.0", 3.0, 2.0),
        "GCE, held out": ("60.0 ± 0.0", 3.0, 4.0),
        "Any loss, held out": ("60.0 ± 0.0", 3.0, 5.0),
        "CE": ("52.0 ± 2.8", 5.0, 1.0),
        "GCE, oracle": ("70.0 ± 0.0", None, 4.0),
        "Any loss, oracle": ("70.0 ± 0.0", None, 5.0),
    }
    assert [mark.name for mark in table.marks] == ["CE"]
    page = leaderboard.as_json(table)
    assert json.loads(json.dumps(page))["rows"][0]["cells"]["digits sym 40"]["learned"] == {"mean": 20.0, "standard_deviation": None}


def test_the_newest_of_equal_runs_counts_and_other_settings_are_other_runs(tmp_path: Path) -> None:
    older, newer = (
        _made("clean", "gce(0.7)", final=final, finished=f"2031-01-0{day}T00:00:00+00:00") for day, final in ((1, 0.5), (2, 0.6))
    )
    write_file(tmp_path / "b.jsonl", [older])
    write_file(tmp_path / "a.jsonl", [newer])
    settings = _made("clean", "gce(q=.7)").settings
    assert [run.final for run in results(tmp_path).of({**settings, "device": "cpu"}).values()] == [0.6]
    assert not results(tmp_path).of({**settings, "epochs": 2})


@pytest.mark.parametrize(
    "line", ["{", "[]", '{"settings": {}, "seed": 0}', '{"settings": {}, "seed": 0, "finished": "2031-01-01", "final": "0.5"}']
)
def test_a_damaged_file_is_refused_in_one_sentence(line: str, tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_text(_made("clean", "ce", final=0.5).line() + "\n" + line)
    with refused("Line 2", "a.jsonl"):
        results(tmp_path / "a.jsonl")
    with refused("none.jsonl"):
        results(tmp_path / "none.jsonl")


def test_missing_runs_are_ordered_by_condition_seed_and_length_with_published_settings_first() -> None:
    there = Results([_made("clean", "gce(q=0.7)", 1, final=0.9)])
    runs = [(run.condition.short, run.seed, str(run.spec)) for run in missing(read_board(SMALL), there, [0, 1])]
    specs = ["co_teaching(rate=0.0)", "ce", "gce(q=0.7)", "gce(q=0.3)"]
    assert runs[:7] == [*(("clean", 0, spec) for spec in specs), *(("clean", 1, spec) for spec in specs if spec != "gce(q=0.7)")]
    assert [seed for condition, seed, _ in runs if condition == "sym 40"] == [0] * 4 + [1] * 4
    images = {str(run.spec): run.images for run in missing(read_board(SMALL), there, [0])}
    assert images["ce"] == 1293 and images["co_teaching(rate=0.4)"] == 2587, "nine tenths of 1437, and two networks"


def test_an_unknown_name_is_refused() -> None:
    for options, mentions in (
        ({"rows": ["GCF"]}, ("GCF", "GCE")),
        ({"conditions": ["cifar11 *"]}, ("cifar11",)),
        ({"protocols": ["a"]}, ("a",)),
    ):
        with refused(*mentions):
            BOARD.chosen(**options)
    assert "--jobs" in _run("--jobs", 2, code=2).stderr
    assert "measure" in _run("--measure", "speed", code=2).stderr
    assert "together" in _run("--protocol", "cnn8", "--protocol", "methods", "--condition", "* asym 20", "--row", "elr", code=2).stderr


def test_a_result_agrees_with_the_run_folder(tmp_path: Path) -> None:
    settings = {"loss": "ce", "noise": "symmetric(0.4)", "epochs": 3, "validation": 0.1, "clean_pass": False, "device": "cpu"}
    run = fit("linear", "digits", seed=3, folder=tmp_path / "run", **settings)
    lines = (tmp_path / "run/metrics.jsonl").read_text().splitlines()
    last = json.loads(lines[-1]) | {"adapted": {"noise": 0.35, "noise_low": 0.3, "noise_high": 0.4}}
    (tmp_path / "run/metrics.jsonl").write_text("\n".join([*lines[:-1], json.dumps(last)]))
    result = Result.of(type(run)(tmp_path / "run"), {"data": "digits", "model": "linear", **settings}, jobs=2)
    given, true = (np.load(tmp_path / f"run/labels/{name}.npy") for name in ("given", "true"))
    predicted = np.load(tmp_path / "run/record/training/predictions-00003.npy")
    assert (result.seed, result.final, result.held_out) == (3, last["test_accuracy"], last["validation_accuracy"])
    assert result.learned == pytest.approx((predicted == given)[given != true].mean())
    assert result.least == pytest.approx(np.load(tmp_path / "run/record/test/accuracies-00003.npy").min())
    assert result.balanced == last["test_balanced_accuracy"] and result.noise == (0.35, 0.3, 0.4)
    assert result.images_per_second == pytest.approx(len(given) / last["seconds"])
    assert result.made_with is not None and result.made_with["jobs"] == 2
    again = Result.parse(result.line())
    assert again.final == pytest.approx(result.final) and again.noise == [0.35, 0.3, 0.4]


def test_what_is_missing_is_trained_and_not_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    wanted = ["--protocol", "quick", "--condition", "digits sym 40", "--row", "GCE"]
    training = [*wanted, "--train", "--seeds", "4", "--jobs", "1", "-o", "new.jsonl"]
    stopped = _run(*training, "--minutes", "0")
    assert "4 runs did not finish in time" in stopped.stderr and not Path("new.jsonl").exists()
    trained = json.loads(_run(*training, "--json").stdout)["tables"][0]
    assert {(row["row"], row["choice"]) for row in trained["rows"]} == {("GCE", choice) for choice in ("published", "oracle", "held out")}
    assert all(row["cells"]["digits sym 40"]["seeds"] == [4] for row in trained["rows"])
    assert len(read_file(Path("new.jsonl"))) == 4 and not list(Path("runs/leaderboard").iterdir())
    assert "nothing to train" in _run(*training).stderr
    assert json.loads(_run(*wanted, "--with", "new.jsonl", "--json").stdout)["tables"] == [trained]
    left = json.loads(_run(*wanted, "--with", "new.jsonl", "--dry-run", "--seeds", "4,5", "--json").stdout)
    assert (left["runs"], left["images"]) == (4, 4 * 2587)


def test_a_run_that_diverges_has_a_result_and_one_that_fails_has_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    rows = '[losses.CE]\npublished = "ce"\nsource = ""\n[methods.bilevel]\nmethod = "bilevel(trusted=5000)"\n'
    text = SMALL[: SMALL.index("[losses.CE]")].replace("lr=0.1", "lr=1e38") + rows
    board = read_board(text).chosen(conditions=["digits clean"])
    with pytest.raises(RunsFailedError) as failed:
        leaderboard.train(missing(board, Results(), [0]), "new.jsonl", jobs=1)
    assert "1 of 2" in str(failed.value) and "bilevel" in str(failed.value)
    (result,) = read_file(Path("new.jsonl"))
    assert result.final is None and "finite" in str(result.diverged) and result.made_with
    (table,) = tables(board, results("new.jsonl"))
    spread = table.entries[0].cells["digits clean"].over_seeds()
    assert spread is not None and spread.mean == 0
