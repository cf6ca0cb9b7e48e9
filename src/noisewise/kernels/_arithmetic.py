# mypy: ignore-errors
"""Functions for the generated code of `_write.py`, each accurate where the plain formula loses digits.

They use only Triton's exp and log, so that they also run in its interpreter.
"""

import triton
import triton.language as tl


@triton.jit
def log1p(x):
    """log(1 + x) for x > −1, corrected for the rounding of 1 + x (Kahan)."""
    raised = 1.0 + x
    gap = raised - 1.0
    return tl.where((gap == 0.0) | (raised == float("inf")), x, tl.log(raised) * (x / tl.where(gap == 0.0, 1.0, gap)))


@triton.jit
def expm1(x):
    """exp(x) − 1, corrected for the rounding of exp(x) (Kahan)."""
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
    """`base` to any power, like torch: NaN for a fractional power of a negative base, and 1 for the power 0."""
    size = tl.exp(exponent * tl.log(tl.abs(base)))
    whole = tl.floor(exponent) == exponent
    odd = tl.floor(exponent * 0.5) * 2.0 != exponent
    signed = tl.where(base < 0.0, tl.where(whole, tl.where(odd, -size, size), float("nan")), size)
    return tl.where(exponent == 0.0, 1.0, signed)


@triton.jit
def look_up(table, start, margin):
    """A tabulated function of the margin (`_table.py`). The leading bits of |margin| + 1 select the cell.

    Args:
        table: cells of four coefficients, those of negative margins first.
        start: the first cell of the function.
    """
    size = tl.abs(margin)
    leading = (size + 1.0).to(tl.int32, bitcast=True) >> 16
    cell = tl.minimum(leading - 0x3F80, 0x77F)
    step = size - (((cell + 0x3F80) << 16).to(tl.float32, bitcast=True) - 1.0)
    where = table + 4 * (start + cell + tl.where(margin < 0.0, 0, 0x780))
    bend = step * (tl.load(where + 2) + step * tl.load(where + 3))
    rise = tl.load(where + 1) + tl.where(cell == 0x77F, 0.0, bend)
    return tl.load(where) + tl.where(rise == 0.0, 0.0, step * rise)
