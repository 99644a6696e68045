"""Train one layer on sin x1 + sin x2, stop and go on, prove what it reached, and start training from a construction."""

from __future__ import annotations

import tempfile

import torch

import onelayer as ol


def main() -> None:
    torch.set_num_threads(1)
    f, box = "sin(x1) + sin(x2)", ol.Box([0, 0], [2 * torch.pi] * 2)

    with tempfile.TemporaryDirectory() as folder:
        shape = {"heads": 2, "d_model": 16, "hidden": 32, "batch": 128}
        run = ol.train(f, box, steps=400, lbfgs_steps=40, checkpoint=folder, **shape)
        again = ol.train(f, box, steps=400, lbfgs_steps=40, checkpoint=folder, **shape)
    print(f"{run.parameters:,} parameters, sup error seen below 0.3: {run.sup < 0.3}")
    print(f"the finished checkpoint gives the same weights: {torch.equal(run.model.W_E, again.model.W_E)}")

    trained = run.approximation(0.5)
    print(f"trained layer, sup|T - f| <= 0.5: {trained.certificate.status}")

    built = ol.approximate(f, box, 1e-3)
    polished = ol.train(f, box, model=built, steps=0, lbfgs_steps=40)
    print(f"built layer, {built.size()['parameters']} parameters, sup|T - f| <= 1e-3: {built.certificate.status}")
    print(f"trained from the built start, still below 2e-3: {polished.sup < 2e-3}")


if __name__ == "__main__":
    main()
