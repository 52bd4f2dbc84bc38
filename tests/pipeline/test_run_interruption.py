"""Ctrl-C, really sent: the best so far is kept, and whoever called is stopped."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading

import numpy as np
import pytest
import scipy.sparse as sp

from spectrograd import SpectralClustering, SpectralEmbedding
from spectrograd.datasets import make_block_model
from spectrograd.solvers.loop import _Run
from spectrograd.system import Interruption, check, defer_interrupts

DATA = make_block_model(2000, 4, random_state=0)


def interrupt():
    os.kill(os.getpid(), signal.SIGINT)


def interrupted_after(seconds, function, *given):
    """Call a function that is interrupted on its way, or before it has begun where the machine is busy."""
    timer = threading.Timer(seconds, interrupt)
    timer.start()
    try:
        function(*given)
    finally:
        timer.join()


def slow_model():
    """Never done by itself: 0 is an accuracy that nobody reaches."""
    return SpectralEmbedding(
        4, affinity="precomputed", solver="gradient-descent", tol=0.0, max_iter=10**7, random_state=0
    )


def fit_for_ever(model):
    while True:
        model.fit(DATA.graph)


def twice():
    with defer_interrupts() as interruption:
        interrupt()
        assert interruption.requested
        interrupt()


def hit_a_kernel(*, pressed):
    with defer_interrupts():
        if pressed:
            interrupt()
        raise SystemError("returned a result with an exception set")


@pytest.mark.parametrize("moment", [0.05, 0.1, 0.2, 0.4, 0.8])
def test_fit_keeps_the_best_so_far_and_raises(moment):
    model = slow_model()
    with pytest.raises(KeyboardInterrupt):
        interrupted_after(moment, model.fit, DATA.graph)
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    if hasattr(model, "embedding_"):  # else it came before the first measurement
        assert model.embedding_.shape == (2000, 4)
        assert not model.converged_
        assert "skipped eigenvector (p = 1)" in model.certificate_.sentence


def test_something_is_kept_once_there_is_something(monkeypatch):
    measured = _Run.measure
    monkeypatch.setattr(_Run, "measure", lambda run, state: (measured(run, state), interrupt())[0])
    model = slow_model()
    with pytest.raises(KeyboardInterrupt):
        model.fit(DATA.graph)
    assert model.embedding_.shape == (2000, 4)


def test_an_interrupt_while_the_result_is_certified_keeps_it(monkeypatch):
    from spectrograd.pipeline import solve as certifying

    looked = certifying.run_lanczos_probe
    monkeypatch.setattr(certifying, "run_lanczos_probe", lambda *a, **k: (interrupt(), looked(*a, **k))[1])
    model = SpectralClustering(4, affinity="precomputed", solver="power", random_state=0)
    with pytest.raises(KeyboardInterrupt):
        model.fit(DATA.graph)
    assert len(np.unique(model.labels_)) == 4
    assert not model.converged_


def test_an_interrupt_while_labels_are_made_keeps_them(monkeypatch):
    from spectrograd.pipeline import run

    made = run.assign
    monkeypatch.setattr(run, "assign", lambda *a, **k: (interrupt(), made(*a, **k))[1])
    model = SpectralClustering(4, affinity="precomputed", random_state=0)
    with pytest.raises(KeyboardInterrupt):
        model.fit(DATA.graph)
    assert model.converged_
    assert len(model.labels_) == 2000


def test_a_loop_over_fits_ends_at_every_moment():
    """Whenever it comes, the loop ends with KeyboardInterrupt and nothing else."""
    rng = np.random.default_rng(0)
    model = SpectralClustering(4, affinity="precomputed", solver="power", random_state=0).fit(DATA.graph)
    for _ in range(12):
        with pytest.raises(KeyboardInterrupt):
            interrupted_after(float(rng.uniform(0.01, 0.3)), fit_for_ever, model)


def test_the_second_interrupt_does_not_wait():
    with pytest.raises(KeyboardInterrupt):
        twice()


def test_a_kernel_hit_by_the_second_interrupt_is_no_system_error():
    with pytest.raises(KeyboardInterrupt):
        hit_a_kernel(pressed=True)
    with pytest.raises(SystemError):
        hit_a_kernel(pressed=False)


def test_somebody_elses_handler_stays_in_charge():
    seen = []
    before = signal.signal(signal.SIGINT, lambda *_: seen.append(1))
    try:
        with defer_interrupts():
            interrupt()
            check()
    finally:
        signal.signal(signal.SIGINT, before)
    assert seen == [1]


def test_threads_that_get_no_signals_may_fit():
    found = []
    model = slow_model().set_params(max_iter=5)
    thread = threading.Thread(target=lambda: found.append(model.fit(DATA.graph)))
    with defer_interrupts() as interruption:
        interrupt()
        thread.start()
        thread.join()
        assert isinstance(interruption, Interruption)
        with pytest.raises(KeyboardInterrupt):
            check()
        check()  # told once
    assert found


def test_a_command_writes_the_best_so_far_and_exits_130(tmp_path):
    graph, labels = tmp_path / "graph.npz", tmp_path / "labels.csv"
    sp.save_npz(graph, sp.csr_matrix(DATA.graph.matrix))
    command = [sys.executable, "-m", "spectrograd", "cluster", str(graph), "-k", "4", "-o", str(labels)]
    how = ["-s", "gradient-descent", "--tol", "0", "--max-iter", "10000000", "-v"]
    run = subprocess.Popen([*command, *how], stderr=subprocess.PIPE, text=True)
    for line in run.stderr:  # with -v every measurement is told
        if "iteration 100" in line:
            break
    run.send_signal(signal.SIGINT)
    rest = run.stderr.read()
    assert run.wait() == 130, rest
    assert "interrupted after" in rest
    assert len(labels.read_text().splitlines()) == 2001
