"""How a fitted estimator shows itself: a picture, and its figures below scikit-learn's diagram."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import cache
from html import escape
from typing import TYPE_CHECKING, Any

import numpy as np
from sklearn.utils.validation import check_is_fitted

from spectrograd.typing import Array

if TYPE_CHECKING:
    from spectrograd.estimators.base import Spectral

SHOWN_SIZES = 20
SHOWN_EXCLUDED = 10


def plot_embedding(model: Spectral, ax: Any, components: tuple[int, int] | None) -> Any:
    """Draw ``embedding_`` with matplotlib; see :meth:`SpectralEmbedding.plot`."""
    from spectrograd.report.figures import draw_embedding, draw_points

    check_is_fitted(model, "embedding_")
    vectors = model.embedding_
    labels = getattr(model, "labels_", None)
    ax = _new_axes() if ax is None else ax
    if components is None and labels is not None:
        draw_embedding(ax, vectors, labels)
    else:
        pair = _pair(components, vectors.shape[1])
        draw_points(ax, vectors[:, pair], labels)
        ax.set_xlabel(f"component {pair[0]}")
        ax.set_ylabel(f"component {pair[1]}")
    ax.set_title(f"{type(model).__name__}: {_extent(model)}")
    return ax


@cache
def wrap_as_scikit_learn(own_repr: Callable[..., str]) -> None:
    """Have scikit-learn's printer break the lines of our estimators, which it knows by their ``__repr__``."""
    with suppress(ImportError, AttributeError):  # private to scikit-learn: without it the line is long
        from sklearn.utils._pprint import _EstimatorPrettyPrinter as Printer

        Printer._dispatch[own_repr] = Printer._pprint_estimator


def _new_axes() -> Any:
    import matplotlib.pyplot as plt

    return plt.subplots(figsize=(6.4, 5.6), layout="constrained")[1]


def _pair(components: tuple[int, int] | None, width: int) -> list[int]:
    """Two columns; of an embedding that has one only, twice the same."""
    pair = [0, min(1, width - 1)] if components is None else list(components)
    if len(pair) != 2 or not all(isinstance(i, int | np.integer) and 0 <= i < width for i in pair):
        raise ValueError(f"components={components!r}: expected two columns from 0 to {width - 1}")
    return pair


def _extent(model: Spectral) -> str:
    n_nodes, width = model.embedding_.shape
    if hasattr(model, "labels_"):
        return f"{n_nodes:,} nodes, {len(_clusters(model.labels_)[0])} clusters"
    return f"{n_nodes:,} nodes, {width} dimensions"


@contextmanager
def several_sections() -> Iterator[None]:
    """Let scikit-learn read our docstrings, which have sections that it does not know, without a warning."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Unknown section", UserWarning)
        yield


def summary_html(model: Spectral) -> str:
    """The result and how far to trust it; nothing before ``fit``. Borders only, so any theme suits."""
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


def _iterations(model: Spectral) -> str:
    return f", {model.n_iter_:,} iterations" if model.n_iter_ > 1 else ""  # a direct method has none


def _short_layers(model: Spectral) -> list[str]:
    merged = getattr(model, "_merged", None)
    if merged is None:
        return []
    pairs = zip(merged.layer_names, merged.layers_behind, strict=False)
    return [str(name) for name, layer in pairs if not layer.certificate.converged]


def _clusters(labels: Array) -> tuple[Array, Array]:
    """Numbers and sizes of the clusters; -1, of excluded nodes, is none."""
    numbers, sizes = np.unique(labels[labels >= 0], return_counts=True)
    return numbers, sizes


def _treatment(model: Spectral) -> str:
    """What was done to the graph: regularisation, and nodes that took no part."""
    from spectrograd.report.document import treatment_words

    names = model.excluded_
    shown = [str(name) for name in names[:SHOWN_EXCLUDED]]
    excluded = {"count": len(names), "share": len(names) / len(model.names_), "names": shown}
    chosen = getattr(model, "treatment_", None)
    merged = getattr(model, "_merged", None)
    words = treatment_words(
        model.regularization_.summary(),
        excluded if len(names) else None,
        None if chosen is None else chosen.summary(),
        None if merged is None else merged.chosen.summary(),
    )
    return escape(" ".join(words))


def _sizes(model: Spectral) -> str:
    if not hasattr(model, "labels_"):
        return ""
    labels: Array = model.labels_
    clusters, sizes = _clusters(labels)
    shown = [f"{cluster}: {size:,}" for cluster, size in zip(clusters[:SHOWN_SIZES], sizes, strict=False)]
    rest = f", … ({len(clusters) - SHOWN_SIZES} more)" if len(clusters) > SHOWN_SIZES else ""
    return f"nodes per cluster: {escape(', '.join(shown))}{rest}"
