"""Estimators of one graph."""

from __future__ import annotations

from spectrograd.estimators.base import Clusterer, Embedder
from spectrograd.estimators.inputs import as_graph
from spectrograd.estimators.parameter_docs import document_parameters


@document_parameters
class SpectralEmbedding(Embedder):
    """Embed the nodes of a graph (or points, through their neighbours) by eigenvectors of its Laplacian.

    Parameters come in four blocks: those of scikit-learn's estimator of the same name, under the same
    names; then graph, solver and resources.

    Parameters
    ----------
    n_components : int
        Columns of the embedding.
    drop_first : bool
        Leave out the trivial first eigenvector.
    {parameters}

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

    _read = staticmethod(as_graph)


@document_parameters
class SpectralClustering(Clusterer):
    """Cluster the nodes of a graph (or points, through their neighbours).

    Embeds into ``n_clusters`` eigenvectors (the trivial one included, as scikit-learn does), then assigns
    labels on rows of unit length. With ``regularization="auto"`` other treatments are tried where these
    vectors leave a doubt: see ``treatment_``. Parameters come in four blocks: those of scikit-learn's
    estimator of the same name, under the same names; then graph, solver and resources.

    Parameters
    ----------
    n_clusters : int or "auto"
        "auto" is the number before the largest eigengap, at most 60 (over a store 20); a warning says where
        no number is clear.
    n_components : int or None
        Columns of the embedding where they should differ from ``n_clusters``, for k-means.
    assign_labels : {"kmeans", "cluster_qr", "discretize"}
        How rows of the embedding become clusters.
    n_init : int
        Maximum number of starts of k-means; on larger graphs they end when two agree.
    {parameters}

    Attributes
    ----------
    labels_ : array of shape (n_nodes,)
        -1 for excluded nodes.
    membership_ : array of shape (n_nodes,)
        How sure each label is, 0 to 1: how much nearer its centre is than the next. NaN for excluded nodes.
    treatment_ : Treatment
        Which vectors made the clusters, ``.name`` and ``.reason``, and the ``.candidates`` they were chosen
        among: with ``regularization="auto"`` the partition that tells most about the edges. The columns of
        ``embedding_`` are those vectors: more than ``n_clusters`` where so many were chosen.
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

    _read = staticmethod(as_graph)
