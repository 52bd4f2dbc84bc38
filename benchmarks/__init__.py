"""Benchmarks; each module runs alone and prints its table."""
