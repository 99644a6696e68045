"""scikit-learn: a one-layer Transformer as a regressor, in a grid search, and out again as ONNX.

Expected output: export_sklearn.out
"""

from __future__ import annotations

import tempfile
from pathlib import Path

from sklearn.datasets import make_friedman1
from sklearn.model_selection import GridSearchCV, train_test_split

from onelayer.export.onnx import to_onnx
from onelayer.training.estimators.estimator import OneLayerRegressor


def main() -> None:
    x, y = make_friedman1(400, 10, noise=1.0, random_state=0)
    x_train, x_test, y_train, y_test = train_test_split(x, y, random_state=0)
    model = OneLayerRegressor(random_state=0, cv=3).fit(x_train, y_train)
    print(f"R^2 on held-out rows above 0.9: {model.score(x_test, y_test) > 0.9}")
    print(f"pair heads: {model.design_.pairs}, tokens per feature: {model.design_.axis_tokens}")
    pair = next(head for head in model.model_.config.heads if len(head.tokens) == 2)
    print("a pair head looks up a grid of", pair.tokens)

    grid = {"pairs": [0, 1]}
    search = GridSearchCV(OneLayerRegressor(axis_tokens=6, memory_tokens=0, cv=2, random_state=0), grid, cv=2)
    print("grid search prefers", search.fit(x_train, y_train).best_params_)
    with tempfile.TemporaryDirectory() as folder:
        path = to_onnx(model.model_, Path(folder) / "model.onnx")
        print("ONNX file under 100 kB:", path.stat().st_size < 100_000)


if __name__ == "__main__":
    main()
