"""Doors to other libraries' objects: networkx, igraph, PyG, data frames."""
