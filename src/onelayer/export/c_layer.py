"""The forward pass in C, operation by operation what OneLayerTransformer does, so that one rounding model covers both.

Every product sum of the layer is one sum in C, with the same terms; heads are added up in the same order; what torch
multiplies in two steps is multiplied in two steps here. Only zeros are left out, which changes no number.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from onelayer.errors import OnelayerError
from onelayer.export.c_text import Program
from onelayer.layer.config import Config
from onelayer.layer.memory import GridMemory
from onelayer.layer.transformer import NORM_EPS, OneLayerTransformer


def emit_layer(program: Program, model: OneLayerTransformer) -> None:
    """Append the body of y = T(x) to ``program``; refuse what has no rounding model in C."""
    _refuse(model)
    config, own = model.config, dict(model.state_dict())
    n, width = config.length, config.d_model
    program.line(f"real e[{n}][{width}], r[{n}][{width}];")
    if n > 1:
        program.line("int n;")
    for_tokens = _Loop(program, n)
    with for_tokens:
        _embed(program, config, own)
    attended = "e"
    if config.norm == "pre":
        program.line(f"real u[{n}][{width}];")
        with for_tokens:
            _norm(program, config, own, "1", f"e[{for_tokens.at}]", f"u[{for_tokens.at}]")
        attended = "u"
    _attention(program, model, own, attended)
    if config.residual or config.hidden or config.norm == "post":
        with for_tokens:
            _after_attention(program, config, own, for_tokens.at)
    _read(program, config, own)


class _Loop:
    """Braces around what is done for every token; one token needs no counter."""

    def __init__(self, program: Program, count: int) -> None:
        self.program, self.count = program, count
        self.at = "n" if count > 1 else "0"

    def __enter__(self) -> None:
        self.program.line(f"for (n = 0; n < {self.count}; ++n) {{" if self.count > 1 else "{")

    def __exit__(self, *_: object) -> None:
        self.program.line("}")


def _refuse(model: OneLayerTransformer) -> None:
    config = model.config
    if config.attention != "softmax":
        raise OnelayerError(f"C export knows softmax attention; this layer has '{config.attention}': use ONNX")
    if config.layout not in ("packed", "tokens"):
        raise OnelayerError(f"C export knows the layouts packed and tokens; this layer is '{config.layout}'")
    if config.token_attention and any(head.memory == "grid" for head in config.heads):
        raise OnelayerError("a grid of memory tokens beside a sequence has no C form; export model.materialize()")


def _embed(program: Program, config: Config, own: dict[str, Tensor]) -> None:
    at, width = ("n" if config.length > 1 else "0"), config.token_width
    source = "x" if config.length == 1 else f"(x + n * {width})"
    if config.embedding == "piecewise":
        start, slope = program.table("ramp_start", own["ramp_start"]), program.table("ramp_slope", own["ramp_slope"])
        program.line(f"real ramp[{config.features}];")
        program.line("int i;")
        program.line(f"for (i = 0; i < {config.features}; ++i) {{")
        program.line(f"const real t = ({source}[i / {config.ramps}] - {start}[i]) * {slope}[i];")
        program.line("ramp[i] = t < 0 ? 0 : t > 1 ? 1 : t;")
        program.line("}")
        source = "ramp"
    program.affine("embed", source, f"e[{at}]", own["W_E"], own["b_E"])
    if config.positions != "none":
        table = program.table("position", own["position"])
        program.line("{")
        program.line("int c;")
        program.line(f"for (c = 0; c < {config.d_model}; ++c) e[{at}][c] += {table}[{at} * {config.d_model} + c];")
        program.line("}")


def _norm(program: Program, config: Config, own: dict[str, Tensor], which: str, source: str, target: str) -> None:
    program.used.add("normalize")
    names = [f"{program.prefix}_{kind}_{which}" for kind in ("gain", "shift")]
    if not any(names[0] in table for table in program.tables):
        for kind in ("gain", "shift"):
            program.table(f"{kind}_{which}", own[f"{kind}_{which}"])
    eps = program.literal(float(torch.tensor(NORM_EPS, dtype=program.dtype)))
    program.line(f"normalize({source}, {names[0]}, {names[1]}, {target}, {config.d_model}, {eps});")


def _attention(program: Program, model: OneLayerTransformer, own: dict[str, Tensor], attended: str) -> None:
    """r = MHA(attended) W_O + b_O: one sum over all heads where torch takes them together, else head by head."""
    config, n = model.config, model.config.length
    if config.token_attention:
        for what, letter in (("key", "K"), ("value", "V")):
            program.line(f"real {what}[{n}][{own[f'W_{letter}'].shape[1]}];")
            program.line(f"for (n = 0; n < {n}; ++n) {{" if n > 1 else "{")
            at = "n" if n > 1 else "0"
            program.affine(what, f"{attended}[{at}]", f"{what}[{at}]", own[f"W_{letter}"], own[f"b_{letter}"])
            program.line("}")
    together = model._alike()
    loop = _Loop(program, n)
    with loop:
        program.line(f"real z[{own['W_O'].shape[0]}];")
        if not together:
            program.line(f"real part[{config.d_model}];")
            program.line("int i;")
        v = 0
        for h, shape in enumerate(config.heads):
            heads = f"(z + {v})" if v else "z"
            _head(program, model, own, h, f"{attended}[{loop.at}]", heads)
            if not together:
                rows = own["W_O"][v : v + shape.d_v]
                program.affine(f"out{h}", heads, "part", rows, torch.zeros_like(own["b_O"]))
                sign = "=" if h == 0 else "+="
                program.line(f"for (i = 0; i < {config.d_model}; ++i) r[{loop.at}][i] {sign} part[i];")
            v += shape.d_v
        if together:
            program.affine("out", "z", f"r[{loop.at}]", own["W_O"], own["b_O"])
        else:
            for i, bias in enumerate(own["b_O"].tolist()):
                if bias:
                    program.line(f"r[{loop.at}][{i}] += {program.literal(bias)};")


def _head(program: Program, model: OneLayerTransformer, own: dict[str, Tensor], h: int, e: str, target: str) -> None:
    """target = Z_h of eq (8) for one token."""
    config, shape = model.config, model.config.heads[h]
    k = sum(head.d_k for head in config.heads[:h])
    columns = slice(k, k + shape.d_k)
    scale = float(torch.tensor(1 / math.sqrt(shape.d_k), dtype=program.dtype))
    program.line(f"{{ /* head {h} */")
    program.line(f"real q[{shape.d_k}];")
    program.line("int j;")
    program.affine(f"query{h}", e, "q", own["W_Q"][:, columns], own["b_Q"][columns])
    program.line(f"for (j = 0; j < {shape.d_k}; ++j) q[j] *= {program.literal(scale)};")
    memory = model.memory_of(h)
    if isinstance(memory, GridMemory):
        _grid(program, h, memory, target)
    else:
        _plain(program, model, h, target)
    program.line("}")


def _grid(program: Program, h: int, memory: GridMemory, target: str) -> None:
    """One softmax per axis, then the values contracted axis by axis, the first axis innermost as in torch."""
    counts = [len(axis) for axis in memory.axes]
    for a, axis in enumerate(memory.axes):
        program.line(f"real a{a}[{counts[a]}];")
        program.affine(f"keys{h}_{a}", "q", f"a{a}", axis.detach().T, torch.zeros(len(axis), dtype=program.dtype))
    program.used.add("softmax")
    for a, count in enumerate(counts):
        program.line(f"softmax(a{a}, {count});")
    depth, width = len(counts), memory.values.shape[-1]
    order = [depth, *reversed(range(depth))]  # output, last axis, ..., first axis
    values = program.table(f"values{h}", memory.values.detach().permute(*order).contiguous())
    program.line("{")
    program.line(f"const real *v = {values};")
    program.line(f"int {', '.join(f'm{a}' for a in range(depth))}, out;")
    program.line(f"for (out = 0; out < {width}; ++out) {{")
    for a in reversed(range(depth)):
        program.line(f"real s{a} = 0;")
        program.line(f"for (m{a} = 0; m{a} < {counts[a]}; ++m{a}) {{")
    program.line("s0 += a0[m0] * *v++;")
    for a in range(1, depth):
        program.line("}")
        program.line(f"s{a} += a{a}[m{a}] * s{a - 1};")
    program.line("}")
    program.line(f"{target}[out] = s{depth - 1};")
    program.line("}")
    program.line("}")


def _plain(program: Program, model: OneLayerTransformer, h: int, target: str) -> None:
    """One softmax over the tokens of the sequence, if they are attended to, and the memory tokens after them."""
    config, shape = model.config, model.config.heads[h]
    own = config.length if config.token_attention else 0
    memory = model.memory_of(h)
    k, v = (sum(getattr(head, width) for head in config.heads[:h]) for width in ("d_k", "d_v"))
    count = own + shape.token_count
    program.line(f"real a[{count}];")
    program.line("int m, out;")
    if own:
        program.line(f"for (m = 0; m < {own}; ++m) {{")
        program.line("real sum = 0;")
        program.line(f"for (j = 0; j < {shape.d_k}; ++j) sum += q[j] * key[m][{k} + j];")
        program.line("a[m] = sum;")
        program.line("}")
    if memory is not None:
        keys, values = (item.detach() for item in memory.plain_tokens())
        zero = torch.zeros(len(keys), dtype=program.dtype)
        program.affine(f"keys{h}", "q", f"(a + {own})", keys.T, zero)
        stored = program.table(f"values{h}", values)
    program.used.add("softmax")
    program.line(f"softmax(a, {count});")
    program.line(f"for (out = 0; out < {shape.d_v}; ++out) {{")
    program.line("real sum = 0;")
    if own:
        program.line(f"for (m = 0; m < {own}; ++m) sum += a[m] * value[m][{v} + out];")
    if memory is not None:
        program.line(
            f"for (m = 0; m < {shape.token_count}; ++m) sum += a[{own} + m] * {stored}[m * {shape.d_v} + out];"
        )
    program.line(f"{target}[out] = sum;")
    program.line("}")


def _after_attention(program: Program, config: Config, own: dict[str, Tensor], at: str) -> None:
    """Residual, norms and the feed-forward network of one token, in place in r."""
    width = config.d_model
    each = f"for (i = 0; i < {width}; ++i) "
    if config.residual or config.hidden:
        program.line("int i;")
    if config.residual:
        program.line(f"{each}r[{at}][i] = e[{at}][i] + r[{at}][i];")
    if config.norm == "post":
        _norm(program, config, own, "1", f"r[{at}]", f"r[{at}]")
    if not config.hidden:
        return
    program.line(f"real hidden[{config.hidden}], ffn[{width}];")
    source = f"r[{at}]"
    if config.norm == "pre":
        program.line(f"real inner[{width}];")
        _norm(program, config, own, "2", source, "inner")
        source = "inner"
    program.affine("first", source, "hidden", own["W_1"], own["b_1"])
    program.line(f"for (i = 0; i < {config.hidden}; ++i) hidden[i] = hidden[i] < 0 ? 0 : hidden[i];")
    program.affine("second", "hidden", "ffn", own["W_2"], own["b_2"])
    program.line(f"{each}r[{at}][i] = {f'r[{at}][i] + ' if config.residual else ''}ffn[i];")
    if config.norm == "post":
        _norm(program, config, own, "2", f"r[{at}]", f"r[{at}]")


def _read(program: Program, config: Config, own: dict[str, Tensor]) -> None:
    n, width = config.length, config.d_model
    if config.readout == "each":
        with _Loop(program, n):
            at = "n" if n > 1 else "0"
            program.affine("read", f"r[{at}]", f"(y + {at} * {config.readout_width})", own["W_R"], own["b_R"])
        return
    source = f"r[{0 if config.readout != 'last' else n - 1}]"
    if config.readout == "mean":
        share = program.literal(float(torch.tensor(1 / n, dtype=program.dtype)))
        program.line(f"real mean[{width}];")
        program.line("int i;")
        program.line(f"for (i = 0; i < {width}; ++i) {{")
        program.line("real sum = 0;")
        program.line(f"for (n = 0; n < {n}; ++n) sum += r[n][i];" if n > 1 else "sum = r[0][i];")
        program.line(f"mean[i] = sum * {share};")
        program.line("}")
        source = "mean"
    program.affine("read", source, "y", own["W_R"], own["b_R"])
