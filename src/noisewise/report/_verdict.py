"""The verdict: what happened, in plain sentences, the most important first.

It knows the averages over seeds of one task, that is of runs on the same data with the same model and noise. It must not read
run folders itself.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from noisewise.dynamics import Spread, finished_or_all, unlearned_sentence
from noisewise.report._facts import Average, Sentence

_UNDERFITS = 0.9  # a loss that learns less than this share of the right labels another loss learned underfits
_CLEARLY = 0.05  # more of the wrong labels than the winner: worth a word
_LEVEL = 0.0005  # of test accuracy: less than the pages show
_FORGETS = 0.03  # so far below its own best epoch a loss ends when it memorised after it had generalised


@dataclass(frozen=True)
class Standing:
    """How one loss did on a task.

    Args:
        loss: its spec.
        seeds: how many runs the averages are over.
        measures: averages by name.
        starved: the alarm that the loss hardly starts, or None.
        failed: why the runs failed that did.
        corrected: whether the runs were trained on corrected labels, so that the wrong ones among them are others.
        finished: whether they were trained to their end; one that was not wins nothing where others were.
        unlearned: the classes that some of the runs did not learn.
        classes: how many classes there are.
    """

    loss: str
    seeds: int
    measures: dict[str, Spread | None]
    starved: str | None = None
    failed: tuple[str, ...] = ()
    corrected: bool = False
    finished: bool = True
    unlearned: tuple[str, ...] = ()
    classes: int = 0

    def mean(self, name: str) -> float | None:
        spread = self.measures.get(name)
        return None if spread is None else spread.mean


def average(spread: Spread | None) -> Average | None:
    """Mean and deviation as JSON."""
    return None if spread is None else {"mean": spread.mean, "deviation": spread.deviation}


def judged_by(standings: Sequence[Standing]) -> str | None:
    """What decides who won: test accuracy of the models, else their accuracy on the held-out share; None without either."""
    contenders = _contenders(standings)
    return next((name for name in ("accuracy", "held_out") if any(one.mean(name) is not None for one in contenders)), None)


def ranked(standings: Sequence[Standing]) -> list[Standing]:
    """The losses that can be compared, the one with the highest accuracy first."""
    judge = judged_by(standings)
    known = [] if judge is None else [(mean, one) for one in _contenders(standings) if (mean := one.mean(judge)) is not None]
    return [one for _, one in sorted(known, key=lambda pair: pair[0], reverse=True)]


def winner(standings: Sequence[Standing]) -> Standing | None:
    """The loss with the highest accuracy."""
    return next(iter(ranked(standings)), None)


def is_tie(standings: Sequence[Standing]) -> bool:
    """Whether the best two losses are the same, or lie within the spread of their seeds."""
    judge, best_two = judged_by(standings), ranked(standings)[:2]
    if judge is None or len(best_two) < 2:
        return False
    top, below = (one.measures[judge] for one in best_two)
    assert top is not None and below is not None
    if top.deviation is None or below.deviation is None:
        return _is_level(top, below)
    return _is_level(top, below) or top.mean - below.mean < math.hypot(top.deviation, below.deviation)


def _is_level(top: Spread, below: Spread) -> bool:
    """Whether a lead is less than the pages show."""
    return top.mean - below.mean < _LEVEL or _shown(top) == _shown(below)


def _contenders(standings: Sequence[Standing]) -> Sequence[Standing]:
    """Those that can win: the ones trained to their end, or all where none was."""
    return finished_or_all(standings, lambda one: one.finished)


def verdict(task: int, name: str, standings: Sequence[Standing]) -> Iterator[Sentence]:
    """The sentences on one task."""

    def say(tone: str, text: str) -> Sentence:
        return {"tone": tone, "text": text, "task": task}

    best = winner(standings)
    if best is None and not any(spread for one in standings for spread in one.measures.values()):
        yield say("plain", f"On {name}, no run has finished an epoch.")
    elif best is None:
        unknown = "which loss won" if len(standings) > 1 else "how well it predicts"
        yield say("plain", f"On {name}, nothing was tested: give a test set, or hold a share out with validation, to know {unknown}.")
    else:
        yield say("good", _won(best, standings, name))
    yield from (say("plain", text) for text in _memorised(best, standings))
    yield from (say("warning", text) for one in standings for text in _troubles(one, standings))


def _won(best: Standing, standings: Sequence[Standing], name: str) -> str:
    judge, second = judged_by(standings), next(iter(ranked(standings)[1:]), None)
    assert judge is not None
    measured = "accuracy on held-out examples, by their given labels"
    if judge == "accuracy":
        measured = "test accuracy" + (" of the model kept" if any(one.mean("kept") is not None for one in standings) else "")
    top, below = best.measures[judge], None if second is None else second.measures[judge]
    over = f" over {best.seeds} seeds" if best.seeds > 1 else ""
    if top is None or second is None or below is None:
        return f"On {name}, {best.loss} reached {_percent(top)} {measured}{over}."
    if is_tie(standings):
        level = f"{best.loss} ({_percent(top)} {measured}{over}) and {second.loss} ({_percent(below)})"
        why = "" if _is_level(top, below) else ": they lie within the spread of the seeds"
        return f"On {name}, {level} are level{why}."
    lead = f"{_shown(top) - _shown(below):.1f} points above {second.loss} ({_percent(below)})"
    alone = [one.loss for one, spread in ((best, top), (second, below)) if spread.deviation is None]
    few = "each" if len(alone) == 2 else "".join(f"of {loss}" for loss in alone)
    chance = f" With one seed {few}, a small lead may be chance." if alone else ""
    return f"On {name}, {best.loss} won: {_percent(top)} {measured}{over}, {lead}.{chance}"


def _memorised(best: Standing | None, standings: Sequence[Standing]) -> Iterator[str]:
    """How many of the wrong labels were learned, by the winner and by the loss that learned clearly more."""
    known = [one for one in standings if one.mean("noisy_subset") is not None and not one.corrected]
    if not known:
        return
    worst = max(known, key=lambda one: one.mean("noisy_subset") or 0)
    least = 0.0
    if best is not None and best in known:
        least = (best.mean("noisy_subset") or 0) + _CLEARLY
        wrong, right = _percent(best.measures["noisy_subset"]), _percent(best.measures["clean_subset"])
        yield f"{best.loss} learned {wrong} of the wrong labels and {right} of the right ones."
    if worst is not best and (worst.mean("noisy_subset") or 0) >= least:
        most = " most:" if len(known) > 1 else ""
        yield f"{worst.loss} memorised{most} {_percent(worst.measures['noisy_subset'])} of the wrong labels."


def _troubles(one: Standing, standings: Sequence[Standing]) -> Iterator[str]:
    for reason in one.failed:
        yield f"{one.loss} did not finish: {reason}"
    if one not in _contenders(standings):
        return
    mine, most = one.mean("clean_subset"), max((other.mean("clean_subset") or 0 for other in standings), default=0)
    if mine is not None and mine < _UNDERFITS * most:
        learned = f"it learned {_percent(one.measures['clean_subset'])} of the right labels, another loss {100 * most:.1f} %"
        yield f"{one.loss} underfits: {learned}.{f' {one.starved}' if one.starved else ''}"
    elif one.starved and mine is None:
        yield one.starved
    if one.unlearned:
        yield unlearned_sentence(one.loss, one.unlearned, one.classes)
    final, best = one.mean("final"), one.mean("best")
    if one.mean("kept") is None and final is not None and best is not None and best - final > _FORGETS:
        memorised = (one.mean("noisy_subset") or 0) > _CLEARLY
        why = "it unlearned while it memorised" if memorised else "stopping earlier would have been better"
        yield f"{one.loss} ended {100 * (best - final):.1f} points below its own best epoch: {why}."


def _shown(spread: Spread) -> float:
    """The mean in %, as pages show it."""
    return round(100 * spread.mean, 1)


def _percent(spread: Spread | None) -> str:
    if spread is None:
        return "–"
    return f"{100 * spread.mean:.1f} %" if spread.deviation is None else f"{100 * spread.mean:.1f} ± {100 * spread.deviation:.1f} %"
