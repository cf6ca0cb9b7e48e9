"""One label per example from the labels of several annotators, and how good each annotator is."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from noisewise.arrays import Flags, Floats, Ints
from noisewise.audit import _dawid_skene as dawid_skene
from noisewise.audit._listing import Listing, as_frame, parts
from noisewise.audit._votes import Votes, as_votes
from noisewise.errors import invalid_parameter
from noisewise.tables import Block, write_blocks

_METHODS = ("dawid_skene", "majority")
_ANNOTATOR_COLUMNS = ("annotator", "labels", "quality", "agreement", "agreement_with_consensus", "most_frequent_mistake")


@dataclass(frozen=True, eq=False, repr=False)
class Consensus(Listing):
    """The consensus of several annotators. Rows of `table`, `to_frame` and `write` are in the order of the examples.

    Args:
        labels: the most probable class of each example.
        soft_labels: the probability of every class for each example (N, C): soft targets for training.
        votes: how many labels each example has.
        agreement: the share of them that equal the consensus.
        gain: how much one more label is expected to raise the probability that the consensus is right.
        classes: the names of the classes.
        examples: the names of the examples.
        annotators: the names of the annotators.
        annotator_votes: how many labels each annotator gave.
        annotator_quality: the estimated share of right labels of each annotator, if all gave labels to the same examples.
        annotator_agreement: how often other annotators gave the same label to the same example; NaN if there is none.
        agreement_with_consensus: the share of an annotator's labels that equal the consensus, which the annotator had a part in.
        confusion: P(label | true class) of each annotator (A, C, C); rows are true classes.
        prior: the estimated share of each class.
        method: how the consensus was found.
        rounds: how many rounds of EM were needed; 0 for the majority.
    """

    labels: Ints
    soft_labels: Floats
    votes: Ints
    agreement: Floats
    gain: Floats
    classes: tuple[str, ...]
    examples: tuple[str, ...]
    annotators: tuple[str, ...]
    annotator_votes: Ints
    annotator_quality: Floats
    annotator_agreement: Floats
    agreement_with_consensus: Floats
    confusion: Floats
    prior: Floats
    method: str
    rounds: int

    def __len__(self) -> int:
        return len(self.labels)

    def __repr__(self) -> str:
        expected = float((1 - self.probability).sum())
        return (
            f"Consensus({int(self.votes.sum()):,} labels of {len(self.annotators):,} annotators for {len(self):,} examples; "
            f"about {expected:,.0f} may be wrong)"
        )

    @cached_property
    def probability(self) -> Floats:
        """The probability of the consensus label."""
        return np.asarray(self.soft_labels.max(1))

    @cached_property
    def order(self) -> Ints:
        """The examples for which one more label helps most, first; then those that are least certain."""
        return np.lexsort((self.probability, -self.gain))

    @property
    def needs_another(self) -> Flags:
        """The examples whose consensus one more label of an average annotator may change."""
        return self.gain > 1e-9

    @property
    def names(self) -> list[str]:
        """The consensus labels by name."""
        return [self.classes[label] for label in self.labels]

    def _names(self) -> Sequence[str]:
        columns = ("index", "id", "consensus_label", "consensus_probability", "votes", "agreement", "needs_another", "gain")
        return *columns, *(f"p({name})" for name in self.classes)

    def _blocks(self) -> Iterator[Block]:
        for part in parts(np.arange(len(self))):
            named = [self.examples[place] for place in part], [self.classes[label] for label in self.labels[part]]
            columns = (self.probability, self.votes, self.agreement, self.needs_another, self.gain)
            yield part.tolist(), *named, *(column[part].tolist() for column in columns), *self.soft_labels[part].T.tolist()

    def annotator_table(self) -> list[dict[str, Any]]:
        """The annotators as dicts, the best first."""
        return [dict(zip(_ANNOTATOR_COLUMNS, row, strict=True)) for block in self._annotator_blocks() for row in zip(*block, strict=True)]

    def annotators_to_frame(self) -> Any:
        """The annotators as a pandas DataFrame, the best first."""
        return as_frame(self._annotator_blocks(), _ANNOTATOR_COLUMNS)

    def write_annotators(self, path: str | os.PathLike[str]) -> Path:
        """Write the annotators to a file, the best first.

        Args:
            path: ends in .csv, .json or .parquet.
        """
        return write_blocks(path, self._annotator_blocks(), _ANNOTATOR_COLUMNS)

    def _annotator_blocks(self) -> Iterator[Block]:
        for part in parts(np.argsort(-self.annotator_quality, kind="stable")):
            columns = (self.annotator_votes, self.annotator_quality, self.annotator_agreement, self.agreement_with_consensus)
            mistakes = [self._most_frequent_mistake(annotator) for annotator in part]
            yield [self.annotators[annotator] for annotator in part], *(column[part].tolist() for column in columns), mistakes

    def _most_frequent_mistake(self, annotator: int) -> str:
        """The true class and the label of the most frequent kind of wrong label."""
        wrong = self.prior[:, None] * self.confusion[annotator] * (1 - np.eye(len(self.classes)))
        true, label = np.unravel_index(int(wrong.argmax()), wrong.shape)
        return f"{self.classes[true]} labelled {self.classes[label]} ({100 * self.confusion[annotator, true, label]:.0f} %)"


def consensus(
    labels: Any,
    examples: Any = None,
    annotators: Any = None,
    *,
    classes: Sequence[str] | None = None,
    method: str = "dawid_skene",
    smoothing: float | None = None,
) -> Consensus:
    """Find one label per example from the labels of several annotators, and the quality of each annotator.

    Formula:
        P(c | labels of i) ∝ prior_c · Π over its labels (a, l) of confusion_a[c, l];  consensus = the c of the highest probability
        confusion and prior are fitted by EM from the shares of the labels
        quality_a = Σ_c prior_c · confusion_a[c, c]

    An annotator who often mistakes one class for another counts little for these classes only. With two labels per example or fewer,
    there is little to learn about annotators, and the result is close to the majority. The out-of-sample predictions of a model may be one
    more annotator.

    Args:
        labels: a matrix (examples, annotators) with gaps (None, NaN, −1 or empty text), such as a DataFrame; or one label per row.
        examples: the example of each row; for a matrix the names of its rows, by default the index of the DataFrame, or numbers.
        annotators: the annotator of each row; for a matrix the names of its columns, by default those of the DataFrame, or numbers.
        classes: the names of the classes in order; by default those that occur, sorted.
        method: "dawid_skene", or "majority": every label counts the same, and ties go to the more frequent class.
        smoothing: how many labels per class each confusion matrix starts with, spread as in those of all annotators together; 0 is the
            model of Dawid and Skene. By default 1, 4, 16 or 64, whichever predicts labels best that were held out.

    Returns:
        The consensus; ``labels`` and ``soft_labels`` are ready for training.

    Example:
        >>> votes = [["cat", "cat", "dog"], ["dog", "dog", "dog"], ["cat", "cat", "cat"], ["dog", None, "dog"], ["cat", "cat", "dog"]]
        >>> result = consensus(votes, annotators=["ann", "ben", "cid"])
        >>> result.names
        ['cat', 'dog', 'cat', 'dog', 'cat']
        >>> result.annotators[result.annotator_quality.argmin()]
        'cid'

    Reference:
        Dawid and Skene, Maximum Likelihood Estimation of Observer Error-Rates Using the EM Algorithm, Applied Statistics 1979.
    """
    if method not in _METHODS:
        raise invalid_parameter("method", "consensus", "one of " + ", ".join(map(repr, _METHODS)), method)
    if smoothing is not None and not 0 <= smoothing < float("inf"):
        raise invalid_parameter("smoothing", "consensus", "a number of at least 0", smoothing)
    votes = as_votes(labels, examples, annotators, classes)
    if method == "majority":
        return _result(votes, *_majority(votes), method, 0)
    strength = dawid_skene.choose_smoothing(votes) if smoothing is None else smoothing
    fitted = dawid_skene.fit(votes, strength)
    fitted = fitted._replace(confusion=dawid_skene.estimated(votes, fitted, strength))
    return _result(votes, fitted, fitted.posterior.argmax(1), method, len(fitted.objectives))


def _majority(votes: Votes) -> tuple[dawid_skene.Fitted, Ints]:
    """The shares of the labels, the confusion matrices that follow from them, and the most frequent label."""
    posterior = dawid_skene.shares(votes)
    frequent = np.bincount(votes.label, minlength=len(votes.classes)) / len(votes.label)
    return dawid_skene.summarised(votes, posterior), (posterior + 1e-6 * frequent).argmax(1)


def _result(votes: Votes, fitted: dawid_skene.Fitted, labels: Ints, method: str, rounds: int) -> Consensus:
    number = np.bincount(votes.example, minlength=len(votes.examples))
    agrees = votes.label == labels[votes.example]
    by_annotator = np.bincount(votes.annotator, minlength=len(votes.annotators))
    return Consensus(
        labels=labels,
        soft_labels=fitted.posterior,
        votes=number,
        agreement=np.bincount(votes.example, agrees, len(votes.examples)) / number,
        gain=dawid_skene.gain_of_another(fitted.posterior, fitted.pooled),
        classes=votes.classes,
        examples=votes.examples,
        annotators=votes.annotators,
        annotator_votes=by_annotator,
        annotator_quality=np.einsum("acc,c->a", fitted.confusion, fitted.prior),
        annotator_agreement=dawid_skene.pair_agreement(votes),
        agreement_with_consensus=np.bincount(votes.annotator, agrees, len(votes.annotators)) / np.maximum(by_annotator, 1),
        confusion=fitted.confusion,
        prior=fitted.prior,
        method=method,
        rounds=rounds,
    )
