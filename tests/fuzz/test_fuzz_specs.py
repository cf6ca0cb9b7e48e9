"""Damaged spec strings: every registry builds the object, or refuses the spec in one sentence."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from fuzzing import survives
from noisewise import losses
from noisewise.correct import policies
from noisewise.data import augmentations
from noisewise.models import without_weights
from noisewise.noise import registry as noises
from noisewise.train._optimisers import optimisers, schedules
from registry import SPECS, SUMS

KINDS: dict[str, tuple[Callable[[str], Any], list[str], int]] = {
    "loss": (losses.get, [*SPECS, *SUMS, "gce(q=0.7, weight=(1.0, 2.0, 0.5), label_smoothing=0.1)", "2*(ce + 0.5*mae)"], 2600),
    "noise": (
        noises.get,
        [
            *(f"{name}(0.4, flips='exact')" for name in noises if name not in ("class_map", "human", "matrix", "none")),
            "class_map(0.4, {0: 1, 2: 3})",
            "human(worst)",
            "matrix(((0.9, 0.1), (0.2, 0.8)))",
            "none",
        ],
        1200,
    ),
    "optimiser": (optimisers.get, ["sgd(lr=0.1, momentum=0.9, nesterov=True)", "adam(1e-3, beta2=0.99)", "adamw(lr=0.01, eps=1e-7)"], 600),
    "schedule": (schedules.get, ["constant(warmup=10)", "cosine(final=0.1)", "multistep((0.5, 0.75), 0.2)", "step(100, factor=0.3)"], 600),
    "augmentation": (
        augmentations.get,
        [
            "crop(4) + flip",
            "centre_crop(8) + jitter(0.1, 0.2, 0.3)",
            "normalise((0.5, 0.5, 0.5), (0.2, 0.2, 0.2))",
            "resized_crop(16, scale=(0.2, 1.0)) + rotation(15)",
            "none",
        ],
        700,
    ),
    "model": (
        lambda spec: without_weights(spec, num_classes=3, shape=(1, 8, 8)),  # without memory for the weights
        ["linear", "mlp(hidden=(16, 8), norm='batch')", "mlp(hidden=4, dropout=0.2)", "cnn4(init='torch')"],
        600,
    ),
    "policy": (policies.get, ["relabel(below=0.3, lead=2)", "prune", "soften(below=0.5)"], 300),
}


@pytest.mark.parametrize("kind", KINDS)
def test_every_spec_is_accepted_or_refused_in_one_sentence(kind: str, tmp_path: Path, times: int) -> None:
    get, seeds, cases = KINDS[kind]

    def read(case: bytes) -> None:
        get(case.decode("utf-8", "surrogateescape"))  # as the command line hands over what is not text

    refused = survives(read, [seed.encode() for seed in seeds], cases * times, tmp_path)
    assert cases * times > refused > cases * times / 4
