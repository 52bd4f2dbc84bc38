"""Results as a folder of Parquet files, each written by the worker that has its rows."""

from __future__ import annotations

import os
import secrets
import shutil
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from spectrograd.engines.protocol import Tall
from spectrograd.extras import need
from spectrograd.graph import Array, GraphError
from spectrograd.graph.names import as_plain
from spectrograd.io.write.results import write_embedding, write_labels

SUFFIX = ".parquet"


def is_folder_of_parts(path: str | os.PathLike[str] | None) -> bool:
    """Whether a target is written as ``name.parquet/``."""
    return path is not None and str(path).endswith(("/", os.sep))


def check_parts(path: str | os.PathLike[str]) -> None:
    """Refuse a target that is no folder of parts, or one that holds anything else."""
    target = Path(path)
    if target.suffix != SUFFIX:
        raise ValueError(f"{path}: a folder of parts is written as Parquet; call it name{SUFFIX}/")
    need("pyarrow.parquet", f"{path}: Parquet")
    if not target.resolve().parent.is_dir():
        raise ValueError(f"{path}: the folder {target.resolve().parent} does not exist; create it first")
    if target.exists() and not (target.is_dir() and all(map(_is_part, target.iterdir()))):
        raise ValueError(f"{path}: is there already and no folder of parts; choose another name")


def write_parts(
    path: str | os.PathLike[str], values: Any, nodes: Array | None, *, engine: Any = None
) -> list[Path]:
    """Write an embedding or labels as a folder of Parquet files, which appears whole or not at all.

    Parameters
    ----------
    path : path-like
        ``name.parquet/``. Parts that are there are replaced, anything else is refused. With an engine it must
        be on a file system that its workers share with this process.
    values : array or tall
        Vectors (n_nodes, n_components) or labels (n_nodes,); with an ``engine``, a tall of it, whose rows
        never come here.
    nodes : array of shape (n_nodes,), optional
        Names, in the order of the rows; row numbers when not given.
    engine : Engine, optional
        Whose workers write, one file each. Without one there is one file.

    Returns
    -------
    list of Path
        The parts; columns are those of :func:`write_embedding` and :func:`write_labels`.
    """
    check_parts(path)
    target = Path(os.path.realpath(path))
    draft = target.with_name(f".{target.name}.{secrets.token_hex(4)}.tmp")
    draft.mkdir()
    try:
        if engine is None:
            names = [_write_part(str(draft), 0, np.asarray(values), nodes)]
        else:
            names = _by_workers(engine, draft, values, nodes)
        missing = [name for name in names if not (draft / name).is_file()]
        if missing:
            raise GraphError(
                f"{path}: {missing[0]} was written by a worker but is not here; the folder must be on a file "
                "system that all workers share"
            )
        if target.exists():
            shutil.rmtree(target)
        os.replace(draft, target)
    finally:
        shutil.rmtree(draft, ignore_errors=True)
    return [target / name for name in names]


def _by_workers(engine: Any, folder: Path, values: Tall, nodes: Array | None) -> list[str]:
    talls = () if nodes is None else (engine.put(np.ascontiguousarray(as_plain(nodes))[:, None]),)
    names: list[str] = engine.each_block("write", partial(_write_block, str(folder)), values, *talls)
    return names


def _write_block(folder: str, start: int, values: Array, nodes: Array | None = None) -> str:
    """Runs on a worker; written beside its name and moved there, so that it may be done again."""
    flat = values[:, 0] if values.dtype.kind in "iu" else values
    try:
        return _write_part(folder, start, flat, None if nodes is None else nodes[:, 0])
    except OSError as error:  # Dask takes its own for a lost worker
        from spectrograd.engines.cluster.tasks import address

        raise GraphError(
            f"worker {address()}: {error}; results are written by the workers, so the folder must be on a "
            "file system that all of them share"
        ) from None


def _write_part(folder: str, start: int, values: Array, nodes: Array | None) -> str:
    name = f"part-{start:012d}{SUFFIX}"
    write = write_labels if values.ndim == 1 else write_embedding
    write(Path(folder, name), values, np.arange(start, start + len(values)) if nodes is None else nodes)
    return name


def _is_part(path: Path) -> bool:
    return path.name.startswith("part-") and path.suffix == SUFFIX
