"""The layer: one-layer Transformers with memory, their files, and the paper's equations in NumPy."""

from onelayer.model.config import Config, HeadShape
from onelayer.model.layer import OneLayerTransformer
from onelayer.model.lookup import Affine, AxisKeys, LookupHead, Ridges, lookup_model
from onelayer.model.memory import GridMemory, Memory, PlainMemory

__all__ = [
    "Affine",
    "AxisKeys",
    "Config",
    "GridMemory",
    "HeadShape",
    "LookupHead",
    "Memory",
    "OneLayerTransformer",
    "PlainMemory",
    "Ridges",
    "lookup_model",
]
