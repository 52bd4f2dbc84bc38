"""Cluster points through their neighbours, then a graph given as a matrix."""

from sklearn.datasets import make_moons

from spectrograd import SpectralClustering, SpectralEmbedding, datasets, metrics

points, truth = make_moons(600, noise=0.05, random_state=0)
model = SpectralClustering(n_clusters=2, n_neighbors=10, random_state=0).fit(points)
print(f"two moons      NMI {metrics.nmi(truth, model.labels_):.2f}")
print(f"               {model.certificate_.sentence}")

data = datasets.make_block_model(3_000, 4, random_state=0)
matrix = data.graph.matrix  # any scipy sparse adjacency matrix will do
model = SpectralClustering(n_clusters=4, affinity="precomputed", random_state=0).fit(matrix)
print(f"block model    NMI {metrics.nmi(data.labels, model.labels_):.2f}")
print(f"               {model.solver_}: {model.solver_reason_}")

embedding = SpectralEmbedding(n_components=3, affinity="precomputed", random_state=0)
print(
    f"embedding      {embedding.fit_transform(matrix).shape}, eigenvalues {embedding.eigenvalues_.round(3)}"
)
