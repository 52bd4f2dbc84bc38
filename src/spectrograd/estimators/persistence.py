"""Fitted values as JSON and arrays, and back: plain values, arrays, and a fixed list of our own frozen ones.

No pickle: a model from a stranger can hold wrong numbers, but it cannot run anything.
"""

from __future__ import annotations

import os
import zlib
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import scipy.sparse as sp

from spectrograd.estimators.affinity_rows import FeatureQuery, PointRows, QueryAffinity
from spectrograd.estimators.fitted import set_fit_attributes
from spectrograd.estimators.inputs import FitInput
from spectrograd.estimators.multilayer import MultilayerSpectralClustering, MultilayerSpectralEmbedding
from spectrograd.estimators.single import SpectralClustering, SpectralEmbedding
from spectrograd.graph import Graph, GraphError, MultilayerGraph, Recall
from spectrograd.graph.features import FeatureGraph
from spectrograd.io.matrices import decoding
from spectrograd.pipeline import Result, Settings
from spectrograd.points.query import KnownPoints
from spectrograd.serialization.codec import Json, ValueReader, ValueWriter
from spectrograd.serialization.folders import MANIFEST, new_folder, read_manifest, write_manifest
from spectrograd.store.stored_graph import StoredGraph, StorePlace
from spectrograd.typing import Array, JsonMapping, JsonObject


@dataclass(eq=False)
class Writer(ValueWriter):
    """Arrays become files of the folder, each once."""

    folder: Path
    files: dict[str, JsonObject] = field(default_factory=dict)
    _seen: dict[int, tuple[str, Array]] = field(default_factory=dict)

    def other(self, value: object, where: str) -> Json:
        """Encode graphs on disk by their place, sparse matrices by their arrays, a recall by its figures."""
        if isinstance(value, StoredGraph):
            path, fingerprint, layer, dtype = value.place
            return {"store": [str(path), fingerprint, layer, str(dtype)]}
        if isinstance(value, Recall):
            return {"recall": {**value.summary()}}
        if sp.issparse(value):
            csr = sp.csr_array(value)
            parts = [self.encode(getattr(csr, name), f"{where}.{name}") for name in _CSR]
            return {"sparse": [*parts, list(csr.shape)]}
        if isinstance(value, tuple):  # with names
            return self.encode(tuple(value), where)
        raise GraphError(f"{where} is of type {type(value).__name__}, which a saved model cannot hold")

    def array(self, array: Array, where: str) -> Json:
        """Write an array of numbers to a file of its own; list names in the JSON itself."""
        if array.dtype == object:
            listed = array.tolist()
            if not all(isinstance(name, str | int) for name in listed):
                raise GraphError(
                    f"{where}: names other than numbers and texts cannot be saved; rename the nodes"
                )
            return {"names": listed}
        if id(array) not in self._seen:
            file = f"{where}.npy"
            np.save(self.folder / file, array, allow_pickle=False)
            content = (self.folder / file).read_bytes()
            self.files[file] = {"bytes": len(content), "crc32": zlib.crc32(content)}
            self._seen[id(array)] = (file, array)  # the array too, or its id might be used again
        return {"array": self._seen[id(array)][0]}


@dataclass(frozen=True, eq=False)
class Reader(ValueReader):
    """The way back; arrays are mapped, not read."""

    folder: Path
    digest: str = ""  # of a change that stores may have taken in since
    ahead: list[StoredGraph] = field(default_factory=list)  # those that have
    listed = tuple

    def array(self, reference: Any) -> Array:
        """Map an array; nothing is ever written back, but kernels are compiled for writable arrays."""
        return np.asarray(np.load(self.folder / Path(reference).name, mmap_mode="c", allow_pickle=False))

    def other(self, value: JsonMapping) -> Any:
        """Decode a value that :meth:`Writer.other` encoded."""
        if "sparse" in value:
            *parts, shape = value["sparse"]
            data, indices, indptr = map(self.decode, parts)
            matrix = sp.csr_array((data, indices, indptr), shape=tuple(shape))
            matrix.check_format(full_check=True)  # one pass: compiled code does not look
            return matrix
        if "store" in value:
            path, fingerprint, layer, dtype = value["store"]
            return self._stored(StorePlace(Path(path), str(fingerprint), int(layer), np.dtype(dtype)))
        if "recall" in value:
            return Recall.from_summary(value["recall"])
        return np.fromiter(value["names"], dtype=object, count=len(value["names"]))

    def _stored(self, place: StorePlace) -> StoredGraph:
        graph = place.open(self.digest)
        if graph.store.meta.fingerprint != place.fingerprint:
            self.ahead.append(graph)
        return graph


_CSR = ("data", "indices", "indptr")


# --- Models on disk: a folder of arrays and one JSON file, whole or not there at all.

FORMAT = "spectrograd-model"
VERSION = 3
CLASSES = (
    "SpectralEmbedding",
    "SpectralClustering",
    "MultilayerSpectralEmbedding",
    "MultilayerSpectralClustering",
    "DiffusionMap",
)
# Of a fitted model, with one row per node.
PER_NODE = ("_raw_vectors", "labels_", "membership_", "names_")
# Large, or recorded elsewhere: the progress of the solver, the matrix of the graph, the layers' own
# solutions, the embedding once more on a device.
NOT_SAVED = frozenset({"history_", "affinity_matrix_", "_merged", "_multivector", "_keeps_multivector"})


def save_model(model: Any, path: str | os.PathLike[str]) -> None:
    """Write a fitted model into a folder, in place of an earlier one."""
    from spectrograd import __version__

    params = model.get_params(deep=False)
    getattr(model, "cluster_verdict_", None)  # judged now: what is saved is the verdict
    fitted = {name: value for name, value in vars(model).items() if name not in {*params, *NOT_SAVED}}
    float_kind = fitted.pop("_float").__name__
    name = next(cls.__name__ for cls in type(model).__mro__ if cls.__name__ in CLASSES)
    try:
        with new_folder(Path(path), replace=True) as folder:
            writer = Writer(folder)
            content = {
                "format": FORMAT,
                "version": VERSION,
                "written_by": __version__,
                "class": name,
                "float": float_kind,
                "params": {key: writer.encode(value, key) for key, value in params.items()},
                "fitted": {key: writer.encode(value, key) for key, value in fitted.items()},
            }
            write_manifest(folder, {**content, "files": writer.files})
    except GraphError as error:
        raise GraphError(_about_models(error)) from None


def load_model(path: str | os.PathLike[str], *, check: bool = False) -> Any:
    """Open a saved model; its arrays are mapped and read when they are used.

    Parameters
    ----------
    path : path-like
        The folder that ``save`` wrote.
    check : bool
        Read every byte and compare checksums; without it the sizes of the files and the structure of the
        graph are looked at.

    Examples
    --------
    >>> import tempfile, spectrograd
    >>> data = spectrograd.datasets.make_block_model(300, 3, random_state=0)
    >>> model = spectrograd.SpectralClustering(3, random_state=0).fit(data.graph)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     model.save(folder + "/blocks.model")
    ...     again = spectrograd.load(folder + "/blocks.model")
    ...     (again.labels_ == model.labels_).all()
    np.True_
    """
    return load_for_change(path, check=check)[0]


def load_for_change(
    path: str | os.PathLike[str], digest: str = "", *, check: bool = False
) -> tuple[Any, bool]:
    """A saved model, and whether its graph on disk has taken in the change of this digest since."""
    folder = Path(path)
    try:
        content = read_manifest(folder)
    except GraphError as error:
        raise GraphError(_about_models(error)) from None
    if content.get("format") != FORMAT:
        raise GraphError(f"{folder}: no saved model ({MANIFEST} is that of something else)")
    if content.get("version") != VERSION:
        raise GraphError(
            f"{folder}: a model of format {content.get('version')}, written by spectrograd "
            f"{content.get('written_by')}; this release reads format {VERSION}: fit and save it again"
        )
    with decoding(str(folder / MANIFEST), "damaged", "save the model again"):
        _check_files(folder, content["files"], check)
        return _revived(folder, content, digest)


def _revived(folder: Path, content: JsonObject, digest: str) -> tuple[Any, bool]:
    import numpy as np

    from spectrograd import estimators

    if content["class"] not in CLASSES:
        raise GraphError(f"{folder}: {content['class']!r} is no estimator of this package")
    reader = Reader(folder, digest)
    params = {name: reader.decode(value) for name, value in content["params"].items()}
    model = getattr(estimators, content["class"])(**params)
    fitted = {name: reader.decode(value) for name, value in content["fitted"].items()}
    ahead = bool(reader.ahead)
    if content["class"] == "DiffusionMap":
        _check_diffusion(fitted)
    else:
        _check_fitted(fitted, ahead)
    model.__dict__.update(fitted, _float=np.float32 if content["float"] == "float32" else np.float64)
    return model, ahead


def _check_fitted(fitted: JsonObject, ahead: bool) -> None:
    """Refuse arrays that do not fit the graph they are of; one that is ahead may have more nodes."""
    import numpy as np

    from spectrograd.certificate import Certificate
    from spectrograd.estimators.out_of_sample import TrainingData
    from spectrograd.graph import Graph, MultilayerGraph

    known = fitted["_training_data"]
    certificate = fitted["certificate_"]
    if not isinstance(known, TrainingData) or not isinstance(certificate, Certificate):
        raise GraphError("what the model knows is missing")
    graph = known.graph
    if not isinstance(graph, Graph | MultilayerGraph):
        raise GraphError("the graph is missing")
    sizes = {layer.n_nodes for layer in graph.layers}
    if len(sizes) != 1:
        raise GraphError("layers of several sizes")
    (n_nodes,) = sizes
    rows = {name: fitted.get(name) for name in PER_NODE} | {"names of nodes": known.names}
    if known.extension is not None:
        rows |= {"extension": known.extension.vectors, "active": known.extension.active}
    for name, array in rows.items():
        if array is None:
            continue
        if not isinstance(array, np.ndarray) or not (
            len(array) == n_nodes or (ahead and len(array) < n_nodes)
        ):
            raise GraphError(f"{name} has {np.shape(array)} entries, the graph {n_nodes} nodes")
    vectors = fitted["_raw_vectors"]
    if vectors.ndim != 2 or vectors.dtype.kind != "f" or np.shape(certificate.residuals) != vectors.shape[1:]:
        raise GraphError(f"vectors of shape {vectors.shape} do not fit the certificate")
    _check_labels(fitted)


def _check_labels(fitted: JsonMapping) -> None:
    """Labels are counted, and so must be numbers of clusters: memory is taken by the largest."""
    labels = fitted.get("labels_")
    if labels is None:
        return
    n_clusters = fitted.get("n_clusters_")
    if not isinstance(n_clusters, int) or not 0 < n_clusters <= max(1, len(labels)):
        raise GraphError(f"{n_clusters!r} is no number of clusters for {len(labels)} nodes")
    is_label = labels.dtype.kind == "i" and bool(((labels >= -1) & (labels < n_clusters)).all())
    if not is_label:
        raise GraphError(f"labels_ has numbers that are none of {n_clusters} clusters")


def _check_diffusion(fitted: JsonObject) -> None:
    """Refuse arrays of a diffusion map that do not fit each other."""
    psi = fitted["_psi"]
    values = fitted["eigenvalues_"]
    shape = np.shape(psi)
    if len(shape) != 2 or np.shape(values) != shape[1:] or np.shape(fitted["embedding_"]) != shape:
        raise GraphError(f"vectors of shape {shape} do not fit {np.shape(values)} eigenvalues")
    for name in ("_density", "_active"):
        if np.shape(fitted[name]) != shape[:1]:
            raise GraphError(f"{name} has shape {np.shape(fitted[name])}, the vectors {shape}")


def _check_files(folder: Path, files: dict[str, dict[str, int]], check: bool) -> None:
    for name, recorded in files.items():
        path = folder / Path(name).name
        if path.is_symlink():
            raise GraphError(f"{path}: is a link, which is not followed; save the model again")
        size = path.stat().st_size if path.is_file() else -1
        if size != recorded["bytes"]:
            what = "missing" if size < 0 else f"{size} bytes long instead of {recorded['bytes']}"
            raise GraphError(f"{path}: {what}; save the model again")
        if check and zlib.crc32(path.read_bytes()) != recorded["crc32"]:
            raise GraphError(f"{path}: damaged (its checksum is wrong); save the model again")


def _about_models(error: GraphError) -> str:
    """What the folder's keeper says, in words about models."""
    text = str(error).replace("make the store again", "save the model again")
    return text.replace("a store is a folder", "a saved model is a folder").replace(
        "no store", "no saved model"
    )


# --- A fitted estimator from a result of the pipeline, for whoever walked the line without one.


class PointSearch(Protocol):
    """How a graph of points was made."""

    @property
    def known(self) -> tuple[KnownPoints, ...]:
        """What the search of each view has found out."""

    @property
    def options(self) -> Any:
        """``neighbors``, ``metric`` and ``recall``."""


def model_of(
    graph: Graph | MultilayerGraph,
    result: Result,
    settings: Settings,
    *,
    drop_first: bool = False,
    points: PointSearch | None = None,
) -> Any:
    """The estimator that would have come to this result: a clustering where there are labels.

    ``points`` is how the graph was made, where it is one of points: the model then answers for new ones.
    """
    common: JsonObject = {
        "affinity": "precomputed",
        "laplacian": settings.laplacian,
        "solver": settings.solver,
        "solver_params": dict(settings.params) or None,
        "regularization": settings.regularization,
        "disconnected": settings.disconnected,
        "tol": settings.tol,
        "max_iter": settings.max_iter,
        "time_budget": settings.time_budget,
        "batch_size": settings.batch_size,
        "random_state": settings.seed,
    }
    if isinstance(graph, FeatureGraph):
        common |= {"affinity": graph.affinity}
    elif points is not None:
        common |= {
            "affinity": "nearest_neighbors",
            "n_neighbors": points.options.neighbors,
            "metric": points.options.metric,
            "recall": points.options.recall,
        }
    several = isinstance(graph, MultilayerGraph)
    if several:
        common |= {
            "aggregation": settings.aggregation,
            "alpha": settings.alpha,
            "layer_weights": settings.layer_weights,
            "aggregation_params": dict(settings.aggregation_params) or None,
        }
    model: Any
    if result.labels is None:
        columns = result.vectors.shape[1] - int(drop_first)
        made: Any = MultilayerSpectralEmbedding if several else SpectralEmbedding
        model = made(columns, drop_first=drop_first, **common)
    else:
        made = MultilayerSpectralClustering if several else SpectralClustering
        k = settings.n_components if settings.n_clusters is None else settings.n_clusters
        model = made(k, assign_labels=settings.assign_labels, n_init=settings.n_init, **common)
    makers: tuple[QueryAffinity, ...] | None = None
    attributes: JsonObject = {}
    if isinstance(graph, FeatureGraph):
        makers = (FeatureQuery(graph),)
        attributes = {"affinity_": graph.affinity, "n_features_in_": graph.features.shape[1]}
    elif points is not None:
        makers = tuple(map(PointRows, points.known))
        attributes = {"affinity_": "nearest_neighbors", "n_neighbors_": points.known[0].n_neighbors}
        if not several:
            attributes["n_features_in_"] = int(points.known[0].points.shape[1])
    source = FitInput(graph, makers=makers, attributes=attributes)
    set_fit_attributes(model, source, result, settings, None)
    return model
