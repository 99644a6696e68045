"""Constructions: the weights of a layer from a function, without training."""

from onelayer.construct.approximate import approximate

__all__ = ["approximate"]
