"""Kernels that make rows of listed edges, against plain Python."""

from __future__ import annotations

import re

import numpy as np
import pytest

import reference
from spectrograd.kernels import text as scan
from spectrograd.kernels.edge_lists import (
    close_gaps,
    count_rows,
    keep_edges,
    label_roots,
    merge_directions,
    scatter_directions,
    scatter_entries,
    sort_entries,
    spread_labels,
)
from spectrograd.kernels.text import number_words, scan_edges, spread_slots

ROLES = {
    "src": scan.SOURCE,
    "dst": scan.TARGET,
    "weight": scan.WEIGHT,
    None: scan.IGNORED,
    "layer": scan.WORD,
}


def run_scan(text, delimiter, roles):
    capacity = text.count("\n")
    ends, weights = np.zeros((2, capacity), np.int64), np.ones(capacity)
    words = np.zeros((1, 3, capacity), np.int64)
    data = np.frombuffer(text.encode(), np.uint8)
    kinds = np.array([ROLES[role] for role in roles], np.int64)
    n, n_lines, at, problem = scan_edges(data, scan.byte_classes(delimiter), kinds, ends, weights, words)
    return ends[:, :n], weights[:n], words[0, :, :n], n_lines, at, problem


@pytest.mark.parametrize(
    ("text", "delimiter", "roles"),
    [
        ("1,2\n3,4\n", ",", ("src", "dst")),
        ("# a\n1\t2\t0.5\r\n\n  3 \t 4\t1e-3\n%x\n-5\t+6\t12.25E2\n", "\t", ("src", "dst", "weight")),
        ("  1   2 \n3\t 4\r\n", None, ("src", "dst")),
        ("1;x y;9;2;b c \n1;;8;3;b\n", ";", ("src", None, "weight", "dst", "layer")),
        ("9223372036854775807,0,.5\n0,1,5.\n", ",", ("src", "dst", "weight")),
        ("1,2,\n3,4,5\n", ",", ("src", "dst", None)),
    ],
)
def test_scan_edges_reads_what_python_reads(text, delimiter, roles):
    ends, weights, words, n_lines, at, problem = run_scan(text, delimiter, roles)
    expected = reference.scanned(text, delimiter, roles)
    assert (problem, at, n_lines) == (scan.GOOD, len(text), text.count("\n"))
    assert list(zip(*ends.tolist(), strict=True)) == [edge[:2] for edge in expected]
    assert weights.tolist() == [edge[2] for edge in expected]
    if "layer" in roles:
        found = [text.encode()[begin : begin + size].decode() for _, begin, size in words.T.tolist()]
        assert found == [edge[3] for edge in expected]


@pytest.mark.parametrize("shape", ["{!r}", "{:.17e}", "{:.16f}", "{:.3g}"])
@pytest.mark.parametrize("spread", [2, 8, 25])
def test_scan_edges_reads_weights_exactly_or_says_where_they_are(shape, spread):
    values = np.random.default_rng(0).lognormal(-3, spread, 2000).tolist()
    numerals = [shape.format(value) for value in [*values, 2.0**60 + 2**8, 9007199254740993.0, 0.0]]
    text = "".join(f"0,1,{numeral}\n" for numeral in numerals)
    weights = run_scan(text, ",", ("src", "dst", "weight"))[1]
    begins = [match.end() for match in re.finditer("0,1,", text)]
    read = weights >= 0
    np.testing.assert_array_equal(weights, np.where(read, np.array(numerals, float), -1 - np.array(begins)))
    assert np.mean(read) > (0.9 if spread < 10 and shape != "{:.16f}" else 0.4)


def test_scan_edges_rounds_halves_to_even():
    halves = ["9007199254740993", "9007199254740995", "9007199254740993.1", "1.000000000000000111", "0.5"]
    weights = run_scan("".join(f"0,1,{half}\n" for half in halves), ",", ("src", "dst", "weight"))[1]
    assert weights.tolist() == [float(half) for half in halves]


@pytest.mark.parametrize(
    ("line", "problem"),
    [
        ("a,2,1", scan.NOT_INTEGER),
        ("007,2,1", scan.NOT_INTEGER),
        ('"1x",2,1', scan.NOT_INTEGER),
        ("9223372036854775808,2,1", scan.NOT_INTEGER),
        ("1.5,2,1", scan.NOT_INTEGER),
        ("1,2", scan.WRONG_WIDTH),
        ("1,,1", scan.WRONG_WIDTH),
        ("1,2,3,4", scan.WRONG_WIDTH),
        ("1,2,", scan.WRONG_WIDTH),
        ("1 2,3,1", scan.SURPRISE),
        ('"1,2,1', scan.SURPRISE),
        ('1,2,"1""2"', scan.SURPRISE),
        ("1,2,1\r7", scan.SURPRISE),
        ("# a\rb", scan.SURPRISE),
        ("1,2,\x0c", scan.SURPRISE),
    ],
)
def test_scan_edges_stops_at_the_line(line, problem):
    ends, _, _, n_lines, at, found = run_scan(f"5,6,1\n{line}\n7,8,1\n", ",", ("src", "dst", "weight"))
    assert (found, at, n_lines, ends.shape[1]) == (problem, 6, 1, 1)


@pytest.mark.parametrize("weight", ["x", "-1", "nan", "1e999", "1.5.2", "e5", "."])
def test_weights_that_are_none_are_left_to_the_caller(weight):
    _, weights, _, n_lines, _, problem = run_scan(f"5,6,1\n1,2, {weight}\n", ",", ("src", "dst", "weight"))
    assert (weights.tolist(), n_lines, problem) == ([1.0, -1.0 - len("5,6,1\n1,2, ")], 2, scan.GOOD)


@pytest.mark.parametrize("n_slots", [256, 1024])
def test_words_are_numbered_as_they_are_met(n_slots):
    rng = np.random.default_rng(0)
    listed = [f"w{number}" for number in rng.integers(0, 100, 300)]
    text = "\n".join(listed) + "\n"
    data, words = np.frombuffer(text.encode(), np.uint8), np.zeros((1, 3, 300), np.int64)
    scan_edges(
        data, scan.byte_classes(","), np.array([scan.WORD]), np.zeros((2, 300), np.int64), np.zeros(0), words
    )
    words[0, scan.HASH] &= -1 << 36  # the slots of all words collide: only their letters tell them apart
    slots, starts, letters = np.zeros(n_slots, np.uint64), np.zeros(301, np.int64), np.zeros(2000, np.uint8)
    codes = np.empty(300, np.int32)
    half = number_words(data, words[0, :, :150], slots, starts, letters, 0, codes[:150])
    wider = np.zeros(2 * n_slots, np.uint64)
    spread_slots(slots, wider)
    n_known = number_words(data, words[0, :, 150:], wider, starts, letters, half, codes[150:])
    known, expected = reference.numbered_words(listed)
    assert codes.tolist() == expected
    assert letters[: starts[n_known]].tobytes().decode().split("\n")[:-1] == known


@pytest.mark.parametrize("both_ways", [False, True])
@pytest.mark.parametrize("weighted", [False, True])
def test_directions_are_merged_as_by_dense_matrices(both_ways, weighted):
    source, target, weight = (array[:250] for array in listed_edges(3))
    if both_ways:
        source, target = np.concatenate([source, target]), np.concatenate([target, source])
        weight = np.concatenate([weight, weight])
    weights = weight if weighted else None
    starts, sizes = np.empty(61, np.int64), np.empty(60, np.int64)
    keys, values = np.empty(2 * len(source), np.uint32), np.ones(2 * len(source))
    ends = source.astype(np.int32), target.astype(np.int32)
    loops = scatter_directions(*ends, weights, starts, keys, values)
    shares = [(0, 17), (17, 17), (17, 60)]
    facts = np.sum([merge_directions(*share, starts, keys, values, sizes) for share in shares], axis=0)
    close_gaps(starts, sizes, keys, values)
    matrix, expected_loops, expected_facts = reference.both_directions(source, target, weights, 60)
    found = np.zeros((60, 60))
    for r in range(60):
        row = slice(starts[r], starts[r + 1])
        assert (np.diff(keys[row].astype(int)) > 0).all()
        found[r, keys[row]] = values[row]
    np.testing.assert_array_equal(found, matrix)
    assert (values[: starts[-1]] > 0).all()
    assert loops == expected_loops
    assert tuple(facts) == expected_facts
    assert (facts[2] == 0) == both_ways


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
