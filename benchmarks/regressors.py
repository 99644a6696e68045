"""OneLayerRegressor beside the regressors of scikit-learn on three tables that need no download.

    python benchmarks/regressors.py

Five-fold cross-validated R^2, the same folds for all. Peers run with their usual settings on standardised inputs; ours
chooses its own size inside every fold. Nothing is tuned on the outer folds.
"""

from __future__ import annotations

import time
import warnings
from typing import Any

import numpy as np
import report
from numpy.typing import NDArray
from sklearn.datasets import load_diabetes, make_friedman1
from sklearn.ensemble import HistGradientBoostingRegressor
from sklearn.exceptions import ConvergenceWarning
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process.kernels import RBF, ConstantKernel, WhiteKernel
from sklearn.linear_model import RidgeCV
from sklearn.model_selection import KFold, cross_val_score
from sklearn.neural_network import MLPRegressor
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from onelayer.training.estimators.estimator import OneLayerRegressor

Table = tuple[NDArray[np.float64], NDArray[np.float64]]


def houses(rows: int = 1200, seed: int = 0) -> Table:
    """House values in the manner of the California census: skewed incomes, a coast, two cities, a capped price."""
    rng = np.random.default_rng(seed)
    east, north = rng.uniform(0, 10, (2, rows))
    income = rng.lognormal(1.2, 0.45, rows)
    age, rooms = rng.uniform(1, 52, rows), rng.normal(5.4, 1.1, rows).clip(2)
    bedrooms, people, crowding = rng.normal(1.1, 0.1, rows), rng.lognormal(7, 0.6, rows), rng.lognormal(1, 0.25, rows)
    coast = np.exp(-(((east - 0.6 * north - 1) / 1.5) ** 2))
    cities = 1.5 * np.exp(-((east - 3) ** 2 + (north - 7) ** 2) / 2)
    cities += 2 * np.exp(-((east - 6) ** 2 + (north - 2.5) ** 2) / 1.5)
    value = 0.45 * income + 0.3 * coast * np.minimum(income, 6) + cities + 0.008 * age
    value += 0.1 * np.tanh(rooms - 5) - 0.25 * np.log(crowding) + rng.normal(0, 0.35, rows)
    return np.column_stack([income, age, rooms, bedrooms, people, crowding, north, east]), np.minimum(value, 6.5)


def tables() -> dict[str, Table]:
    return {
        "diabetes": load_diabetes(return_X_y=True),
        "friedman1": make_friedman1(500, 10, noise=1.0, random_state=0),
        "houses": houses(),
    }


def regressors(features: int) -> dict[str, Any]:
    kernel = ConstantKernel() * RBF(np.ones(features)) + WhiteKernel()
    return {
        "OneLayerRegressor": OneLayerRegressor(random_state=0),
        "GaussianProcess": make_pipeline(StandardScaler(), GaussianProcessRegressor(kernel, normalize_y=True)),
        "HistGradientBoosting": HistGradientBoostingRegressor(random_state=0),
        "MLPRegressor": make_pipeline(
            StandardScaler(), MLPRegressor(hidden_layer_sizes=(64, 64), max_iter=1000, random_state=0)
        ),
        "RidgeCV": make_pipeline(StandardScaler(), RidgeCV(np.logspace(-3, 3, 13))),
    }


def main() -> None:
    warnings.simplefilter("ignore", ConvergenceWarning)
    rows, wins = [], 0
    for name, (x, y) in tables().items():
        folds = KFold(5, shuffle=True, random_state=0)
        scores: dict[str, float] = {}
        for regressor, model in regressors(x.shape[1]).items():
            start = time.perf_counter()
            r2 = cross_val_score(model, x, y, cv=folds)
            scores[regressor] = float(r2.mean())
            seconds = (time.perf_counter() - start) / 5
            rows.append(
                {
                    "table": name,
                    "rows": len(x),
                    "features": x.shape[1],
                    "regressor": regressor,
                    "R2": round(scores[regressor], 4),
                    "spread over folds": round(float(r2.std()), 4),
                    "seconds per fit": round(seconds, 2),
                }
            )
            print(name, regressor, f"{scores[regressor]:.4f}", f"{seconds:.1f} s", flush=True)
        wins += max(scores, key=lambda key: scores[key]) == "OneLayerRegressor"
    report.write("regressors", rows, best_of_five_on=f"{wins} of 3 tables")


if __name__ == "__main__":
    main()
