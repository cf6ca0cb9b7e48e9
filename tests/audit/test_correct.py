"""Corrected labels: what each policy changes, how changes are listed and reverted, and retraining on them."""

import csv
import hashlib
import json
import shutil
from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import nn
from training_settings import QUICK, SETTINGS

from costs import Compared
from noisewise import Recorder, Run, fit
from noisewise.audit import audit, audit_run, find_label_issues
from noisewise.correct import Correction, Decision, correct, read_decisions, retrain, review, write_tasks
from noisewise.data import load
from noisewise.runs import examples_as_given, examples_of, read_origin
from refused import refused, warned
from registry import SEPARATE, build
from run_folders import write_run


def test_relabelling_removes_most_wrong_labels(digits_audit, digits_run):
    record = digits_run.dynamics.record
    corrected = correct(digits_audit, "relabel")
    assert (corrected.labels != record.true).sum() < 0.35 * record.wrong.sum()
    np.testing.assert_array_equal(corrected.changed, digits_audit.is_issue & (digits_audit.lead > 2))
    np.testing.assert_array_equal(corrected.labels[corrected.changed], digits_audit.suggested[corrected.changed])
    assert corrected.kept.all() and (corrected.share == 1).all()


@pytest.mark.parametrize(
    ("policy", "touched"),
    [("relabel", [1]), ("relabel(lead=1)", [1, 2]), ("relabel(lead=4)", []), ("prune", [1, 2]), ("prune(lead=3)", [1])],
)
def test_only_suggestions_with_enough_votes_are_applied(tmp_path, policy, touched):
    training = [(epoch, np.zeros(4), np.array([0, 1, 1, 0])) for epoch in range(1, 6)]
    audited = audit(write_run(tmp_path / "run", np.zeros(4, dtype=int), training=training, classes=2, loss="ce"))
    doubtful, lead = np.array([False, True, True, False]), np.array([0, 4.0, 1.5, 0])
    doubts = replace(audited, is_label_issue=doubtful, label_quality=np.where(doubtful, 0.1, 1.0), suggested_label=doubtful * 1, lead=lead)
    assert np.flatnonzero(correct(doubts, policy).changed).tolist() == touched


def test_pruning_removes_the_doubtful_labels_only(digits_audit):
    corrected = correct(digits_audit, "prune")
    np.testing.assert_array_equal(corrected.kept, ~digits_audit.is_issue)
    np.testing.assert_array_equal(corrected.labels, digits_audit.given)


def test_softening_splits_a_label_by_the_chance_that_it_is_wrong(digits_audit):
    corrected = correct(digits_audit, "soften")
    np.testing.assert_allclose(corrected.share[digits_audit.is_issue], 1 - digits_audit.quality[digits_audit.is_issue])
    assert (corrected.share[~digits_audit.is_issue] == 1).all()
    np.testing.assert_array_equal(corrected.labels, np.where(digits_audit.is_issue, digits_audit.suggested, digits_audit.given))


def test_a_stricter_bound_changes_fewer_labels(digits_audit):
    few, many = correct(digits_audit, "relabel(below=0.2)"), correct(digits_audit, "relabel")
    assert 0 < few.changed.sum() < many.changed.sum()
    assert (digits_audit.quality[few.changed] < 0.2).all()


def test_a_run_is_audited_before_it_is_corrected(digits_audit, digits_run):
    for run in (digits_run, digits_run.path, str(digits_run.path), digits_run.dynamics):
        np.testing.assert_array_equal(correct(run, "prune(below=0.2)").kept, correct(digits_audit, "prune(below=0.2)").kept)


@pytest.mark.parametrize("something", [find_label_issues([0, 1], [[0.9, 0.1], [0.9, 0.1]]), 3, None])
def test_anything_but_an_audit_or_a_run_is_refused(something):
    with refused("audit_or_run", "correct", type(something).__name__):
        correct(something)


@pytest.mark.parametrize("data", ["digits", "no-such-run"])
def test_data_are_not_trained_on_where_a_run_is_needed(tmp_path, monkeypatch, data):
    monkeypatch.chdir(tmp_path)
    for needs_a_run in (correct, review, lambda run: write_tasks(run, "tasks.json"), audit_run):
        with refused("no run", data):
            needs_a_run(data)
    assert not list(tmp_path.iterdir())


def test_an_unknown_policy_and_an_invalid_bound_are_refused(digits_audit):
    with refused("relable", "relabel"):
        correct(digits_audit, "relable")
    with refused("below", "Prune", "(0, 1]", 2):
        correct(digits_audit, "prune(below=2)")


@pytest.mark.parametrize("policy", ["relabel", "prune", "soften"])
def test_a_file_lists_every_change_and_reads_back(digits_audit, tmp_path, policy):
    corrected = correct(digits_audit, policy)
    path = corrected.write(tmp_path / "labels.csv")
    with path.open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    assert [int(row["index"]) for row in rows] == digits_audit.index.tolist()
    assert [row["change"] for row in rows] == [policy if changed else "" for changed in corrected.changed]
    again = Correction.read(path, corrected.classes)
    for name in ("index", "given", "labels", "share", "kept"):
        np.testing.assert_array_equal(getattr(again, name), getattr(corrected, name))
    assert again.ids == corrected.ids


def test_undoing_restores_the_unchanged_labels(digits_audit, tmp_path):
    untouched = correct(digits_audit, "relabel", decisions={}).write(tmp_path / "untouched.csv")
    for policy in ("relabel", "prune", "soften"):
        path = correct(digits_audit, policy).write(tmp_path / f"{policy}.csv")
        assert path.read_bytes() != untouched.read_bytes()
        Correction.read(path, digits_audit.dynamics.record.classes).undone().write(path)
        assert path.read_bytes() == untouched.read_bytes()


def test_decisions_are_applied_and_nothing_else(digits_audit, tmp_path):
    first, second, third, fourth, other = (int(digits_audit.index[place]) for place in digits_audit.order[:5])
    words = {first: "relabel", second: "keep", third: "drop", fourth: "unsure"}
    (tmp_path / "decisions.json").write_text(json.dumps([{"index": index, "decision": word} for index, word in words.items()]))
    (tmp_path / "decisions.csv").write_text('"index","decision"\n' + "".join(f'"{index}","{word}"\n' for index, word in words.items()))
    for name in ("decisions.json", "decisions.csv"):
        decisions = read_decisions(tmp_path / name)
        assert {index: decision.action for index, decision in decisions.items()} == words and other not in words
        corrected = correct(digits_audit, decisions=decisions)
        assert corrected.changes == {"relabel": 1, "prune": 1}
        assert digits_audit.index[corrected.labels != corrected.given].tolist() == [first]
        assert corrected.labels[corrected.index == first] == digits_audit.suggested[digits_audit.index == first]
        assert digits_audit.index[~corrected.kept].tolist() == [third]
    assert correct(digits_audit, "prune", decisions=decisions).changes == {"prune": 2}, "and a policy says what happens to wrong labels"
    assert correct(digits_audit, "soften", decisions=decisions).changes == {"soften": 1, "prune": 1}


@pytest.mark.parametrize(
    ("name", "text", "mentions"),
    [
        ("decisions.json", '[{"index": 1, "decision": "maybe"}]', ("Entry 1", "relabel", "keep", "maybe")),
        ("decisions.json", '{"1": "keep"}', ("decisions.json",)),
        ("decisions.json", "[", ("decisions.json",)),
        ("decisions.csv", "index\n1\n", ("Entry 1", "decision")),
        ("decisions.csv", "index,decision\n7.9,keep\n", ("Entry 1", "index", "7.9")),
        ("decisions.json", '[{"index": 7.9, "decision": "keep"}]', ("Entry 1", "index", "7.9")),
        ("decisions.json", '[{"index": 7.0, "decision": "keep"}]', ("Entry 1", "index", "7.0")),
        ("decisions.json", '[{"index": true, "decision": "keep"}]', ("Entry 1", "index", "True")),
        ("decisions.json", '[{"index": Infinity, "decision": "keep"}]', ("decisions.json", "Infinity")),
        ("decisions.jsonl", '{"index": 1, "decision": "keep"\n{"index": 2, "decision": "keep"}\n', ("decisions.jsonl",)),
        ("decisions.csv", "index,decision\n7,keep\n8,keep\n7,drop\n", ("Entry 3", "example 7")),
    ],
)
def test_invalid_decisions_are_refused(tmp_path, name, text, mentions):
    (tmp_path / name).write_text(text)
    with refused(*mentions):
        read_decisions(tmp_path / name)


def test_decisions_of_another_run_are_refused(digits_audit):
    with refused("99999"):
        correct(digits_audit, decisions={99999: True})


def test_the_class_that_a_person_chose_is_applied_and_must_match_the_run(digits_audit, tmp_path):
    place = int(digits_audit.order[0])
    classes, number, given = digits_audit.dynamics.record.classes, int(digits_audit.index[place]), int(digits_audit.given[place])
    other = next(name for name in classes if name not in (classes[given], classes[digits_audit.suggested[place]]))
    entry = {"index": number, "id": digits_audit.ids[place], "given_label": classes[given], "decision": "relabel", "label": other}
    path = tmp_path / "decisions.json"

    def decided(**changed):
        path.write_text(json.dumps([{**entry, **changed}]))
        return correct(digits_audit, decisions=read_decisions(path))

    assert classes[decided().labels[place]] == other, "and not what this audit suggests"
    assert decided(decision="keep").changes == decided(label=classes[given]).changes == {}
    for changed, mentions in (
        ({"id": "photo/cat-17.png"}, (f"example {number}", "photo/cat-17.png")),
        ({"given_label": other}, (f"example {number}", f"'{other}'", f"'{classes[given]}'")),
        ({"label": "dgo"}, ("dgo",)),
    ):
        with refused(*mentions):
            decided(**changed)
    with refused("action", "accept"):
        Decision("accept")


def test_suggestions_are_not_compared_with_every_class(tmp_path, monkeypatch):
    labels = np.arange(300)
    training = [(epoch, np.full(300, 2.0), labels) for epoch in range(1, 9)]
    audited = audit(write_run(tmp_path / "run", labels, training=training, classes=300, loss="ce"))
    decisions = {number: Decision("relabel", Compared(f"class {number - 1}")) for number in range(1, 300)}
    monkeypatch.setattr(Compared, "times", 0)
    assert correct(audited, decisions=decisions).labels.tolist() == [0, *range(299)]
    assert Compared.times < 20 * 300


@pytest.mark.parametrize("word", ["keep", "relabel", 1, None])
def test_a_decision_that_is_not_a_decision_is_refused(digits_audit, word):
    with refused("decisions", "correct"):
        correct(digits_audit, decisions={int(digits_audit.index[0]): word})


def test_a_list_saved_by_a_spreadsheet_is_read(digits_audit, tmp_path):
    path = correct(digits_audit).write(tmp_path / "labels.csv")
    path.write_bytes(b"\xef\xbb\xbf" + path.read_bytes())
    assert Correction.read(path, digits_audit.dynamics.record.classes).changes == correct(digits_audit).changes


def test_a_run_on_a_loader_with_random_inputs_can_be_retrained(tmp_path):
    class Shaken(torch.utils.data.Dataset):
        def __len__(self):
            return 60

        def __getitem__(self, place):
            return torch.randn(4) + 3 * (place % 2), torch.tensor(place % 2)

    run = fit("linear", torch.utils.data.DataLoader(Shaken(), batch_size=20), epochs=2, folder=tmp_path / "run", device="cpu")
    assert retrain(run, correct(audit(run), decisions={})).state == "finished"


def test_review_accepts_a_folder(digits_run, tmp_path):
    assert review(digits_run.path, tmp_path / "a.html").read_bytes() == review(audit(digits_run), tmp_path / "b.html").read_bytes()
    with refused("audit_or_run", "review", "int"):
        review(3, tmp_path / "c.html")


@pytest.mark.parametrize("policy", ["relabel", "soften"])
def test_accepting_a_missing_suggestion_is_refused(tmp_path, policy):
    training = [(epoch, [2.0, -2.0, 1.0, np.nan], [0, 0, 1, -1]) for epoch in range(1, 9)]
    audited = audit(write_run(tmp_path / "run", [0, 1, 1, 0], training=training, classes=2, loss="ce"))
    for believed_or_never_seen in (2, 3):
        with refused(f"example {believed_or_never_seen}"):
            correct(audited, policy, decisions={1: True, believed_or_never_seen: True})
    corrected = correct(audited, policy, decisions={1: True, 2: False, 3: False})
    assert corrected.changes == {policy: 1} and np.isfinite(corrected.probabilities()).all()
    assert correct(audited, "prune", decisions={3: True}).changes == {"prune": 1}, "leaving an example out needs no suggestion"


@pytest.mark.parametrize(
    ("row", "mentions"),
    [
        ("1,1,cat,dog,nan,soften", ("labels.csv", "nan", "example 1")),
        ("1,1,cat,dog,7,soften", ("labels.csv", "7.0", "example 1")),
        ("1,1,cat,dog,-0.5,soften", ("labels.csv", "-0.5", "example 1")),
        ("1,1,cat,cat,0.5,", ("labels.csv", "0.5", "example 1")),
        ("1,1,cat,,0.5,prune", ("labels.csv", "0.5", "example 1")),
        ("0,0,cat,dog,0.5,soften", ("labels.csv", "example 0")),
    ],
)
def test_a_file_with_invalid_rows_is_refused(tmp_path, row, mentions):
    head = "index,id,given_label,label,share,change\n0,0,cat,cat,1.0,\n"
    (tmp_path / "labels.csv").write_text(head + "1,1,cat,dog,0.5,soften\n")
    assert Correction.read(tmp_path / "labels.csv", ("cat", "dog")).changes == {"soften": 1}
    (tmp_path / "labels.csv").write_text(f"{head}{row}\n")
    with refused(*mentions):
        Correction.read(tmp_path / "labels.csv", ("cat", "dog"))


def test_a_file_with_other_content_is_refused(digits_audit, tmp_path):
    (tmp_path / "other.csv").write_text("a,b\n1,2\n")
    with refused("other.csv", "index", "id", "given_label", "label", "share", "change"):
        Correction.read(tmp_path / "other.csv", digits_audit.dynamics.record.classes)
    path = correct(digits_audit).write(tmp_path / "labels.csv")
    with refused(path):
        Correction.read(path, ("cat", "dog"))
    with refused("path", ".csv", "labels.txt"):
        correct(digits_audit).write(tmp_path / "labels.txt")


def test_examples_of_another_run_are_refused(digits_audit, digits_run):
    examples = examples_as_given(digits_run.dynamics.record)
    np.testing.assert_array_equal(examples.labels, digits_audit.given)
    other = replace(examples, labels=(examples.labels + 1) % 10)
    for data in (other, examples.take(torch.arange(100))):  # other labels, or too few
        with refused(data.name, digits_run.path):
            examples_as_given(digits_run.dynamics.record, data)
    with refused("labels", "examples"):
        correct(digits_audit).apply(other)


def test_examples_of_a_run_have_the_noise_of_its_seed(tmp_path):
    run = fit("linear", "digits", noise="symmetric(0.4)", seed=3, epochs=1, folder=tmp_path / "run", device="cpu", **QUICK)
    np.testing.assert_array_equal(examples_of(run.dynamics.record).labels, run.dynamics.record.given)


def test_examples_are_matched_by_number_in_any_order(digits_audit, digits_run):
    record, ordered = digits_run.dynamics.record, examples_as_given(digits_run.dynamics.record)
    shuffled = load("digits").take(torch.randperm(1437, generator=torch.Generator().manual_seed(0)))
    with refused(digits_run.path):
        examples_as_given(record, shuffled)  # the noise falls on other examples
    given = replace(record, folder=record.folder)
    given.settings["noise"] = "none"
    noisy = load("digits").corrupted("symmetric(0.4)").take(shuffled.index)
    assert torch.equal(examples_as_given(given, noisy).inputs, ordered.inputs)
    few = examples_as_given(record, places=[7, 3])
    assert torch.equal(few.inputs, ordered.inputs[[7, 3]]) and few.labels.tolist() == digits_audit.given[[7, 3]].tolist()


def test_a_correction_that_gives_no_data_set_is_refused(digits_audit, digits_run):
    examples = examples_as_given(digits_run.dynamics.record)
    with refused("softened"):
        correct(digits_audit, "soften").apply(examples)
    nobody = replace(correct(digits_audit, "prune"), kept=np.zeros(len(digits_audit), dtype=bool))
    with refused("example"):
        nobody.apply(examples)


def test_softened_labels_are_refused_by_retrain_before_the_data_are_read(digits_audit, digits_run, tmp_path):
    with refused("softened", "probabilities()"):
        retrain(digits_run, correct(digits_audit, "soften"), data="nowhere.csv", folder=tmp_path / "again")
    assert not (tmp_path / "again").exists()


def test_softened_labels_are_targets_of_every_loss_of_single_examples(digits_audit):
    softened = correct(digits_audit, "soften")
    few = np.concatenate([np.flatnonzero(digits_audit.is_issue)[:20], np.flatnonzero(~digits_audit.is_issue)[:20]])
    targets = torch.from_numpy(softened.probabilities())[few]
    scores = torch.randn(40, 10, dtype=torch.float64)
    label, given, share = (torch.from_numpy(values[few]) for values in (softened.labels, softened.given, softened.share))
    for name in SEPARATE:
        loss = build(name, reduction="none")
        shared = share * loss(scores, label) + (1 - share) * loss(scores, given)
        torch.testing.assert_close(loss(scores, targets), shared, msg=lambda text, name=name: f"{name}: {text}")
    np.testing.assert_allclose(targets.sum(1), 1)
    assert (targets.amax(1) < 1).sum() == 20


def test_hard_labels_as_targets_are_one_hot_without_the_pruned_examples(digits_audit):
    relabelled = np.where(digits_audit.is_issue, digits_audit.suggested, digits_audit.given)
    np.testing.assert_array_equal(
        correct(digits_audit, "relabel").probabilities(),
        np.eye(10)[relabelled],
    )
    np.testing.assert_array_equal(correct(digits_audit, "prune").probabilities(), np.eye(10)[digits_audit.given[~digits_audit.is_issue]])


@pytest.fixture(scope="module")
def memorised(tmp_path_factory):
    """A run long enough for cross-entropy to memorise wrong labels."""
    folder = tmp_path_factory.mktemp("memorised") / "run"
    return fit("mlp", "digits", noise="symmetric(0.4)", epochs=60, folder=folder, **SETTINGS, **QUICK)


@pytest.mark.parametrize("policy", ["relabel", "prune"])
def test_examples_of_a_retrained_run_come_from_the_data_of_the_first(digits_run, digits_audit, tmp_path, policy):
    again = retrain(digits_run.path, correct(digits_audit, policy), folder=tmp_path / "again", epochs=2)
    digits, record, few = load("digits"), again.dynamics.record, [700, 3]
    for data in (None, "digits", again.data):
        examples = examples_of(record, data)
        assert torch.equal(examples.inputs, digits.inputs[examples.index]) and len(examples) == len(record.given)
        np.testing.assert_array_equal(examples.labels, record.given)
        np.testing.assert_array_equal(examples_of(record, data, places=few).index, examples.index[few])
    with refused(again.path):
        examples_of(record, digits.take(torch.arange(1436, -1, -1)))


@pytest.mark.parametrize("settings", [{"noise": "symmetric(0.1)"}, {"seed": 5, "validation": 0.2}])
def test_examples_are_matched_if_the_second_training_had_other_settings(digits_run, digits_audit, tmp_path, settings):
    again = retrain(digits_run, correct(digits_audit, "prune"), folder=tmp_path / "again", epochs=2, **settings)
    twice = retrain(again, correct(audit(again), decisions={}), data="digits", folder=tmp_path / "twice", **{**settings, "seed": 6})
    digits = load("digits")
    for run in (again, twice):
        record = run.dynamics.record
        for examples in (examples_of(record), examples_of(record, digits)):
            assert torch.equal(examples.inputs, digits.inputs[np.load(run.path / "labels/index.npy")])
            np.testing.assert_array_equal(examples.labels, record.given)
        with refused(run.path):
            examples_of(record, digits.take(torch.arange(1436, -1, -1)))
    (twice.path / "labels/first.npy").unlink()
    with refused("first.npy"):
        examples_of(twice.dynamics.record, "digits")


def test_retraining_on_other_inputs_is_refused(memorised, tmp_path):
    digits = load("digits")
    turned = replace(digits, inputs=digits.inputs.flip(-1))
    with refused("digits", memorised.path, "inputs"):
        retrain(memorised, correct(audit(memorised)), data=turned, folder=tmp_path / "again")
    assert not (tmp_path / "again").exists()


@pytest.mark.parametrize("length", [{"epochs": 40}, {"steps": 400}])
def test_a_run_that_stopped_early_is_retrained_for_as_many_epochs(tmp_path, length):
    inputs, labels = torch.randn(120, 4, generator=torch.Generator().manual_seed(0)), torch.arange(120) % 3
    asked = {"validation": 0.2, "patience": 1, "batch_size": 12, "device": "cpu"}
    run = fit("linear", (inputs, labels), test=(inputs, labels), folder=tmp_path / "run", **asked, **length)
    again = retrain(run, correct(audit(run), decisions={}), test=(inputs, labels))
    assert len(again.metrics) == len(run.metrics) < 40
    assert set(read_origin(again.path).otherwise) == set(length), "and the report says so"
    longer = retrain(run, correct(audit(run), decisions={}), test=(inputs, labels), folder=tmp_path / "longer", epochs=30, steps=None)
    assert len(longer.metrics) == 30


def test_retraining_reuses_a_test_set_in_memory_and_warns_if_it_is_gone(tmp_path):
    inputs, labels = torch.randn(60, 4, generator=torch.Generator().manual_seed(0)), torch.arange(60) % 3
    run = fit("linear", (inputs, labels), test=(inputs[:20], labels[:20]), epochs=2, folder=tmp_path / "run", device="cpu")
    unchanged = correct(audit(run), decisions={})
    assert retrain(run, unchanged).dynamics.accuracy == run.dynamics.accuracy is not None

    def stop(*_):
        raise KeyboardInterrupt

    with warned("test=…"), pytest.raises(KeyboardInterrupt):
        retrain(run.path, unchanged, data=(inputs, labels), folder=tmp_path / "again", watch=stop)


def test_a_correction_names_the_classes_it_empties(tmp_path):
    training = [(epoch, [2.0, -2.0, 1.0], [0, 0, 0]) for epoch in range(1, 9)]
    audited = audit(write_run(tmp_path / "run", [0, 1, 0], training=training, classes=3, loss="ce"))
    for policy in ("relabel", "prune"):
        corrected = correct(audited, policy, decisions={1: True})
        assert corrected.emptied == ("class 1",) and "'class 1'" in repr(corrected)
    assert correct(audited, decisions={}).emptied == ()


def test_a_policy_empties_no_class(tmp_path):
    """Class 1 was not learned, two labels of class 0 are wrong, and only labels of class 1 would remain in class 3."""
    given, said = [0, 0, 0, 0, 1, 1, 2, 2, 2, 3], [0, 0, 2, 2, 3, 3, 2, 2, 2, 0]
    margins = [2.0 if label == one else -2.0 for label, one in zip(given, said, strict=True)]
    audited = audit(write_run(tmp_path / "run", given, training=[(epoch, margins, said) for epoch in range(1, 30)], classes=4, loss="ce"))
    assert audited.is_issue.tolist() == [label != one for label, one in zip(given, said, strict=True)]
    for policy in ("relabel", "prune"):
        corrected = correct(audited, policy)
        assert corrected.emptied == () and corrected.spared == ("class 1", "class 3")
        assert corrected.changed.tolist() == [False, False, True, True, *[False] * 6]
        assert "'class 1', 'class 3'" in repr(corrected)


def test_a_run_without_a_newer_setting_can_be_retrained(memorised, tmp_path):
    folder = tmp_path / "old"
    shutil.copytree(memorised.path, folder)
    settings = json.loads((folder / "settings.json").read_text())
    del settings["keep"]
    (folder / "settings.json").write_text(json.dumps(settings))
    again = retrain(Run(folder), correct(audit(Run(folder)), "relabel"), folder=tmp_path / "again", epochs=2)
    assert again.state == "finished" and "keep" not in read_origin(again.path).settings


@pytest.mark.parametrize("policy", ["relabel", "prune"])
def test_retraining_on_corrected_labels_improves_a_run_that_memorised_wrong_ones(memorised, tmp_path, policy):
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


def test_a_run_can_be_corrected_twice_and_records_every_step(digits_run, digits_audit, tmp_path):
    worst = int(digits_audit.index[digits_audit.order[0]])
    once = retrain(digits_run, correct(digits_audit, decisions={worst: True}), folder=tmp_path / "once", epochs=15, seed=5)
    assert read_origin(once.path).changes == {"relabel": 1} and read_origin(once.path).policy == "by hand"
    twice = retrain(once, correct(audit(once), "relabel(below=0.4)"), folder=tmp_path / "twice")
    origin = read_origin(twice.path)
    assert origin.steps == ("relabelled (by hand)", "relabelled (relabel(below=0.4))")
    assert origin.settings["data"] == "digits" and origin.settings["noise"] == "symmetric(0.4)"
    assert twice.dynamics.final is not None, "the test set is still that of digits"
    assert (twice.path / origin.folder).resolve() == once.path.resolve()
    page = review(audit(once.path), tmp_path / "review.html", limit=3).read_text(encoding="utf-8")
    assert page.count("data:image/png") == 3 * 5, "three examples with four similar ones each are shown, though nobody gave them"


@pytest.mark.parametrize("ending", ["csv", "json"])
def test_a_list_replaces_only_a_list_of_the_same_kind(digits_audit, tmp_path, ending):
    file = tmp_path / f"mine.{ending}"
    for _ in range(2):
        assert digits_audit.write(file) == file
    file.write_text("a,b\n1,2\n")
    with refused(file):
        digits_audit.write(file)
    assert file.read_text() == "a,b\n1,2\n"
    if ending == "csv":
        with refused(file):
            correct(digits_audit).write(file)


class mlp(nn.Module):  # noqa: N801 - named like a built-in model
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(64, 10)

    def forward(self, inputs):
        return self.layer(inputs.flatten(1))


def test_a_run_with_a_custom_model_or_loop_is_not_retrained_with_a_built_in_one(tmp_path):
    run = fit(mlp(), "digits", epochs=1, noise="symmetric(0.2)", folder=tmp_path / "own", device="cpu")
    with refused(run.path, "model"):
        retrain(run, correct(run.find_label_issues()))
    with refused(run.path, "model"):
        run.model()
    with refused("into"):
        run.predict(load("digits", "test").inputs, into="mlp")
    again = retrain(run, correct(run.find_label_issues()), model=mlp())
    assert again.settings.model == "mlp" and set(again.model(into=mlp()).state_dict()) == {"layer.weight", "layer.bias"}
    labels = torch.arange(40) % 2
    with Recorder(tmp_path / "loop", labels, loss="ce", model="linear") as recorder:
        for _ in range(2):
            recorder.log(torch.arange(40), torch.eye(2)[labels])
            recorder.end_epoch()
        recorded = recorder.finish(nn.Linear(2, 2))
    with refused(recorded.path, "Recorder"):
        retrain(recorded, correct(recorded.find_label_issues()), data=(torch.rand(40, 2), labels))
