"""Comparing files with their checksums, and writing checksums."""

from __future__ import annotations

from collections.abc import Sequence

from fastpack.analysis.findings import Finding, VerifyReport
from fastpack.errors import FormatError, MissingExtra
from fastpack.io import CHECKSUMS, SIDES, AnyPath, Progress, stat_of
from fastpack.io.checksums import compute_checksums, read_checksums, sidecar_path, write_checksums

_ANEW = "`fastpack verify --write-checksums` writes them anew"


def files_with_sums(path: AnyPath) -> list[AnyPath]:
    """Return the files with checksums: of a file and its indexes, or of a folder; a file may be missing."""
    return [file for file in _with_sums(path) if sidecar_path(file).is_file()]


def check_sums(files: Sequence[AnyPath], report: VerifyReport, parts: Sequence[Progress | None]) -> None:
    """Compare files with their checksums; `parts`: a progress callback per file."""
    for file, progress in zip(files, parts, strict=True):
        try:
            _check_file(file, report, progress)
        except MissingExtra as error:
            report.add(
                "warning", sidecar_path(file), None, f"checksums that were not looked at: {error}", "the package"
            )
            return
        except FormatError as error:
            report.take(Finding.of(error))
        except FileNotFoundError:
            report.add("error", file, None, "no file", f"one, whose checksums are in {sidecar_path(file).name}")


def files_to_sum(path: AnyPath) -> list[AnyPath]:
    """Return a file and its indexes, or all files of a folder."""
    return [file for file in (_files_of(path) if path.is_dir() else _with_sums(path)) if file.is_file()]


def write_sums(files: Sequence[AnyPath], report: VerifyReport, parts: Sequence[Progress | None]) -> None:
    """Write the checksums of files; `parts`: a progress callback per file."""
    for file, progress in zip(files, parts, strict=True):
        write_checksums(file, progress=progress)
        report.count(checksums_written=1)


def _check_file(path: AnyPath, report: VerifyReport, progress: Progress | None) -> None:
    said = read_checksums(path)
    status = stat_of(path)
    if status.st_size != said.size:
        expected = f"{said.size}, as when its checksums were written: {_ANEW}"
        report.add("error", path, min(status.st_size, said.size), f"a file of {status.st_size} bytes", expected)
        return
    found = compute_checksums(path, said.block_bytes, progress)
    report.count(blocks_hashed=len(found.blocks))
    wrong = [number for number, pair in enumerate(zip(found.blocks, said.blocks, strict=True)) if len(set(pair)) > 1]
    if wrong:
        touched = " (it was written to, or copied, since)" if status.st_mtime_ns != said.mtime_ns else ""
        text = f"{len(wrong)} of {len(said.blocks)} blocks of {said.block_bytes} bytes with other content{touched}"
        report.add("error", path, wrong[0] * said.block_bytes, text, f"that of the checksums; if it was meant, {_ANEW}")


def _with_sums(path: AnyPath) -> list[AnyPath]:
    """Return a file and its indexes, or the files of a folder that have checksums."""
    if path.is_dir():
        return sorted(side.with_name(side.name.removesuffix(CHECKSUMS)) for side in path.rglob(f"*{CHECKSUMS}"))
    beside = [path.with_suffix(".idx"), path.with_suffix(".jsonl.idx")] if path.suffix == ".jsonl" else []
    return [path, *beside]


def _files_of(folder: AnyPath) -> list[AnyPath]:
    """Return the files of a dataset, without partial files and checksums."""
    partial = (".partial", ".journal", CHECKSUMS, *SIDES)
    return sorted(file for file in folder.rglob("*") if file.is_file() and not file.name.endswith(partial))
