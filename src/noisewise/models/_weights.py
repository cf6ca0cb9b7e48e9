"""Load weights from a local file into a model, without running any code in the file.

Everything is checked before anything is copied, so that a file that does not fit leaves the model unchanged.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import torch
from torch import Tensor

from noisewise.errors import InputError, invalid_parameter, warn
from noisewise.models._base import Classifier

HEAD = ("head.weight", "head.bias")
TORCHVISION = {"fc.weight": HEAD[0], "fc.bias": HEAD[1]}


def load_weights(model: Classifier, path: str | os.PathLike[str], *, classifier: str = "keep") -> Classifier:
    """Copy the weights of a file into a model.

    Tensors have the names of the model's `state_dict`. torchvision's `fc` is read as `head`, so that its ResNet files fit models with
    ``stem="imagenet"``. The step counts of batch normalisation (`num_batches_tracked`) may be missing.

    Args:
        model: the model to change.
        path: a `.safetensors` file, or a `.pt` or `.pth` file with a dictionary of tensors.
        classifier: "keep" loads the last layer of the file; if it has another number of classes, the model keeps its own, with a
            warning. "replace" never loads it.

    Returns:
        The model itself.

    Raises:
        InputError: the file cannot be read, or a tensor is missing, unexpected or of another shape.

    Example:
        >>> import tempfile
        >>> from noisewise import models
        >>> source, model = models.get("cnn4", num_classes=5), models.get("cnn4", num_classes=2)
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     torch.save(source.state_dict(), f"{folder}/weights.pt")
        ...     _ = load_weights(model, f"{folder}/weights.pt", classifier="replace")
        >>> torch.equal(model.trunk[0].weight, source.trunk[0].weight)
        True
    """
    if classifier not in ("keep", "replace"):
        raise invalid_parameter("classifier", "load_weights", "'keep' or 'replace'", classifier)
    path = Path(path)
    own = model.state_dict()
    loaded = {TORCHVISION.get(name, name): tensor for name, tensor in _read(path).items()}
    left_out = set(HEAD) if classifier == "replace" else _other_classes(path, own[HEAD[0]], loaded.get(HEAD[0]))
    for name in left_out:
        loaded.pop(name, None)
    _check(type(model).__name__, path, {name: tensor for name, tensor in own.items() if name not in left_out}, loaded)
    model.load_state_dict({**own, **loaded})
    return model


def _read(path: Path) -> dict[str, Tensor]:
    if path.suffix not in (".safetensors", ".pt", ".pth"):
        raise invalid_parameter("path", "load_weights", "a .safetensors, .pt or .pth file", str(path))
    if not path.is_file():
        raise InputError(f"There is no file {str(path)!r}. Give the path of a local file with weights.")
    try:
        if path.suffix == ".safetensors":
            from safetensors.torch import load_file

            tensors = load_file(path)
        else:
            tensors = torch.load(path, map_location="cpu", weights_only=True)
    except Exception as error:  # each reader has its own errors for a damaged file
        message = str(error).partition("\n")[0]
        raise InputError(
            f"The weights in {str(path)!r} cannot be read: the file is damaged or contains more than tensors ({message}). "
            "Save it again as a dictionary of tensors."
        ) from None
    if not isinstance(tensors, dict):
        raise _not_tensors(path, f"a {type(tensors).__name__}")
    for name, tensor in tensors.items():
        if not isinstance(name, str) or not isinstance(tensor, Tensor):
            raise _not_tensors(path, f"a {type(tensor).__name__} at {name!r}")
    return dict(tensors)


def _not_tensors(path: Path, got: str) -> InputError:
    return InputError(f"The file {str(path)!r} must be one dictionary of named tensors. Got {got}; save the model's state_dict() only.")


def _other_classes(path: Path, own: Tensor, loaded: Tensor | None) -> set[str]:
    """The names of the tensors of the last layer, if it has another number of classes in the file; otherwise none."""
    if loaded is None or loaded.dim() != 2 or loaded.shape[1] != own.shape[1] or len(loaded) == len(own):
        return set()
    warn(
        f"The last layer in {str(path)!r} has {len(loaded)} classes and the model {len(own)}: the model keeps its own, untrained. "
        "Set classifier='replace' to hide this warning.",
        UserWarning,
    )
    return set(HEAD)


def _check(owner: str, path: Path, own: dict[str, Tensor], loaded: dict[str, Tensor]) -> None:
    if problem := next(_problems(own, loaded), None):
        raise InputError(f"The file {str(path)!r} does not fit {owner}: it {problem}. Give weights of the same network.")


def _problems(own: dict[str, Tensor], loaded: dict[str, Tensor]) -> Iterator[str]:
    for name, tensor in loaded.items():
        if name not in own:
            yield f"has a tensor {name!r}, which the model does not have"
        elif tensor.shape != own[name].shape or tensor.is_floating_point() != own[name].is_floating_point():
            expected = f"{own[name].dtype} shaped {tuple(own[name].shape)}"
            yield f"has a tensor {name!r} of {tensor.dtype} shaped {tuple(tensor.shape)}, and the model needs {expected}"
    yield from (f"has no tensor {name!r}" for name in own if name not in loaded and not name.endswith(".num_batches_tracked"))
