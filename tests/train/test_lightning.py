"""The callback for Lightning: what it records, compared with a plain loop, with accumulation, in two processes, and after a crash."""

from __future__ import annotations

import os
import runpy
import sys
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from lightning.pytorch import LightningModule, Trainer
from lightning.pytorch.callbacks import ModelCheckpoint
from lightning.pytorch.loggers import CSVLogger
from torch import Tensor, nn
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

import noisewise
from noisewise.integrations import lightning
from noisewise.integrations.lightning import RecorderCallback, indexed
from noisewise.train import Run
from refused import refused
from two_processes import in_two_processes

pytestmark = [
    pytest.mark.filterwarnings("ignore:.*does not have many workers"),
    pytest.mark.filterwarnings("ignore:.*LeafSpec.*:FutureWarning"),
    pytest.mark.filterwarnings("ignore:.*LeafSpec.*:DeprecationWarning"),
    pytest.mark.filterwarnings("ignore:.*weights_only.*"),
    pytest.mark.filterwarnings("ignore:Checkpoint directory .* exists"),
    pytest.mark.filterwarnings("ignore:.*dirpath has changed.*"),
]

NUMBER, CLASSES, LOSS = 192, 3, "gce(q=0.7)"


def clusters() -> tuple[Tensor, Tensor, Tensor]:
    """Inputs, given labels of which a fifth is wrong, and true labels."""
    generator = torch.Generator().manual_seed(0)
    true = torch.randint(CLASSES, (NUMBER,), generator=generator)
    inputs = 4 * torch.eye(CLASSES, 6)[true] + torch.randn(NUMBER, 6, generator=generator)
    return inputs, torch.where(torch.arange(NUMBER) % 5 == 0, (true + 1) % CLASSES, true), true


class Module(LightningModule):
    """What a user writes, with `scores` returned."""

    def __init__(self, fails_in: int | None = None) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.net, self.loss, self.fails_in = nn.Linear(6, CLASSES), noisewise.get(LOSS), fails_in

    def training_step(self, batch: Any, batch_idx: int) -> Any:
        inputs, labels, _ = batch
        if self.current_epoch == self.fails_in and batch_idx == 2:
            raise RuntimeError("the power is out")
        scores = self.net(inputs)
        return {"loss": self.loss(scores, labels), "scores": scores}

    def validation_step(self, batch: Any, batch_idx: int) -> None:
        inputs, labels = batch
        self.log("validation_accuracy", (self.net(inputs).argmax(1) == labels).float().mean())

    def configure_optimizers(self) -> Any:
        optimiser = torch.optim.SGD(self.parameters(), lr=0.3)
        return [optimiser], [torch.optim.lr_scheduler.ExponentialLR(optimiser, 0.8)]


def fit(folder: Path, *, epochs: int = 3, batch: int = 32, module: LightningModule | None = None, **options: Any) -> RecorderCallback:
    """Train a module on examples in order, and record it."""
    inputs, given, true = clusters()
    callback = RecorderCallback(folder, given, loss=LOSS, true_labels=true, **options.pop("recorder", {}))
    resumed, callbacks, sampler = (
        options.pop(name, default) for name, default in (("ckpt_path", None), ("callbacks", []), ("sampler", None))
    )
    loaders = DataLoader(indexed(TensorDataset(inputs, given)), batch, sampler=sampler), DataLoader(TensorDataset(inputs, true), 64)
    quiet = {"enable_progress_bar": False, "enable_model_summary": False, "enable_checkpointing": bool(callbacks), "logger": False}
    trainer = Trainer(max_epochs=epochs, accelerator="cpu", callbacks=[callback, *callbacks], **quiet | options)
    trainer.fit(module or Module(), *loaders, ckpt_path=resumed)
    return callback


def by_hand(folder: Path, *, epochs: int = 3, batch: int = 32) -> Run:
    """The same training without Lightning."""
    inputs, given, true = clusters()
    torch.manual_seed(0)
    net, loss = nn.Linear(6, CLASSES), noisewise.get(LOSS)
    with noisewise.Recorder(folder, given, loss=loss, true_labels=true) as recorder:
        for epoch in range(epochs):
            for index in torch.arange(NUMBER).split(batch):
                scores = net(inputs[index])
                net.zero_grad()
                loss(scores, given[index]).backward()
                with torch.no_grad():
                    for parameter in net.parameters():
                        parameter -= 0.3 * 0.8**epoch * parameter.grad
                recorder.log(index, scores, lr=0.3 * 0.8**epoch)
            recorder.end_epoch(validation_accuracy=float((net(inputs).argmax(1) == true).float().mean()))
        return recorder.finish(net)


def assert_same(run: Run, other: Run) -> None:
    """Both runs recorded the same margins, predictions and emphasis."""
    for epoch, margins, predictions in other.dynamics.record.stream():
        np.testing.assert_allclose(run.dynamics.record.margins(epoch), margins, atol=4e-3, rtol=2e-3)  # half precision
        np.testing.assert_array_equal(run.dynamics.record.predictions(epoch), predictions)
    assert len(run.metrics) == len(other.metrics)
    for line, expected in zip(run.metrics, other.metrics, strict=True):
        for name in ("train_loss", "mean_emphasis", "validation_accuracy"):
            assert line[name] == pytest.approx(expected[name], rel=1e-4)
        for group in ("clean", "noisy"):
            assert line["emphasis"][group] == pytest.approx(expected["emphasis"][group], rel=1e-4)


def test_it_records_what_a_plain_loop_records_and_logs_to_lightning(tmp_path: Path) -> None:
    logger = CSVLogger(tmp_path / "log")
    options = {"logger": logger, "log_every_n_steps": 1, "recorder": {"report": tmp_path / "report.html"}}
    run, expected = fit(tmp_path / "run", epochs=10, **options).run, by_hand(tmp_path / "expected", epochs=10)
    assert_same(run, expected)
    table = np.genfromtxt(Path(logger.log_dir) / "metrics.csv", delimiter=",", names=True, deletechars="")
    for name, curve in {"noisewise/mean_emphasis": expected.dynamics.mean_emphasis, "noisewise/snr": expected.dynamics.snr}.items():
        logged = table[name][~np.isnan(table[name])]
        np.testing.assert_allclose(logged, list(curve.values()), rtol=1e-4)
    assert "<html" in (tmp_path / "report.html").read_text(encoding="utf-8")
    wrong = run.dynamics.record.wrong
    issues = run.find_label_issues().is_issue
    assert wrong is not None and issues[wrong].mean() > 0.8 and wrong[issues].mean() > 0.8
    again = run.model(into=Module())
    assert isinstance(again, Module) and torch.allclose(again.net.weight, expected.model(into=nn.Linear(6, CLASSES)).weight, atol=1e-5)


def test_accumulated_batches_record_the_same_as_one_large_batch(tmp_path: Path) -> None:
    accumulated = fit(tmp_path / "accumulated", batch=16, accumulate_grad_batches=4).run
    assert_same(accumulated, by_hand(tmp_path / "expected", batch=64))
    assert accumulated.metrics[-1]["step"] == 4 * by_hand(tmp_path / "again", batch=64).metrics[-1]["step"]


def _process(folder: str) -> None:
    rank = os.environ["RANK"]
    # As torchrun sets them. The store of the helper exists already, and Lightning joins it.
    os.environ |= {"LOCAL_RANK": rank, "LOCAL_WORLD_SIZE": "2", "GROUP_RANK": "0", "TORCHELASTIC_RUN_ID": "test"}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        sampler = DistributedSampler(range(NUMBER), 2, int(rank), shuffle=False)  # Lightning's would shuffle
        callback = fit(Path(folder), batch=16, sampler=sampler, devices=2, strategy="ddp", num_sanity_val_steps=0)
    assert len(callback.run.metrics) == 3


def test_two_processes_record_the_same_as_one(tmp_path: Path) -> None:
    in_two_processes(_process, str(tmp_path / "run"))
    run, expected = Run(tmp_path / "run"), by_hand(tmp_path / "expected", batch=32)
    for epoch, margins, predictions in expected.dynamics.record.stream():
        np.testing.assert_allclose(run.dynamics.record.margins(epoch), margins, atol=4e-3, rtol=2e-3)
        np.testing.assert_array_equal(run.dynamics.record.predictions(epoch), predictions)
    for line, wanted in zip(run.metrics, expected.metrics, strict=True):
        assert line["mean_emphasis"] == pytest.approx(wanted["mean_emphasis"], rel=1e-4)


def test_after_a_crash_a_fit_from_the_last_checkpoint_continues_the_record(tmp_path: Path) -> None:
    saved = ModelCheckpoint(tmp_path, save_last=True)
    with pytest.raises(RuntimeError):
        fit(tmp_path / "run", epochs=4, module=Module(fails_in=2), callbacks=[saved])
    assert Run(tmp_path / "run").state == "failed" and len(Run(tmp_path / "run").metrics) == 2
    again = ModelCheckpoint(tmp_path, save_last=True)
    run = fit(tmp_path / "run", epochs=4, callbacks=[again], ckpt_path=tmp_path / "last.ckpt").run
    assert run.state == "finished"
    assert_same(run, by_hand(tmp_path / "expected", epochs=4))


def test_a_trial_run_records_nothing_and_a_used_folder_is_refused(tmp_path: Path) -> None:
    fit(tmp_path / "run", fast_dev_run=True)
    assert not (tmp_path / "run").exists()
    fit(tmp_path / "run", epochs=1)
    with refused(tmp_path / "run"):
        fit(tmp_path / "run", epochs=1)


class Bare(Module):
    """A module that returns the loss alone."""

    def training_step(self, batch: Any, batch_idx: int) -> Any:
        return super().training_step(batch, batch_idx)["loss"]


class WithoutIndex(Module):
    """A module whose batches have no numbers: their last part is not one for each example."""

    def training_step(self, batch: Any, batch_idx: int) -> Any:
        scores = self.net(batch[0])
        batch[-1] = batch[-1].double()
        return {"loss": self.loss(scores, batch[1]), "scores": scores}


@pytest.mark.parametrize(("module", "mention"), [(Bare, "scores"), (WithoutIndex, "numbers of its examples")])
def test_what_is_missing_is_named(module: type[Module], mention: str, tmp_path: Path) -> None:
    with refused(mention, "indexed(", "'scores'"):
        fit(tmp_path / "run", module=module())


def test_examples_of_every_form_get_their_number() -> None:
    for data, expected in (([(1.0, 2)], (1.0, 2, 0)), ([{"text": "a"}], {"text": "a", "index": 0}), ([5], (5, 0))):
        assert indexed(data)[0] == expected and len(indexed(data)) == 1


def test_without_lightning_the_command_to_install_it_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("lightning.pytorch", "pytorch_lightning"):
        monkeypatch.setitem(sys.modules, name, None)
    with refused("pip install 'noisewise[lightning]'"):
        runpy.run_path(lightning.__file__)
