"""Copy shards so that no key occurs twice: every file gets a folder named like its shard."""

from __future__ import annotations

import os
import re
import tarfile
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from fastpack.errors import JobError, spoken
from fastpack.io import AnyPath, AtomicFile, PathLike, Progress, TargetExists, same_file
from fastpack.io.dry_run import NoFile
from fastpack.webdataset import shard_index as webdataset
from fastpack.webdataset.preparation.discover import find_shards

_IGNORED = re.compile(r"__[^/]*__($|/)")  # files that do not belong to a sample, but would in a folder
_NAME = re.compile(r"((?:.*/|)[^.]+)[.]([^/]*)", re.DOTALL)


@dataclass(slots=True)
class RenamedShards:
    """The result of `fix_duplicates`: the samples of each copy, by the shard's path relative to both folders.

    bytes: size of all copies.
    """

    source: AnyPath
    target: AnyPath
    shards: dict[str, int] = field(default_factory=dict)
    bytes: int = 0

    @property
    def samples(self) -> int:
        """Number of samples in all copies."""
        return sum(self.shards.values())


def fix_duplicates(
    source: PathLike,
    target: PathLike,
    *,
    exclude: str | None = None,
    force_overwrite: bool = False,
    dry_run: bool = False,
    progress: Progress | None = None,
) -> RenamedShards:
    """Copy the shards of `source` to the folder `target`, each file `x.jpg` as `<path of the shard>/x.jpg`.

    These are the names that `energon prepare --fix-duplicates` gives in place; here `source` is not modified. A key
    that is repeated within its shard also gets a numbered folder. Sparse files are written in full. dry_run: write
    nothing. Raises FormatError for a damaged shard, TargetExists (a FileExistsError and ValueError) for an existing
    copy unless force_overwrite is set, and ValueError if a copy would replace its shard.
    """
    names = find_shards(source, exclude)
    if not names:
        raise JobError(f"{os.fspath(source)}: no .tar files")
    result = RenamedShards(Path(source), Path(target))
    for name in names:
        _check_target(result.source / name, result.target / name, force_overwrite)
    total, done = sum(os.path.getsize(result.source / name) for name in names), 0
    for name in names:
        n_samples = webdataset.scan_shard(result.source / name).n_samples  # raises for a damaged shard
        result.bytes += _copy(result.source / name, None if dry_run else result.target / name, name)
        copied = n_samples if dry_run else webdataset.scan_shard(result.target / name).n_samples
        if copied != n_samples:
            raise JobError(f"{result.target / name}: {copied} samples, {n_samples} in {result.source / name}")
        result.shards[name] = n_samples
        done += os.path.getsize(result.source / name)
        if progress is not None:
            progress(done, total)
    return result


def _check_target(source: AnyPath, target: AnyPath, force_overwrite: bool) -> None:
    if same_file(source, target):
        raise ValueError(f"the copy would replace the shard {source}: choose another folder")
    if target.exists() and not force_overwrite:
        raise TargetExists(f"{target} exists. {spoken('Pass force_overwrite=True')} to overwrite it.")


def _copy(source: AnyPath, target: AnyPath | None, folder: str) -> int:
    """Copy a shard, or compute only the size if `target` is None; return the size of the copy."""
    with (
        tarfile.open(source, "r:") as old,
        NoFile() if target is None else AtomicFile(target) as file,
        tarfile.TarFile(mode="w", fileobj=file, format=tarfile.GNU_FORMAT) as new,  # type: ignore[arg-type]
    ):
        if isinstance(file, AtomicFile):
            file.set_mode(os.stat(source).st_mode)
        for member, name in _renamed(old, folder):
            content = old.extractfile(member) if member.isreg() else None
            if member.islnk():
                member.linkname = f"{folder}/{member.linkname}"
            if content is not None:
                member.type = tarfile.REGTYPE
            member.name, member.pax_headers = name, {}
            new.addfile(member, content)
        new.close()
        return file.tell()


def _renamed(tar: tarfile.TarFile, folder: str) -> Iterator[tuple[tarfile.TarInfo, str]]:
    """Yield all members with their new names."""
    used: set[str] = set()
    key, prefix = None, folder
    for member in tar:
        if _IGNORED.match(member.name):
            yield member, member.name
            continue
        match = _NAME.fullmatch(member.name) if member.isreg() else None
        if match and match[1] != key:
            key, prefix, number = match[1], folder, 1
            while f"{prefix}/{key}" in used:
                number += 1
                prefix = f"{folder}/{number}"
            used.add(f"{prefix}/{key}")
        yield member, f"{prefix if match else folder}/{member.name}"
