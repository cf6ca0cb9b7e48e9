"""Our own findings: the conditions that decide each of them, and what a page of the documentation shows of their results."""

from __future__ import annotations

from collections.abc import Iterator

from noisewise.papers._claims import Claim, Part, Selection, conditions
from noisewise.papers._compared import compared
from noisewise.papers._page import can_draw, picture_file, results_table, runs_of
from noisewise.papers._recipes import get
from noisewise.papers._results import Results
from noisewise.papers._results import results as committed_results


def _cell(recipe: str, row: str, column: str, **settings: object) -> Selection:
    return f"findings/{recipe}", {"row": row, "column": column, **settings}


def _size() -> Iterator[Part]:
    for loss in ("CE", "IMAE"):

        def learned(decay: float, loss: str = loss) -> tuple[Selection, ...]:
            return tuple(_cell("size", f"{loss}, {size}", "noisy_subset", weight_decay=decay) for size in ("1", "1/64"))

        words = f"{loss}, weight decay 0.0001: divided by 64, it learns fewer wrong labels"
        yield Part(words, learned(1e-4), lambda seen: seen[0] - seen[1])
        words = f"{loss}: dividing by 64 makes more of a difference to that than without weight decay"
        yield Part(words, (*learned(1e-4), *learned(0.0)), lambda seen: seen[0] - seen[1] - seen[2] + seen[3])


def _batches() -> Iterator[Part]:
    def learned(classes: int, model: str) -> tuple[Selection, ...]:
        return tuple(_cell("batches", f"CE, {batch}", "noisy_subset", model=model) for batch in ("mixed", classes))

    for classes in (2, 8):
        words = f"CE learns fewer wrong labels from batches of {classes} classes than from mixed ones"
        yield Part(words, learned(classes, "cnn8"), lambda seen: seen[0] - seen[1])
    words = "For batches of 2 classes, the difference is smaller without batch normalisation"
    cells = (*learned(2, "cnn8"), *learned(2, "cnn8(norm='none')"))
    yield Part(words, cells, lambda seen: abs(seen[0] - seen[1]) - abs(seen[2] - seen[3]))


def _classes() -> Iterator[Part]:
    for noise, words in (("none", "Without noise"), ("symmetric(0.4)", "40 % noise")):
        cells = tuple(_cell("classes", row, "unlearned", noise=noise) for row in ("MAE", "scaled MAE"))
        yield Part(f"{words}: MAE gives up more classes than scaled MAE", cells, lambda seen: seen[0] - seen[1])


def _saturation() -> Iterator[Part]:
    def ends(loss: str, *values: str) -> tuple[Selection, ...]:
        return tuple(_cell("saturation", f"{loss}, {value}", "final") for value in values)

    for loss in ("IMAE", "IMAE plain", "GR"):
        yield Part(
            f"{loss} ends more than ten points higher with 1e-3 than with 0", ends(loss, "1e-3", "0"), lambda seen: seen[0] - seen[1] - 10
        )
        cells = ends(loss, "5e-9", "1e-6", "1e-3", "1e-2", "5e-2")
        yield Part(f"{loss} ends within five points for all values from 5e-9 to 5e-2", cells, lambda seen: 5 - (max(seen) - min(seen)))


FINDINGS: dict[str, Claim] = {
    "findings/size": Claim("The size of a loss acts through weight decay", "CIFAR-10 with 40 % wrong labels, ResNet-20.", (*_size(),)),
    "findings/batches": Claim("Batches of few classes change what is memorised", "CIFAR-10 with 40 % wrong labels.", (*_batches(),)),
    "findings/classes": Claim("MAE gives up whole classes by luck", "CIFAR-10, ResNet-20, ten seeds.", (*_classes(),)),
    "findings/saturation": Claim("IMAE and GR need saturation, of any size", "CIFAR-10 with 40 % wrong labels.", (*_saturation(),)),
}
"""The claims of our own findings, by recipe."""


def has_results(name: str, results: Results | None = None) -> bool:
    """Whether every run of a finding has results; by default those that come with the package."""
    recipe = get(name)
    return len(runs_of(recipe, results or committed_results())) == len(recipe.runs)


def finding(name: str, results: Results | None = None) -> str:
    """What the page of a finding shows of its results, in Markdown: the figure, the conditions with verdicts, and all numbers."""
    recipe, results = get(name), results or committed_results()
    if not has_results(name, results):
        return f"The runs of this page are missing. `noisewise reproduce {name}` trains them."
    lines = [f"![{recipe.caption}](../{picture_file(recipe)})", ""] if can_draw(recipe, results) else []
    lines += ["## Conditions", "", *conditions(FINDINGS[name], results), "", "## All numbers", ""]
    return "\n".join([*lines, *results_table(compared(recipe, results))])
