"""The papers' claims, the cells that decide them, and a page that shows whether our results confirm them.

A claim has parts. A part has some cells and a rule for their numbers. Tests check that the papers' own numbers satisfy the rules, where
they print any.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from noisewise.papers._compared import Compared, compared
from noisewise.papers._layout import anchor, in_words, laid_out, ours, reasons, theirs
from noisewise.papers._recipes import Recipe, available, get
from noisewise.papers._results import Results
from noisewise.papers._results import results as committed_results
from noisewise.papers._verdicts import FAILED, HELD, NOT_RUN, SEEDS, UNDECIDED, Verdict, judge, overall

Selection = tuple[str, Mapping[str, Any]]
"""The id of a recipe, and the arguments of `Cell.fits` that select one of its cells."""

Rule = Callable[[Sequence[float]], float]
"""By how many points a condition is true; negative if it is false."""


@dataclass(frozen=True)
class Part:
    """A condition that a claim implies.

    Args:
        words: the condition in words.
        cells: the cells whose numbers decide it.
        rule: takes the numbers, in the order of the cells, and returns by how many points the condition is true.
    """

    words: str
    cells: tuple[Selection, ...]
    rule: Rule

    def beside(self, results: Results) -> list[Compared]:
        """The cells, with our numbers next to the papers'."""
        cells: list[Compared] = []
        for name, where in self.cells:
            recipe = get(name)
            cells += compared(replace(recipe, cells=tuple(cell for cell in recipe.cells if cell.fits(**where))), results)
        return cells

    def verdict(self, cells: Sequence[Compared]) -> Verdict:
        """Judge the condition by its cells, from the seeds that all of them have."""
        seeds = set.intersection(*(set(cell.by_seed) for cell in cells))
        return judge([self.rule([cell.by_seed[seed] for cell in cells]) for seed in sorted(seeds)])

    def missing(self, cells: Sequence[Compared]) -> dict[str, set[int]]:
        """The seeds that are needed for a verdict from three seeds, by the id of the recipe that trains them."""
        shared = set.intersection(*(set(cell.by_seed) for cell in cells))
        wanted = list(dict.fromkeys([*sorted(shared), *get(self.cells[0][0]).seeds, *range(SEEDS)]))[:SEEDS]
        needed: dict[str, set[int]] = {}
        for (name, _), cell in zip(self.cells, cells, strict=True):
            needed.setdefault(name, set()).update(seed for seed in wanted if seed not in cell.by_seed)
        return {name: seeds for name, seeds in needed.items() if seeds}


@dataclass(frozen=True)
class Claim:
    """A claim of a paper.

    Args:
        words: the claim.
        source: the paper, the data set and what is compared.
        parts: the conditions it implies.
    """

    words: str
    source: str
    parts: tuple[Part, ...]

    def verdict(self, results: Results) -> str:
        """Whether the claim held: "held", "did not hold", "undecided" or "not run yet"."""
        return overall([part.verdict(part.beside(results)).words for part in self.parts])


def verdicts(results: Results, claims: Iterable[Claim]) -> dict[str, dict[str, int]]:
    """How many conditions of some claims held, did not hold, and so on, by the id of the recipe they need first."""
    counts: dict[str, dict[str, int]] = {}
    for part in (part for claim in claims for part in claim.parts):
        words = part.verdict(part.beside(results)).words
        of = counts.setdefault(part.cells[0][0], {})
        of[words] = of.get(words, 0) + 1
    return counts


def claims_page(results: Results | None = None) -> str:
    """Every claim and whether it held, in Markdown; by default with the results that come with the package."""
    results = results or committed_results()
    lines = [
        "# What held here",
        "",
        "This page is generated from our results. It lists the claims of the papers, the conditions each claim implies, and our numbers",
        "next to the papers'. The papers' own numbers, where they print any, satisfy every condition. All numbers, and why some differ,",
        "are on the [page of recipes](recipes.md).",
        "",
        "A condition is judged by its margin: by how many points it is true, for every seed that all its runs have.",
        f"With {SEEDS} seeds or more, the 95 % confidence interval of the mean margin (Student's t) must lie on one side of 0; with fewer",
        "seeds, every margin must be larger than ten points. Otherwise the condition is undecided. A claim held if all its conditions",
        "held, and did not hold if one of them did not.",
        "",
        "| claim | verdict | conditions: held | did not hold | undecided | not run yet |",
        "|---|---|---|---|---|---|",
    ]
    sections: list[str] = []
    for claim in CLAIMS:
        rows = [(part, part.beside(results)) for part in claim.parts]
        verdicts = [part.verdict(cells) for part, cells in rows]
        words = [verdict.words for verdict in verdicts]
        counts = " | ".join(str(words.count(kind)) for kind in (HELD, FAILED, UNDECIDED, NOT_RUN))
        lines.append(f"| [{claim.words}](#{anchor(claim.words)}) | **{overall(words)}** | {counts} |")
        sections += [f"## {claim.words}", "", claim.source, "", *conditions(claim, results), ""]
    unexplained = [f"- {recipe.id}: {'; '.join(cells)}" for recipe in map(get, available()) if (cells := _unexplained(recipe, results))]
    sections += ["## Differences that are not explained yet", "", *(unexplained or ["None."]), ""]
    return "\n".join([*lines, "", *sections])


def conditions(claim: Claim, results: Results) -> list[str]:
    """The conditions of a claim with our numbers and verdicts, as a Markdown table, and which runs are missing."""
    rows = [(part, part.beside(results)) for part in claim.parts]
    verdicts = [part.verdict(cells) for part, cells in rows]
    printed = any(cell.cell.value is not None for _, cells in rows for cell in cells)
    lines = [f"| condition | {'ours / theirs' if printed else 'numbers'} | |", "|---|---|---|"]
    for (part, cells), verdict in zip(rows, verdicts, strict=True):
        lines.append(f"| {part.words} | {_numbers(cells, printed)} | {verdict} |")
    return [*lines, "", *_missing(rows, verdicts)]


def _missing(rows: Sequence[tuple[Part, Sequence[Compared]]], verdicts: Sequence[Verdict]) -> Iterator[str]:
    """The runs that conditions without a verdict still need."""
    needed: dict[str, set[int]] = {}
    for (part, cells), verdict in zip(rows, verdicts, strict=True):
        if verdict.words in (UNDECIDED, NOT_RUN):
            for name, seeds in part.missing(cells).items():
                needed.setdefault(name, set()).update(seeds)
    if needed:
        runs = "; ".join(f"{name}, seeds {', '.join(map(str, sorted(seeds)))}" for name, seeds in needed.items())
        yield from (f"Missing for a verdict from {SEEDS} seeds: runs of {runs}.", "")


def _unexplained(recipe: Recipe, results: Results) -> list[str]:
    """The numbers that differ too much for no reason that a run supports."""
    if recipe.same_as is not None:
        return []
    found = reasons(recipe, compared(recipe, results))
    return [text for reason, texts in found.items() if reason is None or reason in recipe.guesses for text in texts]


def _numbers(cells: Sequence[Compared], printed: bool = True) -> str:
    differing = laid_out(cells).differing
    return "<br>".join(f"{ours(cell)}{f' / {theirs(cell)}' if printed else ''}: {in_words(cell, differing)}" for cell in cells)


def _cell(recipe: str, row: str, column: str, **settings: Any) -> Selection:
    return recipe, {"row": row, "column": column, **settings}


def _above(by: float = 0.0) -> Rule:
    """A rule that holds if the first number is above all others by more than `by` points."""
    return lambda numbers: numbers[0] - max(numbers[1:]) - by


def _below(numbers: Sequence[float]) -> float:
    """The first number is below all others."""
    return min(numbers[1:]) - numbers[0]


def _in_order(numbers: Sequence[float]) -> float:
    """The two halves of the numbers order three quarters of the pairs in the same way; the margin is in % of the pairs."""
    pairs = itertools.combinations(zip(*_halves(numbers), strict=True), 2)
    same = [(first[0] - second[0]) * (first[1] - second[1]) > 0 for first, second in pairs]
    return 100 * sum(same) / len(same) - 75


def _later(by: int) -> Rule:
    """The index of the largest number of the second half is larger by `by` or more than that of the first half.

    The margin is the difference between the largest sums of two numbers, one of each half, with indices that fit and that do not.
    """

    def rule(numbers: Sequence[float]) -> float:
        first, second = map(enumerate, _halves(numbers))
        sums = [(later - earlier >= by, one + other) for (earlier, one), (later, other) in itertools.product(first, second)]
        fits, others = ([total for fitting, total in sums if fitting is wanted] for wanted in (True, False))
        return max(fits) - max(others)

    return rule


def _halves(numbers: Sequence[float]) -> tuple[list[float], list[float]]:
    middle = len(numbers) // 2
    return list(numbers[:middle]), list(numbers[middle:])


_NETWORKS = {"ResNet-20": "resnet20", "ResNet-56": "resnet56"}
_FOCUSES = {  # by noise: the β that the GR paper uses with λ = 0, 0.5, 1 and 2
    "symmetric(0.2)": ("λ = 0, β = 2", "λ = 0.5, β = 12", "λ = 1, β = 16", "λ = 2, β = 24"),
    "symmetric(0.4)": ("λ = 0, β = 1", "λ = 0.5, β = 12", "λ = 1, β = 16", "λ = 2, β = 20"),
    "symmetric(0.6)": ("λ = 0, β = 0.5", "λ = 0.5, β = 12", "λ = 1, β = 12", "λ = 2, β = 12"),
    "symmetric(0.8)": ("λ = 0, β = 0.5", "λ = 0.5, β = 8", "λ = 1, β = 8", "λ = 2, β = 12"),
}
_RATES = {"symmetric(0.2)": "20 %", "symmetric(0.4)": "40 %", "symmetric(0.6)": "60 %", "symmetric(0.8)": "80 %"}
_LOSSES = ("CE", "SCE", "GCE", "AUL", "MAE", "AGCE")


def _imae(row: str, column: str, network: str, noise: str) -> Selection:
    return _cell("imae/table6", row, column, model=_NETWORKS[network], noise=noise)


def _focuses(noise: str) -> tuple[Selection, ...]:
    return tuple(_cell("gr/table3", row, "final", noise=noise) for row in _FOCUSES[noise])


def _underfits() -> Iterator[Part]:
    even = (_cell("curriculum/table3", "CE‡", "symmetric(0.4)"), _cell("curriculum/table3", "MAE", "none"))
    words = "CIFAR-100: the test accuracy of CE with 40 % wrong labels is more than twice that of MAE without noise"
    yield Part(words, even, lambda seen: seen[0] - 2 * seen[1])
    many, few = (tuple(_cell("curriculum/table2", row, "fitting", data=data) for row in ("CE", "MAE")) for data in ("cifar100", "cifar10"))
    yield Part("CIFAR-100: CE fits more than twice as many training labels as MAE", many, lambda seen: seen[0] - 2 * seen[1])
    words = "MAE fits less than CE, by less than ten points on CIFAR-10 and by more on CIFAR-100"
    yield Part(words, (*few, *many), lambda seen: min(10 - seen[0] + seen[1], seen[2] - seen[3] - 10))
    for noise, words in (("none", "no noise"), ("symmetric(0.4)", "40 % wrong labels")):
        cells = tuple(_cell("imae/table3", row, noise) for row in ("CCE", "MAE"))
        yield Part(f"CIFAR-100, {words}: the test accuracy of CE is more than twice that of MAE", cells, lambda seen: seen[0] - 2 * seen[1])


def _memorises() -> Iterator[Part]:
    for network in _NETWORKS:
        for noise in ("symmetric(0.4)", "symmetric(0.8)"):
            setting = f"{network}, {_RATES[noise]}"
            falls = tuple(_imae("CCE", column, network, noise) for column in ("best", "final"))
            yield Part(f"{setting}: the final test accuracy is more than five points below the best", falls, _above(5))
            learned = (_imae("CCE", "noisy_subset", network, noise),)
            yield Part(f"{setting}: more than 20 % of the wrong labels are learned, twice chance level", learned, lambda seen: seen[0] - 20)


def _resists() -> Iterator[Part]:
    for network in _NETWORKS:
        cells = tuple(_imae(row, "noisy_subset", network, "symmetric(0.4)") for row in ("IMAE", "MAE", "CCE"))
        yield Part(f"{network}, 40 %: IMAE learns fewer wrong labels than MAE and CCE", cells, _below)


def _rises() -> Iterator[Part]:
    least, *others = _FOCUSES
    for noise in others:
        words = f"The best λ is larger at {_RATES[noise]} than at {_RATES[least]}"
        yield Part(words, (*_focuses(least), *_focuses(noise)), _later(1))
    for less, more in itertools.pairwise(others):
        words = f"The best λ is no smaller at {_RATES[more]} than at {_RATES[less]}"
        yield Part(words, (*_focuses(less), *_focuses(more)), _later(0))


def _gains() -> Iterator[Part]:
    for noise, row in (("symmetric(0.2)", "λ = 0.5, β = 12"), ("symmetric(0.4)", "λ = 1, β = 16")):
        cells = tuple(_cell("gr/table11", row, column, noise=noise) for column in ("retrained", "final"))
        yield Part(f"{_RATES[noise]}: the second training is more accurate than the first", cells, _above())


def _leads() -> Iterator[Part]:
    for noise in ("symmetric(0.2)", "symmetric(0.4)", "symmetric(0.6)"):
        cells = tuple(_cell("imae/table3", row, noise) for row in ("IMAE", "CCE"))
        yield Part(f"{_RATES[noise]}: IMAE's best is above CCE's", cells, _above())
    for rate in (20, 30, 40):
        cells = tuple(_cell("imae/table4", row, f"superclass_swap({rate / 100})") for row in ("IMAE", "CCE"))
        yield Part(f"{rate} % of the labels of two classes of each superclass swapped: IMAE's best is above CCE's", cells, _above())


def _regularises() -> Iterator[Part]:
    counterparts = {"GR": "Baseline", "GR+L2": "L2", "GR+Dropout": "Dropout", "GR+L2+Dropout": "Dropout+L2"}
    for table, words in (("gr/table8", "40 %"), ("gr/table10", "20 % inside superclasses")):
        for rows in counterparts.items():
            cells = tuple(_cell(table, row, "final") for row in rows)
            yield Part(f"{words}: {rows[0]} ends above {rows[1]}", cells, _above())


def _beats_gce() -> Iterator[Part]:
    for noise, suited in (("symmetric(0.2)", "GR (β = 6, λ = 0.3)"), ("symmetric(0.4)", "GR (β = 6, λ = 0.4)"), ("symmetric(0.6)", None)):
        for row in filter(None, ("GR (β = 8, λ = 0.5)", suited)):
            cells = tuple(_cell("gr/table5", name, noise) for name in (row, "GCE"))
            yield Part(f"{_RATES[noise]}: {row} ends above GCE", cells, _above())


def _orders() -> Iterator[Part]:
    for noise, words in {**_RATES, "human(worst)": "Human labels"}.items():
        if noise != "symmetric(0.6)":
            cells = tuple(_cell("curriculum/table5", row, column, noise=noise) for column in ("snr", "diff") for row in _LOSSES)
            yield Part(f"{words}: in three quarters of the pairs of losses, the one with the larger snr loses less", cells, _in_order)


def _repairs() -> Iterator[Part]:
    def of(noise: str, *rows: str) -> tuple[Selection, ...]:
        return tuple(_cell("curriculum/table3", row, noise) for row in rows)

    yield Part("No noise: scaled MAE is more than 30 points above MAE", of("none", "MAE scale", "MAE"), _above(30))
    yield Part("No noise: scaled MAE is at most five points below CE", of("none", "MAE scale", "CE‡"), _above(-5))
    for noise in ("symmetric(0.4)", "symmetric(0.8)"):
        yield Part(f"{_RATES[noise]}: scaled MAE is above CE", of(noise, "MAE scale", "CE‡"), _above())


def _schedules() -> Iterator[Part]:
    def ends(*rows: str) -> tuple[Selection, ...]:
        return tuple(_cell("curriculum/figure4", row, "final") for row in rows)

    falls = tuple(_cell("curriculum/figure4", "MAE, α = 0.01", column) for column in ("best", "final"))
    yield Part("After long training, MAE ends more than two points below its best", falls, _above(2))
    larger = ends("CE, α = 0.1", "CE, α = 0.01")
    yield Part("With a larger learning rate, CE ends more than ten points higher", larger, _above(10))
    smaller = ends("CE, α = 0.001", "CE, α = 0.0001", "CE, α = 0.01")
    words = "With a learning rate that is small enough, CE also ends more than ten points higher"
    yield Part(words, smaller, lambda seen: max(seen[:-1]) - seen[-1] - 10)


def _imae_numbers() -> Iterator[Part]:
    at = ("ResNet-20", "symmetric(0.4)")
    yield Part("ResNet-20, 40 %: IMAE ends at 83 or above (paper: 84.0)", (_imae("IMAE", "final", *at),), lambda seen: seen[0] - 83)
    yield Part(
        "ResNet-20, 40 %: IMAE learns at most 7 % of the wrong labels", (_imae("IMAE", "noisy_subset", *at),), lambda seen: 7 - seen[0]
    )
    yield Part("ResNet-20, 40 %: MAE ends within three points of 75.9", (_imae("MAE", "final", *at),), lambda seen: 3 - abs(seen[0] - 75.9))
    for network in _NETWORKS:
        for noise in ("symmetric(0.4)", "symmetric(0.8)"):
            cells = tuple(_imae(row, "final", network, noise) for row in ("IMAE", "CCE", "MAE"))
            yield Part(f"{network}, {_RATES[noise]}: IMAE ends above CCE and MAE", cells, _above())


def _gr_numbers() -> Iterator[Part]:
    first = (_cell("gr/table3", "λ = 0.5, β = 12", "final", noise="symmetric(0.2)"),)
    yield Part("20 %: GR with λ = 0.5, β = 12 ends at 85.8 or above (paper: 87.8)", first, lambda seen: seen[0] - 85.8)
    for noise in _FOCUSES:
        cells = (_cell("gr/table3", "CCE", "final", noise=noise), *_focuses(noise))
        yield Part(
            f"{_RATES[noise]}: GR's best focus ends more than five points above CCE", cells, lambda seen: max(seen[1:]) - seen[0] - 5
        )


def _curriculum_numbers() -> Iterator[Part]:
    mae, scaled = (_cell("curriculum/table3", row, "none") for row in ("MAE", "MAE scale"))
    yield Part("CIFAR-100 without noise: MAE stays below 15 %", (mae,), lambda seen: 15 - seen[0])
    yield Part("CIFAR-100 without noise: scaled MAE gets above 66 %", (scaled,), lambda seen: seen[0] - 66)


def _tracklets() -> Iterator[Part]:
    abnormal = "wrong_identity(0.2, flips='exact') + no_person(0.2, flips='exact')"
    for row in ("IMAE", "GR"):
        cells = tuple(_cell("pku-reid/retrieval", name, "plain_mAP", noise=noise) for name in ("CE", row) for noise in ("none", abnormal))
        yield Part(f"The mAP of CE falls more than that of {row}", cells, lambda seen: seen[0] - seen[1] - seen[2] + seen[3])


CLAIMS: tuple[Claim, ...] = (
    Claim("MAE underfits with many classes", "IMAE and the curriculum paper: MAE learns little of a hundred classes.", (*_underfits(),)),
    Claim("CE memorises", "IMAE, on CIFAR-10: cross-entropy memorises wrong labels, and its test accuracy falls.", (*_memorises(),)),
    Claim("IMAE's noisy-subset accuracy is lowest", "IMAE, on CIFAR-10 with 40 % wrong labels.", (*_resists(),)),
    Claim(
        "IMAE is better than CE with many classes too",
        "IMAE, on CIFAR-100, by the best accuracy of a run, which its tables seem to print.",
        (*_leads(),),
    ),
    Claim(
        "GR adds to weight decay and dropout",
        "GR, on CIFAR-100: every network ends better with GR than without.",
        (*_regularises(),),
    ),
    Claim("GR is better than GCE", "GR, on CIFAR-100.", (*_beats_gce(),)),
    Claim("The best λ rises with the noise rate", "GR, on CIFAR-10: the more noise, the easier the examples to emphasise.", (*_rises(),)),
    Claim("Correcting labels and training again helps", "GR, on CIFAR-10: a network can correct its own labels.", (*_gains(),)),
    Claim(
        "Snr orders robustness",
        "The curriculum paper, on CIFAR-10: noise costs less accuracy if right labels get more emphasis than wrong ones. Its asymmetric "
        "noise is left out: there its own numbers order only ten of fifteen pairs this way.",
        (*_orders(),),
    ),
    Claim(
        "Scaling repairs MAE",
        "The curriculum paper, on CIFAR-100: MAE learns with its emphasis moved to the initial margins.",
        (*_repairs(),),
    ),
    Claim(
        "Schedules decide robustness",
        "The curriculum paper, on MNIST with constant learning rates: MAE learns wrong labels in the end, and CE can avoid it.",
        (*_schedules(),),
    ),
    Claim("IMAE's own numbers", "Table 6: CIFAR-10, the main result of the paper.", (*_imae_numbers(),)),
    Claim("GR's own numbers", "Table 3: CIFAR-10, ResNet-56.", (*_gr_numbers(),)),
    Claim("The curriculum paper's own numbers", "Table 3: CIFAR-100, ResNet-34.", (*_curriculum_numbers(),)),
    Claim(
        "Abnormal tracklets cost CE more than IMAE and GR",
        "Our own test of what IMAE and GR say about MARS, on PKU-Reid with abnormal tracklets added; no paper prints these numbers.",
        (*_tracklets(),),
    ),
)
