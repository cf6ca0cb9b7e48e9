"""A file is refused before any work, or there whole."""

import errno
import os
import time
from pathlib import Path

import pytest

from noisewise import fit
from noisewise.draw import curves
from noisewise.errors import InputError, StorageError
from noisewise.output import check_output, check_replacing, make_folder, written_output, written_whole
from noisewise.report import report
from noisewise.runs import RunFolder
from noisewise.tables import write_blocks


@pytest.mark.parametrize(
    ("name", "sentence"),
    [
        ("page.pdf", r"The 'output' parameter of report must be a file that ends in \.html"),
        ("nowhere/page.html", "cannot be written: the folder .*nowhere' does not exist. Make it first"),
        ("folder.html", "cannot be written. Give another output file"),
        (f"{'long' * 62}.html", r"cannot be written \(.+\). Give another output."),  # only trying shows it: the name alone would do
    ],
)
def test_what_cannot_be_written_is_refused(tmp_path: Path, name: str, sentence: str) -> None:
    (tmp_path / "folder.html").mkdir()
    with pytest.raises(InputError, match=sentence):
        check_output(tmp_path / name, "report", [".html"])


def test_a_block_that_fails_leaves_what_was_there_before(tmp_path: Path) -> None:
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


def test_two_who_write_one_file_at_once_both_write_it_whole(tmp_path: Path) -> None:
    file = tmp_path / "list.txt"
    with written_whole(file) as first:
        first.write_text("first")
        with written_whole(file) as second:
            second.write_text("second")
        assert file.read_text() == "second"
    assert file.read_text() == "first" and list(tmp_path.iterdir()) == [file]


def test_what_a_killed_writer_left_is_removed_a_day_later(tmp_path: Path) -> None:
    file = tmp_path / "list[1].txt"
    old, new, other = (tmp_path / name for name in (".list[1].txt.aa.part", ".list[1].txt.bb.part", ".list1.txt.cc.part"))
    for path, days in ((old, 1.01), (new, 0.99), (other, 9)):
        path.write_text("half of wh")
        os.utime(path, (time.time() - 86400 * days,) * 2)
    with written_whole(file) as part:
        part.write_text("whole")
    assert set(tmp_path.iterdir()) == {file, new, other}


def test_what_cannot_be_written_after_all_is_one_sentence_and_leaves_what_was_there(tmp_path: Path) -> None:
    file = tmp_path / "page.html"
    file.write_text("before")
    with pytest.raises(StorageError, match=r"page.html' cannot be written \(No space left on device\)"), written_output(file) as part:
        part.write_text("half of wh")
        raise OSError(errno.ENOSPC, "No space left on device")
    assert file.read_text() == "before" and list(tmp_path.iterdir()) == [file]


def test_a_file_that_is_read_or_is_not_ours_is_not_replaced(tmp_path: Path) -> None:
    def ours(file: Path) -> bool:
        return file.read_text() == "ours"

    mine, list_of_ours = tmp_path / "mine.csv", tmp_path / "list.csv"
    mine.write_text("a,b")
    list_of_ours.write_text("ours")
    (tmp_path / "link.csv").symlink_to(mine)
    check_replacing(tmp_path / "new.csv", mine, ours, "list")
    check_replacing(list_of_ours, mine, ours, "list")
    for same in (mine, tmp_path / "." / "mine.csv", tmp_path / "link.csv"):
        with pytest.raises(InputError, match="would be lost"):
            check_replacing(same, mine, lambda file: True, "list")
    with pytest.raises(InputError, match=r"mine\.csv' already exists"):
        check_replacing(mine, "digits", ours, "list")


def test_a_folder_is_made_or_refused(tmp_path: Path) -> None:
    make_folder(tmp_path / "deep" / "down")
    assert list((tmp_path / "deep" / "down").iterdir()) == []
    (tmp_path / "file").write_text("no folder")
    with pytest.raises(InputError, match="file/below' cannot be written"):
        make_folder(tmp_path / "file" / "below")


def test_a_page_replaces_a_page_and_nothing_else(tmp_path: Path) -> None:
    run, page = fit("linear", "digits", epochs=1, folder=tmp_path / "run", device="cpu"), tmp_path / "report.html"
    page.touch()
    for _ in range(2):
        assert report(run, page) == page and page.stat().st_size > 1000
    page.write_text("<p>mine</p>")
    with pytest.raises(InputError, match=r"report\.html' already exists"):
        report(run, page)
    assert page.read_text() == "<p>mine</p>"
