"""A run does not depend on the global state of torch, and restores it."""

from concurrent.futures import ThreadPoolExecutor

import pytest
import torch
from small_runs import QUICK, clusters, same_bits
from torch import nn

from default_dtype import default_dtype
from noisewise import fit

DATA = clusters()  # made here, because the state of torch may change the type of new tensors
STATES = {
    "autocast": lambda: torch.autocast("cpu", dtype=torch.bfloat16),
    "autocast switched off": lambda: torch.autocast("cpu", enabled=False),
    "no_grad": torch.no_grad,
    "inference_mode": torch.inference_mode,
    "float64": lambda: default_dtype(torch.float64),
}


def train_with_noise(folder, precision):
    fit("mlp(hidden=(16,))", DATA, folder=folder, precision=precision, loss="gce(q=0.7)", noise="symmetric(0.2)", **QUICK)
    return folder


@pytest.fixture(scope="module")
def expected(tmp_path_factory):
    """Runs in the usual state of torch."""
    return {precision: train_with_noise(tmp_path_factory.mktemp(precision) / "run", precision) for precision in ("float32", "bfloat16")}


def current_state():
    return torch.is_autocast_enabled("cpu"), torch.is_grad_enabled(), torch.is_inference_mode_enabled(), torch.get_default_dtype()


@pytest.mark.parametrize("precision", ["float32", "bfloat16"])
@pytest.mark.parametrize("state", STATES)
def test_the_state_of_torch_does_not_change_a_run(tmp_path, expected, state, precision):
    with STATES[state]():
        before = current_state()
        train_with_noise(tmp_path / "run", precision)
        assert current_state() == before
    same_bits(expected[precision], tmp_path / "run")


def with_dropout(seed):
    torch.manual_seed(seed)
    return nn.Sequential(nn.Dropout(0.5), nn.Linear(8, 3))


def test_runs_in_parallel_threads_equal_runs_one_after_the_other(tmp_path):
    settings = {**QUICK, "epochs": 8}
    for seed in range(3):
        fit(with_dropout(seed), clusters(), folder=tmp_path / f"alone {seed}", seed=seed, **settings)
    models = [with_dropout(seed) for seed in range(3)]
    with ThreadPoolExecutor(3) as threads:
        list(threads.map(lambda seed: fit(models[seed], clusters(), folder=tmp_path / f"thread {seed}", seed=seed, **settings), range(3)))
    for seed in range(3):
        same_bits(tmp_path / f"alone {seed}", tmp_path / f"thread {seed}")


def test_the_random_state_of_the_caller_does_not_change(tmp_path):
    model = nn.Sequential(nn.Dropout(0.5), nn.Linear(8, 3))
    before = torch.get_rng_state()
    fit(model, clusters(), folder=tmp_path / "run", **QUICK)
    assert torch.equal(torch.get_rng_state(), before)


def test_cudnn_is_deterministic_during_training_and_restored_afterwards(tmp_path, monkeypatch):
    monkeypatch.setattr(torch.backends.cudnn, "benchmark", True)
    monkeypatch.setattr(torch.backends.cudnn, "deterministic", False)
    during = set()

    def watch(step, steps):
        during.add((torch.backends.cudnn.benchmark, torch.backends.cudnn.deterministic))

    fit("mlp", clusters(), folder=tmp_path / "run", watch=watch, **QUICK)
    assert during == {(False, True)}
    assert (torch.backends.cudnn.benchmark, torch.backends.cudnn.deterministic) == (True, False)
