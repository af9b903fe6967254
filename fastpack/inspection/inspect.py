"""Facts about files and datasets: contents, size, dtype, document lengths."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeAlias

from fastpack.analysis.file_facts import FileFacts
from fastpack.analysis.options import InspectOptions
from fastpack.errors import JobError
from fastpack.inspection.facts import FACTS, InspectResult
from fastpack.inspection.recorded_tokenizer import recorded_tokenizer
from fastpack.io import AnyPath, PathLike, Progress, as_path
from fastpack.tokens.formats import FORMATS, check_dataset_exists, formats_of
from fastpack.webdataset.metadata import meta_path

SEQ_LENS = (2048, 4096, 8192)

Inspector: TypeAlias = Callable[[AnyPath, InspectOptions], FileFacts]


def _jsonl_facts(path: AnyPath, options: InspectOptions) -> FileFacts:
    from fastpack.documents.jsonl_facts import jsonl_facts

    return jsonl_facts(path, options)


def _index_facts(path: AnyPath, options: InspectOptions) -> FileFacts:
    from fastpack.documents.jsonl_facts import index_facts

    return index_facts(path, options)


def _webdataset_facts(path: AnyPath, options: InspectOptions) -> FileFacts:
    from fastpack.webdataset.webdataset_facts import webdataset_facts

    return webdataset_facts(path, options)


# By suffix. Functions import what they need when they are called.
INSPECTORS: dict[str, Inspector] = {".jsonl": _jsonl_facts, ".idx": _index_facts}


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
) -> InspectResult:
    """Return facts about a file or dataset.

    Parameters
    ----------
    path
        A file or folder.
    eos_token_id
        The token that ends documents. By default it is guessed from the last tokens of documents or files.
    seq_lens
        Sequence lengths for which samples and cut documents are counted.
    dtype
        The dtype of `.bin` shards. By default it is that of tatm's metadata, or it is guessed from the size.
    quick
        Do not read tokens. The documents of shards, the share of EOS tokens and the largest id are then unknown.
    split_config, dataset_config
        Names of the files in `.nv-meta` to use instead of split.yaml and dataset.yaml.
    split_parts
        The splits of a WebDataset to report. By default all.
    progress
        Called with (bytes done, total bytes).

    Returns
    -------
    InspectResult
        A dict whose items are also attributes: path, kind, bytes, warnings (sentences), and others that depend on the
        kind. `JsonlFacts`, `IndexFacts`, `PackedFacts`, `ShardFacts`, `ManifestFacts` and `WebDatasetFacts` in
        `fastpack.inspection.facts` declare them with their types.

    Raises
    ------
    FileNotFoundError
        If there is no such file.
    FormatError
        If the file is damaged.
    JobError
        If the file has no known format.

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
    )
    facts = measure(path, options).facts
    return FACTS[facts["kind"]](facts)


def measure(path: PathLike, options: InspectOptions) -> FileFacts:
    """Return the facts, and the tables that `report` draws; raises as `inspect`."""
    where = as_path(path)
    check_dataset_exists(where)  # FileNotFoundError before an error about the format
    if where.is_dir() and meta_path(where).is_dir():
        return _webdataset_facts(where, options)
    rows = formats_of(where)
    if rows:
        found = rows[0].facts(where, options)
        found.facts["fingerprint"], differing = recorded_tokenizer(where, rows[0], options)
        found.facts["warnings"] += differing
        return found
    if where.is_dir():
        raise JobError(f"{where}: no .bin or .npy files in this folder")
    if where.suffix not in INSPECTORS:
        known = [*INSPECTORS, *(suffix for row in FORMATS for suffix in row.suffixes)]
        raise JobError(f"{where}: not a folder, nor one of {', '.join(known)}")
    return INSPECTORS[where.suffix](where, options)


def _checked(seq_lens: Sequence[int]) -> list[int]:
    wrong = next((seq_len for seq_len in seq_lens if seq_len < 1), None)
    if wrong is not None:
        raise ValueError(f"a sequence length of {wrong}: expected 1 or more")
    return sorted(set(seq_lens))
