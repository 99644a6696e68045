"""Saved models: exact round trips, atomic writes, and one clear line for every file that is not sound."""

from __future__ import annotations

import hashlib
import json
import os
import struct
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import safetensors.torch
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from onelayer.errors import FileError
from onelayer.layer.file import FILE_NAME, load_model, save_model, weights_sha256
from onelayer.layer.lookup import AxisKeys, LookupHead, lookup_model
from onelayer.layer.transformer import OneLayerTransformer


def example(dtype: torch.dtype = torch.float64) -> OneLayerTransformer:
    generator = torch.Generator().manual_seed(0)
    axes = [AxisKeys(a, torch.randn(3, generator=generator), torch.randn(3, generator=generator)) for a in range(2)]
    return lookup_model(2, (), [LookupHead(axes, torch.randn(3, 3, 1, generator=generator))], dtype=dtype)


@settings(max_examples=40, deadline=None, derandomize=True, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_round_trip(strategies: dict[str, Any], tmp_path: Path, data: st.DataObject) -> None:
    model = data.draw(strategies["layers"])
    if data.draw(st.booleans()):
        model = model.float()
    path = save_model(model, tmp_path / "deep" / "model")
    assert os.listdir(path.parent) == [FILE_NAME]
    loaded = load_model(path.parent)
    assert loaded.config == model.config
    assert loaded.dtype == model.dtype
    assert {name: value.tolist() for name, value in loaded.state_dict().items()} == {
        name: value.tolist() for name, value in model.state_dict().items()
    }
    assert not any(parameter.requires_grad for parameter in loaded.parameters())
    assert weights_sha256(loaded) == weights_sha256(model)
    first = path.read_bytes()
    save_model(loaded, path.parent)
    assert path.read_bytes() == first


def test_hash_sees_every_weight_and_the_configuration() -> None:
    model = example()
    hashes = {weights_sha256(model), weights_sha256(model.float()), weights_sha256(model.materialize())}
    for name in model.state_dict():
        changed = example()
        changed.state_dict()[name].view(-1)[0] += 1
        hashes.add(weights_sha256(changed))
    assert len(hashes) == 3 + len(model.state_dict())


def test_hash_is_the_documented_one(tmp_path: Path) -> None:
    path = save_model(example(), tmp_path)
    data = path.read_bytes()
    length = struct.unpack("<Q", data[:8])[0]
    header = json.loads(data[8 : 8 + length])
    digest = hashlib.sha256((header.pop("__metadata__")["onelayer"] + "\n").encode())
    for name in sorted(header):
        entry = header[name]
        digest.update(f"{name} {entry['dtype']} {','.join(map(str, entry['shape']))}\n".encode())
        low, high = (8 + length + offset for offset in entry["data_offsets"])
        assert len(np.frombuffer(data[low:high], "<f8")) == np.prod(entry["shape"])
        digest.update(data[low:high])
    assert digest.hexdigest() == weights_sha256(load_model(tmp_path))


def rewritten(model: OneLayerTransformer, **changes: Any) -> bytes:
    """A well-formed safetensors file whose metadata, configuration or tensors were tampered with."""
    config = model.config.to_dict() | changes.get("config", {})
    document = {"format": "onelayer model", "version": 1, "config": config} | changes.get("document", {})
    tensors = {name: value.contiguous() for name, value in model.state_dict().items()} | changes.get("tensors", {})
    return safetensors.torch.save(
        {name: value for name, value in tensors.items() if value is not None},
        changes.get("metadata", {"onelayer": changes.get("text", json.dumps(document))}),
    )


def raw(header: bytes, body: bytes = b"") -> bytes:
    return struct.pack("<Q", len(header)) + header + body


SHAPES = {name: value.shape for name, value in example().state_dict().items()}
GRID = {"d_k": 4, "d_v": 1, "memory": "grid", "tokens": [3, 3]}
NAN = {"b_R": torch.tensor([torch.nan], dtype=torch.float64)}
DEEP = "[" * 100_000
HOSTILE: dict[str, tuple[bytes, str]] = {
    "empty": (b"", "truncated or not a safetensors"),
    "short": (b"\x01\x02", "truncated or not a safetensors"),
    "text": (b"hello, this is not a model at all", "truncated or not a safetensors"),
    "pickle": (b"\x80\x04\x95\x10\x00\x00\x00\x00\x00\x00\x00cos\nsystem\n", "truncated or not a safetensors"),
    "huge header": (struct.pack("<Q", 2**63) + b"{}", "truncated or not a safetensors"),
    "bad JSON": (raw(b"{nonsense"), "not valid JSON"),
    "bad UTF-8": (raw(b'{"\xff\xfe": 1}'), "not valid JSON"),
    "deep header": (raw(DEEP.encode()), "not valid JSON"),
    "endless number": (raw(b'{"a": ' + b"9" * 5000 + b"}"), "not valid JSON"),
    "list header": (raw(b"[]"), "not a JSON object"),
    "no metadata": (rewritten(example(), metadata={}), "not written by onelayer"),
    "foreign metadata": (rewritten(example(), metadata={"format": "pt"}), "not written by onelayer"),
    "deep metadata": (rewritten(example(), text=DEEP), "not valid JSON"),
    "metadata is a list": (rewritten(example(), text="[1, 2]"), "not written by onelayer"),
    "other version": (rewritten(example(), document={"version": 2}), "version 2; this onelayer reads 1"),
    "version is long": (rewritten(example(), document={"version": "9" * 999}), "format version 9999"),
    "no version": (rewritten(example(), document={"version": None}), "format version None"),
    "config is a number": (rewritten(example(), document={"config": 7}), "bad configuration"),
    "config lacks a field": (rewritten(example(), document={"config": {"layout": "packed"}}), "bad configuration"),
    "unknown attention": (rewritten(example(), config={"attention": "__import__"}), "attention must be one of"),
    "attention is a list": (rewritten(example(), config={"attention": ["softmax"]}), "attention must be one of"),
    "heads is a string": (rewritten(example(), config={"heads": "grid"}), "'heads' must be a list"),
    "no heads": (rewritten(example(), config={"heads": []}), "at least one head"),
    "head lacks a field": (rewritten(example(), config={"heads": [{"d_k": 1}]}), "must have d_k"),
    "shape is a number": (rewritten(example(), config={"input_shape": 2}), "must be a list of whole numbers"),
    "shape holds text": (rewritten(example(), config={"input_shape": ["2"]}), "input_shape must be whole numbers"),
    "negative width": (rewritten(example(), config={"d_model": -1}), "d_model must be a whole number"),
    "width is true": (rewritten(example(), config={"d_model": True}), "d_model must be a whole number"),
    "hidden is a float": (rewritten(example(), config={"hidden": 1.5}), "hidden must be a whole number"),
    "residual is a number": (rewritten(example(), config={"residual": 1}), "residual must be"),
    "ramps is text": (rewritten(example(), config={"ramps": "1"}), "'ramps' must be a whole number"),
    "a trillion weights": (rewritten(example(), config={"d_model": 10**12}), "configured is"),
    "a googol of tokens": (rewritten(example(), config={"heads": [GRID | {"tokens": [10**50] * 2}]}), "out of range"),
    "hidden without matrices": (rewritten(example(), config={"hidden": 5}), "configured is"),
    "extra weight": (rewritten(example(), tensors={"../../evil": torch.zeros(1)}), "no such weight"),
    "missing weight": (rewritten(example(), tensors={"b_O": None}), "weight b_O has shape None"),
    "wrong shape": (rewritten(example(), tensors={"b_O": torch.zeros(9, dtype=torch.float64)}), "has shape \\[9\\]"),
    "mixed dtypes": (rewritten(example(), tensors={"b_R": torch.zeros(1)}), "all F64 or all F32"),
    "quarter precision": (rewritten(example().to(torch.float8_e5m2)), "must be F64 or F32 .*, found F8_E5M2"),
    "one int8": (rewritten(example(), tensors={"W_O": torch.ones(1, 2, dtype=torch.int8)}), "int8 weight W_O needs"),
    "integers": (rewritten(example(), tensors={"b_R": torch.zeros(1, dtype=torch.int64)}), "found I64"),
    "nan": (rewritten(example(), tensors=NAN), "nan or inf in tensor b_R"),
    "inf": (rewritten(example(), tensors={"b_R": NAN["b_R"].nan_to_num(torch.inf)}), "nan or inf in tensor b_R"),
    "infinite number": (rewritten(example(), text='{"format": 1e999}'), "not a finite number"),
    "number spelt out": (rewritten(example(), text='{"format": NaN}'), "not a finite number"),
    "repeated key": (raw(b'{"a": 1, "a": 2}'), "appears twice"),
    "half a surrogate pair": (rewritten(example(), text='{"format": "\\ud800"}'), "not valid JSON"),
    "metadata is no text": (raw(b'{"__metadata__": {"onelayer": 1}}'), "must be texts"),
    "version is true": (rewritten(example(), document={"version": True}), "format version True"),
    "no tokens": (
        rewritten(example(), config={"layout": "tokens", "input_shape": [], "positions": "one-hot"}),
        "needs input shape",
    ),
    "many axes": (rewritten(example(), config={"input_shape": [2**62] * 10_000}), "at most 32 axes"),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_unsound_files_are_refused(tmp_path: Path, name: str) -> None:
    data, says = HOSTILE[name]
    (tmp_path / FILE_NAME).write_bytes(data)
    with pytest.raises(FileError, match=says) as caught:
        load_model(tmp_path)
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) < 600


def test_every_truncation_is_refused(tmp_path: Path) -> None:
    data = rewritten(example())
    (tmp_path / FILE_NAME).write_bytes(data)
    load_model(tmp_path)
    for length in [*range(0, len(data), 37), len(data) - 1]:
        (tmp_path / FILE_NAME).write_bytes(data[:length])
        with pytest.raises(FileError):
            load_model(tmp_path)
    (tmp_path / FILE_NAME).write_bytes(data + b"x")
    with pytest.raises(FileError, match="corrupt"):
        load_model(tmp_path)


@settings(
    max_examples=200, deadline=None, derandomize=True, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(where=st.integers(0, 10**9), value=st.integers(0, 255))
def test_a_flipped_byte_is_refused_or_harmless(tmp_path: Path, where: int, value: int) -> None:
    """Any byte of header or numbers: FileError of one line, or a finite model of the very same shape; nothing else."""
    data = bytearray(rewritten(example()))
    data[where % len(data)] = value
    (tmp_path / FILE_NAME).write_bytes(bytes(data))
    try:
        model = load_model(tmp_path)
    except FileError as error:
        message = str(error)
    else:
        assert {name: value.shape for name, value in model.state_dict().items()} == SHAPES
        message = "" if all(torch.isfinite(value).all() for value in model.state_dict().values()) else "\n"
    assert "\n" not in message


def test_tampered_offsets_are_refused(tmp_path: Path) -> None:
    data = rewritten(example())
    length = struct.unpack("<Q", data[:8])[0]
    header = json.loads(data[8 : 8 + length])
    for offsets in ([0, 10**15], [-8, 0], [8, 0], "all", [0, 2**64]):
        changed = header | {"b_R": header["b_R"] | {"data_offsets": offsets}}
        (tmp_path / FILE_NAME).write_bytes(raw(json.dumps(changed).encode(), data[8 + length :]))
        with pytest.raises(FileError, match=r"malformed|truncated|do not fill|out of range"):
            load_model(tmp_path)
    overlap = header | {"b_R": header["b_R"] | {"data_offsets": header["b_O"]["data_offsets"]}}
    overlap["b_R"]["shape"] = header["b_O"]["shape"]
    (tmp_path / FILE_NAME).write_bytes(raw(json.dumps(overlap).encode(), data[8 + length :]))
    with pytest.raises(FileError, match="overlap or leave bytes out"):
        load_model(tmp_path)


def test_oversized_files_are_refused_unread(tmp_path: Path) -> None:
    save_model(example(), tmp_path)
    with pytest.raises(FileError, match="larger than the limit of 100 bytes"):
        load_model(tmp_path, max_bytes=100)


def test_missing_and_odd_places(tmp_path: Path) -> None:
    with pytest.raises(FileError, match="no model at"):
        load_model(tmp_path / "nowhere")
    (tmp_path / "odd" / FILE_NAME).mkdir(parents=True)
    with pytest.raises(FileError, match="no model at"):
        load_model(tmp_path / "odd")
    os.mkfifo(tmp_path / FILE_NAME)
    with pytest.raises(FileError, match="no model at"):
        load_model(tmp_path)
    with pytest.raises(FileError):
        load_model("null\0byte")


def test_a_link_is_not_a_file(tmp_path: Path) -> None:
    """What a link shows may lie anywhere, and change between two readings."""
    save_model(example(), tmp_path / "elsewhere")
    (tmp_path / FILE_NAME).symlink_to(tmp_path / "elsewhere" / FILE_NAME)
    with pytest.raises(FileError, match="not a regular file"):
        load_model(tmp_path)


def test_unwritable_folder_gives_one_line(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(FileError, match=r"cannot write .*choose a folder you can write to") as caught:
        save_model(example(), tmp_path / "file" / "below")
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("failure", [KeyboardInterrupt(), OSError(28, "No space left on device")])
def test_an_interrupted_write_leaves_the_old_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, failure: BaseException
) -> None:
    save_model(example(), tmp_path)
    before = (tmp_path / FILE_NAME).read_bytes()

    def fail(descriptor: int) -> None:
        raise failure

    monkeypatch.setattr("onelayer.layer.file.os.fsync", fail)
    with pytest.raises((KeyboardInterrupt, FileError)):
        save_model(example(torch.float32), tmp_path)
    assert os.listdir(tmp_path) == [FILE_NAME]
    assert (tmp_path / FILE_NAME).read_bytes() == before


def test_unsound_models_are_not_written(tmp_path: Path) -> None:
    model = example()
    model.own("b_R").fill_(torch.nan)
    with pytest.raises(FileError, match="weight b_R holds nan or inf"):
        save_model(model, tmp_path)
    with pytest.raises(FileError, match="all its weights in float64"):
        save_model(example().to(torch.float8_e5m2), tmp_path)
    assert os.listdir(tmp_path) == []
