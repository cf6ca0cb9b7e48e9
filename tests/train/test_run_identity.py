"""What makes another run besides the settings: the names and true labels of the examples, and the images on disk."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from PIL import Image
from small_runs import QUICK, clusters

from noisewise import fit
from noisewise.data import Dataset, read
from refused import refused

ONCE = {**QUICK, "epochs": 1}

NAMED = {"classes": ("cat", "dog", "owl"), "ids": tuple(map(str, range(300)))}


@pytest.mark.parametrize(
    "change",
    [{"classes": ("cat", "dog", "emu")}, {"ids": tuple(map(str, range(1, 301)))}, {"true_labels": torch.zeros(300).long()}],
    ids=["classes", "ids", "true labels"],
)
def test_other_names_or_true_labels_make_another_run(tmp_path, monkeypatch, change):
    """An audit of the old run would list names that do not exist any more."""
    data = Dataset(*clusters(), **{**NAMED, "name": "pets"})
    first, changed = fit("mlp", data, folder=tmp_path / "run", **ONCE), replace(data, **change)
    with refused(tmp_path / "run"):
        fit("mlp", changed, folder=tmp_path / "run", **ONCE)
    assert fit("mlp", replace(data), folder=tmp_path / "run", **ONCE).metrics == first.metrics
    monkeypatch.chdir(tmp_path)
    assert fit("mlp", data, **ONCE).path != fit("mlp", changed, **ONCE).path


def test_replaced_images_on_disk_are_other_data(tmp_path):
    for number in range(8):
        file = tmp_path / "images" / "ab"[number % 2] / f"{number}.png"
        file.parent.mkdir(parents=True, exist_ok=True)
        Image.new("RGB", (8, 8), (number, 0, 0)).save(file)

    def train():
        stream = replace(read(tmp_path / "images", memory=0), workers=0)
        fit("linear", stream, folder=tmp_path / "run", epochs=1, batch_size=4, device="cpu")

    train()
    pixels = np.random.default_rng(0).integers(0, 256, (8, 8, 3), dtype=np.uint8)
    Image.fromarray(pixels).save(tmp_path / "images/a/0.png")
    with refused(tmp_path / "run"):
        train()
