"""A process that runs entrants with a fixed number of threads, and can be stopped when it takes too long."""

from __future__ import annotations

import multiprocessing as mp
import os
import time
from typing import Any

from benchmarks.public.entrants import run_entrant

THREADS = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "NUMBA_NUM_THREADS")
ENOUGH_SECONDS = 1.0  # short runs are repeated, which noise would hide
MOST_RUNS = 9

Request = tuple[str, str, int, float | None, float]


class Worker:
    """Runs entrants on one data set in another process, which is started again after it was stopped."""

    def __init__(self, data: Any, threads: int) -> None:
        self.data = data
        self.threads = threads
        self.process: Any = None
        self.pipe: Any = None

    def __call__(self, request: Request, limit: float, *, warm: bool = False) -> dict[str, Any]:
        """The outcome of ``(task, entrant, k, tol, tau)``: seconds, facts and what it returned.

        ``warm`` runs it once before, uncounted.
        """
        if self.process is None:
            self._start()
        self.pipe.send((request, warm))
        if not self.pipe.poll(limit):
            self.close()
            return {"failed": f"more than {limit:.0f} s"}
        try:
            answer: dict[str, Any] = self.pipe.recv()
        except EOFError:
            self.close()
            return {"failed": "the process died"}
        return answer

    def _start(self) -> None:
        context = mp.get_context("spawn")
        self.pipe, other = context.Pipe()
        for name in THREADS:
            os.environ[name] = str(self.threads)
        self.process = context.Process(target=_serve, args=(other, self.data), daemon=True)
        self.process.start()
        other.close()

    def close(self) -> None:
        """End the process."""
        if self.process is not None:
            self.process.terminate()
            self.process.join()
            self.process = None


def _serve(pipe: Any, data: Any) -> None:
    from threadpoolctl import threadpool_limits

    threadpool_limits(int(os.environ["OMP_NUM_THREADS"]))
    while True:
        request, warm = pipe.recv()
        pipe.send(_measured(data, request, warm))


def _measured(data: Any, request: Request, warm: bool) -> dict[str, Any]:
    task, name, k, tol, tau = request
    cpu: list[float] = []
    wall: list[float] = []
    try:
        if warm:
            run_entrant(task, name, data, k, tol, tau)
        while not cpu or (sum(wall) < ENOUGH_SECONDS and len(cpu) < MOST_RUNS):
            began, spent = time.perf_counter(), time.process_time()
            found, facts = run_entrant(task, name, data, k, tol, tau)
            cpu.append(time.process_time() - spent)
            wall.append(time.perf_counter() - began)
    except Exception as error:  # an entrant that fails is a result
        return {"failed": f"{type(error).__name__}: {error}"[:200]}
    return {"cpu": min(cpu), "wall": min(wall), "found": found, **facts}
