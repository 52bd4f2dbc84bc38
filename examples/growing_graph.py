"""A social graph that grows by the day: labels are kept, drift is plotted, a refit is made when advised."""

import sys

import matplotlib.pyplot as plt
import pandas as pd

from spectrograd import SpectralClustering, datasets, metrics

# Twelve people sign up every day; from day 15 on two of the groups see less and less of each other.
growing = datasets.make_growing_graph(800, 30, apart_from=15, random_state=0)
model = SpectralClustering(3, random_state=0).fit(growing.first)

drifts, scores, refits = [], [], []
for day, change in enumerate(growing.days, start=1):
    added, removed = (pd.DataFrame(edges, columns=["src", "dst"]) for edges in (change.added, change.removed))
    model.partial_fit(added, remove=removed if len(removed) else None)
    drifts.append(model.drift_)
    if model.refit_advised_:
        print(f"day {day}: {model.refit_reason_}")
        refits.append(day)
        model.set_params(n_clusters="auto", warm_start=True).fit(model.graph_)
        print(f"day {day}: {model.n_clusters_} clusters now; {model.label_changes_.sentence}")
    scores.append(metrics.nmi(growing.labels[model.names_], model.labels_))
print(f"{len(model.names_)} people, {model.n_clusters_} clusters, NMI with the four groups {scores[-1]:.2f}")

figure, axes = plt.subplots(figsize=(7, 3))
axes.bar(range(1, 31), drifts, color="#1f5fbf", label="drift: sine of the angle to the day before")
axes.plot(range(1, 31), scores, color="#333333", label="NMI with the four groups")
axes.vlines(refits, 0, 1.05, color="#c8553d", linestyle=":", label="refit, as advised")
axes.axvspan(15, 30.5, color="#c8553d", alpha=0.06)
axes.set(xlabel="day", ylim=(0, 1.05), xlim=(0.4, 30.6))
axes.legend(fontsize=8, frameon=False, loc="center left")
figure.tight_layout()
figure.savefig(sys.argv[1] if len(sys.argv) > 1 else "growing_graph.png", dpi=110)
