"""Diffusion maps, embeddings and clusters of AnnData and MuData, written where scanpy would write them.

Each function takes the neighbour graph that ``scanpy.pp.neighbors`` has left in ``obsp``, and writes into
``obs``, ``obsm`` and ``uns`` under scanpy's names, so that ``sc.pl.diffmap``, ``sc.pl.embedding`` and
``sc.pl.umap`` draw the results. Several neighbour graphs, or the modalities of a MuData, are layers.
``X`` is never touched: files opened with ``backed="r"`` stay on disk.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import scipy.sparse as sp

from spectrograd.estimators import (
    MultilayerSpectralClustering,
    MultilayerSpectralEmbedding,
    SpectralClustering,
    SpectralEmbedding,
)
from spectrograd.graph import Graph, GraphError, MultilayerGraph
from spectrograd.io.interop.anndata import from_anndata
from spectrograd.notices import warn
from spectrograd.pipeline.eigenpairs import smallest_eigenpairs
from spectrograd.system import check_version, need
from spectrograd.typing import Array

DIFFMAP_TOL = 1e-6  # residual: spans agree with those of scanpy to a sine far below 1e-3
MIN_DIFFMAP_COMPONENTS = 3  # scanpy refuses fewer
Keys = str | Sequence[str] | Mapping[str, str] | None


def diffmap(
    adata: Any,
    n_comps: int = 15,
    *,
    neighbors_key: str | None = None,
    random_state: int | None = 0,
    density_normalize: bool = True,
    copy: bool = False,
) -> Any:
    """Compute a diffusion map, with scanpy's density normalisation and its names.

    Parameters
    ----------
    adata : anndata.AnnData
        With neighbours.
    n_comps : int
        Number of components, the trivial one included.
    neighbors_key : str, optional
        As for ``scanpy.tl.diffmap``.
    random_state : int or None
        Seed of the solver's start.
    density_normalize : bool
        Divide the weight of each edge by the degrees of its ends (Coifman and Lafon 2006, alpha = 1).
    copy : bool
        Return a changed copy instead of changing ``adata``.

    Returns
    -------
    None, or the copy
        ``obsm["X_diffmap"]``, ``uns["diffmap_evals"]`` as scanpy's, and ``uns["diffmap"]`` with parameters,
        certificate, and whether the vectors converged.
    """
    if n_comps < MIN_DIFFMAP_COMPONENTS:
        raise ValueError(f"n_comps={n_comps}: provide any value greater than {MIN_DIFFMAP_COMPONENTS - 1}")
    graph = from_anndata(adata, neighbors_key=neighbors_key)
    adata = adata.copy() if copy else adata
    # 1. Density normalisation: Q^-1 W Q^-1 with the degrees Q (Coifman & Lafon 2006).
    if density_normalize:
        graph = Graph.from_matrix(_normalize_density(graph))
    # 2. The largest eigenvalues of Z^-1/2 K Z^-1/2 are one minus the smallest of its normalised Laplacian.
    pairs = smallest_eigenpairs(graph, n_comps, kind="symmetric", tol=DIFFMAP_TOL, seed=random_state)
    if not pairs.converged:
        largest = float(pairs.residuals.max())
        warn(f"the diffusion map did not converge: largest residual {largest:.2g}", RuntimeWarning)
    adata.obsm["X_diffmap"] = pairs.vectors.astype(np.float32)
    adata.uns["diffmap_evals"] = (1 - pairs.values).astype(np.float32)
    adata.uns["diffmap"] = {
        "params": {"neighbors_key": neighbors_key or "neighbors", "density_normalize": density_normalize},
        "certificate": pairs.certificate,
        "converged": pairs.converged,
        "residuals": pairs.residuals,
        "same_eigenvalue": [list(group) for group in pairs.groups if len(group) > 1] or "none",
    }
    return adata if copy else None


def _normalize_density(graph: Graph) -> sp.csr_array:
    weights = graph.matrix
    scale = 1 / np.where(graph.degrees > 0, graph.degrees, 1.0)
    rows = np.repeat(np.arange(graph.n_nodes), np.diff(weights.indptr))
    # the product of both scales first: the same bits in both directions of an edge
    data = weights.data * (scale[rows] * scale[weights.indices])
    return sp.csr_array((data, weights.indices, weights.indptr), shape=weights.shape)


def spectral_clustering(
    adata: Any,
    n_clusters: int | str = 8,
    *,
    neighbors_key: Keys = None,
    key_added: str = "spectral",
    random_state: int | None = 0,
    copy: bool = False,
    **params: Any,
) -> Any:
    """Cluster the cells by their neighbour graph; several graphs, or modalities, are layers.

    Parameters
    ----------
    adata : anndata.AnnData or mudata.MuData
        With neighbours; of a MuData, in its modalities.
    n_clusters : int or "auto"
        Number of clusters.
    neighbors_key : str, list of str, or dict of modality to str, optional
        Which neighbours; several are layers.
    key_added : str
        Column of ``obs`` for the clusters, a categorical; ``uns[key_added]`` takes parameters, certificate
        and verdict.
    random_state : int or None
        Seed.
    copy : bool
        Return a changed copy instead of changing ``adata``.
    **params
        Parameters of :class:`SpectralClustering`, or of :class:`MultilayerSpectralClustering`.

    Returns
    -------
    None, or the copy
    """
    graph = read_neighbors(adata, neighbors_key)
    estimator = MultilayerSpectralClustering if isinstance(graph, MultilayerGraph) else SpectralClustering
    model = estimator(n_clusters, random_state=random_state, **params).fit(graph)
    adata = adata.copy() if copy else adata
    pandas = need("pandas", "categories of cells")
    labels = [str(label) if label >= 0 else None for label in model.labels_]
    names = sorted({label for label in labels if label is not None}, key=int)
    clusters = pandas.Categorical(labels, categories=names)
    adata.obs[key_added] = pandas.Series(clusters, index=graph.input_names).reindex(adata.obs_names).array
    adata.uns[key_added] = _facts(model, neighbors_key) | {
        "n_clusters": int(model.n_clusters_),
        "cluster_verdict": "" if model.cluster_verdict_ is None else model.cluster_verdict_.sentence,
    }
    return adata if copy else None


def spectral_embedding(
    adata: Any,
    n_comps: int = 15,
    *,
    neighbors_key: Keys = None,
    key_added: str = "X_spectral",
    random_state: int | None = 0,
    copy: bool = False,
    **params: Any,
) -> Any:
    """Embed the cells by the eigenvectors of their neighbour graph, the trivial one left out.

    Parameters
    ----------
    adata, neighbors_key, random_state, copy
        As for :func:`spectral_clustering`.
    n_comps : int
        Number of columns.
    key_added : str
        Key of ``obsm``; ``uns[key_added]`` takes parameters, eigenvalues and certificate.
    **params
        Parameters of :class:`SpectralEmbedding`, or of :class:`MultilayerSpectralEmbedding`.

    Returns
    -------
    None, or the copy
    """
    graph = read_neighbors(adata, neighbors_key)
    estimator = MultilayerSpectralEmbedding if isinstance(graph, MultilayerGraph) else SpectralEmbedding
    model = estimator(n_comps, random_state=random_state, **params).fit(graph)
    adata = adata.copy() if copy else adata
    rows = _rows_of(graph.input_names, adata.obs_names)
    adata.obsm[key_added] = np.asarray(model.embedding_[rows], np.float32)
    adata.uns[key_added] = _facts(model, neighbors_key) | {"eigenvalues": np.asarray(model.eigenvalues_)}
    return adata if copy else None


def read_neighbors(adata: object, neighbors_key: Keys = None) -> Graph | MultilayerGraph:
    """Read the neighbour graphs of an AnnData or MuData; several become layers, matched by cell name.

    Parameters
    ----------
    adata : anndata.AnnData or mudata.MuData
    neighbors_key : str, list of str, or dict of modality to str, optional
        A key of ``uns`` (as scanpy's ``neighbors_key``) or of ``obsp``.

    Returns
    -------
    Graph or MultilayerGraph
    """
    modalities = getattr(adata, "mod", None)
    if modalities is not None:
        check_version("mudata", "a MuData")
        keys = _key_by_modality(modalities, neighbors_key)
        unknown = [name for name in keys if name not in modalities]
        if unknown:
            raise GraphError(f"no modality {unknown[0]!r}; the MuData has {', '.join(modalities)}")
        layers = {name: from_anndata(modalities[name], neighbors_key=key) for name, key in keys.items()}
        return MultilayerGraph.from_layers(layers) if len(layers) > 1 else next(iter(layers.values()))
    if neighbors_key is None or isinstance(neighbors_key, str):
        return from_anndata(adata, neighbors_key=neighbors_key)
    if isinstance(neighbors_key, Mapping):
        raise GraphError("a dict of neighbors_key is for the modalities of a MuData; give a list of keys")
    layers = {key: from_anndata(adata, neighbors_key=key) for key in neighbors_key}
    return MultilayerGraph.from_layers(layers) if len(layers) > 1 else next(iter(layers.values()))


def _key_by_modality(modalities: Mapping[str, object], neighbors_key: Keys) -> Mapping[str, str | None]:
    if isinstance(neighbors_key, Mapping):
        return neighbors_key
    if neighbors_key is None or isinstance(neighbors_key, str):
        return dict.fromkeys(modalities, neighbors_key)
    raise GraphError("neighbors_key of a MuData: one key for all modalities, or a dict of modality to key")


def _rows_of(names: Array, wanted: Any) -> Array:
    """Row numbers of cells by name: layers with different cells are sorted by name."""
    row_of = {str(name): row for row, name in enumerate(names)}
    return np.array([row_of[str(name)] for name in wanted], np.int64)


def _facts(model: Any, neighbors_key: Keys) -> dict[str, object]:
    """Parameters and certificate, in types that .h5ad files hold."""
    keys = neighbors_key if isinstance(neighbors_key, str) else list(neighbors_key or ["neighbors"])
    return {
        "params": {"neighbors_key": keys, "solver": str(model.solver_)},
        "certificate": model.certificate_.sentence,
        "converged": bool(model.converged_),
    }
