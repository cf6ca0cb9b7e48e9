import warnings
from collections.abc import Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.autograd import forward_ad
from torch.func import functional_call

from noisewise.data import Dataset
from noisewise.errors import InputError, invalid_parameter
from noisewise.losses import Loss
from noisewise.methods._base import Method, State, refuse_batch_loss
from noisewise.methods._batch import Batch
from noisewise.methods._pull import LossPull, Pull
from noisewise.methods._select import weighted
from noisewise.methods._trusted import check_trusted, trusted_rows
from noisewise.spec import setting


class Bilevel(Method, name="bilevel"):
    """Learning to reweight examples: an example counts as much as a step on it would lower the loss of trusted examples.

    Formula:
        L = Σ w_i · loss_i,    w_i = max(u_i, 0) / Σ_j max(u_j, 0),    u_i = ⟨∇loss_i, ∇T⟩    over all weights of the network,
        where T is the mean cross-entropy of trusted examples with their true labels

    u_i is the derivative of −T by the weight of example i after one step of gradient descent, up to the learning rate. One pass
    forward with derivatives along ∇T computes all u_i exactly, so no second derivatives are needed. If no u_i is positive, the batch
    has no gradient.

    The trusted examples are rows of the training set, which also trains on them with their given labels. Passes for the weights
    leave the running statistics of batch normalisation unchanged, and draw dropout again. A step costs more than twice as much as
    plain training: it adds a pass forward and backward of the trusted examples, and one pass forward with derivatives.

    The row "Bilevel" in the tables of the GR and IMAE papers is another method (Jenni and Favaro, Deep bilevel learning, ECCV 2018),
    which weights whole batches and has no trusted examples.

    Args:
        trusted: the number of trusted examples. They are drawn with the seed from the examples with known true labels.
        per_step: the number of trusted examples in every step, drawn again from all of them each time.

    Example:
        >>> Bilevel(trusted=500)
        bilevel(trusted=500, per_step=100)

    Reference:
        Ren et al., Learning to reweight examples for robust deep learning, ICML 2018.
    """

    examples = ("bilevel(trusted=60, per_step=40)",)
    needs_whole_batch = True

    trusted: int = setting(default=1000, bounds="[1, inf)", integer=True)
    per_step: int = setting(default=100, bounds="[1, inf)", integer=True)

    def check(self, loss: Loss, data: Dataset) -> None:
        refuse_batch_loss(self, loss)
        if self.per_step > self.trusted:
            raise invalid_parameter("per_step", "bilevel", f"at most 'trusted', {self.trusted}", self.per_step)
        check_trusted(self, data, self.trusted)
        if data.inputs.is_meta:
            raise InputError(f"The method {self!r} needs its trusted images in memory. Read the images with a larger 'memory'.")

    def start(self, data: Dataset, seed: int) -> State:
        assert data.true_labels is not None
        rows = trusted_rows(data, self.trusted, seed)
        return {
            "inputs": data.inputs[rows],
            "labels": data.true_labels[rows],
            "slopes": torch.zeros(len(data), len(data.classes), device=data.labels.device),
        }

    def scores(self, networks: Sequence[nn.Module], state: State, batch: Batch) -> tuple[Tensor, ...]:
        view = batch.view()
        rows = torch.rand(self.trusted, generator=batch.generator, device=batch.index.device).argsort()[: self.per_step]
        direction = _trusted_gradient(networks[0], batch.prepare(state["inputs"][rows]), state["labels"][rows])
        # The loss is known only in `pulls`, which multiplies these derivatives of the scores with its gradient.
        slopes = _derivatives(networks[0], view, direction)
        state["slopes"][batch.index] = slopes.to(state["slopes"].dtype)
        return (networks[0](view),)

    def pulls(self, loss: LossPull, state: State, batch: Batch, scores: tuple[Tensor, ...]) -> tuple[Pull, ...]:
        pull = loss.rows(scores[0], batch.labels)
        positive = (pull.gradient * state["slopes"][batch.index]).sum(1).clamp(min=0)
        total = batch.total(positive.sum())
        return (weighted(pull, positive * (batch.whole / torch.where(total > 0, total, 1.0))),)


def _trusted_gradient(network: nn.Module, inputs: Tensor, labels: Tensor) -> dict[str, Tensor]:
    """The gradient of the mean cross-entropy, by the names of the weights."""
    weights = {name: value for name, value in _plain(network).named_parameters() if value.requires_grad}
    with torch.enable_grad():
        scores = functional_call(_plain(network), _copied_buffers(network), (inputs,))
        gradients = torch.autograd.grad(F.cross_entropy(scores, labels), list(weights.values()), materialize_grads=True)
    return dict(zip(weights, gradients, strict=True))


@torch.no_grad()
def _derivatives(network: nn.Module, inputs: Tensor, direction: dict[str, Tensor]) -> Tensor:
    """The derivatives of the scores if the weights move along a direction."""
    weights = dict(_plain(network).named_parameters())
    with warnings.catch_warnings(), forward_ad.dual_level():
        warnings.filterwarnings("ignore", ".*torch.jit.script.* is deprecated", DeprecationWarning)  # torch's own rules use it
        duals = {name: forward_ad.make_dual(weights[name].detach(), value) for name, value in direction.items()}  # type: ignore[no-untyped-call]
        scores = functional_call(_plain(network), {**_copied_buffers(network), **duals}, (inputs,))
        tangent = forward_ad.unpack_dual(scores).tangent  # type: ignore[no-untyped-call]
        return torch.zeros_like(scores) if tangent is None else tangent.clone()


def _plain(network: Any) -> nn.Module:
    """The network that was compiled: compiled code has no forward-mode derivatives."""
    return getattr(network, "_orig_mod", network)  # type: ignore[no-any-return]


def _copied_buffers(network: nn.Module) -> dict[str, Tensor]:
    return {name: value.clone() for name, value in _plain(network).named_buffers()}
