"""Plain threads for serial kernels: order, limits, errors, forks, and `n_jobs` from end to end."""

from __future__ import annotations

import multiprocessing
import os
import threading
import time

import numba
import pytest

from spectrograd import MultilayerSpectralClustering, SpectralClustering, datasets
from spectrograd.kernels import jit as threads
from spectrograd.kernels.jit import in_order, side_by_side
from spectrograd.pipeline import run as pipeline_run
from spectrograd.pipeline import solve as certifying
from spectrograd.solvers import loop


@pytest.fixture
def two_threads():
    if numba.config.NUMBA_NUM_THREADS < 2:
        pytest.skip("needs two threads")
    before = numba.get_num_threads()
    numba.set_num_threads(2)
    yield
    numba.set_num_threads(before)


def test_results_come_in_order(two_threads):
    def slow_square(x):
        time.sleep(0.02 if x == 0 else 0)
        return x * x

    assert side_by_side(slow_square, [(x,) for x in range(20)]) == [x * x for x in range(20)]
    assert side_by_side(slow_square, []) == []


def test_as_many_threads_as_numba_may_use(two_threads):
    both = threading.Barrier(2)

    def meet():
        both.wait(timeout=200)  # a thread alone would wait in vain
        return threading.get_ident()

    assert len(set(side_by_side(meet, [()] * 6))) == 2
    numba.set_num_threads(1)
    assert set(side_by_side(threading.get_ident, [()] * 3)) == {threading.get_ident()}


def test_an_error_in_any_thread_is_raised(two_threads):
    def fails(x):
        time.sleep(0.01)
        if x == 3:
            raise ValueError("three")

    with pytest.raises(ValueError, match="three"):
        side_by_side(fails, [(x,) for x in range(4)])


def _in_child(queue):
    queue.put(side_by_side(lambda x: x + 1, [(1,), (2,), (3,)]))


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork on this system")
def test_items_are_worked_on_ahead_but_only_a_few_and_in_order(two_threads):
    taken = []

    def items():
        for item in range(20):
            taken.append(item)
            yield item

    def slow_if_even(item):
        time.sleep(0.002 * (item % 2 == 0))
        return item

    for done, result in enumerate(in_order(slow_if_even, items())):
        assert result == done
        assert len(taken) <= done + 3
    assert done == 19


def test_an_error_of_an_item_is_raised_where_its_result_would_be(two_threads):
    results = in_order(lambda item: 1 / (2 - item), iter(range(9)))
    assert (next(results), next(results)) == (0.5, 1.0)
    with pytest.raises(ZeroDivisionError):
        next(results)


def test_a_forked_child_has_threads_of_its_own(two_threads):
    side_by_side(time.sleep, [(0.01,)] * 4)  # the parent's are awake
    assert threads._pool.cache_info().currsize == 1
    context = multiprocessing.get_context("fork")
    queue = context.Queue()
    child = context.Process(target=_in_child, args=(queue,))
    child.start()
    assert queue.get(timeout=60) == [2, 3, 4]
    child.join(timeout=60)
    assert child.exitcode == 0


@pytest.mark.parametrize("layers", [1, 3])
def test_n_jobs_holds_for_solver_certificate_and_labels(layers, two_threads, monkeypatch):
    seen = {}

    def note(name, function):
        def call(*args, **kwargs):
            seen[name] = numba.get_num_threads()
            return function(*args, **kwargs)

        return call

    monkeypatch.setattr(loop, "_first_state", note("solve", loop._first_state))
    monkeypatch.setattr(certifying, "certify", note("certify", certifying.certify))
    monkeypatch.setattr(pipeline_run, "assign", note("assign", pipeline_run.assign))
    if layers == 1:
        graph = datasets.make_block_model(6000, 3, random_state=0).graph
        SpectralClustering(3, n_jobs=1, random_state=0).fit(graph)
    else:
        graph = datasets.make_multilayer_gmm(4500, random_state=0).graph
        MultilayerSpectralClustering(5, n_jobs=1, random_state=0).fit(graph)
    assert seen == {"solve": 1, "certify": 1, "assign": 1}
    assert numba.get_num_threads() == 2


def test_one_thread_runs_the_serial_form_and_hands_nothing_to_another(monkeypatch):
    ran = []
    monkeypatch.setattr(numba, "njit", lambda parallel=False, **_: lambda f: lambda: ran.append(parallel))
    kernel = threads.parallel_rows(lambda: None)
    monkeypatch.setattr(threads, "has_several_threads", lambda: False)
    kernel()
    monkeypatch.setattr(threads, "has_several_threads", lambda: True)
    kernel()
    assert ran == [False, True]
    # the forms of a kernel that sums may differ in their last bits
    monkeypatch.setattr(threads, "has_several_threads", lambda: False)
    threads.parallel(lambda: None)()
    assert ran == [False, True, True]
