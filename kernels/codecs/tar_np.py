"""Walk the headers of a tar and group its members into samples: the specification, in Python.

The members are those of Python's `tarfile`, name for name and byte for byte, which Energon reads with. Damage is an
error at its offset, whereas `tarfile` stops silently and samples are lost.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from fastpack.kernels.codecs.tar_errors import (
    BLOCK,
    MAX_GROUP_BYTES,
    MAX_MAP_DIGITS,
    MAX_NAME_BYTES,
    MAX_RECORDS_BYTES,
    Fault,
    Outcome,
    State,
    syntax_error,
)

MAX_INT64 = 2**63 - 1
REGULAR = b"\x0007S"  # file, file of V7, contiguous file, sparse file
WITHOUT_DATA = b"123456"  # links, devices, directories, pipes: their size field is ignored
NUMBERS = ((100, 108), (108, 116), (116, 124), (124, 136), (136, 148), (329, 337), (337, 345))
SPARSE_NUMBERS = tuple((at, at + 12) for at in range(386, 482, 12))
IGNORED = re.compile(rb"__[^/]*__($|/)")
KEY_AND_PART = re.compile(rb"((?:.*/|)[^.]+)[.]([^/]*)$")
RECORD_LENGTH = re.compile(rb"[0-9]{1,20} ")
DIGITS = b"0123456789"
NAMES = (b"path", b"GNU.sparse.name")
SIZES = (b"size", b"GNU.sparse.size", b"GNU.sparse.realsize")
GLOBAL = (b"path", b"size")
MAPS = (b"GNU.sparse.map", b"GNU.sparse.offset", b"GNU.sparse.numbytes")


class NeedsWindow(Exception):
    """The window ends too early; the argument is the number of bytes needed from the position on."""


@dataclass
class Member:
    """An entry of the archive: stored name, offsets of its first header, its content and the end of its padding."""

    name: bytes
    is_file: bool
    is_sparse: bool
    start: int
    data: int
    size: int
    end: int


@dataclass
class Group:
    """What the extended headers before a member's own header say about it."""

    start: int = -1  # of the first one, except global headers
    kinds: bytes = b""
    name: bytes | None = None
    size: int | None = None  # of the data in the archive
    real_size: int | None = None  # of a sparse file
    is_sparse: bool = False
    has_map_in_data: bool = False


def walk_tar(
    window: npt.NDArray[np.uint8],
    base: int,
    n_file_bytes: int,
    state: npt.NDArray[np.int64],
    rows: npt.NDArray[np.int64],
    samples: npt.NDArray[np.int64],
    text: npt.NDArray[np.uint8],
    parts: npt.NDArray[np.uint8],
    part_ends: npt.NDArray[np.int64],
) -> int:
    """Walk the members of a tar from state[POSITION] on; return why the walk stopped, an `Outcome`.

    window: uint8 [n], the bytes of the file from `base` on; `base` is at or before state[POSITION]. n_file_bytes: size
    of the file. state: see `State`. The outputs are appended to, from the counts in `state` on: rows int64 [n, 5] of
    (sample number, field number, offset, size, 1 for a sparse file, whose data are packed) for each regular member
    named `key.field`; samples int64 [n, 3] of (offset of the first member, start and end of the key in `text`); `text`,
    the keys; `parts`, the field names, concatenated; part_ends int64 [n], the end of each name. Raises TarSyntaxError,
    with the offset in the file, for a damaged archive; what was written before stays valid.
    """
    walk = _Walk(window.tobytes(), base, n_file_bytes, state)
    try:
        while (member := walk.next_member()) is not None:
            if member.is_file and not _keep(member, state, rows, samples, text, parts, part_ends):
                return Outcome.FULL
            state[State.N_MEMBERS] += 1
            state[State.POSITION] = member.end
    except NeedsWindow as request:
        state[State.WANTED] = request.args[0]
        return Outcome.WINDOW
    return Outcome.END


class _Walk:
    """Read the headers of one member after another."""

    def __init__(self, window: bytes, base: int, n_file_bytes: int, state: npt.NDArray[np.int64]) -> None:
        self.window, self.base, self.n_file_bytes, self.state = window, base, n_file_bytes, state
        self.start = 0

    def take(self, pos: int, n_bytes: int) -> bytes:
        """Return bytes of a header; the file contains them all."""
        if pos + n_bytes - self.start > MAX_GROUP_BYTES:
            raise syntax_error(Fault.LONG_GROUP, self.start, MAX_GROUP_BYTES)
        if pos + n_bytes - self.base > len(self.window):
            raise NeedsWindow(pos + n_bytes - self.start)
        return self.window[pos - self.base : pos - self.base + n_bytes]

    def take_block(self, pos: int) -> bytes:
        if pos + BLOCK > self.n_file_bytes:
            raise syntax_error(Fault.SHORT_HEADER, pos, self.n_file_bytes - pos)
        return self.take(pos, BLOCK)

    def next_member(self) -> Member | None:
        """Return the member at the position, None at the end of the archive."""
        self.start = pos = int(self.state[State.POSITION])
        group = Group()
        while True:
            if pos == self.n_file_bytes and group.start < 0:
                return None
            block = self.take_block(pos)
            if not any(block):
                if group.start >= 0:
                    raise syntax_error(Fault.ORPHAN, pos)
                return None
            size = _check_header(block, pos)
            if block[156] not in b"LKxXg":
                return self.take_member(group, block, pos, size)
            pos = self.take_extension(group, block, pos, size)
            if group.start < 0:  # global records belong to no member
                self.start = self.state[State.POSITION] = pos

    def take_extension(self, group: Group, block: bytes, pos: int, size: int) -> int:
        """Process an extended header; return the offset of the next header."""
        kind = block[156:157].replace(b"X", b"x")
        if kind != b"g":
            if kind in group.kinds:
                raise syntax_error(Fault.TWICE, pos + 156, data=block[156:157])
            group.kinds += kind
            group.start = pos if group.start < 0 else group.start
        is_name = kind in b"LK"
        if size > (MAX_NAME_BYTES if is_name else MAX_RECORDS_BYTES):
            raise syntax_error(Fault.LONG_NAME if is_name else Fault.LONG_RECORDS, pos + 124, size)
        data = pos + BLOCK
        end = data + _padded(size)
        if end > self.n_file_bytes:
            raise syntax_error(Fault.DATA_END, data, self.n_file_bytes - data)
        content = self.take(data, end - data)
        if is_name:
            name = _long_name(content, size, data)
            if kind == b"L" and group.name is None:
                group.name = name
        else:
            _take_records(group, content, size, data, kind == b"g")
        return end

    def take_member(self, group: Group, block: bytes, pos: int, size: int) -> Member:
        kind = block[156]
        name = _text(block[:100])
        if kind == 0 and name.endswith(b"/"):
            kind = ord("5")  # V7 knows directories by their names
        prefix = _text(block[345:500])
        if prefix and kind != ord("S"):
            name = prefix + b"/" + name
        data, real_size = pos + BLOCK, group.real_size
        if kind == ord("S"):
            data, header_size = self.take_sparse_header(block, pos)
            real_size = header_size if real_size is None else real_size
        if real_size is not None and kind != ord("S") and not group.is_sparse:
            raise syntax_error(Fault.REAL_SIZE, pos)
        if group.size is not None:
            if real_size is not None or group.has_map_in_data:
                raise syntax_error(Fault.SPARSE_SIZE, pos)
            size = group.size
        packed = 0 if kind in WITHOUT_DATA else size
        if packed > self.n_file_bytes - data or _padded(packed) > self.n_file_bytes - data:
            raise syntax_error(Fault.DATA_END, data, self.n_file_bytes - data)
        end = data + _padded(packed)
        if group.has_map_in_data:
            data = self.after_map(data, data + packed)
        if self.state[State.N_MEMBERS] >= self.state[State.MAX_MEMBERS]:
            raise syntax_error(Fault.MEMBERS, self.start, int(self.state[State.N_MEMBERS]))
        return Member(
            name=name if group.name is None else group.name,
            is_file=kind in REGULAR,
            is_sparse=group.is_sparse or kind == ord("S"),
            start=pos if group.start < 0 else group.start,
            data=data,
            size=size if real_size is None else real_size,
            end=end,
        )

    def take_sparse_header(self, block: bytes, pos: int) -> tuple[int, int]:
        """Return the start of the data of an old GNU sparse file (after its map), and its real size."""
        _check_numbers(block, pos, SPARSE_NUMBERS)
        real_size = _size(block[483:495], pos + 483)
        extended = block[482]
        pos += BLOCK
        while extended:
            block = self.take_block(pos)
            _check_numbers(block, pos, tuple((at, at + 12) for at in range(0, 504, 12)))
            extended = block[504]
            pos += BLOCK
        return pos, real_size

    def after_map(self, data: int, end: int) -> int:
        """Return the start of the data of a PAX 1.0 sparse file: after the blocks of its map.

        The map is a count, and twice as many numbers, one per line.
        """
        pos, n_lines, digits = data, 1, b""
        is_count = True
        while n_lines:
            if (pos - data) % BLOCK == 0:
                if pos >= end:
                    raise syntax_error(Fault.SPARSE_MAP, pos, data=b"")
                self.take(pos, BLOCK)
            byte = self.window[pos - self.base : pos - self.base + 1]
            pos += 1
            if byte in DIGITS and len(digits) < MAX_MAP_DIGITS:
                digits += byte
                continue
            if byte != b"\n" or not digits:
                raise syntax_error(Fault.SPARSE_MAP, pos - 1, data=byte)
            n_lines = 2 * int(digits) if is_count else n_lines - 1
            is_count, digits = False, b""
        return data + _padded(pos - data)


def _check_header(block: bytes, pos: int) -> int:
    """Check the checksum and the numbers of a header; return the size."""
    field = block[148:156]
    sums = 256 + sum(block) - sum(field), 256 + sum(np.frombuffer(block[:148] + block[156:], np.int8).tolist())
    if _number(field, pos + 148) not in sums:
        raise syntax_error(Fault.CHECKSUM, pos, sums[0], field)
    _check_numbers(block, pos, NUMBERS)
    return _size(block[124:136], pos + 124)


def _check_numbers(block: bytes, pos: int, fields: tuple[tuple[int, int], ...]) -> None:
    for start, end in fields:
        _number(block[start:end], pos + start)


def _number(field: bytes, offset: int) -> int:
    """Return the number in a field: octal, or base-256 if the first byte says so."""
    if field[0] in (0x80, 0xFF):
        number = int.from_bytes(field[1:], "big")
        return number if field[0] == 0x80 else number - 256 ** (len(field) - 1)
    digits = _text(field).strip()
    if any(byte not in b"01234567" for byte in digits):
        raise syntax_error(Fault.NUMBER, offset, data=field)
    return int(digits or b"0", 8)


def _size(field: bytes, offset: int) -> int:
    size = _number(field, offset)
    if not 0 <= size <= MAX_INT64:
        raise syntax_error(Fault.SIZE, offset, data=field)
    return size


def _text(field: bytes) -> bytes:
    return field.partition(b"\0")[0]


def _padded(n_bytes: int) -> int:
    return -(-n_bytes // BLOCK) * BLOCK


def _long_name(content: bytes, size: int, data: int) -> bytes:
    """Return the name in the blocks of a GNU long name of `size` bytes; it need not end with a NUL."""
    name = _text(content)
    if len(name) > size:
        raise syntax_error(Fault.PADDING, data + size, data=name[size:])
    return name


def _take_records(group: Group, content: bytes, size: int, data: int, is_global: bool) -> None:
    """Process the PAX records in content[:size], at offset `data` of the file."""
    records: dict[bytes, bytes] = {}  # in order of first appearance, as in tarfile
    at = 0
    while at < size and content[at]:
        match = RECORD_LENGTH.match(content, at, size)
        end = at + int(match[0]) if match else size + 1
        keyword, equals, value = content[match.end() : end - 1].partition(b"=") if match else (b"", b"", b"")
        if end > size or not keyword or not equals or content[end - 1] != ord("\n"):
            raise syntax_error(Fault.RECORD, data + at, data=content[at:size])
        if is_global and (keyword in GLOBAL or keyword.startswith(b"GNU.sparse.")):
            raise syntax_error(Fault.GLOBAL_RECORD, data + at, data=keyword)
        _check_value(keyword, value, data + end - 1 - len(value))
        records[keyword] = value
        at = end
    if at == size and content[at : at + 1].strip(b"\0"):
        raise syntax_error(Fault.PADDING, data + at, data=content[at:])
    if not is_global:
        _take_meanings(group, records)


def _check_value(keyword: bytes, value: bytes, offset: int) -> None:
    """Raise an error for an invalid value at `offset` of the file."""
    if keyword in NAMES and len(value) > MAX_NAME_BYTES:
        raise syntax_error(Fault.LONG_NAME, offset, len(value))
    if keyword in SIZES and not (value.isdigit() and len(value) < 20 and int(value) <= MAX_INT64):
        raise syntax_error(Fault.RECORD_NUMBER, offset, data=value)
    if keyword in MAPS and not all(number.isdigit() for number in value.split(b",")):
        raise syntax_error(Fault.RECORD_NUMBER, offset, data=value)


def _take_meanings(group: Group, records: dict[bytes, bytes]) -> None:
    """Apply the records to a member: of two names, or two real sizes, the later one counts."""
    name = None
    for keyword, value in records.items():
        if keyword in NAMES:
            name = value.rstrip(b"/") if keyword == b"path" else value
        elif keyword == b"size":
            group.size = int(value)
        elif keyword in SIZES:
            group.real_size = int(value)
    if group.name is None:
        group.name = name
    version = records.get(b"GNU.sparse.major"), records.get(b"GNU.sparse.minor")
    is_older = b"GNU.sparse.map" in records or b"GNU.sparse.size" in records
    group.has_map_in_data = version == (b"1", b"0") and not is_older
    group.is_sparse = is_older or group.has_map_in_data


def _keep(
    member: Member,
    state: npt.NDArray[np.int64],
    rows: npt.NDArray[np.int64],
    samples: npt.NDArray[np.int64],
    text: npt.NDArray[np.uint8],
    parts: npt.NDArray[np.uint8],
    part_ends: npt.NDArray[np.int64],
) -> bool:
    """Append a file's row if its name is `key.field`; False, without any change, if the outputs are full."""
    match = None if IGNORED.match(member.name) else KEY_AND_PART.match(member.name)
    if match is None:
        return True
    key, part = match.groups()
    names = _part_names(parts, part_ends[: state[State.N_PARTS]])
    is_new_part, is_new = part not in names, key != _last_key(text, state)
    parts_end = sum(map(len, names))
    text_end = int(state[State.TEXT_END])
    if state[State.N_ROWS] == len(rows):
        return False
    if is_new_part and (len(names) == len(part_ends) or parts_end + len(part) > len(parts)):
        return False
    if is_new and (state[State.N_NEW] == len(samples) or text_end + len(key) > len(text)):
        return False
    if is_new_part:
        parts[parts_end : parts_end + len(part)] = np.frombuffer(part, np.uint8)
        part_ends[len(names)] = parts_end + len(part)
        state[State.N_PARTS] += 1
        names.append(part)
    if is_new:
        key_end = text_end + len(key)
        text[text_end:key_end] = np.frombuffer(key, np.uint8)
        samples[state[State.N_NEW]] = member.start, text_end, key_end
        state[[State.KEY_START, State.KEY_END, State.TEXT_END]] = text_end, key_end, key_end
        state[[State.N_NEW, State.N_SAMPLES]] += 1
    number = names.index(part)
    rows[state[State.N_ROWS]] = state[State.N_SAMPLES] - 1, number, member.data, member.size, member.is_sparse
    state[State.LAST_PART] = number
    state[State.N_ROWS] += 1
    return True


def _part_names(parts: npt.NDArray[np.uint8], ends: npt.NDArray[np.int64]) -> list[bytes]:
    starts = [0, *ends.tolist()]
    return [parts[start:end].tobytes() for start, end in zip(starts, ends.tolist(), strict=False)]


def _last_key(text: npt.NDArray[np.uint8], state: npt.NDArray[np.int64]) -> bytes | None:
    """Return the key of the last sample, None before the first."""
    if state[State.KEY_END] < 0:
        return None
    return text[state[State.KEY_START] : state[State.KEY_END]].tobytes()
