"""The report: one page that shows what each loss did to the right and to the wrong labels.

``report(["runs"], "report.html")`` reads run folders, wherever they were trained, and writes a page that opens offline. `_gather`
works out what is shown, `_render` writes it as HTML; `_facts` is what they agreed on. Nothing here trains.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from os import PathLike
from pathlib import Path
from typing import Any

from noisewise.dynamics import find_runs
from noisewise.errors import invalid_parameter
from noisewise.output import check_output, check_replacing, is_page, written_output
from noisewise.report._gather import gather
from noisewise.report._render import render

__all__ = ["report"]


def report(
    runs: str | PathLike[str] | Iterable[str | PathLike[str]],
    output: str | PathLike[str] = "report.html",
    *,
    title: str = "What the losses did",
    data: Any = None,
    tell: Callable[[str], None] = lambda line: None,
) -> Path:
    """Write a page about runs.

    Args:
        runs: runs, run folders, or folders that hold run folders.
        output: the file to write; it ends in .html.
        title: of the page.
        data: what the runs were trained on, for the pictures of doubtful examples; by default the data that all of the given runs
            hold, or else they are looked for where each run says its data came from.
        tell: told what is being done.

    Returns:
        The file that was written.

    Example:
        >>> import tempfile
        >>> from noisewise import fit
        >>> folder = tempfile.mkdtemp()
        >>> run = fit("linear", "digits", loss="gce(q=0.7)", noise="symmetric(0.4)", epochs=2, folder=f"{folder}/run")
        >>> report(run, f"{folder}/report.html").name
        'report.html'
    """
    file = check_page(output)
    given = list(runs) if isinstance(runs, Iterable) and not isinstance(runs, str | PathLike) else [runs]
    if not given:
        raise invalid_parameter("runs", "report", "at least one run or folder of runs", given)
    page = render(gather(find_runs(given), title=title, data=_held_by_all(given) if data is None else data, tell=tell))
    with written_output(file) as part:
        part.write_text(page, encoding="utf-8")
    return file


def check_page(output: str | PathLike[str]) -> Path:
    """The file of a page, after a check that it can be written and that nobody else's is lost by it."""
    file = check_output(output, "report", [".html"])
    check_replacing(file, None, is_page, "page")
    return file


def _held_by_all(runs: Sequence[str | PathLike[str]]) -> Any:
    """The data that every run holds, where that is one object; what another run was trained on would show the wrong examples."""
    held = [getattr(run, "data", None) for run in runs]
    return held[0] if held and all(data is held[0] for data in held) else None
