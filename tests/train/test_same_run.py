"""Which run a folder holds: it is told by the names and true labels of its examples, and by the images on disk, beside the settings."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from PIL import Image
from test_fit import QUICK, clusters

from noisewise import InputError, fit
from noisewise.data import Dataset, read

NAMED = {"classes": ("cat", "dog", "owl"), "ids": tuple(map(str, range(300)))}


@pytest.mark.parametrize(
    "otherwise",
    [{"classes": ("cat", "dog", "emu")}, {"ids": tuple(map(str, range(1, 301)))}, {"true_labels": torch.zeros(300).long()}],
    ids=[*"cit"],
)
def test_a_run_on_examples_that_are_called_otherwise_is_another_run(tmp_path, monkeypatch, otherwise):
    """An audit of it would list names that are no longer there."""
    data = Dataset(*clusters(), **{**NAMED, "name": "pets"})
    first, other = fit("mlp", data, folder=tmp_path / "run", **QUICK), replace(data, **otherwise)
    with pytest.raises(InputError, match="other ids or true labels"):
        fit("mlp", other, folder=tmp_path / "run", **QUICK)
    assert fit("mlp", replace(data), folder=tmp_path / "run", **QUICK).metrics == first.metrics
    monkeypatch.chdir(tmp_path)
    assert fit("mlp", data, **QUICK).path != fit("mlp", other, **QUICK).path


def test_images_that_were_replaced_on_disk_are_other_data(tmp_path):
    for number in range(8):
        file = tmp_path / "images" / "ab"[number % 2] / f"{number}.png"
        file.parent.mkdir(parents=True, exist_ok=True)
        Image.new("RGB", (8, 8), (number, 0, 0)).save(file)
    asked = {"folder": tmp_path / "run", "epochs": 1, "batch_size": 4, "device": "cpu"}
    fit("linear", read(tmp_path / "images", memory=0), **asked)
    pixels = np.random.default_rng(0).integers(0, 256, (8, 8, 3), dtype=np.uint8)
    Image.fromarray(pixels).save(tmp_path / "images/a/0.png")
    with pytest.raises(InputError, match="other data of the same name"):
        fit("linear", read(tmp_path / "images", memory=0), **asked)
