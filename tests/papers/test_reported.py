"""What the papers report for a run: what must match, what may differ."""

from __future__ import annotations

from typing import Any

import pytest

from noisewise.papers import available, get, reported

RUN: dict[str, Any] = {
    "data": "cifar10",
    "model": "resnet20",
    "loss": "0.00390625*imae(T=8, normalise='batch')",
    "noise": "symmetric(0.4)",
    "steps": 100_000,
    "batch_size": 128,
    "optimiser": "sgd(lr=0.1, momentum=0.9)",
    "schedule": "multistep((32000, 48000))",
    "weight_decay": 1e-4,
    "augment": "crop(4) + flip",
}


def test_a_run_of_the_recipe_finds_its_numbers() -> None:
    found = reported(RUN)
    assert {one.metric: one.value for one in found} == {
        "best": 84.3,
        "final": 84.0,
        "noisy_subset": 5.5,
        "clean_subset": 94.0,
        "hybrid": 88.2,
    }
    assert {(one.recipe, one.words, one.deviation, one.differs) for one in found} == {("imae/table6", "IMAE table 6", None, ())}


@pytest.mark.parametrize(
    "spelt",
    [
        {"loss": ".00390625 * imae(8, normalise='batch')", "noise": "symmetric( .4 )", "model": "resnet20()"},
        {"optimiser": "sgd(0.1)", "schedule": "multistep([32000, 48000], factor=.1)", "augment": "crop + flip"},
        {"seed": 7, "device": "cpu", "precision": "float32", "evaluate_every": 9, "checkpoint_every": 3, "clean_pass": False},
        {"clip": None, "epochs": None},
    ],
)
def test_spelling_seed_and_machine_do_not_count(spelt: dict[str, Any]) -> None:
    assert reported({**RUN, **spelt}) == reported(RUN)


@pytest.mark.parametrize(
    "other",
    [
        {"data": "cifar100"},
        {"data": "images/cifar10.csv"},
        {"model": "resnet20(dropout=0.2)"},
        {"model": "MyOwnNetwork"},
        {"loss": "imae(T=4)"},
        {"loss": "gr(beta=8, lam=1)"},
        {"loss": "imae(T=8) + ce"},
        {"noise": "symmetric(0.3)"},
        {"noise": "symmetric_inclusive(0.4)"},
    ],
)
def test_other_data_model_loss_or_noise_has_no_numbers(other: dict[str, Any]) -> None:
    assert reported({**RUN, **other}) == []


@pytest.mark.parametrize(
    ("other", "differs"),
    [
        ({"loss": "0.00390625*imae(T=8, saturation=0, normalise='batch')"}, ("saturation",)),
        ({"loss": "imae(T=8)"}, ("size",)),
        ({"loss": "imae(T=8, normalise='batch')"}, ("size",)),
        ({"loss": "normalised(imae(T=8, saturation=5e-9))"}, ("saturation", "size")),
        ({"loss": "0.5*imae(T=8)"}, ("size",)),
        ({"steps": None, "epochs": 30}, ("steps",)),
        ({"steps": 50_000}, ("steps",)),
        ({"clip": 5.0, "weight_decay": 5e-4}, ("weight_decay", "clip")),
        ({"optimiser": "sgd(lr=0.05)", "schedule": "cosine"}, ("optimiser", "schedule")),
        ({"classes_per_batch": 8, "accumulate": 2}, ("classes_per_batch", "accumulate")),
        ({"validation": 0.1, "patience": 3, "keep": "best"}, ("validation", "patience")),
    ],
)
def test_what_may_differ_is_named(other: dict[str, Any], differs: tuple[str, ...]) -> None:
    found = reported({**RUN, **other})
    assert [one.value for one in found] == [84.3, 84.0, 5.5, 94.0, 88.2]
    assert {one.differs for one in found} == {differs}


def test_what_is_missing_has_its_default() -> None:
    (first, *_) = reported({"data": "cifar10", "model": "resnet20", "steps": 100_000})
    assert (first.value, first.differs) == (91.5, ("schedule", "augment"))


def test_a_number_in_two_tables_is_found_twice_with_its_deviation() -> None:
    run = next(
        run for run in get("gr/table5").runs if run["loss"].startswith("0.5*gr(beta=6, lam=0.4") and run["noise"] == "symmetric(0.4)"
    )
    found = {one.recipe: one for one in reported(run)}
    assert found.keys() == {"gr/table5", "gr/table12"}
    assert (found["gr/table5"].value, found["gr/table5"].deviation, found["gr/table12"].deviation) == (60.0, 0.1, None)


def test_every_number_of_every_run_is_found_again_and_nothing_else() -> None:
    for recipe in map(get, available()):
        if recipe.same_as is not None or recipe.computed:
            continue
        printed = [cell for cell in recipe.cells if cell.settings is not None and cell.value is not None]
        for run in recipe.runs:
            found = sorted((one.metric, one.value) for one in reported(run) if one.recipe == recipe.id and one.differs == ())
            assert found == sorted((cell.metric, cell.value) for cell in printed if cell.settings == run)
