"""The recipes of the papers: every one can be run, and numbers that a paper prints twice agree."""

from __future__ import annotations

import math
import re
import tomllib
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from made import made, outcome, the_cell
from scipy.integrate import quad

from noisewise import losses, models, papers
from noisewise.papers import METRICS, Cell, Portion, Recipe, Results, available, compared, get, how_many, page, results
from noisewise.papers._recipes import read
from noisewise.train import make_settings
from refused import refused

RECIPES = [get(name) for name in available()]
ORIGINAL = [recipe for recipe in RECIPES if recipe.same_as is None]
FILES = [tomllib.loads(path.read_text(encoding="utf-8")) for path in Path(papers.__file__).parent.glob("*.toml")]
CHOICES: dict[str, dict[str, str]] = {content["name"]: content["chosen"] for content in FILES}
LOSSES = sorted({spec for one in RECIPES for spec in (*(run["loss"] for run in one.runs), *(one.losses or {}).values())})


def cells(recipe: str, **wanted: str) -> dict[str, Cell]:
    """The cells of one metric whose runs have these settings, by their names in the paper."""
    metric = wanted.pop("metric")
    trained = [cell for cell in get(recipe).cells if cell.settings is not None and cell.metric == metric]
    return {cell.words: cell for cell in trained if all(cell.settings[name] == value for name, value in wanted.items())}  # type: ignore[index]


def quoted(recipe: str, source: str) -> dict[tuple[str, str], float | None]:
    return {(cell.words, cell.column): cell.value for cell in get(recipe).cells if cell.quoted is not None and source in cell.quoted}


def test_every_table_and_figure_has_a_recipe() -> None:
    tables = {
        "imae": [*(f"table{n}" for n in range(1, 7)), *(f"supplement-table{n}" for n in (4, 5, 6)), "poster-table1", "rebuttal-tableA"],
        "gr": [f"table{n}" for n in range(1, 13)],
        "curriculum": [f"table{n}" for n in range(1, 13)],
    }
    figures = {"imae": (1, 3, 4, 5, 6, 7, 8, 10), "gr": (1, 2, *range(4, 11)), "curriculum": range(1, 11)}
    for paper, names in tables.items():
        assert {f"{paper}/{name}" for name in names} <= set(available())
        assert {f"{paper}/figure{number}" for number in figures[paper]} <= set(available())


@pytest.mark.parametrize("recipe", RECIPES, ids=lambda recipe: recipe.id)
def test_every_run_of_a_recipe_has_valid_settings(recipe: Recipe) -> None:
    for run in recipe.runs:
        make_settings({**run, "loss": "ce"})  # losses are tested below
    for model in {run["model"] for run in recipe.runs}:
        with torch.device("meta"):
            models.get(model, num_classes=10)
    assert recipe.runs or recipe.losses or recipe.networks or recipe.nothing or recipe.computed, "a recipe that does nothing"
    assert (recipe.picture in ("curves", "dynamics", "margins", "start")) == ("figure" in recipe.id)
    assert (recipe.picture in ("sweep", "classes")) == (recipe.sweep is not None)
    if recipe.runs and recipe.same_as is None:
        assert recipe.chosen, "every paper leaves some details open"


@pytest.mark.parametrize("spec", LOSSES)
def test_every_loss_of_the_recipes_takes_a_step(spec: str) -> None:
    layer = torch.nn.Linear(6, 20)
    before = layer.weight.detach().clone()
    labels = torch.arange(16) % 20
    loss = losses.get(spec)(layer(torch.randn(16, 6)), labels)
    loss.backward()
    with torch.no_grad():
        layer.weight -= 0.1 * layer.weight.grad  # type: ignore[operator]
    assert math.isfinite(loss.item()) and torch.isfinite(layer.weight).all() and not torch.equal(layer.weight, before)


def test_accuracies_are_percentages() -> None:
    for recipe in RECIPES:
        for cell in recipe.cells:
            if cell.value is not None and cell.metric in METRICS and METRICS[cell.metric].unit == "%":
                assert 0 < cell.value <= 100, (recipe.id, cell)
            if cell.deviation is not None:
                assert 0 <= cell.deviation < 5, (recipe.id, cell)


def test_best_is_never_below_final() -> None:
    for name in ("imae/table6", "gr/table3", "gr/table11"):
        values = {metric: [cell.value for cell in get(name).cells if cell.metric == metric] for metric in ("best", "final")}
        assert all(best >= final for best, final in zip(values["best"], values["final"], strict=True) if best and final)


def test_hybrid_accuracy_is_on_the_whole_training_set_and_not_on_its_clean_subset() -> None:
    of_run: dict[str, dict[str, float]] = {}
    for cell in get("imae/table6").cells:
        if cell.value is not None:
            assert cell.settings is not None
            of_run.setdefault(f"{cell.settings['model']} {cell.settings['noise']} {cell.words}", {})[cell.metric] = cell.value
    assert len(of_run) == 18
    for name, printed in of_run.items():
        rate = {"none": 0.0, "symmetric(0.4)": 0.4, "symmetric(0.8)": 0.8}[name.split()[1]]
        clean, noisy = 50_000 * (1 - rate), 50_000 * rate
        subset = (10_000 * printed["final"] + clean * printed["clean_subset"]) / (10_000 + clean)
        if rate == 0:
            assert abs(subset - printed["hybrid"]) < 0.15, name
            continue
        assert subset - printed["hybrid"] > 0.15, name
        right = 60_000 * printed["hybrid"] - 10_000 * printed["final"] - clean * printed["clean_subset"]
        assert 0 < right / noisy < printed["clean_subset"], f"{name}: wrongly labelled examples predicted as their true class"


def test_fitting_follows_from_both_subsets_except_for_one_misprint() -> None:
    for noise, rate in (("symmetric(0.2)", 0.2), ("symmetric(0.4)", 0.4)):
        of = {metric: cells("gr/table11", noise=noise, metric=metric) for metric in ("fitting", "clean_subset", "noisy_subset")}
        for words, cell in of["fitting"].items():
            together = (1 - rate) * of["clean_subset"][words].value + rate * of["noisy_subset"][words].value  # type: ignore[operator]
            slip = words == "CCE" and rate == 0.4
            assert (abs(together - cell.value) > 7) if slip else (abs(together - cell.value) < 0.8)  # type: ignore[operator]


def test_the_variances_of_imae_equal_their_integrals() -> None:
    for cell in get("imae/supplement-table4").cells:
        temperature = float(cell.words.removeprefix("T = "))
        mean, square = (quad(lambda p, T=n * temperature: math.exp(T * p * (1 - p)), 0, 1)[0] for n in (1, 2))
        assert cell.value is not None and abs(square - mean**2 - cell.value) <= 5.1e-4


@pytest.mark.parametrize(
    ("part", "whole", "same"),
    [
        ("imae/table1", "imae/table6", {"noise": "symmetric(0.4)", "model": "resnet56"}),
        ("gr/table11", "gr/table3", {"noise": "symmetric(0.2)"}),
        ("gr/table11", "gr/table3", {"noise": "symmetric(0.4)"}),
        ("gr/table12", "gr/table5", {"noise": "symmetric(0.2)"}),
        ("gr/table12", "gr/table5", {"noise": "symmetric(0.4)"}),
        ("gr/table12", "gr/table5", {"noise": "symmetric(0.6)"}),
        ("gr/table8", "gr/table5", {"noise": "symmetric(0.4)", "weight_decay": 1e-4, "model": "resnet44"}),
        ("curriculum/table10", "curriculum/table3", {"noise": "none"}),
        ("curriculum/table10", "curriculum/table3", {"noise": "symmetric(0.4)"}),
        ("curriculum/table10", "curriculum/table3", {"noise": "symmetric(0.8)"}),
        ("curriculum/table11", "curriculum/table3", {"noise": "none"}),
        ("curriculum/table11", "curriculum/table3", {"noise": "superclass_circular(0.4)"}),
    ],
)
def test_a_run_printed_in_two_tables_has_the_same_numbers(part: str, whole: str, same: dict[str, Any]) -> None:
    metrics = set(get(part).metrics) & set(get(whole).metrics)
    compared = 0
    for metric in metrics:
        mine, theirs = ({cell.settings["loss"]: cell for cell in cells(name, metric=metric, **same).values()} for name in (part, whole))  # type: ignore[index]
        for loss in mine.keys() & theirs.keys():
            slip = part == "curriculum/table10" and loss.startswith("shifted(normalised(mae)")
            assert (mine[loss].value == theirs[loss].value) != slip, (metric, loss)
            assert mine[loss].settings == theirs[loss].settings
            compared += 1
    assert compared >= 1


def test_numbers_quoted_from_the_same_paper_agree() -> None:
    imae, gr = quoted("imae/table3", "D2L"), quoted("gr/table5", "D2L")
    assert len(imae.keys() & gr.keys()) == 18
    assert all(imae[key] == gr[key] for key in imae.keys() & gr.keys())
    assert {column: value for (_, column), value in quoted("gr/table5", "SL").items()} == {
        column: value for (words, column), value in quoted("imae/table3", "SL").items() if words == "SL" and column != "none"
    }
    ours = {"58.1", "12.0", "31.6", "73.8", "26.0", "51.5"}
    for name in ("imae/supplement-table6", "gr/table7"):
        assert ours <= {f"{cell.value:.1f}" for cell in get(name).cells}


def test_losses_have_the_hyper_parameters_that_the_papers_list() -> None:
    for table, used in (("curriculum/table8", "curriculum/table2"), ("curriculum/table12", "curriculum/table5")):
        given: dict[str, dict[str, float | None]] = {}
        for cell in get(table).cells:
            given.setdefault(cell.column, {})[cell.words] = cell.value
        for cell in get(used).cells:
            assert cell.settings is not None
            if cell.words in given:
                assert _hyper_parameters(losses.get(cell.settings["loss"])) == {
                    name: value for name, value in given[cell.words].items() if value is not None
                }, cell.words


def _hyper_parameters(loss: Any) -> dict[str, float]:
    loss = getattr(loss, "loss", loss)
    if loss.name == "sce":
        assert loss.A == -1 and loss.alpha == pytest.approx(1 - loss.beta)
        return {"q": loss.beta}
    if hasattr(loss, "parts"):
        (first, nce), (second, mae) = loss.parts
        assert (nce.name, mae.name) == ("nce", "mae") and first == pytest.approx(1 - 2 * second), "MAE is 2 (1 − p) here, 1 − p there"
        return {"q": 2 * second}
    return {name: getattr(loss, name) for name in ("a", "q") if hasattr(loss, name)}


@pytest.mark.parametrize("table", ["curriculum/table3", "curriculum/table10", "curriculum/table11"])
def test_shifts_and_scales_have_the_tau_of_their_noise(table: str) -> None:
    tau = {(cell.words, cell.column): cell.value for cell in get("curriculum/table9").cells}
    moved = [cell for cell in get(table).cells if (cell.words, cell.column) in tau]
    assert len(moved) == 20
    for cell in moved:
        assert cell.settings is not None and cell.settings["noise"] == cell.column
        loss = losses.get(cell.settings["loss"])
        assert (loss.tau, loss.expected) == (tau[cell.words, cell.column], -5.097)  # type: ignore[attr-defined]
        assert loss.name == {"shift": "shifted", "scale": "scaled"}[cell.words.split()[1]]
        inner = loss.loss.loss  # type: ignore[attr-defined]
        assert repr(inner) == {"MAE": "mae", "AGCE": "agce(a=0.1, q=0.1)"}[cell.words.split()[0]]


def test_losses_have_the_hyper_parameters_in_the_row_names_of_gr() -> None:
    signs = {"β": "beta", "λ": "lam"}
    for name in ("gr/table3", "gr/table11", "gr/table12"):
        for cell in get(name).cells:
            assert cell.settings is not None
            named = [part.split(" = ") for part in cell.words.removeprefix("GR (").removesuffix(")").split(", ") if " = " in part]
            loss = losses.get(cell.settings["loss"].removeprefix("0.5*"))
            assert all(getattr(loss, signs[sign]) == float(value) for sign, value in named) and (bool(named) or cell.words == "CCE")


def test_the_curriculum_papers_losses_have_unit_maximum() -> None:
    d = torch.linspace(-30, 30, 60_001, dtype=torch.float64)
    for name in ("curriculum/table2", "curriculum/table3", "curriculum/table5"):
        for run in get(name).runs:
            loss = losses.get(run["loss"])
            if isinstance(loss, losses.MarginLoss):
                assert float(loss.emphasis(d).max()) == pytest.approx(1, abs=1e-4), run["loss"]


def test_all_tables_of_gr_train_with_the_same_settings() -> None:
    """Section 4.1 gives the same settings for clean and noisy labels; what it leaves open was chosen once per data set."""
    for data in ("cifar10", "cifar100"):
        runs = [run for recipe in RECIPES if recipe.paper.name == "gr" for run in recipe.runs if run["data"] == data]
        assert len({(run["steps"], run["schedule"], run["batch_size"], run["optimiser"]) for run in runs}) == 1, data


@pytest.mark.parametrize(
    ("recipes", "choice"),
    [
        (["imae/table5", "imae/supplement-table6"], "default_t"),
        ([one.id for one in ORIGINAL if "0.5*mae" in [run["loss"] for run in one.runs]], "half"),
        ([one.id for one in ORIGINAL if any(", normalise='batch'" in run["loss"] for run in one.runs)], "size"),
        (["imae/figure5", "gr/figure1"], "drawn"),
        (["curriculum/figure5"], "hyper_parameters"),
        (["curriculum/table4"], "estimated"),
        (
            [one.id for one in RECIPES if one.runs and one.runs[0]["data"].partition("(")[0] in ("clothing1m", "mars", "webvision")],
            "whole_images",
        ),
        ([one.id for one in RECIPES if any(run["model"].startswith(("cnn", "resnet34")) for run in one.runs)], "networks"),
    ],
)
def test_what_a_paper_leaves_open_is_among_the_choices(recipes: list[str], choice: str) -> None:
    assert recipes
    for name in recipes:
        assert CHOICES[get(name).paper.name][choice] in get(name).chosen, name


def test_the_epoch_of_a_test_accuracy_is_a_choice_if_the_paper_does_not_say_it() -> None:
    """These tables say that it is the last epoch; some tables of IMAE have a choice of best."""
    documented = {"imae/table1", "imae/table6", "gr/table3", "gr/table11", "curriculum/table2"}
    for recipe in ORIGINAL:
        printed = any(cell.metric == "final" and cell.value is not None for cell in recipe.cells)
        if printed and "final" in recipe.metrics and recipe.id not in documented:
            assert CHOICES[recipe.paper.name]["final"] in recipe.chosen, recipe.id


def _paper(table: dict[str, Any], **more: Any) -> dict[str, Any]:
    about = dict.fromkeys(("name", "short", "title", "authors", "reference"), "x")
    return {**about, "settings": {}, "chosen": {}, "table1": {"caption": "", **table}, **more}


ROW = {"data": "digits", "model": "mlp", "epochs": 1, "columns": ["final", "best"]}


@pytest.mark.parametrize(
    ("table", "mentions"),
    [
        ({**ROW, "colums": []}, ["x/table1", "'colums'", "'columns'"]),
        ({**ROW, "columns": ["finl"], "block": [{"rows": [["CE", "ce", 1.0]]}]}, ["x/table1", "'finl'", "'final'"]),
        ({**ROW, "block": [{"rows": [["CE", {"los": "ce"}, 1.0, 2.0]]}]}, ["x/table1", "'los'", "'loss'"]),
    ],
)
def test_a_file_with_a_mistake_is_refused(table: dict[str, Any], mentions: list[str]) -> None:
    with refused(*mentions):
        read(_paper(table))


def test_every_explanation_of_a_difference_matches_a_cell() -> None:
    for recipe in RECIPES:
        assert all(any(cell.fits(**where) for cell in recipe.cells) for where, _ in recipe.differs), recipe.id


def test_numbers_are_read_as_printed() -> None:
    block = {"across": "noise", "columns": ["none", "pair(0.1)", "pair(0.2)"], "metric": "final", "times": 100}
    rows = [["CE", "ce", 0.81, "0.563 ± 0.012", "–"]]
    (recipe,) = read(_paper({"data": "digits", "model": "mlp", "steps": 1, **block, "block": [{"rows": rows}]}))
    assert [(cell.value, cell.deviation) for cell in recipe.cells] == [(81.0, None), (56.3, 1.2), (None, None)]
    assert [run["noise"] for run in recipe.runs] == ["none", "pair(0.1)", "pair(0.2)"]
    assert np.unique([cell.metric for cell in recipe.cells]).tolist() == ["final"]


def test_an_unknown_recipe_is_refused_with_similar_names() -> None:
    with refused("'imae/table66'", "'imae/table6'"):
        get("imae/table66")


def _shown(outcomes: Results | None = None) -> str:
    """The page, with plain spaces for no-break spaces."""
    return page(outcomes).replace("\N{NO-BREAK SPACE}", " ")


def test_the_page_of_recipes_has_every_number_and_every_choice() -> None:
    shown = _shown()
    for recipe in RECIPES:
        assert f"### {recipe.id}\n\n{recipe.caption}.\n" in shown
        assert all(f"- {sentence}\n" in shown for sentence in (*recipe.chosen, *recipe.slips) if recipe.same_as is None)
        assert all(sentence in shown for sentence in (recipe.not_run, recipe.nothing) if sentence)
    assert all(f"| {name.replace('_', ' ')} | {metric.words}" in shown for name, metric in METRICS.items())
    alone = _shown(Results())
    assert "| `resnet56` | `symmetric(0.8)` | IMAE | 37.1 | 34.0 | 13.0 | 44.7 | 34.8 |\n" in alone
    assert "| `human(fine)` | MAE scale | 54.7 ± 0.48 |\n" in alone


def test_the_section_of_a_paper_links_to_every_recipe() -> None:
    shown = page()
    for recipe in RECIPES:
        assert f"[{recipe.id.partition('/')[2]}](#{recipe.id.lower().replace('/', '')})" in shown


def test_the_page_shows_our_results_next_to_those_of_the_papers(tmp_path: Path) -> None:
    at = {"noise": "symmetric(0.4)", "model": "resnet56", "row": "CCE"}
    outcomes = made(
        tmp_path, [(the_cell("imae/table6", column="final", **at), 63.9), (the_cell("imae/table6", column="noisy_subset", **at), 60.0)]
    )
    assert "63.9\N{NO-BREAK SPACE}/ 63.3" in page(outcomes), "a line may break between the two numbers only"
    shown = _shown(outcomes)
    how = "Run on 2031-01-02: 1 run; seed 0; noisewise 9.1, torch 3.0, device H, precision bfloat16.\n"
    assert shown.count(how) > 1, "once in every table that has the run"
    assert "| CCE | 63.9 / 63.3 | **60.0** / 75.0 | 96.2 |\n" in shown, "table 1 shows the run of table 6"
    assert "| `resnet56` | `symmetric(0.4)` | CCE | 81.6 | 63.9 / 63.3 | **60.0** / 75.0 | 96.2 | 63.6 |\n" in shown
    assert "2 of the paper's 9 numbers were run.\n" in shown and "2 of the paper's 84 numbers were run.\n" in shown
    assert shown.count("numbers were run") == 2, "tables without results have no such sentence"


def test_the_page_shows_the_spread_of_several_seeds() -> None:
    settings = the_cell("gr/table9", row="L2", column="none").settings
    runs = tuple(outcome(dict(settings or {}), seed=seed, final=final) for seed, final in ((0, 0.74), (5, 0.76)))
    shown = _shown(Results([Portion("gr/table9", "2031-01-02", runs)]))
    assert "seeds 0, 5;" in shown
    assert "| `resnet44` | `none` | `0.0001` | L2 | 75.0 ± 1.4 / 76.4 |\n" in shown


def test_the_guide_names_the_tables_that_were_run_in_full() -> None:
    committed = results()
    counts = {one.id: how_many(compared(one, committed)) for one in RECIPES if one.same_as is None and not one.computed}
    complete = [name for name, (run, printed) in counts.items() if run == printed > 0]
    guide = (Path(__file__).parents[2] / "docs/papers.md").read_text(encoding="utf-8")
    listed = guide.partition("run in full:")[2].partition("\n\n")[0]
    assert re.findall("`([^`]+)`", listed) == complete
