"""What tasks left, joined into one file: packed files of tokens and lengths, or plain bytes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np

from fastpack.distributed.plan import Done, check_size
from fastpack.io import AtomicFile, ExistencePolicy, PathLike, drop_pages, map_bytes
from fastpack.tokens.pbin.layout import HEADER
from fastpack.tokens.pbin.packed_index import index_rows, write_index

_BLOCK = 8 << 20  # bytes copied at once: copy_file_range takes 1.1 to 1.3 times the CPU time (ext4)


class Part(NamedTuple):
    """The file of a task: `n_bytes` of data, and behind it the lengths of documents, in tokens, int64 [n_documents]."""

    path: str
    n_bytes: int
    n_documents: int = 0


def part_of(done: Done, n_bytes: int, n_documents: int = 0) -> Part:
    """The part that a task left. JobError where its file is not as large as it has to be."""
    check_size(done, n_bytes + 8 * n_documents)
    return Part(done.path, n_bytes, n_documents)


def append_parts(output: AtomicFile, parts: Sequence[Part], advance: Callable[[int], None]) -> None:
    """Copy the data of the parts, in order. advance: is told of the bytes of each block."""
    for part in parts:
        data = map_bytes(part.path)
        for first in range(0, part.n_bytes, _BLOCK):
            end = min(first + _BLOCK, part.n_bytes)
            output.write(data[first:end])
            drop_pages(data, first, min(first + _BLOCK, len(data)))
            advance(end - first)


def join_bytes(parts: Sequence[Part], target: PathLike, policy: ExistencePolicy, advance: Callable[[int], None]) -> int:
    """Write the data of all parts; returns how many bytes it is. Raises TargetExists by the policy."""
    with AtomicFile(target, policy=policy) as output:
        output.reserve(sum(part.n_bytes for part in parts))
        append_parts(output, parts, advance)
        return output.tell()


def join_packed(
    parts: Sequence[Part], token_size: int, target: PathLike, policy: ExistencePolicy, advance: Callable[[int], None]
) -> int:
    """Write the packed file of the documents of all parts; returns its size. Raises TargetExists by the policy."""
    n_bytes = sum(part.n_bytes for part in parts)
    with AtomicFile(target, policy=policy) as output:
        output.write(HEADER[5].pack(n_bytes, token_size))
        output.reserve(n_bytes)
        append_parts(output, parts, advance)
        lengths = (map_bytes(part.path)[part.n_bytes :].view(np.int64) for part in parts)
        write_index(output.write, index_rows(lengths, token_size))
        return output.tell()


def counted(progress: Callable[[int, int], None] | None, total: int) -> Callable[[int], None]:
    """What `append_parts` tells, as progress (bytes done, in all)."""
    done = 0

    def advance(n_bytes: int) -> None:
        nonlocal done
        done += n_bytes
        if progress is not None:
            progress(done, total)

    return advance
