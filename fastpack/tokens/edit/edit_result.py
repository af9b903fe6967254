"""What every operation on finished files shares: its result, and what is checked before it starts."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias

import numpy as np
import numpy.typing as npt

from fastpack.display import Result, facts
from fastpack.io import AnyPath, ExistencePolicy, PathLike, exists, may_write, same_file
from fastpack.io.pickled_index import IndexEncoder
from fastpack.tokens.pbin.layout import HEADER_BYTES

Compat: TypeAlias = Literal["modalities-0.5"] | None
COMPAT: Compat = "modalities-0.5"
BLOCK_ROWS = 1 << 16  # of an index, made at a time: they stay in the cache


@dataclass(frozen=True, slots=True, repr=False)
class EditResult(Result):
    """What an operation wrote, or with `dry_run` would write.

    path: the output; documents: in it (lines of a JSONL file); tokens: None for a JSONL file; bytes: its size;
    sources: files read; left_out: documents of the sources that a filter did not keep; written: False after a dry run,
    and when the output existed and was kept (`kept_existing`; the numbers are then 0).
    """

    _shown = facts("path", "documents", "tokens", "bytes", "left_out", "written", "kept_existing")

    path: AnyPath
    documents: int = 0
    tokens: int | None = None
    bytes: int = 0
    sources: int = 1
    left_out: int = 0
    written: bool = True
    kept_existing: bool = False


def check_compat(compat: Compat) -> None:
    if compat not in (None, COMPAT):
        raise ValueError(f"unknown compat {compat!r}: the only one is {COMPAT!r}")


def is_kept(sources: Sequence[PathLike], target: PathLike, policy: ExistencePolicy) -> bool:
    """Whether the target exists and is to be kept, so that nothing is to be done.

    Raises FileNotFoundError for a missing source, ValueError for a target that is one of the sources, TargetExists (a
    ValueError) by the policy "error".
    """
    is_there = exists(target)  # else it is none of the sources, which are there: of 50,000 it takes a second to compare
    for source in sources:
        if not exists(source):
            raise FileNotFoundError(f"{os.fspath(source)} does not exist")
        if is_there and same_file(source, target):
            raise ValueError(f"Input and output file paths must be different: both are {os.fspath(source)}")
    return not may_write(target, policy)


def packed_size(lengths: npt.NDArray[np.int64]) -> int:
    """The size of a packed file of documents of these lengths [n_documents], both in bytes."""
    return HEADER_BYTES + int(lengths.sum()) + index_size(_rows_of(lengths))


def _rows_of(lengths: npt.NDArray[np.int64]) -> Iterator[npt.NDArray[np.int64]]:
    end = 0
    for first in range(0, len(lengths), BLOCK_ROWS):
        block = lengths[first : first + BLOCK_ROWS]
        ends = end + np.cumsum(block)
        yield np.stack([ends - block, block], axis=1)
        end = int(ends[-1])


def index_size(blocks: Iterable[npt.NDArray[np.int64]]) -> int:
    """The size in bytes of the pickled index of these rows int64 [k, 2]."""
    encoder = IndexEncoder(len)
    for rows in blocks:
        encoder.append(rows)
    encoder.close()
    return encoder.n_bytes
