"""Speaker diarisation: who spoke when, from embeddings of short windows of speech."""

import warnings

import matplotlib
import numpy as np

matplotlib.use("Agg")
import matplotlib.pyplot as plt

from spectrograd import SpectralClustering, metrics

warnings.simplefilter("ignore")

# 1. Vectors of 10,000 windows of half a second: four speakers take turns.
rng = np.random.default_rng(1)
voices = rng.normal(size=(4, 128))
turns = np.repeat(rng.integers(4, size=500), 20)
windows = voices[turns] + 2.5 * rng.normal(size=(10_000, 128))

# 2. Neighbours by the angle between embeddings; the number of speakers from the eigengap.
model = SpectralClustering("auto", affinity="nearest_neighbors", metric="cosine", random_state=0).fit(windows)
print(model.eigengap_.sentence)
usual = 1 + int(np.argmax(np.diff(model.eigengap_.eigenvalues[:12])))  # the rule of most toolkits
print(
    f"{model.n_clusters_} speakers, the widest gap says {usual}, NMI {metrics.nmi(turns, model.labels_):.2f}"
)

# Clusters have no order: each gets the number of the speaker whom it holds most of.
counts = np.zeros((model.n_clusters_, 4), int)
np.add.at(counts, (model.labels_, turns), 1)
found = counts.argmax(axis=1)[model.labels_]

# 3. The picture: the usual eigengap rule, and the turns found.
figure, (above, below) = plt.subplots(2, 1, figsize=(4, 3.2), height_ratios=(2, 1), layout="constrained")
above.plot(model.eigengap_.eigenvalues[:12], "o-")
above.axvline(model.n_clusters_ - 0.5, color="tab:red")
above.axvline(usual - 0.5, color="tab:gray", ls=":")
above.set_title("gap taken (red), widest gap (dotted)")
below.imshow(np.stack([turns, found])[:, :600], aspect="auto", cmap="tab10", interpolation="nearest")
below.set_yticks([0, 1], ["true", "found"])
below.set_xlabel("window")
figure.savefig("speakers.png", dpi=100, bbox_inches="tight")
