"""The forward pass runs unchanged on Taylor models, and the enclosures hold the values of the layer."""

from __future__ import annotations

from typing import Any

import torch
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from onelayer.taylor import variables


@settings(max_examples=40, deadline=None, derandomize=True, suppress_health_check=[HealthCheck.filter_too_much])
@given(data=st.data())
def test_forward_encloses_the_layer(strategies: dict[str, Any], data: st.DataObject) -> None:
    """Every layout, embedding, norm, memory and read-out; sparse attention jumps and is left out."""
    model = data.draw(strategies["layers"]).requires_grad_(False)
    shape = model.config.input_shape
    assume(model.config.attention in ("softmax", "linear"))
    written_out = model.config.attention == "softmax" or all(head.memory != "grid" for head in model.config.heads)
    model = model if written_out else model.materialize()
    generator = torch.Generator().manual_seed(data.draw(st.integers(0, 99)))
    lower = 0.9 * torch.rand(2, *shape, generator=generator, dtype=torch.float64)
    upper = lower + 0.01
    enclosure = model(variables(lower, upper, 2, torch.float64))
    low, high = enclosure.range()
    assert enclosure.shape == (2, *model.config.output_shape)
    assert torch.isfinite(low).all()
    assert torch.isfinite(high).all()
    unit = torch.rand(30, 2, *shape, generator=generator, dtype=torch.float64)
    value = model(lower + unit * (upper - lower))
    assert (low <= value).all()
    assert (value <= high).all()
