"""Memorise tables exactly: random labels, random reals, text labels, and a contradiction that is refused.

python examples/memorize.py
"""

from __future__ import annotations

import tempfile

import numpy as np

import onelayer as ol


def main() -> None:
    generator = np.random.default_rng(0)
    images, labels = generator.integers(0, 17, (500, 64)), generator.integers(0, 10, 500)
    for recipe in ("relu", "softmax"):
        made = ol.memorize(images, labels, recipe=recipe)
        assert made.recall_report is not None
        print(
            f"{recipe}: {made.recall_report.recalled} of 500 random labels, margin {made.recall_report.margin:.6f}, ",
            end="",
        )
        print(f"{made.recall_report.stored_numbers:,} numbers stored, {made.certificate.status}")
    reals = ol.memorize(generator.random((500, 3)), generator.random(500), eps=1e-12)
    assert reals.recall_report is not None
    print(f"500 reals by {reals.recall_report.recipe}: error <= 1e-12 is {reals.certificate.status}")
    names = ol.memorize([[0.0, 1.0], [2.0, 3.0], [4.0, 5.0]], ["red", "blue", "red"])
    print("recall:", names.recall([[2.0, 3.0], [4.0, 5.0]]))
    with tempfile.TemporaryDirectory() as folder:
        reals.save(f"{folder}/reals")
        print("checked:", ol.check(f"{folder}/reals").ok)
    try:
        ol.memorize([[1.0], [2.0], [1.0]], [0.0, 1.0, 2.0])
    except ValueError as error:
        print("refused:", error)


if __name__ == "__main__":
    main()
