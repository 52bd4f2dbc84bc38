"""What the estimators of several layers share: the merge, and what it tells about each layer."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Self

from sklearn.base import BaseEstimator
from sklearn.utils.validation import check_is_fitted

from spectrograd.estimators.base import Clusterer, Embedder
from spectrograd.estimators.inputs import Affinity, as_layers
from spectrograd.pipeline.layer_weights import LayerScores
from spectrograd.pipeline.multilayer import Merged, layer_influence
from spectrograd.pipeline.settings import Settings
from spectrograd.typing import Array


@dataclass(eq=False, repr=False, kw_only=True)
class Layered(BaseEstimator):
    """What estimators of several layers add: how to merge, and what a fit can tell about each layer."""

    affinity: Affinity = "auto"
    aggregation: str = "projection"
    alpha: float | str = "auto"
    layer_weights: Sequence[float] | str | None = None
    aggregation_params: Mapping[str, Any] | None = None

    def fit(self, X: Any, y: None = None, **columns: str) -> Self:
        """Embed, or cluster, layers: a list or dict, a :class:`MultilayerGraph`, a table with a layer column.

        Parameters
        ----------
        X : MultilayerGraph, list, dict, or edge table
            Layers on the same nodes: graphs, affinity matrices (array or scipy sparse, n x n), arrays of
            points (n x features), lists of edges, or paths of files, by name in a dict; or an edge table
            (pandas, polars, pyarrow) with columns ``src``, ``dst`` and ``layer``. ``affinity="auto"`` tells
            matrices from points.
        y : None
            Not used; scikit-learn's pipelines pass it.
        **columns : str
            Columns of an edge table that go by other names (``source=``, ``target=``, ``weight=``,
            ``layer=``), as in ``from_frame``.

        Returns
        -------
        self
        """
        self._fit(as_layers(self, X, columns))
        return self

    def _settings(self, n_nodes: int) -> Settings:
        chosen: Settings = super()._settings(n_nodes)
        return replace(
            chosen,
            aggregation=self.aggregation,
            alpha=self.alpha,
            layer_weights=self.layer_weights,
            aggregation_params=self.aggregation_params or {},
        )

    def _keep_layers(self, merged: Merged) -> None:
        self._merged = merged
        self.layer_names_, self.layer_weights_ = merged.layer_names, merged.weights
        self.layer_embeddings_ = [layer.embedding.vectors for layer in merged.layers]
        self.layer_certificates_ = [layer.certificate for layer in merged.layers]
        self.layer_distances_ = merged.distances if merged.layers else None

    @property
    def layer_scores_(self) -> LayerScores | None:
        """Structure, agreement and copies of each layer; None where the layers were not embedded.

        Computed when first asked for, unless ``layer_weights="auto"`` needed it.
        """
        if self._merged.scores is None and self._merged.layers:
            self._merged = self._merged.scored(self._fitted_settings().seed)
        return self._merged.scores

    def layer_influence(self) -> Array:
        """How far the merged subspace moves when each layer is left out, from 0 to 1.

        The layers' embeddings are reused; each number costs one merge.
        """
        check_is_fitted(self)
        return layer_influence(
            self._merged,
            self._raw_vectors.shape[1],
            self._fitted_settings(),
            aggregation=self.aggregation,
            alpha=self.alpha,
            aggregation_params=self.aggregation_params,
        )

    def _fitted_settings(self) -> Settings:
        return self._settings(len(self.embedding_))

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.two_d_array = False  # several of them
        return tags


# --- Estimators of several layers over the same nodes.


@dataclass(eq=False, repr=False, kw_only=True)
class MultilayerSpectralEmbedding(Layered, Embedder):
    """Embed the nodes that several layers share.

    Parameters come in four blocks: those that scikit-learn's estimators have as well, under the same
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
        ``"nearest_neighbors"``. Graphs are taken as they are.
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
    aggregation : {"projection", "mean", "power-mean", "geometric", "grassmann", "joint"}
        How layers become one operator; ``"projection"`` is the paper's Eq. 22: every layer is embedded first.
    alpha : float or "auto"
        Weight of the layers' subspaces in Eq. 22.
    layer_weights : sequence of float, "equal" (or None) or "auto"
        How much each layer counts; "auto" is not at all for noise, and less for weak layers and for those
        about other clusters than the rest.
    aggregation_params : mapping or None
        Options of the aggregation, such as ``{"p": -5}`` of ``"power-mean"``.
    laplacian : {"random_walk", "symmetric", "unnormalized"}
        Which eigenproblem; the paper uses ``"unnormalized"``.
    regularization : float, "auto" or None
        ``tau`` in units of a layer's mean degree d: adds ``tau d / N`` to every pair of nodes of every layer,
        implicitly. "auto" adds nothing here.
    disconnected : {"components", "regularize", "largest", "error"}
        What to do where all layers together have several components. "components" embeds them together and
        excludes tiny ones, "regularize" ties all of them together, "largest" keeps one, "error" refuses.
        Excluded nodes are named in a warning; their rows are zero.
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
    layer_embeddings_ : list of arrays (where the layers were embedded)
    layer_certificates_ : list of Certificate; ``converged_`` asks all of them
    layer_distances_ : pairwise projection distances of the layers (the same)
    layer_weights_ : array
    layer_scores_ : LayerScores: structure, strength, agreement, copies and noise of each layer
    layer_names_ : tuple of str

    Examples
    --------
    >>> from spectrograd import MultilayerSpectralEmbedding, datasets
    >>> data = datasets.make_multilayer_gmm(400, 2, 3, random_state=0)
    >>> MultilayerSpectralEmbedding(3, random_state=0).fit_transform(data.graph).shape
    (400, 3)
    """


@dataclass(eq=False, repr=False, kw_only=True)
class MultilayerSpectralClustering(Layered, Clusterer):
    """Cluster the nodes that several layers share.

    Parameters come in four blocks: those that scikit-learn's estimators have as well, under the same
    names; then graph, solver and resources.

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
        ``"nearest_neighbors"``. Graphs are taken as they are.
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
    aggregation : {"projection", "mean", "power-mean", "geometric", "grassmann", "joint"}
        How layers become one operator; ``"projection"`` is the paper's Eq. 22: every layer is embedded first.
    alpha : float or "auto"
        Weight of the layers' subspaces in Eq. 22.
    layer_weights : sequence of float, "equal" (or None) or "auto"
        How much each layer counts; "auto" is not at all for noise, and less for weak layers and for those
        about other clusters than the rest.
    aggregation_params : mapping or None
        Options of the aggregation, such as ``{"p": -5}`` of ``"power-mean"``.
    laplacian : {"random_walk", "symmetric", "unnormalized"}
        Which eigenproblem; the paper uses ``"unnormalized"``.
    regularization : float, "auto" or None
        ``tau`` in units of a layer's mean degree d: adds ``tau d / N`` to every pair of nodes of every layer,
        implicitly. "auto" adds nothing here.
    disconnected : {"components", "regularize", "largest", "error"}
        What to do where all layers together have several components. "components" embeds them together and
        excludes tiny ones, "regularize" ties all of them together, "largest" keeps one, "error" refuses.
        Excluded nodes are named in a warning; their rows are zero.
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
    labels_, membership_, cluster_verdict_, n_clusters_, eigengap_
        As of :class:`SpectralClustering`.
    layer_embeddings_, layer_certificates_, layer_distances_, layer_weights_, layer_scores_, layer_names_
        As of :class:`MultilayerSpectralEmbedding`.

    Examples
    --------
    >>> from spectrograd import MultilayerSpectralClustering, datasets
    >>> data = datasets.make_multilayer_gmm(400, 3, 3, random_state=0)
    >>> model = MultilayerSpectralClustering(3, random_state=0).fit(data.graph)
    >>> len(model.labels_), len(model.layer_embeddings_)
    (400, 3)
    """
