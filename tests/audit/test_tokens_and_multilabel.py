"""Doubtful labels of multi-label rows and of tokens: cases made by hand, simulated mistakes, and cleanlab."""

import csv

import numpy as np
import pytest
import torch
from sklearn.datasets import make_multilabel_classification
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import average_precision_score, roc_auc_score
from sklearn.model_selection import cross_val_predict

from noisewise.audit import find_label_issues, find_multilabel_issues, find_token_issues
from noisewise.errors import InputError


@pytest.fixture(scope="module")
def multilabel():
    """Labels of which a tenth are wrong, which ones are, and probabilities from folds."""
    inputs, true = make_multilabel_classification(800, 20, n_classes=4, n_labels=2, random_state=1)
    wrong = np.random.default_rng(0).random(true.shape) < 0.1
    given = true ^ wrong
    model = LogisticRegression(solver="liblinear")  # much faster than the default for two classes
    chances = [cross_val_predict(model, inputs, labels, cv=3, method="predict_proba")[:, 1] for labels in given.T]
    return given, wrong, np.stack(chances, 1)


def test_every_class_is_judged_as_a_yes_or_no_question(multilabel):
    given, _, chances = multilabel
    result = find_multilabel_issues(given, chances)
    for column in range(4):
        alone = find_label_issues(given[:, column], np.stack([1 - chances[:, column], chances[:, column]], 1))
        assert (result.is_label_issue[:, column] == alone.is_label_issue).all()
        assert result.label_quality[:, column] == pytest.approx(alone.label_quality)
        assert (result.predicted_label[:, column] == (chances[:, column] > 0.5)).all()


def test_wrong_labels_are_ranked_as_well_as_by_cleanlab(multilabel):
    rank = pytest.importorskip("cleanlab.multilabel_classification.rank")
    given, wrong, chances = multilabel
    result, lists = find_multilabel_issues(given, chances), [np.flatnonzero(row).tolist() for row in given]
    theirs = rank.get_label_quality_scores_per_class(lists, chances)
    ours = average_precision_score(wrong.ravel(), -result.label_quality.ravel())
    # Each class has its own estimate of the noise, which is uncertain, so qualities of different classes are less comparable.
    assert ours > average_precision_score(wrong.ravel(), -theirs.ravel()) - 0.06 and ours > 3 * wrong.mean()
    by_row = roc_auc_score(wrong.any(1), -result.example_quality)
    assert by_row > roc_auc_score(wrong.any(1), -rank.get_label_quality_scores(lists, chances)) - 0.02
    assert wrong[result.is_label_issue].mean() > 3 * wrong.mean()


def test_lists_of_classes_are_read_by_name_and_number(multilabel):
    given, _, chances = multilabel
    names = ["ant", "bee", "cat", "dog"]
    expected = find_multilabel_issues(given, torch.tensor(chances)).label_quality
    by_name = [[names[place] for place in np.flatnonzero(row)] for row in given]
    for labels, classes in (
        (by_name, names),
        ([np.flatnonzero(row).tolist() for row in given], None),
        (given.tolist(), names),
        (torch.tensor(given), None),
    ):
        assert (find_multilabel_issues(labels, chances, classes=classes).label_quality == expected).all()


def test_missing_and_superfluous_labels_are_counted(tmp_path):
    sure = np.array([[0.95, 0.05]] * 10 + [[0.05, 0.95]] * 10)
    labels = (sure > 0.5).astype(int)
    labels[3] = [1, 1]
    labels[15] = [0, 0]
    result = find_multilabel_issues(labels, sure, classes=["cat", "dog"], ids=[f"{place}.png" for place in range(20)])
    assert np.argwhere(result.is_label_issue).tolist() == [[3, 1], [15, 1]]
    assert result.by_class[1] == {"class": "dog", "labels": 10, "missing": 1, "superfluous": 1}
    assert sorted(result.order[:2].tolist()) == [3, 15] and result.example_is_issue.sum() == 2
    with result.write(tmp_path / "list.csv").open() as file:
        first = next(csv.DictReader(file))
    assert (first["id"], first["class"], first["is_label_issue"]) in [("3.png", "dog", "True"), ("15.png", "dog", "True")]
    assert len(result.to_frame()) == 40


def sentences(seed=0, number=150):
    """Simulated tags of tokens: labels, probabilities, texts, and which labels are wrong."""
    rng = np.random.default_rng(seed)
    labels, chances, texts, wrong = [], [], [], []
    for length in rng.integers(1, 12, number):
        true = rng.choice(3, length, p=[0.7, 0.2, 0.1])
        mistake = rng.random(length) < 0.05
        labels.append(np.where(mistake, (true + rng.integers(1, 3, length)) % 3, true))
        scores = rng.normal(size=(length, 3)) + 4 * np.eye(3)[true]
        chances.append(np.exp(scores) / np.exp(scores).sum(1, keepdims=True))
        texts.append([f"word{place}{kind}" for place, kind in enumerate(true)])
        wrong.append(mistake)
    return labels, chances, texts, wrong


def test_tokens_are_judged_together_and_sentences_by_their_worst_token():
    labels, chances, texts, wrong = sentences()
    result = find_token_issues(labels, chances, texts, classes=["O", "PER", "LOC"])
    flat = find_label_issues(np.concatenate(labels), np.concatenate(chances))
    assert (result.is_label_issue == flat.is_label_issue).all() and (result.label_quality == flat.label_quality).all()
    assert [(int(s), int(p)) for s, p in zip(result.sentence, result.position, strict=True)] == [
        (number, place) for number, part in enumerate(labels) for place in range(len(part))
    ]
    for number in range(len(labels)):
        assert result.sentence_quality[number] == result.label_quality[result.sentence == number].min()
    found = np.concatenate(wrong)
    assert average_precision_score(found, -result.label_quality) > 0.8 and found[result.is_label_issue].mean() > 0.5
    assert result.sentence_is_issue.sum() == len(set(result.sentence[result.is_label_issue]))


def test_tokens_are_ranked_as_well_as_by_cleanlab():
    rank = pytest.importorskip("cleanlab.token_classification.rank")
    labels, chances, _, wrong = sentences(1)
    _, theirs = rank.get_label_quality_scores([part.tolist() for part in labels], chances)
    result, found = find_token_issues(labels, chances), np.concatenate(wrong)
    assert average_precision_score(found, -result.label_quality) > average_precision_score(found, -np.concatenate(theirs)) - 0.05


def test_ignored_tokens_and_empty_sentences_are_left_out():
    labels, chances, texts, _ = sentences(2, 40)
    padded = [[-100, *part.tolist(), -100] for part in labels]
    framed = [np.concatenate([part[:1], part, part[:1]]) for part in chances]
    result = find_token_issues([*padded, []], [torch.tensor(part) for part in framed] + [np.empty((0, 3))])
    expected = find_token_issues(labels, chances, texts)
    assert (result.label_quality == expected.label_quality).all() and (result.position == expected.position + 1).all()
    assert result.sentence_quality[40] == 1 and not result.sentence_is_issue[40]


def test_doubtful_tokens_are_counted_by_text(tmp_path):
    name, other = [0.02, 0.98], [0.98, 0.02]
    words = [["Ann", "reads"], ["Ben", "reads"], ["Ann", "and", "Ben", "sleep"]] * 50
    chances = [[name, other], [name, other], [name, other, name, other]] * 50
    labels = [["PER", "O"], ["PER", "O"], ["PER", "O", "PER", "O"]] * 50
    for sentence in range(0, 30, 3):
        labels[sentence] = ["O", "O"]
    result = find_token_issues(labels, chances, words, classes=["O", "PER"])
    assert result.by_token() == [{"token": "Ann", "times": 100, "doubtful": 10, "given_label": "O", "predicted_label": "PER"}]
    assert result.sentence_order[:2].tolist() == [0, 3]
    with result.write(tmp_path / "tokens.csv").open() as file:
        assert [(row["sentence"], row["token"]) for row in csv.DictReader(file)][:2] == [("0", "Ann"), ("3", "Ann")]


@pytest.mark.parametrize(
    ("call", "sentence"),
    [
        (lambda: find_multilabel_issues([[1, 0]], [[0.5, 1.5]]), "from 0 to 1. Got 'row 0: [0.5, 1.5]' instead."),
        (lambda: find_multilabel_issues([[1, 0]], [0.5]), "shaped (examples, classes). Got (1,) instead."),
        (lambda: find_multilabel_issues([[1, 0]], [[0.5, 0.5]] * 2), "one row for each of the 2 rows of pred_probs"),
        (lambda: find_multilabel_issues(np.array([[1, 2]]), [[0.5, 0.5]]), "0 or 1, shaped (1, 2)"),
        (lambda: find_multilabel_issues([["emu"]], [[0.5, 0.5]], classes=["cat", "dog"]), "has 'emu', which is not one of the 2 classes."),
        (lambda: find_multilabel_issues(["cat"], [[0.5, 0.5]], classes=["cat", "dog"]), "must be a list of classes. Got 'cat' instead."),
        (lambda: find_multilabel_issues([[1, 0]], [[0.5, 0.5]], classes=["cat"]), "the 2 different names of the columns"),
        (lambda: find_token_issues([[0, 1]], []), "a matrix for each of the 1 sentences"),
        (lambda: find_token_issues([[0, 1]], [[[0.5, 0.5]]]), "one row for each label. Got '1 for 2 labels in sentence 0' instead."),
        (lambda: find_token_issues([[-100]], [[[0.5, 0.5]]]), "at least one token with a label"),
        (lambda: find_token_issues([[0]], [[[0.5, 0.5]]]).by_token(), "Pass tokens to find_token_issues."),
    ],
)
def test_wrong_input_gives_one_sentence(call, sentence):
    with pytest.raises(InputError) as error:
        call()
    assert sentence in str(error.value)
