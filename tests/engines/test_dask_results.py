"""Results that stay with the workers: vectors come when somebody asks, workers write files."""

from __future__ import annotations

import numpy as np
import pytest

distributed = pytest.importorskip("distributed")
parquet = pytest.importorskip("pyarrow.parquet")

from test_dask_engine import client

from spectrograd import datasets
from spectrograd.cli import main
from spectrograd.cli.run import (
    write_embedding_parts,
    write_label_parts,
)
from spectrograd.engines import make_engine
from spectrograd.engines.dask import session as connect
from spectrograd.engines.dask.engine import DaskEngine
from spectrograd.graph import (
    Graph,
    GraphError,
)
from spectrograd.io.write_results import write_parts
from spectrograd.labels.assign import assign_distributed
from spectrograd.labels.sampled_kmeans import assign_in_chunks
from spectrograd.pipeline import (
    Settings,
    embed,
)
from spectrograd.pipeline.result import DistributedEmbedding
from spectrograd.pipeline.run import label
from spectrograd.solvers.settings import RunContext
from spectrograd.store.edge_batches import (
    GraphSource,
    IngestSettings,
)
from spectrograd.store.ingest import ingest
from spectrograd.store.stored_graph import open_store

N = 3003  # three of them without edges
HOW = {"n_components": 3, "n_clusters": 3, "seed": 0, "solver": "chebyshev"}
pytestmark = pytest.mark.filterwarnings("ignore:.*were excluded")


class Counting(DaskEngine):
    """Notes how many rows come to the client at once, and of how many columns."""

    def __init__(self, name):
        super().__init__(name)
        self.gathered = []

    def to_numpy(self, X, indices=None):
        self.gathered.append((X.shape[0] if indices is None else len(indices), X.shape[1]))
        return super().to_numpy(X, indices)


@pytest.fixture(scope="module")
def stored(tmp_path_factory):
    """A graph of several blocks on disk with names, its rows in an order of their own."""
    data = datasets.make_block_model(N - 3, 3, random_state=0)
    entries = data.graph.matrix.tocoo()
    graph = Graph.from_edges(entries.row, entries.col, n_nodes=N)
    graph = Graph(graph.blocks, N, np.array([f"n{i}" for i in range(N)]))
    path = tmp_path_factory.mktemp("stores") / "graph.store"
    ingest(path, GraphSource(graph), IngestSettings(block_bytes=30_000, order="bfs"))
    found = open_store(path)
    assert found.input_order is not None
    return found


def read(folder):
    """The columns of all parts, by node."""
    table = parquet.read_table(folder)
    return {row.pop("node"): tuple(row.values()) for row in table.to_pylist()}


def test_no_tall_of_several_columns_comes_to_the_client(client, stored, tmp_path):
    engine = Counting(client)
    settings = Settings(**HOW)
    context = RunContext(engine)
    result = embed(stored, settings, context)
    assert isinstance(result.embedding, DistributedEmbedding)
    result = label(result, settings, context, many=100)
    result_labels = write_label_parts(tmp_path / "labels.parquet", stored, result)
    vectors = write_embedding_parts(tmp_path / "vectors.parquet", stored, result.embedding.without_first())
    assert not [(n, k) for n, k in engine.gathered if n >= N and k > 1]
    assert [path.name for path in vectors] == [path.name for path in result_labels]
    assert len(vectors) == 2
    names = [f"n{i}" for i in range(N)]
    labels, rows = read(tmp_path / "labels.parquet"), read(tmp_path / "vectors.parquet")
    assert [labels[name][0] for name in names] == result.labels.tolist()
    rows = np.array([rows[name] for name in names], np.float32)
    np.testing.assert_array_equal(rows, result.vectors[:, 1:])  # gathered now
    assert (result.vectors[-3:] == 0).all()
    assert (result.labels[-3:] == -1).all()


def test_left_rows_are_labelled_as_those_that_were_gathered(client, stored):
    engine = make_engine(client)
    left = embed(stored, Settings(**HOW), RunContext(engine)).embedding
    excluded, how = np.array([5, N - 1]), {"n_init": 10, "norm_regularization": 1.0}
    found, multivector = assign_distributed(
        engine, left.multivector, left.order, 3, excluded=excluded, random_state=0, **how
    )
    expected = assign_in_chunks(left.vectors, excluded, 3, 10, np.random.default_rng(0), 1.0)
    np.testing.assert_array_equal(found.labels, expected.labels)
    np.testing.assert_array_equal(found.membership, expected.membership)
    assert found.inertia == pytest.approx(expected.inertia, rel=1e-9)
    np.testing.assert_array_equal(engine.to_numpy(multivector)[:, 0], found.labels[left.order])
    with pytest.raises(ValueError, match="n_clusters is 9999; with 3003 rows"):
        assign_distributed(engine, left.multivector, None, 9999, excluded=excluded, random_state=0, **how)


def test_the_same_result_as_on_local(client, stored):
    far, near = (embed(stored, Settings(**HOW), RunContext(make_engine(name))) for name in (client, "local"))
    Q, P = (np.linalg.qr(found.vectors.astype(float))[0] for found in (far, near))
    assert np.linalg.norm(Q - P @ (P.T @ Q), 2) < 1e-3
    assert far.vectors.dtype == near.vectors.dtype == np.float32
    assert far.regularization.reason == near.regularization.reason


@pytest.mark.parametrize("engine", ["local", "dask"])
def test_commands_write_folders_of_parts(client, stored, tmp_path, engine):
    where = "local" if engine == "local" else f"dask:{client.scheduler.address}"
    out, store = tmp_path / "out.parquet", str(stored.store.path)
    for command, k in (("embed", "2"), ("cluster", "3")):  # the second one takes the place of the first
        assert main([command, store, "-k", k, "-o", f"{out}/", "--engine", where, "-q", "--seed", "0"]) == 0
        assert len(list(out.iterdir())) == (1 if engine == "local" else 2)
        assert len(read(out)) == N
    assert len(set(read(out).values())) == 4  # three clusters, and -1
    assert sorted(path.name for path in tmp_path.iterdir()) == ["out.parquet", "out.run.toml"]
    if engine == "dask":
        connect._clients.pop(where.partition(":")[2]).close()


def test_folders_that_are_no_place_for_parts(client, tmp_path, capsys):
    for name, said in (("x.csv/", "is written as Parquet"), ("no/x.parquet/", "does not exist")):
        with pytest.raises(ValueError, match=said):
            write_parts(f"{tmp_path}/{name}", [0, 1], None)
    (tmp_path / "x.parquet").mkdir()
    (tmp_path / "x.parquet" / "notes.txt").touch()
    with pytest.raises(ValueError, match="no folder of parts"):
        write_parts(tmp_path / "x.parquet", [0, 1], None)
    assert main(["cluster", "none.csv", "-o", f"{tmp_path}/x.parquet/"]) == 2
    assert "no folder of parts" in capsys.readouterr().err


def test_workers_that_do_not_share_the_folder_are_named(client, tmp_path, monkeypatch):
    engine = make_engine(client)
    labels = engine.from_numpy(np.arange(4)[:, None])
    monkeypatch.setattr("pathlib.Path.mkdir", lambda path: None)  # a folder that nobody else has
    with pytest.raises(GraphError, match=r"worker tcp://.* does not exist.*all of them share"):
        write_parts(tmp_path / "x.parquet", labels, None, engine=engine)
