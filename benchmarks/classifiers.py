"""OneLayerClassifier beside logistic regression, and the regressor on a large table: accuracy and CPU seconds, one run.

    python benchmarks/classifiers.py

Five stratified folds, the same for both; logistic regression on standardised inputs with scikit-learn's settings.
"""

from __future__ import annotations

import time
from typing import Any

import numpy as np
from sklearn.datasets import load_breast_cancer, load_digits, load_wine, make_friedman1
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import StratifiedKFold
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from onelayer.training.estimators.estimator import OneLayerClassifier, OneLayerRegressor

TABLES = {"wine": load_wine, "breast cancer": load_breast_cancer, "digits": load_digits}


def classifiers() -> dict[str, Any]:
    usual = make_pipeline(StandardScaler(), LogisticRegression(max_iter=5000))
    return {"OneLayerClassifier": OneLayerClassifier(random_state=0), "LogisticRegression": usual}


def measured(model: Any, x: Any, y: Any) -> tuple[float, float]:
    """Mean accuracy on held-out rows, and CPU seconds per fold."""
    folds = list(StratifiedKFold(5, shuffle=True, random_state=0).split(x, y))
    started = time.process_time()
    scores = [model.fit(x[train], y[train]).score(x[test], y[test]) for train, test in folds]
    return float(np.mean(scores)), (time.process_time() - started) / len(folds)


def main() -> None:
    print(f"{'table':<14} {'model':<20} {'accuracy':>9} {'CPU s per fold':>15}")
    for table, load in TABLES.items():
        x, y = load(return_X_y=True)
        for name, model in classifiers().items():
            accuracy, seconds = measured(model, x, y)
            print(f"{table:<14} {name:<20} {accuracy:>9.4f} {seconds:>15.2f}")
    x, y = make_friedman1(10_000, 5, noise=1.0, random_state=0)
    started = time.process_time()
    OneLayerRegressor(random_state=0).fit(x, y)
    print(f"OneLayerRegressor on 10,000 x 5: {time.process_time() - started:.1f} CPU s")


if __name__ == "__main__":
    main()
