"""`Recorder`: what it writes, compared with automatic differentiation, and how reports and audits read it."""

import json

import numpy as np
import pytest
import torch
from torch import nn

import noisewise
from noisewise import Recorder
from noisewise.audit import audit
from noisewise.correct import correct
from noisewise.losses import Accumulation
from noisewise.report import report
from noisewise.report._report import gather
from noisewise.train import Run
from noisewise.train._processes import join
from refused import refused
from two_processes import in_two_processes


def batches(number, size, epoch):
    return torch.randperm(number, generator=torch.Generator().manual_seed(epoch)).split(size)


def clusters(number=300, classes=3):
    generator = torch.Generator().manual_seed(0)
    labels = torch.randint(classes, (number,), generator=generator)
    return 4 * torch.eye(classes, 6)[labels] + torch.randn(number, 6, generator=generator), labels


def trained(folder, epochs=8, loss="gce(q=0.7)", **options):
    """Record a training loop on labels of which a fifth is wrong; return the run, the true labels and the model."""
    inputs, true = clusters()
    given = torch.where(torch.arange(300) % 5 == 0, (true + 1) % 3, true)
    torch.manual_seed(0)
    model, criterion = nn.Linear(6, 3), noisewise.get(loss)
    optimiser = torch.optim.SGD(model.parameters(), lr=0.3)
    recorder = Recorder(folder, given, loss=loss, **options)
    for epoch in range(epochs):
        for index in batches(300, 50, epoch):
            scores = model(inputs[index])
            optimiser.zero_grad()
            criterion(scores, given[index]).backward()
            optimiser.step()
            recorder.log(index, scores)
        recorder.end_epoch(test_accuracy=float((model(inputs).argmax(1) == true).double().mean()))
    return recorder.finish(model), true, model


@pytest.mark.parametrize("loss", ["ce", "gce(q=0.7)", "imae(T=8)", "nce", "sce(alpha=0.1, beta=1)", "ce(label_smoothing=0.1)"])
def test_margins_and_emphasis_equal_those_of_automatic_differentiation(tmp_path, loss):
    torch.manual_seed(0)
    labels, true = torch.tensor([0, 1, 2, 1, 0, 2, 1]), torch.tensor([0, 1, 2, 1, 2, 0, 1])
    recorder = Recorder(tmp_path / "run", labels, loss=loss, true_labels=true)
    pull, eta, emphasis, losses = np.zeros(2), np.zeros(2), 0.0, []
    for index, lr in (([4, 0, 2], 0.5), ([1, 5, 6], 0.1)):
        scores = (3 * torch.randn(3, 3)).requires_grad_()
        each = noisewise.get(loss)
        each.reduction = "none"
        values = each(scores, labels[index])
        (gradient,) = torch.autograd.grad(values.sum(), scores)
        w = 0.5 * gradient.double().abs().sum(1).numpy()
        wrong = (labels != true)[index].numpy()
        pull += lr * np.array([w[~wrong].sum(), w[wrong].sum()])
        eta += lr * np.array([(~wrong).sum(), wrong.sum()])
        emphasis, losses = emphasis + w.sum(), [*losses, *values.tolist()]
        recorder.log(index, scores, lr=lr)
        rest = scores.detach().clone()
        own = rest[torch.arange(3), labels[index]].clone()
        rest[torch.arange(3), labels[index]] = -torch.inf
        for position, margin, prediction in zip(index, own - rest.logsumexp(1), scores.argmax(1), strict=True):
            recorded = recorder._tally.margins[position], recorder._tally.predictions[position]
            assert recorded[0] == pytest.approx(float(margin), abs=1e-5) and recorded[1] == prediction
    recorder.end_epoch(test_accuracy=0.25, validation_accuracy=0.5)
    run = recorder.finish()
    (line,) = run.metrics
    assert [line[name] for name in ("epoch", "step", "test_accuracy", "validation_accuracy")] == [1, 2, 0.25, 0.5]
    assert line["train_loss"] == pytest.approx(np.mean(losses), rel=1e-5)
    assert line["mean_emphasis"] == pytest.approx(emphasis / 6, rel=1e-5)
    for row, group in enumerate(("clean", "noisy")):
        assert line["emphasis"][group] == pytest.approx({"pull": pull[row], "eta": eta[row]}, rel=1e-5)
    record = run.dynamics.record
    assert np.isnan(record.margins(1)).tolist() == [False, False, False, True, False, False, False]
    assert record.predictions(1)[3] == -1


@pytest.mark.parametrize("loss", ["ce", "gce(q=0.7)", "imae(T=8)", "0.3*ce + 0.7*mae", "shifted(mae, 2.0)"])
def test_margins_are_recorded_like_the_scores_they_come_from(tmp_path, loss):
    labels, scores = torch.arange(12) % 3, 3 * torch.randn(12, 3, generator=torch.Generator().manual_seed(0))
    by_scores, by_margins = (Recorder(tmp_path / name, labels, loss=loss, true_labels=(labels + 1) % 3) for name in ("scores", "margins"))
    for index in torch.arange(12).split(5):
        by_scores.log(index, scores[index], lr=0.1)
        by_margins.log_margins(index, noisewise.margin(scores, labels)[index], scores.argmax(1)[index], lr=0.1)
    one, other = by_scores.finish(), by_margins.finish()
    np.testing.assert_allclose(other.dynamics.record.margins(1), one.dynamics.record.margins(1), rtol=1e-3)
    assert other.dynamics.record.predictions(1).tolist() == one.dynamics.record.predictions(1).tolist()
    (line,), (expected,) = other.metrics, one.metrics
    assert line["train_loss"] == pytest.approx(expected["train_loss"], rel=1e-5)
    assert line["emphasis"]["noisy"] == pytest.approx(expected["emphasis"]["noisy"], rel=1e-4)


def test_margins_of_other_losses_or_of_other_lengths_are_refused(tmp_path):
    with refused("nce", "log"):
        Recorder(tmp_path / "nce", [0, 1], loss="nce").log_margins([0, 1], torch.zeros(2), torch.zeros(2, dtype=torch.int64))
    recorder = Recorder(tmp_path / "ce", [0, 1], loss="ce")
    with refused("(2,)", "(3,)"):
        recorder.log_margins([0, 1], torch.zeros(3), torch.zeros(3, dtype=torch.int64))
    with refused("index", 2):
        recorder.log_margins([0, 2], torch.zeros(2), torch.zeros(2, dtype=torch.int64))


def test_an_example_that_is_drawn_twice_counts_twice_in_the_mean_loss(tmp_path):
    labels, drawn = torch.tensor([0, 1, 2, 0]), torch.tensor([3, 0, 0, 3, 2, 0])
    scores = torch.randn(6, 3, generator=torch.Generator().manual_seed(0))
    recorder = Recorder(tmp_path / "run", labels, loss="ce")
    for part in (slice(0, 2), slice(2, 6)):
        recorder.log(drawn[part], scores[part])
    recorder.end_epoch()
    (line,) = recorder.finish().metrics
    assert line["train_loss"] == pytest.approx(float(nn.functional.cross_entropy(scores, labels[drawn])), rel=1e-6)
    assert line["mean_emphasis"] == pytest.approx(float((1 - scores.softmax(1)[torch.arange(6), labels[drawn]]).mean()), rel=1e-6)


@pytest.mark.parametrize("reduction", ["mean", "sum"])
@pytest.mark.parametrize(
    "given", [{"weight": torch.tensor([1.0, 5.0, 2.0])}, {"ignore_index": 1}, {"weight": torch.tensor([1.0, 0.0, 2.0])}]
)
def test_emphasis_includes_class_weights(tmp_path, given, reduction):
    labels = torch.arange(30) % 3
    scores = torch.randn(30, 3, generator=torch.Generator().manual_seed(0), requires_grad=True)
    nn.CrossEntropyLoss(**given, reduction=reduction)(scores, labels).backward()
    pulled = 0.5 * scores.grad.abs().sum() * (30 if reduction == "mean" else 1)
    recorder = Recorder(tmp_path / "run", labels, loss=noisewise.get("ce", **given, reduction=reduction))
    recorder.log(torch.arange(30), scores)
    recorder.end_epoch()
    (line,) = recorder.finish().metrics
    assert line["emphasis"]["all"]["pull"] == pytest.approx(float(pulled), rel=1e-5)


def test_the_given_loss_is_not_moved_to_another_device(tmp_path, monkeypatch):
    loss = noisewise.get("scheduled(gce, 'q', 0.3, 0.9)", weight=torch.tensor([1.0, 2.0]))
    monkeypatch.setattr(loss, "to", lambda *device, **how: pytest.fail("the loss was moved"))
    recorder = Recorder(tmp_path / "run", [0, 1], loss=loss)
    recorder.log([0, 1], torch.eye(2))
    monkeypatch.undo()
    noisewise.curriculum.advance(loss, 1.0)
    elsewhere = recorder._loss_on(torch.device("meta"))
    assert elsewhere.weight.is_meta and elsewhere.loss.q == loss.loss.q > 0.8
    assert loss.weight.tolist() == [1.0, 2.0] and recorder._loss_on(torch.device("cpu")) is loss


@pytest.mark.parametrize("kind", [torch.float64, torch.float16, torch.bfloat16])
def test_scores_may_have_any_float_type(tmp_path, kind):
    recorder = Recorder(tmp_path / "run", [0, 1], loss="ce")
    recorder.log(torch.tensor([1, 0], dtype=torch.uint8), torch.tensor([[0.0, 2.0], [-3.0, 1.0]], dtype=kind))
    recorder.end_epoch()
    assert recorder.finish().dynamics.record.margins(1).tolist() == [-4.0, 2.0]


@pytest.mark.parametrize("kind", ["uint8", "int16", "uint16", "uint32", "uint64"])
def test_positions_may_have_any_integer_type(tmp_path, kind):
    recorder = Recorder(tmp_path / "run", [0, 1], loss="ce")
    scores = torch.tensor([[0.0, 2.0], [-3.0, 1.0]])
    for index in (np.array([1, 0], kind), torch.tensor([1, 0], dtype=getattr(torch, kind))):
        recorder.log(index, scores)
    with refused("'index'", "[0, 2)", "Got 2"):
        recorder.log(np.array([1, 2], kind), scores)
    assert recorder.finish().dynamics.record.margins(1).tolist() == [-4.0, 2.0]


def test_positions_may_have_any_strides_byte_order_or_pandas_index(tmp_path):
    pandas = pytest.importorskip("pandas")
    backwards = np.arange(3)[::-1]
    for number, given in enumerate(
        [backwards, backwards.astype(">i4"), *(pandas.Series(backwards, index=at) for at in ([7, 8, 9], [2, 0, 1]))]
    ):
        recorder = Recorder(tmp_path / f"{number}", [0, 1, 1], loss="ce")
        recorder.log(given, torch.tensor([[0.0, 3.0], [0.0, 2.0], [1.0, 0.0]]))
        assert recorder.finish().dynamics.record.margins(1).tolist() == [1.0, 2.0, 3.0]


@pytest.mark.parametrize("lr", [0.5, [0.5], np.float32(0.5), torch.tensor(0.5), torch.tensor([0.5])], ids=repr)
def test_a_learning_rate_may_be_a_number_or_hold_one(tmp_path, lr):
    recorder = Recorder(tmp_path / "run", [0, 1], loss="ce")
    recorder.log([0, 1], torch.eye(2), lr=lr)
    assert recorder.finish().metrics[0]["emphasis"]["all"]["eta"] == 1.0


def test_a_finished_recorder_refuses_more(tmp_path):
    recorder = Recorder(tmp_path / "run", [0, 1], loss="ce")
    recorder.log([0, 1], torch.eye(2))
    recorder.end_epoch()
    recorder.finish()
    for call in (lambda: recorder.log([0, 1], torch.eye(2)), recorder.end_epoch):
        with refused(tmp_path / "run"):
            call()
    assert recorder.finish().state == "finished"


def test_settings_that_a_recorder_does_not_know_are_left_out(tmp_path):
    run, _, _ = trained(tmp_path / "mine", data="digits")
    known = {"data": "digits", "model": "own", "loss": run.settings.loss, "epochs": 8}
    written = json.loads((run.path / "settings.json").read_text())
    assert {name: value for name, value in written.items() if name != "format"} == known
    facts = gather([run.path], title="Mine")
    assert set(facts["runs"][0]["settings"]) == {"format", *known} and facts["runs"][0]["seed"] is None
    assert facts["counts"] == "1 run: 1 loss, 1 model, 1 data set" and facts["tasks"][0]["name"] == "digits, labels as given"
    page = report(run.path, tmp_path / "report.html").read_text()
    for text in (repr(run.settings), page.partition('id="runs-title"')[2].partition("</section>")[0]):
        assert run.settings.loss in text and not any(word in text for word in ("sgd", "cosine", "batch_size", "seed"))


def test_audits_corrections_and_reports_read_a_recorded_loop_like_any_other_run(tmp_path):
    run, true, model = trained(tmp_path / "mine", ids=[f"x{number}" for number in range(300)], classes=["a", "b", "c"], data="pets")
    assert run.state == "finished" and run.settings.epochs == 8 and run.classes == ("a", "b", "c")
    audited = audit(run)
    wrong = np.arange(300) % 5 == 0
    assert audited.is_issue[wrong].mean() > 0.9 and wrong[audited.is_issue].mean() > 0.9
    assert (correct(audited).labels == true.numpy()).mean() > 0.95
    audited.write(tmp_path / "issues.csv")
    assert "x0," in (tmp_path / "issues.csv").read_text()
    page = report(run.path, tmp_path / "report.html").read_text()
    assert "pets" in page and "noisewise.Recorder(" in page and "noisewise.fit" not in page
    again = nn.Linear(6, 3)
    assert torch.equal(run.model(into=again).weight, model.weight)
    with_truth, _, _ = trained(tmp_path / "known", true_labels=true)
    assert with_truth.dynamics.summary()["clean_subset"] > 0.9 > 0.3 > with_truth.dynamics.summary()["noisy_subset"]
    assert with_truth.dynamics.hybrid == {}  # the size of the test set is not known


def test_a_running_loop_can_be_read_up_to_its_last_finished_epoch(tmp_path):
    recorder = Recorder(tmp_path / "run", [0, 1], loss="ce")
    recorder.log([0, 1], torch.eye(2))
    recorder.end_epoch()
    recorder.log([0], torch.eye(2)[:1])
    run = noisewise.Run(tmp_path / "run")
    assert run.state == "running" and len(run.metrics) == 1 and run.dynamics.record.epochs() == (1,)


@pytest.mark.parametrize(
    ("error", "state", "reason"),
    [(KeyboardInterrupt(), "interrupted", "stopped by the user"), (RuntimeError("no memory"), "failed", "RuntimeError: no memory")],
)
def test_the_status_says_how_a_with_block_ended(tmp_path, error, state, reason):
    with pytest.raises(type(error)), Recorder(tmp_path / "run", [0, 1], loss="ce") as recorder:
        recorder.log([0, 1], torch.eye(2))
        recorder.end_epoch()
        raise error
    assert json.loads((tmp_path / "run/status.json").read_text()) == {"state": state, "reason": reason, "epoch": 1, "step": 1}
    with Recorder(tmp_path / "good", [0, 1], loss="ce") as recorder:
        recorder.log([0, 1], torch.eye(2))
        recorder.end_epoch()
    assert noisewise.Run(tmp_path / "good").state == "finished"


@pytest.mark.parametrize("block", [True, False])
def test_steps_after_the_last_end_epoch_become_another_epoch(tmp_path, block):
    with Recorder(tmp_path / "run", [0, 1, 1], loss="ce") as recorder:
        recorder.log([0, 1, 2], torch.zeros(3, 2))
        recorder.end_epoch(test_accuracy=0.5)
        recorder.log([1], torch.zeros(1, 2))
        if not block:
            recorder.finish()
    run = noisewise.Run(tmp_path / "run")
    assert run.state == "finished" and [line["step"] for line in run.metrics] == [1, 2] and run.settings.epochs == 2
    assert run.dynamics.record.predictions(2).tolist() == [-1, 0, -1]


def test_a_with_block_whose_last_epoch_diverged_has_failed(tmp_path):
    with pytest.raises(noisewise.DivergedError), Recorder(tmp_path / "run", [0, 1], loss="ce") as recorder:
        recorder.log([0, 1], torch.full((2, 2), torch.nan))
    assert noisewise.Run(tmp_path / "run").state == "failed"
    with noisewise.runs._folder.RunFolder(tmp_path / "run").lock():  # the recorder has released the folder
        pass


@pytest.mark.parametrize("name", ["epoch", "step", "train_loss", "mean_emphasis", "emphasis"])
def test_metrics_that_the_recorder_computes_are_refused(tmp_path, name):
    recorder = Recorder(tmp_path / "run", [0, 1], loss="ce")
    recorder.log([0, 1], torch.eye(2))
    with refused(f"'{name}'", "Recorder.end_epoch", "Got 0"):
        recorder.end_epoch(**{name: 0})
    recorder.end_epoch(perplexity=2.5)
    assert [(line["epoch"], line["perplexity"]) for line in recorder.finish().metrics] == [(1, 2.5)]


def logged(recorder):
    recorder.log([0, 1, 2], torch.zeros(3, 2))
    return recorder


MISTAKES = {
    "position too large": (lambda recorder: recorder.log([0, 3], torch.zeros(2, 2)), ["'index'", "Recorder.log", "[0, 3)", "Got 3"]),
    "negative position": (lambda recorder: recorder.log([-1, 1], torch.zeros(2, 2)), ["'index'", "[0, 3)", "Got -1"]),
    "learning rate as text": (lambda recorder: recorder.log([0], torch.zeros(1, 2), lr="fast"), ["'lr'", "Recorder.log", "Got 'fast'"]),
    "two learning rates": (lambda recorder: recorder.log([0], torch.zeros(1, 2), lr=torch.ones(2)), ["'lr'", "Got tensor([1., 1.])"]),
    "learning rate nan": (lambda recorder: recorder.log([0], torch.zeros(1, 2), lr=float("nan")), ["'lr'", "Got nan"]),
    "complex positions": (lambda recorder: recorder.log([1j, 0], torch.zeros(2, 2)), ["'index'", "Got [1j, 0]"]),
    "mask": (lambda recorder: recorder.log([True, False], torch.zeros(2, 2)), ["'index'", "Got [True, False]"]),
    "number of classes": (lambda recorder: recorder.log([0, 1], torch.zeros(2, 5)), ["'scores'", "(N, 2)", "Got (2, 5)"]),
    "number of scores": (lambda recorder: recorder.log([0, 1], torch.zeros(3, 2)), ["'scores'", "Got (3, 2)"]),
    "array": (lambda recorder: recorder.log([0, 1], np.zeros((2, 2))), ["'scores'", "(N, 2)", "Got 'ndarray'"]),
    "names": (lambda recorder: recorder.log(["a", "b"], torch.zeros(2, 2)), ["'index'", "Got ['a', 'b']"]),
    "slice": (lambda recorder: recorder.log(slice(2), torch.zeros(2, 2)), ["'index'", "Got slice(None, 2, None)"]),
    "accuracy as text": (
        lambda recorder: logged(recorder).end_epoch(test_accuracy="x"),
        ["'test_accuracy'", "Recorder.end_epoch", "Got 'x'"],
    ),
    "metric none": (lambda recorder: logged(recorder).end_epoch(perplexity=None), ["'perplexity'", "Got None"]),
    "nothing logged": (lambda recorder: recorder.end_epoch(), ["Recorder.log"]),
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_mistake_is_refused_and_nothing_is_written(tmp_path, mistake):
    call, mentions = MISTAKES[mistake]
    recorder = Recorder(tmp_path / "run", ["cat", "dog", "cat"], loss="ce", classes=["cat", "dog"])
    with refused(*mentions):
        call(recorder)
    assert noisewise.Run(tmp_path / "run").metrics == []


def recorded(folder, epochs, **asked):
    """A recorder of some epochs, in the middle of the next one."""
    labels = torch.arange(30) % 3
    recorder = Recorder(folder, labels, loss="gce(q=0.7)", true_labels=(labels + (labels == 2)) % 3, **asked)
    for epoch in epochs:
        generator = torch.Generator().manual_seed(epoch)
        for index in torch.randperm(30, generator=generator).split(10):
            recorder.log(index, torch.randn(10, 3, generator=generator), lr=1 / epoch)
        recorder.end_epoch(test_accuracy=epoch / 10)
    recorder.log([0], torch.zeros(1, 3))
    return recorder


def test_a_resumed_record_equals_one_that_was_never_stopped(tmp_path):
    for after, name in ((2, "stopped"), (4, "at the end"), (0, "from the start")):
        with pytest.raises(KeyboardInterrupt), recorded(tmp_path / name, range(1, 5)):
            raise KeyboardInterrupt
        assert noisewise.Run(tmp_path / name).state == "interrupted"
        recorded(tmp_path / name, range(after + 1, 6), after=after).finish(nn.Linear(2, 2))
    recorded(tmp_path / "straight", range(1, 6), after=0).finish()
    for name in ("stopped", "at the end", "from the start"):
        for file in ("metrics.jsonl", "settings.json", "status.json", "labels/given.npy"):
            assert (tmp_path / name / file).read_bytes() == (tmp_path / "straight" / file).read_bytes(), (name, file)
        for path in (tmp_path / "straight/record").rglob("*.npy"):
            assert (tmp_path / name / path.relative_to(tmp_path / "straight")).read_bytes() == path.read_bytes()
    longer = recorded(tmp_path / "stopped", range(7, 9), after=6)  # `finish` ended epoch 6
    assert not (tmp_path / "stopped/model.safetensors").exists() and longer.finish().state == "finished"
    again = recorded(tmp_path / "stopped", range(3, 4), after=2).finish()
    assert [line["epoch"] for line in again.metrics] == list(again.dynamics.record.epochs()) == [1, 2, 3, 4], "later epochs are removed"


def test_a_folder_that_cannot_be_resumed_is_refused_and_not_changed(tmp_path):
    recorded(tmp_path / "run", range(1, 3)).finish()
    trained = noisewise.fit("linear", (torch.randn(30, 2), torch.arange(30) % 3), epochs=1, folder=tmp_path / "trained", device="cpu")
    before = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file() and path.name != ".lock"}
    labels = torch.arange(30) % 3
    for folder, changed, mentions in (
        ("run", {}, ["run'", "after="]),
        ("run", {"after": 4}, ["run'", "after=3"]),
        ("run", {"after": -1}, ["'after'", "Got -1"]),
        ("run", {"after": 1, "loss": "ce"}, ["run'", "labels", "ce"]),
        ("run", {"after": 1, "labels": labels.flip(0)}, ["run'", "labels", "gce(q=0.7)"]),
        ("run", {"after": 1, "ids": range(30)}, ["run'", "labels"]),
        (trained.path.name, {"after": 1}, ["trained'", "labels"]),
        ("new", {"after": 1}, ["new'", "1"]),
    ):
        given = {"labels": labels, "loss": "gce(q=0.7)", "true_labels": (labels + (labels == 2)) % 3, **changed}
        with refused(*mentions):
            Recorder(tmp_path / folder, **given)
    assert {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file() and path.name != ".lock"} == before
    assert not (tmp_path / "new").exists()


def test_a_scheduled_loss_may_have_advanced_before_its_record_is_resumed(tmp_path):
    loss = noisewise.get("0.5*scheduled(gce, 'q', 0.3, 0.9)")
    with Recorder(tmp_path / "run", [0, 1, 1], loss=loss) as recorder:
        recorder.log([0, 1, 2], torch.zeros(3, 2))
    noisewise.curriculum.advance(loss, 0.5)
    with Recorder(tmp_path / "run", [0, 1, 1], loss=loss, after=1) as recorder:
        recorder.log([0, 1, 2], torch.zeros(3, 2))
    assert len(noisewise.Run(tmp_path / "run").metrics) == 2


def test_scores_of_inference_mode_are_recorded_like_any_others(tmp_path):
    model, inputs = nn.Linear(4, 3), torch.randn(6, 4)
    for name, mode, inside in (
        ("plain", torch.no_grad(), False),
        ("after", torch.inference_mode(), False),
        ("in", torch.inference_mode(), True),
    ):
        recorder = Recorder(tmp_path / name, torch.arange(6) % 3, loss="imae(T=8, normalise='batch')")
        with mode:
            scores = model(inputs)
            if inside:
                recorder.log(range(6), scores)
        if not inside:
            recorder.log(range(6), scores)
        recorder.finish()
    assert (tmp_path / "plain/metrics.jsonl").read_text() == (tmp_path / "after/metrics.jsonl").read_text()
    assert (tmp_path / "plain/metrics.jsonl").read_text() == (tmp_path / "in/metrics.jsonl").read_text()


def test_recording_parts_of_a_batch_does_not_change_accumulated_gradients(tmp_path):
    """The recorder treats each part as a batch, so its mean emphasis is 1."""
    inputs, labels = clusters()
    layers = []
    for folder in (tmp_path / "run", None):
        torch.manual_seed(0)
        layer, loss = nn.Linear(6, 3), noisewise.get("imae(T=8, normalise='batch')", reduction="sum")
        recorder = None if folder is None else Recorder(folder, labels, loss=loss)
        with Accumulation(loss) as whole:
            for number, part in enumerate(torch.arange(300).split(128)):
                scores = layer(inputs[part])
                (loss(scores, labels[part]) / 300).backward()
                if recorder is not None and number != 1:
                    recorder.log(part, scores)
        whole.divide(layer.parameters())
        layers.append(layer)
        if recorder is not None:
            (line,) = recorder.finish().metrics
            assert line["mean_emphasis"] == pytest.approx(1)
    assert torch.equal(layers[0].weight.grad, layers[1].weight.grad)


def record_in_first_process(folder):
    """A data-parallel loop that is recorded in one of its processes."""
    with join(torch.device("cpu")):
        torch.manual_seed(0)
        inputs, labels = clusters()
        layer, loss = nn.Linear(6, 3), noisewise.get("imae(T=8, normalise='batch')")
        rank = torch.distributed.get_rank()
        recorder = Recorder(folder, labels, loss=loss) if rank == 0 else None
        for batch in torch.arange(300).split(60):
            scores = layer(inputs[batch])
            loss(scores[rank::2], labels[batch][rank::2]).backward()
            if recorder is not None:
                recorder.log(batch, scores)
        if recorder is not None:
            recorder.finish()


def test_one_process_of_several_may_record(tmp_path):
    in_two_processes(record_in_first_process, tmp_path / "run")
    (line,) = Run(tmp_path / "run").metrics
    assert line["mean_emphasis"] == pytest.approx(1)


def test_examples_whose_true_class_is_unknown_are_recorded(tmp_path):
    noisy = noisewise.data.load("digits").corrupted("open_set(0.3)")
    recorder = Recorder(tmp_path / "run", noisy.labels, loss="ce", true_labels=noisy.true_labels)
    recorder.log(torch.arange(len(noisy)), torch.zeros(len(noisy), 10))
    assert np.array_equal(recorder.finish().dynamics.record.wrong, noisy.wrong)


def test_measures_that_need_the_schedule_of_a_custom_loop_are_left_out(tmp_path):
    loss = noisewise.get("scheduled(imae(saturation=0), 'T', 0.5, 8.0)")
    recorder = Recorder(tmp_path / "run", torch.arange(30) % 3, loss=loss)
    for progress in (0.0, 1.0):
        noisewise.curriculum.advance(loss, progress)
        recorder.log(torch.arange(30), torch.randn(30, 3))
        recorder.end_epoch()
    dynamics = recorder.finish().dynamics
    assert dynamics.mean_emphasis[2] > 2 * dynamics.mean_emphasis[1], "emphasis is recorded with the loss of that step"
    assert dynamics.focus == dynamics.spread == {} and dynamics.emphasis_curve(1, [0.0]) is None


def test_labels_that_are_names_need_classes(tmp_path):
    """Sorted names could be in another order than the columns of scores."""
    labels = np.array(["zebra", "ant", "zebra"])
    for given in (labels, labels.tolist()):
        with refused("'classes'", "Recorder"):
            Recorder(tmp_path / "run", given, loss="ce")
    assert not (tmp_path / "run").exists()
    recorder = Recorder(tmp_path / "run", labels, loss="ce", classes=["zebra", "ant"])
    recorder.log([0, 1, 2], torch.tensor([[9.0, 0.0], [0.0, 9.0], [9.0, 0.0]]))
    assert recorder.finish().dynamics.fitting == {1: 1.0}


def test_scores_with_more_columns_than_classes_in_the_labels_need_classes(tmp_path):
    labels = [0, 2] * 60
    recorder = Recorder(tmp_path / "none", labels, loss="ce")
    with refused("'classes'", "Recorder", "3", "2"):
        recorder.log(range(120), torch.zeros(120, 3))
    recorder = Recorder(tmp_path / "run", labels, loss="ce", classes=["0", "1", "2"])
    recorder.log(range(120), torch.eye(3)[labels])
    assert recorder.finish().dynamics.fitting == {1: 1.0}


@pytest.mark.parametrize("labels", [[], 3, None, torch.tensor(3)], ids=str)
def test_labels_that_are_not_a_list_are_refused_before_a_folder_is_made(tmp_path, labels):
    with refused("'labels'", "Recorder", f"Got {labels!r}"):
        Recorder(tmp_path / "run", labels, loss="ce")
    assert not (tmp_path / "run").exists()


def test_numbers_that_are_not_finite_are_refused_and_not_written(tmp_path):
    recorder = Recorder(tmp_path / "run", [0, 1], loss="ce")
    recorder.log([0, 1], torch.tensor([[torch.nan, 0.0], [0.0, 0.0]]))
    with refused("ce", "epoch 1", kind=noisewise.DivergedError):
        recorder.end_epoch()
    with refused("'perplexity'", "Recorder.end_epoch", "Got inf"):
        recorder.end_epoch(perplexity=float("inf"))
    assert noisewise.Run(tmp_path / "run").metrics == []


def test_a_folder_with_other_files_is_refused_and_not_changed(tmp_path):
    (tmp_path / "mine.txt").write_text("mine")
    with refused(tmp_path) as foreign:
        Recorder(tmp_path, [0, 1], loss="ce")
    assert [path.name for path in tmp_path.iterdir()] == ["mine.txt"]
    (tmp_path / "run").mkdir()
    Recorder(tmp_path / "run", [0, 1], loss="ce").finish()
    with refused(tmp_path / "run") as existing:
        Recorder(tmp_path / "run", [0, 1], loss="ce")
    with noisewise.runs._folder.RunFolder(tmp_path / "run").lock():  # released, although the errors still refer to the recorders
        assert foreign and existing


def test_an_accuracy_in_percent_and_a_folder_in_use_are_refused(tmp_path):
    recorder = Recorder(tmp_path / "run", [0, 1], loss="ce")
    recorder.log([0, 1], torch.eye(2))
    with refused("'test_accuracy'", "Recorder.end_epoch", "[0, 1]", "Got 84"):
        recorder.end_epoch(test_accuracy=84)
    with refused(tmp_path / "run"):
        Recorder(tmp_path / "run", [0, 1], loss="ce")
    recorder.end_epoch(test_accuracy=0.84)
    recorder.finish()
    with refused(tmp_path / "run", "after="):
        Recorder(tmp_path / "run", [0, 1], loss="ce")
    assert noisewise.Run(tmp_path / "run").state == "finished"


def test_a_random_loss_does_not_change_the_random_numbers_of_the_loop(tmp_path):
    recorder = Recorder(tmp_path / "run", [0, 1, 1, 0], loss="peer(ce)")
    torch.manual_seed(0)
    expected = torch.rand(3)
    torch.manual_seed(0)
    recorder.log([0, 1, 2, 3], torch.randn(4, 2, generator=torch.Generator().manual_seed(1)))
    assert torch.equal(torch.rand(3), expected)


@pytest.mark.parametrize(
    "labels", [[0, 1, -100, 1], torch.tensor([0, 1, -100, 1]), np.array([0, 1, -100, 1])], ids=["list", "tensor", "array"]
)
def test_labels_that_the_loss_ignores_are_refused(tmp_path, labels):
    with refused(-100):
        Recorder(tmp_path / "run", labels, loss="ce")
    assert not (tmp_path / "run").exists()
    assert Recorder(tmp_path / "run", labels, loss="ce(ignore_index=1)", classes=["-100", "0", "1"]).finish().classes == ("-100", "0", "1")
