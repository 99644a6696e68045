"""Training and distillation: one-layer Transformers by gradient descent, and deep stacks to compare with."""

from onelayer.train.distill import Distilled, distill, distill_tokens
from onelayer.train.door import train
from onelayer.train.encoder import SentenceEncoder, SentenceStudent
from onelayer.train.fidelity import Estimate, Fidelity, fidelity
from onelayer.train.recipe import Recipe
from onelayer.train.stack import Stack
from onelayer.train.start import fresh_layer
from onelayer.train.trained import Trained

__all__ = [
    "Distilled",
    "Estimate",
    "Fidelity",
    "Recipe",
    "SentenceEncoder",
    "SentenceStudent",
    "Stack",
    "Trained",
    "distill",
    "distill_tokens",
    "fidelity",
    "fresh_layer",
    "train",
]
