"""Doors out: graphs, labels and embeddings as files."""
