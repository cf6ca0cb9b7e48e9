# mypy: ignore-errors
"""The kernels: rows of scores in, losses and gradients out, float32 in between. This module must not know losses.

A row is its margin Δ, found with the label left out so that nothing cancels, and where a loss looks at every class also
total = Σ_i log p_i. `of_row` turns them into a value, an emphasis w and a slope b = ∂L/∂total; then

    ∂L/∂s_y = −w + b (1 − C p_y)        ∂L/∂s_j = w r_j + b (1 − C p_j),  r = softmax over the other classes

`whole_rows` keeps rows on chip: one read, one write. `long_rows` reads a row twice, the second time from its end, where the first
reading has just been and the cache still holds it. No reading of scores waits for a label. A row whose label is out of range
comes out as NaN. Tensors that are not wanted are None.
"""

import triton
import triton.language as tl

LEAST = tl.constexpr(-3.4028234663852886e38)


@triton.jit
def _of_labels(scores, target, row, rows, classes, row_stride, ignore_index):
    """The labels of some rows, where their scores begin, the scores of their labels, and whether they count."""
    label = tl.load(target + row, mask=row < rows, other=ignore_index).to(tl.int32)
    kept = (label != ignore_index) & (row < rows)
    first = scores + row.to(tl.int64) * row_stride
    own = tl.load(first + label, mask=kept & (label >= 0) & (label < classes), other=float("nan")).to(tl.float32)
    return label, first, own, kept


@triton.jit
def _counted(class_weight, sample_weight, label, row, classes, kept):
    """How often each row counts: its class's weight times its own."""
    counted = tl.where(kept, 1.0, 0.0)
    if class_weight is not None:
        counted *= tl.load(class_weight + label, mask=kept & (label >= 0) & (label < classes), other=0.0).to(tl.float32)
    if sample_weight is not None:
        counted *= tl.load(sample_weight + row, mask=kept, other=0.0).to(tl.float32)
    return counted


@triton.jit
def _factors(class_weight, sample_weight, upstream, counts, label, row, classes, upstream_stride, kept, counting, COUNTS: tl.constexpr):
    """What the loss of each row is multiplied by, and what its gradient is."""
    factor = _counted(class_weight, sample_weight, label, row, classes, kept)
    if counts is not None:
        place = tl.arange(0, COUNTS)
        number = tl.sum(tl.load(counts + place, mask=place < counting, other=0.0), axis=0)
        factor /= tl.where(number == 0.0, 1.0, number)
    pull = factor
    if upstream is not None:
        pull *= tl.load(upstream + row * upstream_stride, mask=kept, other=0.0).to(tl.float32)
    return factor, pull


@triton.jit
def _of_statistics(own, top, pulls, above, classes, numbers, table, of_row: tl.constexpr, EVERY_CLASS: tl.constexpr):
    """Margin, value, emphasis, and the gradient: at the label, at another class per unit of pull, and at every class alike.

    `top` is the highest of the other scores, `pulls` Σ exp(score − top) over them, `above` Σ (score − top) over all.
    """
    others = tl.log(pulls)
    margin = (own - top) - others
    total = above
    if EVERY_CLASS:
        ahead = tl.maximum(own - top, others)
        total = above - classes * (ahead + tl.log(tl.exp(own - top - ahead) + tl.exp(others - ahead)))
    value, emphasis, by_total = of_row(margin, total, numbers, table)
    value = tl.where(margin == margin, value, margin)
    emphasis = tl.where(margin == margin, emphasis, margin)
    at_label = -emphasis
    at_others = emphasis
    if EVERY_CLASS:
        at_label += by_total * (1.0 - classes / (1.0 + tl.exp(-margin)))
        at_others -= by_total * classes / (1.0 + tl.exp(margin))
    return margin, value, emphasis, at_label, at_others / tl.where(pulls == 0.0, 1.0, pulls), by_total


@triton.jit
def _slope(pull, is_label, at_label, at_others, by_total, EVERY_CLASS: tl.constexpr):
    slope = pull * at_others
    if EVERY_CLASS:
        slope += by_total
    return tl.where(is_label, at_label, slope)


@triton.jit
def whole_rows(
    scores,
    target,
    losses,
    margins,
    emphases,
    gradient,
    class_weight,
    sample_weight,
    upstream,
    counts,
    numbers,
    table,
    rows,
    classes,
    row_stride,
    gradient_stride,
    upstream_stride,
    ignore_index,
    counting,
    of_row: tl.constexpr,
    EVERY_CLASS: tl.constexpr,
    COUNTS: tl.constexpr,
    ROWS: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """A tile of ROWS rows, each within BLOCK columns."""
    row = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    column = tl.arange(0, BLOCK)[None, :]
    label, first, own, kept = _of_labels(scores, target, row, rows, classes, row_stride, ignore_index)
    inside = (column < classes) & (row < rows)[:, None]
    score = tl.load(first[:, None] + column, mask=inside, other=float("-inf"), eviction_policy="evict_first").to(tl.float32)
    factor, pull = _factors(class_weight, sample_weight, upstream, counts, label, row, classes, upstream_stride, kept, counting, COUNTS)
    is_label = column == label[:, None]
    others = tl.where(is_label, float("-inf"), score)
    top = tl.maximum(tl.max(others, axis=1), LEAST)
    each = tl.exp(others - top[:, None])
    pulls = tl.sum(each, axis=1)
    above = tl.sum(tl.where(inside, score - top[:, None], 0.0), axis=1) if EVERY_CLASS else pulls
    margin, value, emphasis, at_label, at_others, by_total = _of_statistics(
        own, top, pulls, above, classes, numbers, table, of_row, EVERY_CLASS
    )
    tl.store(losses + row, tl.where(kept, value * factor, 0.0), mask=row < rows)
    if margins is not None:
        tl.store(margins + row, margin, mask=row < rows)
    if emphases is not None:
        if EVERY_CLASS:
            slope = _slope(each, is_label, at_label[:, None], at_others[:, None], by_total[:, None], EVERY_CLASS)
            emphasis = 0.5 * tl.sum(tl.where(inside, tl.abs(slope), 0.0), axis=1)
        tl.store(emphases + row, tl.where(kept, emphasis, 0.0), mask=row < rows)
    if gradient is not None:
        if EVERY_CLASS:
            by_total = (by_total * pull)[:, None]
        slope = _slope(each, is_label, (at_label * pull)[:, None], (at_others * pull)[:, None], by_total, EVERY_CLASS)
        slope = tl.where(kept[:, None], slope, 0.0)
        place = gradient + row.to(tl.int64)[:, None] * gradient_stride + column
        tl.store(place, slope.to(gradient.dtype.element_ty), mask=inside, eviction_policy="evict_first")


@triton.jit
def long_rows(
    scores,
    target,
    losses,
    margins,
    emphases,
    gradient,
    class_weight,
    sample_weight,
    upstream,
    counts,
    numbers,
    table,
    rows,
    classes,
    row_stride,
    gradient_stride,
    upstream_stride,
    ignore_index,
    counting,
    of_row: tl.constexpr,
    EVERY_CLASS: tl.constexpr,
    COUNTS: tl.constexpr,
    ROWS: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """One row, BLOCK columns at a time; the next block is asked for before the one at hand is worked on."""
    row = tl.program_id(0)
    column = tl.arange(0, BLOCK)
    label, first, own, kept = _of_labels(scores, target, row, rows, classes, row_stride, ignore_index)
    factor, pull = _factors(class_weight, sample_weight, upstream, counts, label, row, classes, upstream_stride, kept, counting, COUNTS)
    end = tl.where(kept, classes, 0)
    top = tl.full([], LEAST, tl.float32)
    pulls = tl.full([], 0.0, tl.float32)
    above = tl.full([], 0.0, tl.float32)
    ahead = tl.load(first + column, mask=column < classes, other=float("-inf"), eviction_policy="evict_last")
    for start in range(0, end, BLOCK):
        score = ahead.to(tl.float32)
        following = start + BLOCK + column
        ahead = tl.load(first + following, mask=following < end, other=float("-inf"), eviction_policy="evict_last")
        others = tl.where(start + column == label, float("-inf"), score)
        higher = tl.maximum(top, tl.max(others, axis=0))
        pulls = pulls * tl.exp(top - higher) + tl.sum(tl.exp(others - higher), axis=0)
        if EVERY_CLASS:
            above += (top - higher) * start + tl.sum(tl.where(start + column < end, score - higher, 0.0), axis=0)
        top = higher
    last = (tl.cdiv(classes, BLOCK) - 1) * BLOCK
    if gradient is not None:
        ahead = tl.load(first + last + column, mask=last + column < end, other=float("-inf"), eviction_policy="evict_first")
    margin, value, emphasis, at_label, at_others, by_total = _of_statistics(
        own, top, pulls, above, classes, numbers, table, of_row, EVERY_CLASS
    )
    tl.store(losses + row, tl.where(kept, value * factor, 0.0))
    if margins is not None:
        tl.store(margins + row, margin)
    if gradient is not None:
        size = tl.full([], 0.0, tl.float32)
        place = gradient + row.to(tl.int64) * gradient_stride
        for back in range(0, classes, BLOCK):
            score = ahead.to(tl.float32)
            here = last - back + column
            before = here - BLOCK
            ahead = tl.load(first + before, mask=(before >= 0) & (before < end), other=float("-inf"), eviction_policy="evict_first")
            slope = _slope(tl.exp(score - top), here == label, at_label, at_others, by_total, EVERY_CLASS)
            if EVERY_CLASS:
                size += 0.5 * tl.sum(tl.where(here < end, tl.abs(slope), 0.0), axis=0)
            slope = tl.where(kept, slope * pull, 0.0)
            tl.store(place + here, slope.to(gradient.dtype.element_ty), mask=here < classes, eviction_policy="evict_first")
        if EVERY_CLASS:
            emphasis = size
    if emphases is not None:
        tl.store(emphases + row, tl.where(kept, emphasis, 0.0))


@triton.jit
def count(target, class_weight, sample_weight, counts, rows, classes, ignore_index, BLOCK: tl.constexpr):
    """How often the rows count together, in as many sums as there are programs."""
    total = tl.zeros([BLOCK], tl.float32)
    for start in range(tl.program_id(0) * BLOCK, rows, tl.num_programs(0) * BLOCK):
        row = start + tl.arange(0, BLOCK)
        label = tl.load(target + row, mask=row < rows, other=ignore_index).to(tl.int32)
        total += _counted(class_weight, sample_weight, label, row, classes, (label != ignore_index) & (row < rows))
    tl.store(counts + tl.program_id(0), tl.sum(total, axis=0))


@triton.jit
def scale(gradient, upstream, rows, classes, upstream_stride, ROWS: tl.constexpr, BLOCK: tl.constexpr):
    """Multiply rows in place; where all factors are 1, as behind a plain ``loss.backward()``, nothing is read or written."""
    column = tl.arange(0, BLOCK)[None, :]
    for start in range(tl.program_id(0) * ROWS, rows, tl.num_programs(0) * ROWS):
        row = start + tl.arange(0, ROWS)
        factor = tl.load(upstream + row * upstream_stride, mask=row < rows, other=1.0).to(tl.float32)
        if tl.max((factor != 1.0).to(tl.int32), axis=0) > 0:
            for first in range(0, classes, BLOCK):
                place = gradient + row.to(tl.int64)[:, None] * classes + first + column
                inside = (first + column < classes) & (row < rows)[:, None]
                scaled = tl.load(place, mask=inside).to(tl.float32) * factor[:, None]
                tl.store(place, scaled.to(gradient.dtype.element_ty), mask=inside)
