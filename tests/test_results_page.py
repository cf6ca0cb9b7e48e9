"""The page of results says which of its sections are older than the code they measure."""

import sys
from pathlib import Path
from types import ModuleType

import pytest

BENCHMARKS = Path(__file__).parents[1] / "benchmarks"


@pytest.fixture
def results(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(BENCHMARKS)
    monkeypatch.delitem(sys.modules, "results", raising=False)
    import results

    return results


def test_the_marks_on_the_page_are_true(results: ModuleType) -> None:
    page = (BENCHMARKS / "RESULTS.md").read_text(encoding="utf-8")
    assert page == results.joined(results.split(page)), "run `python benchmarks/results.py` and commit the page"


def test_code_makes_a_section_stale_and_comments_do_not(results: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(results, "SOURCE", tmp_path)
    monkeypatch.setattr(results, "PAGE", tmp_path / "RESULTS.md")

    def write(noise: str) -> str:
        (tmp_path / "noise.py").write_text(noise, encoding="utf-8")
        results.digest.cache_clear()
        return str(results.joined(results.split(results.PAGE.read_text(encoding="utf-8")))) if results.PAGE.exists() else ""

    write("def rate(x):\n    return x + 1\n")
    results.write_section("Noise", ["1 s"])
    measured = results.PAGE.read_text(encoding="utf-8")
    assert "1 s\n\nMeasured: `noise` " in measured and results.STALE not in measured
    assert write('def rate(x):\n    """A docstring."""\n    return (x\n            + 1)  # a comment\n') == measured
    stale = write("def rate(x):\n    return x + 2\n")
    assert f"## Noise\n\n{results.STALE}\n\n1 s\n" in stale
    results.PAGE.write_text(stale, encoding="utf-8")
    assert write("def rate(x):\n    return x + 1\n") == measured


def test_a_section_that_does_not_say_what_it_measured_is_stale(results: ModuleType) -> None:
    assert results.STALE in results.marked("## Noise\n\n1 s\n")
