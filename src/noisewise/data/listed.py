"""Clothing1M and WebVision: web images, listed with their labels in text files. Access to both must be requested."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import torch

from noisewise.data._files import ImageFiles
from noisewise.data._official import OfficialFiles
from noisewise.errors import InputError
from noisewise.spec import setting

CLOTHING_CLASSES = (
    *("T-Shirt", "Shirt", "Knitwear", "Chiffon", "Sweater", "Hoodie", "Windbreaker"),
    *("Jacket", "Downcoat", "Suit", "Shawl", "Dress", "Vest", "Underwear"),
)


def _labelled(path: Path) -> dict[str, int]:
    """Read a text file with an image and a label on each line."""
    labels = {}
    for number, line in enumerate(path.read_text().splitlines(), 1):
        image, _, label = line.strip().rpartition(" ")
        if not image or not label.isdigit():
            raise InputError(f"Line {number} of {str(path)!r} must be an image and a label. Got {line!r} instead.")
        labels[image] = int(label)
    return labels


def _image_files(
    folder: Path, images: Sequence[str], labels: Sequence[int], classes: Sequence[str], *, clean: bool, name: str
) -> ImageFiles:
    """Make the list of files. Only the first file is checked, because there may be a million."""
    if images and not (folder / images[0]).is_file():
        raise InputError(f"The images of {name} are not in {str(folder)!r}: no {images[0]} there. Unpack them there.")
    given = torch.tensor(labels, dtype=torch.int64)
    return ImageFiles(
        paths=tuple(str(folder / image) for image in images),
        labels=given,
        classes=tuple(classes),
        true_labels=given.clone() if clean else None,
        ids=tuple(images),
        name=name,
    )


class Clothing1M(OfficialFiles, name="clothing1m"):
    """Clothes from online shops, labelled by the text around them; three small splits were labelled by people.

    Reference:
        Xiao et al. Learning from massive noisy labeled data for image classification. CVPR 2015.
    """

    summary = "a million pictures of clothes with labels from the web, fourteen classes"
    size = "1,000,000 (train) + 47,570 (clean_train) + 14,313 (val) + 10,526 (test) images"
    licence = "on request, for research"
    home = "https://github.com/Cysu/noisy_label"
    splits = ("train", "clean_train", "val", "test")
    places = (("clothing1M", "Clothing1M", "clothing1m"),)
    image_size = (256, 256)

    def files(self, root: Path, split: str) -> ImageFiles:
        folder = self.find(root, self.places[0])
        clean = split != "train"
        listed = "noisy_train" if split == "train" else split if split == "clean_train" else f"clean_{split}"
        labels = _labelled(self.find(folder, ("clean_label_kv.txt" if clean else "noisy_label_kv.txt",)))
        keys = self.find(folder, (f"{listed}_key_list.txt",)).read_text().split()
        if missing := next((key for key in keys if key not in labels), None):
            raise InputError(
                f"The image {missing!r} of {self.name} is listed but has no label in {str(folder)!r}. Unpack the data set again."
            )
        return _image_files(folder, keys, [labels[key] for key in keys], CLOTHING_CLASSES, clean=clean, name=repr(self))


class WebVision(OfficialFiles, name="webvision"):
    """WebVision 1.0: images that Google found for the thousand classes of ImageNet; its validation set is the test split.

    Args:
        classes: how many classes to keep, from the first; 50 is the "mini" setting.

    Reference:
        Li et al. WebVision database: visual learning and understanding from web data. 2017.
    """

    classes: int = setting(default=50, bounds="[2, 1000]", integer=True)

    summary = "images that Google found for the classes of ImageNet; 50 (mini), 200, 400 or all 1,000 classes"
    size = "65,944 + 2,500 images with 50 classes"
    licence = "for research"
    home = "https://data.vision.ee.ethz.ch/cvl/webvision/"
    places = (("webvision", "WebVision"),)
    image_size = (256, 256)

    def files(self, root: Path, split: str) -> ImageFiles:
        folder = self.find(root, self.places[0])
        listed = "train_filelist_google.txt" if split == "train" else "val_filelist.txt"
        labels = _labelled(self.find(folder, (f"info/{listed}",)))
        images = [image for image, label in labels.items() if label < self.classes]
        synsets = self.find(folder, ("info/synsets.txt",)).read_text().splitlines()
        names = [line.partition(" ")[2] or line for line in synsets[: self.classes]]
        where = folder if split == "train" else self.find(folder, ("val_images_256", "val_images"))
        return _image_files(where, images, [labels[image] for image in images], names, clean=split == "test", name=repr(self))
