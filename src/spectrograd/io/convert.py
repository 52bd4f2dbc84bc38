"""Any input to a store on disk: streamed where the format allows, by way of memory where not."""

from __future__ import annotations

import shutil
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from spectrograd.graph import GraphError
from spectrograd.graph.validation import accept_signs
from spectrograd.io.columns import KEYWORD_OF
from spectrograd.io.edge_stream import STREAMED_SUFFIXES, FileSource, files_of
from spectrograd.io.edge_table import unique_names
from spectrograd.io.pajek import has_attributes, looks_like_infomap
from spectrograd.io.parquet import PARQUET_SUFFIX
from spectrograd.io.read_graph import ReadOptions, read_graph
from spectrograd.io.text import STDIN, check_exists, without_compression
from spectrograd.notices import parameters
from spectrograd.serialization.folders import check_target
from spectrograd.store import is_store, open_store
from spectrograd.store.edge_batches import EdgeSource, GraphSource, IngestSettings
from spectrograd.store.format import StoreMeta
from spectrograd.store.ingest import ingest
from spectrograd.system import resolve_path
from spectrograd.typing import JsonObject


def convert(
    sources: Sequence[str],
    target: str,
    settings: IngestSettings,
    *,
    columns: Mapping[str, str] | None = None,
    parts: bool = False,
    n_nodes: int | None = None,
    header: bool | None = None,
    format: str | None = None,
    key: Sequence[str] = (),
    signed: bool = False,
) -> StoreMeta:
    """Write the graph in some files as a store.

    Parameters
    ----------
    sources : sequence of str
        Files, folders, patterns, another store, or ``-``. Several are the layers of one graph, unless
        ``parts``: then they are parts of the same one, as the files of a folder always are.
    target : str
        The folder to be made.
    settings : IngestSettings
        Memory limit, duplicates, order.
    columns : mapping, optional
        Roles (``src dst weight layer``) to names of columns.
    parts : bool
        Whether all sources are parts of one graph.
    n_nodes : int, optional
        Ids are rows below this number.
    header, format, key
        As of :func:`spectrograd.read_graph`.
    signed : bool
        Whether weights may be negative.
    """
    options = ReadOptions(columns or {}, header, format, tuple(key))
    check_target(Path(target), settings.force)
    with accept_signs(signed), _stdin_as_file(sources, target) as (given, stdin):
        try:
            source = _source(given, options, parts, n_nodes)
            return ingest(Path(target), source, settings)
        except GraphError as error:
            if stdin is None or stdin not in str(error):
                raise
            raise GraphError(str(error).replace(stdin, "standard input")) from None


def _source(sources: Sequence[str], options: ReadOptions, parts: bool, n_nodes: int | None) -> EdgeSource:
    listed = [files_of(source) for source in sources]
    files = [path for group in listed for path in group]
    for path in files:
        if not is_store(path):
            check_exists(path)
    streamed = [_is_streamed(path, options) for path in files]
    if all(streamed):
        if options.keys:
            raise GraphError(f"{files[0]}: {parameters('key')} is for .mat files")
        said = options.chosen, n_nodes, options.header, options.format
        if parts:
            return FileSource({"graph": files}, *said)
        stems = unique_names([Path(without_compression(source.rstrip("/"))).stem for source in sources])
        return FileSource(dict(zip(stems, listed, strict=True)), *said)
    if parts or n_nodes is not None:
        other = files[streamed.index(False)]
        raise GraphError(f"{other}: --parts and --nodes are for edge lists and Parquet")
    if len(files) == 1 and is_store(files[0]):
        return GraphSource(open_store(files[0]))
    named: JsonObject = {KEYWORD_OF[role]: column for role, column in options.chosen.items()}
    how: JsonObject = {"header": options.header, "format": options.format, "key": options.keys}
    return GraphSource(read_graph(*files, **named, **how))


def _is_streamed(path: str, options: ReadOptions) -> bool:
    if is_store(path) or options.suffix(path) not in STREAMED_SUFFIXES:
        return False
    if options.suffix(path) == PARQUET_SUFFIX:
        return True
    file = options.text_file(path)
    return not looks_like_infomap(file) and not has_attributes(file)


@contextmanager
def _stdin_as_file(sources: Sequence[str], target: str) -> Iterator[tuple[Sequence[str], str | None]]:
    """Keep standard input in a file beside the target: it can be read only once."""
    if STDIN not in sources:
        yield sources, None
        return
    if sources.count(STDIN) > 1:
        raise GraphError("standard input ('-') can be only one of the layers")
    place = resolve_path(target)
    with tempfile.TemporaryDirectory(prefix=f".{place.name}.", suffix=".stdin", dir=place.parent) as folder:
        kept = Path(folder, "stdin.txt")
        with open(kept, "wb") as handle:
            shutil.copyfileobj(sys.stdin.buffer, handle, 1 << 20)
        yield [str(kept) if source == STDIN else source for source in sources], str(kept)


# --- A Dask dataframe of edges to a store: its workers write parts, which are converted as files are.


def is_dask_frame(value: object) -> bool:
    """Whether this is a dataframe of Dask, without importing Dask."""
    return type(value).__module__.split(".")[0] in ("dask", "dask_expr") and hasattr(value, "to_parquet")


def dask_frame_to_store(target: Path, frame: Any, settings: IngestSettings) -> StoreMeta:
    """Write the partitions beside the target, each by the worker that has it, and make a store of them.

    The folder of the target must be one that the workers write to as well.
    """
    place = resolve_path(target)
    with tempfile.TemporaryDirectory(prefix=f".{place.name}.", suffix=".parts", dir=place.parent) as folder:
        frame.to_parquet(folder, write_index=False, write_metadata_file=False)
        return convert([folder], str(target), settings)
