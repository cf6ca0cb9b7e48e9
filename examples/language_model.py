"""Fine-tune a small causal language model on text with wrong targets: cross-entropy, GCE and IMAE per token.

    python examples/language_model.py [--steps 300] [--words 2000] [--noise "symmetric(0.4)"] [--device cpu]

Text, vocabulary and model are made on the spot: the text is the documentation of Python's standard library. The model first learns
one half of it from clean targets. Then it is fine-tuned on the other half, once with each loss; there a share of the target words is
wrong. It is tested on clean text that it has not seen. About a minute on a CPU.

The loss is computed by `noisewise.kernels.linear_loss`, which never stores the scores of all words at all positions: with the
vocabulary of a real language model, they would be the largest tensor.
"""

from __future__ import annotations

import argparse
import copy
import importlib
import re
from collections import Counter
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from noisewise import corrupt, margin
from noisewise.kernels import linear_loss

NAMES = """abc argparse array ast asyncio base64 bisect calendar cmath codecs collections configparser contextlib copy csv datetime
    decimal difflib dis doctest email enum filecmp fractions functools getopt gettext glob gzip hashlib heapq hmac html inspect io
    ipaddress itertools json keyword linecache locale logging lzma mailbox math mimetypes numbers operator optparse os pathlib pdb
    pickle pprint profile queue random re sched secrets select shelve shlex shutil signal smtplib socket sqlite3 ssl statistics
    string struct subprocess tarfile tempfile textwrap threading timeit token tokenize trace traceback types unittest urllib
    uuid warnings weakref xml zipfile zlib"""
MODULES = NAMES.split()
LOSSES = ("ce", "gce(q=0.7)", "imae(T=8)")
LENGTH = 32


def text_of(modules: list[str]) -> list[str]:
    """The words of all docstrings in some modules, each docstring once."""
    docstrings: dict[str, None] = {}
    for name in modules:
        module = importlib.import_module(name)
        for item in (module, *(getattr(module, attribute, None) for attribute in sorted(dir(module)))):
            members = vars(item).values() if isinstance(item, type) else ()
            docstrings |= dict.fromkeys(text for each in (item, *members) if isinstance(text := getattr(each, "__doc__", None), str))
    return re.findall(r"\w+|[^\w\s]", "\n".join(docstrings).lower())


class LanguageModel(nn.Module):
    """A causal transformer; `forward` returns the input of its last layer, and `head` is the weight of that layer."""

    def __init__(self, words: int, width: int = 64, layers: int = 2) -> None:
        super().__init__()
        self.words, self.positions = nn.Embedding(words, width), nn.Embedding(LENGTH, width)
        layer = nn.TransformerEncoderLayer(width, nhead=4, dim_feedforward=4 * width, dropout=0.0, batch_first=True, norm_first=True)
        self.body = nn.TransformerEncoder(layer, layers, norm=nn.LayerNorm(width), enable_nested_tensor=False)
        self.head = nn.Parameter(torch.randn(words, width) / width**0.5)

    def forward(self, tokens: Tensor) -> Tensor:
        length = tokens.shape[1]
        mask = nn.Transformer.generate_square_subsequent_mask(length, device=tokens.device)
        hidden = self.words(tokens) + self.positions.weight[:length]
        return self.body(hidden, mask=mask, is_causal=True)  # type: ignore[no-any-return]


@dataclass(frozen=True)
class Text:
    """Sequences of words, the target word at each position, and which targets are wrong."""

    tokens: Tensor
    target: Tensor
    wrong: Tensor

    @classmethod
    def of(cls, stream: Tensor, noise: str | None, words: int) -> Text:
        number = (len(stream) - 1) // LENGTH
        tokens, target = stream[: number * LENGTH], stream[1 : number * LENGTH + 1]
        wrong = torch.zeros_like(target, dtype=torch.bool)
        if noise is not None:
            corruption = corrupt(target, noise, num_classes=words)
            target, wrong = corruption.labels, corruption.mask
        return cls(*(each.view(number, LENGTH) for each in (tokens, target, wrong)))

    def to(self, device: str) -> Text:
        return Text(self.tokens.to(device), self.target.to(device), self.wrong.to(device))


def train(model: LanguageModel, text: Text, loss: str, steps: int, rate: float, batch: int = 32) -> None:
    """Adam with a learning rate that falls to zero."""
    optimiser = torch.optim.Adam(model.parameters(), lr=rate)
    schedule = torch.optim.lr_scheduler.LinearLR(optimiser, 1.0, 0.0, steps)
    generator = torch.Generator().manual_seed(0)
    for _ in range(steps):
        index = torch.randint(len(text.tokens), (batch,), generator=generator).to(text.tokens.device)
        optimiser.zero_grad()
        linear_loss(model(text.tokens[index]), model.head, text.target[index], loss=loss).backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimiser.step()
        schedule.step()


@torch.no_grad()
def accuracy(model: LanguageModel, text: Text) -> float:
    """How often the most probable word is the next word."""
    right = [((model(part) @ model.head.T).argmax(-1) == target).float() for part, target in _parts(text)]
    return float(torch.cat(right).mean())


@torch.no_grad()
def believed(model: LanguageModel, text: Text) -> tuple[float, float]:
    """How often the given target has a probability above one half: for right targets, and for wrong ones."""
    margins = torch.cat([margin((model(part) @ model.head.T).flatten(0, 1), target.flatten()) for part, target in _parts(text)])
    wrong = text.wrong.flatten()
    return float((margins[~wrong] > 0).float().mean()), float((margins[wrong] > 0).float().mean())


def _parts(text: Text) -> list[tuple[Tensor, Tensor]]:
    return list(zip(text.tokens.split(64), text.target.split(64), strict=True))


def run(steps: int = 300, words: int = 2000, noise: str = "symmetric(0.4)", device: str = "cpu") -> dict[str, dict[str, float]]:
    """Fine-tune with each loss; return the results by loss."""
    torch.manual_seed(0)
    halves = [text_of(MODULES[::2]), text_of(MODULES[1::2])]
    common = [word for word, _ in Counter(halves[0] + halves[1]).most_common(words - 1)]
    index = {word: number for number, word in enumerate(common, start=1)}  # 0 stands for all rarer words
    first, second = (torch.tensor([index.get(word, 0) for word in half]) for half in halves)
    cut = len(second) * 9 // 10
    clean, noisy, unseen = (
        Text.of(stream, spec, words).to(device) for stream, spec in ((first, None), (second[:cut], noise), (second[cut:], None))
    )
    model = LanguageModel(words).to(device)
    train(model, clean, "ce", steps, rate=3e-3)
    results = {"before": {"unseen": accuracy(model, unseen)}}
    for loss in LOSSES:
        tuned = copy.deepcopy(model)
        train(tuned, noisy, loss, steps, rate=1e-3)
        right, wrong = believed(tuned, noisy)
        results[loss] = {"unseen": accuracy(tuned, unseen), "believed when right": right, "believed when wrong": wrong}
    return results


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=300, help="steps of the first training, and of each fine-tuning")
    parser.add_argument("--words", type=int, default=2000)
    parser.add_argument("--noise", default="symmetric(0.4)")
    parser.add_argument("--device", default="cpu")
    options = parser.parse_args()
    results = run(options.steps, options.words, options.noise, options.device)
    print(f"{'':14}{'next word right, %':>20}{'believed if right, %':>22}{'believed if wrong, %':>22}")
    for loss, shares in results.items():
        print(f"{loss:14}{100 * shares['unseen']:20.1f}" + "".join(f"{100 * value:22.1f}" for value in list(shares.values())[1:]))


if __name__ == "__main__":
    main()
