"""What a module runs at a point: a recorded program must run the same.

torch.export runs a module on tensors without numbers, while torch says that it exports. Code may ask for either and go
another way than it goes on numbers; what is recorded is then another function, and no sample need show it. So both are
run at one point, as torch executes them, and are to be one expression of the point (expressed.py).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torch import Tensor

from onelayer.errors import OnelayerError
from onelayer.expressed import expression, expression_of_any


def need_same(module: Callable[[Any], Any], program: Callable[[Any], Any], point: Tensor) -> None:
    """Refuse a program that runs other operations than the module; ``point`` is a batch of one."""
    if expression_of_any(module, point) != expression(program, point):
        raise OnelayerError("the model runs other operations while it is recorded than it runs on numbers")
