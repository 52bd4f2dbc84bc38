"""What a certificate still says after edges changed: see :mod:`spectrograd.certificate.carried`."""

from __future__ import annotations

import numpy as np
import scipy.sparse as sp

from spectrograd.certificate import Certificate
from spectrograd.certificate.carried import Carried, Growth
from spectrograd.certificate.evidence import LIKELY_MISS
from spectrograd.graph import Graph, MultilayerGraph
from spectrograd.graph.names import NodeRows
from spectrograd.operators.laplacian import Kind
from spectrograd.pipeline.graph_changes import EdgeChanges, placed


def carried(
    certificate: Certificate,
    before: Graph | MultilayerGraph,
    after: Graph | MultilayerGraph,
    changes: EdgeChanges,
    problem: tuple[Kind, float],
) -> Carried | None:
    """Evidence about the rest of the spectrum after edges came or went; None where nothing can be said.

    Parameters
    ----------
    certificate
        From before.
    before, after, changes
        The graph and its changes. An edge that is set counts as one that went and one that came.
    problem
        The kind of the Laplacian, and tau in mean degrees.
    """
    edges = changes.edges
    if not (isinstance(before, Graph) and isinstance(after, Graph)) or isinstance(edges, MultilayerGraph):
        return None
    if not np.isfinite(certificate.sure):
        return None
    growth = _growth(before, after, changes, problem)
    top = float(certificate.eigenvalues[-1])
    cut = None if growth is None else growth.carried(certificate.sure, top)
    odds = 0.0 if certificate.missed_probability == 0 else LIKELY_MISS  # at which ``sure`` was read off
    return None if cut is None else Carried(top + certificate.gap, 0, cut, odds)


def _growth(before: Graph, after: Graph, changes: EdgeChanges, problem: tuple[Kind, float]) -> Growth | None:
    kind, tau = problem
    n_new = after.n_nodes - before.n_nodes
    if n_new and tau:  # the part of rank one changes its size
        return None
    degrees = np.concatenate([before.degrees, np.zeros(n_new)])
    more = after.degrees - degrees
    added = sp.csr_array((after.n_nodes, after.n_nodes))
    if changes.edges is not None:
        assert isinstance(changes.edges, Graph)
        added = placed(changes.edges, NodeRows(after.node_names))
    lost = None
    if changes.removed is not None or changes.mode == "set":  # their old weights are what the degrees lack
        lost = np.maximum(np.asarray(added.sum(axis=1)).reshape(-1) - more, 0.0)
    if kind == "unnormalized":
        new = np.arange(after.n_nodes) >= before.n_nodes
        less = min(tau * float(after.degrees.mean() - before.degrees.mean()), 0.0)
        return Growth(1.0 - new, 1.0 * new, more + less, added, lost)
    # What is added to all degrees follows their mean: B by that much, A by no less than that if it falls.
    ties = tau * float(before.degrees.mean())
    drift = tau * float(after.degrees.mean()) - ties
    return Growth(degrees + ties, more + drift, more + min(drift, 0.0), added, lost)
