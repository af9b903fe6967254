"""Facts about files and datasets: contents, size, dtype, document lengths."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

from fastpack.analysis.file_facts import FileFacts
from fastpack.analysis.options import InspectOptions
from fastpack.documents.source_formats import BY_SUFFIX
from fastpack.documents.source_paths import find_tables, is_pattern
from fastpack.errors import JobError
from fastpack.inspection.facts import FACTS, InspectResult
from fastpack.inspection.loss_facts import loss_facts
from fastpack.inspection.recorded_tokenizer import recorded_tokenizer
from fastpack.io import AnyPath, PathLike, Progress, as_path
from fastpack.tokens.formats import FORMATS, check_dataset_exists, formats_of, open_tokens
from fastpack.webdataset.metadata import meta_path

TABLE_SUFFIXES = tuple(suffix for suffix, kind in BY_SUFFIX.items() if kind != "jsonl")
SEQ_LENS = (2048, 4096, 8192)
TOKEN_KINDS = {row.kind for row in FORMATS}

Inspector: TypeAlias = Callable[[AnyPath, InspectOptions], FileFacts]


def _jsonl_facts(path: AnyPath, options: InspectOptions) -> FileFacts:
    from fastpack.documents.jsonl_facts import jsonl_facts

    return jsonl_facts(path, options)


def _index_facts(path: AnyPath, options: InspectOptions) -> FileFacts:
    from fastpack.documents.jsonl_facts import index_facts

    return index_facts(path, options)


def _table_facts(path: AnyPath, files: Sequence[str], options: InspectOptions) -> FileFacts:
    from fastpack.documents.table_facts import table_facts

    return table_facts(path, files, options)


def _webdataset_facts(path: AnyPath, options: InspectOptions) -> FileFacts:
    from fastpack.webdataset.webdataset_facts import webdataset_facts

    return webdataset_facts(path, options)


def _plan_facts(path: AnyPath, options: InspectOptions) -> FileFacts:
    from fastpack.plans.plan_facts import plan_facts

    return plan_facts(path, options)


# By suffix. Functions import what they need when they are called.
INSPECTORS: dict[str, Inspector] = {".jsonl": _jsonl_facts, ".idx": _index_facts, ".plan": _plan_facts}


def inspect(
    path: PathLike,
    *,
    eos_token_id: int | None = None,
    seq_lens: Sequence[int] = SEQ_LENS,
    dtype: str | None = None,
    quick: bool = False,
    digest: bool = False,
    split_config: str = "split.yaml",
    dataset_config: str = "dataset.yaml",
    split_parts: Sequence[str] | None = None,
    text_field: str | None = None,
    split_on: str | None = None,
    progress: Progress | None = None,
) -> InspectResult:
    """Return facts about a file or dataset.

    Parameters
    ----------
    path
        A file or folder, or a pattern that matches Parquet, Arrow, CSV, TSV or plain text files.
    eos_token_id
        The token that ends documents. By default it is guessed from the last tokens of documents or files.
    seq_lens
        Sequence lengths for which samples are counted, and for which `packing` says what `plan` would give.
    dtype
        The dtype of `.bin` shards. By default it is that of tatm's metadata, or it is guessed from the size.
    quick
        Do not read tokens. The documents of shards, the share of EOS tokens and the largest id are then unknown.
    digest
        Add the digest of a token file: the xxh3_128 of all tokens and then of all document ends, as little-endian
        int64. It is equal for files with the same documents in any format. In formats without document boundaries,
        `eos_token_id` gives the ends; without it only the tokens are hashed.
    split_config, dataset_config
        Names of the files in `.nv-meta` to use instead of split.yaml and dataset.yaml.
    split_parts
        The splits of a WebDataset to report. By default all.
    text_field
        The column of the texts of Parquet, Arrow, CSV and TSV files; `a.b` is the field b of the column a. Default:
        "text", if there is such a column.
    split_on
        The text between two documents of a plain text file. Default: each such file is one document.
    progress
        Called with (bytes done, total bytes).

    Returns
    -------
    InspectResult
        A dict whose items are also attributes: path, kind, bytes, warnings (sentences), and others that depend on the
        kind. `JsonlFacts`, `TableFacts`, `IndexFacts`, `PackedFacts`, `ShardFacts`, `TokenFileFacts`, `ManifestFacts`,
        `PlanFacts` and `WebDatasetFacts` in `fastpack.inspection.facts` declare them with their types.

    Raises
    ------
    FileNotFoundError
        If there is no such file.
    FormatError
        If the file is damaged.
    JobError
        If the file has no known format.
    MissingExtra
        If pyarrow is needed, or the extra ``checksum`` for a digest, and is not installed.
    ValueError
        If a sequence length is below 1, `text_field` does not name a column of strings, or a digest is asked for a file
        that is not a token file.

    Examples
    --------
    >>> import tempfile, fastpack
    >>> folder = tempfile.TemporaryDirectory()
    >>> with fastpack.PackedWriter(f"{folder.name}/a.pbin", 2) as writer:
    ...     writer.append_many([1, 0, 2, 2, 0], [2, 3])
    >>> facts = fastpack.inspect(writer.path)
    >>> facts.kind, facts.documents, facts["tokens"], facts["eos"]["id"]
    ('pbin', 2, 5, 0)
    >>> folder.cleanup()
    """
    options = InspectOptions(
        eos_token_id=eos_token_id,
        seq_lens=_checked(seq_lens),
        quick=quick,
        progress=progress,
        dtype=dtype,
        split_config=split_config,
        dataset_config=dataset_config,
        split_parts=split_parts,
        text_field=text_field,
        split_on=split_on,
    )
    if digest and not formats_of(as_path(path)):
        check_dataset_exists(as_path(path))
        raise ValueError(f"{os.fspath(path)} is not a token file: it has no digest")
    found = measure(path, options)
    facts = found.facts
    if facts["kind"] in TOKEN_KINDS:
        facts["packing"] = _packing(found, options.seq_lens)
        facts["digest"] = _digest(path, dtype, eos_token_id) if digest else None
    return FACTS[facts["kind"]](facts)


def _packing(found: FileFacts, seq_lens: Sequence[int]) -> list[dict[str, Any]] | None:
    """Return what `plan` would give at each sequence length; None if the lengths of documents are unknown."""
    from fastpack.plans.packing_estimate import packing_rows

    if found.lengths is None or found.unit != "tokens" or found.facts.get("documents") is None:
        return None
    return [*packing_rows(found.lengths, {seq_len: found.cut.get(seq_len) for seq_len in seq_lens})]


def _digest(path: PathLike, dtype: str | None, eos_token_id: int | None) -> str:
    from fastpack.tokens.digest import token_digest

    with open_tokens(path, dtype=dtype, eos_token_id=eos_token_id) as tokens:
        return token_digest(tokens)


def measure(path: PathLike, options: InspectOptions) -> FileFacts:
    """Return the facts, and the tables that `report` draws; raises as `inspect`."""
    where = as_path(path)
    if not is_pattern(where):
        check_dataset_exists(where)  # FileNotFoundError before an error about the format
    if where.is_dir() and meta_path(where).is_dir():
        return _webdataset_facts(where, options)
    rows = formats_of(where)
    if rows:
        found = rows[0].facts(where, options)
        found.facts["fingerprint"], differing = recorded_tokenizer(where, rows[0], options)
        loss, damage = loss_facts(where, rows[0], options)
        found.facts |= loss
        found.facts["warnings"] += [*differing, *damage]
        return found
    if tables := find_tables(where):
        return _table_facts(where, tables, options)
    check_dataset_exists(where)  # a pattern without a match
    if where.is_dir():
        raise JobError(f"{where}: no .bin or .npy files in this folder, nor Parquet, Arrow, CSV or text files")
    if where.suffix not in INSPECTORS:
        formats = (suffix for row in FORMATS for suffix in row.suffixes)
        known = dict.fromkeys((*INSPECTORS, *TABLE_SUFFIXES, *formats))
        raise JobError(f"{where}: not a folder, nor one of {', '.join(known)}")
    return INSPECTORS[where.suffix](where, options)


def _checked(seq_lens: Sequence[int]) -> list[int]:
    wrong = next((seq_len for seq_len in seq_lens if seq_len < 1), None)
    if wrong is not None:
        raise ValueError(f"a sequence length of {wrong}: expected 1 or more")
    return sorted(set(seq_lens))
