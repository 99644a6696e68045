"""The Triton programs of taylor/fused.py; imported on first use.

Float64 throughout, no fast-math: the compiler may fuse a product with the sum after it and may not reorder anything.
Constants come from memory, where they are float64; written into a program they might be rounded to float32. Nothing
takes a maximum or a minimum, so what is not a number stays so.
"""

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit(do_not_specialize=["degree"])
def sums(coef, blocks, upwards, norms, total, columns, degree, BLOCK: tl.constexpr):
    """Absolute sums per degree and their sum, upwards; ``blocks``: the first row of each degree, and the end."""
    at = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    inside = at < columns
    tiny = tl.load(upwards)
    growth = tl.load(upwards + 1)
    whole = tl.zeros([BLOCK], tl.float64)
    wide = tl.full([], columns, tl.int64)  # rows times columns may exceed 32 bits
    for d in range(degree + 1):
        first = tl.load(blocks + d)
        last = tl.load(blocks + d + 1)
        size = tl.zeros([BLOCK], tl.float64)
        for p in range(first, last):
            size += tl.abs(tl.load(coef + p * wide + at, mask=inside, other=0.0))
        size = tl.where(last - first > 1, (size + tiny) * growth, size)
        tl.store(norms + d * wide + at, size, mask=inside)
        whole += size
    tl.store(total + at, (whole + tiny) * growth, mask=inside)


@triton.jit(do_not_specialize=["rows", "variables"])
def shares(coef, table, out, rows, columns, variables, WIDTH: tl.constexpr, BLOCK: tl.constexpr):
    """out[i, n] = sum_p |coef[p, n]| table[p, i] for i < ``variables`` <= WIDTH, a power of two."""
    at = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    inside = at < columns
    each = tl.arange(0, WIDTH)
    total = tl.zeros([WIDTH, BLOCK], tl.float64)
    wide = tl.full([], columns, tl.int64)  # rows times columns may exceed 32 bits
    for p in range(rows):
        size = tl.abs(tl.load(coef + p * wide + at, mask=inside, other=0.0))
        weight = tl.load(table + p * variables + each, mask=each < variables, other=0.0)
        total += weight[:, None] * size[None, :]
    known = (each < variables)[:, None] & inside[None, :]
    tl.store(out + each[:, None] * wide + at[None, :], total, mask=known)
