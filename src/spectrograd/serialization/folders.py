"""Folders that appear complete or not at all (stores, checkpoints, saved models), and their manifests.

A folder is written under a temporary name and renamed; a lock file beside it keeps a second writer out;
``meta.json`` carries a checksum. Stores behind URLs (``s3://``, ``gs://``, ``http://`` ...) are read by
fsspec.
"""

from __future__ import annotations

import ctypes
import errno
import json
import os
import secrets
import shutil
import threading
import zlib
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, NamedTuple

from spectrograd.graph import GraphError
from spectrograd.system import need
from spectrograd.typing import JsonObject

# --- Paths and URLs


class Size(NamedTuple):
    """The result of ``stat`` for a file behind a URL."""

    st_size: int


class RemotePath(NamedTuple):
    """A URL with the methods of :class:`~pathlib.Path` that reading a store needs."""

    url: str

    def __truediv__(self, name: str) -> RemotePath:
        return RemotePath(f"{self.url.rstrip('/')}/{name}")

    def __str__(self) -> str:
        return self.url

    @property
    def opened(self) -> tuple[Any, str]:
        """The file system of fsspec and the name of the file there."""
        fsspec = need("fsspec", f"{self.url}: a URL")
        try:
            opened: tuple[Any, str] = fsspec.core.url_to_fs(self.url)
        except (ImportError, ValueError) as error:  # a package for this protocol, or no such protocol
            raise GraphError(f"{self.url}: {error}") from None
        return opened

    def absolute(self) -> RemotePath:
        """Return the URL itself."""
        return self

    def is_symlink(self) -> bool:
        """Return False: URLs have no links."""
        return False

    def is_file(self) -> bool:
        """Whether there is such a file."""
        system, name = self.opened
        return bool(system.isfile(name))

    def stat(self) -> Size:
        """Return the size; an error where there is no such file."""
        system, name = self.opened
        try:
            return Size(int(system.size(name)))
        except FileNotFoundError:
            raise OSError(errno.ENOENT, os.strerror(errno.ENOENT), self.url) from None

    def read_text(self, encoding: str) -> str:
        """Read the whole file."""
        system, name = self.opened
        return bytes(system.cat_file(name)).decode(encoding)


StorePath = Path | RemotePath


def store_path(path: str | os.PathLike[str] | RemotePath) -> StorePath:
    """Convert to a path, or to a URL where there is ``://``."""
    if isinstance(path, RemotePath):
        return path
    return RemotePath(path) if isinstance(path, str) and "://" in path else Path(path)


# --- Folders that appear complete or not at all

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None  # type: ignore[assignment]

MANIFEST = "meta.json"
MAX_MANIFEST_BYTES = 256 << 20  # 300 bytes per block of 16 MB describe more than 10 TB
_AT_FDCWD = -100  # of Linux' renameat2
_RENAME_EXCHANGE = 2
_DISK_FULL = (errno.ENOSPC, errno.EDQUOT)
_lock_owners: dict[Path, int] = {}  # target -> thread of this process that holds its lock


@contextmanager
def new_folder(target: Path, *, replace: bool = False) -> Iterator[Path]:
    """Yield a folder to write into; without an error it becomes the target, else it is removed.

    Parameters
    ----------
    target : Path
        Final path of the folder; its parent must exist.
    replace : bool
        Whether an existing folder with a manifest may be replaced. Anything else is refused.
    """
    target = Path(os.path.realpath(target))
    if not target.parent.is_dir():
        raise GraphError(f"{target.parent}: no such folder; create it first")
    check_target(target, replace)
    with only_writer(target):
        for left_over in target.parent.glob(f".{target.name}.*.tmp"):
            shutil.rmtree(left_over, ignore_errors=True)
        # 1. a draft beside the target, on the same file system: a rename is then atomic
        draft = target.with_name(f".{target.name}.{secrets.token_hex(4)}.tmp")
        try:
            draft.mkdir()
            yield draft
            # 2. on disk before it appears: after a power cut the folder is whole or absent
            _sync_all(draft)
            check_target(target, replace)
            # 3. the rename
            _take_place(draft, target)
        except OSError as error:
            if error.errno in _DISK_FULL:
                raise OSError(error.errno, "the disk is full; nothing was changed", str(target)) from error
            raise
        finally:
            shutil.rmtree(draft, ignore_errors=True)


def check_target(target: Path, replace: bool) -> None:
    """Refuse an existing target, unless it is a folder with a manifest and may be replaced."""
    if not target.exists():
        return
    if not (target / MANIFEST).is_file():
        raise GraphError(f"{target}: exists and is no store; choose another name")
    if not replace:
        raise GraphError(f"{target}: exists already; --force replaces it")


@contextmanager
def only_writer(target: Path) -> Iterator[None]:
    """Hold the target's lock, a file beside it; a second writer is refused, with the process id of the first.

    The system releases the lock when a process dies, however it dies.
    """
    path = target.with_name(f".{target.name}.lock")
    thread = threading.get_ident()
    if _lock_owners.get(target) == thread:  # an update of a store may have to write it anew
        yield
        return
    handle = _acquire_lock(path, target)
    _lock_owners[target] = thread
    try:
        os.ftruncate(handle, 0)
        os.write(handle, f"{os.getpid()}\n".encode())
        yield
    finally:
        del _lock_owners[target]
        with suppress(OSError):  # Windows does not remove open files
            path.unlink()
        os.close(handle)


def _acquire_lock(path: Path, target: Path) -> int:
    while True:
        handle = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
        try:
            if fcntl is not None:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            owner = os.read(handle, 32).decode(errors="replace").strip() or "unknown"
            os.close(handle)
            raise GraphError(f"{target}: process {owner} is writing it; wait until it has ended") from None
        with suppress(FileNotFoundError):  # the last owner may have removed it in between
            if os.stat(path).st_ino == os.fstat(handle).st_ino or os.name == "nt":
                return handle
        os.close(handle)


def write_manifest(folder: Path, content: Mapping[str, object]) -> None:
    """Write ``meta.json``, with a checksum of everything else in it."""
    text = json.dumps({**content, "checksum": _checksum(content)}, indent=1, allow_nan=False)
    draft = folder / f"{MANIFEST}.tmp"
    draft.write_text(text + "\n", encoding="utf-8")
    sync_files(folder, [draft.name])
    os.replace(draft, folder / MANIFEST)  # readers find the old one or the new one
    sync_folder(folder)


def read_manifest(folder: StorePath) -> JsonObject:
    """Read ``meta.json`` back, or say what is wrong with it."""
    path = folder / MANIFEST
    if path.is_symlink():
        raise GraphError(f"{path}: is a link, which is not followed; put the file itself there")
    try:
        if path.stat().st_size > MAX_MANIFEST_BYTES:
            raise GraphError(f"{path}: larger than {MAX_MANIFEST_BYTES >> 20} MB; this is no manifest")
        content = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise GraphError(f"{path}: {error.strerror}; a store is a folder with this file in it") from None
    except (ValueError, RecursionError) as error:
        raise GraphError(f"{path}: damaged ({error}); make the store again") from None
    if not isinstance(content, dict):
        raise GraphError(f"{path}: damaged (no object); make the store again")
    stated = content.pop("checksum", None)
    if stated != _checksum(content):
        raise GraphError(f"{path}: damaged (its checksum is wrong); make the store again")
    return content


def _checksum(content: Mapping[str, object]) -> int:
    return zlib.crc32(json.dumps(content, sort_keys=True, separators=(",", ":")).encode())


def _sync_all(folder: Path) -> None:
    """Flush everything to the disk before the rename: else a power cut could leave a name without content."""
    sync_files(folder, sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()))
    sync_folder(folder)


def sync_files(folder: Path, names: Iterable[str]) -> None:
    """Wait until files are on the disk."""
    for name in names:
        with open(folder / name, "rb+") as handle:
            os.fsync(handle.fileno())


def sync_folder(folder: Path) -> None:
    """Flush the names in a folder to the disk: else a power cut could undo a rename."""
    if os.name == "nt":
        return
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _take_place(draft: Path, target: Path) -> None:
    """Rename the draft; an existing target is exchanged in one step where the system can, then removed."""
    if not target.exists():
        os.rename(draft, target)
    elif _exchange(draft, target):
        shutil.rmtree(draft, ignore_errors=True)
    else:  # two steps: for a moment a reader finds neither
        old = target.with_name(f".{target.name}.{secrets.token_hex(4)}.old")
        os.rename(target, old)
        os.rename(draft, target)
        shutil.rmtree(old, ignore_errors=True)
    sync_folder(target.parent)


def _exchange(one: Path, other: Path) -> bool:
    """Exchange the names of two folders in one step; whether the system could."""
    with suppress(OSError, AttributeError):
        rename = ctypes.CDLL(None, use_errno=True).renameat2
        names = os.fsencode(one), os.fsencode(other)
        return bool(rename(_AT_FDCWD, names[0], _AT_FDCWD, names[1], _RENAME_EXCHANGE) == 0)
    return False
