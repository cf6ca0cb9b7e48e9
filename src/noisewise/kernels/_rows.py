# mypy: ignore-errors
"""The kernels: rows of scores in, losses and gradients out, float32 in between.

For a row the kernels compute the margin Δ, summing over the other classes so that nothing cancels, and for losses that look at every class
total = Σ_i log p_i. `of_row` returns the value, the emphasis w and the slope b = ∂L/∂total. Then

    ∂L/∂s_y = −w + b (1 − C p_y)        ∂L/∂s_j = w r_j + b (1 − C p_j),  r = softmax over the other classes

`short_rows` keeps rows on chip, and so does `long_rows` if a row fits. A longer row is read twice, the second time from its end, because
its last blocks are still on chip and in the cache. No read of scores waits for a label. A label out of range gives NaN. Output tensors that
are not needed are None.
"""

import os

import triton
import triton.language as tl

INTERPRETED = tl.constexpr(os.environ.get("TRITON_INTERPRET", "0") not in ("0", ""))
LOG2_E = tl.constexpr(1.4426950408889634)
LN_2 = tl.constexpr(0.6931471805599453)
LEAST = tl.constexpr(-3.4028234663852886e38)


@triton.jit
def _exp(x):
    """exp(x) in two instructions, with subnormal results flushed to 0; `tl.exp` takes three more."""
    if INTERPRETED:
        return tl.exp(x)
    else:
        return tl.inline_asm_elementwise("ex2.approx.ftz.f32 $0, $1;", "=f,f", [x * LOG2_E], dtype=tl.float32, is_pure=True, pack=1)


@triton.jit
def _above(score, reference):
    """score · log₂e − reference, rounded once, so that the rounding of a common reference cancels."""
    if INTERPRETED:
        return (score.to(tl.float64) * LOG2_E - reference).to(tl.float32)
    else:
        return tl.fma(score, LOG2_E, -reference)


@triton.jit
def _exp2(x):
    if INTERPRETED:
        return tl.exp2(x)
    else:
        return tl.inline_asm_elementwise("ex2.approx.ftz.f32 $0, $1;", "=f,f", [x], dtype=tl.float32, is_pure=True, pack=1)


@triton.jit
def _of_labels(scores, target, row, rows, classes, row_stride, ignore_index):
    """The labels of some rows, pointers to their scores, the scores of their labels, and whether they are not ignored."""
    label = tl.load(target + row, mask=row < rows, other=ignore_index).to(tl.int64)  # compared in 64 bits
    kept = (label != ignore_index) & (row < rows)
    first = scores + row.to(tl.int64) * row_stride
    own = tl.load(first + label, mask=kept & (label >= 0) & (label < classes), other=float("nan")).to(tl.float32)
    return label.to(tl.int32), first, own, kept


@triton.jit
def _counted(class_weight, sample_weight, label, row, classes, kept):
    """The weight of each row: that of its class times that of the example."""
    counted = tl.where(kept, 1.0, 0.0)
    if class_weight is not None:
        counted *= tl.load(class_weight + label, mask=kept & (label >= 0) & (label < classes), other=0.0).to(tl.float32)
    if sample_weight is not None:
        counted *= tl.load(sample_weight + row, mask=kept, other=0.0).to(tl.float32)
    return counted


@triton.jit
def _factors(class_weight, sample_weight, upstream, counts, label, row, classes, upstream_stride, kept, counting, COUNTS: tl.constexpr):
    """The factors of the loss and of the gradient of each row."""
    factor = _counted(class_weight, sample_weight, label, row, classes, kept)
    if counts is not None:
        index = tl.arange(0, COUNTS)
        number = tl.sum(tl.load(counts + index, mask=index < counting, other=0.0), axis=0)
        factor /= tl.where(number == 0.0, 1.0, number)
    pull = factor
    if upstream is not None:
        pull *= tl.load(upstream + row * upstream_stride, mask=kept, other=0.0).to(tl.float32)
    return factor, pull


@triton.jit
def _of_statistics(lead, pulls, above, classes, numbers, table, of_row: tl.constexpr, EVERY_CLASS: tl.constexpr):
    """Margin, value, emphasis, and the gradient: at the label, at another class per unit of exp(score), and the part common to all.

    Scores are relative to a reference near the highest of the other classes: `lead` is the label's, `pulls` is Σ exp(score) over the
    others, `above` is Σ score over all.
    """
    others = tl.log(pulls)
    margin = lead - others
    total = above
    if EVERY_CLASS:
        ahead = tl.maximum(lead, others)
        total = above - classes * (ahead + tl.log(tl.exp(lead - ahead) + tl.exp(others - ahead)))
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
def _slope(pull, at_others, by_total, EVERY_CLASS: tl.constexpr):
    """The gradient at a class that is not the label."""
    slope = pull * at_others
    if EVERY_CLASS:
        slope += by_total
    return slope


@triton.jit
def short_rows(
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
    each = _exp(others - top[:, None])
    pulls = tl.sum(each, axis=1)
    above = tl.sum(tl.where(inside, score - top[:, None], 0.0), axis=1) if EVERY_CLASS else pulls
    margin, value, emphasis, at_label, at_others, by_total = _of_statistics(
        own - top, pulls, above, classes, numbers, table, of_row, EVERY_CLASS
    )
    tl.store(losses + row, tl.where(kept, value * factor, 0.0), mask=row < rows)
    if margins is not None:
        tl.store(margins + row, margin, mask=row < rows)
    if emphases is not None:
        if EVERY_CLASS:
            slope = tl.where(is_label, at_label[:, None], _slope(each, at_others[:, None], by_total[:, None], EVERY_CLASS))
            emphasis = 0.5 * tl.sum(tl.where(inside, tl.abs(slope), 0.0), axis=1)
        tl.store(emphases + row, tl.where(kept, emphasis, 0.0), mask=row < rows)
    if gradient is not None:
        if EVERY_CLASS:
            by_total = (by_total * pull)[:, None]
        slope = _slope(each, (at_others * pull)[:, None], by_total, EVERY_CLASS)
        slope = tl.where(kept[:, None], tl.where(is_label, (at_label * pull)[:, None], slope), 0.0)
        pointer = gradient + row.to(tl.int64)[:, None] * gradient_stride + column
        tl.store(pointer, slope.to(gradient.dtype.element_ty), mask=inside, eviction_policy="evict_first")


@triton.jit
def _in_vectors(tensor, row, stride, VECTOR: tl.constexpr, EVEN: tl.constexpr):
    """A pointer to the last 16-byte boundary before a row, and how many numbers it is before the row."""
    skew = 0
    if EVEN:
        first = tensor + tl.multiple_of(row.to(tl.int64) * stride, VECTOR)
    else:
        first = tensor + row.to(tl.int64) * stride
        skew = ((first.to(tl.int64) // (16 // VECTOR)) % VECTOR).to(tl.int32)
        first = tl.multiple_of(first - skew, 16)
    return first, skew


@triton.jit
def _store(gradient, row, stride, slope, here, lane, skew, classes, ends, VECTOR: tl.constexpr, EVEN: tl.constexpr, ALIKE: tl.constexpr):
    """Store a part of a row's gradient, in vectors if it is aligned ALIKE, except at the `ends` of the row."""
    column = here + lane - skew
    inside = (column >= 0) & (column < classes)
    slope = slope.to(gradient.dtype.element_ty)
    if ALIKE:
        pointer, _ = _in_vectors(gradient, row, stride, VECTOR, EVEN)
        pointer += here + lane
        tl.store(pointer, slope, mask=(here >= skew) & (here + VECTOR <= classes + skew), eviction_policy="evict_first")
        if not EVEN:  # noqa: SIM102  # a compile-time condition
            if ends:
                tl.store(pointer, slope, mask=inside & ((here < skew) | (here + VECTOR > classes + skew)))
    else:
        tl.store(gradient + row.to(tl.int64) * stride + column, slope, mask=inside)


@triton.jit
def _accumulate(score, column, label, own, classes, checked, tops, sums, aboves, EVERY_CLASS: tl.constexpr):
    """Update the maximum and sums of every vector by a block. If `checked`, leave out the label and what is outside the row."""
    above = tl.sum(score - own, axis=1) if EVERY_CLASS else aboves
    if checked:
        others = (column != label) & (column >= 0) & (column < classes)
        if EVERY_CLASS:
            above = tl.sum(tl.where(others, score - own, 0.0), axis=1)
        score = tl.where(others, score, float("-inf"))
    higher = tl.maximum(tops, tl.max(score, axis=1) * LOG2_E)
    sums = sums * _exp2(tops - higher) + tl.sum(_exp2(_above(score, higher[:, None])), axis=1)
    if EVERY_CLASS:
        aboves += above
    return higher, sums, aboves


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
    VECTOR: tl.constexpr,
    EVEN: tl.constexpr,
    ALIKE: tl.constexpr,
    WHOLE: tl.constexpr,
):
    """One row, BLOCK columns at a time.

    A row is read in vectors of 16 bytes, from the last 16-byte boundary before it. WHOLE: the row fits into one block and is read once.
    ALIKE: the gradient has the alignment of the scores, and is written in the same vectors. EVEN: every row consists of whole vectors.
    Every vector has its own maximum and sum, so threads synchronise only once, after the
    last block. Only blocks that may contain the label or an end of the row are checked for it. The next block is loaded before the
    current one is used.
    """
    row = tl.program_id(0)
    label, first, own, kept = _of_labels(scores, target, row, rows, classes, row_stride, ignore_index)
    factor, pull = _factors(class_weight, sample_weight, upstream, counts, label, row, classes, upstream_stride, kept, counting, COUNTS)
    first, skew = _in_vectors(scores, row, row_stride, VECTOR, EVEN)
    vector = tl.arange(0, BLOCK // VECTOR)[:, None] * VECTOR
    lane = tl.arange(0, VECTOR)[None, :]
    read = tl.where(kept, classes + skew, 0)
    labelled = (label + skew) // BLOCK
    last = tl.cdiv(classes + skew, BLOCK) - 1
    tops = tl.full([BLOCK // VECTOR], LEAST, tl.float32)
    sums = tl.full([BLOCK // VECTOR], 0.0, tl.float32)
    aboves = tl.full([BLOCK // VECTOR], 0.0, tl.float32)
    ahead = tl.load(first + vector + lane, mask=vector < read, other=float("-inf"), eviction_policy="evict_last")
    if WHOLE:
        column = vector + lane - skew
        others = (column != label) & (column >= 0) & (column < classes)
        score = tl.where(others, ahead.to(tl.float32), float("-inf"))
        tops = tl.maximum(tops, tl.max(score, axis=1) * LOG2_E)
        sums = tl.sum(_exp2(_above(score, tops[:, None])), axis=1)
        if EVERY_CLASS:
            aboves = tl.sum(tl.where(others, score - own, 0.0), axis=1)
    else:
        for block in range(tl.where(kept, last, 0)):
            score = ahead.to(tl.float32)
            following = (block + 1) * BLOCK + vector
            ahead = tl.load(first + following + lane, mask=following < read, other=float("-inf"), eviction_policy="evict_last")
            checked = (block == 0) | (block == labelled)
            column = block * BLOCK + vector + lane - skew
            tops, sums, aboves = _accumulate(score, column, label, own, classes, checked, tops, sums, aboves, EVERY_CLASS)
        column = last * BLOCK + vector + lane - skew
        tops, sums, aboves = _accumulate(ahead.to(tl.float32), column, label, own, classes, True, tops, sums, aboves, EVERY_CLASS)
    top = tl.max(tops, axis=0)
    pulls = tl.sum(sums * _exp2(tops - top), axis=0)
    lead = _above(own, top) * LN_2
    margin, value, emphasis, at_label, at_others, by_total = _of_statistics(
        lead, pulls, tl.sum(aboves, axis=0) + classes * lead, classes, numbers, table, of_row, EVERY_CLASS
    )
    tl.store(losses + row, tl.where(kept, value * factor, 0.0))
    if margins is not None:
        tl.store(margins + row, margin)
    if gradient is not None:
        # An ignored row was not read; this makes its gradient 0 instead of NaN.
        at_label, at_others, by_total = tl.where(kept, at_label, 0.0), tl.where(kept, at_others, 0.0), tl.where(kept, by_total, 0.0)
        sizes = tl.full([BLOCK // VECTOR], 0.0, tl.float32)
        for back in range(1 if WHOLE else last + 1):
            block = last - back
            here = block * BLOCK + vector
            if not WHOLE:
                before = here - BLOCK
                valid = (before >= 0) & (before < read)
                score = ahead.to(tl.float32)
                ahead = tl.load(first + before + lane, mask=valid, other=float("-inf"), eviction_policy="evict_first")
            each = _exp2(_above(score, top))
            slope = _slope(each, at_others * pull, by_total * pull, EVERY_CLASS)
            column = here + lane - skew
            if block == labelled:
                slope = tl.where(column == label, at_label * pull, slope)
            if EVERY_CLASS:  # noqa: SIM102
                if emphases is not None:
                    bare = tl.where(column == label, at_label, _slope(each, at_others, by_total, EVERY_CLASS))
                    sizes += 0.5 * tl.sum(tl.where((column >= 0) & (column < classes), tl.abs(bare), 0.0), axis=1)
            ends = (block == 0) | (block == last)
            _store(gradient, row, gradient_stride, slope, here, lane, skew, classes, ends, VECTOR, EVEN, ALIKE)
        if EVERY_CLASS:
            emphasis = tl.sum(sizes, axis=0)
    if emphases is not None:
        tl.store(emphases + row, tl.where(kept, emphasis, 0.0))


@triton.jit
def count(target, class_weight, sample_weight, counts, rows, classes, ignore_index, BLOCK: tl.constexpr):
    """The sum of the weights of the rows, one partial sum per program."""
    total = tl.zeros([BLOCK], tl.float32)
    for start in range(tl.program_id(0) * BLOCK, rows, tl.num_programs(0) * BLOCK):
        row = start + tl.arange(0, BLOCK)
        label = tl.load(target + row, mask=row < rows, other=ignore_index).to(tl.int64)
        total += _counted(class_weight, sample_weight, label, row, classes, (label != ignore_index) & (row < rows))
    tl.store(counts + tl.program_id(0), tl.sum(total, axis=0))


@triton.jit
def add_up(losses, total, rows, BLOCK: tl.constexpr):
    """The sum of the losses, by one program."""
    sums = tl.zeros([BLOCK], tl.float32)
    for start in range(0, rows, BLOCK):
        row = start + tl.arange(0, BLOCK)
        sums += tl.load(losses + row, mask=row < rows, other=0.0)
    tl.store(total, tl.sum(sums, axis=0))


@triton.jit
def scale(gradient, upstream, rows, classes, upstream_stride, ALIKE: tl.constexpr, ROWS: tl.constexpr, BLOCK: tl.constexpr):
    """Multiply rows in pointer. Rows with factor 1, as after a plain ``loss.backward()``, are not read. ALIKE: all rows have one factor."""
    if ALIKE:  # noqa: SIM102
        if tl.load(upstream) == 1.0:
            return
    column = tl.arange(0, BLOCK)[None, :]
    for start in range(tl.program_id(0) * ROWS, rows, tl.num_programs(0) * ROWS):
        row = start + tl.arange(0, ROWS)
        factor = tl.load(upstream + row * upstream_stride, mask=row < rows, other=1.0).to(tl.float32)
        if tl.max((factor != 1.0).to(tl.int32), axis=0) > 0:
            for first in range(0, classes, BLOCK):
                pointer = gradient + row.to(tl.int64)[:, None] * classes + first + column
                inside = (first + column < classes) & (row < rows)[:, None]
                scaled = tl.load(pointer, mask=inside).to(tl.float32) * factor[:, None]
                tl.store(pointer, scaled.to(gradient.dtype.element_ty), mask=inside)
