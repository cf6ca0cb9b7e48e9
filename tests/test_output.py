"""A file is refused before any work, or there whole."""

from pathlib import Path

import pytest

from noisewise.errors import InputError
from noisewise.output import check_output, written_whole


@pytest.mark.parametrize(
    ("name", "sentence"),
    [
        ("page.pdf", r"The 'output' parameter of report must be a file that ends in \.html"),
        ("nowhere/page.html", "cannot be written: the folder .*nowhere' does not exist. Make it first"),
        ("folder.html", "cannot be written. Give another output file"),
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
