"""Several token files as one sequence of documents, of which any range can be read or copied."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from fastpack.io import Progress, is_remote
from fastpack.tokens.token_file import DocumentEnds, Piece, Run, SegmentedTokens, TokenFile
from fastpack.tokens.token_scan import eos_ends
from fastpack.tokens.token_segment import TokenSegment
from fastpack.tokens.token_stream import TokenStream, parts_of, stream_tokens, without_documents

_COPIED_BYTES = 1 << 24  # copied by one system call, between two reports of the progress
_NUMBERS = re.compile("([0-9]+)")
_CUT_ANYWHERE = ("npy", "bin", "nanogpt", "llmc")  # formats whose shards end within documents


class TokenCorpus:
    """The documents of several streams, in order.

    Attributes
    ----------
    lengths
        Tokens of each document, int64 [n]; None if the boundaries of some documents are unknown.
    n_tokens
        Number of tokens.
    """

    def __init__(self, streams: Sequence[TokenStream]) -> None:
        self._streams = streams
        lengths = [stream.lengths for stream in streams if stream.lengths is not None]
        self.lengths = None if len(lengths) < len(streams) else np.concatenate([np.empty(0, np.int64), *lengths])
        self.n_tokens = sum(stream.n_tokens for stream in streams)
        self.n_bytes = sum(stream.n_tokens * stream.dtype.itemsize for stream in streams)

    @classmethod
    def of(cls, files: Sequence[TokenFile], *, scan: bool = True) -> TokenCorpus:
        """Return the corpus of open files; without `scan`, files in which EOS tokens end documents have no lengths."""
        return cls(
            [stream_tokens(one) if scan or one.format not in _CUT_ANYWHERE else without_documents(one) for one in files]
        )

    def blocks(self, start: int = 0, end: int | None = None) -> Iterator[npt.NDArray[Any]]:
        """Yield the tokens [start, end), aligned and in native byte order; the memory of a block is reused."""
        for stream, first, last in self.parts(start, self.n_tokens if end is None else end):
            yield from stream.blocks(first, last)

    def runs(self, start: int, end: int, dtype: np.dtype[Any], progress: Progress | None = None) -> Iterator[Run]:
        """Yield the tokens [start, end), as pieces of files where these contain them in `dtype`, else as blocks."""
        done = sum(stream.dtype.itemsize * last for stream, _, last in self.parts(0, start))
        for stream, first, last in self.parts(start, end):
            is_copied = _is_copied(stream, dtype)
            for run in _pieces(stream, first, last) if is_copied else stream.blocks(first, last):
                yield run
                if progress is not None:
                    done += run[2] if isinstance(run, tuple) else len(run) * stream.dtype.itemsize
                    progress(done, self.n_bytes)

    def parts(self, start: int, end: int) -> Iterator[tuple[TokenStream, int, int]]:
        """Yield the streams that contain the tokens [start, end), and the first and the end of them in each."""
        before = 0
        for stream in self._streams:
            first, last = max(start - before, 0), min(end - before, stream.n_tokens)
            before += stream.n_tokens
            if first < last:
                yield stream, first, last


def _is_copied(stream: TokenStream, dtype: np.dtype[Any]) -> bool:
    """Return whether the bytes of the tokens can be copied as they are."""
    stored = np.dtype(dtype.newbyteorder("<").str)
    return stream.segments is not None and all(
        segment.plain and segment.dtype == stored and not is_remote(segment.path) for segment in stream.segments
    )


def _pieces(stream: TokenStream, start: int, end: int) -> Iterator[Piece]:
    assert stream.segments is not None
    for segment, first, last in parts_of(stream.segments, start, end):
        segment.check_unchanged()
        size = segment.dtype.itemsize
        stop = segment.offset + last * size
        for offset in range(segment.offset + first * size, stop, _COPIED_BYTES):
            yield segment.path, offset, min(_COPIED_BYTES, stop - offset)


class JoinedTokens(SegmentedTokens):
    """Shards that were cut anywhere, as one file: a document may continue in the next shard."""

    def __init__(self, files: Sequence[TokenFile], eos_token_id: int | None) -> None:
        self.path, self.format = files[0].path, files[0].format
        self._segments: Sequence[TokenSegment] = [segment for tokens in files for segment in tokens.segments()]
        self._eos = eos_token_id

    def _has_documents(self) -> bool:
        return self._eos is not None

    def _read_document_ends(self) -> DocumentEnds:
        if self.format == "llmc":
            from fastpack.tokens.llmc import llmc_ends

            return llmc_ends(self._segments, self._eos)
        return eos_ends(self._segments, self._eos, joined=True)


def joined(files: Sequence[TokenFile], eos_token_id: int | None) -> list[TokenFile]:
    """Return the files, with shards as `convert` writes them, which it cuts anywhere, as one file each.

    They have no document boundaries, consecutive numbers, and the same length, except for a shorter last one.
    """
    groups: list[list[TokenFile]] = []
    for tokens in files:
        if groups and _continues(groups[-1][-1], tokens):
            groups[-1].append(tokens)
        else:
            groups.append([tokens])
    found: list[TokenFile] = []
    for group in groups:
        found += [JoinedTokens(group, eos_token_id)] if _is_cut(group) else group
    return found


def _continues(last: TokenFile, tokens: TokenFile) -> bool:
    same = (tokens.format, tokens.dtype) == (last.format, last.dtype)
    return tokens.format in _CUT_ANYWHERE and same and _counts_up(last.path, tokens.path)


def _is_cut(group: Sequence[TokenFile]) -> bool:
    *others, last = [tokens.n_tokens for tokens in group]
    return len(set(others)) == 1 and last <= others[0]


def _counts_up(one: str, other: str) -> bool:
    """Return whether two paths differ only in one number, which is larger by one in the second."""
    texts, others = _NUMBERS.split(one), _NUMBERS.split(other)
    if len(texts) != len(others):
        return False
    different = [at for at, (text, same) in enumerate(zip(texts, others, strict=True)) if text != same]
    return len(different) == 1 and different[0] % 2 == 1 and int(others[different[0]]) == int(texts[different[0]]) + 1


def natural_key(path: str) -> list[list[str | int]]:
    """Return what sorts paths by their components, and numbers in them by value."""
    return [[int(text) if at % 2 else text for at, text in enumerate(_NUMBERS.split(part))] for part in path.split("/")]
