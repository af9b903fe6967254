"""`inspect(path)`: what a file or folder is, how much it holds, of what dtype, and how long its documents are."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from importlib import import_module
from typing import Any

from fastpack.analysis.file_facts import FileFacts
from fastpack.analysis.options import InspectOptions
from fastpack.errors import JobError
from fastpack.io import AnyPath, PathLike, Progress, as_path, check_exists
from fastpack.webdataset.metadata import meta_path

SEQ_LENS = (2048, 4096, 8192)

# By suffix, and of folders, the function that measures, as "module:name": imported when it is needed.
_READERS = {
    ".jsonl": "documents.jsonl_facts:measure_lines",
    ".idx": "documents.jsonl_facts:measure_index",
    ".pbin": "tokens.pbin.packed_facts:measure_packed",
    ".npy": "tokens.flat.shard_facts:measure_shard",
    ".bin": "tokens.flat.shard_facts:measure_shard",
    ".fpm": "tokens.manifest.manifest_facts:measure_manifest",
}
_WEBDATASET, _FOLDER = "webdataset.webdataset_facts:measure_webdataset", "tokens.flat.shard_facts:measure_folder"


def inspect(
    path: PathLike,
    *,
    eos_token_id: int | None = None,
    seq_lens: Sequence[int] = SEQ_LENS,
    dtype: str | None = None,
    quick: bool = False,
    split_config: str = "split.yaml",
    dataset_config: str = "dataset.yaml",
    split_parts: Sequence[str] | None = None,
    progress: Progress | None = None,
) -> dict[str, Any]:
    """What `path` holds: {"path", "kind", "bytes", ...}, "warnings" being a list of sentences.

    kind "webdataset" (a folder with .nv-meta): as `measure_webdataset` says; "jsonl": lines, index and energon_index
    (their paths or None), energon_samples, line_bytes; "idx": entries, line_bytes; "pbin": generation,
    token_size_in_bytes, documents, tokens, document_tokens, eos_inside (EOS tokens that are not the last token of their
    document), documents_with_eos_inside; "shards" (a folder or one shard): format, files, dtypes,
    tokens, zero_tail (tokens that are unused space behind the last document), tokenizer and vocab_size (of tatm's
    metadata), file_tokens, documents, document_tokens; "manifest": manifest_bytes, files, dtypes, tokens, documents,
    checksums, times_count (whether modification times of shards have to be those it tells), file_tokens.
    line_bytes, sample_bytes, document_tokens and file_tokens are {"min", "p1", "p10", "p25", "median", "mean", "p75",
    "p90", "p99", "max"}, or None when there are none or they are not known. histogram: {"of": the name of one of these,
    "bins": [{"from", "to", "documents", "total"}]}, lengths from <= length < to.
    Where there are tokens: eos: {"id", "from" (how it is known), "tokens" (how many), "share"} or None; largest_id;
    samples_at: [{"seq_len", "modalities", "kempnerforge", ...}], how many samples of seq_len inputs each of these cuts.

    eos_token_id: what ends a document; without it, it is guessed from what documents or files end in. dtype: of `.bin`
    shards; without it what tatm's metadata says, else what their sizes do. quick: tokens are not read, so the documents
    of shards, the EOS share and the largest id are not known. split_config, dataset_config: other names in `.nv-meta`
    for split.yaml and dataset.yaml of a WebDataset; split_parts: the splits to report (default: all).
    progress(bytes done, in all).
    Raises FileNotFoundError, FormatError for a damaged file, JobError for what fastpack cannot read.
    """
    wanted = InspectOptions(
        eos_token_id=eos_token_id,
        seq_lens=_checked(seq_lens),
        quick=quick,
        progress=progress,
        dtype=dtype,
        split_config=split_config,
        dataset_config=dataset_config,
        split_parts=split_parts,
    )
    return measure(path, wanted).facts


def measure(path: PathLike, wanted: InspectOptions) -> FileFacts:
    """The facts, and the tables that they are made from; errors as of `inspect`."""
    where = as_path(path)
    if where.is_dir():
        return _reader(_WEBDATASET if meta_path(where).is_dir() else _FOLDER)(where, wanted)
    check_exists(where)  # FileNotFoundError before a word about suffixes
    if where.suffix not in _READERS:
        raise JobError(f"{where}: not a folder, nor one of {', '.join(_READERS)}")
    return _reader(_READERS[where.suffix])(where, wanted)


def _reader(named: str) -> Callable[[AnyPath, InspectOptions], FileFacts]:
    module, name = named.split(":")
    reader: Callable[[AnyPath, InspectOptions], FileFacts] = getattr(import_module(f"fastpack.{module}"), name)
    return reader


def _checked(seq_lens: Sequence[int]) -> list[int]:
    wrong = next((seq_len for seq_len in seq_lens if seq_len < 1), None)
    if wrong is not None:
        raise ValueError(f"a sequence length of {wrong}: it has to be 1 or more")
    return sorted(set(seq_lens))
