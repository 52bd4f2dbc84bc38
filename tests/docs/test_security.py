"""What SECURITY.md promises, as far as a small file can try it."""

from __future__ import annotations

import pickle
import re
from pathlib import Path

import numpy as np
import pytest

import spectrograd
from spectrograd import GraphError, read_graph

PACKAGE = Path(spectrograd.__file__).parent
HEADER = '<?xml version="1.0"?><!DOCTYPE g [{}]><graphml xmlns="http://graphml.graphdrawing.org/xmlns">'
GRAPH = '<graph edgedefault="undirected"><node id="{}"/><node id="b"/></graph></graphml>'


class Payload:
    """Leaves a file behind when it is unpickled."""

    def __init__(self, mark):
        self.mark = mark

    def __reduce__(self):
        return (Path.touch, (self.mark,))


def test_objects_in_arrays_are_not_opened(tmp_path):
    mark = tmp_path / "it_ran"
    payload = np.array([Payload(mark)], dtype=object)
    np.savez(tmp_path / "graph.npz", data=payload, indices=[0], indptr=[0, 1], shape=[1, 1], format=b"csr")
    with pytest.raises(GraphError, match=re.escape("graph.npz")):
        read_graph(tmp_path / "graph.npz")
    assert not mark.exists()
    pickle.loads(pickle.dumps(Payload(mark)))  # the payload would have worked
    assert mark.exists()


def test_entities_of_xml_neither_grow_nor_reach_files(tmp_path):
    growing = "".join(f'<!ENTITY l{i} "{f"&l{i - 1};" * 10}">' for i in range(1, 10))
    bomb = HEADER.format(f'<!ENTITY l0 "lol">{growing}') + GRAPH.format("&l9;")
    (tmp_path / "secret.txt").write_text("secret")
    external = f'<!ENTITY x SYSTEM "{(tmp_path / "secret.txt").as_uri()}">'
    for name, text in (("bomb", bomb), ("reach", HEADER.format(external) + GRAPH.format("&x;"))):
        path = tmp_path / f"{name}.graphml"
        path.write_text(text)
        with pytest.raises(GraphError, match="not GraphML"):
            read_graph(path)


def test_nothing_is_unpickled_evaluated_or_fetched_by_the_package():
    """Words that would do it; ``ast.literal_eval`` reads literals only, ``.eval()`` is a mode of networks."""
    words = re.compile(
        r"allow_pickle=True|\bimport (?:pickle|marshal|shelve|urllib|requests|socket|http)\b"
        r"|\bfrom (?:pickle|marshal|urllib|requests|socket|http)\b|(?<![\w.])(?:eval|exec)\(|torch\.load\("
    )
    found = [
        f"{path.relative_to(PACKAGE)}: {match[0]}"
        for path in sorted(PACKAGE.rglob("*.py"))
        for match in words.finditer(path.read_text(encoding="utf-8"))
    ]
    assert found == []
