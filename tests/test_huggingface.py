"""The Trainer of Hugging Face: losses in it, compared with its own, and records of its training examples."""

from __future__ import annotations

import copy
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from datasets import Dataset
from torch import nn
from transformers import DataCollatorForTokenClassification, Trainer, TrainingArguments, ViTConfig, ViTForImageClassification

import noisewise
from noisewise import losses
from noisewise.audit import audit_tokens
from noisewise.integrations.huggingface import hf_loss, record
from refused import refused
from small_transformers import bert, llama, quiet, tokenizer, weights
from two_processes import in_two_processes

WORDS = [f"w{number}" for number in range(60)]
TOKENS = tokenizer(WORDS)


def texts(number: int, seed: int) -> tuple[Dataset, np.ndarray]:
    """Texts of four topics with a fifth of the labels wrong, and their true labels."""
    draw = np.random.default_rng(seed)
    true = draw.integers(4, size=number)
    rows = [
        " ".join(WORDS[12 * topic + draw.integers(12) if draw.random() < 0.6 else 48 + draw.integers(12)] for _ in range(8))
        for topic in true
    ]
    noisy = noisewise.corrupt(torch.from_numpy(true), "symmetric(0.2)", num_classes=4, seed=seed).labels.tolist()
    columns = {"text": rows, "label": noisy, "name": [f"text {place}" for place in range(number)]}
    return Dataset.from_dict({**columns, **TOKENS(rows)}), true


def tagged(number: int = 18) -> Dataset:
    """Sequences of different lengths with a class per token, some of which have none."""
    generator = torch.Generator().manual_seed(0)
    rows = [torch.randint(3, 63, (int(length),), generator=generator) for length in torch.randint(3, 8, (number,), generator=generator)]
    labels = [torch.where(row % 7 == 0, -100, row % 3).tolist() for row in rows]
    columns = {"input_ids": [row.tolist() for row in rows], "attention_mask": [[1] * len(row) for row in rows]}
    return Dataset.from_dict({**columns, "labels": labels, "name": [f"s{place}" for place in range(number)]})


def written(number: int = 18) -> Dataset:
    """Sequences for a language model, whose first tokens have no label."""
    data = tagged(number)
    return data.map(lambda row: {"labels": [-100, -100, *row["input_ids"][2:]]})


def trainer(model: Any, data: Any, folder: Path, loss: Any = None, collator: Any = None, **options: Any) -> Trainer:
    args = TrainingArguments(**quiet(folder, **{"per_device_train_batch_size": 6, "num_train_epochs": 2, "learning_rate": 1e-2, **options}))
    return Trainer(model, args, train_dataset=data, processing_class=TOKENS, data_collator=collator, compute_loss_func=loss)


def task(kind: str) -> tuple[Any, Dataset, Any]:
    """A model, its training set and its collator."""
    if kind == "texts":
        return bert(4, 63), texts(18, 0)[0], None
    model = bert(3, 63, tokens=True) if kind == "tokens" else llama(63)
    return model, tagged() if kind == "tokens" else written(), DataCollatorForTokenClassification(TOKENS)


@pytest.mark.parametrize("kind", ["tokens", "language"])
def test_cross_entropy_trains_like_the_loss_of_the_model(kind: str, tmp_path: Path) -> None:
    model, data, collator = task(kind)
    other = copy.deepcopy(model)
    # Under accumulation, the loss of a model for tokens is not divided by the number of labels: it gets the batch in one part.
    parts = 3 if kind == "language" else 1
    own = {"gradient_accumulation_steps": parts, "per_device_train_batch_size": 6 // parts}
    trainer(model, data, tmp_path, None, collator, optim="sgd", **own).train()
    split = {"gradient_accumulation_steps": 3, "per_device_train_batch_size": 2}
    trainer(other, data, tmp_path, hf_loss("ce"), collator, optim="sgd", **split).train()
    torch.testing.assert_close(weights(other), weights(model), rtol=0, atol=1e-5)


class Table(nn.Module):
    """Scores of each example that are parameters of their own: no sum of a gradient has more than one term."""

    def __init__(self, examples: int, classes: int) -> None:
        super().__init__()
        self.scores = nn.Embedding(examples, classes)

    def forward(self, input_ids: torch.Tensor, attention_mask: torch.Tensor, labels: None = None) -> dict[str, torch.Tensor]:
        return {"logits": self.scores(input_ids)}


@pytest.mark.parametrize("loss", ["gce(q=0.7)", "imae(T=8)"])
def test_four_accumulated_batches_equal_one_large_batch_to_the_last_bit(loss: str, tmp_path: Path) -> None:
    columns = {"input_ids": list(range(48)), "attention_mask": [1] * 48, "labels": [place % 7 for place in range(48)]}
    data, ends = Dataset.from_dict(columns), []
    for parts in (1, 4):
        torch.manual_seed(0)
        model = Table(48, 7)
        started = weights(model).clone()
        sizes = {"per_device_train_batch_size": 16 // parts, "gradient_accumulation_steps": parts}
        trainer(model, data, tmp_path, hf_loss(loss), max_grad_norm=0.0, **sizes).train()
        ends.append(weights(model))
    assert torch.equal(*ends) and not torch.equal(started, ends[0])


def test_accumulated_parts_of_a_language_model_differ_by_the_rounding_of_its_sums_alone(tmp_path: Path) -> None:
    ends = []
    for parts in (1, 4):
        model = llama(63).double()
        sizes = {"per_device_train_batch_size": 8 // parts, "gradient_accumulation_steps": parts, "num_train_epochs": 1}
        collator = DataCollatorForTokenClassification(TOKENS)
        trainer(model, written(16), tmp_path, hf_loss("gce(q=0.7)"), collator, optim="sgd", **sizes).train()
        ends.append(weights(model))
    torch.testing.assert_close(*ends, rtol=0, atol=1e-15)
    assert torch.equal(*(end.float() for end in ends))


def test_weights_of_classes_and_ignored_labels_count_as_in_torch() -> None:
    scores, labels = torch.randn(2, 3, 5, generator=torch.Generator().manual_seed(0)), torch.tensor([[1, -100, 2], [0, 4, -100]])
    weight = torch.tensor([1.0, 2.0, 0.5, 1.0, 3.0])
    expected = nn.functional.cross_entropy(scores.flatten(0, 1), labels.flatten(), weight, reduction="sum")
    value = hf_loss(losses.get("ce", weight=weight))({"logits": scores}, labels, num_items_in_batch=torch.tensor(10))
    assert float(value) == pytest.approx(float(expected) / 10)
    shifted = hf_loss("ce", shift=True)((scores,), labels)
    assert float(shifted) == pytest.approx(float(nn.functional.cross_entropy(scores[:, :-1].flatten(0, 1), labels[:, 1:].flatten())))


def test_an_audit_of_a_trainer_finds_wrong_labels_of_texts(tmp_path: Path) -> None:
    data, true = texts(500, seed=1)  # the task and its settings were chosen with other seeds
    training = trainer(
        bert(4, 63), data, tmp_path, hf_loss("gce(q=0.7)"), per_device_train_batch_size=25, num_train_epochs=8, learning_rate=5e-3
    )
    recorded = record(training, tmp_path / "run", ids="name")
    training.train()
    issues, wrong = recorded.run.find_label_issues(), np.array(data["label"]) != true
    assert wrong[issues.is_issue].mean() > 0.8 and issues.is_issue[wrong].mean() > 0.8
    assert issues.ids[7] == "text 7" and recorded.run.state == "finished"
    assert recorded.run.settings.loss == "gce(q=0.7)" and recorded.run.metrics[0]["step"] == 20


@pytest.mark.parametrize(("kind", "loss"), [("texts", "nce"), ("texts", "ce"), ("tokens", "gce(q=0.7)"), ("language", "gce(q=0.7)")])
def test_a_record_has_the_margin_of_every_label_under_its_id(kind: str, loss: str, tmp_path: Path) -> None:
    model, data, collator = task(kind)
    training = trainer(model, data, tmp_path, hf_loss(loss), collator, learning_rate=0.0, gradient_accumulation_steps=2, num_train_epochs=1)
    recorded = record(training, tmp_path / "run", ids="name")
    training.train()
    margins, predictions, ids = {}, {}, list[str]()
    for row in data:
        scores = model(torch.tensor([row["input_ids"]])).logits[0].detach()
        if kind == "texts":
            pairs = [(row["name"], scores, row["label"])]
        else:
            moved = scores[:-1] if kind == "language" else scores
            start = len(scores) - len(moved)
            pairs = [(f"{row['name']}:{place}", moved[place - start], label) for place, label in enumerate(row["labels"]) if label >= 0]
        for name, own, label in pairs:
            ids.append(name)
            margins[name], predictions[name] = float(noisewise.margin(own, torch.tensor(label))), int(own.argmax())
    record_of_run = recorded.run.dynamics.record
    assert recorded.run.find_label_issues().ids == ids
    np.testing.assert_allclose(record_of_run.margins(1).astype(float), list(margins.values()), rtol=1e-2, atol=1e-3)
    assert record_of_run.predictions(1).tolist() == list(predictions.values())
    (line,) = recorded.run.metrics
    assert line["step"] == 2
    if kind == "language":
        assert recorded.run.classes[:4] == ("[PAD]", "[UNK]", "[EOS]", "w0")
        issues = audit_tokens(recorded.run)
        assert issues.ids == tuple(data["name"]) and issues.position.min() == 2


def test_images_are_recorded_with_the_accuracy_on_held_out_ones(tmp_path: Path) -> None:
    generator = torch.Generator().manual_seed(0)
    images = [{"pixel_values": torch.randn(1, 8, 8, generator=generator), "labels": place % 3} for place in range(12)]
    sizes = {"hidden_size": 8, "num_hidden_layers": 1, "num_attention_heads": 1, "intermediate_size": 8}
    model = ViTForImageClassification(ViTConfig(image_size=8, patch_size=4, num_channels=1, num_labels=3, **sizes))
    args = TrainingArguments(**quiet(tmp_path, num_train_epochs=2, eval_strategy="epoch"))
    training = Trainer(
        model,
        args,
        train_dataset=images,
        eval_dataset=images[:6],
        compute_metrics=lambda pair: {"accuracy": float((pair[0].argmax(1) == pair[1]).mean())},
    )
    recorded = record(training, tmp_path / "run", true_labels=[0] * 12)
    training.train()
    run = recorded.run
    assert run.dynamics.record.given.tolist() == [place % 3 for place in range(12)] and run.settings.loss == "ce"
    assert run.dynamics.record.wrong.sum() == 8
    assert [line["validation_accuracy"] for line in run.metrics] == [
        log["eval_accuracy"] for log in training.state.log_history if "eval_accuracy" in log
    ]


def test_a_resumed_training_continues_its_record(tmp_path: Path) -> None:
    data, _ = texts(24, seed=0)

    def train(folder: Path, epochs: int, resume: bool = False) -> noisewise.Run:
        options = {"save_strategy": "epoch", "lr_scheduler_type": "constant", "num_train_epochs": epochs}
        training = trainer(bert(4, 63), data, folder, hf_loss("mae"), **options)
        recorded = record(training, folder / "run")
        training.train(resume_from_checkpoint=resume)
        return recorded.run

    train(tmp_path / "stopped", 1)
    runs = train(tmp_path / "stopped", 2, resume=True), train(tmp_path / "whole", 2)
    first, second = ([run.dynamics.record.margins(epoch) for epoch in (1, 2)] for run in runs)
    np.testing.assert_array_equal(first, second)
    assert runs[0].metrics == runs[1].metrics


def _train_in_process(folder: str) -> None:
    model, data, collator = task("language")
    training = trainer(
        model, data, Path(folder), hf_loss("gce(q=0.7)"), collator, per_device_train_batch_size=3, optim="sgd", ddp_backend="gloo"
    )
    record(training, Path(folder) / "run", ids="name")
    training.train()
    if training.is_world_process_zero():
        torch.save(weights(model), Path(folder) / "weights.pt")


def test_two_processes_train_and_record_like_one(tmp_path: Path) -> None:
    model, data, collator = task("language")
    training = trainer(model, data, tmp_path, hf_loss("gce(q=0.7)"), collator, optim="sgd")
    one = record(training, tmp_path / "one", ids="name")
    training.train()
    in_two_processes(_train_in_process, str(tmp_path))
    torch.testing.assert_close(torch.load(tmp_path / "weights.pt"), weights(model), rtol=0, atol=1e-6)
    two = noisewise.Run(tmp_path / "run")
    for epoch in (1, 2):
        np.testing.assert_allclose(two.dynamics.record.margins(epoch), one.run.dynamics.record.margins(epoch), rtol=1e-2, atol=1e-3)
    assert [line["train_loss"] for line in two.metrics] == pytest.approx([line["train_loss"] for line in one.run.metrics], rel=1e-4)


def test_what_cannot_be_trained_or_recorded_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with refused("imae"):
        hf_loss("imae(T=8, normalise='batch')")
    with refused("labels"):
        hf_loss("ce")({"logits": torch.zeros(2, 3)}, None)
    data, _ = texts(12, seed=0)
    with refused("ids", "12"):
        record(trainer(bert(4, 63), data, tmp_path), tmp_path / "run", ids=["a"])
    with refused("length"):
        record(trainer(bert(4, 63), data.to_iterable_dataset(), tmp_path, max_steps=1), tmp_path / "run")
    monkeypatch.setitem(sys.modules, "transformers", None)
    with refused("pip install 'noisewise[hf]'"):
        record(object(), tmp_path / "run")
