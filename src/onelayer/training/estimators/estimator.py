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
from sklearn.utils.validation import (  # noqa: E402
    _check_sample_weight,
    check_consistent_length,
    check_is_fitted,
    check_random_state,
    validate_data,
)

from onelayer.errors import OnelayerError  # noqa: E402
from onelayer.training.estimators.columns import Columns  # noqa: E402
from onelayer.training.estimators.logistic import SHARES, fit_logistic, held_out_losses  # noqa: E402
from onelayer.training.estimators.polish import FEW_ROWS, polish  # noqa: E402
from onelayer.training.estimators.regression import (  # noqa: E402
    ALPHAS,
    MOST_COMPARED,
    Builder,
    Design,
    TableFit,
    cross_validate,
    grow,
)
from onelayer.training.estimators.tabular import Array  # noqa: E402

AUTO = "auto"
SLOPES = 1.0  # penalty of affine logits beside that of tokens: as in logistic regression
# Share of the loss of plain logistic regression below which anything else is taken: differences of a few hundredths are
# noise on small tables, and pairs and metrics were chosen with the held-out rows in sight.
EARNED, EARNED_ON_FEW = 0.95, 0.6
MANY_ROWS = 600  # from which rows are tried as tokens, and differences are less noisy
FOLDS = 3  # on which designs of a classifier are compared; each costs a fit per design and penalty


class _OneLayer(BaseEstimator):  # type: ignore[misc]
    """What both estimators share: the choice of a design by cross-validation."""

    def __init__(
        self,
        axis_tokens: int | str = AUTO,
        pairs: int | str = AUTO,
        memory_tokens: int | str = AUTO,
        alpha: float | str = AUTO,
        categorical_features: Any = AUTO,
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
        self.categorical_features = categorical_features
        self.cv = cv
        self.train_steps = train_steps
        self.n_jobs = n_jobs
        self.random_state = random_state
        self.verbose = verbose

    def _choose(self, x: Array, y: Array, folds: Sequence[tuple[Any, Any]], seed: int, weights: Array | None) -> None:
        """Sets design_, alpha_, cv_results_ and held_out_, the mean squared error of every output on held-out rows."""
        scores: dict[Design, Array] = {}

        def score(designs: Sequence[Design]) -> Array:
            if self.verbose:
                print(f"[onelayer] cross-validating {len(designs)} designs on {len(folds)} folds", file=sys.stderr)
            errors = cross_validate(x, y, designs, folds, seed, self.n_jobs, weights)
            if self.alpha != AUTO:
                # The errors of the nearest penalty stand for those of the given one, with which the fit is made.
                distances = np.abs(np.log(np.array(ALPHAS) / self.alpha))
                errors = errors[:, [int(distances.argmin())]]
            scores.update(zip(designs, errors, strict=True))
            return np.asarray(errors.mean(-1))

        designs = grow(score, len(x), self._fixed())
        self.design_ = designs[0]
        means = {design: errors.mean(-1) for design, errors in scores.items()}
        best = int(means[self.design_].argmin())
        self.alpha_ = ALPHAS[best] if self.alpha == AUTO else float(self.alpha)
        self.held_out_ = scores[self.design_][best]
        self.cv_results_ = [{"design": design, "error": float(means[design].min())} for design in designs]

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

    def _table(self, X: Any, y: Any, sample_weight: Any, **options: Any) -> tuple[Array, Any, Array | None]:
        """Encoded inputs, outputs and weights, checked; sets columns_ and box_."""
        named = self.categorical_features is not None and self.categorical_features != AUTO
        asked = hasattr(X, "iloc") or named  # an array of numbers alone has no column to encode
        columns = Columns.of(X, self.categorical_features) if asked else None
        if columns is None or columns.encoder is None:
            x, y = validate_data(self, X, y, dtype=np.float64, ensure_min_samples=2, **options)
            self.columns_ = columns or Columns.of(x, None)
        else:
            _ = validate_data(self, X, y, skip_check_array=True)
            y = _column_or_1d_or_2d(y, **options)
            x = columns.encoded(X)
            self.columns_ = columns
            check_consistent_length(x, y)
        self.box_ = self.columns_.box(x)
        return x, y, _weights(sample_weight, x)

    def _compared(self, count: int, seed: int) -> Any:
        """The rows on which designs are compared: all, or as many as tell them apart."""
        if count <= MOST_COMPARED:
            return np.arange(count)
        shuffled = np.random.default_rng(seed).permutation(count)
        return np.sort(shuffled[:MOST_COMPARED])

    def _trained(
        self,
        make: Callable[[Array, Array, Array | None], TableFit],
        x: Array,
        y: Array,
        seed: int,
        weights: Array | None,
        *,
        classes: bool,
    ) -> None:
        """Sets model_ and train_steps_: trained on all rows for as long as it helped the last tenth of them.

        To find out how long that is, a layer is built and trained on the other rows alone.
        """
        self.train_steps_ = 0
        if self.train_steps and weights is not None:
            raise OnelayerError("train_steps does not know sample_weight; leave one of them out")
        if self.train_steps and len(x) >= FEW_ROWS:
            order = np.random.default_rng(seed).permutation(len(x))
            held = order[: len(x) // 10]
            rest = order[len(x) // 10 :]
            trial = make(x[rest], y[rest], None).model()
            options = {"classes": classes, "verbose": bool(self.verbose)}
            unseen = (x[held], y[held])
            self.train_steps_ = polish(trial, x[rest], y[rest], self.train_steps, held=unseen, **options)
        self.model_ = make(x, y, weights).model()
        if self.train_steps_:
            polish(self.model_, x, y, self.train_steps_, classes=classes)
        self.model_.requires_grad_(False)

    def _outputs(self, X: Any) -> Array:
        check_is_fitted(self)
        if self.columns_.encoder is None:
            x = validate_data(self, X, reset=False, dtype=np.float64)
        else:
            frame = validate_data(self, X, reset=False, skip_check_array=True)
            x = self.columns_.encoded(frame)
        with torch.no_grad():
            outputs: Array = self.model_(torch.tensor(x)).numpy()
        return outputs


def _column_or_1d_or_2d(y: Any, **options: Any) -> Any:
    """Outputs as an array; numbers where the estimator asks for numbers."""
    return np.asarray(y, dtype=np.float64 if options.get("y_numeric") else None)


class OneLayerRegressor(MultiOutputMixin, RegressorMixin, _OneLayer):  # type: ignore[misc]
    """Regression by one Transformer layer over memory tokens; ``model_`` is a OneLayerTransformer and can be exported.

    Heads over single features, over pairs of features and over rows of the table; values by ridge regression with a
    penalty on curvature. What is "auto" is chosen by cross-validation.

    axis_tokens     tokens per feature
    pairs           heads over pairs of features, the most useful ones
    memory_tokens   rows of the table kept as scattered tokens, in a learned metric
    alpha           weight of the penalty
    categorical_features    "auto": columns of a data frame that hold categories, texts or truth values; or their
                    names or places. Each category becomes an input of its own, 0 or 1; one never seen is all zeros
    train_steps     at most so many steps of Adam on all weights afterwards, as many as help held-out rows

    ``box_`` is the smallest box around the rows, with their names: ``explain(estimator)`` and the exports use it.
    """

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> OneLayerRegressor:
        """Choose a design by cross-validation on some rows, then fit it to all rows.

        ``sample_weight`` enters the values of the tokens and the comparison of designs; tokens lie at quantiles of the
        rows, weighted or not.
        """
        self._check_alpha()
        x, y, weights = self._table(X, y, sample_weight, y_numeric=True, multi_output=True)
        table = np.asarray(y, dtype=np.float64).reshape(len(x), -1)
        self._single = np.ndim(y) == 1
        seed = self._seed()
        mean = table.mean(0)
        scale = np.where(table.std(0) > 0, table.std(0), 1.0)
        scaled = (table - mean) / scale
        rows = self._compared(len(x), seed)
        splitter = KFold(min(self.cv, len(rows)), shuffle=True, random_state=seed)
        folds = list(splitter.split(rows))
        counted = None if weights is None else weights[rows]
        self._choose(x[rows], scaled[rows], folds, seed, counted)

        def make(rows: Array, outputs: Array, weights: Array | None) -> TableFit:
            return Builder(rows, outputs, seed, weights).fit(self.design_, self.alpha_)

        self._trained(make, x, scaled, seed, weights, classes=False)
        self.std_ = np.sqrt(self.held_out_) * scale
        # Values were fitted to outputs of mean 0 and variance 1; the read-out takes them back.
        back = torch.tensor(scale)
        read = self.model_.own("W_R") * back
        shift = self.model_.own("b_R") * back + torch.tensor(mean)
        self.model_.set_weights({"W_R": read, "b_R": shift})
        return self

    def predict(self, X: Any, return_std: bool = False) -> Any:
        """Predictions, in the shape that y had; with ``return_std`` also the spread of outcomes around them.

        That is the root of the mean squared error on rows held out by cross-validation, the same at every point: what
        was seen, not a model of where it is larger. It is refused after ``train_steps``, which nobody cross-validated.
        """
        outputs = self._outputs(X)
        if return_std and self.train_steps_:
            raise OnelayerError("return_std is the held-out error of the layer as built; fit with train_steps=0")
        spread = np.broadcast_to(self.std_, outputs.shape).copy()
        if self._single:
            outputs = outputs[:, 0]
            spread = spread[:, 0]
        return (outputs, spread) if return_std else outputs


class OneLayerClassifier(ClassifierMixin, _OneLayer):  # type: ignore[misc]
    """Classification by one Transformer layer; its outputs are logits, fitted by penalised logistic regression.

    Design and penalty are chosen by cross-validated log loss, from plain logistic regression upwards: a larger layer
    has to earn its size. Arguments as in OneLayerRegressor.
    """

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> OneLayerClassifier:
        """Choose a design by cross-validation, then fit its logits to all rows, each counting as ``sample_weight``."""
        self._check_alpha()
        x, y, weights = self._table(X, y, sample_weight)
        check_classification_targets(y)
        self.classes_, labels = np.unique(y, return_inverse=True)
        if len(self.classes_) < 2:
            raise ValueError("a classifier needs at least two classes; the data hold one class")
        seed = self._seed()
        indicator = np.eye(len(self.classes_))[labels]
        rows = self._compared(len(x), seed)
        folds = self._folds(x[rows], labels[rows], seed)
        self._compare(x[rows], indicator[rows], folds[:FOLDS], seed)

        def make(rows: Array, outputs: Array, weights: Array | None) -> TableFit:
            basis = Builder(rows, outputs, seed).basis(self.design_)
            fit = fit_logistic(basis.features(rows), outputs, basis.root(SLOPES), self.alpha_, weights)
            return TableFit(basis, *fit)

        self._trained(make, x, indicator, seed, weights, classes=True)
        return self

    def _compare(self, x: Array, indicator: Array, folds: Sequence[tuple[Any, Any]], seed: int) -> None:
        """Sets design_, alpha_ and cv_results_ by log loss on held-out rows, the simplest design first."""
        if self.alpha == AUTO:
            alphas = tuple(share / len(x) for share in SHARES)
        else:
            alphas = (float(self.alpha),)
        builder = Builder(x, indicator, seed)
        losses = {}
        for design in self._designs(len(x)):
            basis = builder.basis(design)
            losses[design] = held_out_losses(basis.features(x), indicator, basis.root(SLOPES), alphas, folds)
        ordered = sorted(losses, key=lambda design: float(losses[design].min()))
        simplest = next(iter(losses))
        usual = len(alphas) // 2
        share = EARNED if len(x) >= MANY_ROWS else EARNED_ON_FEW
        self.design_ = simplest
        self.alpha_ = alphas[usual]
        best = ordered[0]
        if losses[best].min() < share * losses[simplest][usual]:
            self.design_ = best
            self.alpha_ = alphas[int(losses[best].argmin())]
        self.cv_results_ = [{"design": design, "error": float(losses[design].min())} for design in ordered]

    def _designs(self, rows: int) -> list[Design]:
        """Affine logits, tokens per feature, pairs, rows as tokens; what the user decided is in all of them."""
        fixed = self._fixed()
        grown = [{}, {"axis_tokens": 6}, {"axis_tokens": 6, "pairs": 3}]
        if rows >= MANY_ROWS:
            grown.append({"memory_tokens": 200})
        designs = [Design(**{**more, **fixed}) for more in grown]
        return list(dict.fromkeys(designs))  # each once, the simplest first

    def _folds(self, x: Array, labels: Any, seed: int) -> list[tuple[Any, Any]]:
        # Stratified folds need two rows of every class.
        smallest = int(np.bincount(labels).min())
        stratified = smallest >= 2
        count = min(self.cv, smallest if stratified else len(x))
        kind = StratifiedKFold if stratified else KFold
        splitter = kind(count, shuffle=True, random_state=seed)
        return list(splitter.split(x, labels))

    def decision_function(self, X: Any) -> Array:
        """Logits (n, classes), or the difference of the two for two classes."""
        outputs = self._outputs(X)
        if len(self.classes_) == 2:
            return outputs[:, 1] - outputs[:, 0]
        return outputs

    def predict_proba(self, X: Any) -> Array:
        """Probabilities of the classes."""
        logits = self._outputs(X)
        powers = np.exp(logits - logits.max(1, keepdims=True))  # none overflows
        return np.asarray(powers / powers.sum(1, keepdims=True))

    def predict(self, X: Any) -> Any:
        """The most probable class."""
        best = self._outputs(X).argmax(1)
        return self.classes_[best]


def _weights(sample_weight: Any, x: Array) -> Array | None:
    """Weights of the rows, checked."""
    if sample_weight is None:
        return None
    weights: Array = _check_sample_weight(sample_weight, x, dtype=np.float64)
    if not ((weights >= 0).all() and weights.sum() > 0):
        raise OnelayerError("sample_weight must be numbers >= 0, not all of them 0")
    return weights
