"""Any loss in the SFTTrainer of TRL, from its log-probabilities of each token.

TRL computes the log-probability of every target without the (tokens, vocabulary) scores. A loss that is a function of the margin needs
nothing else: Δ = log p − log(1 − p). Other losses are computed by `linear_loss` from the last hidden states, also without the scores.
Importing this file does not import trl.
"""

from __future__ import annotations

import copy
from typing import Any

import torch
from torch import Tensor, nn

from noisewise import losses
from noisewise.errors import InputError
from noisewise.integrations.huggingface import base_of
from noisewise.kernels import linear_loss
from noisewise.losses import Loss, MarginLoss
from noisewise.margin import margin_of_log_prob

_SCALED = ("final_logit_softcapping", "logit_scale", "output_multiplier", "lm_head_multiplier", "logits_scaling")
"""Settings of models whose scores are not the plain product of hidden states and weights."""


def loss_from_log_probs(loss: str | Loss, log_probs: Tensor, classes: int) -> Tensor:
    """The loss of each target from its log-probability.

    Formula:
        Δ = log p − log(1 − p),    ∂L/∂(log p) = −w(Δ) / (1 − p)

    Args:
        loss: a loss that is a function of the margin, or its spec.
        log_probs: log p of each target, of any shape.
        classes: the size of the vocabulary; only shifted losses and their like depend on it.

    Returns:
        The losses, shaped like `log_probs`. They can be differentiated once.

    Example:
        >>> scores, targets = torch.randn(5, 9, dtype=torch.float64), torch.arange(5)
        >>> log_probs = scores.log_softmax(1)[torch.arange(5), targets]
        >>> values = loss_from_log_probs("imae(T=8)", log_probs, 9)
        >>> torch.allclose(values, losses.get("imae(T=8)", reduction="none")(scores, targets))
        True
    """
    loss = losses.get(loss)
    if not (isinstance(loss, MarginLoss) and loss.is_of_margin):
        raise InputError(f"loss_from_log_probs needs a loss that is a function of the margin. Got {loss!r}.")
    exact = log_probs.detach().to(torch.promote_types(log_probs.dtype, torch.float32))
    with torch.enable_grad():
        margins = margin_of_log_prob(exact).requires_grad_()
        values = loss.of_margin(margins, classes)
        (slope,) = torch.autograd.grad(values.sum(), margins)
    slope = slope / margins.detach().neg().sigmoid().clamp(min=torch.finfo(slope.dtype).tiny)
    # The second term is 0 and has the gradient. log p = −∞ (a masked class) has none.
    step = (log_probs - log_probs.detach()).nan_to_num(0.0)
    return values.detach() + slope * step


def use_loss(trainer: Any, loss: str | Loss) -> None:
    """Train an SFTTrainer with another loss. Everything else stays as TRL does it, such as the count of targets in accumulated batches.

    Args:
        trainer: a `trl.SFTTrainer`, or a trainer derived from it, before ``trainer.train()``.
        loss: a loss or its spec. It must not depend on the whole batch. A function of the margin, such as dft or gce, costs nothing;
            others, such as deft, run the last layer a second time, with `linear_loss`.

    The evaluation loss is the new loss, too.
    """
    try:
        from trl.trainer.sft_trainer import SFTTrainer
        from trl.trainer.utils import add_fused_lm_head  # noqa: F401  (new in TRL 1.16)
    except ImportError:
        raise InputError("use_loss needs trl 1.16 or newer, which is not installed; run: pip install -U 'noisewise[trl]'.") from None
    chosen, supported = losses.get(loss), isinstance(trainer, SFTTrainer)
    if not supported:
        raise InputError(f"use_loss needs a trl.SFTTrainer. Got {type(trainer).__name__}; for other Trainers use hf_loss.")
    if trainer.args.loss_type != "nll":
        raise InputError(f"use_loss replaces the loss of TRL, so leave out loss_type={trainer.args.loss_type!r} in SFTConfig.")
    if chosen.depends_on_batch:
        raise InputError(f"The Trainer may split a batch, so the loss must not depend on the whole batch. Got {chosen!r}.")
    model = base_of(trainer.model)
    replace = _OfMargins(chosen, model) if chosen.is_of_margin else _OfHidden(chosen, model)
    for hook in getattr(trainer, "noisewise_hooks", ()):
        hook.remove()
    trainer.noisewise_loss, trainer.noisewise_hooks = chosen, replace.hooks(trainer.model)


class _OfMargins:
    """Replaces the log-probabilities of a model by minus the loss, which TRL adds up and divides by the number of targets."""

    def __init__(self, loss: Loss, model: Any) -> None:
        self.loss, self.classes = loss, model.get_output_embeddings().weight.shape[0]

    def hooks(self, model: nn.Module) -> list[Any]:
        return [model.register_forward_hook(self, with_kwargs=True)]

    def __call__(self, module: nn.Module, inputs: Any, options: dict[str, Any], outputs: Any) -> None:
        if options.get("fused_lm_head"):
            outputs.log_probs = -self.values(outputs, options).masked_fill(~outputs.label_mask, 0.0)

    def values(self, outputs: Any, options: dict[str, Any]) -> Tensor:
        """The loss of each target."""
        return loss_from_log_probs(self.loss, outputs.log_probs, self.classes)


class _OfHidden(_OfMargins):
    """The same for a loss that is no function of the margin, from the last hidden states."""

    def __init__(self, loss: Loss, model: Any) -> None:
        super().__init__(loss, model)
        config = model.config.get_text_config()
        scaled = [name for name in _SCALED if getattr(config, name, None) not in (None, 1.0)]
        if scaled:
            raise InputError(
                f"{loss!r} needs scores that are not scaled, but the model sets {scaled[0]!r}; use a loss of the margin, such as gce."
            )
        self.loss, self.model = copy.copy(loss), model
        self.hidden: Tensor | None = None
        self.loss.reduction = "none"

    def hooks(self, model: nn.Module) -> list[Any]:
        return [self.model.base_model.register_forward_hook(self._keep), *super().hooks(model)]

    def _keep(self, module: nn.Module, inputs: Any, outputs: Any) -> None:
        self.hidden = outputs.last_hidden_state

    def values(self, outputs: Any, options: dict[str, Any]) -> Tensor:
        head, hidden = self.model.get_output_embeddings(), self.hidden
        labels, self.hidden = options.get("shift_labels"), None
        assert hidden is not None
        if labels is None:
            labels, hidden = options["labels"][:, 1:], hidden[:, :-1]
        return linear_loss(hidden.to(head.weight.dtype), head.weight, labels, loss=self.loss, bias=head.bias)
