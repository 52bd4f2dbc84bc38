"""``sgd-paper`` in tensors: step for step that of the host, in both readings and with both optimizers."""

from __future__ import annotations

import numpy as np
import pytest

from spectrograd import datasets
from spectrograd.engines import make_engine
from spectrograd.operators.laplacian import regularized_laplacian
from spectrograd.solvers import Problem, choose_variant, make_solver
from spectrograd.solvers.torch_minibatch import TorchEdges

torch = pytest.importorskip("torch", reason="torch is not installed: pip install spectrograd[torch]")
N, K, BATCH = 300, 3, 200


@pytest.fixture(scope="module")
def operator():
    return regularized_laplacian(datasets.make_block_model(N, K, random_state=0).graph, "random_walk", 0.1)


class Dictated:
    """Random numbers that are none: the places of edges, batch after batch."""

    def __init__(self, positions):
        self.positions = iter(positions)

    def integers(self, low, high, size, dtype=np.int64):
        if isinstance(size, tuple):
            return np.array([next(self.positions) for _ in range(size[0])], dtype=dtype)
        return next(self.positions).astype(dtype)


@pytest.mark.parametrize("gram_update", ["printed", "unique"])
@pytest.mark.parametrize(("optimizer", "step_size"), [("amsgrad", 2e-3), ("sgd", 0.05)])
def test_steps_are_those_of_the_host(monkeypatch, operator, gram_update, optimizer, step_size):
    W, n_steps = operator.graph.matrix, 12
    rows = np.repeat(np.arange(N, dtype=np.int32), np.diff(W.indptr))
    rng = np.random.default_rng(1)
    positions, start = rng.integers(0, W.nnz, (n_steps, BATCH)), rng.standard_normal((N, K))
    params = {"optimizer": optimizer, "step_size": step_size, "gram_update": gram_update, "refresh": 5}
    solver = make_solver("sgd-paper", batch_size=BATCH, max_iter=n_steps, **params)
    host = Problem(operator, K, start=start)
    state = solver.init(host, np.random.default_rng(0))
    state.draws = Dictated(positions)
    while state.iteration < n_steps:
        state = solver.step(host, state)

    left = iter(positions)

    def drawn(edges, count, generator):
        places = next(left)
        return edges.edges._replace(heads=torch.tensor(rows[places]), tails=torch.tensor(W.indices[places]))

    monkeypatch.setattr(TorchEdges, "draw", drawn)
    device = Problem(operator, K, make_engine("torch:cpu"), start)
    solver = choose_variant(device, solver)
    found = solver.init(device, np.random.default_rng(0))
    while found.iteration < n_steps:
        found = solver.step(device, found)
    M, Y = (small.numpy() for small in found.known)
    for ours, theirs in ((found.U.tensor[:-1].numpy(), state.U), (M, state.M), (Y, state.Y)):
        # float32, and AMSGrad divides small gradients by small ones
        np.testing.assert_allclose(ours, theirs, atol=1e-4 * np.abs(theirs).max())
    exact = found.rows.measure(found.U.tensor)[0].numpy()
    assert (np.abs(M - exact).max() < 1e-6) == (gram_update == "unique")  # as printed, M is not U'BU


@pytest.mark.parametrize("optimizer", ["amsgrad", "sgd"])
def test_without_a_factor_nothing_moves_and_nothing_counts(operator, optimizer):
    problem = Problem(operator, K, make_engine("torch:cpu"))
    solver = choose_variant(
        problem, make_solver("sgd-paper", batch_size=BATCH, optimizer=optimizer, max_iter=9)
    )
    state = solver.step(problem, solver.init(problem, np.random.default_rng(0)))
    before, seen = state.U.tensor.clone(), state.edges_seen
    state.iteration, state.known = 4, (torch.zeros((K, K), dtype=torch.float64), state.known[1])
    assert solver._iterations(problem, state, 5) == 0
    assert torch.equal(state.U.tensor, before)
    solver.step(problem, state)
    assert (state.iteration, state.edges_seen) == (4, seen)
    assert "iteration 4: M was ill-conditioned, re-orthonormalised" in state.events
    assert solver.step(problem, state).iteration == 9


@pytest.mark.parametrize("params", [{"batch": "nodes"}, {"replacement": False}, {"redrawn": False}])
def test_what_a_device_has_not_is_an_error(operator, params):
    (name,) = params
    problem = Problem(operator, K, make_engine("torch:cpu"))
    with pytest.raises(ValueError, match=f"{name}=.*on engine 'torch'.*engine='local'"):
        choose_variant(problem, make_solver("sgd-paper", **params)).init(problem, np.random.default_rng(0))


def test_edges_without_room_are_an_error(operator):
    problem = Problem(operator, K, make_engine("torch:cpu"))
    problem.engine.blocks.most_bytes = 100
    with pytest.raises(ValueError, match="do not fit the device; 'sgd' reads them"):
        choose_variant(problem, make_solver("sgd-paper")).init(problem, np.random.default_rng(0))


def test_the_paper_settings_speak_on_a_device_too(operator):
    problem = Problem(operator, K, make_engine("torch:cpu"))
    state = choose_variant(problem, make_solver("sgd-paper")).init(problem, np.random.default_rng(0))
    assert "gram_update='unique' counts it once" in state.events[-1]
