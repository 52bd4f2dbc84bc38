"""Changed edges go into a store that stays where it is: readers see all of a change, or nothing of it.

New segments stand in files of their own, which nobody knows until the manifest that names them takes the old
one's place. Where the changes outgrow a tenth of the graph the store is written anew.
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
from spectrograd.store.node_ids import NewNames, with_names
from spectrograd.store.row_blocks import row_sums
from spectrograd.store.shuffled_edges import Changes, Rows, current_weights, rows_of_keys, united
from spectrograd.store.stored_graph import BlockStream, Store, open_store
from spectrograd.typing import Array

MOST_CHANGED = 0.1  # of the entries: more are merged into the blocks
STEMS = ("delta", "degrees")


class NoSuchEdge(GraphError):
    """An edge to be removed is not there: the rows of its ends."""

    def __init__(self, head: int, tail: int) -> None:
        super().__init__(f"edge ({head}, {tail}) to remove is not in the graph")
        self.ends = head, tail


def update_store(
    path: Path,
    seen: str,
    changes: Mapping[int, Changes],
    new: NewNames | None = None,
    *,
    digest: str = "",
) -> StoreMeta:
    """Take changed edges into a store.

    Parameters
    ----------
    path : Path
        The store; a second writer is refused while this one is at work.
    seen : str
        The fingerprint of the store whose rows the changes speak of.
    changes : mapping from layer to Changes
        By row numbers; new nodes have those that follow.
    new : NewNames, optional
        How many nodes are new, and what they are called.
    digest : str
        Of the change. A store that went from ``seen`` to where it is by a change of this digest has taken it
        in already (whoever asked for it was stopped before he knew) and is left as it is.
    """
    path = Path(os.path.realpath(path))
    with only_writer(path):
        meta = load_meta(path)
        if digest and meta.fingerprint != seen and meta.last_change == (seen, digest):
            return meta
        if meta.fingerprint != seen:
            raise GraphError(f"{path}: was changed by somebody else meanwhile; open it again")
        number = _next_number(path)
        check_free(path, 16 * sum(len(part.keys) for part in changes.values()) + 16 * meta.n_nodes)
        old_files = {segment.file for segment in meta.segments}
        try:
            meta = _changed(path, meta, changes, new, number)
            meta = replace(meta, made={**meta.made, "change": [seen, digest]})
            sync_files(path, {segment.file for segment in meta.segments} - old_files)
            save_meta(path, meta)
        finally:
            _remove_unknown(path)
        if any(layer.n_changed > MOST_CHANGED * layer.n_entries for layer in meta.layers):
            return _merged(path, meta)
    return meta


def _merged(path: Path, meta: StoreMeta) -> StoreMeta:
    """The store written anew, its changes in its blocks, with the settings it was made with."""
    given = {name: value for name, value in meta.made.get("settings", {}).items() if name != "duplicates"}
    settings = IngestSettings(**given, force=True)
    return ingest(path, GraphSource(open_store(path)), settings, made={"change": meta.made["change"]})


def _next_number(path: Path) -> int:
    """Larger than that of any file, so that no file is written twice."""
    numbers = [name.stem.rpartition("-")[2] for name in path.iterdir() if "-" in name.stem]
    return max((int(number) for number in numbers if number.isdecimal()), default=0) + 1


def _remove_unknown(path: Path) -> None:
    """Files that the manifest does not name: of an earlier version, or of a writer that was killed."""
    known = {segment.file for segment in load_meta(path).segments}
    for file in path.iterdir():
        if file.suffix in (".bin", ".parquet") and file.name not in known:
            file.unlink()


def _changed(
    path: Path, meta: StoreMeta, changes: Mapping[int, Changes], new: NewNames | None, number: int
) -> StoreMeta:
    store, n_nodes = Store(path, meta), meta.n_nodes + (0 if new is None else new.n_nodes)
    writers = {stem: SegmentWriter(path, stem, first=number) for stem in STEMS}
    nothing = Changes(np.empty(0, np.int64), np.empty(0), np.empty(0, np.int64))
    try:
        layers = []
        for index in range(len(meta.layers)):
            layer = _Layer(store, index, n_nodes, writers)
            layers.append(layer.changed(changes.get(index, nothing)))
    finally:
        for writer in writers.values():
            writer.close()
    if new is not None:
        meta = with_names(path, store, new, number)
    meta = replace(meta, n_nodes=n_nodes, layers=tuple(found.meta for found in layers))
    meta = replace(
        meta, layers=tuple(_with_components(path, meta, at, number, found) for at, found in enumerate(layers))
    )
    return replace(meta, fingerprint=fingerprint(meta))


class _Found(NamedTuple):
    """A layer after its changes; the edges that are new (rows), and whether any is gone."""

    meta: LayerMeta
    linked: tuple[Array, Array]
    cut: bool
    old_components: Array


class _Layer:
    """One layer on its way to its next version."""

    def __init__(self, store: Store, index: int, n_nodes: int, writers: dict[str, SegmentWriter]) -> None:
        self.store, self.meta, self.n_nodes, self.writers = store, store.meta.layers[index], n_nodes, writers
        self.delta = {segment.start: segment for segment in self.meta.delta}
        self.degrees = np.zeros(n_nodes)
        self.degrees[: store.meta.n_nodes] = store.degrees(self.meta)
        self.before: list[Array] = []
        self.after: list[Array] = []

    def changed(self, changes: Changes) -> _Found:
        """Only blocks with changed rows are read; a removed edge that is not there ends it all."""
        blocks, n_old = list(self.meta.blocks), self.store.meta.n_nodes
        if self.n_nodes > n_old:  # rows without entries: what they have is a change
            pointers = np.zeros(self.n_nodes - n_old + 1, np.int64)
            blocks.append(self.writers["delta"].block(n_old, pointers, np.empty(0, np.int32), None))
        heads, tails = changes.keys >> 32, changes.keys & 0xFFFFFFFF
        entries = np.concatenate([(heads << 32) | tails, (tails << 32) | heads])
        entries.sort()
        bounds = np.searchsorted(entries, np.array([b.start for b in blocks] + [self.n_nodes]) << 32)
        for block, begin, end in zip(blocks, bounds[:-1], bounds[1:], strict=True):
            if begin < end:
                self._change_block(block, entries[begin:end], changes, block.start >= n_old)
        return self._found(tuple(blocks), changes)

    def _change_block(self, block: BlockSegment, entries: Array, changes: Changes, fresh: bool) -> None:
        unit, one = self.meta.weight_unit, 1 / self.meta.weight_unit
        if fresh:
            empty = np.empty(0, np.int32)
            base = Rows(np.zeros(block.n_rows + 1, np.int64), empty, None)
        else:
            base = self.store.rows_of(block, self.store.files.read(block))
        keys = base.keys(block.start)
        old = self._old_changes(block)
        made = current_weights(keys, entries, base.weights, one)
        changed = current_weights(old[0], entries, old[1], one)
        stored = np.where(np.isin(entries, old[0], assume_unique=True), changed, made)
        now = stored.astype(np.float64) * unit
        rows, columns = entries >> 32, entries & 0xFFFFFFFF
        edges = (np.minimum(rows, columns) << 32) | np.maximum(rows, columns)
        lost = np.flatnonzero(np.isin(edges, changes.removed) & (now == 0))
        if len(lost):
            raise NoSuchEdge(int(rows[lost[0]]), int(columns[lost[0]]))
        after = (changes.after(edges, now) / unit).astype(np.float32)
        self.before.append(now)
        self.after.append(after.astype(np.float64) * unit)
        found = united(old, (entries, after))
        differs = found[1] != current_weights(keys, found[0], base.weights, one)
        delta = rows_of_keys(found[0][differs], found[1][differs], block.start, block.n_rows)
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

    def _found(self, blocks: tuple[BlockSegment, ...], changes: Changes) -> _Found:
        before, after = (np.concatenate(part or [np.empty(0)]) for part in (self.before, self.after))
        linked = self.degrees[self.degrees > 0]
        present = after[after > 0]
        known = list(self.meta.weights) if self.meta.n_entries else []
        meta = replace(
            self.meta,
            n_entries=self.meta.n_entries + int((after > 0).sum()) - int((before > 0).sum()),
            weights=value_range(np.append(known, present), 1.0),
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
        return _Found(meta, ends, bool(((before > 0) & (after == 0)).any()), components)


def _with_components(path: Path, meta: StoreMeta, index: int, number: int, found: _Found) -> LayerMeta:
    """The layer with its components: joined by new edges, or counted anew where some edge is gone."""
    from spectrograd.kernels.edge_lists import label_roots

    if found.cut:
        component = np.arange(meta.n_nodes, dtype=np.int32)
        store = Store(path, meta)
        for segment, rows in BlockStream(store, meta.layers[index]).rows(meta.layers[index].blocks):
            heads = np.repeat(
                np.arange(segment.start, segment.start + segment.n_rows, dtype=np.int32), np.diff(rows.indptr)
            )
            _join(component, heads, rows.columns.copy())
        n_components = int(label_roots(component))
    else:
        old = found.old_components
        joined = np.arange(int(old.max()) + 1, dtype=np.int32)
        _join(joined, old[found.linked[0]], old[found.linked[1]])
        n_components = int(label_roots(joined))
        component = joined[old]
    written = None
    if n_components > 1:
        writer = SegmentWriter(path, "components", first=number + index)
        written = writer.append([component])
        writer.close()
    largest = int(np.bincount(component).max())
    return replace(found.meta, n_components=n_components, largest_component=largest, components=written)


def _join(parent: Array, heads: Array, tails: Array) -> None:
    """Mutates: parent, a union-find, and both ends."""
    from spectrograd.kernels.edge_lists import count_rows

    counts = np.zeros(len(parent), np.int64)
    count_rows(heads, tails, None, None, counts, np.empty(0), parent)
