"""`fit`: what a run does, writes and refuses, and that the same call always gives the same bits."""

import contextlib
import json
import math
import re
import warnings
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from small_runs import QUICK, clusters, interrupt_after, same_bits, same_up_to_rounding
from torch import nn

import noisewise
from noisewise import fit, models
from noisewise.data import Dataset, Stream, augmentations, load, read
from noisewise.output import written_whole
from noisewise.report._report import gather
from noisewise.runs import RunFolder
from noisewise.train import Run, Underfitting
from noisewise.train._step import Scorer, Tally
from refused import refused, warned

FAST = {**QUICK, "optimiser": "sgd(lr=0.5, momentum=0.9)"}


def test_a_run_learns_and_writes_files_that_numpy_and_json_can_read(tmp_path):
    run = fit(
        "mlp(hidden=(32,))", clusters(), test=clusters(seed=1), noise="symmetric(0.2)", loss="gce(q=0.7)", folder=tmp_path / "run", **FAST
    )
    assert run.state == "finished" and run.metrics[-1]["test_accuracy"] > 0.9
    settings = json.loads((tmp_path / "run/settings.json").read_text())
    assert settings["loss"] == "gce(q=0.7)" and settings["data"] == "arrays" and settings["epochs"] == 3
    provenance = json.loads((tmp_path / "run/provenance.json").read_text())
    assert provenance["noise"]["spec"] == "symmetric(0.2)" and 0.1 < provenance["noise"]["rate"] < 0.3
    assert provenance["torch"] == torch.__version__
    given, true = (np.load(tmp_path / f"run/labels/{name}.npy", allow_pickle=False) for name in ("given", "true"))
    assert math.isclose((given != true).mean(), provenance["noise"]["rate"])
    for epoch in (1, 2, 3):
        for split in ("training", "clean"):
            margins = np.load(tmp_path / f"run/record/{split}/margins-{epoch:05d}.npy", allow_pickle=False)
            predictions = np.load(tmp_path / f"run/record/{split}/predictions-{epoch:05d}.npy", allow_pickle=False)
            assert margins.dtype == np.float16 and margins.shape == (300,) and np.isfinite(margins).all()
            assert set(np.unique(predictions)) <= {0, 1, 2}
    assert not {path.suffix for path in tmp_path.rglob("*")} & {".pt", ".pkl", ".part"}


def test_the_clean_record_equals_the_predictions_of_the_saved_model(tmp_path):
    inputs, labels = clusters(1100)  # more than one evaluation batch
    run = fit("mlp(hidden=(32,))", (inputs, labels), folder=tmp_path / "run", **QUICK)
    probabilities = run.predict(inputs)
    predictions = np.load(tmp_path / "run/record/clean/predictions-00003.npy")
    margins = np.load(tmp_path / "run/record/clean/margins-00003.npy")
    assert (probabilities.argmax(1).numpy() == predictions).all()
    p = probabilities.gather(1, labels[:, None])[:, 0].double()
    np.testing.assert_allclose(margins, torch.logit(p).numpy(), atol=0.02, rtol=0.01)
    scale = augmentations.get(run.provenance["normalise"])
    np.testing.assert_allclose((scale.mean, scale.std), (inputs.mean(0), inputs.std(0, correction=0)), rtol=1e-5)


def test_evaluations_and_checkpoints_are_made_at_their_intervals_and_at_the_end(tmp_path):
    settings = {**QUICK, "epochs": 5, "evaluate_every": 2, "checkpoint_every": 3}
    run = fit("linear", clusters(), test=clusters(seed=1), folder=tmp_path / "run", **settings)
    assert [line["epoch"] for line in run.metrics if "test_accuracy" in line] == [2, 4, 5]
    assert run.dynamics.record.epochs("clean") == (2, 4, 5) and run.dynamics.record.epochs() == (1, 2, 3, 4, 5)
    assert sorted(path.name for path in (run.path / "checkpoints").iterdir()) == ["epoch-00003.safetensors", "epoch-00005.safetensors"]


def test_a_tally_keeps_the_first_step_that_was_not_finite_and_the_largest_score():
    tally = Tally.of(4, torch.device("cpu"))
    for step, (score, margin) in enumerate([(3.0, 1.0), (-7.0, math.inf), (2.0, math.nan)]):
        tally.note(torch.tensor([step]), torch.tensor([[score, 0.0]]), torch.tensor([margin]), torch.tensor(step))
    assert tally.bad_step == 1 and tally.worst == 7
    assert tally.predictions.tolist() == [0, 1, 0, -1] and tally.margins[3].isnan()


def test_a_batch_in_which_every_example_has_weight_zero_keeps_the_weights_finite(tmp_path):
    labels = torch.tensor([0, 1]).repeat_interleave(8)
    settings = {"epochs": 1, "batch_size": 2, "loss": "ce(weight=(0.0, 1.0))", "weight_decay": 0.0, "device": "cpu"}
    run = fit("linear", (torch.randn(16, 4), labels), classes_per_batch=1, folder=tmp_path / "run", **settings)
    assert run.state == "finished" and run.model().head.weight.isfinite().all()


@pytest.mark.parametrize(("spec", "clip"), [("imae(T=4)", None), ("imae(T=4)", 0.1), ("nce", None)])
def test_a_run_equals_a_plain_torch_loop(tmp_path, spec, clip):
    """One epoch and a part of the next, against a torch loop over the same order of examples."""
    inputs, labels = clusters(200)
    loss, lr = noisewise.get(spec), 0.05
    torch.manual_seed(3)
    model = nn.Linear(8, 3)
    start = {name: value.clone() for name, value in model.state_dict().items()}
    settings = {"steps": 11, "batch_size": 32, "optimiser": f"sgd(lr={lr}, momentum=0.9)", "schedule": "step(9, factor=0.5)", "clip": clip}
    others = {"noise": "symmetric(0.3)", "seed": 5, "normalise": False, "folder": tmp_path / "run", "device": "cpu"}
    run = fit(model, (inputs, labels), loss=spec, **settings, **others)
    given, true = (torch.from_numpy(np.load(tmp_path / f"run/labels/{name}.npy")) for name in ("given", "true"))
    assert torch.equal(given, noisewise.corrupt(labels, "symmetric(0.3)", seed=5).labels) and torch.equal(true, labels)
    plain = nn.Linear(8, 3)
    plain.load_state_dict(start)
    optimiser = torch.optim.SGD(plain.parameters(), lr=lr, momentum=0.9, weight_decay=1e-4)
    for line, steps in zip(run.metrics, (7, 4), strict=True):
        pull, eta, margins, losses, pulls = {True: 0.0, False: 0.0}, {True: 0.0, False: 0.0}, torch.full((200,), torch.nan), [], []
        for number, index in enumerate(noisewise.data.order(labels, 5, line["epoch"]).split(32)[:steps], line["step"] - steps):
            scores, rate = plain(inputs[index]), lr * 0.5 ** (number // 9)
            emphasis = noisewise.emphasis(loss, scores, given[index])
            margins[index] = noisewise.margin(scores.detach(), given[index])
            for wrong in (True, False):
                group = (given[index] != true[index]) == wrong
                pull[wrong] += rate * float(emphasis[group].sum())
                eta[wrong] += rate * int(group.sum())
            value = loss(scores, given[index])
            losses += [value.item()] * len(index)
            pulls += emphasis.tolist()
            optimiser.param_groups[0]["lr"] = rate
            optimiser.zero_grad()
            value.backward()
            if clip is not None:
                assert nn.utils.clip_grad_norm_(plain.parameters(), clip) > clip, "the clip must change the gradient for this to be a test"
            optimiser.step()
        assert math.isclose(line["train_loss"], np.mean(losses), rel_tol=1e-5)
        assert math.isclose(line["mean_emphasis"], np.mean(pulls), rel_tol=1e-5)
        for group, wrong in (("clean", False), ("noisy", True)):
            assert math.isclose(line["emphasis"][group]["pull"], pull[wrong], rel_tol=1e-5)
            assert math.isclose(line["emphasis"][group]["eta"], eta[wrong], rel_tol=1e-5)
        recorded = np.load(tmp_path / f"run/record/training/margins-{line['epoch']:05d}.npy")
        np.testing.assert_allclose(recorded, margins.numpy(), rtol=2e-3, atol=2e-3)
    for name, value in plain.state_dict().items():
        torch.testing.assert_close(model.state_dict()[name], value)


@pytest.mark.parametrize(("model", "augment"), [("mlp(dropout=0.5)", "none"), ("linear", "crop(2)")])
def test_dropout_and_augmentation_differ_between_epochs_and_seeds_and_are_off_in_evaluations(tmp_path, model, augment):
    """Copies of one image at a learning rate of zero: only random numbers can change their margins."""
    image = load("digits").inputs[:1]
    data = Dataset(image.expand(128, 1, 8, 8), torch.zeros(128, dtype=torch.int64), ("yes", "no"))
    margins = []
    for name, seed in (("first", 0), ("again", 0), ("other", 1)):
        module = models.get(model, num_classes=2, shape=(1, 8, 8))
        for weights in module.parameters():
            nn.init.normal_(weights, std=0.1, generator=torch.Generator().manual_seed(2))
        settings = {"epochs": 2, "batch_size": 64, "optimiser": "sgd(lr=0)", "augment": augment, "seed": seed, "device": "cpu"}
        run = fit(module, data, folder=tmp_path / name, **settings)
        first, second, *clean = (
            np.load(run.path / f"record/{split}/margins-{epoch:05d}.npy") for split in ("training", "clean") for epoch in (1, 2)
        )
        assert not np.array_equal(np.sort(first), np.sort(second))
        margins.append(first)
        np.testing.assert_allclose(clean, torch.logit(run.predict(image)[0, 0].double()).expand(2, 128), rtol=1e-3)
    assert np.array_equal(margins[0], margins[1]) and not np.array_equal(np.sort(margins[0]), np.sort(margins[2]))


def test_the_seed_decides_the_initial_weights(tmp_path):
    first, again, other = (
        fit("linear", clusters(), epochs=1, optimiser="sgd(lr=0)", seed=seed, folder=tmp_path / name, device="cpu").model().head.weight
        for name, seed in (("first", 0), ("again", 0), ("other", 1))
    )
    assert torch.equal(first, again) and not torch.equal(first, other)


def test_in_half_precision_the_last_layer_and_the_scores_are_float32(tmp_path):
    model, inputs = models.get("mlp(hidden=(32,))", num_classes=3, shape=(8,)), clusters()[0]
    other = nn.Linear(8, 3)
    with torch.no_grad(), torch.autocast("cpu", dtype=torch.bfloat16):
        embedding, scores = model.features(inputs), other(inputs)
    assert embedding.dtype == scores.dtype == torch.bfloat16
    with torch.no_grad():
        actual = Scorer(model, half=True)(inputs)
        assert actual.dtype == torch.float32 and torch.equal(actual, model.head(embedding.float()))
        actual = Scorer(other, half=True)(inputs)
        assert actual.dtype == torch.float32 and torch.equal(actual, scores.float())
    runs = [fit("linear", clusters(), precision=precision, folder=tmp_path / precision, **QUICK) for precision in ("float32", "bfloat16")]
    single, half = (run.model().head.weight for run in runs)
    torch.testing.assert_close(half, single, rtol=0.05, atol=0.05)


def test_validation_accuracy_uses_the_given_labels(tmp_path):
    inputs, labels = clusters(400)
    shares = []
    for seed in (3, 4):
        settings = {**QUICK, "epochs": 2, "noise": "symmetric(0.4)", "validation": 0.25, "seed": seed}
        run = fit("mlp(hidden=(16,))", (inputs, labels), folder=tmp_path / str(seed), **settings)
        kept = torch.from_numpy(np.load(run.path / "labels/index.npy"))
        held_out = torch.ones(400, dtype=torch.bool).index_fill(0, kept, False)
        given = noisewise.corrupt(labels, "symmetric(0.4)", seed=seed).labels
        right = run.predict(inputs[held_out]).argmax(1) == given[held_out]
        assert run.metrics[-1]["validation_accuracy"] == right.double().mean() and held_out.sum() == 100
        shares.append(held_out)
    assert not torch.equal(*shares)


def test_no_part_of_the_last_batch_is_a_single_example(tmp_path):
    """Batch normalisation needs two. With 137 examples the last batch has nine, and there are eight parts."""
    run = fit("mlp(norm='batch')", clusters(137), accumulate=8, folder=tmp_path / "run", **{**QUICK, "batch_size": 64})
    assert len(run.metrics) == QUICK["epochs"]


@pytest.mark.parametrize(
    "loss",
    [
        "ce",
        "imae(T=8, normalise='batch')",
        "0.5*normalised(gce(q=0.7), by='batch')",
        "ce(weight=(1.0, 5.0, 2.0))",
        "gce(q=0.7, ignore_index=1)",
        "0.5*gr(beta=2, lam=0.5, normalise='batch', weight=(1.0, 5.0, 2.0))",
    ],
)
def test_accumulation_trains_like_the_whole_batch(tmp_path, loss):
    settings = {**QUICK, "loss": loss, "noise": "symmetric(0.2)"}
    whole, parts = (fit("mlp(hidden=(16,))", clusters(), accumulate=number, folder=tmp_path / str(number), **settings) for number in (1, 5))
    same_up_to_rounding(whole, parts)


@pytest.mark.parametrize("loss", ["0.5*imae(normalise='batch') + 0.5*ce", "peer(ce)"])
def test_accumulation_is_refused_for_a_loss_that_needs_the_whole_batch(tmp_path, loss):
    with refused("accumulate=1"):
        fit("mlp", clusters(), loss=loss, accumulate=2, folder=tmp_path / "run", **QUICK)


@pytest.mark.parametrize("weight", [(1.0, 2.0), (1.0, 2.0, 3.0, 4.0)])
def test_class_weights_must_match_the_number_of_classes(tmp_path, weight):
    with refused(3, (len(weight),)):
        fit("mlp", clusters(), loss=f"ce(weight={weight})", folder=tmp_path / "run", **QUICK)


def test_the_same_seed_gives_the_same_bits_and_another_seed_another_model(tmp_path):
    for name, seed in (("first", 1), ("again", 1), ("other", 2)):
        fit("mlp(hidden=(16,), dropout=0.2)", clusters(), noise="symmetric(0.2)", seed=seed, folder=tmp_path / name, **QUICK)
    same_bits(tmp_path / "first", tmp_path / "again")
    assert (tmp_path / "first/model.safetensors").read_bytes() != (tmp_path / "other/model.safetensors").read_bytes()


def test_the_global_random_state_does_not_change_a_run(tmp_path):
    torch.manual_seed(123)
    fit("mlp(hidden=(16,))", clusters(), folder=tmp_path / "one", **QUICK)
    torch.manual_seed(456)
    fit("mlp(hidden=(16,))", clusters(), folder=tmp_path / "two", **QUICK)
    same_bits(tmp_path / "one", tmp_path / "two")


def test_a_finished_run_is_not_trained_again(tmp_path):
    first = fit("mlp", clusters(), folder=tmp_path / "run", **QUICK)
    before = (tmp_path / "run/model.safetensors").stat().st_mtime_ns
    again = fit("mlp", clusters(), folder=tmp_path / "run", **QUICK)
    assert again.metrics == first.metrics and (tmp_path / "run/model.safetensors").stat().st_mtime_ns == before


def test_without_a_folder_the_same_call_finds_its_run_again(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    first, again, other = fit("mlp", clusters(), **QUICK), fit("mlp", clusters(), **QUICK), fit("mlp", clusters(seed=9), **QUICK)
    assert first.path == again.path != other.path and first.path.parent.name == "runs"


def test_a_folder_with_another_run_is_refused(tmp_path):
    fit("mlp", clusters(), folder=tmp_path / "run", **QUICK)
    with refused("loss='ce'", "loss='mae'"):
        fit("mlp", clusters(), loss="mae", folder=tmp_path / "run", **QUICK)
    with refused(tmp_path / "run"):
        fit("mlp", clusters(seed=4), folder=tmp_path / "run", **QUICK)


def test_steps_may_end_within_an_epoch(tmp_path):
    run = fit("mlp", clusters(), steps=7, batch_size=64, folder=tmp_path / "run", device="cpu")
    assert [line["step"] for line in run.metrics] == [5, 7]
    seen = np.isfinite(np.load(tmp_path / "run/record/training/margins-00002.npy"))
    assert seen.sum() == 128 and (np.load(tmp_path / "run/record/training/predictions-00002.npy")[~seen] == -1).all()


def test_a_run_of_a_trillion_steps_starts_without_computing_all_learning_rates(tmp_path):
    seen = []

    def watch(step, steps):
        seen.append((step, steps))
        if step == 3:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        fit("mlp", clusters(), folder=tmp_path / "run", watch=watch, **{**QUICK, "epochs": None, "steps": 10**12, "schedule": "cosine"})
    assert seen == [(step, 10**12) for step in (1, 2, 3)]


def test_early_stopping_uses_the_noisy_validation_share(tmp_path):
    settings = {**QUICK, "epochs": 60, "validation": 0.3, "patience": 3}
    run = fit("mlp(hidden=(64,))", clusters(200), noise="symmetric(0.4)", folder=tmp_path / "run", **settings)
    assert run.state == "finished" and len(run.metrics) < 60
    accuracies = [line["validation_accuracy"] for line in run.metrics]
    assert max(accuracies) == accuracies[-4] and len(np.load(tmp_path / "run/labels/given.npy")) == 140


def test_classes_of_a_test_set_get_the_numbers_of_the_training_set(tmp_path):
    inputs, labels = clusters()
    names = [("ant", "bee", "cat")[label] for label in labels.tolist()]
    kept = [position for position, name in enumerate(names) if name != "ant"]  # alone, "bee" would be class 0
    test = (inputs[kept], [names[position] for position in kept])
    run = fit("mlp(hidden=(32,))", (inputs, names), test=test, folder=tmp_path / "run", **FAST)
    assert run.metrics[-1]["test_accuracy"] > 0.9
    with refused("'dog'"):
        fit("mlp", (inputs, names), test=(inputs[:2], ["dog", "cat"]), folder=tmp_path / "other", **FAST)


def test_fit_takes_a_module_and_a_dataloader(tmp_path):
    inputs, labels = clusters()
    loader = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(inputs, labels), batch_size=10, shuffle=True)
    torch.manual_seed(0)
    module = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 3))
    run = fit(module, loader, test=clusters(seed=1), folder=tmp_path / "run", **QUICK)
    assert run.metrics[-1]["test_accuracy"] > 0.9
    fresh = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 3))
    torch.testing.assert_close(run.predict(inputs, into=fresh), run.predict(inputs, into=module))


class WithMiddleLayers(nn.Module):
    """A module with layers between `features` and `head`."""

    def __init__(self):
        super().__init__()
        self.features, self.middle, self.head = nn.Linear(8, 16), nn.Sequential(nn.BatchNorm1d(16), nn.ReLU()), nn.Linear(16, 3)

    def forward(self, inputs):
        return self.head(self.middle(self.features(inputs)))


def test_half_precision_trains_all_layers_of_a_user_module(tmp_path):
    torch.manual_seed(0)
    model = WithMiddleLayers()
    run = fit(model, clusters(), test=clusters(seed=1), folder=tmp_path / "run", precision="bfloat16", **QUICK)
    assert not torch.equal(model.middle[0].running_mean, torch.zeros(16)), "the middle layers were used"
    inputs, labels = clusters(seed=1)
    right = (run.predict(inputs, WithMiddleLayers()).argmax(1) == labels).double().mean()
    assert float(right) == pytest.approx(run.metrics[-1]["test_accuracy"], abs=0.02)


def test_augmentation_changes_the_training_loss(tmp_path):
    data = load("digits").take(torch.arange(256))
    plain, again, cropped = (
        fit("cnn4", data, augment=augment, folder=tmp_path / name, **{**QUICK, "epochs": 1})
        for name, augment in (("plain", "none"), ("again", "none"), ("cropped", "crop(1)"))
    )
    same_bits(plain.path, again.path)
    assert cropped.metrics[0]["train_loss"] != plain.metrics[0]["train_loss"]


def test_a_stream_from_disk_trains_like_the_same_images_in_memory(tmp_path):
    digits = load("digits").take(torch.arange(120))
    for position, (image, label) in enumerate(zip(digits.inputs, digits.labels.tolist(), strict=True)):
        path = tmp_path / "images" / f"digit{label}" / f"{position:04d}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(image[0].numpy()).save(path)
    settings = {**QUICK, "epochs": 2, "batch_size": 32, "normalise": False}
    runs = []
    for name, memory in (("memory", 4.0), ("stream", 0.0)):
        data = read(tmp_path / "images", size=8, memory=memory)
        assert isinstance(data, Stream) == (name == "stream")
        runs.append(fit("cnn4", data, folder=tmp_path / name, **settings))
    same_bits(runs[0].path, runs[1].path)
    assert fit("cnn4", data, folder=tmp_path / "scaled", **{**settings, "normalise": True}).state == "finished"


def test_forget_after_removes_the_record_of_later_epochs(tmp_path):
    fit("mlp", clusters(), folder=tmp_path / "run", **QUICK)
    folder = RunFolder(tmp_path / "run")
    folder.forget_after(1)
    assert [line["epoch"] for line in folder.metrics()] == [1]
    assert [path.name for path in sorted((tmp_path / "run/record/training").glob("margins*"))] == ["margins-00001.npy"]


def test_a_damaged_newest_checkpoint_is_skipped(tmp_path):
    settings = {**QUICK, "epochs": 4}
    fit("mlp", clusters(), folder=tmp_path / "straight", **settings)
    fit("mlp", clusters(), folder=tmp_path / "damaged", **settings)
    folder = tmp_path / "damaged"
    (folder / "status.json").write_text('{"state": "running", "reason": null, "epoch": 4, "step": 20}')
    newest = sorted((folder / "checkpoints").iterdir())[-1]
    newest.write_bytes(newest.read_bytes()[:100])
    fit("mlp", clusters(), folder=folder, **settings)
    same_bits(tmp_path / "straight", folder)


def test_a_run_whose_loss_is_not_finite_fails(tmp_path):
    with refused("ce", "step", kind=noisewise.DivergedError):
        fit("mlp", clusters(), folder=tmp_path / "run", **{**QUICK, "epochs": 30, "optimiser": "sgd(lr=1e18)"})
    run = Run(tmp_path / "run")
    assert run.state == "failed" and all(math.isfinite(line["train_loss"]) for line in run.metrics)


@pytest.mark.parametrize("loss", ["imae(T=8)", "gr(beta=16, lam=1, normalise='batch')"])
def test_imae_and_gr_stay_finite_for_fifty_epochs_at_a_high_rate(tmp_path, loss):
    data = load("digits").take(torch.arange(512)).corrupted("symmetric(0.4)")
    settings = {"epochs": 50, "batch_size": 64, "optimiser": "sgd(lr=0.1, momentum=0.9)", "schedule": "constant", "device": "cpu"}
    run = fit("mlp(hidden=(64,))", data, loss=loss, folder=tmp_path / "run", evaluate_every=50, checkpoint_every=50, **settings)
    assert run.state == "finished"
    margins = np.load(tmp_path / "run/record/clean/margins-00050.npy").astype(float)
    assert np.abs(margins).max() < 1000


def test_a_folder_that_cannot_be_written_is_refused(tmp_path):
    (tmp_path / "file").write_text("")
    with refused(tmp_path / "file" / "run"):
        fit("mlp", clusters(), folder=tmp_path / "file" / "run", **QUICK)


@pytest.mark.parametrize("name", ["folder", "watch"])
def test_a_folder_must_be_a_path_and_watch_a_function(name):
    with refused(name, 3):
        fit("mlp", "no such data", **{name: 3}, **QUICK)


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs a device that is always full")
def test_a_full_disk_is_a_storage_error_and_keeps_the_checkpoints(tmp_path, monkeypatch):
    folder = tmp_path / "run"

    @contextlib.contextmanager
    def fill_up(file, **options):
        with written_whole(file, **options) as part:
            yield Path("/dev/full") if file.parent.parent.name == "record" and "00002" in file.name else part

    monkeypatch.setattr(noisewise.runs._folder, "written_whole", fill_up)
    with pytest.raises(noisewise.StorageError):
        fit("mlp", clusters(), folder=folder, **QUICK)
    monkeypatch.undo()
    assert (folder / "checkpoints/epoch-00001.safetensors").exists() and Run(folder).state == "failed"
    assert fit("mlp", clusters(), folder=folder, **QUICK).state == "finished"
    fit("mlp", clusters(), folder=tmp_path / "straight", **QUICK)
    same_bits(tmp_path / "straight", folder)


def test_a_loss_that_underfits_gives_a_warning(tmp_path):
    inputs, labels = torch.randn(400, 8), torch.randint(100, (400,))
    labels[:100] = torch.arange(100)
    with warned("mae", kind=Underfitting):
        fit("mlp", (inputs, labels), loss="mae", folder=tmp_path / "mae", **{**QUICK, "epochs": 1})
    with warnings.catch_warnings():
        warnings.simplefilter("error", Underfitting)
        fit("mlp", (inputs, labels), loss="scaled(mae, 2)", folder=tmp_path / "scaled", **{**QUICK, "epochs": 1})


def test_a_scheduled_hyper_parameter_changes_during_training(tmp_path):
    for name, loss in (("moving", "scheduled(imae, 'T', 0.5, 8)"), ("fixed", "imae(T=0.5)")):
        fit("mlp", clusters(), loss=loss, folder=tmp_path / name, **QUICK)
    margins_file = "record/clean/margins-{:05d}.npy".format
    margins = {(name, epoch): np.load(tmp_path / name / margins_file(epoch)) for name in ("moving", "fixed") for epoch in (1, 2)}
    assert (margins["moving", 1] == margins["fixed", 1]).all()  # both start at T = 0.5
    assert (margins["moving", 2] != margins["fixed", 2]).any()
    run = fit("mlp", clusters(), loss="scheduled(imae, 'T', 0.5, 8)", folder=tmp_path / "still", **{**QUICK, "optimiser": "sgd(lr=0)"})
    start = torch.from_numpy(np.load(tmp_path / "still" / margins_file(1))).double()
    expected = [float(noisewise.get(f"imae(T={T})").emphasis(start).mean()) for T in (0.5, 4.25, 8)]
    assert [line["mean_emphasis"] for line in run.metrics] == pytest.approx(expected, rel=2e-3)


INVALID = {
    "loss": ({"loss": "imea"}, ["imea", "imae"]),
    "noise": ({"noise": "symetric(0.4)"}, ["symetric", "symmetric"]),
    "optimiser": ({"optimiser": "sgdd"}, ["sgdd", "sgd"]),
    "schedule": ({"schedule": "cosin"}, ["cosin", "cosine"]),
    "augment": ({"augment": "crops"}, ["crops", "crop"]),
    "augment without images": ({"augment": "flip"}, ["augment", "flip"]),
    "unknown setting": ({"batchsize": 3}, ["batchsize", "batch_size"]),
    "epochs": ({"epochs": 0}, ["epochs", 0]),
    "epochs and steps": ({"steps": 3}, ["epochs=3", "steps=3"]),
    "neither epochs nor steps": ({"epochs": None}, ["epochs", "steps"]),
    "batch_size": ({"batch_size": 2.5}, ["batch_size", 2.5]),
    "accumulate": ({"accumulate": 65}, ["accumulate", 64, 65]),
    "accumulate with peer": ({"accumulate": 2, "loss": "peer(ce)"}, ["accumulate", "peer(ce, alpha=1.0)"]),
    "label smoothing with batch normalisation": ({"loss": "imae(T=8, normalise='batch', label_smoothing=0.1)"}, ["label smoothing"]),
    "label smoothing with peer": ({"loss": "peer(ce, label_smoothing=0.1)"}, ["class indices"]),
    "validation": ({"validation": 0.9999}, ["validation"]),
    "reduction": ({"loss": "ce(reduction='sum')"}, ["ce(reduction='sum')"]),
    "weight_decay": ({"weight_decay": -1}, ["weight_decay", -1]),
    "patience without validation": ({"patience": 3}, ["patience", "validation"]),
    "precision": ({"precision": "fp8"}, ["precision", "fp8", "bfloat16"]),
    "device": ({"device": "gpu"}, ["device", "gpu"]),
}


@pytest.mark.parametrize("what", INVALID)
def test_every_setting_is_checked_before_anything_is_written(tmp_path, what):
    settings, mentions = INVALID[what]
    with refused(*mentions):
        fit("mlp", clusters(), folder=tmp_path / "run", **{**QUICK, **settings})
    assert not (tmp_path / "run").exists()


def test_fit_takes_a_dataset_object(tmp_path):
    small = load("digits").take(torch.arange(200))
    run = fit("mlp", small, folder=tmp_path / "run", **{**QUICK, "epochs": 1})
    assert run.settings.data == "digits" and isinstance(small, Dataset)


def test_the_default_folder_has_a_name_without_special_characters(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    run = fit("mlp", clusters(), loss="0.3*nce + 0.7*mae", noise="symmetric(0.2)", **QUICK)
    assert re.fullmatch(r"arrays-mlp-0\.3_nce_0\.7_mae-symmetric-seed0-[0-9a-f]{8}", run.path.name)


def test_metrics_contain_the_learning_rate_of_the_last_step_of_each_epoch(tmp_path):
    run = fit("mlp", clusters(), schedule="multistep((8, 15), factor=0.5)", folder=tmp_path / "run", **{**QUICK, "epochs": 4})
    assert [line["step"] for line in run.metrics] == [5, 10, 15, 20]
    assert [line["lr"] for line in run.metrics] == [0.1, 0.05, 0.05, 0.025]


@pytest.mark.parametrize("model", [nn.Linear, None, print], ids=["a class", "None", "a function"])
def test_a_model_must_be_a_spec_or_a_module(model):
    with refused("model", "fit"):
        fit(model, clusters(), **QUICK)


def test_loggers_must_be_a_list(tmp_path):
    with refused("loggers", "tensorboard"):
        fit("mlp", clusters(), loggers="tensorboard", folder=tmp_path / "run", **QUICK)
    assert not (tmp_path / "run").exists()


def test_examples_with_replaced_inputs_count_as_wrong(tmp_path):
    noise = "symmetric(0.2, flips='exact') + open_set(0.3, flips='exact')"
    data = read(clusters(200))
    corruption = data.corruption(noise)
    assert torch.equal(data.corrupted(corruption).wrong, corruption.mask)
    assert f"{100 * corruption.rate:.2f} % wrong" in repr(data.corrupted(corruption))
    run = fit("mlp", data, noise=noise, folder=tmp_path / "run", **QUICK)
    assert torch.equal(torch.from_numpy(run.dynamics.record.wrong), corruption.mask)
    summary = run.dynamics.summary()
    assert summary["noise_rate"] == pytest.approx(corruption.rate) and summary["noisy_subset"] is not None and summary["snr"] is not None
    facts = gather([run.path], title="t", data=data)["tasks"][0]["doubt"]
    replaced = {f"example {position}" for position in corruption.replaced.nonzero()[:, 0].tolist()}
    no_class = {example["id"] for example in facts["examples"] if example["true"] == "no class"}
    assert no_class == replaced & {example["id"] for example in facts["examples"]} and no_class
    (matrix,) = (matrix for matrix in facts["matrices"] if matrix["title"] == "True")
    assert np.sum(matrix["counts"]) == len(data) - int(corruption.replaced.sum())


def write_images(folder, number):
    """A folder of dark images in the class a, and of brighter ones in the class b."""
    for kind, brightness in (("a", 20), ("b", 60)):
        (folder / kind).mkdir(parents=True)
        for position in range(number):
            Image.new("RGB", (8, 8), (brightness + position, brightness, 3)).save(folder / kind / f"{position}.png")
    return folder


def test_images_on_disk_are_normalised_like_images_in_memory(tmp_path):
    images = write_images(tmp_path / "data", 4)
    sets = {"memory": read(images), "disk": replace(read(images, memory=0), workers=0)}
    scales = [fit("linear", data, folder=tmp_path / name, **QUICK).provenance["normalise"] for name, data in sets.items()]
    assert scales[0] == scales[1] == repr(augmentations["normalise"].of(read(images).inputs))


def test_a_resumed_run_on_images_on_disk_keeps_its_normalisation(tmp_path):
    stream = replace(read(write_images(tmp_path / "data", 1), memory=0), workers=0)
    settings = {**QUICK, "epochs": 2}
    for name in ("changed", "unchanged"):
        interrupt_after(1, "linear", stream, folder=tmp_path / name, **settings)
    path = tmp_path / "changed/provenance.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "normalise": "normalise((0.4, 0.4, 0.4), (0.2, 0.2, 0.2))"}))
    runs = [fit("linear", stream, folder=tmp_path / name, **settings) for name in ("changed", "unchanged")]
    assert runs[0].metrics[-1]["train_loss"] != runs[1].metrics[-1]["train_loss"]
