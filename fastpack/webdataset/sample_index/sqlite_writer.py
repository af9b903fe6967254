"""Write `index.sqlite`: collect rows in staging files, then write the pages; see the package's page."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from fastpack.errors import INTERRUPTS, FormatError
from fastpack.io import AtomicFile, PathLike
from fastpack.webdataset.sample_index.media_tables import write_media
from fastpack.webdataset.sample_index.page_writer import PARTS_SQL, SAMPLES_SQL, write_index_pages
from fastpack.webdataset.sample_index.staging import ShardRecord, Staging
from fastpack.webdataset.sample_index.table_rows import TableRows

if TYPE_CHECKING:
    from fastpack.webdataset.shard_index import ShardScan


def write_sample_index(path: PathLike, scans: Iterable[ShardScan]) -> None:
    """Write the index of these shards, numbered from 0. Raises as `IndexWriter`."""
    with IndexWriter(path) as writer:
        for tar_file_id, scan in enumerate(scans):
            writer.add(tar_file_id, scan)


class IndexWriter:
    """Write an `index.sqlite` shard by shard, in order; the file is replaced when the with block ends without error.

    previous: an older index, from which shards (`copy`) and media metadata (`copy_media`) can be copied.
    sample_tables=False leaves out the tables of samples and fields. resume: continue the work of a killed writer with
    the same `purpose`; `done` then lists the shards that it noted (`note`), unless the machine was rebooted meanwhile.
    With `resume`, an error keeps the work for the next writer; with `resumable`, an interrupt does, and `is_kept` says
    whether a shard was noted. Raises DuplicateKeys at the end of the block.
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

    def copy(self, tar_file_id: int, old_tar_file_id: int, n_samples: int) -> None:
        """Copy the rows of one shard from the previous index.

        Raises FormatError if its pages cannot be read, or do not have `n_samples` samples of the shard; no rows are
        then added.
        """
        if not self._sample_tables:
            return
        import sqlite3  # 4 ms, which a first `prepare` does not need

        assert self._previous is not None
        try:
            if self._tables is None:
                self._tables = [TableRows(self._previous, sql) for sql in (SAMPLES_SQL, PARTS_SQL)]
            samples, fields = (table.of_shard(old_tar_file_id) for table in self._tables)
            found = len(samples.numbers)
            if found != n_samples or found != len(samples.lengths):
                raise ValueError(f"{found} samples of shard {old_tar_file_id}, not {n_samples} with different keys")
            self._staging.add_old_shard(tar_file_id, samples, fields)
        except (sqlite3.DatabaseError, ValueError, MemoryError) as error:
            raise FormatError(self._previous, 0, str(error) or "damage", "an index of samples") from None

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
        write_index_pages(self._file, self._staging.rows() if self._sample_tables else None)
        write_media(self._file.partial_path, self._staging.media(), self._previous)
        self._file.commit()
        self._staging.remove()

    def abort(self) -> None:
        """Remove what was written; a no-op after `commit()`."""
        self._staging.remove()
        self._file.abort()

    def suspend(self) -> None:
        """Stop, and keep the noted shards for a writer with `resume`."""
        self._staging.suspend()
        self.abort()

    def _is_worth_keeping(self, error: BaseException | None) -> bool:
        return self._resumable and self.is_kept and isinstance(error, INTERRUPTS)

    def __enter__(self) -> IndexWriter:
        return self

    def __exit__(self, _kind: object, error: BaseException | None, _trace: object) -> None:
        try:
            if error is None:
                self.commit()
            elif self._resume or self._is_worth_keeping(error):
                self.suspend()
        except INTERRUPTS as interrupt:  # of the commit
            if self._resume or self._is_worth_keeping(interrupt):
                self.suspend()
            raise
        finally:
            self.abort()
