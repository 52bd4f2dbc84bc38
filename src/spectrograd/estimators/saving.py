"""Models on disk: a folder of arrays and one JSON file, whole or not there at all."""

from __future__ import annotations

import os
import zlib
from pathlib import Path
from typing import Any

from spectrograd.estimators.saved_values import Reader, Writer
from spectrograd.graph import GraphError
from spectrograd.io.read.arrays import decoding
from spectrograd.store.folder import MANIFEST, new_folder, read_manifest, write_manifest

FORMAT, VERSION = "spectrograd-model", 1
CLASSES = (
    "SpectralEmbedding",
    "SpectralClustering",
    "MultilayerSpectralEmbedding",
    "MultilayerSpectralClustering",
)
# Of a fitted model, with one row per node.
PER_NODE = ("_raw_vectors", "labels_", "membership_", "names_")
# Large or told by others: the progress of the solver, the matrix of the graph, the layers' own solutions,
# the embedding once more on a device.
NOT_SAVED = frozenset({"history_", "affinity_matrix_", "_merged", "_makers", "_tall", "_keeps_tall"})


def save_model(model: Any, path: str | os.PathLike[str]) -> None:
    """Write a fitted model into a folder, in place of an earlier one."""
    from spectrograd import __version__

    params = model.get_params(deep=False)
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


def _revived(folder: Path, content: dict[str, Any], digest: str) -> tuple[Any, bool]:
    import numpy as np

    from spectrograd import estimators

    if content["class"] not in CLASSES:
        raise GraphError(f"{folder}: {content['class']!r} is no estimator of this package")
    reader = Reader(folder, digest)
    params = {name: reader.decode(value) for name, value in content["params"].items()}
    model = getattr(estimators, content["class"])(**params)
    fitted = {name: reader.decode(value) for name, value in content["fitted"].items()}
    ahead = bool(reader.ahead)
    _check_fitted(fitted, ahead)
    model.__dict__.update(fitted, _float=np.float32 if content["float"] == "float32" else np.float64)
    return model, ahead


def _check_fitted(fitted: dict[str, Any], ahead: bool) -> None:
    """Refuse arrays that do not fit the graph they are of; one that is ahead may have more nodes."""
    import numpy as np

    from spectrograd.certificate import Certificate
    from spectrograd.estimators.living import Knowledge
    from spectrograd.graph import Graph, MultilayerGraph

    known, certificate = fitted["_knowledge"], fitted["certificate_"]
    if not isinstance(known, Knowledge) or not isinstance(certificate, Certificate):
        raise GraphError("what the model knows is missing")
    graph = known.graph
    if not isinstance(graph, Graph | MultilayerGraph):
        raise GraphError("the graph is missing")
    sizes = {layer.n_nodes for layer in getattr(graph, "layers", (graph,))}
    if len(sizes) != 1:
        raise GraphError("layers of several sizes")
    (n_nodes,) = sizes
    rows = {name: fitted.get(name) for name in PER_NODE} | {"names of nodes": known.names}
    if known.extension is not None:
        rows |= {"extension": known.extension.vectors, "taking_part": known.extension.taking_part}
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


def _check_files(folder: Path, files: dict[str, dict[str, int]], check: bool) -> None:
    for name, told in files.items():
        path = folder / Path(name).name
        if path.is_symlink():
            raise GraphError(f"{path}: is a link, which is not followed; save the model again")
        size = path.stat().st_size if path.is_file() else -1
        if size != told["bytes"]:
            what = "missing" if size < 0 else f"{size} bytes long instead of {told['bytes']}"
            raise GraphError(f"{path}: {what}; save the model again")
        if check and zlib.crc32(path.read_bytes()) != told["crc32"]:
            raise GraphError(f"{path}: damaged (its checksum is wrong); save the model again")


def _about_models(error: GraphError) -> str:
    """What the folder's keeper says, in words about models."""
    text = str(error).replace("make the store again", "save the model again")
    return text.replace("a store is a folder", "a saved model is a folder").replace(
        "no store", "no saved model"
    )
