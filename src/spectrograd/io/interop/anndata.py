"""Annotated matrices of single cells: AnnData, known by their attributes, and their files ``.h5ad``.

anndata itself is imported for files only. Of a file nothing is read but the graph and the names of the cells.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
import scipy.sparse as sp

from spectrograd.graph import Graph, GraphError
from spectrograd.graph.node_names import as_objects
from spectrograd.graph.validation import as_csr
from spectrograd.io.edge_table import name_in_messages
from spectrograd.io.matrices import decoding
from spectrograd.system import check_version, need
from spectrograd.typing import Array

H5AD_SUFFIX = ".h5ad"
CONNECTIVITIES = "connectivities"
MAX_ASYMMETRY = 1e-5  # of the largest weight: rounding of float32
NEIGHBORS = "neighbors"  # scanpy's key in ``uns`` for what it knows of its neighbours


def is_anndata(thing: object) -> bool:
    """Whether a thing has the parts of an AnnData."""
    return not isinstance(thing, type) and all(hasattr(thing, part) for part in ("obsp", "obsm", "obs_names"))


def from_anndata(adata: Any, *, neighbors_key: str | None = None) -> Graph:
    """Make a graph of the neighbours that scanpy has found, ``adata.obsp["connectivities"]``.

    Parameters
    ----------
    adata : anndata.AnnData, or anything with the same attributes
    neighbors_key : str, optional
        Where the neighbours are: a key of ``adata.uns``, as scanpy's ``neighbors_key``, or one of
        ``adata.obsp``.

    Returns
    -------
    Graph
        Cells are called by their ``obs_names``.
    """
    check_version("anndata", "an AnnData")
    uns = getattr(adata, "uns", {})
    key = connectivities_key(adata.obsp, uns, neighbors_key)
    matrix = adata.obsp[key]
    names = as_objects([str(name) for name in adata.obs_names])
    return graph_of_cells(matrix, names, key)


def connectivities_key(obsp: Iterable[str], uns: Mapping[str, object], neighbors_key: str | None) -> str:
    """The key of ``obsp`` with the weights that a key of scanpy stands for.

    Parameters
    ----------
    obsp
        Its keys.
    uns
        What scanpy noted of its neighbours.
    neighbors_key
        A key of ``uns`` or of ``obsp``; None is scanpy's usual one.
    """
    keys = [str(key) for key in obsp]
    if neighbors_key is None:
        key = str(_noted(uns, NEIGHBORS).get("connectivities_key", CONNECTIVITIES))
        if key in keys:
            return key
        there = f" (obsp holds {', '.join(keys)})" if keys else ""
        raise GraphError(
            f"the AnnData has no neighbours yet{there}: call scanpy.pp.neighbors(adata) first, which fills "
            f"adata.obsp[{CONNECTIVITIES!r}], or fit points, such as adata.obsm['X_pca']"
        )
    if neighbors_key in keys:
        return neighbors_key
    noted_key = str(_noted(uns, neighbors_key).get("connectivities_key"))
    if noted_key in keys:
        return noted_key
    raise GraphError(
        f"neighbors_key={neighbors_key!r}: neither uns nor obsp holds such neighbours; "
        f"obsp holds {', '.join(keys) or 'nothing'}"
    )


def _noted(uns: Mapping[str, object], key: str) -> Mapping[str, object]:
    """What ``uns`` holds under a key, where that is a mapping."""
    noted = uns.get(key)
    return noted if isinstance(noted, Mapping) else {}


def graph_of_cells(matrix: object, names: Array, key: str) -> Graph:
    """A graph of a matrix of ``obsp``; distances are refused, which are not symmetric."""
    if len(set(names)) < len(names):
        raise GraphError("names of cells occur twice: call adata.obs_names_make_unique() first")
    weights = as_csr(matrix)  # checks the indices: of a damaged file scipy would transpose any
    if np.isnan(weights.data).any():
        raise GraphError(f"obsp[{key!r}] holds NaN: weights of neighbours are finite numbers")
    if _asymmetry(weights) > MAX_ASYMMETRY * np.abs(weights.data).max(initial=0):
        raise GraphError(
            f"obsp[{key!r}] is not symmetric: distances to neighbours are no weights; "
            f"name the connectivities, such as {CONNECTIVITIES!r}"
        )
    return Graph.from_matrix(weights, names=names)


def _asymmetry(weights: sp.csr_array) -> float:
    """The largest difference between a weight and that of the other direction."""
    transposed = weights.T.tocsr()
    # of a matrix with symmetric entries nothing but the weights need be compared
    alike = np.array_equal(weights.indptr, transposed.indptr) and np.array_equal(
        weights.indices, transposed.indices
    )
    difference = weights.data - transposed.data if alike else (weights - transposed).data
    return float(np.abs(difference).max(initial=0))


def read_h5ad(path: str, key: str | None = None) -> tuple[Any, Array]:
    """Read the connectivities and the names of the cells of a ``.h5ad`` file, and nothing else of it.

    Parameters
    ----------
    path
        The file.
    key
        As ``neighbors_key`` of :func:`from_anndata`.

    Returns
    -------
    (matrix, names)
    """
    h5py = need("h5py", "reading .h5ad")
    read_elem = need("anndata", "reading .h5ad").io.read_elem
    with decoding(path, "no readable .h5ad file"), h5py.File(path) as file:
        if "obsp" not in file or "obs" not in file:
            raise GraphError(f"{path}: holds no cells and neighbours (obs, obsp)")
        noted = {name: _noted_keys(group) for name, group in file.get("uns", {}).items()}
        with name_in_messages(path):
            chosen = connectivities_key(file["obsp"], noted, key)
        names = names_of_cells(file)
        matrix = read_elem(file["obsp"][chosen])
    with name_in_messages(path):
        graph = graph_of_cells(matrix, names, chosen)
    return graph.matrix, names


def names_of_cells(file: Any) -> Array:
    """The ``obs_names`` of an open ``.h5ad`` file."""
    obs = file["obs"]
    index = obs[obs.attrs.get("_index", "_index")]
    read_elem = need("anndata", "reading .h5ad").io.read_elem
    return as_objects([str(name) for name in read_elem(index)])


def _noted_keys(group: Any) -> dict[str, str]:
    """What ``uns`` notes of neighbours: the key of their connectivities, where it is there."""
    if not hasattr(group, "get") or "connectivities_key" not in group:
        return {}
    value = group["connectivities_key"][()]
    return {"connectivities_key": value.decode() if isinstance(value, bytes) else str(value)}
