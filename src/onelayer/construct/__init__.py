"""Constructions: the weights of a layer from a function or a table, without training."""

from onelayer.construct.approximate import approximate
from onelayer.construct.gather import gather
from onelayer.construct.memorize import labels, memorize, recall
from onelayer.construct.sort import maximum, median, minimum, order_statistic, sort, top_k_sum
from onelayer.construct.superpose import superpose
from onelayer.construct.tables.table import read_table

__all__ = [
    "approximate",
    "gather",
    "labels",
    "maximum",
    "median",
    "memorize",
    "minimum",
    "order_statistic",
    "read_table",
    "recall",
    "sort",
    "superpose",
    "top_k_sum",
]
