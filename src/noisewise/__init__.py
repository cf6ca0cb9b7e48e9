"""noisewise: train classifiers on labels you cannot fully trust.

>>> import noisewise
>>> loss = noisewise.get("imae(T=8)")  # a drop-in for torch.nn.CrossEntropyLoss
>>> loss(torch.randn(8, 10), torch.randint(10, (8,))).shape
torch.Size([])
"""

from noisewise import _startup  # noqa: F401  # isort: skip  (first: loading the others takes seconds)
from noisewise import (
    audit,
    correct,
    curriculum,
    data,
    draw,
    dynamics,
    kernels,
    losses,
    models,
    noise,
    papers,
    report,
    reproduce,
    retrieval,
    train,
    transition,
)
from noisewise.errors import InputError
from noisewise.extensions import provide
from noisewise.kernels import linear_loss
from noisewise.losses import get
from noisewise.margin import emphasis, margin, margins
from noisewise.noise import corrupt
from noisewise.train import Recorder, Run, compare, fit

__version__ = "0.1.0"

provide(
    {
        "audit": "noisewise.audit:audit",
        "optimisers": "noisewise.train:optimisers",
        "report": "noisewise.report:report",
        "schedules": "noisewise.train:schedules",
        "settings": "noisewise.train:Settings",
    }
)

__all__ = [
    "InputError",
    "Recorder",
    "Run",
    "audit",
    "compare",
    "correct",
    "corrupt",
    "curriculum",
    "data",
    "draw",
    "dynamics",
    "emphasis",
    "fit",
    "get",
    "kernels",
    "linear_loss",
    "losses",
    "margin",
    "margins",
    "models",
    "noise",
    "papers",
    "report",
    "reproduce",
    "retrieval",
    "train",
    "transition",
]
