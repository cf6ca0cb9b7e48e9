"""What a model is: an embedding, a linear layer that scores it, and a name.

    scores = head(features(x))

An author writes two methods: `build` makes the layers and returns the size of the embedding, `embed` computes it. The last layer is
called `head` in every model, so that training can find it (to keep it in float32, or to replace it for other classes).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import torch.nn.functional as F
from torch import Tensor, nn

from noisewise.errors import invalid_parameter
from noisewise.spec import Named, Registry, name_of, setting

registry: Registry[Classifier] = Registry("model")
"""The models by name."""


class Classifier(Named, nn.Module, registry=registry):
    """A network that gives every example one score per class.

    Args:
        num_classes: the number of scores.
        dropout: the share of the embedding's entries that training drops, just before the last layer.

    Example:
        >>> import torch
        >>> class Halves(Classifier):
        ...     def build(self):
        ...         return 2
        ...     def embed(self, x):
        ...         return torch.stack([half.mean(1) for half in x.chunk(2, 1)], 1)
        >>> Halves(num_classes=3)(torch.zeros(5, 8)).shape
        torch.Size([5, 3])
    """

    num_classes: int = setting(bounds="[1, inf)", integer=True)
    dropout: float = setting(default=0.0, bounds="[0, 1)", kw_only=True)

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.head = nn.Linear(self.build(), self.num_classes)

    def build(self) -> int:
        """Make the layers of the embedding, and return its size."""
        raise NotImplementedError(f"{type(self).__name__} must define build")

    def embed(self, x: Tensor) -> Tensor:
        """The embedding of a batch, shaped (N, size), before dropout."""
        raise NotImplementedError(f"{type(self).__name__} must define embed")

    @classmethod
    def settings_for(cls, shape: Sequence[int]) -> dict[str, int]:
        """The settings that the shape of one input decides; by default none."""
        return {}

    def check(self, x: Tensor) -> None:
        """Refuse what the network cannot take; only types and shapes, so that compilers see through it."""
        if not x.is_floating_point():
            raise invalid_parameter("x", type(self).__name__, "floating point (scale and normalise images first)", x.dtype)

    def features(self, x: Tensor) -> Tensor:
        """The embedding of a batch, shaped (N, size): what `head` turns into scores."""
        self.check(x)
        return F.dropout(self.embed(x), self.dropout, self.training)

    def forward(self, x: Tensor) -> Tensor:
        """The scores of a batch, shaped (N, num_classes)."""
        return self.head(self.features(x))  # type: ignore[no-any-return]


def _kaiming_normal(layer: nn.Module) -> None:
    if isinstance(layer, nn.Conv2d):
        nn.init.kaiming_normal_(layer.weight, mode="fan_out", nonlinearity="relu")


def _kaiming_uniform(layer: nn.Module) -> None:
    if isinstance(layer, nn.Conv2d):
        nn.init.kaiming_uniform_(layer.weight, mode="fan_in", nonlinearity="relu")
    elif isinstance(layer, nn.Linear):
        nn.init.xavier_uniform_(layer.weight)


def _as_made(layer: nn.Module) -> None:
    """Leave torch's own initialisation as it is."""


INITIALISATIONS: dict[str, Callable[[nn.Module], None]] = {
    "kaiming_normal": _kaiming_normal,
    "kaiming_uniform": _kaiming_uniform,
    "torch": _as_made,
}


class ImageClassifier(Classifier):
    """A convolutional network.

    Args:
        channels: the number of channels of an image.
        init: how the weights start. Biases start as torch makes them, batch normalisation at scale 1 and shift 0.

            - "kaiming_normal": convolutions normal with variance 2 / fan-out (He et al. 2015), linear layers as torch makes them;
            - "kaiming_uniform": convolutions uniform with variance 2 / fan-in, linear layers Xavier-uniform: the published
              code that the curriculum paper's recipes build on, for the CNNs and the ResNets alike;
            - "torch": every layer as torch makes it.
    """

    channels: int = setting(default=3, bounds="[1, inf)", integer=True, kw_only=True)
    init: str = setting(default="kaiming_normal", choices=tuple(INITIALISATIONS), kw_only=True)

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.apply(INITIALISATIONS[self.init])

    @classmethod
    def settings_for(cls, shape: Sequence[int]) -> dict[str, int]:
        if len(shape) != 3:
            raise invalid_parameter("shape", cls.__name__, "(channels, height, width)", tuple(shape))
        return {"channels": shape[0]}

    def check(self, x: Tensor) -> None:
        super().check(x)
        if x.dim() != 4 or x.shape[1] != self.channels:
            raise invalid_parameter("x", type(self).__name__, f"shaped (N, {self.channels}, height, width)", tuple(x.shape))


class FeatureClassifier(Classifier):
    """A network on vectors; inputs of any other shape are flattened.

    Args:
        inputs: the number of entries of one input.
    """

    inputs: int = setting(bounds="[1, inf)", integer=True)

    @classmethod
    def settings_for(cls, shape: Sequence[int]) -> dict[str, int]:
        return {"inputs": math.prod(shape)}

    def check(self, x: Tensor) -> None:
        super().check(x)
        if x.dim() < 2 or math.prod(x.shape[1:]) != self.inputs:
            raise invalid_parameter("x", type(self).__name__, f"shaped (N, …) with {self.inputs} entries for each example", tuple(x.shape))


def get(spec: str | Classifier, *, shape: Sequence[int] | None = None, **kwargs: Any) -> Classifier:
    """Build the model a spec names; a model that is built already is returned as it is.

    Args:
        spec: a spec string such as "resnet20" or "resnet44(dropout=0.2)", or a model.
        shape: the shape of one input, (channels, height, width) or (features,). It sets what the model takes from it:
            `channels` of a convolutional network (and `size` of the plain ones), `inputs` of the others.
        **kwargs: more settings, `num_classes` above all.

    Returns:
        A new model, initialised from torch's global random state: call `torch.manual_seed` first.

    Example:
        >>> get("resnet20", num_classes=10)
        resnet20(10)
        >>> get("mlp(hidden=(128, 64))", num_classes=10, shape=(8, 8))
        mlp(10, 64, hidden=(128, 64))
    """
    if shape is not None and isinstance(spec, str):
        factory = registry[name_of(spec)]
        if isinstance(factory, type) and issubclass(factory, Classifier):
            kwargs = {**factory.settings_for(shape), **kwargs}
    return registry.get(spec, **kwargs)


def available(pattern: str = "*") -> list[str]:
    """The names of the models that match a wildcard pattern, sorted.

    Example:
        >>> available("resnet?0")
        ['resnet20', 'resnet50']
    """
    return registry.available(pattern)
