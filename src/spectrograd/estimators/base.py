"""The base of the four estimators: their shared parameters, ``fit``, and the methods of a fitted model.

Methods call the functions of the other modules here; there is no mathematics in this package.
"""

from __future__ import annotations

import os
from abc import ABCMeta, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, Self, cast

import numpy as np
from sklearn.base import BaseEstimator, ClassNamePrefixFeaturesOutMixin, ClusterMixin, TransformerMixin
from sklearn.utils import Tags
from sklearn.utils.validation import check_is_fitted

from spectrograd.certificate import Certificate
from spectrograd.estimators.display import (
    plot_embedding,
    several_sections,
    summary_html,
    wrap_as_scikit_learn,
)
from spectrograd.estimators.fitted import PreviousFit, set_fit_attributes, warm_start, warn_unless_converged
from spectrograd.estimators.inputs import Affinity, FitInput, is_pairwise
from spectrograd.estimators.out_of_sample import (
    TrainingData,
    check_quantile,
    extrapolate,
    last_query,
    make_query,
    new_embedding,
    new_labels,
    remember,
)
from spectrograd.estimators.partial_fit import update_model, update_sentence
from spectrograd.estimators.settings import check_components, check_memory, make_context, make_settings
from spectrograd.graph import Graph, MultilayerGraph, Recall
from spectrograd.graph.components import Connectivity
from spectrograd.labels.eigengap import Eigengap
from spectrograd.labels.matching import LabelChanges
from spectrograd.notices import warn
from spectrograd.operators.laplacian import Kind, Regularization, is_signed_kind
from spectrograd.pipeline import Result, cluster, embed
from spectrograd.pipeline.cluster_verdict import ClusterVerdict
from spectrograd.pipeline.result import Attempt
from spectrograd.pipeline.signed import for_signed
from spectrograd.points.validation import Metric
from spectrograd.solvers.base import Progress
from spectrograd.solvers.settings import CHECKPOINT_SECONDS
from spectrograd.typing import Array


@dataclass(eq=False, repr=False, kw_only=True)
class Spectral(ClassNamePrefixFeaturesOutMixin, TransformerMixin, BaseEstimator, metaclass=ABCMeta):
    """Base of the four estimators, with the parameters they share and the attributes of a fit.

    A dataclass, so that each parameter is written once: scikit-learn reads the signature of the
    generated ``__init__``, which stores what it is given and does nothing else.
    """

    affinity: Affinity = "auto"
    n_neighbors: int | None = 10
    metric: Metric = "euclidean"
    recall: float = 0.98
    gamma: float | None = None
    degree: float = 3
    coef0: float = 1
    kernel_params: Mapping[str, Any] | None = None
    laplacian: Kind = "random_walk"
    solver: str = "auto"
    solver_params: Mapping[str, object] | None = None
    eigen_solver: str | None = None
    eigen_tol: float | str = "auto"
    regularization: float | str | None = "auto"
    disconnected: str = "components"
    tol: float | str = "auto"
    max_iter: int | None = None
    time_budget: float | None = None
    batch_size: int = 4000
    random_state: int | np.random.RandomState | None = None
    n_jobs: int | None = None
    engine: object = "auto"
    memory_limit: str | None = None
    checkpoint: str | os.PathLike[str] | None = None
    checkpoint_every: float = CHECKPOINT_SECONDS
    warm_start: bool = False
    verbose: int = 0

    # Attributes of a fitted model.
    embedding_: Array = field(init=False)
    eigenvalues_: Array = field(init=False)
    names_: Array = field(init=False)
    excluded_: Array = field(init=False)
    connectivity_: Connectivity = field(init=False)
    regularization_: Regularization = field(init=False)
    eigengap_: Eigengap | None = field(init=False)
    certificate_: Certificate = field(init=False)
    converged_: bool = field(init=False)
    history_: tuple[Progress, ...] = field(init=False)
    attempts_: tuple[Attempt, ...] = field(init=False)
    n_iter_: int = field(init=False)
    solver_: str = field(init=False)
    solver_reason_: str = field(init=False)
    knn_recall_: Recall | None = field(init=False)
    label_changes_: LabelChanges | None = field(init=False)
    drift_: float = field(init=False)
    update_action_: str = field(init=False)
    refit_reason_: str = field(init=False)
    refit_advised_: bool = field(init=False)
    # What out-of-sample rows and updates need of the fit.
    _training_data: TrainingData = field(init=False)
    _raw_vectors: Array = field(init=False)
    _rotation: Array | None = field(init=False)
    _float: type[np.floating] = field(init=False)
    _multivector: Any = field(init=False)
    _gap_at_fit: float = field(init=False)
    _last_change: str | None = field(init=False)
    _store_seen: str | None = field(init=False)

    # How `fit` reads its input, and how far the pipeline runs: to an embedding, or to clusters.
    _read: ClassVar[Callable[..., FitInput]]
    _run: ClassVar[Callable[..., Result]]

    def fit(self, X: object, y: None = None, **columns: str) -> Self:
        """Embed, or cluster, a graph, an affinity matrix, points or an edge table; or layers of these.

        Parameters
        ----------
        X : graph-like, or array of shape (n_points, n_features)
            A :class:`Graph`; an affinity matrix (array or scipy sparse, n x n); a networkx, igraph or PyG
            graph; an AnnData with neighbours; the path of a file, as for ``read_graph``; a list of edges,
            ``[("a", "b"), ...]``; an edge table (pandas, polars, pyarrow); or points, whose neighbours make
            the graph. ``affinity`` says what an array is. The estimators of several layers take a
            :class:`MultilayerGraph`, a list of the above, a dict of them by name, or an edge table with a
            column ``layer``; all layers have the same nodes.
        y : None
            Not used; scikit-learn's pipelines pass it.
        **columns : str
            Columns of an edge table that go by other names (``source=``, ``target=``, ``weight=``,
            ``layer=``), as in ``from_frame``.

        Returns
        -------
        self
        """
        # 1. Input: a graph or layers, and what the parameters say for one of this size.
        source = self._read(self, X, columns)
        settings = for_signed(source.graph, make_settings(self, source.graph.n_nodes))
        context = make_context(self)
        check_memory(self, source.graph, settings)
        # 2. Embedding and labels, from the vectors of the last fit where that is asked for.
        previous = PreviousFit.of(self) if self.warm_start else None
        start = warm_start(self, source.graph.n_nodes, settings.n_components)
        result = self._run(source.graph, settings, context, start=start)
        # 3. Fitted attributes; an interrupted fit sets those of its best so far, and then stops the caller.
        set_fit_attributes(self, source, result, settings, previous)
        if result.interrupted:
            raise KeyboardInterrupt
        warn_unless_converged(result, settings)
        return self

    @property
    def _drops_first(self) -> bool:
        """Whether the first eigenvector is left out; no eigenvector of a signed Laplacian is trivial."""
        return getattr(self, "drop_first", False) and not is_signed_kind(self.laplacian)

    def fit_transform(self, X: object, y: None = None, **columns: str) -> Array:
        """Embed and return the vectors."""
        return self.fit(X, None, **columns).embedding_

    def partial_fit(
        self,
        X: object = None,
        y: None = None,
        *,
        remove: object = None,
        mode: str = "add",
        new_nodes: str = "create",
    ) -> Self:
        """Take changes of the graph into the model; the first call, before any ``fit``, is a ``fit``.

        The embedding is corrected where that is enough to meet the certificate again, and solved with it as
        a start where it is not. Clusters keep their numbers and the embedding its directions.

        Parameters
        ----------
        X : edges, or new points
            An edge table, a networkx or igraph graph or a :class:`Graph`, by names (several layers: with a
            column ``layer``); or an n x n matrix in the order of the nodes. Of a model of points: further
            points; each is joined to its neighbours among the old ones (or to all, by a kernel).
        y : ignored
        remove : as X, optional
            Edges to take away; each must be there.
        mode : {"add", "set"}
            Whether weights are added to those that are there, or take their place.
        new_nodes : {"create", "refuse"}
            What to do with nodes that the model does not know.

        Returns
        -------
        self
            With ``drift_`` (sine of the angle between the subspaces before and after), ``label_changes_``,
            ``update_action_`` ("kept", "warm start" or "refit"), ``refit_advised_`` and ``refit_reason_``.
        """
        if not hasattr(self, "_training_data"):
            return self.fit(X)
        update_model(self, X, remove, mode, new_nodes)
        return self

    def transform(self, X: object) -> Array:
        """Rows of the embedding for new nodes or points, each by itself and without another solve.

        Parameters
        ----------
        X : as in ``fit``
            New points, of as many features; kernel or distance rows to the training points where the
            affinity is precomputed; or the edges of new nodes: a matrix of weights of shape
            (n_new, n_nodes), an edge table, a networkx or igraph graph or a :class:`Graph`, by names. Nodes
            that the model does not know are new, edges between known ones are not looked at; new nodes
            joined to new nodes only are reached by a few passes.

        Returns
        -------
        array of shape (n_new, n_components)
            In the order of X, or of ``new_names(X)``. Zero where no edge leads to a node that took part in
            ``fit``. A training sample gets its own row.
        """
        return new_embedding(self, remember(self, extrapolate(self, X)))

    def score_samples(self, X: object) -> Array:
        """How far new nodes or points lie from the training data; the model stays as it is.

        Parameters
        ----------
        X : as in ``transform``

        Returns
        -------
        array of shape (n_new,)
            The outlier score: the share of training rows that lie less far out, uniform on [0, 1] for rows
            drawn like them, 1 for rows that no edge joins to them. Of points, "far out" is the distance to
            the last neighbour over the mean of the neighbours' own; of nodes, how little their neighbours
            agree on a cluster. Unlike scikit-learn's outlier detectors, larger is farther out.
        """
        return extrapolate(self, X).scores

    def new_names(self, X: object) -> Array:
        """Names of the new nodes in X, in the order of the rows of ``transform`` and ``predict``.

        Parameters
        ----------
        X : as in ``transform``

        Returns
        -------
        array of shape (n_new,)
            Row numbers where X is an array.
        """
        return make_query(self, X).names

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the fitted model into a folder, in place of an earlier model; see :func:`spectrograd.load`.

        The folder holds arrays and JSON, and appears whole or not at all. The graph and, for points, the
        training points are part of it; ``history_`` and ``affinity_matrix_`` are not.
        """
        from spectrograd.estimators.persistence import save_model

        check_is_fitted(self)
        save_model(self, path)

    def plot(self, ax: object = None, *, components: tuple[int, int] | None = None) -> Any:
        """Draw the embedding with matplotlib, coloured by cluster where there are clusters.

        Parameters
        ----------
        ax : matplotlib Axes, optional
            Where to draw; a new figure when not given.
        components : pair of int, optional
            Columns of ``embedding_`` to use as axes. When not given, the first two; with clusters, a linear
            view of all columns that keeps the clusters apart.

        Returns
        -------
        matplotlib Axes
            Its ``figure`` can be saved.

        Examples
        --------
        >>> from matplotlib.figure import Figure
        >>> from spectrograd import SpectralClustering, datasets
        >>> data = datasets.make_block_model(300, 3, random_state=0)
        >>> model = SpectralClustering(3, random_state=0).fit(data.graph)
        >>> model.plot(ax=Figure().subplots()).get_title()
        'SpectralClustering: 300 nodes, 3 clusters'
        """
        return plot_embedding(self, ax, components)

    @property
    def graph_(self) -> Graph | MultilayerGraph:
        """The graph of the model, as the last ``fit`` or ``partial_fit`` left it."""
        check_is_fitted(self)
        return self._training_data.graph

    @property
    def update_sentence_(self) -> str:
        """What the last ``partial_fit`` did, in plain words."""
        return update_sentence(self)

    @property
    def new_names_(self) -> Array:
        """Names of the nodes of the last ``transform`` or ``predict``; use ``new_names(X)``."""
        names = last_query(self).query.names
        warn("new_names_ will be removed: new_names(X) returns the names of new nodes", FutureWarning)
        return names

    @property
    def outlier_score_(self) -> Array:
        """Outlier scores of the last ``transform`` or ``predict``; use ``score_samples(X)``."""
        scores = last_query(self).scores
        warn("outlier_score_ will be removed: score_samples(X) returns the outlier scores", FutureWarning)
        return scores

    @property
    def set_aside_(self) -> Array:
        """The former name of ``excluded_``."""
        excluded = self.excluded_
        warn("set_aside_ will be removed: it is called excluded_", FutureWarning)
        return excluded

    def __repr__(self, N_CHAR_MAX: int = 700) -> str:
        """The parameters, as scikit-learn writes them; of a fitted clustering the verdict on its clusters."""
        wrap_as_scikit_learn(Spectral.__repr__)
        text: str = super().__repr__(N_CHAR_MAX)
        verdict = getattr(self, "cluster_verdict_", None)
        return text if verdict is None else f"{text}\n# {verdict.sentence}"

    def _repr_html_inner(self) -> str:
        with several_sections():
            return str(super()._repr_html_inner()) + summary_html(self)

    def _repr_mimebundle_(self, **kwargs: object) -> dict[str, str]:
        with several_sections():
            bundle: dict[str, str] = super()._repr_mimebundle_(**kwargs)
        if "text/html" in bundle:
            bundle["text/html"] += summary_html(self)
        return bundle

    @property
    def _n_features_out(self) -> int:
        return int(self.embedding_.shape[1])

    @abstractmethod
    def _n_columns(self, n_nodes: int) -> int | str:
        """Eigenvectors to compute."""

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        tags.input_tags.pairwise = is_pairwise(self.affinity)
        return tags


@dataclass(eq=False, repr=False, kw_only=True)
class Embedder(Spectral):
    """An estimator whose result is the embedding."""

    n_components: int = field(default=8, kw_only=False)
    drop_first: bool = True
    _run = staticmethod(embed)

    def _n_columns(self, n_nodes: int) -> int:
        extra = 1 if self._drops_first else 0
        check_components(self.n_components, n_nodes - extra, "n_components")
        return self.n_components + extra


@dataclass(eq=False, repr=False, kw_only=True)
class Clusterer(ClusterMixin, Spectral):
    """An estimator whose result is a label per node."""

    n_clusters: int | str = field(default=8, kw_only=False)
    n_components: int | None = None
    gamma: float | None = 1.0
    assign_labels: str = "kmeans"
    n_init: int = 10
    labels_: Array = field(init=False)
    n_clusters_: int = field(init=False)
    membership_: Array | None = field(init=False)
    _cluster_verdict: Any = field(init=False)
    _run = staticmethod(cluster)

    def fit_predict(self, X: object, y: None = None, **columns: str) -> Array:
        """Cluster and return the labels.

        Parameters
        ----------
        X, y, **columns
            As for ``fit``.

        Returns
        -------
        array of shape (n_nodes,)
            ``labels_``, in the order of ``names_``; -1 for nodes excluded.
        """
        return self.fit(X, None, **columns).labels_

    def predict(self, X: object, *, outlier_quantile: float | None = None) -> Array:
        """Clusters of new nodes or points: the nearest cluster of each row of ``transform``.

        Parameters
        ----------
        X : as in ``transform``
        outlier_quantile : float in (0, 1], optional
            Rows whose score (``score_samples``) reaches it get -1: 0.99 refuses rows that lie farther out
            than 99 % of the training data. Without it only rows get -1 that no edge joins to them.

        Returns
        -------
        array of shape (n_new,)
        """
        check_quantile(outlier_quantile)
        return new_labels(self, remember(self, extrapolate(self, X)), outlier_quantile)

    @property
    def cluster_verdict_(self) -> ClusterVerdict | None:
        """Whether the clusters are more than chance; judged when it is first asked for."""
        judged: Any = self._cluster_verdict
        if callable(judged):
            judged = judged()
            self._cluster_verdict = judged
        return cast("ClusterVerdict | None", judged)

    def __getstate__(self) -> dict[str, object]:
        """A copy keeps the verdict, not the means to find it."""
        if hasattr(self, "_cluster_verdict"):
            _ = self.cluster_verdict_
        return dict(super().__getstate__())

    def _n_columns(self, n_nodes: int) -> int | str:
        """One per cluster unless ``n_components`` says otherwise; "auto" is known later."""
        if isinstance(self.n_clusters, str) and self.n_clusters == "auto":
            return "auto"
        check_components(self.n_clusters, n_nodes, "n_clusters")
        if self.n_components is None:
            return self.n_clusters
        check_components(self.n_components, n_nodes, "n_components")
        return self.n_components
