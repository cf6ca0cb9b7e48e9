"""Whether a correction helped is found out on held-out labels, which may be wrong, and the better run is named."""

import json
from dataclasses import replace

import numpy as np
import pytest
import torch
from scipy.stats import binomtest
from typer.testing import CliRunner

from noisewise import Run, fit
from noisewise.audit import add_evidence, audit
from noisewise.cli import app
from noisewise.correct import HeldOut, check_correction, correct, retrain
from noisewise.data import Dataset

QUICK = {"epochs": 25, "batch_size": 32, "device": "cpu", "evaluate_every": 1000, "checkpoint_every": 1000, "clean_pass": False}


def clusters(number, seed):
    generator = torch.Generator().manual_seed(seed)
    labels = torch.arange(number) % 3
    return Dataset(
        torch.randn(number, 20, generator=generator) + 2 * torch.eye(3, 20)[labels], labels, ("cat", "dog", "eel"), name="clusters"
    )


DATA, TEST = clusters(600, 0), clusters(1000, 1)


def trained(folder, **settings):
    """A network that memorises many of the 35 % wrong labels."""
    return fit("mlp", DATA, test=TEST, noise="symmetric(0.35)", folder=folder, **{**QUICK, **settings})


def by_hand(run, labels):
    return replace(correct(audit(run), decisions={}), labels=np.asarray(labels))


@pytest.fixture(scope="module", params=[0.0, 0.25])
def run(request, tmp_path_factory):
    return trained(tmp_path_factory.mktemp("runs") / "run", validation=request.param)


def test_right_corrections_help_and_wrong_ones_do_not(run, tmp_path):
    record = run.dynamics.record
    mixed = (np.array(record.given) + (np.arange(len(record.given)) % 4 > 0)) % 3  # most labels become other ones
    for labels, helps in ((record.true, True), (mixed, False)):
        corrected = by_hand(run, labels)
        again = retrain(run, corrected, data=DATA, folder=tmp_path / str(helps))
        held_out = check_correction(run, corrected, again, data=DATA)
        assert held_out.helped is helps is (again.dynamics.final > run.dynamics.final), "and the true test labels agree"
        assert held_out.examples == (150 if run.settings.validation else 120)
        assert held_out.before < 0.7, "it is measured by the given labels, of which a third is wrong, and not by the true ones"
        assert f"{held_out.examples} held-out labels" in str(held_out) and f"{100 * held_out.after:.1f} %" in str(held_out)


def test_a_validation_share_is_used_and_neither_run_was_trained_on_it(run, tmp_path):
    corrected = correct(audit(run), "prune")
    again = retrain(run, corrected, data=DATA, folder=tmp_path / "again")
    held_out = check_correction(run, corrected, again, data=DATA)
    if not run.settings.validation:
        assert held_out == check_correction(run, corrected, again, data=DATA), "the same trainings give the same numbers"
        return
    noisy = DATA.corrupted("symmetric(0.35)", seed=run.settings.seed)
    others = np.setdiff1d(np.arange(600), np.load(run.path / "labels/index.npy"))
    assert not np.isin(np.load(again.path / "labels/index.npy"), others).any()
    assert held_out.before == pytest.approx(run.metrics[-1]["validation_accuracy"], abs=1e-6)
    agreement = (again.predict(noisy.inputs[others]).argmax(1) == noisy.labels[others]).float().mean()
    assert held_out.after == pytest.approx(float(agreement), abs=1e-6)


def test_labels_that_nobody_would_change_leave_the_run_as_it_is(tmp_path):
    run = trained(tmp_path / "run", epochs=2)
    corrected = by_hand(run, run.dynamics.record.given)
    held_out = check_correction(run, replace(corrected, policy="relabel(below=0.001)"), run, data=DATA)
    assert held_out.before == held_out.after and not held_out.helped


@pytest.mark.parametrize(("gained", "lost"), [(4, 1), (10, 2), (30, 20), (60, 30), (2, 30), (0, 0), (5, 5)])
def test_a_difference_is_clear_if_it_is_rare_among_equally_good_models(gained, lost):
    held_out = HeldOut((100 + lost) / 300, (100 + gained) / 300, 300, gained + lost)
    chance = binomtest(gained, gained + lost).pvalue if gained + lost else 1.0
    assert held_out.is_clear == (chance < 0.05) and held_out.helped is (gained > lost)


def test_labels_judged_by_features_are_corrected_in_the_same_way_for_the_check(tmp_path):
    run = trained(tmp_path / "run", epochs=2)
    assert not correct(audit(run), "prune").changed.any(), "its record says nothing yet"
    add_evidence(run, DATA.inputs)
    corrected = correct(audit(run), "prune")
    assert corrected.changed.sum() > 100
    again = retrain(run, corrected, data=DATA, folder=tmp_path / "again")
    assert check_correction(run, corrected, again, data=DATA).differing > 0


def test_the_command_names_the_better_run(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    rows = "".join(
        f"{','.join(f'{value:.4f}' for value in row)},{'abc'[label]}\n"
        for row, label in zip(DATA.inputs.tolist(), DATA.labels, strict=True)
    )
    (tmp_path / "mine.csv").write_text(",".join([*(f"x{number}" for number in range(20)), "label"]) + "\n" + rows)
    run = fit("linear", "mine.csv", folder="run", **{**QUICK, "epochs": 8})
    wrong = [{"index": index, "decision": "relabel", "label": "abc"[(index + 1) % 3]} for index in range(0, 600, 2)]
    (tmp_path / "decisions.json").write_text(json.dumps(wrong))
    command = ["correct", "run", "--decisions", "decisions.json", "--retrain"]
    done = CliRunner().invoke(app, command)
    assert done.exit_code == 0, done.stderr
    *_, agreement, verdict, better = done.stdout.splitlines()
    assert "120 held-out labels" in agreement and "did not help" in verdict and better == "run" and Run("run-corrected").state == "finished"
    plain = CliRunner().invoke(app, [*command, "--no-check"])
    assert plain.stdout.splitlines()[-1] == "run-corrected" and "held-out" not in plain.stdout
    refused = CliRunner().invoke(app, ["correct", "run", "--no-check"])
    assert refused.exit_code == 2 and "--retrain" in refused.stderr and run.state == "finished"
