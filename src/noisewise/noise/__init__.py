"""Named label noises, and `corrupt`, which applies them: ``corrupt(labels, "symmetric(0.4)")``.

Every module in this folder is imported, so that a new file registers the noises it defines.
"""

from typing import TYPE_CHECKING, Any

from noisewise.noise._corrupt import Corruption, corrupt, matrix_of
from noisewise.noise._rule import CircularNoise, ClassNoise, DirectedNoise, Examples, Flipping, Noise, Sum, registry
from noisewise.noise._stream import Stream
from noisewise.noise.by_class import CLASS_MAPS
from noisewise.noise.by_superclass import CIFAR100_SUPERCLASSES
from noisewise.spec import discover

__all__ = [
    "CIFAR100_SUPERCLASSES",
    "CLASS_MAPS",
    "CircularNoise",
    "ClassNoise",
    "Corruption",
    "DirectedNoise",
    "Examples",
    "Flipping",
    "Noise",
    "Stream",
    "Sum",
    "corrupt",
    "matrix_of",
    "registry",
]

_noises = discover(__name__, __path__, Noise)
globals().update(_noises)
__all__ += list(_noises)

if TYPE_CHECKING:  # type checkers do not see the classes that are discovered at run time

    def __getattr__(name: str) -> Any: ...
