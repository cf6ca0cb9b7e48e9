import torch
from torch import Tensor

from noisewise.errors import InputError
from noisewise.losses._base import Loss, inner_loss
from noisewise.spec import setting


class Peer(Loss, name="peer"):
    """Peer loss: the loss of an example minus the loss of a random pair of an input and a label.

    Input and label of a pair are drawn from the batch independently, with torch's random state (like dropout).

    Formula:
        L = l(s, y) − alpha l(s_n, y_m),  n and m drawn independently
        w: by differentiation

    Args:
        loss: the loss l.
        alpha: the weight of the random pairs.

    Example:
        >>> Peer("ce", alpha=1.0)(torch.tensor([[2.0, 0.0, 0.0]]), torch.tensor([0]))  # its only peer is itself
        tensor(0.)

    Reference:
        Liu & Guo, Peer loss functions: learning from noisy labels without knowing noise rates, ICML 2020.
    """

    examples = ("peer(ce, alpha=1.0)", "peer(mae, alpha=0.5)")

    loss: Loss = setting(check=inner_loss)
    alpha: float = setting(default=1.0, bounds="[0, inf)")

    @property
    def depends_on_batch(self) -> bool:
        return True

    def per_example(self, scores: Tensor, target: Tensor, kept: Tensor | None) -> Tensor:
        own = self.loss.per_example(scores, target, kept)
        rows, labels = scores.movedim(1, -1).reshape(-1, scores.shape[1]), target.reshape(-1)
        # Kept examples first, so that a draw below their number never takes an ignored one; no host synchronisation.
        order = None if kept is None else kept.reshape(-1).to(torch.uint8).argsort(descending=True)
        number = labels.numel() if kept is None else kept.sum().clamp(min=1)
        draws = (torch.rand(2, labels.numel(), device=scores.device) * number).long()
        inputs, others = draws if order is None else order[draws]
        peers = self.loss.per_example(rows[inputs], labels[others], None)
        return own - self.alpha * peers.view(own.shape)

    def per_class(self, scores: Tensor) -> Tensor:
        raise InputError(f"Peer loss draws labels, so it needs class indices. Got class probabilities for {self!r}.")
