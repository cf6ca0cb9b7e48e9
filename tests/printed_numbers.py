"""Numbers and bounds that the papers print, and how to compute them from the reference losses."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from mpmath import mp, mpf

from reference import exact_emphasis_at
from reference_arithmetic import Array, Labels, label_probabilities, softmax

# Variance of ‖∂L/∂s‖₁ = 2w under uniform p, as printed: IMAE paper, table 4 of the supplement (IMAE), section 4.1 (MAE, as 0.09);
# CE's 1/3 is that of 2(1 − p). The papers' IMAE has no saturation.
UNIFORM_VARIANCES: tuple[tuple[str, dict[str, float], float], ...] = (
    ("ce", {}, 1 / 3),
    ("mae", {}, 4 / 45),
    *(
        ("imae", {"T": T, "saturation": 0.0}, variance)
        for T, variance in ((16.0, 354.113), (8.0, 4.546), (4.0, 0.299), (2.0, 0.040), (1.0, 0.007), (0.5, 0.002), (0.0, 0.0))
    ),
)


def uniform_variance(name: str, **hyper: Any) -> mpf:
    """Variance of ‖∂L/∂s‖₁ when p is uniform on (0, 1) (IMAE paper, equations 15 and 16)."""
    with mp.workdps(30):

        def moment(power: int) -> mpf:
            return mp.quad(lambda p: (2 * exact_emphasis_at(name, mp.log(p / (1 - p)), **hyper)) ** power, [0, 1], method="gauss-legendre")

        return moment(2) - moment(1) ** 2


# ψ = argmax over p of the emphasis: GR paper, table 1 and definition 1, with λ/(1 + λ) and q/(1 + q) where it prints a range.
FOCI: tuple[tuple[str, dict[str, Any], float], ...] = (
    ("ce", {}, 0.0),
    ("mae", {}, 0.5),
    ("rce", {"A": -4.0}, 0.5),
    ("imae", {"T": 8.0, "saturation": 0.0}, 0.5),
    *(("gce", {"q": q}, q / (1 + q)) for q in (0.3, 0.7, 1.0)),
    *(
        ("gr", {"beta": beta, "lam": lam, "g": g, "saturation": 0.0}, lam / (1 + lam))
        for beta, lam in ((2.0, 0.0), (8.0, 0.5), (12.0, 1.0), (8.0, 2.0))
        for g in ("exp", "identity")
    ),
)


def expected_margin(classes: int, deviation: float = 1.0) -> float:
    """E[Δ] for independent normal scores, approximately: the curriculum paper, equation 4."""
    variance = deviation**2
    return -math.log(classes - 1) - variance / 2 + math.expm1(variance) / (2 * (classes - 1))


# (classes, equation 4 at unit deviation, simulated, |E[Δ]| the curriculum paper used in its table 9).
EXPECTED_MARGINS = ((10, -2.602, -2.617, 2.717), (100, -5.086, -5.084, 5.097))


def printed_nce_bound(scores: Array, labels: Labels) -> Array:
    """2γ(1+ε)·w_CE, which the curriculum paper's equation 3 prints as an upper bound of ‖∂L_NCE/∂s‖₁: it is not one (see `nce_bound`)."""
    gamma, epsilon, difficulty = _nce_factors(scores, labels)
    return 2 * gamma * (1 + epsilon) * difficulty


def nce_bound(scores: Array, labels: Labels) -> Array:
    """2γ(w_CE + ε(k−1)/k) ≥ ‖∂L_NCE/∂s‖₁: equation 3, corrected.

    The derivation (appendix A.5.1) averages w_CE(Δ_i) over the classes i and then writes w_CE(Δ_y) for every one of them;
    the average of 1 − p_i is (k−1)/k.
    """
    gamma, epsilon, difficulty = _nce_factors(scores, labels)
    classes = scores.shape[1]
    return 2 * gamma * (difficulty + epsilon * (classes - 1) / classes)


def _nce_factors(scores: Array, labels: Labels) -> tuple[Array, Array, Array]:
    p = softmax(scores)
    own = label_probabilities(p, labels)
    gamma = -1 / np.log(p).sum(axis=1)
    return gamma, -scores.shape[1] * np.log(own) * gamma, 1 - own
