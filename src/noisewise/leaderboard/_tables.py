"""Arrange results in tables: a row for each loss or method, a column for each noise.

A loss with several settings has three rows: its published setting; the setting with the best test accuracy, which nobody can choose
without clean labels ("oracle"); and, for each seed, the setting with the best accuracy on held-out noisy labels ("held out").
"""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import groupby

from noisewise.dynamics import Spread, over_seeds
from noisewise.errors import unknown
from noisewise.leaderboard._board import Board, Condition, Mark, Protocol, Row, Spec
from noisewise.leaderboard._results import Result, Results

MEASURES = {
    "final": "test accuracy after the last epoch, in %",
    "best": "test accuracy of the best epoch that was evaluated, in %; the epoch is chosen on the test set",
    "held_out": "accuracy on the held-out share, by its noisy labels, in %",
    "learned": "share of the wrong labels that were learned, in %",
    "balanced": "mean of the test accuracies on the classes, in %",
    "least": "test accuracy on the worst class, in %",
    "noise": "estimated share of wrong labels, in %",
}
"""What a table can show."""

PUBLISHED, ORACLE, HELD_OUT = "published", "oracle", "held out"


@dataclass(frozen=True)
class Cell:
    """The runs of a row under a condition.

    Args:
        runs: the results, by seed.
        specs: what each was trained with, by seed.
        cost: the time of all runs that the choice needs, divided by that of cross-entropy; None if it is not known.
    """

    runs: Mapping[int, Result]
    specs: Mapping[int, Spec]
    cost: float | None = None

    def over_seeds(self, measure: str = "final") -> Spread | None:
        """The mean and the standard deviation of a measure, in %; None if no run has it. A run that diverged has an accuracy of 0."""
        return over_seeds(None if (value := _value(run, measure)) is None else 100 * value for run in self.runs.values())


@dataclass(frozen=True)
class Entry:
    """A row of a table.

    Args:
        row: the loss or method.
        choice: how its setting was chosen: "published", "oracle" or "held out".
        cells: by the name of the condition.
        rank: its mean rank among the rows that need no clean labels; None if conditions are missing.
    """

    row: Row
    choice: str
    cells: Mapping[str, Cell]
    rank: float | None = None

    @property
    def name(self) -> str:
        """Such as "GCE" or "GCE, oracle"."""
        return self.row.name if self.choice == PUBLISHED else f"{self.row.name}, {self.choice}"

    @property
    def cost(self) -> float | None:
        """The mean cost over the conditions."""
        costs = [cell.cost for cell in self.cells.values() if cell.cost is not None]
        return statistics.fmean(costs) if costs else None

    @property
    def seeds(self) -> tuple[int, int]:
        """The smallest and the largest number of seeds."""
        numbers = [len(cell.runs) for cell in self.cells.values()]
        return min(numbers), max(numbers)


@dataclass(frozen=True)
class Table:
    """The rows of a protocol on a data set.

    Args:
        protocol: how they were trained.
        conditions: the columns.
        entries: the rows, the best first where they have a rank.
        marks: published accuracies to compare with.
    """

    protocol: Protocol
    conditions: tuple[Condition, ...]
    entries: tuple[Entry, ...]
    marks: tuple[Mark, ...]

    @property
    def title(self) -> str:
        return f"{self.protocol.title}: {self.conditions[0].title}"


def tables(board: Board, results: Results) -> list[Table]:
    """The tables of all protocols and data sets that have results; rows and conditions without results are left out.

    Args:
        board: what is compared.
        results: the results.
    """
    return [table for protocol in board.protocols for table in _tables_of(protocol, board.marks, results)]


def _tables_of(protocol: Protocol, marks: Sequence[Mark], results: Results) -> Iterator[Table]:
    for _, group in groupby(protocol.conditions, key=lambda condition: condition.data):
        conditions = tuple(group)
        reference = _reference(protocol, conditions, results)
        entries = [entry for row in protocol.rows for entry in _entries(protocol, row, conditions, results, reference) if entry.cells]
        shown = tuple(condition for condition in conditions if any(condition.name in entry.cells for entry in entries))
        names = {condition.name for condition in shown}
        if entries:
            fitting = (mark for mark in marks if protocol.name in mark.protocols and not names.isdisjoint(mark.accuracy))
            yield Table(protocol, shown, tuple(ranked(entries)), tuple(fitting))


def _reference(protocol: Protocol, conditions: Iterable[Condition], results: Results) -> dict[tuple[str, int], float]:
    """The mean time per image of cross-entropy, by device and number of runs at a time."""
    times: dict[tuple[str, int], list[float]] = {}
    for condition in conditions:
        for run in results.of(protocol.settings_of(condition, Spec("ce"))).values():
            if run.images_per_second:
                times.setdefault(_machine(run), []).append(1 / run.images_per_second)
    return {machine: statistics.fmean(several) for machine, several in times.items()}


def _machine(run: Result) -> tuple[str, int]:
    made_with = run.made_with or {}
    return made_with.get("device", ""), made_with.get("jobs", 0)


def _entries(
    protocol: Protocol, row: Row, conditions: Sequence[Condition], results: Results, reference: Mapping[tuple[str, int], float]
) -> Iterator[Entry]:
    """The rows of a loss or method: one for each way to choose its setting."""
    cells: dict[str, dict[str, Cell]] = {PUBLISHED: {}, ORACLE: {}, HELD_OUT: {}}
    for condition in conditions:
        published = row.spec(condition)
        runs = results.of(protocol.settings_of(condition, published)) if published is not None else {}
        if published is not None and runs:
            cells[PUBLISHED][condition.name] = Cell(runs, dict.fromkeys(runs, published), _cost([runs], list(runs), reference))
        trained = {spec: results.of(protocol.settings_of(condition, spec)) for spec in protocol.choices(row, condition)}
        cost = _cost(list(trained.values()), shared_seeds(trained), reference)
        for choice, chosen in ((ORACLE, oracle(trained)), (HELD_OUT, held_out(trained))):
            if chosen:
                picked = {seed: trained[spec][seed] for seed, spec in chosen.items()}
                cells[choice][condition.name] = Cell(picked, chosen, cost)
    return (Entry(row, choice, of_choice) for choice, of_choice in cells.items())


def _cost(trained: Sequence[Mapping[int, Result]], seeds: Sequence[int], reference: Mapping[tuple[str, int], float]) -> float | None:
    """The time per image of all runs of a seed together, divided by that of cross-entropy on the same machine."""
    runs = [by_seed[seed] for by_seed in trained for seed in seeds]
    if not runs or any(not run.images_per_second or _machine(run) not in reference for run in runs):
        return None
    return sum(1 / (run.images_per_second or 1.0) / reference[_machine(run)] for run in runs) / len(seeds)


def shared_seeds(trained: Mapping[Spec, Mapping[int, Result]]) -> list[int]:
    """The seeds that all specs were trained with."""
    return sorted(set.intersection(*(set(runs) for runs in trained.values()))) if trained else []


def oracle(trained: Mapping[Spec, Mapping[int, Result]]) -> dict[int, Spec]:
    """The spec with the best mean test accuracy over the seeds that all specs have; the first of equal ones.

    Args:
        trained: the results of every spec, by seed.

    Returns:
        The same spec for every seed; empty if the specs share no seed.
    """
    seeds = shared_seeds(trained)
    if not seeds:
        return {}
    best = max(trained, key=lambda spec: statistics.fmean(trained[spec][seed].final or 0.0 for seed in seeds))
    return dict.fromkeys(seeds, best)


def held_out(trained: Mapping[Spec, Mapping[int, Result]]) -> dict[int, Spec]:
    """For each seed that all specs have, the spec with the best accuracy on the held-out noisy labels; the first of equal ones.

    Args:
        trained: the results of every spec, by seed.

    Returns:
        The spec by seed; empty if the specs share no seed, or nothing was held out.
    """
    seeds = shared_seeds(trained)
    if any(runs[seed].held_out is None and runs[seed].diverged is None for runs in trained.values() for seed in seeds):
        return {}
    return {seed: max(trained, key=lambda spec: trained[spec][seed].held_out or 0.0) for seed in seeds}


def _value(run: Result, measure: str) -> float | None:
    if measure not in MEASURES:
        raise unknown("measure of the leaderboard", measure, MEASURES)
    if measure == "noise":
        return None if run.noise is None else run.noise[0]
    if run.diverged is not None and measure != "learned":
        return 0.0
    value: float | None = getattr(run, measure)
    return value


def ranked(entries: Sequence[Entry]) -> list[Entry]:
    """Give rows their mean rank over the conditions that all of them have, and order them by it.

    Rows that are chosen by an oracle have no rank and come last.
    """
    fair = [entry for entry in entries if entry.choice != ORACLE]
    names = [name for name in (fair[0].cells if fair else ()) if all(name in entry.cells for entry in fair)]
    columns = [ranks([_mean(entry.cells[name]) for entry in fair]) for name in names]
    means = [statistics.fmean(column[place] for column in columns) if columns else None for place in range(len(fair))]
    with_ranks = [replace(entry, rank=mean) for entry, mean in zip(fair, means, strict=True)]
    with_ranks.sort(key=lambda entry: 0.0 if entry.rank is None else entry.rank)
    return [*with_ranks, *(entry for entry in entries if entry.choice == ORACLE)]


def _mean(cell: Cell) -> float:
    spread = cell.over_seeds()
    return 0.0 if spread is None else spread.mean


def ranks(values: Sequence[float]) -> list[float]:
    """The rank of each value, 1 for the largest; equal values share the mean of their ranks.

    Example:
        >>> ranks([70.0, 90.0, 80.0, 80.0])
        [4.0, 1.0, 2.5, 2.5]
    """
    return [sum(other > value for other in values) + (values.count(value) + 1) / 2 for value in values]


def number(spread: Spread | None) -> str:
    """A mean and its standard deviation over seeds, such as "84.1 ± 0.3"; "" for None.

    Example:
        >>> number(Spread(84.06, 0.31)), number(Spread(84.06, None)), number(None)
        ('84.1 ± 0.3', '84.1', '')
    """
    if spread is None:
        return ""
    return f"{spread.mean:.1f}" + ("" if spread.deviation is None else f" ± {spread.deviation:.1f}")


def seeds_in_words(entry: Entry) -> str:
    """The number of seeds of a row, such as "3" or "1 to 3"."""
    fewest, most = entry.seeds
    return str(most) if fewest == most else f"{fewest} to {most}"


def cost_in_words(entry: Entry) -> str:
    """The cost of a row, such as "1.9 ×"."""
    return "" if entry.cost is None else f"{entry.cost:.1f} ×"


def as_json(table: Table) -> dict[str, object]:
    """A table as values for JSON."""
    rows = []
    for entry in table.entries:
        cells = {
            name: {
                "specs": list(dict.fromkeys(map(str, cell.specs.values()))),
                "seeds": list(cell.runs),
                "diverged": sum(run.diverged is not None for run in cell.runs.values()),
                **{measure: _spread_as_json(cell.over_seeds(measure)) for measure in MEASURES},
                "noise_interval": [run.noise[1:] for run in cell.runs.values() if run.noise is not None],
            }
            for name, cell in entry.cells.items()
        }
        rows.append(
            {
                "row": entry.row.name,
                "choice": entry.choice,
                "source": entry.row.source,
                "rank": entry.rank,
                "cost": entry.cost,
                "cells": cells,
            }
        )
    marks = [{"name": mark.name, "source": mark.source, "trained": mark.trained, "accuracy": dict(mark.accuracy)} for mark in table.marks]
    conditions = [condition.name for condition in table.conditions]
    return {"protocol": table.protocol.name, "title": table.title, "conditions": conditions, "rows": rows, "published": marks}


def _spread_as_json(spread: Spread | None) -> dict[str, float | None] | None:
    return None if spread is None else {"mean": spread.mean, "standard_deviation": spread.deviation}
