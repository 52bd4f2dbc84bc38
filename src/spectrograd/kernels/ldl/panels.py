"""Vectors as panels of eight columns in an order of their own: what a factor works on."""

import numpy as np

from spectrograd.kernels.dense.lanes import WIDTH, put, put_first, take, take_first
from spectrograd.kernels.jit import serial


@serial
def to_panels(X, order, panels):
    """Mutates: panels, which become the rows of X in this order; columns that X has not are zero."""
    for panel in range(len(panels)):
        first, out = panel * WIDTH, panels[panel]
        width = min(WIDTH, X.shape[1] - first)
        for j in range(len(order)):
            i = np.uint32(order[j])
            put(out, j, 0, take(X, i, first) if width == WIDTH else take_first(X, i, first, width))


@serial
def from_panels(panels, position, X):
    """Mutates: X, which becomes the first columns of the panels, row i from place ``position[i]``."""
    for panel in range(len(panels)):
        first, source = panel * WIDTH, panels[panel]
        width = min(WIDTH, X.shape[1] - first)
        for i in range(len(position)):
            row = take(source, np.uint32(position[i]), 0)
            if width == WIDTH:
                put(X, i, first, row)
            else:
                put_first(X, i, first, width, row)
