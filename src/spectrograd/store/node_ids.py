"""Node ids of a store: how ids become row numbers, and the files that turn rows into ids again.

Ids that are no row numbers are numbered by DuckDB, in a process whose memory is gone when it ends:

``python -m spectrograd.store.node_ids FOLDER BYTES ordered|any`` reads ``FOLDER/staged.parquet`` and writes
``names.parquet`` (the ids, sorted) and ``numbered.parquet`` beside it. One operator per statement and Parquet
between them: each statement then has the whole of the memory limit.
"""

from __future__ import annotations

import subprocess
import sys
import zlib
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import numpy as np

from spectrograd.graph import GraphError
from spectrograd.store.edge_batches import (
    EDGE_BATCH,
    EdgeBatch,
    EdgeSource,
    IngestSettings,
    check_weights,
    in_background,
)
from spectrograd.store.format import INTEGERS, ROWS, TEXTS, Segment, StoreMeta, write_file
from spectrograd.store.stored_graph import Store
from spectrograd.system import need
from spectrograd.typing import Array

STAGED = "staged.parquet"
NAMES = "names.parquet"
NUMBERED = "numbered.parquet"
DUCKDB_MEMORY_SHARE = 0.5  # of the limit: DuckDB does not count the memory of its readers and writers
MIN_DUCKDB_BYTES = 128 << 20  # below, DuckDB fails

# --- Numbering by DuckDB


def stage(folder: Path, source: EdgeSource, texts: bool, settings: IngestSettings) -> int:
    """Write the listed edges to one Parquet file; return their number."""
    what = "numbering nodes whose ids are texts" if texts else "numbering nodes whose ids are far apart"
    arrow = need("pyarrow", what)
    parquet = need("pyarrow.parquet", what)
    need("duckdb", what)
    kind = arrow.string() if texts else arrow.int64()
    columns = {"source": kind, "target": kind, "weight": arrow.float64(), "layer": arrow.int32()}
    schema = arrow.schema({**columns, "number": arrow.int64()})
    done = 0
    with parquet.ParquetWriter(folder / STAGED, schema, compression="lz4", use_dictionary=texts) as writer:
        for batch in in_background(source.batches(texts=texts)):
            size = len(batch.source)
            check_weights(batch.source, batch.target, batch.weight)
            arrays = [arrow.array(end, kind) if isinstance(end, np.ndarray) else end for end in batch[:2]]
            weight = arrow.nulls(size, arrow.float64()) if batch.weight is None else arrow.array(batch.weight)
            layer = arrow.array(np.full(size, batch.layer, np.int32))
            number = arrow.array(np.arange(done, done + size))
            writer.write_batch(arrow.record_batch([*arrays, weight, layer, number], schema=schema))
            done += size
            settings.progress("read", done, None)
    return done


def number_nodes(folder: Path, settings: IngestSettings) -> None:
    """Run the process that numbers the staged edges."""
    limit = max(MIN_DUCKDB_BYTES, int(settings.memory_limit * DUCKDB_MEMORY_SHARE))
    ordered = "ordered" if settings.duplicates == "first" else "any"
    command = [sys.executable, "-m", __spec__.name, str(folder), str(limit), ordered]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        last = (done.stderr.strip().splitlines() or ["it was killed"])[-1]
        if "No space left" in done.stderr:
            raise OSError(28, "the disk is full; nothing was changed", str(folder.parent))
        raise GraphError(f"numbering the nodes failed: {last}; a larger --memory-limit may help")
    (folder / STAGED).unlink()


def numbered_batches(folder: Path) -> Iterator[EdgeBatch]:
    """Read the edges by row numbers."""
    parquet = need("pyarrow.parquet", "numbering nodes")
    with parquet.ParquetFile(folder / NUMBERED) as file:
        for batch in file.iter_batches(EDGE_BATCH):
            source, target, layer = (batch.column(name).to_numpy() for name in ("source", "target", "layer"))
            column = batch.column("weight")
            weight = None if column.null_count == len(column) else column.fill_null(1.0).to_numpy().copy()
            for code in np.unique(layer).tolist():
                in_layer = layer == code
                layer_weight = None if weight is None else weight[in_layer]
                yield EdgeBatch(source[in_layer], target[in_layer], layer_weight, code)


def run(folder: str, limit: str, ordered: str) -> None:
    """Number the staged edges of a folder; the main function of the process."""
    import duckdb

    base = Path(folder)

    def file(name: str) -> str:
        return "'" + str(base / name).replace("'", "''") + "'"

    database = duckdb.connect()
    database.execute(f"SET memory_limit = '{int(limit)}B'")
    database.execute("SET threads = 2")
    database.execute(f"SET temp_directory = {file('duckdb.tmp')}")
    database.execute("SET preserve_insertion_order = false")
    ends = f"SELECT source AS name FROM {file(STAGED)} UNION ALL SELECT target FROM {file(STAGED)}"
    _copy(database, f"SELECT DISTINCT name FROM ({ends})", file("ids.parquet"))
    _copy(database, f"SELECT name FROM {file('ids.parquet')} ORDER BY name", file(NAMES))
    rows = f"read_parquet({file(NAMES)}, file_row_number = true)"
    half = (
        f"SELECT n.file_row_number AS source, e.target, e.weight, e.layer, e.number "
        f"FROM {file(STAGED)} e JOIN {rows} n ON e.source = n.name"
    )
    _copy(database, half, file("half.parquet"))
    last = "ORDER BY e.number" if ordered == "ordered" else ""
    whole = (
        f"SELECT e.source, n.file_row_number AS target, e.weight, e.layer "
        f"FROM {file('half.parquet')} e JOIN {rows} n ON e.target = n.name {last}"
    )
    _copy(database, whole, file(NUMBERED))
    for name in ("ids.parquet", "half.parquet"):
        (base / name).unlink()


def _copy(database: object, query: str, target: str) -> None:
    database.execute(f"COPY ({query}) TO {target} (FORMAT parquet, COMPRESSION lz4_raw)")  # type: ignore[attr-defined]


# --- Names of nodes


class NewNames(NamedTuple):
    """Number of added nodes, and their ids: int64 or texts."""

    n_nodes: int
    names: Array


class Nodes(NamedTuple):
    """Row of each id (``row_of``; None: ids are rows), and the ids by row where they are no row numbers."""

    n_nodes: int
    row_of: Array | None = None
    integers: Array | None = None
    texts: Path | None = None


def nodes_of_rows(draft: Path, source: EdgeSource, n_nodes: int) -> Nodes:
    """Describe the nodes of a source whose ids are row numbers."""
    names = source.names
    if names is None:
        return Nodes(n_nodes)
    if names.dtype.kind in "iu":
        whole = names.astype(np.int64)
        return Nodes(n_nodes, integers=None if np.array_equal(whole, np.arange(n_nodes)) else whole)
    arrow = need("pyarrow", "names of nodes")
    parquet = need("pyarrow.parquet", "names of nodes")
    path = draft / NAMES
    parquet.write_table(arrow.table({"name": [str(name) for name in names.tolist()]}), path)
    return Nodes(n_nodes, texts=path)


def write_names(folder: Path, nodes: Nodes, order: Array | None) -> tuple[str, Segment | None]:
    """Write the ids in the order of the rows; their kind and segment."""
    if nodes.integers is not None:
        ids = nodes.integers if order is None else nodes.integers[order]
        return INTEGERS, write_file(folder, "names.bin", ids)
    if nodes.texts is None:
        return ROWS, None
    if order is not None:
        parquet = need("pyarrow.parquet", "names of nodes")
        parquet.write_table(parquet.read_table(nodes.texts).take(order), nodes.texts)
    data = nodes.texts.read_bytes()
    return TEXTS, Segment(NAMES, 0, len(data), zlib.crc32(data))


def append_names(folder: Path, store: Store, new: NewNames, number: int) -> StoreMeta:
    """Append nodes: write their names and return the manifest; ``number`` goes into the names of files."""
    meta = store.meta
    rows = np.arange(meta.n_nodes, meta.n_nodes + new.n_nodes)
    if store.order is not None:
        grown = np.append(store.order, rows).astype(np.int32)
        meta = replace(meta, order=write_file(folder, f"order-{number:03d}.bin", grown))
    # 1. Ids that go on as row numbers need no file.
    if meta.ids == ROWS and new.names.dtype.kind in "iu" and np.array_equal(new.names, rows):
        return meta  # ids are still row numbers
    # 2. Texts and integers do not mix.
    if (meta.ids == TEXTS) == (new.names.dtype.kind in "iu"):
        kind = "texts" if meta.ids == TEXTS else "integers"
        raise GraphError(f"node {new.names.tolist()[0]!r}: the ids of {folder} are {kind}")
    # 3. Names are written anew, in a file of their own: readers keep the earlier one.
    if meta.ids == TEXTS:
        assert store.names is not None
        arrow = need("pyarrow", "names of nodes")
        parquet = need("pyarrow.parquet", "names of nodes")
        path = folder / f"names-{number:03d}.parquet"
        parquet.write_table(arrow.table({"name": [*store.names.tolist(), *new.names.tolist()]}), path)
        data = path.read_bytes()
        return replace(meta, names=Segment(path.name, 0, len(data), zlib.crc32(data)))
    old_ids = np.arange(meta.n_nodes) if store.names is None else store.names
    ids = np.append(old_ids, new.names).astype(np.int64)
    return replace(meta, ids=INTEGERS, names=write_file(folder, f"names-{number:03d}.bin", ids))


if __name__ == "__main__":
    run(*sys.argv[1:])
