"""Runs that are stopped and go on: the same bits as the run that nobody touched."""

from __future__ import annotations

import os
import signal
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from sklearn.base import clone

from spectrograd import MultilayerGraph, SpectralClustering, open_store
from spectrograd.datasets import make_block_model
from spectrograd.engines import LocalEngine, make_engine
from spectrograd.graph import Graph, GraphError, GraphWarning
from spectrograd.pipeline import Settings, cluster, embed
from spectrograd.serialization.codec import read_header, read_value
from spectrograd.solvers import checkpoint
from spectrograd.solvers.settings import RunContext
from spectrograd.store.edge_batches import GraphSource, IngestSettings
from spectrograd.store.ingest import ingest

GRAPH = make_block_model(1200, 4, random_state=0).graph
LAYERS = MultilayerGraph(
    tuple(make_block_model(700, 3, random_state=i).graph for i in range(3)), tuple("abc")
)
EXACT = {"tol": 1e-10, "params": {"basis_size": 20, "block_size": 2}}
# every solver whose state is its own kind of thing; direct ones have nothing on the way
SOLVERS = {
    "lanczos": EXACT,
    "chebyshev": {"tol": 1e-10},
    "gradient-descent": {"params": {"step_size": 2000.0}},  # diverges first, and backs off
    "forward-backward": {},
    "power": {"tol": 1e-6},
    "lobpcg": {},
    "shift-invert": {"tol": 1e-12},
    "multilevel": {"tol": 1e-8},
    "coordinate-power": {},
    "sgd": {"tol": 1e-6, "params": {"epochs": 2, "polish": True}},
    "sgd-paper": {"max_iter": 200, "params": {"replacement": False}},
    "stochastic-fb": {"max_iter": 300},
    "eigen": {},
}


class Killed(BaseException):
    """In the place of a process's end."""


def settings(folder=None, *, every=0.0, engine=None, **how):
    """Settings and the context of a run that is kept in a folder."""
    context = RunContext(engine or LocalEngine(), checkpoint=folder, checkpoint_every=every)
    return Settings(**{"n_components": 4, "seed": 0} | how), context


def killed_after(n_saved, monkeypatch):
    """The run ends right after so many checkpoints; how many there were."""
    save, seen = checkpoint.SolveCheckpoint.save, []

    def counted(self, problem, moment):
        save(self, problem, moment)
        seen.append(moment)
        if len(seen) == n_saved:
            raise Killed

    monkeypatch.setattr(checkpoint.SolveCheckpoint, "save", counted)
    return seen


def stopped_and_resumed(graph, folder, monkeypatch, share=0.5, **how):
    """A whole run beside that one's twin, which was killed once, about half way."""
    with monkeypatch.context() as patch:
        seen = killed_after(-1, patch)
        whole = embed(graph, *settings(folder / "whole", **how))
    with monkeypatch.context() as patch:
        killed_after(max(1, round(share * len(seen))), patch)
        with pytest.raises(Killed):
            embed(graph, *settings(folder / "run", **how))
    return embed(graph, *settings(folder / "run", **how)), whole


def assert_same(found, expected):
    assert found.vectors.tobytes() == expected.vectors.tobytes()
    assert found.certificate.sentence == expected.certificate.sentence
    assert [replace(p, seconds=0.0) for p in found.history] == [
        replace(p, seconds=0.0) for p in expected.history
    ]
    assert [a.outcome for a in found.attempts] == [a.outcome for a in expected.attempts]


@pytest.mark.parametrize("solver", SOLVERS)
def test_every_solver_goes_on_to_the_same_bits(tmp_path, monkeypatch, solver):
    found, whole = stopped_and_resumed(GRAPH, tmp_path, monkeypatch, solver=solver, **SOLVERS[solver])
    assert_same(found, whole)
    assert_same(embed(GRAPH, *settings(solver=solver, **SOLVERS[solver])), whole)  # saving changes nothing


@pytest.mark.parametrize(
    "how",
    [
        {"aggregation": "projection"},
        {"aggregation": "joint"},
        {"aggregation": "mean"},
        {"aggregation": "projection", "n_components": "auto", "layer_weights": "auto"},
    ],
    ids=["projection", "joint", "mean", "auto"],
)
@pytest.mark.parametrize("share", [0.1, 0.6])
def test_layers_go_on_in_the_right_solve(tmp_path, monkeypatch, how, share):
    assert_same(*stopped_and_resumed(LAYERS, tmp_path, monkeypatch, share, **{"n_components": 3} | how))


@pytest.mark.parametrize("share", [0.2, 0.5, 0.8])
def test_attempts_of_auto_go_on_in_the_right_one(tmp_path, monkeypatch, share):
    how = {"tol": 1e-12, "max_iter": 1}  # too few for any of them
    found, whole = stopped_and_resumed(GRAPH, tmp_path, monkeypatch, share, **how)
    assert len(whole.attempts) > 1
    assert_same(found, whole)


def test_a_run_given_up_for_a_regularised_one_goes_on(tmp_path, monkeypatch):
    core = make_block_model(600, 3, random_state=0).graph.matrix.tocoo()
    half, tips = core.row < core.col, 600 + np.arange(72).reshape(12, 6)  # dangling paths
    source = np.concatenate([core.row[half], np.hstack([np.arange(12)[:, None], tips[:, :-1]]).ravel()])
    graph = Graph.from_edges(source, np.concatenate([core.col[half], tips.ravel()]))
    how = {"solver": "chebyshev", "n_components": 3}
    found, whole = stopped_and_resumed(graph, tmp_path, monkeypatch, 0.8, **how)
    assert whole.regularization.tau > 0
    assert found.regularization == whole.regularization
    assert_same(found, whole)


@pytest.mark.parametrize("how", [{"solver": "lanczos", **EXACT}, {"solver": "sgd"}], ids=["lanczos", "sgd"])
def test_a_graph_on_disk(tmp_path, monkeypatch, how):
    ingest(tmp_path / "g.store", GraphSource(GRAPH), IngestSettings(block_bytes=1 << 16, edges=True))
    graph = open_store(tmp_path / "g.store")
    assert_same(*stopped_and_resumed(graph, tmp_path, monkeypatch, **how))


@pytest.mark.parametrize("solver", ["lanczos", "chebyshev", "sgd", "sgd-paper"])
def test_rows_on_a_device(tmp_path, monkeypatch, solver):
    pytest.importorskip("torch")
    how = {"sgd": {}, "sgd-paper": {"max_iter": 100}}.get(solver, SOLVERS[solver])
    engine = make_engine("torch:cpu")
    assert_same(*stopped_and_resumed(GRAPH, tmp_path, monkeypatch, solver=solver, engine=engine, **how))


def test_a_finished_run_is_there_at_once(tmp_path, monkeypatch):
    whole = cluster(GRAPH, *settings(tmp_path / "run", n_clusters=4))
    spmm, seen = LocalEngine.spmm, []

    def counted(self, *given):
        seen.append(given)
        return spmm(self, *given)

    monkeypatch.setattr(LocalEngine, "spmm", counted)
    again = cluster(GRAPH, *settings(tmp_path / "run", n_clusters=4))
    assert sum(X.shape[1] > 1 for _, X, *_ in seen) == 1  # measures what the certificate says; no other block
    assert_same(again, whole)
    assert again.labels.tobytes() == whole.labels.tobytes()


def terminated_at(number, monkeypatch, name=signal.SIGTERM):
    """The signal comes in the middle of a pass."""
    spmm, column_product, seen = LocalEngine.spmm, LocalEngine.column_product, []

    def count():
        seen.append(number)
        if len(seen) == number:
            os.kill(os.getpid(), name)

    def counted(self, *given):
        count()
        return spmm(self, *given)

    def counted_columns(self, *given):
        product = column_product(self, *given)

        def one(x):
            count()
            return product(x)

        return one

    monkeypatch.setattr(LocalEngine, "spmm", counted)
    monkeypatch.setattr(LocalEngine, "column_product", counted_columns)


@pytest.mark.parametrize("name", [signal.SIGTERM, signal.SIGINT])
@pytest.mark.parametrize("at", [12, 21, 22])
def test_signals_save_and_give_what_there_is(tmp_path, monkeypatch, name, at):
    how = {"solver": "lanczos", **EXACT}
    with monkeypatch.context() as patch:
        terminated_at(at, patch, name)
        stopped = cluster(GRAPH, *settings(tmp_path / "run", every=1e6, **how))
    assert stopped.interrupted
    assert stopped.labels.shape == (1200,)
    assert len(os.listdir(tmp_path / "run")) == 1
    assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL
    saved = read_value(next(Path(tmp_path / "run").iterdir()))[0]["fields"]["snapshot"]["fields"]
    assert saved["state"]["fields"]["filling"] == (at != 21)  # within a cycle, not only at its end
    assert_same(embed(GRAPH, *settings(tmp_path / "run", **how)), embed(GRAPH, *settings(**how)))


def test_a_run_in_the_background_is_saved_too(tmp_path, monkeypatch):
    """A shell lets it ignore Ctrl-C, but not SIGTERM."""
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        with monkeypatch.context() as patch:
            terminated_at(12, patch)
            assert cluster(GRAPH, *settings(tmp_path / "run", solver="lanczos", **EXACT)).interrupted
        assert signal.getsignal(signal.SIGINT) is signal.SIG_IGN
    finally:
        signal.signal(signal.SIGINT, before)


def test_a_run_that_was_cut_short_leaves_no_later_solve(tmp_path, monkeypatch):
    """Rough layers would be merged, and what comes of them is none of the undisturbed run's."""
    how = {"n_components": 3, "every": 1e6, "aggregation": "projection"}
    with monkeypatch.context() as patch:
        terminated_at(23, patch)  # twenty products of the plan, then the solve
        with pytest.raises(KeyboardInterrupt):
            embed(LAYERS, *settings(tmp_path / "run", **how))
    assert [name[:9] for name in os.listdir(tmp_path / "run")] == ["solve-000"]
    assert_same(embed(LAYERS, *settings(tmp_path / "run", **how)), embed(LAYERS, *settings(**how)))


@pytest.mark.parametrize("solver", ["lanczos", "forward-backward", "sgd-paper"])
def test_a_time_budget_only_pauses_a_run(tmp_path, solver):
    how = {"solver": solver, **SOLVERS[solver], "tol": 1e-8}
    for _ in range(3):
        cluster(GRAPH, *settings(tmp_path / "run", every=1e6, time_budget=1e-3, **how))
    assert_same(embed(GRAPH, *settings(tmp_path / "run", **how)), embed(GRAPH, *settings(**how)))


def test_without_a_seed_one_is_drawn_and_kept(tmp_path, monkeypatch):
    found, _ = stopped_and_resumed(GRAPH, tmp_path, monkeypatch, seed=None, solver="forward-backward")
    again = embed(GRAPH, *settings(tmp_path / "run", seed=None, solver="forward-backward"))
    assert_same(again, found)
    identity = read_header(next((tmp_path / "run").iterdir()))["identity"]
    assert_same(embed(GRAPH, *settings(seed=identity["drawn seed"], solver="forward-backward")), found)


@pytest.mark.parametrize(
    ("other", "message"),
    [
        ({"seed": 1}, "was written for seed 0, this run has seed 1"),
        ({"n_components": 3}, "was written for n_components 4, this run has n_components 3"),
        ({"solver": "chebyshev"}, "was written for solver lanczos, this run has solver chebyshev"),
        ({"params": {"block_size": 3}}, r"for params \{\}, this run has params \{'block_size': 3\}"),
        ({"laplacian": "unnormalized"}, "was written for laplacian random_walk"),
        ({"regularization": 0.5}, "was written for regularization auto, this run has regularization 0.5"),
    ],
)
def test_other_parameters_are_refused_by_name(tmp_path, other, message):
    how = {"solver": "lanczos"}
    embed(GRAPH, *settings(tmp_path / "run", **how))
    with pytest.raises(GraphError, match=message):
        embed(GRAPH, *settings(tmp_path / "run", **how | other))


def test_other_graphs_and_releases_are_refused(tmp_path, monkeypatch):
    embed(GRAPH, *settings(tmp_path / "run"))
    heavier = Graph.from_matrix(2 * GRAPH.matrix)
    for graph in (heavier, make_block_model(1200, 4, random_state=1).graph):
        with pytest.raises(GraphError, match="was written for another graph"):
            embed(graph, *settings(tmp_path / "run"))
    with pytest.raises(GraphError, match="was written for start None"):
        embed(GRAPH, *settings(tmp_path / "run"), start=np.ones((1200, 4)))
    monkeypatch.setattr("spectrograd.pipeline.checkpoints.package_version", lambda: "7.0")
    with pytest.raises(GraphError, match=r"for spectrograd \d[.\w]*, this run has spectrograd 7.0"):
        embed(GRAPH, *settings(tmp_path / "run"))


def test_what_comes_after_the_embedding_may_change(tmp_path):
    embed(GRAPH, *settings(tmp_path / "run", engine=LocalEngine(1)))
    found = cluster(GRAPH, *settings(tmp_path / "run", n_init=3, engine=LocalEngine(2), time_budget=100.0))
    assert found.labels.tobytes() == cluster(GRAPH, *settings(n_init=3)).labels.tobytes()


def test_damage_within_a_run_is_told_and_both_damaged_are_an_error(tmp_path, monkeypatch):
    how = {"solver": "forward-backward", "tol": 1e-8}
    with monkeypatch.context() as patch:
        killed_after(3, patch)
        with pytest.raises(Killed):
            embed(GRAPH, *settings(tmp_path / "run", **how))
    before, newest = sorted((tmp_path / "run").iterdir())
    newest.write_bytes(newest.read_bytes()[:5000])
    keep = before.read_bytes()
    with pytest.warns(GraphWarning, match="damaged .*; going on from the one before"):
        found = embed(GRAPH, *settings(tmp_path / "run", every=1e6, **how))
    assert_same(found, embed(GRAPH, *settings(**how)))
    for path in (tmp_path / "run").iterdir():
        path.unlink()
    before.write_bytes(keep[:2000] + bytes([keep[2000] ^ 1]) + keep[2001:])
    with pytest.raises(GraphError, match=r"damaged \(a checksum is wrong\), and there is no other one"):
        embed(GRAPH, *settings(tmp_path / "run", solver="forward-backward", tol=1e-8))


def test_estimators(tmp_path, monkeypatch):
    model = SpectralClustering(
        4, affinity="precomputed", solver="forward-backward", random_state=0,
        checkpoint=tmp_path / "run", checkpoint_every=0.0,
    )  # fmt: skip
    plain = clone(model).set_params(checkpoint=None).fit(GRAPH)
    with monkeypatch.context() as patch:
        killed_after(2, patch)
        with pytest.raises(Killed):
            model.fit(GRAPH)
    assert model.fit(GRAPH).embedding_.tobytes() == plain.embedding_.tobytes()
    assert (model.labels_ == plain.labels_).all()
    model.partial_fit(GRAPH.matrix)  # another graph, and no run of this folder
    with pytest.raises(ValueError, match="checkpoint_every=-1: expected seconds"):
        model.set_params(checkpoint_every=-1).fit(GRAPH)
