"""Tensors of torch as the arrays and sparse matrices that everything else takes."""

from __future__ import annotations

import sys
from typing import Any

import scipy.sparse as sp


def from_tensor(thing: Any) -> Any:
    """A tensor, dense or sparse, on any device, as a numpy array or a scipy matrix; other things unchanged.

    Who has a tensor has loaded torch: it is not imported here. Nothing is copied that is on the host
    already, and nothing of the tensor's own is changed.
    """
    torch = sys.modules.get("torch")
    if torch is None or not isinstance(thing, torch.Tensor):
        return thing
    tensor = thing.detach()
    if tensor.dtype == torch.bfloat16:  # numpy has no such type; every value is also a float32
        tensor = tensor.float()
    if tensor.layout == torch.strided:
        return tensor.cpu().numpy()
    if tensor.layout == torch.sparse_coo:
        indices, values = tensor._indices().cpu().numpy(), tensor._values().cpu().numpy()
        return sp.coo_array((values, (indices[0], indices[1])), shape=tuple(tensor.shape))
    if tensor.layout == torch.sparse_bsc:  # scipy has no such form
        return tensor.to_dense().cpu().numpy()
    if tensor.layout == torch.sparse_csc:
        parts, form = (tensor.values(), tensor.row_indices(), tensor.ccol_indices()), sp.csc_array
    else:
        parts = (tensor.values(), tensor.col_indices(), tensor.crow_indices())
        form = sp.csr_array if tensor.layout == torch.sparse_csr else sp.bsr_array
    return form(tuple(part.cpu().numpy() for part in parts), shape=tuple(tensor.shape))
