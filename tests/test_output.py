"""Output files: refused before any work, and never half written."""

import errno
import os
import time
from pathlib import Path

import pytest

from noisewise import fit
from noisewise.draw import curves
from noisewise.errors import StorageError
from noisewise.output import check_output, check_replacing, make_folder, written_output, written_whole
from noisewise.report import report
from noisewise.runs import RunFolder
from noisewise.tables import write_blocks
from refused import refused


@pytest.mark.parametrize(
    ("name", "mentions"),
    [
        ("page.pdf", ("'output'", "report", ".html", "page.pdf")),
        ("nowhere/page.html", ("page.html", "nowhere'")),
        ("folder.html", ("folder.html",)),
        (f"{'long' * 62}.html", ("longlong", "(")),  # the name is valid, but too long together with the suffix of a temporary file
    ],
)
def test_a_file_that_cannot_be_written_is_refused(tmp_path: Path, name: str, mentions: tuple[str, ...]) -> None:
    (tmp_path / "folder.html").mkdir()
    with refused(*mentions):
        check_output(tmp_path / name, "report", [".html"])


def test_a_failed_block_keeps_the_previous_file(tmp_path: Path) -> None:
    file = tmp_path / "list.txt"
    file.write_text("before")
    with pytest.raises(RuntimeError), written_whole(file) as part:
        part.write_text("half of wh")
        raise RuntimeError
    assert file.read_text() == "before" and list(tmp_path.iterdir()) == [file]


def test_a_file_and_then_its_folder_are_synced_to_the_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    synced: list[tuple[Path, bool]] = []
    sync = os.fsync

    def watched(descriptor: int) -> None:
        synced.append((Path(f"/proc/self/fd/{descriptor}").readlink(), file.exists()))
        sync(descriptor)

    monkeypatch.setattr(os, "fsync", watched)
    for name, write in (
        ("issues.csv", lambda path: write_blocks(path, [[["a", "b"], [1, 2]]], ["id", "label"])),
        ("status.json", lambda path: RunFolder(tmp_path).write_json(path.name, {})),
        ("curves.html", lambda path: curves(["ce"], path)),
    ):
        file = tmp_path / name
        write(file)
        (part, before), (folder, after) = synced
        assert part.name.startswith(f".{name}.") and not before
        assert folder == tmp_path and after
        synced.clear()
    folder = RunFolder(tmp_path / "run")
    for name in ("record/1.npy", "record/2.npy", "metrics.jsonl", "status.json"):
        folder._write(name, b"")
    names = [path.relative_to(folder.path).name.split(".")[1 if path.suffix == ".part" else 0] for path, _ in synced]
    assert names[:4] == ["1", "2", "metrics", "status"] and sorted(names[4:]) == ["", "record"], "every folder once, after all files"


def test_two_writers_of_the_same_file_both_write_it_completely(tmp_path: Path) -> None:
    file = tmp_path / "list.txt"
    with written_whole(file) as first:
        first.write_text("first")
        with written_whole(file) as second:
            second.write_text("second")
        assert file.read_text() == "second"
    assert file.read_text() == "first" and list(tmp_path.iterdir()) == [file]


def test_temporary_files_of_killed_writers_are_removed_after_a_day(tmp_path: Path) -> None:
    file = tmp_path / "list[1].txt"
    old, new, other = (tmp_path / name for name in (".list[1].txt.aa.part", ".list[1].txt.bb.part", ".list1.txt.cc.part"))
    for path, days in ((old, 1.01), (new, 0.99), (other, 9)):
        path.write_text("half of wh")
        os.utime(path, (time.time() - 86400 * days,) * 2)
    with written_whole(file) as part:
        part.write_text("whole")
    assert set(tmp_path.iterdir()) == {file, new, other}


def test_a_full_disk_is_a_storage_error_and_keeps_the_previous_file(tmp_path: Path) -> None:
    file = tmp_path / "page.html"
    file.write_text("before")
    with refused(file, "No space left on device", kind=StorageError), written_output(file) as part:
        part.write_text("half of wh")
        raise OSError(errno.ENOSPC, "No space left on device")
    assert file.read_text() == "before" and list(tmp_path.iterdir()) == [file]


def test_input_files_and_files_of_others_are_not_replaced(tmp_path: Path) -> None:
    def by_noisewise(file: Path) -> bool:
        return file.read_text() == "by noisewise"

    mine, written = tmp_path / "mine.csv", tmp_path / "list.csv"
    mine.write_text("a,b")
    written.write_text("by noisewise")
    (tmp_path / "link.csv").symlink_to(mine)
    check_replacing(tmp_path / "new.csv", mine, by_noisewise, "list")
    check_replacing(written, mine, by_noisewise, "list")
    for same in (mine, tmp_path / "." / "mine.csv", tmp_path / "link.csv"):
        with refused(same.name):
            check_replacing(same, mine, lambda file: True, "list")
    with refused(mine):
        check_replacing(mine, "digits", by_noisewise, "list")


def test_a_folder_is_created_or_refused(tmp_path: Path) -> None:
    make_folder(tmp_path / "deep" / "down")
    assert list((tmp_path / "deep" / "down").iterdir()) == []
    (tmp_path / "file").write_text("no folder")
    with refused(tmp_path / "file" / "below"):
        make_folder(tmp_path / "file" / "below")


def test_a_report_replaces_only_a_report_or_an_empty_file(tmp_path: Path) -> None:
    run, page = fit("linear", "digits", epochs=1, folder=tmp_path / "run", device="cpu"), tmp_path / "report.html"
    page.touch()
    for _ in range(2):
        assert report(run, page) == page and page.stat().st_size > 1000
    page.write_text("<p>mine</p>")
    with refused(page):
        report(run, page)
    assert page.read_text() == "<p>mine</p>"
