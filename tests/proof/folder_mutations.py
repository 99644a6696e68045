"""Mutations of a saved folder by the grammar of each file, signed anew where a digest guards.

A folder is a dict from file name to bytes. Whoever wants to be believed signs what he changed, so digests alone refuse
nothing here; one mutation in twenty stays unsigned.
"""

from __future__ import annotations

import json
import math
import struct
from collections.abc import Callable
from random import Random
from typing import Any

import numpy as np
from folder_parts import (
    ARGUMENT,
    BOXES,
    CERTIFICATE,
    FUNCTION,
    MODEL,
    OTHER,
    TABLE,
    Folder,
    arrays_of,
    closed,
    opened,
    signed,
    stored,
)

from onelayer.checker.weights import expected_shapes
from onelayer.proof.about import sound, words

NUMBERS = (0, 1, -1, 2, 3, 5, 255, 10**6, 2**31, 2**53 + 1, 2**63, 2**64, 10**30, 0.5, -0.0, 1e-3, 1e300)
FLOATS = (0.0, -0.0, 1.0, -1.0, 1e308, -1e308, 1.7e308, 1e-300, 1e-310, 5e-324, 1e39, 1.01e-44, math.nan, math.inf)
WORDS = ("", "x1", "nan", "inf", "none", "plain", "grid", "each", "first", "last", "mean", "tokens", "packed", "pre")
WORDS += ("post", "one-hot", "learned", "linear", "piecewise", "softmax", "topk", "proved", "refuted", "undecided")
WORDS += (
    "real",
    "float32 execution",
    "lemma",
    "composition",
    "enumeration",
    "thresholds",
    "subsets",
    "relu",
    "\x1b[2J",
)
LITERALS = (
    "1e999",
    "-1e999",
    "NaN",
    "Infinity",
    "9" * 5000,
    "1e-999",
    "[" * 5000,
    '"\\ud800"',
    "0x10",
    "1_0",
    "01",
    "",
)


def mutated(base: Folder, rng: Random, others: list[Folder]) -> tuple[str, Folder]:
    """A kind of mutation and the folder after it."""
    kinds = [kind for kind, (file, _) in KINDS.items() if file in base]
    kind = rng.choice([*kinds, *FILES_AT_LARGE])
    folder = dict(base)
    if kind in FILES_AT_LARGE:
        FILES_AT_LARGE[kind](folder, rng, others)
    else:
        file, change = KINDS[kind]
        folder[file] = change(folder[file], rng)
        second, change = KINDS[rng.choice(kinds)]
        if second != file and rng.random() < 0.15:
            folder[second] = change(folder[second], rng)
    if rng.random() < 0.3:
        folder = forgetful(folder)
    return kind, signed(folder) if rng.random() < 0.95 else folder


def forgetful(folder: Folder) -> Folder:
    """Without witness, so that the bound alone is in question."""
    try:
        claim = json.loads(folder[CERTIFICATE])
        if claim["status"] != "refuted":
            claim["lower"], claim["witness"] = 0.0, None
        return {**folder, CERTIFICATE: json.dumps(claim).encode()}
    except (ValueError, KeyError, TypeError, RecursionError):
        return folder


def changed(value: Any, rng: Random) -> Any:
    """A JSON value with one place changed: a key, an item, a number, a type."""
    if isinstance(value, dict) and value and rng.random() < 0.9:
        key, result = rng.choice(list(value)), dict(value)
        match rng.randrange(12):
            case 0:
                result.pop(key)
            case 1:
                result[f"{key}x"] = result[key]
            case 2:
                result[rng.choice(list(value))] = value[key]
            case _:
                result[key] = changed(value[key], rng)
        return result
    if isinstance(value, list) and value and rng.random() < 0.85:
        at, result = rng.randrange(len(value)), list(value)
        match rng.randrange(8):
            case 0:
                result.pop(at)
            case 1:
                result.insert(at, value[at])
            case 2:
                result = result * rng.choice((0, 2, 9))
            case 3:
                result.reverse()
            case _:
                result[at] = changed(value[at], rng)
        return result
    if isinstance(value, int | float) and not isinstance(value, bool) and rng.random() < 0.6:
        near = (value + 1, value - 1, value * 2, -value, value / 2, value * (1 + 2**-30))
        return rng.choice((*near, value // 2 if isinstance(value, int) else math.nextafter(value, math.inf)))
    return rng.choice((*NUMBERS, *WORDS, None, True, False, [], [0], [[1]], {}, {"a": 1}))


def json_changed(data: bytes, rng: Random) -> bytes:
    value = json.loads(data)
    for _ in range(rng.choice((1, 1, 1, 2, 3))):
        value = changed(value, rng)
    return json.dumps(value).encode()


def json_text_changed(data: bytes, rng: Random) -> bytes:
    """One number or word of the text replaced by something that is no JSON, or only just."""
    text = data.decode()
    places = [i for i, letter in enumerate(text) if letter in "0123456789" and text[i - 1] in " [:,"]
    at = rng.choice(places)
    end = next((i for i in range(at, len(text)) if text[i] in ",]} \n"), len(text))
    return (text[:at] + rng.choice(LITERALS) + text[end:]).encode()


def bounds_changed(data: bytes, rng: Random) -> bytes:
    """A better claim: bounds and eps moved together so that they agree."""
    claim = json.loads(data)
    upper = claim["upper"] if isinstance(claim["upper"], float) else 1.0
    factor = rng.choice((0.0, 1e-6, 0.5, 0.9, 0.99, 0.9999, 1.1, 3.0, 1e3))
    match rng.randrange(3):
        case 0:
            claim |= {"upper": upper * factor, "eps": None, "lower": 0.0, "witness": None, "status": "proved"}
        case 1:
            claim |= {"upper": upper * factor, "eps": upper * factor, "lower": 0.0, "witness": None, "status": "proved"}
        case _:
            low, high = claim["domain"]
            at = [rng.uniform(a, b) for a, b in zip(low, high, strict=True)]
            claim |= {"status": "refuted", "lower": 2 * upper, "eps": upper, "upper": rng.choice(("inf", 3 * upper))}
            claim["witness"] = rng.choice((claim.get("witness"), at))
    return json.dumps(claim).encode()


def domain_changed(data: bytes, rng: Random) -> bytes:
    """boxes.bin is not told: only folders without boxes stay consistent."""
    claim = json.loads(data)
    side, at = rng.randrange(2), rng.randrange(len(claim["domain"][0]))
    claim["domain"][side][at] += rng.choice((-1, 1)) * rng.choice((1e-9, 0.1, 1.0, 1e3, 1e300))
    return json.dumps(claim).encode()


def about_changed(data: bytes, rng: Random) -> bytes:
    """Another setting of what is claimed, and the words that belong to it; a range becomes narrower."""
    claim = json.loads(data)
    about = claim.get("about") or {"kind": "difference"}
    if about["kind"] == "range" and rng.random() < 0.7:
        share = rng.choice((1e-9, 1e-3, 0.05, 0.3, 0.5))
        pairs = list(zip(about["low"], about["high"], strict=True))
        about = about | {
            "low": [a + share * (b - a) for a, b in pairs],
            "high": [b - share * (b - a) for a, b in pairs],
        }
    else:
        kinds = ("range", "difference", "lipschitz", "slopes", "monotone", "convex", "condition")
        about = changed(about, rng) if rng.random() < 0.7 else about | {"kind": rng.choice(kinds)}
    claim["about"] = about
    if sound(about) and about:
        claim["claim"] = words(about)
    return json.dumps(claim).encode()


def config_changed(data: bytes, rng: Random) -> bytes:
    """Another configuration with tensors of the shapes that it prescribes, or another program of a network."""
    metadata, arrays = arrays_of(data)
    if "network" in metadata:
        program = json.loads(metadata["network"])
        place = rng.choice((program, *program["steps"]))
        fields = {"number": lambda: changed(place.get("number", 1.0), rng), "args": lambda: changed(place["args"], rng)}
        if "op" in place:
            fields |= {"op": lambda: rng.choice(program["steps"])["op"], "shape": lambda: changed(place["shape"], rng)}
            field = rng.choice(sorted(fields))
            place[field] = fields[field]()
        else:
            program = changed(program, rng)
        text = json.dumps(program, sort_keys=True, separators=(",", ":"))
        return stored({"network": text}, arrays)
    document = json.loads(metadata["onelayer"])
    document["config"] = changed(document["config"], rng)
    text = json.dumps(document, sort_keys=True, separators=(",", ":"))
    try:
        shapes = expected_shapes(document["config"])
        if sum(math.prod(shape) for shape in shapes.values()) < 10**5:
            arrays = {name: np.resize(arrays.get(name, np.zeros(1)), shape) for name, shape in shapes.items()}
    except Exception:
        pass
    return stored({"onelayer": text}, arrays)


def weights_changed(data: bytes, rng: Random) -> bytes:
    """Numbers of one tensor: a special value, a scale, a sign, a permutation, noise."""
    metadata, arrays = arrays_of(data)
    name = rng.choice(list(arrays))
    array = arrays[name]
    at = rng.randrange(array.size)
    with np.errstate(all="ignore"):
        match rng.randrange(6):
            case 0 | 1:
                array.flat[at] = rng.choice(FLOATS)
            case 2:
                array.flat[at] += rng.choice((1e-12, 1e-6, 1e-3, 1.0)) * rng.choice((-1, 1))
            case 3:
                array *= array.dtype.type(rng.choice((0.0, -1.0, 2.0, 1 + 1e-9, 1e150, 1e-150)))
            case 4:
                arrays[name] = array[::-1].copy()
            case _:
                array.flat[at] *= rng.choice((2.0, -1.0, 1 + 2.0**-40))
    return stored(metadata, arrays)


def format_changed(data: bytes, rng: Random) -> bytes:
    metadata, arrays = arrays_of(data)
    chosen = set(arrays) if rng.random() < 0.6 else {rng.choice(list(arrays))}
    with np.errstate(all="ignore"):
        other = {
            n: a.astype("<f8" if a.dtype.itemsize == 4 else "<f4") if n in chosen else a for n, a in arrays.items()
        }
    return stored(metadata, other)


def header_changed(data: bytes, rng: Random) -> bytes:
    header, payload = opened(data)
    return closed(changed(header, rng), payload)


def function_changed(data: bytes, rng: Random) -> bytes:
    """A token of the formula replaced, or a formula of the grammar in its place."""
    text = data.decode()
    if rng.random() < 0.5:
        return expression(rng, 3).encode()
    parts = ["x1", "x2", "x9", "0", "1e308", "5e-324", "+ 1e-9", "* 1.0000001", "/ x1", "** 3", "sin", "log", "(", ")"]
    parts += [";", "= x1;", "exp(exp(exp(", "\x00", "é", "\u2003", "x1/(x1-x1)", "1/0", "sqrt(-1)", "0*log(x1)", "()"]
    at = rng.randrange(len(text) + 1)
    return (text[:at] + rng.choice(parts) + text[at + rng.choice((0, 0, 1, 3)) :]).encode()


def expression(rng: Random, depth: int) -> str:
    if depth == 0:
        return rng.choice(("x1", "x2", "x3", "pi", "0.1", "2", "1e-9", "1e300", "(-1)"))
    a, b = expression(rng, depth - 1), expression(rng, depth - 1)
    unary = ("sin", "cos", "tan", "exp", "log", "sqrt", "abs", "tanh", "relu", "erf", "atan", "sigmoid")
    form = rng.choice((f"({a} + {b})", f"({a} - {b})", f"{a} * {b}", f"({a}) / ({b})", f"{rng.choice(unary)}({a})"))
    return rng.choice((form, form, f"min({a}, {b})", f"({a})**{rng.choice((2, -1, 0, 7, 1000))}", f"{a}; {b}"))


def argument_changed(data: bytes, rng: Random) -> bytes:
    return json_changed(data, rng) if rng.random() < 0.8 else json_text_changed(data, rng)


def boxes_changed(data: bytes, rng: Random) -> bytes:
    """A byte, the root, a header field, or another tree altogether."""
    header, dim = bytearray(data[:24]), int.from_bytes(data[12:16], "little")
    root, code = bytearray(data[24 : 24 + 16 * dim]), bytearray(data[24 + 16 * dim :])
    match rng.randrange(6):
        case 0:
            code[rng.randrange(len(code))] = rng.choice((0, 1, 2, 253, 254, 255))
        case 1:
            at = 8 * rng.randrange(2 * dim)
            root[at : at + 8] = struct.pack("<d", rng.choice(FLOATS))
        case 2:
            at = rng.choice((0, 8, 12, 16, 20))
            header[at : at + 4] = struct.pack("<I", rng.choice((0, 1, 2, 254, 255, 2**31, 2**32 - 1)))
        case 3:
            code = bytearray(tree(rng, dim, rng.choice((0, 1, 3, 20))))
        case 4:
            code = bytearray(bytes([0]) * rng.choice((1, 50, 3000)) + bytes([255]) * rng.choice((1, 51, 3001)))
        case _:
            code = code[::-1]
    if rng.random() < 0.7:
        header[16:24] = struct.pack("<Q", len(code))
    return bytes(header + root + code)


def tree(rng: Random, dim: int, cuts: int) -> bytes:
    if cuts == 0:
        return b"\xff"
    left = rng.randrange(cuts)
    return bytes([rng.randrange(dim)]) + tree(rng, dim, left) + tree(rng, dim, cuts - 1 - left)


def bytes_changed(data: bytes, rng: Random) -> bytes:
    result = bytearray(data)
    match rng.randrange(4):
        case 0:
            return bytes(result[: rng.randrange(len(result) + 1)])
        case 1:
            return bytes(result) + rng.choice((b"\0", b"x" * 100, data))
        case 2:
            at = rng.randrange(len(result) + 1)
            return bytes(result[:at] + rng.randbytes(rng.choice((1, 8))) + result[at:])
        case _:
            for _ in range(rng.choice((1, 2, 8))):
                result[rng.randrange(len(result))] = rng.randrange(256)
            return bytes(result)


def tree_and_count(folder: Folder, rng: Random, others: list[Folder]) -> None:
    """Another tree of the same domain, with the number of its leaves in the certificate."""
    if BOXES not in folder:
        return
    data, claim = folder[BOXES], json.loads(folder[CERTIFICATE])
    dim = int.from_bytes(data[12:16], "little")
    code = tree(rng, dim, rng.choice((0, 1, 2, 5, 30)))
    folder[BOXES] = data[:16] + struct.pack("<Q", len(code)) + data[24 : 24 + 16 * dim] + code
    claim["boxes"] = (len(code) + 1) // 2
    folder[CERTIFICATE] = json.dumps(claim).encode()


def function_and_claim(folder: Folder, rng: Random, others: list[Folder]) -> None:
    """Another function in both places that state it."""
    if FUNCTION not in folder:
        return
    folder[FUNCTION] = function_changed(folder[FUNCTION], rng)
    claim = json.loads(folder[CERTIFICATE])
    claim["function"] = folder[FUNCTION].decode("utf-8", "replace")
    folder[CERTIFICATE] = json.dumps(claim).encode()


def swapped(folder: Folder, rng: Random, others: list[Folder]) -> None:
    """A file of another folder, of the same name or not."""
    other = rng.choice(others)
    folder[rng.choice(list(folder))] = other[rng.choice(list(other))]


def missing(folder: Folder, rng: Random, others: list[Folder]) -> None:
    folder.pop(rng.choice(list(folder)))


def added(folder: Folder, rng: Random, others: list[Folder]) -> None:
    other = rng.choice(others)
    for name in rng.sample(sorted(other), 1):
        folder.setdefault(name, other[name])


def any_bytes(folder: Folder, rng: Random, others: list[Folder]) -> None:
    name = rng.choice(list(folder))
    folder[name] = bytes_changed(folder[name], rng)


Change = Callable[[bytes, Random], bytes]
KINDS: dict[str, tuple[str, Change]] = {
    "claim": (CERTIFICATE, json_changed),
    "claim text": (CERTIFICATE, json_text_changed),
    "bounds": (CERTIFICATE, bounds_changed),
    "domain": (CERTIFICATE, domain_changed),
    "about": (CERTIFICATE, about_changed),
    "config": (MODEL, config_changed),
    "weights": (MODEL, weights_changed),
    "more weights": (MODEL, weights_changed),
    "format": (MODEL, format_changed),
    "header": (MODEL, header_changed),
    "boxes": (BOXES, boxes_changed),
    "argument": (ARGUMENT, argument_changed),
    "table": (TABLE, weights_changed),
    "table format": (TABLE, format_changed),
    "table header": (TABLE, header_changed),
    "other program": (OTHER, config_changed),
    "other weights": (OTHER, weights_changed),
    "other format": (OTHER, format_changed),
    "other header": (OTHER, header_changed),
}
FILES_AT_LARGE = {
    "tree": tree_and_count,
    "function": function_and_claim,
    "swapped": swapped,
    "missing": missing,
    "added": added,
    "bytes": any_bytes,
}
