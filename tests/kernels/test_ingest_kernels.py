"""Kernels that make rows of listed edges, against plain Python."""

from __future__ import annotations

import numpy as np
import pytest

import reference
from spectrograd.kernels.ingest import scan
from spectrograd.kernels.ingest.rows import (
    count_rows,
    keep_edges,
    label_roots,
    scatter_entries,
    sort_entries,
    spread_labels,
)
from spectrograd.kernels.ingest.scan import scan_edges

ROLES = {
    "src": scan.SOURCE,
    "dst": scan.TARGET,
    "weight": scan.WEIGHT,
    "layer": scan.LAYER,
    None: scan.IGNORED,
}


def run_scan(text, delimiter, roles):
    capacity = text.count("\n")
    ends, weights = np.zeros((2, capacity), np.int64), np.ones(capacity)
    layers = np.zeros((3, capacity), np.int64)
    data = np.frombuffer(text.encode(), np.uint8)
    kinds = np.array([ROLES[role] for role in roles], np.int64)
    mark = ord(delimiter) if delimiter else 0
    n, n_lines, at, problem = scan_edges(data, mark, kinds, ends, weights, layers)
    return ends[:, :n], weights[:n], layers[:, :n], n_lines, at, problem


@pytest.mark.parametrize(
    ("text", "delimiter", "roles"),
    [
        ("1,2\n3,4\n", ",", ("src", "dst")),
        ("# a\n1\t2\t0.5\r\n\n  3 \t 4\t1e-3\n%x\n-5\t+6\t12.25E2\n", "\t", ("src", "dst", "weight")),
        ("  1   2 \n3\t 4\n", None, ("src", "dst")),
        ("1;x y;9;2;b c \n1;;8;3;b\n", ";", ("src", None, "weight", "dst", "layer")),
        ("9223372036854775807,0,.5\n0,1,5.\n", ",", ("src", "dst", "weight")),
    ],
)
def test_scan_edges_reads_what_python_reads(text, delimiter, roles):
    ends, weights, layers, n_lines, at, problem = run_scan(text, delimiter, roles)
    expected = reference.scanned(text, delimiter, roles)
    assert (problem, at, n_lines) == (scan.GOOD, len(text), text.count("\n"))
    assert list(zip(*ends.tolist(), strict=True)) == [edge[:2] for edge in expected]
    np.testing.assert_allclose(weights, [edge[2] for edge in expected], rtol=1e-15)
    if "layer" in roles:
        found = [text.encode()[begin : begin + size].decode() for _, begin, size in layers.T.tolist()]
        assert found == [edge[3] for edge in expected]


def test_scan_edges_reads_weights_to_the_last_digit():
    values = np.random.default_rng(0).lognormal(0, 20, 2000)
    text = "".join(f"0,1,{value!r}\n" for value in values.tolist())
    weights = run_scan(text, ",", ("src", "dst", "weight"))[1]
    np.testing.assert_allclose(weights, values, rtol=4e-16)
    assert np.mean(weights.astype(np.float32) == values.astype(np.float32)) > 0.999


@pytest.mark.parametrize(
    ("line", "problem"),
    [
        ("a,2,1", scan.NOT_INTEGER),
        ("007,2,1", scan.NOT_INTEGER),
        ('"1",2,1', scan.NOT_INTEGER),
        ("9223372036854775808,2,1", scan.NOT_INTEGER),
        ("1.5,2,1", scan.NOT_INTEGER),
        ("1,2", scan.WRONG_WIDTH),
        ("1,2,3,4", scan.WRONG_WIDTH),
        ("1,2,", scan.WRONG_WIDTH),
        ("1,2,x", scan.NOT_WEIGHT),
        ("1,2,-1", scan.NOT_WEIGHT),
        ("1,2,nan", scan.NOT_WEIGHT),
        ("1,2,1e999", scan.NOT_WEIGHT),
    ],
)
def test_scan_edges_stops_at_the_line(line, problem):
    ends, _, _, n_lines, at, found = run_scan(f"5,6,1\n{line}\n7,8,1\n", ",", ("src", "dst", "weight"))
    assert (found, at, n_lines, ends.shape[1]) == (problem, 6, 1, 1)


def listed_edges(seed, n_nodes=60, n_edges=400):
    rng = np.random.default_rng(seed)
    source, target = rng.integers(0, n_nodes, (2, n_edges))
    return source, target, rng.integers(0, 4, n_edges) / 2.0


@pytest.mark.parametrize("both_ways", [False, True])
@pytest.mark.parametrize("weighted", [False, True])
def test_keep_edges_counts_and_knows_lists_of_both_directions(both_ways, weighted):
    source, target, weight = listed_edges(1)
    if both_ways:
        source, target = np.concatenate([source, target]), np.concatenate([target, source])
        weight = np.concatenate([weight, weight])
    counts, kept = np.zeros(60, np.int32), np.zeros((2, len(source)), np.int32)
    n_kept, imbalance = keep_edges(source, target, weight.view(np.uint64) if weighted else None, counts, kept)
    no_loop = source != target
    assert n_kept == no_loop.sum()
    np.testing.assert_array_equal(kept[:, :n_kept], np.stack([source, target])[:, no_loop])
    np.testing.assert_array_equal(counts, np.bincount(np.concatenate([source, target]), minlength=60))
    assert (imbalance == 0) == both_ways


def test_count_rows_and_label_roots():
    source, target, _ = listed_edges(2, n_nodes=80, n_edges=60)
    row_of = np.random.default_rng(0).permutation(80).astype(np.int32)
    heads, tails, weight = source.astype(np.int32), target.astype(np.int32), np.linspace(1, 2, 60)
    counts, sums, parent = np.zeros(80, np.int64), np.zeros(80), np.arange(80, dtype=np.int32)
    count_rows(heads, tails, weight, row_of, counts, sums, parent)
    np.testing.assert_array_equal(heads, row_of[source])
    ends = np.concatenate([heads, tails])
    np.testing.assert_array_equal(counts, np.bincount(ends, minlength=80))
    np.testing.assert_allclose(sums, np.bincount(ends, np.tile(weight, 2), minlength=80))
    n_components = label_roots(parent)
    expected = reference.component_numbers(heads, tails, 80)
    np.testing.assert_array_equal(parent, expected)
    assert n_components == expected.max() + 1 > 1


@pytest.mark.parametrize("rule", ["sum", "max", "first"])
@pytest.mark.parametrize("weighted", [False, True])
def test_scatter_and_sort_give_the_rows(rule, weighted):
    source, target, weight = listed_edges(3, n_edges=3000)
    apart = source != target
    heads, tails = source[apart].astype(np.int32), target[apart].astype(np.int32)
    weight = weight[apart] if weighted else None
    bounds = np.array([0, 7, 8, 30, 60])
    bucket_of = np.repeat(np.arange(4, dtype=np.uint16), np.diff(bounds))
    keys, ends = np.empty(2 * len(heads), np.int64), np.zeros(4, np.int64)
    values = np.empty(2 * len(heads)) if weighted else None
    scatter_entries(heads, tails, weight, bucket_of, ends, keys, values)
    assert ends[-1] == len(keys)
    listed = np.ones(len(heads)) if weight is None else weight
    expected, found, begin = reference.rows_of_list(heads, tails, listed, 60, rule), {}, 0
    for bucket, end in enumerate(ends.tolist()):
        first, last = bounds[bucket], bounds[bucket + 1]
        indptr = np.empty(last - first + 1, np.int64)
        columns, out = np.empty(end - begin, np.int32), np.empty(end - begin)
        own = None if values is None else values[begin:end]
        code = ("sum", "max", "first").index(rule)
        n = sort_entries(keys[begin:end], own, np.int64(first), indptr, columns, out, code, 1.0)
        assert indptr[-1] == n
        for r in range(last - first):
            row = columns[indptr[r] : indptr[r + 1]]
            assert np.all(np.diff(row) > 0)
            found |= {
                (first + r, j): w for j, w in zip(row.tolist(), out[indptr[r] :].tolist(), strict=False)
            }
        begin = end
    assert found == expected


def test_spread_labels_keeps_groups_together_and_small():
    """Rings of cliques: every clique ends under one label, and no label is larger than allowed."""
    graph = reference.random_graph(40, np.random.default_rng(0), weighted=False)
    blocks = np.kron(np.eye(10), np.ones((8, 8))) - np.eye(80)
    from spectrograd import Graph

    for made, most, together in ((Graph.from_matrix(blocks), 8, True), (graph, 3, False)):
        (block,) = made.blocks
        n = made.n_nodes
        labels, sizes = np.arange(n, dtype=np.int32), np.ones(n, np.int32)
        votes, touched = np.zeros(n, np.int32), np.empty(n, np.int32)
        for _ in range(3):
            spread_labels(0, block.indptr, block.indices, labels, sizes, most, votes, touched)
        counts = np.bincount(labels, minlength=n)
        np.testing.assert_array_equal(counts, sizes)
        assert counts.max() <= most
        assert not votes.any()
        if together:
            assert all(len(np.unique(labels[8 * c : 8 * c + 8])) < 4 for c in range(10))
