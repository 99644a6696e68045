"""One layer in place of a deep teacher: with a proof on an interval, and with measured fidelity on data."""

from __future__ import annotations

import torch
from torch import nn

import onelayer as ol
from onelayer.training.stack import Stack


def main() -> None:
    torch.set_num_threads(1)
    deep = Stack((1,), (), depth=4, d_model=4, heads=2, hidden=8, activation="gelu", seed=1).eval()
    proved = ol.distill(deep, ol.Box([-1], [1]), eps=1e-2)
    assert proved.approximation is not None
    print(f"four blocks, {proved.teacher_parameters} parameters -> one layer, {proved.parameters} parameters")
    print(f"sup|T - teacher| <= 0.01: {proved.approximation.certificate.status}")

    torch.manual_seed(0)
    teacher = nn.Sequential(nn.Linear(3, 32), nn.Tanh(), nn.Linear(32, 32), nn.Tanh(), nn.Linear(32, 4)).double()
    measured = ol.distill(teacher, data=torch.randn(600, 3), steps=300, heads=2, d_model=16, hidden=64, memory=4)
    assert measured.fidelity is not None
    assert measured.fidelity.cosine is not None
    faithful = measured.fidelity.cosine.low > 0.95
    print(f"measured on {measured.fidelity.count} held-out inputs: cosine above 0.95: {faithful}")


if __name__ == "__main__":
    main()
