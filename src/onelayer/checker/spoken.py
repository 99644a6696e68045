"""The function that a proof is about, from function.txt or from the text that is given in its place.

In a file coordinates are x1 ... xD, and x, y, z are the first three. Where the domain names its coordinates a person
reads those names too: a text that is another function then states two things, and neither is checked.
"""

from __future__ import annotations

import math

from onelayer.checker.asked import Asked
from onelayer.checker.operations import CONSTANTS
from onelayer.checker.outcome import Rejected
from onelayer.checker.reader import SavedProof
from onelayer.checker.reading import need_one_function
from onelayer.checker.weights import Stored
from onelayer.errors import FileError, FormulaError, MisleadingText
from onelayer.language.formula import Formula, parse
from onelayer.names import without_unit

MAX_FORMULA = 2**24  # characters of a function that are parsed


def function_of(proof: SavedProof, f: str | Formula | None) -> Formula:
    """f of a claim about a network."""
    found = _recorded(proof)
    if f is not None:
        given = _given(proof, f)
        if found is not None and not _same(found, given):
            raise Asked("this proof names its function itself: check(folder) without f, or read function.txt")
        return given
    if found is None:
        raise Asked("the function of this proof was not recorded; give it as formula text: check(folder, f=...)")
    return found


def formula_of(proof: SavedProof, f: str | Formula | None, stored: Stored, needed: bool) -> Formula | None:
    """f as a formula of the inputs and outputs of the model; None for a proof whose argument names its function."""
    formula = _recorded(proof)
    if f is not None:
        given = _given(proof, f)
        if not needed or (formula is not None and not _same(formula, given)):
            raise Asked("this proof names its function itself: check(folder) without f, or read function.txt")
        formula = given
    if formula is None:
        if needed:
            raise Asked("the function of this proof was not recorded; give it as formula text: check(folder, f=...)")
        return None
    outputs = math.prod(stored.config["output_shape"])
    if formula.dim != math.prod(proof.record.shape) or len(formula.outputs) != outputs:
        raise Rejected(f"the function has {len(formula.outputs)} outputs, the model {outputs}")
    return formula


def _recorded(proof: SavedProof) -> Formula | None:
    """What function.txt says, if the proof has one."""
    if proof.function is None:
        return None
    dim = math.prod(proof.record.shape)
    try:
        found = parse(proof.function, dim, limit=MAX_FORMULA)
    except FormulaError as error:
        raise FileError(f"function.txt is not a formula of {dim} variables: {error}") from error
    named = _by_names(proof, proof.function)
    names = ", ".join(proof.record.names)
    if named is not None and not _same(found, named):
        raise Rejected(f"function.txt is another function where the coordinates are called {names}")
    need_one_function(proof.function, found, (), proof.record.domain)
    if _constants(proof) & {node.op for node in found.nodes}:
        raise Rejected(f"function.txt has a constant of the name of a coordinate, which are called {names}")
    return found


def _constants(proof: SavedProof) -> set[str]:
    """The constants that some coordinate is called like: the language reads such a name as the constant alone."""
    found: set[str] = set()
    for name in _names(proof):
        try:
            found |= {node.op for node in parse(name).nodes if node.op in CONSTANTS}
        except FormulaError:  # the name has no other meaning
            continue
    return found


def _given(proof: SavedProof, f: str | Formula) -> Formula:
    """What a user gives as f: its text may call the coordinates by their names."""
    if not isinstance(f, str):
        return f
    named = _by_names(proof, f)
    found = parse(f, math.prod(proof.record.shape), limit=MAX_FORMULA) if named is None else named
    names = () if named is None else _names(proof)
    need_one_function(f, found, names, proof.record.domain)
    return found


def _by_names(proof: SavedProof, text: str) -> Formula | None:
    """The text read with the names of the coordinates; None without names, and where it has no meaning with them."""
    names = _names(proof)
    if not names:
        return None
    try:
        return parse(text, len(names), limit=MAX_FORMULA, names=names)
    except MisleadingText as error:
        raise Rejected(f"the function is another one than it looks: {error}") from error
    except FormulaError:
        return None


def _names(proof: SavedProof) -> list[str]:
    return [without_unit(name) for name in proof.record.names]


def _same(first: Formula, second: Formula) -> bool:
    return (first.nodes, first.outputs) == (second.nodes, second.outputs)
