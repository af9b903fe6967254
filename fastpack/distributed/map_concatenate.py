"""Map a job's input to tasks, and concatenate the outputs of the tasks: packed tokens with lengths, or plain bytes."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

from fastpack.distributed.plan import Done, Task, check_size
from fastpack.io import AtomicFile, ExistencePolicy, PathLike, as_path, drop_pages, map_bytes
from fastpack.tokens.edit.edit_result import EmptyDocuments
from fastpack.tokens.mask_bits import MaskBits
from fastpack.tokens.token_file import TokenFormat
from fastpack.tokens.tokenizer_fingerprint import TokenizerFingerprint

MIN_TASK_BYTES = 64 << 20  # of a source: at least 0.1 s of work, so that the 5 ms of a marker are negligible
MAX_TASKS = 4096  # of a job with tasks of the default size: the markers of a folder are listed at once
_BLOCK = 8 << 20  # bytes copied at once: copy_file_range takes 1.1 to 1.3 times the CPU time (ext4)

Chunk: TypeAlias = tuple[int, int, int]  # (number of the source, number of its chunk, number of its chunks)


def task_folder(target: str, folder: str | None) -> str:
    """Return the folder of a job's task files: `<target>.parts`, next to the target or in `folder`."""
    name = f"{target.rstrip('/')}.parts"
    return name if folder is None else os.fspath(as_path(folder) / os.path.basename(name))


def task_bytes(total: int, requested: int | None, least: int = MIN_TASK_BYTES) -> int:
    """Return the input bytes of a task: as requested, else `least`, or more where that would exceed `MAX_TASKS`."""
    if requested is not None:
        if requested < 1:
            raise ValueError(f"tasks of {requested} bytes: expected at least 1")
        return requested
    return max(least, -(-total // MAX_TASKS))


def equal_borders(total: int, n_bytes: int) -> list[int]:
    """Return the borders of equal ranges of `total` bytes: at least one range, of at most `n_bytes` each."""
    n_tasks = max(1, -(-total // n_bytes))
    return [total * number // n_tasks for number in range(n_tasks + 1)]


def split_sources(sizes: Sequence[int], whole: Sequence[bool], n_bytes: int) -> Iterator[list[Chunk]]:
    """Yield the chunks of each task, about `n_bytes` in all, in order.

    Large sources are split into chunks of about the same size, unless they are to stay whole; small consecutive sources
    share a task.
    """
    group: list[Chunk] = []
    filled = 0
    for number, (size, stays_whole) in enumerate(zip(sizes, whole, strict=True)):
        n_chunks = 1 if stays_whole else max(1, -(-size // n_bytes))
        if group and (n_chunks > 1 or filled + size > n_bytes):
            yield group
            group, filled = [], 0
        if n_chunks > 1:
            yield from ([(number, chunk, n_chunks)] for chunk in range(n_chunks))
        else:
            group.append((number, 0, 1))
            filled += size
    if group:
        yield group


def chunk_bytes(chunks: Iterable[Chunk], sizes: Sequence[int]) -> int:
    """Return the input bytes of a task's chunks."""
    return sum(sizes[source] // n_chunks for source, _, n_chunks in chunks)


def numbered_tasks(work: Iterable[tuple[Mapping[str, Any], int]]) -> list[Task]:
    """Return a task, named by its number, for each (arguments, input bytes)."""
    return [Task(f"{number:06d}", arguments, n_bytes) for number, (arguments, n_bytes) in enumerate(work)]


class TaskOutput(NamedTuple):
    """The file of a task: `n_bytes` of data, then the lengths of its documents in tokens, int64[n_documents]."""

    path: str
    n_bytes: int
    n_documents: int = 0


def task_output(done: Done, n_bytes: int, n_documents: int = 0) -> TaskOutput:
    """Return the output of a finished task. JobError if its file has another size."""
    check_size(done, n_bytes + 8 * n_documents)
    return TaskOutput(done.path, n_bytes, n_documents)


def output_blocks(outputs: Sequence[TaskOutput], advance: Callable[[int], None]) -> Iterator[npt.NDArray[np.uint8]]:
    """Yield the data of all outputs, in order. advance: called with the bytes of each block when it is used."""
    for one in outputs:
        data = map_bytes(one.path)
        for first in range(0, one.n_bytes, _BLOCK):
            end = min(first + _BLOCK, one.n_bytes)
            yield data[first:end]
            drop_pages(data, first, min(first + _BLOCK, len(data)))
            advance(end - first)


def concatenate_bytes(
    outputs: Sequence[TaskOutput], target: PathLike, policy: ExistencePolicy, advance: Callable[[int], None]
) -> int:
    """Concatenate the data of all outputs and return its size in bytes. Raises TargetExists by the policy."""
    with AtomicFile(target, policy=policy) as output:
        output.reserve(sum(one.n_bytes for one in outputs))
        for block in output_blocks(outputs, advance):
            output.write(block)
        return output.tell()


def concatenate_tokens(
    outputs: Sequence[TaskOutput],
    encoded: np.dtype[Any],
    stored: np.dtype[Any],
    row: TokenFormat,
    target: PathLike,
    policy: ExistencePolicy,
    advance: Callable[[int], None],
    fingerprint: TokenizerFingerprint | None = None,
    mask: MaskBits | None = None,
) -> int:
    """Write the token file of the documents of all outputs; return how many empty ones the format cannot store.

    Raises TargetExists by the policy.

    encoded, stored: the dtypes of the tokens in the outputs and in the token file; fingerprint: of their tokenizer.
    mask: of all tokens.
    """
    assert row.create is not None
    empty = EmptyDocuments(row)
    with row.create(as_path(target), stored, policy) as writer:
        writer.fingerprint, writer.mask = fingerprint, mask
        writer.reserve(sum(one.n_bytes for one in outputs) // encoded.itemsize)
        for one in outputs:
            blocks = (block.view(encoded.newbyteorder("<")) for block in output_blocks([one], advance))
            writer.append_blocks(blocks, empty.drop(map_bytes(one.path)[one.n_bytes :].view(np.int64).copy()))
    return empty.n_dropped


def byte_counter(progress: Callable[[int, int], None] | None, total: int) -> Callable[[int], None]:
    """Return an `advance` function that reports progress as (bytes done, bytes in all)."""
    done = 0

    def advance(n_bytes: int) -> None:
        nonlocal done
        done += n_bytes
        if progress is not None:
            progress(done, total)

    return advance
