"""What the leaderboard compares, read from `board.toml`: how to train, on what, and which losses and methods.

    [protocols.resnet20]          how to train: a title, the rows (or "losses", "methods"), the conditions and the settings of a run;
                                  `tuned` also trains the candidates of losses, a `hidden` protocol is shown only if it is asked for;
                                  `compile` has an effect on a GPU only
    [data.cifar10]                a data set, the number of its training examples, and its conditions: a noise, and the share of wrong
                                  labels, which methods are told where they have {rate}
    [losses.GCE]                  a row: the published spec (one per data set if they differ), and other candidates to choose from;
                                  `all_above` stands for the specs of all losses above
    [methods.elr]                 a row: the method, and the loss it uses if that is not ce
    [left_out]                    losses without a row, and why
    [[marks]]                     accuracies that others published, in %

Names may be patterns: "cifar10 *" are all conditions of CIFAR-10. Tests check the file; a mistake in it raises a KeyError or a ValueError
here.
"""

from __future__ import annotations

import tomllib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase
from functools import cache
from importlib.resources import files
from typing import Any

from noisewise.errors import unknown


@dataclass(frozen=True)
class Spec:
    """What a run is trained with.

    Args:
        loss: a loss spec.
        method: a method spec.
    """

    loss: str
    method: str = "plain"

    def __str__(self) -> str:
        return self.loss if self.method == "plain" else self.method


@dataclass(frozen=True)
class Condition:
    """A data set with a noise.

    Args:
        data: the spec of the data set.
        title: its name, for people.
        examples: the number of its training examples.
        short: the name of the noise, such as "sym 40".
        noise: the spec of the noise.
        wrong: the share of wrong labels.
    """

    data: str
    title: str
    examples: int
    short: str
    noise: str
    wrong: float

    @property
    def name(self) -> str:
        """Such as "cifar10 sym 40"."""
        return f"{self.data} {self.short}"


@dataclass(frozen=True)
class Row:
    """A loss or a method.

    Args:
        name: its name.
        source: where the published setting is from.
        published: the published spec, by data set; empty for a row that is only a choice among others.
        choices: all specs to choose from, by data set, if there are several.
    """

    name: str
    source: str
    published: Mapping[str, Spec]
    choices: Mapping[str, tuple[Spec, ...]]

    def every(self, data: str) -> tuple[Spec, ...]:
        """The published spec for a data set, and all others to choose from."""
        return self.choices.get(data, tuple(spec for spec in [self.published.get(data)] if spec is not None))

    def spec(self, condition: Condition) -> Spec | None:
        """The published spec with the noise rate filled in, or None if no spec was published for the data set."""
        spec = self.published.get(condition.data)
        return None if spec is None else replace(spec, method=spec.method.format(rate=condition.wrong))


@dataclass(frozen=True)
class Protocol:
    """How to train.

    Args:
        name: its name.
        title: its title.
        about: what it is.
        settings: the settings of a run, without data, noise, loss, method and seed.
        rows: its rows.
        conditions: its conditions.
        tuned: whether the candidates are trained too.
        hidden: whether it is shown only if it is asked for.
    """

    name: str
    title: str
    about: str
    settings: Mapping[str, Any]
    rows: tuple[Row, ...]
    conditions: tuple[Condition, ...]
    tuned: bool = False
    hidden: bool = False

    def choices(self, row: Row, condition: Condition) -> tuple[Spec, ...]:
        """The specs of a row to choose from; none if only the published one is trained."""
        return row.choices.get(condition.data, ()) if self.tuned else ()

    def specs(self, condition: Condition) -> list[Spec]:
        """All specs that are trained: the published ones first, so that a part of the runs compares all rows."""
        published = [spec for row in self.rows if (spec := row.spec(condition)) is not None]
        return list(dict.fromkeys([*published, *(spec for row in self.rows for spec in self.choices(row, condition))]))

    def settings_of(self, condition: Condition, spec: Spec) -> dict[str, Any]:
        """The settings of a run, without the seed."""
        return {"data": condition.data, "noise": condition.noise, "loss": spec.loss, "method": spec.method, **self.settings}


@dataclass(frozen=True)
class Mark:
    """Accuracies that others published.

    Args:
        name: what they trained.
        source: the paper.
        trained: how they trained it.
        protocols: the protocols that it is shown with.
        accuracy: by the name of the condition, in %.
    """

    name: str
    source: str
    trained: str
    protocols: tuple[str, ...]
    accuracy: Mapping[str, float]


@dataclass(frozen=True)
class Board:
    """Everything that is compared.

    Args:
        protocols: how to train.
        marks: what others published.
        left_out: losses without a row, and why.
    """

    protocols: tuple[Protocol, ...]
    marks: tuple[Mark, ...] = ()
    left_out: Mapping[str, str] = field(default_factory=dict)

    def chosen(self, protocols: Sequence[str] = (), conditions: Sequence[str] = (), rows: Sequence[str] = ()) -> Board:
        """The part with these names or patterns; by default all protocols that are not hidden, with all conditions and rows.

        Example:
            >>> part = board().chosen(conditions=["* sym 40"], rows=["gce*"]).protocols[0]
            >>> part.name, [condition.name for condition in part.conditions], [row.name for row in part.rows]
            ('resnet20', ['cifar10 sym 40', 'cifar100 sym 40'], ['GCE', 'GCE, truncated'])
        """
        shown = [protocol for protocol in self.protocols if not protocol.hidden]
        named = _matching("protocol", protocols, [protocol.name for protocol in self.protocols])
        kept = [protocol for protocol in self.protocols if protocol.name in named] if protocols else shown
        under = _matching("condition", conditions, [condition.name for protocol in kept for condition in protocol.conditions])
        with_rows = _matching("row", rows, [row.name for protocol in kept for row in protocol.rows])
        parts = [
            replace(
                protocol,
                conditions=tuple(condition for condition in protocol.conditions if not conditions or condition.name in under),
                rows=tuple(row for row in protocol.rows if not rows or row.name in with_rows),
            )
            for protocol in kept
        ]
        return replace(self, protocols=tuple(part for part in parts if part.conditions and part.rows))


def _matching(kind: str, patterns: Sequence[str], names: Iterable[str]) -> set[str]:
    """The names that match a pattern, whatever their case; every pattern must match one."""
    known, found = dict.fromkeys(names), set[str]()
    for pattern in patterns:
        matching = {name for name in known if fnmatchcase(name.lower(), pattern.lower())}
        if not matching:
            raise unknown(f"{kind} of the leaderboard", pattern, known)
        found |= matching
    return found


@cache
def board() -> Board:
    """What the leaderboard compares."""
    return read_board((files("noisewise.leaderboard") / "board.toml").read_text(encoding="utf-8"))


def read_board(text: str) -> Board:
    """What is compared, from the text of a file such as `board.toml`."""
    written = tomllib.loads(text)
    conditions = [
        Condition(data, entry["title"], entry["examples"], short, **kind)
        for data, entry in written["data"].items()
        for short, kind in entry["conditions"].items()
    ]
    rows: dict[str, dict[str, Row]] = {"losses": {}, "methods": {}}
    for name, entry in written.get("losses", {}).items():
        rows["losses"][name] = _loss(name, entry, list(written["data"]), list(rows["losses"].values()))
    for name, entry in written.get("methods", {}).items():
        spec = dict.fromkeys(written["data"], Spec(entry.get("loss", "ce"), entry["method"]))
        rows["methods"][name] = Row(name, entry.get("source", ""), spec, {})
    return Board(
        tuple(_protocol(name, entry, conditions, rows) for name, entry in written["protocols"].items()),
        tuple(Mark(**{**entry, "protocols": tuple(entry["protocols"])}) for entry in written.get("marks", ())),
        written.get("left_out", {}),
    )


def _loss(name: str, entry: Mapping[str, Any], data_sets: Sequence[str], above: Sequence[Row]) -> Row:
    if entry.get("all_above", False):
        specs = {data: [spec for row in above for spec in row.every(data)] for data in data_sets}
        return Row(name, entry["source"], {}, {data: tuple(dict.fromkeys(several)) for data, several in specs.items()})
    written = entry["published"]
    published = {data: Spec(spec) for data, spec in (dict.fromkeys(data_sets, written) if isinstance(written, str) else written).items()}
    candidates = tuple(map(Spec, entry.get("candidates", ())))
    return Row(
        name,
        entry["source"],
        published,
        {data: tuple(dict.fromkeys([spec, *candidates])) for data, spec in published.items() if candidates},
    )


def _protocol(name: str, entry: Mapping[str, Any], conditions: Sequence[Condition], rows: Mapping[str, Mapping[str, Row]]) -> Protocol:
    every = {**rows["losses"], **rows["methods"]}
    under = _matching("condition", entry["conditions"], [condition.name for condition in conditions])
    return Protocol(
        name,
        entry["title"],
        entry["about"],
        entry["settings"],
        tuple(row for each in entry["rows"] for row in (rows[each].values() if each in rows else [every[each]])),
        tuple(condition for condition in conditions if condition.name in under),
        entry.get("tuned", False),
        entry.get("hidden", False),
    )
