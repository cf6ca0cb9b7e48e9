"""Our own findings: each command trains its runs, its conditions can come out each way, and its page is made from results."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from made import made, outcome

from noisewise import fit, papers, reproduce
from noisewise.data import Dataset
from noisewise.papers import FINDINGS, Portion, Results, compared, finding, get, has_results, results
from noisewise.reproduce import picture

PAGES = Path(__file__).parents[2] / "docs/research"


def _complete(name: str, seeds: int = 3) -> Results:
    """Results of every run of a finding, all different."""
    rng, runs = np.random.default_rng(0), []
    for settings in get(name).runs:
        for seed in range(seeds):
            numbers = {metric: float(rng.uniform(0.1, 0.9)) for metric in ("final", "noisy_subset", "clean_subset")}
            run = outcome(dict(settings), seed=seed, **numbers, unlearned=float(rng.integers(0, 4)))
            runs.append(replace(run, classes={"cat": float(rng.uniform()), "dog": 0.0}))
    return Results([Portion(name, "2031-01-02T00:00:00+00:00", tuple(runs))])


@pytest.mark.parametrize("name", FINDINGS)
def test_a_finding_can_come_out_each_way(name: str, tmp_path: Path) -> None:
    claim = FINDINGS[name]
    assert claim.verdict(Results()) == "not run yet"
    for part in claim.parts:
        cells = [one.cell for one in part.beside(Results())]
        assert len(cells) == len(part.cells), part.words
        verdicts = set()
        for index, numbers in enumerate(
            (
                [50.0] * len(cells),
                [9.0, 1.0, 5.0, 5.0, 9.0],
                [30.0, 5.0, 9.0, 30.0, 2.0],
                [1.0, 8.0, 9.0, 2.0, 4.0],
                [5.0, 5.0, 9.0, 1.0, 3.0],
            )
        ):
            found = made(tmp_path / f"{part.words[:40]} {index}".replace("/", "-"), list(zip(cells, numbers, strict=False)), seeds=range(3))
            verdicts.add(part.verdict(part.beside(found)).words)
        assert {"held", "did not hold"} <= verdicts, part.words


@pytest.mark.parametrize("name", FINDINGS)
def test_the_page_of_a_finding_has_the_numbers_of_the_results(name: str, tmp_path: Path) -> None:
    found, recipe = _complete(name), get(name)
    assert has_results(name, found) and not has_results(name, Results())
    text = finding(name, found).replace("\N{NO-BREAK SPACE}", " ")
    for cell in compared(recipe, found):
        assert cell.ours == pytest.approx(np.mean([*cell.by_seed.values()])) and len(cell.by_seed) == 3
        number = f"{cell.ours:.3f}" if cell.cell.metric == "unlearned" else f"{cell.ours:.1f}"
        assert re.search(rf"\| {re.escape(cell.cell.words)} \|.* {number} ± ", text), cell
    for part in FINDINGS[name].parts:
        assert f"| {part.words} |" in text and str(part.verdict(part.beside(found))) in text
    assert "/ –" not in text
    assert f"(../{papers.picture_file(recipe)})" in text
    assert picture(recipe, found, tmp_path / "x.svg").stat().st_size > 10_000


@pytest.mark.parametrize("name", FINDINGS)
def test_a_page_says_that_its_runs_are_missing_or_shows_committed_results(name: str) -> None:
    page = (PAGES / f"{name.partition('/')[2]}.md").read_text(encoding="utf-8")
    assert f"{{{{ table of results of {name} }}}}" in page and f"noisewise reproduce {name} --show" in page
    assert has_results(name) == ("are missing" not in finding(name))


@pytest.mark.parametrize("name", FINDINGS)
def test_the_commands_on_the_page_choose_runs(name: str) -> None:
    page = (PAGES / f"{name.partition('/')[2]}.md").read_text(encoding="utf-8")
    chosen = re.findall(rf"^\$ noisewise reproduce {name} --only (\S+) ", page.replace('"', ""), re.MULTILINE)
    counts = {only: len(reproduce.plan(get(name), only=only, seeds=[0]).tasks) for only in chosen}
    assert all(0 < number < len(get(name).runs) for number in counts.values()), counts


@pytest.mark.filterwarnings("ignore::noisewise.train.Underfitting")
def test_a_factor_is_the_rate_times_it_and_the_decay_divided_by_it(tmp_path: Path) -> None:
    generator = torch.Generator().manual_seed(0)
    data = Dataset(torch.randn(96, 6, generator=generator), torch.arange(96) % 3, ("a", "b", "c"))
    trained = []
    for number, (loss, rate, decay) in enumerate((("0.25*ce", 0.1, 0.01), ("ce", 0.025, 0.04), ("ce", 0.025, 0.01))):
        settings = {"optimiser": f"sgd(lr={rate}, momentum=0.9)", "weight_decay": decay, "device": "cpu", "epochs": 4, "batch_size": 32}
        run = fit("mlp(hidden=(8,), norm='batch')", data, loss=loss, folder=tmp_path / str(number), **settings)  # type: ignore[arg-type]
        trained.append(torch.cat([value.flatten() for name, value in run.model().state_dict().items() if "weight" in name]))
    torch.testing.assert_close(trained[0], trained[1], rtol=1e-5, atol=1e-6)
    assert (trained[0] - trained[2]).abs().max() > 1e-3, "the decay makes a difference here"


def test_a_result_has_the_test_accuracy_of_each_class(small_data: None, tmp_path: Path) -> None:
    plan = reproduce.plan(get("findings/classes"), only="noise=none,loss=0.5*mae", quick=True, output=tmp_path)
    done = reproduce.reproduce(plan, jobs=1)
    (run,) = (run for run in results(done.files["results"]).of(plan.recipe.runs[0]))
    accuracies = done.runs[0].dynamics.class_accuracies()
    assert accuracies and run.classes == {name: pytest.approx(share, rel=1e-3) for name, share in accuracies.items()}
    assert run.numbers["unlearned"] == len(done.runs[0].dynamics.unlearned)
    assert len(results().of({**get("imae/table6").runs[0]})[0].classes) == 0, "older results have none"
