"""Many runs at once: the same results as one after the other, nothing done twice, one failure does not end the rest."""

import pytest
from test_fit import clusters, same_bits

from noisewise import InputError, Run, compare, fit

SETTINGS = {"epochs": 2, "batch_size": 64, "device": "cpu"}
GRID = {"loss": ["ce", "gce(q=0.7)"], "noise": ["symmetric(0.2)"], "seed": [0, 1]}


def test_the_number_of_runs_at_a_time_changes_nothing(tmp_path):
    for jobs in (1, 2):
        runs = compare("mlp(hidden=(16,))", clusters(), test=clusters(seed=1), folder=tmp_path / str(jobs), jobs=jobs, **GRID, **SETTINGS)
        assert [(run.settings.loss, run.settings.seed, run.state) for run in runs] == [
            ("ce", 0, "finished"),
            ("ce", 1, "finished"),
            ("gce(q=0.7)", 0, "finished"),
            ("gce(q=0.7)", 1, "finished"),
        ]
    for folder in sorted((tmp_path / "1").iterdir()):
        same_bits(folder, tmp_path / "2" / folder.name)
    fit(
        "mlp(hidden=(16,))",
        clusters(),
        test=clusters(seed=1),
        loss="ce",
        noise="symmetric(0.2)",
        seed=1,
        folder=tmp_path / "alone",
        **SETTINGS,
    )
    same_bits(tmp_path / "alone", runs[1].path)


def test_finished_runs_are_not_done_again_and_the_rest_is(tmp_path):
    first = compare("mlp", clusters(), loss=["ce"], folder=tmp_path, jobs=1, **SETTINGS)
    before = (first[0].path / "model.safetensors").stat().st_mtime_ns
    seen = []
    runs = compare("mlp", clusters(), loss=["ce", "mae"], folder=tmp_path, jobs=1, watch=seen.append, **SETTINGS)
    assert len(runs) == 2 and (first[0].path / "model.safetensors").stat().st_mtime_ns == before
    assert {progress.place for progress in seen if progress.step} == {1}


def test_a_failed_run_is_named_after_the_others_finished(tmp_path):
    two_of_three = "cr(prior=(0.5, 0.5))"
    with pytest.raises(
        InputError, match=r"1 of 2 runs failed; the first, cr.*: The 'prior' parameter of CR must be one probability for each"
    ):
        compare("mlp", clusters(), loss=[two_of_three, "ce"], folder=tmp_path, jobs=1, **SETTINGS)
    assert Run(tmp_path / "none-ce-seed0").state == "finished"


@pytest.mark.parametrize(
    ("grid", "sentence"),
    [
        ({"loss": "ce"}, "needs a list for loss. Got 'ce'"),
        ({"loss": []}, "needs a list for loss"),
        ({"loss": ["ce", "ce"]}, "Two runs of the comparison are the same"),
        ({"loss": ["imea"]}, "There is no loss named 'imea'"),
        ({"loss": ["ce"], "noise": ["symetric(0.1)"]}, "There is no noise named 'symetric'"),
    ],
)
def test_a_grid_is_checked_before_any_run_starts(tmp_path, grid, sentence):
    with pytest.raises(InputError, match=sentence.replace("(", r"\(").replace(")", r"\)")):
        compare("mlp", clusters(), folder=tmp_path / "runs", **grid, **SETTINGS)
    assert not (tmp_path / "runs").exists()
