"""float16, bfloat16 and int8 layers on a GPU: the same casts, and every value inside the enclosure of its point."""

from __future__ import annotations

import pytest
import torch

from onelayer.box import Box
from onelayer.conductor import approximate
from onelayer.formats import BFLOAT16, FLOAT16, Format
from onelayer.layer.transformer import OneLayerTransformer
from onelayer.proof.forward import enclosed_at

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
BOX = Box([-1.0, -1.0], [1.0, 1.0])
by_format = pytest.mark.parametrize("row", [FLOAT16, BFLOAT16], ids=lambda row: row.name)


@by_format
def test_casts_are_those_of_the_cpu(row: Format) -> None:
    generator = torch.Generator().manual_seed(0)
    exponents = torch.randint(-30, 15, (200_000,), generator=generator).double()
    steps = torch.randint(1, 2**14, (200_000,), generator=generator).double() / 2**13
    numbers = (torch.exp2(exponents) * steps).float()
    numbers = torch.cat([numbers, -numbers])
    assert torch.equal(numbers.cuda().to(row.dtype).cpu(), numbers.to(row.dtype))
    assert torch.equal(numbers.to(row.dtype).cuda().float().cpu(), numbers.to(row.dtype).float())


@by_format
@pytest.mark.parametrize("norm", ["none", "pre", "post"])
def test_executions_stay_in_their_enclosures(row: Format, norm: str) -> None:
    points = torch.cat([BOX.sample(24), BOX.corners()]).to(row.dtype)
    model = OneLayerTransformer.tokens(
        (2,), (), d_model=4, heads=2, hidden=3, norm=norm, residual=True, positions="one-hot", seed=1
    )
    model = model.to(row.dtype).requires_grad_(False)
    known = enclosed_at(model, points, (), row.dtype)
    there = model.cuda()
    together = there(points.cuda()).double().cpu()
    for at, [(centre, radius)] in enumerate(known):
        alone = float(there(points[at : at + 1].cuda()))
        values = (alone, float(together[at]))
        assert not radius < torch.inf or all(abs(value - centre) <= radius for value in values)


@pytest.mark.parametrize(("name", "eps"), [("float16", 3e-3), ("bfloat16", 3e-2), ("int8", 3e-2)])
def test_a_million_points_are_inside_the_bound(name: str, eps: float) -> None:
    a = approximate("sin(2*x1)*cos(x2) + x1/2", BOX, eps, dtype=name)
    assert a.certificate.proved
    x = torch.cat([BOX.sample(500_000), BOX.sample(500_000, seed=1, arcsine=True), BOX.corners()]).to(a.model.dtype)
    found = a.model.cuda()(x.cuda()).double().cpu()
    exact = x.double()
    f = torch.sin(2 * exact[:, 0]) * torch.cos(exact[:, 1]) + exact[:, 0] / 2
    assert float((found - f).abs().max()) <= a.certificate.upper
