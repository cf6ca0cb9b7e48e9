"""Every loss is documented: a new loss fails here until its docstring is complete."""

import dataclasses
import doctest

import pytest

from noisewise import describe
from noisewise.losses import available, get
from refused import refused


@pytest.mark.parametrize("name", available())
def test_every_loss_has_a_summary_formula_example_and_reference(name: str) -> None:
    described = describe.describe(name)
    assert described.summary.endswith((".", ")"))
    assert described.value, "the Formula section needs a line for the loss: l(p) = … or L = …"
    assert described.emphasis, "the Formula section needs a line for the emphasis: w = …"
    assert described.example.startswith(">>> ")
    assert described.reference.endswith(".")


@pytest.mark.parametrize("name", available())
def test_every_hyper_parameter_is_explained(name: str) -> None:
    described = describe.describe(name)
    unexplained = [parameter.name for parameter in described.parameters if not parameter.meaning]
    assert not unexplained


@pytest.mark.parametrize("name", available())
def test_every_example_spec_builds_that_loss(name: str) -> None:
    for spec in describe.describe(name).specs:
        assert get(spec).name == name


def test_the_sections_of_a_docstring_are_parsed() -> None:
    described = describe.describe("imae")
    assert described.title == "IMAE"
    assert len(described.details) == 1
    assert described.formula[1].startswith("w = exp(T p (1 − p)) / 2")
    assert [parameter.name for parameter in described.parameters] == ["T", "saturation", "normalise"]
    assert described.parameters[0].requirement == "in [0, inf)"
    assert described.reference.endswith("arXiv:1903.12141.")


def test_a_docstring_is_not_inherited() -> None:
    assert describe.describe("ls").summary != describe.describe("gls").summary


@pytest.mark.parametrize(
    ("spec", "focus", "spread"),
    [("ce", 0.0, 1 / 3), ("mae", 0.5, 4 / 45), ("gce(q=0.5)", 1 / 3, None), ("imae(T=8, saturation=0)", 0.5, 4.546), ("nce", None, None)],
)
def test_figures_are_those_of_the_papers(spec: str, focus: float | None, spread: float | None) -> None:
    figures = describe.measure(spec)
    assert figures.focus == (None if focus is None else pytest.approx(focus, abs=1e-6))
    if spread is not None:
        assert figures.spread == pytest.approx(spread, abs=5e-4)


def test_a_loss_that_needs_arguments_is_measured_by_its_example() -> None:
    assert describe.one("normalised")[1].spec == "normalised(mae, by='maximum')"
    assert describe.one("gce")[1].spec == "gce"


def test_a_sum_has_no_description() -> None:
    with refused("0.3*ce + 0.7*mae"):
        describe.one("0.3*ce + 0.7*mae")


def test_descriptions_are_frozen() -> None:
    with pytest.raises(dataclasses.FrozenInstanceError):
        describe.describe("ce").name = "other"  # type: ignore[misc]


@pytest.mark.parametrize("name", available())
def test_the_example_runs_as_it_is_shown(name: str) -> None:
    shown = "\n".join(describe.describe(name).session)
    example = doctest.DocTestParser().get_doctest(shown, {}, name, None, None)
    assert doctest.DocTestRunner(verbose=False, optionflags=doctest.NORMALIZE_WHITESPACE).run(example).failed == 0
