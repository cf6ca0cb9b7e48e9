"""Forward-mode derivatives (`torch.func.jvp`, forward AD) are as exact as reverse-mode ones, and leave no state in the loss."""

import copy
import pickle

import pytest
import torch
from mpmath import mp, mpf
from torch.autograd import forward_ad
from torch.func import grad, jvp

import noisewise
import reference
from registry import batch

pytestmark = pytest.mark.filterwarnings("ignore:.*torch.jit.script.* is deprecated:DeprecationWarning")  # by torch's own jvp

# With torch's rule for the derivative of a sigmoid, these were 0 where p, or 1 − p, rounds to one.
SATURATING = [
    ("mae", {}),
    ("rce", {"A": -4.0}),
    ("tce", {"q": 3}),
    ("aul", {"a": 2.0, "q": 3.0}),
    ("gce", {"q": 0.7}),
    ("ael", {"q": 2.5}),
]


def along_margin(function, d):
    """The forward-mode derivative of a function of scores at (d, 0) by the first score, which is the derivative by the margin."""
    zero = torch.zeros_like(d)
    return jvp(lambda s: function(torch.stack([s, zero]), torch.tensor(0)), (d,), (torch.ones_like(d),))[1]


@pytest.mark.parametrize(("name", "hyper"), SATURATING)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("margin", [-80.0, -32.0, 0.3, 32.0])
def test_the_slope_is_exact_where_a_probability_rounds_to_one(name, hyper, dtype, margin):
    loss = noisewise.get(name, **hyper)
    d = torch.tensor(margin, dtype=dtype)
    exact = -float(reference.exact_emphasis_at(name, mpf(float(d)), **hyper))
    allowed = 64 * torch.finfo(dtype).eps
    assert float(along_margin(loss, d)) == pytest.approx(exact, rel=allowed, abs=0.0)
    with forward_ad.dual_level():
        dual = forward_ad.make_dual(torch.stack([d, torch.zeros_like(d)]), torch.tensor([1.0, 0.0], dtype=dtype))
        assert float(forward_ad.unpack_dual(loss(dual, torch.tensor(0))).tangent) == pytest.approx(exact, rel=allowed, abs=0.0)


@pytest.mark.parametrize(("name", "hyper"), SATURATING[2:4])
def test_four_derivatives_are_exact_however_modes_are_nested(name, hyper):
    loss = noisewise.get(name, **hyper)

    def forwards(function):
        return lambda d: jvp(function, (d,), (torch.ones_like(d),))[1]

    def value(d):
        return loss(torch.stack([d, torch.zeros_like(d)]), torch.tensor(0))

    d, first = torch.tensor(0.7, dtype=torch.float64), forwards(value)
    with mp.workdps(reference.DIGITS):
        step = mpf("1e-8")
        exact = [-float(mp.diff(lambda x: reference.exact_emphasis_at(name, x, **hyper), float(d), order, h=step)) for order in range(4)]
    assert float(first(d)) == pytest.approx(exact[0], rel=1e-12)
    for second in (forwards(first), forwards(grad(value)), grad(first)):
        assert float(second(d)) == pytest.approx(exact[1], rel=1e-11)
    assert float(forwards(forwards(first))(d)) == pytest.approx(exact[2], rel=1e-10)
    assert float(forwards(forwards(forwards(first)))(d)) == pytest.approx(exact[3], rel=1e-9)


@pytest.mark.parametrize("label", [0, 1])
def test_a_masked_class_gives_finite_slopes(label):
    loss, scores = noisewise.get("mae"), torch.tensor([[0.5, -torch.inf, 1.0]])
    value, slope = jvp(lambda s: loss(s, torch.tensor([label])), (scores,), (torch.tensor([[1.0, 0.0, 0.0]]),))
    assert value.isfinite() and slope.isfinite()


@pytest.mark.parametrize("spec", ["imae", "gr", "0.5*ce + 2*imae(T=4)", "forward('symmetric(0.4)')"])
def test_a_loss_first_called_in_a_transform_can_be_copied_pickled_and_called(spec):
    scores, target = batch(4, 5)
    loss = noisewise.get(spec)
    jvp(lambda s: loss(s, target), (scores,), (scores,))
    torch.func.vmap(grad(loss))(scores, target)
    expected = noisewise.get(spec)(scores, target)
    for same in (loss, copy.deepcopy(loss), pickle.loads(pickle.dumps(loss))):
        torch.testing.assert_close(same(scores, target), expected)
