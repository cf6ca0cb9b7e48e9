"""Embeddings by pretrained image models of timm: ``--features timm:NAME@WEIGHTS``.

The weights are a local file. Nothing is downloaded unless the user allows it.
"""

from __future__ import annotations

import hashlib
from functools import lru_cache, partial
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from noisewise.data import NamedEmbedder
from noisewise.errors import InputError, reason


def embedder(name: str, *, download: bool = False) -> NamedEmbedder:
    """The embedder of an image model: its output before the last layer.

    Args:
        name: the name of a model of timm, "@" and a file of weights: "vit_small_patch16_224@weights.safetensors". The file is not needed
            with `download`.
        download: whether to let timm download its pretrained weights.
    """
    model, _, weights = name.partition("@")
    if weights and not Path(weights).is_file():
        raise InputError(f"There is no file of weights {weights!r}. Give a .safetensors or .pth file of the model {model!r}.")
    if not weights and not download:
        raise InputError(
            f"The model {model!r} needs weights: write timm:{model}@FILE with a .safetensors or .pth file, or give --download "
            "(download=True) to download those of timm."
        )
    weights = str(Path(weights).resolve()) if weights else ""
    spec, digest = f"timm:{model}@{weights}" if weights else f"timm:{model}", _digest(model, weights)
    return NamedEmbedder(spec, digest, "images", partial(_embed, model, weights, digest), _size(model))


def _timm() -> Any:
    try:
        import timm
    except (ImportError, RuntimeError):  # without a matching torchvision it fails with a RuntimeError
        raise InputError("Embeddings by timm need timm and torchvision, which are not installed; run: pip install timm.") from None
    return timm


def _size(model: str) -> tuple[int, int]:
    """The (height, width) of the images of a model."""
    settings = _timm().get_pretrained_cfg(model)
    return (224, 224) if settings is None else tuple(settings.input_size[1:])


def _digest(model: str, weights: str) -> str:
    """Identifies the model by its name and its weights."""
    if weights:
        with Path(weights).open("rb") as file:
            return hashlib.sha256(f"{model} {hashlib.file_digest(file, 'sha256').hexdigest()}".encode()).hexdigest()
    total = hashlib.sha256(model.encode())
    for name, values in _loaded(model, weights, "")[0].state_dict().items():
        total.update(name.encode() + values.cpu().numpy().tobytes())
    return total.hexdigest()


@lru_cache(maxsize=1)
def _loaded(model: str, weights: str, digest: str) -> tuple[Any, dict[str, Any], tuple[int, int]]:
    """The model on its device, how its images are normalised, and their (height, width). The digest tells it from an older file."""
    timm = _timm()
    try:
        network = timm.create_model(model, pretrained=not weights, checkpoint_path=weights, num_classes=0).eval()
    except Exception as error:  # an unknown name, weights of another model, the network
        raise InputError(f"The model {model!r} cannot be loaded by timm ({reason(error)}). Give another name or file.") from None
    settings = timm.data.resolve_model_data_config(network)
    return network.to("cuda" if torch.cuda.is_available() else "cpu"), settings, tuple(settings["input_size"][1:])


def _embed(model: str, weights: str, digest: str, images: Tensor) -> Tensor:
    network, settings, size = _loaded(model, weights, digest)
    device = next(network.parameters()).device
    pixels = images.to(device).float() / 255
    if tuple(pixels.shape[2:]) != size:
        pixels = F.interpolate(pixels, size, mode="bicubic", antialias=True).clamp(0, 1)
    mean, std = (torch.tensor(settings[name], device=device).view(1, -1, 1, 1) for name in ("mean", "std"))
    vectors: Tensor = network((pixels - mean) / std)
    return vectors
