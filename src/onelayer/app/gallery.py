"""The gallery: a dozen requests to begin with."""

from __future__ import annotations

from typing import Any

FRANKE = (
    "3/4*exp(-((9*x-2)**2+(9*y-2)**2)/4) + 3/4*exp(-(9*x+1)**2/49-(9*y+1)/10)"
    " + 1/2*exp(-((9*x-7)**2+(9*y-3)**2)/4) - 1/5*exp(-(9*x-4)**2-(9*y-7)**2)"
)
TABLE = """hour,load,price
0,0.31,12.5
3,0.22,9.75
6,0.35,14.0
9,0.71,31.5
12,0.84,36.25
15,0.78,30.0
18,0.93,44.5
21,0.62,25.0
"""
ENGINE = """rpm,load,torque
1000,0,2
1000,0.33,27
1000,0.67,52
1000,1,76
2500,0,5
2500,0.33,46
2500,0.67,88
2500,1,128
4000,0,8
4000,0.33,50
4000,0.67,93
4000,1,135
5500,0,11
5500,0.33,35
5500,0.67,60
5500,1,84
"""
WORK = "q = 1:2, Ef = 1:2, B = 1:2, v = 1:2, theta = 0:1"
DETERMINANT = "a = -1:1, b = -1:1, c = -1:1, d = -1:1"
WAVE = "cos(0.6*pi + x1 + 1.5*x2 + 2*x3 + 2.5*x4)"


def _formula(title: str, formula: str, domain: str, eps: str, about: str) -> dict[str, Any]:
    return {"title": title, "about": about, "kind": "formula", "formula": formula, "domain": domain, "eps": eps}


GALLERY: list[dict[str, Any]] = [
    _formula("a sine", "sin(3*x)", "x = -1:1", "1e-4", "one head, a handful of tokens"),
    _formula("two sines", "sin(x1) + sin(x2)", "0:2*pi, 0:2*pi", "1e-6", "one head per coordinate"),
    _formula("Franke's surface", FRANKE, "0:1, 0:1", "1e-2", "a grid of tokens over the plane"),
    _formula("a bell that moves", "exp(-10*(x - 0.6*y)**2)", "x = -1:1, y = -1:1", "1e-2", "x and y act together"),
    _formula("relativistic mass", "m0/sqrt(1 - v**2/c**2)", "m0 = 1:5, v = 1:2, c = 3:10", "0.05", "Feynman I.10.7"),
    _formula("work of a field", "q*(Ef + B*v*sin(theta))", WORK, "0.5", "Feynman I.12.11"),
    _formula("Planck's law", "w**3/(exp(w/T) - 1)", "w = 1:3, T = 1:2", "1e-2", "Feynman I.41.16, constants one"),
    _formula("a kink", "abs(x - 0.3) + x**2", "x = -1:1", "1e-3", "a ReLU unit makes the corner"),
    _formula("difference of two tokens", "abs(x1 - x2)", "0:1, 0:1", "1e-6", "what no position-wise network can do"),
    _formula(
        "a squared determinant",
        "(a*d - b*c)**2",
        DETERMINANT,
        "0.15",
        "sums of heads over its tokens err by 3/16 or more",
    ),
    _formula("largest of three", "max(x, max(y, z))", "x = 0:1, y = 0:1, z = 0:1", "0.05", "sharp heads choose"),
    _formula("three outputs", "sin(x)*y; x + 2*y; cos(y)", "0:1, 0:1", "1e-2", "one layer, three numbers"),
    _formula("a wave in four inputs", WAVE, "0:1, 0:1, 0:1, 0:1", "1e-2", "slices to choose"),
    {
        "title": "sort four numbers",
        "about": "tokens that attend to tokens",
        "kind": "sort",
        "length": "4",
        "eps": "0.05",
    },
    {
        "title": "an engine map",
        "about": "the spline through a table, proved between its rows too",
        "kind": "map",
        "csv": ENGINE,
        "target": "torque",
        "eps": "2",
    },
    {
        "title": "a table to remember",
        "about": "every row recalled, proved",
        "kind": "table",
        "csv": TABLE,
        "target": "price",
    },
]
