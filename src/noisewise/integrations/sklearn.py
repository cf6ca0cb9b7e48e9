"""A scikit-learn classifier, for pipelines, cross-validation and searches."""

from __future__ import annotations

import copy
import tempfile
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, Self

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.utils import check_random_state
from sklearn.utils.class_weight import compute_sample_weight
from sklearn.utils.extmath import softmax
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import _check_sample_weight, check_consistent_length, check_is_fitted, column_or_1d, validate_data
from torch import nn

from noisewise.audit import RobustEnsemble, keep_evidence
from noisewise.data import Dataset, Encoding, as_inputs, is_frame, read_columns, read_rows
from noisewise.errors import InputError
from noisewise.train import Predictor, Run, Unlearned, fit

_DEFAULT_LOSS, _RARE_CLASS_LOSS = "gce(q=0.7)", "imae(T=8.0, normalise='maximum')"
_HELD_OUT = 0.1
_LEAST_HELD_OUT = 20  # rows; a fifth of a small table

_NO_RECORD = {"evaluate_every": 10**9, "checkpoint_every": 10**9, "clean_pass": False}
"""A run that is not kept needs only its model."""

_SETTINGS = ("epochs", "batch_size", "optimiser", "schedule", "weight_decay", "clip", "device")


class RobustClassifier(ClassifierMixin, BaseEstimator):  # type: ignore[misc]
    """A classifier for a table with labels you cannot fully trust.

    By default it is an ensemble of trees and a kernel that estimates how many labels are wrong (`noisewise.audit.RobustEnsemble`). With a
    model or a loss it is a network, trained as by `noisewise.fit`. A DataFrame may have categories, dates, text and gaps, which are
    encoded as by `noisewise.data.read`. Sparse input is converted to a dense array.

    Args:
        model: "auto" (the ensemble, or the network "mlp" if a loss is given), a model spec, or a module that maps rows to scores; a copy
            of it is trained.
        loss: a loss spec, or a loss, to train a network with. The default, None, trains networks with gce(q=0.7), which resists wrong
            labels best on small tables. If it does not learn a class, which happens with rare classes, it trains again with
            imae(T=8, normalise='maximum').
        epochs: the number of passes of a network over the rows.
        batch_size: rows per update of a network.
        optimiser: an optimiser spec.
        schedule: a learning-rate schedule spec.
        weight_decay: L2 penalty.
        clip: the largest norm of the whole gradient, or None.
        calibrate: whether a network holds out a tenth of the rows (at least 20, or a fifth of a small table) to calibrate `predict_proba`
            with a temperature. Tables with fewer than 25 rows are not calibrated. False trains on all rows. The ensemble is calibrated
            without held-out rows.
        class_weight: how much each class counts: a dictionary, "balanced" (as in scikit-learn), or None (each row counts once).
        device: "auto" (a CUDA GPU if there is one), "cpu", "cuda" or "cuda:1", for a network.
        random_state: a seed, a RandomState to draw a seed from, or None for a random seed. With a folder, None is 0, so that fitting again
            resumes or returns the run.
        folder: the run folder, for the report and the audit; by default no run is kept. A folder contains one run, so leave it out in
            cross-validation and searches. The run is a network, also if the classifier is the ensemble, whose evidence then judges the
            labels of the run. The record does not contain the rows held out to calibrate a network: pass calibrate=False to audit every
            row. A second training (see `loss`) is in a folder beside it whose name ends in "-again".
        verbose: 1 shows a progress bar.

    Attributes:
        classes_: the classes, sorted.
        n_features_in_: the number of columns.
        feature_names_in_: their names, if the training data had names.
        encoding_: what was done to each column of a DataFrame with categories, dates, text or gaps; None for numbers.
        offset_: for numbers, a number per column that is subtracted first: the mean if the column is far from 0 compared with its
            variation, else 0.
        ensemble_: the ensemble; None if the classifier is a network. `ensemble_.noise.chance` is the chance that each label is wrong.
        loss_: the spec of the loss that the network was trained with; None if no network was trained.
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
        model: str | nn.Module = "auto",
        loss: Any = None,
        *,
        epochs: int = 50,
        batch_size: int = 32,
        optimiser: Any = "sgd(lr=0.1, momentum=0.9)",
        schedule: Any = "cosine",
        weight_decay: float = 1e-4,
        clip: float | None = None,
        calibrate: bool = True,
        class_weight: Any = None,
        device: str = "auto",
        random_state: int | np.random.RandomState | None = None,
        folder: str | Path | None = None,
        verbose: int = 0,
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
        self.class_weight = class_weight
        self.device = device
        self.random_state = random_state
        self.folder = folder
        self.verbose = verbose

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        return tags

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> Self:
        """Train the classifier.

        Args:
            X: rows of numbers, dense or sparse, or a DataFrame of any columns.
            y: a label for each row; some may be wrong.
            sample_weight: how much each row counts, relative to others. Rows with weight 0 are left out.
        """
        for name in ("ensemble_", "predictor_", "classes_", "run_", "encoding_"):  # so that a failed training cannot predict
            self.__dict__.pop(name, None)
        encoding, cells = _encoding_of(X)
        if encoding is None:
            X, y = validate_data(self, X, y, accept_sparse="csr", dtype=np.float64)
            X = _dense(X)
        else:
            validate_data(self, X, skip_check_array=True)
            check_consistent_length(X, y)
        y = column_or_1d(y, warn=True)
        check_classification_targets(y)
        weights = self._weights(X, y, sample_weight)
        kept = slice(None) if weights is None else np.flatnonzero(weights)
        classes, numbers = np.unique(y[kept], return_inverse=True)
        if len(classes) < 2:
            raise InputError(f"The labels given to RobustClassifier must have at least two classes. Got 1 class, {classes.tolist()[0]!r}.")
        self.encoding_ = encoding
        self.offset_ = None if encoding else _offset(X[kept])
        inputs = encoding.apply(cells)[kept] if encoding else self._inputs(X[kept])
        data = Dataset(inputs, torch.tensor(numbers), tuple(map(str, classes.tolist())), name="table")
        if encoding:
            cells = {name: column[kept] for name, column in cells.items()}
            data = replace(data, features=encoding.names).described_by(encoding, cells)
        if weights is not None:
            weights = weights[kept] / weights[kept].mean()
            data = replace(data, sample_weight=torch.tensor(weights, dtype=torch.float32))
        self._fit(data, weights)
        self.classes_ = classes
        return self

    def _fit(self, data: Dataset, weights: NDArray[Any] | None) -> None:
        """Fit the ensemble or a network. With a folder, both."""
        self.ensemble_, self.run_, self.loss_, self.temperature_ = None, None, None, 1.0
        is_ensemble = isinstance(self.model, str) and self.model == "auto" and self.loss is None
        if is_ensemble:
            numbers, features = data.labels.numpy(), data.inputs.double().numpy()
            with _progress(self.verbose, "ensemble") as bar:
                ensemble = RobustEnsemble.fit(
                    features, numbers, num_classes=len(data.classes), seed=self._seed(), weights=weights, watch=bar
                )
            self.ensemble_ = ensemble
        if self.folder is not None:
            settings = {"validation": 0.0} if is_ensemble else {}
            self.run_ = self._trained(data, self.folder, **settings)
            self.predictor_, self.loss_ = self._predictor(self.run_), self.run_.settings.loss
            if is_ensemble:
                for folder in {Path(self.folder), Path(self.run_.path)}:  # the first training, and the second if there is one
                    keep_evidence(folder, ensemble.models.evidence)
        elif not is_ensemble:
            with tempfile.TemporaryDirectory() as temporary:
                run = self._trained(data, Path(temporary, "run"), **_NO_RECORD)
                self.predictor_, self.loss_ = self._predictor(run), run.settings.loss
        if not is_ensemble:
            self.temperature_ = self.predictor_.temperature

    def _weights(self, X: Any, y: NDArray[Any], sample_weight: Any) -> NDArray[Any] | None:
        """The weight of every row, by row and by class; None if all are alike."""
        if sample_weight is None and self.class_weight is None:
            return None
        weights = np.asarray(_check_sample_weight(sample_weight, X, dtype=np.float64, ensure_non_negative=True))
        if self.class_weight is not None:
            weights = weights * compute_sample_weight(self.class_weight, y)
        if not weights.any():
            raise InputError("The sample weights given to RobustClassifier are all zero. Give at least two rows a weight above zero.")
        return weights

    def _trained(self, data: Dataset, folder: str | Path, **settings: Any) -> Run:
        """Train a run, and a second one with another loss if the default loss did not learn a class."""
        validation = _held_out(len(data)) if self.calibrate else 0.0
        settings = {name: getattr(self, name) for name in _SETTINGS} | {"seed": self._seed(), "validation": validation} | settings

        def run(loss: Any, folder: str | Path) -> Run:
            with _progress(self.verbose, "network") as bar:
                return fit(copy.deepcopy(self._network), data, loss=loss, folder=folder, watch=bar, **settings)

        if self.loss is not None:
            return run(self.loss, folder)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", Unlearned)
            first = run(_DEFAULT_LOSS, folder)
        return run(_RARE_CLASS_LOSS, Path(folder).with_name(f"{Path(folder).name}-again")) if first.unlearned else first

    @property
    def _network(self) -> str | nn.Module:
        return "mlp" if isinstance(self.model, str) and self.model == "auto" else self.model

    def _predictor(self, run: Run) -> Predictor:
        return run.predictor(copy.deepcopy(self.model) if isinstance(self.model, nn.Module) else None)

    def _inputs(self, X: NDArray[Any]) -> torch.Tensor:
        with np.errstate(over="ignore"):  # infinite values are refused
            return as_inputs((X - self.offset_).astype(np.float32))

    def _seed(self) -> int:
        state = self.random_state
        if state is None and self.folder is not None:
            return 0
        return int(state) if isinstance(state, int | np.integer) else int(check_random_state(state).randint(2**31))

    def decision_function(self, X: Any) -> NDArray[Any]:
        """Scores with a column for each class; with two classes, the score of the second minus that of the first.

        The scores of the ensemble are the logarithms of its probabilities.

        Args:
            X: rows with the columns of the training data.
        """
        inputs = self._rows(X)
        scores = self._scores(inputs) if self.ensemble_ is None else np.log(np.maximum(self._chances(inputs), 1e-300))
        return scores[:, 1] - scores[:, 0] if len(self.classes_) == 2 else scores

    def predict_proba(self, X: Any) -> NDArray[Any]:
        """The probability of every class, in the order of `classes_`; of a network, the softmax of the scores divided by `temperature_`.

        Args:
            X: rows with the columns of the training data.
        """
        inputs = self._rows(X)
        return np.asarray(softmax(self._scores(inputs) / self.temperature_)) if self.ensemble_ is None else self._chances(inputs)

    def predict(self, X: Any) -> NDArray[Any]:
        """The most probable class.

        Args:
            X: rows with the columns of the training data.
        """
        inputs = self._rows(X)
        best = (self._scores(inputs) if self.ensemble_ is None else self._chances(inputs)).argmax(1)
        return np.asarray(self.classes_[best])

    def _rows(self, X: Any) -> torch.Tensor:
        """The inputs of the model."""
        check_is_fitted(self, "classes_")
        if self.encoding_ is None:
            return self._inputs(_dense(validate_data(self, X, accept_sparse="csr", dtype=np.float64, reset=False)))
        validate_data(self, X, reset=False, skip_check_array=True)
        return read_rows(X, self.encoding_) if is_frame(X) else as_inputs(X)

    def _scores(self, inputs: torch.Tensor) -> NDArray[Any]:
        return self.predictor_.scores(inputs).double().cpu().numpy()

    def _chances(self, inputs: torch.Tensor) -> NDArray[Any]:
        assert self.ensemble_ is not None
        return self.ensemble_.probabilities(inputs.double().numpy())


@contextmanager
def _progress(verbose: int, description: str) -> Iterator[Callable[[int, int], None] | None]:
    """A progress bar on stderr, or None."""
    if not verbose:
        yield None
        return
    from rich.console import Console
    from rich.progress import Progress

    with Progress(console=Console(stderr=True)) as bars:
        task = bars.add_task(description)
        yield lambda done, total: bars.update(task, completed=done, total=total)


def _dense(X: Any) -> NDArray[Any]:
    return np.asarray(X.toarray() if hasattr(X, "toarray") else X)


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
