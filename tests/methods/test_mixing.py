"""Methods that mix inputs: what they draw, what the networks see, and the loss of a mixture, against computations by hand."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from scipy import stats

import noisewise
from mixed_batch import LABELS, Seen, assert_follows, batch_of, one_hot, soft_cross_entropy
from noisewise import losses, methods
from noisewise.methods._mix import draw_dominant_mixture, symmetric_beta
from refused import refused


@pytest.mark.parametrize("a", [0.2, 0.5, 1.0, 4.0, 32.0])
def test_the_drawn_numbers_have_the_beta_distribution(a: float) -> None:
    generator = torch.Generator().manual_seed(1)
    drawn = torch.stack([symmetric_beta(a, generator, torch.device("cpu")) for _ in range(5000)]).numpy()
    assert ((drawn >= 0) & (drawn <= 1)).all()
    # The rounding to 0 and 1 is visible for a small a: the density has poles there.
    assert stats.kstest(drawn.clip(1e-16, 1 - 1e-16), "beta", (a, a)).pvalue > 0.01


def test_the_larger_share_has_the_distribution_of_the_maximum() -> None:
    batch = batch_of()
    drawn = np.array([float(draw_dominant_mixture(batch, 4.0).lam) for _ in range(2000)])
    assert drawn.min() >= 0.5
    assert stats.kstest(drawn, lambda x: 2 * stats.beta.cdf(x, 4, 4) - 1).pvalue > 0.01


@pytest.mark.parametrize("loss", ["ce", "gce(q=0.7)"])
def test_mixup_trains_on_mixed_inputs_and_labels(loss: str) -> None:
    method, network = methods.get("mixup(alpha=1)"), Seen(1)
    batch = batch_of([4, 0, 3, 1])
    (scores,) = method.scores([network], {}, batch)
    lam, (partner,) = batch.notes["mixture"].lam, batch.notes["mixture"].partners
    assert 0 < lam < 1 and sorted(partner.tolist()) == [0, 1, 2, 3]
    torch.testing.assert_close(network.inputs[0], lam * batch.inputs + (1 - lam) * batch.inputs[partner])
    (pull,) = method.pulls(methods.LossPull(losses.get(loss)), {}, batch, (scores.detach(),))

    def objective(s: torch.Tensor) -> torch.Tensor:
        each = losses.get(loss, reduction="none")
        return lam * each(s, batch.labels) + (1 - lam) * each(s, batch.labels[partner])

    assert_follows(pull, objective, scores)
    if loss == "ce":
        targets = lam * one_hot(batch.labels) + (1 - lam) * one_hot(batch.labels[partner])
        assert_follows(pull, lambda s: soft_cross_entropy(s, targets), scores)


def test_mixup_draws_new_numbers_in_every_step() -> None:
    method, network = methods.get("mixup(alpha=1)"), Seen(1)
    batch = batch_of()
    drawn = []
    for _ in range(2):
        method.scores([network], {}, batch)
        mixture = batch.notes["mixture"]
        drawn.append((float(mixture.lam), mixture.partners[0].tolist()))
    assert drawn[0][0] != drawn[1][0] and drawn[0][1] != drawn[1][1]


def test_the_record_of_mixup_is_of_the_examples_themselves(tmp_path: Path) -> None:
    inputs, labels = torch.randn(60, 4, generator=torch.Generator().manual_seed(0)), torch.arange(60) % 3
    settings: dict[str, Any] = {"epochs": 2, "batch_size": 16, "device": "cpu", "clean_pass": True}
    noisewise.fit("linear", (inputs, labels), method="mixup", folder=tmp_path, **settings)
    for file in (tmp_path / "record" / "clean").iterdir():
        assert (np.load(file) == np.load(tmp_path / "record" / "training" / file.name)).all()


def test_bad_requests_are_refused(tmp_path: Path) -> None:
    given: Any = ("linear", (torch.zeros(6, 2), LABELS))
    with refused("alpha", "(0, inf)", "0"):
        noisewise.fit(*given, method="mixup(alpha=0)", epochs=1, folder=tmp_path / "run")
    with refused("mixup", "whole", "accumulate=2"):
        noisewise.fit(*given, method="mixup", epochs=1, accumulate=2, folder=tmp_path / "run")
