"""noisewise: train classifiers on labels you cannot fully trust.

>>> import noisewise
>>> loss = noisewise.get("imae(T=8)")  # a drop-in for torch.nn.CrossEntropyLoss
>>> loss(torch.randn(8, 10), torch.randint(10, (8,))).shape
torch.Size([])
"""

from noisewise import curriculum, data, dynamics, losses, models, noise, train, transition
from noisewise.errors import InputError
from noisewise.losses import get
from noisewise.margin import emphasis, margin, margins
from noisewise.noise import corrupt
from noisewise.train import Run, compare, fit

__version__ = "0.1.0"

__all__ = [
    "InputError",
    "Run",
    "compare",
    "corrupt",
    "curriculum",
    "data",
    "dynamics",
    "emphasis",
    "fit",
    "get",
    "losses",
    "margin",
    "margins",
    "models",
    "noise",
    "train",
    "transition",
]
