"""Stores behind URLs (``s3://``, ``gs://``, ``http://`` ...): read by fsspec, piece by piece."""

from __future__ import annotations

import errno
import os
from pathlib import Path
from typing import Any, NamedTuple

from spectrograd.extras import need
from spectrograd.graph import GraphError


class Size(NamedTuple):
    """What ``stat`` of a file behind a URL tells."""

    st_size: int


class RemotePath(NamedTuple):
    """A URL, with the few things that reading a store asks of a :class:`~pathlib.Path`."""

    url: str

    def __truediv__(self, name: str) -> RemotePath:
        return RemotePath(f"{self.url.rstrip('/')}/{name}")

    def __str__(self) -> str:
        return self.url

    @property
    def opened(self) -> tuple[Any, str]:
        """Its file system and what it is called there."""
        fsspec = need("fsspec", f"{self.url}: a URL")
        try:
            found: tuple[Any, str] = fsspec.core.url_to_fs(self.url)
        except (ImportError, ValueError) as error:  # a package for this protocol, or no such protocol
            raise GraphError(f"{self.url}: {error}") from None
        return found

    def absolute(self) -> RemotePath:
        """Itself."""
        return self

    def is_symlink(self) -> bool:
        """Never."""
        return False

    def is_file(self) -> bool:
        """Whether there is such a file."""
        system, name = self.opened
        return bool(system.isfile(name))

    def stat(self) -> Size:
        """Its size; an error where it is not there."""
        system, name = self.opened
        try:
            return Size(int(system.size(name)))
        except FileNotFoundError:
            raise OSError(errno.ENOENT, os.strerror(errno.ENOENT), self.url) from None

    def read_text(self, encoding: str) -> str:
        """All of it."""
        system, name = self.opened
        return bytes(system.cat_file(name)).decode(encoding)


StorePath = Path | RemotePath


def store_path(path: str | os.PathLike[str] | RemotePath) -> StorePath:
    """A path, or a URL."""
    if isinstance(path, RemotePath):
        return path
    return RemotePath(path) if isinstance(path, str) and "://" in path else Path(path)
