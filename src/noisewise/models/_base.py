"""The base classes of models: scores = head(features(x)).

A model implements two methods: `build` makes the layers and returns the size of the embedding, `embed` computes the embedding. The
last layer is always called `head`, so that training can find it.
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
    """A network with one score per class for every example.

    Args:
        num_classes: the number of scores.
        dropout: the dropout rate of the embedding, just before the last layer.

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
        """Make the layers of the embedding and return its size."""
        raise NotImplementedError(f"{type(self).__name__} must define build")

    def embed(self, x: Tensor) -> Tensor:
        """The embedding of a batch, shaped (N, size), before dropout."""
        raise NotImplementedError(f"{type(self).__name__} must define embed")

    @classmethod
    def settings_for(cls, shape: Sequence[int]) -> dict[str, int]:
        """The settings that depend on the shape of one input; by default none."""
        return {}

    def check(self, x: Tensor) -> None:
        """Raise `InputError` for inputs of a wrong type or shape; values are not checked, so that the model can be compiled."""
        if not x.is_floating_point():
            raise invalid_parameter("x", type(self).__name__, "floating point (scale and normalise images first)", x.dtype)

    def features(self, x: Tensor) -> Tensor:
        """The embedding of a batch, shaped (N, size): the input of `head`."""
        self.check(x)
        embedding = self.embed(x)
        return F.dropout(embedding, self.dropout, self.training) if self.dropout else embedding

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


INITIALISATIONS: dict[str, Callable[[nn.Module], None]] = {
    "kaiming_normal": _kaiming_normal,
    "kaiming_uniform": _kaiming_uniform,
    "torch": lambda layer: None,
}


class ImageClassifier(Classifier):
    """A convolutional network.

    Args:
        channels: the number of channels of an image.
        init: how the weights are initialised. Biases have torch's default, batch normalisation scale 1 and shift 0.

            - "kaiming_normal": convolutions normal with variance 2 / fan-out (He et al. 2015), linear layers with torch's default;
            - "kaiming_uniform": convolutions uniform with variance 2 / fan-in, linear layers Xavier-uniform, as in the code of the
              curriculum paper;
            - "torch": torch's default for every layer.
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
        inputs: the number of features of one input.
    """

    inputs: int = setting(bounds="[1, inf)", integer=True)

    @classmethod
    def settings_for(cls, shape: Sequence[int]) -> dict[str, int]:
        return {"inputs": math.prod(shape)}

    def check(self, x: Tensor) -> None:
        super().check(x)
        if x.dim() < 2 or math.prod(x.shape[1:]) != self.inputs:
            raise invalid_parameter("x", type(self).__name__, f"shaped (N, …) with {self.inputs} features for each example", tuple(x.shape))


def get(spec: str | Classifier, *, shape: Sequence[int] | None = None, **kwargs: Any) -> Classifier:
    """Build the model of a spec; a model is returned unchanged.

    Args:
        spec: a spec string such as "resnet20" or "resnet44(dropout=0.2)", or a model.
        shape: the shape of one input, (channels, height, width) or (features,). It sets `channels` of a convolutional network (and
            `size` of the plain ones), or `inputs` of the others.
        **kwargs: more settings, such as `num_classes`.

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
