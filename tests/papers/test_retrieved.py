"""Retrieval in the tables on MARS and PKU-Reid: computed with the trained network, once, and refused early if files are missing."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
from layouts import write_all

from noisewise.data import files
from noisewise.papers import get
from noisewise.reproduce import plan, reproduce
from noisewise.retrieval import retrieve
from refused import refused

CHOICE = {"only": "loss=ce", "quick": True}


def test_a_table_of_retrieval_has_the_numbers_of_its_network(small_data: None, tmp_path: Path) -> None:
    done = reproduce(plan(get("imae/supplement-table6"), output=tmp_path, **CHOICE))
    (run,) = done.runs
    test = files("mars", "test")
    first = test.take(test.groups["frame"] == 1)  # a quick run uses one frame of every tracklet
    retrieval = retrieve(run, first.take(first.groups["query"] == 1), first, size=256)
    ours = {one.cell.metric: one.ours for one in done.cells if one.ours is not None}
    assert ours == {"mAP": pytest.approx(100 * retrieval.map_trapezoid), "CMC-1": pytest.approx(100 * retrieval.cmc(1))}


def test_pku_reid_is_searched_in_its_second_camera_only(small_data: None, tmp_path: Path) -> None:
    abnormal = get("pku-reid/retrieval").runs[-1]
    done = reproduce(plan(get("pku-reid/retrieval"), only=f"method=osm_caa,noise={abnormal['noise']}", quick=True, output=tmp_path))
    (run,) = done.runs
    assert (run.settings.method, run.settings.noise) == ("osm_caa", abnormal["noise"])
    test = files("pku_reid", "test")
    first, camera = test.take(test.groups["orientation"] == 1), test.groups["camera"][test.groups["orientation"] == 1]
    retrieval = retrieve(run, first.take(camera == 1), first.take(camera == 2))
    ours = {one.cell.metric: one.ours for one in done.cells if one.ours is not None}
    shares = {"plain_mAP": retrieval.map, "CMC-1": retrieval.cmc(1), "CMC-5": retrieval.cmc(5)}
    assert ours == {name: pytest.approx(100 * share) for name, share in shares.items()}


def test_retrieval_is_computed_once_and_then_read_from_the_run_folder(small_data: None, tmp_path: Path) -> None:
    asked = plan(get("gr/table7"), output=tmp_path, **CHOICE)
    (run,) = reproduce(asked).runs
    file = run.path / "retrieval.json"
    file.write_text(json.dumps({**json.loads(file.read_text()), "cmc1": 0.25}))
    for results in tmp_path.glob("*.json"):
        results.unlink()
    again = reproduce(plan(get("gr/table7"), output=tmp_path, **CHOICE))
    assert [one.ours for one in again.cells if one.cell.metric == "CMC-1" and one.ours is not None] == [25]


def test_tracklets_without_queries_are_refused_before_any_training(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_all(tmp_path / "data")
    shutil.rmtree(tmp_path / "data/MARS/info")
    monkeypatch.setenv("NOISEWISE_DATA", str(tmp_path / "data"))
    with refused("'mars'"):
        reproduce(plan(get("imae/supplement-table6"), output=tmp_path / "out", **CHOICE))
    assert not list((tmp_path / "out").glob("*"))
