"""The standard test functions of surrogate modelling through the default door: is eps proved, with what, in which time?

python benchmarks/surrogates.py [--eps 0.001] [--seconds 120] [--jobs 1] [--only piston]

Formulas and boxes as in the virtual library of simulation experiments (Surjanovic & Bingham): Hartmann's 6-D function,
piston, borehole, wing weight, OTL circuit, robot arm, the environmental model at one place and time, Friedman's three
functions. door.py explains the options.
"""

from __future__ import annotations

import door
import numpy as np
from suite import BOREHOLE_FORMULA, OTL_FORMULA, WING_FORMULA

HARTMANN_WEIGHTS = (1.0, 1.2, 3.0, 3.2)
HARTMANN_SLOPES = np.array(
    [[10, 3, 17, 3.5, 1.7, 8], [0.05, 10, 17, 0.1, 8, 14], [3, 3.5, 1.7, 10, 17, 8], [17, 8, 0.05, 10, 0.1, 14]]
)
HARTMANN_CENTRES = np.array(
    [
        [0.1312, 0.1696, 0.5569, 0.0124, 0.8283, 0.5886],
        [0.2329, 0.4135, 0.8307, 0.3736, 0.1004, 0.9991],
        [0.2348, 0.1451, 0.3522, 0.2883, 0.3047, 0.6650],
        [0.4047, 0.8828, 0.8732, 0.5743, 0.1091, 0.0381],
    ]
)


def hartmann() -> str:
    """-sum_i a_i exp(-sum_j A_ij (x_j - P_ij)^2)."""
    terms = []
    for weight, slopes, centres in zip(HARTMANN_WEIGHTS, HARTMANN_SLOPES, HARTMANN_CENTRES, strict=True):
        inner = " - ".join(f"{a:g}*(x{j + 1} - {p:g})**2" for j, (a, p) in enumerate(zip(slopes, centres, strict=True)))
        terms.append(f"{weight:g}*exp(-{inner})")
    return "-(" + " + ".join(terms) + ")"


PISTON = (
    "a = x5*x2 + 19.62*x1 - x4*x3/x2; v = x2/(2*x4)*(sqrt(a**2 + 4*x4*x5*x3/x7*x6) - a);"
    " 2*pi*sqrt(x1/(x4 + x2**2*x5*x3/x7*x6/v**2))"
)
ARM = "sqrt((" + "{u})**2 + ({v})**2)"
ANGLES = ["x5", "x5 + x6", "x5 + x6 + x7", "x5 + x6 + x7 + x8"]
ENVIRONMENTAL = "x1/sqrt(4*pi*x2*40)*exp(-1/(4*x2*40)) + x1/sqrt(4*pi*x2*(40 - x4))*exp(-(1 - x3)**2/(4*x2*(40 - x4)))"

# Name, formula, sides of the box.
FUNCTIONS: list[tuple[str, str, str]] = [
    ("Hartmann, 6-D", hartmann(), "0:1 " * 6),
    ("piston, 7-D", PISTON, "30:60 0.005:0.02 0.002:0.01 1000:5000 90000:110000 290:296 340:360"),
    (
        "borehole, 8-D",
        BOREHOLE_FORMULA,
        "0.05:0.15 100:50000 63070:115600 990:1110 63.1:116 700:820 1120:1680 9855:12045",
    ),
    ("wing weight, 10-D", WING_FORMULA, "150:200 220:300 6:10 -10:10 16:45 0.5:1 0.08:0.18 2.5:6 1700:2500 0.025:0.08"),
    ("OTL circuit, 6-D", OTL_FORMULA, "50:150 25:70 0.5:3 1.2:2.5 0.25:1.2 50:300"),
    (
        "robot arm, 8-D",
        ARM.format(
            u=" + ".join(f"x{i + 1}*cos({angle})" for i, angle in enumerate(ANGLES)),
            v=" + ".join(f"x{i + 1}*sin({angle})" for i, angle in enumerate(ANGLES)),
        ),
        "0:1 0:1 0:1 0:1 0:6.283185307 0:6.283185307 0:6.283185307 0:6.283185307",
    ),
    ("environmental, 4-D", ENVIRONMENTAL, "7:13 0.02:0.12 0.01:3 30.01:30.295"),
    ("Friedman 1, 5-D", "10*sin(pi*x1*x2) + 20*(x3 - 0.5)**2 + 10*x4 + 5*x5", "0:1 " * 5),
    ("Friedman 2, 4-D", "sqrt(x1**2 + (x2*x3 - 1/(x2*x4))**2)", "1:100 125.66370614:1759.29188602 0.1:1 1:11"),
    ("Friedman 3, 4-D", "atan((x2*x3 - 1/(x2*x4))/x1)", "1:100 125.66370614:1759.29188602 0.1:1 1:11"),
]


if __name__ == "__main__":
    door.main(FUNCTIONS, "surrogates", __doc__, eps=0.001, seconds=120.0)
