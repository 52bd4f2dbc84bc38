"""Benchmarks: ratios within one run, never timed tests. `make bench` runs them all."""
