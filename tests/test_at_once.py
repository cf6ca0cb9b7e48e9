"""A plain batch on the CPU goes from scores to its loss in one step of autograd: with the same results as the general path."""

import pytest
import torch
from torch.autograd import gradcheck, gradgradcheck

import noisewise
from noisewise.losses import MarginLoss
from registry import FIRST, MARGIN, batch, build

EACH_KIND = pytest.mark.parametrize("spec", ["gce", "imae", "nce", "nfl", "anl_fl", "mse", "0.5*ce + 2*scaled(mae, 2.0)"])


class Squared(MarginLoss):
    """Defined by its value alone."""

    def value(self, d):
        return (-d).sigmoid() ** 2


@pytest.mark.parametrize(("spec", "classes"), [(spec, classes) for spec in MARGIN for classes in ((7, 33) if spec in FIRST else (7,))])
def test_weights_of_one_change_nothing(spec, classes):
    """The general path takes them."""
    loss = build(spec, reduction="sum")
    scores, target = batch(50, classes, std=4, dtype=torch.float32)
    scores.requires_grad_()
    at_once, general = loss(scores, target), loss(scores, target, sample_weight=torch.ones(50))
    torch.testing.assert_close(at_once, general)
    torch.testing.assert_close(*(torch.autograd.grad(value, scores)[0] for value in (at_once, general)))


@EACH_KIND
def test_a_kept_graph_gives_the_same_gradient_again(spec):
    scores, target = batch(5, 7)
    value = build(spec)(scores.requires_grad_(), target)
    first, second, last = (torch.autograd.grad(value, scores, retain_graph=again)[0] for again in (True, True, False))
    assert torch.equal(first, second) and torch.equal(first, last) and not last.requires_grad


@EACH_KIND
def test_the_gradients_of_all_examples_can_be_computed_together(spec):
    loss = build(spec, reduction="none")
    scores, target = batch(3, 4)
    one_by_one, together = (
        torch.autograd.functional.jacobian(lambda s: loss(s, target), scores, vectorize=every) for every in (False, True)
    )
    torch.testing.assert_close(together, one_by_one)


@EACH_KIND
def test_a_loss_can_be_added_to_a_penalty_on_its_gradient(spec):
    loss, (scores, target) = build(spec), batch(3, 4)

    def penalised(s):
        value = loss(s, target)
        return value + torch.autograd.grad(value, s, create_graph=True)[0].square().sum()

    assert gradcheck(penalised, scores.requires_grad_())  # it keeps the graph
    total = penalised(scores)
    kept, last = (torch.autograd.grad(total, scores, retain_graph=again)[0] for again in (True, False))
    torch.testing.assert_close(last, kept)


def test_a_loss_defined_by_its_value_has_exact_derivatives():
    loss, (scores, target) = Squared(), batch(3, 4)
    assert gradcheck(lambda s: loss(s, target), scores.requires_grad_())
    assert gradgradcheck(lambda s: loss(s, target), scores)


def test_a_trained_parameter_of_a_loss_gets_its_gradient():
    class Trained(Squared):
        def __init__(self):
            super().__init__()
            self.factor = torch.nn.Parameter(torch.tensor(2.0, dtype=torch.float64))

        def value(self, d):
            return self.factor * super().value(d)

    scores, target = batch(3, 4)
    for loss, trained in ((whole := Trained(), whole.factor), (0.5 * (part := Trained()), part.factor)):
        value = loss(scores, target)
        torch.testing.assert_close(2 * torch.autograd.grad(value, trained)[0], value)


@pytest.mark.parametrize("name", ["of_margin", "per_example"])
def test_a_subclass_may_override_any_rule(name):
    changed = type("Changed", (Squared,), {name: lambda self, *given: 2 * getattr(Squared, name)(self, *given)})()
    torch.testing.assert_close(changed(*batch()), 2 * Squared()(*batch()))


@pytest.mark.parametrize(("spec", "most"), [("ce", 35), ("gce", 40), ("imae", 60)])
def test_a_small_batch_takes_few_operations(spec, most):
    """With an operation for every step of the general path, they were twice as many."""
    loss, (scores, target) = noisewise.get(spec), batch(128, 10, dtype=torch.float32)
    loss(scores, target)
    with torch.autograd.profiler.profile() as profile:
        torch.autograd.grad(loss(scores.requires_grad_(), target), scores)
    names = [event.name for event in profile.function_events if event.name.startswith("aten::") and event.cpu_parent is None]
    assert len(names) <= most, names
