"""Exports: a built layer in stock PyTorch, ONNX, Hugging Face, TransformerLens and scikit-learn; its weights explained.

Foreign libraries are imported when an export needs them; a missing one is named with the command that installs it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from onelayer.export.door import export
from onelayer.export.explain import Explanation, explain
from onelayer.export.extras import require
from onelayer.export.huggingface import to_huggingface
from onelayer.export.lens import to_lens
from onelayer.export.onnx import to_onnx
from onelayer.export.torch import to_torch

if TYPE_CHECKING:
    from onelayer.export.sklearn import OneLayerClassifier, OneLayerRegressor

__all__ = [
    "Explanation",
    "OneLayerClassifier",
    "OneLayerRegressor",
    "explain",
    "export",
    "to_huggingface",
    "to_lens",
    "to_onnx",
    "to_torch",
]


def __getattr__(name: str) -> Any:
    """The estimators, whose base classes are scikit-learn's, are loaded on first use."""
    if name not in ("OneLayerClassifier", "OneLayerRegressor"):
        raise AttributeError(f"module 'onelayer.export' has no attribute '{name}'")
    require("sklearn", "sklearn")
    from onelayer.export import sklearn

    return getattr(sklearn, name)
