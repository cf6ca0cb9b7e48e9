import math
from collections.abc import Sequence

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor, nn

from noisewise.data import Dataset
from noisewise.losses import Loss
from noisewise.methods._base import Method, Scored, State, refuse_batch_loss
from noisewise.methods._batch import Batch
from noisewise.methods._pull import LossPull, Pull
from noisewise.spec import setting

Floats = NDArray[np.float64]

_LEAST = 1e-6  # of densities and parameters of the mixture, as in the authors' code


class IDO(Method, name="ido"):
    """Instance-level dynamic optimisation: count how often every example is predicted wrongly, and train it accordingly.

    Formula:
        L = c · (loss(s₁) + loss(s₂)) + h · mean((s₁ − s₂)²) + (1 − c) · max(q) · H(q),    q = (p₁ + p₂) / 2,
        for the scores s₁, s₂ and probabilities p₁, p₂ of two augmented views of an example, and the entropy H;
        c = the probability that the label is right, from a mixture of two beta distributions of the wrong predictions in its class,
        h = c · F₁ + c · (1 − F₂)    for the distribution functions F₁ and F₂ of right and wrong labels

    Training starts with a warm-up on the loss of the first view. From then on L is used, and both views count wrong predictions. The
    mixtures are fitted after the warm-up, and again after every epoch.

    Chosen over DSS (Pan et al., CVPR 2026), because only IDO's formulas could be checked, in the authors' code. Their code multiplies
    the entropy of an example with the mean of max(q) over the batch, by broadcasting (n, 1) to (n, n), which is not carried over.
    Their second stage starts again from an earlier network, with strong augmentation in one of the views; here training continues,
    and both views have the augmentation of the run. Their results use networks pretrained on ImageNet. With two views, a step costs
    twice as much as plain training.

    Args:
        warm_up: the number of epochs of the warm-up, in which wrong predictions are counted first.

    Example:
        >>> IDO(warm_up=5)
        ido(warm_up=5)

    Reference:
        Zhang et al., Handling label noise via instance-level difficulty modeling and dynamic optimization, NeurIPS 2025.
    """

    examples = ("ido(warm_up=1)",)
    views = 2
    per_example = ("wrong",)

    warm_up: int = setting(default=10, bounds="[1, inf)", integer=True)

    def check(self, loss: Loss, data: Dataset) -> None:
        refuse_batch_loss(self, loss)

    def start(self, data: Dataset, seed: int) -> State:
        device = data.labels.device
        return {
            "labels": data.labels.clone(),
            "wrong": torch.zeros(len(data), dtype=torch.int64, device=device),
            "mixtures": torch.tensor(_START, dtype=torch.float64, device=device).repeat(len(data.classes), 1, 1),
            "warming_up": torch.ones((), dtype=torch.bool, device=device),
            # For 0, 1 or 2 more wrong predictions than before the epoch:
            "clean": torch.ones(len(data), 3, device=device),
            "hard": torch.zeros(len(data), 3, device=device),
        }

    def begin_epoch(self, state: State, epoch: int, epochs: int, scored: Scored) -> None:
        state["warming_up"].fill_(epoch <= self.warm_up)
        if epoch <= self.warm_up:
            return
        labels, wrong = state["labels"].cpu().numpy(), state["wrong"].cpu().numpy()
        for label, mixture in enumerate(state["mixtures"]):
            rows = np.flatnonzero(labels == label)
            if len(rows) == 0:
                continue
            fitted = fit_mixture(_scaled(wrong[rows], wrong[rows]), mixture.cpu().numpy(), 20 if epoch == self.warm_up + 1 else 2)
            mixture.copy_(torch.from_numpy(fitted))
            possible = _scaled(wrong[rows, None] + np.arange(3), wrong[rows])
            clean, hard = cleanliness_and_difficulty(possible, fitted)
            for name, values in (("clean", clean), ("hard", hard)):
                state[name][torch.from_numpy(rows).to(state[name].device)] = torch.from_numpy(values).to(state[name])

    def scores(self, networks: Sequence[nn.Module], state: State, batch: Batch) -> tuple[Tensor, ...]:
        return networks[0](batch.view()), networks[0](batch.view())

    def pulls(self, loss: LossPull, state: State, batch: Batch, scores: tuple[Tensor, ...]) -> tuple[Pull, ...]:
        first, second = (each.argmax(1) != batch.labels for each in scores)
        new = first.long() + (second & ~state["warming_up"]).long()
        state["wrong"][batch.index] += new
        clean, hard = (state[name][batch.index, new].to(scores[0].dtype) for name in ("clean", "hard"))
        ordinary = [loss.rows(each, batch.labels) for each in scores]
        with torch.enable_grad():
            leaves = tuple(each.detach().requires_grad_() for each in scores)
            similar = (leaves[0] - leaves[1]).square().mean(1)
            log_q = torch.logaddexp(*(F.log_softmax(each, 1) for each in leaves)) - math.log(2)
            q = log_q.exp()
            entropy = -(q * log_q).sum(1)
            extra = hard * similar + (1 - clean) * q.amax(1) * entropy
            slopes = torch.autograd.grad(extra.sum(), leaves)
        assert ordinary[0].value is not None and ordinary[1].value is not None
        value = clean * (ordinary[0].value + ordinary[1].value) + extra.detach()
        value = torch.where(state["warming_up"], ordinary[0].value, value)
        pulls = []
        for view, (pull, slope) in enumerate(zip(ordinary, slopes, strict=True)):
            alone = pull.gradient if view == 0 else torch.zeros_like(slope)
            pulls.append(Pull(torch.where(state["warming_up"], alone, clean.unsqueeze(1) * pull.gradient + slope), value))
        return tuple(pulls)


_START = ((1.0, 2.0, 0.5), (2.0, 1.0, 0.5))  # alpha, beta and share of right and of wrong labels


def _scaled(counts: NDArray[np.int64], of: NDArray[np.int64]) -> Floats:
    """Counts between the smallest and the largest of a class, as numbers strictly between 0 and 1."""
    low, high = of.min(), of.max()
    share = np.clip((counts - low) / (high - low), 0, 1) if high > low else np.full(counts.shape, 0.5)
    return np.asarray(_LEAST + (1 - 2 * _LEAST) * share, dtype=np.float64)


def fit_mixture(x: Floats, mixture: Floats, steps: int) -> Floats:
    """Fit a mixture of two beta distributions by expectation maximisation, with moments in place of the likelihood.

    Args:
        x: numbers strictly between 0 and 1.
        mixture: alpha, beta and share of both components, (2, 3), to start from.
        steps: the number of steps.

    Example:
        >>> x = np.concatenate([np.linspace(0.05, 0.15, 60), np.linspace(0.8, 0.9, 40)])
        >>> fit_mixture(x, np.array(_START), 20)[:, 2].round(2)
        array([0.6, 0.4])
    """
    mixture = mixture.copy()
    for _ in range(steps):
        density = np.maximum(_weighted_density(x, mixture), _LEAST)
        share = density / density.sum(0)
        for component, weight in enumerate(share):
            mean = np.average(x, weights=weight)
            variance = max(np.average((x - mean) ** 2, weights=weight), _LEAST)
            concentration = max(mean * (1 - mean) / variance - 1, _LEAST)
            mixture[component, :2] = np.maximum([mean * concentration, (1 - mean) * concentration], _LEAST)
        # Right labels must not have most of their mass at the largest count, nor wrong labels at the smallest.
        mixture[0, 1] = mixture[0, 1] if mixture[0, 1] >= 1.02 else 1.1
        mixture[1, 0] = mixture[1, 0] if mixture[1, 0] >= 1.02 else 1.1
        mixture[:, 2] = share.mean(1)
    return mixture


def cleanliness_and_difficulty(x: Floats, mixture: Floats) -> tuple[Floats, Floats]:
    """c and h of the formula."""
    from scipy.special import betainc  # type: ignore[import-untyped]

    density = _weighted_density(x, mixture)
    clean = density[0] / (density.sum(0) + _LEAST)
    right, wrong = (betainc(alpha, beta, x) for alpha, beta, _ in mixture)
    return clean, clean * right + clean * (1 - wrong)


def _weighted_density(x: Floats, mixture: Floats) -> Floats:
    from scipy.special import betaln

    parts = [share * np.exp((a - 1) * np.log(x) + (b - 1) * np.log1p(-x) - betaln(a, b)) for a, b, share in mixture]
    return np.stack(parts)
