"""Forward correction: it uses the right matrix, the model learns the true classes, and noises without a matrix are refused."""

import copy
import html

import numpy as np
import pytest
import torch

import noisewise
from noisewise.correct import correct, retrain
from noisewise.losses import Forward
from noisewise.noise import corrupt
from noisewise.runs import read_origin
from noisewise.spec import in_short
from noisewise.transition import anchor_points, counted
from refused import refused

UNEVEN = [[0.6, 0.3, 0.1], [0.0, 0.9, 0.1], [0.5, 0.0, 0.5]]
SCORES = torch.tensor([[1.0, -2.0, 0.5], [0.0, 3.0, -1.0], [2.0, 2.0, 2.5], [-9.0, 4.0, 0.0]], dtype=torch.float64)
LABELS = torch.tensor([0, 2, 1, 0])


def by_hand(scores: torch.Tensor, labels: torch.Tensor, matrix: torch.Tensor) -> torch.Tensor:
    """−log Σ_i p_i T_iy, as the paper has it."""
    return -(scores.softmax(1) @ matrix)[torch.arange(len(labels)), labels].log()


@pytest.mark.parametrize("matrix", [UNEVEN, np.array(UNEVEN), torch.tensor(UNEVEN, dtype=torch.float64, requires_grad=True)])
def test_the_rows_of_a_matrix_are_the_true_classes(matrix):
    values = Forward(matrix, reduction="none")(SCORES, LABELS)
    torch.testing.assert_close(values, by_hand(SCORES, LABELS, torch.tensor(UNEVEN, dtype=torch.float64)))


@pytest.mark.parametrize("noise", ["pair(0.3)", "symmetric_inclusive(0.5)", "class_map(0.4, map={0: 2})", "pair(0.3) + symmetric(0.2)"])
def test_the_matrix_of_a_named_noise_is_the_one_corrupt_gives(noise):
    loss = noisewise.get(f"forward({noise!r})", reduction="none")
    torch.testing.assert_close(loss(SCORES, LABELS), by_hand(SCORES, LABELS, corrupt([0, 1, 2], noise).expected))


@pytest.mark.parametrize("inner", ["ce", "mae", "gce(q=0.7)", "imae(T=8.0)", "0.5*ce + 2.0*mae"])
def test_without_noise_it_equals_the_inner_loss(inner):
    scores, labels = SCORES.clone().requires_grad_(), LABELS
    for loss in (f"forward('none', loss={inner})", f"forward('symmetric(0.0)', loss={inner})"):
        (ours,) = torch.autograd.grad(noisewise.get(loss)(scores, labels), scores)
        (theirs,) = torch.autograd.grad(noisewise.get(inner)(scores, labels), scores)
        torch.testing.assert_close(noisewise.get(loss)(scores, labels), noisewise.get(inner)(scores, labels))
        torch.testing.assert_close(ours, theirs)


def test_the_true_classes_are_learned_even_if_most_labels_of_a_class_are_wrong():
    generator = torch.Generator().manual_seed(0)
    true = torch.arange(3).repeat(400)
    inputs = 3 * torch.eye(3)[true] + torch.randn(1200, 3, generator=generator)
    matrix = [[0.4, 0.6, 0.0], [0.0, 0.8, 0.2], [0.1, 0.0, 0.9]]
    noisy = corrupt(true, f"matrix({matrix})").labels

    def accuracy(loss: noisewise.losses.Loss) -> float:
        model = torch.nn.Linear(3, 3)
        torch.nn.init.zeros_(model.weight)
        torch.nn.init.zeros_(model.bias)
        optimiser = torch.optim.SGD(model.parameters(), lr=0.1)
        for _ in range(400):
            optimiser.zero_grad()
            loss(model(inputs), noisy).backward()
            optimiser.step()
        return float((model(inputs).argmax(1) == true).double().mean())

    best = accuracy(noisewise.get("ce")), accuracy(Forward(counted(true, noisy, 3)))
    assert best[0] < 0.7 and best[1] > 0.95, best


def test_a_run_stores_the_matrix(tmp_path):
    inputs, labels = torch.randn(12, 4, generator=torch.Generator().manual_seed(0)), torch.arange(12) % 3
    run = noisewise.fit("mlp", (inputs, labels), loss=Forward(UNEVEN, loss="gce(q=0.7)"), epochs=1, batch_size=4, folder=tmp_path / "run")
    kept = noisewise.get(run.settings.loss)
    assert isinstance(kept, Forward) and np.array_equal(kept.transition(3), UNEVEN) and repr(kept.loss) == "gce(q=0.7)"


def test_a_matrix_from_a_file_is_stored_as_numbers_and_shortened_in_print(tmp_path):
    file, data = tmp_path / "t.npy", (torch.randn(12, 4, generator=torch.Generator().manual_seed(0)), torch.arange(12) % 3)
    np.save(file, UNEVEN)
    specs = ["ce", f"forward('matrix(\"{file}\")')"]
    settings = {"noise": [f"matrix({str(file)!r})"], "seed": [0], "epochs": 1, "batch_size": 4, "folder": tmp_path / "runs"}
    noisewise.compare("mlp", data, loss=specs, **settings)
    file.unlink()
    plain, corrected = (noisewise.Run(folder) for folder in sorted((tmp_path / "runs").iterdir()))
    assert plain.settings.noise == corrected.settings.noise == f"matrix({tuple(map(tuple, UNEVEN))})"
    assert np.array_equal(noisewise.get(corrected.settings.loss).transition(3), UNEVEN)
    short = f"forward('{in_short(plain.settings.noise)}', loss=ce)"
    assert len(short) < 40 and short in repr(corrected) and len(corrected.path.name) < 60
    page = noisewise.report.report([plain.path, corrected.path], tmp_path / "page.html").read_text(encoding="utf-8")
    results, runs = page.split('<section id="runs"')
    numbers = str(UNEVEN[0])[1:-1]
    assert short in html.unescape(results) and numbers not in results and numbers in runs


def test_training_on_corrected_labels_drops_the_forward_correction(tmp_path):
    labels = torch.arange(60) % 3
    data = 3 * torch.eye(3)[labels] + torch.randn(60, 3, generator=torch.Generator().manual_seed(0)), labels

    def trained(loss: str) -> noisewise.Run:
        return noisewise.fit("mlp", data, loss=loss, noise="pair(0.3)", epochs=3, batch_size=20, folder=tmp_path / loss[:3])

    run = trained("forward('pair(0.3)', loss=gce(q=0.7), weight=(1.0, 2.0, 3.0))")
    again = retrain(run, correct(run.find_label_issues()), data=data)
    assert again.settings.loss == "gce(q=0.7, weight=(1.0, 2.0, 3.0))"
    assert read_origin(again.path).settings["loss"] == run.settings.loss
    mixed = trained("0.5*forward('pair(0.3)') + 0.5*mae")
    with refused("retrain", "loss"):
        retrain(mixed, correct(mixed.find_label_issues()), data=data)
    assert retrain(mixed, correct(mixed.find_label_issues()), data=data, loss="mae").settings.loss == "mae"


@pytest.mark.parametrize("wrong", ["forward(ce)", "forward(gce(q=0.7), 'symmetric(0.4)')", "forward('gce(q=0.7)', loss=ce)"])
def test_a_loss_in_place_of_the_noise_is_refused_with_an_example(wrong):
    with refused("noise", "forward('symmetric(0.4)', loss=ce)"):
        noisewise.get(wrong)


def test_the_matrix_follows_the_noise_and_the_number_of_classes():
    loss = Forward("symmetric(0.4)", reduction="none")
    before = loss(SCORES, LABELS)
    wide = torch.cat([SCORES, torch.full((4, 2), -1.0, dtype=torch.float64)], 1)
    torch.testing.assert_close(loss(wide, LABELS), by_hand(wide, LABELS, corrupt(range(5), "symmetric(0.4)").expected))
    loss.noise = "pair(0.4)"
    assert not torch.allclose(loss(SCORES, LABELS), before)
    torch.testing.assert_close(loss(SCORES, LABELS), by_hand(SCORES, LABELS, corrupt([0, 1, 2], "pair(0.4)").expected))


def test_a_loss_first_called_inside_a_transform_can_be_copied():
    loss = Forward("pair(0.4)")
    slopes = torch.func.grad(lambda scores: loss(scores, LABELS))(SCORES)
    copied = copy.deepcopy(loss)  # fails if the loss has cached a tensor of the transform
    torch.testing.assert_close(torch.func.grad(lambda scores: copied(scores, LABELS))(SCORES), slopes)


@pytest.mark.parametrize(
    ("noise", "classes", "mentions"),
    [
        ("human(worst)", 3, ("'noise'", "Forward", "human")),
        ("pair(0.2) + instance(0.2)", 3, ("'noise'", "Forward", "instance(0.2)")),
        ("superclass_swap(0.2)", 100, ("superclass_swap(0.2)", "seed")),
        ([[1, 0], [1, 0]], 2, ("matrix(((1.0, 0.0), (1.0, 0.0)))", "1")),
        (UNEVEN, 4, ("'values'", "Matrix", "4 classes")),
        ([[0.5, 0.4], [0.5, 0.5]], 2, ("row 0", "0.9")),
        ("symetric(0.4)", 3, ("'symetric'", "'symmetric'")),
        ("class_map(0.4, map=cifar10)", 3, ("num_classes", "cifar10", "10", "3")),
    ],
)
def test_noises_without_a_matrix_are_refused(noise, classes, mentions):
    with refused(*mentions):
        Forward(noise)(torch.zeros(1, classes), torch.tensor([0]))


@pytest.mark.parametrize("diagonal", [1.0, 1.0000005])
def test_an_identity_matrix_with_rounding_errors_gives_the_inner_loss(diagonal):
    scores, target = torch.randn(6, 3, generator=torch.Generator().manual_seed(0)), torch.tensor([0, 1, 2, 0, 1, 2])
    value = Forward((diagonal * torch.eye(3, dtype=torch.float64)).numpy())(scores, target)
    torch.testing.assert_close(value, noisewise.get("ce")(scores, target))


def test_a_matrix_estimated_from_half_precision_is_accepted():
    scores = torch.randn(200, 4, generator=torch.Generator().manual_seed(0))
    matrix = anchor_points((3 * scores).softmax(1).half())
    torch.testing.assert_close(matrix.sum(1), torch.ones(4, dtype=torch.float64))
    assert Forward(matrix)(scores, scores.argmax(1)).isfinite()
