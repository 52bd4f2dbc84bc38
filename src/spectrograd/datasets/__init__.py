"""Data with known classes, for tests, benchmarks and first steps."""

from spectrograd.datasets.synthetic import (
    LabelledGraph,
    LayeredData,
    make_block_model,
    make_gaussian_mixture,
    make_multilayer_gmm,
)

__all__ = [
    "LabelledGraph",
    "LayeredData",
    "make_block_model",
    "make_gaussian_mixture",
    "make_multilayer_gmm",
]
