"""The members in a stretch of a tar, such as one sample's, read by position without walking what lies before."""

from __future__ import annotations

import io
import re
import tarfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from zlib import adler32

import numpy as np

from fastpack.errors import FormatError
from fastpack.files import ReadFile

BLOCK = 512
WINDOW = 1 << 18  # bytes read at once: a stretch up to this size costs one system call
HEADER_WINDOW = 1 << 13  # behind it headers are read in pieces of this size, contents as long as they are
MAX_HEADER_BYTES = 1 << 20  # of a long name or a PAX record
MAX_SPARSE_BYTES = 1 << 32  # a sparse file of a few blocks can claim any size

_REGULAR = b"0\x007"
_WITHOUT_DATA = b"123456"
_ZEROS = bytes(BLOCK)
_PAX_LENGTH = re.compile(rb"(\d{1,10}) ")


@dataclass(slots=True)
class Member:
    """One file of a tar: bytes `offset` to `offset + size` hold it, unless it is `sparse`.

    name: as the archive has it, UTF-8 with surrogate escapes. start, end: with its headers and padding.
    """

    name: str
    start: int
    offset: int
    size: int
    end: int
    sparse: bool = False


@dataclass(slots=True)
class _Extended:
    """What headers in front of a member say of it; the first to say a thing is heard."""

    name: str | None = None
    size: int | None = None
    sparse: bool = False


class Stretch:
    """Bytes [start, end) of a tar, which begin with a header and end behind a member's padding.

    window: how much is read at once at the beginning, in bytes.
    Raises FormatError where the file ends early.
    """

    def __init__(self, file: ReadFile, start: int, end: int, window: int = WINDOW) -> None:
        self._file, self.start, self.end = file, start, end
        self._at = start
        self._held = self._read(start, min(end - start, window))

    def _read(self, offset: int, n_bytes: int) -> bytes:
        out = np.empty(n_bytes, np.uint8)
        done = self._file.read_into(out, offset)
        if done < n_bytes:
            expected = f"{offset + n_bytes} bytes, as the index says"
            raise FormatError(self._file.path, offset + done, "the end of the file", expected)
        return out.tobytes()

    def _header(self, offset: int) -> bytes:
        if offset + BLOCK > self.end:
            raise FormatError(self._file.path, offset, "a header that reaches beyond the sample", "a whole header")
        if offset + BLOCK > self._at + len(self._held):
            self._at, self._held = offset, self._read(offset, min(HEADER_WINDOW, self.end - offset))
        return self._held[offset - self._at : offset - self._at + BLOCK]

    def read(self, offset: int, n_bytes: int) -> bytes:
        """The bytes from `offset` on."""
        first = offset - self._at
        if first >= 0 and first + n_bytes <= len(self._held):
            return self._held[first : first + n_bytes]
        return self._read(offset, n_bytes)

    def members(self) -> Iterator[Member]:
        """The regular files, in order, by the rules of Python's tarfile.

        Raises FormatError, unlike it, for a header that is none before `end`.
        """
        offset = self.start
        while offset < self.end:
            member, offset = self._next(offset)
            if member is not None:
                yield member

    def _next(self, start: int) -> tuple[Member | None, int]:
        """The member whose headers begin here, None where it is no regular file, and where the next one's begin."""
        offset, extended = start, _Extended()
        while True:
            header = self._header(offset)
            self._check(header, offset)
            kind = header[156:157]
            size = self._size(header, offset)
            offset += BLOCK
            if kind not in b"xXLKg":
                break
            if size > MAX_HEADER_BYTES or offset + size > self.end:
                raise FormatError(self._file.path, offset, f"{size} bytes of names and records", "a header's")
            if not _extend(extended, kind, self.read(offset, size)):
                raise FormatError(self._file.path, offset, "PAX records that are none", "'length key=value' each")
            offset += _padded(size)
        name = extended.name
        if name is None:
            name = _name(header)
        if extended.size is not None:
            size = extended.size
        data = self._behind_map(header, offset) if kind == b"S" else offset
        end = data if kind in _WITHOUT_DATA else data + _padded(size)
        if size < 0 or end > self.end:
            found = f"a member of {size} bytes"
            raise FormatError(self._file.path, offset, found, f"at most {self.end - offset}, where the sample ends")
        sparse = kind == b"S" or extended.sparse
        if sparse:
            return self._sparse(start, end), end
        is_file = kind in _REGULAR and not (kind == b"\0" and name.endswith("/"))
        return (Member(name, start, offset, size, end) if is_file else None), end

    def _behind_map(self, header: bytes, offset: int) -> int:
        """Where the data of a sparse file of the old kind begin: behind further blocks of its map."""
        more = header[482]
        while more:
            more = self._header(offset)[504]
            offset += BLOCK
        return offset

    def _check(self, header: bytes, offset: int) -> None:
        if header == _ZEROS:
            raise FormatError(self._file.path, offset, "the end of the archive", "a member, as the index says")
        field = header[148:156]
        stated = _octal(field)
        # Adler's lower half is one more than the sum of the bytes, modulo 65521: in a fiftieth of the time of sum().
        if stated is None or (stated - 255 + sum(field)) % 65521 != adler32(header) & 0xFFFF:
            total = sum(header) - sum(field) + 256
            if stated != total - 256 * sum(byte > 127 for byte in header[:148] + header[156:]):  # of signed bytes
                raise FormatError(self._file.path, offset, f"a header with the checksum {stated}", total)

    def _size(self, header: bytes, offset: int) -> int:
        field = header[124:136]
        if field[0] in (0o200, 0o377):
            value = int.from_bytes(field[1:], "big")
            return value if field[0] == 0o200 else value - (1 << 88)
        size = _octal(field)
        if size is None:
            raise FormatError(self._file.path, offset + 124, f"the size {field!r}", "an octal number")
        return size

    def _sparse(self, start: int, end: int) -> Member:
        with self._open_sparse(start, end) as tar:
            info = tar.next()
        if info is None or not 0 <= info.size <= MAX_SPARSE_BYTES:
            raise FormatError(self._file.path, start, "a sparse file of no sensible size", "one below 4 GiB")
        return Member(info.name, start, start + info.offset_data, info.size, end, sparse=True)

    @contextmanager
    def _open_sparse(self, start: int, end: int) -> Iterator[tarfile.TarFile]:
        """A tar of one sparse file, whose many kinds Python's tarfile knows."""
        try:
            data = io.BytesIO(self.read(start, end - start))
            with tarfile.open(fileobj=data, mode="r:", encoding="utf-8", errors="surrogateescape") as tar:
                yield tar
        except (tarfile.TarError, ValueError, OverflowError, IndexError) as error:
            if isinstance(error, FormatError):
                raise
            raise FormatError(self._file.path, start, f"a sparse file ({error})", "one that is whole") from error

    def content(self, member: Member) -> bytes:
        """What is in a member: of a sparse file with its holes as zeros."""
        if not member.sparse:
            return self.read(member.offset, member.size)
        with self._open_sparse(member.start, member.end) as tar:
            info = tar.next()
            file = None if info is None else tar.extractfile(info)
            data = b"" if file is None else file.read()
        if len(data) != member.size:
            raise FormatError(self._file.path, member.start, f"{len(data)} bytes of a sparse file", member.size)
        return data


def _extend(extended: _Extended, kind: bytes, data: bytes) -> bool:
    """Note what an extended header says; False when it cannot be read."""
    if kind == b"L" and extended.name is None:
        extended.name = _text(data)
    if kind not in b"xX":
        return True
    records = _pax_records(data)
    if records is None:
        return False
    path, size = records.get(b"path"), records.get(b"size")
    if path is not None and extended.name is None:
        extended.name = path.decode("utf-8", "surrogateescape").rstrip("/")
    if size is not None and extended.size is None:
        if not size.isdigit():
            return False
        extended.size = int(size)
    extended.sparse |= any(key.startswith(b"GNU.sparse.") for key in records)
    return True


def _pax_records(data: bytes) -> dict[bytes, bytes] | None:
    """`length key=value\n`, one behind the other, up to a NUL or the end; None when one is not of that form."""
    records, at = {}, 0
    while at < len(data) and data[at]:
        match = _PAX_LENGTH.match(data, at)
        end = at + int(match[1]) if match else 0
        if match is None or not match.end() < end <= len(data):
            return None
        key, equals, value = data[match.end() : end - 1].partition(b"=")
        if not equals:
            return None
        records[key] = value
        at = end
    return records


def _name(header: bytes) -> str:
    name, prefix = _text(header[:100]), _text(header[345:500])
    return f"{prefix}/{name}" if prefix and header[156:157] not in b"LKS" else name


def _text(field: bytes) -> str:
    return field.split(b"\0", 1)[0].decode("utf-8", "surrogateescape")


def _octal(field: bytes) -> int | None:
    try:
        return int(field.split(b"\0", 1)[0].strip() or b"0", 8)
    except ValueError:
        return None


def _padded(size: int) -> int:
    return -(-size // BLOCK) * BLOCK
