"""Facts about flat token files, and about tatm's metadata next to them."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from fastpack.analysis.document_lengths import DocumentStatistics, LengthTable
from fastpack.analysis.file_facts import File, FileFacts, length_facts
from fastpack.analysis.options import InspectOptions
from fastpack.analysis.trailing_zeros import MIN_ZERO_TAIL
from fastpack.errors import JobError
from fastpack.io import AnyPath, size_of
from fastpack.tokens.flat.shard_warnings import find_warnings, token_dtype
from fastpack.tokens.flat.shards import find_shards, scan_shards
from fastpack.tokens.flat.tatm_metadata import tokenized_info
from fastpack.tokens.token_facts import (
    Eos,
    TokenSummary,
    count_samples,
    eos_facts,
    guess_eos_of_files,
    summarize_tokens,
    token_warnings,
)
from fastpack.tokens.token_segment import TokenSegment

_METADATA_KEYS = ("tokenizer", "vocab_size", "dtype")


def shard_facts(path: AnyPath, options: InspectOptions) -> FileFacts:
    """Return the facts of one file, or of the shards of a folder; `.bin` files hide `.npy` files (as KempnerForge)."""
    if not path.is_dir():
        return _facts(path, [path], options)
    for suffix in ("bin", "npy"):
        try:
            return _facts(path, find_shards(path, f"*.{suffix}"), options)
        except FileNotFoundError:
            if not path.is_dir():
                raise
    raise JobError(f"{path}: no .bin or .npy files in this folder")


def _facts(path: AnyPath, paths: Sequence[AnyPath], options: InspectOptions) -> FileFacts:
    """Facts about shards; documents are found by the EOS token, without the zeros at the end."""
    warnings: list[str] = []
    metadata = read_metadata(paths[0].parent, warnings)
    raw = paths[0].suffix == ".bin"
    dtype = options.dtype or (metadata.get("dtype") if raw else None)
    shards = scan_shards(paths, None if dtype is None else token_dtype(dtype))
    warnings += _dtype_warnings(shards, raw and dtype is None)
    warnings += find_warnings(shards, dtype_is_given=True) if options.dtype else find_warnings(scan_shards(paths))
    found = scan_segments(shards, options)
    vocab_size = metadata.get("vocab_size")
    warnings += token_warnings(found.read, vocab_size)
    lengths = [shard.length for shard in shards]
    facts: dict[str, Any] = {
        "path": str(path),
        "kind": "shards",
        "bytes": sum(size_of(shard.path) for shard in shards),
        "format": "bin" if raw else "npy",
        "files": len(shards),
        "dtypes": sorted({str(shard.dtype) for shard in shards}),
        "tokens": sum(lengths),
        "zero_tail": found.zero_tail,
        "tokenizer": metadata.get("tokenizer"),
        "vocab_size": vocab_size,
        "file_tokens": LengthTable.of(np.array(lengths, np.int64)).summary(),
        "documents": None if found.lengths is None else found.lengths.documents,
        **length_facts("document_tokens", found.lengths),
        **eos_facts(found.eos, found.read),
        "samples_at": [count_samples(lengths, seq_len) for seq_len in options.seq_lens],
        "warnings": warnings,
    }
    files = [File(os.path.basename(shard.path), size_of(shard.path), shard.length) for shard in shards]
    return FileFacts(facts, "tokens", found.lengths, files, found.cut, None if found.read is None else found.read.ids)


class ShardStatistics(NamedTuple):
    """Statistics of the tokens of shards. `lengths` and `cut` are None and empty if the EOS token is unknown."""

    zero_tail: int
    eos: Eos
    read: TokenSummary | None
    lengths: LengthTable | None
    cut: Mapping[int, int]


def scan_segments(shards: Sequence[TokenSegment], options: InspectOptions) -> ShardStatistics:
    """Read all tokens except trailing zeros; with `options.quick`, none."""
    trimmed = [_without_tail(shard, options.eos_token_id) for shard in shards]
    n_zeros = sum(shard.length for shard in shards) - sum(shard.length for shard in trimmed)
    eos = guess_eos_of_files(trimmed) if options.eos_token_id is None else Eos(options.eos_token_id, "given")
    documents = DocumentStatistics(options.seq_lens)
    read = None if options.quick else summarize_tokens(trimmed, eos.id, options, documents)
    if read is None or eos.id is None:
        return ShardStatistics(n_zeros, eos, read, None, {})
    return ShardStatistics(n_zeros, eos, read, documents.lengths.table(), documents.cut)


def read_metadata(folder: AnyPath, warnings: list[str]) -> dict[str, Any]:
    """Return tokenizer, vocab_size and dtype of tatm's metadata, if they are valid; add warnings otherwise."""
    try:
        info = tokenized_info(folder)
    except (ValueError, OSError) as error:
        warnings.append(f"metadata next to the shards cannot be read ({error})")
        return {}
    valid = {name: info[name] for name in _METADATA_KEYS if info.get(name) is not None}
    try:
        token_dtype(valid.get("dtype", "uint16"))
    except ValueError as error:
        warnings.append(f"metadata next to the shards: {error}")
        del valid["dtype"]
    if not isinstance(valid.get("vocab_size", 0), int):
        del valid["vocab_size"]
    return valid


def _dtype_warnings(shards: Sequence[TokenSegment], is_guessed: bool) -> list[str]:
    warnings = []
    dtypes = sorted({str(shard.dtype) for shard in shards})
    if len(dtypes) > 1:
        warnings.append(f"the shards differ in dtype: {', '.join(dtypes)}")
    if is_guessed:
        warnings.append("a .bin file does not state its dtype: uint32 is assumed if its size divides by 4, else uint16")
    return warnings


def _without_tail(shard: TokenSegment, eos: int | None) -> TokenSegment:
    """Return the segment without its trailing zeros, if there are so many that they are unused space."""
    if shard.dtype.kind not in "ui":
        raise JobError(f"{shard.path}: tokens of dtype {shard.dtype}, expected integers")
    trimmed = shard.trimmed(keep=int(eos == 0))
    return trimmed if shard.length - trimmed.length >= MIN_ZERO_TAIL else shard
