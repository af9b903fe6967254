"""Reads compressed JSON Lines files, `.gz` and `.zst`, in blocks of complete lines."""

from __future__ import annotations

import contextlib
import os
import sys
import zlib
from collections.abc import Callable, Iterator
from typing import IO, Any

from fastpack.errors import FormatError, MissingExtra
from fastpack.io import PathLike, open_stream

SUFFIXES = (".gz", ".zst")
MAGIC = {".gz": b"\x1f\x8b", ".zst": b"\x28\xb5\x2f\xfd"}
MAX_LINE_BYTES = 1 << 30  # a longer line is a compression bomb, not a document: 1 MB of gzip can contain it


def is_compressed(path: PathLike) -> bool:
    """Return whether the name ends in `.gz` or `.zst`."""
    return os.fspath(path).endswith(SUFFIXES)


def stem_of(path: str) -> str:
    """Return a path without its suffix and its compression suffix: `a/x` of `a/x.jsonl.gz`."""
    for suffix in SUFFIXES:
        path = path.removesuffix(suffix)
    return os.path.splitext(path)[0]


def read_lines(path: PathLike, n_bytes: int) -> Iterator[tuple[bytes, int]]:
    """Yield blocks of complete lines of about `n_bytes` decompressed bytes, and the position in the compressed file.

    Every block except the last ends with a newline. A line that is longer than `n_bytes` makes a longer block. Raises
    FormatError if the file does not have the format of its suffix, is damaged or truncated, MissingExtra without zstd.
    """
    with open_text(path) as (read, position):
        pieces: list[bytes] = []
        waiting = 0
        while block := read(n_bytes):
            end = block.rfind(b"\n") + 1
            if not end:
                pieces.append(block)
                waiting += len(block)
                if waiting > MAX_LINE_BYTES:
                    raise FormatError(path, position(), f"a line of more than {MAX_LINE_BYTES:,} bytes", "a newline")
                continue
            yield b"".join([*pieces, block[:end]]), position()
            pieces, waiting = [block[end:]], len(block) - end
        if waiting:
            yield b"".join(pieces), position()


@contextlib.contextmanager
def open_text(path: PathLike) -> Iterator[tuple[Callable[[int], bytes], Callable[[], int]]]:
    """Open a file, compressed or not; yield a function that reads up to n bytes of its text, and one for the position.

    The position is that in the file itself. Raises as `read_lines`, also while reading.
    """
    with open_stream(path) as file:
        if not is_compressed(path):
            yield file.read, file.tell
            return
        kind = os.path.splitext(path)[1]
        _check_magic(file, path, kind)
        with _decompressor(file, kind) as stream:
            yield lambda n_bytes: _read(stream, n_bytes, file, path), file.tell


def _check_magic(file: IO[bytes], path: PathLike, kind: str) -> None:
    magic = file.read(4)
    expected = MAGIC[kind]
    if not magic.startswith(expected):
        raise FormatError(path, 0, magic.hex(" ") or "an empty file", f"{expected.hex(' ')}, as {kind} files begin")
    file.seek(0)


def _decompressor(file: IO[bytes], kind: str) -> Any:
    if kind == ".gz":
        import gzip

        return gzip.GzipFile(fileobj=file, mode="rb")
    return _zstd().ZstdFile(file)


def _zstd() -> Any:
    try:
        if sys.version_info >= (3, 14):
            from compression import zstd
        else:
            from backports import zstd
    except ImportError:
        raise MissingExtra("backports.zstd", "zstd", "a .zst file") from None
    return zstd


def _read(stream: Any, n_bytes: int, file: IO[bytes], path: PathLike) -> bytes:
    """Read up to `n_bytes`; empty at the end only."""
    try:
        return bytes(stream.read(n_bytes))
    except EOFError:
        raise FormatError(path, file.tell(), "the end of the file", "the rest of the compressed text") from None
    except (zlib.error, OSError, ValueError) as error:
        if isinstance(error, OSError) and error.errno is not None:
            raise
        raise FormatError(path, file.tell(), f"damaged data ({error})", "compressed text") from None
    except Exception as error:
        if type(error).__name__ != "ZstdError":
            raise
        raise FormatError(path, file.tell(), f"damaged data ({error})", "compressed text") from None
