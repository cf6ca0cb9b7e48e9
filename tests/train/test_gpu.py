"""Training on a GPU: captured steps equal plain steps, and runs are reproducible, alone or several at a time."""

import pytest
import torch
from small_runs import same_bits
from torch import nn

from noisewise import compare, fit, models
from noisewise.data import Dataset
from noisewise.train import Run, _fit
from noisewise.train._fit import _Training
from noisewise.train._step import GraphedStep, Scoring
from refused import warned

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")

SETTINGS = {"epochs": 2, "batch_size": 128, "device": "cuda", "augment": "crop(4) + flip", "evaluate_every": 1}


def images(number: int = 1000) -> Dataset:
    generator = torch.Generator().manual_seed(0)
    labels = torch.randint(10, (number,), generator=generator)
    pixels = torch.randint(0, 128, (number, 3, 32, 32), generator=generator, dtype=torch.uint8)
    pixels[torch.arange(number), labels % 3, labels] += 100
    return Dataset(pixels, labels, tuple("abcdefghij"), name="images")


def keep_eager(training: _Training) -> None:
    training.captured, training.update = None, training.step


@pytest.mark.parametrize("loss", ["ce", "imae(T=8)", "0.5*imae(T=8, normalise='batch')", "0.3*nce + 0.7*mae"])
def test_a_captured_step_equals_a_plain_step(tmp_path, monkeypatch, loss):
    fit("resnet20", images(), loss=loss, noise="symmetric(0.4)", folder=tmp_path / "graph", **SETTINGS)
    monkeypatch.setattr(_Training, "_capture", keep_eager)
    fit("resnet20", images(), loss=loss, noise="symmetric(0.4)", folder=tmp_path / "plain", **SETTINGS)
    graph, plain = Run(tmp_path / "graph"), Run(tmp_path / "plain")
    for captured, expected in zip(graph.metrics, plain.metrics, strict=True):
        assert abs(captured["train_loss"] - expected["train_loss"]) < 0.02 * abs(expected["train_loss"]) + 0.01
        assert captured["step"] == expected["step"]


def test_a_scheduled_loss_is_captured_once(tmp_path, monkeypatch):
    made = []
    monkeypatch.setattr(_fit, "GraphedStep", lambda step, *rest: made.append(step) or GraphedStep(step, *rest))
    settings = {**SETTINGS, "epochs": 4, "noise": "symmetric(0.4)", "loss": "scheduled(gce, 'q', 0.1, 1.0)"}
    fit("resnet20", images(), folder=tmp_path / "graph", **settings)
    assert len([step for step in made if not isinstance(step, Scoring)]) <= 2, "once before the first epoch, and once in it"
    monkeypatch.setattr(_Training, "_capture", keep_eager)
    fit("resnet20", images(), folder=tmp_path / "plain", **settings)
    for captured, expected in zip(Run(tmp_path / "graph").metrics, Run(tmp_path / "plain").metrics, strict=True):
        assert abs(captured["train_loss"] - expected["train_loss"]) < 0.02 * abs(expected["train_loss"]) + 0.01
        assert captured["mean_emphasis"] == pytest.approx(expected["mean_emphasis"], rel=0.05)


def test_a_captured_evaluation_equals_a_plain_evaluation(tmp_path, monkeypatch):
    fit("resnet20", images(1500), noise="symmetric(0.4)", folder=tmp_path / "graph", **SETTINGS)
    monkeypatch.setattr(_fit, "GraphedStep", lambda step, *rest: step if isinstance(step, Scoring) else GraphedStep(step, *rest))
    fit("resnet20", images(1500), noise="symmetric(0.4)", folder=tmp_path / "plain", **SETTINGS)
    same_bits(tmp_path / "graph", tmp_path / "plain")


def test_the_same_seed_gives_the_same_bits_alone_and_with_other_runs_at_a_time(tmp_path):
    grid = {"loss": ["ce", "gce(q=0.7)"], "noise": ["symmetric(0.4)"], "seed": [0, 1]}
    compare("resnet20", images(), folder=tmp_path / "together", jobs=4, **grid, **SETTINGS)
    compare("resnet20", images(), folder=tmp_path / "apart", jobs=1, **grid, **SETTINGS)
    for folder in sorted((tmp_path / "together").iterdir()):
        same_bits(folder, tmp_path / "apart" / folder.name)


@pytest.mark.filterwarnings("ignore:Synchronization debug mode")
def test_an_epoch_never_waits_for_the_gpu(tmp_path, monkeypatch):
    replayed = []
    original = _Training._epoch

    def watched(self, epoch):
        if epoch == 1:
            return original(self, epoch)  # the graph is captured here
        prepare, feed = self._prepare_epoch, list(self._feed(epoch, self.per_epoch))
        prepare(epoch)
        torch.cuda.set_sync_debug_mode("error")
        try:
            for index, inputs, whole in feed:
                self.update(index, inputs, whole)
                replayed.append(len(index))
        finally:
            torch.cuda.set_sync_debug_mode("default")
        return original(self, epoch)

    monkeypatch.setattr(_Training, "_epoch", watched)
    fit("resnet20", images(), folder=tmp_path / "run", **SETTINGS)
    assert sum(replayed) == 1000


class Counting(nn.Module):
    """A model that counts in Python how often it is trained."""

    def __init__(self):
        super().__init__()
        self.layers, self.times = nn.Sequential(nn.Flatten(), nn.Linear(3 * 32 * 32, 10)), 0

    def forward(self, inputs):
        self.times += self.training
        return self.layers(inputs)


def test_a_custom_module_is_not_captured_so_its_python_code_runs_in_every_step(tmp_path):
    model = Counting()
    run = fit(model, images(), folder=tmp_path / "run", **SETTINGS)
    assert model.times == 1 + run.metrics[-1]["step"], "the dry run, and every step"
    again = Counting()
    with warned("Counting"):
        fit(again, images(), folder=tmp_path / "run", **SETTINGS)
    assert {weights.device.type for weights in again.parameters()} == {"cuda"}, "the device of training"


def test_a_built_in_model_given_as_a_module_is_captured(tmp_path, monkeypatch):
    captured = []
    monkeypatch.setattr(_fit, "GraphedStep", lambda *asked: captured.append(asked) or GraphedStep(*asked))
    torch.manual_seed(0)
    fit(models.get("resnet20", num_classes=10), images(), folder=tmp_path / "run", **SETTINGS)
    assert captured
