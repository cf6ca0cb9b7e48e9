"""The papers' networks, in torch alone. A new file in this folder is imported and registered by itself.

``get("resnet20", num_classes=10)`` builds a model, `available()` lists them, `load_weights` reads weights from a local file. Images
must be floating point and normalised, which the data package does.
"""

from typing import TYPE_CHECKING, Any

from noisewise.models._base import Classifier, FeatureClassifier, ImageClassifier, available, get, registry
from noisewise.models._meta import with_weights, without_weights
from noisewise.models._weights import load_weights
from noisewise.spec import discover

__all__ = [
    "Classifier",
    "FeatureClassifier",
    "ImageClassifier",
    "available",
    "get",
    "load_weights",
    "registry",
    "with_weights",
    "without_weights",
]

_models = discover(__name__, __path__, Classifier)
globals().update(_models)
__all__ += list(_models)

if TYPE_CHECKING:  # type checkers do not see the classes that are found at run time

    def __getattr__(name: str) -> Any: ...
