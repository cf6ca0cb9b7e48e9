import torch
from torch import Tensor

from noisewise.data import Dataset
from noisewise.losses import Loss
from noisewise.methods._base import Method, Scored, State, refuse_batch_loss
from noisewise.methods._batch import Batch
from noisewise.methods._pull import LossPull, Pull
from noisewise.methods._select import average, smallest, weighted
from noisewise.spec import setting


class CoTeaching(Method, name="co_teaching"):
    """Two networks, each of which trains on the examples of a batch that have a small loss in the other.

    Formula:
        network a learns the R(t) · n examples with the smallest loss in network b, and b those with the smallest loss in a;
        R(t) = 1 − rate · min(t / warm_up, 1) after t epochs

    The number of examples is rounded up.

    Args:
        rate: the share of examples that is left out after the warm-up: the noise rate, or a guess of it.
        warm_up: the number of epochs until then.

    Example:
        >>> CoTeaching(rate=0.4)
        co_teaching(rate=0.4, warm_up=10)

    Reference:
        Han et al., Co-teaching: robust training of deep neural networks with extremely noisy labels, NeurIPS 2018.
    """

    examples = ("co_teaching(rate=0.4, warm_up=2)",)
    networks = 2
    noise_rate = "rate"
    needs_whole_batch = True

    rate: float = setting(default=0.2, bounds="[0, 1)")
    warm_up: int = setting(default=10, bounds="[1, inf)", integer=True)

    def check(self, loss: Loss, data: Dataset) -> None:
        refuse_batch_loss(self, loss)

    def start(self, data: Dataset, seed: int) -> State:
        return {"kept": torch.ones((), device=data.labels.device)}

    def begin_epoch(self, state: State, epoch: int, epochs: int, scored: Scored) -> None:
        state["kept"].fill_(1 - self.rate * min((epoch - 1) / self.warm_up, 1))

    def pulls(self, loss: LossPull, state: State, batch: Batch, scores: tuple[Tensor, ...]) -> tuple[Pull, ...]:
        both = [loss.rows(each, batch.labels) for each in scores]
        pulls = []
        for mine, other in zip(both, reversed(both), strict=True):
            assert other.value is not None
            pulls.append(weighted(mine, average(batch, smallest(batch, other.value, state["kept"]))))
        return tuple(pulls)
