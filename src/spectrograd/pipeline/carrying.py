"""What the certificate of a graph still says after edges came: see :mod:`spectrograd.certificate.carried`."""

from __future__ import annotations

import numpy as np

from spectrograd.certificate import Certificate
from spectrograd.certificate.carried import Carried, Growth
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
    """Evidence about the rest of the spectrum after edges were added; None where nothing can be said.

    Parameters
    ----------
    certificate
        From before.
    before, after, changes
        The graph and its changes; of others than added edges nothing is said.
    problem
        The kind of the Laplacian, and tau in mean degrees.
    """
    if not (isinstance(before, Graph) and isinstance(after, Graph) and isinstance(changes.edges, Graph)):
        return None
    if changes.removed is not None or changes.mode != "add" or not np.isfinite(certificate.sure):
        return None
    growth = _growth(before, after, changes.edges, problem)
    top = float(certificate.eigenvalues[-1])
    cut = None if growth is None else growth.carried(certificate.sure, top)
    return None if cut is None else Carried(top + certificate.gap, 0, cut, certificate.missed_probability)


def _growth(before: Graph, after: Graph, edges: Graph, problem: tuple[Kind, float]) -> Growth | None:
    kind, tau = problem
    n_new = after.n_nodes - before.n_nodes
    if n_new and tau:  # the part of rank one changes its size
        return None
    degrees = np.concatenate([before.degrees, np.zeros(n_new)])
    added = placed(edges, NodeRows(after.node_names))
    more = after.degrees - degrees
    if kind == "unnormalized":
        new = np.arange(after.n_nodes) >= before.n_nodes
        return Growth(1.0 - new, 1.0 * new, more, added)
    # What is added to all degrees grows with their mean: B by that much, A by no less than zero.
    ties = tau * float(before.degrees.mean())
    return Growth(degrees + ties, more + tau * float(after.degrees.mean()) - ties, more, added)
