"""Values solved through the real layer: what LayerNorm bends, the values of the memory tokens bend back.

The output of a stock layer is linear in the values of its memory tokens, up to what LayerNorm does after they are
added. So with attention weights taken from the layer itself, least squares gives the correction; a few rounds settle
the rest. Needed only with a small anchor, when activations should stay of natural size.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import torch
from torch import Tensor

from onelayer.errors import OnelayerError
from onelayer.export.plan import Plan
from onelayer.export.stock import StockLayer
from onelayer.source import Source

ROUNDS = 3  # of refinement; the second already reaches rounding
# Rows of the fit per unknown, so that it does not interpolate.
POINTS_PER_TOKEN = 8
# Singular values below this share of the largest are noise of float64.
RCOND = 1e-11


def solve_values(source: Source, drawn: Plan, build: Callable[[Plan], StockLayer]) -> Plan:
    """The plan whose values make ``build(plan)`` follow the model on points of the box as well as they can.

    build   plan -> float64 layer. Packed models whose heads write their values to the outputs one to one.
    """
    model = source.model
    config = drawn.config
    # Tokens of a sequence have values of their own, which are no unknowns here.
    if config.layout != "packed":
        raise OnelayerError("values are solved for packed layers; leave solve=False for tokens")
    maps = _value_maps(drawn)
    counts = [head.token_count for head in config.heads]
    count = max(512, POINTS_PER_TOKEN * sum(counts))
    points = source.domain.sample(count, arcsine=True)
    with torch.no_grad():
        wanted = model(points).reshape(len(points), -1)
        for _ in range(ROUNDS):
            layer = build(drawn)
            weights = _weights(layer, points)  # (S, H, M)
            of_heads = [weights[:, h, :own] for h, own in enumerate(counts)]
            columns = torch.cat(of_heads, dim=1)
            rest = wanted - layer(points).reshape(len(points), -1)
            found = torch.linalg.lstsq(columns, rest, driver="gelsd", rcond=RCOND).solution  # (sum M_h, K)
            memory = drawn.memory.clone()
            bound = drawn.bound.clone()
            for h, part in enumerate(found.split(counts)):
                place = drawn.names.values[h]
                own = slice(counts[h])
                memory[own, place] += torch.linalg.solve(maps[h].T, part.T).T
                # Anchors must be large beside the largest value.
                largest = memory[own, place].abs().amax(0)
                bound[place] = torch.maximum(bound[place], largest)
            drawn = replace(drawn, memory=memory, bound=bound)
    return drawn


def _value_maps(drawn: Plan) -> list[Tensor]:
    """What one unit of each value feature adds to the outputs, per head (d_v, K), which must be invertible."""
    through = drawn.read @ drawn.output @ drawn.value  # (K, F)
    maps = [through[:, place].T for place in drawn.names.values]
    for matrix in maps:
        if matrix.shape[0] != matrix.shape[1] or not torch.linalg.det(matrix).abs() > 0:
            raise OnelayerError("values are solved for heads with one value per output; leave solve=False")
    return maps


def _weights(layer: StockLayer, points: Tensor) -> Tensor:
    """Attention of the query token over the memory, measured in the layer, (S, H, M)."""
    block = layer.layer
    numbers = points.reshape(len(points), 1, -1)
    tokens = layer.embed(numbers) + layer.start.weight
    memory = layer.memory.weight
    stream = torch.cat([tokens, memory.expand(len(points), *memory.shape)], dim=1)
    read = block.norm1(stream) if block.norm_first else stream
    _, weights = block.self_attn(read[:, :1], read, read, average_attn_weights=False)
    return torch.as_tensor(weights[:, :, 0, 1:])
