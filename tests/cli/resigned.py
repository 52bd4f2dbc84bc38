"""Stores, models and checkpoints with wrong values and good checksums: ``python resigned.py NUMBER``.

An attacker signs what he changes, so that only what is checked about the content itself can refuse it.
``judged(number)`` makes the damage of a number, runs a command on it in a forked child, and says its end.
Run as a script, it prints a table of the first so many numbers, and every one that ended badly.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import sys
import tempfile
import time
import zlib
from collections import Counter
from contextlib import redirect_stderr
from pathlib import Path

import numpy as np

from spectrograd import GraphError, SpectralClustering, open_store, read_graph
from spectrograd.cli import main
from spectrograd.datasets import make_block_model
from spectrograd.io import write_graph
from spectrograd.metrics import adjusted_rand_index as ari
from spectrograd.serialization.codec import read_header, read_value, write_value
from spectrograd.serialization.folders import read_manifest, write_manifest

FINE, HONEST, REFUSED = "good", "not converged", "refused"
CRASHED, HUNG, UNCLEAR, WRONG = "crash", "hang", "unclear error", "WRONG"
BAD = (CRASHED, HUNG, UNCLEAR, WRONG)
KINDS = ("store", "streamed store", "model", "checkpoint")
PATIENCE = 60  # seconds
SIMILAR = 0.8  # ARI
N_NODES, N_CLUSTERS = 300, 3
WRONG_NUMBERS = (0, -1, 1, 2, 7, N_NODES, N_NODES - 1, 10**6, -(2**31), 2**31 - 1, 2**40, -(2**62))
WRONG_WEIGHTS = (0.0, -1.0, 1e-30, 1e30, np.nan, np.inf, -np.inf, 3.0)
WRONG_VALUES = (None, True, -1, 0, 1, 10**9, 1e308, "", "x", [], {}, [1, 2], "../x", 2**70)


def make_folders(place):
    """A store, a model, a checkpoint and their inputs."""
    os.chdir(place)
    data = make_block_model(N_NODES, N_CLUSTERS, mean_degree=16, mixing=0.1, random_state=0)
    upper = data.graph.matrix.tocoo()
    keep = upper.row < upper.col
    weights = np.random.default_rng(0).uniform(0.5, 2, keep.sum())
    rows = zip(upper.row[keep], upper.col[keep], weights, strict=True)
    Path("graph.csv").write_text("src,dst,weight\n" + "".join(f"{a},{b},{w:.4f}\n" for a, b, w in rows))
    write_graph("small.csv", data.graph)
    Path("change.csv").write_text("src,dst,weight\n0,299,1\n1,300,1\n")
    assert main(["convert", "graph.csv", "-o", "store", "--edges", "-q"]) == 0
    shutil.copytree("store", "streamed store")
    SpectralClustering(N_CLUSTERS, random_state=0).fit(read_graph("graph.csv")).save("model")
    assert main([*COMMANDS["checkpoint"], "-q"]) == 0
    return data.labels


COMMANDS = {
    "store": ["cluster", "store", "-k", "3", "-o", "out.csv"],
    "model": ["update", "graph.csv", "change.csv", "--run", "model", "-o", "out.csv"],
    "checkpoint": [
        *("cluster", "graph.csv", "-k", "3", "-s", "lanczos"),
        *("--checkpoint", "checkpoint", "-o", "out.csv"),
    ],
}


def changed_array(array, rng):
    """Mutates: one or some entries."""
    flat = array.reshape(-1)
    n = 1 if rng.random() < 0.5 else max(1, len(flat) // 3)
    at = rng.choice(len(flat), min(n, len(flat)), replace=False)
    how = rng.integers(3)
    if how == 0:
        flat[at] = flat[rng.permutation(at)] if n > 1 else flat[rng.integers(len(flat))]
    elif array.dtype.kind == "f":
        flat[at] = rng.choice(WRONG_WEIGHTS)
    elif array.dtype.kind in "iu":
        limits = np.iinfo(array.dtype)
        flat[at] = np.clip(rng.choice(np.array(WRONG_NUMBERS)), limits.min, limits.max)
    elif array.dtype.kind == "b":
        flat[at] = ~flat[at]
    else:
        flat[at] = flat[0]


def changed_tree(tree, rng):
    """The tree with one of its values replaced; which one it was."""
    places = []

    def walk(node, path):
        items = node.items() if isinstance(node, dict) else enumerate(node) if isinstance(node, list) else ()
        for key, value in items:
            if not (isinstance(value, (dict, list)) and value):
                places.append((node, key, (*path, key)))
            walk(value, (*path, key))

    tree = json.loads(json.dumps(tree))
    walk(tree, ())
    node, key, path = places[rng.integers(len(places))]
    value = WRONG_VALUES[rng.integers(len(WRONG_VALUES))]
    if isinstance(node[key], (int, float)) and not isinstance(node[key], bool) and rng.random() < 0.5:
        value = WRONG_NUMBERS[rng.integers(len(WRONG_NUMBERS))]
    node[key] = value
    return tree, f"{'.'.join(map(str, path))} = {value!r}"


def damage_store(folder, rng):
    """A wrong number in the manifest or in a segment of the files."""
    content = read_manifest(folder)
    if rng.random() < 0.4:
        content, what = changed_tree(content, rng)
        write_manifest(folder, content)
        return what
    layer = content["layers"][0]
    places = [layer["degrees"], layer["sample"], *layer["edges"], *layer["blocks"], *layer["blocks"]]
    piece = places[rng.integers(len(places))]
    data = bytearray((folder / piece["file"]).read_bytes())
    start, stop = piece["offset"], piece["offset"] + piece["n_bytes"]
    own = np.frombuffer(bytes(data[start:stop]), np.uint8).copy()
    dtype = np.dtype(["<i8", "<i4", "<f4", "<f8"][rng.integers(4)])
    low, high = sorted(rng.integers(len(own) // dtype.itemsize, size=2))
    values = own[low * dtype.itemsize : (high + 1) * dtype.itemsize].view(dtype)
    changed_array(values, rng)
    data[start:stop] = own.tobytes()
    (folder / piece["file"]).write_bytes(data)
    piece["checksum"] = zlib.crc32(own)
    write_manifest(folder, content)
    return f"{piece['file']} {dtype} {low}..{high}"


def damage_model(folder, rng):
    """A wrong number in the manifest or in an array."""
    content = read_manifest(folder)
    if rng.random() < 0.4:
        content, what = changed_tree(content, rng)
        write_manifest(folder, content)
        return what
    path = sorted(folder.glob("*.npy"))[rng.integers(len(list(folder.glob("*.npy"))))]
    array = np.load(path)
    if array.size:
        changed_array(array, rng)
    if rng.random() < 0.1:
        array = array[: len(array) // 2]
    np.save(path, array)
    raw = path.read_bytes()
    content["files"][path.name] = sign(content["files"][path.name], raw)
    write_manifest(folder, content)
    return path.name


def sign(entry, raw):
    """The manifest's entry of a file, for other bytes."""
    return {**entry, "bytes": len(raw), "crc32": zlib.crc32(raw)}


def damage_checkpoint(folder, rng):
    """A wrong number in the tree or in an array of one of the files."""
    if rng.random() < 0.5:  # the run goes on from its last state
        for result in folder.glob("*-result.ckpt"):
            result.unlink()
    paths = sorted(folder.glob("*.ckpt"))
    path = paths[rng.integers(len(paths))]
    header, (tree, arrays) = read_header(path), read_value(path)
    arrays = [array.copy() for array in arrays]
    what = "array"
    if rng.random() < 0.5 or not arrays:
        tree, what = changed_tree(tree, rng)
    else:
        at = rng.integers(len(arrays))
        what = f"array {at} {arrays[at].dtype} {arrays[at].shape}"
        if arrays[at].size:
            changed_array(arrays[at], rng)

    def encode(sink):
        for array in arrays:
            sink.add(array, passing=True)
        return tree

    write_value(path, header, encode)
    return f"{path.name}: {what}"


DAMAGE = {
    "store": damage_store,
    "streamed store": damage_store,
    "model": damage_model,
    "checkpoint": damage_checkpoint,
}


def stream(folder):
    """Cluster a store that stays on the disk; as a command would: 0, 1 or 2 and labels."""
    try:
        model = SpectralClustering(N_CLUSTERS, random_state=0).fit(open_store(folder))
    except GraphError as error:
        sys.stderr.write(f"spectrograd: {error}\n")
        return 2
    np.savetxt("out.csv", model.labels_, fmt="%d", header="label", comments="")
    sys.stderr.write("certified\n" if model.converged_ else "NOT converged\n")
    return 0 if model.converged_ else 1


def run(kind):
    """The command in a child: exit code (or minus a signal, or None where it hangs), and what it said."""
    child = os.fork()
    if child == 0:
        with open("said.txt", "w") as said, redirect_stderr(said):
            os.dup2(said.fileno(), 2)
            try:
                code = stream(kind) if kind == "streamed store" else main(COMMANDS[kind])
            except BaseException as error:
                said.write(f"Traceback: {type(error).__name__}: {error}\n")
                code = 1
            said.flush()
        os._exit(code)
    began = time.monotonic()
    while time.monotonic() < began + PATIENCE:
        done, status = os.waitpid(child, os.WNOHANG)
        if done:
            return os.waitstatus_to_exitcode(status), Path("said.txt").read_text()
        time.sleep(0.02)
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    return None, "hangs"


def is_wrong(kind, labels):
    """Whether clusters that were called certified are those neither of the graph as it was nor as it is."""
    rows = [row.split(",")[-1] for row in Path("out.csv").read_text().splitlines()[1:]]
    found = np.array([int(float(value)) if value else -1 for value in rows])
    if len(found) >= N_NODES and ari(labels, found[:N_NODES]) > SIMILAR:
        return False
    if kind not in ("store", "streamed store"):
        return True
    try:
        W = open_store(kind).in_memory().matrix.toarray()
    except (GraphError, ValueError):
        return True
    if abs(W - W.T).max() > 1e-6 * W.max() or not (W.sum(axis=1) > 0).all():
        return True
    exact = SpectralClustering(N_CLUSTERS, affinity="precomputed", random_state=0).fit(W)
    return not exact.converged_ or len(found) != len(W) or ari(exact.labels_, found) < SIMILAR


def judged(number, place, labels):
    """How the damage of a number ended, and what it was and what was said of it."""
    kind = KINDS[number % len(KINDS)]
    rng = np.random.default_rng((number, 28))
    os.chdir(place)
    with tempfile.TemporaryDirectory() as folder:
        for name in ("graph.csv", "change.csv"):
            shutil.copy(name, folder)
        shutil.copytree(kind, Path(folder) / kind)
        os.chdir(folder)
        what = f"{number} {kind}: {DAMAGE[kind](Path(kind), rng)}"
        code, said = run(kind)
        told = f"{what}: exit {code}: {said[-300:]}"
        if code is None:
            outcome = HUNG
        elif code < 0:
            outcome = CRASHED
        elif "Traceback" in said or "this is a bug" in said or code not in (0, 1, 2):
            outcome = UNCLEAR
        elif code == 2:
            outcome = REFUSED
        elif code == 1:
            outcome = HONEST if "onverged" in said else UNCLEAR
        else:
            outcome = HONEST if "NOT converged" in said else WRONG if is_wrong(kind, labels) else FINE
        os.chdir(place)
    return outcome, told


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as made:
        known = make_folders(made)
        ends: Counter[tuple[str, str]] = Counter()
        for which in range(*(int(word) for word in sys.argv[1:])):
            end, sentence = judged(which, made, known)
            ends[KINDS[which % len(KINDS)], end] += 1
            if end in BAD:
                sys.stdout.write(f"{end}: {sentence}\n")
                sys.stdout.flush()
        for (form, end), count in sorted(ends.items()):
            sys.stdout.write(f"{form:>16} {end:>16} {count:6}\n")
        os.chdir("/")
