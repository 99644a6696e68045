"""Saved proofs: the bytes round-trip, and every change that matters is refused with one line."""

from __future__ import annotations

import json
import struct
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from onelayer.box import Box
from onelayer.errors import FileError, OnelayerError
from onelayer.proof.certificate import Certificate
from onelayer.proof.claim import from_json
from onelayer.proof.files import (
    MAX_BYTES,
    decode_boxes,
    encode_boxes,
    read_proof,
    write_proof,
)
from onelayer.proof.tree import LEAF, BoxTree, preorder


def record(**changes: object) -> Certificate:
    base = Certificate(
        status="proved",
        eps=1e-3,
        lower=4e-4,
        upper=5e-4,
        witness=(0.25, 1.5),
        resisted=None,
        boxes=3,
        order=4,
        arithmetic="float64 execution",
        domain=Box([0.0, 1.0], [1.0, 2.0]),
        function="sin(x1) + x2",
        weights_sha256="a" * 64,
        seconds=0.5,
        version="0.1.0",
        method="branch and bound",
        assumptions=("elementary functions within 4 ulp",),
    )
    return replace(base, **changes)  # type: ignore[arg-type]


def tree() -> BoxTree:
    return BoxTree(np.array([0.0, 1.0]), np.array([1.0, 2.0]), np.array([0, LEAF, 1, LEAF, LEAF], dtype=np.uint8))


def saved(**changes: object) -> Certificate:
    return record(**{"proof": tree(), **changes})


def test_round_trip(tmp_path: Path) -> None:
    write_proof(tmp_path, saved())
    assert read_proof(tmp_path) == saved()
    assert sorted(p.name for p in tmp_path.iterdir()) == ["boxes.bin", "certificate.json", "function.txt"]


def test_round_trip_with_infinite_upper_and_long_function(tmp_path: Path) -> None:
    text = "x1 + " * 4000 + "x2"
    proof = saved(status="undecided", upper=float("inf"), function=text)
    write_proof(tmp_path, proof)
    assert read_proof(tmp_path) == proof
    assert (tmp_path / "certificate.json").stat().st_size < 4096


def test_what_no_reader_takes_is_not_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(MAX_BYTES, "function.txt", 4)
    with pytest.raises(FileError, match=r"function.txt has 12 bytes"):
        write_proof(tmp_path, saved())
    assert list(tmp_path.iterdir()) == []


def test_a_lemma_needs_no_boxes_and_leaves_no_old_file(tmp_path: Path) -> None:
    write_proof(tmp_path, saved())
    lemma = record(method="lemma", boxes=0, function="not recorded: numpy callable")
    write_proof(tmp_path, lemma)
    assert read_proof(tmp_path) == lemma
    assert [p.name for p in tmp_path.iterdir()] == ["certificate.json"]


def test_leaves_cover_the_root_exactly() -> None:
    low, high = tree().boxes()
    assert low.tolist() == [[0, 1], [0.5, 1], [0.5, 1.5]]
    assert high.tolist() == [[0.5, 2], [1, 1.5], [1, 2]]


@given(st.integers(1, 5), st.integers(0, 60), st.randoms(use_true_random=False))
@settings(max_examples=60, deadline=None)
def test_preorder_of_random_trees(dim: int, cuts: int, random: object) -> None:
    axis, left, leaves = [-1], [0], [0]
    for _ in range(cuts):
        node = leaves.pop(random.randrange(len(leaves)))  # type: ignore[attr-defined]
        axis[node], left[node] = random.randrange(dim), len(axis)  # type: ignore[attr-defined]
        leaves += [len(axis), len(axis) + 1]
        axis, left = [*axis, -1, -1], [*left, 0, 0]
    code, place = preorder(np.array(axis), np.array(left))
    built = BoxTree(np.zeros(dim), np.ones(dim), code)
    low, high = built.boxes()
    assert built.leaves == cuts + 1 == len(low)
    assert np.prod(high - low, axis=1).sum() == 1.0
    assert sorted(place.tolist()) == list(range(len(axis)))
    assert decode_boxes(encode_boxes(built)) == built


@pytest.mark.parametrize(
    "code",
    [[0], [LEAF, LEAF], [0, LEAF], [0, LEAF, LEAF, LEAF], [LEAF, 0, LEAF], [2, LEAF, LEAF], [254, LEAF, LEAF], []],
)
def test_malformed_trees_are_refused(code: list[int]) -> None:
    with pytest.raises(OnelayerError, match="tree"):
        BoxTree(np.zeros(2), np.ones(2), np.array(code, dtype=np.uint8))


def test_a_cut_without_a_float_between_is_refused() -> None:
    one_ulp = BoxTree(np.array([1.0]), np.array([np.nextafter(1.0, 2.0)]), np.array([0, LEAF, LEAF], dtype=np.uint8))
    with pytest.raises(FileError, match="no float between"):
        decode_boxes(encode_boxes(one_ulp))


@pytest.mark.parametrize(
    "change",
    [
        {"status": "proved", "upper": 2e-3},
        {"upper": float("nan")},
        {"lower": float("nan")},
        {"eps": float("nan")},
        {"eps": None, "upper": float("inf")},
        {"lower": 6e-4},
        {"lower": -1.0},
        {"status": "undecided"},
        {"status": "refuted"},
        {"status": "refuted", "lower": 2e-3, "upper": 3e-3, "witness": None},
        {"status": "undecided", "lower": 2e-3, "upper": 3e-3},
        {"witness": (0.25, 3.0)},
        {"witness": (0.25,)},
        {"witness": None},
        {"domain": Box([0.0, 1.0, 0.0], [1.0, 2.0, 1.0])},
        {"weights_sha256": "xyz"},
        {"arithmetic": "float16"},
        {"method": "sampling"},
        {"status": "true"},
        {"seconds": float("nan")},
    ],
)
def test_inconsistent_records_cannot_be_built(change: dict[str, object]) -> None:
    with pytest.raises(OnelayerError, match="inconsistent certificate"):
        record(**change)


def test_equality_of_bound_and_eps_is_proved_and_one_ulp_more_is_not() -> None:
    assert record(upper=1e-3).status == "proved"
    with pytest.raises(OnelayerError):
        record(upper=float(np.nextafter(1e-3, 1)))
    assert record(status="undecided", upper=float(np.nextafter(1e-3, 1))).status == "undecided"


def test_every_changed_byte_of_every_file_is_refused(tmp_path: Path) -> None:
    write_proof(tmp_path, saved())
    tampered = 0
    for name in ("certificate.json", "boxes.bin", "function.txt"):
        original = (tmp_path / name).read_bytes()
        for at in range(len(original)):
            if name == "certificate.json" and chr(original[at]).isspace():
                continue
            changed = bytearray(original)
            changed[at] ^= 1
            (tmp_path / name).write_bytes(bytes(changed))
            with pytest.raises(FileError):
                read_proof(tmp_path)
            tampered += 1
        for cut in (0, 1, len(original) // 2, len(original) - 2):
            (tmp_path / name).write_bytes(original[:cut])
            with pytest.raises(FileError):
                read_proof(tmp_path)
        (tmp_path / name).write_bytes(original)
    assert tampered > 500
    assert read_proof(tmp_path) == saved()


@pytest.mark.parametrize("name", ["certificate.json", "boxes.bin", "function.txt"])
def test_a_missing_file_is_refused(tmp_path: Path, name: str) -> None:
    write_proof(tmp_path, saved())
    (tmp_path / name).unlink()
    with pytest.raises(FileError):
        read_proof(tmp_path)


@pytest.mark.parametrize(
    "text",
    ["", "[]", "{}", "nul", "[" * 100_000, '{"format": "onelayer certificate"}', '{"a": 1, "a": 2}', '{"a": NaN}'],
)
def test_hostile_json_is_refused(text: str) -> None:
    with pytest.raises(FileError) as caught:
        from_json(text)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("boxes", True),
        ("boxes", 3.0),
        ("eps", "1e-3"),
        ("eps", [1]),
        ("upper", None),
        ("lower", True),
        ("lower", 10**400),
        ("witness", [[1], [2]]),
        ("witness", "x"),
        ("domain", [[0, 1]]),
        ("domain", [[0, "1"], [1, 2]]),
        ("shape", [2.0]),
        ("assumptions", [1]),
        ("status", None),
        ("files", ["boxes.bin"]),
        ("format_version", 2),
    ],
)
def test_wrong_types_are_refused_even_with_a_recomputed_digest(field: str, value: object) -> None:
    from onelayer.proof.claim import _digest

    data = json.loads(record().to_json())
    data.pop("sha256")
    data[field] = value
    data["sha256"] = _digest(data)
    with pytest.raises(FileError):
        Certificate.from_json(json.dumps(data))


def test_oversized_and_wrong_headers_are_refused() -> None:
    good = encode_boxes(tree())
    for at, value in ((8, 2), (12, 0), (12, 255), (16, 2**40), (16, 0)):
        bad = bytearray(good)
        bad[at : at + 4] = struct.pack("<I", value % 2**32)
        if value >= 2**32:
            bad[20:24] = struct.pack("<I", value >> 32)
        with pytest.raises(FileError):
            decode_boxes(bytes(bad))
    for bounds in (float("nan"), float("inf"), 5.0):
        bad = bytearray(good)
        bad[24:32] = struct.pack("<d", bounds)
        with pytest.raises(FileError):
            decode_boxes(bytes(bad))


def test_an_interrupted_overwrite_is_never_accepted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from onelayer.proof import files

    write_proof(tmp_path, saved())
    other = saved(boxes=1, proof=BoxTree(tree().lower, tree().upper, np.array([LEAF])))
    real, calls = files.replace_file, []

    def interrupted(path: Path, data: bytes) -> None:
        calls.append(path.name)
        if path.name == "certificate.json":
            raise KeyboardInterrupt
        real(path, data)

    monkeypatch.setattr(files, "replace_file", interrupted)
    with pytest.raises(KeyboardInterrupt):
        write_proof(tmp_path, other)
    assert calls[-1] == "certificate.json"
    with pytest.raises(FileError, match=r"boxes.bin is not the file"):
        read_proof(tmp_path)
