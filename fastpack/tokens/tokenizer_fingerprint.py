"""The tokenizer of a token file, recorded in the side file `<file>.fptok`.

The side file is a JSON object: "format" (1), "fastpack" (the version that wrote it), "tokenizer", "sha256",
"vocab_size", "eos_token_id", and "size" and "edges_sha256" of the token file it was written for. Of a folder with an
`index.json`, it describes that file. The token file itself does not change.
"""

from __future__ import annotations

import contextlib
import errno
import json
import os
import stat
import warnings
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from fastpack.errors import DataWarning, JobError
from fastpack.io import (
    MASK,
    SIDES,
    TOKENIZER,
    AtomicFile,
    PathLike,
    is_listed,
    is_remote,
    open_reader,
    plain_path,
    read_start,
    remove,
    stat_of,
)
from fastpack.tokens.mask_bits import MaskBits
from fastpack.version import __version__

if TYPE_CHECKING:
    import hashlib

MAX_BYTES = 64 << 10  # of a side file
EDGE_BYTES = 4096  # at each end of the token file that the side file has a hash of
_Read: TypeAlias = Callable[[int, int], bytes]  # (offset, number of bytes)
_FIELDS = {"tokenizer": str, "sha256": str, "vocab_size": int, "eos_token_id": int}


@dataclass(frozen=True, slots=True)
class TokenizerFingerprint:
    r"""What identifies the tokenizer of a token file.

    Attributes
    ----------
    tokenizer
        Its name, which is not compared.
    sha256
        The SHA-256 of its vocabulary files, in hexadecimal; empty for a tokenizer without files.
    vocab_size
        Number of token ids, added tokens included.
    eos_token_id
        The token that ends each document.

    Examples
    --------
    >>> import tempfile, fastpack
    >>> from pathlib import Path
    >>> folder = tempfile.TemporaryDirectory()
    >>> source = Path(folder.name, "corpus.jsonl")
    >>> _ = source.write_text('{"text": "hello"}\n')
    >>> packed = fastpack.pack(source, tokenizer="bytes", num_workers=1)
    >>> fastpack.read_fingerprint(packed.path)
    TokenizerFingerprint(tokenizer='bytes', sha256='', vocab_size=257, eos_token_id=256)
    >>> folder.cleanup()
    """

    tokenizer: str
    sha256: str
    vocab_size: int
    eos_token_id: int

    def differences(self, other: TokenizerFingerprint) -> list[str]:
        """Return what differs from another fingerprint, as phrases "a and b"; empty if the tokenizer is the same.

        Parameters
        ----------
        other
            Another fingerprint.

        Returns
        -------
        list of str
            One phrase for each of the vocabulary files, the vocabulary size and the EOS token that differs.
        """
        pairs = {
            "vocabulary files (SHA-256)": (self.sha256[:12] or "none", other.sha256[:12] or "none"),
            "vocabulary sizes": (self.vocab_size, other.vocab_size),
            "EOS tokens": (self.eos_token_id, other.eos_token_id),
        }
        return [f"{name} {mine} and {theirs}" for name, (mine, theirs) in pairs.items() if mine != theirs]


def side_path(path: PathLike) -> str:
    """Return the path of the side file of a token file."""
    return plain_path(path) + TOKENIZER


def write_sides(output: AtomicFile, fingerprint: TokenizerFingerprint | None, mask: MaskBits | None) -> None:
    """Write the side files of a token file that is complete, just before it gets its name; without one, remove it.

    A name that cannot be used for the fingerprint is a DataWarning: the token file is worth more than its side file. A
    loss mask that cannot be written is an error: without it, other tokens would count.
    """

    def read(start: int, n_bytes: int) -> bytes:
        return os.pread(output.fileno(), n_bytes, start)

    size = output.tell()
    _write_side(output.path, fingerprint, size, read)
    remove(output.path + MASK)
    if mask is not None:
        mask.write(output.path, _edges(size, read).digest(), size)


@contextlib.contextmanager
def recorded(
    output: AtomicFile, fingerprint: TokenizerFingerprint | None, mask: MaskBits | None = None
) -> Iterator[None]:
    """Write the side files before the with block, which gives the token file its name; remove them if that fails."""
    write_sides(output, fingerprint, mask)
    try:
        yield
    except BaseException:
        if os.path.exists(output.partial_path):  # it did not get its name before the error
            for suffix in SIDES:
                remove(output.path + suffix)
        raise


def record_fingerprint(path: PathLike, fingerprint: TokenizerFingerprint | None) -> None:
    """Write the side file of an existing token file, or remove it; errors as `write_fingerprint`."""
    _write_side(plain_path(path), fingerprint, stat_of(path).st_size, _reader(path))


def record_mask(path: PathLike, mask: MaskBits | None) -> None:
    """Write the loss mask of an existing token file, or remove it."""
    remove(plain_path(path) + MASK)
    if mask is not None:
        size, edges = edges_of(path)
        mask.write(plain_path(path), edges, size)


def _write_side(path: str, fingerprint: TokenizerFingerprint | None, size: int, read: _Read) -> None:
    side = path + TOKENIZER
    try:
        remove(side)
        if fingerprint is None:
            return
        fields = {"format": 1, "fastpack": __version__, **asdict(fingerprint), "size": size}
        fields["edges_sha256"] = _edges(size, read).hexdigest()
        with AtomicFile(side, follow=False) as file:
            file.write(json.dumps(fields, indent=0).encode() + b"\n")
    except (OSError, JobError) as error:
        if isinstance(error, OSError) and error.errno not in (errno.ENAMETOOLONG, errno.EISDIR):
            raise
        warnings.warn(f"{side}: the tokenizer could not be recorded: {error}", DataWarning, stacklevel=4)


def _edges(size: int, read: _Read) -> hashlib._Hash:
    """Return the SHA-256 of the first and the last bytes of a file of this size."""
    import hashlib  # takes 3 ms

    n_bytes = min(size, EDGE_BYTES)
    return hashlib.sha256(read(0, n_bytes) + read(size - n_bytes, n_bytes))


def edges_of(path: PathLike) -> tuple[int, bytes]:
    """Return the size of a file and the SHA-256 of its first and last bytes."""
    size = stat_of(path).st_size
    return size, _edges(size, _reader(path)).digest()


def _reader(path: PathLike) -> _Read:
    file = open_reader(path, checked=False)

    def read(start: int, n_bytes: int) -> bytes:
        out = np.empty(n_bytes, np.uint8)
        return out[: file.read_into(out, start)].tobytes()

    return read


def read_fingerprint(path: PathLike) -> TokenizerFingerprint | None:
    """Return the fingerprint of the tokenizer of a token file.

    Parameters
    ----------
    path
        The file of tokens; of `litdata` and `mds`, the `index.json` in the folder.

    Returns
    -------
    TokenizerFingerprint or None
        None if there is no side file `<path>.fptok`, or if it cannot be used.

    Warns
    -----
    DataWarning
        If the side file is not valid, or was written for other contents of the token file. It is ignored then.

    Examples
    --------
    >>> import tempfile, fastpack
    >>> folder = tempfile.TemporaryDirectory()
    >>> with fastpack.PackedWriter(f"{folder.name}/a.pbin", 2) as writer:
    ...     writer.append([1, 2, 0])
    >>> fastpack.read_fingerprint(writer.path) is None
    True
    >>> folder.cleanup()
    """
    return _checked(path, edges=True)


def stated_fingerprint(path: PathLike) -> TokenizerFingerprint | None:
    """As `read_fingerprint`, but of the token file, only the size is compared: one small file is read."""
    return _checked(path, edges=False)


def carried_fingerprint(path: PathLike) -> TokenizerFingerprint | None:
    """Return the fingerprint of a damaged token file, which is not compared; None without a valid side file."""
    try:
        fields = _read_fields(path)
    except ValueError:
        return None
    return None if fields is None else _fingerprint(fields)


def _checked(path: PathLike, edges: bool) -> TokenizerFingerprint | None:
    try:
        return load_fingerprint(path, edges=edges)
    except ValueError as error:
        warnings.warn(f"{side_path(path)} is ignored: {error}. Remove it", DataWarning, stacklevel=4)
        return None


def load_fingerprint(path: PathLike, *, edges: bool = True) -> TokenizerFingerprint | None:
    """Return the fingerprint of a token file; ValueError for a side file that is not valid or does not match it.

    edges: compare both ends of the token file as well, not only its size.
    """
    fields = _read_fields(path)
    if fields is None:
        return None
    size = stat_of(path).st_size
    if fields["size"] != size:
        raise ValueError(f"it was written for a file of {fields['size']} bytes, and the file has {size}")
    if edges and fields["edges_sha256"] != _edges(size, _reader(path)).hexdigest():
        raise ValueError("it was written for another file of the same size")
    return _fingerprint(fields)


def _fingerprint(fields: dict[str, Any]) -> TokenizerFingerprint:
    return TokenizerFingerprint(**{name: fields[name] for name in _FIELDS})


def _read_fields(path: PathLike) -> dict[str, Any] | None:
    """Return the fields of a side file; None if there is none. ValueError for one that is not valid."""
    text = _read_side(side_path(path))
    if text is None and not is_remote(path) and os.path.islink(plain_path(path)):
        text = _read_side(side_path(os.path.realpath(plain_path(path))))
    if text is None:
        return None
    if len(text) > MAX_BYTES:
        raise ValueError(f"it has more than {MAX_BYTES} bytes")
    try:
        fields = json.loads(text)
    except (ValueError, RecursionError):
        raise ValueError("it is not JSON") from None
    if not isinstance(fields, dict) or fields.get("format") != 1:
        raise ValueError("it is not a fingerprint of format 1")
    for name, kind in {**_FIELDS, "size": int, "edges_sha256": str}.items():
        if type(fields.get(name)) is not kind or (kind is int and not 0 <= fields[name] < 1 << 63):
            raise ValueError(f"its {name} is not valid")
    return fields


def _read_side(path: str) -> bytes | None:
    """Return the start of a side file; None if it is not there, is no regular file or may not be read."""
    try:
        if is_remote(path):
            if is_listed(path) is False:
                return None
            return bytes(read_start(path, MAX_BYTES + 1))
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)  # a pipe must not block
    except (FileNotFoundError, PermissionError, NotADirectoryError):
        return None
    try:
        return os.read(fd, MAX_BYTES + 1) if stat.S_ISREG(os.fstat(fd).st_mode) else None
    finally:
        os.close(fd)
