"""Matrices in files: ``.npz`` and ``.npy``, MatrixMarket ``.mtx`` and MATLAB ``.mat``.

No header is trusted before it is checked, and errors name the line or the variable.
"""

from __future__ import annotations

import io
import math
import re
import warnings
import zipfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, BinaryIO

import numpy as np
import scipy.io
import scipy.sparse as sp

from spectrograd.graph import Graph, GraphError, Recall
from spectrograd.graph.node_names import as_plain
from spectrograd.io.mat_structure import checked
from spectrograd.io.text import data_suffix, limit_lines, open_bytes
from spectrograd.io.text_scanner import arrow_numbers
from spectrograd.notices import on_command_line, parameters, setting
from spectrograd.system import MissingExtra
from spectrograd.typing import Array, JsonObject, Matrix

_HEADER_READERS = {
    (1, 0): np.lib.format.read_array_header_1_0,
    (2, 0): np.lib.format.read_array_header_2_0,
}
_PICKLE = "holds Python objects (a pickle), which are never opened; save numbers or texts"


@contextmanager
def decoding(path: str, what: str, remedy: str = "copy or save it again") -> Iterator[None]:
    """Whatever a decoder of foreign bytes fails with is a fault of the file, and names it.

    Bytes flipped at random reach any line of zipfile, expat or a header's parser: no list of exceptions is
    complete. As little as possible belongs inside: a bug of ours would be reported as a fault of the file.
    """
    try:
        yield
    except (GraphError, MissingExtra):
        raise
    except MemoryError:
        raise GraphError(
            f"{path}: {what} (it claims more than this machine's memory holds); {remedy}"
        ) from None
    except Exception as error:
        reason = " ".join(str(error).split()).rstrip(". ") or type(error).__name__
        raise GraphError(f"{path}: {what} ({reason}); {remedy}") from None


def load_array(path: str) -> Array:
    """Read the array of an ``.npy`` file; a file that is none is a ValueError."""
    with open(path, "rb") as handle:
        return _array(handle.read(), path)


class Archive(Mapping[str, Array]):
    """The arrays of an ``.npz`` file by name, each read when asked for."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._zip = zipfile.ZipFile(path)
        entries = (name for name in self._zip.namelist() if name.endswith(".npy"))
        self._entries = {entry.removesuffix(".npy"): entry for entry in entries}

    def __getitem__(self, name: str) -> Array:
        return _array(self._zip.read(self._entries[name]), name)

    def __iter__(self) -> Iterator[str]:
        return iter(self._entries)

    def __len__(self) -> int:
        return len(self._entries)

    def __enter__(self) -> Archive:
        return self

    def __exit__(self, *_: object) -> None:
        self._zip.close()


def _array(content: bytes, name: str) -> Array:
    """The array in the bytes of an ``.npy`` file; its claims are believed only where the bytes are there."""
    stream = io.BytesIO(content)
    version = np.lib.format.read_magic(stream)
    if version not in _HEADER_READERS:
        raise ValueError(f"{name!r}: version {version} of the npy format is unknown")
    shape, fortran_order, dtype = _HEADER_READERS[version](stream)
    if dtype.hasobject:
        raise ValueError(f"the array {name!r} {_PICKLE}")
    n_items = math.prod(shape)
    there = len(content) - stream.tell()
    if min(shape, default=0) < 0 or dtype.itemsize * n_items > there:
        raise ValueError(
            f"the array {name!r} claims {n_items:,} entries of {dtype.itemsize} bytes, "
            f"{there:,} bytes are there"
        )
    if dtype.itemsize == 0:
        return np.zeros(shape, dtype)
    flat = np.frombuffer(content, dtype, count=n_items, offset=stream.tell())
    # A copy: a view of bytes could be neither written to nor freed.
    return flat.reshape(shape, order="F" if fortran_order else "C").copy()


# --- MatrixMarket text, read in blocks of lines: every number is checked, and an error names its line.

BLOCK = 1 << 24  # bytes parsed at once: enough to hide the calls, little beside the matrix
_FORM = "%%MatrixMarket matrix coordinate|array real|integer|pattern general|symmetric"
_NUMBER = re.compile(
    rb"[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?|[+-]?(?:nan|inf|infinity)", re.I
)
_MAX_NODES = 2**31 - 1  # columns are 32-bit integers
# A file whose header has thousands of nodes for each entry is broken; small ones may be as they like.
_MANY_NODES = 10**7
_NODES_PER_ENTRY = 1000


@dataclass(frozen=True)
class _Header:
    """What the first lines say."""

    dense: bool
    pattern: bool
    symmetric: bool
    shape: tuple[int, int]
    claimed: int  # lines of data that follow
    line: int  # of the sizes

    @property
    def width(self) -> int:
        """Numbers on each line of data."""
        return 1 if self.dense else 2 if self.pattern else 3


def read_mtx(path: str) -> sp.coo_array | Array:
    """Read a real MatrixMarket file, plain or packed; symmetric ones come back with both triangles."""
    with open_bytes(path) as raw, limit_lines(raw, path) as handle:
        header = _read_header(path, handle)
        blocks = []
        found = 0
        for first_line, text in _blocks(handle, header.line + 1):
            quick = _parse_by_arrow(text, header, header.claimed - found)
            if quick is not None:
                found += len(quick)
                blocks.append(quick)
                continue
            numbers, lines = _numbers(path, text, first_line, header.width)
            found += len(numbers)
            if found > header.claimed:
                extra = lines[len(numbers) - (found - header.claimed)]
                raise _error(path, extra, f"more entries than the {header.claimed:,} of line {header.line}")
            if not header.dense:
                _check_places(path, numbers, lines, header.shape)
            blocks.append(numbers)
    if found < header.claimed:
        raise GraphError(
            f"{path}: line {header.line} claims {header.claimed:,} entries, {found:,} are there; "
            "the file was cut off"
        )
    rows = np.concatenate(blocks) if blocks else np.zeros((0, header.width))
    return _fill_matrix(rows[:, 0], header) if header.dense else _sparse(path, rows, header)


def _error(path: str, line: int, message: str) -> GraphError:
    return GraphError(f"{path}, line {line}: {message}")


def _read_header(path: str, handle: BinaryIO) -> _Header:
    first = handle.readline().decode("ascii", "replace").lower().split()
    if not first or first[0] != "%%matrixmarket":
        raise _error(path, 1, f"not a MatrixMarket file; it begins with {_FORM}")
    if len(first) != 5 or first[1] != "matrix" or first[2] not in ("coordinate", "array"):
        raise _error(path, 1, f"{' '.join(first)!r} cannot be read; expected {_FORM}")
    if first[3] not in ("real", "double", "integer", "unsigned-integer", "pattern"):
        raise _error(path, 1, f"{first[3]} weights; real weights are needed")
    if first[4] not in ("general", "symmetric"):
        raise _error(path, 1, f"{first[4]} matrices have negative weights; general or symmetric is needed")
    dense = first[2] == "array"
    pattern = first[3] == "pattern"
    symmetric = first[4] == "symmetric"
    if dense and pattern:
        raise _error(path, 1, "an array cannot be a pattern")
    line = 1
    text = b"%"
    while text.startswith(b"%") or (text and not text.strip()):
        line = line + 1
        text = handle.readline()
    sizes = text.split()
    wanted = "rows columns" if dense else "rows columns entries"
    if len(sizes) != len(wanted.split()) or not all(size.isdigit() and len(size) < 19 for size in sizes):
        raise _error(path, line, f"{_quote(text)} are no sizes; {wanted!r} are needed")
    # The sizes must fit the entries that are claimed: no memory is reserved for a lie.
    n = int(sizes[0])
    m = int(sizes[1])
    if symmetric and n != m:
        raise _error(path, line, f"{n} x {m} is not square, but symmetric")
    claimed = (n * (n + 1) // 2 if symmetric else n * m) if dense else int(sizes[2])
    if not dense and (max(n, m) > _MAX_NODES or max(n, m) > _MANY_NODES + _NODES_PER_ENTRY * claimed):
        raise _error(path, line, f"claims {max(n, m):,} nodes for {claimed:,} entries; the file is broken")
    return _Header(dense, pattern, symmetric, (n, m), claimed, line)


def _blocks(handle: BinaryIO, line: int) -> Iterator[tuple[int, bytes]]:
    """Yield the number of the first line and the text of whole lines, about ``BLOCK`` bytes at once."""
    rest = b""
    while text := handle.read(BLOCK):
        whole, newline, rest = (rest + text).rpartition(b"\n")
        if newline:
            yield line, whole
            line += whole.count(b"\n") + 1
    if rest.strip():
        yield line, rest


def _parse_by_arrow(text: bytes, header: _Header, most: int) -> Array | None:
    """The numbers of a large block as pyarrow parses them; None where there may be an error to name."""
    numbers = None if b"#" in text else arrow_numbers(text, header.width)
    if numbers is None or len(numbers) > most:
        return None
    places = () if header.dense else zip(numbers.T, header.shape, strict=False)
    return numbers if all(_inside(column, size).all() for column, size in places) else None


def _numbers(path: str, text: bytes, first_line: int, width: int) -> tuple[Array, Array]:
    """The numbers of a block, one row of ``width`` per line that is not blank, and these lines' numbers."""
    if b"%" in text:
        text = b"\n".join(b"" if line.lstrip().startswith(b"%") else line for line in text.split(b"\n"))
    # Words per line, counted on the bytes: a line with too many or too few is named.
    letters = np.frombuffer(text, dtype=np.uint8)
    blank = (letters == 32) | ((letters >= 9) & (letters <= 13))
    begins = ~blank
    begins[1:] &= blank[:-1]
    ends = np.append(np.flatnonzero(letters == 10), len(letters))
    words = np.diff(np.searchsorted(np.flatnonzero(begins), ends), prepend=0)
    lines = first_line + np.flatnonzero(words)
    words = words[words > 0]
    wrong = words != width
    if wrong.any():
        at = int(np.argmax(wrong))
        plural = "s" if width > 1 else ""
        raise _error(path, int(lines[at]), f"{width} number{plural} expected, found {words[at]}")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        try:
            numbers = np.fromstring(text.decode("ascii"), sep=" ") if len(words) else np.zeros(0)
        except (ValueError, DeprecationWarning):
            numbers = np.zeros(0)
    if len(numbers) != words.sum():  # a word that is no number, or one that reads as two ("1-2")
        numbers = _parse_words(path, text, lines, width)
    return numbers.reshape(-1, width), lines


def _parse_words(path: str, text: bytes, lines: Array, width: int) -> Array:
    words = text.split()
    bad = next((i for i, word in enumerate(words) if not _NUMBER.fullmatch(word)), None)
    if bad is not None:
        raise _error(path, int(lines[bad // width]), f"{_quote(words[bad])} is not a number")
    return np.array([float(word) for word in words])


def _quote(text: bytes) -> str:
    return repr(text.strip()[:40].decode("ascii", "backslashreplace"))


def _check_places(path: str, numbers: Array, lines: Array, shape: tuple[int, int]) -> None:
    for what, column, size in zip(("row", "column"), numbers.T, shape, strict=False):
        inside = _inside(column, size)
        if not inside.all():
            at = int(np.argmin(inside))
            raise _error(path, int(lines[at]), f"{what} {column[at]:.17g} is not one of 1..{size}")


def _inside(column: Array, size: int) -> Array:
    """Which numbers are places: whole, 1 to ``size``."""
    return np.asarray((column >= 1) & (column <= size) & (column == np.floor(column)))


def _sparse(path: str, rows: Array, header: _Header) -> sp.coo_array:
    i, j = (rows[:, at].astype(np.int32) - np.int32(1) for at in (0, 1))
    values = np.ones(len(rows)) if header.pattern else rows[:, 2]
    if header.symmetric:
        off = i != j
        i, j = np.concatenate([i, j[off]]), np.concatenate([j, i[off]])
        values = np.concatenate([values, values[off]])
    return sp.coo_array((values, (i, j)), shape=header.shape)


def _fill_matrix(values: Array, header: _Header) -> Array:
    """The dense matrix of a file that lists it, or its lower triangle, column by column."""
    n, m = header.shape
    if not header.symmetric:
        return values.reshape(m, n).T
    matrix = np.zeros((n, n))
    upper = np.triu_indices(n)  # row by row, so of the transpose column by column
    matrix[upper] = values
    matrix.T[upper] = values
    return matrix


# --- Variables of MATLAB's ``.mat`` files, chosen by name; read by scipy, packed or not.

MAT_SUFFIX = ".mat"
_HDF5 = b"\x89HDF"
_MAX_LISTED = 12  # variables that an error lists


def load_variable(path: str, key: str | None, what: str) -> Any:
    """The variable of this name, or the only one that can be ``what``: a graph, points or labels.

    Parameters
    ----------
    path : str
    key : str or None
        Its name.
    what : {"graph", "points", "labels"}
        A graph is a square matrix, points are a matrix, labels are a vector or one column per class.

    Returns
    -------
    array or sparse array
        Cells of MATLAB (``X{1}``, ``X{2}``) are called ``X:1``, ``X:2``.
    """
    fits = _FITTING[what]
    found = load_variables(path)
    fitting = {name: value for name, value in found.items() if fits(value)}
    if key is not None:
        if key not in found:
            raise GraphError(f"{path}: no variable {key!r} in it; there are {_listed(found)}")
        if key not in fitting:
            raise GraphError(f"{path}: the variable {key!r} ({_shape(found[key])}) holds no {what}")
        return fitting[key]
    if not fitting:
        raise GraphError(f"{path}: no variable in it holds {_EXPECTED[what]}; there are {_listed(found)}")
    if len(fitting) > 1:
        names = list(fitting)
        raise GraphError(
            f"{path}: several variables may be the {what}: {_listed(fitting)}; "
            f"choose one, such as {setting(_keyword(what), names[0])}{_MORE[what]}"
        )
    return next(iter(fitting.values()))


def load_variables(path: str) -> JsonObject:
    """All variables that hold numbers or texts, cells one by one."""
    with open_bytes(path) as handle:
        content = handle.read()
    if content[:4] == _HDF5 or b"MATLAB 7.3" in content[:128]:
        raise GraphError(f"{path}: a .mat file of version 7.3 (HDF5); save it with -v7 in MATLAB first")
    with decoding(path, "not a .mat file that can be read"):
        loaded = scipy.io.loadmat(io.BytesIO(checked(content)))
    variables: dict[str, object] = {}
    for name, value in loaded.items():
        if not name.startswith("__"):
            variables |= _cells(name, value)
    return variables


def _cells(name: str, value: object) -> JsonObject:
    if not isinstance(value, np.ndarray) or value.dtype != object:
        return {name: value}
    return {f"{name}:{at}": cell for at, cell in enumerate(value.ravel(order="F"), start=1)}


def _is_matrix(value: Any) -> bool:
    numbers = sp.issparse(value) or (isinstance(value, np.ndarray) and value.dtype.kind in "biuf")
    return numbers and value.ndim == 2 and min(value.shape) > 1


def _is_square(value: Any) -> bool:
    return _is_matrix(value) and value.shape[0] == value.shape[1]


def _is_labels(value: Any) -> bool:
    """A vector of whole numbers, or a matrix with a single one in every row."""
    if sp.issparse(value):
        value = value.toarray() if value.shape[1] < value.shape[0] else np.empty(0)
    if not isinstance(value, np.ndarray) or value.dtype.kind not in "biuf" or value.size < 2:
        return False
    if value.ndim == 1 or 1 in value.shape:
        return bool(np.all(value == np.rint(value)))
    return value.ndim == 2 and bool(np.all((value == 0) | (value == 1)) and np.all(value.sum(axis=1) == 1))


def as_labels(value: Any) -> Array:
    """A vector of labels; of one column per class the number of the column."""
    dense: Array = value.toarray() if sp.issparse(value) else np.asarray(value)
    if dense.ndim == 1 or 1 in dense.shape:
        return dense.ravel()
    return np.asarray(dense.argmax(axis=1))


_FITTING: Mapping[str, Callable[[Any], bool]] = {
    "graph": _is_square,
    "points": _is_matrix,
    "labels": _is_labels,
}
_MORE = {"graph": " (several are layers)", "points": " (several are views)", "labels": ""}
_EXPECTED = {"graph": "a square matrix", "points": "a matrix", "labels": "one label per node"}


def _keyword(what: str) -> str:
    if what != "labels":
        return "key"
    return "label_column" if on_command_line() else "column"


def _shape(value: object) -> str:
    shape = getattr(value, "shape", None)
    return type(value).__name__ if shape is None else " x ".join(map(str, shape))


def _listed(variables: Mapping[str, object]) -> str:
    shown = [f"{name} ({_shape(value)})" for name, value in list(variables.items())[:_MAX_LISTED]]
    more = len(variables) - len(shown)
    return ", ".join(shown) + (f" and {more} more" if more else "") if shown else "none"


# --- Matrices in files: ``.npz`` of ``scipy.sparse.save_npz``, MatrixMarket ``.mtx``, and ``.mat`` (in only).

NPZ_SUFFIX = ".npz"
MTX_SUFFIX = ".mtx"
NAMES = "names"
RECALL = "knn_recall"
_COMPRESSED = {"csr": sp.csr_array, "csc": sp.csc_array, "bsr": sp.bsr_array}
_MAX_NODES = 2**31 - 1  # columns are 32-bit integers


def read_npz(path: str, key: str | None = None) -> tuple[Any, Array | None]:
    """Read the square matrix of ``scipy.sparse.save_npz`` and, where it has any, the names of its rows.

    Returns
    -------
    matrix : scipy sparse array
        As stored; :meth:`spectrograd.Graph.from_matrix` checks the weights.
    names : array or None
        The array ``names``, as :func:`spectrograd.io.write_graph` leaves it there.
    """
    _refuse_key(path, NPZ_SUFFIX, key)
    matrix, names = _load_npz(path)
    return _check_type(path, matrix), names


def read_mtx_matrix(path: str, key: str | None = None) -> tuple[Any, None]:
    """Read a MatrixMarket matrix, packed or not; it has no names.

    Its header may say ``pattern`` (every weight is one) and ``symmetric`` (one triangle is stored).
    """
    _refuse_key(path, MTX_SUFFIX, key)
    return _check_type(path, read_mtx(path)), None


def read_mat(path: str, key: str | None = None) -> tuple[Any, None]:
    """Read the square matrix of a ``.mat`` file that is called ``key``, or the only one; it has no names."""
    return _check_type(path, load_variable(path, key, "graph")), None


def _refuse_key(path: str, suffix: str, key: str | None) -> None:
    if key is not None:
        raise GraphError(f"{path}: {suffix} files hold one matrix; {parameters('key')} is for .mat files")


def _check_type(path: str, matrix: Matrix) -> Any:
    if matrix.dtype.kind not in "biuf":
        raise GraphError(f"{path}: the matrix has type {matrix.dtype}; real weights are needed")
    return matrix


def write_npz(handle: BinaryIO, graph: Graph) -> None:
    """Write as ``scipy.sparse.save_npz`` does (which also reads it), with names and recall as arrays more."""
    sp.save_npz(handle, graph.matrix)
    beside = {} if graph.names is None else {NAMES: as_plain(graph.names)}
    if graph.recall is not None:
        beside[RECALL] = np.array([graph.recall, graph.recall.error, graph.recall.n_rows])
    for name, array in beside.items():
        with zipfile.ZipFile(handle, "a") as archive, archive.open(f"{name}.npy", "w") as entry:
            np.lib.format.write_array(entry, array, allow_pickle=False)


def read_recall(path: str, suffix: str | None = None) -> Recall | None:
    """The recall that :func:`write_npz` left beside a graph of nearest neighbours."""
    if (suffix or data_suffix(path)) != ".npz":
        return None
    with decoding(path, "the recall of its neighbours cannot be read"), Archive(path) as archive:
        found = archive.get(RECALL)
        return None if found is None else Recall(*found.tolist())


def write_mtx(handle: BinaryIO, graph: Graph) -> None:
    """Write the lower triangle; names have no place in it."""
    field = "real" if graph.is_weighted else "pattern"
    scipy.io.mmwrite(handle, graph.matrix.tocoo(), field=field, symmetry="symmetric", precision=17)


def _load_npz(path: str) -> tuple[Any, Array | None]:
    what = "not a sparse matrix as saved by scipy.sparse.save_npz"
    with decoding(path, what, "save the adjacency matrix with that function"), _open_archive(path) as archive:
        matrix = _assemble(archive)
    with decoding(path, "the names of its nodes cannot be read"), Archive(path) as archive:
        return matrix, archive.get(NAMES)


def _open_archive(path: str) -> Archive:
    try:
        return Archive(path)
    except zipfile.BadZipFile as error:
        raise ValueError(f"not an .npz file: {error}") from None


def _assemble(archive: Archive) -> Any:
    """The matrix whose parts ``scipy.sparse.save_npz`` wrote."""
    if "format" not in archive:
        raise ValueError(f"it holds the arrays {', '.join(archive) or 'none'}")
    kind = bytes(archive["format"].item()).decode("ascii")
    shape = tuple(int(size) for size in archive["shape"])
    if len(shape) != 2 or min(shape) < 0 or max(shape) > _MAX_NODES:
        raise ValueError(f"shape {shape}")
    if kind in _COMPRESSED:
        parts = (archive["data"], archive["indices"], archive["indptr"])
        return _COMPRESSED[kind](parts, shape=shape)
    if kind == "coo":
        coords = archive["coords"] if "coords" in archive else (archive["row"], archive["col"])
        return sp.coo_array((archive["data"], tuple(coords)), shape=shape)
    if kind == "dia":
        return sp.dia_array((archive["data"], archive["offsets"]), shape=shape)
    raise ValueError(f"unknown sparse format {kind!r}")
