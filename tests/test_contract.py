"""Every attention kind, norm, residual and format through every door: certify, check, save and load, ONNX, picture.

What a door does not hold ends in one line, which is written here beside the combination that it refuses.
"""

from __future__ import annotations

from itertools import product

from onelayer.box import Box
from onelayer.formats import FORMATS
from onelayer.layer.config import ATTENTIONS, FEATURES, NORMS

BOX = Box([-0.3], [0.5])
KINDS = [kind for kind in ATTENTIONS if kind != "linear"] + [f"linear {feature}" for feature in FEATURES]
CASES = list(product(KINDS, NORMS, (False, True), [row.name for row in FORMATS]))
