"""Small good files of every format, and what is done to them: the material of ``fuzz_readers.py``."""

from __future__ import annotations

import gzip
import io
import re
import shutil
import zipfile
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import scipy.io
import scipy.sparse as sp

from spectrograd import MultilayerGraph, SpectralClustering, read_graph
from spectrograd.cli import main
from spectrograd.datasets import make_block_model
from spectrograd.io import write_graph, write_labels

FOLDERS = ("store", "checkpoint", "model", "run")
N_NODES = 24
# What readers may stumble over: numbers, quotes, brackets, names of encodings, entities, nothing.
TOKENS = (
    *(b"1e999", b"-1", b"nan", b"inf", b"-0", b"0x10", b"99999999999999999999", b"4294967297", b"1e-320"),
    *(b"2147483648", b"9223372036854775807", b"1_000", b"1,5", b"", b" ", b"\t", b"\r", b"\n\n", b"\x00"),
    *(b'"', b"'", b",", b";", b"#", b"%", b"*", b"[", b"]", b"[" * 3000, b"node [ " * 2000, b"{" * 500),
    *(b"<graph>" * 500, b"<!--", b"<![CDATA[", b"</node>", b'<!DOCTYPE a [<!ENTITY b "c">]>', b"&b;"),
    *(b"\xff\xfe", b"\xef\xbb\xbf", b"\xed\xa0\x80", b"\xc3", "\u2028".encode(), "\U0001d7d8".encode()),
    *(b"True", b"null", b"complex", b"pattern", b"array", b"*Vertices 1000000000", b"*Edges", b"*Multilayer"),
    *(b"#LAYERS", b"id 1e400", b"source", b"weight", b"x" * 70_000, b"1 " * 20_000),
)
_NUMBER = re.compile(rb"\d+")
HUGE = (b"10000000000", b"4000000000", b"100000000", b"99999999999999999999999", b"1e308", b"0", b"-7")


def make_corpus(place: Path) -> dict[str, list[Path]]:
    """Good files by kind: a suffix, a name of :data:`FOLDERS`, ``points``, ``labels`` or ``config``."""
    graph = make_block_model(N_NODES, 2, mean_degree=6, random_state=0).graph
    edges = sp.triu(graph.matrix).tocoo()
    rows = [
        f"n{a},n{b},{1 + 0.25 * (a % 3)}" for a, b in zip(edges.row.tolist(), edges.col.tolist(), strict=True)
    ]
    (place / "named.csv").write_text("src,dst,weight\n" + "\n".join(rows) + "\n")
    named = read_graph(place / "named.csv")
    assert not isinstance(named, MultilayerGraph)
    _write_texts(place, rows)
    for suffix in ("csv", "tsv", "npz", "parquet", "mtx", "graphml"):
        write_graph(place / f"graph.{suffix}", named if suffix not in ("npz", "mtx") else graph)
    write_graph(place / "named.npz", named)
    sp.save_npz(place / "scipy.npz", graph.matrix)
    scipy.io.savemat(place / "plain.mat", {"A": graph.matrix.toarray()})
    scipy.io.savemat(place / "packed.mat", {"W": graph.matrix.tocsc()}, do_compression=True)
    (place / "graph.csv.gz").write_bytes(gzip.compress((place / "graph.csv").read_bytes(), mtime=0))
    (place / "points.csv").write_text("x,y\n" + "\n".join(f"{at % 5},{at / 7:.3f}" for at in range(N_NODES)))
    np.save(place / "points.npy", np.arange(48.0).reshape(24, 2))
    for suffix in ("csv", "npz", "parquet"):
        write_labels(place / f"labels.{suffix}", np.arange(N_NODES) % 3)
    (place / "labels.json").write_text('{"communities": [["a", "b"], ["c"]], "algorithm": "x"}')
    (place / "new.csv").write_text("src,dst\nnew,n1\nnew,n2\n")
    (place / "config.toml").write_text('command = "cluster"\nclusters = 3\ntol = 0.01\nseed = 1\n')
    if find_spec("anndata"):
        _write_h5ad(place, graph.matrix)
    _make_folders(place)
    return by_kind(place)


def _write_texts(place: Path, rows: list[str]) -> None:
    pairs = [row.split(",") for row in rows]
    numbers = [(int(a[1:]) + 1, int(b[1:]) + 1, w) for a, b, w in pairs]
    (place / "graph.edgelist").write_text("\n".join(f"{a} {b} {{'weight': {w}}}" for a, b, w in pairs))
    (place / "bare.edges").write_text("\n".join(f"{a} {b}" for a, b, _ in numbers))
    (place / "layers.csv").write_text(
        "src,dst,layer\n" + "\n".join(f"{a},{b},{a % 2}" for a, b, _ in numbers)
    )
    nodes = "\n".join(f'node [ id {at} label "n{at}" ]' for at in range(1, N_NODES + 1))
    ends = "\n".join(f"edge [ source {a} target {b} value {w} ]" for a, b, w in numbers)
    (place / "graph.gml").write_text(f"graph [ directed 0\n{nodes}\n{ends}\n]\n")
    vertices = "\n".join(f'{at} "n{at}"' for at in range(1, N_NODES + 1))
    lines = "\n".join(f"{a} {b} {w}" for a, b, w in numbers)
    (place / "graph.net").write_text(f"*Vertices {N_NODES}\n{vertices}\n*Edges\n{lines}\n")
    (place / "infomap.net").write_text(
        "*Multilayer\n" + "\n".join(f"1 {a} {1 + a % 2} {b} {w}" for a, b, w in numbers)
    )
    layers = "#TYPE multiplex\n#LAYERS\nl1,UNDIRECTED\nl2,UNDIRECTED\n#EDGES\n"
    (place / "graph.mpx").write_text(layers + "\n".join(f"{a},{b},l{1 + len(a) % 2}" for a, b, _ in pairs))


def _write_h5ad(place: Path, matrix: sp.csr_array) -> None:
    import anndata

    anndata.AnnData(np.ones((N_NODES, 2)), obsp={"connectivities": matrix}).write_h5ad(place / "graph.h5ad")


def _make_folders(place: Path) -> None:
    """A store, a checkpoint, a model and a run folder, of the same graph."""
    graph = str(place / "graph.csv")
    assert main(["convert", graph, "-o", str(place / "store"), "--edges", "-q"]) == 0
    SpectralClustering(2, random_state=0).fit(read_graph(graph)).save(place / "model")
    end = ["-q", "-o", str(place / "out.csv")]
    solve = ["-s", "lanczos", "-p", "basis_size=8", "--checkpoint", str(place / "checkpoint")]
    assert main(["cluster", graph, "-k", "2", *solve, *end]) in (0, 1)
    assert main(["cluster", graph, "-k", "2", "--run", str(place / "run"), *end]) in (0, 1)
    for path in place.glob("out.*"):
        path.unlink()


def by_kind(place: Path) -> dict[str, list[Path]]:
    """Files and folders of a place by their kind."""
    found: dict[str, list[Path]] = {}
    for path in sorted(place.iterdir()):
        special = path.stem if path.stem in ("points", "labels", "config", *FOLDERS) else ""
        found.setdefault(special or path.suffix, []).append(path)
    return found


def damaged(data: bytes, name: str, rng: np.random.Generator, other: bytes) -> bytes:
    """One to four mutations of a file; of packed files half of the time what is inside."""
    inside = rng.random() < 0.5
    if inside and name.endswith(".gz"):
        return gzip.compress(damaged(gzip.decompress(data), "", rng, other), mtime=0)
    if inside and data[:4] == b"PK\x03\x04":
        return _damaged_archive(data, rng, other)
    for _ in range(min(4, int(rng.geometric(0.6)))):
        data = _MUTATIONS[rng.integers(len(_MUTATIONS))](data, rng, other)
    return data


def _damaged_archive(data: bytes, rng: np.random.Generator, other: bytes) -> bytes:
    target = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(data)) as source, zipfile.ZipFile(target, "w") as copy:
        names = source.namelist()
        chosen = names[rng.integers(len(names))]
        for name in names:
            content = source.read(name)
            copy.writestr(name, damaged(content, "", rng, other) if name == chosen else content)
    return target.getvalue()


def _flip(data: bytes, rng: np.random.Generator, other: bytes) -> bytes:
    changed = bytearray(data)
    for _ in range(int(rng.integers(1, 9)) if data else 0):
        changed[rng.integers(len(changed))] ^= 1 << int(rng.integers(8))
    return bytes(changed)


def _cut(data: bytes, rng: np.random.Generator, other: bytes) -> bytes:
    first, last = sorted(rng.integers(0, len(data) + 1, 2).tolist())
    return data[:first] if rng.random() < 0.5 else data[:first] + data[last:]


def _insert(data: bytes, rng: np.random.Generator, other: bytes) -> bytes:
    at = int(rng.integers(len(data) + 1))
    return data[:at] + TOKENS[rng.integers(len(TOKENS))] + data[at:]


def _enlarge(data: bytes, rng: np.random.Generator, other: bytes) -> bytes:
    """A number that is written in digits becomes another, often a huge one."""
    found = list(_NUMBER.finditer(data))
    if not found:
        return _flip(data, rng, other)
    # The first numbers are often sizes: half of the time one of them.
    at = found[rng.integers(min(len(found), 4) if rng.random() < 0.5 else len(found))]
    return data[: at.start()] + HUGE[rng.integers(len(HUGE))] + data[at.end() :]


def _splice(data: bytes, rng: np.random.Generator, other: bytes) -> bytes:
    """A piece of another file, or of this one, comes in between."""
    source = other if rng.random() < 0.5 else data
    first, last = sorted(rng.integers(0, len(source) + 1, 2).tolist())
    at = int(rng.integers(len(data) + 1))
    return data[:at] + source[first:last] + data[at:]


def _shuffle(data: bytes, rng: np.random.Generator, other: bytes) -> bytes:
    lines = data.split(b"\n")
    return b"\n".join(lines[at] for at in rng.integers(0, len(lines), len(lines)))


def _overwrite(data: bytes, rng: np.random.Generator, other: bytes) -> bytes:
    """Eight bytes become a number that is too large, negative or zero."""
    at = int(rng.integers(len(data) + 1))
    value = (2**62, 2**33, -1, 0, 2**31 - 1)[rng.integers(5)]
    return data[:at] + value.to_bytes(8, "little", signed=True) + data[at + 8 :]


_MUTATIONS = (_flip, _cut, _insert, _enlarge, _splice, _shuffle, _overwrite)


def damaged_folder(good: Path, target: Path, rng: np.random.Generator) -> str:
    """Copy a folder with one file damaged, missing or empty; the file's name."""
    shutil.copytree(good, target, symlinks=True)
    files = sorted(path for path in target.rglob("*") if path.is_file())
    file = files[rng.integers(len(files))]
    if rng.random() < 0.05:
        file.unlink()
    else:
        file.write_bytes(damaged(file.read_bytes(), "", rng, b""))
    return file.name
