"""A result as a folder of Parquet files; what was left with workers is written by them."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from spectrograd.embedding import Embedding
from spectrograd.graph import Graph, MultilayerGraph
from spectrograd.io.write.parts import write_parts
from spectrograd.pipeline.left_embedding import LeftEmbedding
from spectrograd.pipeline.result import Result

Array = NDArray[Any]
Source = Graph | MultilayerGraph


def write_embedding_parts(path: str | os.PathLike[str], graph: Source, embedding: Embedding) -> list[Path]:
    """Columns ``node,e0,e1,...`` of the embedding of a graph; see :func:`write_parts`."""
    if not isinstance(embedding, LeftEmbedding):
        return write_parts(path, embedding.vectors, graph.input_names)
    return write_parts(path, embedding.tall, _names_by_row(graph, embedding), engine=embedding.engine)


def write_label_parts(path: str | os.PathLike[str], graph: Source, result: Result) -> list[Path]:
    """Columns ``node,label`` of a result with clusters; see :func:`write_parts`."""
    if result.labels is None:
        raise ValueError("there are no labels to write: this is an embedding only")
    left, labels = result.embedding, result.label_tall
    if not isinstance(left, LeftEmbedding):
        return write_parts(path, result.labels, graph.input_names)
    if labels is None:  # few enough for the client to have found them
        rows = result.labels if left.order is None else result.labels[left.order]
        labels = left.engine.put(np.ascontiguousarray(rows)[:, None])
    return write_parts(path, labels, _names_by_row(graph, left), engine=left.engine)


def _names_by_row(graph: Source, left: LeftEmbedding) -> Array | None:
    """The names of the nodes in the order of the graph's rows; None where they are the row numbers."""
    if left.names is None:
        return left.order
    return graph.input_names if left.order is None else graph.input_names[left.order]
