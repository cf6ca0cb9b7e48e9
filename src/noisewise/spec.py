"""Spec strings such as ``"imae(T=8)"``, ``"0.3*nce + 0.7*mae"`` or ``"resnet20"``, and the registries that build objects from them.

A spec is parsed with `ast` and contains only literals and registered names: nothing in it is executed.
"""

from __future__ import annotations

import ast
import fnmatch
import hashlib
import importlib
import inspect
import math
import numbers
import operator
import pkgutil
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, ClassVar, Generic, TypeVar, dataclass_transform

from noisewise.errors import InputError, invalid_parameter, shown, unknown
from noisewise.extensions import extension

T = TypeVar("T")
_WORD = re.compile(r"[A-Za-z_]\w*")
_NUMBERS = re.compile(r"[-+\d.,e()\s]{40,}")
_LONGEST = 10_000  # characters of a spec that is shown in full
_LONGEST_SPEC = 32_000_000  # characters: room for a matrix of 1,000 x 1,000 numbers
_LONGEST_NUMBER = 10_000  # bits: Python does not print much longer integers
_LONG_LITERAL = re.compile(r"\w{2500}")  # such an integer has at least this many digits
_REQUIRED: Any = inspect.Parameter.empty
_OPERATORS: dict[type[ast.operator], Callable[[Any, Any], Any]] = {ast.Add: operator.add, ast.Mult: operator.mul}


def real(value: Any) -> float:
    """A number as a float; NaN if the value is not a real number or too large for a float.

    Example:
        >>> real(3), real(True), real("3"), real(10**400)
        (3.0, nan, nan, nan)
    """
    try:
        return float(value) if not isinstance(value, bool) and isinstance(value, numbers.Real) else math.nan
    except OverflowError:
        return math.nan


def as_int(parameter: str, owner: str, value: Any, least: int | None = None) -> int:
    """Return a Python or numpy integer that is at least ``least``, or raise `InputError`.

    Example:
        >>> as_int("jobs", "compare", 2.0, 1)
        Traceback (most recent call last):
        noisewise.errors.InputError: The 'jobs' parameter of compare must be an integer in [1, inf). Got 2.0 instead.
    """
    if isinstance(value, bool) or not isinstance(value, numbers.Integral) or (least is not None and value < least):
        raise invalid_parameter(parameter, owner, "an integer" + ("" if least is None else f" in [{least}, inf)"), value)
    return int(value)


def name_of(spec: str) -> str:
    """The name at the start of a spec, registered or not.

    Example:
        >>> name_of("imae(T=8)")
        'imae'
    """
    return spec.partition("(")[0].strip()


def in_short(spec: str) -> str:
    """Shorten a spec for display: long lists of numbers, such as a transition matrix, become a short digest.

    Example:
        >>> in_short("forward('matrix(((0.9, 0.1, 0.0), (0.0, 0.9, 0.1), (0.1, 0.0, 0.9)))', loss=ce)")
        "forward('matrix(…3989)', loss=ce)"
    """
    parts, end = [], 0
    for start, stop in _rows_of_numbers(spec):
        parts += [spec[end:start], f"…{hashlib.sha256(spec[start:stop].encode()).hexdigest()[:4]}"]
        end = stop
    return "".join([*parts, spec[end:]])


def _rows_of_numbers(spec: str) -> list[tuple[int, int]]:
    """The positions of the outermost brackets that contain only many numbers, without the brackets."""
    opened: list[int] = []
    rows: list[tuple[int, int]] = []
    for bracket in re.finditer(r"[()]", spec):
        if bracket[0] == "(":
            opened.append(bracket.end())
        elif opened:
            start, stop = opened.pop(), bracket.start()
            if _NUMBERS.fullmatch(spec, start, stop):
                while rows and rows[-1][0] > start:
                    rows.pop()  # it is inside this one
                rows.append((start, stop))
    return rows


def readable(spec: str) -> str:
    """Shorten a spec only if it is longer than 10,000 characters.

    Example:
        >>> readable("matrix(((0.9, 0.1, 0.0), (0.0, 0.9, 0.1), (0.1, 0.0, 0.9)))")
        'matrix(((0.9, 0.1, 0.0), (0.0, 0.9, 0.1), (0.1, 0.0, 0.9)))'
        >>> readable(f"matrix({((0.5, 0.5),) * 1000})")
        'matrix(…c7f6)'
    """
    return spec if len(spec) <= _LONGEST else in_short(spec)


@dataclass(frozen=True)
class Interval:
    """A range of numbers, written like ``(0, 1]``.

    Example:
        >>> 1.0 in Interval.parse("(0, 1]"), 0.0 in Interval.parse("(0, 1]")
        (True, False)
    """

    low: float
    high: float
    closed_low: bool
    closed_high: bool

    @classmethod
    def parse(cls, text: str) -> Interval:
        match = re.fullmatch(r"([\[(])\s*(\S+)\s*,\s*(\S+)\s*([\])])", text)
        if match is None:
            raise ValueError(f"not an interval: {text!r}")
        return cls(float(match[2]), float(match[3]), match[1] == "[", match[4] == "]")

    def __contains__(self, value: float) -> bool:
        above = value >= self.low if self.closed_low else value > self.low
        below = value <= self.high if self.closed_high else value < self.high
        return above and below

    def __str__(self) -> str:
        left, right = "[" if self.closed_low else "(", "]" if self.closed_high else ")"
        return f"{left}{self.low:g}, {self.high:g}{right}"


@dataclass(frozen=True)
class Setting:
    """One hyper-parameter: its default and its allowed values."""

    default: Any
    bounds: Interval | None
    choices: tuple[str, ...]
    integer: bool
    check: Callable[[Any], Any] | None
    kw_only: bool

    @property
    def requirement(self) -> str:
        if self.choices:
            return "one of " + ", ".join(repr(choice) for choice in self.choices)
        if self.bounds is not None:
            return f"{'an integer ' if self.integer else ''}in {self.bounds}"
        return "given"

    def accept(self, name: str, owner: str, value: Any) -> Any:
        """Return the value in its proper type, or raise `InputError`. None is accepted if it is the default."""
        if value is None and self.default is None:
            return None
        if self.check is not None:
            return self.check(value)
        if self.choices:
            if value not in self.choices:
                raise invalid_parameter(name, owner, self.requirement, value)
        elif self.bounds is not None:
            number = real(value)
            if number not in self.bounds or (self.integer and number != int(number)):
                raise invalid_parameter(name, owner, self.requirement, value)
            return int(number) if self.integer else number
        return value


def setting(
    *,
    default: Any = _REQUIRED,
    bounds: str | None = None,
    choices: tuple[str, ...] = (),
    integer: bool = False,
    check: Callable[[Any], Any] | None = None,
    kw_only: bool = False,
) -> Any:
    """Declare a hyper-parameter in a class body, with its bounds.

    Args:
        default: the default value; leave it out to make the hyper-parameter required. If it is None, None is always accepted.
        bounds: an interval such as ``"(0, 1]"``.
        choices: the allowed words.
        integer: whether it must be an integer.
        check: a function that returns the accepted value or raises `InputError`; it replaces the other checks.
        kw_only: whether it must be given by name; then the repr leaves it out if it has its default.

    Example:
        >>> class Shape(Named, registry=Registry("shape")):
        ...     sides: int = setting(default=3, bounds="[3, inf)", integer=True)
        >>> Shape(sides=4)
        shape(sides=4)
        >>> Shape(sides=2)
        Traceback (most recent call last):
        noisewise.errors.InputError: The 'sides' parameter of Shape must be an integer in [3, inf). Got 2 instead.
    """
    return Setting(default, Interval.parse(bounds) if bounds else None, choices, integer, check, kw_only)


class Registry(Generic[T]):
    """Named factories of one kind: ``losses.get("imae(T=8)")``."""

    every: ClassVar[list[Registry[Any]]] = []

    def __init__(self, kind: str) -> None:
        self.kind = kind
        self._factories: dict[str, Callable[..., T]] = {}
        self.every.append(self)

    def add(self, name: str, factory: Callable[..., T]) -> None:
        if not name.isidentifier():
            raise ValueError(f"{name!r} cannot be written in a spec string: use letters, digits and underscores")
        home = self._factories.get(name, factory).__module__
        if home.partition(".")[0] == __package__ and factory.__module__ != home:
            raise ValueError(f"noisewise already has a {self.kind} named {name!r}; choose another name")
        self._factories[name] = factory

    def __getitem__(self, name: str) -> Callable[..., T]:
        if name in self:
            return self._factories[name]
        needed = extension("missing plugin")(self.kind, name)
        raise (
            unknown(self.kind, name, self._factories) if needed is None else InputError(f"There is no {self.kind} named {name!r}. {needed}")
        )

    def __contains__(self, name: str) -> bool:
        if name not in self._factories:
            extension("installed plugins")()
        return name in self._factories

    def __iter__(self) -> Iterator[str]:
        return iter(self.available())

    def is_foreign(self, name: str) -> bool:
        """Whether a registered name is the user's, and not one of noisewise."""
        return name in self._factories and self._factories[name].__module__.partition(".")[0] != __package__

    def available(self, pattern: str = "*") -> list[str]:
        """The registered names that match a wildcard pattern, sorted."""
        extension("installed plugins")()
        return sorted(name for name in self._factories if fnmatch.fnmatch(name, pattern))

    def make(self, name: str, /, *args: Any, **kwargs: Any) -> T:
        factory = self[name]
        try:
            inspect.signature(factory).bind(*args, **kwargs)
        except TypeError as error:
            accepted = ", ".join(inspect.signature(factory).parameters) or "nothing"
            raise InputError(f"The {self.kind} {name!r} cannot be made: {error}. It takes: {accepted}.") from None
        return factory(*args, **kwargs)

    def get(self, spec: str | T, **kwargs: Any) -> T:
        """Build the object of a spec; an object is returned unchanged.

        Args:
            spec: a spec string, or an object.
            **kwargs: more keyword arguments for the factory, if the spec is one name or one call.
        """
        if not isinstance(spec, str):
            if kwargs:
                message = f"The {self.kind} {spec!r} is an object and takes no {', '.join(kwargs)}; give its spec string instead."
                raise InputError(message)
            return spec
        tree = self._parsed(spec)
        if isinstance(tree, ast.Constant):
            raise unknown(self.kind, spec, self._factories)
        try:
            built: T | float = self._build(tree, spec, kwargs)
        except RecursionError:
            raise self._unreadable(spec) from None
        if isinstance(built, int | float):
            raise self._unreadable(spec)
        return built

    def _parsed(self, spec: str) -> ast.expr:
        """Parse a spec. One that is too long, too deeply nested or has a number too long to print is refused."""
        if len(spec) > _LONGEST_SPEC:
            raise InputError(f"The {self.kind} spec {shown(spec)} is too long. Write at most {_LONGEST_SPEC:,} characters.")
        try:
            tree = ast.parse(spec.strip(), mode="eval").body
        except (SyntaxError, ValueError, RecursionError, MemoryError):  # the parser raises the last for deep nesting
            raise self._unreadable(spec) from None
        if _LONG_LITERAL.search(spec) and any(map(_is_long_number, ast.walk(tree))):
            raise self._unreadable(spec)
        return tree

    def _unreadable(self, spec: str) -> InputError:
        return InputError(f'The {self.kind} spec {shown(spec)} cannot be read. Write a name, a call or a sum, like "name(x=1)".')

    def _unreadable_at(self, node: ast.expr, spec: str, advice: str) -> InputError:
        return InputError(f"The {self.kind} spec {shown(spec)} cannot be read at {shown(ast.unparse(node))}. {advice}")

    def _build(self, node: ast.expr, spec: str, kwargs: dict[str, Any]) -> Any:
        if isinstance(node, ast.Name):
            return self.make(node.id, **kwargs)
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
            args = [self._argument(argument, spec) for argument in node.args]
            named = {word.arg: self._argument(word.value, spec) for word in node.keywords if word.arg is not None}
            if twice := ", ".join(sorted(named.keys() & kwargs.keys())):
                raise InputError(f"The {self.kind} spec {shown(spec)} sets {twice}, which is also given as an argument. Set it once.")
            if len(named) == len(node.keywords):
                return self.make(node.func.id, *args, **named, **kwargs)
        if isinstance(node, ast.BinOp) and type(node.op) in _OPERATORS:
            if kwargs:
                names = ", ".join(kwargs)
                raise InputError(f"The {self.kind} spec {shown(spec)} is a sum or a multiple and takes no {names}. Write it inside.")
            left, right = self._operand(node.left, spec), self._operand(node.right, spec)
            with suppress(TypeError, OverflowError):
                result = _OPERATORS[type(node.op)](left, right)
                if not isinstance(result, int) or not math.isnan(real(result)):
                    return result
        raise self._unreadable_at(node, spec, "Write names, calls, numbers, '+' and '*'.")

    def _operand(self, node: ast.expr, spec: str) -> Any:
        if isinstance(node, ast.Constant | ast.UnaryOp):
            number = self._argument(node, spec)
            if not math.isnan(real(number)):
                return number
        return self._build(node, spec, {})

    def _argument(self, node: ast.expr, spec: str) -> Any:
        if isinstance(node, ast.Name) and node.id not in self:
            return node.id  # a bare word, as in human(worst); the factory checks it
        if isinstance(node, ast.Name | ast.Call | ast.BinOp):
            return self._build(node, spec, {})
        try:
            return ast.literal_eval(node)
        except (ValueError, TypeError, SyntaxError, RecursionError):
            raise self._unreadable_at(node, spec, "Only literals and known names are allowed there.") from None


def _is_long_number(node: ast.AST) -> bool:
    return isinstance(node, ast.Constant) and isinstance(node.value, int) and node.value.bit_length() > _LONGEST_NUMBER


@dataclass_transform(field_specifiers=(setting,))
class Named:
    """The base class of registered classes: a name, hyper-parameters with bounds, and a repr that the registry can parse.

    Subclass it with ``registry=`` to start a new kind, and subclass that with ``name=`` to register a class.
    """

    registry: ClassVar[Registry[Any]]
    name: ClassVar[str] = ""
    settings: ClassVar[dict[str, Setting]] = {}
    __signature__: ClassVar[inspect.Signature]

    def __init_subclass__(cls, name: str | None = None, registry: Registry[Any] | None = None, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        if registry is not None:
            cls.registry = registry
        own = {key: value for key, value in vars(cls).items() if isinstance(value, Setting)}
        for key in own:
            delattr(cls, key)
        cls.settings = dict(sorted({**cls.settings, **own}.items(), key=lambda item: (item[1].kw_only, item[1].default is not _REQUIRED)))
        cls.name = name or cls.__name__.lower()
        kinds = {False: inspect.Parameter.POSITIONAL_OR_KEYWORD, True: inspect.Parameter.KEYWORD_ONLY}
        cls.__signature__ = inspect.Signature(
            [inspect.Parameter(key, kinds[value.kw_only], default=value.default) for key, value in cls.settings.items()]
        )
        if name is not None:
            cls.registry.add(name, cls)

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__()
        bound = self.__signature__.bind(*args, **kwargs)
        bound.apply_defaults()
        for key, value in bound.arguments.items():
            setattr(self, key, value)

    def __setattr__(self, key: str, value: Any) -> None:
        declared = self.settings.get(key)
        super().__setattr__(key, value if declared is None else declared.accept(key, type(self).__name__, value))

    def __repr__(self) -> str:
        return self.spec()

    def spec(self, **instead: Any) -> str:
        """The spec string of this object, with some settings replaced."""
        arguments = []
        for key, declared in self.settings.items():
            value = instead.get(key, self._literal(key))
            if declared.default is _REQUIRED:
                arguments.append(repr(value))
            elif not declared.kw_only or value != declared.default:
                arguments.append(f"{key}={value!r}")
        return f"{self.name}({', '.join(arguments)})" if arguments else self.name

    def _literal(self, key: str) -> Any:
        """The value of a setting in the spec string."""
        return getattr(self, key)


def discover(package: str, path: Iterable[str], base: type) -> dict[str, type]:
    """Import the public modules of a package, and return the subclasses of a base class that they define, by class name.

    A new file in the package registers its classes this way.
    """
    classes: dict[str, type] = {}
    for info in pkgutil.iter_modules(path):
        if not info.name.startswith("_"):
            module = importlib.import_module(f"{package}.{info.name}")
            defined = [value for value in vars(module).values() if isinstance(value, type) and value.__module__ == module.__name__]
            classes.update({value.__name__: value for value in defined if issubclass(value, base) and not value.__name__.startswith("_")})
    return classes


def foreign_words(settings: Mapping[str, Any]) -> list[tuple[str, Registry[Any]]]:
    """The names in some settings, and their registries, of classes that are not noisewise's own.

    Args:
        settings: the settings of a run, by name.
    """
    specs = {name: value for name, value in settings.items() if isinstance(value, str)}
    words = {word for name, spec in specs.items() for word in (_WORD.findall(spec) if name != "data" else [spec.partition("(")[0]])}
    return [(word, registry) for registry in Registry.every for word in sorted(words) if registry.is_foreign(word)]
