"""AnnData and MuData with the real packages: scanpy's own results, names and plots."""

from __future__ import annotations

import warnings

import numpy as np
import pytest

anndata = pytest.importorskip("anndata")
h5py = pytest.importorskip("h5py")
sc = pytest.importorskip("scanpy")

from spectrograd import GraphError, MultilayerGraph, metrics, read_graph  # noqa: E402
from spectrograd import scanpy as sg  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore::FutureWarning", "ignore::UserWarning")


@pytest.fixture(scope="module")
def cells():
    """Three overlapping clouds of 200 cells with two kinds of neighbours."""
    rng = np.random.default_rng(0)
    kinds = np.repeat([0, 1, 2], 200)
    points = rng.normal(size=(600, 8)).astype(np.float32) + 1.2 * kinds[:, None]
    adata = anndata.AnnData(points)
    adata.obs_names = [f"cell{i}" for i in range(600)]
    adata.obs["kind"] = kinds
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        sc.pp.neighbors(adata, n_neighbors=15, use_rep="X")
        sc.pp.neighbors(adata, n_neighbors=30, use_rep="X", key_added="wide")
    return adata


def test_diffusion_map_is_that_of_scanpy(cells):
    theirs = sc.tl.diffmap(cells, n_comps=8, copy=True)
    ours = sg.diffmap(cells, n_comps=8, copy=True)
    np.testing.assert_allclose(ours.uns["diffmap_evals"], theirs.uns["diffmap_evals"], atol=1e-6)
    overlap = np.abs((ours.obsm["X_diffmap"] * theirs.obsm["X_diffmap"]).sum(axis=0))
    assert overlap.min() > 1 - 1e-4
    assert ours.uns["diffmap"]["converged"]
    assert ours.uns["diffmap"]["certificate"].startswith("converged")
    assert "X_diffmap" not in cells.obsm


def test_scanpy_draws_the_results(cells, tmp_path):
    changed = sg.spectral_clustering(cells, 3, copy=True)
    sg.diffmap(changed)
    sg.spectral_embedding(changed, 3)
    for plot in (sc.pl.diffmap, lambda a, **k: sc.pl.embedding(a, "X_spectral", **k)):
        figure = plot(changed, color="spectral", show=False, return_fig=True)
        figure.savefig(tmp_path / "plot.png")
    changed.write_h5ad(tmp_path / "cells.h5ad")
    again = anndata.read_h5ad(tmp_path / "cells.h5ad")
    assert again.uns["spectral"]["converged"]


def test_clusters_are_found_from_one_graph_and_from_layers(cells):
    one = sg.spectral_clustering(cells, 3, copy=True)
    two = sg.spectral_clustering(cells, 3, neighbors_key=["neighbors", "wide"], key_added="both", copy=True)
    for adata, key in ((one, "spectral"), (two, "both")):
        assert metrics.nmi(cells.obs["kind"].to_numpy(), adata.obs[key].astype(int).to_numpy()) > 0.7
        assert adata.uns[key]["certificate"]
        assert adata.obs[key].cat.categories.tolist() == ["0", "1", "2"]
    assert isinstance(sg.read_neighbors(cells, ["neighbors", "wide"]), MultilayerGraph)


def test_modalities_are_layers_even_with_different_cells(cells):
    mudata = pytest.importorskip("mudata")
    both = mudata.MuData({"rna": cells[:500].copy(), "atac": cells[100:].copy()})
    graph = sg.read_neighbors(both)
    assert graph.layer_names == ("rna", "atac")
    assert graph.n_nodes == 600
    sg.spectral_clustering(both, 3)
    assert len(both.obs["spectral"]) == 600
    with pytest.raises(GraphError, match="no modality 'protein'; the MuData has rna, atac"):
        sg.read_neighbors(both, {"protein": "neighbors"})


def test_files_are_read_without_their_data(cells, tmp_path):
    path = tmp_path / "cells.h5ad"
    cells.write_h5ad(path)
    graph = read_graph(path)
    assert graph.node_names[:2].tolist() == ["cell0", "cell1"]
    assert (abs(graph.matrix - cells.obsp["connectivities"])).max() < 1e-6
    assert read_graph(path, key=["neighbors", "wide"]).n_layers == 2
    backed = anndata.read_h5ad(path, backed="r")
    sg.spectral_clustering(backed, 3)
    assert backed.isbacked
    assert len(backed.obs["spectral"]) == 600


def test_errors_say_what_to_call(cells, tmp_path):
    bare = anndata.AnnData(np.zeros((3, 2), np.float32))
    with pytest.raises(GraphError, match=r"call scanpy\.pp\.neighbors"):
        sg.diffmap(bare)
    with pytest.raises(GraphError, match=r"neighbors_key='near': .* obsp holds .*wide_connectivities"):
        sg.spectral_clustering(cells, 3, neighbors_key="near")
    with pytest.raises(GraphError, match="distances to neighbours are no weights"):
        sg.spectral_clustering(cells, 3, neighbors_key="distances")
    with pytest.raises(ValueError, match="greater than 2"):
        sg.diffmap(cells, n_comps=2)
    twice = cells[:100].copy()
    twice.obs_names = ["same"] * 100
    with pytest.raises(GraphError, match="obs_names_make_unique"):
        sg.diffmap(twice)
    with pytest.raises(GraphError, match=r"neighbors_key='near': .* obsp holds .*wide_connectivities"):
        sg.diffmap(cells, neighbors_key="near")
    nan = cells[:100].copy()
    nan.obsp["connectivities"].data[3] = np.nan
    with pytest.raises(GraphError, match=r"obsp\['connectivities'\] holds NaN"):
        sg.diffmap(nan)
    damaged = tmp_path / "damaged.h5ad"
    damaged.write_bytes(b"\x89HDF\r\n\x1a\n" + b"\0" * 100)
    with pytest.raises(GraphError, match=r"no readable \.h5ad file"):
        read_graph(damaged)
    path = tmp_path / "cells.h5ad"
    cells.write_h5ad(path)
    with pytest.raises(GraphError, match=r"cells\.h5ad: .*distances to neighbours"):
        read_graph(path, key="distances")
    with h5py.File(path, "r+") as file:
        file["obsp/connectivities/indices"][7] = 2**24
    with pytest.raises(GraphError, match=r"cells\.h5ad: broken sparse matrix"):
        read_graph(path)
    with h5py.File(path, "r+") as file:
        file["obs/_index"].attrs["encoding-type"] = "unknown"
    with pytest.raises(GraphError, match=r"no readable \.h5ad file"):
        read_graph(path)
