import math

import torch
import torch.nn.functional as F
from torch import Tensor

from noisewise.data import Dataset
from noisewise.losses import Loss
from noisewise.methods._base import Method, Scored, State, refuse_batch_loss
from noisewise.methods._batch import Batch
from noisewise.methods._pull import LossPull, Pull
from noisewise.methods._select import average, percentile, weighted
from noisewise.methods._trusted import check_trusted, trusted_rows
from noisewise.spec import setting

_LABEL_SIZE, _EPOCH_SIZE, _HIDDEN = 2, 5, 20  # as in the authors' code
_STEPS, _LR = 500, 0.1
_LEARNED = ("gates", "gate_biases", "label_embedding", "hidden", "hidden_biases", "output", "output_bias")


class MentorNetDD(Method, name="mentornet_dd"):
    """MentorNet with a data-driven curriculum: a small network weights examples, and learns from trusted ones which labels are right.

    Formula:
        L = Σ v · loss / Σ v,    v = MentorNet(loss, loss − λ, label, epoch);
        λ = the moving average of the percentile of the losses in a batch;
        MentorNet minimises the binary cross-entropy between v and v* over trusted examples, v* = 1 if the given label is right, else 0

    MentorNet encodes the two losses with a bidirectional LSTM, adds embeddings of the given label and of the percentage of training
    that is done, and has one hidden layer and a sigmoid. All weights are 1 during the burn-in. Then MentorNet is trained on the
    losses that trusted examples had in the last epoch, and once more late in training. In between it is fixed.

    As in the authors' code, the LSTM reads a single step (so that its forget gates have no effect and are left out), sizes are 2, 5
    and 20, the embedding of the percentage is random and fixed, and MentorNet sees the percentage of its last training. Simplified:
    MentorNet is trained with 500 steps of gradient descent on all trusted examples at once, the label has an embedding for every
    class (one for all classes in the code), the loss is divided by Σ v (at least 1), and the code's random dropping of examples is
    left out.

    Args:
        trusted: the number of trusted examples. They are drawn with the seed from the examples with known true labels. The authors
            use about a tenth of the training set.
        percentile: which loss of a batch λ follows, as a share of the batch.
        decay: the momentum of the moving average.
        burn_in: the share of training before MentorNet is trained and used; at least one epoch.
        again: the share of training before MentorNet is trained a second time.

    Example:
        >>> MentorNetDD(trusted=500)
        mentornet_dd(trusted=500, percentile=0.7, decay=0.9, burn_in=0.18, again=0.75)

    Reference:
        Jiang et al., MentorNet: learning data-driven curriculum for very deep neural networks on corrupted labels, ICML 2018.
    """

    examples = ("mentornet_dd(trusted=60, burn_in=0.25, again=0.5)",)
    needs_whole_batch = True
    per_example = ("losses", "differences")

    trusted: int = setting(default=5000, bounds="[1, inf)", integer=True)
    percentile: float = setting(default=0.7, bounds="[0, 1]")
    decay: float = setting(default=0.9, bounds="[0, 1)")
    burn_in: float = setting(default=0.18, bounds="[0, 1]")
    again: float = setting(default=0.75, bounds="[0, 1]")

    def check(self, loss: Loss, data: Dataset) -> None:
        refuse_batch_loss(self, loss)
        check_trusted(self, data, self.trusted)

    def start(self, data: Dataset, seed: int) -> State:
        assert data.wrong is not None
        rows = trusted_rows(data, self.trusted, seed)
        state = {name: torch.zeros(len(data)) for name in self.per_example}
        state |= {"average": torch.zeros(()), "seen": torch.zeros(()), "burning_in": torch.ones((), dtype=torch.bool)}
        state |= {"trusted": rows, "trusted_labels": data.labels[rows], "right": (~data.wrong[rows]).float()}
        state |= _initial(len(data.classes), seed) | {"percentage": torch.zeros((), dtype=torch.int64)}
        return {name: value.to(data.labels.device) for name, value in state.items()}

    def begin_epoch(self, state: State, epoch: int, epochs: int, scored: Scored) -> None:
        # Epochs that are finished when MentorNet is trained; losses are known after the first.
        finished = [max(1, math.ceil(share * epochs)) for share in (self.burn_in, self.again)]
        state["burning_in"].fill_(epoch - 1 < finished[0])
        if epoch - 1 in finished and epoch - 1 >= finished[0]:
            state["percentage"].fill_(100 * (epoch - 1) // epochs)
            _train(state)

    def pulls(self, loss: LossPull, state: State, batch: Batch, scores: tuple[Tensor, ...]) -> tuple[Pull, ...]:
        pull = loss.rows(scores[0], batch.labels)
        assert pull.value is not None
        # The average starts at 0; `seen` is the sum of the weights in it.
        state["average"].mul_(self.decay).add_((1 - self.decay) * percentile(batch.gather(pull.value), self.percentile))
        state["seen"].mul_(self.decay).add_(1 - self.decay)
        losses = pull.value.to(state["losses"].dtype)
        differences = losses - state["average"] / state["seen"]
        state["losses"][batch.index], state["differences"][batch.index] = losses, differences
        v = torch.where(state["burning_in"], 1.0, mentor(state, losses, differences, batch.labels).sigmoid())
        return (weighted(pull, average(batch, v)),)


def mentor(state: State, losses: Tensor, differences: Tensor, labels: Tensor) -> Tensor:
    """The output of MentorNet before the sigmoid, (n,)."""
    inputs = torch.stack([losses, differences], 1)
    # Three gates in two directions. Both directions read the same single step, from a state of zero.
    enter, new, leave = (inputs @ state["gates"].T + state["gate_biases"]).chunk(3, 1)
    encoded = leave.sigmoid() * (enter.sigmoid() * new.tanh()).tanh()
    # Indexing with a tensor without dimensions would read it on the host, which a CUDA graph cannot capture.
    percentage = state["epoch_embedding"].index_select(0, state["percentage"].view(1)).expand(len(losses), -1)
    features = torch.cat([state["label_embedding"][labels], percentage, encoded], 1)
    return (features @ state["hidden"].T + state["hidden_biases"]).tanh() @ state["output"] + state["output_bias"]


def _initial(classes: int, seed: int) -> State:
    generator = torch.Generator().manual_seed(seed)
    shapes = {
        "gates": (6, 2),
        "gate_biases": (6,),
        "label_embedding": (classes, _LABEL_SIZE),
        "epoch_embedding": (100, _EPOCH_SIZE),
        "hidden": (_HIDDEN, _LABEL_SIZE + _EPOCH_SIZE + 2),
        "hidden_biases": (_HIDDEN,),
        "output": (_HIDDEN,),
        "output_bias": (),
    }
    return {name: torch.randn(shape, generator=generator) * (shape[-1] if shape else 1) ** -0.5 for name, shape in shapes.items()}


def _train(state: State) -> None:
    """Train MentorNet on the trusted examples, in place. On the CPU, so that all processes compute the same bits."""
    copy = {name: value.detach().cpu().clone() for name, value in state.items()}
    rows = copy["trusted"]
    with torch.enable_grad():
        learned = [copy[name].requires_grad_() for name in _LEARNED]
        optimiser = torch.optim.SGD(learned, lr=_LR, momentum=0.9)  # Adam would amplify rounding errors
        for _ in range(_STEPS):
            optimiser.zero_grad()
            outputs = mentor(copy, copy["losses"][rows], copy["differences"][rows], copy["trusted_labels"])
            F.binary_cross_entropy_with_logits(outputs, copy["right"]).backward()  # type: ignore[no-untyped-call]
            optimiser.step()
    for name, value in zip(_LEARNED, learned, strict=True):
        state[name].copy_(value.detach())
