"""Fit the encoders of a table to its rows, with scikit-learn's transformers. No encoder sees a label."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from noisewise.arrays import Floats, subsample
from noisewise.data._encoding import _dates
from noisewise.data._encoding._cells import Distinct
from noisewise.data._encoding._encoders import Boolean, Category, Date, Encoder, Number, Scale, Text, text_vectoriser
from noisewise.data._encoding._kinds import LEFT_OUT, Contents

MOST_CATEGORIES, CATEGORY_COLUMNS = 100, 2000
"""The most values of one column that have a column of their own, and of all columns together."""

MOST_DIRECTIONS, TEXT_COLUMNS, MOST_TEXTS = 64, 512, 64
"""The most directions of one column of text, and of all together; and the most columns of text."""

MOST_WORDS, TEXT_ROWS = 20_000, 20_000
"""The most words of a column of text, and the most rows that they are learned from."""

_RARE_SHARE, _RARE = 0.01, 10  # a value of fewer rows than this share, and than this number, is rare
_AT_A_TIME = 2**22  # numbers that are fitted at a time
_WORDS_KEPT = 100


def fit_encoders(contents: Sequence[Contents], *, plain: bool) -> tuple[list[Encoder], list[Contents]]:
    """The encoders of the columns that are used, and what is known about every column, used or not.

    Args:
        contents: the contents of every column.
        plain: whether numbers and truths stay as they are.
    """
    kinds = [column.kind for column in contents]
    categories = max(2, min(MOST_CATEGORIES, CATEGORY_COLUMNS // max(1, kinds.count("category"))))
    directions = max(4, min(MOST_DIRECTIONS, TEXT_COLUMNS // max(1, kinds.count("text"))))
    scales = _plain_scales(contents) if plain else _scales(contents)
    encoders, columns, texts = list[Encoder](), list[Contents](), 0
    for column in contents:
        encoder: Encoder | None = None
        if column.kind == "category":
            encoder = _category(column, categories)
        elif column.kind == "text":
            texts += 1
            encoder = _text(column, directions) if texts <= MOST_TEXTS else None
            reason = "it has no words" if texts <= MOST_TEXTS else f"at most {MOST_TEXTS} columns of text are used"
            column = column if encoder is not None else column.left_out(reason)
        elif column.kind != LEFT_OUT:
            encoder = _with_scales(column, scales[column.name])
        encoders += [] if encoder is None else [encoder]
        columns.append(column)
    return encoders, columns


def _with_scales(column: Contents, scales: dict[str, Scale]) -> Encoder:
    words = tuple(column.words[:_WORDS_KEPT])
    if column.kind == "date":
        return Date(column.name, column.style or _dates.ISO, scales, words)
    if column.kind == "boolean":
        return Boolean(column.name, scales[""], dict(column.style), words)
    return Number(column.name, scales[""], column.style.decimal, column.style.sign, words)


def _plain_scales(contents: Sequence[Contents]) -> dict[str, dict[str, Scale]]:
    return {column.name: {"": Scale(float(np.median(column.values)))} for column in contents if column.kind != LEFT_OUT}


def _scales(contents: Sequence[Contents]) -> dict[str, dict[str, Scale]]:
    """The scale of every part of every column of numbers, truths and dates."""
    scales: dict[str, dict[str, Scale]] = {}
    waiting: list[tuple[str, str, Floats]] = []
    for column in contents:
        if column.kind == "number":
            waiting.append((column.name, "", column.values))
        elif column.kind == "boolean":
            scales[column.name] = {"": Scale(float(np.nanmean(column.values)), marks_gaps=column.gaps > 0)}
        elif column.kind == "date":
            parts = _dates.parts(column.values)
            waiting += [(column.name, part, values) for part, values in parts.items() if part != " hour" or np.nansum(values) > 0]
        if waiting and len(waiting) * len(waiting[0][2]) > _AT_A_TIME:
            _fit_scales(waiting, scales)
            waiting = []
    if waiting:
        _fit_scales(waiting, scales)
    return scales


def _fit_scales(parts: Sequence[tuple[str, str, Floats]], scales: dict[str, dict[str, Scale]]) -> None:
    """Fit the median that fills gaps, and the centre and the spread: the distance of the quartiles, or the standard deviation."""
    from sklearn.impute import SimpleImputer
    from sklearn.preprocessing import RobustScaler

    table = np.stack([values for _, _, values in parts], 1)
    imputer = SimpleImputer(strategy="median").fit(table)
    filled = imputer.transform(table)
    with np.errstate(over="ignore", invalid="ignore"):  # columns of numbers near the largest float are not scaled
        scaler = RobustScaler(unit_variance=True).fit(filled)
        low, high = np.quantile(filled, (0.25, 0.75), axis=0)
        deviations = filled.std(0)
    for place, (name, part, values) in enumerate(parts):
        spread = float(scaler.scale_[place] if high[place] > low[place] else deviations[place])
        usable = 0 < spread < 1e300
        center, fill = float(scaler.center_[place]), float(imputer.statistics_[place])
        marks = part == "" and bool(np.isnan(values).any())
        scales.setdefault(name, {})[part] = Scale(fill, center, spread if usable else 1.0, marks)


def _category(column: Contents, most: int) -> Category:
    from sklearn import config_context
    from sklearn.preprocessing import OneHotEncoder

    texts: Distinct = column.values
    known = texts.codes[texts.codes >= 0]
    order = np.argsort(np.array(texts.values, object), kind="stable")
    ranks = np.empty(len(order), np.int64)
    ranks[order] = np.arange(len(order))
    least = max(1, min(_RARE, int(_RARE_SHARE * len(known))))
    with config_context(skip_parameter_validation=True):  # there may be thousands of columns
        encoder = OneHotEncoder(handle_unknown="infrequent_if_exist", min_frequency=least, max_categories=most).fit(ranks[known][:, None])
    rare = encoder.infrequent_categories_[0]
    rare = set() if rare is None else set(rare.tolist())
    frequent = [texts.values[order[rank]] for rank in encoder.categories_[0].tolist() if rank not in rare]
    return Category(column.name, tuple(frequent), bool(rare), column.gaps > 0)


def _text(column: Contents, most: int) -> Text | None:
    """The directions of a column of text; None if it has no words."""
    from sklearn.decomposition import TruncatedSVD

    texts: Distinct = column.values
    sample = [texts.values[code] for code in subsample(texts.codes[texts.codes >= 0].tolist(), TEXT_ROWS)]
    fitted = _vocabulary(sample)
    if fitted is None:
        return None
    vectoriser, weights, pieces = fitted
    number = min(most, weights.shape[1] - 1, len(sample) - 1)
    directions = TruncatedSVD(max(1, number), random_state=0).fit(weights).components_.astype(np.float32)
    spread = float((weights.astype(np.float32) @ directions.T).std(0).max())
    words = tuple(vectoriser.get_feature_names_out().tolist())
    return Text(column.name, words, pieces, spread if spread > 0 else 1.0, column.gaps > 0, vectoriser.idf_, directions)


def _vocabulary(sample: list[str]) -> tuple[Any, Any, bool] | None:
    """A fitted vectoriser, the weights of the sample, and whether it uses pieces of words."""
    for pieces in (False, True):
        vectoriser = text_vectoriser(pieces, max_features=MOST_WORDS, min_df=2 if len(sample) >= 100 else 1)
        try:
            weights = vectoriser.fit_transform(sample)
        except ValueError:  # there are no words that two rows share
            continue
        if weights.shape[1] > 1:
            return vectoriser, weights, pieces
    return None
