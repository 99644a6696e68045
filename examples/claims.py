"""What else can be proved of a model: its range, its slopes, and that two models agree.

python examples/claims.py
"""

from __future__ import annotations

import torch
from torch import nn

import onelayer as ol


def main() -> None:
    """A small trained network stands for yours; every line below is a theorem about its stored weights."""
    box = ol.Box(rpm=(-1, 1), load=(-1, 1))
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(2, 16), nn.Tanh(), nn.Linear(16, 1)).double()
    x = box.sample(512)
    y = (torch.sin(x[:, :1]) + 0.5 * x[:, 1:]).detach()
    optimiser = torch.optim.LBFGS(model.parameters(), max_iter=200)

    def loss() -> torch.Tensor:
        optimiser.zero_grad()
        error = ((model(x) - y) ** 2).mean()
        error.backward()
        return error

    optimiser.step(loss)

    print(ol.bound(model, box))
    print(ol.lipschitz(model, box))
    print(ol.gradient_error(model, lambda x: torch.sin(x[..., :1]) + 0.5 * x[..., 1:], box))
    print(ol.monotone(model, box, {"rpm": "+", "load": "+"}))
    print(ol.monotone(model, box, {"rpm": "-"}))
    print(ol.prove(model, box, "y1 <= 1.4 and y1 >= -1.4 and (y1 > 0 or rpm < 0.7)"))
    print(ol.prove(model, box, "y1 <= rpm + 0.5"))

    smaller = nn.Sequential(nn.Linear(2, 16), nn.Tanh(), nn.Linear(16, 1)).double()
    smaller.load_state_dict({name: value.bfloat16().double() for name, value in model.state_dict().items()})
    print(ol.equivalent(model, smaller, box))
    print(ol.equivalent(model, smaller, box, 1e-3))


if __name__ == "__main__":
    main()
