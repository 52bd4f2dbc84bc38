"""Data with known classes, for tests, benchmarks and first steps."""

from spectrograd.datasets.growing import Day, GrowingGraph, make_growing_graph
from spectrograd.datasets.review_layers import ReviewData
from spectrograd.datasets.reviews import load_reviews
from spectrograd.datasets.streaming import make_partition_graph
from spectrograd.datasets.synthetic import (
    LabelledGraph,
    LayeredData,
    make_block_model,
    make_gaussian_mixture,
    make_multilayer_gmm,
)
from spectrograd.datasets.yelp import load_yelp, write_yelp_like

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
    "write_yelp_like",
]
