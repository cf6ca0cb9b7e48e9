import torch
from torch import Tensor

from noisewise.data import Dataset
from noisewise.losses import Loss
from noisewise.methods._base import Method, Scored, State, refuse_batch_loss
from noisewise.methods._batch import Batch
from noisewise.methods._pull import LossPull, Pull
from noisewise.methods._select import percentile, weighted
from noisewise.spec import setting


class Rockafellian(Method, name="rockafellian"):
    """Rockafellian relaxation: train the network and the weights of the examples in turn, so that suspicious examples lose their weight.

    It is a method and not a loss, because the weights depend on the losses of the whole training set.

    Formula:
        minimise Σ (1/N + u_i) · loss_i + theta · Σ |u_i|    over the network and u,    with Σ u_i = 0 and u_i ≥ −1/N

    For given losses, the best u takes all weight from the examples with loss_i > min loss + 2 · theta. The new weights are
    mu · best + (1 − mu) · previous. As in the authors' code, losses are computed without augmentation, and the optimiser keeps its state.

    In the paper, the weight that is taken goes to the example with the smallest loss (evenly, if there are several). Here it goes evenly
    to all other examples. The single example would have a weight of up to the size of the training set, so that one mini-batch with it
    outweighs all others of an epoch: with augmentation, its loss is not small in every step, and training diverges.

    Args:
        theta: the cost of moving weight; suitable values depend on the loss, and on how well the network is trained when the weights first
            change. The default is that of the authors' code for MNIST.
        mu: how far the weights move towards the best ones.
        every: the number of epochs between two changes of the weights.
        rate: the noise rate, or a guess of it. If given, theta is chosen at every change, so that this share of the examples loses its
            weight. The paper then uses mu=1.

    Example:
        >>> Rockafellian(theta=0.5)
        rockafellian(theta=0.5, mu=0.5, every=10, rate=None)

    Reference:
        Royset, Chen & Eckstrand, Rockafellian relaxation and stochastic optimization under perturbations, arXiv:2204.04762, 2022; and
        Chen et al., Enhancing learning with noisy labels via Rockafellian relaxation, ICLR 2026.
    """

    examples = ("rockafellian(theta=0.4, mu=0.5, every=1)", "rockafellian(rate=0.4, mu=1, every=1)")

    theta: float = setting(default=0.4, bounds="[0, inf)")
    mu: float = setting(default=0.5, bounds="(0, 1]")
    every: int = setting(default=10, bounds="[1, inf)", integer=True)
    rate: float | None = setting(default=None, bounds="[0, 1)")

    def check(self, loss: Loss, data: Dataset) -> None:
        refuse_batch_loss(self, loss)

    def start(self, data: Dataset, seed: int) -> State:
        return {"weights": torch.ones(len(data), device=data.labels.device)}

    def begin_epoch(self, state: State, epoch: int, epochs: int, scored: Scored) -> None:
        if epoch > 1 and (epoch - 1) % self.every == 0:
            assert scored.losses is not None
            losses = scored.losses()
            theta = self.theta if self.rate is None else theta_for(losses, self.rate)
            state["weights"].lerp_(best_weights(losses, theta), self.mu)

    def pulls(self, loss: LossPull, state: State, batch: Batch, scores: tuple[Tensor, ...]) -> tuple[Pull, ...]:
        return (weighted(loss.rows(scores[0], batch.labels), state["weights"][batch.index]),)


def best_weights(losses: Tensor, theta: float | Tensor) -> Tensor:
    """The weights N · (1/N + u_i) for given losses: 0 for suspicious examples, and the same for all others.

    Example:
        >>> best_weights(torch.tensor([0.1, 0.5, 3.0, 2.0]), theta=0.4)
        tensor([2., 2., 0., 0.])
    """
    kept = losses <= losses.min() + 2 * theta
    return kept * (len(losses) / kept.sum())


def theta_for(losses: Tensor, rate: float) -> Tensor:
    """The theta with which this share of the examples is suspicious.

    Example:
        >>> losses = torch.tensor([0.1, 0.5, 3.0, 2.0])
        >>> best_weights(losses, theta_for(losses, 0.5))
        tensor([2., 2., 0., 0.])
    """
    return (percentile(losses, 1 - rate) - losses.min()) / 2
