import warnings
from collections.abc import Sequence

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from noisewise.data import Dataset
from noisewise.losses import Loss
from noisewise.methods._base import Method, Scored, State, refuse_batch_loss
from noisewise.methods._batch import Batch
from noisewise.methods._entropy import entropy_of
from noisewise.methods._mix import Mixture, draw_dominant_mixture
from noisewise.methods._prior import uniform_prior
from noisewise.methods._pull import LossPull, Pull
from noisewise.methods._select import average
from noisewise.spec import setting


class DivideMix(Method, name="dividemix"):
    """Two networks, each of which tells the other which labels to trust; the other examples get labels that both networks guess.

    Formula:
        before every epoch, a mixture of two Gaussians is fitted to the cross-entropies of each network;
        w = the probability of the component with the smaller mean, in the other network; an example with w > threshold is labelled
        labelled:    t = sharpen(w · y + (1 − w) · p),    p = the mean prediction of the network for two views
        unlabelled:  t = sharpen(p),    p = the mean prediction of both networks for two views
        sharpen(p) = p^(1/T), divided by its sum
        x = λ xᵢ + (1 − λ) xⱼ and t = λ tᵢ + (1 − λ) tⱼ,    λ = max(b, 1 − b),    b ~ Beta(alpha, alpha)
        L = mean over labelled of −Σ t log p + lambda_u · r · mean over unlabelled of (1/C) Σ (p − t)² + lambda_r · KL(1/C ‖ mean of p);
        r rises from 0 to 1 in the first ramp_up epochs after the warm-up

    In the warm-up both networks learn the given labels with the loss of the run, which is not used afterwards. Choose more epochs than
    warm_up.

    This differs from the authors' code as follows:

    - The split into labelled and unlabelled examples is a weight of 0 or 1 in ordinary batches, and an epoch visits every example once.
      The authors use one loader for each part: a step has as many labelled as unlabelled examples, and an epoch visits the labelled
      examples once. The two parts of L are means in both forms.
    - Both networks are trained in every step, not in turn for an epoch each.
    - Both networks guess in training mode. In the authors' code the other network guesses in evaluation mode.
    - The warm-up uses two views of every example, not one.
    - The losses are not averaged over five epochs, which the authors do for 90 % noise.

    Args:
        warm_up: the number of first epochs with the given labels: 10 for CIFAR-10 and 30 for CIFAR-100 in the paper. Do not shorten it in
            proportion to a short training: the split needs a network that has learned the classes.
        lambda_u: the weight of the unlabelled examples.
        ramp_up: the number of epochs in which this weight rises.
        lambda_r: the weight of the penalty that keeps the predicted classes equally frequent.
        confidence_penalty: the weight of the negative entropy of the predictions in the warm-up: 1 for asymmetric noise in the paper.
        threshold: the probability above which a label is trusted.
        T: the temperature; smaller values sharpen more.
        alpha: how evenly examples are mixed.

    Example:
        >>> DivideMix(warm_up=30, lambda_u=150).lambda_u
        150.0

    Reference:
        Li et al., DivideMix: learning with noisy labels as semi-supervised learning, ICLR 2020.
    """

    examples = ("dividemix(warm_up=1, lambda_u=5, ramp_up=2)", "dividemix(warm_up=2, confidence_penalty=1, lambda_r=0)")
    networks = 2
    views = 2
    needs_whole_batch = True
    mixes = True
    relabels = True

    warm_up: int = setting(default=10, bounds="[1, inf)", integer=True)
    lambda_u: float = setting(default=25.0, bounds="[0, inf)")
    ramp_up: int = setting(default=16, bounds="[1, inf)", integer=True)
    lambda_r: float = setting(default=1.0, bounds="[0, inf)")
    confidence_penalty: float = setting(default=0.0, bounds="[0, inf)")
    threshold: float = setting(default=0.5, bounds="[0, 1]")
    T: float = setting(default=0.5, bounds="(0, inf)")
    alpha: float = setting(default=4.0, bounds="(0, inf)")

    def check(self, loss: Loss, data: Dataset) -> None:
        refuse_batch_loss(self, loss)

    def start(self, data: Dataset, seed: int) -> State:
        device = data.labels.device
        return {
            "labels": data.labels.clone(),
            "clean": torch.ones(self.networks, len(data), device=device),  # row k: what network k is told
            "warming_up": torch.ones((), dtype=torch.bool, device=device),
            "epochs": torch.zeros((), device=device),
        }

    def begin_epoch(self, state: State, epoch: int, epochs: int, scored: Scored) -> None:
        state["warming_up"].fill_(epoch <= self.warm_up)
        state["epochs"].fill_(epochs)
        if epoch <= self.warm_up:
            return
        for network in range(self.networks):
            losses = F.cross_entropy(scored.scores(1 - network), state["labels"], reduction="none")
            seed = int(torch.randint(2**31 - 1, (), generator=scored.generator))
            state["clean"][network].copy_(clean_probability(losses, seed))

    def scores(self, networks: Sequence[nn.Module], state: State, batch: Batch) -> tuple[Tensor, ...]:
        views = [batch.view() for _ in range(self.views)]
        with torch.no_grad():
            guesses = [torch.stack(network(torch.cat(views)).softmax(1).chunk(self.views)).mean(0) for network in networks]
        results: list[Tensor] = []
        batch.notes["targets"] = []
        for own, network, clean in zip(guesses, networks, state["clean"], strict=True):
            targets = self.targets(state, batch, clean[batch.index], own, torch.stack(guesses).mean(0))
            mixture = draw_dominant_mixture(batch, self.alpha, self.views)
            mixture = Mixture(torch.where(state["warming_up"], 1.0, mixture.lam), mixture.partners)
            batch.notes["targets"].append(mixture(batch, *[targets] * self.views))
            results += network(torch.cat(mixture(batch, *views))).chunk(self.views)
        return tuple(results)

    def targets(self, state: State, batch: Batch, clean: Tensor, own: Tensor, both: Tensor) -> Tensor:
        """The target of every example before mixing, for one network.

        Args:
            state: the state.
            batch: the examples.
            clean: the probability that their labels are right, (n,).
            own: the mean prediction of the network, (n, classes).
            both: the mean prediction of both networks.
        """
        w, labels = clean.unsqueeze(1), F.one_hot(batch.labels, own.shape[1]).to(own.dtype)
        refined = w * labels + (1 - w) * own
        return torch.where(state["warming_up"], labels, sharpen(torch.where(w > self.threshold, refined, both), self.T))

    def pulls(self, loss: LossPull, state: State, batch: Batch, scores: tuple[Tensor, ...]) -> tuple[Pull, ...]:
        pulls: list[Pull] = []
        ramp = ((batch.progress * state["epochs"] - self.warm_up) / self.ramp_up).clamp(0, 1)
        for network, targets in enumerate(batch.notes["targets"]):
            views = scores[network * self.views :][: self.views]
            trusted = state["clean"][network][batch.index] > self.threshold
            labelled, unlabelled = average(batch, trusted), self.lambda_u * ramp * average(batch, ~trusted)
            prior = uniform_prior(batch, *(each.softmax(1) for each in views))
            for view, target, slope in zip(views, targets, prior.gradients, strict=True):
                first, later = self._warm_up_pull(loss, batch, view), _semi_supervised_pull(view, target, labelled, unlabelled)
                assert first.value is not None and later.value is not None
                gradient = later.gradient + self.lambda_r * self.views * slope
                gradient = torch.where(state["warming_up"], first.gradient, gradient)
                value = torch.where(state["warming_up"], first.value, later.value + self.lambda_r * prior.value)
                pulls.append(Pull(gradient / self.views, value, emphasis=0.5 * gradient.abs().sum(1)))
        return tuple(pulls)

    def _warm_up_pull(self, loss: LossPull, batch: Batch, scores: Tensor) -> Pull:
        given, entropy = loss.rows(scores, batch.labels), entropy_of(scores)
        assert given.value is not None
        value = given.value - self.confidence_penalty * entropy.value.squeeze(1)
        return Pull(given.gradient - self.confidence_penalty * entropy.gradient, value)


def _semi_supervised_pull(scores: Tensor, targets: Tensor, labelled: Tensor, unlabelled: Tensor) -> Pull:
    """The pull of the cross-entropy with the weights ``labelled``, and of the mean squared error with the weights ``unlabelled``."""
    log_p = scores.log_softmax(1)
    p = log_p.exp()
    error = p - targets
    squared_slope = 2 / scores.shape[1] * p * (error - (p * error).sum(1, keepdim=True))
    gradient = labelled.unsqueeze(1) * error + unlabelled.unsqueeze(1) * squared_slope
    return Pull(gradient, labelled * -(targets * log_p).sum(1) + unlabelled * error.square().mean(1))


def sharpen(p: Tensor, temperature: float) -> Tensor:
    """Raise probabilities to the power 1 / temperature, and divide them by their sum.

    Example:
        >>> sharpen(torch.tensor([[0.75, 0.25]]), 0.5)
        tensor([[0.9000, 0.1000]])
    """
    return (p.log() / temperature).softmax(1)  # the power itself may be 0 for all classes


def clean_probability(losses: Tensor, seed: int) -> Tensor:
    """The probability of every loss to be from the component with the smaller mean, in a mixture of two Gaussians.

    Example:
        >>> clean_probability(torch.tensor([0.0, 0.1, 0.1, 4.8, 4.9, 5.0]), seed=0).round()
        tensor([1., 1., 1., 0., 0., 0.])
    """
    from sklearn.exceptions import ConvergenceWarning
    from sklearn.mixture import GaussianMixture

    values = losses.double().cpu().numpy()
    values = (values - values.min()) / max(np.ptp(values), np.finfo(float).tiny)
    mixture = GaussianMixture(n_components=2, max_iter=10, tol=1e-2, reg_covar=5e-4, random_state=seed)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)  # ten iterations are the authors' choice
        probabilities = mixture.fit(values[:, None]).predict_proba(values[:, None])
    return torch.from_numpy(probabilities[:, mixture.means_.argmin()]).float()
