import torch
from torch import Tensor

from noisewise.data import Dataset
from noisewise.losses import Loss
from noisewise.methods._base import Method, State, refuse_batch_loss
from noisewise.methods._batch import Batch
from noisewise.methods._early import clipped_softmax, early_learning
from noisewise.methods._pull import LossPull, Pull
from noisewise.spec import setting


class ELR(Method, name="elr"):
    """Early-learning regularisation: keep the predictions close to their moving average, which forms before wrong labels are learned.

    Formula:
        L = loss + lam · log(1 − ⟨p, t⟩),    t ← beta · t + (1 − beta) · p / Σ p    for every example, with p clipped to [10⁻⁴, 1 − 10⁻⁴]

    As in the authors' code, a clipped probability has no gradient: the penalty stops pulling when a prediction is confident enough.

    Args:
        beta: the momentum of the moving average.
        lam: the strength of the regularisation.

    Example:
        >>> ELR(lam=7)
        elr(beta=0.7, lam=7.0)

    Reference:
        Liu et al., Early-learning regularization prevents memorization of noisy labels, NeurIPS 2020.
    """

    examples = ("elr(beta=0.7, lam=3)",)
    per_example = ("targets",)

    beta: float = setting(default=0.7, bounds="[0, 1)")
    lam: float = setting(default=3.0, bounds="[0, inf)")

    def check(self, loss: Loss, data: Dataset) -> None:
        refuse_batch_loss(self, loss)

    def start(self, data: Dataset, seed: int) -> State:
        return {"targets": torch.zeros(len(data), len(data.classes), device=data.labels.device)}

    def pulls(self, loss: LossPull, state: State, batch: Batch, scores: tuple[Tensor, ...]) -> tuple[Pull, ...]:
        ordinary = loss.rows(scores[0], batch.labels)
        targets = self.beta * state["targets"][batch.index] + (1 - self.beta) * clipped_softmax(scores[0])
        state["targets"][batch.index] = targets
        penalty = early_learning(scores[0], targets)
        assert ordinary.value is not None and penalty.value is not None
        return (Pull(ordinary.gradient + self.lam * penalty.gradient, ordinary.value + self.lam * penalty.value),)
