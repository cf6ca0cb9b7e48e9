"""Label noise with a name: rules that corrupt labels, and the one function that applies them.

``corrupt(labels, "symmetric(0.4)")`` returns the corrupted labels, which examples were changed, the transition matrix that was
asked for and the one that came out, and a digest of the result. Noise knows labels, and inputs as bare tensors. It must not know
data sets, where they come from, or how they are used.
"""

from noisewise.noise._by_class import CLASS_MAPS, ClassMap, Matrix, NoNoise, Pair, Symmetric, SymmetricInclusive
from noisewise.noise._by_example import Human, Instance, OpenSet
from noisewise.noise._by_superclass import (
    CIFAR100_SUPERCLASSES,
    SuperclassCircular,
    SuperclassCircularLegacy,
    SuperclassNoise,
    SuperclassSwap,
    SuperclassUniform,
)
from noisewise.noise._corrupt import Corruption, corrupt, matrix_of
from noisewise.noise._rule import ClassNoise, DirectedNoise, Examples, Flipping, Noise, Sum, registry
from noisewise.noise._stream import Stream

__all__ = [
    "CIFAR100_SUPERCLASSES",
    "CLASS_MAPS",
    "ClassMap",
    "ClassNoise",
    "Corruption",
    "DirectedNoise",
    "Examples",
    "Flipping",
    "Human",
    "Instance",
    "Matrix",
    "NoNoise",
    "Noise",
    "OpenSet",
    "Pair",
    "Stream",
    "Sum",
    "SuperclassCircular",
    "SuperclassCircularLegacy",
    "SuperclassNoise",
    "SuperclassSwap",
    "SuperclassUniform",
    "Symmetric",
    "SymmetricInclusive",
    "corrupt",
    "matrix_of",
    "registry",
]
