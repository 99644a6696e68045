"""A certificate that the verifier in formal/Checker.v decides: stored numbers, formula and box, one computation.

The theorem ``verified`` says, once for all layers, that a computed ``true`` implies the bound. Interacting variables,
any number of axes and any d_k are in reach. What is chosen here, precision, degree and cuts, cannot make it wrong.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from fractions import Fraction

from onelayer.errors import OnelayerError
from onelayer.export.coq_formula import LONGEST, Form, formula_text
from onelayer.export.coq_plan import Problem
from onelayer.export.exact import Grid, Matrix, Unit
from onelayer.language.formula import Formula
from onelayer.language.tree import Node

IMPORTS = {
    "plain": "From Onelayer Require Import Verified.\nModule V := Plain.\nModule F := PlainFloat.\n",
    "machine": "From Interval Require Import Float.Primitive_ops Interval.Float_full.\n"
    "Module F := PrimitiveFloat.\nModule Machine := FloatIntervalFull F.\nModule V := Verifier Machine.\n",
}
BINARY = {"add": "Plus", "sub": "Minus", "mul": "Times", "div": "Over", "max": "Max", "min": "Min"}
UNARY = {"neg": "Negative", "exp": "Exp", "sin": "Sin", "cos": "Cos", "log": "Ln", "sqrt": "Sqrt"}
UNARY |= {"abs": "Abs", "relu": "Relu"}
OTHERS = {"var", "num", "pi", "e", "pow", "tan", "tanh", "sigmoid"}
KINKS = {"abs", "relu", "max", "min"}

# The degree of the Taylor models by the number of variables: a model in D of them has binomial(degree + D, D) numbers.
DEGREES = {1: 10, 2: 8, 3: 6, 4: 5}
LOWEST_DEGREE = 4  # in dimensions that DEGREES does not list
# Halvings of a box, all sides together: down to 2^-24 of the domain in one variable, 2^-12 per side in two.
HALVINGS = 24
# Bits of the arithmetic over plain integers beyond those of the largest value and of eps; remainders need few.
SPARE_BITS = 16
ROUGH_BITS = 12  # of numbers that only have to be of the right size


def understands(formula: Formula) -> bool:
    """Whether the verifier has every operation of the formula."""
    known = BINARY.keys() | UNARY.keys() | OTHERS
    return all(node.op in known for node in formula.nodes)


def bent(problem: Problem, formula: Formula) -> bool:
    """Whether f or T has a kink: the verifier encloses kinks, the case split of the tactic cancels them."""
    kinked = any(node.op in KINKS for node in formula.nodes)
    return bool(problem.layer.units) or kinked


def verified_text(problem: Problem, formula: Formula, digest: str, integers: str) -> str:
    """The text of the file."""
    names = [f"x{i + 1}" for i in range(formula.dim)]
    layer = problem.layer
    texts = [_header(problem, digest, integers)]
    texts += [f"Definition grid{h} : grid :=\n  {_grid(grid)}.\n" for h, grid in enumerate(layer.grids)]
    grids = "; ".join(f"grid{h}" for h in range(len(layer.grids)))
    units = _list(map(_unit, layer.units))
    slopes = _list(map(_row, layer.slopes))
    texts.append(
        f"Definition layer0 : stored :=\n  Stored [{grids}]\n    {units}\n    {slopes} {_row(layer.constants)}.\n"
        "Definition T (x : vec) (i : nat) : R := layer_of layer0 x i.\n"
    )
    pairs = zip(problem.low, problem.high, strict=True)
    sides = "; ".join(f"({_q(a)}, {_q(b)})" for a, b in pairs)
    cuts = _plan(_kinks(problem))
    texts.append(f"Definition domain : region := [{sides}].\nDefinition cuts : plan := {cuts}.\n")
    texts += [_output(problem, formula, names, i, integers) for i in range(len(formula.outputs))]
    texts.append(_theorem(problem, formula, names))
    return "\n".join(texts)


def _header(problem: Problem, digest: str, integers: str) -> str:
    # It stands in a comment: what is no letter or digit could end it.
    letters = "".join(letter for letter in digest if letter.isalnum())
    return (
        f"(* sup|T - f| <= {_real(problem.eps)} in real arithmetic; weights sha256\n"
        f"   {letters} *)\n"
        "From Coq Require Import Reals List Lra QArith Qreals.\n"
        "From Onelayer Require Import Vectors Kinks Stored Checker.\n"
        f"{IMPORTS[integers]}Import ListNotations.\nOpen Scope R_scope.\n"
    )


def _output(problem: Problem, formula: Formula, names: Sequence[str], i: int, integers: str) -> str:
    """One output: f in Coq's words and as data, that the two are one, and the computation."""
    at = formula.outputs[i]
    text = formula_text(formula.nodes, at, lambda _: None, _real)
    spaced = " ".join(names)
    point = f"[{'; '.join(names)}]"
    degree = DEGREES.get(formula.dim, LOWEST_DEGREE)
    # Machine numbers have one precision, that of float64.
    bits, rough = _bits(problem) if integers == "plain" else (53, 53)
    precision = f"(F.PtoP {bits}) (F.PtoP {rough}) {degree}"
    return (
        f"Definition f{i} ({spaced} : R) : R := {text}.\n"
        f"Definition formula{i} : formula := {_data(formula.nodes, at)}.\n"
        f"Lemma meaning{i} : forall {spaced}, meaning formula{i} {point} = f{i} {spaced}.\nProof. reflexivity. Qed.\n\n"
        f"Lemma computed{i} :\n  V.verify {precision} layer0 {i} formula{i} "
        f"{_q(problem.eps)} domain cuts = true.\nProof. vm_cast_no_check (@eq_refl bool true). Qed.\n"
    )


def _theorem(problem: Problem, formula: Formula, names: Sequence[str]) -> str:
    """The claim about all outputs, read off the computations."""
    spaced = " ".join(names)
    point = f"[{'; '.join(names)}]"
    sides = zip(names, problem.low, problem.high, strict=True)
    inside = " -> ".join(f"{_real(a)} <= {name} <= {_real(b)}" for name, a, b in sides)
    eps = _real(problem.eps)
    outputs = range(len(formula.outputs))
    claims = " /\\\n  ".join(f"Rabs (T {point} {i} - f{i} {spaced}) <= {eps}" for i in outputs)
    proofs = "".join(
        f"  - rewrite <- meaning{i}; eapply Rle_trans; "
        f"[exact (V.verified _ _ _ _ _ _ _ _ _ computed{i} _ inside)|exact same].\n"
        for i in outputs
    )
    given = " ".join(f"H{name}" for name in names)
    return (
        f"Theorem certificate : forall {spaced}, {inside} ->\n  {claims}.\n"
        f"Proof.\n  intros {spaced} {given}.\n"
        f"  assert (inside : in_region domain {point}).\n"
        "  { repeat (apply Forall2_cons; [unfold Q2R; cbn [fst snd Qnum Qden]; lra|]); apply Forall2_nil. }\n"
        f"  assert (same : Q2R {_q(problem.eps)} <= {eps}) by (unfold Q2R; cbn [Qnum Qden]; lra).\n"
        f"  repeat apply conj.\n{proofs}Qed.\n\nPrint Assumptions certificate.\n"
    )


def _bits(problem: Problem) -> tuple[int, int]:
    """The precision over plain integers: what |v| / eps needs and some more."""
    values = [abs(v) for grid in problem.layer.grids for row in grid.values for v in row]
    size = max([Fraction(1), *values]) / problem.eps
    return math.ceil(math.log2(size)) + SPARE_BITS, ROUGH_BITS


Place = tuple[int, Fraction]  # a coordinate and where it is cut


def _kinks(problem: Problem) -> list[Place]:
    """Where f or a unit has a kink at a place of one coordinate: the boxes are cut there."""
    places = set()
    for slopes, offset in _bent_forms(problem):
        used = [i for i, slope in enumerate(slopes) if slope]
        # A slanted kink crosses boxes whatever their sides: no cut is along it.
        if len(used) == 1:
            axis = used[0]
            places.add((axis, -offset / slopes[axis]))
    inside = [(i, at) for i, at in places if problem.low[i] < at < problem.high[i]]
    return sorted(inside)


def _bent_forms(problem: Problem) -> list[Form]:
    """What units see, and what f takes absolute values of."""
    f = problem.f
    kinks = [at for out in f.outputs for at in f.kinks(out)]
    of_f = [f.form(f.nodes[at].args[0]) for at in kinks]
    return [*((tuple(unit.slopes), unit.offset) for unit in problem.layer.units), *of_f]


def _plan(places: Sequence[Place]) -> str:
    """Cuts in a balanced tree per coordinate, then the search of the verifier."""
    if not places:
        return f"Search {HALVINGS}"
    axis = places[0][0]
    own = [place for place in places if place[0] == axis]
    rest = list(places[len(own) :])
    half = len(own) // 2
    below = _plan([*own[:half], *rest])
    above = _plan([*own[half + 1 :], *rest])
    place = _q(own[half][1])
    return f"Cut {axis} {place} ({below}) ({above})"


def _data(nodes: Sequence[Node], at: int) -> str:
    """A node of the formula as data of the verifier, parts before the whole."""
    texts: list[str] = []
    for node in nodes[: at + 1]:
        args = [texts[arg] for arg in node.args]
        texts.append(_node(node, args))
        if len(texts[-1]) > LONGEST:
            raise OnelayerError("the formula of f is too long for a Coq certificate")
    return texts[at]


PATTERNS = {
    "pi": "Pi",
    "e": "(Exp (Int 1))",
    "tan": "(Over (Sin {0}) (Cos {0}))",
    "tanh": "(Minus (Int 1) (Over (Int 2) (Plus (Exp (Times (Int 2) {0})) (Int 1))))",
    "sigmoid": "(Inverse (Plus (Int 1) (Exp (Negative {0}))))",
}


def _node(node: Node, args: list[str]) -> str:
    match node.op:
        case "var":
            return f"(Var {int(node.value)})"
        case "num":
            value = Fraction(node.value)
            if value.denominator == 1:
                return f"(Int {_z(value.numerator)})"
            return f"(Num {_q(value)})"
        case "pow":
            power = f"(Power {args[0]} {abs(int(node.value))})"
            if node.value >= 0:
                return power
            return f"(Inverse {power})"
        case op if op in PATTERNS:
            return PATTERNS[op].format(*args)
    return f"({(BINARY | UNARY)[node.op]} {' '.join(args)})"


def _grid(grid: Grid) -> str:
    axes = []
    for axis in grid.axes:
        tokens = _list(f"({_row(token.slopes)}, {_q(token.bias)})" for token in axis)
        axes.append(f"\n   {tokens}")
    counts = [len(axis) for axis in grid.axes]
    return f"Grid {grid.d_k} {_list(axes)}\n   {_table(counts, grid.values)}"


def _table(counts: Sequence[int], rows: Matrix) -> str:
    """Rows of values in the shape of the grid."""
    if not counts:
        return _row(rows[0])
    first, *rest = counts
    size = len(rows) // first
    parts = [rows[k * size : (k + 1) * size] for k in range(first)]
    return _list(_table(rest, part) for part in parts)


def _unit(unit: Unit) -> str:
    slopes = _row(unit.slopes)
    gains = _row(unit.gains)
    return f"({slopes}, {_q(unit.offset)}, {gains})"


def _list(texts: Iterable[str]) -> str:
    return f"[{'; '.join(texts)}]"


def _row(numbers: Sequence[Fraction]) -> str:
    return _list(map(_q, numbers))


def _z(whole: int) -> str:
    if whole >= 0:
        return str(whole)
    return f"({whole})"


def _q(value: Fraction) -> str:
    """A rational as data."""
    return f"({value.numerator} # {value.denominator})"


def _real(value: Fraction) -> str:
    """The same rational as a real number; Coq sees that the two are one by unfolding."""
    whole = _z(value.numerator)
    if value.denominator == 1:
        return whole
    return f"({whole} / {value.denominator})"
