"""Training: one-layer Transformers from functions and tables by gradient descent, and deep stacks to compare with."""

from onelayer.train.door import train
from onelayer.train.recipe import Recipe
from onelayer.train.stack import Stack
from onelayer.train.start import fresh_layer
from onelayer.train.trained import Trained

__all__ = ["Recipe", "Stack", "Trained", "fresh_layer", "train"]
