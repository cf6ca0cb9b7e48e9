"""The random numbers of a noise, the same on every platform and independent of global state.

They are the 64-bit words of Philox4x64-10, whose key is the first 16 bytes (little-endian) of the SHA-256 of
``"seed/position/spec"``, where ``position`` counts the parts of a sum from 0 and ``spec`` is the part's repr. A word ``w`` is the
uniform number ``((w >> 12) + 0.5) / 2**52``, strictly between 0 and 1. The first part of a sum therefore gives the same result as alone.
"""

from __future__ import annotations

import hashlib
import math

import numpy as np
import torch

from noisewise.arrays import Floats


class Stream:
    """Uniform numbers strictly between 0 and 1, determined by a seed and a text.

    Example:
        >>> Stream(0, "0/symmetric(0.4)").uniform(2)
        array([0.72490025, 0.54844396])
    """

    def __init__(self, seed: int, text: str) -> None:
        key = hashlib.sha256(f"{seed}/{text}".encode()).digest()[:16]
        self._words = np.random.Philox(key=int.from_bytes(key, "little"))

    def uniform(self, *shape: int) -> Floats:
        words = self._words.random_raw(math.prod(shape))
        # 52 bits and a half: zero and one are never drawn, so rates of 0 and 1 are exact and every quantile is finite.
        return ((words >> np.uint64(12)).astype(np.float64) + 0.5).reshape(shape) * 2.0**-52

    def normal(self, *shape: int) -> Floats:
        return normal_quantile(self.uniform(*shape))


def normal_quantile(probability: Floats) -> Floats:
    return torch.special.ndtri(torch.from_numpy(probability)).numpy()  # type: ignore[no-any-return]
