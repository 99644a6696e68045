"""Attention in C: queries, keys and values of every head, token by token, in the order in which torch adds them."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from onelayer.export.c_text import Program
from onelayer.layer.memory import GridMemory
from onelayer.layer.transformer import OneLayerTransformer


class TokenLoop:
    """Braces around what is done for every token; one token needs no counter."""

    def __init__(self, program: Program, count: int) -> None:
        self.program = program
        self.count = count
        self.at = "n" if count > 1 else "0"

    def __enter__(self) -> None:
        each = f"for (n = 0; n < {self.count}; ++n) {{"
        self.program.line(each if self.count > 1 else "{")

    def __exit__(self, *_: object) -> None:
        self.program.line("}")


def emit_attention(program: Program, model: OneLayerTransformer, own: dict[str, Tensor], attended: str) -> None:
    """r = MHA(attended) W_O + b_O: one sum over all heads where torch takes them together, else head by head."""
    config = model.config
    n = model.config.length
    loop = TokenLoop(program, n)
    if config.token_attention:
        for what, letter in (("key", "K"), ("value", "V")):
            weight = own[f"W_{letter}"]
            width = weight.shape[1]
            program.line(f"real {what}[{n}][{width}];")
            with loop:
                source = f"{attended}[{loop.at}]"
                target = f"{what}[{loop.at}]"
                program.affine(what, source, target, weight, own[f"b_{letter}"])
                program.held(target, width)
    # As torch adds them: heads of one shape in one product, others one after another; narrow formats always in one.
    together = model.config.alike or program.narrow is not None
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
                no_bias = torch.zeros_like(own["b_O"])
                program.affine(f"out{h}", heads, "part", rows, no_bias)
                sign = "=" if h == 0 else "+="
                program.line(f"for (i = 0; i < {config.d_model}; ++i) r[{loop.at}][i] {sign} part[i];")
            v += shape.d_v
        if together:
            program.affine("out", "z", f"r[{loop.at}]", own["W_O"], own["b_O"])
            program.held(f"r[{loop.at}]", config.d_model)
        else:
            _add_bias(program, f"r[{loop.at}]", own["b_O"].tolist())


def _add_bias(program: Program, target: str, bias: list[float]) -> None:
    for i, value in enumerate(bias):
        if value:
            program.line(f"{target}[{i}] += {program.literal(value)};")


def _head(program: Program, model: OneLayerTransformer, own: dict[str, Tensor], h: int, e: str, target: str) -> None:
    """target = Z_h of eq (8) for one token."""
    config = model.config
    shape = model.config.heads[h]
    k = sum(head.d_k for head in config.heads[:h])
    columns = slice(k, k + shape.d_k)
    root = math.sqrt(shape.d_k)
    scale = float(torch.tensor(1 / root, dtype=program.dtype))
    program.line(f"{{ /* head {h} */")
    program.line(f"real q[{shape.d_k}];")
    program.line("int j;")
    weight, bias = own["W_Q"][:, columns], own["b_Q"][columns]
    program.affine(f"query{h}", e, "q", weight, bias)
    program.held("q", shape.d_k)
    # As in the layer: the query is scaled before it meets the keys.
    program.line(f"for (j = 0; j < {shape.d_k}; ++j) q[j] *= {program.literal(scale)};")
    memory = model.memory_of(h)
    if isinstance(memory, GridMemory):
        _grid(program, h, memory, target)
    else:
        _plain(program, model, h, target)
    program.held(target, shape.d_v)
    program.line("}")


def _grid(program: Program, h: int, memory: GridMemory, target: str) -> None:
    """One softmax per axis, then the values contracted axis by axis, the first axis innermost as in torch."""
    counts = [len(axis) for axis in memory.axes]
    for a, axis in enumerate(memory.axes):
        program.line(f"real a{a}[{counts[a]}];")
        program.keys(f"keys{h}_{a}", "q", f"a{a}", axis.detach())
    program.used.add("softmax")
    for a, count in enumerate(counts):
        program.line(f"softmax(a{a}, {count});")
    depth = len(counts)
    width = memory.values.shape[-1]
    order = [depth, *reversed(range(depth))]  # output, last axis, ..., first axis
    kind, values, times = program.values(f"values{h}", memory.values.detach(), order)
    program.line("{")
    program.line(f"const {kind} *v = {values};")
    counters = ", ".join(f"m{a}" for a in range(depth))
    program.line(f"int {counters}, out;")
    program.line(f"for (out = 0; out < {width}; ++out) {{")
    for a in reversed(range(depth)):
        program.line(f"real s{a} = 0;")
        program.line(f"for (m{a} = 0; m{a} < {counts[a]}; ++m{a}) {{")
    entry = f"(real)*v++{times}" if times else "*v++"
    program.line(f"s0 += a0[m0] * ({entry});")
    for a in range(1, depth):
        program.line("}")
        program.line(f"s{a} += a{a}[m{a}] * s{a - 1};")
    program.line("}")
    program.line(f"{target}[out] = s{depth - 1};")
    program.line("}")
    program.line("}")


def _plain(program: Program, model: OneLayerTransformer, h: int, target: str) -> None:
    """One softmax over the tokens of the sequence, if they are attended to, and the memory tokens after them."""
    config = model.config
    shape = model.config.heads[h]
    own = config.length if config.token_attention else 0
    memory = model.memory_of(h)
    k = sum(head.d_k for head in config.heads[:h])
    v = sum(head.d_v for head in config.heads[:h])
    # Tokens of the sequence first, then the memory: the order in which torch joins them.
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
        program.keys(f"keys{h}", "q", f"(a + {own})", keys)
        _, stored, times = program.values(f"values{h}", values, (0, 1))
    program.used.add("softmax")
    program.line(f"softmax(a, {count});")
    program.line(f"for (out = 0; out < {shape.d_v}; ++out) {{")
    program.line("real sum = 0;")
    if own:
        program.line(f"for (m = 0; m < {own}; ++m) sum += a[m] * value[m][{v} + out];")
    if memory is not None:
        entry = f"{stored}[m * {shape.d_v} + out]"
        product = f"((real){entry}{times})" if times else entry
        program.line(f"for (m = 0; m < {shape.token_count}; ++m) sum += a[{own} + m] * {product};")
    program.line(f"{target}[out] = sum;")
    program.line("}")
