"""Descriptions of losses, read from their docstrings and hyper-parameters, for the command line, the documentation and the tests."""

from __future__ import annotations

import inspect
import re
import textwrap
from dataclasses import asdict, dataclass
from typing import Any

from noisewise import curriculum
from noisewise.errors import InputError
from noisewise.losses import CONTRACT, Loss, get, registry
from noisewise.spec import Setting

_SECTIONS = ("Formula", "Args", "Example", "Reference")
_HEADING = re.compile(rf"^({'|'.join(_SECTIONS)}):$", re.MULTILINE)
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
    """The documentation of a registered loss."""

    name: str
    title: str
    summary: str
    details: tuple[str, ...]
    formula: tuple[str, ...]
    parameters: tuple[Parameter, ...]
    example: str
    reference: str
    specs: tuple[str, ...]

    @property
    def session(self) -> tuple[str, ...]:
        """The example with its imports, as in an interactive session."""
        module = registry[self.name].__module__
        public = "noisewise.losses" if module.startswith("noisewise.losses.") else module
        return ">>> import torch", f">>> from {public} import {self.title}", *self.example.splitlines()

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
        """The bounds of its hyper-parameters in one line."""
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
    sections = _sections(vars(loss).get("__doc__") or "")
    summary, *details = [" ".join(paragraph.split()) for paragraph in sections[""].split("\n\n")]
    meanings = _entries(sections["Args"])
    own = {key: declared for key, declared in loss.settings.items() if key not in CONTRACT}
    return Description(
        name=name,
        title=loss.__name__,
        summary=summary,
        details=tuple(details),
        formula=tuple(sections["Formula"].splitlines()),
        parameters=tuple(_parameter(key, declared, meanings.get(key, "")) for key, declared in own.items()),
        example=sections["Example"],
        reference=" ".join(sections["Reference"].split()),
        specs=loss.examples or (name,),
    )


def _sections(docstring: str) -> dict[str, str]:
    """The text under each heading; the text before the first heading is under the empty name."""
    opening, *rest = _HEADING.split(inspect.cleandoc(docstring))
    sections = {"": opening.strip(), **dict.fromkeys(_SECTIONS, "")}
    for heading, text in zip(rest[::2], rest[1::2], strict=True):
        sections[heading] = textwrap.dedent(text).strip()
    return sections


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
