import math
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn.functional import logsigmoid

from noisewise.data import Dataset
from noisewise.errors import InputError
from noisewise.losses import Loss, MarginLoss
from noisewise.methods._base import Method, State
from noisewise.methods._batch import Batch
from noisewise.methods._pull import LossPull, Pull, of_emphasis
from noisewise.spec import setting

_LEAST = 1e-7  # probabilities are clamped to [_LEAST, 1 − _LEAST], as in the authors' code
_POINTS = 1000  # at which the expected slopes are computed
_ROUNDS = 10  # of the mixture's EM algorithm, and of the bisection
_TOLERANCE = 1e-3  # of the mixture's log-likelihood
_VARIANCE = 1e-3  # added to the variances of the mixture


class OGC(Method, name="ogc"):
    """Optimised gradient clipping: clip the slope of the loss in p at a threshold that follows the losses of recent examples.

    It is a method and not a loss, because the threshold depends on the learning rate and on the examples of earlier batches.

    Formula:
        L = l(p), or l(t) + l′(t) (p − t) where p ≤ t;    t: the smallest with E_wrong / E_right ≤ 1 + epsilon · learning rate
        E: the expected slope min(|l′(p)|, |l′(t)|) under the two components of a Gaussian mixture, fitted to the recent −log p

    The mixture starts at the best split of the costs into two groups, where the authors' code draws a random start. Their code adds 1
    to the value of clipped examples, which fits cross-entropy only; here the value is continuous for every loss.

    Args:
        epsilon: how much of the wrong labels' slopes is accepted.
        every: the number of steps between two thresholds.
        queue: the number of recent examples. Nothing is clipped before so many were seen.

    Example:
        >>> OGC(epsilon=5)
        ogc(epsilon=5.0, every=32, queue=4096)

    Reference:
        Ye et al., Optimized gradient clipping for noisy label learning, AAAI 2025.
    """

    examples = ("ogc(epsilon=20, every=2, queue=128)",)
    needs_whole_batch = True

    epsilon: float = setting(default=20.0, bounds="[0, inf)")
    every: int = setting(default=32, bounds="[1, inf)", integer=True)
    queue: int = setting(default=4096, bounds="[4, inf)", integer=True)

    def check(self, loss: Loss, data: Dataset) -> None:
        if not LossPull(loss).by_emphasis:
            raise InputError(
                f"The method {self!r} needs a loss that is a function of the margin alone, such as 'ce' or 'gce', without class weights. "
                f"Got {loss!r} instead."
            )

    def start(self, data: Dataset, seed: int) -> State:
        device = data.labels.device
        return {
            "costs": torch.zeros(self.queue, device=device),
            "seen": torch.zeros((), dtype=torch.int64, device=device),
            "margin": torch.tensor(_margin(_LEAST), device=device),
        }

    @property
    def refresh_every(self) -> int:
        return self.every

    def pulls(self, loss: LossPull, state: State, batch: Batch, scores: tuple[Tensor, ...]) -> tuple[Pull, ...]:
        assert isinstance(loss.loss, MarginLoss)
        clipped = _Clipped(loss.loss, state["margin"])
        pull = of_emphasis(scores[0], batch.labels, clipped.emphasis)
        assert pull.margin is not None
        self._remember(state, batch, -logsigmoid(pull.margin))
        return (pull._replace(value=clipped.value(pull.margin)),)

    def _remember(self, state: State, batch: Batch, costs: Tensor) -> None:
        """Put the costs of a batch into the queue."""
        recent = batch.gather(costs.clamp(-math.log1p(-_LEAST), -math.log(_LEAST)))[-self.queue :]
        place = (state["seen"] + torch.arange(len(recent), device=recent.device)) % self.queue
        state["costs"][place] = recent.to(state["costs"].dtype)
        state["seen"] += len(recent)

    def refresh(self, loss: Loss, state: State, lr: Tensor) -> None:
        assert isinstance(loss, MarginLoss)
        if int(state["seen"]) >= self.queue:
            state["margin"].copy_(clipping_margin(loss, state["costs"], 1 + self.epsilon * lr.to(state["costs"].dtype)))


@dataclass(frozen=True)
class _Clipped:
    """A loss that is linear in p up to a margin."""

    loss: MarginLoss
    margin: Tensor

    def value(self, d: Tensor) -> Tensor:
        linear = self.loss.value(self.margin) + _slope(self.loss, self.margin) * (self.margin.sigmoid() - d.sigmoid())
        return torch.where(d > self.margin, self.loss.value(d), linear)

    def emphasis(self, d: Tensor) -> Tensor:
        linear = _slope(self.loss, self.margin) * d.sigmoid() * (-d).sigmoid()
        return torch.where(d > self.margin, self.loss.emphasis(d), linear)


def clipping_margin(loss: MarginLoss, costs: Tensor, ratio: Tensor) -> Tensor:
    """The margin below which to clip, so that wrong labels have at most `ratio` times the expected slope of right labels."""
    means, variances = _mixture(costs)
    at = torch.linspace(-math.log1p(-_LEAST), -math.log(_LEAST), _POINTS, dtype=costs.dtype, device=costs.device)
    slopes = _slope(loss, -at.expm1().log())
    # The density of a truncated Gaussian at the points, divided by its sum, is a softmax.
    right, wrong = (-0.5 * (at - means.unsqueeze(1)).square() / variances.unsqueeze(1)).softmax(1)

    def is_met(p: Tensor) -> Tensor:
        clipped = torch.minimum(slopes, _slope(loss, p.logit()))
        met: Tensor = wrong @ clipped <= ratio * (right @ clipped)
        return met

    least = torch.full_like(means[0], _LEAST)
    low, high = least, 1 - least
    for _ in range(_ROUNDS):
        middle = (low + high) / 2
        met = is_met(middle)
        low, high = torch.where(met, low, middle), torch.where(met, middle, high)
    return torch.where(is_met(least), least, high).logit()


def _mixture(costs: Tensor) -> tuple[Tensor, Tensor]:
    """The means and variances of a mixture of two Gaussians, the one with the smaller mean first."""
    values = costs.sort().values
    number = torch.arange(1, len(values), device=costs.device)
    sums = (values - values.mean()).cumsum(0)[:-1]
    split = (sums.square() / (number * (len(values) - number))).argmax()  # the two groups of the smallest variance
    upper = torch.arange(len(values), device=costs.device) > split
    shares, means, variances = _moments(values, torch.stack([~upper, upper]).to(values.dtype))
    before, moving = torch.full_like(means[0], -torch.inf), torch.ones_like(means[0], dtype=torch.bool)
    for _ in range(_ROUNDS):
        squares = (values - means.unsqueeze(1)).square() / variances.unsqueeze(1)
        log_joint = shares.log().unsqueeze(1) - 0.5 * (squares + (2 * math.pi * variances).log().unsqueeze(1))
        log_total = log_joint.logsumexp(0)
        moved = _moments(values, (log_joint - log_total).exp())
        shares, means, variances = (torch.where(moving, new, old) for new, old in zip(moved, (shares, means, variances), strict=True))
        likelihood = log_total.mean()
        moving = moving & ((likelihood - before).abs() >= _TOLERANCE)
        before = likelihood
    order = means.argsort()
    return means[order], variances[order]


def _moments(values: Tensor, memberships: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """The share, mean and variance of each group, given how much each value belongs to it."""
    sizes = memberships.sum(1) + 10 * torch.finfo(values.dtype).eps
    means = memberships @ values / sizes
    variances = (memberships * (values - means.unsqueeze(1)).square()).sum(1) / sizes
    return sizes / len(values), means, variances + _VARIANCE


def _slope(loss: MarginLoss, d: Tensor) -> Tensor:
    """|l′(p)| at margin `d`."""
    return loss.emphasis(d) / (d.sigmoid() * (-d).sigmoid())


def _margin(p: float) -> float:
    return math.log(p / (1 - p))
