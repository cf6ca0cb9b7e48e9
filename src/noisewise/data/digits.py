"""The digits of scikit-learn, which need no download."""

from __future__ import annotations

from pathlib import Path

import torch

from noisewise.data._dataset import Dataset
from noisewise.data._official import Official

_TRAINING = 1437


class Digits(Official, name="digits"):
    """Handwritten digits, 8×8; the first four fifths are the training split.

    They keep the order in which they were collected, so that neighbours, often by one writer, are in the same split. The 17 grey levels
    are scaled to 0 … 255.

    Reference:
        Alpaydin and Kaynak. Optical recognition of handwritten digits. UCI, 1998.
    """

    summary = "1,797 handwritten digits, 8×8, part of scikit-learn"
    size = "1,437 + 360 images, nothing to fetch"
    licence = "CC BY 4.0"
    home = "https://archive.ics.uci.edu/dataset/80"

    def read(self, root: Path, split: str) -> Dataset:
        from sklearn.datasets import load_digits

        digits = load_digits()
        images = (torch.from_numpy(digits.images) * (255 / 16)).round().to(torch.uint8).unsqueeze(1)
        labels = torch.from_numpy(digits.target).long()
        data = Dataset(images, labels, tuple("0123456789"), true_labels=labels.clone(), name=repr(self))
        return data.take((torch.arange(len(data)) < _TRAINING) == (split == "train"))
