"""The papers' networks, in torch alone.

``get("resnet20", num_classes=10)`` builds one, `available()` lists them, `load_weights` fills one from a local file. Images go
in as floating point, already normalised: that is the data package's work.
"""

from noisewise.models._base import Classifier, FeatureClassifier, ImageClassifier, available, get, registry
from noisewise.models._inception import BNInception, GoogLeNet
from noisewise.models._meta import unfilled
from noisewise.models._mlp import MLP, Linear
from noisewise.models._plain import CNN4, CNN8
from noisewise.models._resnet import ResNet18, ResNet20, ResNet32, ResNet34, ResNet44, ResNet50, ResNet56, ResNet110
from noisewise.models._weights import load_weights

__all__ = [
    "CNN4",
    "CNN8",
    "MLP",
    "BNInception",
    "Classifier",
    "FeatureClassifier",
    "GoogLeNet",
    "ImageClassifier",
    "Linear",
    "ResNet18",
    "ResNet20",
    "ResNet32",
    "ResNet34",
    "ResNet44",
    "ResNet50",
    "ResNet56",
    "ResNet110",
    "available",
    "get",
    "load_weights",
    "registry",
    "unfilled",
]
