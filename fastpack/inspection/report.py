"""A self-contained HTML page about datasets."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from fastpack.analysis.options import InspectOptions
from fastpack.argument_aliases import accept_aliases
from fastpack.display import Result, facts
from fastpack.errors import JobError
from fastpack.inspection.curation.look import Looks, Source
from fastpack.inspection.page import draw_page
from fastpack.inspection.report_data import gather
from fastpack.io import AnyPath, AtomicFile, ExistencePolicy, PathLike, Progress, as_path, may_write, names_in
from fastpack.loading.config import DataConfig, load_config
from fastpack.loading.mixing import probabilities
from fastpack.tokens.formats import formats_of, is_side_file
from fastpack.webdataset.metadata import meta_path

SAMPLES = 5  # random documents


@dataclass(frozen=True, slots=True, repr=False)
class ReportResult(Result):
    """Hold the result of `report`.

    Attributes
    ----------
    path
        The page.
    numbers
        All numbers on the page, with the keys of `fastpack report --json` from `sources` on; None if a page existed
        and was kept.

    Examples
    --------
    >>> import tempfile, fastpack
    >>> folder = tempfile.TemporaryDirectory()
    >>> with fastpack.PackedWriter(f"{folder.name}/a.pbin", 2) as writer:
    ...     writer.append_many([1, 0, 2, 2, 0], [2, 3])
    >>> result = fastpack.report(writer.path, f"{folder.name}/report.html")
    >>> result.numbers["bytes"], result.numbers["tokens"]
    (50, 5)
    >>> fastpack.report(writer.path, result.path, if_exists="skip").numbers is None
    True
    >>> folder.cleanup()
    """

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


@accept_aliases(file_existence_policy="if_exists")
def report(
    paths: PathLike | Sequence[PathLike],
    output: PathLike,
    *,
    eos_token_id: int | None = None,
    vocab_size: int | None = None,
    dtype: str | None = None,
    text_field: str | None = None,
    split_on: str | None = None,
    tokenizer: str | None = None,
    by: str | None = None,
    samples: int = SAMPLES,
    seed: int = 0,
    quick: bool = False,
    check: bool = True,
    title: str | None = None,
    if_exists: ExistencePolicy = "error",
    progress: Progress | None = None,
) -> ReportResult:
    """Write an HTML page about datasets: sample documents, duplicates, lengths, packing, token ids, files, warnings.

    The page is one file, usually of less than 300 KB, that loads no other files and runs no scripts. All tokens and
    texts are read twice, and three times with `check`.

    Parameters
    ----------
    paths
        One path or several that `inspect` reads. A folder of packed files stands for each of them, and a `.toml` file
        for the datasets of its KempnerForge `[data]` table, with their weights.
    output
        The page.
    eos_token_id, dtype, text_field, split_on
        As in `inspect`. With `dtype`, `check` skips the shards, whose dtype `verify` determines itself.
    vocab_size
        The vocabulary size, for the share of the vocabulary that occurs. By default that of tatm's metadata, else the
        largest id plus 1.
    tokenizer
        The tokenizer that decodes tokens, as in `pack`; "none" for none. By default, the one that is recorded for a
        token file, if it is found next to it. With a tokenizer, sample texts are shown with their tokens.
    by
        The field of text sources by whose values the shares are shown; `a.b` is the field b of a.
    samples
        The number of random documents on the page; 0 shows no documents and no images.
    seed
        Seed of the random choice.
    quick
        Read no tokens and texts: only what headers and indexes say. Implies `check=False`.
    check
        Include the findings of `verify`.
    title
        Title of the page. By default the name of the dataset, or the number of datasets.
    if_exists
        What to do if `output` exists: "error", "skip" or "overwrite".
    progress
        Called with (bytes done, total bytes).

    Returns
    -------
    ReportResult
        The path of the page and the numbers on it.

    Raises
    ------
    FileNotFoundError
        If a path does not exist.
    FormatError
        If a file is damaged.
    JobError
        If a path has no known format.
    ValueError
        If a TOML file cannot be read.
    TargetExists
        If `output` exists and the policy is "error".

    Examples
    --------
    >>> import fastpack, tempfile
    >>> folder = tempfile.TemporaryDirectory()
    >>> with fastpack.PackedWriter(f"{folder.name}/a.pbin", 2) as writer:
    ...     writer.append_many([1, 0, 2, 2, 0], [2, 3])
    >>> result = fastpack.report(writer.path, f"{folder.name}/report.html")
    >>> result.numbers["documents"], result.numbers["tokens"]
    (2, 5)
    >>> folder.cleanup()
    """
    if not may_write(output, if_exists):
        return ReportResult(os.fspath(output), None)
    given = [paths] if isinstance(paths, str | os.PathLike) else list(paths)
    sources = [source for path in given for source in _sources(as_path(path))]
    options = InspectOptions(
        eos_token_id=eos_token_id,
        dtype=dtype,
        text_field=text_field,
        split_on=split_on,
        quick=quick,
        progress=progress,
    )
    looks = Looks(options=options, tokenizer=tokenizer, by=by, seed=seed, n_samples=samples)
    numbers = gather(sources, options, vocab_size=vocab_size, check=check and not quick, looks=None if quick else looks)
    page = draw_page(numbers, title or _title(sources))
    with AtomicFile(output, policy=if_exists) as file:
        file.write(page.encode())
    return ReportResult(os.fspath(output), numbers)


def _has_documents(path: AnyPath) -> bool:
    """Return whether a file is a token file that stores documents; False for its side files."""
    return not is_side_file(path) and any(row.stores_documents for row in formats_of(path))


def _sources(path: AnyPath) -> Iterator[Source]:
    if path.suffix == ".toml" and path.is_file():
        yield from _configured(path)
        return
    if path.is_dir() and not meta_path(path).is_dir() and not formats_of(path):
        names = [name for name in sorted(names_in(path)) if not name.startswith(".") and _has_documents(path / name)]
        yield from (Source(str(path / name), name) for name in names)
        if names:
            return
    yield Source(str(path), path.name or str(path))


def _configured(path: AnyPath) -> Iterator[Source]:
    """Yield the datasets of a KempnerForge configuration with the weights of its sampler."""
    config: DataConfig = load_config(path)
    if config.source == "dataset_path":
        yield Source(config.dataset_path, as_path(config.dataset_path).name)
        return
    if config.source != "datasets":
        raise JobError(f"{path}: [data] has neither datasets nor dataset_path")
    elsewhere = next((one.hf_name for one in config.datasets if not one.path), None)
    if elsewhere is not None:
        raise JobError(f"{path}: the dataset {elsewhere} is not on this machine: a report reads local shards only")
    weights = probabilities([one.weight for one in config.datasets], config.mix_temperature)
    for one, weight in zip(config.datasets, weights, strict=True):
        yield Source(one.path, one.name or as_path(one.path).name, weight)


def _title(sources: Sequence[Source]) -> str:
    return sources[0].name if len(sources) == 1 else f"{len(sources)} datasets"
