"""Single cells: a diffusion map and clusters from two neighbour graphs, drawn by scanpy."""
# needs: scanpy

import warnings

import anndata
import matplotlib
import numpy as np

matplotlib.use("Agg")
warnings.simplefilter("ignore")
import matplotlib.pyplot as plt  # noqa: E402
import scanpy as sc  # noqa: E402

import spectrograd.scanpy as sg  # noqa: E402

# 1. Cells that develop along a branching path, in 30 principal components.
rng = np.random.default_rng(0)
progress = rng.random(1_500)
branch = rng.integers(2, size=1_500)
path = np.zeros((1_500, 30))
path[:, 0] = 10 * progress
path[:, 1] = np.where(progress > 0.4, (progress - 0.4) * 12 * (2 * branch - 1), 0)
adata = anndata.AnnData((path + 0.6 * rng.normal(size=path.shape)).astype(np.float32))
sc.pp.neighbors(adata, use_rep="X")
sc.pp.neighbors(adata, n_neighbors=40, use_rep="X", key_added="wide")

# 2. The diffusion map, and clusters from both graphs as layers.
sg.diffmap(adata)
sg.spectral_clustering(adata, 4, neighbors_key=["neighbors", "wide"])
print(adata.uns["spectral"]["certificate"])

# 3. scanpy's own plot.
figure, axes = plt.subplots(figsize=(4, 3.2))
sc.pl.diffmap(adata, color="spectral", ax=axes, dimensions=(1, 2), show=False, title="diffusion map")
figure.savefig("single_cell.png", dpi=100, bbox_inches="tight")
