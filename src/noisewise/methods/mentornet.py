import torch
from torch import Tensor

from noisewise.data import Dataset
from noisewise.losses import Loss
from noisewise.methods._base import Method, State, refuse_batch_loss
from noisewise.methods._batch import Batch
from noisewise.methods._pull import LossPull, Pull
from noisewise.methods._select import average, percentile, weighted
from noisewise.spec import setting


class MentorNetPD(Method, name="mentornet_pd"):
    """MentorNet with its predefined curriculum: examples with a loss above a moving threshold lose their weight.

    Formula:
        v = 1 during the burn-in;  then v = 1 if loss ≤ λ₁, else 0;  at the end v = min(max(1 − (loss − λ₁) / lambda_2, 0), 1);
        λ₁ = the moving average of the percentile of the losses in a batch;
        L = Σ v · loss / Σ v

    These are the phases of the curriculum in the authors' code. The weights are computed directly, without the network that imitates
    them there. Three details differ: the moving average has no bias towards its start at 0, the loss is divided by Σ v (at least 1)
    instead of the batch size, and the code's random dropping of examples is left out.

    Without a burn-in, classes that are learned late lose all their examples at once, and are never learned.

    Args:
        percentile: which loss of a batch the threshold follows, as a share of the batch.
        lambda_2: the range of losses above the threshold in which the weight falls from 1 to 0 at the end; 0 keeps the sharp threshold.
        decay: the momentum of the moving average.
        burn_in: the share of the training in which all weights are 1.
        linear_from: the share of the training after which weights fall linearly.

    Example:
        >>> MentorNetPD(percentile=0.6)
        mentornet_pd(percentile=0.6, lambda_2=1.0, decay=0.9, burn_in=0.18, linear_from=0.9)

    Reference:
        Jiang et al., MentorNet: learning data-driven curriculum for very deep neural networks on corrupted labels, ICML 2018.
    """

    examples = ("mentornet_pd(percentile=0.6, lambda_2=0.5, burn_in=0.3, linear_from=0.6)", "mentornet_pd(percentile=0.6, burn_in=0)")
    needs_whole_batch = True

    percentile: float = setting(default=0.7, bounds="[0, 1]")
    lambda_2: float = setting(default=1.0, bounds="[0, inf)")
    decay: float = setting(default=0.9, bounds="[0, 1)")
    burn_in: float = setting(default=0.18, bounds="[0, 1]")
    linear_from: float = setting(default=0.9, bounds="[0, 1]")

    def check(self, loss: Loss, data: Dataset) -> None:
        refuse_batch_loss(self, loss)

    def start(self, data: Dataset, seed: int) -> State:
        device = data.labels.device
        return {"average": torch.zeros((), device=device), "seen": torch.zeros((), device=device)}

    def pulls(self, loss: LossPull, state: State, batch: Batch, scores: tuple[Tensor, ...]) -> tuple[Pull, ...]:
        pull = loss.rows(scores[0], batch.labels)
        assert pull.value is not None
        # The average starts at 0; `seen` is the sum of the weights in it.
        state["average"].mul_(self.decay).add_((1 - self.decay) * percentile(batch.gather(pull.value), self.percentile))
        state["seen"].mul_(self.decay).add_(1 - self.decay)
        excess = pull.value - state["average"] / state["seen"]
        v = (excess <= 0).float()
        if self.lambda_2 > 0:
            v = torch.where(batch.progress < self.linear_from, v, (1 - excess / self.lambda_2).clamp(0, 1))
        return (weighted(pull, average(batch, torch.where(batch.progress < self.burn_in, 1.0, v))),)
