"""C text: numbers written exactly, tables, and affine maps in the form that suits their zeros."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from onelayer.errors import OnelayerError
from onelayer.layer.int8 import integers

WIDTH = 110  # characters of a line of numbers
# Products of an affine map that are written out; more of them become a table and a loop.
UNROLLED = 48
# A table with fewer nonzero entries than this share is stored by its nonzero entries.
SPARSE = 0.3
# Numbers in one file: 20 bytes of text each, so about 80 MB; compilers take minutes beyond.
MOST_NUMBERS = 2**22

# Keywords, macros and names of the file that a function must not take.
WORDS = (
    "auto break case char const continue default do double else enum extern float for goto if inline int long "
    "register restrict return short signed sizeof static struct switch typedef union unsigned void volatile while "
    "alignas alignof asm bool constexpr false nullptr static_assert thread_local true typeof typeof_unqual "
    "linux unix i386 errno main real dense dense8 sparse softmax normalize hold self_test EXP SQRT NAN INFINITY "
    "HUGE_VAL x y p k found failed allowed fpclassify isfinite isgreater isgreaterequal isinf isless islessequal "
    "islessgreater isnan isnormal isunordered signbit constants_are_double "
    "integers_have_32_bits"
)
# Functions of the C library, which compilers and the library itself call: a layer of that name would answer them.
LIBRARY = (
    "abort atexit atof atoi calloc clock close exit fclose fopen fputs fread free fwrite getenv index malloc memcmp "
    "memcpy memmove memset open perror printf puts qsort raise rand read realloc remove rename select send signal "
    "sleep sprintf srand strcmp strcpy strlen strncpy strtod system time write"
)
# Functions of math.h and those that compilers know without it; each has forms with f and l behind it.
MATHEMATICS = (
    "abs acos acosh asin asinh atan atan2 atanh cbrt ceil copysign cos cosh drem erf erfc exp exp2 expm1 fabs fdim "
    "finite floor fma fmax fmin fmod frexp gamma hypot ilogb labs ldexp lgamma llabs llrint llround log log10 log1p "
    "log2 logb lrint lround modf nan nearbyint nextafter nexttoward pow remainder remquo rint round scalb scalbln "
    "scalbn significand sin sincos sinh sqrt tan tanh tgamma trunc j0 j1 jn y0 y1 yn"
)

HELPERS = {
    "dense": """\
/* y = W x + b, the rows of W one after another */
static void dense(const real *x, const real *w, const real *b, real *y, int columns, int rows)
{
    int i, j;
    for (j = 0; j < rows; ++j) {
        real sum = b[j];
        for (i = 0; i < columns; ++i)
            sum += w[j * columns + i] * x[i];
        y[j] = sum;
    }
}
""",
    "dense8": """\
/* y = W x + b with the numbers q s_i in column i of W, q whole; q s_i is exact */
static void dense8(const real *x, const signed char *q, const real *s, const real *b, real *y, int columns, int rows)
{
    int i, j;
    for (j = 0; j < rows; ++j) {
        real sum = b[j];
        for (i = 0; i < columns; ++i)
            sum += ((real)q[j * columns + i] * s[i]) * x[i];
        y[j] = sum;
    }
}
""",
    "hold_bfloat16": """\
/* numbers rounded to nearest in bfloat16, ties to even: its bits are the upper half of a float's */
static void hold(real *a, int count)
{
    union { float f; unsigned int u; } v;
    int i;
    for (i = 0; i < count; ++i) {
        v.f = a[i];
        if ((v.u & 0x7f800000u) != 0x7f800000u)  /* nan and infinity stay */
            v.u = (v.u + 0x7fffu + ((v.u >> 16) & 1u)) & 0xffff0000u;
        a[i] = v.f;
    }
}
""",
    "hold_float16": """\
/* numbers below 65504 rounded to nearest in float16, ties to even; a sum with 0.75 has the spacing of its smallest */
static void hold(real *a, int count)
{
    union { float f; unsigned int u; } v;
    int i;
    for (i = 0; i < count; ++i) {
        v.f = a[i];
        if (v.f < 0x1p-14f && v.f > -0x1p-14f) {
            volatile float near = v.f + 0.75f;
            a[i] = near - 0.75f;
        } else if ((v.u & 0x7f800000u) != 0x7f800000u) {  /* nan and infinity stay */
            v.u = (v.u + 0xfffu + ((v.u >> 13) & 1u)) & 0xffffe000u;
            a[i] = v.f;
        }
    }
}
""",
    "sparse": """\
/* y = W x + b; row j of W has the entries w[start[j]], ... in the columns at[start[j]], ... */
static void sparse(const real *x, const int *start, const int *at, const real *w, const real *b, real *y, int rows)
{
    int i, j;
    for (j = 0; j < rows; ++j) {
        real sum = b[j];
        for (i = start[j]; i < start[j + 1]; ++i)
            sum += w[i] * x[at[i]];
        y[j] = sum;
    }
}
""",
    "softmax": """\
/* numbers to weights that sum to one; the largest is taken away first, so nothing overflows */
static void softmax(real *a, int count)
{
    int m;
    real top = a[0], sum = 0;
    for (m = 1; m < count; ++m)
        top = a[m] > top ? a[m] : top;
    for (m = 0; m < count; ++m) {
        a[m] = EXP(a[m] - top);
        sum += a[m];
    }
    for (m = 0; m < count; ++m)
        a[m] /= sum;
}
""",
    "normalize": """\
/* LayerNorm of one token */
static void normalize(const real *x, const real *gain, const real *shift, real *y, int width, real eps)
{
    int i;
    real mean = 0, variance = 0, root;
    for (i = 0; i < width; ++i)
        mean += x[i];
    mean /= (real)width;
    for (i = 0; i < width; ++i)
        variance += (x[i] - mean) * (x[i] - mean);
    root = SQRT(variance / (real)width + eps);
    for (i = 0; i < width; ++i)
        y[i] = (x[i] - mean) / root * gain[i] + shift[i];
}
""",
}


@dataclass
class Program:
    """A growing C file: tables, the helpers that were used, the body of the function."""

    prefix: str
    dtype: torch.dtype  # that it computes in
    tables: list[str] = field(default_factory=list)
    used: set[str] = field(default_factory=set)
    body: list[str] = field(default_factory=list)
    numbers: int = 0
    depth: int = 1
    narrow: str | None = None  # the format that results are rounded to, where it is narrower
    int8: bool = False  # whether values and keys are stored as whole numbers with scales

    def line(self, text: str) -> None:
        """One more line of the body; braces at its ends decide how far the next ones are moved in."""
        level = self.depth - text.startswith("}")
        self.body.append("    " * level + text)
        self.depth += text.count("{") - text.count("}")

    def literal(self, value: float) -> str:
        """A hexadecimal constant: C99 rounds decimal ones to a neighbour of its choice, these not at all."""
        return literal(value, self.dtype)

    def table(self, name: str, values: Tensor) -> str:
        """A constant array of the stored format, flattened; returns its name in C."""
        flat = values.detach().flatten().tolist()
        self._count(len(flat))
        full = f"{self.prefix}_{name}"
        entries = map(self.literal, flat)
        self.tables.append(array(f"static const real {full}", entries, len(flat)))
        return full

    def integers(self, name: str, values: NDArray[np.int64], kind: str = "int") -> str:
        """A table of whole numbers; returns its name."""
        self._count(len(values))
        entries = (str(int(value)) for value in values)
        full = f"{self.prefix}_{name}"
        self.tables.append(array(f"static const {kind} {full}", entries, len(values)))
        return full

    def values(self, name: str, values: Tensor, order: Sequence[int]) -> tuple[str, str, str]:
        """A table of values (..., d_v) in another order of its axes: its type, its name, and what an entry is times."""
        if not self.int8:
            ordered = values.detach().permute(*order).contiguous()
            return "real", self.table(name, ordered), ""
        whole, scales = integers(values)
        flat = whole.permute(*order).contiguous().flatten()
        table = self.integers(name, flat.numpy().astype(np.int64), "signed char")
        scale = self.table(f"{name}_scale", scales)
        return "signed char", table, f" * {scale}[out]"

    def held(self, target: str, count: int) -> None:
        """Round what an operation returned to a narrow format."""
        if self.narrow is not None:
            self.used.add(f"hold_{self.narrow}")
            self.line(f"hold({target}, {count});")

    def keys(self, name: str, source: str, target: str, keys: Tensor) -> None:
        """target[m] = sum_i source[i] keys[m, i]: the logits of one axis, which are not rounded further."""
        zero = torch.zeros(len(keys), dtype=self.dtype)
        if not self.int8 or int(keys.count_nonzero()) <= UNROLLED:
            self.affine(name, source, target, keys.detach().T, zero)
            return
        self.used.add("dense8")
        whole, scales = integers(keys)
        flat = whole.flatten().numpy().astype(np.int64)
        table = self.integers(f"{name}_w", flat, "signed char")
        scale = self.table(f"{name}_scale", scales)
        bias = self.table(f"{name}_b", zero)
        rows, columns = keys.shape
        self.line(f"dense8({source}, {table}, {scale}, {bias}, {target}, {columns}, {rows});")

    def affine(self, name: str, source: str, target: str, weight: Tensor, bias: Tensor) -> None:
        """target[j] = sum_i source[i] weight[i, j] + bias[j]; terms whose weight is zero are left out.

        That is exact: a product with zero is zero and adds nothing. So is leaving out a factor one.
        """
        found = int(weight.count_nonzero())
        if not found:
            # What is computed and weighs nothing anywhere is a warning, and with -Werror the end.
            self.line(f"(void)({source});")
        # Few products are easier to read in full, and zeros need no table then.
        if found <= UNROLLED:
            for j in range(weight.shape[1]):
                total = self._sum(source, weight[:, j], float(bias[j]))
                self.line(f"{target}[{j}] = {total};")
            return
        biases = self.table(f"{name}_b", bias)
        columns, rows = weight.shape
        if found >= SPARSE * weight.numel():
            self.used.add("dense")
            weights = self.table(f"{name}_w", weight.T)
            self.line(f"dense({source}, {weights}, {biases}, {target}, {columns}, {rows});")
            return
        self.used.add("sparse")
        row, column = weight.T.nonzero(as_tuple=True)
        starts = np.searchsorted(row.numpy(), np.arange(rows + 1))
        at = self.integers(f"{name}_at", column.numpy())
        start = self.integers(f"{name}_start", starts)
        weights = self.table(f"{name}_w", weight.T[row, column])
        self.line(f"sparse({source}, {start}, {at}, {weights}, {biases}, {target}, {rows});")

    def _sum(self, source: str, column: Tensor, bias: float) -> str:
        terms = [] if bias == 0 else [self.literal(bias)]
        for i, weight in enumerate(column.tolist()):
            if weight:
                factor = "" if weight == 1 else f"{self.literal(weight)} * "
                terms.append(f"{factor}{source}[{i}]")
        return " + ".join(terms) or "0"

    def _count(self, more: int) -> None:
        self.numbers += more
        # Counted as they are written: a large table is refused before it fills the memory.
        if self.numbers > MOST_NUMBERS:
            raise OnelayerError(f"the layer has more than {MOST_NUMBERS:,} numbers, too many for a C file; use ONNX")


def literal(value: float, dtype: torch.dtype) -> str:
    """A number of the format, exactly, in C99."""
    if value == 0:
        return "0"
    mantissa, exponent = float(value).hex().split("p")
    text = f"{mantissa.rstrip('0').rstrip('.')}p{exponent}"
    return text + ("f" if dtype == torch.float32 else "")


def function_name(path: Path) -> str:
    """The C function of a file: its name, with _ for what no identifier has; OnelayerError where that is none."""
    name = re.sub(r"[-. ]", "_", path.stem)
    mathematics = {f"{word}{kind}" for word in MATHEMATICS.split() for kind in ("", "f", "l")}
    taken = {*WORDS.split(), *LIBRARY.split(), *mathematics}
    limit = name.startswith(("FLT_", "DBL_", "LDBL_", "DECIMAL_"))  # macros of float.h
    # A header would be written where the program is.
    if path.suffix == ".h" or name in taken or limit or not re.fullmatch(r"[A-Za-z][A-Za-z0-9_]*", name):
        raise OnelayerError(
            f"'{path.stem}.c' cannot name a C function; use letters, digits and _ for a name that C has not taken, "
            "as wave.c"
        )
    return name


def array(head: str, entries: Iterable[str], count: int) -> str:
    """A definition with its entries wrapped into lines."""
    return f"{head}[{count}] = {{\n{_wrapped(entries)}\n}};\n"


def _wrapped(entries: Iterable[str], indent: str = "    ") -> str:
    """Entries with commas between them, in lines of bounded width."""
    lines, length = [""], 0
    for entry in entries:
        if length + len(entry) > WIDTH:
            lines.append("")
            length = 0
        lines[-1] += f"{entry}, "
        length += len(entry) + 2
    return "\n".join(indent + line.rstrip() for line in lines).rstrip(",")


def comment(lines: Sequence[str]) -> str:
    """A block comment; a line that would end it early is taken apart, long ones are wrapped."""
    shown: list[str] = []
    for line in lines:
        # Backslashes and trigraphs join lines before a compiler sees the comment.
        safe = line.replace("*/", "* /").replace("/*", "/ *")
        safe = safe.replace("\\", "\\ ").replace("??", "? ?")
        printable = "".join(letter if 32 <= ord(letter) < 127 else "?" for letter in safe)
        shown += textwrap.wrap(printable, WIDTH, subsequent_indent="  ") or [""]
    body = "\n".join(f" * {line}".rstrip() for line in shown)
    return f"/*\n{body}\n */\n"
