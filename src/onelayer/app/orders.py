"""Orders: what a visitor asks for, as plain checked data. Nothing here reads a formula; only sizes and types count."""

from __future__ import annotations

from typing import Any

from onelayer.errors import OnelayerError
from onelayer.formats import NAMES

MOST_TEXT = 20_000  # characters of a formula or a program that a page may send
MOST_CSV = 2_000_000  # bytes of a table that a page may send
FORMATS = (*NAMES, "int8")
# field -> most characters, by kind of order
FIELDS: dict[str, dict[str, int]] = {
    "formula": {"formula": MOST_TEXT, "domain": MOST_TEXT, "eps": 40, "format": 10},
    "sort": {"length": 6, "eps": 40, "format": 10},
    "table": {"csv": MOST_CSV, "target": 200, "format": 10},
    "map": {"csv": MOST_CSV, "target": 200, "eps": 40, "format": 10},
}
OPTIONAL = {"format": "float64"}


class Refused(OnelayerError):
    """An order that cannot be carried out; ``field`` says where the page should say so."""

    def __init__(self, field: str, message: str) -> None:
        super().__init__(message)
        self.field = field


def read_order(data: Any) -> dict[str, str]:
    """The order in a JSON value: its kind, and the texts of its fields."""
    if not isinstance(data, dict) or data.get("kind") not in FIELDS:
        raise Refused("formula", f"an order has a kind: {', '.join(FIELDS)}")
    fields = FIELDS[data["kind"]]
    odd = sorted(set(data) - set(fields) - {"kind"})
    if odd:
        raise Refused("formula", f"an order of this kind has no field {str(odd[0])[:40]!r}")
    order = {"kind": str(data["kind"])}
    for name, most in fields.items():
        value = data.get(name, OPTIONAL.get(name))
        if not isinstance(value, str) or not value.strip():
            raise Refused(name, f"{name} is missing")
        if len(value) > most:
            raise Refused(name, f"{name} has {len(value):,} characters; at most {most:,} are taken")
        order[name] = value
    if order["format"] not in FORMATS:
        raise Refused("format", f"format must be one of {', '.join(FORMATS)}")
    return order
