"""Looking through tokens and their documents: lengths, what blocks cut, which ids occur, which token ends documents."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from fastpack import kernels
from fastpack.analysis.document_lengths import LengthCounter, Lengths
from fastpack.io import Progress
from fastpack.tokens.flat.shard_warnings import LARGEST_PLAUSIBLE_ID
from fastpack.tokens.flat.shards import Shard
from fastpack.tokens.pbin.packed_file import PackedFile
from fastpack.tokens.token_scan import InnerEos, TokenScan

_ROWS_AT_ONCE = 1 << 18  # of a packed file's index
_LOOKED_AT = 1000  # last tokens, from which the one that ends documents is guessed
_USUAL = 0.9  # of the documents end in the same token: then it is what ends them
_FEWEST_FILES = 3  # whose last tokens agree, before that is no accident
_TOKENS_AT_ONCE = 1 << 18  # whose ids are counted together
_MAX_RECENT = 1 << 32  # tokens that are counted in 32 bits: half the table is missed in the cache half as often


class DocumentFacts:
    """What is gathered of documents: their lengths, and how many are cut by blocks of each of `seq_lens` tokens."""

    def __init__(self, seq_lens: Sequence[int]) -> None:
        self.lengths = LengthCounter()
        self.cut = dict.fromkeys(seq_lens, 0)

    def add(self, starts: Lengths, lengths: Lengths) -> None:
        """Documents of one file, by where they start in it and how long they are: tokens, int64 [n] each."""
        self.lengths.add(lengths)
        filled = lengths > 0
        first, last = starts[filled], (starts + lengths)[filled] - 1
        for seq_len in self.cut:
            self.cut[seq_len] += int(np.count_nonzero(first // seq_len != last // seq_len))


class IdCounter:
    """How often each token id occurs; outside: tokens whose id no vocabulary has."""

    def __init__(self) -> None:
        self.outside = 0
        self._counts = np.zeros(0, np.int64)
        self._recent = np.zeros(0, np.uint32)  # of the last tokens, to be added to _counts before one can overflow
        self._n_recent = 0

    @property
    def counts(self) -> Lengths:
        """int64 [n], by id; n is the largest id and 1."""
        self._settle()
        return self._counts

    def add(self, tokens: npt.NDArray[Any]) -> None:
        """Count the ids of tokens, integers [n] of a dtype that kernels take."""
        n_ids = LARGEST_PLAUSIBLE_ID if tokens.itemsize > 2 else 1 << 8 * tokens.itemsize
        if len(self._recent) < n_ids:
            self._settle()
            self._recent = np.zeros(n_ids, np.uint32)
        for start in range(0, len(tokens), _TOKENS_AT_ONCE):
            some = tokens[start : start + _TOKENS_AT_ONCE]
            if self._n_recent + len(some) >= _MAX_RECENT:
                self._settle()
            self.outside += kernels.count_tokens(some, self._recent)
            self._n_recent += len(some)

    def _settle(self) -> None:
        if self._n_recent:
            n_ids = int(np.flatnonzero(self._recent).max(initial=-1)) + 1
            self._take(self._recent[:n_ids].astype(np.int64))
            self._recent[:n_ids] = 0
            self._n_recent = 0

    def _take(self, counts: Lengths) -> None:
        if len(counts) > len(self._counts):
            counts[: len(self._counts)] += self._counts
            self._counts = counts
        else:
            self._counts[: len(counts)] += counts

    def merge(self, other: IdCounter) -> None:
        """Take over what another one counted."""
        self._settle()
        self._take(other.counts.copy())
        self.outside += other.outside


@dataclass(slots=True)
class Eos:
    """The token that ends documents: its id (None: not known), and how it is known."""

    id: int | None = None
    known_from: str = ""


@dataclass(slots=True)
class Wanted:
    """What to find out, and with what knowledge: the arguments of `inspect`.

    eos_token_id: None to guess it; dtype: of headerless shards, None for what metadata or sizes say; quick: read no
    tokens; count_ids: count how often each occurs; split_config, dataset_config, split_parts: of WebDatasets.
    """

    eos_token_id: int | None = None
    seq_lens: Sequence[int] = ()
    quick: bool = False
    count_ids: bool = False
    progress: Progress | None = None
    dtype: str | None = None
    split_config: str = "split.yaml"
    dataset_config: str = "dataset.yaml"
    split_parts: Sequence[str] | None = None


@dataclass(slots=True)
class Read:
    """What reading all tokens gave: how many are EOS, the largest id, whether one is negative, the ids where asked.

    inner: EOS tokens inside documents, and how many documents have such; None where documents are found by their EOS.
    """

    n_tokens: int
    n_eos: int
    largest: int
    has_negative: bool
    ids: IdCounter | None = field(default=None)
    inner: tuple[int, int] | None = None


def packed_documents(file: PackedFile) -> Iterator[tuple[Lengths, Lengths]]:
    """Starts and lengths of a packed file's documents, in tokens, int64 [k] each."""
    size = file.token_size_in_bytes
    for first in range(0, len(file), _ROWS_AT_ONCE):
        rows = file.index[first : first + _ROWS_AT_ONCE]
        yield rows[:, 0] // size, rows[:, 1] // size


def read_tokens(
    shards: Sequence[Shard],
    eos: int | None,
    wanted: Wanted,
    documents: DocumentFacts | None,
    known: tuple[Lengths, Lengths] | None = None,
) -> Read:
    """Look at all tokens; `documents`, where given, takes those that the EOS token ends, and what follows the last.

    known: where the documents of the one shard are known, the number of the first and last token of each, int64[n].
    """
    inner = None if known is None or eos is None else InnerEos(*known, eos)
    scan = TokenScan(None, -1 if eos is None else eos)
    ids = IdCounter() if wanted.count_ids else None
    total, done = sum(shard.length for shard in shards), 0
    for shard in shards:
        open_at = 0  # where the document begins that is not ended yet
        before = scan.n_eos
        for start, tokens in scan.look(shard):
            if inner is not None:
                inner.add(start, tokens, scan.n_eos - before)
                before = scan.n_eos
            if ids is not None:
                ids.add(tokens)
            if documents is not None and eos is not None:
                open_at = _split(tokens, start, eos, open_at, documents)
            if wanted.progress is not None:
                size = shard.dtype.itemsize
                wanted.progress((done + start + len(tokens)) * size, total * size)
        if documents is not None and open_at < shard.length:
            documents.add(np.array([open_at]), np.array([shard.length - open_at]))
        done += shard.length
    found = None if inner is None else (inner.n_tokens, inner.n_documents)
    return Read(scan.n_tokens, scan.n_eos, scan.largest, scan.smallest < 0, ids, found)


def _split(tokens: npt.NDArray[Any], start: int, eos: int, open_at: int, documents: DocumentFacts) -> int:
    """The documents that end in a piece of tokens, which begins at `start`; returns where the next one begins."""
    ends = np.flatnonzero(tokens == eos) + (start + 1)
    if not len(ends):
        return open_at
    starts = np.concatenate([[open_at], ends[:-1]])
    documents.add(starts, ends - starts)
    return int(ends[-1])


def guess_packed(file: PackedFile) -> Eos:
    """The token in which nearly all of some documents end."""
    rows = file.index[:: max(1, len(file) // _LOOKED_AT)]
    rows = rows[rows[:, 1] > 0]
    last = file.data[rows.sum(axis=1) // file.token_size_in_bytes - 1]
    return _commonest(last, "documents")


def guess_shards(shards: Sequence[Shard]) -> Eos:
    """The token in which nearly all files end, where there are several."""
    some = [shard for shard in shards[:: max(1, len(shards) // _LOOKED_AT)] if shard.plain and shard.length]
    last = np.array([shard.open()[-1] for shard in some], np.int64)
    return _commonest(last, "files") if len(last) >= _FEWEST_FILES else Eos()


def _commonest(last: npt.NDArray[Any], what: str) -> Eos:
    if not len(last):
        return Eos()
    values, counts = np.unique(last, return_counts=True)
    most = int(counts.max())
    if most < _USUAL * len(last):
        return Eos()
    return Eos(int(values[counts.argmax()]), f"the last token of {most:,} of {len(last):,} {what} looked at")
