"""A run with wrong labels that many tests share, and its audit."""

import pytest
import torch
from training_settings import QUICK, SETTINGS

from noisewise import fit
from noisewise.audit import audit

EPOCHS = 30


@pytest.fixture(scope="session")
def digits_run(tmp_path_factory):
    """Cross-entropy on digits with 40 % wrong labels; tests must not change it."""
    torch.set_num_threads(1)
    folder = tmp_path_factory.mktemp("runs") / "digits"
    return fit("mlp", "digits", noise="symmetric(0.4)", epochs=EPOCHS, folder=folder, **SETTINGS, **QUICK)


@pytest.fixture(scope="session")
def digits_audit(digits_run):
    return audit(digits_run)
