"""C: one C99 file and its header, no allocation, no library but math.h, with the certificate in its comment."""

from __future__ import annotations

import os
from pathlib import Path

import torch
from torch import Tensor

from onelayer import __version__
from onelayer.box import Box
from onelayer.card import number_of
from onelayer.disk import replace_file
from onelayer.door import door
from onelayer.export.c_layer import emit_layer
from onelayer.export.c_self_test import bounded, counts, self_test
from onelayer.export.c_text import HELPERS, Program, comment, function_name, literal
from onelayer.formats import REAL, format_of, spelled
from onelayer.ground import pinned
from onelayer.guard import CLAMP, RAISE, check_guard, inward
from onelayer.layer.file import weights_sha256
from onelayer.narrow import ACCUMULATORS
from onelayer.result import Approximation
from onelayer.source import Exportable, Source, source_of

# Numbers of narrow formats are floats in C, rounded where the layer rounds.
TYPES = {torch.float64: "double", torch.float32: "float", torch.float16: "float", torch.bfloat16: "float"}

# Each part of -ffast-math by its own flag, and x87 registers: nan would pass a guard, and sums would be others.
# Compilers for small processors read double as float, or have integers of 16 bits, and say nothing.
# No macro tells of constants that are read as float, which lose half of their digits.
REFUSED = """\
#if defined(__FAST_MATH__) || defined(__ASSOCIATIVE_MATH__) || defined(__RECIPROCAL_MATH__) || defined(_M_FP_FAST) \\
    || (defined(__FINITE_MATH_ONLY__) && __FINITE_MATH_ONLY__ != 0) \\
    || (defined(__FLT_EVAL_METHOD__) && __FLT_EVAL_METHOD__ != 0) \\
    || (defined(FLT_EVAL_METHOD) && FLT_EVAL_METHOD != 0)
#error "the proof needs every operation rounded to nearest in its own format: no -ffast-math, no x87"
#endif
#if FLT_RADIX != 2 || FLT_MANT_DIG != 24 || FLT_MAX_EXP != 128 || DBL_MANT_DIG != 53 || DBL_MAX_EXP != 1024
#error "the proof needs the IEEE formats: float of 32 bits, double of 64 bits"
#endif
/* refused where integers are shorter than tables are long: an array of less than no entries */
typedef char integers_have_32_bits[sizeof(int) == 4 && sizeof(float) == 4 ? 1 : -1];
/* refused where constants are read as float (-fsingle-precision-constant) */
typedef char constants_are_double[sizeof(1.0) == sizeof(double) ? 1 : -1];"""


@door
@pinned()
def to_c(a: Exportable, path: str | os.PathLike[str], *, guard: str | None = None) -> Path:
    """Write ``a`` as ``path`` (a .c file) and the header beside it, in its own format; returns the path.

    Values and keys of an int8 layer are tables of ``signed char``, and a layer of float16 or bfloat16 computes with
    floats that it rounds where the layer does.

    The function is named after the file. The C program does operation by operation what the layer does, so a
    certificate of float64 or float32 execution speaks of it as well; the comment says under which assumptions.
    ``guard`` decides what happens outside the domain: None computes, "warn" computes and returns 1, "raise" returns 1
    and nan, "clamp" moves the point into the domain and returns 1.
    """
    target = Path(path)
    check_guard(guard)
    name = function_name(target)
    source = source_of(a)
    model = source.model
    row = format_of(model.dtype)
    narrow = row.name if row.accumulator is not None else None
    program = Program(name, row.computing.dtype, narrow=narrow, int8=model.int8)
    # First the layer, which says which helpers and tables the file needs.
    emit_layer(program, source.model)
    replace_file(target.with_suffix(".h"), _header(name, a, source, guard).encode())
    replace_file(target, _program(target, a, source, program, guard).encode())
    return target


def _header(name: str, a: Exportable, source: Source, guard: str | None) -> str:
    inputs, outputs = counts(source)
    kind = TYPES[source.model.dtype]
    upper = name.upper()
    claim = ""
    if bounded(a):
        rests = ", ".join(filter(None, (a.certificate.where, a.certificate.condition)))
        beside = f" /* {rests} */" if rests else ""
        claim = f"#define {upper}_BOUND {literal(a.certificate.upper, torch.float64)}{beside}\n"
    certified = isinstance(a, Approximation)
    where = "the domain of the certificate" if certified else "the box that the layer was fitted on"
    promised = "the rows of the table" if isinstance(a, Approximation) and a.certificate.where else where
    said = {
        None: f"Returns 0. Outside {promised} nothing is promised and nothing is said.",
        "warn": f"Returns 0 in {where}, 1 outside, where nothing is promised of y.",
        RAISE: f"Returns 0 in {where}; outside it returns 1 and fills y with nan.",
        CLAMP: f"Returns 0 in {where}; outside it returns 1 and y at the nearest point inside.",
    }[guard]
    rounded = [_rounding(source)] if source.model.dtype in ACCUMULATORS else []
    named = []
    if source.box is not None and source.box.names:
        named = [f"{_sides(source.box)}."]
    first = f"y = T(x), {inputs} numbers in, {outputs} out. {said}"
    last = "The certificate is in the .c file." if certified else "Nothing is proved about this layer."
    about = comment([first, *rounded, *named, last])
    return f"""{about}\
#ifndef {upper}_H
#define {upper}_H

#define {upper}_INPUTS {inputs}
#define {upper}_OUTPUTS {outputs}
{claim}
int {name}(const {kind} x[{upper}_INPUTS], {kind} y[{upper}_OUTPUTS]);

#endif
"""


def _program(target: Path, a: Exportable, source: Source, program: Program, guard: str | None) -> str:
    name = program.prefix
    upper = name.upper()
    kind = TYPES[source.model.dtype]
    suffix = "" if source.model.dtype == torch.float64 else "f"
    before = _before(source, program, guard)
    helpers = "\n".join(HELPERS[key] for key in HELPERS if key in program.used)
    body = "\n".join(program.body)
    tables = "\n".join(program.tables)
    return f"""{comment(facts(a, source))}\
#include "{target.with_suffix(".h").name}"
#include <float.h>
#include <math.h>

{REFUSED}

typedef {kind} real;
#define EXP exp{suffix}
#define SQRT sqrt{suffix}

{tables}
{helpers}
int {name}(const {kind} {_argument(program, guard)}[{upper}_INPUTS], {kind} y[{upper}_OUTPUTS])
{{
{before}{body}
    return {"0" if guard is None else "outside"};
}}

{self_test(name, a, source)}"""


def _rounding(source: Source) -> str:
    """What happens to arguments between two numbers of a narrow format."""
    return f"x is rounded to {spelled(source.model.dtype)} first: y is T there, and the bound is about f there."


def _argument(program: Program, guard: str | None) -> str:
    """The name of the argument: x is a copy of it where it is moved or rounded first."""
    return "x" if program.narrow is None and guard != CLAMP else "given"


def _before(source: Source, program: Program, guard: str | None) -> str:
    """Statements before the forward pass: whether the point is outside, and what then; a copy rounded to the format.

    nan is outside. The ends of the domain are numbers of the format, so what is inside stays there when it is rounded.
    """
    x = _argument(program, guard)
    inputs, outputs = counts(source)
    each = f"for (c = 0; c < {inputs}; ++c)"
    kept = f"{x}[c]"
    # An unused counter is a warning, and with -Werror the end.
    lines = [] if guard is None and x == "x" else ["int c;"]
    if guard is not None:
        ends = {word: program.table(word, side) for word, side in _ends(source).items()}
        low, high = ends["lower"], ends["upper"]
        # Written as "not inside", so that nan is outside.
        inside = f"{x}[c] >= {low}[c] && {x}[c] <= {high}[c]"
        lines += ["int outside = 0;", each, f"    outside |= !({inside});"]
        if guard == RAISE:
            lines += ["if (outside) {", f"    for (c = 0; c < {outputs}; ++c) y[c] = (real)NAN;", "    return 1;", "}"]
        if guard == CLAMP:
            below = f"{kept} < {low}[c] ? {low}[c]"
            above = f"{kept} > {high}[c] ? {high}[c]"
            kept = f"{below} : {above} : {kept}"
    if x != "x":
        lines = [f"real x[{inputs}];", *lines, each, f"    x[c] = {kept};"]
    if program.narrow is not None:
        lines.append(f"hold(x, {inputs});")
    return "".join(f"    {line}\n" for line in lines)


def _ends(source: Source) -> dict[str, Tensor]:
    """The ends of the domain, as numbers of the format in it."""
    box = source.domain
    dtype = source.model.dtype
    lower = inward(box.lower, dtype, up=True)
    upper = inward(box.upper, dtype, up=False)
    return {"lower": lower, "upper": upper}


def _sides(box: Box) -> str:
    """The sides of a domain, with what stands in which place of x: "x[0] = v [m/s] in [1.0, 2.0], x[1] = ..."."""
    if not box.names:
        return " x ".join(box.sides)
    places = enumerate(zip(box.labels, box.sides, strict=True))
    return ", ".join(f"x[{at}] = {label} in {side}" for at, (label, side) in places)


def facts(a: Exportable, source: Source) -> list[str]:
    """What the comment says: claim, domain, hashes, and what the bound covers of a C program."""
    kind = spelled(source.model.dtype)
    narrow = source.model.dtype in ACCUMULATORS
    lines = [f"Written by onelayer {__version__}: {source.model!r}."]
    lines.append(f"weights sha256: {weights_sha256(source.model)}")
    if not isinstance(a, Approximation):
        return [*lines, "Nothing is proved about this layer."]
    proof = a.certificate
    boxes = number_of(proof.boxes, "boxes")
    lines += [
        f"{proof.status}: {proof.sentence}",
        f"f = {proof.short_function}",
        f"domain: {_sides(source.domain)}",
        f"proof: {proof.method}, {boxes}; {proof.arithmetic}",
    ]
    lines += [*(f"assumed: {text}" for text in proof.assumptions), ""]
    # Nothing is said of a rounding that was not proved.
    if proof.arithmetic == REAL:
        return [*lines, "The certificate speaks of exact arithmetic: the rounding of this program is NOT in the bound."]
    holding = (
        f" What an operation returns is rounded to {kind} by hold(), on the bits of a float of 32." if narrow else ""
    )
    return [
        *lines,
        "What the bound covers of this program. It does operation by operation what the certified forward pass does: "
        "the same sums of the same products, the same softmax, heads added in the same order; only terms with a weight "
        f"of zero and factors of one are left out, which changes no {kind}. The bound holds for every order in which a "
        "sum is taken, with each product rounded or fused (-ffp-contract=on or off, FMA or not: a contraction drops a "
        f"rounding that was allowed for), for exp within 4 units in the last place (glibc and musl: below 1) and "
        "square roots, quotients and all other operations rounded to nearest. No additional slack is needed." + holding,
        "It does not cover -ffast-math or any part of it, x87 registers (FLT_EVAL_METHOD != 0), constants read as "
        "float, another rounding direction, or a coarser exp. "
        f"Arguments must be {'rows of the table' if proof.where else 'in the domain'}"
        f"{'. ' + _rounding(source) if narrow else '.'}",
    ]
