"""Annotated matrices of single cells (AnnData), told by their attributes: anndata is never imported."""

from __future__ import annotations

from typing import Any

from spectrograd.graph import Graph, GraphError
from spectrograd.graph.node_names import as_objects

CONNECTIVITIES = "connectivities"


def is_anndata(thing: object) -> bool:
    """Whether a thing has the parts of an AnnData."""
    return not isinstance(thing, type) and all(hasattr(thing, part) for part in ("obsp", "obsm", "obs_names"))


def from_anndata(adata: Any) -> Graph:
    """Make a graph of the neighbours that scanpy has found, ``adata.obsp["connectivities"]``.

    Parameters
    ----------
    adata : anndata.AnnData, or anything with the same attributes

    Returns
    -------
    Graph
        Cells are called by their ``obs_names``.
    """
    if CONNECTIVITIES not in adata.obsp:
        there = f" (obsp holds {', '.join(map(str, adata.obsp))})" if len(adata.obsp) else ""
        raise GraphError(
            f"the AnnData has no neighbours yet{there}: call scanpy.pp.neighbors(adata) first, which fills "
            f"adata.obsp[{CONNECTIVITIES!r}], or fit points, such as adata.obsm['X_pca']"
        )
    return Graph.from_matrix(
        adata.obsp[CONNECTIVITIES], names=as_objects([str(name) for name in adata.obs_names])
    )
