"""Estimators of one graph."""

from __future__ import annotations

from typing import Any, Self

from sklearn.base import BaseEstimator

from spectrograd.estimators.base import Clusterer, Embedder
from spectrograd.estimators.inputs import as_graph


class FitsOneGraph(BaseEstimator):
    """What may be given to the estimators of one graph."""

    def fit(self, X: Any, y: None = None, **columns: str) -> Self:
        """Embed, or cluster, a graph, an affinity matrix, points, or an edge table.

        Parameters
        ----------
        X : graph-like, or array of shape (n_points, n_features)
            A :class:`Graph`; an affinity matrix (array or scipy sparse, n x n); a networkx, igraph or PyG
            graph; an AnnData with neighbours; the path of a file, as for ``read_graph``; a list of edges,
            ``[("a", "b"), ...]``; an edge table (pandas, polars, pyarrow); or points, whose neighbours make
            the graph. ``affinity`` says what an array is.
        y : None
            Not used; scikit-learn's pipelines pass it.
        **columns : str
            Columns of an edge table that go by other names (``source=``, ``target=``, ``weight=``), as in
            ``from_frame``.

        Returns
        -------
        self
        """
        self._fit(as_graph(self, X, columns))
        return self


class SpectralEmbedding(FitsOneGraph, Embedder):
    """Embed the nodes of a graph (or points, through their neighbours) by eigenvectors of its Laplacian.

    Parameters come in four blocks: those of scikit-learn's estimator of the same name, under the same
    names; then graph, solver and resources.

    Parameters
    ----------
    n_components : int
        Columns of the embedding.
    affinity : str or callable
        How ``fit(X)`` turns an array into a graph: ``"nearest_neighbors"``, ``"precomputed"``,
        ``"precomputed_nearest_neighbors"``, a kernel of scikit-learn (``"rbf"``, ``"cosine"``, ...), or a
        function from all points to a matrix. ``"auto"`` is ``"precomputed"`` for a square
        symmetric matrix that is sparse, or not negative and zero on its diagonal (with a warning), else
        ``"nearest_neighbors"``. A :class:`Graph` is taken as it is.
    n_neighbors : int or None
        For the two kinds of neighbours; None is a tenth of the points.
    gamma, degree, coef0, kernel_params
        Parameters of the kernels; ``kernel_params`` wins.
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

    Graph parameters
    ----------------
    laplacian : {"random_walk", "symmetric", "unnormalized"}
        Which eigenproblem; the paper uses ``"unnormalized"``.
    regularization : float, "auto" or None
        ``tau`` in units of the mean degree d: adds ``tau d / N`` to every pair of nodes, implicitly. "auto"
        adds 0.1 (or 0.3) only where the eigenvectors are localised on tiny dangling components.
    disconnected : {"components", "regularize", "largest", "error"}
        What to do with a graph of several components. "components" embeds them together and excludes tiny
        ones, "regularize" ties all of them together, "largest" keeps one, "error" refuses. Excluded nodes are
        named in a warning; their rows are zero.
    drop_first : bool
        Leave out the trivial first eigenvector.
    metric : str or callable
        Of ``"nearest_neighbors"``, under scikit-learn's names: ``"euclidean"``, ``"cosine"``, ...
    recall : float
        Share of the true neighbours that the search must find; 1 is an exact search. Above 20,000 points in
        more than 8 dimensions it is met rather than exceeded: see :func:`knn_graph`.

    Solver parameters
    -----------------
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

    Resource parameters
    -------------------
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

    Attributes
    ----------
    embedding_ : array of shape (n_nodes, n_components)
        Single precision where the input was.
    affinity_ : str or callable
        The affinity used, where ``"auto"`` was asked for too; not set by ``fit(Graph)``.
    affinity_matrix_ : array or sparse array
        As in scikit-learn; not set by ``fit(Graph)``.
    eigenvalues_ : array of shape (n_components,)
    knn_recall_ : Recall or None
        Share of the true neighbours in the graph, a float with its standard ``error``; of several layers the
        lowest. None where the graph was not made from points.
    certificate_ : Certificate
        Residuals and verdict; ``converged_`` is its yes or no.
    history_ : tuple of Progress
        Through all attempts; the first of each says in its ``events`` why the solver was picked.
    attempts_ : tuple of Attempt
        Which solvers ran, why, at what cost and how each ended.
    solver_, n_iter_ : what ran and for how long
    regularization_ : Regularization
        The ``tau`` that was used and the reason.
    connectivity_ : Connectivity
        Components, and the row numbers of excluded nodes; ``excluded_`` holds their names.
    names_ : node names in the order of the rows, where the input had any

    Examples
    --------
    >>> from spectrograd import SpectralEmbedding, datasets
    >>> data = datasets.make_block_model(300, 3, random_state=0)
    >>> SpectralEmbedding(2, random_state=0).fit_transform(data.graph).shape
    (300, 2)
    """


class SpectralClustering(FitsOneGraph, Clusterer):
    """Cluster the nodes of a graph (or points, through their neighbours).

    Embeds into ``n_clusters`` eigenvectors (the trivial one included, as scikit-learn does), then assigns
    labels on rows of unit length. Parameters come in four blocks: those of scikit-learn's estimator of
    the same name, under the same names; then graph, solver and resources.

    Parameters
    ----------
    n_clusters : int or "auto"
        "auto" is the number before the largest eigengap, at most 60 (over a store 20); a warning says where
        no number is clear.
    n_components : int or None
        Columns of the embedding where they should differ from ``n_clusters``, for k-means.
    affinity : str or callable
        How ``fit(X)`` turns an array into a graph: ``"nearest_neighbors"``, ``"precomputed"``,
        ``"precomputed_nearest_neighbors"``, a kernel of scikit-learn (``"rbf"``, ``"cosine"``, ...), or a
        function of two points, as in scikit-learn. ``"auto"`` is ``"precomputed"`` for a square
        symmetric matrix that is sparse, or not negative and zero on its diagonal (with a warning), else
        ``"nearest_neighbors"``. A :class:`Graph` is taken as it is.
    n_neighbors : int or None
        For the two kinds of neighbours; None is a tenth of the points.
    gamma, degree, coef0, kernel_params
        Parameters of the kernels; ``kernel_params`` wins. ``gamma`` is 1 by default, as in scikit-learn.
    eigen_solver : {None, "arpack", "lobpcg", "amg"}
        scikit-learn's word for ``solver``: ``"eigen"``, ``"lobpcg"``, and the latter with ``pyamg``.
    eigen_tol : float or "auto"
        scikit-learn's word for ``tol``; 0 is machine precision.
    assign_labels : {"kmeans", "cluster_qr", "discretize"}
        How rows of the embedding become clusters.
    n_init : int
        Maximum number of starts of k-means; on larger graphs they end when two agree.
    random_state : int, RandomState or None
        Seed; the same seed gives the same result.
    n_jobs : int or None
        Threads; None and -1 are all cores.
    verbose : int
        Above 0, progress goes to the logger ``spectrograd``, or to standard error where nobody listens to it.

    Graph parameters
    ----------------
    laplacian : {"random_walk", "symmetric", "unnormalized"}
        Which eigenproblem; the paper uses ``"unnormalized"``.
    regularization : float, "auto" or None
        ``tau`` in units of the mean degree d: adds ``tau d / N`` to every pair of nodes, implicitly. "auto"
        adds 0.1 (or 0.3) only where the eigenvectors are localised on tiny dangling components.
    disconnected : {"components", "regularize", "largest", "error"}
        What to do with a graph of several components. "components" embeds them together and excludes tiny
        ones, "regularize" ties all of them together, "largest" keeps one, "error" refuses. Excluded nodes are
        named in a warning; their rows are zero.
    metric : str or callable
        Of ``"nearest_neighbors"``, under scikit-learn's names: ``"euclidean"``, ``"cosine"``, ...
    recall : float
        Share of the true neighbours that the search must find; 1 is an exact search. Above 20,000 points in
        more than 8 dimensions it is met rather than exceeded: see :func:`knn_graph`.

    Solver parameters
    -----------------
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

    Resource parameters
    -------------------
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

    Attributes
    ----------
    labels_ : array of shape (n_nodes,)
        -1 for excluded nodes.
    membership_ : array of shape (n_nodes,)
        How sure each label is, 0 to 1: how much nearer its centre is than the next. NaN for excluded nodes.
    cluster_verdict_ : ClusterVerdict
        Whether the clusters are more than chance would give: ``.verdict`` is "clear", "weak" or "none beyond
        chance", ``.sentence`` says why. ``certificate_`` is about the eigenvectors only.
    n_clusters_ : int
    eigengap_ : Eigengap or None
        Eigenvalues and gaps that "auto" chose by: the data of the eigengap plot. ``.clear`` and ``.sentence``
        say whether the number is clear.
    embedding_, eigenvalues_, certificate_, converged_, excluded_, ...
        As of :class:`SpectralEmbedding`.

    Examples
    --------
    >>> from spectrograd import SpectralClustering, datasets, metrics
    >>> data = datasets.make_block_model(300, 3, random_state=0)
    >>> labels = SpectralClustering(3, random_state=0).fit_predict(data.graph)
    >>> round(metrics.nmi(data.labels, labels), 1)
    1.0
    """
