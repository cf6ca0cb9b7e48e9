from collections.abc import Sequence

import torch
from torch import Tensor, nn

from noisewise.data import Dataset
from noisewise.losses import Loss
from noisewise.methods._base import Method, State, refuse_batch_loss
from noisewise.methods._batch import Batch
from noisewise.methods._early import early_learning
from noisewise.methods._mix import draw_dominant_mixture
from noisewise.methods._pull import LossPull, Pull
from noisewise.spec import setting


class ELRPlus(Method, name="elr_plus"):
    """Early-learning regularisation with two networks, mixed examples, and targets from the weight average of the other network.

    Formula:
        t ← beta · t + (1 − beta) · p̄    for every example, with p̄ the prediction of the weight average of the other network
        x = λ xᵢ + (1 − λ) xⱼ,    λ = max(b, 1 − b),    b ~ Beta(alpha, alpha)
        L = λ · loss(yᵢ) + (1 − λ) · loss(yⱼ) + lam · log(1 − ⟨p, λ tᵢ + (1 − λ) tⱼ⟩),    p clipped to [10⁻⁴, 1 − 10⁻⁴]
        θ̄ ← m · θ̄ + (1 − m) · θ after every step,    m = gamma · exp(−5 (1 − progress / ramp)²) until progress = ramp, then gamma

    The averages start as copies of the networks after the first step. The run is tested with the mean score of the two trained networks.

    This differs from the authors' code as follows:

    - Both networks are trained in every step, on the same batch, not in turn for an epoch each.
    - The ramps are shares of the training. The authors use 40000 steps, about half of their training on CIFAR.
    - The labels are not multiplied by the targets, which the authors do for 100 classes.

    Args:
        beta: the momentum of the targets: 0.7 for CIFAR-10 and 0.9 for CIFAR-100 in the authors' code.
        lam: the strength of the regularisation: 3 for CIFAR-10 and 7 for CIFAR-100. With asymmetric noise on CIFAR-10 the authors use
            beta=0.9 and lam=1.
        lam_ramp: the share of the training in which this strength rises: 0 for CIFAR-10 and 0.4 for CIFAR-100.
        gamma: the momentum of the weight averages.
        ramp: the share of the training in which this momentum rises.
        alpha: how evenly examples are mixed.

    Example:
        >>> ELRPlus(beta=0.9, lam=7)
        elr_plus(beta=0.9, lam=7.0, lam_ramp=0.0, gamma=0.997, ramp=0.5, alpha=1.0)

    Reference:
        Liu et al., Early-learning regularization prevents memorization of noisy labels, NeurIPS 2020.
    """

    examples = ("elr_plus(beta=0.7, lam=3)", "elr_plus(beta=0.9, lam=1, lam_ramp=0.5)")
    networks = 4
    trained = 2
    per_example = ("targets_1", "targets_2")
    needs_whole_batch = True
    mixes = True
    relabels = True

    beta: float = setting(default=0.7, bounds="[0, 1)")
    lam: float = setting(default=3.0, bounds="[0, inf)")
    lam_ramp: float = setting(default=0.0, bounds="[0, 1]")
    gamma: float = setting(default=0.997, bounds="[0, 1)")
    ramp: float = setting(default=0.5, bounds="[0, 1]")
    alpha: float = setting(default=1.0, bounds="(0, inf)")

    def check(self, loss: Loss, data: Dataset) -> None:
        refuse_batch_loss(self, loss)

    def start(self, data: Dataset, seed: int) -> State:
        device = data.labels.device
        targets = {name: torch.zeros(len(data), len(data.classes), device=device) for name in self.per_example}
        return {**targets, "momentum": torch.zeros((), device=device), "started": torch.zeros((), dtype=torch.bool, device=device)}

    def scores(self, networks: Sequence[nn.Module], state: State, batch: Batch) -> tuple[Tensor, ...]:
        inputs = batch.view()
        with torch.no_grad():
            averages = [network(inputs) for network in networks[2:]]
        batch.notes["teachers"] = averages[::-1]  # of the other network
        batch.notes["mixtures"] = [draw_dominant_mixture(batch, self.alpha) for _ in range(2)]
        mixed = [mixture(batch, inputs)[0] for mixture in batch.notes["mixtures"]]
        return tuple(network(each) for network, each in zip(networks[:2], mixed, strict=True))

    def pulls(self, loss: LossPull, state: State, batch: Batch, scores: tuple[Tensor, ...]) -> tuple[Pull, ...]:
        state["momentum"].copy_(self.gamma * rise(batch.progress, self.ramp) * state["started"])
        state["started"].fill_(True)
        strength = self.lam * rise(batch.progress, self.lam_ramp)
        pulls = []
        for mine, teacher, mixture, name in zip(scores, batch.notes["teachers"], batch.notes["mixtures"], self.per_example, strict=True):
            targets = self.beta * state[name][batch.index] + (1 - self.beta) * teacher.softmax(1)
            state[name][batch.index] = targets
            penalty = early_learning(mine, *mixture(batch, targets))
            ordinary = mixture.pull(loss, batch, mine)
            assert ordinary.value is not None and penalty.value is not None
            pulls.append(Pull(ordinary.gradient + strength * penalty.gradient, ordinary.value + strength * penalty.value))
        return tuple(pulls)

    def after_step(self, networks: Sequence[nn.Module], state: State) -> None:
        # Buffers are not averaged: batch normalisation in the averages has statistics of its own.
        weights: list[Tensor] = [each for network in networks[:2] for each in network.parameters()]
        averages: list[Tensor] = [each for network in networks[2:] for each in network.parameters()]
        with torch.no_grad():
            steps = list(torch._foreach_sub(weights, averages))
            torch._foreach_mul_(steps, 1 - state["momentum"])
            torch._foreach_add_(averages, steps)

    def combine(self, scores: Sequence[Tensor]) -> Tensor:
        return super().combine(scores[:2])


def rise(progress: Tensor, until: float) -> Tensor:
    """A factor that rises from e⁻⁵ to 1 while the progress reaches ``until``.

    Example:
        >>> rise(torch.tensor([0.0, 0.25, 0.5, 1.0]), until=0.5)
        tensor([0.0067, 0.2865, 1.0000, 1.0000])
    """
    if until == 0:
        return torch.ones_like(progress)
    return (-5 * (1 - progress / until).clamp(min=0).square()).exp()
