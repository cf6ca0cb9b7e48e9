"""Wrong labels of tokens, as in named entity recognition: each token is judged, and sentences by their worst token."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from torch import Tensor

from noisewise.arrays import Flags, Floats, Ints
from noisewise.audit._audit import audit_run
from noisewise.audit._listing import Listing, as_ids, parts
from noisewise.audit._probabilities import find_label_issues
from noisewise.errors import InputError, invalid_parameter
from noisewise.tables import Block

_OWNER = "find_token_issues"
_IGNORED = -100
"""The label that torch and Hugging Face give to tokens without one, such as padding."""


@dataclass(frozen=True, eq=False, repr=False)
class TokenIssues(Listing):
    """Doubtful labels of tokens, an entry for each token. `table`, `to_frame` and `write` have the most doubtful token first.

    Args:
        is_label_issue: the labels that are probably wrong.
        label_quality: the lower, the more doubtful.
        given_label: the given labels, as class indices.
        predicted_label: the most probable class.
        sentence: the position of the sentence of each token.
        position: the position of the token in its sentence.
        tokens: the text of each token; None if it was not given.
        classes: the names of the classes.
        ids: the id of each sentence; its index if it has none.
        interval: the range of the number of wrong labels; None if the judgement has none.
    """

    is_label_issue: Flags
    label_quality: Floats
    given_label: Ints
    predicted_label: Ints
    sentence: Ints
    position: Ints
    tokens: tuple[str, ...] | None
    classes: tuple[str, ...]
    ids: tuple[str, ...]
    interval: tuple[float, float] | None

    def __len__(self) -> int:
        """The number of tokens."""
        return len(self.given_label)

    def __repr__(self) -> str:
        sentences = len(np.unique(self.sentence[self.is_label_issue]))
        return f"TokenIssues({self.count:,} of {len(self):,} labels look doubtful, in {sentences:,} of {len(self.ids):,} sentences)"

    @property
    def count(self) -> int:
        """How many labels are doubtful."""
        return int(np.count_nonzero(self.is_label_issue))

    @cached_property
    def order(self) -> Ints:
        """All tokens, the most doubtful first."""
        return np.argsort(self.label_quality, kind="stable")

    @cached_property
    def sentence_quality(self) -> Floats:
        """The lowest quality of the tokens of each sentence; 1 for a sentence without labelled tokens."""
        quality = np.ones(len(self.ids))
        np.minimum.at(quality, self.sentence, self.label_quality)
        return quality

    @cached_property
    def sentence_is_issue(self) -> Flags:
        """The sentences with a doubtful label."""
        return np.bincount(self.sentence, self.is_label_issue, len(self.ids)) > 0

    @cached_property
    def sentence_order(self) -> Ints:
        """The positions of all sentences, the most doubtful first."""
        return np.argsort(self.sentence_quality, kind="stable")

    def by_token(self) -> list[dict[str, Any]]:
        """The texts of tokens with doubtful labels: how often they occur and are doubtful, and the most frequent change."""
        if self.tokens is None:
            raise InputError("by_token needs the texts of the tokens. Pass tokens to find_token_issues.")
        texts, kinds = np.unique(np.array(self.tokens), return_inverse=True)
        times, doubtful = np.bincount(kinds), np.bincount(kinds, self.is_label_issue).astype(np.int64)
        rows = []
        for kind in np.flatnonzero(doubtful)[np.argsort(-doubtful[doubtful > 0], kind="stable")]:
            of_kind = self.is_label_issue & (kinds == kind)
            changes = self.given_label[of_kind] * len(self.classes) + self.predicted_label[of_kind]
            given, predicted = divmod(int(np.bincount(changes).argmax()), len(self.classes))
            named = {"given_label": self.classes[given], "predicted_label": self.classes[predicted]}
            rows.append({"token": str(texts[kind]), "times": int(times[kind]), "doubtful": int(doubtful[kind]), **named})
        return rows

    def _names(self) -> Sequence[str]:
        return "sentence", "id", "position", "token", "is_label_issue", "label_quality", "given_label", "predicted_label"

    def _blocks(self) -> Iterator[Block]:
        for part in parts(self.order):
            texts = [None if self.tokens is None else self.tokens[place] for place in part]
            named = ([self.classes[label] for label in labels[part]] for labels in (self.given_label, self.predicted_label))
            sentences = self.sentence[part].tolist()
            flags = self.is_label_issue[part].tolist(), self.label_quality[part].tolist()
            yield sentences, [self.ids[place] for place in sentences], self.position[part].tolist(), texts, *flags, *named


def find_token_issues(
    labels: Sequence[Any],
    pred_probs: Sequence[Any],
    tokens: Sequence[Sequence[str]] | None = None,
    *,
    classes: Sequence[str] | None = None,
    ids: Sequence[Any] | None = None,
) -> TokenIssues:
    """Find doubtful labels of tokens.

    All tokens of all sentences are judged together by `find_label_issues`. The quality of a sentence is the lowest of its tokens.

    Args:
        labels: the labels of each sentence, as column indices or names. Tokens labelled −100 are left out.
        pred_probs: for each sentence the class probabilities (tokens, classes), preferably from a model that was not trained on it.
        tokens: the texts of the tokens of each sentence, for the list and `by_token`.
        classes: the names of the columns of the probabilities, such as "O", "B-PER".
        ids: a unique id for each sentence.

    Returns:
        The labels by token.

    Example:
        >>> words = [["Ann", "sleeps"], ["Cid", "and", "Dan"]] * 10 + [["Ben", "reads"], ["Ben", "sits"]]
        >>> labels = [["PER", "O"], ["PER", "O", "PER"]] * 10 + [["O", "O"], ["O", "O"]]
        >>> name, other = [0.1, 0.9], [0.9, 0.1]
        >>> probabilities = [[name, other], [name, other, name]] * 10 + [[name, other], [name, other]]
        >>> issues = find_token_issues(labels, probabilities, words, classes=["O", "PER"])
        >>> issues
        TokenIssues(2 of 54 labels look doubtful, in 2 of 22 sentences)
        >>> issues.by_token()
        [{'token': 'Ben', 'times': 2, 'doubtful': 2, 'given_label': 'O', 'predicted_label': 'PER'}]
    """
    matrices = [np.asarray(part.detach().cpu() if isinstance(part, Tensor) else part, dtype=np.float64) for part in pred_probs]
    if len(labels) != len(matrices) or not matrices:
        raise invalid_parameter("pred_probs", _OWNER, f"a matrix for each of the {len(labels)} sentences", f"{len(matrices)}")
    given = [part.tolist() if hasattr(part, "tolist") else list(part) for part in labels]
    _check_lengths("pred_probs", given, matrices, "row")
    if tokens is not None:
        _check_lengths("tokens", given, tokens, "token")
    columns = max(part.shape[-1] for part in matrices if len(part)) if any(map(len, matrices)) else 0
    flat = np.concatenate([part.reshape(-1, columns) for part in matrices])
    lengths = np.array(list(map(len, given)))
    sentence = np.repeat(np.arange(len(given)), lengths)
    position = np.arange(len(sentence)) - np.repeat(np.cumsum(lengths) - lengths, lengths)
    values = [label for part in given for label in part]
    kept = np.flatnonzero([label != _IGNORED for label in values])
    if not len(kept):
        raise InputError(f"The labels given to {_OWNER} must have at least one token with a label. Got none.")
    judged = find_label_issues([values[place] for place in kept], flat[kept], classes=classes)
    texts = None if tokens is None else [str(token) for part in tokens for token in part]
    return TokenIssues(
        is_label_issue=judged.is_label_issue,
        label_quality=judged.label_quality,
        given_label=judged.given_label,
        predicted_label=judged.predicted_label,
        sentence=sentence[kept],
        position=position[kept],
        tokens=None if texts is None else tuple(texts[place] for place in kept),
        classes=judged.classes,
        ids=as_ids(ids, len(given), _OWNER),
        interval=judged.interval,
    )


def audit_tokens(run: str | os.PathLike[str], tokens: Sequence[Sequence[str]] | None = None) -> TokenIssues:
    """Audit a run whose examples are tokens, and group them by sequence: which tokens look wrong, and which sequences.

    Args:
        run: the run, or its folder. Its ids are those of sequences, ":" and a position, as `noisewise.integrations.huggingface.record`
            writes them.
        tokens: the texts of the tokens of each sequence that has labels, for the list and `by_token`.

    Returns:
        The labels by token. The predicted label of a doubtful one is the suggestion of the audit.
    """
    judged = audit_run(run)
    parts = [name.rpartition(":") for name in judged.ids]
    if not all(sequence and place.isdecimal() for sequence, _, place in parts):
        raise InputError("audit_tokens needs a run whose examples are tokens, with ids such as 'letter-7:12'. Use audit for other runs.")
    numbers: dict[str, int] = {}
    sentence = np.array([numbers.setdefault(sequence, len(numbers)) for sequence, _, _ in parts])
    position = np.array([int(place) for _, _, place in parts])
    if tokens is not None and len(tokens) != len(numbers):
        raise invalid_parameter("tokens", "audit_tokens", f"one entry for each of the {len(numbers)} sequences", f"{len(tokens)} entries")
    texts = None if tokens is None else tuple(str(tokens[number][place]) for number, place in zip(sentence, position, strict=True))
    return TokenIssues(
        is_label_issue=judged.is_label_issue,
        label_quality=np.nan_to_num(judged.label_quality, nan=1.0),
        given_label=judged.given_label,
        predicted_label=judged.suggested_label,
        sentence=sentence,
        position=position,
        tokens=texts,
        classes=judged.classes,
        ids=tuple(numbers),
        interval=judged.interval,
    )


def _check_lengths(name: str, labels: Sequence[Any], others: Sequence[Any], unit: str) -> None:
    if len(others) != len(labels):
        raise invalid_parameter(name, _OWNER, f"one entry for each of the {len(labels)} sentences", f"{len(others)} entries")
    for number, (own, other) in enumerate(zip(labels, others, strict=True)):
        if len(own) != len(other):
            raise invalid_parameter(name, _OWNER, f"one {unit} for each label", f"{len(other)} for {len(own)} labels in sentence {number}")
