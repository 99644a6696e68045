"""A running Dask cluster as an executor for proofs."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import Executor
from contextlib import contextmanager
from typing import cast

from onelayer.errors import OnelayerError
from onelayer.extras import require

PATIENCE = 10.0  # seconds for the scheduler to answer


@contextmanager
def connected(address: str | None) -> Iterator[Executor | None]:
    """An executor on the cluster whose scheduler is at ``address``, such as tcp://host:8786; None without one.

    Chunks that a lost worker held are given to others by the scheduler; workers may join at any time.
    """
    if address is None:
        yield None
        return
    distributed = require("distributed", "cluster")
    try:
        client = distributed.Client(address, timeout=PATIENCE)
    except (OSError, ValueError) as error:
        raise OnelayerError(
            f"no Dask scheduler answers at {address!r}; start one with 'dask scheduler' and give its tcp:// address"
        ) from error
    with client:
        yield cast(Executor, client.get_executor(pure=False))
