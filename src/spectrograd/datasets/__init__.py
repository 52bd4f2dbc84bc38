"""Data with known classes, for tests, benchmarks and first steps."""

from spectrograd.datasets.planted import make_signed_block_model
from spectrograd.datasets.reviews import ReviewData, load_reviews
from spectrograd.datasets.synthetic import (
    Day,
    GrowingGraph,
    LabelledGraph,
    LayeredData,
    make_block_model,
    make_gaussian_mixture,
    make_growing_graph,
    make_multilayer_gmm,
    make_partition_graph,
)
from spectrograd.datasets.yelp import load_yelp

__all__ = [
    "Day",
    "GrowingGraph",
    "LabelledGraph",
    "LayeredData",
    "ReviewData",
    "load_reviews",
    "load_yelp",
    "make_block_model",
    "make_gaussian_mixture",
    "make_growing_graph",
    "make_multilayer_gmm",
    "make_partition_graph",
    "make_signed_block_model",
]
