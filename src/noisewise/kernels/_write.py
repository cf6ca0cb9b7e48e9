"""Translate a loss to Triton source code by tracing its Python, so that each formula is written once.

A kernel computes the margin Δ of a row and, for losses that look at every class, total = Σ_i log p_i. A loss is covered if it is a
function of these: a `MarginLoss`, or a loss that defines `of_costs`. Its numbers (q, T, …) become arguments, so that new values need no
compilation. A function of the margin that cannot be translated, such as the value of IMAE, which is an integral, is tabulated.
"""

from __future__ import annotations

import copy
import functools
import operator
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, fx
from torch.nn.functional import logsigmoid

from noisewise.kernels._table import tabulate
from noisewise.losses import Adaptive, Combination, Loss, MarginLoss, Normalising
from noisewise.losses.ce import CE
from noisewise.losses.ls import LS


class NotCoveredError(Exception):
    """A loss, or an operation in it, has no kernel; the message says which."""


@dataclass(frozen=True)
class Written:
    """A loss as Triton source code.

    Args:
        source: defines ``of_row(margin, total, numbers, table)``, which returns value, emphasis and ∂value/∂total.
        numbers: the argument ``numbers``.
        table: the argument ``table``, on the CPU, or None. For a loss that adapts, the argument is its buffer ``now`` instead.
        looks_at_every_class: whether the loss depends on `total`.
    """

    source: str
    numbers: tuple[float, ...]
    table: Tensor | None
    looks_at_every_class: bool


def covered(loss: Loss) -> bool:
    """Whether a loss, by its type and settings, is a function of margin and total."""
    if loss.label_smoothing > 0 and (type(loss) is not CE or loss.weight is not None):
        return False  # with smoothed labels, a class weight applies to every class
    if isinstance(loss, MarginLoss):
        own_rule = type(loss).per_example in (MarginLoss.per_example, Normalising.per_example, Adaptive.per_example)
        return own_rule and not loss.depends_on_batch and (not isinstance(loss, Adaptive) or loss.now is not None)
    if type(loss) is Combination:
        return all(covered(term) for _, term in loss.parts)
    return loss.costs_are_current and loss.is_of_costs


def write(loss: Loss, classes: int) -> Written:
    """Translate a covered loss, for rows with this number of classes.

    Example:
        >>> print(write(CE(), 10).source)
        def of_row(margin, total, numbers, table):
            v0 = log_sigmoid(margin)
            v1 = (-v0)
            v2 = (-1.0)
            v3 = (-margin)
            v4 = sigmoid(v3)
            v5 = (v2 * v4)
            v6 = (-v5)
            value = v1
            emphasis = v6
            by_total = 0.0
            return value, emphasis, by_total
    """
    loss = copy.deepcopy(loss)  # tracing may leave traced tensors in its caches
    if loss.label_smoothing > 0:
        loss = LS(loss.label_smoothing)  # equal to cross-entropy with smoothed labels
    terms = loss.parts if type(loss) is Combination else [(1.0, loss)]
    alone = [(factor, term) for factor, term in terms if isinstance(term, MarginLoss)]
    both = [(factor, term) for factor, term in terms if not isinstance(term, MarginLoss)]
    writer = _Writer()
    outputs: list[tuple[str, str, str]] = []
    if isinstance(loss, Adaptive):
        outputs.append((*_of_now(writer, loss, classes), "0.0"))
    elif alone:
        outputs.append((*_of_margin(writer, lambda d: _sum(alone, lambda term: term.of_margin(d, classes))), "0.0"))
    if both:
        outputs.append(_of_both(writer, lambda d, total: _sum(both, lambda term: term.of_costs(-logsigmoid(d), total, float(classes)))))
    value, emphasis, by_total = (" + ".join(part for part in parts if part != "0.0") or "0.0" for parts in zip(*outputs, strict=True))
    lines = [*writer.lines, f"value = {value}", f"emphasis = {emphasis}", f"by_total = {by_total}", "return value, emphasis, by_total"]
    source = "\n    ".join(["def of_row(margin, total, numbers, table):", *lines])
    table = torch.cat(writer.tables) if writer.tables else None
    return Written(source, tuple(writer.numbers), table, bool(both))


def _sum(parts: Sequence[tuple[float, Any]], value: Callable[[Any], Tensor]) -> Tensor:
    scaled = [value(term) if factor == 1 else factor * value(term) for factor, term in parts]
    return functools.reduce(operator.add, scaled)


def _of_margin(writer: _Writer, function: Callable[[Tensor], Tensor]) -> tuple[str, str]:
    """The names of value and emphasis of a function of the margin; what cannot be translated is tabulated."""

    def slope(d: Tensor) -> Tensor:
        return -_slopes(function, d)[0]

    graph = _traced(lambda d: (function(d), slope(d)), "margin")
    return writer.written(graph, 0) or writer.tabulated(function), writer.written(graph, 1) or writer.tabulated(slope)


def _of_now(writer: _Writer, loss: Adaptive, classes: int) -> tuple[str, str]:
    """The names of value and emphasis of a loss that adapts: functions of the margin and of numbers that change."""
    assert loss.now is not None

    def both(d: Tensor, now: Tensor) -> tuple[Tensor, Tensor]:
        loss.decided = lambda: [now[place] for place in range(len(now))]  # type: ignore[method-assign]  # not numbers
        return loss.of_margin(d, classes), -_slopes(lambda d: loss.of_margin(d, classes), d)[0]

    graph = _traced(both, "margin", "now", shapes=(2, len(loss.now)))
    value, emphasis = (writer.written(graph, index) for index in range(2))
    if value is None or emphasis is None:
        raise NotCoveredError("a loss that adapts and cannot be translated")
    return value, emphasis


def _of_both(writer: _Writer, function: Callable[[Tensor, Tensor], Tensor]) -> tuple[str, str, str]:
    def all_three(d: Tensor, total: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        by_margin, by_total = _slopes(function, d, total)
        return function(d, total), -by_margin, by_total

    graph = _traced(all_three, "margin", "total")
    value, emphasis, by_total = (writer.written(graph, index) for index in range(3))
    if value is None or emphasis is None or by_total is None:
        raise NotCoveredError("a loss of every class that cannot be translated")
    return value, emphasis, by_total


def _slopes(function: Callable[..., Tensor], *where: Tensor) -> tuple[Tensor, ...]:
    leaves = [each.detach().requires_grad_() for each in where]
    with torch.enable_grad():
        value = function(*leaves)
    return torch.autograd.grad(value, leaves, torch.ones_like(value))


def _traced(function: Callable[..., Any], *names: str, shapes: Sequence[int] = (2, 2)) -> fx.Graph | None:
    """The function as a graph of torch's primitive operations, or None if it cannot be traced."""
    from torch.fx.experimental.proxy_tensor import make_fx  # takes seconds to import

    try:
        graph = make_fx(function)(*(torch.zeros(length) for _, length in zip(names, shapes, strict=False))).graph
    except Exception:  # a custom loss can raise anything
        return None
    for name, node in zip(names, graph.find_nodes(op="placeholder"), strict=True):
        node.meta["word"] = name
    return graph


_TWO = {"add": "+", "sub": "-", "mul": "*", "div": "/", "gt": ">", "ge": ">=", "lt": "<", "le": "<=", "eq": "==", "ne": "!="}
_TWO |= {"logical_and": "&", "logical_or": "|", "bitwise_and": "&", "bitwise_or": "|"}
_WORDS: dict[str, tuple[int, str]] = {  # the number of arguments and the template
    **{name: (2, f"({{}} {sign} {{}})") for name, sign in _TWO.items()},
    **{name: (1, f"tl.{name}({{}})") for name in ("abs", "exp", "log", "sqrt")},
    **{name: (1, f"{name}({{}})") for name in ("sigmoid", "log1p", "expm1")},
    **dict.fromkeys(("alias", "clone", "detach", "scalar_tensor"), (1, "{}")),
    "clamp_max": (2, "tl.minimum({}, {})"),
    "clamp_min": (2, "tl.maximum({}, {})"),
    "log_sigmoid_backward": (2, "({} * sigmoid(-{}))"),
    "log_sigmoid_forward": (1, "log_sigmoid({})"),
    "maximum": (2, "tl.maximum({}, {})"),
    "minimum": (2, "tl.minimum({}, {})"),
    "neg": (1, "(-{})"),
    "ones_like": (0, "1.0"),
    "reciprocal": (1, "(1.0 / {})"),
    "rsub": (2, "({1} - {0})"),
    "sigmoid_backward": (2, "({0} * ({1} * (1.0 - {1})))"),
    "square": (1, "({0} * {0})"),
    "where": (3, "tl.where({}, {}, {})"),
    "zeros_like": (0, "0.0"),
}
_IGNORED = {"ones_like": 1, "zeros_like": 1, "log_sigmoid_backward": 1}  # arguments about memory
_ABOUT_MEMORY = {"dtype", "layout", "device", "pin_memory", "memory_format"}


class _Writer:
    """The lines of a device function, and its arguments `numbers` and `table`."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.numbers: list[float] = []
        self.tables: list[Tensor] = []
        self._words: dict[fx.Node, str] = {}

    def written(self, graph: fx.Graph | None, index: int) -> str | None:
        """Write the lines of one output of a graph and return its name, or None if an operation is not known."""
        if graph is None:
            return None
        lines, numbers, words = len(self.lines), len(self.numbers), dict(self._words)
        try:
            return self._word(graph.output_node().args[0][index])  # type: ignore[index]
        except NotCoveredError:
            del self.lines[lines:], self.numbers[numbers:]
            self._words = words
            return None

    def tabulated(self, function: Callable[[Tensor], Tensor]) -> str:
        table, error = tabulate(function)
        if error > 1:
            raise NotCoveredError(f"a function of the margin that is too rough for a table, by a factor of {error:.2g}")
        start = sum(len(each) for each in self.tables)
        self.tables.append(table)
        return f"look_up(table, {start}, margin)"

    def _word(self, operand: Any) -> str:
        if isinstance(operand, float):
            self.numbers.append(operand)
            return f"numbers[{len(self.numbers) - 1}]"
        if not isinstance(operand, fx.Node):
            return repr(operand)
        if "word" in operand.meta:
            return str(operand.meta["word"])
        if operand not in self._words:
            line = self._line(operand)
            self._words[operand] = line if line.isidentifier() or line in ("0.0", "1.0") else f"v{len(self.lines)}"
            if self._words[operand] != line:
                self.lines.append(f"{self._words[operand]} = {line}")
        return self._words[operand]

    def _line(self, node: fx.Node) -> str:
        name = getattr(getattr(node.target, "_overloadpacket", None), "__name__", "")
        args = node.args
        if node.target is operator.getitem and args[1] == 0:
            return self._word(args[0])
        if name == "select" and self._word(args[0]) == "now":
            return f"tl.load(table + {args[2]})"
        if name == "clamp" and len(args) > 1:
            word = self._word(args[0]) if args[1] is None else f"tl.maximum({self._word(args[0])}, {self._word(args[1])})"
            return word if len(args) < 3 else f"tl.minimum({word}, {self._word(args[2])})"
        if name == "pow" and isinstance(args[1], int | float):
            return f"power({self._word(args[0])}, {self._word(float(args[1]))})"
        count, template = _WORDS.get(name, (-1, ""))
        if len(args) - _IGNORED.get(name, 0) != count or not set(node.kwargs) <= _ABOUT_MEMORY:
            raise NotCoveredError(f"torch's {node.target}")
        return template.format(*(self._word(arg) for arg in args[:count]))
