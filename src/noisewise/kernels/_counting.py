# mypy: ignore-errors
"""What `auto` counts of a batch, by one kernel instead of some forty small ones."""

import torch
import triton
import triton.language as tl
from torch import Tensor

from noisewise.kernels import _tuning
from noisewise.kernels._ahead import launch


@triton.jit
def _margin(score, column, at):
    """The score of a class minus the log of the sum of exp(score) over the other classes."""
    is_at = column == at[:, None]
    others = tl.where(is_at, float("-inf"), score)
    top = tl.max(others, axis=1)
    rest = top + tl.log(tl.sum(tl.exp(others - top[:, None]), axis=1))
    return tl.sum(tl.where(is_at, score, 0.0), axis=1) - rest


@triton.jit
def _cell(value, low, per_cell, CELLS: tl.constexpr):
    place = (value - low) / per_cell
    place = tl.where(place == place, place, 0.0)
    return tl.minimum(tl.maximum(place, 0.0), CELLS - 1).to(tl.int32)


@triton.jit
def _count(
    scores,
    labels,
    predictions,
    given,
    margins,
    rows,
    classes,
    row_stride,
    ignore_index,
    lowest,
    per_step,
    widest,
    per_cell,
    GROUPS: tl.constexpr,
    STEPS: tl.constexpr,
    CELLS: tl.constexpr,
    ROWS: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """Add ROWS rows to the counts."""
    row = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    column = tl.arange(0, BLOCK)[None, :]
    label = tl.load(labels + row, mask=row < rows, other=ignore_index).to(tl.int64)
    kept = (row < rows) & (label != ignore_index)
    inside = (column < classes) & (row < rows)[:, None]
    score = tl.load(scores + row.to(tl.int64)[:, None] * row_stride + column, mask=inside, other=float("-inf")).to(tl.float32)
    predicted = tl.argmax(score, axis=1).to(tl.int64)
    step = _cell(_margin(score, column, predicted), lowest, per_step, STEPS)
    cell = _cell(_margin(score, column, label), -widest, per_cell, CELLS)
    one = tl.full([ROWS], 1, tl.int64)
    into = ((predicted % GROUPS) * STEPS + step) * 2 + (predicted != label).to(tl.int64)
    tl.atomic_add(predictions + into, one, mask=kept)
    tl.atomic_add(given + label % GROUPS, one, mask=kept)
    tl.atomic_add(margins + cell, one, mask=kept)


def count(
    scores: Tensor,
    labels: Tensor,
    ignore_index: int,
    predictions: Tensor,
    given: Tensor,
    margins: Tensor,
    edges: tuple[float, float, float],
) -> None:
    """Add a batch to counts, in place.

    Args:
        scores: (N, C).
        labels: (N,).
        ignore_index: the label of examples that are not counted.
        predictions: examples by the group of the predicted class, its margin in equal steps, and whether the label is another class,
            (groups, steps, 2).
        given: examples by the group of their label, (groups,).
        margins: examples by the margin of their label, in equal cells.
        edges: where the steps begin and end, and where the cells end on both sides.
    """
    rows, classes = scores.shape
    groups, steps, _ = predictions.shape
    low, high, widest = edges
    cut = _tuning.cut(classes, scores.element_size())
    grid = (low, (high - low) / steps, widest, 2 * widest / len(margins))
    sizes = {"GROUPS": groups, "STEPS": steps, "CELLS": len(margins), "ROWS": cut.rows, "BLOCK": cut.block, "num_warps": cut.warps}
    with torch.cuda.device_of(scores):
        arguments = (scores, labels, predictions, given, margins, rows, classes, scores.stride(0), ignore_index, *grid)
        launch(_count, (triton.cdiv(rows, cut.rows),), *arguments, **sizes)
