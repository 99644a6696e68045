"""onelayer: a function, a box and an epsilon in; a one-layer Transformer with a proof out."""

from onelayer.domain import Box

__version__ = "0.1.0"
__all__ = ["Box", "__version__"]
