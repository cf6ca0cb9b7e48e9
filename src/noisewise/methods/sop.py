import torch
import torch.nn.functional as F
from torch import Tensor

from noisewise.data import Dataset
from noisewise.losses import Loss
from noisewise.methods._base import Method, State, refuse_batch_loss
from noisewise.methods._batch import Batch
from noisewise.methods._pull import LossPull, Pull
from noisewise.spec import setting

_LEAST = 1e-4  # the smallest probability, as in the authors' code


class SOP(Method, name="sop"):
    """Sparse over-parameterisation: variables of every example learn to explain a wrong label, so that the network need not learn it.

    Formula:
        s = u² · y − v² · (1 − y)    for the label y (one-hot), a number u and a vector v of every example, with squares of at most 1
        L = loss(q, y),    q = max(p + s, 10⁻⁴), divided by its sum
        u ← u − lr_u · ∂(L + M) / ∂u,    v ← v − lr_v · ∂M / ∂v,    M = ‖onehot(argmax p) + s − y‖²

    As in the authors' code, M also moves u, both gradients are those of the mean over a batch, and the learning rates are constant.
    The recorded loss is L + M. Consistency and balance terms (SOP+) are left out.

    Args:
        lr_u: the learning rate of u.
        lr_v: the learning rate of v.

    Example:
        >>> SOP(lr_v=100)
        sop(lr_u=10.0, lr_v=100.0)

    Reference:
        Liu et al., Robust training under label noise by over-parameterization, ICML 2022.
    """

    examples = ("sop(lr_u=10, lr_v=10)",)
    per_example = ("u", "v")

    lr_u: float = setting(default=10.0, bounds="[0, inf)")
    lr_v: float = setting(default=10.0, bounds="[0, inf)")

    def check(self, loss: Loss, data: Dataset) -> None:
        refuse_batch_loss(self, loss)

    def start(self, data: Dataset, seed: int) -> State:
        generator = torch.Generator().manual_seed(seed)
        shapes = {"u": (len(data), 1), "v": (len(data), len(data.classes))}
        # Gradients are zero at zero, so the variables start near it.
        return {name: (1e-8 * torch.randn(shape, generator=generator)).to(data.labels.device) for name, shape in shapes.items()}

    def pulls(self, loss: LossPull, state: State, batch: Batch, scores: tuple[Tensor, ...]) -> tuple[Pull, ...]:
        classes = scores[0].shape[1]
        y, predicted = (F.one_hot(labels, classes).to(scores[0].dtype) for labels in (batch.labels, scores[0].argmax(1)))
        with torch.enable_grad():
            leaf, u, v = (each.detach().requires_grad_() for each in (scores[0], state["u"][batch.index], state["v"][batch.index]))
            added, removed = (u.square() * y).clamp(max=1), (v.square() * (1 - y)).clamp(max=1)
            q = (leaf.softmax(1) + added - removed.detach()).clamp(min=_LEAST)
            log_q = (q / q.sum(1, keepdim=True)).log()
            squared = (predicted + added - removed - y).square().sum(1)
            # The softmax of log q is q, so that log q are scores for every loss.
            ordinary = loss.rows(log_q.detach(), batch.labels)
            outputs, slopes = (log_q, squared), (ordinary.gradient, torch.ones_like(squared))
            gradient, slope_u, slope_v = torch.autograd.grad(outputs, (leaf, u, v), slopes)
        state["u"][batch.index] = u.detach() - self.lr_u / batch.whole * slope_u
        state["v"][batch.index] = v.detach() - self.lr_v / batch.whole * slope_v
        assert ordinary.value is not None
        return (Pull(gradient, ordinary.value + squared.detach()),)
