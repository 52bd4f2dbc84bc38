"""A social graph that grows by the day: labels are kept, drift is shown, a refit is made when advised."""

import numpy as np
import pandas as pd

from spectrograd import Graph, SpectralClustering, datasets, metrics

N_START, DAYS = 800, 10
data = datasets.make_block_model(1_000, 4, mean_degree=20, mixing=0.15, random_state=0)
entries = data.graph.matrix.tocoo()
once = entries.row < entries.col
ends = np.random.default_rng(0).permutation(1_000)[np.column_stack([entries.row[once], entries.col[once]])]
people = np.random.default_rng(0).permutation(1_000)
truth = np.empty(1_000, dtype=int)
truth[people] = data.labels

# The first 800 people are there from the start; twenty sign up every day, with their friends so far.
first_day = np.maximum(0, (np.arange(1_000) - N_START) // 20 + 1)
day_of_edge = first_day[ends].max(axis=1)
start = ends[day_of_edge == 0]
graph = Graph.from_edges(start[:, 0], start[:, 1], n_nodes=N_START)
model = SpectralClustering(4, random_state=0).fit(graph)

drifts = []
for day in range(1, DAYS + 1):
    new = ends[day_of_edge == day]
    model.partial_fit(pd.DataFrame({"src": new[:, 0], "dst": new[:, 1]}))
    drifts.append(model.drift_)
    score = metrics.nmi(truth[model.names_], model.labels_)
    print(f"day {day:2d}  {len(model.names_):4d} people  NMI {score:.2f}  {model.update_sentence_}")
    if model.refit_advised_:
        model.set_params(warm_start=True).fit(model.graph_)
print("drift " + " ".join("#" * round(100 * drift) or "." for drift in drifts))
