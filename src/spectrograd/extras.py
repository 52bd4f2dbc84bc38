"""Optional packages: imported when first needed, with a word on what to install when they are missing."""

from __future__ import annotations

from importlib import import_module
from typing import Any

_EXTRA_OF = {
    "networkx": "interop",
    "igraph": "interop",
    "pandas": "interop",
    "polars": "interop",
    "pyarrow": "interop",
    "zstandard": "interop",
    "pyamg": "amg",
    "textblob": "reviews",
    "duckdb": "store",
    "distributed": "dask",
    "fsspec": "dask",
    "torch": "torch",
}


class MissingExtra(ImportError):
    """An optional package is not installed; the message says how to get it."""


def need(module: str, what: str) -> Any:
    """Import an optional module (``"pyarrow.parquet"``), or say that ``what`` needs it.

    Examples
    --------
    >>> need("pandas", "an edge table").__name__
    'pandas'
    """
    package = module.partition(".")[0]
    try:
        return import_module(module)
    except ImportError:
        raise MissingExtra(
            f"{what} needs the package {package!r}: pip install spectrograd[{_EXTRA_OF[package]}]"
        ) from None
