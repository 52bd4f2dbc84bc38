"""Kernels over mini-batches of edges."""
