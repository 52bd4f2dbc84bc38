"""Order and shape of a triangular factor: what depends on the pattern alone, and serves every shift."""

from spectrograd.kernels.ldl.fronts import Fronts, arrange_fronts
from spectrograd.kernels.ldl.ordering import minimum_degree
from spectrograd.kernels.ldl.subtrees import Parts, cut


def lay_out(indptr, indices) -> tuple[Fronts, Parts]:
    """The fronts of a factor under minimum degree, and the parts in which threads work on them."""
    fronts = arrange_fronts(indptr, indices, minimum_degree(indptr, indices))
    return fronts, cut(fronts)
