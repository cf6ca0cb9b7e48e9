"""Launch the kernels on tensors. torch.compile does not trace into this module."""

from __future__ import annotations

import builtins
import functools
import linecache
from collections.abc import Sequence
from typing import Any

import torch
import triton  # type: ignore[import-untyped, import-not-found, unused-ignore]
import triton.language as tl  # type: ignore[import-untyped, import-not-found, unused-ignore]
from torch import Tensor

from noisewise.kernels import _arithmetic, _rows, _tuning
from noisewise.kernels._ahead import launch
from noisewise.kernels._encoding import written
from noisewise.kernels._live import Live
from noisewise.kernels._switch import untraced

_WORDS = {name: getattr(_arithmetic, name) for name in ("log1p", "expm1", "sigmoid", "log_sigmoid", "power", "look_up")}

_read_by_graphs: list[Tensor] = []  # tables that CUDA graphs read and that must outlive them


@untraced
def run(
    scores: Tensor,
    target: Tensor,
    loss: str,
    numbers: Sequence[float],
    *,
    class_weight: Tensor | None = None,
    sample_weight: Tensor | None = None,
    upstream: Tensor | None = None,
    ignore_index: int = -100,
    mean: bool = False,
    gradient: Tensor | None = None,
    margins: Tensor | None = None,
    emphases: Tensor | None = None,
    now: Tensor | None = None,
    live: Live | None = None,
) -> Tensor:
    """The loss of every row of (N, C) scores, weighted and divided for a mean. Fills the output tensors that are given.

    Args:
        upstream: a factor for the gradient of every row; its stride may be 0.
        gradient: output, shaped like the scores; it may be the scores.
        margins: output.
        emphases: output.
        now: the numbers of a loss that adapts.
        live: the hyper-parameters in memory, in place of `numbers`.
    """
    rows, classes = scores.shape
    target = target.contiguous()
    class_weight, sample_weight = (None if each is None else each.contiguous() for each in (class_weight, sample_weight))
    losses = torch.empty(rows, dtype=torch.float32, device=scores.device)
    if rows == 0:
        return losses
    placed: tuple[Any, Any, Any, bool]
    if live is None:
        placed = _placed(loss, tuple(numbers), classes, scores.device)
    else:
        placed = _device_function(live.source), live.numbers, live.table, live.looks_at_every_class
    of_row, values, table, every_class = placed
    if table is not None and scores.is_cuda and torch.cuda.is_current_stream_capturing():
        _read_by_graphs.append(table)
    vector = 16 // scores.element_size()
    straight = scores.stride(0) % vector == 0 and scores.data_ptr() % 16 == 0
    cut = _tuning.cut(classes if straight else classes + vector - 1, scores.element_size())
    alike = gradient is None or _lie_alike(scores, gradient)
    even = straight and classes % vector == 0
    long = {} if cut.rows > 1 else {"VECTOR": vector, "EVEN": even, "ALIKE": alike, "WHOLE": cut.whole}
    with torch.cuda.device_of(scores):  # type: ignore[no-untyped-call]
        counts = _counted(target, class_weight, sample_weight, classes, ignore_index) if mean else None
        outputs = (losses, margins, emphases, gradient)
        tensors = (scores, target, *outputs, class_weight, sample_weight, upstream, counts, values, table if now is None else now)
        strides = (scores.stride(0), (scores if gradient is None else gradient).stride(0), 0 if upstream is None else upstream.stride(0))
        kernel, grid = _rows.long_rows if long else _rows.short_rows, (triton.cdiv(rows, cut.rows),)
        sizes = {"COUNTS": _tuning.COUNTING_PROGRAMS, "ROWS": cut.rows, "BLOCK": cut.block, "num_warps": cut.warps, **long}
        number = 0 if counts is None else counts.shape[0]
        integers = (rows, classes, *strides, ignore_index, number)
        launch(kernel, grid, *tensors, *integers, of_row=of_row, EVERY_CLASS=every_class, **sizes)
    return losses


def _lie_alike(scores: Tensor, gradient: Tensor) -> bool:
    """Whether the rows of both have the same offset from a multiple of 16 bytes."""
    size = scores.element_size()
    strides = (scores.stride(0) - gradient.stride(0)) * size % 16 == 0
    return size == gradient.element_size() and strides and (scores.data_ptr() - gradient.data_ptr()) % 16 == 0


@untraced
def add_up(losses: Tensor) -> Tensor:
    """The sum of the losses of rows."""
    if not 0 < len(losses) <= _tuning.MOST_ADDED_BY_ONE:
        return losses.sum()
    total = torch.empty((), dtype=torch.float32, device=losses.device)
    with torch.cuda.device_of(losses):  # type: ignore[no-untyped-call]
        block = min(_tuning.ADDING_BLOCK, triton.next_power_of_2(len(losses)))
        launch(_rows.add_up, (1,), losses, total, len(losses), BLOCK=block, num_warps=max(1, min(32, block // 128)))
    return total


@untraced
def scale_(gradient: Tensor, upstream: Tensor) -> Tensor:
    """Multiply every row of a contiguous gradient in place; rows with factor 1 are not read."""
    rows, classes = gradient.shape
    if rows:
        block = min(_tuning.SCALING_TILE, triton.next_power_of_2(classes))
        height = _tuning.SCALING_TILE // block
        grid = min(_tuning.SCALING_PROGRAMS, triton.cdiv(rows, height))
        with torch.cuda.device_of(gradient):  # type: ignore[no-untyped-call]
            arguments = (gradient, upstream, rows, classes, upstream.stride(0))
            launch(_rows.scale, (grid,), *arguments, ALIKE=upstream.stride(0) == 0, ROWS=height, BLOCK=block)
    return gradient


def _counted(target: Tensor, class_weight: Tensor | None, sample_weight: Tensor | None, classes: int, ignore_index: int) -> Tensor:
    programs = min(_tuning.COUNTING_PROGRAMS, triton.cdiv(target.shape[0], _tuning.COUNTING_BLOCK))
    counts = torch.empty(programs, dtype=torch.float32, device=target.device)
    arguments = (target, class_weight, sample_weight, counts, target.shape[0], classes, ignore_index)
    launch(_rows.count, (programs,), *arguments, BLOCK=_tuning.COUNTING_BLOCK)
    return counts


@functools.lru_cache(maxsize=256)
def _placed(loss: str, numbers: tuple[float, ...], classes: int, device: torch.device) -> tuple[Any, tuple[float, ...], Any, bool]:
    """The device function of a loss, its numbers, its table on the device, and whether it looks at every class."""
    source = written(loss, numbers, classes)
    table = None if source.table is None else source.table.to(device)
    return _device_function(source.source), source.numbers or (0.0,), table, source.looks_at_every_class


@functools.cache
def _device_function(source: str) -> Any:
    """Make a Triton function from source code. Triton reads the lines of its file, so they are put into `linecache`."""
    file = f"<noisewise {hash(source):x}>"
    linecache.cache[file] = (len(source), None, source.splitlines(keepends=True), file)
    names: dict[str, Any] = {"__name__": __name__, "tl": tl, **_WORDS}
    exec(builtins.compile(source, file, "exec"), names)
    return triton.jit(names["of_row"])
