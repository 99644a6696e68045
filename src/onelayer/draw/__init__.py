"""Pictures of a result: f, T and the proved error; attention at one input; boxes of the proof; tokens against error."""

from onelayer.draw.boxes import boxes_figure
from onelayer.draw.panels import attention_figure, draw_attention
from onelayer.draw.picture import draw, draw_boxes, picture
from onelayer.draw.rate import Rate, draw_rate, fit_rate, rate_figure
from onelayer.draw.scene import Scene
from onelayer.draw.style import save

__all__ = [
    "Rate",
    "Scene",
    "attention_figure",
    "boxes_figure",
    "draw",
    "draw_attention",
    "draw_boxes",
    "draw_rate",
    "fit_rate",
    "picture",
    "rate_figure",
    "save",
]
