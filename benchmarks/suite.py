"""The functions that the benchmarks share, as formula text with their usual boxes."""

from __future__ import annotations

from onelayer.study.problems import StudyProblem as Problem

FRANKE = (
    "3/4*exp(-((9*x-2)**2+(9*y-2)**2)/4) + 3/4*exp(-(9*x+1)**2/49-(9*y+1)/10)"
    " + 1/2*exp(-((9*x-7)**2+(9*y-3)**2)/4) - 1/5*exp(-(9*x-4)**2-(9*y-7)**2)"
)
OTL_FORMULA = "t = x6*(x5+9); (12*x2/(x1+x2)+0.74)*t/(t+x3) + 11.35*x3/(t+x3) + 0.74*x3*t/((t+x3)*x4)"
BOREHOLE_FORMULA = "g = log(x2/x1); 2*pi*x3*(x4-x6)/(g*(1 + 2*x7*x3/(g*x1**2*x8) + x3/x5))"
WING_FORMULA = (
    "c = cos(x4*pi/180); 0.036*x1**0.758*x2**0.0035*(x3/c**2)**0.6*x5**0.006*x6**0.04*(100*x7/c)**(-0.3)"
    "*(x8*x9)**0.49 + x1*x10"
)

F1 = Problem("F1 sin x1 + sin x2", "sin(x1) + sin(x2)", "0:2*pi, 0:2*pi")
F2 = Problem("F2 exp(sin pi x + y^2)", "exp(sin(pi*x) + y**2)", "-1:1, -1:1")
F3 = Problem("F3 Franke", FRANKE, "0:1, 0:1")
F4 = Problem("F4 |x1 - x2|", "abs(x1 - x2)", "0:1, 0:1")
F5 = Problem("F5 cos(w.x), 4-D", "cos(0.6*pi + x1 + 1.5*x2 + 2*x3 + 2.5*x4)", "0:1, 0:1, 0:1, 0:1")
OTL = Problem("OTL circuit, 6-D", OTL_FORMULA, "50:150, 25:70, 0.5:3, 1.2:2.5, 0.25:1.2, 50:300")
BOREHOLE = Problem(
    "borehole, 8-D",
    BOREHOLE_FORMULA,
    "0.05:0.15, 100:50000, 63070:115600, 990:1110, 63.1:116, 700:820, 1120:1680, 9855:12045",
)
WING = Problem(
    "wing weight, 10-D",
    WING_FORMULA,
    "150:200, 220:300, 6:10, -10:10, 16:45, 0.5:1, 0.08:0.18, 2.5:6, 1700:2500, 0.025:0.08",
)
K2 = Problem(
    "K2 compositional, 4-D",
    "exp((sin(pi*(x1**2+x2**2)) + sin(pi*(x3**2+x4**2)))/2)",
    "-1:1, -1:1, -1:1, -1:1",
)
K3 = Problem("K3 sin(2(log x + log y))", "sin(2*(log(x) + log(y)))", "0.2:5, 0.2:5")

ONE_AXIS = {
    "sin pi x": "sin(pi*x)",
    "exp sin pi x": "exp(sin(pi*x))",
    "1/(1+25x^2)": "1/(1+25*x**2)",
    "exp(-20(x-.3)^2)": "exp(-20*(x-0.3)**2)",
    "tanh 10x": "tanh(10*x)",
    "cos 20x": "cos(20*x)",
    "x^8": "x**8",
    "sqrt(x+1.01)": "sqrt(x+1.01)",
    "|x-.1|": "abs(x-0.1)",
    "exp x": "exp(x)",
}

# Tensor Chebyshev coefficients for the same sup error (BENCHMARKS: interpolation on Chebyshev grids).
CHEBYSHEV = {
    (F1.name, 1e-3): 64, (F1.name, 1e-6): 144, (F1.name, 1e-9): 256,
    (F2.name, 1e-3): 289, (F2.name, 1e-6): 625,
    (F3.name, 1e-3): 400, (F3.name, 1e-6): 1089,
    (F5.name, 1e-3): 1296, (F5.name, 1e-6): 6561,
}  # fmt: skip
