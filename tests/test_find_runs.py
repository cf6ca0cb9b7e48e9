"""Finding runs: every run folder once, in a stable order, and a word for the path that holds none."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from noisewise import fit
from noisewise.dynamics import find_runs
from noisewise.errors import InputError


def _run(folder: Path) -> Path:
    folder.mkdir(parents=True)
    (folder / "settings.json").write_text("{}")
    return folder


def test_a_run_is_itself(tmp_path: Path) -> None:
    run = _run(tmp_path / "run")
    assert find_runs([run]) == find_runs(run) == find_runs(str(run)) == [run]


def test_a_folder_stands_for_every_run_inside_it_in_the_order_of_names(tmp_path: Path) -> None:
    names = ("mae-seed1", "ce-seed0", "deep/er/gce", "mae-seed0")
    runs = {name: _run(tmp_path / name) for name in names}
    (tmp_path / "empty").mkdir()
    assert find_runs(tmp_path) == [runs[name] for name in sorted(names)]


def test_the_order_of_the_paths_is_kept_and_no_run_comes_twice(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    second, first = _run(tmp_path / "b"), _run(tmp_path / "a")
    monkeypatch.chdir(tmp_path)
    assert find_runs([second, tmp_path, "a", Path("b")]) == [second, first]
    (tmp_path / "link").symlink_to(first)
    assert find_runs(["a", "link"]) == [Path("a")]


def test_runs_as_objects_stand_for_their_folders_alone_or_among_paths(tmp_path: Path) -> None:
    folders = [tmp_path / "a", tmp_path / "b"]
    runs = [fit("linear", ([[0.0], [1.0]], [0, 1]), epochs=1, device="cpu", folder=folder) for folder in folders]
    assert find_runs(runs[0]) == [folders[0]]
    assert find_runs(iter(runs)) == folders
    assert find_runs([runs[1], tmp_path, str(folders[1])]) == folders[::-1]


@pytest.mark.parametrize("something", [3, [3], [None], None])
def test_what_is_neither_a_folder_nor_a_run_is_refused(something: Any) -> None:
    with pytest.raises(InputError, match=r"The 'paths' parameter of find_runs must be folders or runs\. Got (3|None) instead\."):
        find_runs(something)


def test_what_a_run_holds_is_not_searched(tmp_path: Path) -> None:
    run = _run(tmp_path / "run")
    _run(run / "record" / "copy")
    assert find_runs(tmp_path) == [run]


def test_settings_of_other_programs_in_hidden_folders_are_no_runs(tmp_path: Path) -> None:
    _run(tmp_path / ".vscode")
    with pytest.raises(InputError, match="There is no run in"):
        find_runs(tmp_path)
    assert find_runs(tmp_path / ".vscode") == [tmp_path / ".vscode"], "a folder that is named is taken at its word"


def test_a_path_without_a_run_is_named(tmp_path: Path) -> None:
    run = _run(tmp_path / "run")
    (tmp_path / "file").write_text("")
    (tmp_path / "none").mkdir()
    for nothing in ("none", "file", "missing"):
        with pytest.raises(InputError, match=f"There is no run in .*{os.sep}{nothing}'. Give the folder of a run"):
            find_runs([run, tmp_path / nothing])
