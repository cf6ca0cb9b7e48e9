"""The consensus of annotators, against published numbers, a slow version of EM, cleanlab, and simulated annotators."""

import csv
import itertools
import json
import math

import numpy as np
import pytest
from typer.testing import CliRunner

from noisewise.audit import _dawid_skene as em
from noisewise.audit import consensus, read_votes
from noisewise.audit._votes import as_votes
from noisewise.cli import app
from noisewise.errors import InputError

# Dawid and Skene (1979), table 1: 45 patients, five anaesthetists, of whom the first gave three labels.
PATIENTS = (
    "111 1 1 1 1|333 4 3 3 4|112 2 1 2 2|222 3 1 2 1|222 3 2 2 2|222 3 3 2 2|122 2 1 1 1|333 3 4 3 3|222 2 2 2 3|232 2 2 2 3|444 4 4 4 4|"
    "222 3 3 4 3|111 1 1 1 1|222 3 2 1 2|121 1 1 1 1|111 2 1 1 1|111 1 1 1 1|111 1 1 1 1|222 2 2 2 1|222 1 3 2 2|222 2 2 2 2|222 2 2 2 1|"
    "222 3 2 2 2|221 2 2 2 2|111 1 1 1 1|111 1 1 1 1|232 2 2 2 2|111 1 1 1 1|111 1 1 1 1|112 1 1 2 1|111 1 1 1 1|333 3 2 3 3|111 1 1 1 1|"
    "222 2 2 2 2|222 3 2 3 2|433 4 3 4 3|221 2 2 3 2|232 3 2 3 3|333 3 4 3 2|111 1 1 1 1|111 1 1 1 1|121 2 1 1 1|232 2 2 2 2|121 1 1 1 1|"
    "222 2 2 2 2"
)


def anaesthetists():
    rows = [
        (patient, observer, int(label))
        for patient, line in enumerate(PATIENTS.split("|"), 1)
        for observer, labels in enumerate(line.split(), 1)
        for label in labels
    ]
    examples, annotators, labels = zip(*rows, strict=True)
    return np.array(labels), examples, annotators


def simulated(seed, number=600, annotators=12, classes=3, each=4):
    """True classes, a confusion matrix per annotator, and rows of labels."""
    rng = np.random.default_rng(seed)
    true = rng.integers(0, classes, number)
    right = rng.uniform(0.4, 0.95, annotators)[:, None, None]
    confusion = right * np.eye(classes) + (1 - right) * rng.dirichlet(np.ones(classes), size=(annotators, classes))
    example = np.repeat(np.arange(number), each)
    annotator = np.concatenate([rng.permutation(annotators)[:each] for _ in range(number)])
    label = np.array([rng.choice(classes, p=confusion[who, true[which]]) for who, which in zip(annotator, example, strict=True)])
    return true, confusion, example, annotator, label


def slow_em(labels, examples, annotators, rounds):
    """Dawid and Skene's equations 2.3 to 2.5, with loops and products."""
    classes, names, people = sorted(set(labels)), sorted(set(examples)), sorted(set(annotators))
    counts = np.zeros((len(names), len(people), len(classes)))
    for label, example, annotator in zip(labels, examples, annotators, strict=True):
        counts[names.index(example), people.index(annotator), classes.index(label)] += 1
    belief = counts.sum(1) / counts.sum((1, 2))[:, None]
    for _ in range(rounds):
        prior = belief.mean(0)
        error = np.array(
            [
                [[sum(belief[:, j] * counts[:, k, label]) for label in range(len(classes))] for j in range(len(classes))]
                for k in range(len(people))
            ]
        )
        error /= error.sum(2, keepdims=True)
        for i, j in itertools.product(range(len(names)), range(len(classes))):
            belief[i, j] = prior[j] * np.prod(error[:, j, :] ** counts[i])
        belief /= belief.sum(1, keepdims=True)
    return belief, error, prior


def test_the_numbers_of_dawid_and_skene_are_found_again():
    result = consensus(*anaesthetists(), smoothing=0)
    assert result.prior.round(2).tolist() == [0.40, 0.42, 0.11, 0.07]  # their table 2
    assert result.confusion[0].round(2).tolist() == [[0.89, 0.11, 0, 0], [0.07, 0.88, 0.05, 0], [0, 0.34, 0.66, 0], [0, 0, 0.56, 0.44]]
    assert result.votes.tolist() == [7] * 45 and result.annotator_votes.tolist() == [135, 45, 45, 45, 45]


def test_em_in_log_space_equals_a_slow_version():
    labels, examples, annotators = anaesthetists()
    belief, error, prior = slow_em(labels, examples, annotators, 200)
    result = consensus(labels, examples, annotators, smoothing=0)
    assert result.soft_labels == pytest.approx(belief, abs=1e-5)
    assert result.confusion == pytest.approx(error, abs=1e-4) and result.prior == pytest.approx(prior, abs=1e-5)


@pytest.mark.parametrize("smoothing", [0.0, 4.0])
def test_no_round_of_em_lowers_its_objective(smoothing):
    _, _, example, annotator, label = simulated(0, number=200)
    objectives = em.fit(as_votes(label, example, annotator, None), smoothing).objectives
    assert len(objectives) > 5 and (np.diff(objectives) > -1e-9 * abs(objectives[0])).all()


def test_thousands_of_labels_of_one_example_do_not_underflow():
    rng = np.random.default_rng(0)
    true = np.arange(20) % 2
    matrix = np.where(rng.random((20, 2000)) < 0.6, true[:, None], 1 - true[:, None])  # 0.6 ** 2000 is 0 in float64
    result = consensus(matrix)
    assert np.isfinite(result.soft_labels).all() and (result.labels == true).all()


def test_known_confusions_are_recovered_and_the_consensus_beats_the_majority():
    gains = []
    for seed in range(3):
        true, confusion, example, annotator, label = simulated(seed, number=1500, each=6)
        result, majority = consensus(label, example, annotator), consensus(label, example, annotator, method="majority")
        order = [int(name) for name in result.annotators]
        assert np.abs(result.confusion - confusion[order]).mean() < 0.04
        assert np.corrcoef(result.annotator_quality, np.einsum("acc->a", confusion[order]))[0, 1] > 0.97
        gains.append(np.mean(result.labels == true) - np.mean(majority.labels == true))
        assert abs(result.probability.mean() - np.mean(result.labels == true)) < 0.03  # the probabilities are calibrated
    assert min(gains) > 0 and np.mean(gains) > 0.01


def test_another_label_where_the_gain_is_highest_helps_more_than_anywhere():
    true, confusion, example, annotator, label = simulated(0, number=600, each=3)
    result, rng = consensus(label, example, annotator), np.random.default_rng(1)

    def accuracy_with_more(where):
        who = rng.integers(0, 12, len(where))
        more = np.array([rng.choice(3, p=confusion[person, true[place]]) for person, place in zip(who, where, strict=True)])
        again = consensus(np.r_[label, more], np.r_[example, where], np.r_[annotator, who])
        return np.mean(again.labels == true)

    chosen = np.mean([accuracy_with_more(result.order[:150]) for _ in range(5)])
    anywhere = np.mean([accuracy_with_more(rng.permutation(600)[:150]) for _ in range(5)])
    assert chosen > anywhere + 0.01 and not result.needs_another[result.probability > 0.999].any()


def test_the_majority_and_the_agreement_are_those_of_cleanlab_and_of_counting():
    multi = pytest.importorskip("cleanlab.multiannotator")
    _, _, example, annotator, label = simulated(4, number=150, each=5)
    matrix = np.full((150, 12), np.nan)
    matrix[example, annotator] = label
    result = consensus(matrix, method="majority")
    counts = np.array([[np.sum(row == c) for c in range(3)] for row in matrix])
    clear = np.sort(counts, 1)[:, -1] > np.sort(counts, 1)[:, -2]
    theirs = multi.get_majority_vote_label(matrix, verbose=False)
    assert clear.sum() > 100 and (result.labels == theirs)[clear].all() and result.soft_labels == pytest.approx(counts / 5)
    for person in range(12):
        pairs = [
            matrix[row, other] == matrix[row, person]
            for row in range(150)
            for other in range(12)
            if other != person and not np.isnan(matrix[row, [person, other]]).any()
        ]
        assert result.annotator_agreement[person] == pytest.approx(np.mean(pairs))
    ties = consensus([["a", "b", None], ["b", "b", "b"], ["a", "a", "b"]], method="majority")
    assert ties.names == ["b", "b", "a"]  # b is the more frequent class


def test_matrices_rows_and_frames_give_the_same_result():
    pandas = pytest.importorskip("pandas")
    matrix = [["cat", "cat", None], ["dog", "", "dog"], [float("nan"), "cat", "dog"], ["dog", "dog", "dog"]]
    frame = pandas.DataFrame(matrix, columns=["ann", "ben", "cid"], index=list("wxyz"))
    rows = [
        (value, example, who)
        for example, row in zip("wxyz", matrix, strict=True)
        for who, value in zip(frame, row, strict=True)
        if isinstance(value, str) and value
    ]
    labels, examples, annotators = zip(*rows, strict=True)
    results = [
        consensus(matrix, examples=list("wxyz"), annotators=["ann", "ben", "cid"]),
        consensus(frame),
        consensus(pytest.importorskip("polars").DataFrame(frame), examples=list("wxyz")),
        consensus(np.array(labels, dtype=object), examples, annotators),
        consensus(np.array([[0, 0, -1], [1, -1, 1], [-1, 0, 1], [1, 1, 1]]), list("wxyz"), ["ann", "ben", "cid"], classes=["cat", "dog"]),
    ]
    for result in results:
        assert result.annotators == ("ann", "ben", "cid") and result.examples == tuple("wxyz") and result.classes == ("cat", "dog")
        assert result.soft_labels == pytest.approx(results[0].soft_labels, abs=1e-9)
    assert math.isnan(consensus([["a", None], [None, "b"]]).annotator_agreement[0])


def test_the_command_writes_labels_and_annotators(tmp_path):
    true, _, example, annotator, label = simulated(5, number=60)
    long, wide, labels, people = (tmp_path / name for name in ("long.csv", "wide.csv", "labels.csv", "people.csv"))
    with long.open("w", newline="") as file:
        csv.writer(file).writerows(
            [
                ("file", "who", "kind"),
                *((f"{row}.png", f"p{who:02}", "abc"[kind]) for row, who, kind in zip(example, annotator, label, strict=True)),
            ]
        )
    names = [["--example", "file"], ["--annotator", "who"], ["--label", "kind"]]
    done = CliRunner().invoke(app, ["consensus", str(long), "-o", str(labels), "--annotators", str(people), *itertools.chain(*names)])
    assert done.exit_code == 0, done.output
    with labels.open() as file:
        rows = list(csv.DictReader(file))
    assert [row["id"] for row in rows] == [f"{row}.png" for row in range(60)]
    assert np.mean([row["consensus_label"] == "abc"[kind] for row, kind in zip(rows, true, strict=True)]) > 0.8
    assert sum(float(rows[0][f"p({name})"]) for name in "abc") == pytest.approx(1) and len(people.read_text().splitlines()) == 13
    matrix = np.full((60, 12), "", dtype=object)
    matrix[example, annotator] = np.array(list("abc"), dtype=object)[label]
    with wide.open("w", newline="") as file:
        csv.writer(file, delimiter=";").writerows(
            [("file", *map("p{:02}".format, range(12))), *([f"{row}.png", *cells] for row, cells in enumerate(matrix))]
        )
    done = CliRunner().invoke(app, ["consensus", str(wide), "-o", str(tmp_path / "again.csv"), "--wide", "--example", "file", "--json"])
    assert done.exit_code == 0 and json.loads(done.stdout)["examples"] == 60
    with (tmp_path / "again.csv").open() as file:
        again = [float(row["consensus_probability"]) for row in csv.DictReader(file)]
    assert again == pytest.approx([float(row["consensus_probability"]) for row in rows], abs=1e-6)


@pytest.mark.parametrize(
    ("call", "sentence"),
    [
        (lambda: consensus(["a", "b"]), "a matrix (examples, annotators), or one label per row with 'examples' and 'annotators'"),
        (lambda: consensus([["a", None], [None, None]]), "Every example given to consensus must have a label. Got none for '1'"),
        (lambda: consensus([[None, None]]), "at least one label. Got gaps only."),
        (lambda: consensus([["a", "b"]], method="vote"), "The 'method' parameter of consensus must be one of 'dawid_skene', 'majority'."),
        (lambda: consensus([["a", "b"]], smoothing=-1), "The 'smoothing' parameter of consensus must be a number of at least 0."),
        (lambda: consensus([["a", "b"]], annotators=["x"]), "a name for each of the 2 annotators. Got '1 names' instead."),
        (lambda: consensus(np.array(["a", "b"]), ["x", "y"], ["z"]), "one for each of the 2 labels. Got '1 annotators' instead."),
        (lambda: consensus([["a", "a"]]), "A classifier needs at least two classes"),
    ],
)
def test_wrong_labels_give_one_sentence(call, sentence):
    with pytest.raises(InputError) as error:
        call()
    assert sentence in str(error.value)


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        (b"example,annotator,label\n", "There are no rows in votes.csv"),
        (b"example,annotator,kind\n1,a,b\n", "There is no column of votes.csv named 'label'."),
        (b"example,annotator,label\n1,a\n", "Row 0 of votes.csv has 2 columns and the first line 3"),
        (b"example,label,label\n1,a,b\n", "must have different names"),
        (b"example,annotator,label\n1,a,\xff\n", "cannot be read"),
    ],
)
def test_a_wrong_file_gives_one_sentence(text, sentence, tmp_path):
    (tmp_path / "votes.csv").write_bytes(text)
    with pytest.raises(InputError) as error:
        read_votes(tmp_path / "votes.csv", example="example", annotator="annotator", label="label")
    assert sentence in str(error.value)
    done = CliRunner().invoke(app, ["consensus", str(tmp_path / "votes.csv"), "-o", str(tmp_path / "labels.csv")])
    assert done.exit_code == 2 and sentence in done.stderr and not (tmp_path / "labels.csv").exists()


def test_the_command_does_not_overwrite_its_input_or_ignore_options(tmp_path):
    file = tmp_path / "votes.csv"
    file.write_text("example,annotator,label\n1,a,x\n1,b,y\n")
    for options in (["-o", str(file)], ["--annotators", str(file)], ["--wide", "--label", "kind"]):
        assert CliRunner().invoke(app, ["consensus", str(file), *options]).exit_code == 2
    assert file.read_text().startswith("example,annotator,label")
