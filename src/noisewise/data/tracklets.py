"""MARS and PKU-Reid: a folder of pictures for each person; file names contain the camera and the tracklet.

A tracklet is a sequence of one person in front of one camera. A class is a person, so the two splits have different classes.
"""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from typing import ClassVar

import numpy as np
import torch
from torch import Tensor

from noisewise.data._files import ImageFiles
from noisewise.data._official import OfficialFiles
from noisewise.errors import InputError

_JUNK = "00-1"
_IMAGES = frozenset({".jpg", ".jpeg", ".png"})


class Tracklets(OfficialFiles):
    """People in folders. Subclasses set the pattern of ``<person>/<file>``, and which parts of it identify a tracklet."""

    pattern: ClassVar[re.Pattern[str]]
    tracklet: ClassVar[tuple[str, ...]]
    folders: ClassVar[dict[str, str]]

    def files(self, root: Path, split: str) -> ImageFiles:
        where = self.find(root, self.places[0])
        folder = self.find(where, (self.folders[split],))
        images = sorted(path for path in folder.glob("*/*") if path.suffix.lower() in _IMAGES and path.parent.name != _JUNK)
        if not images:
            raise InputError(f"There are no images of {self.name} in {str(folder)!r}. Unpack them there, a folder for each person.")
        parts = [self._parts(path) for path in images]
        groups = {name: torch.tensor([part[name] for part in parts], dtype=torch.int64) for name in self.pattern.groupindex}
        people, labels = np.unique([path.parent.name for path in images], return_inverse=True)
        files = ImageFiles(
            paths=tuple(map(str, images)),
            labels=torch.from_numpy(labels.astype(np.int64)),
            classes=tuple(map(str, people)),
            ids=tuple(str(path.relative_to(folder)) for path in images),
            groups={**groups, "tracklet": _numbered([groups[name] for name in self.tracklet])},
            name=repr(self),
        )
        return self.finish(files, where, split)

    def finish(self, files: ImageFiles, folder: Path, split: str) -> ImageFiles:
        """Add facts that are not in the file names."""
        raise NotImplementedError

    def _parts(self, path: Path) -> dict[str, int]:
        match = self.pattern.fullmatch(f"{path.parent.name}/{path.name}")
        if match is None:
            raise InputError(f"The file {str(path)!r} is not named like the images of {self.name}. Move it elsewhere.")
        return {name: int(text) for name, text in match.groupdict().items()}


def _numbered(columns: list[Tensor]) -> Tensor:
    """Number the distinct rows from 0, in sorted order."""
    rows = np.stack([column.numpy() for column in columns], axis=1)
    return torch.from_numpy(np.unique(rows, axis=0, return_inverse=True)[1].reshape(-1))


class MARS(Tracklets, name="mars"):
    """MARS: videos of people from six cameras. Frames of nobody ("00-1") are left out; "0000" are distractors.

    `groups` has "identity", "camera", "sequence", "frame" and "tracklet". If the official ``info`` folder is present, the test split
    has "query" too (1 for frames of query tracklets).

    Reference:
        Zheng et al. MARS: a video benchmark for large-scale person re-identification. ECCV 2016.
    """

    summary = "videos of 1,261 people from six cameras, as frames"
    size = "8,298 + 12,180 tracklets"
    licence = "for research"
    home = "https://zheng-lab.cecs.anu.edu.au/Project/project_mars.html"
    places = (("MARS", "mars"),)
    folders: ClassVar = {"train": "bbox_train", "test": "bbox_test"}
    image_size = (256, 128)
    pattern = re.compile(r"[^/]+/(?P<identity>\d+)C(?P<camera>\d)T(?P<sequence>\d+)F(?P<frame>\d+)\.jpg")
    tracklet = ("identity", "camera", "sequence")

    def finish(self, files: ImageFiles, folder: Path, split: str) -> ImageFiles:
        if split == "train" or not (folder / "info").is_dir():
            return files
        frames = _query_frames(folder / "info")
        query = torch.tensor([int(Path(path).name in frames) for path in files.paths])
        return replace(files, groups={**files.groups, "query": query})


def _query_frames(info: Path) -> set[str]:
    """The names of the frames that belong to query tracklets."""
    from scipy.io import loadmat  # type: ignore[import-untyped]

    frames = (info / "test_name.txt").read_text().split()
    tracklets = loadmat(info / "tracks_test_info.mat")["track_test_info"]
    queries = loadmat(info / "query_IDX.mat")["query_IDX"].ravel()
    spans = tracklets[queries.astype(np.int64) - 1, :2].astype(np.int64)  # Matlab counts from 1 and includes the end
    return {frame for first, last in spans for frame in frames[first - 1 : last]}


class PKUReid(Tracklets, name="pku_reid"):
    """PKU-Reid: people in eight orientations from two cameras; a tracklet is one person in front of one camera.

    `groups` has "identity", "camera", "orientation", "tracklet", "query" (1 for camera 1) and "gallery" (1 for camera 2).

    Reference:
        Ma et al. Orientation driven bag of appearances for person re-identification. 2016.
    """

    summary = "people in eight orientations from two cameras"
    size = "114 people, 16 images each"
    licence = "CC BY-NC-SA 4.0"
    home = "https://github.com/charliememory/PKU-Reid-Dataset"
    places = (("pku-reid", "PKU-Reid"),)
    folders: ClassVar = {"train": "train", "test": "test"}
    image_size = (128, 48)
    pattern = re.compile(r"(?P<identity>\d+)/(?P<camera>\d+)_(?P<orientation>\d+)\.png")
    tracklet = ("identity", "camera")

    def finish(self, files: ImageFiles, folder: Path, split: str) -> ImageFiles:
        query, gallery = ((files.groups["camera"] == camera).long() for camera in (1, 2))
        return replace(files, true_labels=files.labels.clone(), groups={**files.groups, "query": query, "gallery": gallery})
