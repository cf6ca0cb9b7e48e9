"""noisewise: train classifiers on labels you cannot fully trust.

>>> import noisewise
>>> loss = noisewise.get("imae(T=8)")  # a drop-in for torch.nn.CrossEntropyLoss
>>> loss(torch.randn(8, 10), torch.randint(10, (8,))).shape
torch.Size([])
"""

from noisewise import curriculum, losses
from noisewise.errors import InputError
from noisewise.losses import get
from noisewise.margin import emphasis, margin, margins

__version__ = "0.1.0"

__all__ = ["InputError", "curriculum", "emphasis", "get", "losses", "margin", "margins"]
