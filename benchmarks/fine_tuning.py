"""Fine-tune a small causal language model on wrong targets with TRL: five losses under one budget, and what the audit by token finds.

    OMP_NUM_THREADS=1 python benchmarks/fine_tuning.py [--seeds 3] [--epochs 6] [--sequences 1000] [--jobs 1] [--write]

Everything is made on the spot. The text is the documentation of Python's standard library, as in examples/language_model.py. A Llama
model of two layers first learns one half of it from clean targets. Then `SFTTrainer` fine-tunes it on sequences of the other half, once
with each loss: there 40 % of the target words are wrong. It is tested on clean text that it has not seen.

Every fine-tuning is recorded, and targets are ranked by the audit of the record and by plain loss: that of the model before, and that of
the tuned model. The defaults were not tuned; another number of epochs and sequences shows what happens when targets are seen more often.
``--write`` puts the table into benchmarks/RESULTS.md.
"""

from __future__ import annotations

import argparse
import importlib.util
import multiprocessing
import platform
import sys
import tempfile
from collections import Counter
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import torch
from datasets import Dataset, disable_progress_bars
from sklearn.metrics import average_precision_score
from tokenizers import Tokenizer, models
from torch import Tensor
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast
from transformers import logging as transformers_logging
from trl import SFTConfig, SFTTrainer

from noisewise import Run, corrupt
from noisewise.integrations.huggingface import record
from noisewise.integrations.trl import use_loss
from results import write_section

LOSSES = ("ce", "dft", "deft", "gce(q=0.7)", "imae(T=8)")
WORDS, LENGTH, NOISE = 2000, 32, "symmetric(0.4)"


def example() -> ModuleType:
    """examples/language_model.py, which reads the text."""
    path = Path(__file__).parents[1] / "examples" / "language_model.py"
    spec = importlib.util.spec_from_file_location("language_model", path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["language_model"] = module  # dataclasses look their module up
    spec.loader.exec_module(module)
    return module


@dataclass(frozen=True)
class Text:
    """Sequences of words, the target at each position, and which targets are wrong."""

    tokens: Tensor
    target: Tensor
    wrong: Tensor

    def dataset(self) -> Dataset:
        """As TRL takes it: the label at a position is that of the word there, and the first word has none."""
        first = torch.full((len(self.tokens), 1), -100)
        return Dataset.from_dict({"input_ids": self.tokens.tolist(), "labels": torch.cat([first, self.target[:, :-1]], 1).tolist()})


def texts(seed: int, sequences: int) -> tuple[Text, Text, Text, PreTrainedTokenizerFast]:
    """Clean text, noisy text, unseen clean text, and the tokenizer."""
    language = example()
    halves = [language.text_of(language.MODULES[::2]), language.text_of(language.MODULES[1::2])]
    common = [word for word, _ in Counter(halves[0] + halves[1]).most_common(WORDS - 1)]
    index = {"[UNK]": 0} | {word: number for number, word in enumerate(common, start=1)}
    streams = [torch.tensor([index.get(word, 0) for word in half]) for half in halves]

    def cut(stream: Tensor, noise: str | None) -> Text:
        number = (len(stream) - 1) // LENGTH
        tokens, target = stream[: number * LENGTH].view(number, LENGTH), stream[1 : number * LENGTH + 1].view(number, LENGTH)
        order = torch.randperm(number, generator=torch.Generator().manual_seed(seed))[:sequences] if noise else slice(None)
        tokens, target = tokens[order], target[order]
        if noise is None:
            return Text(tokens, target, torch.zeros_like(target, dtype=torch.bool))
        corruption = corrupt(target.flatten(), noise, num_classes=WORDS, seed=seed)
        return Text(tokens, corruption.labels.view_as(target), corruption.mask.view_as(target))

    part = len(streams[1]) * 9 // 10
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=Tokenizer(models.WordLevel(index, unk_token="[UNK]")), unk_token="[UNK]", pad_token="[UNK]", eos_token="[UNK]"
    )
    return cut(streams[0], None), cut(streams[1][:part], NOISE), cut(streams[1][part:], None), tokenizer


def train(model: Any, text: Text, tokenizer: Any, folder: Path, loss: str | None, epochs: float, rate: float, seed: int) -> Run | None:
    """Train by SFTTrainer; record it if a loss is given."""
    args = SFTConfig(
        output_dir=str(folder / "output"),
        num_train_epochs=epochs,
        per_device_train_batch_size=32,
        learning_rate=rate,
        lr_scheduler_type="linear",
        seed=seed,
        use_cpu=True,
        bf16=False,
        activation_checkpointing=False,
        report_to="none",
        save_strategy="no",
        logging_strategy="no",
        disable_tqdm=True,
        dataloader_pin_memory=False,
    )
    trainer = SFTTrainer(model, args, train_dataset=text.dataset(), processing_class=tokenizer)
    if loss is None:
        trainer.train()
        return None
    use_loss(trainer, loss)
    recorded = record(trainer, folder / "run", loss="ce" if loss == "deft" else None)  # deft needs more than margins
    trainer.train()
    return recorded.run


@torch.no_grad()
def word_losses(model: Any, text: Text) -> tuple[Tensor, Tensor]:
    """The cross-entropy of every target that is trained on, and whether it is the most probable word."""
    model.eval()
    parts = [model(input_ids=part).logits[:, :-1] for part in text.tokens.split(64)]
    target = text.target[:, :-1]
    pairs = zip(parts, target.split(64), strict=True)
    values = [torch.nn.functional.cross_entropy(part.transpose(1, 2), own, reduction="none") for part, own in pairs]
    return torch.cat(values).flatten(), torch.cat([part.argmax(2) for part in parts]).flatten() == target.flatten()


def small_llama() -> Any:
    """A language model of two layers."""
    config = LlamaConfig(
        vocab_size=WORDS, hidden_size=64, intermediate_size=256, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=4,
        max_position_embeddings=LENGTH, pad_token_id=0, bos_token_id=0, eos_token_id=0,
    )  # fmt: skip
    return LlamaForCausalLM(config)


def measure(seed: int, epochs: int, sequences: int) -> dict[str, tuple[float, ...]]:
    """For each loss: accuracy on unseen text, and the average precision of three rankings of the targets."""
    disable_progress_bars()
    transformers_logging.set_verbosity_error()
    torch.set_num_threads(1)
    clean, noisy, unseen, tokenizer = texts(seed, sequences)
    wrong = noisy.wrong[:, :-1].flatten().numpy()
    torch.manual_seed(seed)
    first, results = small_llama(), dict[str, tuple[float, ...]]()

    def ranked(doubt: Any) -> float:
        return 100 * float(average_precision_score(wrong, doubt))

    with tempfile.TemporaryDirectory() as folder:
        train(first, clean, tokenizer, Path(folder), None, 4, 3e-3, seed)
        before = ranked(word_losses(first, noisy)[0])
        results["before"] = 100 * float(word_losses(first, unseen)[1].float().mean()), np.nan, np.nan, before
        print(seed, "before", *(f"{number:.1f}" for number in results["before"]), flush=True)
        for loss in LOSSES:
            model = small_llama()
            model.load_state_dict(first.state_dict())
            run = train(model, noisy, tokenizer, Path(folder) / loss, loss, epochs, 1e-3, seed)
            assert run is not None
            accuracy = 100 * float(word_losses(model, unseen)[1].float().mean())
            audited = ranked(-run.find_label_issues().label_quality)
            results[loss] = accuracy, audited, ranked(word_losses(model, noisy)[0]), before
            print(seed, loss, *(f"{number:.1f}" for number in results[loss]), flush=True)
    return results


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--epochs", type=int, default=6)
    parser.add_argument("--sequences", type=int, default=1000, help="how many are fine-tuned on")
    parser.add_argument("--jobs", type=int, default=1, help="how many seeds at once")
    parser.add_argument("--write", action="store_true")
    options = parser.parse_args()
    with ProcessPoolExecutor(options.jobs, mp_context=multiprocessing.get_context("spawn")) as pool:
        runs = list(pool.map(partial(measure, epochs=options.epochs, sequences=options.sequences), range(options.seeds)))
    rows = ["| loss | next word right, unseen text | audit by token | loss after fine-tuning | loss before |", "|---|---|---|---|---|"]
    for loss in runs[0]:
        numbers = np.array([run[loss] for run in runs])
        cells = [f"{mean:.1f} ± {spread:.1f}" if mean == mean else "" for mean, spread in zip(numbers.mean(0), numbers.std(0), strict=True)]
        rows.append(f"| {f'`{loss}`' if loss in LOSSES else 'before fine-tuning'} | " + " | ".join(cells) + " |")
    print("\n".join(rows))
    if options.write:
        command = f"OMP_NUM_THREADS=1 python benchmarks/fine_tuning.py --epochs {options.epochs} --sequences {options.sequences} --write"
        about = [
            f"`{command}`, torch {torch.__version__}, Python {platform.python_version()}, CPU.",
            "",
            f"A Llama of two layers, fine-tuned by `SFTTrainer` for {options.epochs} epochs on {options.sequences:,} sequences of {LENGTH}",
            f"words of Python's documentation, {NOISE} on the targets; mean ± standard deviation of {options.seeds} seeds, in percent. The",
            "last three columns are the average precision of finding wrong targets, by the audit of the run and by plain loss. Memory and",
            "time on a GPU were not measured.",
            "",
        ]
        write_section(f"Fine-tuning a language model on wrong targets, {options.epochs} epochs", [*about, *rows])


if __name__ == "__main__":
    main()
