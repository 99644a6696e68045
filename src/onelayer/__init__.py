"""onelayer: a function, a box and an epsilon in; a one-layer Transformer with a proof out.

Public names are loaded on first use, so that ``import onelayer`` costs nothing and a picture library is imported only
for a picture.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from onelayer.lazy import public

__version__ = "0.1.0"

if TYPE_CHECKING:
    from onelayer.box import Box
    from onelayer.build.memorize import memorize
    from onelayer.build.sequences.gather import gather
    from onelayer.build.sequences.superpose import superpose
    from onelayer.build.sort import sort
    from onelayer.checker.check import check
    from onelayer.conductor import approximate
    from onelayer.errors import OnelayerError
    from onelayer.layer.transformer import OneLayerTransformer
    from onelayer.pictures.drawing import draw
    from onelayer.pictures.explanation import explain
    from onelayer.proof.certificate import Certificate
    from onelayer.proof.certify import certify
    from onelayer.proof.claims import bound, convex, equivalent, gradient_error, lipschitz, monotone, prove
    from onelayer.proof.saved import Claimed, load_claim
    from onelayer.recording.blackbox import BlackBox
    from onelayer.recording.table import Table
    from onelayer.result import Approximation, load
    from onelayer.training.distill import distill
    from onelayer.training.estimators.estimator import OneLayerClassifier, OneLayerRegressor
    from onelayer.training.recipe import Recipe
    from onelayer.training.train import train

_HOMES = {
    "Approximation": "result",
    "BlackBox": "recording.blackbox",
    "Box": "box",
    "Certificate": "proof.certificate",
    "Claimed": "proof.saved",
    "OneLayerClassifier": "training.estimators.estimator",
    "OneLayerRegressor": "training.estimators.estimator",
    "OneLayerTransformer": "layer.transformer",
    "OnelayerError": "errors",
    "Recipe": "training.recipe",
    "Table": "recording.table",
    "approximate": "conductor",
    "bound": "proof.claims",
    "certify": "proof.certify",
    "check": "checker.check",
    "convex": "proof.claims",
    "distill": "training.distill",
    "equivalent": "proof.claims",
    "draw": "pictures.drawing",
    "explain": "pictures.explanation",
    "gather": "build.sequences.gather",
    "gradient_error": "proof.claims",
    "lipschitz": "proof.claims",
    "load": "result",
    "load_claim": "proof.saved",
    "memorize": "build.memorize",
    "monotone": "proof.claims",
    "prove": "proof.claims",
    "sort": "build.sort",
    "superpose": "build.sequences.superpose",
    "train": "training.train",
}

__all__ = [
    "Approximation",
    "BlackBox",
    "Box",
    "Certificate",
    "Claimed",
    "OneLayerClassifier",
    "OneLayerRegressor",
    "OneLayerTransformer",
    "OnelayerError",
    "Recipe",
    "Table",
    "__version__",
    "approximate",
    "bound",
    "certify",
    "check",
    "convex",
    "distill",
    "draw",
    "equivalent",
    "explain",
    "gather",
    "gradient_error",
    "lipschitz",
    "load",
    "load_claim",
    "memorize",
    "monotone",
    "prove",
    "sort",
    "superpose",
    "train",
]


# Rooms that users reach as ol.export.to_onnx, ol.pictures.draw_attention and so on.
_ROOMS = ("export", "pictures", "zoo")

__getattr__, __dir__ = public(__name__, _HOMES, _ROOMS)
