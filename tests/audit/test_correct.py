"""Corrected labels: what each policy changes, that every change is listed and can be taken back, and that retraining on them works."""

import csv
import hashlib
import json
import re
import shutil
from dataclasses import replace

import numpy as np
import pytest
import torch
from short_runs import QUICK, SETTINGS
from torch import nn

from costs import Compared
from noisewise import InputError, Recorder, Run, fit
from noisewise.audit import audit, find_label_issues
from noisewise.correct import Correction, correct, read_decisions, retrain, review
from noisewise.correct._decisions import Decision
from noisewise.data import load
from noisewise.runs import examples_as_given, examples_of, read_origin
from registry import SEPARATE, build
from test_dynamics import write_run


@pytest.fixture(scope="module")
def found(digits_run):
    return audit(digits_run)


def test_relabelling_removes_most_wrong_labels(found, digits_run):
    record = digits_run.dynamics.record
    corrected = correct(found, "relabel")
    assert (corrected.labels != record.true).sum() < 0.35 * record.wrong.sum()
    np.testing.assert_array_equal(corrected.changed, found.is_issue & (found.lead > 2))
    np.testing.assert_array_equal(corrected.labels[corrected.changed], found.suggested[corrected.changed])
    assert corrected.kept.all() and (corrected.share == 1).all()


@pytest.mark.parametrize(
    ("policy", "touched"),
    [("relabel", [1]), ("relabel(lead=1)", [1, 2]), ("relabel(lead=4)", []), ("prune", [1, 2]), ("prune(lead=3)", [1])],
)
def test_only_a_suggestion_with_enough_votes_is_followed(tmp_path, policy, touched):
    training = [(epoch, np.zeros(4), np.array([0, 1, 1, 0])) for epoch in range(1, 6)]
    found = audit(write_run(tmp_path / "run", np.zeros(4, dtype=int), training=training, classes=2, loss="ce"))
    doubtful = np.array([False, True, True, False])
    told = replace(found, is_issue=doubtful, quality=np.where(doubtful, 0.1, 1.0), suggested=doubtful * 1, lead=np.array([0, 4.0, 1.5, 0]))
    assert np.flatnonzero(correct(told, policy).changed).tolist() == touched


def test_pruning_leaves_the_doubtful_out_and_the_rest_as_it_was(found):
    corrected = correct(found, "prune")
    np.testing.assert_array_equal(corrected.kept, ~found.is_issue)
    np.testing.assert_array_equal(corrected.labels, found.given)


def test_softening_shares_a_label_by_the_chance_that_it_is_wrong(found):
    corrected = correct(found, "soften")
    np.testing.assert_allclose(corrected.share[found.is_issue], 1 - found.quality[found.is_issue])
    assert (corrected.share[~found.is_issue] == 1).all()
    np.testing.assert_array_equal(corrected.labels, np.where(found.is_issue, found.suggested, found.given))


def test_a_stricter_bound_changes_fewer_labels(found):
    few, many = correct(found, "relabel(below=0.2)"), correct(found, "relabel")
    assert 0 < few.changed.sum() < many.changed.sum()
    assert (found.quality[few.changed] < 0.2).all()


def test_a_run_is_audited_before_it_is_corrected(found, digits_run):
    for run in (digits_run, digits_run.path, str(digits_run.path), digits_run.dynamics):
        np.testing.assert_array_equal(correct(run, "prune(below=0.2)").kept, correct(found, "prune(below=0.2)").kept)


@pytest.mark.parametrize("something", [find_label_issues([0, 1], [[0.9, 0.1], [0.9, 0.1]]), 3, None])
def test_what_is_neither_an_audit_nor_a_run_is_refused(something):
    with pytest.raises(InputError, match=r"The 'audit_or_run' parameter of correct must be the audit .* Got '"):
        correct(something)


def test_an_unknown_policy_and_a_bound_that_is_none_are_refused(found):
    with pytest.raises(InputError, match=r"There is no policy named 'relable'. Did you mean 'relabel'\?"):
        correct(found, "relable")
    with pytest.raises(InputError, match=r"The 'below' parameter of Prune must be in \(0, 1\]. Got 2 instead."):
        correct(found, "prune(below=2)")


@pytest.mark.parametrize("policy", ["relabel", "prune", "soften"])
def test_a_file_lists_every_change_and_reads_back(found, tmp_path, policy):
    corrected = correct(found, policy)
    path = corrected.write(tmp_path / "labels.csv")
    with path.open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    assert [int(row["index"]) for row in rows] == found.index.tolist()
    assert [row["change"] for row in rows] == [policy if changed else "" for changed in corrected.changed]
    again = Correction.read(path, corrected.classes)
    for name in ("index", "given", "labels", "share", "kept"):
        np.testing.assert_array_equal(getattr(again, name), getattr(corrected, name))
    assert again.ids == corrected.ids


def test_undoing_gives_the_file_of_labels_that_were_never_changed(found, tmp_path):
    untouched = correct(found, "relabel", decisions={}).write(tmp_path / "untouched.csv")
    for policy in ("relabel", "prune", "soften"):
        path = correct(found, policy).write(tmp_path / f"{policy}.csv")
        assert path.read_bytes() != untouched.read_bytes()
        Correction.read(path, found.dynamics.record.classes).undone().write(path)
        assert path.read_bytes() == untouched.read_bytes()


def test_decisions_are_applied_and_nothing_else(found, tmp_path):
    first, second, third = (int(found.index[place]) for place in found.order[:3])
    (tmp_path / "decisions.json").write_text(json.dumps([{"index": first, "decision": "accept"}, {"index": second, "decision": "reject"}]))
    (tmp_path / "decisions.csv").write_text(f'"index","decision"\n"{first}","accept"\n"{second}","reject"\n')
    for name in ("decisions.json", "decisions.csv"):
        decisions = read_decisions(tmp_path / name)
        assert {number: bool(decision) for number, decision in decisions.items()} == {first: True, second: False}
        corrected = correct(found, decisions=decisions)
        assert found.index[corrected.changed].tolist() == [first] and third not in decisions


@pytest.mark.parametrize(
    ("name", "text", "sentence"),
    [
        ("decisions.json", '[{"index": 1, "decision": "maybe"}]', r"Entry 1 of .* must have an index, .* accept or reject"),
        ("decisions.json", '{"1": "accept"}', r"must be a list"),
        ("decisions.json", "[", r"cannot be read"),
        ("decisions.csv", "index\n1\n", r"Entry 1 of .* must have an index, an integer, and a decision"),
        ("decisions.csv", "index,decision\n7.9,accept\n", "must have an index, an integer"),
        ("decisions.json", '[{"index": 7.9, "decision": "accept"}]', "must have an index, an integer"),
        ("decisions.json", '[{"index": 7.0, "decision": "accept"}]', "must have an index, an integer"),
        ("decisions.json", '[{"index": true, "decision": "accept"}]', "must have an index, an integer"),
        ("decisions.json", '[{"index": Infinity, "decision": "accept"}]', "Infinity is not a finite number"),
        ("decisions.csv", "index,decision\n7,accept\n8,accept\n7,reject\n", r"Entry 3 of .* example 7"),
    ],
)
def test_decisions_that_are_none_are_refused(tmp_path, name, text, sentence):
    (tmp_path / name).write_text(text)
    with pytest.raises(InputError, match=sentence):
        read_decisions(tmp_path / name)


def test_decisions_of_another_run_are_refused(found):
    with pytest.raises(InputError, match="The decisions name example 99999, which the run does not have"):
        correct(found, decisions={99999: True})


def test_what_the_person_saw_is_what_is_accepted_and_must_be_of_the_run(found, tmp_path):
    place = int(found.order[0])
    classes, number, given = found.dynamics.record.classes, int(found.index[place]), int(found.given[place])
    other = next(name for name in classes if name not in (classes[given], classes[found.suggested[place]]))
    entry = {"index": number, "id": found.ids[place], "given_label": classes[given], "suggested_label": other, "decision": "accept"}
    path = tmp_path / "decisions.json"

    def decided(**changed):
        path.write_text(json.dumps([{**entry, **changed}]))
        return correct(found, decisions=read_decisions(path))

    assert classes[decided().labels[place]] == other, "and not what this audit would suggest"
    assert decided(decision="reject").changes == {}
    for changed, sentence in (
        ({"id": "photo/cat-17.png"}, f"example {number} is 'photo/cat-17.png'"),
        ({"given_label": other}, f"example {number} is '{other}' in the decisions, but '{classes[given]}' in the run"),
        ({"suggested_label": "dgo"}, "There is no class named 'dgo'"),
        ({"suggested_label": classes[given]}, "the suggested label is the given one"),
    ):
        with pytest.raises(InputError, match=re.escape(sentence)):
            decided(**changed)


def test_many_suggestions_are_found_without_comparing_each_with_all_classes(tmp_path, monkeypatch):
    labels = np.arange(300)
    training = [(epoch, np.full(300, 2.0), labels) for epoch in range(1, 9)]
    found = audit(write_run(tmp_path / "run", labels, training=training, classes=300, loss="ce"))
    decisions = {number: Decision(True, suggested=Compared(f"class {number - 1}")) for number in range(1, 300)}
    monkeypatch.setattr(Compared, "times", 0)
    assert correct(found, decisions=decisions).labels.tolist() == [0, *range(299)]
    assert Compared.times < 20 * 300


@pytest.mark.parametrize("word", ["reject", "accept", 1, None])
def test_a_decision_that_is_a_word_is_not_taken_for_yes(found, word):
    with pytest.raises(InputError, match="'decisions' parameter of correct must be booleans"):
        correct(found, decisions={int(found.index[0]): word})


def test_a_list_of_labels_that_a_spreadsheet_saved_is_read(found, tmp_path):
    path = correct(found).write(tmp_path / "labels.csv")
    path.write_bytes(b"\xef\xbb\xbf" + path.read_bytes())
    assert Correction.read(path, found.dynamics.record.classes).changes == correct(found).changes


def test_a_loader_that_draws_its_inputs_anew_can_be_trained_again(tmp_path):
    class Shaken(torch.utils.data.Dataset):
        def __len__(self):
            return 60

        def __getitem__(self, place):
            return torch.randn(4) + 3 * (place % 2), torch.tensor(place % 2)

    run = fit("linear", torch.utils.data.DataLoader(Shaken(), batch_size=20), epochs=2, folder=tmp_path / "run", device="cpu")
    assert retrain(run, correct(audit(run), decisions={})).state == "finished"


def test_a_run_can_be_reviewed_by_its_folder(digits_run, tmp_path):
    assert review(digits_run.path, tmp_path / "a.html").read_bytes() == review(audit(digits_run), tmp_path / "b.html").read_bytes()
    with pytest.raises(InputError, match=r"The 'audit_or_run' parameter of review must be the audit .* Got 'int'"):
        review(3, tmp_path / "c.html")


@pytest.mark.parametrize("policy", ["relabel", "soften"])
def test_a_suggestion_that_is_none_cannot_be_accepted(tmp_path, policy):
    training = [(epoch, [2.0, -2.0, 1.0, np.nan], [0, 0, 1, -1]) for epoch in range(1, 9)]
    found = audit(write_run(tmp_path / "run", [0, 1, 1, 0], training=training, classes=2, loss="ce"))
    for believed_or_never_seen in (2, 3):
        with pytest.raises(InputError, match=f"for example {believed_or_never_seen}, but the suggested label"):
            correct(found, policy, decisions={1: True, believed_or_never_seen: True})
    corrected = correct(found, policy, decisions={1: True, 2: False, 3: False})
    assert corrected.changes == {policy: 1} and np.isfinite(corrected.probabilities()).all()
    assert correct(found, "prune", decisions={3: True}).changes == {"prune": 1}, "leaving an example out needs no suggestion"


@pytest.mark.parametrize(
    ("row", "sentence"),
    [
        ("1,1,cat,dog,nan,soften", r"must be from 0 to 1.* Got nan for example 1 instead"),
        ("1,1,cat,dog,7,soften", r"must be from 0 to 1.* Got 7\.0 for example 1 instead"),
        ("1,1,cat,dog,-0.5,soften", r"must be from 0 to 1.* Got -0\.5 for example 1 instead"),
        ("1,1,cat,cat,0.5,", r"Got 0\.5 for example 1 instead"),
        ("1,1,cat,,0.5,prune", r"Got 0\.5 for example 1 instead"),
        ("0,0,cat,dog,0.5,soften", "lists example 0 more than once"),
    ],
)
def test_a_file_with_rows_that_cannot_be_is_refused(tmp_path, row, sentence):
    head = "index,id,given_label,label,share,change\n0,0,cat,cat,1.0,\n"
    (tmp_path / "labels.csv").write_text(head + "1,1,cat,dog,0.5,soften\n")
    assert Correction.read(tmp_path / "labels.csv", ("cat", "dog")).changes == {"soften": 1}
    (tmp_path / "labels.csv").write_text(f"{head}{row}\n")
    with pytest.raises(InputError, match=sentence):
        Correction.read(tmp_path / "labels.csv", ("cat", "dog"))


def test_a_file_of_something_else_is_refused(found, tmp_path):
    (tmp_path / "other.csv").write_text("a,b\n1,2\n")
    with pytest.raises(InputError, match="must have the columns index, id, given_label, label, share, change"):
        Correction.read(tmp_path / "other.csv", found.dynamics.record.classes)
    path = correct(found).write(tmp_path / "labels.csv")
    with pytest.raises(InputError, match="corrected labels of these classes"):
        Correction.read(path, ("cat", "dog"))
    with pytest.raises(InputError, match=r"must be a file that ends in \.csv"):
        correct(found).write(tmp_path / "labels.txt")


def test_examples_that_are_not_the_run_s_are_refused(found, digits_run):
    examples = examples_as_given(digits_run.dynamics.record)
    np.testing.assert_array_equal(examples.labels, found.given)
    other = replace(examples, labels=(examples.labels + 1) % 10)
    for data in (other, examples.take(torch.arange(100))):  # other labels, or too few
        with pytest.raises(InputError, match="are not those of the run"):
            examples_as_given(digits_run.dynamics.record, data)
    with pytest.raises(InputError, match="are not those that were corrected"):
        correct(found).apply(other)


def test_examples_of_a_run_have_the_noise_of_its_seed(tmp_path):
    run = fit("linear", "digits", noise="symmetric(0.4)", seed=3, epochs=1, folder=tmp_path / "run", device="cpu", **QUICK)
    np.testing.assert_array_equal(examples_of(run.dynamics.record).labels, run.dynamics.record.given)


def test_examples_are_found_by_their_number_whatever_their_order(found, digits_run):
    record, ordered = digits_run.dynamics.record, examples_as_given(digits_run.dynamics.record)
    shuffled = load("digits").take(torch.randperm(1437, generator=torch.Generator().manual_seed(0)))
    with pytest.raises(InputError, match="are not those of the run"):
        examples_as_given(record, shuffled)  # the noise falls on other examples
    given = replace(record, folder=record.folder)
    given.settings["noise"] = "none"
    noisy = load("digits").corrupted("symmetric(0.4)").take(shuffled.index)
    assert torch.equal(examples_as_given(given, noisy).inputs, ordered.inputs)
    few = examples_as_given(record, places=[7, 3])
    assert torch.equal(few.inputs, ordered.inputs[[7, 3]]) and few.labels.tolist() == found.given[[7, 3]].tolist()


def test_what_cannot_be_a_data_set_is_refused(found, digits_run):
    examples = examples_as_given(digits_run.dynamics.record)
    with pytest.raises(InputError, match=r"one label per example, but .* were softened"):
        correct(found, "soften").apply(examples)
    nobody = replace(correct(found, "prune"), kept=np.zeros(len(found), dtype=bool))
    with pytest.raises(InputError, match="No example would be left"):
        nobody.apply(examples)


def test_softened_labels_are_refused_by_retrain_before_the_data_are_read(found, digits_run, tmp_path):
    with pytest.raises(InputError, match=r"one label per example, but .* were softened.* give probabilities\(\) to a loss"):
        retrain(digits_run, correct(found, "soften"), data="nowhere.csv", folder=tmp_path / "again")
    assert not (tmp_path / "again").exists()


def test_softened_labels_are_targets_of_every_loss_that_looks_at_one_example_at_a_time(found):
    softened = correct(found, "soften")
    few = np.concatenate([np.flatnonzero(found.is_issue)[:20], np.flatnonzero(~found.is_issue)[:20]])
    targets = torch.from_numpy(softened.probabilities())[few]
    scores = torch.randn(40, 10, dtype=torch.float64)
    label, given, share = (torch.from_numpy(values[few]) for values in (softened.labels, softened.given, softened.share))
    for name in SEPARATE:
        loss = build(name, reduction="none")
        shared = share * loss(scores, label) + (1 - share) * loss(scores, given)
        torch.testing.assert_close(loss(scores, targets), shared, msg=lambda text, name=name: f"{name}: {text}")
    np.testing.assert_allclose(targets.sum(1), 1)
    assert (targets.amax(1) < 1).sum() == 20


def test_hard_labels_as_targets_are_one_for_the_label_and_nothing_for_those_left_out(found):
    np.testing.assert_array_equal(
        correct(found, "relabel").probabilities(), np.eye(10)[np.where(found.is_issue, found.suggested, found.given)]
    )
    np.testing.assert_array_equal(correct(found, "prune").probabilities(), np.eye(10)[found.given[~found.is_issue]])


@pytest.fixture(scope="module")
def memorised(tmp_path_factory):
    """A run long enough for cross-entropy to learn wrong labels by heart."""
    folder = tmp_path_factory.mktemp("memorised") / "run"
    return fit("mlp", "digits", noise="symmetric(0.4)", epochs=80, folder=folder, **SETTINGS, **QUICK)


@pytest.mark.parametrize("policy", ["relabel", "prune"])
def test_the_examples_of_a_retrained_run_are_found_in_the_data_of_the_first(digits_run, found, tmp_path, policy):
    again = retrain(digits_run.path, correct(found, policy), folder=tmp_path / "again", epochs=2)
    digits, record, few = load("digits"), again.dynamics.record, [700, 3]
    for data in (None, "digits", again.data):
        examples = examples_of(record, data)
        assert torch.equal(examples.inputs, digits.inputs[examples.index]) and len(examples) == len(record.given)
        np.testing.assert_array_equal(examples.labels, record.given)
        np.testing.assert_array_equal(examples_of(record, data, places=few).index, examples.index[few])
    with pytest.raises(InputError, match="are not those of the run"):
        examples_of(record, digits.take(torch.arange(1436, -1, -1)))


@pytest.mark.parametrize("otherwise", [{"seed": 5}, {"noise": "symmetric(0.1)"}, {"seed": 5, "validation": 0.2}])
def test_the_examples_are_found_whatever_the_second_training_did_otherwise(digits_run, found, tmp_path, otherwise):
    again = retrain(digits_run, correct(found, "prune"), folder=tmp_path / "again", epochs=2, **otherwise)
    twice = retrain(again, correct(audit(again), decisions={}), data="digits", folder=tmp_path / "twice", **{**otherwise, "seed": 6})
    digits = load("digits")
    for run in (again, twice):
        record = run.dynamics.record
        for examples in (examples_of(record), examples_of(record, digits)):
            assert torch.equal(examples.inputs, digits.inputs[np.load(run.path / "labels/index.npy")])
            np.testing.assert_array_equal(examples.labels, record.given)
        with pytest.raises(InputError, match="are not those of the run"):
            examples_of(record, digits.take(torch.arange(1436, -1, -1)))
    (twice.path / "labels/first.npy").unlink()
    with pytest.raises(InputError, match=r"first\.npy"):
        examples_of(twice.dynamics.record, "digits")


def test_retraining_takes_the_inputs_of_the_run_and_no_others(memorised, tmp_path):
    digits = load("digits")
    turned = replace(digits, inputs=digits.inputs.flip(-1))
    with pytest.raises(InputError, match=r"The data 'digits' are not those of the run in .*: their inputs differ"):
        retrain(memorised, correct(audit(memorised)), data=turned, folder=tmp_path / "again")
    assert not (tmp_path / "again").exists()


@pytest.mark.parametrize("length", [{"epochs": 40}, {"steps": 400}])
def test_a_run_that_stopped_early_is_trained_again_as_long_as_it_was(tmp_path, length):
    inputs, labels = torch.randn(120, 4, generator=torch.Generator().manual_seed(0)), torch.arange(120) % 3
    asked = {"validation": 0.2, "patience": 1, "batch_size": 12, "device": "cpu"}
    run = fit("linear", (inputs, labels), test=(inputs, labels), folder=tmp_path / "run", **asked, **length)
    again = retrain(run, correct(audit(run), decisions={}), test=(inputs, labels))
    assert len(again.metrics) == len(run.metrics) < 40
    assert set(read_origin(again.path).otherwise) == set(length), "and the report says so"
    longer = retrain(run, correct(audit(run), decisions={}), test=(inputs, labels), folder=tmp_path / "longer", epochs=30, steps=None)
    assert len(longer.metrics) == 30


def test_a_test_set_in_memory_is_that_of_the_new_run_and_one_that_is_gone_is_missed_before_training(tmp_path):
    inputs, labels = torch.randn(60, 4, generator=torch.Generator().manual_seed(0)), torch.arange(60) % 3
    run = fit("linear", (inputs, labels), test=(inputs[:20], labels[:20]), epochs=2, folder=tmp_path / "run", device="cpu")
    unchanged = correct(audit(run), decisions={})
    assert retrain(run, unchanged).dynamics.accuracy == run.dynamics.accuracy is not None

    def stop(*_):
        raise KeyboardInterrupt

    with pytest.warns(UserWarning, match="source of its test set"), pytest.raises(KeyboardInterrupt):
        retrain(run.path, unchanged, data=(inputs, labels), folder=tmp_path / "again", watch=stop)


def test_a_correction_says_which_classes_it_leaves_empty(tmp_path):
    training = [(epoch, [2.0, -2.0, 1.0], [0, 0, 0]) for epoch in range(1, 9)]
    found = audit(write_run(tmp_path / "run", [0, 1, 0], training=training, classes=3, loss="ce"))
    for policy in ("relabel", "prune"):
        corrected = correct(found, policy, decisions={1: True})
        assert corrected.emptied == ("class 1",) and repr(corrected).endswith("; none is left of 'class 1')")
    assert correct(found, decisions={}).emptied == ()


def test_a_policy_leaves_no_class_without_labels(tmp_path):
    """Nothing was learned of class 1, of class 0 two labels are wrong; class 3 would only be left by a label of class 1."""
    given, said = [0, 0, 0, 0, 1, 1, 2, 2, 2, 3], [0, 0, 2, 2, 3, 3, 2, 2, 2, 0]
    margins = [2.0 if label == one else -2.0 for label, one in zip(given, said, strict=True)]
    found = audit(write_run(tmp_path / "run", given, training=[(epoch, margins, said) for epoch in range(1, 30)], classes=4, loss="ce"))
    assert found.is_issue.tolist() == [label != one for label, one in zip(given, said, strict=True)]
    for policy in ("relabel", "prune"):
        corrected = correct(found, policy)
        assert corrected.emptied == () and corrected.spared == ("class 1", "class 3")
        assert corrected.changed.tolist() == [False, False, True, True, *[False] * 6]
        assert repr(corrected).endswith("; those of 'class 1', 'class 3' stay, as none would be left)")


def test_a_run_from_before_a_setting_was_there_is_trained_again(memorised, tmp_path):
    folder = tmp_path / "old"
    shutil.copytree(memorised.path, folder)
    settings = json.loads((folder / "settings.json").read_text())
    del settings["keep"]
    (folder / "settings.json").write_text(json.dumps(settings))
    again = retrain(Run(folder), correct(audit(Run(folder)), "relabel"), folder=tmp_path / "again", epochs=2)
    assert again.state == "finished" and "keep" not in read_origin(again.path).settings


@pytest.mark.parametrize("policy", ["relabel", "prune"])
def test_retraining_on_corrected_labels_mends_a_run_that_memorised_wrong_ones(memorised, tmp_path, policy):
    corrected = correct(audit(memorised), policy)
    again = retrain(memorised, corrected, folder=tmp_path / "again")
    assert again.dynamics.final > memorised.dynamics.final + 0.1
    assert again.settings.noise == "none" and again.settings.epochs == memorised.settings.epochs
    np.testing.assert_array_equal(again.dynamics.record.given, corrected.labels[corrected.kept])
    kept = Correction.read(again.path / "labels/corrected.csv", corrected.classes)
    np.testing.assert_array_equal(kept.labels, corrected.labels)
    assert again.dynamics.record.wrong.mean() < 0.5 * memorised.dynamics.record.wrong.mean()
    origin, record = read_origin(again.path), memorised.dynamics.record
    assert (again.path / origin.folder).resolve() == memorised.path.resolve()
    assert origin.settings == {"data": "digits", "noise": "symmetric(0.4)", "validation": 0.0, "patience": None, "keep": "last"}
    assert (origin.policy, origin.changes) == (policy, {policy: corrected.changed.sum()})
    assert (origin.before.examples, origin.before.wrong, origin.before.final) == (1437, record.wrong.sum(), memorised.dynamics.final)
    assert origin.before.labels == hashlib.sha256(record.given.tobytes()).hexdigest()
    assert origin.labels == hashlib.sha256(again.dynamics.record.given.tobytes()).hexdigest()
    assert read_origin(memorised.path) is None


def test_a_run_can_be_corrected_twice_and_by_hand_and_knows_all_that_was_done(digits_run, found, tmp_path):
    worst = int(found.index[found.order[0]])
    once = retrain(digits_run, correct(found, decisions={worst: True}), folder=tmp_path / "once", epochs=15, seed=5)
    assert read_origin(once.path).changes == {"relabel": 1} and read_origin(once.path).policy == "by hand"
    twice = retrain(once, correct(audit(once), "relabel(below=0.4)"), folder=tmp_path / "twice")
    origin = read_origin(twice.path)
    assert origin.steps == ("relabelled (by hand)", "relabelled (relabel(below=0.4))")
    assert origin.settings["data"] == "digits" and origin.settings["noise"] == "symmetric(0.4)"
    assert twice.dynamics.final is not None, "the test set is still that of digits"
    assert (twice.path / origin.folder).resolve() == once.path.resolve()
    page = review(audit(once.path), tmp_path / "review.html", limit=3).read_text(encoding="utf-8")
    assert page.count("data:image/png") == 3, "the examples are shown, though nobody gave them"


@pytest.mark.parametrize("ending", ["csv", "json"])
def test_a_list_replaces_its_like_and_nothing_else(found, tmp_path, ending):
    file = tmp_path / f"mine.{ending}"
    for _ in range(2):
        assert found.write(file) == file
    file.write_text("a,b\n1,2\n")
    with pytest.raises(InputError, match=r"mine.*' already exists"):
        found.write(file)
    assert file.read_text() == "a,b\n1,2\n"
    if ending == "csv":
        with pytest.raises(InputError, match="already exists"):
            correct(found).write(file)


class mlp(nn.Module):  # noqa: N801 - called as a model of ours is
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(64, 10)

    def forward(self, inputs):
        return self.layer(inputs.flatten(1))


def test_a_model_or_a_loop_of_ones_own_is_not_replaced_by_one_of_ours(tmp_path):
    run = fit(mlp(), "digits", epochs=1, noise="symmetric(0.2)", folder=tmp_path / "own", device="cpu")
    with pytest.raises(InputError, match=r"has a custom model"):
        retrain(run, correct(run.find_label_issues()))
    with pytest.raises(InputError, match="has a custom model"):
        run.model()
    with pytest.raises(InputError, match="The 'into' parameter of a run must be a module with the layers of its model"):
        run.predict(load("digits", "test").inputs, into="mlp")
    again = retrain(run, correct(run.find_label_issues()), model=mlp())
    assert again.settings.model == "mlp" and set(again.model(into=mlp()).state_dict()) == {"layer.weight", "layer.bias"}
    labels = torch.arange(40) % 2
    with Recorder(tmp_path / "loop", labels, loss="ce", model="linear") as recorder:
        for _ in range(2):
            recorder.log(torch.arange(40), torch.eye(2)[labels])
            recorder.end_epoch()
        recorded = recorder.finish(nn.Linear(2, 2))
    with pytest.raises(InputError, match=r"was written by a Recorder"):
        retrain(recorded, correct(recorded.find_label_issues()), data=(torch.rand(40, 2), labels))
