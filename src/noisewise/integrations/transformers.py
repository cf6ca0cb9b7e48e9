"""Embeddings by pretrained models of Hugging Face transformers: ``--features transformers:NAME``.

The name is a folder with a saved model, or a model of the Hugging Face hub that is in its local cache. Nothing is downloaded unless the
user allows it, only safetensors weights are read, and no code of a model folder is run.
"""

from __future__ import annotations

import hashlib
import json
from functools import lru_cache, partial
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from noisewise.data import NamedEmbedder
from noisewise.errors import InputError, reason

_FILES = ("*.json", "*.safetensors", "*.txt", "*.model")  # what a model and its tokenizer are saved as
_MOST_TOKENS = 512
_INSTALL = "Embeddings by transformers need transformers, which is not installed; run: pip install 'noisewise[hf]'."


def embedder(name: str, *, download: bool = False) -> NamedEmbedder:
    """The embedder of a pretrained model of texts or images.

    A text is embedded as the mean of the last hidden states of its first 512 tokens, without padding; an image as the first token, or as
    the mean over the positions of a convolutional network.

    Args:
        name: a folder, or the name of a model of the Hugging Face hub.
        download: whether to download the model.
    """
    folder = _folder(name, download).resolve()
    config = _json(folder / "config.json")
    images = "image_size" in config or "num_channels" in config or (folder / "preprocessor_config.json").is_file()
    spec, digest = f"transformers:{folder}", _digest(folder)
    if not images:
        return NamedEmbedder(spec, digest, "texts", partial(_embed_texts, str(folder), digest))
    size = _size(config, _json(folder / "preprocessor_config.json"))
    return NamedEmbedder(spec, digest, "images", partial(_embed_images, str(folder), digest, size), size)


def _folder(name: str, download: bool) -> Path:
    """The local folder of a model."""
    if (Path(name) / "config.json").is_file():
        return Path(name)
    if Path(name).exists():
        raise InputError(f"The folder {name!r} has no config.json, so it has no model of transformers. Give a folder of save_pretrained.")
    try:
        from huggingface_hub import snapshot_download
    except ImportError:
        raise InputError(_INSTALL) from None
    try:
        return Path(snapshot_download(name, local_files_only=not download, allow_patterns=list(_FILES)))
    except Exception as error:  # of the network, of the hub or of a name that cannot be one
        if download:
            raise InputError(f"The model {name!r} cannot be downloaded ({reason(error)}). Give a folder with a saved model.") from None
        raise InputError(
            f"There is no folder {name!r}, and no model of this name in the local cache of Hugging Face. Give a folder, or --download "
            "(download=True) to download the model."
        ) from None


def _json(file: Path) -> dict[str, Any]:
    try:
        content = json.loads(file.read_text(encoding="utf-8")) if file.is_file() else {}
    except (OSError, ValueError) as error:
        raise InputError(f"The file {str(file)!r} cannot be read ({reason(error)}). Save the model again.") from None
    return content if isinstance(content, dict) else {}


def _digest(folder: Path) -> str:
    """Identifies a model by the content of its files."""
    total = hashlib.sha256()
    for file in sorted({file for pattern in _FILES for file in folder.glob(pattern)}):
        with file.open("rb") as opened:
            total.update(f"{file.name} {hashlib.file_digest(opened, 'sha256').hexdigest()}\n".encode())
    return total.hexdigest()


def _size(config: dict[str, Any], preprocessor: dict[str, Any]) -> tuple[int, int]:
    """The (height, width) of the images of a model."""
    for size in (preprocessor.get("crop_size"), preprocessor.get("size"), config.get("image_size")):
        if isinstance(size, int):
            return size, size
        if isinstance(size, dict) and {"height", "width"} <= size.keys():
            return int(size["height"]), int(size["width"])
        if isinstance(size, dict) and "shortest_edge" in size:
            return int(size["shortest_edge"]), int(size["shortest_edge"])
    return 224, 224


@lru_cache(maxsize=1)
def _loaded(folder: str, digest: str, texts: bool) -> tuple[Any, Any]:
    """The model on its device, and its tokenizer or the settings of its images. The digest tells it from an older one in the folder."""
    try:
        from transformers import AutoModel, AutoTokenizer
        from transformers.utils.logging import disable_progress_bar
    except ImportError:
        raise InputError(_INSTALL) from None
    disable_progress_bar()  # type: ignore[no-untyped-call]
    local: dict[str, Any] = {"local_files_only": True, "trust_remote_code": False}
    try:
        model = AutoModel.from_pretrained(folder, use_safetensors=True, dtype=torch.float32, **local).eval()
        other = AutoTokenizer.from_pretrained(folder, **local) if texts else _json(Path(folder) / "preprocessor_config.json")
    except Exception as error:  # a folder may contain anything
        raise InputError(f"The model in {folder!r} cannot be loaded by transformers ({reason(error)}). Give another folder.") from None
    return model.to("cuda" if torch.cuda.is_available() else "cpu"), other


def _embed_texts(folder: str, digest: str, texts: list[str]) -> Tensor:
    model, tokenizer = _loaded(folder, digest, True)
    if tokenizer.pad_token is None:
        tokenizer.pad_token = tokenizer.eos_token
    longest = min(_MOST_TOKENS, tokenizer.model_max_length)
    tokens = tokenizer(texts, padding=True, truncation=True, max_length=longest, return_tensors="pt").to(model.device)
    encoder = model.get_encoder() if model.config.is_encoder_decoder else model
    states = encoder(input_ids=tokens["input_ids"], attention_mask=tokens["attention_mask"]).last_hidden_state
    mask = tokens["attention_mask"].unsqueeze(2).to(states.dtype)
    mean: Tensor = (states * mask).sum(1) / mask.sum(1).clamp_min(1)
    return mean


def _embed_images(folder: str, digest: str, size: tuple[int, int], images: Tensor) -> Tensor:
    model, settings = _loaded(folder, digest, False)
    if images.dtype != torch.uint8 or images.dim() != 4:
        raise InputError(f"The model in {folder!r} embeds images as uint8 (N, channels, height, width). Got {images.dtype} instead.")
    pixels = images.to(model.device).float() / 255
    if tuple(pixels.shape[2:]) != size:
        pixels = F.interpolate(pixels, size, mode="bicubic", antialias=True).clamp(0, 1)
    if pixels.shape[1] == 1 and getattr(model.config, "num_channels", 3) == 3:
        pixels = pixels.expand(-1, 3, -1, -1)
    mean, std = (torch.tensor(settings.get(name) or [0.5], device=model.device).view(1, -1, 1, 1) for name in ("image_mean", "image_std"))
    states: Tensor = getattr(model, "vision_model", model)(pixel_values=(pixels - mean) / std).last_hidden_state
    return states[:, 0] if states.dim() == 3 else states.flatten(2).mean(2)
