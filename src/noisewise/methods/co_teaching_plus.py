import torch
from torch import Tensor

from noisewise.data import Dataset
from noisewise.losses import Loss
from noisewise.methods._base import Method, Scored, State, refuse_batch_loss
from noisewise.methods._batch import Batch
from noisewise.methods._pull import LossPull, Pull
from noisewise.methods._select import average, disagree, smallest, weighted
from noisewise.spec import setting


class CoTeachingPlus(Method, name="co_teaching_plus"):
    """Co-teaching on the examples which the two networks predict differently, so that the networks do not become the same.

    Formula:
        D = {x : argmax f₁(x) ≠ argmax f₂(x)};
        network a learns the R(t) · |D| examples of D with the smallest loss in network b, and b those with the smallest loss in a;
        R(t) = 1 − rate · min(t / warm_up, 1) after t epochs

    The number of examples is rounded up. A batch without disagreement does not change the networks.

    Args:
        rate: the share of examples that is left out after the warm-up: the noise rate, or a guess of it.
        warm_up: the number of epochs until then: 10 in the authors' code.
        burn_in: the number of first epochs of ordinary co-teaching, with D the whole batch: 20 for CIFAR-10, 5 for CIFAR-100 and 0 for
            MNIST in the authors' code.

    Example:
        >>> CoTeachingPlus(rate=0.4)
        co_teaching_plus(rate=0.4, warm_up=10, burn_in=0)

    Reference:
        Yu et al., How does disagreement help generalization against label corruption?, ICML 2019.
    """

    examples = ("co_teaching_plus(rate=0.4, warm_up=2)", "co_teaching_plus(rate=0.4, warm_up=2, burn_in=1)")
    networks = 2
    noise_rate = "rate"
    needs_whole_batch = True

    rate: float = setting(default=0.2, bounds="[0, 1)")
    warm_up: int = setting(default=10, bounds="[1, inf)", integer=True)
    burn_in: int = setting(default=0, bounds="[0, inf)", integer=True)

    def check(self, loss: Loss, data: Dataset) -> None:
        refuse_batch_loss(self, loss)

    def start(self, data: Dataset, seed: int) -> State:
        device = data.labels.device
        return {"kept": torch.ones((), device=device), "burning_in": torch.zeros((), dtype=torch.bool, device=device)}

    def begin_epoch(self, state: State, epoch: int, epochs: int, scored: Scored) -> None:
        state["kept"].fill_(1 - self.rate * min((epoch - 1) / self.warm_up, 1))
        state["burning_in"].fill_(epoch <= self.burn_in)

    def pulls(self, loss: LossPull, state: State, batch: Batch, scores: tuple[Tensor, ...]) -> tuple[Pull, ...]:
        candidates = disagree(scores) | state["burning_in"]
        both = [loss.rows(each, batch.labels) for each in scores]
        pulls = []
        for mine, other in zip(both, reversed(both), strict=True):
            assert other.value is not None
            selected = smallest(batch, other.value, state["kept"], among=candidates)
            pulls.append(weighted(mine, average(batch, selected)))
        return tuple(pulls)
