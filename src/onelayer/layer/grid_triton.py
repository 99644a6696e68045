"""The program of layer/grid_kernel.py in Gluon, Triton's language with explicit layouts; imported on first use.

One program takes BLOCK queries. With e_a = exp(l_a - max l_a) on axis a it computes acc[q, j] = sum_i e_1[q, i] V[i, j]
for SIDE columns j at a time: a matrix product of which every thread keeps a tile in registers, while e_1, made SIDE
keys at a time, and the values lie in shared memory. Then it adds up acc e_2 / sum e_1 over the columns and divides by
sum e_2. Nothing of the size of the grid is kept. Float32 multiply-adds throughout, no tensor cores.
"""

from __future__ import annotations

from functools import cache

from triton import language as tl
from triton.experimental import gluon
from triton.experimental.gluon import language as gl

SIDE = gl.constexpr(64)  # keys of either axis at a time
LOWEST = gl.constexpr(-150.0)  # exp of it is zero in float32
LOG2_E = gl.constexpr(1.4426950408889634)
LN_2 = gl.constexpr(0.6931471805599453)
NAN_STAYS = gl.constexpr(tl.PropagateNan.ALL)


@cache
def tiles(warps):
    """Which thread holds what of (BLOCK, SIDE): 4 x 4 numbers at a time, warps below one another."""
    return gl.BlockedLayout([4, 4], [8, 4], [warps, 1], [1, 0])


@gluon.jit
def _exp(x):
    """exp(x) for x <= 0 within 5 units in the last place, zero below the normal numbers.

    With h = x log2(e), rounded, and r = x - h ln 2, which makes up for the rounding: e^x = 2^h e^r = 2^h (1 + r). The
    constant ln 2 is off by 2^-28.6 of itself, which h > -150 makes 5 u; 2^h is documented to 2 ulp.
    """
    x = gl.maximum(x, LOWEST, propagate_nan=NAN_STAYS)
    h = x * LOG2_E
    r = gl.fma(h, gl.full(x.shape, -LN_2, gl.float32, x.type.layout), x)
    power = gl.inline_asm_elementwise("ex2.approx.ftz.f32 $0, $1;", "=f,f", [h], gl.float32, True, 1)
    return gl.fma(power, r, power)


@gluon.jit
def _logits(query, keys, rows, inside, at, count, WIDTH: gl.constexpr, EVEN: gl.constexpr, LAYOUT: gl.constexpr):
    """q . k for the queries ``rows`` and the keys ``at``, -inf beyond the last key; ``keys`` are (count, WIDTH)."""
    total = gl.full([rows.shape[0], SIDE], 0.0, gl.float32, LAYOUT)
    for d in gl.static_range(WIDTH):
        q = gl.load(query + rows * WIDTH + d, mask=inside, other=0.0)
        k = gl.load(keys + at * WIDTH + d, mask=at < count, other=0.0)
        q, k = gl.broadcast(q[:, None], k[None, :])
        total = q * k if d == 0 else gl.fma(q, k, total)
    if EVEN:
        return total
    return gl.where((at < count)[None, :], total, float("-inf"))


@gluon.jit
def _largest(query, keys, rows, inside, count, WIDTH: gl.constexpr, EVEN: gl.constexpr, LAYOUT: gl.constexpr):
    """The largest logit of each query."""
    across: gl.constexpr = gl.SliceLayout(0, LAYOUT)
    best = gl.full([rows.shape[0]], float("-inf"), gl.float32, gl.SliceLayout(1, LAYOUT))
    for start in range(0, count, SIDE):
        at = start + gl.arange(0, SIDE, across)
        best = gl.maximum(best, gl.max(_logits(query, keys, rows, inside, at, count, WIDTH, EVEN, LAYOUT), 1))
    return best


@gluon.jit
def grid_kernel(
    query,
    first,
    second,
    values,
    out,
    queries,
    count_1,
    count_2,
    width_v,
    WIDTH: gl.constexpr,
    BLOCK: gl.constexpr,
    LAYOUT: gl.constexpr,
    UNROLL: gl.constexpr,
    EVEN: gl.constexpr,
    SMALL: gl.constexpr,
):
    """out[q, v] = sum_ij softmax(q . first)_i softmax(q . second)_j values[v, i, j] for the queries of one block.

    EVEN: both counts are multiples of SIDE. SMALL: neither is larger, so that the logits are at hand when their largest
    is sought, otherwise they are computed twice; and that what is added up, divided by nothing yet, is at most SIDE^2
    times the average. Indices are 32-bit: no array has more than 2^31 numbers.
    """
    down: gl.constexpr = gl.SliceLayout(1, LAYOUT)
    across: gl.constexpr = gl.SliceLayout(0, LAYOUT)
    shared: gl.constexpr = gl.SwizzledSharedLayout(1, 1, 1, [1, 0])
    lines: gl.constexpr = gl.SwizzledSharedLayout(1, 1, 1, [0])
    rows = gl.program_id(0) * BLOCK + gl.arange(0, BLOCK, down)
    v = gl.program_id(1)
    inside = rows < queries
    values += v * count_1 * count_2
    left = gl.allocate_shared_memory(gl.float32, [SIDE, BLOCK], shared)
    right = gl.allocate_shared_memory(gl.float32, [SIDE, SIDE], shared)
    # The same memory, to be read line by line.
    lefts = left._reinterpret(gl.float32, [SIDE, BLOCK], lines)
    rights = right._reinterpret(gl.float32, [SIDE, SIDE], lines)
    line = gl.arange(0, SIDE, across)
    row = gl.arange(0, SIDE, down)
    top_1 = gl.full([BLOCK], 0.0, gl.float32, down)
    top_2 = gl.full([BLOCK], 0.0, gl.float32, down)
    if not SMALL:
        top_1 = _largest(query, first, rows, inside, count_1, WIDTH, EVEN, LAYOUT)
        top_2 = _largest(query, second, rows, inside, count_2, WIDTH, EVEN, LAYOUT)
    mass_2 = gl.full([BLOCK], 0.0, gl.float32, down)
    average = gl.full([BLOCK], 0.0, gl.float32, down)
    for column in range(0, SIDE if SMALL else count_2, SIDE):
        acc = gl.full([BLOCK, SIDE], 0.0, gl.float32, LAYOUT)
        mass_1 = gl.full([BLOCK], 0.0, gl.float32, down)
        for start in range(0, SIDE if SMALL else count_1, SIDE):
            cells = (start + row)[:, None] * count_2 + (column + line)[None, :]
            known = (start + row < count_1)[:, None] & (column + line < count_2)[None, :]
            # Cells beyond the grid are zero, so that the product below needs no branch.
            right.store(gl.load(values + cells, mask=known, other=0.0))
            logits = _logits(query, first, rows, inside, start + line, count_1, WIDTH, EVEN, LAYOUT)
            if SMALL:
                top_1 = gl.max(logits, 1)
            power = _exp(logits - top_1[:, None])
            mass_1 += gl.sum(power, 1)
            # Keys as rows, so that the product reads one line of either array at a time.
            left.permute([1, 0]).store(power)
            # Beyond the last key all is zero.
            for i in range(0, gl.minimum(SIDE, count_1 - start), UNROLL):
                for k in gl.static_range(UNROLL):
                    a = lefts.index(i + k).load(down)
                    b = rights.index(i + k).load(across)
                    a, b = gl.broadcast(a[:, None], b[None, :])
                    acc = gl.fma(a, b, acc)
        # Several blocks of columns are added up: each is brought to the size of an average first.
        if not SMALL:
            acc = acc * gl.div_rn(gl.full([BLOCK], 1.0, gl.float32, down), mass_1)[:, None]
        logits = _logits(query, second, rows, inside, column + line, count_2, WIDTH, EVEN, LAYOUT)
        if SMALL:
            top_2 = gl.max(logits, 1)
        power = _exp(logits - top_2[:, None])
        mass_2 += gl.sum(power, 1)
        average += gl.sum(acc * power, 1)
        if SMALL:
            average = gl.div_rn(average, mass_1)
    gl.store(out + rows * width_v + v, gl.div_rn(average, mass_2), mask=inside)
