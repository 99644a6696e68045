"""A proof shared with other processes: the same certificate, whoever computes, dies or comes late."""

from __future__ import annotations

import importlib
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

import onelayer as ol
from onelayer.errors import OnelayerError
from onelayer.ground import pinned
from onelayer.layer.lookup import AxisKeys, LookupHead, lookup_model
from onelayer.layer.transformer import OneLayerTransformer
from onelayer.proof import crew, search, units
from onelayer.proof.boxes import root, together
from onelayer.proof.certificate import Certificate
from onelayer.proof.certify import certify
from onelayer.proof.error import error_function
from onelayer.recording.target import as_target

BOX = ol.Box([0.0, 0.0], [1.0, 1.0])
LARGE = 0.02  # an eps that takes a few hundred boxes at order 1


def f(x: Any) -> Any:
    return torch.sin(3 * x[..., 0]) * torch.cos(2 * x[..., 1])


@pytest.fixture(scope="module")
def layer() -> OneLayerTransformer:
    return ol.approximate("sin(3*x1)*cos(2*x2)", BOX, 1e-2).model


@pytest.fixture(autouse=True)
def small_units(monkeypatch: pytest.MonkeyPatch) -> None:
    """Many small units, shared from the start."""
    monkeypatch.setattr(search, "FEWEST", 2)
    monkeypatch.setattr(search, "SLICE", 8)
    monkeypatch.setattr(units, "SMALLEST", 8)
    monkeypatch.setattr(units, "LARGEST", 8)
    monkeypatch.setattr(crew, "START", 0.0)


def same(a: Certificate, b: Certificate) -> bool:
    return replace(a, seconds=0.0) == replace(b, seconds=0.0) and a.proof == b.proof


def proved(layer: Any, **options: Any) -> Certificate:
    return certify(layer, f, BOX, LARGE, order=1, **options)


@pytest.mark.parametrize("jobs", [2, 3])
def test_the_certificate_does_not_depend_on_the_number_of_processes(layer: OneLayerTransformer, jobs: int) -> None:
    alone = proved(layer, jobs=1)
    assert alone.proved
    assert alone.boxes > 200
    assert same(alone, proved(layer, jobs=jobs))


class Moody(Executor):
    """An executor that computes in threads, loses every third chunk and fails at every fifth."""

    def __init__(self) -> None:
        self.inner, self.count = ThreadPoolExecutor(1), 0

    def submit(self, function: Any, /, *args: Any, **kwargs: Any) -> Future[Any]:
        self.count += 1
        if self.count % 3 == 0:
            lost: Future[Any] = Future()
            lost.set_exception(ConnectionError("the worker died"))
            return lost
        if self.count % 5 == 0:
            return self.inner.submit(int, "no chunk")
        return self.inner.submit(function, *args, **kwargs)


def test_any_executor_will_do_and_what_it_loses_is_done_again(layer: OneLayerTransformer) -> None:
    executor = Moody()
    assert same(proved(layer, jobs=1), proved(layer, executor=executor))
    assert executor.count > 5


@pytest.mark.skipif(not crew.FORKS, reason="forked processes")
def test_processes_work_whatever_other_threads_held_when_they_were_forked(layer: OneLayerTransformer) -> None:
    """A copy of a process has the locks of its threads, and none of the threads: workers waited for ever."""
    over = threading.Event()

    def pinning() -> None:
        while not over.is_set():
            with pinned():
                pass

    threads = [threading.Thread(target=pinning) for _ in range(2)]
    for thread in threads:
        thread.start()
    try:
        assert proved(layer, jobs=2, max_seconds=30.0).proved
    finally:
        over.set()
        for thread in threads:
            thread.join()


class Forgetful(Executor):
    """An executor that takes units of one size for one and the same, as a cache with a poor key does."""

    def __init__(self) -> None:
        self.known: dict[int, Any] = {}

    def submit(self, function: Any, /, *args: Any, **kwargs: Any) -> Future[Any]:
        size = len(args[-1].boxes[0])
        if size not in self.known:
            self.known[size] = function(*args, **kwargs)
        answer: Future[Any] = Future()
        answer.set_result(self.known[size])
        return answer


def test_bounds_of_other_boxes_are_not_taken_for_those_that_were_asked(layer: OneLayerTransformer) -> None:
    with pytest.raises(OnelayerError, match="result of other boxes"):
        proved(layer, executor=Forgetful())


def test_a_wrong_bound_from_a_worker_is_not_hidden(layer: OneLayerTransformer, monkeypatch: pytest.MonkeyPatch) -> None:
    """Planted: a worker that loses the bounds of its unit. Nothing is proved on those boxes."""

    def broken(problem: Any, task: Any, unit: units.WorkUnit) -> units.Explored:
        found = plain(problem, task, unit)
        return replace(found, bound=np.full_like(found.bound, np.nan))

    plain = crew.work
    monkeypatch.setattr(crew, "work", broken)
    found = proved(layer, executor=ThreadPoolExecutor(1), max_boxes=2000)
    assert not found.proved
    assert found.upper == np.inf


def test_a_tree_that_points_outside_itself_is_not_grafted(
    layer: OneLayerTransformer, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(problem: Any, task: Any, unit: units.WorkUnit) -> units.Explored:
        found = plain(problem, task, unit)
        return replace(found, left=np.zeros_like(found.left))

    plain = crew.work
    monkeypatch.setattr(crew, "work", broken)
    with pytest.raises(IndexError, match="outside itself"):
        proved(layer, executor=ThreadPoolExecutor(1))


def test_a_process_that_dies_takes_nothing_with_it(layer: OneLayerTransformer, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every forked process is killed at its first unit: all is done here, and is the same."""

    def deadly(task: Any, unit: units.WorkUnit) -> Any:
        os.kill(os.getpid(), signal.SIGKILL)

    alone = proved(layer, jobs=1)
    monkeypatch.setattr(crew, "_work_here", deadly)
    assert same(alone, proved(layer, jobs=2))


def test_a_shared_proof_obeys_its_deadline(layer: OneLayerTransformer) -> None:
    started = time.monotonic()
    found = certify(layer, f, BOX, gap=1e-6, order=1, jobs=2, max_seconds=2.0, max_boxes=10**7)
    assert 0 < found.lower < found.upper < np.inf
    assert time.monotonic() - started < 30


def test_code_of_this_process_does_not_travel(layer: OneLayerTransformer) -> None:
    with pytest.raises(OnelayerError, match="travel"):
        proved(lambda x: layer(x), executor=ThreadPoolExecutor(1))
    assert same(proved(lambda x: layer(x), jobs=1), proved(lambda x: layer(x), jobs=3))


def test_a_problem_arrives_as_it_was_sent(layer: OneLayerTransformer) -> None:
    from onelayer.proof.error import error_function
    from onelayer.recording.target import as_target

    error = error_function(layer, as_target(f, BOX), BOX, torch.float64, torch.device("cpu"))
    problem = crew.as_problem(error)
    assert problem is not None
    low = torch.tensor([[0.1, 0.2], [0.5, 0.25]], dtype=torch.float64)
    boxes = together([root(corner, corner + 0.125) for corner in low])
    known = units.Knowledge(None, 0.0, 0.0)
    unit = units.WorkUnit(units.as_arrays(boxes), units.Goal(1e-3, 0.05), known, 3, 64, 1000, 1000)
    there, here = crew.work(problem, search.explore, unit), search.explore(error, unit)
    assert np.array_equal(there.bound, here.bound, equal_nan=True)
    assert np.array_equal(there.axis, here.axis)
    assert there.evaluated == here.evaluated > 0


@pytest.fixture
def dask_cluster() -> Iterator[tuple[str, Any]]:
    """The address of a scheduler, and a function that starts a worker: all processes of their own, on loopback."""
    pytest.importorskip("distributed")
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), "OMP_NUM_THREADS": "1"}
    started: list[subprocess.Popen[bytes]] = []

    def start(*words: str) -> subprocess.Popen[bytes]:
        line = [sys.executable, "-m", "distributed.cli." + words[0], *words[1:]]
        process = subprocess.Popen(line, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        started.append(process)
        return process

    port = 18786 + os.getpid() % 1000
    address = f"tcp://127.0.0.1:{port}"
    start("dask_scheduler", "--host", "127.0.0.1", "--port", str(port), "--no-dashboard")
    time.sleep(1)
    yield address, lambda: start("dask_worker", address, "--nthreads", "1", "--no-nanny", "--no-dashboard")
    for process in started:
        process.kill()
        process.wait()


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_a_cluster_that_loses_a_worker_and_gains_one(
    layer: OneLayerTransformer, dask_cluster: tuple[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    from distributed import Client

    address, worker = dask_cluster
    first, _ = worker(), worker()
    alone = certify(layer, f, BOX, LARGE / 2, order=1, jobs=1)
    with Client(address, timeout=60) as client:
        client.wait_for_workers(2, timeout=120)
        executor = client.get_executor(pure=False)
        count, submit = [0], executor.submit

        def eventful(*args: Any, **kwargs: Any) -> Any:
            count[0] += 1
            if count[0] == 6:
                first.send_signal(signal.SIGKILL)
                worker()
            return submit(*args, **kwargs)

        monkeypatch.setattr(executor, "submit", eventful)
        shared = certify(layer, f, BOX, LARGE / 2, order=1, executor=executor)
    assert count[0] > 6
    assert first.wait(timeout=10) == -signal.SIGKILL
    assert same(alone, shared)


def test_a_layer_without_a_formula_stays_here() -> None:
    keys = [AxisKeys(0, torch.ones(2, dtype=torch.float64), torch.zeros(2, dtype=torch.float64))]
    small = lookup_model(1, (), [LookupHead(keys, torch.ones(2, 1, dtype=torch.float64))])
    found = certify(small, lambda x: np.ones(len(x)), ol.Box([0.0], [1.0]), 0.5, lipschitz=0.0, jobs=3)
    assert found.proved


class Late(crew.Crew):
    """Finds out after two units that sharing pays."""

    asked = 0

    def _executor(self, units: int) -> Executor | None:
        self.asked += 1
        return None if self.asked <= 2 else super()._executor(units)


def doubled(error: Any, unit: int) -> int:
    return 2 * unit


def test_a_wave_is_shared_from_where_it_pays(layer: OneLayerTransformer) -> None:
    error = error_function(layer, as_target(f, BOX), BOX, torch.float64, torch.device("cpu"))
    with ThreadPoolExecutor(2) as executor, Late(error, executor=executor) as late:
        assert list(late.explored(doubled, range(6))) == [0, 2, 4, 6, 8, 10]
        assert late.asked == 3
    assert list(Late(error).explored(doubled, range(3))) == [0, 2, 4]


def test_a_long_proof_moves_to_a_gpu_and_ends_in_the_same_certificate(
    layer: OneLayerTransformer, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[torch.device] = []

    def stand_in() -> torch.device:
        asked.append(torch.device("cpu"))
        return asked[-1]

    here = proved(layer, device="cpu", jobs=1)
    monkeypatch.setattr(importlib.import_module("onelayer.proof.certify"), "graphics", stand_in)
    assert same(proved(layer, jobs=1), here)
    assert not asked  # short: nobody asks for a GPU
    monkeypatch.setattr(search, "WORTH_A_GPU", 0.0)
    assert same(proved(layer, jobs=1), here)
    assert len(asked) == 1
    assert same(proved(layer, jobs=1, device="cpu"), here)
    assert len(asked) == 1


def test_what_cannot_move_stays(layer: OneLayerTransformer, monkeypatch: pytest.MonkeyPatch, tmp_path: Any) -> None:
    def none_to_be_had() -> torch.device:
        raise AssertionError("asked for a GPU")

    monkeypatch.setattr(search, "WORTH_A_GPU", 0.0)
    monkeypatch.setattr(importlib.import_module("onelayer.proof.certify"), "graphics", none_to_be_had)
    assert proved(layer, jobs=1, checkpoint=tmp_path / "state").proved
    assert proved(lambda x: layer(x), jobs=1).proved
    with ThreadPoolExecutor(2) as executor:
        assert proved(layer, executor=executor).proved
