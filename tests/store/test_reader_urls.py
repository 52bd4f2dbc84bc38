"""Stores behind URLs, by fsspec: the same numbers, and errors that name the URL."""

from __future__ import annotations

import pickle

import numpy as np
import pytest

fsspec = pytest.importorskip("fsspec")

from spectrograd import datasets, open_store  # noqa: E402
from spectrograd.cli import main  # noqa: E402
from spectrograd.graph import GraphError  # noqa: E402
from spectrograd.store.edge_batches import GraphSource, IngestSettings  # noqa: E402
from spectrograd.store.ingest import ingest  # noqa: E402
from spectrograd.store.stored_graph import is_store  # noqa: E402


@pytest.fixture
def folder(tmp_path):
    graph = datasets.make_block_model(400, 3, random_state=0).graph
    ingest(tmp_path / "g.store", GraphSource(graph), IngestSettings(block_bytes=5_000))
    return tmp_path / "g.store"


@pytest.fixture
def url(folder):
    memory = fsspec.filesystem("memory")
    memory.put(str(folder), "/g.store", recursive=True)
    yield "memory://g.store"
    memory.rm("/g.store", recursive=True)


def test_a_store_behind_a_url_is_read_as_one_on_disk(folder, url):
    here, there = open_store(folder), open_store(url)
    assert is_store(url)
    assert not is_store("memory://elsewhere")
    assert len(there.meta.blocks) > 1
    assert (there.in_memory().matrix != here.in_memory().matrix).nnz == 0
    np.testing.assert_array_equal(there.degrees, here.degrees)
    sent = pickle.loads(pickle.dumps(there))
    assert [block.indices.tolist() for block in sent.blocks] == [b.indices.tolist() for b in here.blocks]
    assert there.bytes_read >= sum(block.n_bytes for block in there.meta.blocks)


def test_commands_take_a_url(folder, tmp_path):
    out = tmp_path / "labels.csv"
    assert main(["cluster", f"file://{folder}", "-k", "3", "-o", str(out), "-q"]) == 0
    assert len(out.read_text().splitlines()) == 401


def test_what_is_wrong_is_said_with_the_url(url):
    with pytest.raises(GraphError, match=r"memory://none/meta.json: No such file"):
        open_store("memory://none")
    with pytest.raises(GraphError, match=r"nothing://x.*"):
        open_store("nothing://x")
    memory = fsspec.filesystem("memory")
    block = open_store(url).meta.blocks[0].file
    memory.pipe(f"/g.store/{block}", bytes(memory.size(f"/g.store/{block}")))
    with pytest.raises(GraphError, match=rf"memory://g.store/{block}.*wrong checksum"):
        next(iter(open_store(url).blocks))
