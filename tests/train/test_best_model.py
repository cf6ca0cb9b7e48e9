"""Which model a run keeps: the last, or the one that was best on the validation share, however often it was stopped on the way."""

import numpy as np
import pytest
import torch
from small_runs import QUICK, clusters, interrupt_after, interrupt_before_model_file, same_bits
from torch import nn

import noisewise
from noisewise import fit
from noisewise.correct import correct, retrain
from noisewise.report._report import gather
from noisewise.runs import read_origin
from noisewise.train import Run
from refused import refused

MODEL = "mlp(hidden=(64,))"
LONG = {**QUICK, "epochs": 24, "noise": "symmetric(0.4)", "validation": 0.3, "checkpoint_every": 5}
DATA = clusters(200)


def held_out(run):
    """The inputs that were held out, and the labels they were given."""
    inputs, labels = DATA
    kept = torch.from_numpy(np.load(run.path / "labels/index.npy"))
    out = torch.ones(len(labels), dtype=torch.bool).index_fill(0, kept, False)
    return inputs[out], noisewise.corrupt(labels, "symmetric(0.4)", seed=0).labels[out]


def accuracy(run, model=None):
    inputs, given = held_out(run)
    return float((run.predict(inputs, model).argmax(1) == given).double().mean())


@pytest.fixture(scope="module")
def best(tmp_path_factory):
    return fit(MODEL, DATA, folder=tmp_path_factory.mktemp("runs") / "best", keep="best", **LONG)


def test_the_best_model_is_kept(best, tmp_path):
    watched = [line["validation_accuracy"] for line in best.metrics]
    last = fit(MODEL, DATA, folder=tmp_path / "last", **LONG)
    assert [line["validation_accuracy"] for line in last.metrics] == watched, "it changes nothing about training"
    assert max(watched) > watched[-1] + 0.04, "else this shows nothing"
    assert best.kept_epoch == 1 + int(np.argmax(watched)) and last.kept_epoch == 24
    assert accuracy(best) == max(watched) and accuracy(last) == watched[-1]


@pytest.mark.parametrize("epoch", [1, 6, 23, *(pytest.param(epoch, marks=pytest.mark.slow) for epoch in (2, 5, 7, 11, 20))])
def test_a_resumed_run_keeps_the_same_model(best, tmp_path, epoch):
    asked = {**LONG, "keep": "best", "folder": tmp_path / "run"}
    interrupt_after(best.metrics[epoch - 1]["step"] + 1, MODEL, DATA, **asked)
    run = fit(MODEL, DATA, **asked)
    same_bits(best.path, run.path)
    assert run.kept_epoch == best.kept_epoch


def test_a_run_whose_last_checkpoint_is_damaged_keeps_the_same_model(best, tmp_path):
    asked = {**LONG, "keep": "best", "folder": tmp_path / "run"}
    interrupt_after(best.metrics[-2]["step"], MODEL, DATA, **asked)
    (tmp_path / "run/checkpoints/epoch-00020.safetensors").write_bytes(b"cut off")
    steps = []
    run = fit(MODEL, DATA, watch=lambda *place: steps.append(place), **asked)
    assert len(steps) == 3 * 9, "from epoch 15"
    same_bits(best.path, run.path)


@pytest.mark.parametrize("damage", ["missing", "damaged"])
def test_a_best_model_that_was_lost_is_trained_again(best, tmp_path, damage):
    asked = {**LONG, "keep": "best", "folder": tmp_path / "run"}
    interrupt_after(best.metrics[-2]["step"], MODEL, DATA, **asked)
    for path in (tmp_path / "run/checkpoints").glob("best-*"):
        path.unlink() if damage == "missing" else path.write_bytes(b"cut off")
    run = fit(MODEL, DATA, **asked)
    same_bits(best.path, run.path)
    assert run.kept_epoch == best.kept_epoch


def test_of_best_models_only_the_right_one_will_do(tmp_path):
    asked = {**rising(12), "checkpoint_every": 5}
    straight = fit("linear", clusters(900, seed=3), folder=tmp_path / "straight", **asked)
    interrupt_after(11 * 10 + 1, "linear", clusters(900, seed=3), folder=tmp_path / "run", **asked)
    newest = max((tmp_path / "run/checkpoints").glob("best-*"))
    assert newest.name > "best-00005", "else it is not one of two"
    newest.unlink()
    same_bits(straight.path, fit("linear", clusters(900, seed=3), folder=tmp_path / "run", **asked).path)


def test_reported_numbers_are_those_of_the_kept_model(tmp_path):
    settings = {**LONG, "epochs": 40, "folder": tmp_path / "run"}
    run = fit(MODEL, DATA, test=clusters(100, seed=5), keep="best", **settings)
    tested = run.metrics[run.kept_epoch - 1]["test_accuracy"]
    assert tested != run.metrics[-1]["test_accuracy"], "else this shows nothing"
    assert run.dynamics.kept == run.dynamics.summary()["kept"] == tested
    assert f"test accuracy {100 * tested:.2f} %" in repr(run)
    learned, epoch = run.dynamics.summary(), run.kept_epoch
    for name in ("noisy_subset", "clean_subset", "fitting", "held_out"):
        curve = getattr(run.dynamics, name)
        assert learned[name] == curve[epoch] == run.dynamics.model_value(curve), name
    assert learned["noisy_subset"] < run.dynamics.noisy_subset[40] - 0.2, "by the end it memorised"
    shown = gather([run.path], title="t")["runs"][0]["measures"]
    assert shown["noisy_subset"] == learned["noisy_subset"] and shown["held_out"] == learned["held_out"]
    told = run.report(tmp_path / "page.html").read_text(encoding="utf-8")
    assert f"{100 * tested:.1f} % test accuracy of the model kept" in told and "below its own best epoch" not in told
    again = retrain(run, correct(run.find_label_issues()), data=DATA, test=clusters(100, seed=5))
    assert read_origin(again.path).before.final == tested, "a correction is set beside the model there was"
    last = fit(MODEL, DATA, test=clusters(100, seed=5), **{**settings, "folder": tmp_path / "last"})
    assert last.dynamics.kept is None and last.dynamics.accuracy == last.dynamics.final


def rising(epochs):
    """A run of a linear model that is better in every epoch."""
    return {**QUICK, "epochs": epochs, "validation": 0.3, "keep": "best", "optimiser": "sgd(lr=0.001)", "schedule": "constant"}


@pytest.mark.parametrize("every", [1, 4, 100])
def test_few_models_are_kept_on_the_way(tmp_path, every):
    found = []

    def watch(done, of):
        found.append(len(list((tmp_path / "run/checkpoints").glob("best-*"))))

    fit("linear", clusters(900, seed=3), folder=tmp_path / "run", watch=watch, checkpoint_every=every, **rising(9))
    watched = [line["validation_accuracy"] for line in Run(tmp_path / "run").metrics]
    assert len(set(watched)) > 5, "else nothing is replaced"
    assert max(found) <= 3 and len(list((tmp_path / "run/checkpoints").glob("best-*"))) <= 2


@pytest.mark.parametrize("step", [4, 45, *(pytest.param(step, marks=pytest.mark.slow) for step in (22, 70, 81))])
def test_a_run_that_gets_better_and_better_keeps_the_same_model_when_resumed(tmp_path, step):
    asked = {**rising(9), "checkpoint_every": 2}
    straight = fit("linear", clusters(900, seed=3), folder=tmp_path / "straight", **asked)
    assert straight.kept_epoch > 6
    interrupt_after(step, "linear", clusters(900, seed=3), folder=tmp_path / "run", **asked)
    same_bits(straight.path, fit("linear", clusters(900, seed=3), folder=tmp_path / "run", **asked).path)


def test_a_module_of_ones_own_ends_with_the_best_weights(tmp_path):
    torch.manual_seed(1)
    own = nn.Sequential(nn.Linear(8, 64), nn.BatchNorm1d(64), nn.ReLU(), nn.Linear(64, 3))
    run = fit(own, DATA, folder=tmp_path / "run", keep="best", **LONG)
    watched = [line["validation_accuracy"] for line in run.metrics]
    assert run.kept_epoch < 24 and accuracy(run, own) == max(watched) > watched[-1]


def test_a_run_stopped_before_its_model_is_written_keeps_the_same(best, tmp_path, monkeypatch):
    asked = {**LONG, "keep": "best", "folder": tmp_path / "run"}
    interrupt_before_model_file(monkeypatch, MODEL, DATA, **asked)
    run = fit(MODEL, DATA, **asked)
    same_bits(best.path, run.path)
    assert run.kept_epoch == best.kept_epoch


def test_it_goes_with_stopping_early(tmp_path):
    run = fit(MODEL, DATA, folder=tmp_path / "run", keep="best", patience=3, **LONG)
    assert run.kept_epoch == len(run.metrics) - 3 < 21
    assert accuracy(run) == max(line["validation_accuracy"] for line in run.metrics)


def test_training_again_on_corrected_labels_holds_nothing_out(best, tmp_path):
    corrected = correct(best.find_label_issues(), "relabel")
    again = retrain(best, corrected, data=DATA, folder=tmp_path / "again")
    assert again.settings.keep == "last" and again.kept_epoch == 24


@pytest.mark.parametrize(
    ("asked", "mentions"),
    [
        ({"keep": "best"}, ("keep='best'", "validation")),
        ({"keep": "first"}, ("'keep'", "run", "'last'", "'best'", "'label_wave'", "'first'")),
    ],
)
def test_a_model_that_cannot_be_kept_is_refused_before_any_work(tmp_path, asked, mentions):
    with refused(*mentions):
        fit("mlp", "there is none", epochs=1, folder=tmp_path / "run", **asked)
