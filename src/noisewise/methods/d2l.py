import torch
from torch import Tensor

from noisewise.data import Dataset
from noisewise.errors import InputError
from noisewise.losses import Loss
from noisewise.methods._base import Method, Scored, State, refuse_batch_loss
from noisewise.methods._batch import Batch
from noisewise.methods._pull import LossPull, Pull
from noisewise.methods.bootstrap import bootstrapped
from noisewise.spec import setting

_BATCHES, _SIZE = 10, 128  # the batches in which neighbours are searched, as in the authors' code


class D2L(Method, name="d2l"):
    """Dimensionality-driven learning: trust predictions from the epoch in which the features begin to gain dimensions.

    Formula:
        L = α · loss(y) + (1 − α) · loss(argmax p);    α = 1 before the turning point, then exp(−(i / T) · LID_i / min_j<i LID_j)
        the turning point: the first i with LID_i > mean + 2 · standard deviation of LID over the window of epochs before i
        LID = −(1/k Σ_j log(r_j / r_k))⁻¹ of an example whose k nearest neighbours in its batch are at distances r_1 ≤ … ≤ r_k

    LID_i is the mean local intrinsic dimensionality of the features after i of T epochs, without augmentation. It falls while the network
    learns patterns, and rises when it begins to memorise wrong labels. 10 batches of 128 random examples are drawn for it in every epoch,
    or fewer if there are fewer examples. With the loss ``ce``, L is the cross-entropy with the target of the paper.

    This differs from the authors' code as follows:

    - The network is not set back to the epoch before the turning point, as the paper asks. Their code loads the weights that it has just
      saved, which does not change the network either.
    - The smallest LID is that of earlier epochs, as in the paper. Their code includes the current epoch.
    - The loss of the run is used before and after the turning point. Before it, their later code uses the symmetric cross-entropy.
    - Examples without a LID are ignored, because their neighbours are all equally far away. In their code, a single one replaces the
      mean by that of the epoch before.

    Args:
        window: the number of epochs that LID is compared with.
        warm_up: the number of first epochs that the window leaves out. The turning point is at epoch warm_up + window + 1 or later.
        neighbours: the number k of nearest neighbours.

    Example:
        >>> D2L(warm_up=20)
        d2l(window=5, warm_up=20, neighbours=20)

    Reference:
        Ma et al., Dimensionality-driven learning with noisy labels, ICML 2018.
    """

    examples = ("d2l(window=1, warm_up=0, neighbours=60)",)
    relabels = True
    reads_features = True

    window: int = setting(default=5, bounds="[1, inf)", integer=True)
    warm_up: int = setting(default=10, bounds="[0, inf)", integer=True)
    neighbours: int = setting(default=20, bounds=f"[2, {_SIZE})", integer=True)

    def check(self, loss: Loss, data: Dataset) -> None:
        refuse_batch_loss(self, loss)
        if len(data) <= self.neighbours:
            raise InputError(f"The method {self!r} needs more examples than neighbours. Got {len(data)} examples.")

    def start(self, data: Dataset, seed: int) -> State:
        device = data.labels.device
        return {
            "examples": torch.tensor(len(data), device=device),
            "recent": torch.full((self.window,), torch.inf, device=device),
            "least": torch.full((), torch.inf, device=device),
            "turned": torch.zeros((), dtype=torch.bool, device=device),
            "alpha": torch.ones((), device=device),
        }

    def begin_epoch(self, state: State, epoch: int, epochs: int, scored: Scored) -> None:
        recent = state["recent"].clone()
        current = recent.new_tensor(self._dimension(int(state["examples"]), scored))
        if not current.isfinite():  # no example has a LID
            return
        if epoch > self.warm_up + self.window and current > recent.mean() + 2 * recent.std(correction=0):
            state["turned"].fill_(True)
        if state["turned"]:
            state["alpha"].copy_((-(epoch - 1) / epochs * current / state["least"]).exp())
        state["least"].clamp_(max=current)
        state["recent"].copy_(torch.cat([recent[1:], current.unsqueeze(0)]))

    def _dimension(self, examples: int, scored: Scored) -> float:
        """The mean LID of some random examples; not finite if none has one."""
        size = min(_SIZE, examples)
        drawn = torch.randperm(examples, generator=scored.generator)[: min(_BATCHES, examples // size) * size]
        # In float64 on the CPU, because neighbours can be very close, and not every device has float64.
        features = scored.features(drawn).flatten(1).cpu().double()
        each = local_dimensions(features.view(-1, size, features.shape[1]), self.neighbours)
        return float(each[each.isfinite()].mean())

    def pulls(self, loss: LossPull, state: State, batch: Batch, scores: tuple[Tensor, ...]) -> tuple[Pull, ...]:
        return (bootstrapped(loss, scores[0], batch.labels, state["alpha"]),)


def local_dimensions(points: Tensor, neighbours: int) -> Tensor:
    """The local intrinsic dimensionality of every point among those of its batch: (…, n, size) to (…, n).

    It is estimated by maximum likelihood, and not finite if all neighbours are equally far away.

    Example:
        >>> local_dimensions(torch.tensor([[0.0], [1.0], [3.0], [7.0]]), 2)
        tensor([1.8205, 2.8854, 4.9326, 4.9326])
    """
    distances = torch.cdist(points, points, compute_mode="donot_use_mm_for_euclid_dist")
    nearest = distances.topk(neighbours + 1, largest=False).values[..., 1:]  # without the point itself
    ratios = nearest / nearest[..., -1:]
    return -neighbours / ratios.clamp(min=1e-8).log().sum(-1)  # a duplicate is at distance 0
