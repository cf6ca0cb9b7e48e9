"""`auto`, and what adaptive losses have in common: what they note, when they change, and who may use them."""

import math

import pytest
import torch
from torch import nn
from torch.autograd import gradcheck, gradgradcheck

import noisewise
from noisewise import Recorder, fit
from noisewise.kernels import loss_and_gradient
from noisewise.losses import Adaptive
from noisewise.train import Run
from refused import refused

ROBUST = {"q": 0.75, "assumed": 0.4, "size": 1.0}
SETTINGS = {"epochs": 6, "device": "cpu", "optimiser": "sgd(lr=0.1, momentum=0.9)", "seed": 0}


def robust():
    loss = noisewise.get("auto")
    loss.restore(ROBUST)
    return loss


def seen(loss, predicted, labels, sureness, classes=3):
    """Let a loss see examples with these predictions, labels and margins of the prediction."""
    scores = torch.zeros(len(predicted), classes)
    others = math.log(classes - 1)
    scores[torch.arange(len(predicted)), torch.as_tensor(predicted)] = torch.as_tensor(sureness, dtype=torch.float32) + others
    loss(scores.requires_grad_(), torch.as_tensor(labels))


@pytest.mark.parametrize(("classes", "scale"), [(5, 1.0), (100, 2 / math.log(99))])
def test_it_starts_as_gce_at_a_margin_that_is_scaled_for_many_classes(classes, scale):
    scores, labels = torch.randn(20, classes, dtype=torch.float64), torch.arange(20) % classes
    scale = 1 - 0.85 + 0.85 * scale
    expected = noisewise.get(f"scaled(gce(q=0.85), tau={scale}, expected=-1.0)")
    torch.testing.assert_close(noisewise.get("auto")(scores, labels), expected(scores, labels), rtol=1e-6, atol=1e-7)


def test_after_an_update_it_is_gce_at_a_scaled_margin():
    scores, labels = torch.randn(20, 5, dtype=torch.float64), torch.arange(20) % 5
    scale = 0.25 + 0.75 / (1 - 0.6 * 0.4)
    expected = noisewise.get(f"scaled(gce(q=0.75), tau={scale}, expected=-1.0)")
    torch.testing.assert_close(robust()(scores, labels), expected(scores, labels), rtol=1e-6, atol=1e-7)
    d = torch.linspace(-30, 30, 61, dtype=torch.float64)
    torch.testing.assert_close(robust().emphasis_of(d, 5), expected.emphasis(d), rtol=1e-5, atol=1e-7)
    assert gradcheck(lambda s: robust().eval()(s, labels[:4]), scores[:4].requires_grad_())
    assert gradgradcheck(lambda s: robust().eval()(s, labels[:4]), scores[:4].requires_grad_())


def test_it_compares_labels_with_the_surest_quarter_of_every_predicted_class():
    loss = noisewise.get("auto")
    # Class 0: the surest two of eight examples have the labels 0 and 1. Class 1: the surest two of eight both have the label 1.
    predicted = [0] * 8 + [1] * 8
    labels = [0, 1, *[2] * 6, 1, 1, *[0] * 6]
    seen(loss, predicted, labels, [5, 5, 1, 1, 1, 1, 1, 1] * 2)
    assert loss.update()["doubt"] == pytest.approx(1 / 4)


@pytest.mark.parametrize("rate", [0.1, 0.4, 0.7])
def test_the_estimate_is_the_noise_rate_if_the_model_knows_the_classes(rate):
    """The reference: labels with symmetric noise, and scores whose softmax is the chance of every class, given the input."""
    generator = torch.Generator().manual_seed(0)
    scores = 6 * torch.randn(4000, 10, generator=generator)
    true = torch.multinomial(scores.softmax(1), 1, generator=generator).squeeze(1)
    given = noisewise.noise.corrupt(true, f"symmetric({rate}, flips='exact')", num_classes=10).labels
    loss = noisewise.get("auto")
    loss.observe(scores, given)
    record = loss.update()
    assert record["noise"] == pytest.approx(rate, abs=0.03)
    assert record["noise_low"] < rate < record["noise_high"]


def agreeing(loss, wrong, disagree):
    """Let a loss see 100 examples of two classes. Of the surest quarters, this share has another label, and of all examples `disagree`."""
    half, sure = 50, 13
    labels = torch.zeros(2, half, dtype=torch.long)
    labels[:, : round(wrong * sure)] = 1
    others = round(disagree * half) - round(wrong * sure)
    labels[:, half - others :] = 1
    labels[1] = 1 - labels[1]
    sureness = torch.cat([torch.full((sure,), 4.0), torch.full((half - sure,), -2.0)])  # at a margin of −2, all classes are about as likely
    seen(loss, [0] * half + [1] * half, labels.flatten().tolist(), sureness.repeat(2), classes=10)


@pytest.mark.parametrize(
    ("wrong", "disagree", "before", "assumed", "q"),
    [
        (0.0, 0.0, 0.2, 0.0, 0.0),  # clean labels
        (6 / 13, 0.7, 0.8, 0.0, 0.85),  # the first epoch says little
        (6 / 13, 0.7, 0.8, 0.01, 0.55),  # it reproduces 0.3 of the labels: it still learns
        (6 / 13, 0.46, 0.5, 0.01, 0.75),  # it reproduces all labels that may be right, and some others
        (4 / 13, 0.7, 0.5, 0.01, 0.75),  # the surest labels were memorised
        (2 / 13, 0.2, 0.5, 0.4, 0.75),  # it reproduces more labels than an earlier estimate allowed
    ],
)
def test_q_rises_by_a_quarter_if_labels_are_memorised_and_falls_while_the_model_learns(wrong, disagree, before, assumed, q):
    loss = noisewise.get("auto")
    loss.restore({"q": before, "assumed": assumed, "size": 1.0})
    agreeing(loss, wrong, disagree)
    record = loss.update()
    assert record["q"] == pytest.approx(before), "the record is of the epoch that ends"
    assert record["disagreement"] == pytest.approx(disagree)
    assert float(loss.q) == pytest.approx(q)
    assert float(loss.noise) == pytest.approx(max(record["noise"], assumed + 0.15 * (record["noise"] - assumed)))
    start = 2 / ((1 - 0.6 * float(loss.noise)) * math.log(99))
    assert float(loss.scale(100)) == pytest.approx(1 - float(loss.q) + float(loss.q) * start)


def test_between_its_bounds_q_follows_the_share_of_reproduced_labels():
    loss = noisewise.get("auto")
    loss.restore({"q": 0.6, "assumed": 0.01, "size": 1.0})
    agreeing(loss, 6 / 13, 0.56)
    record = loss.update()
    reproduced = 0.44 / (0.96 - record["noise"])
    assert 0.8 < reproduced < 0.95
    assert float(loss.q) == pytest.approx((reproduced - 0.8) / 0.15)


@pytest.mark.parametrize(("before", "after"), [(1.0, 0.75), (0.5, 0.35), (0.1, 0.35)])
def test_if_a_class_is_given_up_q_moves_towards_a_less_robust_loss(before, after):
    loss = noisewise.get("auto")
    loss.restore({"q": before, "assumed": 0.0, "size": 1.0})
    # A third of the labels are of class 2, which is predicted once.
    seen(loss, [0] * 50 + [1] * 49 + [2], [0] * 33 + [2] * 17 + [1] * 33 + [2] * 17, [4.0] * 100)
    record = loss.update()
    assert record["covered"] == pytest.approx(1 / 34 / (1 - record["doubt"]), rel=1e-4)
    assert float(loss.q) == pytest.approx(after)


def test_its_size_rises_to_the_pull_of_cross_entropy_by_half_an_epoch_and_with_the_noise():
    generator = torch.Generator().manual_seed(0)
    scores, labels = torch.randn(2000, 10, generator=generator), torch.randint(10, (2000,), generator=generator)
    loss, sizes = robust(), []
    for _ in range(4):
        loss.observe(scores, labels)
        loss.update()
        sizes.append(float(loss.size))
    margins = noisewise.margin(scores, labels)
    plain = {"q": float(loss.q), "assumed": float(loss.noise), "size": 1.0}
    largest = 1 + 2 * min(1, plain["assumed"] / 0.4)
    loss.restore(plain)
    ratio = float((-margins).sigmoid().sum() / loss.emphasis_of(margins, 10).sum())
    assert sizes[0] == pytest.approx(min(1.5, ratio), abs=0.01) and sizes[-1] == pytest.approx(min(ratio, largest), rel=0.02)
    loss.restore(plain | {"size": 2.0})
    d = torch.linspace(-5, 5, 11)
    before = noisewise.get("auto")
    before.restore(plain)
    torch.testing.assert_close(loss.of_margin(d, 10), 2 * before.of_margin(d, 10))
    torch.testing.assert_close(loss.emphasis_of(d, 10), 2 * before.emphasis_of(d, 10))


def test_without_a_batch_nothing_changes():
    loss = robust()
    assert loss.update() == pytest.approx(ROBUST) and float(loss.q) == ROBUST["q"]


def test_it_notes_only_what_it_trains_on():
    loss, scores, labels = noisewise.get("auto", ignore_index=1), torch.randn(6, 3), torch.tensor([0, 1, 2, 0, 1, 2])
    loss(scores, labels)
    loss.eval()(scores.clone().requires_grad_(), labels)
    assert int(loss.state_dict()["margins"].sum()) == 0
    loss.train()(scores.clone().requires_grad_(), labels)
    assert int(loss.state_dict()["margins"].sum()) == 4, "two labels are ignored"
    pixels = torch.randn(2, 3, 4, 4, requires_grad=True)
    loss(pixels, torch.zeros(2, 4, 4, dtype=torch.long))
    assert int(loss.state_dict()["margins"].sum()) == 4 + 32


def test_on_the_cpu_many_batches_are_noted_as_one_by_one(monkeypatch):
    together, alone = noisewise.get("auto"), noisewise.get("auto")
    scores, labels = torch.randn(3, 5000, 10), torch.randint(10, (3, 5000))
    noted = []
    monkeypatch.setattr(together, "note", lambda *batch: noted.append(len(batch[0])) or type(together).note(together, *batch))
    for batch in zip(scores, labels, strict=True):
        together.observe(*batch)
        alone.note(*batch)
    scores.zero_()  # a training loop may reuse its tensors
    assert noted == [10000]
    for name, counts in alone.state_dict().items():
        assert (together.state_dict()[name] == counts).all()
    assert noted == [10000, 5000]


def test_its_state_is_part_of_state_dict():
    loss = robust()
    seen(loss, [0, 1], [0, 0], [1.0, 2.0])
    again = noisewise.get("auto")
    again.load_state_dict(loss.state_dict())
    assert again.update() == loss.update() and float(again.q) == float(loss.q)


@pytest.mark.parametrize("wrapped", ["0.5*auto", "auto + mae", "scaled(auto, tau=2)", "normalised(auto)"])
def test_it_cannot_be_part_of_another_loss(wrapped):
    with refused("auto", "sets its own hyper-parameters"):
        noisewise.get(wrapped)


def test_a_kernel_does_not_freeze_it():
    loss, scores, labels = robust().eval(), torch.randn(4, 3), torch.tensor([0, 1, 2, 0])
    before = loss_and_gradient(loss, scores, labels).emphasis
    loss.restore({"q": 0.0, "assumed": 0.0, "size": 1.0})
    torch.testing.assert_close(loss_and_gradient(loss, scores, labels).emphasis, noisewise.emphasis(nn.CrossEntropyLoss(), scores, labels))
    assert not torch.allclose(before, loss_and_gradient(loss, scores, labels).emphasis)


def blobs(number=600, classes=4):
    generator = torch.Generator().manual_seed(0)
    labels = torch.arange(number) % classes
    return 3 * torch.eye(classes, 8)[labels] + torch.randn(number, 8, generator=generator), labels


def test_a_run_records_every_decision_and_its_dynamics_follow_them(tmp_path):
    run = fit("mlp(hidden=(32,))", blobs(), loss="auto", noise="symmetric(0.4)", folder=tmp_path / "run", batch_size=32, **SETTINGS)
    adapted = [line["adapted"] for line in run.metrics]
    assert adapted[0]["q"] == pytest.approx(0.85) and adapted[-1]["q"] == 1.0
    dynamics = run.dynamics
    assert dynamics.noise_estimate == {epoch: record["noise"] for epoch, record in enumerate(adapted, 1)}
    assert dynamics.noise_estimate[6] == pytest.approx(0.4, abs=0.03)
    margins = torch.linspace(-4, 4, 9).numpy()
    first, last = (dynamics.emphasis_curve(epoch, margins) for epoch in (1, 6))
    expected = noisewise.get("gce(q=0.85)").emphasis(torch.linspace(-4, 4, 9))
    torch.testing.assert_close(torch.from_numpy(first), expected, check_dtype=False, rtol=1e-4, atol=1e-5)
    assert last.argmax() == 4, "the emphasis of a MAE is largest at margin 0"
    assert dynamics.focus[1] == pytest.approx(0.85 / 1.85, abs=0.01) and dynamics.focus[6] == pytest.approx(0.5, abs=0.01)


def test_a_run_in_progress_has_the_last_known_emphasis_and_a_damaged_one_is_refused(tmp_path):
    run = fit("linear", blobs(), loss="auto", noise="symmetric(0.4)", folder=tmp_path / "run", **{**SETTINGS, "epochs": 3})
    path, margins = tmp_path / "run/metrics.jsonl", torch.linspace(-4, 4, 9).numpy()
    lines = path.read_text().splitlines(keepends=True)
    path.write_text("".join(lines[:2]))  # the record of an epoch is written before its metrics
    dynamics = Run(run.path).dynamics
    assert (dynamics.emphasis_curve(3, margins) == dynamics.emphasis_curve(2, margins)).all()
    path.write_text("".join(lines).replace('"assumed"', '"other"'))
    with refused("assumed", "auto", "epoch 1"):
        Run(run.path).dynamics.emphasis_curve(1, margins)
    path.write_text("".join(lines).replace('"adapted": {', '"adapted": {"more": "text", '))
    with refused("adapted"):
        Run(run.path).dynamics.emphasis_curve(1, margins)


@pytest.mark.parametrize("by_spec", [True, False])
def test_a_recorded_loop_decides_like_fit_and_records_it(tmp_path, by_spec):
    inputs, labels = blobs()
    labels = torch.where(torch.arange(600) % 5 == 0, (labels + 1) % 4, labels)
    torch.manual_seed(0)
    model, criterion = nn.Linear(8, 4), noisewise.get("auto")
    optimiser = torch.optim.SGD(model.parameters(), lr=0.3)
    recorder, expected = Recorder(tmp_path / "run", labels, loss="auto" if by_spec else criterion), []
    for _ in range(8):
        for index in torch.randperm(600).split(50):
            scores = model(inputs[index])
            optimiser.zero_grad()
            criterion(scores, labels[index]).backward()
            optimiser.step()
            recorder.log(index, scores)
        if by_spec:
            expected.append(criterion.update())
        recorder.end_epoch()
    adapted = [line["adapted"] for line in recorder.finish().metrics]
    assert adapted[0]["q"] == pytest.approx(0.85) and adapted[-1]["q"] == 1.0
    assert adapted[-1]["noise"] == pytest.approx(0.2, abs=0.06)
    if by_spec:
        assert adapted == expected


def test_it_resists_wrong_labels_and_learns_clean_ones(tmp_path):
    """Seeded: a model that memorises wrong labels with cross-entropy does not with `auto`, which loses nothing on clean labels."""
    settings = {**SETTINGS, "epochs": 40, "evaluate_every": 40, "validation": 0.3}
    accuracy = {}
    for noise in ("none", "symmetric(0.4)"):
        for loss in ("ce", "auto"):
            run = fit("mlp", "digits", loss=loss, noise=noise, folder=tmp_path / f"{loss}-{noise}", **settings)
            accuracy[noise, loss] = run.metrics[-1]["test_accuracy"]
    assert accuracy["none", "auto"] > accuracy["none", "ce"] - 0.01
    assert accuracy["symmetric(0.4)", "auto"] > accuracy["symmetric(0.4)", "ce"] + 0.08


def test_a_custom_adaptive_loss_needs_three_functions(tmp_path):
    class Patient(Adaptive):
        """Cross-entropy that becomes weaker every epoch."""

        def __init__(self):
            super().__init__()
            self.register_buffer("size", torch.ones(()))

        def value(self, d):
            return -self.size * nn.functional.logsigmoid(d)

        def observe(self, scores, labels):
            pass

        def update(self):
            record = {"size": float(self.size)}
            self.restore({"size": 0.5 * record["size"]})
            return record

        def restore(self, record):
            self.size.fill_(record["size"])

    criterion = Patient()
    scores, labels = torch.randn(6, 3, requires_grad=True), torch.tensor([0, 1, 2, 0, 1, 2])
    before = criterion(scores, labels)
    assert criterion.update() == {"size": 1.0}
    torch.testing.assert_close(criterion(scores, labels), 0.5 * before)
