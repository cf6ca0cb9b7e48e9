import math
from typing import Any

import torch
from torch import Tensor

from noisewise.data import Dataset
from noisewise.errors import InputError
from noisewise.losses import Loss
from noisewise.methods._base import Method, Scored, State, refuse_batch_loss
from noisewise.methods._batch import Batch
from noisewise.methods._pull import LossPull, Pull
from noisewise.methods._transition import (
    estimate,
    estimate_or_noise,
    forward_corrected,
    known_matrix,
    refuse_absent_classes,
    refuse_impossible_labels,
    refuse_other_than_margin,
    refuse_settings,
    reweighted,
)
from noisewise.noise import Noise
from noisewise.spec import setting

_LEAST = 1e-7  # the smallest probability in backward correction, as in the authors' code
_LARGEST_CONDITION = 1e6  # of a matrix to invert: a float32 loss would have no correct digit left


class _Corrected(Method):
    """Has a transition matrix: a given one from the start, or an estimate after a warm-up.

    Until the estimate the matrix is the identity, with which a correction changes nothing.
    """

    matrix: str | Noise = setting(default="anchor", check=estimate_or_noise)
    warm_up: int = setting(default=10, bounds="[1, inf)", integer=True)
    quantile: float = setting(default=1.0, bounds="(0, 1]")

    def check(self, loss: Loss, data: Dataset) -> None:
        refuse_batch_loss(self, loss)
        if isinstance(self.matrix, Noise):
            refuse_impossible_labels(self, self.first_matrix(len(data.classes)), data)
        elif self.matrix == "confident_joint":
            refuse_absent_classes(self, data)

    def first_matrix(self, classes: int) -> Tensor:
        """The matrix before the first epoch, float64."""
        return known_matrix(self, self.matrix, classes) if isinstance(self.matrix, Noise) else torch.eye(classes, dtype=torch.float64)

    def start(self, data: Dataset, seed: int) -> State:
        return {"matrix": self.first_matrix(len(data.classes)).float().to(data.labels.device), "labels": data.labels.clone()}

    def begin_epoch(self, state: State, epoch: int, epochs: int, scored: Scored) -> None:
        if epoch == self.warm_up + 1 and isinstance(self.matrix, str):
            matrix = estimate(self.matrix, state["labels"], scored.scores(None), self.quantile)
            state["matrix"].copy_(matrix.to(state["matrix"].dtype))

    def _literal(self, key: str) -> Any:
        return repr(self.matrix) if key == "matrix" and isinstance(self.matrix, Noise) else super()._literal(key)


class ForwardCorrection(_Corrected, name="forward_correction"):
    """Forward correction: the loss is computed at the probability of the given label after the noise.

    Formula:
        L = loss(p′),    p′_y = Σ_i p_i T_iy,    T_ij = P(given j | true i), known or estimated from the scores of the training set

    An estimate is made once, after a warm-up with the plain loss. In the paper the network then starts again; here it continues.
    No entry of an estimate is below 10⁻⁶. A network that is still unsure of the classes makes the noise seem larger than it is, most of
    all with "dual_t". A known matrix is used from the start, as in the loss `forward`. Even with the true matrix, a
    network that trains long enough memorises the wrong labels in the end.

    Args:
        matrix: the estimate: "anchor" (anchor points), "dual_t" (for overconfident networks) or "confident_joint"; or a known matrix, as
            a noise such as 'symmetric(0.4)' or as numbers.
        warm_up: the number of epochs before the estimate: enough to learn the classes, too few to memorise wrong labels. Not used with
            a known matrix.
        quantile: which example of a class is its anchor point, by the probability of the class: 1 for the most confident; 0.97 ignores
            outliers with ten classes, as in the paper. Not used by "confident_joint".

    Example:
        >>> ForwardCorrection(matrix="dual_t")
        forward_correction(matrix='dual_t', warm_up=10, quantile=1.0)

    Reference:
        Patrini et al., Making deep neural networks robust to label noise: a loss correction approach, CVPR 2017.
        Yao et al., Dual T: reducing estimation error for transition matrix in label-noise learning, NeurIPS 2020.
        Northcutt et al., Confident learning: estimating uncertainty in dataset labels, JAIR 2021.
        Feng et al., Deconstructing the failure of ideal noise correction: a three-pillar diagnosis, arXiv:2603.12997, 2026.
    """

    examples = ("forward_correction(matrix='anchor', warm_up=1, quantile=0.97)", "forward_correction(matrix='confident_joint', warm_up=1)")

    def check(self, loss: Loss, data: Dataset) -> None:
        refuse_other_than_margin(self, loss)
        super().check(loss, data)

    def pulls(self, loss: LossPull, state: State, batch: Batch, scores: tuple[Tensor, ...]) -> tuple[Pull, ...]:
        return (forward_corrected(loss, scores[0], batch.labels, state["matrix"]).pull,)


class BackwardCorrection(_Corrected, name="backward_correction"):
    """Backward correction: the loss is averaged over the classes with the inverse transition matrix, so that the noise cancels on average.

    Formula:
        L = Σ_j (T⁻¹)_yj loss(j),    T_ij = P(given j | true i), known or estimated from the scores of the training set

    An estimate is made once, after a warm-up with the plain loss, and the network continues. An estimate without an inverse is replaced
    by its pseudo-inverse. A known matrix is used from the start, as in the loss `backward`, and must have an inverse. The loss of an
    example can be negative. As in the authors' code, no probability is below 10⁻⁷, and those that would be have no gradient: otherwise
    the loss has no lower bound, and scores grow without end. Even so, an estimate with too much noise can spoil training, because its
    inverse has large entries; `forward_correction` usually trains better.

    Args:
        matrix: the estimate: "anchor" (anchor points), "dual_t" (for overconfident networks) or "confident_joint"; or a known matrix, as
            a noise such as 'symmetric(0.4)' or as numbers.
        warm_up: the number of epochs before the estimate. Not used with a known matrix.
        quantile: which example of a class is its anchor point, by the probability of the class: 1 for the most confident. Not used by
            "confident_joint".

    Example:
        >>> BackwardCorrection(warm_up=5)
        backward_correction(matrix='anchor', warm_up=5, quantile=1.0)

    Reference:
        Patrini et al., Making deep neural networks robust to label noise: a loss correction approach, CVPR 2017.
    """

    examples = ("backward_correction(matrix='dual_t', warm_up=1)", "backward_correction(matrix='symmetric(0.4)')")

    def check(self, loss: Loss, data: Dataset) -> None:
        super().check(loss, data)
        refuse_settings(self, loss)
        if not float(torch.linalg.cond(self.first_matrix(len(data.classes)))) < _LARGEST_CONDITION:
            raise InputError(f"The method {self!r} needs a transition matrix that has an inverse. Use forward_correction instead.")

    def start(self, data: Dataset, seed: int) -> State:
        inverse = torch.linalg.inv(self.first_matrix(len(data.classes)))
        return {**super().start(data, seed), "inverse": inverse.float().to(data.labels.device)}

    def begin_epoch(self, state: State, epoch: int, epochs: int, scored: Scored) -> None:
        super().begin_epoch(state, epoch, epochs, scored)
        if epoch == self.warm_up + 1 and isinstance(self.matrix, str):
            inverse = torch.linalg.pinv(state["matrix"].cpu().double())
            state["inverse"].copy_(inverse.to(state["inverse"].dtype))

    def objective(self, loss: LossPull, state: State, batch: Batch, scores: tuple[Tensor, ...]) -> Tensor:
        log_p = scores[0].log_softmax(1).clamp(min=math.log(_LEAST))
        return (state["inverse"][batch.labels].to(log_p.dtype) * loss.loss.per_class(log_p)).sum(1)


class TRevision(_Corrected, name="t_revision"):
    """T-revision: losses are weighted with an estimated transition matrix, which is then revised by gradient descent.

    Formula:
        L = β · loss(y),    β = p_y / Σ_i p_i (T + ΔT)_iy,    T_ij = P(given j | true i)
        ΔT ← ΔT − rate · lr · ∂L / ∂ΔT

    Three stages, as in the paper: the plain loss, after which T is estimated; weights with a fixed T; weights with T + ΔT. β is always a
    constant for the network. In the authors' code, the last stage also trains the network through β, which has a small gradient where p_y
    is small, so that labels are unlearned. There it hardly matters, because this stage has a learning rate of 5·10⁻⁷; here training goes
    on as before. Two more details differ: the networks continue from the last epoch of a stage, not the best one, and ΔT is learned by
    plain gradient descent, not Adam. As in the paper, T + ΔT is not normalised. If the loss is positive,
    ΔT can only grow, so keep the rate small. A known matrix is used from the start.

    Args:
        matrix: the estimate: "anchor" (anchor points), "dual_t" (for overconfident networks) or "confident_joint"; or a known matrix, as
            a noise such as 'symmetric(0.4)' or as numbers.
        warm_up: the number of epochs before the estimate.
        quantile: which example of a class is its anchor point, by the probability of the class: 1 for the most confident. Not used by
            "confident_joint".
        fixed: the number of epochs after the warm-up with a fixed matrix.
        rate: the learning rate of ΔT, as a multiple of that of the network.

    Example:
        >>> TRevision(warm_up=5)
        t_revision(matrix='anchor', warm_up=5, quantile=1.0, fixed=10, rate=0.001)

    Reference:
        Xia et al., Are anchor points really indispensable in label-noise learning?, NeurIPS 2019.
    """

    examples = ("t_revision(matrix='anchor', warm_up=1, fixed=0, rate=0.01)",)

    fixed: int = setting(default=10, bounds="[0, inf)", integer=True)
    rate: float = setting(default=0.001, bounds="[0, inf)")

    def start(self, data: Dataset, seed: int) -> State:
        state = super().start(data, seed)
        return {
            **state,
            "slack": torch.zeros_like(state["matrix"]),
            "revising": torch.zeros((), dtype=torch.bool, device=data.labels.device),
        }

    def begin_epoch(self, state: State, epoch: int, epochs: int, scored: Scored) -> None:
        super().begin_epoch(state, epoch, epochs, scored)
        state["revising"].fill_(epoch > self.warm_up + self.fixed)

    def pulls(self, loss: LossPull, state: State, batch: Batch, scores: tuple[Tensor, ...]) -> tuple[Pull, ...]:
        matrix = (state["matrix"] + state["slack"]).clamp(min=0)
        result = reweighted(loss, scores[0], batch.labels, matrix)
        mean = batch.total(result.by_matrix) / batch.whole
        # Not a product: the gradient can be infinite while the matrix is still the identity.
        state["slack"].sub_(torch.where(state["revising"], self.rate * batch.lr * mean, 0.0))
        return (result.pull,)
