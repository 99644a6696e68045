"""Random layers of every configuration, drawn by hypothesis."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from hypothesis import strategies as st

from onelayer.layer.config import Config, HeadShape
from onelayer.layer.transformer import OneLayerTransformer


def small(low: int = 1, high: int = 4) -> st.SearchStrategy[int]:
    return st.integers(low, high)


@st.composite
def head_shapes(draw: Any, layout: str) -> tuple[HeadShape, ...]:
    heads = []
    alike = draw(st.booleans())
    for h in range(draw(small(1, 3))):
        if alike and h:
            heads.append(heads[0])
            continue
        memory = draw(st.sampled_from(("plain", "grid") if layout == "packed" else ("none", "plain", "grid")))
        count = {"none": 0, "plain": 1, "grid": draw(small(1, 3))}[memory]
        tokens = tuple(draw(small(1, 4)) for _ in range(count))
        heads.append(HeadShape(draw(small()), draw(small()), memory, tokens))
    return tuple(heads)


@st.composite
def configs(draw: Any) -> Config:
    layout = draw(st.sampled_from(("packed", "tokens")))
    n = draw(small())
    if layout == "packed":
        input_shape = tuple(draw(st.lists(small(1, 3), max_size=2)))
        output_shape = tuple(draw(st.lists(small(1, 3), max_size=2)))
        readout = draw(st.sampled_from(("first", "last", "mean")))
    else:
        input_shape = draw(st.sampled_from(((n,), (n, 1), (n, 3))))
        readout = draw(st.sampled_from(("each", "mean", "first", "last")))
        output_shape = draw(st.sampled_from(((n,), (n, 2)) if readout == "each" else ((), (3,), (2, 2))))
    attention = draw(st.sampled_from(("softmax", "softmax", "topk", "hardmax", "linear")))
    embedding = draw(st.sampled_from(("linear", "piecewise")))
    return Config(
        layout=layout,
        input_shape=input_shape,
        output_shape=output_shape,
        d_model=draw(small(4, 6)),
        heads=draw(head_shapes(layout)),
        hidden=draw(st.sampled_from((0, 1, 5))),
        residual=draw(st.booleans()),
        norm=draw(st.sampled_from(("none", "pre", "post"))),
        embedding=embedding,
        ramps=draw(small()) if embedding == "piecewise" else 0,
        positions=draw(st.sampled_from(("none", "one-hot", "sinusoidal", "learned"))),
        readout=readout,
        attention=attention,
        top_k=draw(small(1, 3)) if attention == "topk" else 0,
        feature=draw(st.sampled_from(("taylor", "elu"))),
        order=draw(st.sampled_from((2, 4))),
    )


@st.composite
def layers(draw: Any) -> OneLayerTransformer:
    """A layer with every weight random, biases and gains included."""
    seed = draw(st.integers(0, 2**16))
    model = OneLayerTransformer(draw(configs()), seed=seed)
    generator = torch.Generator().manual_seed(seed + 1)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if name.startswith(("b_", "gain", "shift")):
                parameter.add_(0.5 * torch.randn(parameter.shape, generator=generator, dtype=parameter.dtype))
    return model


@pytest.fixture(scope="session")
def strategies() -> dict[str, Any]:
    return {"configs": configs(), "layers": layers()}
