"""Embeddings by pretrained models, given by name: tiny models with random weights, saved on the spot. Nothing is downloaded."""

from __future__ import annotations

import socket
import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from safetensors.torch import save_file
from torch import nn
from typer.testing import CliRunner

from noisewise import fit
from noisewise.cli import app
from noisewise.data import features, read
from noisewise.integrations import timm, transformers
from noisewise.runs import examples_of
from refused import refused

WORDS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "good", "bad", "film", "a", "very"]
TEXTS = ["good film", "a very very bad film", "a good good good film", "bad"] * 10


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with tiny models: bert (texts) and vit (images of 16 × 16 pixels)."""
    library = pytest.importorskip("transformers")
    folder = tmp_path_factory.mktemp("models")
    library.utils.logging.disable_progress_bar()
    sizes: dict[str, Any] = {"hidden_size": 8, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 8}
    torch.manual_seed(0)
    library.BertModel(library.BertConfig(**sizes, vocab_size=len(WORDS))).save_pretrained(folder / "bert")
    library.BertTokenizerFast(vocab={word: place for place, word in enumerate(WORDS)}).save_pretrained(folder / "bert")
    library.ViTModel(library.ViTConfig(**sizes, image_size=16, patch_size=8)).save_pretrained(folder / "vit")
    (folder / "vit" / "preprocessor_config.json").write_text('{"image_mean": [0.1, 0.2, 0.3], "image_std": [0.5, 0.6, 0.7]}')
    return folder


@pytest.fixture(autouse=True)
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The working directory, without a network."""

    def refuse(*_: Any) -> None:
        raise AssertionError("the network was used")

    monkeypatch.setattr(socket.socket, "connect", refuse)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def by_hand(folder: Path, text: str) -> torch.Tensor:
    """The mean last hidden state of one text, which needs no padding."""
    import transformers as library

    model = library.AutoModel.from_pretrained(folder).eval()
    numbers = [WORDS.index("[CLS]"), *map(WORDS.index, text.split()), WORDS.index("[SEP]")]
    with torch.no_grad():
        return model(torch.tensor([numbers])).last_hidden_state[0].mean(0)


def test_texts_are_embedded_in_their_order_with_and_without_a_table(models: Path, place: Path) -> None:
    expected = torch.stack([by_hand(models / "bert", text) for text in TEXTS[:4]]).repeat(10, 1)
    labels = [0, 1] * 20
    data = read((TEXTS, labels), embed=f"transformers:{models / 'bert'}")
    assert torch.allclose(data.inputs, expected, atol=1e-5) and features(data, 1) == [["text", TEXTS[1]]]
    lines = [f"{number},{text},{label}" for number, (text, label) in enumerate(zip(TEXTS, labels, strict=True))]
    (place / "films.csv").write_text("\n".join(["stars,review,label", *lines]))
    table = read("films.csv", embed=f"transformers:{models / 'bert'}", text="review")
    assert torch.equal(table.inputs, data.inputs) and features(table, 1) == [["stars", "1"], ["review", TEXTS[1]]]


def test_a_run_on_texts_is_trained_read_again_and_predicts(models: Path, place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lines = [f"{text},{('good', 'bad')[place % 2]}" for place, text in enumerate(TEXTS)]
    (place / "films.csv").write_text("\n".join(["review,label", *lines]))
    monkeypatch.chdir(models)  # the run must work from every folder
    done = CliRunner().invoke(
        app, ["audit", str(place / "films.csv"), "--features", "transformers:bert", "-o", str(place / "i.csv"), "--run", str(place / "run")]
    )
    assert done.exit_code == 0, done.output
    monkeypatch.chdir(place)
    run = fit("linear", read("films.csv", embed=f"transformers:{models / 'bert'}"), test="films.csv", epochs=40, folder="again")
    assert run.dynamics.accuracy == 1 and features(examples_of(run.dynamics.record), 3) == [["review", "bad"]]
    probabilities = run.predict(["bad", "good film"])
    assert probabilities.argmax(1).tolist() == [run.classes.index("bad"), run.classes.index("good")]
    (place / "new.csv").write_text("more,review\n1,good film\n2,bad\n")
    assert torch.allclose(run.predict("new.csv"), probabilities.flip(0), atol=1e-5)
    done = CliRunner().invoke(app, ["predict", "run", "new.csv"])
    assert done.exit_code == 0 and (place / "predictions.csv").read_text().count("\n") == 3, done.output


def test_images_are_embedded_as_their_model_expects_them(models: Path, place: Path) -> None:
    import transformers as library

    rng = np.random.default_rng(0)
    for kind in ("cat", "dog"):
        (place / "pets" / kind).mkdir(parents=True)
        for number in range(3):
            Image.fromarray(rng.integers(0, 256, (16, 16, 3)).astype(np.uint8)).save(place / f"pets/{kind}/{number}.png")
    data = read("pets", embed=f"transformers:{models / 'vit'}")
    model = library.AutoModel.from_pretrained(models / "vit").eval()
    assert data.ids is not None
    for name, vector in zip(data.ids, data.inputs, strict=True):
        with Image.open(place / "pets" / name) as image:
            pixels = np.asarray(image).astype(np.float32) / 255
        scaled = torch.from_numpy((pixels - [0.1, 0.2, 0.3]) / [0.5, 0.6, 0.7]).permute(2, 0, 1).float()
        with torch.no_grad():
            assert torch.allclose(model(scaled[None]).last_hidden_state[0, 0], vector, atol=1e-5)
    run = fit("linear", data, epochs=2, folder="run")
    assert torch.equal(run.predict("pets"), run.predict(data.inputs))
    with refused("bert", "images"):
        run_on_texts = fit("linear", read((TEXTS, [0, 1] * 20), embed=f"transformers:{models / 'bert'}"), epochs=1, folder="texts")
        run_on_texts.predict(np.zeros((2, 3, 16, 16), np.uint8))


def test_models_for_other_data_and_broken_models_are_refused(models: Path, place: Path) -> None:
    numbers = (np.ones((4, 1)), [0, 1, 0, 1])
    with refused("vit", "images"):
        read(numbers, embed=f"transformers:{models / 'vit'}")
    with refused("bert", "text"):
        read(numbers, embed=f"transformers:{models / 'bert'}")
    (place / "empty").mkdir()
    with refused("empty", "config.json"):
        read(numbers, embed="transformers:empty")
    (place / "config.json").write_text('{"model_type": "bert"}')
    with refused("transformers"):
        read((["a"] * 4, [0, 1, 0, 1]), embed=f"transformers:{place}")


def test_a_missing_library_is_one_sentence(models: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    transformers._loaded.cache_clear()
    monkeypatch.setitem(sys.modules, "transformers", None)
    with refused("transformers", "pip install 'noisewise[hf]'"):
        read((TEXTS, [0, 1] * 20), embed=f"transformers:{models / 'bert'}")


def test_images_reach_a_model_of_timm_in_its_size_and_scale(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The library itself needs torchvision, which has no build for every torch; this one has the three functions that are used."""
    asked: list[Any] = []

    def create_model(name: str, pretrained: bool, checkpoint_path: str, num_classes: int) -> nn.Module:
        asked.append((name, pretrained, checkpoint_path, num_classes))
        return nn.Sequential(nn.AvgPool2d(4), nn.Flatten(), nn.Linear(12, 12, bias=False))

    settings = {"input_size": (3, 8, 8), "mean": (0.5, 0.25, 0.0), "std": (0.5, 0.5, 0.25)}
    library: Any = ModuleType("timm")
    library.create_model, library.get_pretrained_cfg = create_model, lambda name: SimpleNamespace(input_size=(3, 8, 8))
    library.data = SimpleNamespace(resolve_model_data_config=lambda network: settings)
    monkeypatch.setitem(sys.modules, "timm", library)
    timm._loaded.cache_clear()
    save_file({"w": torch.ones(1)}, place / "weights.safetensors")
    images = np.zeros((4, 3, 8, 8), np.uint8)
    images[:, 1] = 255
    torch.manual_seed(0)
    data = read((images, [0, 1, 0, 1]), embed="timm:tiny@weights.safetensors")
    torch.manual_seed(0)
    layer = nn.Linear(12, 12, bias=False)
    scaled = torch.tensor([-1.0, 1.5, 0.0]).repeat_interleave(4)
    assert torch.allclose(data.inputs, layer(scaled).expand(4, -1), atol=1e-6)
    assert asked == [("tiny", False, str(place.resolve() / "weights.safetensors"), 0)]
    timm._loaded.cache_clear()
