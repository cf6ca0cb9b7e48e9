import torch
from torch import Tensor

from noisewise.data import Dataset
from noisewise.losses import Loss
from noisewise.methods._base import Method, Scored, State, refuse_batch_loss
from noisewise.methods._batch import Batch
from noisewise.methods._pull import LossPull, Pull
from noisewise.methods._select import average, disagree, weighted
from noisewise.spec import setting


class Decoupling(Method, name="decoupling"):
    """Two networks that train only on the examples which they predict differently.

    Formula:
        both networks learn {x : argmax f₁(x) ≠ argmax f₂(x)}; the loss is averaged over these examples

    A batch without such examples does not change the networks.

    Args:
        burn_in: the number of first epochs in which both networks train on all examples.

    Example:
        >>> Decoupling()
        decoupling(burn_in=0)

    Reference:
        Malach and Shalev-Shwartz, Decoupling "when to update" from "how to update", NeurIPS 2017.
    """

    examples = ("decoupling", "decoupling(burn_in=1)")
    networks = 2
    needs_whole_batch = True

    burn_in: int = setting(default=0, bounds="[0, inf)", integer=True)

    def check(self, loss: Loss, data: Dataset) -> None:
        refuse_batch_loss(self, loss)

    def start(self, data: Dataset, seed: int) -> State:
        return {"burning_in": torch.zeros((), dtype=torch.bool, device=data.labels.device)}

    def begin_epoch(self, state: State, epoch: int, epochs: int, scored: Scored) -> None:
        state["burning_in"].fill_(epoch <= self.burn_in)

    def pulls(self, loss: LossPull, state: State, batch: Batch, scores: tuple[Tensor, ...]) -> tuple[Pull, ...]:
        weight = average(batch, disagree(scores) | state["burning_in"])
        return tuple(weighted(loss.rows(each, batch.labels), weight) for each in scores)
