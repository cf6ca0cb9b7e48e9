"""Load weights from a local file into a model, under the names torchvision gives them.

Everything is checked before anything is copied, so that a file that does not fit leaves the model unchanged. No code in a file is run.
"""

from __future__ import annotations

import os
import warnings
from pathlib import Path

import torch
from torch import Tensor

from noisewise.errors import InputError, invalid_parameter
from noisewise.models._base import Classifier

HEAD = ("head.weight", "head.bias")
TORCHVISION = {"fc.weight": HEAD[0], "fc.bias": HEAD[1]}


def load_weights(model: Classifier, path: str | os.PathLike[str], *, classifier: str = "keep") -> Classifier:
    """Copy the weights of a file into a model.

    Tensors are named as in the model's `state_dict`; torchvision's `fc` is taken for `head`, so its ResNet files load as they
    are, into models with ``stem="imagenet"``. A file without the step counts of batch normalisation (`num_batches_tracked`;
    torchvision's older ones) loads too.

    Args:
        model: the model to change.
        path: a `.safetensors` file, or a `.pt` or `.pth` file that holds one dictionary of tensors.
        classifier: "keep" takes the file's last layer along if it has as many classes as the model; if not, the model's own
            stays, with a warning. "replace" leaves the file's last layer out and says nothing.

    Returns:
        The model itself.

    Raises:
        InputError: a file that cannot be read; a tensor that is missing, unexpected or of another shape.

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
    given = {TORCHVISION.get(name, name): tensor for name, tensor in _read(path).items()}
    left_out = set(HEAD) if classifier == "replace" else _other_classes(path, own[HEAD[0]], given.get(HEAD[0]))
    for name in left_out:
        given.pop(name, None)
    _check(type(model).__name__, path, {name: tensor for name, tensor in own.items() if name not in left_out}, given)
    model.load_state_dict({**own, **given})
    return model


def _read(path: Path) -> dict[str, Tensor]:
    if path.suffix not in (".safetensors", ".pt", ".pth"):
        raise invalid_parameter("path", "load_weights", "a .safetensors, .pt or .pth file", str(path))
    if not path.is_file():
        raise InputError(f"There is no file of weights at {str(path)!r}. Give the path of one that is on this machine.")
    try:
        if path.suffix == ".safetensors":
            from safetensors.torch import load_file

            tensors = load_file(path)
        else:
            tensors = torch.load(path, map_location="cpu", weights_only=True)
    except Exception as error:  # each reader has its own errors for a damaged file
        reason = str(error).partition("\n")[0]
        raise InputError(
            f"The weights in {str(path)!r} cannot be read: the file is damaged, cut short, or holds more than tensors ({reason}). "
            "Save it again as a dictionary of tensors."
        ) from None
    if not isinstance(tensors, dict) or not all(isinstance(name, str) and isinstance(tensor, Tensor) for name, tensor in tensors.items()):
        raise InputError(
            f"The weights in {str(path)!r} must be one dictionary of named tensors. Got {_outline(tensors)} instead; "
            "save the model's state_dict() alone."
        )
    return dict(tensors)


def _outline(content: object) -> str:
    if not isinstance(content, dict):
        return f"a {type(content).__name__}"
    odd = next(key for key, value in content.items() if not (isinstance(key, str) and isinstance(value, Tensor)))
    return f"a dictionary with a {type(content[odd]).__name__} at {odd!r}"


def _other_classes(path: Path, own: Tensor, given: Tensor | None) -> set[str]:
    """The names of the last layer if the file has it for another number of classes."""
    if given is None or given.dim() != 2 or given.shape[1] != own.shape[1] or len(given) == len(own):
        return set()
    warnings.warn(
        f"The last layer in {str(path)!r} has {len(given)} classes and the model {len(own)}: the model's own stays, untrained. "
        "Say classifier='replace' if that is meant.",
        stacklevel=3,
    )
    return set(HEAD)


def _check(owner: str, path: Path, own: dict[str, Tensor], given: dict[str, Tensor]) -> None:
    for name in given:
        if name not in own:
            raise InputError(
                f"The weights in {str(path)!r} have a tensor {name!r}, which {owner} has not. Give weights of the same network."
            )
    for name, tensor in own.items():
        if name not in given:
            if name.endswith(".num_batches_tracked"):
                continue
            raise InputError(f"The weights in {str(path)!r} lack the tensor {name!r} of {owner}. Give weights of the same network.")
        found = given[name]
        if found.shape != tensor.shape or found.is_floating_point() != tensor.is_floating_point():
            raise InputError(
                f"The tensor {name!r} in {str(path)!r} does not fit {owner}: it is {found.dtype} shaped {tuple(found.shape)}, "
                f"the model's is {tensor.dtype} shaped {tuple(tensor.shape)}. Give weights of the same network."
            )
