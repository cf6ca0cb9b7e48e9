"""A run is the same whatever the caller has set before, and leaves all of that as it was."""

from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

import pytest
import torch
from test_fit import QUICK, clusters, same_bits
from torch import nn

from noisewise import fit


@contextmanager
def default_dtype(dtype):
    """A block in which new tensors have some type."""
    before = torch.get_default_dtype()
    torch.set_default_dtype(dtype)
    try:
        yield
    finally:
        torch.set_default_dtype(before)


SURROUNDINGS = {
    "autocast": lambda: torch.autocast("cpu", dtype=torch.bfloat16),
    "autocast switched off": lambda: torch.autocast("cpu", enabled=False),
    "no_grad": torch.no_grad,
    "inference_mode": torch.inference_mode,
    "float64": lambda: default_dtype(torch.float64),
}


@pytest.mark.parametrize("precision", ["float32", "bfloat16"])
@pytest.mark.parametrize("around", SURROUNDINGS)
def test_what_surrounds_a_run_changes_nothing(tmp_path, around, precision):
    asked = {**QUICK, "precision": precision, "loss": "gce(q=0.7)", "noise": "symmetric(0.2)"}
    data = clusters()
    fit("mlp(hidden=(16,))", data, folder=tmp_path / "alone", **asked)
    with SURROUNDINGS[around]():
        before = torch.is_autocast_enabled("cpu"), torch.is_grad_enabled(), torch.is_inference_mode_enabled(), torch.get_default_dtype()
        fit("mlp(hidden=(16,))", data, folder=tmp_path / "inside", **asked)
        assert before == (
            *(torch.is_autocast_enabled("cpu"), torch.is_grad_enabled(), torch.is_inference_mode_enabled(), torch.get_default_dtype()),
        )
    same_bits(tmp_path / "alone", tmp_path / "inside")


def dropping(seed):
    torch.manual_seed(seed)
    return nn.Sequential(nn.Dropout(0.5), nn.Linear(8, 3))


def test_runs_in_threads_are_those_of_runs_alone(tmp_path):
    models = {seed: dropping(seed) for seed in range(3)}
    asked = {**QUICK, "epochs": 20}
    for seed in range(3):
        fit(dropping(seed), clusters(), folder=tmp_path / f"alone {seed}", seed=seed, **asked)
    with ThreadPoolExecutor(3) as threads:
        list(threads.map(lambda seed: fit(models[seed], clusters(), folder=tmp_path / f"beside {seed}", seed=seed, **asked), range(3)))
    for seed in range(3):
        same_bits(tmp_path / f"alone {seed}", tmp_path / f"beside {seed}")


def test_the_callers_random_numbers_are_not_touched(tmp_path):
    model = nn.Sequential(nn.Dropout(0.5), nn.Linear(8, 3))
    before = torch.get_rng_state()
    fit(model, clusters(), folder=tmp_path / "run", **QUICK)
    assert torch.equal(torch.get_rng_state(), before)


def test_cudnn_is_repeatable_while_training_and_then_as_the_caller_had_it(tmp_path, monkeypatch):
    monkeypatch.setattr(torch.backends.cudnn, "benchmark", True)
    monkeypatch.setattr(torch.backends.cudnn, "deterministic", False)
    during = set()

    def watch(step, steps):
        during.add((torch.backends.cudnn.benchmark, torch.backends.cudnn.deterministic))

    fit("mlp", clusters(), folder=tmp_path / "run", watch=watch, **QUICK)
    assert during == {(False, True)}
    assert (torch.backends.cudnn.benchmark, torch.backends.cudnn.deterministic) == (True, False)
