"""A session with a Dask cluster: who owns which rows, tasks on their way, and what to do when one is lost."""

from __future__ import annotations

import asyncio
import time
import uuid
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any
from weakref import WeakSet

from spectrograd.engines.cluster.connect import EngineError, check_versions
from spectrograd.engines.cluster.owners import reassigned
from spectrograd.engines.cluster.steps import DaskTall, Step, missing
from spectrograd.interruption import check

POLL = 1.0  # seconds between two looks at a task that takes its time
MOST_LOSSES = 20  # recoveries of one result: with more the cluster is not to be relied on


@dataclass(eq=False)
class Session:
    """Runs steps on the workers of a client, for ``n_blocks`` row blocks; keys carry the ``run`` id.

    A key that is alive and used again would give the old result without a word.
    """

    client: Any
    n_blocks: int = 0  # as many as there are workers
    patience: float = 60.0  # seconds without any worker before giving up: a scheduler may start new ones
    run: str = field(default_factory=lambda: uuid.uuid4().hex[:8])
    owners: list[str] = field(default_factory=list)
    talls: WeakSet[DaskTall] = field(default_factory=WeakSet)
    placed: WeakSet[Step] = field(default_factory=WeakSet)  # row blocks of graphs
    losses: int = 0
    rounds: int = 0  # times that the client waited for results
    tasks: int = 0
    _looked: float = -1e9

    def __post_init__(self) -> None:
        self.n_blocks = self.n_blocks or len(self._alive())
        self.map_owners()

    # owners

    def map_owners(self, *, after: float = 0.0) -> None:
        """Mutates: blocks of workers that are gone find new owners, workers that came get their share."""
        if time.monotonic() - self._looked < after:
            return
        alive = sorted(self._alive())
        new = set(alive) - set(self.owners)
        if new:
            check_versions(self.client, sorted(new))
        before, self.owners = self.owners, reassigned(self.owners, alive, self.n_blocks)
        self._looked = time.monotonic()
        for step in self.placed:  # sent again, so that nobody keeps two blocks for ever
            if before and before[step.block] != self.owners[step.block]:
                step.future = None

    def _alive(self) -> dict[str, int]:
        """Addresses of the workers; waits for one, within reason."""
        began = time.monotonic()
        while True:
            check()
            found = self._answered()
            if found:
                return found
            if time.monotonic() - began > self.patience:
                if self.client.status != "running":
                    raise self._gone()
                raise EngineError(
                    f"no worker is left at {self._where} (waited {self.patience:g} s): start workers with "
                    f"'dask worker {self._where}' and run again"
                )
            time.sleep(min(POLL, self.patience / 4))

    def _answered(self) -> dict[str, int]:
        """The scheduler's workers; none while the client is trying to reach it again."""
        if self.client.status in ("closing", "closed"):
            raise self._gone()
        try:
            return dict(self.client.nthreads())
        except OSError:
            return {}

    def _gone(self) -> EngineError:
        return EngineError(f"the scheduler {self._where} is gone: start it and its workers again")

    @property
    def _where(self) -> str:
        scheduler = self.client.scheduler
        return str(getattr(scheduler, "address", None) or "of this client")

    # tasks

    def start(self, *steps: Step) -> None:
        """Submit steps and whatever they need that is not there; what nobody holds is released."""
        made = list(missing(steps))
        try:
            self._send([step for step in made if step.on_host])
            for step in made:
                step.future = step.future if step.on_host else self._submitted(step)
        except Exception as error:  # Dask has words of its own for a client that lost its scheduler
            if self.client.status in ("closing", "closed"):
                raise self._gone() from error
            raise
        for step in made:
            if not step.held and step not in steps:
                step.future = None  # tasks that wait for it keep it as long as they need it

    def _submitted(self, step: Step) -> Any:
        arguments = (a.future if isinstance(a, Step) else a for a in step.arguments)
        return self.client.submit(
            step.function,
            *arguments,
            key=self._key(step),
            workers=[self.owners[step.block]],
            allow_other_workers=True,  # a strict pin hangs for ever when its worker is lost
            pure=False,
        )

    def _send(self, steps: Sequence[Step]) -> None:
        """Mutates: what the client keeps goes to its owners, all of it at once."""
        for last in (False, True):
            try:
                left = [step for step in steps if step.future is None]
                if left:
                    self.client.sync(self._scattered, left)
                return
            except (OSError, ValueError, KeyError, TimeoutError):  # an owner is gone
                if last:
                    raise
                self.map_owners()

    async def _scattered(self, steps: Sequence[Step]) -> None:
        async def send(step: Step) -> None:
            key = self._key(step)
            data = {key: step.function()}
            step.future = (await self.client.scatter(data, workers=[self.owners[step.block]]))[key]

        await asyncio.gather(*(send(step) for step in steps))

    def _key(self, step: Step) -> str:
        self.tasks += 1
        return f"{step.name}-{self.run}-{step.block}-{self.tasks}"

    def results(self, steps: Sequence[Step]) -> list[Any]:
        """What the steps give, on the host; made again where workers were lost meanwhile."""
        self.rounds += 1
        for _ in range(MOST_LOSSES):
            try:
                self.start(*steps)
                values = self._gathered([step.future for step in steps])
            except _Lost:
                self.recover()
                continue
            finally:
                for step in steps:
                    step.future = step.future if step.held else None
            return values
        raise EngineError(
            f"tasks were lost {MOST_LOSSES} times in a row at {self._where}: workers do not stay"
        )

    def _gathered(self, futures: list[Any]) -> list[Any]:
        from concurrent.futures import CancelledError

        from distributed import KilledWorker, wait

        idle = 0
        while True:
            check()
            try:
                with self.client.as_current():  # it need not be the one that others get by default
                    wait(futures, timeout=POLL)
                found: list[Any] = self.client.gather(futures)
                return found
            except TimeoutError:
                idle = 0 if self._busy() else idle + 1
                if idle > 1:  # nobody works for us: the tasks wait for a worker that will not come back
                    raise _Lost from None
            except KilledWorker as error:
                raise EngineError(
                    f"workers died again and again in {str(error.task).partition('-')[0]!r}, for want of "
                    "memory most likely: use more workers, or give them more"
                ) from error
            except (CancelledError, OSError):
                raise _Lost from None

    def _busy(self) -> bool:
        """Whether a worker has a task of this run."""
        self._alive()
        keys = (str(key) for keys in self.client.processing().values() for key in keys)
        return any(f"-{self.run}-" in key for key in keys)

    def recover(self) -> None:
        """Mutates: forgets every future whose result is not in the memory of a worker that is alive."""
        self.losses += 1
        self.map_owners()
        known = {step for tall in list(self.talls) for step in tall.steps} | set(self.placed)
        have = [step for step in known if step.future is not None]
        finished = [step for step in have if step.future.status == "finished"]
        where = self.client.who_has([step.future for step in finished]) if finished else {}
        good = {step for step in finished if where.get(step.future.key)}
        for step in have:
            if step not in good:
                step.future = None

    def settle(self) -> None:
        """Mutates: all talls as data of the client, so that neither side keeps their history."""
        for tall in list(self.talls):
            if any(not step.on_host for step in tall.steps):
                rows = self.results(tall.steps)
                for step, block in zip(tall.steps, rows, strict=True):
                    step.settle(block)


class _Lost(Exception):
    """Something that was asked for is not to be had any more, but can be made again."""
