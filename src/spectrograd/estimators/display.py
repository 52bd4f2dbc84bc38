"""How a fitted estimator shows itself: a picture, and its figures below scikit-learn's diagram."""

from __future__ import annotations

from contextlib import suppress
from functools import cache
from html import escape
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.utils.validation import check_is_fitted

SHOWN_SIZES = 20
SHOWN_EXCLUDED = 10


class DisplayMixin:
    """Mixin of the estimators, in front of scikit-learn's base class."""

    embedding_: NDArray[Any]

    def plot(self, ax: Any = None, *, components: tuple[int, int] | None = None) -> Any:
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
        from spectrograd.report.figures import draw_embedding, draw_points

        check_is_fitted(self, "embedding_")
        vectors, labels = self.embedding_, getattr(self, "labels_", None)
        ax = _new_axes() if ax is None else ax
        if components is None and labels is not None:
            draw_embedding(ax, vectors, labels)
        else:
            pair = _pair(components, vectors.shape[1])
            draw_points(ax, vectors[:, pair], labels)
            ax.set_xlabel(f"component {pair[0]}")
            ax.set_ylabel(f"component {pair[1]}")
        ax.set_title(f"{type(self).__name__}: {_extent(self)}")
        return ax

    def __repr__(self, N_CHAR_MAX: int = 700) -> str:
        """The parameters, as scikit-learn writes them; of a fitted clustering the verdict on its clusters."""
        _wrap_as_scikit_learn()
        text: str = super().__repr__(N_CHAR_MAX)  # type: ignore[call-arg]
        verdict = getattr(self, "cluster_verdict_", None)
        return text if verdict is None else f"{text}\n# {verdict.sentence}"

    def _repr_html_inner(self) -> str:
        diagram: str = super()._repr_html_inner()  # type: ignore[misc]
        return diagram + _story(self)

    def _repr_mimebundle_(self, **kwargs: Any) -> dict[str, str]:
        bundle: dict[str, str] = super()._repr_mimebundle_(**kwargs)  # type: ignore[misc]
        if "text/html" in bundle:
            bundle["text/html"] += _story(self)
        return bundle


@cache
def _wrap_as_scikit_learn() -> None:
    """Have scikit-learn's printer break the lines of our estimators, which it knows by their ``__repr__``."""
    with suppress(ImportError, AttributeError):  # private to scikit-learn: without it the line is long
        from sklearn.utils._pprint import _EstimatorPrettyPrinter as Printer

        Printer._dispatch[DisplayMixin.__repr__] = Printer._pprint_estimator


def _new_axes() -> Any:
    import matplotlib.pyplot as plt

    return plt.subplots(figsize=(6.4, 5.6), layout="constrained")[1]


def _pair(components: tuple[int, int] | None, width: int) -> list[int]:
    """Two columns; of an embedding that has one only, twice the same."""
    pair = [0, min(1, width - 1)] if components is None else list(components)
    if len(pair) != 2 or not all(isinstance(i, int | np.integer) and 0 <= i < width for i in pair):
        raise ValueError(f"components={components!r}: expected two columns from 0 to {width - 1}")
    return pair


def _extent(model: Any) -> str:
    n_nodes, width = model.embedding_.shape
    if hasattr(model, "labels_"):
        return f"{n_nodes:,} nodes, {len(_clusters(model)[0])} clusters"
    return f"{n_nodes:,} nodes, {width} dimensions"


def _story(model: Any) -> str:
    """What was found and how far to trust it; nothing before ``fit``. Borders only, so any theme suits."""
    from spectrograd.report.document import certificate_words

    if not hasattr(model, "certificate_"):
        return ""
    words = certificate_words(model.certificate_.summary(), _short_layers(model))
    judged = getattr(model, "cluster_verdict_", None)
    lines = [
        "" if judged is None else f"<b>{escape(_capital(judged.sentence))}.</b>",
        f"<b>{escape(words[0])}</b>",
        escape(" ".join(words[1:])),
        escape(f"{_extent(model)}; solver {model.solver_}{_iterations(model)}"),
        _treatment(model),
        _sizes(model),
    ]
    body = "".join(f'<p style="margin:.3em 0">{line}</p>' for line in lines if line)
    good = model.converged_ and (judged is None or judged.verdict == "clear")
    colour = "#0b8a66" if good else "#c4510c"
    return (
        f'<div class="spectrograd-certificate" style="border-left:4px solid {colour};padding:.1em .9em;'
        f'margin:.6em 0;max-width:46em">{body}</div>'
    )


def _capital(text: str) -> str:
    return text[:1].upper() + text[1:]


def _iterations(model: Any) -> str:
    return f", {model.n_iter_:,} iterations" if model.n_iter_ > 1 else ""  # a direct method has none


def _short_layers(model: Any) -> list[str]:
    certificates = getattr(model, "layer_certificates_", [])
    names = getattr(model, "layer_names_", ())
    return [
        str(name) for name, certificate in zip(names, certificates, strict=False) if not certificate.converged
    ]


def _clusters(model: Any) -> tuple[NDArray[Any], NDArray[Any]]:
    """Numbers and sizes of the clusters; -1, of excluded nodes, is none."""
    numbers, sizes = np.unique(model.labels_[model.labels_ >= 0], return_counts=True)
    return numbers, sizes


def _treatment(model: Any) -> str:
    """What was done to the graph: regularisation, and nodes that took no part."""
    from spectrograd.report.document import treatment_words

    names = model.excluded_
    excluded = {"count": len(names), "share": len(names) / len(model.names_), "names": names[:SHOWN_EXCLUDED]}
    excluded["names"] = [str(name) for name in excluded["names"]]
    told = treatment_words(model.regularization_.summary(), excluded if len(names) else None)
    return escape(" ".join(told))


def _sizes(model: Any) -> str:
    if not hasattr(model, "labels_"):
        return ""
    clusters, sizes = _clusters(model)
    shown = [f"{cluster}: {size:,}" for cluster, size in zip(clusters[:SHOWN_SIZES], sizes, strict=False)]
    rest = f", … ({len(clusters) - SHOWN_SIZES} more)" if len(clusters) > SHOWN_SIZES else ""
    return f"nodes per cluster: {escape(', '.join(shown))}{rest}"
