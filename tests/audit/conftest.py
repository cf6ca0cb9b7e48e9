"""A run with wrong labels that several tests look at."""

import pytest
import torch
from short_runs import QUICK, SETTINGS

from noisewise import fit


@pytest.fixture(scope="session")
def digits_run(tmp_path_factory):
    """Cross-entropy on digits with 40 % wrong labels; tests must not change it."""
    torch.set_num_threads(1)
    folder = tmp_path_factory.mktemp("runs") / "digits"
    return fit("mlp", "digits", noise="symmetric(0.4)", epochs=30, folder=folder, **SETTINGS, **QUICK)
