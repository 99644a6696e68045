"""onelayer: a function, a box and an epsilon in; a one-layer Transformer with a proof out."""

__version__ = "0.1.0"

from onelayer.certify import Certificate, certify
from onelayer.certify.check import check
from onelayer.construct import approximate, memorize, sort
from onelayer.domain import Box
from onelayer.errors import OnelayerError
from onelayer.model import OneLayerTransformer
from onelayer.pictures.drawing import draw
from onelayer.result import Approximation, load
from onelayer.training.distill import distill
from onelayer.training.train import train

__all__ = [
    "Approximation",
    "Box",
    "Certificate",
    "OneLayerTransformer",
    "OnelayerError",
    "__version__",
    "approximate",
    "certify",
    "check",
    "distill",
    "draw",
    "load",
    "memorize",
    "sort",
    "train",
]
