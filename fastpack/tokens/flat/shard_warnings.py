"""Warnings about flat token files that can be read but are probably not what their owner thinks."""

from __future__ import annotations

import os
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from fastpack.analysis.token_ids import LARGEST_PLAUSIBLE_ID
from fastpack.analysis.trailing_zeros import MIN_ZERO_TAIL
from fastpack.errors import FormatError
from fastpack.io import as_path
from fastpack.tokens.flat.tatm_metadata import tokenized_info
from fastpack.tokens.token_segment import TokenSegment

SAMPLE_BYTES = 4096
MAX_SAMPLED = 3  # the first, the middle and the last shard are sampled


def find_warnings(
    shards: Sequence[TokenSegment],
    *,
    dtype_is_given: bool = False,
    tail_is_trimmed: bool = False,
    raw: bool | None = None,
) -> list[str]:
    """Return a sentence for each problem with the shards of a folder; an empty list if there is none.

    `dtype_is_given`: the user gave the dtype, so it is not doubted. `tail_is_trimmed`: trailing zeros are left out.
    `raw`: whether the files have no header (None: if the first is a `.bin`). Reads names, sizes, the metadata next to
    the first shard, and the first and last 4 KiB of three shards.
    """
    warnings = [_mixed_suffixes(shards)]
    if as_path(shards[0].path).suffix == ".bin" if raw is None else raw:
        warnings.append(stray_bytes(shards))
        if not dtype_is_given:
            warnings.append(doubtful_dtype(shards))
        if not tail_is_trimmed:
            warnings.append(zero_tail(shards))
    elif not tail_is_trimmed:
        warnings.append(ignored_bytes(shards))
    return [warning for warning in warnings if warning]


def metadata_dtype(folder: str | os.PathLike[str]) -> np.dtype[np.integer] | None:
    """Return the token dtype of tatm's metadata in `folder`; None without metadata.

    Raises ValueError for metadata that cannot be read and for an invalid dtype.
    """
    info = tokenized_info(folder)
    return token_dtype(info["dtype"]) if "dtype" in info else None


def token_dtype(name: object) -> np.dtype[np.integer]:
    """Return the integer dtype called `name`; ValueError if there is none."""
    try:
        dtype: np.dtype[np.integer] = np.dtype(name)  # type: ignore[call-overload]
    except TypeError as error:
        raise ValueError(f"dtype {name!r} is unknown: uint16 or uint32 are usual") from error
    if dtype.kind not in "ui":
        raise ValueError(f"dtype {name!r} is not an integer dtype: uint16 or uint32 are usual")
    return dtype


def _mixed_suffixes(shards: Sequence[TokenSegment]) -> str:
    suffixes = {os.path.splitext(shard.path)[1] for shard in shards}
    if len(suffixes) < 2 or not suffixes & {".bin", ".npy"}:
        return ""
    first = os.path.splitext(shards[0].path)[1]
    how = "raw tokens, headers included" if first == ".bin" else "numpy files"
    return (
        f"the pattern matches files ending in {', '.join(sorted(suffixes))}, and all are read as {how} because the "
        f"first one, {shards[0].path}, ends in {first or 'nothing'}: give a file_pattern of one kind"
    )


def named_dtype(name: str, folder: str | os.PathLike[str]) -> np.dtype[np.integer]:
    """Return the dtype called `name`; "metadata" is the dtype of the metadata in `folder`. ValueError without one."""
    if name != "metadata":
        return token_dtype(name)
    dtype = metadata_dtype(folder)
    if dtype is None:
        raise ValueError(f'dtype="metadata" needs a metadata.yaml with tokenized_info in {folder}')
    return dtype


def stray_bytes(shards: Sequence[TokenSegment]) -> str:
    """Warn of files that are not a whole number of tokens long; empty if there are none."""
    odd = [shard for shard in shards if shard.stamp and shard.stamp[0] % shard.dtype.itemsize]
    if not odd:
        return ""
    return odd_lengths(odd[0], len(odd), len(shards))


def ignored_bytes(shards: Sequence[TokenSegment]) -> str:
    """Warn of `.npy` files with bytes after the tokens of their header; empty if there are none."""
    longer = [shard for shard in shards if shard.plain and shard.stamp and shard.stamp[0] > _end(shard)]
    if not longer:
        return ""
    first = longer[0]
    return (
        f"{len(longer)} of {len(shards)} files have bytes after the tokens of their headers, which are ignored; "
        f"the first is {first.path}: {_end(first)} of its {first.stamp[0] if first.stamp else 0} bytes are used. "
        "Is the header damaged, or are there several arrays in the file?"
    )


def _end(shard: TokenSegment) -> int:
    return shard.offset + shard.length * shard.dtype.itemsize


def odd_lengths(first: TokenSegment, n_odd: int, n_shards: int) -> str:
    """Return the sentence of `stray_bytes` for the first such shard."""
    return (
        f"{n_odd} of {n_shards} files, the first being {first.path}, are not a whole number of {first.dtype} "
        "tokens long, and the remaining bytes are ignored: were they truncated, or is the dtype another one?"
    )


def mixed_guesses(first: TokenSegment) -> str:
    """Return the sentence of `doubtful_dtype` for shards whose sizes suggest different dtypes."""
    return (
        "a .bin file is read as uint32 if its size is divisible by 4, else as uint16, and there are both kinds "
        f'({first.path} is {first.dtype}): if all are uint16, give dtype="uint16"'
    )


def doubtful_dtype(shards: Sequence[TokenSegment]) -> str:
    """Warn of a dtype that was guessed from sizes and is contradicted; empty if it is not."""
    guessed = {shard.dtype for shard in shards}
    first = shards[0]
    try:
        described = metadata_dtype(os.path.dirname(first.path) or ".")
    except (ValueError, OSError) as error:
        return f"metadata next to the shards cannot be read ({error}): pass dtype="
    if described is not None:
        wrong = next((shard for shard in shards if shard.dtype != described), None)
        if wrong is None:
            return ""
        return (
            f"{wrong.path} is read as {wrong.dtype}, by its size, but the metadata next to it says {described}: "
            'give dtype="metadata"'
        )
    if len(guessed) > 1:
        return mixed_guesses(first)
    if first.dtype == np.uint32 and any(_looks_like_pairs(_sample(shard)) for shard in _sampled(shards)):
        return (
            f"{first.path} is read as uint32, because its size is divisible by 4, but most of its ids would be above "
            f'{LARGEST_PLAUSIBLE_ID:,}: if the tokens are uint16, give dtype="uint16"'
        )
    return ""


def _looks_like_pairs(sample: npt.NDArray[np.uint8]) -> bool:
    ids = sample[: len(sample) // 4 * 4].view(np.uint32)
    ids = ids[ids != 0]
    return bool(2 * np.count_nonzero(ids > LARGEST_PLAUSIBLE_ID) > len(ids))


def zero_tail(shards: Sequence[TokenSegment]) -> str:
    """Warn of shards that end in zeros; empty if there are none."""
    for shard in _sampled(shards):
        n_bytes = MIN_ZERO_TAIL * shard.dtype.itemsize
        if shard.length >= MIN_ZERO_TAIL and not _sample(shard, n_bytes)[-n_bytes:].any():
            return (
                f"{shard.path} ends in zeros, as tatm's files of 2^30 tokens do after the last document: samples of "
                "them are all token 0. Pass trim_zero_tail=True to leave them out"
            )
    return ""


def _sampled(shards: Sequence[TokenSegment]) -> list[TokenSegment]:
    return [shards[k] for k in sorted({0, len(shards) // 2, len(shards) - 1})][:MAX_SAMPLED]


def _sample(shard: TokenSegment, n_bytes: int = SAMPLE_BYTES) -> npt.NDArray[np.uint8]:
    """Read the first and the last `n_bytes` of the tokens."""
    whole = shard.length * shard.dtype.itemsize
    n_bytes = min(n_bytes, whole // 8 * 4) if whole > n_bytes else whole
    sample = np.empty(2 * n_bytes, np.uint8)
    file = shard.open_reader()
    for piece, offset in ((sample[:n_bytes], shard.offset), (sample[n_bytes:], shard.offset + whole - n_bytes)):
        done = file.read_into(piece, offset)
        if done < len(piece):
            raise FormatError(shard.path, offset + done, "the end of the file", f"{whole} bytes of tokens")
    return sample
