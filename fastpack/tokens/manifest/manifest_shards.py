"""The shards of a manifest as a sequence of segments, which are created when they are accessed."""

from __future__ import annotations

import fnmatch
import os
import re
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from fastpack.errors import FormatError
from fastpack.io import PathLike, as_path, is_remote, matches_parts, stat_of
from fastpack.tokens.flat.shard_warnings import mixed_guesses, odd_lengths
from fastpack.tokens.flat.shards import scan_shards
from fastpack.tokens.manifest.manifest_file import DTYPES, PLAIN, RAW, Manifest
from fastpack.tokens.manifest.manifest_segment import ManifestSegment
from fastpack.tokens.token_segment import TokenSegment


class ManifestShards(Sequence[TokenSegment]):
    """The shards of a manifest, in its order: those numbered `chosen` (int64 [n]), or all.

    `lengths` are the rows of each, int64 [n]. It pickles as the path of the manifest; unpickling raises FormatError if
    another manifest is found there.
    """

    def __init__(
        self,
        manifest: Manifest,
        file_pattern: str,
        chosen: npt.NDArray[np.int64] | None,
        dtype: np.dtype[Any] | None = None,
    ) -> None:
        self.manifest, self.dtype = manifest, dtype
        self._file_pattern, self._chosen = file_pattern, chosen
        self._folder = as_path(manifest.path).parent
        self._segments: dict[int, TokenSegment] = {}
        self.lengths = self.column("lengths") if dtype is None else self.column("sizes") // dtype.itemsize

    def column(self, name: str) -> npt.NDArray[Any]:
        """Return a column of the manifest for these shards."""
        column: npt.NDArray[Any] = getattr(self.manifest, name)
        return column if self._chosen is None else column[self._chosen]

    @property
    def largest_item(self) -> int:
        """The largest token size of the shards in bytes."""
        sizes = {DTYPES[code].itemsize for code in set(self.column("dtypes").tolist())}
        return max(sizes) if self.dtype is None else self.dtype.itemsize

    def first_of_each_dtype(self) -> list[TokenSegment]:
        """Return the first shard of each dtype."""
        return [self[int(number)] for number in np.unique(self.column("dtypes"), return_index=True)[1]]

    def paths(self) -> list[str]:
        """Return the paths of all shards."""
        names, folder = self.manifest.names(), os.fspath(self._folder)
        chosen = names if self._chosen is None else [names[number] for number in self._chosen.tolist()]
        return [f"{folder}/{name}" for name in chosen]

    def __len__(self) -> int:
        return self.manifest.n_shards if self._chosen is None else len(self._chosen)

    def __getitem__(self, number: Any) -> Any:
        shard = self._segments.get(number)
        if shard is None:
            if not 0 <= number < len(self):
                raise IndexError(f"shard {number} of {len(self)}")
            shard = self._segments[number] = self._segment(number)
        return shard

    def _segment(self, number: int) -> TokenSegment:
        manifest, row = self.manifest, number if self._chosen is None else int(self._chosen[number])
        time_ns = int(manifest.mtimes_ns[row]) if manifest.times_count else None
        return ManifestSegment(
            os.fspath(self._folder / manifest.name(row)),
            DTYPES[manifest.dtypes[row]] if self.dtype is None else self.dtype,
            int(self.lengths[number]),
            int(manifest.offsets[row]),
            plain=bool(manifest.kinds[row] & PLAIN),
            stamp=(int(manifest.sizes[row]), time_ns, None),
            manifest=manifest.path,
        )

    def check_used(self) -> None:
        """Raise FormatError if a shard that was accessed has another size or time than the manifest says.

        Objects in a store are not checked: reads use the version that was opened.
        """
        if is_remote(self.manifest.path):
            return
        for shard in list(self._segments.values()):
            assert shard.stamp is not None
            size, time_ns, _ = shard.stamp
            status = stat_of(shard.path)
            if status.st_size != size or time_ns not in (None, status.st_mtime_ns):
                shard.check_unchanged()

    def read_as(self, dtype: np.dtype[Any] | None) -> Sequence[TokenSegment]:
        """Return these shards, with another dtype for headerless ones; raises as `scan_shards`.

        If headerless files and others are mixed, all are scanned: the first decides the format of all.
        """
        raw = (self.column("kinds") & RAW) != 0
        if (raw != raw[0]).any() or (dtype is not None and not raw[0]):
            return scan_shards([as_path(shard.path) for shard in self], dtype)
        return self if dtype is None else ManifestShards(self.manifest, self._file_pattern, self._chosen, dtype)

    def __reduce__(self) -> tuple[Any, ...]:
        return _reopen, (self.manifest.path, self._file_pattern, self.dtype, self.manifest.crc)


def open_shards(path: PathLike, file_pattern: str) -> ManifestShards:
    """Return the shards of a manifest whose names match, as `find_shards` for a folder; FileNotFoundError if none."""
    manifest = Manifest(path)
    pattern = file_pattern.removeprefix("**/")
    ending = pattern[1:]
    simple = pattern.startswith("*") and not set("*?[/\0") & set(ending)
    if simple and manifest.all_end_with(ending, in_folder=pattern == file_pattern):
        return ManifestShards(manifest, file_pattern, None)
    names = manifest.names()
    if "/" in file_pattern or "**" in file_pattern:
        components = file_pattern.split("/")
        found = [number for number, name in enumerate(names) if matches_parts(name.split("/"), components)]
    else:
        match = re.compile(fnmatch.translate(file_pattern)).match
        found = [number for number, name in enumerate(names) if match(name) and "/" not in name]
    if not found:
        raise FileNotFoundError(f"No files matching {file_pattern!r} in {os.fspath(path)}")
    return ManifestShards(manifest, file_pattern, None if len(found) == len(names) else np.array(found, np.int64))


def _reopen(path: str, file_pattern: str, dtype: np.dtype[Any] | None, crc: int) -> ManifestShards:
    shards = open_shards(path, file_pattern)
    if shards.manifest.crc != crc:
        found = f"a manifest with the CRC-32 {shards.manifest.crc:#010x}"
        raise FormatError(path, 12, found, f"{crc:#010x}, as when the dataset was opened")
    return shards if dtype is None else ManifestShards(shards.manifest, file_pattern, shards._chosen, dtype)


def lengths_of(shards: Sequence[TokenSegment]) -> npt.NDArray[np.int64]:
    """Return the rows of each shard, int64 [n]."""
    if isinstance(shards, ManifestShards):
        return shards.lengths
    return np.fromiter((shard.length for shard in shards), np.int64, len(shards))


def first_odd(shards: Sequence[TokenSegment]) -> TokenSegment | None:
    """Return the first shard that is not plain; None if all are."""
    if isinstance(shards, ManifestShards):
        odd = (shards.column("kinds") & PLAIN) == 0
        return shards[int(odd.argmax())] if odd.any() else None
    return next((shard for shard in shards if not shard.plain), None)


def manifest_warnings(shards: Sequence[TokenSegment], *, dtype_is_given: bool, tail_is_trimmed: bool) -> list[str]:
    """Return warnings as `find_warnings`, from the manifest alone."""
    assert isinstance(shards, ManifestShards)
    manifest, warnings = shards.manifest, list[str]()
    if not (shards.column("kinds") & RAW).any():
        return warnings
    codes = shards.column("dtypes")
    sizes = np.array([dtype.itemsize for dtype in DTYPES])[codes] if shards.dtype is None else shards.dtype.itemsize
    odd = shards.column("sizes") % sizes != 0
    if odd.any():
        warnings.append(odd_lengths(shards[int(odd.argmax())], int(np.count_nonzero(odd)), len(shards)))
    if not dtype_is_given and not manifest.dtype_is_given:
        if (codes != codes[0]).any():
            warnings.append(mixed_guesses(shards[0]))
        elif manifest.dtype_is_doubtful:
            warnings.append(
                f"{manifest.path} guesses the dtype of headerless files from their sizes, and the guess is doubtful: "
                'recreate it with --dtype, or pass dtype="uint16" (or the right one)'
            )
    if not tail_is_trimmed and manifest.has_zero_tail:
        warnings.append(
            f"shards that {manifest.path} names ended in zeros when it was written, as tatm's files do after the last "
            "document: samples of them are all token 0. Pass trim_zero_tail=True to leave them out"
        )
    return warnings
