"""The parameters of the four estimators in words, written once: the class docstrings get them at import.

A class docstring has the line ``{parameters}`` where they belong, after the parameters of its own.
"""

from __future__ import annotations

import inspect
from typing import TypeVar

ClassT = TypeVar("ClassT", bound=type)

SCIKIT_LEARN = """\
affinity : str or callable
    How ``fit(X)`` turns an array into a graph: ``"nearest_neighbors"``, ``"precomputed"``,
    ``"precomputed_nearest_neighbors"``, a kernel of scikit-learn (``"rbf"``, ``"cosine"``, ...), or a
    {function}. ``"auto"`` is ``"precomputed"`` for a square
    symmetric matrix that is sparse, or not negative and zero on its diagonal (with a warning), else
    ``"nearest_neighbors"``. Graphs are taken as they are.
n_neighbors : int or None
    For the two kinds of neighbours; None is a tenth of the points.
gamma, degree, coef0, kernel_params
    Parameters of the kernels; ``kernel_params`` wins. Of a clustering ``gamma`` is 1
    by default, as in scikit-learn.
eigen_solver : {None, "arpack", "lobpcg", "amg"}
    scikit-learn's word for ``solver``: ``"eigen"``, ``"lobpcg"``, and the latter with ``pyamg``.
eigen_tol : float or "auto"
    scikit-learn's word for ``tol``; 0 is machine precision.
random_state : int, RandomState or None
    Seed; the same seed gives the same result.
n_jobs : int or None
    Threads; None and -1 are all cores.
verbose : int
    Above 0, progress goes to the logger ``spectrograd``, or to standard error where nobody listens to it.
"""

LAYERS = """\
aggregation : {"auto", "projection", "mean", "sum", "power-mean", "geometric", "grassmann", "joint",
    "coregularized"}
    How layers become one operator; ``"projection"`` is the paper's Eq. 22: every layer is embedded first.
    ``"auto"`` clusters some merges, and layers alone, and takes the clusters that tell most about the edges
    of all layers: ``aggregation_`` and ``aggregation_reason_`` say which.
alpha : float or "auto"
    Weight of the layers' subspaces in Eq. 22.
layer_weights : sequence of float, "equal" (or None) or "auto"
    How much each layer counts; "auto" is not at all for noise, and less for weak layers and for those
    about other clusters than the rest.
aggregation_params : mapping or None
    Options of the aggregation, such as ``{"p": -5}`` of ``"power-mean"``.
"""

LAPLACIAN = """\
laplacian : {"random_walk", "symmetric", "unnormalized", "signed", ...}
    Which eigenproblem; the paper uses ``"unnormalized"``. ``"signed"``, ``"signed_symmetric"`` and
    ``"signed_unnormalized"`` take negative weights.
"""

ONE_GRAPH = """\
regularization : float, "auto" or None
    ``tau`` in units of the mean degree d: adds ``tau d / N`` to every pair of nodes, implicitly. "auto"
    adds 0.1 (or 0.3) only where the eigenvectors are localised on tiny dangling components.
disconnected : {"components", "regularize", "largest", "error"}
    What to do with a graph of several components. "components" embeds them together and excludes tiny
    ones, "regularize" ties all of them together, "largest" keeps one, "error" refuses. Excluded nodes are
    named in a warning; their rows are zero.
"""

SEVERAL_LAYERS = """\
regularization : float, "auto" or None
    ``tau`` in units of a layer's mean degree d: adds ``tau d / N`` to every pair of nodes of every layer,
    implicitly. "auto" adds nothing here.
disconnected : {"components", "regularize", "largest", "error"}
    What to do where all layers together have several components. "components" embeds them together and
    excludes tiny ones, "regularize" ties all of them together, "largest" keeps one, "error" refuses.
    Excluded nodes are named in a warning; their rows are zero.
"""

NEIGHBORS = """\
metric : str or callable
    Of ``"nearest_neighbors"``, under scikit-learn's names: ``"euclidean"``, ``"cosine"``, ...
recall : float
    Share of the true neighbours that the search must find; 1 is an exact search. Above 20,000 points in
    more than 8 dimensions it is met rather than exceeded: see :func:`knn_graph`.
"""

SOLVER = """\
solver : str
    ``"auto"`` or a name from ``spectrograd.solvers.REGISTRY``.
solver_params : mapping or None
    Options of the solver.
tol : float or "auto"
    Residual to reach; "auto" asks for a subspace within an angle of sine 0.03.
max_iter : int or None
    Steps of the solver at most; the best state so far is the result, and ``certificate_`` says how good
    it is.
batch_size : int
    Edges per mini-batch, for the stochastic solvers.
warm_start : bool
    Start from the vectors of the last ``fit`` of a graph of the same size. Clusters then keep their
    numbers (``label_changes_`` says which split, merged, appeared or died), and the embedding is rotated
    onto the last one, so that models trained on it stay valid; nodes are matched by their names, rows of
    arrays by their number. A rotated column is no eigenvector; the columns together span the eigenvectors
    of ``eigenvalues_``.
"""

RESOURCES = """\
time_budget : float or None
    Seconds on the wall; a run out of time returns its best state. The first step is always taken, and
    compiling a kernel (the first time on a machine) cannot be interrupted. Ctrl-C keeps the best so far
    and raises KeyboardInterrupt.
engine : str or dask.distributed.Client
    Where passes run: "auto" and "local" are this process; "torch" and "torch:cuda:1" a device; "dask" is
    the current client, "dask:4" a cluster of processes on this machine, "dask:tcp://host:port" any other
    (``docs/cluster.md``). A client cannot be copied by ``sklearn.base.clone``: use its name there.
memory_limit : str or None
    Such as ``"2GB"``. A store (``fit`` takes its path) that does not fit into it is streamed from the
    disk; too little is an error that says the least that would do.
checkpoint : path or None
    A folder where the state of the fit is saved on its way: the same fit, started again after an
    interruption, goes on from there to the same bits. A folder of another graph or other parameters is
    refused.
checkpoint_every : float
    Seconds between two checkpoints, at least.
"""


def describe_parameters(*, clustering: bool, several: bool) -> str:
    """The numpydoc sections of the shared parameters of one of the four estimators."""
    function = (
        "function of two points, as in scikit-learn" if clustering else "function from all points to a matrix"
    )
    graph = [LAPLACIAN, SEVERAL_LAYERS if several else ONE_GRAPH, NEIGHBORS]
    blocks = {
        "Graph parameters": "".join([LAYERS, *graph] if several else graph),
        "Solver parameters": SOLVER,
        "Resource parameters": RESOURCES,
    }
    sections = [f"\n{title}\n{'-' * len(title)}\n{text}" for title, text in blocks.items()]
    return (SCIKIT_LEARN.replace("{function}", function) + "".join(sections)).rstrip()


def document_parameters(cls: ClassT) -> ClassT:
    """Class decorator: put the shared parameters into the docstring, in place of ``{parameters}``."""
    if cls.__doc__ is not None:  # python -OO strips docstrings
        names = inspect.signature(cls).parameters
        text = describe_parameters(clustering="n_clusters" in names, several="aggregation" in names)
        cls.__doc__ = inspect.cleandoc(cls.__doc__).replace("{parameters}", text)
    return cls
