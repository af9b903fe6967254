"""`index.sqlite`: where each sample of a WebDataset is, and each of its parts; the tables of Megatron-Energon 7.4.

Table `samples`: tar_file_id (the shard's position in `.info.json`), sample_key, sample_index (in the shard),
byte_offset, byte_size (of all its members with their headers). Table `sample_parts`: tar_file_id, sample_index,
part_name, content_byte_offset, content_byte_size. This module writes it: the rows are collected in files beside it
(`nvmeta_staging`), of which its pages are made (`nvmeta_pages`); SQLite itself adds metadata of media, if there is any.
`nvmeta_lookup` reads it.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from types import TracebackType
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from fastpack.errors import INTERRUPTS, FormatError, JobError
from fastpack.io import AtomicFile, PathLike
from fastpack.webdataset.sample_index.media_tables import write_media
from fastpack.webdataset.sample_index.page_writer import PARTS_SQL, SAMPLES_SQL, KeysRepeat, write_index_pages
from fastpack.webdataset.sample_index.reader import connect_read_only
from fastpack.webdataset.sample_index.staging import Staging, WalkedShard
from fastpack.webdataset.sample_index.table_rows import TableRows

if TYPE_CHECKING:
    import sqlite3

    from fastpack.webdataset.shard_index import ShardScan

_ROWS_AT_ONCE = 65_536  # rows of an older index that are Python objects at a time
_NAMED = 20  # duplicate keys that an error's text names
_OLD_SAMPLES = (
    "SELECT CAST(sample_key AS BLOB), sample_index, byte_offset, byte_size FROM samples WHERE tar_file_id = ? "
    "ORDER BY sample_index"
)
_OLD_PARTS = (
    "SELECT CAST(part_name AS BLOB), sample_index, content_byte_offset, content_byte_size FROM sample_parts "
    "WHERE tar_file_id = ? ORDER BY sample_index, content_byte_offset"
)


class DuplicateKeys(JobError):
    """Sample keys that occur more than once, so that none of them can be loaded by name.

    keys: up to 10,000 of them, with the shards they are in (their numbers, or names where they are known); total: how
    many there are.
    """

    def __init__(self, path: PathLike, keys: Sequence[tuple[str, Sequence[int | str]]], total: int) -> None:
        self.path, self.keys, self.total = os.fspath(path), keys, total
        named = "; ".join(f"{key!r} in {', '.join(map(str, shards))}" for key, shards in keys[:_NAMED])
        more = f"; and {total - _NAMED} more" if total > _NAMED else ""
        many = "1 sample key occurs" if total == 1 else f"{total} sample keys occur"
        super().__init__(f"{many} more than once: {named}{more}")

    def __reduce__(self) -> tuple[type[DuplicateKeys], tuple[str, Sequence[tuple[str, Sequence[int | str]]], int]]:
        return type(self), (self.path, self.keys, self.total)


def write_sample_index(path: PathLike, scans: Iterable[ShardScan], *, mode: int | None = None) -> int:
    """Write the index of these shards, numbered from 0, in place of `path`; return the number of samples.

    mode: permissions of the file. What was there stays until the new index is complete. Raises as `IndexWriter` does.
    """
    with IndexWriter(path, mode=mode) as writer:
        n_samples = 0
        for tar_file_id, scan in enumerate(scans):
            writer.add(tar_file_id, scan)
            n_samples += len(scan.sample_keys)
    return n_samples


class IndexWriter:
    """An `index.sqlite` being written: shard by shard, in order; it takes its name when the with block ends well.

    previous: an older index, from which shards (`copy`) and media metadata (`copy_media`) can be taken over.
    sample_tables=False leaves out the tables of samples and parts. resume: take up what a writer of the same `purpose`
    left behind when it was killed; the shards it noted (`note`) are then in `done`, unless the machine was started anew
    meanwhile. With resume, an error leaves what is written for the next writer; with resumable, an interrupt does, and
    `is_kept` says whether a shard was noted. Raises FormatError for a key or part
    name that is not UTF-8, with the shard and the sample's offset in it, and DuplicateKeys at the end of the block.
    """

    def __init__(
        self,
        path: PathLike,
        *,
        mode: int | None = None,
        previous: PathLike | None = None,
        sample_tables: bool = True,
        resume: bool = False,
        resumable: bool = False,
        purpose: str = "",
    ) -> None:
        self._previous, self._sample_tables, self._resume = previous, sample_tables, resume
        self._resumable, self.is_kept = resumable, False
        self._old: sqlite3.Connection | None = None
        self._tables: list[TableRows] | None = None
        self._file = AtomicFile(path, follow=False)
        try:
            if mode is not None:
                self._file.set_mode(mode)
            self._staging = Staging(self._file.path, purpose, keep=resume, mode=mode)
            self.is_kept = bool(self._staging.done)
        except BaseException:
            self._file.abort()
            raise

    @property
    def done(self) -> list[WalkedShard]:
        """The shards that a killed writer noted."""
        return self._staging.done

    def start_over(self) -> None:
        """Forget what a killed writer had done."""
        if self.done:
            self._staging.start_over()

    def add(self, tar_file_id: int, scan: ShardScan) -> None:
        """Add the samples and parts of one shard."""
        if self._sample_tables:
            self._staging.add_shard(tar_file_id, scan)

    def note(self, shard: WalkedShard) -> None:
        """Say that all of a shard is added: a writer that resumes need not see it again."""
        self._staging.note(shard)
        self.is_kept = True

    def copy(self, tar_file_id: int, old_tar_file_id: int, n_samples: int | None = None) -> None:
        """Take the rows of one shard over from the previous index.

        Raises FormatError where that cannot be read, or has not `n_samples` samples of it; then no rows are taken.
        """
        if not self._sample_tables:
            return
        if self._copy_pages(tar_file_id, old_tar_file_id, n_samples):
            return
        samples = self._old_rows(_OLD_SAMPLES, tar_file_id, old_tar_file_id)
        parts = self._old_rows(_OLD_PARTS, tar_file_id, old_tar_file_id)
        found = sum(len(keys) for _, keys in samples)
        if n_samples is not None and found != n_samples:
            assert self._previous is not None
            raise FormatError(self._previous, 0, f"{found} samples of shard {old_tar_file_id}", f"{n_samples} of them")
        for columns, keys in samples:
            self._staging.add_samples(columns, keys)
        for columns, names in parts:
            self._staging.add_parts(columns, names)

    def copy_media(self) -> None:
        """Take over the media metadata of the previous index, if there is one that has any."""
        if self._previous is not None:
            self._staging.add_media(["copy"])

    def add_media(self, rows: Iterable[tuple[str, str, str]], found_by: tuple[str, str]) -> None:
        """Add metadata of media: (entry key, type, JSON) rows, each instead of an older one of its key.

        found_by: strategy and patterns of the filter, which are noted once.
        """
        for row in rows:
            self._staging.add_media(["row", *row])
        self._staging.add_media(["filter", *found_by])

    def commit(self) -> None:
        """Write tables and indexes, and take the target's name."""
        try:
            write_index_pages(self._file, self._staging.rows() if self._sample_tables else None)
        except KeysRepeat as error:
            raise DuplicateKeys(self._file.path, error.keys, error.total) from None
        write_media(self._file.partial_path, self._staging.media(), self._previous)
        self._file.commit()
        self._staging.remove()
        self._close_old()

    def abort(self) -> None:
        """Remove what was written; harmless after `commit()`."""
        self._close_old()
        self._staging.remove()
        self._file.abort()

    def suspend(self) -> None:
        """Stop; what was noted stays for a writer with `resume`."""
        self._staging.suspend()
        self.abort()

    def _copy_pages(self, tar_file_id: int, old_tar_file_id: int, n_samples: int | None) -> bool:
        """Take the rows of a shard from the pages of the previous index; False where SQLite has to read them."""
        import sqlite3

        assert self._previous is not None
        try:
            if self._tables is None:
                self._old = self._old or connect_read_only(self._previous)
                self._tables = [TableRows(self._previous, self._old, sql) for sql in (SAMPLES_SQL, PARTS_SQL)]
            samples, parts = (table.of_shard(old_tar_file_id) for table in self._tables)
        except (sqlite3.DatabaseError, ValueError):
            self._tables = None
            return False
        if samples is None or parts is None or len(samples.numbers) != len(samples.lengths):
            return False
        if n_samples is not None and len(samples.numbers) != n_samples:
            return False  # `copy` says what is wrong
        self._staging.add_old_shard(tar_file_id, samples, parts)
        return True

    def _old_rows(
        self, query: str, tar_file_id: int, old_tar_file_id: int
    ) -> list[tuple[list[npt.NDArray[np.int64]], Sequence[bytes]]]:
        """Rows of a shard in the previous index, some at a time: four columns, with its new number, and their texts."""
        import sqlite3

        assert self._previous is not None
        rows: list[tuple[list[npt.NDArray[np.int64]], Sequence[bytes]]] = []
        try:
            if self._old is None:
                self._old = connect_read_only(self._previous)
            cursor = self._old.execute(query, (old_tar_file_id,))
            while found := cursor.fetchmany(_ROWS_AT_ONCE):
                texts, *columns = zip(*found, strict=True)
                shard = np.full(len(found), tar_file_id, np.int64)
                rows.append(([shard, *(np.array(values, np.int64) for values in columns)], texts))
        except (sqlite3.DatabaseError, UnicodeDecodeError, MemoryError, TypeError, ValueError) as error:
            reason = f"SQLite's error {str(error) or type(error).__name__!r}"
            raise FormatError(self._previous, 0, reason, "an index of samples") from None
        return rows

    def _close_old(self) -> None:
        self._tables = None
        if self._old is not None:
            self._old.close()
            self._old = None

    def _is_worth_keeping(self, error: BaseException | None) -> bool:
        return self._resumable and self.is_kept and isinstance(error, INTERRUPTS)

    def __enter__(self) -> IndexWriter:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            if kind is None:
                self.commit()
            elif self._resume or self._is_worth_keeping(error):
                self.suspend()
        except INTERRUPTS as interrupt:  # of the commit
            if self._resume or self._is_worth_keeping(interrupt):
                self.suspend()
            raise
        finally:
            self.abort()
