"""A Dask dataframe of edges to a store: its workers write parts, which are converted as files are."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

from spectrograd.io.write.convert import convert
from spectrograd.store.batches import IngestSettings
from spectrograd.store.manifest import StoreMeta


def is_dask_frame(value: Any) -> bool:
    """Whether this is a dataframe of Dask, without importing Dask."""
    return type(value).__module__.split(".")[0] in ("dask", "dask_expr") and hasattr(value, "to_parquet")


def dask_frame_to_store(target: Path, frame: Any, settings: IngestSettings) -> StoreMeta:
    """Write the partitions beside the target, each by the worker that has it, and make a store of them.

    The folder of the target must be one that the workers write to as well.
    """
    place = target.resolve()
    with tempfile.TemporaryDirectory(prefix=f".{place.name}.", suffix=".parts", dir=place.parent) as folder:
        frame.to_parquet(folder, write_index=False, write_metadata_file=False)
        return convert([folder], str(target), settings)
