"""Finding runs: every run folder once, in a stable order; a path without a run is named."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from noisewise import fit
from noisewise.dynamics import find_runs
from refused import refused


def _run(folder: Path) -> Path:
    folder.mkdir(parents=True)
    (folder / "settings.json").write_text("{}")
    return folder


def test_the_folder_of_a_run_is_found(tmp_path: Path) -> None:
    run = _run(tmp_path / "run")
    assert find_runs([run]) == find_runs(run) == find_runs(str(run)) == [run]


def test_all_runs_inside_a_folder_are_found_in_alphabetical_order(tmp_path: Path) -> None:
    names = ("mae-seed1", "ce-seed0", "deep/er/gce", "mae-seed0")
    runs = {name: _run(tmp_path / name) for name in names}
    (tmp_path / "empty").mkdir()
    assert find_runs(tmp_path) == [runs[name] for name in sorted(names)]


def test_the_order_of_the_paths_is_kept_and_duplicates_are_dropped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    second, first = _run(tmp_path / "b"), _run(tmp_path / "a")
    monkeypatch.chdir(tmp_path)
    assert find_runs([second, tmp_path, "a", Path("b")]) == [second, first]
    (tmp_path / "link").symlink_to(first)
    assert find_runs(["a", "link"]) == [Path("a")]


def test_run_objects_can_be_given_instead_of_paths(tmp_path: Path) -> None:
    folders = [tmp_path / "a", tmp_path / "b"]
    runs = [fit("linear", ([[0.0], [1.0]], [0, 1]), epochs=1, device="cpu", folder=folder) for folder in folders]
    assert find_runs(runs[0]) == [folders[0]]
    assert find_runs(iter(runs)) == folders
    assert find_runs([runs[1], tmp_path, str(folders[1])]) == folders[::-1]


@pytest.mark.parametrize(("paths", "value"), [(3, 3), ([3], 3), ([None], None), (None, None)])
def test_values_that_are_neither_folders_nor_runs_are_refused(paths: Any, value: Any) -> None:
    with refused("paths", "find_runs", value):
        find_runs(paths)


def test_the_inside_of_a_run_is_not_searched(tmp_path: Path) -> None:
    run = _run(tmp_path / "run")
    _run(run / "record" / "copy")
    assert find_runs(tmp_path) == [run]


def test_hidden_folders_are_searched_only_if_they_are_named(tmp_path: Path) -> None:
    _run(tmp_path / ".vscode")  # other programs also write a settings.json
    with refused("run", tmp_path):
        find_runs(tmp_path)
    assert find_runs(tmp_path / ".vscode") == [tmp_path / ".vscode"]


def test_a_path_without_a_run_is_named(tmp_path: Path) -> None:
    run = _run(tmp_path / "run")
    (tmp_path / "file").write_text("")
    (tmp_path / "none").mkdir()
    for name in ("none", "file", "missing"):
        with refused(tmp_path / name):
            find_runs([run, tmp_path / name])
