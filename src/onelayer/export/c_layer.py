"""The forward pass in C, operation by operation what OneLayerTransformer does, so that one rounding model covers both.

Every product sum of the layer is one sum in C, with the same terms; heads are added up in the same order; what torch
multiplies in two steps is multiplied in two steps here. Only zeros are left out, which changes no number.
"""

from __future__ import annotations

import torch
from torch import Tensor

from onelayer.errors import OnelayerError
from onelayer.export.c_attention import TokenLoop, emit_attention
from onelayer.export.c_text import Program
from onelayer.layer.config import Config
from onelayer.layer.transformer import NORM_EPS, OneLayerTransformer


def emit_layer(program: Program, model: OneLayerTransformer) -> None:
    """Append the body of y = T(x) to ``program``; refuse what has no rounding model in C."""
    _refuse(model)
    config = model.config
    own = dict(model.state_dict())
    n = config.length
    width = config.d_model
    program.line(f"real e[{n}][{width}], r[{n}][{width}];")
    if n > 1:
        # One token needs no counter, and an unused one is a warning.
        program.line("int n;")
    for_tokens = TokenLoop(program, n)
    if config.pieces:
        # One affine map of the whole input makes all tokens.
        program.affine("embed", "x", "(&e[0][0])", own["W_E"], own["b_E"])
        program.held("(&e[0][0])", n * width)
    else:
        with for_tokens:
            _embed(program, config, own)
    attended = "e"
    if config.norm == "pre":
        program.line(f"real u[{n}][{width}];")
        with for_tokens:
            at = for_tokens.at
            _norm(program, config, own, "1", f"e[{at}]", f"u[{at}]")
        attended = "u"
    emit_attention(program, model, own, attended)
    if config.residual or config.hidden or config.norm == "post":
        with for_tokens:
            _after_attention(program, config, own, for_tokens.at)
    _read(program, config, own)


def _refuse(model: OneLayerTransformer) -> None:
    config = model.config
    if config.attention != "softmax":
        raise OnelayerError(f"C export knows softmax attention; this layer has '{config.attention}': use ONNX")
    if config.token_attention and any(head.memory == "grid" for head in config.heads):
        raise OnelayerError("a grid of memory tokens beside a sequence has no C form; export model.materialize()")


def _embed(program: Program, config: Config, own: dict[str, Tensor]) -> None:
    at = "n" if config.length > 1 else "0"
    width = config.token_width
    source = "x" if config.length == 1 else f"(x + n * {width})"
    if config.embedding == "piecewise":
        start = program.table("ramp_start", own["ramp_start"])
        slope = program.table("ramp_slope", own["ramp_slope"])
        program.line(f"real ramp[{config.features}];")
        program.line("int i;")
        program.line(f"for (i = 0; i < {config.features}; ++i) {{")
        number = f"{source}[i / {config.ramps}]"
        program.line(f"const real t = ({number} - {start}[i]) * {slope}[i];")
        # Written so that nan stays nan, as in torch.
        program.line("ramp[i] = t < 0 ? 0 : t > 1 ? 1 : t;")
        program.line("}")
        program.held("ramp", config.features)
        source = "ramp"
    program.affine("embed", source, f"e[{at}]", own["W_E"], own["b_E"])
    program.held(f"e[{at}]", config.d_model)
    if config.positions != "none":
        table = program.table("position", own["position"])
        program.line("{")
        program.line("int c;")
        each = f"for (c = 0; c < {config.d_model}; ++c)"
        program.line(f"{each} e[{at}][c] += {table}[{at} * {config.d_model} + c];")
        program.line("}")
        program.held(f"e[{at}]", config.d_model)


def _norm(program: Program, config: Config, own: dict[str, Tensor], which: str, source: str, target: str) -> None:
    program.used.add("normalize")
    kinds = ("gain", "shift")
    gain, shift = (f"{program.prefix}_{kind}_{which}" for kind in kinds)
    # The same norm is called from several places; its tables are written once.
    if not any(gain in table for table in program.tables):
        for kind in kinds:
            program.table(f"{kind}_{which}", own[f"{kind}_{which}"])
    eps = program.literal(float(torch.tensor(NORM_EPS, dtype=program.dtype)))
    program.line(f"normalize({source}, {gain}, {shift}, {target}, {config.d_model}, {eps});")
    program.held(target, config.d_model)


def _after_attention(program: Program, config: Config, own: dict[str, Tensor], at: str) -> None:
    """Residual, norms and the feed-forward network of one token, in place in r."""
    width = config.d_model
    each = f"for (i = 0; i < {width}; ++i) "
    if config.residual or config.hidden:
        program.line("int i;")
    if config.residual:
        program.line(f"{each}r[{at}][i] = e[{at}][i] + r[{at}][i];")
        program.held(f"r[{at}]", width)
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
    program.held("hidden", config.hidden)
    # Written so that nan stays nan, as in torch.
    program.line(f"for (i = 0; i < {config.hidden}; ++i) hidden[i] = hidden[i] < 0 ? 0 : hidden[i];")
    program.affine("second", "hidden", "ffn", own["W_2"], own["b_2"])
    program.held("ffn", width)
    before = f"r[{at}][i] + " if config.residual else ""
    program.line(f"{each}r[{at}][i] = {before}ffn[i];")
    program.held(f"r[{at}]", width)
    if config.norm == "post":
        _norm(program, config, own, "2", f"r[{at}]", f"r[{at}]")


def _read(program: Program, config: Config, own: dict[str, Tensor]) -> None:
    n = config.length
    width = config.d_model
    if config.readout == "each":
        with TokenLoop(program, n):
            at = "n" if n > 1 else "0"
            target = f"(y + {at} * {config.readout_width})"
            program.affine("read", f"r[{at}]", target, own["W_R"], own["b_R"])
            program.held(target, config.readout_width)
        return
    source = f"r[{0 if config.readout != 'last' else n - 1}]"
    if config.readout == "mean":
        # Torch rounds 1 / n to the format before it multiplies.
        share = program.literal(float(torch.tensor(1 / n, dtype=program.dtype)))
        program.line(f"real mean[{width}];")
        program.line("int i;")
        program.line(f"for (i = 0; i < {width}; ++i) {{")
        program.line("real sum = 0;")
        program.line(f"for (n = 0; n < {n}; ++n) sum += r[n][i];" if n > 1 else "sum = r[0][i];")
        program.line(f"mean[i] = sum * {share};")
        program.line("}")
        program.held("mean", width)
        source = "mean"
    program.affine("read", source, "y", own["W_R"], own["b_R"])
    program.held("y", config.readout_width)
