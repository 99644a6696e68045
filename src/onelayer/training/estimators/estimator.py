"""scikit-learn: OneLayerRegressor and OneLayerClassifier, one-layer Transformers fitted to tables."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch

from onelayer.extras import require

require("sklearn", "sklearn")

from sklearn.base import BaseEstimator, ClassifierMixin, MultiOutputMixin, RegressorMixin  # noqa: E402
from sklearn.model_selection import KFold, StratifiedKFold  # noqa: E402
from sklearn.utils.multiclass import check_classification_targets  # noqa: E402
from sklearn.utils.validation import check_is_fitted, check_random_state, validate_data  # noqa: E402

from onelayer.errors import OnelayerError  # noqa: E402
from onelayer.training.estimators.logistic import choose_alpha, fit_logistic  # noqa: E402
from onelayer.training.estimators.polish import FEW_ROWS, polish  # noqa: E402
from onelayer.training.estimators.regression import ALPHAS, Builder, Design, TableFit, cross_validate, grow  # noqa: E402
from onelayer.training.estimators.tabular import Array  # noqa: E402

AUTO = "auto"


class _OneLayer(BaseEstimator):  # type: ignore[misc]
    """What both estimators share: the choice of a design by cross-validation."""

    def __init__(
        self,
        axis_tokens: int | str = AUTO,
        pairs: int | str = AUTO,
        memory_tokens: int | str = AUTO,
        alpha: float | str = AUTO,
        cv: int = 5,
        train_steps: int = 0,
        n_jobs: int | None = None,
        random_state: int | np.random.RandomState | None = None,
        verbose: int = 0,
    ) -> None:
        self.axis_tokens = axis_tokens
        self.pairs = pairs
        self.memory_tokens = memory_tokens
        self.alpha = alpha
        self.cv = cv
        self.train_steps = train_steps
        self.n_jobs = n_jobs
        self.random_state = random_state
        self.verbose = verbose

    def _choose(self, x: Array, y: Array, folds: Sequence[tuple[Any, Any]], seed: int) -> None:
        """Sets design_, alpha_ and cv_results_, a list of dicts with the held-out squared error of every design."""
        scores: dict[Design, Array] = {}

        def score(designs: Sequence[Design]) -> Array:
            if self.verbose:
                print(f"[onelayer] cross-validating {len(designs)} designs on {len(folds)} folds", file=sys.stderr)
            errors = cross_validate(x, y, designs, folds, seed, self.n_jobs)
            if self.alpha != AUTO:
                errors = errors[:, [int(np.abs(np.log(np.array(ALPHAS) / self.alpha)).argmin())]]
            scores.update(zip(designs, errors, strict=True))
            return errors

        self._check_alpha()
        designs = grow(score, len(x), self._fixed())
        self.design_ = designs[0]
        self.alpha_ = ALPHAS[int(scores[self.design_].argmin())] if self.alpha == AUTO else float(self.alpha)
        self.cv_results_ = [{"design": design, "error": float(scores[design].min())} for design in designs]

    def _fixed(self) -> dict[str, int]:
        """What the user decided of a design, checked; the rest is chosen."""
        fixed = {name: getattr(self, name) for name in ("axis_tokens", "pairs", "memory_tokens")}
        fixed = {name: value for name, value in fixed.items() if value != AUTO}
        for name, value in fixed.items():
            if not (isinstance(value, int | np.integer) and value >= 0):
                raise OnelayerError(f"{name} must be 'auto' or a whole number >= 0, got {value!r}")
        return {name: int(value) for name, value in fixed.items()}

    def _check_alpha(self) -> None:
        if self.alpha != AUTO and not (isinstance(self.alpha, int | float) and self.alpha > 0):
            raise OnelayerError(f"alpha must be 'auto' or a number > 0, got {self.alpha!r}")

    def _seed(self) -> int:
        return int(check_random_state(self.random_state).randint(2**31 - 1))

    def _trained(
        self, make: Callable[[Array, Array], TableFit], x: Array, y: Array, seed: int, *, classes: bool
    ) -> None:
        """Sets model_ and train_steps_: trained on all rows for as long as it helped the last tenth of them.

        To find out how long that is, a layer is built and trained on the other rows alone.
        """
        self.train_steps_ = 0
        if self.train_steps and len(x) >= FEW_ROWS:
            order = np.random.default_rng(seed).permutation(len(x))
            held, rest = order[: len(x) // 10], order[len(x) // 10 :]
            trial = make(x[rest], y[rest]).model()
            options = {"classes": classes, "verbose": bool(self.verbose)}
            self.train_steps_ = polish(trial, x[rest], y[rest], self.train_steps, held=(x[held], y[held]), **options)
        self.model_ = make(x, y).model()
        if self.train_steps_:
            polish(self.model_, x, y, self.train_steps_, classes=classes)
        self.model_.requires_grad_(False)

    def _outputs(self, X: Any) -> Array:
        check_is_fitted(self)
        x = validate_data(self, X, reset=False, dtype=np.float64)
        with torch.no_grad():
            outputs: Array = self.model_(torch.tensor(x)).numpy()
        return outputs


class OneLayerRegressor(MultiOutputMixin, RegressorMixin, _OneLayer):  # type: ignore[misc]
    """Regression by one Transformer layer over memory tokens; ``model_`` is a OneLayerTransformer and can be exported.

    Heads over single features, over pairs of features and over rows of the table; values by ridge regression with a
    penalty on curvature. What is "auto" is chosen by cross-validation.

    axis_tokens     tokens per feature
    pairs           heads over pairs of features, the most useful ones
    memory_tokens   rows of the table kept as scattered tokens, in a learned metric
    alpha           weight of the penalty
    train_steps     at most so many steps of Adam on all weights afterwards, as many as help held-out rows
    """

    def fit(self, X: Any, y: Any) -> OneLayerRegressor:
        """Choose a design by cross-validation, then fit it to all rows."""
        x, y = validate_data(self, X, y, dtype=np.float64, y_numeric=True, multi_output=True, ensure_min_samples=2)
        table = np.asarray(y, dtype=np.float64).reshape(len(x), -1)
        self._single = np.ndim(y) == 1
        seed = self._seed()
        mean, scale = table.mean(0), np.where(table.std(0) > 0, table.std(0), 1.0)
        folds = KFold(min(self.cv, len(x)), shuffle=True, random_state=seed).split(x)
        scaled = (table - mean) / scale
        self._choose(x, scaled, list(folds), seed)

        def make(rows: Array, outputs: Array) -> TableFit:
            return Builder(rows, outputs, seed).fit(self.design_, self.alpha_)

        self._trained(make, x, scaled, seed, classes=False)
        back = torch.tensor(scale)
        own = self.model_.own
        weights = {"W_R": own("W_R") * back, "b_R": own("b_R") * back + torch.tensor(mean)}
        self.model_.set_weights(weights)
        return self

    def predict(self, X: Any) -> Array:
        """Predictions, in the shape that y had."""
        outputs = self._outputs(X)
        return outputs[:, 0] if self._single else outputs


class OneLayerClassifier(ClassifierMixin, _OneLayer):  # type: ignore[misc]
    """Classification by one Transformer layer; its outputs are logits, fitted by penalised logistic regression.

    The design is chosen by cross-validated squared error on indicator columns, the penalty of the logistic fit by
    cross-validated log loss. Arguments as in OneLayerRegressor.
    """

    def fit(self, X: Any, y: Any) -> OneLayerClassifier:
        """Choose a design by cross-validation, then fit its logits to all rows."""
        x, y = validate_data(self, X, y, dtype=np.float64, ensure_min_samples=2)
        check_classification_targets(y)
        self.classes_, labels = np.unique(y, return_inverse=True)
        if len(self.classes_) < 2:
            raise ValueError("a classifier needs at least two classes; the data hold one class")
        seed = self._seed()
        indicator = np.eye(len(self.classes_))[labels]
        folds = self._folds(x, labels, seed)
        self._choose(x, indicator, folds, seed)
        self.alpha_ = self._logistic_alpha(x, indicator, folds, seed) if self.alpha == AUTO else float(self.alpha)

        def make(rows: Array, outputs: Array) -> TableFit:
            basis = Builder(rows, outputs, seed).basis(self.design_)
            return TableFit(basis, *fit_logistic(basis.features(rows), outputs, basis.root(), self.alpha_))

        self._trained(make, x, indicator, seed, classes=True)
        return self

    def _logistic_alpha(self, x: Array, indicator: Array, folds: Sequence[tuple[Any, Any]], seed: int) -> float:
        basis = Builder(x, indicator, seed).basis(self.design_)
        return choose_alpha(basis.features(x), indicator, basis.root(), folds)

    def _folds(self, x: Array, labels: Any, seed: int) -> list[tuple[Any, Any]]:
        smallest = int(np.bincount(labels).min())
        splitter = StratifiedKFold if smallest >= 2 else KFold
        count = min(self.cv, smallest if smallest >= 2 else len(x))
        return list(splitter(count, shuffle=True, random_state=seed).split(x, labels))

    def decision_function(self, X: Any) -> Array:
        """Logits (n, classes), or the difference of the two for two classes."""
        outputs = self._outputs(X)
        return outputs[:, 1] - outputs[:, 0] if len(self.classes_) == 2 else outputs

    def predict_proba(self, X: Any) -> Array:
        """Probabilities of the classes."""
        logits = self._outputs(X)
        powers = np.exp(logits - logits.max(1, keepdims=True))
        return np.asarray(powers / powers.sum(1, keepdims=True))

    def predict(self, X: Any) -> Any:
        """The most probable class."""
        best = self._outputs(X).argmax(1)
        return self.classes_[best]
