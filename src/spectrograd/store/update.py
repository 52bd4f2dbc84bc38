"""Updates of a store in place: readers see all of a change, or nothing of it.

New segments are written to files of their own, which become visible when the new manifest replaces the
old one. Where the changes exceed a tenth of the entries the store is written anew.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import numpy as np

from spectrograd.graph import GraphError
from spectrograd.serialization.folders import only_writer, sync_files
from spectrograd.store.edge_batches import GraphSource, IngestSettings
from spectrograd.store.format import BlockSegment, LayerMeta, SegmentWriter, StoreMeta, load_meta, save_meta
from spectrograd.store.ingest import check_free, fingerprint, ingest, value_range
from spectrograd.store.node_ids import NewNames, append_names
from spectrograd.store.row_blocks import row_sums
from spectrograd.store.shuffled_edges import Changes, Rows, current_weights, merge_entries, rows_of_keys
from spectrograd.store.stored_graph import BlockStream, Store, open_store
from spectrograd.typing import Array

MAX_CHANGED_SHARE = 0.1  # of the entries: more are merged into the blocks
STEMS = ("delta", "degrees")


class NoSuchEdge(GraphError):
    """An edge to remove does not exist; ``ends`` are its rows."""

    def __init__(self, head: int, tail: int) -> None:
        super().__init__(f"edge ({head}, {tail}) to remove is not in the graph")
        self.ends = head, tail


def update_store(
    path: Path,
    base: str,
    changes: Mapping[int, Changes],
    new: NewNames | None = None,
    *,
    digest: str = "",
) -> StoreMeta:
    """Apply changes of edges to a store.

    Parameters
    ----------
    path : Path
        The store; a second writer is refused meanwhile.
    base : str
        Fingerprint of the store to which the rows of the changes refer.
    changes : mapping from layer to Changes
        By row numbers; new nodes have the next ones.
    new : NewNames, optional
        Number and names of the new nodes.
    digest : str
        Hash of the change. A store that went from ``base`` to its present state by a change of this digest
        has it already (the process that applied it was stopped afterwards) and is left as it is.
    """
    path = Path(os.path.realpath(path))
    with only_writer(path):
        meta = load_meta(path)
        if digest and meta.fingerprint != base and meta.last_change == (base, digest):
            return meta
        if meta.fingerprint != base:
            raise GraphError(f"{path}: was changed by somebody else meanwhile; open it again")
        # 1. files of new names: nothing that a reader has open is written to
        number = _next_number(path)
        check_free(path, 16 * sum(len(part.keys) for part in changes.values()) + 16 * meta.n_nodes)
        old_files = {segment.file for segment in meta.segments}
        try:
            # 2. blocks, degrees, components and names after the change, in those files
            meta = _apply(path, meta, changes, new, number)
            meta = replace(meta, made={**meta.made, "change": [base, digest]})
            # 3. on disk before the manifest that names them
            sync_files(path, {segment.file for segment in meta.segments} - old_files)
            # 4. the manifest is renamed into place: from here on readers see the change
            save_meta(path, meta)
        finally:
            _remove_unnamed(path)
        # 5. many changes slow down every pass: write the store anew
        if any(layer.n_changed > MAX_CHANGED_SHARE * layer.n_entries for layer in meta.layers):
            return _rewrite(path, meta)
    return meta


def _rewrite(path: Path, meta: StoreMeta) -> StoreMeta:
    """The store written anew, its changes in its blocks, with the settings it was made with."""
    made = meta.made.get("settings", {})
    values = {name: value for name, value in made.items() if name != "duplicates"}
    settings = IngestSettings(**values, force=True)
    return ingest(path, GraphSource(open_store(path)), settings, made={"change": meta.made["change"]})


def _next_number(path: Path) -> int:
    """Return a number larger than that of any file, so that no file is overwritten."""
    numbers = [name.stem.rpartition("-")[2] for name in path.iterdir() if "-" in name.stem]
    return max((int(number) for number in numbers if number.isdecimal()), default=0) + 1


def _remove_unnamed(path: Path) -> None:
    """Remove files that the manifest does not name: of an earlier version, or of a writer that was killed."""
    named = {segment.file for segment in load_meta(path).segments}
    for file in path.iterdir():
        if file.suffix in (".bin", ".parquet") and file.name not in named:
            file.unlink()


def _apply(
    path: Path, meta: StoreMeta, changes: Mapping[int, Changes], new: NewNames | None, number: int
) -> StoreMeta:
    store = Store(path, meta)
    n_nodes = meta.n_nodes + (0 if new is None else new.n_nodes)
    writers = {stem: SegmentWriter(path, stem, first=number) for stem in STEMS}
    nothing = Changes(np.empty(0, np.int64), np.empty(0), np.empty(0, np.int64))
    try:
        layers = []
        for index in range(len(meta.layers)):
            layer = _LayerUpdate(store, index, n_nodes, writers)
            layers.append(layer.apply(changes.get(index, nothing)))
    finally:
        for writer in writers.values():
            writer.close()
    if new is not None:
        meta = append_names(path, store, new, number)
    meta = replace(meta, n_nodes=n_nodes, layers=tuple(layer.meta for layer in layers))
    meta = replace(
        meta, layers=tuple(_with_components(path, meta, at, number, layer) for at, layer in enumerate(layers))
    )
    return replace(meta, fingerprint=fingerprint(meta))


class _ChangedLayer(NamedTuple):
    """A layer after its changes; ends of the changed edges, whether an edge was removed, old components."""

    meta: LayerMeta
    linked: tuple[Array, Array]
    has_removals: bool
    old_components: Array


class _LayerUpdate:
    """Applies changes to one layer."""

    def __init__(self, store: Store, index: int, n_nodes: int, writers: dict[str, SegmentWriter]) -> None:
        self.store = store
        self.meta = store.meta.layers[index]
        self.n_nodes = n_nodes
        self.writers = writers
        self.delta = {segment.start: segment for segment in self.meta.delta}
        self.degrees = np.zeros(n_nodes)
        self.degrees[: store.meta.n_nodes] = store.degrees(self.meta)
        self.before: list[Array] = []
        self.after: list[Array] = []

    def apply(self, changes: Changes) -> _ChangedLayer:
        """Change the blocks with changed rows, the only ones read; a removed edge must exist."""
        blocks = list(self.meta.blocks)
        n_old = self.store.meta.n_nodes
        if self.n_nodes > n_old:  # an empty block for the new rows: their entries are changes
            pointers = np.zeros(self.n_nodes - n_old + 1, np.int64)
            blocks.append(self.writers["delta"].block(n_old, pointers, np.empty(0, np.int32), None))
        # Both directions of every changed edge, sorted by row: each block finds its entries by bisection.
        heads = changes.keys >> 32
        tails = changes.keys & 0xFFFFFFFF
        entries = np.concatenate([(heads << 32) | tails, (tails << 32) | heads])
        entries.sort()
        bounds = np.searchsorted(entries, np.array([b.start for b in blocks] + [self.n_nodes]) << 32)
        for block, begin, end in zip(blocks, bounds[:-1], bounds[1:], strict=True):
            if begin < end:
                self._change_block(block, entries[begin:end], changes, block.start >= n_old)
        return self._finish(tuple(blocks), changes)

    def _change_block(self, block: BlockSegment, entries: Array, changes: Changes, fresh: bool) -> None:
        unit = self.meta.weight_unit
        one = 1 / unit
        # 1. Current weights of the entries: of the block, or of earlier changes.
        if fresh:
            empty = np.empty(0, np.int32)
            base = Rows(np.zeros(block.n_rows + 1, np.int64), empty, None)
        else:
            base = self.store.rows_of(block, self.store.files.read(block))
        keys = base.keys(block.start)
        old = self._old_changes(block)
        in_block = current_weights(keys, entries, base.weights, one)
        in_changes = current_weights(old[0], entries, old[1], one)
        stored = np.where(np.isin(entries, old[0], assume_unique=True), in_changes, in_block)
        now = stored.astype(np.float64) * unit
        # 2. New weights; removed edges must exist.
        rows = entries >> 32
        columns = entries & 0xFFFFFFFF
        edges = (np.minimum(rows, columns) << 32) | np.maximum(rows, columns)
        missing = np.flatnonzero(np.isin(edges, changes.removed) & (now == 0))
        if len(missing):
            raise NoSuchEdge(int(rows[missing[0]]), int(columns[missing[0]]))
        after = (changes.after(edges, now) / unit).astype(np.float32)
        self.before.append(now)
        self.after.append(after.astype(np.float64) * unit)
        # 3. The new delta: entries that differ from the block.
        delta_keys, delta_weights = merge_entries(old, (entries, after))
        differs = delta_weights != current_weights(keys, delta_keys, base.weights, one)
        delta = rows_of_keys(delta_keys[differs], delta_weights[differs], block.start, block.n_rows)
        # 4. Degrees of the merged rows.
        merged = base.with_changes(delta, unit)
        self.degrees[block.start : block.start + block.n_rows] = row_sums(merged.indptr, merged.weights, unit)
        self.delta.pop(block.start, None)
        if len(delta.columns):
            assert delta.weights is not None
            segment = self.writers["delta"].block(block.start, delta.indptr, delta.columns, delta.weights)
            self.delta[block.start] = segment

    def _old_changes(self, block: BlockSegment) -> tuple[Array, Array]:
        segment = self.delta.get(block.start)
        if segment is None:
            return np.empty(0, np.int64), np.empty(0, np.float32)
        rows = self.store.rows_of(segment, self.store.files.read(segment))
        assert rows.weights is not None
        return rows.keys(segment.start), rows.weights

    def _finish(self, blocks: tuple[BlockSegment, ...], changes: Changes) -> _ChangedLayer:
        # Ranges of weights are not narrowed by removals: bounds that are too wide are still bounds.
        before, after = (np.concatenate(part or [np.empty(0)]) for part in (self.before, self.after))
        linked = self.degrees[self.degrees > 0]
        present = after[after > 0]
        old_range = list(self.meta.weights) if self.meta.n_entries else []
        meta = replace(
            self.meta,
            n_entries=self.meta.n_entries + int((after > 0).sum()) - int((before > 0).sum()),
            weights=value_range(np.append(old_range, present), 1.0),
            degree_range=value_range(linked, 0.0),
            n_isolated=self.n_nodes - len(linked),
            blocks=blocks,
            degrees=self.writers["degrees"].append([self.degrees]),
            delta=tuple(self.delta[start] for start in sorted(self.delta)),
        )
        components = np.arange(self.n_nodes, dtype=np.int32)
        components[: self.store.meta.n_nodes] = self.store.components(self.meta)
        components[self.store.meta.n_nodes :] = self.meta.n_components + np.arange(
            self.n_nodes - self.store.meta.n_nodes
        )
        ends = (changes.edges >> 32).astype(np.int32), (changes.edges & 0xFFFFFFFF).astype(np.int32)
        return _ChangedLayer(meta, ends, bool(((before > 0) & (after == 0)).any()), components)


def _with_components(path: Path, meta: StoreMeta, index: int, number: int, layer: _ChangedLayer) -> LayerMeta:
    """Write the components of a layer: joined by new edges, or found anew where an edge was removed."""
    from spectrograd.kernels.edge_lists import label_roots

    # A removed edge may split a component: all edges are read. New edges only join components.
    if layer.has_removals:
        component = np.arange(meta.n_nodes, dtype=np.int32)
        store = Store(path, meta)
        for segment, rows in BlockStream(store, meta.layers[index]).rows(meta.layers[index].blocks):
            heads = np.repeat(
                np.arange(segment.start, segment.start + segment.n_rows, dtype=np.int32), np.diff(rows.indptr)
            )
            _join(component, heads, rows.columns.copy())
        n_components = int(label_roots(component))
    else:
        old = layer.old_components
        joined = np.arange(int(old.max()) + 1, dtype=np.int32)
        _join(joined, old[layer.linked[0]], old[layer.linked[1]])
        n_components = int(label_roots(joined))
        component = joined[old]
    written = None
    if n_components > 1:
        writer = SegmentWriter(path, "components", first=number + index)
        written = writer.append([component])
        writer.close()
    largest = int(np.bincount(component).max())
    return replace(layer.meta, n_components=n_components, largest_component=largest, components=written)


def _join(parent: Array, heads: Array, tails: Array) -> None:
    """Join components by edges; changes ``parent``, a union-find, and both ends."""
    from spectrograd.kernels.edge_lists import count_rows

    counts = np.zeros(len(parent), np.int64)
    count_rows(heads, tails, None, None, counts, np.empty(0), parent)
