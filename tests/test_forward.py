"""Forward correction: the matrix is the one that was meant, the model learns the true classes, and what cannot be corrected is refused."""

import copy
import html

import numpy as np
import pytest
import torch

import noisewise
from noisewise import InputError
from noisewise.correct import correct, retrain
from noisewise.losses import Forward
from noisewise.noise import corrupt
from noisewise.runs import read_origin
from noisewise.spec import in_short
from noisewise.transition import anchor_points, counted

UNEVEN = [[0.6, 0.3, 0.1], [0.0, 0.9, 0.1], [0.5, 0.0, 0.5]]
SCORES = torch.tensor([[1.0, -2.0, 0.5], [0.0, 3.0, -1.0], [2.0, 2.0, 2.5], [-9.0, 4.0, 0.0]], dtype=torch.float64)
LABELS = torch.tensor([0, 2, 1, 0])


def by_hand(scores: torch.Tensor, labels: torch.Tensor, matrix: torch.Tensor) -> torch.Tensor:
    """−log Σ_i p_i T_iy, as the paper has it."""
    return -(scores.softmax(1) @ matrix)[torch.arange(len(labels)), labels].log()


@pytest.mark.parametrize("given", [UNEVEN, np.array(UNEVEN), torch.tensor(UNEVEN, dtype=torch.float64, requires_grad=True)])
def test_a_matrix_has_the_true_class_first(given):
    found = Forward(given, reduction="none")(SCORES, LABELS)
    torch.testing.assert_close(found, by_hand(SCORES, LABELS, torch.tensor(UNEVEN, dtype=torch.float64)))


@pytest.mark.parametrize("noise", ["pair(0.3)", "symmetric_inclusive(0.5)", "class_map(0.4, map={0: 2})", "pair(0.3) + symmetric(0.2)"])
def test_the_matrix_of_a_named_noise_is_the_one_corrupt_gives(noise):
    loss = noisewise.get(f"forward({noise!r})", reduction="none")
    torch.testing.assert_close(loss(SCORES, LABELS), by_hand(SCORES, LABELS, corrupt([0, 1, 2], noise).expected))


@pytest.mark.parametrize("inner", ["ce", "mae", "gce(q=0.7)", "imae(T=8.0)", "0.5*ce + 2.0*mae"])
def test_without_noise_it_is_the_loss_inside(inner):
    scores, labels = SCORES.clone().requires_grad_(), LABELS
    for loss in (f"forward('none', loss={inner})", f"forward('symmetric(0.0)', loss={inner})"):
        (ours,) = torch.autograd.grad(noisewise.get(loss)(scores, labels), scores)
        (theirs,) = torch.autograd.grad(noisewise.get(inner)(scores, labels), scores)
        torch.testing.assert_close(noisewise.get(loss)(scores, labels), noisewise.get(inner)(scores, labels))
        torch.testing.assert_close(ours, theirs)


def test_it_learns_the_true_classes_where_most_labels_of_a_class_are_wrong():
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


def test_a_run_remembers_the_matrix(tmp_path):
    inputs, labels = torch.randn(12, 4, generator=torch.Generator().manual_seed(0)), torch.arange(12) % 3
    run = noisewise.fit("mlp", (inputs, labels), loss=Forward(UNEVEN, loss="gce(q=0.7)"), epochs=1, batch_size=4, folder=tmp_path / "run")
    kept = noisewise.get(run.settings.loss)
    assert isinstance(kept, Forward) and np.array_equal(kept.transition(3), UNEVEN) and repr(kept.loss) == "gce(q=0.7)"


def test_a_matrix_from_a_file_is_kept_as_its_numbers_and_shown_in_short(tmp_path):
    file, data = tmp_path / "t.npy", (torch.randn(12, 4, generator=torch.Generator().manual_seed(0)), torch.arange(12) % 3)
    np.save(file, UNEVEN)
    specs = ["ce", f"forward('matrix(\"{file}\")')"]
    asked = {"noise": [f"matrix({str(file)!r})"], "seed": [0], "epochs": 1, "batch_size": 4, "folder": tmp_path / "runs"}
    noisewise.compare("mlp", data, loss=specs, **asked)
    file.unlink()
    plain, corrected = (noisewise.Run(folder) for folder in sorted((tmp_path / "runs").iterdir()))
    assert plain.settings.noise == corrected.settings.noise == f"matrix({tuple(map(tuple, UNEVEN))})"
    assert np.array_equal(noisewise.get(corrected.settings.loss).transition(3), UNEVEN)
    short = f"forward('{in_short(plain.settings.noise)}', loss=ce)"
    assert len(short) < 40 and f": {short} on " in repr(corrected) and len(corrected.path.name) < 60
    page = noisewise.report.report([plain.path, corrected.path], tmp_path / "page.html").read_text(encoding="utf-8")
    told, how = page.split(">How it was run<")
    assert short in html.unescape(told) and (numbers := str(UNEVEN[0])[1:-1]) not in told and numbers in how


def test_corrected_labels_are_trained_on_without_the_noise_they_no_longer_have(tmp_path):
    labels = torch.arange(60) % 3
    data = 3 * torch.eye(3)[labels] + torch.randn(60, 3, generator=torch.Generator().manual_seed(0)), labels

    def trained(loss: str) -> noisewise.Run:
        return noisewise.fit("mlp", data, loss=loss, noise="pair(0.3)", epochs=3, batch_size=20, folder=tmp_path / loss[:3])

    run = trained("forward('pair(0.3)', loss=gce(q=0.7), weight=(1.0, 2.0, 3.0))")
    again = retrain(run, correct(run.find_label_issues()), data=data)
    assert again.settings.loss == "gce(q=0.7, weight=(1.0, 2.0, 3.0))"
    assert read_origin(again.path).settings["loss"] == run.settings.loss, "it is compared as what it was"
    mixed = trained("0.5*forward('pair(0.3)') + 0.5*mae")
    with pytest.raises(InputError, match=r"no longer in the corrected labels\. Give retrain another"):
        retrain(mixed, correct(mixed.find_label_issues()), data=data)
    assert retrain(mixed, correct(mixed.find_label_issues()), data=data, loss="mae").settings.loss == "mae"


@pytest.mark.parametrize("wrong", ["forward(ce)", "forward(gce(q=0.7), 'symmetric(0.4)')", "forward('gce(q=0.7)', loss=ce)"])
def test_a_loss_where_the_noise_should_stand_says_which_comes_first(wrong):
    with pytest.raises(InputError, match=r"must be the noise; it comes before the loss, as in forward\('symmetric\(0.4\)', loss=ce\)"):
        noisewise.get(wrong)


def test_another_noise_and_another_number_of_classes_take_another_matrix():
    loss = Forward("symmetric(0.4)", reduction="none")
    before = loss(SCORES, LABELS)
    wide = torch.cat([SCORES, torch.full((4, 2), -1.0, dtype=torch.float64)], 1)
    torch.testing.assert_close(loss(wide, LABELS), by_hand(wide, LABELS, corrupt(range(5), "symmetric(0.4)").expected))
    loss.noise = "pair(0.4)"
    assert not torch.allclose(loss(SCORES, LABELS), before)
    torch.testing.assert_close(loss(SCORES, LABELS), by_hand(SCORES, LABELS, corrupt([0, 1, 2], "pair(0.4)").expected))


def test_a_first_call_inside_a_transform_leaves_nothing_behind():
    loss = Forward("pair(0.4)")
    slopes = torch.func.grad(lambda scores: loss(scores, LABELS))(SCORES)
    copied = copy.deepcopy(loss)  # a tensor of the transform's cannot be copied
    torch.testing.assert_close(torch.func.grad(lambda scores: copied(scores, LABELS))(SCORES), slopes)


@pytest.mark.parametrize(
    ("noise", "classes", "said"),
    [
        ("human(worst)", 3, "The 'noise' parameter of Forward must be one that depends on the class alone, such as 'symmetric(0.4)', or a"),
        ("pair(0.2) + instance(0.2)", 3, "The 'noise' parameter of Forward must be one that depends on the class alone"),
        (
            "superclass_swap(0.2)",
            100,
            "The matrix of superclass_swap(0.2) is drawn with the seed of a run. Give forward the matrix itself.",
        ),
        (
            [[1, 0], [1, 0]],
            2,
            "must be such that every label occurs. Got 'matrix(((1.0, 0.0), (1.0, 0.0))), after which none is 1' instead.",
        ),
        (UNEVEN, 4, "The 'values' parameter of Matrix must be"),
        ([[0.5, 0.4], [0.5, 0.5]], 2, "rows sum to one"),
        ("symetric(0.4)", 3, "There is no noise named 'symetric'. Did you mean 'symmetric'"),
        ("class_map(0.4, map=cifar10)", 3, "The 'num_classes' parameter of the cifar10 class map must be 10."),
    ],
)
def test_what_has_no_matrix_is_refused(noise, classes, said):
    with pytest.raises(InputError) as refusal:
        Forward(noise)(torch.zeros(1, classes), torch.tensor([0]))
    assert said in str(refusal.value)


@pytest.mark.parametrize("diagonal", [1.0, 1.0000005])
def test_a_matrix_that_is_one_but_for_rounding_gives_the_loss_itself(diagonal):
    scores, target = torch.randn(6, 3, generator=torch.Generator().manual_seed(0)), torch.tensor([0, 1, 2, 0, 1, 2])
    found = Forward((diagonal * torch.eye(3, dtype=torch.float64)).numpy())(scores, target)
    torch.testing.assert_close(found, noisewise.get("ce")(scores, target))


def test_a_matrix_estimated_from_half_precision_is_taken():
    scores = torch.randn(200, 4, generator=torch.Generator().manual_seed(0))
    matrix = anchor_points((3 * scores).softmax(1).half())
    torch.testing.assert_close(matrix.sum(1), torch.ones(4, dtype=torch.float64))
    assert Forward(matrix)(scores, scores.argmax(1)).isfinite()
