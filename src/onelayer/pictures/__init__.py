"""Pictures and words: f, T and the proved error drawn; attention at one input; heads, tokens and units explained."""

from __future__ import annotations

from typing import TYPE_CHECKING

from onelayer.lazy import public

if TYPE_CHECKING:
    from onelayer.pictures.boxes import boxes_figure
    from onelayer.pictures.drawing import draw, draw_boxes, picture
    from onelayer.pictures.explanation import Explanation, explain
    from onelayer.pictures.panels import attention_figure, draw_attention
    from onelayer.pictures.rate import Rate, draw_rate, fit_rate, rate_figure
    from onelayer.pictures.scene import Scene
    from onelayer.pictures.style import save

__all__ = [
    "Explanation",
    "Rate",
    "Scene",
    "attention_figure",
    "boxes_figure",
    "draw",
    "draw_attention",
    "draw_boxes",
    "draw_rate",
    "explain",
    "fit_rate",
    "picture",
    "rate_figure",
    "save",
]

__getattr__, __dir__ = public(
    __name__,
    {
        "Explanation": "pictures.explanation",
        "Rate": "pictures.rate",
        "Scene": "pictures.scene",
        "attention_figure": "pictures.panels",
        "boxes_figure": "pictures.boxes",
        "draw": "pictures.drawing",
        "draw_attention": "pictures.panels",
        "draw_boxes": "pictures.drawing",
        "draw_rate": "pictures.rate",
        "explain": "pictures.explanation",
        "fit_rate": "pictures.rate",
        "picture": "pictures.drawing",
        "rate_figure": "pictures.rate",
        "save": "pictures.style",
    },
)
