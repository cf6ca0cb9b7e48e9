"""The papers' tables of formulas, as printed, compared with the losses: what is misprinted does not agree, and everything else does."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import pytest
import torch
from numpy import exp, log

from noisewise import losses
from noisewise.losses import MarginLoss
from noisewise.papers import available, compared, get, results

P = np.linspace(0.001, 0.999, 997)
A, Q = 2.5, 3  # of AUL and AGCE; the others have their own
Formula = Callable[[np.ndarray], np.ndarray]


@dataclass(frozen=True)
class Row:
    """A row of table 1 or 6 of the curriculum paper.

    Args:
        spec: our loss.
        value: the expression as printed.
        weight: the weight as printed.
        slip: what the expression should be, if it is misprinted.
    """

    spec: str
    value: Formula
    weight: Formula
    slip: Formula | None = None


def aul(p: np.ndarray) -> np.ndarray:
    return ((A - p) ** Q - (A - 1) ** Q) / Q


def agce(p: np.ndarray) -> np.ndarray:
    return ((A + 1) ** Q - (A + p) ** Q) / Q


ROWS = {
    "table1": [
        Row("ce", lambda p: -log(p), lambda p: 1 - p),
        Row("0.5*mae", lambda p: 1 - p, lambda p: p * (1 - p)),
        Row("rce(A=-1)", lambda p: 1 - p, lambda p: p * (1 - p)),
        Row(f"aul(a={A}, q={Q})", aul, lambda p: p * (1 - p) * (A - p) ** (Q - 1)),
        Row(f"agce(a={A}, q={Q})", lambda p: ((A + 1) - (A + p) ** Q) / Q, lambda p: p * (A + p) ** (Q - 1) * (1 - p), agce),
        Row("gce(q=0.4)", lambda p: (1 - p**0.4) / 0.4, lambda p: p**0.4 * (1 - p)),
        Row("sce(alpha=0.3, beta=0.7, A=-1)", lambda p: -0.3 * log(p) + 0.7 * (1 - p), lambda p: (1 - 0.7 + 0.7 * p) * (1 - p)),
    ],
    "table6": [
        Row("focal(2)", lambda p: -((1 - p) ** 2) * log(p), lambda p: (1 - p) ** 2 * (1 - p - 2 * p * log(p))),
        Row(f"aul(a={A}, q={Q})", lambda p: ((A + 1) - (A + p) ** Q) / Q, lambda p: p * (1 - p) * (A - p) ** (Q - 1), aul),
        Row(f"agce(a={A}, q={Q})", aul, lambda p: p * (A + p) ** (Q - 1) * (1 - p), agce),
        Row("ael(q=0.5)", lambda p: exp(-p / 0.5), lambda p: p * (1 - p) * exp(-p / 0.5) / 0.5),
        Row("tce(q=3)", lambda p: sum((1 - p) ** i / i for i in (1, 2, 3)) + 0 * p, lambda p: p * sum((1 - p) ** i for i in (1, 2, 3))),
    ],
}


@pytest.mark.parametrize(
    ("table", "row"), [(table, row) for table, rows in ROWS.items() for row in rows], ids=lambda value: getattr(value, "spec", value)
)
def test_expressions_and_weights_are_those_of_the_losses_or_are_listed_as_slips(table: str, row: Row) -> None:
    loss = losses.get(row.spec)
    assert isinstance(loss, MarginLoss)
    d = torch.from_numpy(P).logit()
    value = loss.value(d).numpy()
    np.testing.assert_allclose(loss.emphasis(d).numpy(), row.weight(P), rtol=1e-9)
    value = value - value[-1]  # a constant does not matter
    if row.slip is not None:
        printed = row.value(P)
        assert np.abs(value - (printed - printed[-1])).max() > 0.1 or abs(printed[-1]) > 0.1, "nothing is misprinted"
        assert any(loss.name.upper() in slip for slip in get(f"curriculum/{table}").slips)
    right = (row.slip or row.value)(P)
    np.testing.assert_allclose(value, right - right[-1], atol=1e-12)


def _pull(value: Callable[[torch.Tensor], torch.Tensor], scores: torch.Tensor) -> torch.Tensor:
    """The gradient by the scores of a sum over rows."""
    leaf = scores.clone().requires_grad_()
    (slope,) = torch.autograd.grad(value(leaf).sum(), leaf)
    return slope


SCORES = 2 * torch.randn(40, 6, generator=torch.Generator().manual_seed(3), dtype=torch.float64)
LABELS = torch.arange(40) % 6


def _p(scores: torch.Tensor) -> torch.Tensor:
    return scores.softmax(1).gather(1, LABELS.unsqueeze(1)).squeeze(1)


def _loss(spec: str) -> Callable[[torch.Tensor], torch.Tensor]:
    return lambda scores: losses.get(spec, reduction="none")(scores, LABELS)


def _gamma(scores: torch.Tensor) -> torch.Tensor:
    return -1 / scores.log_softmax(1).sum(1).detach()


def _epsilon(scores: torch.Tensor) -> torch.Tensor:
    return 6 * -_p(scores).log().detach() * _gamma(scores)


@pytest.mark.parametrize(
    ("spec", "factor", "primary", "regulariser"),
    [
        ("mse", 2.0, lambda s: 1 - _p(s), lambda s: 0.5 * (s.softmax(1) ** 2).sum(1)),
        ("gls(alpha=-0.4)", 1.4, lambda s: -_p(s).log(), lambda s: 0.4 / 1.4 * s.log_softmax(1).mean(1)),
        ("gls(alpha=0.3)", 0.7, lambda s: -_p(s).log(), lambda s: -0.3 / 0.7 * s.log_softmax(1).mean(1)),
        ("nce", 1.0, lambda s: -_gamma(s) * _p(s).log(), lambda s: _gamma(s) * _epsilon(s) * s.log_softmax(1).mean(1)),
    ],
    ids=["MSE", "CE+GLS, negative", "CE+GLS", "NCE"],
)
def test_losses_of_table_7_are_a_primary_loss_and_a_regulariser(
    spec: str, factor: float, primary: Callable[[torch.Tensor], torch.Tensor], regulariser: Callable[[torch.Tensor], torch.Tensor]
) -> None:
    parts = _pull(lambda scores: factor * (primary(scores) + regulariser(scores)), SCORES)
    torch.testing.assert_close(_pull(_loss(spec), SCORES), parts, rtol=1e-9, atol=1e-12)


def test_the_regulariser_of_peer_loss_is_its_expectation() -> None:
    """Table 7, PL(CR): minus the cost of a random label is Σ P(ỹ = i) log p_i on average; here the labels are uniform."""
    others = torch.stack([torch.full((40,), label) for label in range(6)])
    expected = torch.stack([-losses.get("ce", reduction="none")(SCORES, label) for label in others]).mean(0)
    torch.testing.assert_close(expected, SCORES.log_softmax(1).mean(1))


def test_the_bound_of_nce_is_exceeded_where_p_is_large() -> None:
    scores = torch.zeros(40, 6, dtype=torch.float64)
    scores[torch.arange(40), LABELS] = torch.linspace(-4, 8, 40, dtype=torch.float64)
    norm = _pull(_loss("nce"), scores).abs().sum(1)
    rest = 1 - _p(scores)
    printed = 2 * _gamma(scores) * (1 + _epsilon(scores)) * rest
    assert (norm > printed).any() and (norm <= 2 * _gamma(scores) * (rest + _epsilon(scores) * 5 / 6) + 1e-12).all()
    assert any("NCE" in slip for slip in get("curriculum/table7").slips)


def test_the_focuses_of_gr_table_1_are_computed() -> None:
    cells = compared(get("gr/table1"), results())
    assert len(cells) == 6 and all(cell.ours == pytest.approx(cell.cell.value, abs=2e-4) for cell in cells)


def test_every_table_of_formulas_is_tested() -> None:
    formulas = {name for name in available() if "formulas" in (get(name).nothing or "")}
    assert formulas == {"imae/table2", "curriculum/table1", "curriculum/table6", "curriculum/table7"}
