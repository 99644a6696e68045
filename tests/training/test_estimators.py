"""scikit-learn: the estimators pass the library's own checks and sit in its pipelines and searches."""

from __future__ import annotations

import numpy as np
import pytest
import torch

sklearn = pytest.importorskip("sklearn", reason="the extra sklearn is not installed")

from joblib import parallel_config  # noqa: E402
from sklearn.base import clone  # noqa: E402
from sklearn.datasets import load_diabetes, load_iris, make_friedman1  # noqa: E402
from sklearn.model_selection import GridSearchCV, cross_val_score, train_test_split  # noqa: E402
from sklearn.pipeline import make_pipeline  # noqa: E402
from sklearn.preprocessing import StandardScaler  # noqa: E402
from sklearn.utils.estimator_checks import check_estimator  # noqa: E402

from onelayer.errors import OnelayerError  # noqa: E402
from onelayer.export.onnx import to_onnx  # noqa: E402
from onelayer.pictures.explanation import explain  # noqa: E402
from onelayer.training.estimators.estimator import OneLayerClassifier, OneLayerRegressor  # noqa: E402
from onelayer.training.estimators.tabular import axis_keys, softmax  # noqa: E402

EQUIVALENCE = ("check_sample_weight_equivalence_on_dense_data", "check_sample_weight_equivalence_on_sparse_data")


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.SkipTestWarning")
@pytest.mark.parametrize(("estimator", "passed"), [(OneLayerRegressor(cv=3), 52), (OneLayerClassifier(cv=2), 54)])
def test_check_estimator(estimator, passed: int) -> None:
    """One check is skipped: the array API needs an environment variable.

    Folds and quantiles are drawn from rows, so a weight of two is not the same as a row twice.
    """
    weighted = dict.fromkeys(EQUIVALENCE, "folds are made of rows")
    results = check_estimator(estimator, on_fail=None, on_skip=None, expected_failed_checks=weighted)
    assert [result["check_name"] for result in results if result["status"] == "failed"] == []
    assert [result["check_name"] for result in results if result["status"] == "skipped"] == ["check_array_api_input"]
    assert sum(result["status"] == "passed" for result in results) >= passed


def test_regressor_finds_the_structure_of_friedman1() -> None:
    x, y = make_friedman1(400, 10, noise=1.0, random_state=1)
    x_train, x_test, y_train, y_test = train_test_split(x, y, random_state=0)
    model = OneLayerRegressor(random_state=0, cv=3).fit(x_train, y_train)
    assert model.score(x_test, y_test) > 0.9
    assert model.design_.pairs >= 1
    assert model.cv_results_[0]["design"] == model.design_
    assert model.cv_results_ == sorted(model.cv_results_, key=lambda row: row["error"])


def test_prediction_is_the_layer(tmp_path) -> None:
    x, y = load_diabetes(return_X_y=True)
    model = OneLayerRegressor(axis_tokens=6, pairs=1, memory_tokens=20, cv=3, random_state=0).fit(x, y)
    assert np.array_equal(model.predict(x), model.model_(torch.from_numpy(x))[:, 0].numpy())
    heads = model.model_.config.heads
    assert [head.memory for head in heads][-2:] == ["grid", "plain"]
    assert heads[-1].tokens == (20,)
    assert model.score(x, y) > 0.5
    onnxruntime = pytest.importorskip("onnxruntime")
    session = onnxruntime.InferenceSession(str(to_onnx(model.model_, tmp_path / "m.onnx")))
    assert np.abs(session.run(None, {"x": x})[0][:, 0] - model.predict(x)).max() < 1e-9


def test_several_outputs_and_repeatability() -> None:
    x, y = make_friedman1(120, 5, random_state=0)
    both = np.column_stack([y, x[:, 0]])
    model = OneLayerRegressor(cv=2, random_state=3).fit(x, both)
    assert model.predict(x).shape == (120, 2)
    assert np.array_equal(model.predict(x), clone(model).fit(x, both).predict(x))
    with parallel_config(backend="threading"):
        parallel = clone(model).set_params(n_jobs=2).fit(x, both)
    assert np.array_equal(model.predict(x), parallel.predict(x))


def test_pipeline_and_grid_search() -> None:
    x, y = load_diabetes(return_X_y=True)
    pipeline = make_pipeline(StandardScaler(), OneLayerRegressor(pairs=0, memory_tokens=0, cv=2, random_state=0))
    grid = {"onelayerregressor__axis_tokens": [0, 5], "onelayerregressor__alpha": [0.1, 10.0]}
    search = GridSearchCV(pipeline, grid, cv=2).fit(x[:200], y[:200])
    assert search.best_params_ in search.cv_results_["params"]
    assert search.score(x[200:], y[200:]) > 0.2


def test_classifier() -> None:
    x, y = load_iris(return_X_y=True)
    model = OneLayerClassifier(cv=3, random_state=0)
    assert cross_val_score(model, x, y, cv=3).mean() > 0.93
    names = np.array(["setosa", "versicolor", "virginica"])[y]
    model.fit(x, names)
    chances = model.predict_proba(x)
    assert np.allclose(chances.sum(1), 1)
    assert np.array_equal(model.classes_[chances.argmax(1)], model.predict(x))


@pytest.mark.parametrize("estimator", [OneLayerRegressor, OneLayerClassifier])
def test_training_goes_on_while_it_helps(estimator, capsys) -> None:
    """A fit with far too large a penalty leaves something to train."""
    x, y = make_friedman1(300, 5, noise=0.5, random_state=0)
    y = y if estimator is OneLayerRegressor else (y > np.median(y)).astype(int)
    fixed = {"axis_tokens": 5, "pairs": 0, "memory_tokens": 0, "alpha": 10.0, "cv": 2, "random_state": 0}
    built = estimator(**fixed).fit(x[:200], y[:200])
    trained = estimator(**fixed, train_steps=100, verbose=1).fit(x[:200], y[:200])
    assert built.train_steps_ == 0
    assert trained.train_steps_ > 0
    assert trained.score(x[200:], y[200:]) > built.score(x[200:], y[200:])
    captured = capsys.readouterr()
    assert "held-out loss" in captured.err
    assert captured.out == ""


def test_training_stops_before_it_harms() -> None:
    """Steps after the best one for held-out rows are not taken; an affine function leaves nothing to train at all."""
    x, y = make_friedman1(200, 5, noise=0.5, random_state=0)
    fixed = {"axis_tokens": 0, "pairs": 0, "memory_tokens": 30, "cv": 2, "random_state": 0}
    allowed = OneLayerRegressor(**fixed, train_steps=100).fit(x, y)
    assert allowed.train_steps_ < 100
    enough = OneLayerRegressor(**fixed, train_steps=allowed.train_steps_).fit(x, y)
    assert np.array_equal(allowed.predict(x), enough.predict(x))
    built, trained = (OneLayerRegressor(**fixed, train_steps=steps).fit(x, x @ np.arange(5)) for steps in (0, 30))
    assert trained.train_steps_ == 0
    assert np.array_equal(built.predict(x), trained.predict(x))


def test_bad_arguments_are_one_line() -> None:
    x, y = make_friedman1(30, 5, random_state=0)
    with pytest.raises(OnelayerError, match="axis_tokens must be 'auto' or a whole number"):
        OneLayerRegressor(axis_tokens=-1).fit(x, y)
    with pytest.raises(OnelayerError, match="alpha must be 'auto' or a number > 0"):
        OneLayerRegressor(alpha=0.0).fit(x, y)


def test_axis_tokens_share_the_axis_at_midpoints() -> None:
    values = np.random.default_rng(0).normal(size=500)
    slopes, biases = axis_keys(values, 6)
    centres = np.quantile(values, np.linspace(0, 1, 6))
    middles = (centres[1:] + centres[:-1]) / 2
    weights = softmax(middles[:, None] * slopes + biases)
    for m in range(5):
        assert weights[m, m] == pytest.approx(weights[m, m + 1])
        assert weights[m].argmax() in (m, m + 1)


def test_weights_decide_which_rows_count() -> None:
    x = np.linspace(0, 1, 80)[:, None]
    y = np.where(np.arange(80) % 2, 1.0, -1.0)
    odd = OneLayerRegressor(cv=2, random_state=0).fit(x, y, sample_weight=np.arange(80) % 2 * 1.0)
    assert np.abs(odd.predict(x) - 1).max() < 1e-6
    labels = (y > 0).astype(int)
    heavy = OneLayerClassifier(cv=2, random_state=0).fit(x, labels, sample_weight=np.where(labels, 9.0, 1.0))
    assert heavy.predict_proba(x)[:, 1].mean() == pytest.approx(0.9, abs=0.02)
    with pytest.raises(OnelayerError, match="sample_weight must be numbers >= 0"):
        OneLayerRegressor(cv=2).fit(x, y, sample_weight=-np.ones(80))


def test_spread_of_outcomes_is_what_was_held_out() -> None:
    x, y = make_friedman1(600, 5, noise=1.0, random_state=0)
    model = OneLayerRegressor(cv=3, random_state=0).fit(x[:400], y[:400])
    outcomes, spread = model.predict(x[400:], return_std=True)
    assert outcomes.shape == spread.shape == (200,)
    assert float(np.std(outcomes - y[400:])) == pytest.approx(float(spread[0]), rel=0.25)
    trained = OneLayerRegressor(
        cv=2, alpha=10.0, axis_tokens=5, pairs=0, memory_tokens=0, train_steps=50, random_state=0
    )
    if trained.fit(x, y).train_steps_:
        with pytest.raises(OnelayerError, match="train_steps=0"):
            trained.predict(x, return_std=True)


def test_categories_and_names(tmp_path) -> None:
    """Columns of texts become inputs of their own; explanations and exports take the estimator and know the names."""
    pandas = pytest.importorskip("pandas")
    rng = np.random.default_rng(0)
    table = pandas.DataFrame({"size": rng.uniform(20, 200, 150), "city": rng.choice(["Rome", "Oslo"], 150)})
    y = 0.1 * table["size"] + table["city"].map({"Rome": 5.0, "Oslo": 9.0})
    model = OneLayerRegressor(cv=2, random_state=0).fit(table, y)
    assert model.score(table, y) > 0.999
    assert model.box_.names == ("size", "city_Oslo", "city_Rome")
    assert "city_Oslo" in str(explain(model))
    unseen = pandas.DataFrame({"size": [100.0], "city": ["Lima"]})
    assert 10 < float(model.predict(unseen)[0]) < 25
    session = pytest.importorskip("onnxruntime").InferenceSession(str(to_onnx(model, tmp_path / "m.onnx")))
    seen = model.columns_.encoded(table)
    assert np.abs(session.run(None, {"x": seen})[0][:, 0] - model.predict(table)).max() < 1e-9
    places = OneLayerRegressor(cv=2, random_state=0, categorical_features=[1]).fit(table.to_numpy(object), y)
    assert np.allclose(places.predict(table.to_numpy(object)), model.predict(table))
    with pytest.raises(OnelayerError, match="categorical_features must be"):
        OneLayerRegressor(categorical_features=["street"]).fit(table, y)
