"""Stores that are damaged, half written, forged or from the future: refused by name before they are used."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from dataclasses import asdict, replace
from pathlib import Path

import numpy as np
import pytest

import spectrograd
from spectrograd import GraphError, open_store, read_graph
from spectrograd.cli import main
from spectrograd.serialization.folders import read_manifest, write_manifest
from spectrograd.store.edge_batches import GraphSource, IngestSettings
from spectrograd.store.format import load_meta
from spectrograd.store.ingest import ingest

ENVIRONMENT = os.environ | {"PYTHONPATH": str(Path(spectrograd.__file__).parents[1])}


@pytest.fixture
def store(tmp_path, graphs):
    path = tmp_path / "g.store"
    ingest(path, GraphSource(graphs[True]), IngestSettings(edges=True, block_bytes=4096))
    return path


def flip(path, at):
    data = bytearray(path.read_bytes())
    data[at] ^= 4
    path.write_bytes(data)


def test_a_flipped_bit_in_a_block_is_named(store, capsys):
    segment = load_meta(store).layers[0].blocks[3]
    flip(store / segment.file, segment.offset + 17)
    disk = open_store(store)
    blocks = iter(disk.blocks)
    assert len([next(blocks) for _ in range(3)]) == 3  # those before it are good
    with pytest.raises(GraphError, match=rf"blocks-000\.bin, block of row {segment.start} .*wrong checksum"):
        next(blocks)
    assert main(["embed", str(store), "-k", "2", "-o", str(store.parent / "e.csv")]) == 2
    assert "block of row" in capsys.readouterr().err


@pytest.mark.parametrize("what", ["degrees", "edges", "sample", "components"])
def test_a_flipped_bit_elsewhere_is_named(tmp_path, what):
    rng = np.random.default_rng(0)
    graph = spectrograd.Graph.from_matrix(np.kron(np.eye(2), np.ones((60, 60))) - np.eye(120))
    path = tmp_path / "g"
    ingest(path, GraphSource(graph), IngestSettings(edges=True))
    file = next(path.glob(f"{what}*.bin"))
    flip(file, int(rng.integers(0, 60)))
    disk = open_store(path)
    read = {"edges": lambda: list(disk.edge_chunks(0))}.get(what, lambda: getattr(disk, what))
    with pytest.raises(GraphError, match=rf"{file.name} .*wrong checksum"):
        read()


def test_a_truncated_file_is_named_at_once(store):
    file = store / "blocks-000.bin"
    os.truncate(file, file.stat().st_size - 4096)
    with pytest.raises(GraphError, match=r"blocks-000\.bin: [0-9,]+ bytes, [0-9,]+ expected"):
        open_store(store)
    file.unlink()
    with pytest.raises(GraphError, match=r"blocks-000\.bin: No such file"):
        read_graph(store)


def test_a_file_that_shrinks_while_it_is_read(store):
    disk = open_store(store)
    os.truncate(store / "blocks-000.bin", 9000)
    with pytest.raises(GraphError, match="ends too early"):
        list(disk.blocks)


def forge(store, change):
    """Change the manifest and give it a good checksum."""
    content = read_manifest(store)
    change(content)
    write_manifest(store, content)


def set_in_block(name, value):
    def change(content):
        content["layers"][0]["blocks"][1][name] = value

    return change


@pytest.mark.parametrize(
    "change",
    [
        set_in_block("file", "../../secret.bin"),
        set_in_block("file", "/etc/passwd"),
        set_in_block("file", "meta.json"),
        set_in_block("n_entries", 2**40),
        set_in_block("n_rows", -1),
        set_in_block("n_rows", 10**9),
        set_in_block("n_bytes", 2**62),
        set_in_block("offset", -8),
        set_in_block("offset", 2**50),
        set_in_block("start", 1.5),
        set_in_block("weighted", 1),
        lambda content: content.update(n_nodes=2**40),
        lambda content: content.update(n_nodes=0),
        lambda content: content.update(n_nodes="many"),
        lambda content: content.update(ids="magic"),
        lambda content: content.update(layers=[]),
        lambda content: content.update(layers=None),
        lambda content: content.pop("n_nodes"),
        lambda content: content.update(surprise=1),
        lambda content: content["layers"][0].update(weight_unit=0.3),
        lambda content: content["layers"][0].update(blocks=[]),
        lambda content: content.update(codec="zstd"),
    ],
)
def test_forged_manifests_are_refused(store, change):
    forge(store, change)
    with pytest.raises(GraphError, match=r"g\.store"):
        open_store(store)


def test_a_link_out_of_the_store_is_refused(store):
    file = store / "degrees.bin"
    outside = store.parent / "outside.bin"
    os.rename(file, outside)
    file.symlink_to(outside)
    with pytest.raises(GraphError, match=r"degrees\.bin"):
        open_store(store)


def test_a_newer_format_is_refused_with_both_versions(store, capsys):
    forge(store, lambda content: content.update(version=7))
    with pytest.raises(GraphError, match="format version 7, this program reads versions 1 to 2"):
        open_store(store)
    assert main(["info", str(store)]) == 2
    assert "version 7" in capsys.readouterr().err


def test_columns_out_of_range_are_refused_whatever_the_checksum_says(store):
    """Kernels do not look: a number of another graph would read foreign memory."""
    import zlib

    meta = load_meta(store)
    segment = meta.layers[0].blocks[2]
    data = bytearray((store / segment.file).read_bytes())
    columns = segment.offset + -(-8 * (segment.n_rows + 1) // 64) * 64
    data[columns : columns + 4] = (10**9).to_bytes(4, "little")
    (store / segment.file).write_bytes(data)
    checksum = zlib.crc32(data[segment.offset : segment.offset + segment.n_bytes])
    forged = replace(segment, checksum=checksum)

    def change(content):
        content["layers"][0]["blocks"][2] = asdict(forged)

    forge(store, change)
    with pytest.raises(GraphError, match=r"out of range"):
        list(open_store(store).blocks)


def test_a_reader_goes_on_with_what_it_opened(store, graphs):
    disk = open_store(store)
    blocks = iter(disk.blocks)
    next(blocks)
    ingest(store, GraphSource(graphs[False]), IngestSettings(block_bytes=4096, force=True))
    list(blocks)
    assert (disk.in_memory().matrix != graphs[True].matrix.astype(np.float32)).nnz == 0
    assert not open_store(store).is_weighted


def edge_file(path, n_edges=300_000):
    rng = np.random.default_rng(0)
    ends = rng.integers(0, 50_000, (n_edges, 2))
    np.savetxt(path, ends, fmt="%d", delimiter=",")


@pytest.mark.parametrize("moments", [5, pytest.param(200, marks=pytest.mark.chaos)])
def test_killed_at_any_moment_nothing_half_is_accepted(tmp_path, moments):
    """The old store stays, or the new one is whole; nothing else is left for a reader to find."""
    edge_file(tmp_path / "edges.csv")
    target = tmp_path / "out" / "g.store"
    target.parent.mkdir()
    command = [sys.executable, "-m", "spectrograd", "convert", str(tmp_path / "edges.csv"), "-o", str(target)]
    command += ["--force", "--edges", "-q"]
    began = time.perf_counter()
    subprocess.run(command, env=ENVIRONMENT, check=True)
    whole = time.perf_counter() - began
    old = load_meta(target).fingerprint
    command += ["--duplicates", "max"]  # another content
    for share in np.random.default_rng(0).uniform(0.3, 1.0, moments):
        process = subprocess.Popen(command, env=ENVIRONMENT)
        time.sleep(share * whole)
        process.kill()
        process.wait()
        meta = load_meta(target)
        assert sum(len(block.indices) for block in open_store(target).blocks) == 2 * meta.n_edges
        others = [name for name in os.listdir(target.parent) if name != "g.store"]
        assert all(name.startswith(".g.store.") for name in others)
    subprocess.run(command, env=ENVIRONMENT, check=True)
    assert os.listdir(target.parent) == ["g.store"]
    assert load_meta(target).fingerprint != old
    assert sorted(os.listdir(tmp_path)) == ["edges.csv", "out"]


def test_a_full_disk_is_said_before_and_while_it_is_written(tmp_path, graphs, monkeypatch, capsys):
    target = tmp_path / "g.store"
    ingest(target, GraphSource(graphs[False]), IngestSettings())
    monkeypatch.setattr("spectrograd.store.ingest.shutil.disk_usage", lambda path: Free)
    with pytest.raises(GraphError, match=r"g\.store: about [0-9.]+ GB of disk are needed, 0\.00 GB are free"):
        ingest(target, GraphSource(graphs[True]), IngestSettings(force=True))
    monkeypatch.undo()
    import resource

    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    body = (
        "import resource, signal, sys; from spectrograd.cli import main;"
        "signal.signal(signal.SIGXFSZ, signal.SIG_IGN);"
        f"resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, {limits[1]}));"
        "sys.exit(main(sys.argv[1:]))"
    )
    edge_file(tmp_path / "edges.csv", 20_000)
    command = [
        sys.executable,
        "-c",
        body,
        "convert",
        str(tmp_path / "edges.csv"),
        "-o",
        str(target),
        "--force",
    ]
    environment = ENVIRONMENT | {"NUMBA_DISABLE_JIT": "0", "NUMBA_CACHE_DIR": str(tmp_path / "cache")}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 1, done.stderr
    assert "File too large" in done.stderr
    assert read_graph(target).n_edges == graphs[False].n_edges
    assert not [name for name in os.listdir(tmp_path) if name.endswith((".tmp", ".lock"))]


class Free:
    """A disk without room."""

    free = 0


def test_the_manifest_is_readable_by_anybody(store):
    content = json.loads((store / "meta.json").read_text())
    assert (content["format"], content["version"]) == ("spectrograd store", 2)
    block = content["layers"][0]["blocks"][0]
    raw = np.fromfile(store / block["file"], np.int64, block["n_rows"] + 1, offset=block["offset"])
    assert raw[-1] == block["n_entries"]
