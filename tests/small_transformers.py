"""Small models, tokenizers and arguments of Hugging Face for tests, made on the spot."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import (
    BertConfig,
    BertForSequenceClassification,
    BertForTokenClassification,
    LlamaConfig,
    LlamaForCausalLM,
    PreTrainedTokenizerFast,
)

QUIET: dict[str, Any] = {
    "report_to": "none",
    "save_strategy": "no",
    "logging_strategy": "no",
    "disable_tqdm": True,
    "use_cpu": True,
    "dataloader_pin_memory": False,
}


def quiet(folder: Path, **options: Any) -> dict[str, Any]:
    """Arguments of a Trainer that prints and saves nothing."""
    return {"output_dir": str(folder / "output"), **QUIET, **options}


def tokenizer(words: Sequence[str]) -> PreTrainedTokenizerFast:
    """A tokenizer of whole words; [PAD] is 0, [UNK] 1 and [EOS] 2."""
    special = {"pad_token": "[PAD]", "unk_token": "[UNK]", "eos_token": "[EOS]"}
    core = Tokenizer(models.WordLevel({word: number for number, word in enumerate([*special.values(), *words])}, unk_token="[UNK]"))
    core.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    return PreTrainedTokenizerFast(tokenizer_object=core, **special)


def bert(classes: int, words: int, *, tokens: bool = False) -> Any:
    """A BERT of one layer without dropout, for texts or for tokens."""
    torch.manual_seed(0)
    sizes = {"hidden_size": 32, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 64, "max_position_embeddings": 32}
    config = BertConfig(vocab_size=words, num_labels=classes, hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0, **sizes)
    return (BertForTokenClassification if tokens else BertForSequenceClassification)(config)


def llama(words: int, width: int = 16) -> Any:
    """A causal language model of one layer."""
    torch.manual_seed(0)
    heads = {"num_hidden_layers": 1, "num_attention_heads": 2, "num_key_value_heads": 2}
    config = LlamaConfig(
        vocab_size=words, hidden_size=width, intermediate_size=2 * width, pad_token_id=0, bos_token_id=1, eos_token_id=2, **heads
    )
    return LlamaForCausalLM(config)


def weights(model: torch.nn.Module) -> torch.Tensor:
    """All parameters of a model in one row."""
    return torch.cat([parameter.detach().flatten() for parameter in model.parameters()])
