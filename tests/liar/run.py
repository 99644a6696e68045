"""The runner: cases by number, each drawn from its own seed, in as many processes as asked."""

from __future__ import annotations

import json
import os
import signal
import time
import traceback
import warnings
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from contextlib import nullcontext
from dataclasses import dataclass, field
from itertools import count
from multiprocessing import get_context
from pathlib import Path
from random import Random
from typing import Any, TextIO

import torch

import onelayer as ol
from liar import enclosures, trips
from liar.attacks import ATTACKS, Case
from liar.judge import Tally

CASE_SECONDS = 60.0  # of the processor, so that a case is the same on a busy machine
CHUNK = 8
COUNTED = (
    *("cases", "proofs", "witnesses", "points", "unclear", "enclosures", "undecided", "in balls"),
    *("round trips", "forgeries", "refused"),
)
VERDICTS = ("accepted", "rejected", "not contradicted", "declined")
KINDS = {"lie": "lies", "crash": "crashes", "rejection": "rejections", "late": "late"}


class Late(BaseException):
    """A case took longer than any case may; no handler of errors in between may swallow it."""


@dataclass
class Report:
    """Counts over all cases, and every finding as a plain record that names its case."""

    count: Counter[str] = field(default_factory=Counter)
    findings: list[dict[str, Any]] = field(default_factory=list)
    trips: dict[str, Counter[str]] = field(default_factory=dict)  # what the checker said, by method

    def __iadd__(self, other: Report) -> Report:
        self.count += other.count
        for method, said in other.trips.items():
            self.trips.setdefault(method, Counter()).update(said)
        self.findings += other.findings
        return self

    @property
    def clean(self) -> bool:
        return not any(finding["what"] in ("lie", "crash", "rejection") for finding in self.findings)

    def summary(self) -> dict[str, Any]:
        """Everything that was counted, the findings by kind, and round trips by method."""
        kinds = Counter(finding["what"] for finding in self.findings)
        counted = {name.replace(" ", "_"): self.count[name] for name in COUNTED}
        found = {plural: kinds[kind] for kind, plural in KINDS.items()}
        return counted | found | {"trips": {method: dict(self.trips[method]) for method in sorted(self.trips)}}


def one_case(seed: int, number: int, only: str | None = None) -> Report:
    """Case ``number`` of ``seed``: an attack by lot, everything it draws from one source."""
    rng = Random(f"{seed}/{number}")
    names = list(ATTACKS)
    name = only or rng.choices(names, [ATTACKS[name][1] for name in names])[0]
    report, case = Report(Counter(cases=1)), Case({})
    tally = Tally()
    try:
        with _limit(CASE_SECONDS):
            tally = ATTACKS[name][0](rng, case)
    except ol.OnelayerError:
        report.count["refused"] += 1
    except Late:
        report.findings.append({"what": "late", "why": f"more than {CASE_SECONDS} s"})
    except Exception as error:
        where = _place(error)
        report.findings.append({"what": "crash", "why": f"{type(error).__name__}: {str(error)[:200]} ({where})"})
    if said := Counter({word: tally.count[word] for word in VERDICTS if tally.count[word]}):
        report.trips[case.words.get("method", name)] = said
    report.count += tally.count
    report.findings += [{"what": "lie", "why": lie} for lie in tally.lies]
    report.findings += [{"what": "rejection", "why": reason} for reason in tally.rejections]
    for finding in report.findings:
        finding |= {"attack": name, "seed": seed, "case": number, **_plain(case.words)}
    return report


def many_cases(
    seed: int, numbers: Sequence[int], only: str | None = None, device: str = "cpu", keep: Path | None = None
) -> Report:
    """Some cases in this process, on one thread."""
    torch.set_num_threads(1)
    enclosures.DEVICE["name"] = device
    trips.KEPT["in"] = keep
    report = Report()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for number in numbers:
            report += one_case(seed, number, only)
    return report


def run(
    *,
    seed: int,
    seconds: float,
    proofs: int,
    jobs: int,
    only: str | None = None,
    device: str = "cpu",
    out: Path | None = None,
    keep: Path | None = None,
) -> Report:
    """Cases until the time is over or enough proofs were tried; findings are written as they come."""
    report, started = Report(), time.monotonic()
    os.environ["OMP_NUM_THREADS"] = "1"  # of the processes to come

    def wanted() -> bool:
        return time.monotonic() - started < seconds and report.count["proofs"] < proofs

    with nullcontext() if out is None else out.open("a") as record:
        for part in _parts(seed, wanted, jobs, (only, device, keep)):
            report += part
            _write(record, part)
    return report


def _parts(
    seed: int, wanted: Callable[[], bool], jobs: int, how: tuple[str | None, str, Path | None]
) -> Iterator[Report]:
    """Reports of chunks, in this process or as they finish in others; what was begun is finished and reported."""
    chunks = (range(start, start + CHUNK) for start in count(0, CHUNK))
    if jobs == 1:
        yield many_cases(seed, next(chunks), *how)
        while wanted():
            yield many_cases(seed, next(chunks), *how)
        return
    with ProcessPoolExecutor(jobs, mp_context=get_context("spawn")) as pool:
        pending: set[Future[Report]] = set()
        while pending or wanted():
            while len(pending) < jobs + 2 and wanted():
                pending.add(pool.submit(many_cases, seed, next(chunks), *how))
            done, pending = wait(pending, return_when=FIRST_COMPLETED)
            for future in done:
                yield future.result()


def _write(record: TextIO | None, report: Report) -> None:
    for finding in report.findings:
        line = json.dumps(finding, default=str)
        print(line, flush=True)
        if record is not None:
            record.write(line + "\n")
            record.flush()


def _plain(words: dict[str, Any]) -> dict[str, Any]:
    return {key: value if isinstance(value, str | int | float) else str(value) for key, value in words.items()}


def _place(error: Exception) -> str:
    """The last line of the package that an error passed through, else of the liar."""
    frames = list(traceback.extract_tb(error.__traceback__))
    own = [frame for frame in frames if "onelayer" in Path(frame.filename).parts] or frames
    return f"{Path(own[-1].filename).name}:{own[-1].lineno}"


class _limit:
    """Raise Late in this thread after some processor seconds, where the system has such an alarm."""

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds

    def __enter__(self) -> None:
        if hasattr(signal, "setitimer"):
            self.before = signal.signal(signal.SIGPROF, _late)
            signal.setitimer(signal.ITIMER_PROF, self.seconds)

    def __exit__(self, *_: object) -> None:
        if hasattr(signal, "setitimer"):
            signal.setitimer(signal.ITIMER_PROF, 0.0)
            signal.signal(signal.SIGPROF, self.before)


def _late(*_: object) -> None:
    raise Late
