"""The file tree that `fastpack mount` shows: samples as files in folders, read from the index on demand."""

from __future__ import annotations

import errno
import os
import tarfile
import threading
from collections.abc import Iterator
from contextlib import ExitStack
from functools import lru_cache
from pathlib import PurePosixPath
from typing import NamedTuple, Protocol

import numpy as np

from fastpack.errors import FormatError
from fastpack.io import AnyPath, PathLike, Reader, as_path, open_reader, open_stream
from fastpack.webdataset import metadata as nvmeta
from fastpack.webdataset.sample_index import SampleIndex, SampleRow
from fastpack.webdataset.tar_range import HEADER_WINDOW, ReadTar, SampleRange, Walker

MAX_NAME_BYTES = 1024  # the limit of FUSE
_BLOCK = 512
_PLAIN = (b"0", b"\0", b"7")  # types of tar members that are stored unmodified
_MOST_KEYS = 1024  # per query
_OPEN_SHARDS = 32
_AFTER_SLASH = chr(ord("/") + 1)


class Entry(NamedTuple):
    """A name in a folder; n_bytes is None for a folder."""

    name: str
    n_bytes: int | None

    @property
    def is_folder(self) -> bool:
        return self.n_bytes is None


class Content(Protocol):
    """An open file."""

    def read(self, offset: int, n_bytes: int) -> bytes:
        """Return `n_bytes` bytes from `offset` on; fewer only at the end."""
        ...

    def close(self) -> None: ...


class _Field(NamedTuple):
    shard: int
    offset: int
    n_bytes: int
    sample_start: int


class SampleTree:
    """Folders and files of the samples of a dataset that Energon 7 or later, or fastpack, prepared.

    A stored field is the file `key.field`, or `key/field` with sample_folders; each slash of a key is a folder. If a
    sample has a field twice, the last one is shown, as in training; a folder with the name of a file is hidden. Names
    that a file system does not allow (empty, `.` or `..`) or that start with `%` get a `%` in front. Paths are relative
    to the root, `""`. Thread-safe.

    allow_slow: accept an index that does not locate fields (Energon 6), and read the headers of each sample instead.

    Raises NotPrepared, FileNotFoundError, FormatError for an index that does not locate fields, ValueError for
    allow_slow without sample_folders, where a folder listing would have to read every header.
    """

    def __init__(self, folder: PathLike, *, sample_folders: bool = False, allow_slow: bool = False) -> None:
        self.folder = as_path(folder)
        self.sample_folders = sample_folders
        self.shards = [_inside(self.folder, name) for name in nvmeta.read_info(folder)]
        self._index = SampleIndex(nvmeta.index_path(folder))
        self._is_slow = not self._index.has_fields
        if self._is_slow and not allow_slow:
            expected = "one: prepare the dataset again, or mount it with --sample-folders --allow-slow"
            raise FormatError(self._index.path, 0, "no table sample_parts", expected)
        if self._is_slow and not sample_folders:
            raise ValueError("--allow-slow needs --sample-folders (-s): the index has no table of all fields")
        self._open_shard = lru_cache(_OPEN_SHARDS)(self._open_shard)  # type: ignore[method-assign]

    def entry(self, path: str) -> Entry:
        """Return the entry at this path. Raises FileNotFoundError."""
        names = _names(path)
        field = None if names is None else self._file(names)
        if field is not None:
            return Entry(path, field.n_bytes)
        if names is not None and self._is_folder(names):
            return Entry(path, None)
        raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path)

    def entries(self, path: str) -> Iterator[Entry]:
        """List a folder lazily. Raises FileNotFoundError, NotADirectoryError."""
        if not self.entry(path).is_folder:
            raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), path)
        for name, n_bytes in self._listed(_names(path) or []):
            if "\0" not in name and len(name.encode()) < MAX_NAME_BYTES:
                yield Entry(_escaped(name), n_bytes)

    def open(self, path: str) -> Content:
        """Open a file. Raises FileNotFoundError, IsADirectoryError, FormatError for a damaged shard."""
        names = _names(path)
        field = None if names is None else self._file(names)
        if field is not None:
            return self._opened(field)
        self.entry(path)
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), path)

    def close(self) -> None:
        """Close all files."""
        self._index.close()
        self._open_shard.cache_clear()  # type: ignore[attr-defined]

    def _file(self, names: list[str]) -> _Field | None:
        if not names:
            return None
        if self.sample_folders:
            key, field, dot = "/".join(names[:-1]), names[-1], True
        else:
            last, found, field = names[-1].partition(".")
            key, dot = "/".join([*names[:-1], last]), bool(found)
        return self._fields(key).get(field) if dot else None

    def _is_folder(self, names: list[str]) -> bool:
        key = "/".join(names)
        return not names or self._has_below(f"{key}/") or (self.sample_folders and bool(self._fields(key)))

    def _has_below(self, prefix: str) -> bool:
        return any(key.startswith(prefix) for key in self._index.keys(prefix, 1))

    def _fields(self, key: str) -> dict[str, _Field]:
        """Return the stored fields of a sample; none if it does not exist."""
        try:
            row = self._index.get(key)
        except KeyError:
            return {}
        fields = self._read_fields(row) if self._is_slow else self._index.fields(row.tar_file_id, row.sample_index)
        return {name: _Field(row.tar_file_id, offset, size, row.byte_offset) for name, offset, size in fields}

    def _read_fields(self, row: SampleRow) -> list[tuple[str, int, int]]:
        """Return the same as `SampleIndex.fields`, from the headers of the sample."""
        if not 0 <= row.tar_file_id < len(self.shards):
            found = f"a sample in shard {row.tar_file_id}"
            raise FormatError(self._index.path, 0, found, f"one of {len(self.shards)} shards")
        tar = ReadTar(self.shards[row.tar_file_id])
        sample = SampleRange(tar, row.byte_offset, row.byte_offset + row.byte_size, Walker(), HEADER_WINDOW)
        return [(member.field, member.offset, member.size) for member in sample.members]

    def _listed(self, names: list[str]) -> Iterator[tuple[str, int | None]]:
        own = self._fields("/".join(names)) if self.sample_folders and names else {}
        for name, field in own.items():
            yield name, field.n_bytes
        prefix = "".join(f"{name}/" for name in names)
        for name, is_key in self._children(prefix):
            if is_key and not self.sample_folders:
                for field_name, field in self._fields(prefix + name).items():
                    yield f"{name}.{field_name}", field.n_bytes
            elif name not in own and (is_key or not self._is_listed_as_key(prefix, name)):
                yield name, None

    def _is_listed_as_key(self, prefix: str, name: str) -> bool:
        """Return whether a folder of keys has the name of a sample, or of a sample's file, in the same folder."""
        if self.sample_folders:
            return bool(self._fields(prefix + name))
        key, dot, field = name.partition(".")
        return bool(dot) and field in self._fields(prefix + key)

    def _children(self, prefix: str) -> Iterator[tuple[str, bool]]:
        """Yield (name up to the next slash, whether it is a whole key) for keys with this prefix, in key order."""
        first, count, last = prefix, 2, None
        while True:
            keys = self._index.keys(first, count)
            for key in keys:
                if not key.startswith(prefix):
                    return
                name, slash, _ = key[len(prefix) :].partition("/")
                if slash:
                    yield name, False
                    first, count = prefix + name + _AFTER_SLASH, 2  # skip the keys of this folder
                    break
                if key != last:
                    yield name, True
                first, last = f"{key}\0", key
            else:
                if len(keys) < count:
                    return
                count = min(2 * count, _MOST_KEYS)

    def _opened(self, field: _Field) -> Content:
        if not 0 <= field.shard < len(self.shards):
            raise FormatError(
                self._index.path, 0, f"a field in shard {field.shard}", f"one of {len(self.shards)} shards"
            )
        file = self._open_shard(field.shard)
        header = np.zeros(_BLOCK, np.uint8)
        if field.offset < _BLOCK or file.read_into(header, field.offset - _BLOCK) < _BLOCK:
            raise FormatError(file.path, field.offset, "no header before it", "a field, as the index says")
        raw_header = header.tobytes()
        if raw_header[156:157] in _PLAIN and _octal(raw_header[124:136]) == field.n_bytes:
            return _Plain(file, field)
        return _unusual(file, field)

    def _open_shard(self, number: int) -> Reader:
        return open_reader(self.shards[number])


class _Plain:
    """A file stored unmodified in a shard."""

    def __init__(self, file: Reader, field: _Field) -> None:
        self._file, self._field = file, field

    def read(self, offset: int, n_bytes: int) -> bytes:
        n_bytes = max(0, min(n_bytes, self._field.n_bytes - offset))
        out = np.empty(n_bytes, np.uint8)
        done = self._file.read_into(out, self._field.offset + offset)
        if done < n_bytes:
            where = self._field.offset + offset + done
            raise FormatError(self._file.path, where, "the end of the file", f"a field of {self._field.n_bytes} bytes")
        return out.tobytes()

    def close(self) -> None:
        pass


class _Sparse:
    """A sparse file, read with Python's tarfile, which supports all kinds."""

    def __init__(self, tar: tarfile.TarFile, info: tarfile.TarInfo) -> None:
        self._tar, self._info, self._lock = tar, info, threading.Lock()

    def read(self, offset: int, n_bytes: int) -> bytes:
        with self._lock:
            # A new file each time: after seeking back, Python 3.11 takes the end of an old map for a hole.
            file = self._tar.extractfile(self._info)
            if file is None:
                return b""
            with file:
                file.seek(offset)
                return file.read(n_bytes)

    def close(self) -> None:
        with self._lock:
            stream = self._tar.fileobj
            self._tar.close()
            if stream is not None:
                stream.close()


def _unusual(file: Reader, field: _Field) -> Content:
    """Open a sparse file, or one whose size is not in the header before it."""
    with ExitStack() as opened:
        stream = opened.enter_context(open_stream(file.path))
        try:
            stream.seek(field.sample_start)
            tar = tarfile.open(fileobj=stream, mode="r:", encoding="utf-8", errors="surrogateescape")  # noqa: SIM115
            info = next((info for info in tar if info.offset_data >= field.offset), None)
        except (tarfile.TarError, ValueError, OverflowError, IndexError) as error:
            found = f"damage ({error})"
            raise FormatError(file.path, field.sample_start, found, "a sample, as the index says") from error
        if info is not None and info.isreg() and (info.offset_data, info.size) == (field.offset, field.n_bytes):
            if not info.issparse():
                return _Plain(file, field)
            opened.pop_all()
            return _Sparse(tar, info)
    raise FormatError(file.path, field.offset, "other content", f"a field of {field.n_bytes} bytes, as the index says")


def _inside(folder: AnyPath, name: str) -> AnyPath:
    """Return the path of a shard; FormatError if it is outside the dataset's folder."""
    path = PurePosixPath(name)
    if path.is_absolute() or ".." in path.parts:
        raise FormatError(
            nvmeta.meta_path(folder, ".info.json"), 0, f"the shard {name!r}", "one in the dataset's folder"
        )
    return folder / name


def _names(path: str) -> list[str] | None:
    """Return the components of the key at a path; None if it cannot be a key."""
    shown = path.split("/") if path else []
    names = [name.removeprefix("%") for name in shown]
    try:
        path.encode()
    except UnicodeEncodeError:  # no key is like that
        return None
    return names if list(map(_escaped, names)) == shown else None


def _escaped(name: str) -> str:
    return f"%{name}" if name in ("", ".", "..") or name.startswith("%") else name


def _octal(digits: bytes) -> int | None:
    try:
        return int(digits.split(b"\0", 1)[0].strip() or b"0", 8)
    except ValueError:
        return None
