"""Ingest: edges in, a store out, in sequential passes under a memory limit.

Edges are spooled and their ids counted, rows are counted, scattered into buckets, sorted and written; before
that the nodes may get an order that keeps neighbours near each other.
"""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Mapping
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np

from spectrograd.graph import GraphError, GraphWarning
from spectrograd.graph.ordering import MIN_GAIN, N_SAMPLED_ENTRIES, share_near
from spectrograd.kernels.thresholds import USUAL
from spectrograd.notices import warn
from spectrograd.serialization.folders import new_folder
from spectrograd.store import node_ids as numbering
from spectrograd.store.edge_batches import (
    EdgeSource,
    IngestSettings,
    NotIntegers,
    NotRowNumbers,
    Spool,
    SpooledLayer,
    in_background,
)
from spectrograd.store.format import LayerMeta, SegmentWriter, StoreMeta, save_meta, write_file
from spectrograd.store.node_ids import Nodes, nodes_of_rows, write_names
from spectrograd.store.row_blocks import Buckets, count, sorted_rows, weight_unit, write_blocks
from spectrograd.store.shuffled_edges import Sample, Shuffle, upper_edges
from spectrograd.store.stored_graph import StoredGraph, open_store
from spectrograd.system import need, resolve_path
from spectrograd.typing import Array, JsonObject

# --- Node order

LABEL_PASSES = 3  # of label propagation: further passes move few nodes


def find_order(graph: StoredGraph, settings: IngestSettings) -> Array | None:
    """Return the nodes in a better order (int32, N), or None where their order should stay."""
    if settings.order == "none" or graph.n_entries == 0:
        return None
    # A breadth-first search needs the columns in memory, and some arrays of N.
    resident = 4 * graph.n_entries + 30 * graph.n_nodes
    fits = resident < settings.memory_limit
    if settings.order == "bfs" and not fits:
        raise GraphError(
            f"--order bfs needs the graph in memory, about {resident / 1e6:,.0f} MB; "
            "raise --memory-limit or take --order labelprop"
        )
    if settings.order == "bfs":
        return breadth_first_order(graph)
    if settings.order == "labelprop":
        return label_order(graph)
    if graph.n_nodes < USUAL.reordered_from:
        return None
    # "auto": keep the new order only where it brings the ends of sampled edges nearer to each other.
    order = breadth_first_order(graph) if fits else label_order(graph)
    heads, tails = _sample_entries(graph, np.random.default_rng(settings.seed))
    # the inverse permutation: where each node goes
    position = np.empty_like(order)
    position[order] = np.arange(len(order), dtype=order.dtype)
    gain = share_near(position[heads], position[tails]) - share_near(heads, tails)
    return order if gain > MIN_GAIN else None


def breadth_first_order(graph: StoredGraph) -> Array:
    """Return the nodes in breadth-first order from the first one; the columns are loaded into memory."""
    from spectrograd.kernels.graph import search_all

    starts = np.zeros(graph.n_nodes + 1, np.int64)
    columns = np.empty(graph.n_entries, np.int32)
    for block in graph.blocks:
        # columns of all blocks side by side, as one pattern
        first = starts[block.start]
        starts[block.start : block.stop + 1] = first + block.indptr
        columns[first : first + len(block.indices)] = block.indices
    return search_all(starts, columns)[3].astype(np.int32)


def label_order(graph: StoredGraph, max_size: int = USUAL.near) -> Array:
    """Return the nodes sorted by group: groups of at most ``max_size`` nodes, by label propagation."""
    from spectrograd.kernels.edge_lists import spread_labels

    n_nodes = graph.n_nodes
    labels = np.arange(n_nodes, dtype=np.int32)
    sizes = np.ones(n_nodes, np.int32)
    votes = np.zeros(n_nodes, np.int32)
    touched = np.empty(n_nodes, np.int32)
    for _ in range(LABEL_PASSES):
        for block in graph.blocks:
            spread_labels(block.start, block.indptr, block.indices, labels, sizes, max_size, votes, touched)
    return np.argsort(labels, kind="stable").astype(np.int32)


def _sample_entries(graph: StoredGraph, rng: np.random.Generator) -> tuple[Array, Array]:
    """Draw random entries, the same share of every block; their rows and columns."""
    heads = []
    tails = []
    for block in graph.blocks:
        n_entries = len(block.indices)
        # in proportion to the block's entries: each entry of the graph is drawn with the same probability
        n_drawn = max(1, round(N_SAMPLED_ENTRIES * n_entries / graph.n_entries)) if n_entries else 0
        entries = rng.integers(0, max(1, n_entries), n_drawn)
        heads.append(block.start + np.searchsorted(block.indptr, entries, side="right") - 1)
        tails.append(block.indices[entries])
    return np.concatenate(heads), np.concatenate(tails)


# --- Passes over the edges

BYTES_PER_NODE = 36  # entries, sums, degrees, components, bucket, row


def ingest(
    path: Path, source: EdgeSource, settings: IngestSettings, *, made: Mapping[str, object] | None = None
) -> StoreMeta:
    """Write a store; it appears complete or not at all.

    Parameters
    ----------
    path : Path
        The folder to create.
    source : EdgeSource
        Lists the edges. Each is undirected; a list that holds all of them in both directions is recognised.
    settings : IngestSettings
        Treatment of repeated edges, node order, memory limit.
    made : mapping, optional
        Further entries of ``made`` in the manifest.
    """
    with new_folder(path, replace=settings.force) as draft:
        # 1. Spool the edges and number the nodes.
        spool, nodes = _spool(draft, source, settings)
        _check_memory(nodes, settings)
        _check_disk(path, spool, settings)
        # 2. Order the nodes.
        layers = [(name, spool.layers[code]) for code, name in source.layers()]
        position = _new_positions(draft, layers, nodes, settings)
        # 3. Count, scatter, sort and write every layer.
        meta = _write(draft, layers, nodes, position, settings)
        # 4. Write the manifest.
        origin = {"listed": spool.n_listed, "settings": _plain(settings), **(made or {})}
        meta = replace(meta, multilayer=source.multilayer, made=origin)
        meta = replace(meta, fingerprint=fingerprint(meta))
        for temporary in [*draft.glob("*.tmp"), *draft.glob(numbering.NUMBERED)]:
            temporary.unlink()
        save_meta(draft, meta)
    _warn(path, [layer for _, layer in layers], meta, settings)
    return meta


def _plain(settings: IngestSettings) -> JsonObject:
    return {key: value for key, value in asdict(settings).items() if key not in ("progress", "force")}


def _spool(draft: Path, source: EdgeSource, settings: IngestSettings) -> tuple[Spool, Nodes]:
    """Spool the edges; where ids are no small integers, number them by DuckDB and spool again."""
    # 1. Most ids are small integers: one pass.
    try:
        spool = _fill_spool(draft, source, source.batches(texts=False), settings)
    except (NotIntegers, NotRowNumbers) as error:
        if source.n_nodes is not None:
            raise GraphError(f"id {error or 'that is a text'} is outside 0..{source.n_nodes - 1}") from None
        # 2. Others are numbered by DuckDB, and the edges are spooled again by their numbers.
        texts = isinstance(error, NotIntegers)
        numbering.stage(draft, source, texts, settings)
        numbering.number_nodes(draft, settings)
        spool = _fill_spool(draft, source, numbering.numbered_batches(draft), settings, is_numbered=True)
        parquet = need("pyarrow.parquet", "names of nodes")
        if texts:
            n_nodes = parquet.read_metadata(draft / numbering.NAMES).num_rows
            return spool, Nodes(n_nodes, texts=draft / numbering.NAMES)
        ids = parquet.read_table(draft / numbering.NAMES).column("name").to_numpy()
        (draft / numbering.NAMES).unlink()
        return spool, Nodes(len(ids), integers=ids)
    # 3. The rows: as given, or the ids that occur, in their order.
    if source.n_nodes is not None:
        return spool, nodes_of_rows(draft, source, source.n_nodes)
    ids = np.flatnonzero(spool.counts)
    if len(ids) == 0:
        raise GraphError("the graph is empty: no nodes, no edges")
    if ids[-1] == len(ids) - 1:
        return spool, Nodes(len(ids))
    # ids that occur get consecutive rows, in ascending order of the ids
    row_of = np.cumsum(spool.counts[: ids[-1] + 1] > 0, dtype=np.int32) - np.int32(1)
    return spool, Nodes(len(ids), row_of, ids.astype(np.int64))


def _fill_spool(
    draft: Path, source: EdgeSource, batches: Any, settings: IngestSettings, is_numbered: bool = False
) -> Spool:
    # Per id: its count, twice while the table grows, and its row.
    max_id = 2**31 - 2 if is_numbered else settings.memory_limit // 24
    if source.n_nodes is not None:
        max_id = source.n_nodes - 1
    spool = Spool(draft, max_id)
    try:
        for batch in in_background(batches):
            spool.add(batch)
            if not is_numbered:
                settings.progress("read", spool.n_listed, None)
        for code, _ in source.layers():
            spool.open_layer(code)
    finally:
        spool.close()
    return spool


def _check_memory(nodes: Nodes, settings: IngestSettings) -> None:
    n_ids = nodes.n_nodes if nodes.row_of is None else len(nodes.row_of)
    # arrays that a pass over the edges holds, whatever the number of edges
    needed = BYTES_PER_NODE * nodes.n_nodes + 4 * n_ids
    if needed > settings.memory_limit:
        raise GraphError(
            f"{nodes.n_nodes:,} nodes need at least {needed / 1e6:,.0f} MB while the store is written; "
            f"raise --memory-limit ({settings.memory_limit / 1e6:,.0f} MB)"
        )


def _check_disk(path: Path, spool: Spool, settings: IngestSettings) -> None:
    """Refuse to begin where the disk has too little space for temporary files and the store."""
    needed = 0
    for layer in spool.layers.values():
        per_edge = (32 + 16) if layer.weighted else (16 + 8)  # both directions in buckets, then in blocks
        per_edge += 24 if settings.edges else 0
        per_edge += (16 if layer.weighted else 8) if settings.order != "none" else 0
        needed += per_edge * layer.n_edges
    check_free(path, needed)


def check_free(path: Path, needed: int) -> None:
    """Raise an error where fewer bytes than ``needed`` are free on the disk."""
    free = shutil.disk_usage(resolve_path(path).parent).free
    if needed > free:
        raise GraphError(
            f"{path}: about {needed / 1e9:,.2f} GB of disk are needed, {free / 1e9:,.2f} GB are free; "
            "make space or choose another disk"
        )


def _new_positions(
    draft: Path, layers: list[tuple[str, SpooledLayer]], nodes: Nodes, settings: IngestSettings
) -> Array | None:
    """Return the new row of every row (int32, N) if the nodes are reordered; the largest layer decides."""
    if settings.order == "none":
        return None
    folder = draft / "natural.tmp"
    folder.mkdir()
    # The largest layer is written in its natural order, and the order is found by passes over it.
    largest = max(layers, key=lambda pair: pair[1].n_edges)
    plain = replace(settings, edges=False, order="none")
    save_meta(folder, _write(folder, [largest], nodes._replace(integers=None, texts=None), None, plain))
    graph = open_store(folder)
    assert isinstance(graph, StoredGraph)
    order = find_order(graph, settings)
    del graph
    shutil.rmtree(folder)
    if order is None:
        return None
    position = np.empty(len(order), np.int32)
    position[order] = np.arange(len(order), dtype=np.int32)
    return position


def _write(
    folder: Path,
    layers: list[tuple[str, SpooledLayer]],
    nodes: Nodes,
    position: Array | None,
    settings: IngestSettings,
) -> StoreMeta:
    # An id becomes a row, and the row its place in the new order.
    row_of = nodes.row_of
    if position is not None:
        row_of = position if row_of is None else position[np.maximum(row_of, 0)]
    writers = {stem: SegmentWriter(folder, stem) for stem in ("blocks", "edges")}
    writers |= {
        stem: SegmentWriter(folder, stem, numbered=False) for stem in ("degrees", "components", "sample")
    }
    try:
        metas = tuple(
            _write_layer(folder, name, layer, nodes.n_nodes, row_of, writers, settings)
            for name, layer in layers
        )
    finally:
        for writer in writers.values():
            writer.close()
    order = None if position is None else np.argsort(position).astype(np.int32)
    ids, names = write_names(folder, nodes, order)
    order_segment = None if order is None else write_file(folder, "order.bin", order)
    return StoreMeta(nodes.n_nodes, ids, len(metas) > 1, metas, "", names, order_segment)


def _write_layer(
    folder: Path,
    name: str,
    layer: SpooledLayer,
    n_nodes: int,
    row_of: Array | None,
    writers: dict[str, SegmentWriter],
    settings: IngestSettings,
) -> LayerMeta:
    """Count, scatter, sort and write one layer."""
    # 1. Count the entries of every row.
    counted = count(layer, n_nodes, row_of, settings)
    halve = layer.both_ways
    unit = weight_unit(counted.largest_degree * (0.5 if halve else 1.0))
    n_edges = layer.n_edges // (2 if halve else 1)
    # 2. Scatter the entries to buckets of rows.
    buckets = Buckets.plan(folder / "buckets.tmp", counted.entries, layer.weighted, settings)
    buckets.fill(layer, row_of, settings)
    # 3. Sort each bucket and write its rows; other consumers take the edges as they pass.
    shuffle = Shuffle(folder / "shuffle.tmp", n_edges, settings) if settings.edges else None
    sample = Sample.plan(n_nodes, n_edges, settings)
    consumers = [consume for consume in (shuffle and shuffle.deal, sample and sample.draw) if consume]
    ranges = []
    degrees = np.empty(n_nodes)
    blocks = []
    for rows in sorted_rows(buckets, settings.duplicates, halve, unit):
        blocks += write_blocks(writers["blocks"], rows, settings.block_bytes)
        degrees[rows.start : rows.start + len(rows.degrees)] = rows.degrees
        ranges += [rows.weight_range] if len(rows.columns) else []
        for consume in consumers:
            consume(upper_edges(rows))
        settings.progress("sort", sum(block.n_entries for block in blocks) // 2, n_edges)
    buckets.path.unlink()
    # 4. Gather the statistics of the layer.
    linked = degrees[degrees > 0]
    is_connected = counted.n_components == 1
    weighted = any(block.weighted for block in blocks)
    return LayerMeta(
        name=name,
        n_entries=sum(block.n_entries for block in blocks),
        weight_unit=unit,
        weights=value_range(np.array(ranges), 1.0),
        degree_range=value_range(linked, 0.0),
        n_isolated=n_nodes - len(linked),
        n_components=counted.n_components,
        largest_component=int(np.bincount(counted.component).max()),
        blocks=tuple(blocks),
        degrees=writers["degrees"].append([degrees]),
        components=None if is_connected else writers["components"].append([counted.component]),
        edges=shuffle.write(writers["edges"], weighted) if shuffle else (),
        sample=sample.write(writers["sample"], weighted) if sample else None,
    )


def value_range(values: Array, default: float) -> tuple[float, float]:
    """Smallest and largest value; where there are no values, twice the default."""
    return (float(values.min()), float(values.max())) if values.size else (default, default)


def fingerprint(meta: StoreMeta) -> str:
    """Hash of segments and statistics: equal for equal graphs in the same order, whatever their source."""
    content = asdict(replace(meta, fingerprint="", made={}))
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()


def _warn(path: Path, layers: list[SpooledLayer], meta: StoreMeta, settings: IngestSettings) -> None:
    loops = sum(layer.n_loops for layer in layers)
    if loops:
        warn(f"{path}: {loops} self loops dropped", GraphWarning)
    distinct = sum(layer.n_edges // (2 if layer.both_ways else 1) for layer in layers)
    if distinct > meta.n_edges:
        rule = {"sum": "summed", "max": "merged by their maximum", "first": "dropped but the first"}
        repeated = f"{distinct - meta.n_edges} repeated edges were {rule[settings.duplicates]}"
        warn(f"{path}: {repeated}", GraphWarning)
