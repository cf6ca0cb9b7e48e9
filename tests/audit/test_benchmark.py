"""The benchmark of the audit on digits: training and packing in one step, judging in another, with the same numbers as without packing."""

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from sklearn.metrics import average_precision_score, roc_auc_score

from noisewise import fit
from noisewise.audit import audit
from noisewise.data import load

BENCHMARK = Path(__file__).parents[2] / "benchmarks/audit.py"
NOISES = ["symmetric(0.2)", "symmetric(0.4)", "pair(0.2)", "pair(0.4)", "instance(0.2)", "instance(0.4)"]
SETTINGS = {"batch_size": 64, "optimiser": "sgd(lr=0.03, momentum=0.9)", "weight_decay": 1e-3, "seed": 1, "epochs": 8, "evaluate_every": 8}


def benchmark(*arguments):
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": ""}
    return subprocess.run([sys.executable, BENCHMARK, *arguments], capture_output=True, text=True, env=environment, check=False)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Every setting of the quick comparison, trained and judged."""
    folder = tmp_path_factory.mktemp("benchmark")
    done = benchmark("--train", "--quick", "--retrain", "--epochs", "8", "--folds", "2", "--pack", folder / "part.npz")
    assert done.returncode == 0, done.stderr
    assert "20 tasks in" in done.stdout and "images/s" in done.stdout
    done = benchmark("--judge", folder / "part.npz", "--json", folder / "judged.json")
    assert done.returncode == 0, done.stderr
    return folder


@pytest.fixture(scope="module")
def judged(folder):
    return json.loads((folder / "judged.json").read_text())


@pytest.mark.slow
def test_every_setting_is_judged_with_every_method(judged):
    assert [row["noise"] for row in judged["rows"]] == NOISES
    for row in judged["rows"]:
        assert list(row["ways"]) == ["noisewise", "mean margin", "final loss", "cleanlab, self-confidence", "cleanlab, normalised margin"]
        assert row["folds"] == 2 and row["fold_seconds"] > 0 < row["run_seconds"]
        assert all(way["average_precision"] > row["rate"] for way in row["ways"].values()), "each finds more than chance would"


@pytest.mark.slow
def test_packing_keeps_everything_the_audit_reads(judged, tmp_path):
    noisy = load("digits").corrupted("instance(0.4)", seed=1)
    result = audit(fit("mlp", noisy, test=load("digits", "test"), folder=tmp_path / "run", device="cpu", **SETTINGS))
    row, wrong = judged["rows"][-1], noisy.wrong.numpy()
    assert row["rate"] == pytest.approx(wrong.mean()) and row["test_accuracy"] == result.dynamics.final
    for name, score in (("noisewise", result.score), ("mean margin", result.mean_margin), ("final loss", result.final_margin)):
        assert row["ways"][name]["average_precision"] == pytest.approx(average_precision_score(wrong, -score), abs=1e-12)
    assert row["doubtful"] == result.count / len(result)


@pytest.mark.slow
def test_the_pack_has_held_out_probabilities_for_every_example(folder, judged):
    with np.load(folder / "part.npz", allow_pickle=False) as packed:
        for place, row in enumerate(judged["rows"]):
            held_out, given, true = (packed[f"{place}/{name}"] for name in ("held_out", "given", "true"))
            np.testing.assert_allclose(np.exp(held_out.astype(float)).sum(1), 1, atol=5e-3)
            confidence = held_out[np.arange(len(given)), given].astype(float)
            assert row["ways"]["cleanlab, self-confidence"]["auroc"] == pytest.approx(roc_auc_score(given != true, -confidence), abs=2e-3)
            assert row["held_out_accuracy"] == pytest.approx((held_out.argmax(1) == true).mean())


@pytest.mark.slow
def test_runs_are_relabelled_from_their_own_record_and_trained_again(judged):
    assert [row["noise"] for row in judged["retrained"]] == ["symmetric(0.2)", "symmetric(0.4)"]
    for row in judged["retrained"]:
        assert row["loss"] == "gr(beta=8, lam=0.5)" and row["changed"] > 0
        assert row["wrong_after"] < 0.5 * row["wrong_before"]
        assert row["after"] > 0.8 < row["before"]


@pytest.mark.slow
def test_parts_with_different_settings_are_refused(folder):
    with np.load(folder / "part.npz", allow_pickle=False) as packed:
        about = json.loads(str(packed["about"]))
    about["settings"]["epochs"] = 9
    np.savez(folder / "other.npz", about=np.array(json.dumps(about)))
    done = benchmark("--judge", folder / "part.npz", folder / "other.npz")
    assert done.returncode == 2 and "different settings" in done.stderr


def test_a_file_that_cannot_be_written_is_refused_before_anything_is_trained(tmp_path):
    done = benchmark("--train", "--quick", "--pack", tmp_path / "part.zip")
    assert done.returncode == 1 and ".npz" in done.stderr and "part.zip" in done.stderr and not list(tmp_path.iterdir())
