"""Image segmentation: touching cells of a microscope's picture, pixels as a grid graph."""

import matplotlib
import numpy as np
from scipy.ndimage import gaussian_filter

matplotlib.use("Agg")
import matplotlib.pyplot as plt
from sklearn.feature_extraction.image import img_to_graph

from spectrograd import SpectralClustering

# 1. A picture of four touching discs, with noise.
rows, cols = np.indices((90, 110))
image = np.zeros((90, 110))
for row, col, radius in [(26, 30, 16), (40, 52, 14), (60, 33, 15), (30, 79, 17)]:
    image[(rows - row) ** 2 + (cols - col) ** 2 < radius**2] = 1
image += 0.3 * np.random.default_rng(0).normal(size=image.shape)

# 2. Bright pixels are the nodes, the gradient between two neighbours becomes a weight.
smooth = gaussian_filter(image, 1)
bright = smooth > 0.5
graph = img_to_graph(smooth, mask=bright)
graph.data = np.exp(-graph.data / graph.data.std())
graph.setdiag(0)
graph.eliminate_zeros()
labels = SpectralClustering(4, affinity="precomputed", random_state=0).fit_predict(graph.tocsr())
print(f"{len(labels):,} pixels in {labels.max() + 1} cells")
segments = np.full(image.shape, np.nan)
segments[bright] = np.where(labels < 0, np.nan, labels)

# 3. The picture.
figure, (left, right) = plt.subplots(1, 2, figsize=(5, 2.2))
left.imshow(image, cmap="gray")
right.imshow(segments, cmap="tab10", vmax=9)
for axes in (left, right):
    axes.set_axis_off()
figure.savefig("image_segments.png", dpi=100, bbox_inches="tight")
