"""The layer: one-layer Transformers with memory, their files, and the paper's equations in NumPy."""

from onelayer.model.config import Config, HeadShape
from onelayer.model.files import load_model, save_model, weights_sha256
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
    "load_model",
    "lookup_model",
    "save_model",
    "weights_sha256",
]
