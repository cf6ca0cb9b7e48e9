"""Every method is documented, and what it says it needs is what it uses."""

from __future__ import annotations

import doctest
from typing import Any

import pytest
import torch
from torch import nn

from noisewise import describe, losses, methods
from noisewise.data import Dataset
from noisewise.methods import Batch, LossPull
from noisewise.models import get as model
from noisewise.spec import Interval

NAMES = methods.available()
N = 90


@pytest.mark.parametrize("name", NAMES)
def test_every_method_has_a_summary_formula_example_and_reference(name: str) -> None:
    described = describe.describe_method(name)
    assert described.summary.endswith(".") and described.formula
    assert described.example.startswith(">>> ") and described.reference.endswith(".")
    assert [parameter.name for parameter in described.parameters if not parameter.meaning] == []
    assert all(methods.get(spec).name == name for spec in described.specs)


@pytest.mark.parametrize("name", NAMES)
def test_the_example_runs_as_it_is_shown(name: str) -> None:
    example = doctest.DocTestParser().get_doctest("\n".join(describe.describe_method(name).session), {}, name, None, None)
    assert doctest.DocTestRunner(verbose=False).run(example).failed == 0


def test_text_after_the_formula_is_not_part_of_it() -> None:
    described = describe.describe_method("sop")
    assert len(described.formula) == 3 and described.details == () and described.notes[0].startswith("As in the authors' code, M also")
    (listed,) = (note for note in describe.describe_method("elr_plus").notes if note.startswith("- "))
    assert len(listed.splitlines()) == 3


def test_a_loss_keeps_its_details_before_the_formula() -> None:
    described = describe.describe("power")
    assert described.details and described.notes == ()


@pytest.mark.parametrize("name", NAMES)
def test_a_step_uses_as_many_views_and_networks_as_the_method_says(name: str) -> None:
    method: Any = methods.get(describe.describe_method(name).specs[0])
    labels = torch.arange(N) % 3
    data = Dataset(torch.randn(N, 4), labels, ("a", "b", "c"), true_labels=labels)
    state, views = method.start(data, 0), []

    def prepare(inputs: torch.Tensor) -> torch.Tensor:
        views.extend([True] * (inputs is data.inputs))
        return inputs

    batch = Batch(torch.arange(N), labels, data.inputs, prepare, N, torch.tensor(0.1), torch.tensor(0.5), torch.Generator())
    networks: list[nn.Module] = [model("mlp(hidden=(8,))", num_classes=3, shape=(4,)) for _ in range(method.networks)]
    scores = method.scores(networks, state, batch)
    assert len(views) == method.views
    torch.autograd.backward(scores, [torch.ones_like(each) for each in scores])
    trained = [any(p.grad is not None for p in network.parameters()) for network in networks]
    assert trained == [number < (method.trained or method.networks) for number in range(method.networks)]
    pulls = method.pulls(LossPull(losses.get("ce")), state, batch, tuple(each.detach() for each in scores))
    assert [pull.gradient.shape for pull in pulls] == [each.shape for each in scores]


@pytest.mark.parametrize("name", NAMES)
def test_a_noise_rate_is_a_share(name: str) -> None:
    kind: Any = methods.registry[name]
    assert kind.noise_rate is None or kind.settings[kind.noise_rate].bounds == Interval.parse("[0, 1)")


def test_needs_follow_from_attributes_settings_and_refusals() -> None:
    assert describe.needs("plain") == ()
    assert describe.needs("masking") == ("`structure`", "a loss of the margin alone")
    assert describe.needs("elr_plus") == ("2 networks and 2 weight averages", "whole batches")
    assert describe.needs("osm_caa") == ("a model of noisewise", "whole batches")
    assert "trusted labels (`trusted`)" in describe.needs("bilevel")
