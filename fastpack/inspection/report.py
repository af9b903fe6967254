"""`report(paths, output)`: one HTML page about datasets, complete in itself."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from fastpack.display import Result, facts
from fastpack.errors import JobError
from fastpack.inspection.page import draw_page
from fastpack.inspection.report_data import Source, gather
from fastpack.io import AnyPath, AtomicFile, ExistencePolicy, PathLike, Progress, as_path, may_write
from fastpack.loading.config import DataConfig, load_config
from fastpack.loading.mixing import probabilities
from fastpack.webdataset.metadata import meta_path


@dataclass(frozen=True, slots=True, repr=False)
class ReportResult(Result):
    """path: the page; numbers: all that it shows, None where the page was there already and was kept."""

    _shown = facts(
        "path",
        sources=lambda self: self.numbers["sources"],
        documents=lambda self: self.numbers["documents"],
        tokens=lambda self: self.numbers["tokens"],
        bytes=lambda self: self.numbers["bytes"],
        warnings=lambda self: self.numbers["warnings"],
    )

    path: str
    numbers: dict[str, Any] | None = field(repr=False)


def report(
    paths: PathLike | Sequence[PathLike],
    output: PathLike,
    *,
    eos_token_id: int | None = None,
    vocab_size: int | None = None,
    dtype: str | None = None,
    check: bool = True,
    title: str | None = None,
    file_existence_policy: ExistencePolicy = "error",
    progress: Progress | None = None,
) -> ReportResult:
    """Write a page on what the datasets hold to `output`: lengths, packing, token ids, files, mixture, what is odd.

    paths: what `inspect` reads; a folder of packed files stands for each of them, and a `.toml` file for the datasets
    of its KempnerForge `[data]` table, with their weights. The page is one HTML file that loads nothing else, of less
    than 200 KB however large the data are. All tokens are read, once more where check=True: then what `verify` finds
    without looking deep is on the page too. eos_token_id and dtype: as of `inspect` (`verify` knows no dtype: shards
    that are read by one are left to it); vocab_size: of which the share that occurs is told, default what tatm's
    metadata says, else up to the largest id.

    numbers: {"sources": [{"name", "path", "kind", "unit", "bytes", "files", "documents", "tokens", "lengths", "eos"}],
    "bytes", "tokens", "documents", "lengths": {"unit", "of", "documents", "total", "summary", "bins"} or None,
    "packing": [{"seq_len", "blocks", "tokens_in_blocks", "documents_cut", "padding", "cut_off"}] or None (all but the
    first two are shares of 1; padding and cut_off: with one document a row), "ids": {"vocab_size", "distinct",
    "distinct_in_vocabulary", "largest", "counted_below", "tokens", "outside", "ranks", "top"} or None, "files": {
    "unit", "count", "files_per_bar", "summary", "bars"}, "mixture": {"unit", "parts"} or None, "warnings": [{"source",
    "severity", "text"}], "warnings_left_out"}.
    Raises as `inspect`, ValueError for a TOML file that cannot be read, TargetExists by `file_existence_policy`.
    """
    if not may_write(output, file_existence_policy):
        return ReportResult(os.fspath(output), None)
    given = [paths] if isinstance(paths, str | os.PathLike) else list(paths)
    sources = [source for path in given for source in _sources(as_path(path))]
    numbers = gather(
        sources, eos_token_id=eos_token_id, vocab_size=vocab_size, dtype=dtype, check=check, progress=progress
    )
    page = draw_page(numbers, title or _title(sources))
    with AtomicFile(output, policy=file_existence_policy) as file:
        file.write(page.encode())
    return ReportResult(os.fspath(output), numbers)


def _sources(path: AnyPath) -> Iterator[Source]:
    if path.suffix == ".toml" and path.is_file():
        yield from _configured(path)
        return
    if path.is_dir() and not meta_path(path).is_dir():
        names = sorted(os.listdir(path))
        packed = [name for name in names if name.endswith(".pbin") and not name.startswith(".")]
        if packed and not any(name.endswith((".bin", ".npy")) for name in names):
            yield from (Source(str(path / name), name) for name in packed)
            return
    yield Source(str(path), path.name or str(path))


def _configured(path: AnyPath) -> Iterator[Source]:
    """The datasets of a KempnerForge configuration, by the shares that its sampler gives them."""
    config: DataConfig = load_config(path)
    if config.source == "dataset_path":
        yield Source(config.dataset_path, as_path(config.dataset_path).name)
        return
    if config.source != "datasets":
        raise JobError(f"{path}: [data] names no datasets and no dataset_path that a report could be about")
    elsewhere = next((one.hf_name for one in config.datasets if not one.path), None)
    if elsewhere is not None:
        raise JobError(f"{path}: the dataset {elsewhere} is not on this machine: a report reads shards only")
    weights = probabilities([one.weight for one in config.datasets], config.mix_temperature)
    for one, weight in zip(config.datasets, weights, strict=True):
        yield Source(one.path, one.name or as_path(one.path).name, weight)


def _title(sources: Sequence[Source]) -> str:
    return sources[0].name if len(sources) == 1 else f"{len(sources)} datasets"
