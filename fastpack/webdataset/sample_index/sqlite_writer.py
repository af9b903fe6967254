"""Write `index.sqlite`: collect rows in staging files, then write the pages; see the package's page."""

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
from fastpack.webdataset.sample_index.page_writer import PARTS_SQL, SAMPLES_SQL, RepeatedKeys, write_index_pages
from fastpack.webdataset.sample_index.reader import connect_read_only
from fastpack.webdataset.sample_index.staging import ShardRecord, Staging
from fastpack.webdataset.sample_index.table_rows import TableRows

if TYPE_CHECKING:
    import sqlite3

    from fastpack.webdataset.shard_index import ShardScan

_BATCH_ROWS = 65_536  # rows of an older index that are Python objects at a time
_MAX_LISTED = 20  # duplicate keys that a message lists
_OLD_SAMPLES = (
    "SELECT CAST(sample_key AS BLOB), sample_index, byte_offset, byte_size FROM samples WHERE tar_file_id = ? "
    "ORDER BY sample_index"
)
_OLD_FIELDS = (
    "SELECT CAST(part_name AS BLOB), sample_index, content_byte_offset, content_byte_size FROM sample_parts "
    "WHERE tar_file_id = ? ORDER BY sample_index, content_byte_offset"
)


class DuplicateKeys(JobError):
    """Sample keys occur more than once, so that samples cannot be loaded by key.

    Parameters
    ----------
    path
        The index.
    keys
        Up to 10,000 keys, each with its shards (names, or tar_file_ids where the names are unknown).
    total
        The number of keys that occur more than once.
    """

    def __init__(self, path: PathLike, keys: Sequence[tuple[str, Sequence[int | str]]], total: int) -> None:
        self.path, self.keys, self.total = os.fspath(path), keys, total
        named = "; ".join(f"{key!r} in {', '.join(map(str, shards))}" for key, shards in keys[:_MAX_LISTED])
        more = f"; and {total - _MAX_LISTED} more" if total > _MAX_LISTED else ""
        many = "1 sample key occurs" if total == 1 else f"{total} sample keys occur"
        super().__init__(f"{many} more than once: {named}{more}")

    def __reduce__(self) -> tuple[type[DuplicateKeys], tuple[str, Sequence[tuple[str, Sequence[int | str]]], int]]:
        return type(self), (self.path, self.keys, self.total)


def write_sample_index(path: PathLike, scans: Iterable[ShardScan], *, mode: int | None = None) -> int:
    """Write the index of these shards, numbered from 0; return the number of samples.

    mode: permissions of the file. An existing index is replaced when the new one is complete. Raises as `IndexWriter`.
    """
    with IndexWriter(path, mode=mode) as writer:
        n_samples = 0
        for tar_file_id, scan in enumerate(scans):
            writer.add(tar_file_id, scan)
            n_samples += len(scan.sample_keys)
    return n_samples


class IndexWriter:
    """Write an `index.sqlite` shard by shard, in order; the file is replaced when the with block ends without error.

    previous: an older index, from which shards (`copy`) and media metadata (`copy_media`) can be copied.
    sample_tables=False leaves out the tables of samples and fields. resume: continue the work of a killed writer with
    the same `purpose`; `done` then lists the shards that it noted (`note`), unless the machine was rebooted meanwhile.
    With `resume`, an error keeps the work for the next writer; with `resumable`, an interrupt does, and `is_kept` says
    whether a shard was noted. Raises FormatError for a key or field name that is not UTF-8, with the shard and the
    sample's offset, and DuplicateKeys at the end of the block.
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
    def done(self) -> list[ShardRecord]:
        """Shards that a killed writer noted."""
        return self._staging.done

    def start_over(self) -> None:
        """Discard the work of a killed writer."""
        if self.done:
            self._staging.start_over()

    def add(self, tar_file_id: int, scan: ShardScan) -> None:
        """Add the samples and fields of one shard."""
        if self._sample_tables:
            self._staging.add_shard(tar_file_id, scan)

    def note(self, shard: ShardRecord) -> None:
        """Record that a shard is complete, so that a resumed run skips it."""
        self._staging.note(shard)
        self.is_kept = True

    def copy(self, tar_file_id: int, old_tar_file_id: int, n_samples: int | None = None) -> None:
        """Copy the rows of one shard from the previous index.

        Raises FormatError if it cannot be read, or does not have `n_samples` samples of the shard; no rows are then
        added.
        """
        if not self._sample_tables:
            return
        if self._copy_pages(tar_file_id, old_tar_file_id, n_samples):
            return
        samples = self._old_rows(_OLD_SAMPLES, tar_file_id, old_tar_file_id)
        fields = self._old_rows(_OLD_FIELDS, tar_file_id, old_tar_file_id)
        found = sum(len(keys) for _, keys in samples)
        if n_samples is not None and found != n_samples:
            assert self._previous is not None
            raise FormatError(self._previous, 0, f"{found} samples of shard {old_tar_file_id}", f"{n_samples} of them")
        for columns, keys in samples:
            self._staging.add_samples(columns, keys)
        for columns, names in fields:
            self._staging.add_fields(columns, names)

    def copy_media(self) -> None:
        """Copy the media metadata of the previous index, if any."""
        if self._previous is not None:
            self._staging.add_media(["copy"])

    def add_media(self, rows: Iterable[tuple[str, str, str]], found_by: tuple[str, str]) -> None:
        """Add media metadata: (entry key, type, JSON) rows, which replace older rows of the same key.

        found_by: strategy and patterns of the filter, which are stored once.
        """
        for row in rows:
            self._staging.add_media(["row", *row])
        self._staging.add_media(["filter", *found_by])

    def commit(self) -> None:
        """Write all tables, and replace the target."""
        try:
            write_index_pages(self._file, self._staging.rows() if self._sample_tables else None)
        except RepeatedKeys as error:
            raise DuplicateKeys(self._file.path, error.keys, error.total) from None
        write_media(self._file.partial_path, self._staging.media(), self._previous)
        self._file.commit()
        self._staging.remove()
        self._close_old()

    def abort(self) -> None:
        """Remove what was written; a no-op after `commit()`."""
        self._close_old()
        self._staging.remove()
        self._file.abort()

    def suspend(self) -> None:
        """Stop, and keep the noted shards for a writer with `resume`."""
        self._staging.suspend()
        self.abort()

    def _copy_pages(self, tar_file_id: int, old_tar_file_id: int, n_samples: int | None) -> bool:
        """Copy the rows of a shard from the pages of the previous index; False if SQLite has to read them."""
        import sqlite3

        assert self._previous is not None
        try:
            if self._tables is None:
                self._old = self._old or connect_read_only(self._previous)
                self._tables = [TableRows(self._previous, self._old, sql) for sql in (SAMPLES_SQL, PARTS_SQL)]
            samples, fields = (table.of_shard(old_tar_file_id) for table in self._tables)
        except (sqlite3.DatabaseError, ValueError):
            self._tables = None
            return False
        if samples is None or fields is None or len(samples.numbers) != len(samples.lengths):
            return False
        if n_samples is not None and len(samples.numbers) != n_samples:
            return False  # `copy` raises the error
        self._staging.add_old_shard(tar_file_id, samples, fields)
        return True

    def _old_rows(
        self, query: str, tar_file_id: int, old_tar_file_id: int
    ) -> list[tuple[list[npt.NDArray[np.int64]], Sequence[bytes]]]:
        """Read the rows of a shard with SQLite, in batches: four columns, with the new number, and the texts."""
        import sqlite3

        assert self._previous is not None
        rows: list[tuple[list[npt.NDArray[np.int64]], Sequence[bytes]]] = []
        try:
            if self._old is None:
                self._old = connect_read_only(self._previous)
            cursor = self._old.execute(query, (old_tar_file_id,))
            while found := cursor.fetchmany(_BATCH_ROWS):
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
