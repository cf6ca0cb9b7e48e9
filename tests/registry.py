"""The losses that registry-wide tests run over: each registered name with each of its examples."""

from collections.abc import Iterable
from typing import Any

import pytest
import torch
from torch import Tensor

import noisewise
from noisewise.losses import MarginLoss, registry

SPECS = [spec for name in registry for spec in (registry[name].examples or (name,))]
SUMS = ["0.3*nce + 0.7*mae", "0.5*ce + 2*imae(T=4)", "0.01*eps_softmax(m=1e5) + 5*mae", "5*nce + amse(a=20)"]

# These have one score per yes/no label instead of one per class: tests/test_binary.py tests them.
BINARY = [spec for spec in SPECS if spec.startswith("binary(")]
EVERY = [spec for spec in SPECS + SUMS if spec not in BINARY]
MARGIN = [spec for spec in EVERY if isinstance(noisewise.get(spec), MarginLoss)]
# The gradient of DEFT is not the derivative of its value, because the paper detaches its exponent.
DIFFERENTIATED = [spec for spec in EVERY if spec != "deft"]
# Losses that depend on the whole batch are not means over examples, and take no class probabilities.
SEPARATE = [spec for spec in EVERY if not noisewise.get(spec).depends_on_batch]
# Logit clipping depends on the norm of the scores.
SHIFTABLE = [spec for spec in EVERY if not spec.startswith("logit_clip(")]

# The first example of every loss, with which costly tests run by default.
FIRST = {*{spec.partition("(")[0]: spec for spec in reversed(SPECS)}.values(), *SUMS}


def slow_unless_first(specs: Iterable[str]) -> list[Any]:
    """Parameters of a costly test: the first example of every loss, and with --slow the others too."""
    return [pytest.param(spec, marks=[] if spec in FIRST else [pytest.mark.slow]) for spec in specs]


def build(spec: str, classes: int | None = None, **settings: object) -> noisewise.losses.Loss:
    """The loss of a spec; curricula get the number of classes, so that their emphasis is defined without scores."""
    loss = noisewise.get(spec, **settings)
    for part in loss.modules():
        if classes is not None and "classes" in getattr(part, "settings", {}):
            part.classes = classes
    return loss


def batch(
    number: int = 6, classes: int = 7, *, std: float = 2.0, seed: int = 0, dtype: torch.dtype = torch.float64
) -> tuple[Tensor, Tensor]:
    """Random scores and labels."""
    generator = torch.Generator().manual_seed(seed)
    scores = std * torch.randn(number, classes, generator=generator, dtype=torch.float64)
    return scores.to(dtype), torch.randint(classes, (number,), generator=generator)
