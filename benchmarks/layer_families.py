"""Families of made layers with known classes: each draws another set for every seed.

Unlike the sets of :mod:`benchmarks.layer_weights` these look like what people merge: graphs of co-authors and
subjects, k-NN graphs of views and texts, relations that few nodes have, layers of unequal density.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np
import scipy.sparse as sp

from benchmarks.layer_weights import without_nodes
from spectrograd.points.knn_graph import knn_graph
from spectrograd.typing import Array

Draw = Callable[[np.random.Generator], tuple[list[sp.csr_array], Array]]
N_FEATURES = 10
N_WORDS = 1_500


def _classes(n: int, k: int, rng: np.random.Generator, *, even: bool = True) -> Array:
    """Classes of n nodes; uneven ones have at least two fifths of a fair share."""
    shares = np.ones(k) / k if even else np.maximum(rng.dirichlet(np.full(k, 3.0)), 0.4 / k)
    return np.sort(rng.choice(k, n, p=shares / shares.sum()))


def _graph(rows: Array, cols: Array, n: int) -> sp.csr_array:
    """The unweighted graph of these pairs."""
    apart = rows != cols
    half = sp.coo_array((np.ones(apart.sum()), (rows[apart], cols[apart])), shape=(n, n)).tocsr()
    return sp.csr_array(((half + half.T) > 0).astype(float))


def _blocks(
    classes: Array, degree: float, mixing: float, rng: np.random.Generator, exponent: float | None = None
) -> sp.csr_array:
    """Edges, a share ``mixing`` of them between any two nodes, the rest inside a class."""
    n = len(classes)
    weights = np.ones(n) if exponent is None else (1 - rng.random(n)) ** (-1 / (exponent - 1))
    weights = np.minimum(weights, np.sqrt(weights.sum()))
    weights /= weights.sum()
    one, other = rng.choice(n, (2, int(n * degree / 2)), p=weights)
    inside = rng.random(len(one)) >= mixing
    for c in range(classes.max() + 1):
        members = np.flatnonzero(classes == c)
        at = np.flatnonzero(inside & (classes[one] == c))
        other[at] = rng.choice(members, len(at), p=weights[members] / weights[members].sum())
    return _graph(one, other, n)


def _groups(
    classes: Array, per_node: float, size: float, purity: float, rng: np.random.Generator
) -> sp.csr_array:
    """Cliques of about that size, of members of one class but for the share that is not pure."""
    n = len(classes)
    members = [np.flatnonzero(classes == c) for c in range(classes.max() + 1)]
    rows = []
    cols = []
    for _ in range(int(n * per_node / size)):
        count = max(2, rng.poisson(size))
        own = rng.choice(members[classes[rng.integers(n)]], count)
        group = np.unique(np.where(rng.random(count) < purity, own, rng.integers(n, size=count)))
        one, other = np.triu_indices(len(group), 1)
        rows.append(group[one])
        cols.append(group[other])
    return _graph(np.concatenate(rows), np.concatenate(cols), n)


def _subjects(classes: Array, n_subjects: int, purity: float, rng: np.random.Generator) -> sp.csr_array:
    """Each node has one of some subjects of very unequal size: disjoint cliques."""
    weights = rng.pareto(1.0, n_subjects) + 0.1
    of_class = np.arange(n_subjects) % (classes.max() + 1)
    subject = np.empty(len(classes), np.int64)
    for i, c in enumerate(classes):
        among = np.flatnonzero(of_class == c) if rng.random() < purity else np.arange(n_subjects)
        subject[i] = rng.choice(among, p=weights[among] / weights[among].sum())
    one, other = np.nonzero(subject[:, None] == subject)
    return _graph(one, other, len(classes))


def _view(classes: Array, separation: float, rng: np.random.Generator) -> sp.csr_array:
    """The k-NN graph of a Gaussian mixture."""
    centres = rng.standard_normal((classes.max() + 1, N_FEATURES)) * separation / np.sqrt(2)
    return knn_graph(centres[classes] + rng.standard_normal((len(classes), N_FEATURES)), 10).matrix


def _text(classes: Array, length: float, focus: float, rng: np.random.Generator) -> sp.csr_array:
    """The k-NN graph (tf-idf, cosine) of texts whose words are of their topic by a share ``focus``."""
    base = rng.dirichlet(np.full(N_WORDS, 0.1))
    topics = rng.dirichlet(np.full(N_WORDS, 0.05), classes.max() + 1)
    counts = np.stack(
        [rng.multinomial(rng.poisson(length) + 5, focus * topics[c] + (1 - focus) * base) for c in classes]
    )
    rows = counts * np.log(len(classes) / np.maximum(1, (counts > 0).sum(axis=0)))
    rows /= np.maximum(np.linalg.norm(rows, axis=1, keepdims=True), 1e-12)
    return knn_graph(rows, 10).matrix


def _coarser(classes: Array, n_parts: int, rng: np.random.Generator) -> Array:
    """Classes of which some look alike."""
    k = classes.max() + 1
    part = rng.integers(n_parts, size=k)
    part[rng.permutation(k)[:n_parts]] = np.arange(n_parts)
    return np.asarray(part[classes])


def _drawn(
    n: int, k: Sequence[int], layers: Callable[[Array, np.random.Generator], list[sp.csr_array]]
) -> Draw:
    """A family of even classes."""

    def draw(rng: np.random.Generator) -> tuple[list[sp.csr_array], Array]:
        classes = _classes(n, int(rng.integers(*k)), rng)
        return layers(classes, rng), classes

    return draw


def _uneven(
    n: int, k: Sequence[int], layers: Callable[[Array, np.random.Generator], list[sp.csr_array]]
) -> Draw:
    """A family of uneven classes."""

    def draw(rng: np.random.Generator) -> tuple[list[sp.csr_array], Array]:
        classes = _classes(n, int(rng.integers(*k)), rng, even=False)
        return layers(classes, rng), classes

    return draw


FAMILIES: Mapping[str, Draw] = {
    "dense random layer": _drawn(
        1_200, (3, 7), lambda y, r: [_blocks(y, 8, 0.25, r), _blocks(y, 120, r.uniform(0.93, 1), r)]
    ),
    "dense layer of others": _drawn(
        1_200,
        (3, 7),
        lambda y, r: [_blocks(y, 10, 0.25, r), _blocks(y, 10, 0.4, r), _blocks(r.permutation(y), 60, 0.6, r)],
    ),
    "authors, subjects": _uneven(
        1_500, (3, 4), lambda y, r: [_groups(y, 1.2, 4, 0.8, r), _subjects(y, 25, 0.7, r)]
    ),
    "authors, venues, terms": _uneven(
        1_500,
        (3, 6),
        lambda y, r: [_groups(y, 1.5, 4, 0.85, r), _groups(y, 2, 60, 0.5, r), _groups(y, 4, 40, 0.25, r)],
    ),
    "pieces and a view": _drawn(1_500, (3, 8), lambda y, r: [_groups(y, 0.8, 3, 0.9, r), _view(y, 2.2, r)]),
    "unequal density": _uneven(
        1_200, (4, 8), lambda y, r: [_blocks(y, 4, 0.35, r), _blocks(y, 15, 0.6, r), _blocks(y, 100, 0.85, r)]
    ),
    "views of unequal noise": _drawn(
        1_000, (4, 11), lambda y, r: [_view(y, 2.0, r), _view(y, 1.2, r), _view(y, 0.6, r)]
    ),
    "views that confuse classes": _drawn(
        1_000, (6, 10), lambda y, r: [_view(_coarser(y, (y.max() + 1) // 2 + 1, r), 2.4, r) for _ in range(3)]
    ),
    "texts": _uneven(
        400, (4, 8), lambda y, r: [_text(y, 60, 0.12, r), _text(y, 40, 0.1, r), _text(y, 50, 0.06, r)]
    ),
    "text and links": _uneven(600, (2, 6), lambda y, r: [_text(y, 60, 0.1, r), _groups(y, 2, 4, 0.5, r)]),
    "hubs": _uneven(
        1_500,
        (3, 8),
        lambda y, r: [
            _blocks(y, 10, 0.45, r, 2.3),
            _blocks(y, 20, 0.6, r, 2.5),
            _blocks(y, 6, 0.9, r, 2.3),
        ],
    ),
    "relations of few": _uneven(
        1_200,
        (5, 6),
        lambda y, r: [
            without_nodes(_blocks(y, 12, r.uniform(0.2, 0.9), r), r.uniform(0.4, 0.9), r) for _ in range(10)
        ],
    ),
    "layers that complete": _drawn(
        1_200,
        (5, 8),
        lambda y, r: [_blocks(_coarser(y, (y.max() + 1) // 2, r), 14, 0.35, r) for _ in range(3)],
    ),
    "weak alike": _drawn(1_200, (3, 6), lambda y, r: [_blocks(y, 12, 0.62, r) for _ in range(4)]),
    # Points that hardly know the classes: their neighbours are clustered wherever one cuts.
    "network beside points": _drawn(
        1_200,
        (3, 8),
        lambda y, r: [_blocks(y, 10, r.uniform(0.3, 0.5), r), _view(y, r.uniform(0.2, 1.2), r)],
    ),
}


def draw(name: str, seed: int) -> tuple[dict[str, sp.csr_array], Array]:
    """Layers and classes of one set, without nodes that no layer links."""
    at = list(FAMILIES).index(name)
    layers, classes = FAMILIES[name](np.random.default_rng([at, seed]))
    linked = np.flatnonzero(sum(np.asarray(layer.sum(axis=1)).ravel() for layer in layers))
    named = {str(number): sp.csr_array(layer[linked][:, linked]) for number, layer in enumerate(layers)}
    return named, classes[linked]
