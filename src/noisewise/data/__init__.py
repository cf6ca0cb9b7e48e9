"""Data: official data sets, your own data, batches, and augmentation on the device.

`read` turns any source into a `Dataset`; `batches` iterates over it. A new file in this folder that defines an official data set is
imported and registered by itself.
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
from noisewise.data._official import Official, OfficialFiles, registry
from noisewise.data._own import read
from noisewise.data._progress import progress_bars
from noisewise.data._split import split
from noisewise.data._stream import Batch, Stream, batches, order
from noisewise.data._table import from_table
from noisewise.spec import discover

__all__ = [
    "Augmentation",
    "Batch",
    "Dataset",
    "Description",
    "ImageFiles",
    "Normalise",
    "Official",
    "OfficialFiles",
    "SimilarLabels",
    "Stream",
    "Unreadable",
    "augmentations",
    "available",
    "batches",
    "describe",
    "fetch",
    "files",
    "from_arrays",
    "from_folder",
    "from_hf",
    "from_loader",
    "from_table",
    "load",
    "order",
    "progress_bars",
    "read",
    "registry",
    "split",
]

discover(__name__, __path__, Official)
