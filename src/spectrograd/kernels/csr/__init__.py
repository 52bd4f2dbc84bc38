"""Kernels over the rows of a sparse matrix: products, recurrences, checks, traversal, coarsening."""
