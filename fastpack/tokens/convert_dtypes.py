"""The dtype of a conversion: whether that of a source is known, and which one holds all ids in the output."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from fastpack import kernels
from fastpack.errors import FormatError, spoken
from fastpack.io import PathLike, as_path
from fastpack.tokens.common_fingerprint import warn_of_other_eos_in
from fastpack.tokens.formats import open_tokens
from fastpack.tokens.token_file import TokenFile, TokenFormat
from fastpack.tokens.token_stream import stream_tokens

_CONCLUSIVE = 1000  # ids that are needed to tell uint16 from uint32
_HIGH_LIMIT = 16  # of the upper halves of uint32 ids: no vocabulary has 2^20 ids
_LOW_LIMIT = 256  # which the lower halves of uint32 ids exceed


def open_checked(
    path: PathLike, format: str | None = None, dtype: str | None = None, eos_token_id: int | None = None
) -> TokenFile:
    """Open a token file as `open_tokens`; `dtype` is that of a file that does not state one.

    Raises FormatError if the dtype of a raw file is a guess that its ids do not confirm. Warns of an EOS token that is
    not that of the recorded tokenizer.
    """
    tokens = _open(path, format, dtype, eos_token_id)
    check_token_dtype(tokens, is_given=dtype is not None)
    warn_of_other_eos_in(tokens, eos_token_id)
    return tokens


def check_token_dtype(tokens: TokenFile, is_given: bool = False) -> None:
    """Raise FormatError unless tokens are integers, of a dtype that was given, is stated, or that the ids confirm."""
    if tokens.dtype.kind not in "ui":
        raise FormatError(tokens.path, 0, f"an array of {tokens.dtype}", "integers")
    if not is_given:
        check_guess(tokens)


def _open(path: PathLike, format: str | None, dtype: str | None, eos_token_id: int | None) -> TokenFile:
    try:
        tokens = open_tokens(path, format=format, eos_token_id=eos_token_id)
    except FormatError:
        if dtype is None:
            raise
        return open_tokens(path, format=format, dtype=dtype, eos_token_id=eos_token_id)
    if dtype is not None and not states_dtype(tokens):
        tokens.close()
        return open_tokens(path, format=format, dtype=dtype, eos_token_id=eos_token_id)
    return tokens


def states_dtype(tokens: TokenFile) -> bool:
    """Return whether the dtype of a file is known from the file, its side files or its format."""
    if tokens.format == "mds":
        try:
            open_tokens(tokens.path, format="mds").close()
        except FormatError:  # samples of bytes
            return False
    if tokens.format != "bin":
        return tokens.format != "olmo"
    from fastpack.tokens.flat.shard_warnings import metadata_dtype

    path = as_path(tokens.path)
    return metadata_dtype(path if path.is_dir() else path.parent) is not None


def check_guess(tokens: TokenFile) -> None:
    """Raise FormatError if the dtype of a file is a guess from the size of a raw file that the ids do not confirm.

    Halves of uint32 ids differ: the upper ones are below 16, the lower ones are not. Halves of pairs of uint16 ids, and
    uint16 ids at even and odd places, are alike.
    """
    if tokens.format != "bin" or states_dtype(tokens):
        return
    largest, n_seen = [0, 0], 0
    for segment in tokens.segments():
        for block in _halves(segment.open()):
            largest = [max(largest[i], int(block[i::2].max(initial=0))) for i in (0, 1)]
            n_seen += len(block) // 2
    is_wide = largest[1] < _HIGH_LIMIT and largest[0] >= _LOW_LIMIT
    is_narrow = min(largest) >= _LOW_LIMIT
    expected_wide = tokens.dtype.itemsize == 4
    if n_seen < _CONCLUSIVE or not (is_wide if expected_wide else is_narrow):
        found = f"a file without a header, whose dtype {tokens.dtype} is guessed from its size"
        raise FormatError(tokens.path, 0, found, f"{spoken('dtype=')}, the dtype of its tokens")


def _halves(tokens: npt.NDArray[Any]) -> Iterator[npt.NDArray[np.uint16]]:
    data = tokens[: len(tokens) // 2 * 2].view("<u2") if tokens.dtype.itemsize == 2 else tokens.view("<u2")
    for first in range(0, len(data), 1 << 20):
        yield data[first : first + (1 << 20)]


def choose_dtype(files: Sequence[TokenFile], row: TokenFormat, given: str | None) -> np.dtype[Any]:
    """Return the dtype of the output, whose limits `check_ids` compares with the ids.

    It is the widest dtype of the sources, else one of the same width, else the smallest that holds all its values, else
    the widest that the format has.
    """
    widest = max((tokens.dtype.newbyteorder("=") for tokens in files), key=lambda dtype: dtype.itemsize)
    possible = [np.dtype(name) for name in row.dtypes]
    if given is not None and all(states_dtype(tokens) for tokens in files):
        chosen = np.dtype(given)
        if chosen not in possible:
            raise ValueError(f"{row.name} does not store {given}: it stores {', '.join(row.dtypes)}")
    elif widest in possible:
        chosen = widest
    else:
        same = [dtype for dtype in possible if dtype.itemsize == widest.itemsize]
        larger = [dtype for dtype in possible if np.can_cast(widest, dtype)]
        chosen = (same or larger or possible[-1:])[0]
    return chosen


def check_ids(tokens: TokenFile, dtype: np.dtype[Any], row: TokenFormat) -> None:
    """Raise ValueError for the first id that `dtype` cannot hold; reads them only if there may be one."""
    if not np.can_cast(tokens.dtype, dtype):
        check_blocks(stream_tokens(tokens).blocks(), 0, tokens.path, dtype, row)


def check_blocks(
    blocks: Iterable[npt.NDArray[Any]], done: int, path: str, dtype: np.dtype[Any], row: TokenFormat
) -> None:
    """Raise ValueError for the first id of a file that `dtype` cannot hold; done: number of the first token."""
    limits = np.iinfo(dtype)
    for block in blocks:
        smallest, largest, _ = kernels.scan_tokens(block.astype(np.int64) if block.itemsize == 8 else block, -1)
        if smallest < 0 or largest > limits.max:
            at = int(((block < 0) | (block > limits.max)).argmax())
            stored = f"{row.name} stores {', '.join(row.dtypes)}"
            raise ValueError(f"{path}: token {block[at]} at position {done + at} does not fit {dtype}: {stored}")
        done += len(block)
