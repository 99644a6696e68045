"""Exports: a built layer in stock PyTorch, ONNX, Hugging Face, TransformerLens and C, and its certificate in Coq.

Foreign libraries are imported when an export needs them; a missing one is named with the command that installs it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from onelayer.lazy import public

if TYPE_CHECKING:
    from onelayer.export.c import to_c
    from onelayer.export.coq import to_coq
    from onelayer.export.exporter import export
    from onelayer.export.huggingface import to_huggingface
    from onelayer.export.kernel import check_formally
    from onelayer.export.lens import to_lens
    from onelayer.export.onnx import to_onnx
    from onelayer.export.torch import to_torch

__all__ = ["check_formally", "export", "to_c", "to_coq", "to_huggingface", "to_lens", "to_onnx", "to_torch"]

__getattr__, __dir__ = public(
    __name__,
    {
        "check_formally": "export.kernel",
        "export": "export.exporter",
        "to_c": "export.c",
        "to_coq": "export.coq",
        "to_huggingface": "export.huggingface",
        "to_lens": "export.lens",
        "to_onnx": "export.onnx",
        "to_torch": "export.torch",
    },
)
