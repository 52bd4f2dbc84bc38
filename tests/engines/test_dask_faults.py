"""Workers that are killed, leave and come while a solver runs: real processes, and the same result."""

from __future__ import annotations

import os
import signal
import threading
import time

import numpy as np
import pytest

distributed = pytest.importorskip("distributed")

from spectrograd import datasets
from spectrograd.engines import make_engine
from spectrograd.engines.dask.engine import DaskEngine
from spectrograd.engines.dask.session import EngineError, check_versions
from spectrograd.operators.laplacian import laplacian
from spectrograd.pipeline import (
    Settings,
    embed,
)
from spectrograd.solvers import (
    Problem,
    Stopping,
    make_solver,
    solve,
)
from spectrograd.solvers.settings import RunContext

pytestmark = pytest.mark.filterwarnings("ignore")


@pytest.fixture(scope="module")
def workers():
    with distributed.LocalCluster(
        n_workers=2, threads_per_worker=1, processes=True, dashboard_address=None
    ) as cluster:
        yield cluster


@pytest.fixture
def client(workers):
    workers.scale(2)
    with distributed.Client(workers) as client:
        client.wait_for_workers(2, timeout=200)
        yield client


class Disturbed(DaskEngine):
    """Something happens at a sweep, while the tasks of the one before are on their way."""

    def __init__(self, client, events, **more):
        super().__init__(client, **more)
        self.events, self.begun = events, 0

    def _begin_pass(self):
        super()._begin_pass()
        self.begun += 1
        if self.begun in self.events:
            self.events[self.begun]()


def killed(client):
    """Ends a worker that has rows, at once and without a word."""

    def kill():
        pid = min(client.run(os.getpid).items())[1]
        os.kill(pid, signal.SIGKILL)

    return kill


def vectors(engine, solver="chebyshev", n_nodes=3000):
    graph = datasets.make_block_model(n_nodes, 3, random_state=0).graph
    problem = Problem(laplacian(graph), 3, engine)
    return engine.to_numpy(solve(problem, make_solver(solver), stopping=Stopping(tol=1e-6), seed=0).Q)


MOMENTS = [6, *(pytest.param(at, marks=pytest.mark.chaos) for at in (1, 2, 9, 13, 17))]


@pytest.mark.parametrize("at", MOMENTS)
def test_a_worker_killed_in_the_middle_of_a_pass_changes_nothing(client, at):
    expected = vectors(DaskEngine(client))
    engine = Disturbed(client, {at: killed(client)})
    np.testing.assert_array_equal(vectors(engine), expected)
    assert engine.session.losses > 0


def test_workers_that_leave_and_come_late(client, workers):
    """The one that stays takes over, the one that comes gets its share."""

    def leave():
        workers.scale(1)

    def come():
        workers.scale(2)
        client.wait_for_workers(2, timeout=200)
        time.sleep(1.1)  # owners are asked for once a second

    engine = Disturbed(client, {4: leave, 12: come})
    np.testing.assert_array_equal(vectors(engine), vectors(DaskEngine(client)))
    assert len(set(engine.session.owners)) == 2


def test_without_any_worker_there_is_a_clear_error(client, workers):
    engine = Disturbed(client, {5: lambda: workers.scale(0)}, patience=2.0)
    with pytest.raises(
        EngineError, match=r"no worker is left at tcp://.*start workers with 'dask worker tcp://"
    ):
        vectors(engine)


@pytest.mark.chaos
@pytest.mark.parametrize("solver", ["lanczos", "power"])
def test_workers_killed_again_and_again(client, solver):
    expected = vectors(DaskEngine(client), solver)
    engine = Disturbed(client, {at: killed(client) for at in (4, 10, 16)})
    np.testing.assert_array_equal(vectors(engine, solver), expected)
    assert engine.session.losses >= 2


@pytest.mark.chaos
def test_a_worker_that_is_slow_changes_nothing(client):
    """Stopped for two seconds in the middle of a pass, then let go."""

    def pause():
        pid = min(client.run(os.getpid).items())[1]
        os.kill(pid, signal.SIGSTOP)
        threading.Timer(2.0, os.kill, (pid, signal.SIGCONT)).start()

    expected = vectors(DaskEngine(client))
    np.testing.assert_array_equal(vectors(Disturbed(client, {6: pause})), expected)


@pytest.mark.chaos
@pytest.mark.parametrize("n_workers", [1, 4])
def test_other_numbers_of_workers_give_the_same_subspace(n_workers):
    how = {"threads_per_worker": 1, "processes": True, "dashboard_address": None}
    with (
        distributed.LocalCluster(n_workers=n_workers, **how) as cluster,
        distributed.Client(cluster) as client,
    ):
        engine = DaskEngine(client)
        assert len(set(engine.session.owners)) == n_workers
        found = vectors(engine)
    expected = vectors(make_engine("local"))
    cosines = np.linalg.svd(np.linalg.qr(found)[0].T @ np.linalg.qr(expected)[0], compute_uv=False)
    assert cosines.min() > 1 - 1e-9


@pytest.mark.chaos
def test_without_a_scheduler_there_is_a_clear_error():
    with distributed.LocalCluster(
        n_workers=1, threads_per_worker=1, processes=True, dashboard_address=None
    ) as cluster:
        client = distributed.Client(cluster, timeout=3)
        engine = Disturbed(client, {4: cluster.close}, patience=2.0)
        with pytest.raises(EngineError, match="is gone: start it"):
            vectors(engine)
        client.close()


class WithoutScheduler:
    """A client whose scheduler is gone, as ``distributed`` behaves then."""

    def nthreads(self):
        return {"tcp://worker": 1}

    def run(self, *args, **kwargs):
        raise distributed.comm.CommClosedError("Stream is closed")


def test_a_scheduler_that_goes_after_the_last_pass_takes_no_result_along(client, monkeypatch):
    """Counting the bytes that were moved is the last thing that asks for it."""
    engine = DaskEngine(client)
    vectors(engine)
    moved = engine.bytes_moved()
    monkeypatch.setattr(engine, "client", WithoutScheduler())
    assert engine.bytes_moved() == moved


def test_a_scheduler_that_goes_before_the_first_pass_is_named():
    with pytest.raises(EngineError, match="the scheduler is gone"):
        check_versions(WithoutScheduler(), ["tcp://worker"])


@pytest.mark.parametrize("solver", ["lanczos", "chebyshev"])
def test_a_client_that_is_lost_goes_on_from_its_checkpoint(client, tmp_path, solver):
    """To the same bits, in another session on the same workers."""
    graph = datasets.make_block_model(3000, 3, random_state=0).graph

    def run(folder, hooks=()):
        how = {"solver": solver, "tol": 1e-9, "seed": 0, "n_components": 3}
        context = RunContext(make_engine(client), hooks, checkpoint=folder, checkpoint_every=0.0)
        return embed(graph, Settings(**how), context)

    def lost(progress):
        if progress.iteration == 2:
            raise ConnectionError("the client is gone")

    with pytest.raises(ConnectionError):
        run(tmp_path / "run", [lost])
    assert os.listdir(tmp_path / "run")
    assert run(tmp_path / "run").vectors.tobytes() == run(None).vectors.tobytes()
