"""Margins of networks that were just initialised, for the curriculum paper's figure 6."""

from __future__ import annotations

import numpy as np
import torch

from noisewise import models
from noisewise.arrays import Floats
from noisewise.data import Normalise, read
from noisewise.margin import margin

_EXAMPLES, _BATCH = 1000, 128


@torch.no_grad()
def margins_before_training(data: str, model: str, seed: int = 0) -> tuple[Floats, int]:
    """The margins of the first training images of a data set in an untrained network, and the number of classes."""
    images = read(data)
    few = images.take(torch.arange(min(_EXAMPLES, len(images))))
    normalise, classes = Normalise.of(images.inputs), len(images.classes)
    with torch.random.fork_rng([]):
        torch.manual_seed(seed)
        network = models.get(model, num_classes=classes, shape=tuple(images.inputs.shape[1:])).train()
        batches = zip(torch.split(few.inputs, _BATCH), torch.split(few.labels, _BATCH), strict=True)
        return torch.cat([margin(network(normalise(inputs)), labels) for inputs, labels in batches]).numpy().astype(np.float64), classes
