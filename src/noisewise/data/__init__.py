"""Data: official data sets, your own data, batches, and augmentation on the device.

`read` turns any source into a `Dataset`; `batches` iterates over it. A new file in this folder that defines an official data set is
imported and registered automatically.
"""

from noisewise.data._arrays import as_inputs, as_tensor, from_arrays
from noisewise.data._augment import Augmentation, Normalise
from noisewise.data._augment import registry as augmentations
from noisewise.data._catalogue import Description, available, describe, fetch
from noisewise.data._column import Column, SimilarLabels, encode
from noisewise.data._dataset import Dataset, digest, digest_of, match_dtype
from noisewise.data._embed import EmbeddingCache, NamedEmbedder, VectorFile, as_embedder, embed_new
from noisewise.data._encoding import EncodedColumn, Encoding, UnreadCells
from noisewise.data._files import ImageFiles, Unreadable
from noisewise.data._folder import from_folder, images_below
from noisewise.data._hf import from_hf
from noisewise.data._loader import from_loader
from noisewise.data._official import Official, OfficialFiles, files, load, registry
from noisewise.data._preview import features, picture
from noisewise.data._read import READ_OPTIONS, is_official, read
from noisewise.data._split import split
from noisewise.data._store import progress_bars, silent
from noisewise.data._stream import Batch, Stream, batches, cut, number_of_batches, order, smallest_part
from noisewise.data._table import from_table, has_named_columns, is_frame, is_table, read_columns, read_features, read_ids, read_rows
from noisewise.data._vectors import is_vectors, read_vectors
from noisewise.spec import discover

__all__ = [
    "READ_OPTIONS",
    "Augmentation",
    "Batch",
    "Column",
    "Dataset",
    "Description",
    "EmbeddingCache",
    "EncodedColumn",
    "Encoding",
    "ImageFiles",
    "NamedEmbedder",
    "Normalise",
    "Official",
    "OfficialFiles",
    "SimilarLabels",
    "Stream",
    "UnreadCells",
    "Unreadable",
    "VectorFile",
    "as_embedder",
    "as_inputs",
    "as_tensor",
    "augmentations",
    "available",
    "batches",
    "cut",
    "describe",
    "digest",
    "digest_of",
    "embed_new",
    "encode",
    "features",
    "fetch",
    "files",
    "from_arrays",
    "from_folder",
    "from_hf",
    "from_loader",
    "from_table",
    "has_named_columns",
    "images_below",
    "is_frame",
    "is_official",
    "is_table",
    "is_vectors",
    "load",
    "match_dtype",
    "number_of_batches",
    "order",
    "picture",
    "progress_bars",
    "read",
    "read_columns",
    "read_features",
    "read_ids",
    "read_rows",
    "read_vectors",
    "registry",
    "silent",
    "smallest_part",
    "split",
]

discover(__name__, __path__, Official)
