"""Data: official sets, the user's own, batches of them, and augmentation on the device.

`read` takes whatever there is and gives a `Dataset`; `batches` goes over it.
"""

from noisewise.data._arrays import from_arrays
from noisewise.data._augment import Augmentation, Normalise
from noisewise.data._augment import registry as augmentations
from noisewise.data._catalogue import Description, available, describe, fetch, files, load
from noisewise.data._column import SimilarLabels
from noisewise.data._dataset import Dataset
from noisewise.data._files import ImageFiles, Unreadable
from noisewise.data._folder import from_folder
from noisewise.data._hf import from_hf
from noisewise.data._loader import from_loader
from noisewise.data._official import registry as data_sets
from noisewise.data._own import is_official, read
from noisewise.data._progress import progress_bars
from noisewise.data._split import split
from noisewise.data._stream import Batch, Stream, batches, order
from noisewise.data._table import from_table

__all__ = [
    "Augmentation",
    "Batch",
    "Dataset",
    "Description",
    "ImageFiles",
    "Normalise",
    "SimilarLabels",
    "Stream",
    "Unreadable",
    "augmentations",
    "available",
    "batches",
    "data_sets",
    "describe",
    "fetch",
    "files",
    "from_arrays",
    "from_folder",
    "from_hf",
    "from_loader",
    "from_table",
    "is_official",
    "load",
    "order",
    "progress_bars",
    "read",
    "split",
]
