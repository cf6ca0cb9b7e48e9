import torch
import torch.nn.functional as F
from torch import Tensor

from noisewise.data import Dataset
from noisewise.losses import Loss
from noisewise.methods._base import Method, Scored, State
from noisewise.methods._batch import Batch
from noisewise.methods._pull import LossPull, Pull
from noisewise.methods._transition import forward_corrected, refuse_other_than_margin
from noisewise.spec import setting


class SAdaptation(Method, name="s_adaptation"):
    """S-adaptation: a last layer learns the transition matrix together with the network, and is left out in prediction.

    Formula:
        L = loss(p′),    p′_y = Σ_i p_i T_iy,    T_ij = exp(b_ij) / Σ_l exp(b_il),    b ← b − rate · lr · ∂L / ∂b
        b_ij = log(Σ_t p_i(x_t) [y_t = j] / Σ_t p_i(x_t)) at first, over the training set, after the warm-up

    This is the simple model of the paper, in which the matrix does not depend on the input. b is learned by plain gradient descent.
    Inside the logarithm 10⁻⁸ is added, so that a label that seems impossible has a finite loss. Nothing forces the matrix to be that of
    the noise: a network that has memorised the labels does not need the layer.

    Args:
        warm_up: the number of epochs with the plain loss, before the layer is added.
        rate: the learning rate of the layer, as a multiple of that of the network.

    Example:
        >>> SAdaptation(warm_up=5)
        s_adaptation(warm_up=5, rate=1.0)

    Reference:
        Goldberger & Ben-Reuven, Training deep neural-networks using a noise adaptation layer, ICLR 2017.
    """

    examples = ("s_adaptation(warm_up=1)",)

    warm_up: int = setting(default=10, bounds="[1, inf)", integer=True)
    rate: float = setting(default=1.0, bounds="[0, inf)")

    def check(self, loss: Loss, data: Dataset) -> None:
        refuse_other_than_margin(self, loss)

    def allowed(self, classes: int) -> Tensor:
        """Which labels may be given for every true class: a matrix of truth values."""
        return torch.ones(classes, classes, dtype=torch.bool)

    def start(self, data: Dataset, seed: int) -> State:
        device = data.labels.device
        size = len(data.classes)
        return {
            # The softmax of the first layer is the identity, with which the correction changes nothing.
            "layer": torch.eye(size, device=device).log(),
            "learning": torch.zeros((), dtype=torch.bool, device=device),
            "labels": data.labels.clone(),
        }

    def begin_epoch(self, state: State, epoch: int, epochs: int, scored: Scored) -> None:
        state["learning"].fill_(epoch > self.warm_up)
        if epoch == self.warm_up + 1:
            p = scored.scores(None).softmax(1)
            size = p.shape[1]
            confusion = p.T @ F.one_hot(state["labels"], size).to(p.dtype)
            share = confusion / confusion.sum(1, keepdim=True).clamp(min=1e-8) + 1e-8
            state["layer"].copy_(share.log().masked_fill(~self.allowed(size).to(share.device), -torch.inf))

    def pulls(self, loss: LossPull, state: State, batch: Batch, scores: tuple[Tensor, ...]) -> tuple[Pull, ...]:
        matrix = state["layer"].softmax(1)
        pull, by_log_matrix = forward_corrected(loss, scores[0], batch.labels, matrix)
        slope = batch.total(by_log_matrix) / batch.whole
        # The gradient of a softmax in its scores, from that in its logarithm.
        slope = slope - matrix * slope.sum(1, keepdim=True)
        state["layer"].sub_(torch.where(state["learning"], self.rate * batch.lr * slope, 0.0))
        return (pull,)
