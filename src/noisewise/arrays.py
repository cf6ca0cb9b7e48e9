"""What arrays are called in signatures, by what they hold, and the number that stands among labels for no class."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Whole = NDArray[np.int64]
Flags = NDArray[np.bool_]

NO_CLASS = -1
"""The true label of an example that is of no class: a noise replaced its input."""
