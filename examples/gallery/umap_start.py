"""The start of UMAP: three clouds, two of them joined by a thread, positioned by certified eigenvectors."""

import matplotlib
import numpy as np

matplotlib.use("Agg")
import matplotlib.pyplot as plt

from spectrograd import umap_init

# 1. Three clouds on curves; a thread of points joins two of them.
rng = np.random.default_rng(0)
angle = 2 * np.pi * rng.random(800)
ring = np.stack([np.cos(angle), np.sin(angle), 0 * angle], axis=1)
bend = np.stack([np.linspace(-1, 1, 800), np.linspace(-1, 1, 800) ** 2, np.ones(800)], axis=1)
blob = 0.3 * rng.normal(size=(800, 3)) + [6, 6, 6]
thread = np.linspace([1, 0, 0], [0, 0, 1], 12)
points = np.concatenate([ring, bend, blob, thread]) + 0.05 * rng.normal(size=(2_412, 3))

# 2. The array that UMAP(init=...) takes.
start = umap_init(points)
print(start.shape, start.dtype)

# 3. The picture.
colours = np.repeat(["tab:blue", "tab:orange", "tab:green", "black"], [800, 800, 800, 12])
figure, axes = plt.subplots(figsize=(4, 3.2))
axes.scatter(*start.T, s=2, c=colours)
axes.set_title("umap_init(points)")
figure.savefig("umap_start.png", dpi=100, bbox_inches="tight")
