"""noisewise: train classifiers on labels you cannot fully trust."""

__version__ = "0.1.0"
