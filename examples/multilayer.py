"""Three layers on the same nodes: each alone is ambiguous, together they are not."""

from spectrograd import MultilayerSpectralClustering, SpectralClustering, datasets, metrics

data = datasets.make_multilayer_gmm(2_000, n_layers=3, n_clusters=5, random_state=0)

for name, layer in zip(data.graph.layer_names, data.graph.layers, strict=True):
    labels = SpectralClustering(5, random_state=0).fit_predict(layer)
    print(f"layer {name} alone   NMI {metrics.nmi(data.labels, labels):.2f}")

for aggregation in ("mean", "projection"):
    model = MultilayerSpectralClustering(5, aggregation=aggregation, random_state=0).fit(data.graph)
    scores = metrics.score(data.labels, model.labels_)
    print(f"{aggregation:<15} " + "  ".join(f"{name} {value:.2f}" for name, value in scores.items()))

print("projection distances between the layers:")
print(model.layer_distances_.round(2))
