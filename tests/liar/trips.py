"""Round trips: what the package proved and saved, its checker accepts, unless time ends first."""

from __future__ import annotations

import shutil
import tempfile
from collections import Counter
from pathlib import Path
from random import Random
from typing import Any

import onelayer as ol
from liar.drawn_proofs import METHODS, QUICK
from liar.judge import Tally
from onelayer.checker.check import UNEXPECTED

SECONDS = 20.0
KEPT: dict[str, Path | None] = {"in": None}  # where rejected folders are kept, if anywhere


def sober(report: Any) -> Any:
    """The report; a check that failed by an error of its own has said nothing about the folder."""
    if UNEXPECTED in report.reason:
        raise AssertionError(report.reason)
    return report


def trip(place: Path, claim: object, seconds: float = SECONDS) -> Tally:
    """What the checker says of a saved folder, an honest one; a rejection says where the folder is kept."""
    try:
        report = sober(ol.check(place, max_seconds=seconds))
    except ol.OnelayerError as error:  # which is what cases end with that the package declines
        raise AssertionError(f"the checker cannot read what was saved: {error}") from error
    tally = Tally()
    tally.count["round trips"] += 1
    tally.count[report.verdict] += 1
    if report.verdict == "rejected":
        tally.rejections.append(f"{claim}: {report.reason}{kept(place)}")
    return tally


def kept(place: Path) -> str:
    """A copy of a folder where folders are kept, in words."""
    if KEPT["in"] is None:
        return ""
    KEPT["in"].mkdir(parents=True, exist_ok=True)
    copy = Path(tempfile.mkdtemp(prefix="rejected-", dir=KEPT["in"])) / "proof"
    shutil.copytree(place, copy)
    return f" (kept in {copy})"


def round_trip(proof: Any, seconds: float = SECONDS) -> Tally:
    """A proof, saved and checked."""
    with tempfile.TemporaryDirectory(prefix="liar") as folder:
        place = proof.save(Path(folder) / "proof")
        return trip(place, getattr(proof, "certificate", proof), seconds)


def saved_trip(certificate: Any) -> Tally:
    """The same of a claim about any model; nothing where no network says the model."""
    with tempfile.TemporaryDirectory(prefix="liar") as folder:
        try:
            place = certificate.save(Path(folder) / "claim")
        except ol.OnelayerError:
            return Tally()
        return trip(place, certificate)


def one_trip(rng: Random, case: Any) -> Tally:
    """A proof of a method by lot, where the package does not decline to make one."""
    (method,) = rng.choices([*METHODS], [QUICK[name] for name in METHODS])
    case.words["method"] = method
    try:
        proof = METHODS[method](rng)
    except ol.OnelayerError:
        return Tally(Counter(declined=1, refused=1))
    tally = round_trip(proof)
    tally.count["proofs"] += 1
    return tally
