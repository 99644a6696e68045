"""The pictures of docs/constructions, from the live package.

    python examples/constructions.py [--out docs/figures]

Prints one line per picture: what was built and what was proved.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Callable
from pathlib import Path

import numpy as np

import onelayer as ol
from onelayer.build.sequences.gather import gather
from onelayer.build.sequences.superpose import superpose


def table() -> ol.Approximation:
    generator = np.random.default_rng(0)
    return ol.memorize(generator.random((1000, 4)), generator.random(1000), recipe="relu", eps=1e-5)


PICTURES: dict[str, Callable[[], ol.Approximation]] = {
    "gather": lambda: gather("sin(x1) + sin(x2)", ol.Box([0, 0], [2 * math.pi] * 2), 1e-2),
    "superpose": lambda: superpose("log(exp(x1) + exp(x2) + exp(x3))", ol.Box([-1] * 3, [1] * 3), 1e-3),
    "sort": lambda: ol.sort(3, 0.0, 1.0, 1e-2),
    "memorize": table,
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path("docs/figures"), help="folder for the pictures")
    folder = parser.parse_args().out
    for name, build in PICTURES.items():
        made = build()
        ol.draw(made, folder / f"{name}.png")
        print(f"{name}: {made.size()['hidden_units']} hidden units, {made.certificate}")


if __name__ == "__main__":
    main()
