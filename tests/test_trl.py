"""Losses in the SFTTrainer of TRL, compared with TRL's own and with losses of scores, and audits by token."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from datasets import Dataset
from trl import SFTConfig, SFTTrainer

import noisewise
from noisewise import losses
from noisewise.audit import audit_tokens
from noisewise.integrations.huggingface import hf_loss, record
from noisewise.integrations.trl import loss_from_log_probs, use_loss
from noisewise.margin import margin_of_log_prob
from refused import refused
from small_transformers import llama, quiet, tokenizer, weights

TOKENS = tokenizer([f"w{number}" for number in range(27)])


def written(number: int = 16) -> Dataset:
    """Sequences of different lengths; the first two tokens are a prompt, which has no labels."""
    generator = torch.Generator().manual_seed(0)
    lengths = torch.randint(4, 9, (number,), generator=generator).tolist()
    rows = [torch.randint(3, 30, (length,), generator=generator).tolist() for length in lengths]
    return Dataset.from_dict({"input_ids": rows, "labels": [[-100, -100, *row[2:]] for row in rows]})


def trainer(folder: Path, data: Dataset, *, loss_func: Any = None, width: int = 16, **options: Any) -> SFTTrainer:
    settings = {
        "per_device_train_batch_size": 4,
        "num_train_epochs": 2,
        "learning_rate": 0.5,
        "optim": "sgd",
        "max_grad_norm": 0.0,
        **options,
    }
    args = SFTConfig(**quiet(folder, bf16=False, activation_checkpointing=False, **settings))
    return SFTTrainer(llama(30, width), args, train_dataset=data, processing_class=TOKENS, compute_loss_func=loss_func)


def trained(folder: Path, loss: str | None = None, **options: Any) -> torch.Tensor:
    training = trainer(folder, written(), **options)
    if loss is not None:
        use_loss(training, loss)
    training.train()
    return weights(training.model)


@pytest.mark.parametrize("spec", ["ce", "dft", "power(q=2.5)", "gce(q=0.7)", "imae(T=8)", "sce(alpha=0.1, beta=1)", "shifted(mae, 2.0)"])
def test_losses_and_gradients_from_log_probabilities_are_those_from_scores(spec: str) -> None:
    generator = torch.Generator().manual_seed(0)
    scores = (4 * torch.randn(50, 7, dtype=torch.float64, generator=generator)).requires_grad_()
    targets = torch.arange(50) % 7
    expected = losses.get(spec, reduction="none")(scores, targets)
    (slope,) = torch.autograd.grad(expected.sum(), scores)
    log_probs = scores.log_softmax(1)[torch.arange(50), targets]
    values = loss_from_log_probs(spec, log_probs, 7)
    torch.testing.assert_close(values, expected, rtol=1e-9, atol=1e-9)
    torch.testing.assert_close(torch.autograd.grad(values.sum(), scores)[0], slope, rtol=1e-9, atol=1e-9)


def test_margins_of_log_probabilities_are_exact_at_both_ends() -> None:
    margins = torch.tensor([-300.0, -20.0, -1.0, 0.0, 1.0, 8.0], dtype=torch.float64)
    torch.testing.assert_close(margin_of_log_prob(torch.nn.functional.logsigmoid(margins)), margins, rtol=1e-12, atol=1e-12)
    narrow = margin_of_log_prob(torch.tensor([0.0, -1e-30, -torch.inf]))
    assert narrow.isfinite().all() and narrow[0] > 17 and narrow[2] < -1e38
    for spec in ("ce", "gce(q=0.7)", "dft"):
        log_probs = torch.tensor([0.0, -200.0], requires_grad=True)
        loss_from_log_probs(spec, log_probs, 5).sum().backward()
        assert log_probs.grad[0] == pytest.approx(-1, abs=1e-5) and log_probs.grad[1] == pytest.approx(-1.0 if spec == "ce" else 0.0)


@pytest.mark.parametrize(("loss", "kind"), [("ce", "nll"), ("dft", "dft")])
def test_losses_that_trl_has_train_alike(loss: str, kind: str, tmp_path: Path) -> None:
    expected = trained(tmp_path, loss_type=kind)
    split = {"per_device_train_batch_size": 2, "gradient_accumulation_steps": 2}
    torch.testing.assert_close(trained(tmp_path, loss, **split), expected, rtol=0, atol=2e-6)
    assert not torch.equal(expected, weights(llama(30)))


@pytest.mark.filterwarnings("ignore:`compute_loss_func` is deprecated:FutureWarning")
def test_another_loss_trains_like_that_of_all_scores(tmp_path: Path) -> None:
    torch.testing.assert_close(trained(tmp_path, "deft"), trained(tmp_path, loss_func=hf_loss("deft")), rtol=0, atol=2e-6)


def test_an_audit_by_token_finds_wrong_targets_and_the_sequences_that_have_them(tmp_path: Path) -> None:
    draw = np.random.default_rng(0)
    rows = 3 + (draw.integers(27, size=(120, 1)) + 2 * np.arange(9)) % 27
    wrong = draw.random(rows.shape) < 0.3
    wrong[:, :2], wrong[::2] = False, False  # every second sequence is right
    labels = np.where(wrong, 3 + (rows - 3 + draw.integers(5, 22, size=rows.shape)) % 27, rows)
    labels[:, :2] = -100
    data = Dataset.from_dict({"input_ids": rows.tolist(), "labels": labels.tolist(), "name": [f"line {place}" for place in range(120)]})
    training = trainer(
        tmp_path, data, width=32, optim="adamw_torch", learning_rate=1e-2, per_device_train_batch_size=20, num_train_epochs=10
    )
    use_loss(training, "gce(q=0.5)")
    recorded = record(training, tmp_path / "run", ids="name")
    training.train()
    issues = audit_tokens(recorded.run, [[TOKENS.decode([token]) for token in row] for row in rows.tolist()])
    flagged, truth = issues.is_label_issue, wrong[issues.sentence, issues.position]
    assert truth[flagged].mean() > 0.8 and flagged[truth].mean() > 0.8
    suggested = np.array([rows[pair] for pair in zip(issues.sentence, issues.position, strict=True)])
    assert (issues.predicted_label == suggested)[flagged & truth].mean() > 0.8
    assert wrong.any(1)[issues.sentence_order[:20]].mean() > 0.9
    assert issues.ids[3] == "line 3" and issues.classes[3] == "w0" and set(issues.by_token()[0]) >= {"token", "doubtful"}
    model, record_of_run = training.model.eval(), recorded.run.dynamics.record
    final = [model(torch.tensor([row])).logits[0, 1:-1].detach() for row in rows.tolist()]
    now = noisewise.margin(torch.cat(final), torch.from_numpy(labels[:, 2:].reshape(-1)))
    assert np.corrcoef(record_of_run.margins(10).astype(float), now)[0, 1] > 0.95  # the model moved a little since


def test_what_cannot_be_trained_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    training = trainer(tmp_path, written())
    with refused("imae"):
        use_loss(training, "imae(T=8, normalise='batch')")
    with refused("deft"):
        loss_from_log_probs("deft", torch.zeros(3), 5)
    with refused("hf_loss"):
        use_loss(object(), "ce")
    with refused("dft"):
        use_loss(trainer(tmp_path, written(), loss_type="dft"), "ce")
    use_loss(training, "deft")
    record(training, tmp_path / "run")
    with refused("deft", "ce"):
        training.train()
    monkeypatch.setitem(sys.modules, "trl.trainer.sft_trainer", None)
    with refused("pip install -U 'noisewise[trl]'"):
        use_loss(training, "ce")
    with refused("letter-7:12"):
        audit_tokens(recorded_texts(tmp_path))


def recorded_texts(folder: Path) -> noisewise.Run:
    """A run whose examples are no tokens."""
    recorder = noisewise.Recorder(folder / "texts", [0, 1, 0, 1], loss="ce")
    recorder.log(range(4), torch.eye(2)[[0, 1, 0, 1]])
    return recorder.finish()
