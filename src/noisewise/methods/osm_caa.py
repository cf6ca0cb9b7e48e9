from collections.abc import Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from noisewise.data import Dataset
from noisewise.losses import Loss
from noisewise.methods._base import Method, State, refuse_batch_loss
from noisewise.methods._batch import Batch
from noisewise.methods._pull import LossPull, Pull
from noisewise.spec import setting

_LEAST = 1e-6  # the smallest squared distance: the slope of a distance is not defined at 0
_TINY = 1e-12  # the smallest sum of weights to divide by


class OSMCAA(Method, name="osm_caa"):
    """Online soft mining and class-aware attention: besides the loss, a contrastive loss of all pairs of a batch.

    Pairs of the same label move together and pairs of different labels apart. Similar pairs have a larger weight (soft mining). Pairs with
    an example that does not look like its label have a smaller weight (attention), so that abnormal examples matter less.

    Formula:
        L = loss + (1 − lam) · Σ₊ w d² / 2 Σ₊ w + lam · Σ₋ w max(alpha − d, 0)² / 2 Σ₋ w
        d = ‖f_i − f_j‖ for embeddings f of length 1; Σ₊ over pairs of the same given label, Σ₋ over the other pairs
        w = exp(−d² / sigma²) · a for the same label, max(alpha − d, 0) · a otherwise
        a = min(a_i, a_j), where a_i is the probability of the given label

    As in the authors' code, weights are constants for the gradient, and loss and contrastive loss have the same weight. That code also
    divides the gradient of the contrastive loss by the number of pairs, and weights the examples of the classification loss; both are
    left out here, because they are not in the formula.

    Args:
        sigma: the scale of distances within a class.
        alpha: the margin: pairs of different labels that are further apart are ignored.
        lam: the weight of pairs of different labels.

    Example:
        >>> OSMCAA(alpha=1.0)
        osm_caa(sigma=0.8, alpha=1.0, lam=0.5)

    Reference:
        Wang et al., Deep metric learning by online soft mining and class-aware attention, AAAI 2019.
    """

    examples = ("osm_caa(sigma=0.8, alpha=1.2, lam=0.5)",)
    needs_whole_batch = True
    embeds = True

    sigma: float = setting(default=0.8, bounds="(0, inf)")
    alpha: float = setting(default=1.2, bounds="(0, 2]")
    lam: float = setting(default=0.5, bounds="[0, 1]")

    def check(self, loss: Loss, data: Dataset) -> None:
        refuse_batch_loss(self, loss)

    def scores(self, networks: Sequence[nn.Module], state: State, batch: Batch) -> tuple[Tensor, ...]:
        network: Any = networks[0]
        features = network.features(batch.view())
        return network.head(features), features

    def pulls(self, loss: LossPull, state: State, batch: Batch, scores: tuple[Tensor, ...]) -> tuple[Pull, ...]:
        scored, features = scores
        pull = loss.rows(scored, batch.labels)
        attention = scored.softmax(1).gather(1, batch.labels[:, None]).squeeze(1)
        labels, attention = batch.gather(batch.labels), batch.gather(attention)
        with torch.enable_grad():
            leaf = batch.gather(features).detach().requires_grad_()
            value = self.contrastive(leaf, labels, attention)
            (gradient,) = torch.autograd.grad(value, leaf)
        assert pull.value is not None
        both = Pull(pull.gradient, pull.value + value.detach())
        # The engine divides by the batch size, but the contrastive loss is a mean already.
        return both, Pull(batch.own(gradient) * batch.whole, None)

    def contrastive(self, features: Tensor, labels: Tensor, attention: Tensor) -> Tensor:
        """The weighted contrastive loss of a batch.

        Args:
            features: embeddings of any length, (n, size).
            labels: given labels, (n,).
            attention: the predicted probability of every given label, (n,).

        Example:
            >>> square = torch.tensor([[1.0, 0.0], [0.0, 1.0]])
            >>> OSMCAA(lam=0.25).contrastive(square, torch.tensor([0, 0]), torch.ones(2))  # 0.75 · 2 / 2
            tensor(0.7500)
        """
        unit = F.normalize(features, dim=1)
        squared = (2 - 2 * unit @ unit.T).clamp(min=_LEAST)
        distance = squared.sqrt()
        same = labels[:, None] == labels
        pairs = same.triu(1), (~same).triu(1)  # every pair once
        short = (self.alpha - distance).clamp(min=0)
        smaller = torch.minimum(attention[:, None], attention)
        mined = (-squared / self.sigma**2).exp(), short
        terms = squared / 2, short.square() / 2
        weights = [(mine * smaller * which).detach() for mine, which in zip(mined, pairs, strict=True)]
        near, far = ((weight * term).sum() / weight.sum().clamp(min=_TINY) for weight, term in zip(weights, terms, strict=True))
        return (1 - self.lam) * near + self.lam * far
