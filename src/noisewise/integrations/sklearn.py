"""A scikit-learn classifier, for pipelines, cross-validation and searches."""

from __future__ import annotations

import copy
import tempfile
import warnings
from pathlib import Path
from typing import Any, Self

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.utils import check_random_state
from sklearn.utils.extmath import softmax
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_consistent_length, check_is_fitted, column_or_1d, validate_data
from torch import nn

from noisewise.data import Dataset, Encoding, as_inputs, is_frame, read_columns
from noisewise.errors import InputError
from noisewise.train import Predictor, Run, Unlearned, fit

_DEFAULT_LOSS, _RARE_CLASS_LOSS = "gce(q=0.7)", "imae(T=8.0, normalise='maximum')"
_HELD_OUT = 0.1
_LEAST_HELD_OUT = 20  # rows; a fifth of a small table

_NO_RECORD = {"evaluate_every": 10**9, "checkpoint_every": 10**9, "clean_pass": False}
"""A run that is not kept needs only its model."""

_SETTINGS = ("epochs", "batch_size", "optimiser", "schedule", "weight_decay", "clip", "device")


class RobustClassifier(ClassifierMixin, BaseEstimator):  # type: ignore[misc]
    """A network for a table with labels you cannot fully trust.

    Columns of numbers are normalised to mean 0 and variance 1. A DataFrame may also have categories, dates, text and gaps, which are
    encoded as by `noisewise.data.read`. Parameters are those of `noisewise.fit`, except `random_state` and `folder`.

    Args:
        model: a model spec, or a module that maps rows to scores; a copy of it is trained.
        loss: a loss spec, or a loss. The default, None, trains with gce(q=0.7), which resists wrong labels best on small tables. If it
            does not learn a class, which happens with rare classes, it trains again with imae(T=8, normalise='maximum').
        epochs: the number of passes over the rows.
        batch_size: rows per update.
        optimiser: an optimiser spec.
        schedule: a learning-rate schedule spec.
        weight_decay: L2 penalty.
        clip: the largest norm of the whole gradient, or None.
        calibrate: whether to hold out a tenth of the rows (at least 20, or a fifth of a small table) to calibrate `predict_proba` with a
            temperature. Tables with fewer than 25 rows are not calibrated. False trains on all rows.
        device: "auto" (a CUDA GPU if there is one), "cpu", "cuda" or "cuda:1".
        random_state: a seed, a RandomState to draw a seed from, or None for a random seed.
        folder: the run folder, for the report and the audit; by default the run is not kept. A folder contains one run, so leave it out in
            cross-validation and searches. The record does not contain the rows held out to calibrate: pass calibrate=False to audit
            every row. A second training (see `loss`) is in a folder beside it whose name ends in "-again".

    Attributes:
        classes_: the classes, sorted.
        n_features_in_: the number of columns.
        feature_names_in_: their names, if the training data had names.
        encoding_: what was done to each column of a DataFrame with categories, dates, text or gaps; None for numbers.
        offset_: for numbers, a number per column that is subtracted first: the mean if the column is far from 0 compared with its
            variation, else 0.
        loss_: the spec of the loss that the model was trained with.
        temperature_: the number that scores are divided by before the softmax; 1 without calibration.
        run_: the run, or None if no folder was given.

    Example:
        >>> from sklearn.datasets import load_iris
        >>> from sklearn.model_selection import cross_val_score
        >>> inputs, labels = load_iris(return_X_y=True)
        >>> scores = cross_val_score(RobustClassifier(random_state=0), inputs, labels)
        >>> bool(scores.mean() > 0.9)
        True
    """

    def __init__(
        self,
        model: str | nn.Module = "mlp",
        loss: Any = None,
        *,
        epochs: int = 50,
        batch_size: int = 32,
        optimiser: Any = "sgd(lr=0.1, momentum=0.9)",
        schedule: Any = "cosine",
        weight_decay: float = 1e-4,
        clip: float | None = None,
        calibrate: bool = True,
        device: str = "auto",
        random_state: int | np.random.RandomState | None = None,
        folder: str | Path | None = None,
    ) -> None:
        self.model = model
        self.loss = loss
        self.epochs = epochs
        self.batch_size = batch_size
        self.optimiser = optimiser
        self.schedule = schedule
        self.weight_decay = weight_decay
        self.clip = clip
        self.calibrate = calibrate
        self.device = device
        self.random_state = random_state
        self.folder = folder

    def fit(self, X: Any, y: Any) -> Self:
        """Train the classifier.

        Args:
            X: rows of numbers, or a DataFrame of any columns.
            y: a label for each row; some may be wrong.
        """
        for name in ("predictor_", "classes_", "run_", "encoding_"):  # so that a failed training cannot predict
            self.__dict__.pop(name, None)
        self.encoding_, cells = _encoding_of(X)
        if self.encoding_ is None:
            X, y = validate_data(self, X, y, dtype=np.float64)
        else:
            validate_data(self, X, skip_check_array=True)
            check_consistent_length(X, y)
        y = column_or_1d(y, warn=True)
        check_classification_targets(y)
        classes, numbers = np.unique(y, return_inverse=True)
        if len(classes) < 2:
            raise InputError(f"The labels given to RobustClassifier must have at least two classes. Got 1 class, {classes.tolist()[0]!r}.")
        names = tuple(map(str, classes.tolist()))
        if self.encoding_ is None:
            self.offset_ = _offset(X)
            data = Dataset(self._inputs(X), torch.tensor(numbers), names, name="table")
        else:
            inputs = self.encoding_.apply(cells)
            data = Dataset(inputs, torch.tensor(numbers), names, name="table", features=self.encoding_.names)
            data = data.described_by(self.encoding_, cells)
        self.run_ = None
        if self.folder is None:
            with tempfile.TemporaryDirectory() as temporary:
                run = self._trained(data, Path(temporary, "run"), **_NO_RECORD)
                self.predictor_, self.loss_ = self._predictor(run), run.settings.loss
        else:
            self.run_ = self._trained(data, self.folder)
            self.predictor_, self.loss_ = self._predictor(self.run_), self.run_.settings.loss
        self.classes_ = classes
        self.temperature_ = self.predictor_.temperature
        return self

    def _trained(self, data: Dataset, folder: str | Path, **settings: Any) -> Run:
        """Train a run, and a second one with another loss if the default loss did not learn a class."""
        settings |= {name: getattr(self, name) for name in _SETTINGS}
        settings |= {"seed": self._seed(), "validation": _held_out(len(data)) if self.calibrate else 0.0}

        def run(loss: Any, folder: str | Path) -> Run:
            return fit(copy.deepcopy(self.model), data, loss=loss, folder=folder, **settings)

        if self.loss is not None:
            return run(self.loss, folder)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", Unlearned)
            first = run(_DEFAULT_LOSS, folder)
        return run(_RARE_CLASS_LOSS, Path(folder).with_name(f"{Path(folder).name}-again")) if first.unlearned else first

    def _predictor(self, run: Run) -> Predictor:
        return run.predictor(copy.deepcopy(self.model) if isinstance(self.model, nn.Module) else None)

    def _inputs(self, X: NDArray[Any]) -> torch.Tensor:
        with np.errstate(over="ignore"):  # infinite values are refused
            return as_inputs((X - self.offset_).astype(np.float32))

    def _seed(self) -> int:
        state = self.random_state
        return int(state) if isinstance(state, int | np.integer) else int(check_random_state(state).randint(2**31))

    def decision_function(self, X: Any) -> NDArray[Any]:
        """Scores with a column for each class; with two classes, the score of the second minus that of the first.

        Args:
            X: rows with the columns of the training data.
        """
        scores = self._scores(X)
        return scores[:, 1] - scores[:, 0] if len(self.classes_) == 2 else scores

    def predict_proba(self, X: Any) -> NDArray[Any]:
        """The probability of every class, in the order of `classes_`: the softmax of the scores divided by `temperature_`.

        Args:
            X: rows with the columns of the training data.
        """
        return np.asarray(softmax(self._scores(X) / self.temperature_))

    def predict(self, X: Any) -> NDArray[Any]:
        """The class with the highest score.

        Args:
            X: rows with the columns of the training data.
        """
        best = self._scores(X).argmax(1)
        return np.asarray(self.classes_[best])

    def _scores(self, X: Any) -> NDArray[Any]:
        check_is_fitted(self, "predictor_")
        if self.encoding_ is not None:
            validate_data(self, X, reset=False, skip_check_array=True)
            return self.predictor_.scores(X).double().cpu().numpy()
        X = validate_data(self, X, dtype=np.float64, reset=False)
        return self.predictor_.scores(self._inputs(X)).double().cpu().numpy()


def _encoding_of(X: Any) -> tuple[Encoding | None, dict[str, Any]]:
    """The encoding of a DataFrame and its cells; None if it has only numbers."""
    if not is_frame(X) or not len(X):
        return None, {}
    encoding, cells = read_columns(X)
    are_numbers = all(column.dtype.kind in "fb" and np.isfinite(column).all() for column in cells.values())
    return (None, {}) if are_numbers else (encoding, cells)


def _held_out(rows: int) -> float:
    """The share of rows to hold out to calibrate; 0 if these would be too few."""
    number = max(round(_HELD_OUT * rows), min(_LEAST_HELD_OUT, rows // 5))
    return number / rows if number >= 5 else 0.0


def _offset(X: NDArray[Any]) -> NDArray[Any]:
    """The mean of columns whose variation would be lost in float32, such as times in seconds; 0 for others."""
    mean, std = X.mean(0), X.std(0)
    return np.where((std > 0) & (np.abs(mean) > 1e4 * std), mean, 0.0)
