"""The networks of the papers: ``get("resnet20", num_classes=10)`` builds one, `available()` lists them.

Inputs are floating point and normalised. Every module in this folder is imported, so that a new file registers its models.
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

if TYPE_CHECKING:  # type checkers do not see the classes that are discovered at run time

    def __getattr__(name: str) -> Any: ...
