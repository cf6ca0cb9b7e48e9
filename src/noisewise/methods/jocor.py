import torch
import torch.nn.functional as F
from torch import Tensor

from noisewise.data import Dataset
from noisewise.losses import Loss
from noisewise.methods._base import Method, Scored, State, refuse_batch_loss
from noisewise.methods._batch import Batch
from noisewise.methods._pull import LossPull, Pull
from noisewise.methods._select import average, smallest, weighted
from noisewise.spec import setting


class JoCoR(Method, name="jocor"):
    """Two networks that train on the examples with a small joint loss: small losses in both, and similar predictions.

    Formula:
        L = (1 − lam) · (loss₁ + loss₂) + lam · (KL(p₁ ‖ p₂) + KL(p₂ ‖ p₁));
        both networks learn the R(t) · n examples with the smallest L;
        R(t) = 1 − rate · min(t / warm_up, 1) after t epochs

    Args:
        rate: the share of examples that is left out after the warm-up: the noise rate, or a guess of it.
        warm_up: the number of epochs until then.
        lam: the weight of the agreement between the networks. The authors use 0.9 for CIFAR-10 with a small network, Adam and 200 epochs,
            and advise to try smaller values, from 0.5 on, with a ResNet. With SGD, a large one slows learning at the start, because it
            leaves 1 − lam of the loss of the labels.

    Example:
        >>> JoCoR(rate=0.4)
        jocor(rate=0.4, warm_up=10, lam=0.9)

    Reference:
        Wei et al., Combating noisy labels by agreement: a joint training method with co-regularization, CVPR 2020.
    """

    examples = ("jocor(rate=0.4, warm_up=2, lam=0.9)",)
    networks = 2
    noise_rate = "rate"
    needs_whole_batch = True

    rate: float = setting(default=0.2, bounds="[0, 1)")
    warm_up: int = setting(default=10, bounds="[1, inf)", integer=True)
    lam: float = setting(default=0.9, bounds="[0, 1]")

    def check(self, loss: Loss, data: Dataset) -> None:
        refuse_batch_loss(self, loss)

    def start(self, data: Dataset, seed: int) -> State:
        return {"kept": torch.ones((), device=data.labels.device)}

    def begin_epoch(self, state: State, epoch: int, epochs: int, scored: Scored) -> None:
        state["kept"].fill_(1 - self.rate * min((epoch - 1) / self.warm_up, 1))

    def pulls(self, loss: LossPull, state: State, batch: Batch, scores: tuple[Tensor, ...]) -> tuple[Pull, ...]:
        both = [loss.rows(each, batch.labels) for each in scores]
        logs = [F.log_softmax(each, 1) for each in scores]
        assert both[0].value is not None and both[1].value is not None
        distance = ((logs[0].exp() - logs[1].exp()) * (logs[0] - logs[1])).sum(1)  # KL(p₁ ‖ p₂) + KL(p₂ ‖ p₁)
        joint = (1 - self.lam) * (both[0].value + both[1].value) + self.lam * distance
        weight = average(batch, smallest(batch, joint, state["kept"]))
        pulls = []
        for mine, log_p, log_q in zip(both, logs, reversed(logs), strict=True):
            # With d = log p − log q, the slope of the distance with respect to the scores of p is p (d − ⟨p, d⟩) + p − q.
            p, difference = log_p.exp(), log_p - log_q
            slope = p * (difference - (p * difference).sum(1, keepdim=True)) + p - log_q.exp()
            pulls.append(weighted(Pull((1 - self.lam) * mine.gradient + self.lam * slope, joint), weight))
        return tuple(pulls)
