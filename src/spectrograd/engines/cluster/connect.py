"""From what a user says to a client of Dask: the current one, a local cluster, or an address."""

from __future__ import annotations

import atexit
import os
import sys
from collections.abc import Sequence
from typing import Any

from spectrograd.extras import need
from spectrograd.notices import parameter

TIMEOUT = 10  # seconds for a scheduler to answer


class EngineError(ConnectionError):
    """The cluster cannot go on; the message says what to do."""


def client_of(engine: Any, timeout: float = TIMEOUT) -> Any:
    """The client behind ``"dask"``, ``"dask:4"``, ``"dask:tcp://host:port"``, or the one that is given."""
    distributed = need("distributed", parameter("engine", engine if isinstance(engine, str) else "dask"))
    if not isinstance(engine, str):
        if isinstance(engine, distributed.Client):
            return engine
        raise ValueError(f"engine={engine!r}: expected a name or a dask.distributed.Client")
    where = engine.partition(":")[2]
    if not where:
        try:
            return distributed.get_client()
        except ValueError:
            raise EngineError(
                f"{parameter('engine', 'dask')} needs a client: make a dask.distributed.Client first, or say "
                "'dask:4' (a local cluster) or 'dask:tcp://host:port'"
            ) from None
    if not (where.isdecimal() and int(where) > 0) and "://" not in where:
        raise ValueError(
            f"{parameter('engine', engine)}: expected 'dask', 'dask:4' or 'dask:tcp://host:port'"
        )
    known = _clients.get(where)
    if known is None or known.status != "running":
        _clients[where] = known = _local(int(where)) if where.isdecimal() else _remote(where, timeout)
        atexit.register(known.close)
    return known


_clients: dict[str, Any] = {}  # by what the user said: a second fit starts no second cluster


def _local(n_workers: int) -> Any:
    """A client of processes on this machine, which end with this one."""
    from distributed import Client, LocalCluster

    each = max(1, (os.cpu_count() or 1) // n_workers)
    workers = LocalCluster(
        n_workers=n_workers, threads_per_worker=each, processes=True, dashboard_address=None
    )
    atexit.register(workers.close)
    return Client(workers, set_as_default=False)


def _remote(address: str, timeout: float) -> Any:
    from distributed import Client

    try:
        return Client(address, timeout=timeout, set_as_default=False)
    except (OSError, TimeoutError, ValueError) as error:
        raise EngineError(
            f"no Dask scheduler answers at {address} ({type(error).__name__}): "
            "start one with 'dask scheduler'"
        ) from None


def package_version() -> str:
    """Of spectrograd, wherever this runs."""
    return str(sys.modules["spectrograd"].__version__)  # by name: it stands above engines


def check_versions(client: Any, workers: Sequence[str]) -> None:
    """Refuse workers that have another version of this package, or none."""
    mine = package_version()
    found = client.run(package_version, workers=list(workers), on_error="return")
    for worker, version in sorted(found.items()):
        if isinstance(version, ModuleNotFoundError):
            raise EngineError(f"worker {worker} does not have spectrograd: install version {mine} there")
        if isinstance(version, OSError):
            continue  # it is gone already: others own its rows
        if version != mine:
            raise EngineError(
                f"worker {worker} has spectrograd {version}, the client {mine}: install the same on both"
            )


def received(run: str, since: float, dask_worker: Any = None) -> tuple[int, float]:
    """Bytes of this run's results that a worker got from others since a moment, and the latest one."""
    total, latest = 0, since
    for entry in list(dask_worker.transfer_incoming_log):
        if entry["stop"] > since:
            total += sum(size or 0 for key, size in entry["keys"].items() if f"-{run}-" in str(key))
            latest = max(latest, entry["stop"])
    return total, latest
