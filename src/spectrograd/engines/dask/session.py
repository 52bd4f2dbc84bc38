"""A session with a Dask cluster: its client, steps that can run again, owners of row blocks, recovery.

A *step* describes how a block is made; its future is dropped and made again when a worker is lost, so that a
run ends with the same bits.
"""

from __future__ import annotations

import asyncio
import atexit
import logging
import os
import sys
import time
import uuid
import weakref
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any
from weakref import WeakSet

import numpy as np
from numpy.typing import DTypeLike

from spectrograd.notices import parameter
from spectrograd.system import check, need
from spectrograd.typing import Array, JsonObject

TIMEOUT = 10  # seconds for a scheduler to answer


class EngineError(ConnectionError):
    """The cluster cannot go on; the message says what to do."""


def client_of(engine: object, timeout: float = TIMEOUT) -> Any:
    """Return the client of ``"dask"``, ``"dask:4"``, ``"dask:tcp://host:port"``, or the client itself."""
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
    client = _clients.get(where)
    if client is None or client.status != "running":
        client = _local(int(where)) if where.isdecimal() else _remote(where, timeout)
        _clients[where] = client
        atexit.register(client.close)
    return client


_clients: JsonObject = {}  # by what the user said: a second fit starts no second cluster


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

    # A scheduler that goes away is an error of ours in one line; Dask would log a traceback behind it.
    logging.getLogger("distributed.client").setLevel(logging.CRITICAL)
    try:
        return Client(address, timeout=timeout, set_as_default=False)
    except (OSError, TimeoutError, ValueError) as error:
        raise EngineError(
            f"no Dask scheduler answers at {address} ({type(error).__name__}): "
            "start one with 'dask scheduler'"
        ) from None


def package_version() -> str:
    """The version of spectrograd where this runs."""
    return str(sys.modules["spectrograd"].__version__)  # by name: it stands above engines


def check_versions(client: Any, workers: Sequence[str]) -> None:
    """Refuse workers that have another version of this package, or none."""
    mine = package_version()
    try:
        versions = client.run(package_version, workers=list(workers), on_error="return")
    except OSError as error:
        raise EngineError(f"the scheduler is gone ({error}): start it and its workers again") from None
    for worker, version in sorted(versions.items()):
        if isinstance(version, ModuleNotFoundError):
            raise EngineError(f"worker {worker} does not have spectrograd: install version {mine} there")
        if isinstance(version, OSError):
            continue  # it is gone already: others own its rows
        if version != mine:
            raise EngineError(
                f"worker {worker} has spectrograd {version}, the client {mine}: install the same on both"
            )


def bytes_received(run: str, since: float, dask_worker: Any = None) -> tuple[int, float]:
    """Count the bytes of this run that a worker received from others since a time; and the last transfer."""
    total = 0
    latest = since
    for entry in list(dask_worker.transfer_incoming_log):
        if entry["stop"] > since:
            total += sum(size or 0 for key, size in entry["keys"].items() if f"-{run}-" in str(key))
            latest = max(latest, entry["stop"])
    return total, latest


# --- Steps: how each block of a multivector is made, and made again when a worker is lost


@dataclass(eq=False)
class Step:
    """One task and, while somebody needs its result, the future that has it.

    ``function`` of the ``arguments`` (other steps among them) runs near the rows of ``block``. A step without
    arguments whose ``function`` runs ``on_host`` is data that the client keeps, and sends again to a new
    worker: what is scattered dies with its worker.
    """

    name: str
    function: Callable[..., Any]
    arguments: tuple[Any, ...] = ()
    block: int = 0
    on_host: bool = False
    held: bool = False  # by a multivector that is alive: else its future goes as soon as it was used
    future: Any = None

    @property
    def inputs(self) -> list[Step]:
        """The steps it needs."""
        return [argument for argument in self.arguments if isinstance(argument, Step)]

    def release(self) -> None:
        """Mutates: nobody needs the result any more."""
        self.held = False
        self.future = None

    def settle(self, rows: Array) -> None:
        """Mutates: the client holds the rows now, and the steps behind them are forgotten."""
        self.function = _HostRows(rows)
        self.arguments = ()
        self.on_host = True
        self.future = None


@dataclass(frozen=True, eq=False)
class _HostRows:
    """A function that returns rows of the client."""

    rows: Array

    def __call__(self) -> Array:
        return self.rows


def host_step(name: str, rows: Array, block: int) -> Step:
    """Make a step whose result is in the client."""
    return Step(name, _HostRows(rows), (), block, on_host=True)


class DaskMultiVector:
    """N x k numbers as one step per row block; ``bounds`` are the first rows of the blocks, and N.

    When a multivector is gone its futures are released at once, while other steps may still know how it was
    made.
    """

    def __init__(self, steps: Sequence[Step], bounds: Array, n_columns: int, dtype: DTypeLike) -> None:
        self.steps = tuple(steps)
        self.bounds = bounds
        self.shape = (int(bounds[-1]), int(n_columns))
        self.dtype = np.dtype(dtype)
        self.casts: dict[np.dtype, DaskMultiVector] = {}  # itself in other types, made once
        self.source: Array | None = None  # the read-only array it was made of
        for step in self.steps:
            step.held = True
        weakref.finalize(self, release, self.steps)

    def __deepcopy__(self, memo: dict[int, object]) -> DaskMultiVector:
        return self  # nobody changes one


def release(steps: Iterable[Step]) -> None:
    """Mutates: nobody needs these any more."""
    for step in steps:
        step.release()


def missing(targets: Iterable[Step]) -> Iterator[Step]:
    """Iterate over the steps without a future that the targets need, and the targets, inputs first."""
    # depth first without recursion: a step comes back from the stack after its inputs
    stack = [(step, False) for step in targets]
    visited = set()
    while stack:
        step, ready = stack.pop()
        if ready:
            yield step
        elif step.future is None and step not in visited:
            visited.add(step)
            stack.append((step, True))
            stack.extend((other, False) for other in step.inputs)


# --- Owners of row blocks


def reassign_blocks(owners: Sequence[str], alive: Sequence[str], n_blocks: int) -> list[str]:
    """Assign blocks to the workers that are alive: as before where possible, and evenly.

    Examples
    --------
    >>> reassign_blocks([], ["a", "b"], 4)
    ['a', 'a', 'b', 'b']
    >>> reassign_blocks(["a", "a", "b", "b"], ["a", "c"], 4)
    ['a', 'a', 'c', 'c']
    >>> reassign_blocks(["a", "a"], ["a", "b"], 2)
    ['b', 'a']
    """
    if not owners:
        return [alive[block * len(alive) // n_blocks] for block in range(n_blocks)]
    assigned: list[str | None] = [owner if owner in alive else None for owner in owners]
    load = Counter(dict.fromkeys(alive, 0))
    load.update(owner for owner in assigned if owner is not None)
    # an even share; some workers have one block more
    least = n_blocks // len(alive)
    for block, owner in enumerate(assigned):
        poorest = min(alive, key=lambda address: load[address])
        if owner is not None:
            # a worker with more than its share gives a block away, so that new workers get some
            rich = load[owner] > least + 1 or (load[owner] > least and load[poorest] < least)
            if not rich:
                continue
            load[owner] -= 1
        assigned[block] = poorest
        load[poorest] += 1
    return [str(owner) for owner in assigned]


# --- The session: owners, tasks, recovery

POLL_SECONDS = 1.0  # between two queries for the state of tasks
MAX_LOSSES = 20  # recoveries of one result: with more the cluster is not to be relied on


@dataclass(eq=False)
class DaskSession:
    """Run steps on the workers of a client, for ``n_blocks`` row blocks; keys carry the ``run`` id.

    A key that is alive and used again would silently give the old result.
    """

    client: Any
    n_blocks: int = 0  # as many as there are workers
    patience: float = 60.0  # seconds without any worker before giving up: a scheduler may start new ones
    run: str = field(default_factory=lambda: uuid.uuid4().hex[:8])
    owners: list[str] = field(default_factory=list)
    multivectors: WeakSet[DaskMultiVector] = field(default_factory=WeakSet)
    graph_steps: WeakSet[Step] = field(default_factory=WeakSet)  # row blocks of graphs
    losses: int = 0
    rounds: int = 0  # times that the client waited for results
    tasks: int = 0
    _checked_at: float = -1e9

    def __post_init__(self) -> None:
        self.n_blocks = self.n_blocks or len(self._alive())
        self.map_owners()

    # owners

    def map_owners(self, *, after: float = 0.0) -> None:
        """Mutates: assign blocks of workers that are gone to others, and a share of them to new workers."""
        if time.monotonic() - self._checked_at < after:
            return
        alive = sorted(self._alive())
        new = set(alive) - set(self.owners)
        if new:
            check_versions(self.client, sorted(new))
        # Blocks stay where they are as far as possible: moving rows costs more than an uneven share.
        before = self.owners
        self.owners = reassign_blocks(self.owners, alive, self.n_blocks)
        self._checked_at = time.monotonic()
        for step in self.graph_steps:  # sent again, so that no worker holds two blocks for ever
            if before and before[step.block] != self.owners[step.block]:
                step.future = None

    def _alive(self) -> dict[str, int]:
        """Return the workers' addresses and threads; wait for one, at most ``patience`` seconds."""
        began = time.monotonic()
        while True:
            check()
            workers = self._query_workers()
            if workers:
                return workers
            if time.monotonic() - began > self.patience:
                if self.client.status != "running":
                    raise self._gone()
                raise EngineError(
                    f"no worker is left at {self._where} (waited {self.patience:g} s): start workers with "
                    f"'dask worker {self._where}' and run again"
                )
            time.sleep(min(POLL_SECONDS, self.patience / 4))

    def _query_workers(self) -> dict[str, int]:
        """Ask the scheduler for its workers; none while the client is trying to reach it again."""
        if self.client.status in ("closing", "closed"):
            raise self._gone()
        try:
            return dict(self.client.nthreads())
        except OSError:
            return {}

    def memory_limits(self) -> dict[str, int]:
        """Bytes that each worker may use, by address; 0 where it has no limit."""
        try:
            workers = self.client.scheduler_info(n_workers=-1)["workers"]
        except (KeyError, OSError):  # a client without its scheduler knows of no workers
            raise self._gone() from None
        return {address: int(worker.get("memory_limit") or 0) for address, worker in workers.items()}

    def _gone(self) -> EngineError:
        return EngineError(f"the scheduler {self._where} is gone: start it and its workers again")

    @property
    def _where(self) -> str:
        scheduler = self.client.scheduler
        return str(getattr(scheduler, "address", None) or "of this client")

    # tasks

    def start(self, *steps: Step) -> None:
        """Submit steps and the missing steps they need; release futures that nobody holds."""
        # 1. all steps that have to run, inputs first
        made = list(missing(steps))
        try:
            # 2. rows of the client, all together; 3. tasks in the order of their inputs
            self._send([step for step in made if step.on_host])
            for step in made:
                step.future = step.future if step.on_host else self._submit(step)
        except Exception as error:  # Dask has words of its own for a client that lost its scheduler
            if self.client.status in ("closing", "closed"):
                raise self._gone() from error
            raise
        for step in made:
            if not step.held and step not in steps:
                step.future = None  # tasks that wait for it keep it as long as they need it

    def _submit(self, step: Step) -> Any:
        arguments = (a.future if isinstance(a, Step) else a for a in step.arguments)
        return self.client.submit(
            step.function,
            *arguments,
            key=self._key(step),
            workers=[self.owners[step.block]],
            # A task that others may take is stolen, and its rows are sent after it. One whose worker is lost
            # waits for ever: the session sees that nobody works for it, and submits it to another.
            allow_other_workers=False,
            pure=False,
        )

    def _send(self, steps: Sequence[Step]) -> None:
        """Mutates: send rows of the client to their owners, all together."""
        for last in (False, True):
            try:
                unsent = [step for step in steps if step.future is None]
                if unsent:
                    self.client.sync(self._scatter, unsent)
                return
            except (OSError, ValueError, KeyError, TimeoutError):  # an owner is gone
                if last:
                    raise
                self.map_owners()

    async def _scatter(self, steps: Sequence[Step]) -> None:
        async def send(step: Step) -> None:
            key = self._key(step)
            data = {key: step.function()}
            step.future = (await self.client.scatter(data, workers=[self.owners[step.block]]))[key]

        await asyncio.gather(*(send(step) for step in steps))

    def _key(self, step: Step) -> str:
        self.tasks += 1
        return f"{step.name}-{self.run}-{step.block}-{self.tasks}"

    def results(self, steps: Sequence[Step]) -> list[Any]:
        """Return the results of steps on the host; steps run again where workers were lost meanwhile."""
        self.rounds += 1
        for _ in range(MAX_LOSSES):
            try:
                self.start(*steps)
                values = self._gather([step.future for step in steps])
            except _LostError:
                self.recover()
                continue
            finally:
                for step in steps:
                    step.future = step.future if step.held else None
            return values
        raise EngineError(
            f"tasks were lost {MAX_LOSSES} times in a row at {self._where}: workers do not stay"
        )

    def _gather(self, futures: list[object]) -> list[Any]:
        from concurrent.futures import CancelledError

        from distributed import KilledWorker, wait

        idle = 0
        while True:
            check()
            try:
                with self.client.as_current():  # it need not be the one that others get by default
                    wait(futures, timeout=POLL_SECONDS)
                results: list[Any] = self.client.gather(futures)
                return results
            except TimeoutError:
                # two queries in a row without a task of ours: not a pause between tasks, but a lost worker
                idle = 0 if self._busy() else idle + 1
                if idle > 1:  # nobody works for us: the tasks wait for a worker that will not come back
                    raise _LostError from None
            except KilledWorker as error:
                raise EngineError(
                    f"workers died again and again in {str(error.task).partition('-')[0]!r}, for want of "
                    "memory most likely: use more workers, or give them more"
                ) from error
            except (CancelledError, OSError):
                raise _LostError from None

    def _busy(self) -> bool:
        """Whether a worker has a task of this run."""
        self._alive()
        keys = (str(key) for keys in self.client.processing().values() for key in keys)
        return any(f"-{self.run}-" in key for key in keys)

    def recover(self) -> None:
        """Mutates: drop every future whose result is not in the memory of a worker that is alive."""
        self.losses += 1
        self.map_owners()
        # every step that somebody still holds
        known = {step for multivector in list(self.multivectors) for step in multivector.steps} | set(
            self.graph_steps
        )
        have = [step for step in known if step.future is not None]
        finished = [step for step in have if step.future.status == "finished"]
        # a finished future may have died with its worker: only the scheduler knows
        where = self.client.who_has([step.future for step in finished]) if finished else {}
        good = {step for step in finished if where.get(step.future.key)}
        for step in have:
            if step not in good:
                step.future = None

    def settle(self) -> None:
        """Mutates: fetch all multivectors to the client, so that neither side keeps their history."""
        for multivector in list(self.multivectors):
            if any(not step.on_host for step in multivector.steps):
                rows = self.results(multivector.steps)
                for step, block in zip(multivector.steps, rows, strict=True):
                    step.settle(block)


class _LostError(Exception):
    """The result of a step is lost with its worker, but can be made again."""
