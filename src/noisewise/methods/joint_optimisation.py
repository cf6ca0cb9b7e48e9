import torch
from torch import Tensor

from noisewise.data import Dataset
from noisewise.losses import Loss
from noisewise.methods._base import Method, Scored, State, refuse_batch_loss
from noisewise.methods._batch import Batch
from noisewise.methods._entropy import entropy_of
from noisewise.methods._prior import uniform_prior
from noisewise.methods._pull import LossPull, Pull
from noisewise.spec import setting


class JointOptimisation(Method, name="joint_optimisation"):
    """Joint optimisation of network and labels: after a warm-up, the targets are averages of earlier predictions.

    Formula:
        L = D + alpha · KL(uniform ‖ mean of p over the batch) + beta · H(p)
        D = loss(y) in the first warm_up epochs, then KL(t ‖ p) with the targets t
        t ← t + (p − t) / min(e, average)    for every example in epoch e, after t was used

    The second term keeps all predictions from falling into one class, and the entropy H makes them confident. The paper averages the
    predictions of exactly the last 10 epochs. Here one running mean replaces these copies: it is the exact mean during the first
    ``average`` epochs, and gives older predictions less and less weight afterwards. This is the first stage of the paper; its second stage
    trains a new network on the final targets.

    Args:
        alpha: the strength of the prior of equally frequent classes.
        beta: the strength of the entropy term.
        warm_up: the number of first epochs with the given labels.
        average: the number of epochs that the running mean covers.

    Example:
        >>> JointOptimisation(warm_up=20)
        joint_optimisation(alpha=1.2, beta=0.8, warm_up=20, average=10)

    Reference:
        Tanaka et al., Joint optimization framework for learning with noisy labels, CVPR 2018.
    """

    examples = ("joint_optimisation(warm_up=2, average=2)", "joint_optimisation(warm_up=1)")
    needs_whole_batch = True
    per_example = ("targets",)
    relabels = True

    alpha: float = setting(default=1.2, bounds="[0, inf)")
    beta: float = setting(default=0.8, bounds="[0, inf)")
    warm_up: int = setting(default=70, bounds="[1, inf)", integer=True)
    average: int = setting(default=10, bounds="[1, inf)", integer=True)

    def check(self, loss: Loss, data: Dataset) -> None:
        refuse_batch_loss(self, loss)

    def start(self, data: Dataset, seed: int) -> State:
        device = data.labels.device
        return {
            "targets": torch.zeros(len(data), len(data.classes), device=device),
            "rate": torch.ones((), device=device),
            "relabels": torch.zeros((), dtype=torch.bool, device=device),
        }

    def begin_epoch(self, state: State, epoch: int, epochs: int, scored: Scored) -> None:
        state["rate"].fill_(1 / min(epoch, self.average))
        state["relabels"].fill_(epoch > self.warm_up)

    def pulls(self, loss: LossPull, state: State, batch: Batch, scores: tuple[Tensor, ...]) -> tuple[Pull, ...]:
        given = loss.rows(scores[0], batch.labels)
        entropy = entropy_of(scores[0])
        prior = uniform_prior(batch, entropy.p)
        targets = state["targets"][batch.index]
        divergence = (targets.xlogy(targets) - targets * entropy.log_p).sum(1)
        assert given.value is not None
        value = torch.where(state["relabels"], divergence, given.value)
        gradient = torch.where(state["relabels"], entropy.p - targets, given.gradient)
        state["targets"][batch.index] = targets + state["rate"] * (entropy.p - targets)
        gradient = gradient + self.alpha * prior.gradients[0] + self.beta * entropy.gradient
        return (Pull(gradient, value + self.alpha * prior.value + self.beta * entropy.value.squeeze(1)),)
