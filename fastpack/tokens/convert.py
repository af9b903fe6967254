"""Conversion of token files between formats."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from fastpack import kernels
from fastpack.argument_aliases import accept_aliases
from fastpack.display import Result, facts
from fastpack.errors import FormatError
from fastpack.io import (
    POLICIES,
    AnyPath,
    ExistencePolicy,
    PathLike,
    Progress,
    as_path,
    exists,
    is_remote,
    may_write,
    same_file,
)
from fastpack.tokens.common_fingerprint import common_fingerprint
from fastpack.tokens.document_masks import DocumentMasks
from fastpack.tokens.formats import FORMATS, format_named, open_tokens
from fastpack.tokens.interop_formats import first_output, output_path
from fastpack.tokens.token_file import TokenFile, TokenFormat
from fastpack.tokens.token_stream import TokenStream, stream_tokens
from fastpack.tokens.token_writer import BufferedTokenWriter, Piece
from fastpack.tokens.tokenizer_fingerprint import TokenizerFingerprint

_COPIED_BYTES = 1 << 24  # copied by one system call, between two reports of the progress
_CONCLUSIVE = 1000  # ids that are needed to tell uint16 from uint32
_HIGH_LIMIT = 16  # of the upper halves of uint32 ids: no vocabulary has 2^20 ids
_LOW_LIMIT = 256  # which the lower halves of uint32 ids exceed


@dataclass(slots=True, repr=False)
class ConvertResult(Result):
    """The result of `convert`.

    Attributes
    ----------
    output
        The path of the output, as `open_tokens` accepts it.
    format
        Its format.
    dtype
        The dtype of its tokens.
    n_documents
        Number of documents in the sources that were written; None if their boundaries are unknown.
    n_tokens
        Number of tokens that were written.
    n_empty_dropped
        Number of documents without tokens that were left out, because the format cannot store them.
    n_tokens_dropped
        Number of tokens that are in no document of their source, and were left out.
    written
        False if the output exists and was kept.
    eos_token_id
        The token that ends documents in the output, as it was given.

    Examples
    --------
    >>> import tempfile, fastpack
    >>> folder = tempfile.TemporaryDirectory()
    >>> with fastpack.PackedWriter(f"{folder.name}/a.pbin", 2) as writer:
    ...     writer.append_many([5, 6, 0, 7, 0], lengths=[3, 2])
    >>> result = fastpack.convert(writer.path, f"{folder.name}/corpus", format="megatron")
    >>> result.format, result.dtype, result.n_documents, result.n_tokens
    ('megatron', 'uint16', 2, 5)
    >>> folder.cleanup()
    """

    _shown = facts("output", "format", documents="n_documents", tokens="n_tokens", dtype="dtype")

    output: str
    format: str
    dtype: str
    n_documents: int | None
    n_tokens: int
    n_empty_dropped: int = 0
    n_tokens_dropped: int = 0
    written: bool = True
    eos_token_id: int | None = field(default=None, repr=False)

    @property
    def digest(self) -> str:
        """The digest of the output, which is read for it: equal for files with the same documents in any format.

        It is the xxh3_128 of all tokens and then of all document ends, as little-endian int64. Raises MissingExtra if
        the extra `checksum` is not installed.
        """
        from fastpack.tokens.digest import token_digest

        states_none = format_named(self.format).name in ("bin", "olmo")
        dtype = self.dtype if states_none else None
        with open_tokens(self.output, format=self.format, dtype=dtype, eos_token_id=self.eos_token_id) as tokens:
            return token_digest(tokens)


@accept_aliases(file_existence_policy="if_exists")
def convert(
    sources: PathLike | Sequence[PathLike],
    output: PathLike,
    *,
    format: str | None = None,
    source_format: str | None = None,
    dtype: str | None = None,
    eos_token_id: int | None = None,
    if_exists: ExistencePolicy = "error",
    mix_tokenizers: bool = False,
    progress: Progress | None = None,
) -> ConvertResult:
    """Convert token files to another format; several sources are concatenated in the given order.

    Parameters
    ----------
    sources
        One or more token files of any format.
    output
        The output: a file, a folder (`litdata`, `mds`), or a path to which the format adds its suffixes (`megatron`).
    format
        The format of the output. By default it follows from the suffix: `.pbin`, `.npy`, `.bin`, `.idx` or `.ds`.
    source_format
        The format of the sources. By default it is detected.
    dtype
        The dtype of the tokens in sources that do not state it (`bin`, `olmo`, `nanogpt`). If all sources state
        theirs, the dtype of the output.
    eos_token_id
        The token that ends documents in sources without document boundaries.
    if_exists
        What to do if the output exists: "error", "skip" or "overwrite".
    mix_tokenizers
        Combine sources whose recorded tokenizers differ, with a DataWarning (see `TokenizerFingerprint`). By default
        they are refused.
    progress
        Called with (bytes of tokens read, total bytes).

    Returns
    -------
    ConvertResult
        Path, format and dtype of the output, numbers of documents and tokens, and what was left out.

    Raises
    ------
    FileNotFoundError
        If a source does not exist.
    FormatError
        If a source is damaged, or its format or dtype is not certain.
    ValueError
        If the format has no dtype that holds all ids, the document boundaries are needed and unknown, the tokenizers
        of the sources differ, or an argument is wrong. Nothing is written then.
    TargetExists
        If the output exists and the policy is "error" (a ValueError and FileExistsError), or if it is the index of a
        JSONL file.

    Notes
    -----
    The output has the dtype of the sources where its format has it. Otherwise it has an integer dtype of the same or a
    larger width, and where ids might not fit, all of them are checked before anything is written.

    Examples
    --------
    >>> import tempfile, numpy, fastpack
    >>> folder = tempfile.TemporaryDirectory()
    >>> numpy.save(f"{folder.name}/tokens.npy", numpy.array([5, 6, 0, 7, 0], numpy.uint16))
    >>> result = fastpack.convert(f"{folder.name}/tokens.npy", f"{folder.name}/corpus.ds", eos_token_id=0)
    >>> result.n_documents, fastpack.open_tokens(result.output).document(0).tolist()
    (2, [5, 6, 0])
    >>> folder.cleanup()
    """
    given = [sources] if isinstance(sources, (str, os.PathLike)) else list(sources)
    if not given:
        raise ValueError("no sources: pass at least one token file")
    if if_exists not in POLICIES:
        raise ValueError(f"if_exists: found {if_exists!r}, expected 'error', 'skip' or 'overwrite'")
    row = output_format(output, format)
    target = output_path(row.name, as_path(output))
    with ExitStack() as stack:
        if if_exists == "skip" and not may_write(first_output(row.name, target), if_exists):
            return ConvertResult(str(target), row.name, "", None, 0, written=False)
        files = [stack.enter_context(_open(path, source_format, dtype, eos_token_id)) for path in given]
        _check_sources(files, target, row)
        target_dtype = choose_dtype(files, row, dtype)
        fingerprint = common_fingerprint(files, mix_tokenizers)
        return _write(files, row, target, target_dtype, if_exists, eos_token_id, fingerprint, progress)


def output_format(output: PathLike, name: str | None) -> TokenFormat:
    """Return the format called `name`, else that of the suffix of the output; ValueError if it cannot be written."""
    if name is not None:
        row = format_named(name)
        if row.create is None:
            raise ValueError(f"the format {name} is not written by convert")
        return row
    suffix = as_path(output).suffix
    found = next((row for row in FORMATS if row.create is not None and suffix in row.suffixes), None)
    if found is None:
        names = ", ".join(row.name for row in FORMATS if row.create is not None)
        raise ValueError(f"{os.fspath(output)}: its suffix is not that of a format; pass format=: one of {names}")
    return found


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
    if dtype is None and not states_dtype(tokens):
        check_guess(tokens)
    return tokens


def states_dtype(tokens: TokenFile) -> bool:
    """Return whether the dtype of a file is known from the file, its side files or its format."""
    if tokens.format != "bin":
        return True
    from fastpack.tokens.flat.shard_warnings import metadata_dtype

    path = as_path(tokens.path)
    return metadata_dtype(path if path.is_dir() else path.parent) is not None


def check_guess(tokens: TokenFile) -> None:
    """Raise FormatError unless the ids show that the guessed dtype of a raw file is right.

    Halves of uint32 ids differ: the upper ones are below 16, the lower ones are not. Halves of pairs of uint16 ids, and
    uint16 ids at even and odd places, are alike.
    """
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
        raise FormatError(tokens.path, 0, found, "dtype=, the dtype of its tokens")


def _halves(tokens: npt.NDArray[Any]) -> Iterator[npt.NDArray[np.uint16]]:
    data = tokens[: len(tokens) // 2 * 2].view("<u2") if tokens.dtype.itemsize == 2 else tokens.view("<u2")
    for first in range(0, len(data), 1 << 20):
        yield data[first : first + (1 << 20)]


def _check_sources(files: Sequence[TokenFile], target: AnyPath, row: TokenFormat) -> None:
    for tokens in files:
        if row.stores_documents and tokens.n_documents is None:
            raise ValueError(
                f"{tokens.path}: the document boundaries are unknown, and {row.name} stores them: pass eos_token_id"
            )
        written = first_output(row.name, target)
        for source in {tokens.path, *(segment.path for segment in tokens.segments()[:1])}:
            if exists(written) and exists(source) and same_file(source, written):
                raise ValueError(f"{written} is the output and belongs to a source: choose another output")


def choose_dtype(files: Sequence[TokenFile], row: TokenFormat, given: str | None) -> np.dtype[Any]:
    """Return the dtype of the output; raise ValueError for an id that it cannot hold.

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
    for tokens in files:
        if not np.can_cast(tokens.dtype, chosen):
            _check_ids(tokens, chosen, row)
    return chosen


def _check_ids(tokens: TokenFile, dtype: np.dtype[Any], row: TokenFormat) -> None:
    """Raise ValueError for the first id that `dtype` cannot hold."""
    limits, done = np.iinfo(dtype), 0
    for block in stream_tokens(tokens).blocks:
        smallest, largest, _ = kernels.scan_tokens(block.astype(np.int64) if block.itemsize == 8 else block, -1)
        if smallest < 0 or largest > limits.max:
            at = int(((block < 0) | (block > limits.max)).argmax())
            stored = f"{row.name} stores {', '.join(row.dtypes)}"
            raise ValueError(f"{tokens.path}: token {block[at]} at position {done + at} does not fit {dtype}: {stored}")
        done += len(block)


def _write(
    files: Sequence[TokenFile],
    row: TokenFormat,
    target: AnyPath,
    dtype: np.dtype[Any],
    policy: ExistencePolicy,
    eos_token_id: int | None,
    fingerprint: TokenizerFingerprint | None,
    progress: Progress | None,
) -> ConvertResult:
    assert row.create is not None
    result = ConvertResult(str(target), row.name, str(dtype), 0, 0, eos_token_id=eos_token_id)
    total, masks = sum(tokens.n_tokens for tokens in files), DocumentMasks()
    for tokens in files:
        masks.add(tokens, whole=tokens.n_documents is None or tokens.is_contiguous())
    with row.create(target, dtype, policy) as writer:
        writer.fingerprint = fingerprint
        writer.mask = masks.bits()
        writer.reserve(total)
        for tokens in files:
            stream = stream_tokens(tokens)
            lengths = _kept_lengths(stream, row, result)
            if isinstance(writer, BufferedTokenWriter) and _is_copied(stream, dtype):
                writer.append_copies(_pieces(stream, result.n_tokens, total, progress), lengths)
            else:
                writer.append_blocks(_reported(stream, result.n_tokens, total, progress), lengths)
            result.n_tokens += stream.n_tokens
            result.n_tokens_dropped += tokens.n_tokens - stream.n_tokens
    return result


def _kept_lengths(stream: TokenStream, row: TokenFormat, result: ConvertResult) -> npt.NDArray[np.int64]:
    """Return the lengths of the documents to write, and count the documents."""
    if stream.lengths is None:
        result.n_documents = None
        return np.array([stream.n_tokens], np.int64)
    lengths = stream.lengths
    if not row.stores_empty:
        n_empty = int(np.count_nonzero(lengths == 0))
        result.n_empty_dropped += n_empty
        lengths = lengths[lengths > 0] if n_empty else lengths
    if result.n_documents is not None:
        result.n_documents += len(lengths)
    return lengths


def _is_copied(stream: TokenStream, dtype: np.dtype[Any]) -> bool:
    """Return whether the bytes of the tokens can be copied as they are."""
    stored = np.dtype(dtype.newbyteorder("<").str)
    return stream.segments is not None and all(
        segment.plain and segment.dtype == stored and not is_remote(segment.path) for segment in stream.segments
    )


def _pieces(stream: TokenStream, before: int, total: int, progress: Progress | None) -> Iterator[Piece]:
    assert stream.segments is not None
    for segment in stream.segments:
        segment.check_unchanged()
        size = segment.dtype.itemsize
        end = segment.offset + segment.length * size
        for start in range(segment.offset, end, _COPIED_BYTES):
            n_bytes = min(_COPIED_BYTES, end - start)
            yield segment.path, start, n_bytes
            before += n_bytes // size
            if progress is not None:
                progress(before * size, total * size)


def _reported(stream: TokenStream, before: int, total: int, progress: Progress | None) -> Iterator[npt.NDArray[Any]]:
    for block in stream.blocks:
        yield block
        before += len(block)
        if progress is not None:
            progress(before * block.itemsize, total * block.itemsize)
