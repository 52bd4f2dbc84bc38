"""Clusters of every layer by itself, named as those of the merge, and how far layers agree on a node."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from spectrograd.labels import assign
from spectrograd.labels.assign import EXCLUDED
from spectrograd.labels.matching import align_labels
from spectrograd.typing import Array


def cluster_layers(
    embeddings: Sequence[Array], labels: Array, n_clusters: int, seed: int | None = None
) -> Array:
    """One row of clusters per layer, renamed so that as many nodes as possible keep the merged label.

    Parameters
    ----------
    embeddings : sequence of arrays, each of shape (n_nodes, k_s)
        The layers' own; rows of nodes that a layer does not link are zero.
    labels : array of int, shape (n_nodes,)
        Of the merge; -1 for excluded nodes.
    n_clusters : int
        Clusters sought in each layer, fewer where it has fewer columns.
    seed : int, optional
        Of k-means.

    Returns
    -------
    array of int, shape (n_layers, n_nodes)
        -1 where a layer does not link a node.
    """
    found = np.full((len(embeddings), len(labels)), EXCLUDED, dtype=np.int64)
    for own, vectors in zip(found, embeddings, strict=True):
        linked = np.flatnonzero(np.any(vectors != 0, axis=1) & (labels >= 0))
        k = min(n_clusters, vectors.shape[1], len(linked))
        if k == 0:
            continue
        part = assign(vectors[linked], k, unit_rows=True, random_state=seed).labels
        own[linked] = align_labels(labels[linked], part)[0]
    return found


def layer_agreement(layer_labels: Array, labels: Array) -> Array:
    """Per node, the share of the layers that link it which put it into its merged cluster.

    Parameters
    ----------
    layer_labels : array of int, shape (n_layers, n_nodes)
        As of :func:`cluster_layers`.
    labels : array of int, shape (n_nodes,)
        Of the merge.

    Returns
    -------
    array of shape (n_nodes,)
        From 0 to 1; NaN where no layer links a node, or it is in no cluster.

    Examples
    --------
    >>> layer_agreement(np.array([[0, 0, -1], [0, 1, -1]]), np.array([0, 0, 1])).tolist()
    [1.0, 0.5, nan]
    """
    links = (layer_labels >= 0) & (labels >= 0)
    agreeing = (links & (layer_labels == labels)).sum(axis=0)
    n_links = links.sum(axis=0)
    share = np.divide(agreeing, n_links, out=np.full(len(labels), np.nan), where=n_links > 0)
    return np.asarray(share)
