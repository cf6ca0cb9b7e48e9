"""Which commit a folder has checked out, read from git's own files. This module must not run anything."""

from __future__ import annotations

import re
from pathlib import Path

_COMMIT = re.compile(r"[0-9a-f]{40}(?:[0-9a-f]{24})?")
_LINKS = 5  # symbolic references that point to each other are followed this far, as git does


def head_commit(folder: Path) -> str | None:
    """The commit that is checked out in the repository around a folder; None where there is no repository, or no commit yet.

    Args:
        folder: any folder of the work tree.
    """
    try:
        repository = _repository(folder.resolve())
        return None if repository is None else _resolved(repository, "HEAD")
    except (OSError, ValueError):  # not readable, or not text: then it is not known
        return None


def _repository(folder: Path) -> Path | None:
    """Git's own folder. In a linked worktree and in a submodule, `.git` is a file that says where it is."""
    for marker in (parent / ".git" for parent in (folder, *folder.parents)):
        if marker.is_dir():
            return marker
        if marker.is_file():
            return marker.parent / marker.read_text(encoding="utf-8").removeprefix("gitdir:").strip()
    return None


def _resolved(repository: Path, reference: str) -> str | None:
    """The commit a reference stands for; those of a linked worktree lie in the main repository, but for its own HEAD."""
    shared = repository / "commondir"
    common = repository / shared.read_text(encoding="utf-8").strip() if shared.is_file() else repository
    for _ in range(_LINKS):
        content = _content(repository, common, reference)
        if not content.startswith("ref: refs/") or ".." in content:
            return content if _COMMIT.fullmatch(content) else None
        reference = content.removeprefix("ref: ")
    return None


def _content(repository: Path, common: Path, reference: str) -> str:
    for folder in (repository, common):
        if (folder / reference).is_file():
            return (folder / reference).read_text(encoding="utf-8").strip()
    if (common / "packed-refs").is_file():
        with (common / "packed-refs").open(encoding="utf-8") as lines:
            for line in lines:
                commit, _, name = line.strip().partition(" ")
                if name == reference:
                    return commit
    return ""
