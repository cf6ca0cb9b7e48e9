# mypy: ignore-errors
"""Functions of a margin inside a kernel, each exact where its plain spelling cancels. `_write.py` writes its code in these words.

They are spelled with Triton's own exp and log only, so that they run in its interpreter too.
"""

import triton
import triton.language as tl


@triton.jit
def log1p(x):
    """log(1 + x) for any x > −1: the rounding of 1 + x is undone by the ratio (Kahan)."""
    raised = 1.0 + x
    gap = raised - 1.0
    return tl.where((gap == 0.0) | (raised == float("inf")), x, tl.log(raised) * (x / tl.where(gap == 0.0, 1.0, gap)))


@triton.jit
def expm1(x):
    """exp(x) − 1: what exp rounds away is undone by the log of what it gave (Kahan)."""
    raised = tl.exp(x)
    gap = raised - 1.0
    small = (raised > 0.5) & (raised < 2.0) & (gap != 0.0)
    return tl.where(gap == 0.0, x, tl.where(small, gap * (x / tl.where(small, tl.log(raised), 1.0)), gap))


@triton.jit
def sigmoid(x):
    return 1.0 / (1.0 + tl.exp(-x))


@triton.jit
def log_sigmoid(x):
    return tl.minimum(x, 0.0) - log1p(tl.exp(-tl.abs(x)))


@triton.jit
def power(base, exponent):
    """`base` to any power, as torch has it: a negative base has whole powers only, and anything to the power 0 is 1."""
    size = tl.exp(exponent * tl.log(tl.abs(base)))
    whole = tl.floor(exponent) == exponent
    odd = tl.floor(exponent * 0.5) * 2.0 != exponent
    signed = tl.where(base < 0.0, tl.where(whole, tl.where(odd, -size, size), float("nan")), size)
    return tl.where(exponent == 0.0, 1.0, signed)


@triton.jit
def look_up(table, place, margin):
    """A tabulated function of the margin (`_table.py`): the cubic of the cell that the leading bits of |margin| + 1 name.

    Args:
        table: cells of four coefficients, first those of margins below 0.
        place: at which cell the function begins.
    """
    size = tl.abs(margin)
    leading = (size + 1.0).to(tl.int32, bitcast=True) >> 16
    cell = tl.minimum(leading - 0x3F80, 0x77F)
    step = size - (((cell + 0x3F80) << 16).to(tl.float32, bitcast=True) - 1.0)
    where = table + 4 * (place + cell + tl.where(margin < 0.0, 0, 0x780))
    bend = step * (tl.load(where + 2) + step * tl.load(where + 3))
    rise = tl.load(where + 1) + tl.where(cell == 0x77F, 0.0, bend)
    return tl.load(where) + tl.where(rise == 0.0, 0.0, step * rise)
