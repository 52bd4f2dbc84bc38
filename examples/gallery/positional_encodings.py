"""Positional encodings: eigenvectors one by one, with the groups that no rule of signs makes unique."""

import matplotlib
import networkx as nx
import numpy as np

matplotlib.use("Agg")
import matplotlib.pyplot as plt

from spectrograd.pyg import laplacian_encoding

# 1. A molecule-like graph: three rings on a chain.
graph = nx.disjoint_union_all([nx.cycle_graph(6)] * 3)
graph.add_edges_from([(3, 6), (9, 12)])
edge_index = np.array(graph.edges).T

# 2. Four encodings, their eigenvalues and the columns that share one.
encoding = laplacian_encoding(edge_index, len(graph), k=4)
print(encoding.eigenvalues.round(3), encoding.groups())

# 3. The picture: each node coloured by each encoding.
positions = nx.kamada_kawai_layout(graph)
figure, panels = plt.subplots(2, 2, figsize=(4, 3.2))
for column, axes in enumerate(panels.flat):
    nx.draw(graph, positions, ax=axes, node_size=30, node_color=encoding.vectors[:, column], cmap="coolwarm")
    axes.set_title(f"eigenvalue {encoding.eigenvalues[column]:.2f}", fontsize=8)
figure.savefig("positional_encodings.png", dpi=100, bbox_inches="tight")
