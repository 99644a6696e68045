"""Constructions: the weights of a layer from a function or a table, without training."""
