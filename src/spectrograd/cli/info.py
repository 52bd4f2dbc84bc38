"""``spectrograd info``: what is in a graph, what is wrong with it, what it will need."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from spectrograd.cli.options import GraphFiles, common_options, components_option, graph_files
from spectrograd.cli.session import Session
from spectrograd.typing import JsonObject

if TYPE_CHECKING:
    from spectrograd.graph import Graph, MultilayerGraph


EXAMPLES = """\b
Examples:
  spectrograd info graph.csv
  spectrograd info friends.csv calls.csv --summary-json info.json
"""
WIDE_RANGE = 1e6  # weights that differ by more make the lightest edges vanish beside rounding


@click.command(epilog=EXAMPLES, short_help="Look at a graph: contents, faults, needs.")
@graph_files
@components_option("Vectors to estimate memory and time for.")
@common_options
def info(session: Session, graphs: GraphFiles, k: int) -> int:
    """Say what is in a graph, what is wrong with it and how to mend it, and the memory and time it will need.

    GRAPH is any file that the other commands read; several are the layers of one multilayer graph.
    """
    from spectrograd.store import is_store

    if len(graphs.paths) == 1 and is_store(graphs.paths[0]):
        return _store_info(session, graphs.paths[0], k)
    from spectrograd.cli import run as running
    from spectrograd.cli.estimate import describe, estimate
    from spectrograd.cli.summary import outline

    graph, source = running.read_layers(session, graphs, signed=True)
    facts = _facts(graph)
    click.echo(f"graph    {describe(graph)}")
    for row in facts["layers"]:
        click.echo(_sentence(row))
    for finding in facts["findings"]:
        click.echo(f"mind     {finding}")
    plan = estimate(graph, k) if graph.n_edges else None
    for text in plan.lines() if plan else ():
        click.echo(text)
    summary = outline(session, source, graph)
    summary["graph"] |= facts
    if plan:
        summary["solver"] = {"name": plan.choice.name, "reason": plan.choice.reason}
        summary["estimate"] = {"memory_bytes": plan.memory, "seconds": list(plan.seconds)}
    session.save_summary(summary)
    return 0


def _store_info(session: Session, path: str, k: int) -> int:
    """What the store's own description says: nothing else is read."""
    from spectrograd.cli.estimate import memory_line
    from spectrograd.cli.summary import Input, outline_of
    from spectrograd.store import open_store
    from spectrograd.store.format import load_meta

    meta = load_meta(Path(path))
    sizes = {"n_nodes": meta.n_nodes, "n_edges": meta.n_edges, "n_layers": len(meta.layers)}
    size = sum(file.stat().st_size for file in Path(path).iterdir())
    click.echo(
        f"store    {path}: {size / 1e6:,.0f} MB, ids are {meta.ids}, fingerprint {meta.fingerprint[:16]}"
    )
    click.echo(
        f"graph    {meta.n_nodes:,} nodes, {meta.n_edges:,} edges, {_layers_in_words(len(meta.layers))}"
    )
    rows = []
    for layer in meta.layers:
        shown: JsonObject = {
            "name": layer.name,
            "n_edges": layer.n_entries // 2,
            "weights": list(layer.weights),
        }
        shown |= {"degrees": list(layer.degree_range), "n_components": layer.n_components - layer.n_isolated}
        rows.append(shown | {"n_isolated": layer.n_isolated, "lone_nodes": []})
        click.echo(_sentence(rows[-1]))
    findings = [text for row in rows for text in _findings(row, len(rows))]
    for finding in findings:
        click.echo(f"mind     {finding}")
    click.echo(memory_line(open_store(path), k))
    summary = outline_of(session, Input((path,), meta.fingerprint), sizes)
    summary["graph"] |= {"layers": rows, "findings": findings}
    session.save_summary(summary)
    return 0


def _layers_in_words(n_layers: int) -> str:
    return f"{n_layers} layer{'s' * (n_layers > 1)}"


def _sentence(row: JsonObject) -> str:
    low, high = row["weights"]
    weights = "unweighted" if low == high == 1 else f"weights {low:.4g} to {high:.4g}"
    return (
        f"layer    {row['name']}: {row['n_edges']:,} edges, {weights}, degree {row['degrees'][0]:.4g} to "
        f"{row['degrees'][1]:.4g}, components {row['n_components']:,}, lone nodes {row['n_isolated']:,}"
    )


def _facts(graph: Graph | MultilayerGraph) -> JsonObject:
    from spectrograd.graph import MultilayerGraph

    if isinstance(graph, MultilayerGraph):
        named = dict(zip(graph.layer_names, graph.layers, strict=True))
    else:
        named = {"graph": graph}
    rows = [_layer_facts(name, layer) for name, layer in named.items()]
    return {"layers": rows, "findings": [text for row in rows for text in _findings(row, len(rows))]}


def _layer_facts(name: str, layer: Graph) -> JsonObject:
    from scipy.sparse.csgraph import connected_components

    components = connected_components(layer.matrix, directed=False, return_labels=False)
    lone = layer.isolated
    data = layer.matrix.data
    filled = layer.degrees[layer.degrees > 0]
    return {
        "name": name,
        "n_edges": layer.n_edges,
        "weights": [float(data.min()), float(data.max())] if len(data) else [1.0, 1.0],
        "degrees": [float(filled.min()), float(filled.max())] if len(filled) else [0.0, 0.0],
        "n_components": int(components - len(lone)),
        "n_isolated": len(lone),
        "lone_nodes": [str(node) for node in layer.node_names[lone[:3]]],
    }


def _findings(row: JsonObject, n_layers: int) -> list[str]:
    """Faults, each with what to do about it."""
    where = f"layer {row['name']}: " if n_layers > 1 else ""
    found = []
    if row["n_edges"] == 0:
        found.append(f"{where}no edges; leave it out")
    if row["n_isolated"] and n_layers == 1:
        some = f" ({', '.join(row['lone_nodes'])})" if row["lone_nodes"] else ""
        found.append(f"{row['n_isolated']:,} nodes have no edge{some}; remove them from the file")
    if row["n_components"] > 1:
        found.append(
            f"{where}{row['n_components']:,} separate components; the first eigenvectors only tell them apart"
        )
    low, high = row["weights"]
    if low > 0 and high / low > WIDE_RANGE:
        found.append(f"{where}weights range over a factor of {high / low:.1g}; consider their logarithm")
    return found
