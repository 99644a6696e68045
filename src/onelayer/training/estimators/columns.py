"""Columns of a table as numbers: categories become one column of zeros and ones each, and every column has a name."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from sklearn.preprocessing import OneHotEncoder
from sklearn.utils.validation import check_array

from onelayer.box import Box
from onelayer.errors import OnelayerError
from onelayer.training.estimators.tabular import Array

AUTO = "auto"


@dataclass(frozen=True)
class Columns:
    """Which columns hold categories, how they are encoded, and what the encoded columns are called."""

    count: int
    categories: tuple[int, ...]
    encoder: OneHotEncoder | None
    names: tuple[str, ...]

    @classmethod
    def of(cls, X: Any, wanted: Any) -> Columns:
        """Read off a table: ``wanted`` is "auto" (a data frame's categories, texts and truth values) or columns."""
        numbered = [f"x{i + 1}" for i in range(np.shape(X)[1])]
        labels = [str(name) for name in getattr(X, "columns", numbered)]
        chosen = _chosen(X, wanted, labels)
        if not chosen:
            return cls(len(labels), (), None, tuple(labels))
        encoder = OneHotEncoder(handle_unknown="ignore", sparse_output=False).fit(_part(X, chosen))
        names = [labels[i] for i in range(len(labels)) if i not in chosen]
        for i, values in zip(chosen, encoder.categories_, strict=True):
            names += [f"{labels[i]}_{value}" for value in values]
        return cls(len(labels), tuple(chosen), encoder, tuple(names))

    def encoded(self, X: Any) -> Array:
        """(n, D'): the numbers as they are, then one column per category; a category never seen is all zeros."""
        others = [i for i in range(self.count) if i not in self.categories]
        parts = [check_array(_part(X, others), dtype=np.float64)] if others else []
        if self.encoder is not None:
            parts.append(self.encoder.transform(_part(X, self.categories)))
        return np.concatenate(parts, axis=1)

    def box(self, x: Array) -> Box:
        """The smallest box around encoded rows, with the names of its columns where they are good ones."""
        names = [re.sub(r"\W", "_", name) for name in self.names]
        try:
            return Box(x.min(0), x.max(0), names=names)
        except OnelayerError:  # a name twice, or one that begins with a digit
            return Box(x.min(0), x.max(0))


def _chosen(X: Any, wanted: Any, labels: Sequence[str]) -> list[int]:
    """Places of the columns whose entries are names, not numbers."""
    if wanted is None:
        return []
    if isinstance(wanted, str) and wanted == AUTO:
        return [at for at, kind in enumerate(getattr(X, "dtypes", [])) if _of_names(kind)]
    return sorted(_place(item, labels) for item in wanted)


def _of_names(kind: Any) -> bool:
    """Whether a column of this dtype holds objects, truth values, text or categories."""
    return getattr(kind, "kind", "O") in "ObSU" or str(kind) == "category"


def _place(item: Any, labels: Sequence[str]) -> int:
    if item in labels:
        return labels.index(item)
    if isinstance(item, int | np.integer) and 0 <= item < len(labels):
        return int(item)
    raise OnelayerError(f"categorical_features must be 'auto', None, or names or places of columns; got {item!r}")


def _part(X: Any, columns: Sequence[int]) -> Any:
    if hasattr(X, "iloc"):
        return X.iloc[:, list(columns)]
    return np.asarray(X, dtype=object)[:, list(columns)]
