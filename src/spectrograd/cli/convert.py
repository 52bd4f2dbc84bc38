"""``spectrograd convert``: any input to a store on disk."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, cast

import click

from spectrograd.cli.options import GraphFiles, choice_option, common_options, graph_files, memory_size
from spectrograd.cli.session import Session, clock
from spectrograd.typing import JsonObject

EXAMPLES = """\b
Examples:
  spectrograd convert edges.parquet -o graph.store --memory-limit 2GB
  spectrograd convert parts/ -o graph.store --source follower --target followed
  spectrograd convert friends.csv calls.csv -o layers.store
  zcat edges.tsv.gz | spectrograd convert - -o graph.store --edges
"""
STAGES = {"read": "reading", "count": "counting", "scatter": "scattering", "sort": "sorting"}


@click.command(epilog=EXAMPLES, short_help="Put a graph into a store on disk, larger than memory or not.")
@graph_files
@click.option("-o", "--output", required=True, help="The folder to make.")
@click.option("--parts", is_flag=True, help="Several files are parts of one graph, not layers.")
@click.option(
    "--nodes", type=click.IntRange(min=1), help="Ids are 0 to NODES - 1; those without edges are nodes too."
)
@choice_option(
    "--duplicates", "sum max first", "sum", "What becomes of an edge that is listed several times."
)
@choice_option(
    "--order",
    "none bfs labelprop auto",
    "auto",
    "Order of the nodes on disk; outputs are in that of the input.",
)
@click.option("--signed", is_flag=True, help="Weights may be negative: --laplacian signed takes such stores.")
@click.option("--edges", is_flag=True, help="Also every edge once in random order: sgd needs that.")
@click.option(
    "--memory-limit", metavar="SIZE", callback=memory_size, help="Such as 2GB; half of the machine's."
)
@click.option("--force", is_flag=True, help="Replace a store of that name.")
@common_options
def convert(
    session: Session, graphs: GraphFiles, output: str, parts: bool, nodes: int | None, **given: Any
) -> int:
    """Read a graph of any size and write it as a store, a folder that the other commands take as GRAPH.

    GRAPH is any file that the other commands read, a folder or a pattern ('parts/*.parquet') whose files are
    parts of one graph, or - for text on standard input. Several are the layers of one multilayer graph.
    """
    from spectrograd.io.columns import chosen_columns
    from spectrograd.io.convert import convert as convert_files
    from spectrograd.store.edge_batches import IngestSettings

    with session.stage("read"), ExitStack() as stack:
        settings = IngestSettings(
            duplicates=given["duplicates"],
            order=given["order"],
            edges=given["edges"],
            force=given["force"],
            seed=session.seed,
            progress=_progress(session, stack),
            **({"memory_limit": given["memory_limit"]} if given["memory_limit"] else {}),
        )
        columns = chosen_columns(**graphs.columns)
        with session.compile_clock(True), naming_target(output):
            meta = convert_files(
                graphs.paths,
                output,
                settings,
                columns=columns,
                parts=parts,
                n_nodes=nodes,
                header=graphs.header,
                format=graphs.format,
                key=graphs.key,
                signed=given["signed"],
            )
    seconds = session.seconds["read"]
    rate = meta.made["listed"] / max(seconds, 1e-9)
    session.note(
        f"{output}: {meta.n_nodes:,} nodes, {meta.n_edges:,} edges in {seconds:.1f} s ({rate:,.0f} edges/s)"
    )
    if session.summary_json is not None:
        session.save_summary(_summary(session, graphs.paths, output, meta))
    return 0


@contextmanager
def naming_target(path: str) -> Iterator[None]:
    """Name the store in errors of the system that name no file, such as that of a limit on file sizes."""
    try:
        yield
    except OSError as error:
        if error.errno is None or error.filename is not None:
            raise
        raise OSError(error.errno, error.strerror, path) from None


def _progress(session: Session, stack: ExitStack) -> Callable[[str, int, int | None], None]:
    """Stage, edges, edges per second and time left."""
    show = session.status_line(stack, "reading")
    began: dict[str, float] = {}

    def progress(stage: str, done: int, total: int | None) -> None:
        seconds = time.perf_counter() - began.setdefault(stage, time.perf_counter())
        rate = done / seconds if seconds > 0 else 0.0
        left = f"  {clock((total - done) / rate)} left" if total and rate else ""
        share = done / total if total else None
        show(f"{STAGES[stage]}: {done:,} edges", share, f"{rate:,.0f} edges/s{left}" if rate else "")

    return progress


def _summary(session: Session, paths: tuple[str, ...], output: str, meta: Any) -> JsonObject:
    from spectrograd.cli.summary import Input, outline_of
    from spectrograd.io.edge_stream import files_of
    from spectrograd.store import is_store

    files = [Path(path) for given in paths if given != "-" for path in files_of(given) if not is_store(path)]
    sizes = {"n_nodes": meta.n_nodes, "n_edges": meta.n_edges, "n_layers": len(meta.layers)}
    summary = outline_of(session, Input.of_files(files), sizes)
    size = sum(path.stat().st_size for path in Path(output).iterdir())
    return cast(
        JsonObject, summary | {"store": {"path": output, "fingerprint": meta.fingerprint, "bytes": size}}
    )
