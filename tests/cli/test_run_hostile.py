"""Interrupted updates, forged and damaged files: finished, or refused by name; never a signal or a bug."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import zlib
from dataclasses import asdict, replace
from pathlib import Path

import numpy as np
import pytest

import spectrograd
from spectrograd import GraphError, SpectralClustering, SpectralEmbedding, open_store, read_graph
from spectrograd.cli import main
from spectrograd.datasets import make_block_model
from spectrograd.io import write_graph
from spectrograd.serialization.folders import read_manifest, write_manifest
from spectrograd.store.format import load_meta

ENVIRONMENT = os.environ | {"PYTHONPATH": str(Path(spectrograd.__file__).parents[1])}
# Dies right after the manifest of the store has taken the place of the old one.
KILLED = """
import os, signal, sys
replaced = os.replace
def dying(source, target, **more):
    replaced(source, target, **more)
    if str(target).endswith("g.store/meta.json"):
        os.kill(os.getpid(), signal.SIGKILL)
os.replace = dying
from spectrograd.cli import main
main(sys.argv[1:])
"""
CHANGES = {
    "weights": "src,dst,weight\n{0},{1},5\n",  # an edge that is there: the number of edges stays
    "edges": "src,dst,weight\n0,299,2\n1,298,2\n",
    "nodes": "src,dst,weight\n0,300,1\n1,300,1\n2,300,1\n",
}


@pytest.fixture
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    write_graph("graph.csv", make_block_model(300, 3, mean_degree=16, random_state=0).graph)
    assert main(["convert", "graph.csv", "-o", "g.store", "-q"]) == 0
    return tmp_path


def update(*more):
    return ["update", "g.store", "change.csv", "--run", "run", "-o", "out.csv", *more]


def killed_update():
    done = subprocess.run([sys.executable, "-c", KILLED, *update()], env=ENVIRONMENT, capture_output=True)
    assert done.returncode == -signal.SIGKILL, done.stderr


def put_change(kind):
    ends = read_graph("g.store").matrix.tocoo()
    Path("change.csv").write_text(CHANGES[kind].format(ends.row[0], ends.col[0]))


def total_weight():
    return float(open_store("g.store").degrees.sum())


@pytest.mark.parametrize("kind", list(CHANGES))
def test_an_update_killed_after_the_stores_commit_is_finished_not_repeated(here, capsys, kind):
    assert main(["cluster", "g.store", "-k", "3", "--run", "run", "-o", "l.csv", "-q"]) == 0
    put_change(kind)
    killed_update()
    after = total_weight()
    capsys.readouterr()
    assert main(update()) == 0
    assert "the store has this change already" in capsys.readouterr().err
    assert total_weight() == after
    run = spectrograd.load("run/model")
    assert float(run.graph_.degrees.sum()) == pytest.approx(after, rel=1e-6)
    assert main(update()) == 0  # and once more: nothing is left to do
    assert "nothing was changed" in capsys.readouterr().err
    assert total_weight() == after
    assert main(update("--again")) == 0
    assert total_weight() > after


@pytest.mark.parametrize("kind", list(CHANGES))
def test_the_same_of_a_run_whose_graph_stays_on_disk(here, capsys, kind):
    SpectralClustering(3, random_state=0).fit(open_store("g.store")).save("run")
    put_change(kind)
    killed_update()
    after = total_weight()
    capsys.readouterr()
    assert main(update()) == 0
    assert "the store has this change already" in capsys.readouterr().err
    assert total_weight() == after
    run = spectrograd.load("run")
    assert run.graph_.n_nodes == len(run.labels_) == open_store("g.store").n_nodes
    assert main(update()) == 0
    assert "nothing was changed" in capsys.readouterr().err


def test_another_change_of_the_store_is_refused(here, capsys):
    assert main(["cluster", "g.store", "-k", "3", "--run", "run", "-o", "l.csv", "-q"]) == 0
    put_change("weights")
    killed_update()
    Path("change.csv").write_text(CHANGES["edges"])
    assert main(update()) == 2
    assert "is not as it was when the run was saved" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("name", "at", "value"),
    [("indices", 5, -(2**30)), ("indices", 5, 300), ("indptr", 5, 2**40), ("indptr", 5, -(2**40))],
)
def test_one_wrong_number_in_a_model_is_refused_on_load(here, capsys, name, at, value):
    SpectralClustering(3, random_state=0).fit(read_graph("graph.csv")).save("m")
    (path,) = Path("m").glob(f"_training_data.graph.*.{name}.npy")
    array = np.load(path)
    array[at] = np.array(value).astype(array.dtype)
    np.save(path, array)
    with pytest.raises(GraphError, match=r"m/meta\.json: damaged|no graph"):
        spectrograd.load("m")
    Path("change.csv").write_text("src,dst\n0,299\n")
    assert main(["update", "graph.csv", "change.csv", "--run", "m", "-o", "o.csv"]) == 2
    told = capsys.readouterr().err
    assert f"{name}.npy: damaged (its checksum is wrong)" in told


@pytest.mark.parametrize("label", [10**6, 2**62, -2, 3])
def test_labels_that_are_no_clusters_are_refused_on_load(here, label):
    """Signed: memory is taken by the largest label, so that one wrong number took terabytes."""
    SpectralClustering(3, random_state=0).fit(read_graph("graph.csv")).save("m")
    path = Path("m/labels_.npy")
    labels = np.load(path)
    labels[5] = label
    np.save(path, labels)
    content = read_manifest(Path("m"))
    content["files"][path.name]["crc32"] = zlib.crc32(path.read_bytes())
    write_manifest(Path("m"), content)
    with pytest.raises(GraphError, match="none of 3 clusters"):
        spectrograd.load("m")


def signed(store, piece, data, where):
    """Put changed bytes into a piece of a store, and give it a good checksum."""
    content = bytearray((store / piece.file).read_bytes())
    content[piece.offset : piece.offset + piece.n_bytes] = data
    (store / piece.file).write_bytes(content)
    told = read_manifest(store)
    where(told, asdict(replace(piece, checksum=zlib.crc32(data))))
    write_manifest(store, told)


def test_degrees_that_are_not_the_sums_of_the_rows_are_refused(here):
    store = here / "g.store"
    piece = load_meta(store).layers[0].degrees
    degrees = open_store(store).degrees.copy()
    degrees[:100] *= 30
    signed(store, piece, degrees.tobytes(), lambda told, new: told["layers"][0].update(degrees=new))
    with pytest.raises(GraphError, match=r"degrees\.bin .*not the sums"):
        SpectralEmbedding(3).fit(open_store(store))


@pytest.mark.parametrize(
    "change",
    [
        lambda told: told.update(fingerprint=7),
        lambda told: told.update(made=[1]),
        lambda told: told["layers"][0].update(weights=[1.0]),
        lambda told: told["layers"][0].update(n_isolated="few"),
        lambda told: told["layers"][0].update(degree_range=["a", 2]),
        lambda told: told["layers"][0].update(n_components=0),
    ],
)
def test_manifests_with_values_of_wrong_types(here, capsys, change):
    told = read_manifest(here / "g.store")
    change(told)
    write_manifest(here / "g.store", told)
    assert main(["info", "g.store"]) == 2
    assert "g.store/meta.json: damaged" in capsys.readouterr().err


def test_a_manifest_that_is_a_link_is_refused(here, capsys):
    os.rename("g.store/meta.json", "meta.json")
    os.symlink(here / "meta.json", "g.store/meta.json")
    assert main(["info", "g.store"]) == 2
    assert "is a link" in capsys.readouterr().err


def forge(path, change):
    """Change the JSON and the arrays of a checkpoint, all checksums made good."""
    from spectrograd.serialization.codec import read_header, read_value, write_value

    header, (tree, arrays) = read_header(path), read_value(path)
    tree = change(tree, arrays)

    def encode(sink):
        for array in arrays:
            sink.add(array, passing=True)
        return tree

    write_value(path, header, encode)


def checkpointed(folder):
    return ["cluster", "graph.csv", "-k", "3", "-s", "lanczos", "--checkpoint", folder, "-o", "l.csv"]


def test_a_forged_result_is_not_certified(here, capsys):
    assert main([*checkpointed("ck"), "-q"]) == 0
    (path,) = Path("ck").glob("*-result.ckpt")

    def random_vectors(tree, arrays):
        rng = np.random.default_rng(0)
        for at, array in enumerate(arrays):
            if array.shape == (300, 3):
                arrays[at] = np.linalg.qr(rng.standard_normal((300, 3)))[0].astype(array.dtype)
        return tree

    forge(path, random_vectors)
    assert main(checkpointed("ck")) in (0, 2)  # solved again from a state, or refused where there is none
    assert "solve-000-result.ckpt: damaged (its vectors do not hold" in capsys.readouterr().err


@pytest.mark.parametrize("kind", ["os:system", "Session", "spectrograd.cli.session:Session", 7, True])
def test_a_checkpoint_names_nothing_but_what_is_on_the_list(here, capsys, kind):
    assert main([*checkpointed("ck"), "-q"]) == 0
    for path in Path("ck").glob("*.ckpt"):
        forge(path, lambda tree, arrays: {"kind": kind, "fields": {}})
    assert main(checkpointed("ck")) == 2
    told = capsys.readouterr().err
    assert "is nothing that a checkpoint or a model holds" in told
    assert ".ckpt" in told


def test_all_states_are_on_the_list_of_checkpoints():
    from importlib import import_module
    from pkgutil import iter_modules

    from spectrograd import aggregation, solvers
    from spectrograd.serialization.codec import KINDS
    from spectrograd.solvers.base import State

    for package in (solvers, aggregation):
        for module in iter_modules(package.__path__):
            import_module(f"{package.__name__}.{module.name}")
    todo, found = [State], set()
    while todo:
        below = [kind for kind in todo.pop().__subclasses__() if kind.__module__.startswith("spectrograd.")]
        todo += below
        found |= {(kind.__qualname__, kind.__module__.removeprefix("spectrograd.")) for kind in below}
    assert found <= KINDS.items()
    for name, module in KINDS.items():
        assert isinstance(getattr(import_module(f"spectrograd.{module}"), name), type)


def test_checkpoints_are_not_put_into_a_store(here, capsys):
    before = sorted(os.listdir("g.store"))
    assert main(checkpointed("g.store")) == 2
    assert "checkpoints need a folder of their own" in capsys.readouterr().err
    assert sorted(os.listdir("g.store")) == before


def mutations(path, rng, n):
    """Copies of a file's bytes with some flipped, cut off, doubled or zeroed."""
    data = path.read_bytes()
    for _ in range(n):
        changed, at = bytearray(data), int(rng.integers(len(data)))
        how = rng.integers(4)
        if how == 0:
            changed[at] ^= 1 << int(rng.integers(8))
        elif how == 1:
            del changed[at:]
        elif how == 2:
            changed[at:at] = changed[at : at + 64]
        else:
            changed[at : at + 16] = bytes(len(changed[at : at + 16]))
        yield bytes(changed)


@pytest.mark.parametrize("what", ["store", "model", "checkpoint"])
def test_damaged_files_are_bad_input_and_named(here, capsys, what):
    """Some hundred mutations, always the same: good, honestly not converged, or refused with the name."""
    Path("change.csv").write_text("src,dst\n0,299\n")
    if what == "store":
        folder, command = "g.store", ["cluster", "g.store", "-k", "3", "-o", "o.csv"]
    elif what == "model":
        SpectralClustering(3, random_state=0).fit(read_graph("graph.csv")).save("m")
        Path("new.csv").write_text("src,dst\nnew,1\nnew,2\n")
        folder, command = "m", ["predict", "m", "new.csv", "-o", "o.csv"]
    else:
        assert main([*checkpointed("ck"), "-q"]) == 0
        folder, command = "ck", checkpointed("ck")
    rng, codes = np.random.default_rng(0), set()
    for path in sorted(Path(folder).iterdir()):
        good = path.read_bytes()
        for bad in mutations(path, rng, 6 if what == "model" else 25):
            before = {p.name: p.read_bytes() for p in Path(folder).iterdir()}
            path.write_bytes(bad)
            capsys.readouterr()
            code = main(command)
            told = capsys.readouterr().err
            codes.add(code)
            assert code in (0, 1, 2), told
            assert "this is a bug" not in told
            assert "Traceback" not in told
            assert code != 2 or folder in told, told
            assert code != 1 or "NOT converged" in told, told
            for p in Path(folder).iterdir():
                if p.name not in before:
                    p.unlink()
            for name, content in before.items():
                Path(folder, name).write_bytes(content)
            path.write_bytes(good)
    assert 2 in codes or what == "checkpoint"  # the other file of the run serves there


def test_the_summary_of_a_repeated_update_says_so(here):
    assert main(["cluster", "graph.csv", "-k", "3", "--run", "run", "-o", "l.csv", "-q"]) == 0
    Path("change.csv").write_text("src,dst\n0,299\n")
    for step in ("taken in", "taken in before"):
        command = ["update", "graph.csv", "change.csv", "--run", "run", "-o", "o.csv", "-q"]
        assert main([*command, "--summary-json", "s.json"]) == 0
        assert json.loads(Path("s.json").read_text())["update"]["step"] == step


@pytest.mark.skipif(not hasattr(os, "fork"), reason="commands run in forked processes")
def test_wrong_values_with_good_checksums_crash_nothing_and_certify_nothing_wrong():
    """Thirty of the damages of resigned.py, in a process of its own: ``python resigned.py 600`` for more."""
    script = Path(__file__).with_name("resigned.py")
    call = [sys.executable, str(script), "1000", "1030"]
    done = subprocess.run(call, env=ENVIRONMENT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    outcomes = {line.rsplit(maxsplit=1)[0].split()[-1] for line in done.stdout.splitlines()}
    assert outcomes <= {"good", "converged", "refused"}, done.stdout
