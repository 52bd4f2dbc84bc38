"""A social graph that grows by the day: labels are kept, drift is plotted, a refit is made when advised.

Twelve people sign up every day. From day 15 on two of the groups see less and less of each other, until they are two.
"""

import sys

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
import numpy as np
import pandas as pd

from spectrograd import Graph, SpectralClustering, datasets, metrics

N_START, PER_DAY, DAYS, APART = 800, 12, 30, 15
N = N_START + PER_DAY * DAYS
rng = np.random.default_rng(0)
data = datasets.make_block_model(N, 4, mean_degree=20, mixing=0.15, random_state=0)
entries = data.graph.matrix.tocoo()
once = entries.row < entries.col
people = rng.permutation(N)  # in the order in which they come
groups = np.empty(N, dtype=int)
groups[people] = data.labels
friends = people[np.column_stack([entries.row[once], entries.col[once]])]

# Groups 0 and 1 begin as one: ties between them, which go one after the other from day 15 on.
both = [np.flatnonzero(groups[:N_START] == group) for group in (0, 1)]
ties = np.unique(np.column_stack([rng.choice(side, 3_000) for side in both]), axis=0)
known = {tuple(sorted(pair)) for pair in friends.tolist()}
ties = rng.permutation([pair for pair in ties.tolist() if tuple(sorted(pair)) not in known])
gone_per_day = len(ties) // (DAYS - APART)

day_of_person = np.maximum(0, (np.arange(N) - N_START) // PER_DAY + 1)
day_of_edge = day_of_person[friends].max(axis=1)
start = np.vstack([friends[day_of_edge == 0], ties])
model = SpectralClustering(3, random_state=0).fit(Graph.from_edges(start[:, 0], start[:, 1], n_nodes=N_START))


def table(pairs):
    return pd.DataFrame({"src": pairs[:, 0], "dst": pairs[:, 1]})


drifts, scores, refits = [], [], []
for day in range(1, DAYS + 1):
    gone = ties[(day - APART) * gone_per_day :][:gone_per_day] if day >= APART else ties[:0]
    model.partial_fit(table(friends[day_of_edge == day]), remove=table(gone) if len(gone) else None)
    drifts.append(model.drift_)
    if model.refit_advised_:
        print(f"day {day}: {model.refit_reason_}")
        refits.append(day)
        model.set_params(n_clusters="auto", warm_start=True).fit(model.graph_)
        print(f"day {day}: {model.n_clusters_} clusters now; {model.label_changes_.sentence}")
    scores.append(metrics.nmi(groups[model.names_], model.labels_))
print(f"{len(model.names_)} people, {model.n_clusters_} clusters, NMI with the four groups {scores[-1]:.2f}")

figure, axes = plt.subplots(figsize=(7, 3))
days = np.arange(1, DAYS + 1)
axes.bar(days, drifts, color="#1f5fbf", label="drift: sine of the angle to the day before")
axes.plot(days, scores, color="#333333", label="NMI with the four groups")
for number, day in enumerate(refits):
    axes.axvline(day, color="#c8553d", linestyle=":", label=None if number else "refit, as advised")
axes.axvspan(APART, DAYS + 0.5, color="#c8553d", alpha=0.06)
axes.set(xlabel="day", ylim=(0, 1.05), xlim=(0.4, DAYS + 0.6))
axes.legend(fontsize=8, frameon=False, loc="center left")
for side in ("top", "right"):
    axes.spines[side].set_visible(False)
figure.tight_layout()
figure.savefig(sys.argv[1] if len(sys.argv) > 1 else "growing_graph.png", dpi=110)
