"""Descriptions of losses and methods, read from docstrings and settings, for the command line, the documentation and the tests."""

from __future__ import annotations

import inspect
import re
import textwrap
from dataclasses import asdict, dataclass
from typing import Any

import torch

from noisewise import curriculum, methods
from noisewise.data import Dataset
from noisewise.errors import InputError
from noisewise.losses import CONTRACT, Loss, get, registry
from noisewise.methods import Method
from noisewise.spec import Named, Setting

_SECTIONS = ("Formula", "Args", "Example", "Reference")
_OPENING, _NOTES = "opening", "notes"
_HEADING = re.compile(rf"^({'|'.join(_SECTIONS)}):$", re.MULTILINE)
_NOT_INDENTED = re.compile(r"^(?=\S)", re.MULTILINE)
_ITEM = re.compile(r"\n(?=- )")
_ENTRY = re.compile(r"^(\w+): ", re.MULTILINE)


@dataclass(frozen=True)
class Parameter:
    """A hyper-parameter: its default as Python code, or None if it is required; its bounds; its meaning."""

    name: str
    default: str | None
    requirement: str
    meaning: str


@dataclass(frozen=True)
class Description:
    """The documentation of a registered loss or method.

    Args:
        name: the name in specs.
        title: the name of the class.
        module: where users import it from.
        summary: what it is, in a sentence.
        details: more paragraphs.
        formula: the lines of the formula.
        notes: paragraphs about the formula.
        parameters: its hyper-parameters.
        example: a doctest.
        reference: the paper.
        specs: specs with which it is tested.
    """

    name: str
    title: str
    module: str
    summary: str
    details: tuple[str, ...]
    formula: tuple[str, ...]
    notes: tuple[str, ...]
    parameters: tuple[Parameter, ...]
    example: str
    reference: str
    specs: tuple[str, ...]

    @property
    def session(self) -> tuple[str, ...]:
        """The example with its imports, as in an interactive session."""
        return ">>> import torch", f">>> from {self.module} import {self.title}", *self.example.splitlines()

    @property
    def value(self) -> str:
        """The formula of the loss itself."""
        return "\n".join(line for line in self.formula if not line.startswith("w"))

    @property
    def emphasis(self) -> str:
        """The formula of its emphasis, without the leading ``w =`` where there is one."""
        return "\n".join(re.sub(r"^w\s*[=:]\s*", "", line) for line in self.formula if line.startswith("w"))

    @property
    def constraints(self) -> str:
        """The bounds of the hyper-parameters, in one line."""
        bounded = [each for each in self.parameters if " in " in f" {each.requirement}" and "(-inf, inf)" not in each.requirement]
        return ", ".join(f"{each.name} {each.requirement.replace('an integer in', 'integer, in')}" for each in bounded)


def describe(name: str) -> Description:
    """Describe a registered loss, from its docstring and settings.

    Args:
        name: a registered name, without hyper-parameters.

    Example:
        >>> gce = describe("gce")
        >>> gce.value, gce.emphasis, gce.constraints
        ('l(p) = (1 − p^q) / q', 'p^q (1 − p)', 'q in (0, 1]')
        >>> gce.parameters
        (Parameter(name='q', default='0.7', requirement='in (0, 1]', meaning='from cross-entropy (near 0) to MAE (1).'),)
    """
    loss = registry[name]
    assert isinstance(loss, type) and issubclass(loss, Loss)
    return _described(name, loss, loss.examples)


def describe_method(name: str) -> Description:
    """Describe a registered method, from its docstring and settings.

    Args:
        name: a registered name, without settings.

    Example:
        >>> describe_method("elr").parameters[0]
        Parameter(name='beta', default='0.7', requirement='in [0, 1)', meaning='the momentum of the moving average.')
    """
    method = _method(name)
    return _described(name, method, method.examples)


def _described(name: str, kind: type[Named], specs: tuple[str, ...]) -> Description:
    sections = _sections(vars(kind).get("__doc__") or "")
    summary, *details = _paragraphs(sections[_OPENING]) or [""]
    meanings = _entries(sections["Args"])
    own = {key: declared for key, declared in kind.settings.items() if key not in CONTRACT}
    package = kind.__module__.rpartition(".")[0]
    return Description(
        name=name,
        title=kind.__name__,
        module=package if package in ("noisewise.losses", "noisewise.methods") else kind.__module__,
        summary=summary,
        details=tuple(details),
        formula=tuple(sections["Formula"].splitlines()),
        notes=tuple(_paragraphs(sections[_NOTES])),
        parameters=tuple(_parameter(key, declared, meanings.get(key, "")) for key, declared in own.items()),
        example=sections["Example"],
        reference=" ".join(sections["Reference"].split()),
        specs=specs or (name,),
    )


def _sections(docstring: str) -> dict[str, str]:
    """The indented text under each heading; the text before the first heading, and the text that is not indented below one."""
    opening, *rest = _HEADING.split(inspect.cleandoc(docstring))
    sections, notes = {_OPENING: opening.strip(), **dict.fromkeys(_SECTIONS, "")}, []
    for heading, text in zip(rest[::2], rest[1::2], strict=True):
        indented, *after = _NOT_INDENTED.split(text, maxsplit=1)
        sections[heading] = textwrap.dedent(indented).strip()
        notes += after
    return {**sections, _NOTES: "\n\n".join(map(str.strip, notes))}


def _paragraphs(text: str) -> list[str]:
    """Paragraphs in one line each, and lists with one line for each item."""
    return ["\n".join(" ".join(item.split()) for item in _ITEM.split(part)) for part in text.split("\n\n") if part]


def _entries(text: str) -> dict[str, str]:
    """``name: meaning`` lines of an Args section, whose continuation lines are indented."""
    _, *rest = _ENTRY.split(text)
    return {name: " ".join(meaning.split()) for name, meaning in zip(rest[::2], rest[1::2], strict=True)}


def _parameter(name: str, declared: Setting, meaning: str) -> Parameter:
    default = None if declared.default is inspect.Parameter.empty else repr(declared.default)
    return Parameter(name, default, "" if declared.check is not None else declared.requirement, meaning)


@dataclass(frozen=True)
class Figures:
    """Figures of a loss with given hyper-parameters; None if it is not a function of p alone.

    `spread` is the variance of ‖∂L/∂s‖₁ over uniform p: the IMAE paper's number.
    """

    spec: str
    focus: float | None
    spread: float | None


def measure(spec: str) -> Figures:
    """Focus and spread of a loss.

    Example:
        >>> measure("mae").focus
        0.5
    """
    loss = get(spec)
    try:
        return Figures(spec, curriculum.focus(loss), curriculum.spread(loss, norm="l1"))
    except InputError:  # a curriculum that needs the number of classes
        return Figures(spec, None, None)


def table() -> list[tuple[Description, Figures]]:
    """Every registered loss with the figures of its defaults, or of its first example if it has required hyper-parameters."""
    return [one(name) for name in registry]


def one(spec: str) -> tuple[Description, Figures]:
    """The description and figures of a loss. A name means its defaults, or its first example if some hyper-parameters are required.

    Example:
        >>> one("gce(q=1)")[1]
        Figures(spec='gce(q=1)', focus=0.5, spread=0.0222222222222...)
    """
    name = spec if spec in registry else get(spec).name
    if name not in registry:
        raise InputError(f"A sum of losses has no description. Got {spec!r}; give one loss.")
    description = describe(name)
    required = any(parameter.default is None for parameter in description.parameters)
    return description, measure(description.specs[0] if required and spec == name else spec)


def as_data(description: Description, figures: Figures) -> dict[str, Any]:
    """A loss as plain data, for JSON."""
    return {**asdict(description), "value": description.value, "emphasis": description.emphasis, **asdict(figures)}


def needs(name: str) -> tuple[str, ...]:
    """What a method needs besides one network, labels and a loss: a phrase for each need, from its attributes and settings.

    Args:
        name: the registered name of a method.

    Example:
        >>> needs("co_teaching")
        ('2 networks', 'the noise rate (`rate`)', 'whole batches')
    """
    method = _method(name)
    trained = method.networks if method.trained is None else method.trained
    averages = f" and {method.networks - trained} weight averages" if method.networks > trained else ""
    phrases = {
        f"{trained} networks{averages}": method.networks > 1,
        f"{method.views} views of every batch": method.views > 1,
        "a model of noisewise": method.embeds or method.reads_features,
        "trusted labels (`trusted`)": "trusted" in method.settings,
        f"the noise rate (`{method.noise_rate}`)": method.noise_rate is not None,
        "a transition matrix, known or estimated (`matrix`)": "matrix" in method.settings,
        **{f"`{key}`": declared.default is inspect.Parameter.empty for key, declared in method.settings.items()},
        "a loss of the margin alone": _refuses_other_losses(method),
        "whole batches": method.needs_whole_batch or method.networks > 1,
    }
    return tuple(phrase for phrase, is_needed in phrases.items() if is_needed)


def _method(name: str) -> type[Method]:
    method = methods.registry[name]
    assert isinstance(method, type) and issubclass(method, Method)
    return method


def _refuses_other_losses(kind: type[Method]) -> bool:
    """Whether a method accepts cross-entropy, but not a loss that depends on all classes."""
    labels = torch.arange(300) % 3
    data = Dataset(torch.zeros(300, 2), labels, ("a", "b", "c"), true_labels=labels)
    method = methods.get(kind.examples[0] if kind.examples else kind.name)
    return _accepts(method, "ce", data) and not _accepts(method, "nce", data)


def _accepts(method: Method, loss: str, data: Dataset) -> bool:
    try:
        method.check(get(loss), data)
    except InputError:
        return False
    return True
