"""The public functions that tokenise documents and pack them into token files."""

from __future__ import annotations

import os

from fastpack.argument_aliases import accept_aliases
from fastpack.documents.source_paths import Sources
from fastpack.errors import spoken, vocabulary
from fastpack.io import ExistencePolicy, PathLike, Progress
from fastpack.packing.modalities_config import Config, load_pack_settings
from fastpack.packing.output_formats import PackFormat
from fastpack.packing.pack_job import pack_files
from fastpack.packing.pack_result import PackResult as PackResult
from fastpack.packing.settings import (
    Engine,
    OnError,
    field_pattern,
    on_error_rule,
    settings_of,
)
from fastpack.packing.special_tokens import SpecialRule
from fastpack.tokenizers.interface import END_OF_TEXT, named_tokens
from fastpack.tokenizers.tokenizer_spec import TokenizerSpec

ARGUMENTS = {  # setting of a configuration -> argument of `pack`
    "settings.src_path": "sources",
    "settings.dst_path": "output",
    "settings.index_path": "index_path",
    "settings.jq_pattern": "jq_pattern",
    "settings.num_cpus": "num_workers",
    "settings.eod_token": "eos_token",
    "tokenizer.config.pretrained_model_name_or_path": "tokenizer",
    "tokenizer.config.tokenizer_model_file": "tokenizer",
}


@accept_aliases(
    dst_path="output",
    eod_token="eos_token",
    num_cpus="num_workers",
    file_existence_policy="if_exists",
    on_faulty="on_error",
)
def pack(
    sources: Sources,
    output: PathLike | None = None,
    *,
    tokenizer: PathLike,
    format: PackFormat | None = None,
    text_field: str = "text",
    jq_pattern: str | None = None,
    split_on: str | None = None,
    eos_token: str | None = None,
    eos_token_id: int | None = None,
    index_path: PathLike | None = None,
    num_workers: int | None = None,
    if_exists: ExistencePolicy = "error",
    on_error: OnError = "skip",
    engine: Engine = "auto",
    resume: bool = False,
    special_tokens_in_text: SpecialRule = "keep",
    audit: float | None = None,
    record_lines: bool = False,
    progress: Progress | None = None,
) -> PackResult:
    r"""Tokenise the documents of text sources and pack them into one token file.

    This is the command ``fastpack pack``. The bytes written depend on neither `num_workers` nor `engine`. The output
    appears complete under its name or not at all.

    Parameters
    ----------
    sources
        A file, a directory, a glob pattern, or a list of these. All documents go into one file, in order. JSON Lines
        (.jsonl, .ndjson, and files with another name), Parquet, Arrow (.arrow, .feather, and the directory that
        ``datasets.save_to_disk`` writes), CSV (.csv, .tsv; all of these need the extra ``arrow``) and plain text
        (.txt). JSON Lines, CSV and plain text may be compressed (.gz, .zst). A directory stands for its files of one
        format.
    output
        Path of the token file, or of the folder (``litdata``, ``mds``). ``megatron`` writes
        ``<output>_text_document.bin`` and ``.idx``, unless the output ends in .bin or .idx. Default for a single
        source: its stem with the suffix of the format. Required for several sources.
    tokenizer
        ``"bytes"`` (UTF-8 bytes as tokens 0 to 255, EOS 256), the path of a ``tokenizer.json``, the directory of a
        Hugging Face tokenizer, a SentencePiece ``.model`` file, or ``"ORG/NAME"`` on the Hugging Face Hub, which is
        downloaded unless it is in the local cache.
    format
        ``"pbin"`` (Modalities' packed file), ``"npy"`` or ``"bin"`` (a flat shard of uint16 or uint32 tokens, as
        `MemoryMappedDataset` reads it), ``"megatron"`` (the files of preprocess_data with ``--append-eod``),
        ``"datatrove"``, ``"olmo"``, ``"llmc"``, ``"nanogpt"``, ``"litdata"`` or ``"mds"``. Default: "npy" if `output`
        ends in .npy, else "pbin".
    text_field
        Key of the text in each document, or column; ``a.b`` is the key b in the object a.
    jq_pattern
        A jq pattern that selects the text of JSON Lines, in place of `text_field`. Patterns beyond a plain path need
        the extra ``jq``.
    split_on
        The text between two documents of a plain text file, which belongs to neither. Default: each such file is one
        document.
    eos_token, eos_token_id
        The token that ends each document, as text or as id. One of them is required, except for ``tokenizer="bytes"``.
    index_path
        Path of the byte-offset index of a single source. Default: its stem with the suffix .idx. A missing index is
        created. A stale default index is created again, with a `DataWarning`; a stale index that is passed here, or
        that belongs to another file (to ``a.json`` for ``a.jsonl``), only with ``if_exists="overwrite"``.
    num_workers
        Number of tokenising processes. Default: number of CPUs.
    if_exists
        What to do when the output exists: raise an error, keep it ("skip"), or overwrite it.
    on_error
        What to do with a document that cannot be packed: skip it and list it in the result, or raise.
    engine
        The library that tokenises. "auto" takes the fastest installed one that gives the same ids as the reference
        library on a sample of the documents and on probe texts.
    resume
        Continue an interrupted run of the same job from its last checkpoint. A finished output is kept. Only for the
        formats "pbin" and "npy".
    special_tokens_in_text
        What to do with a text that contains a special token, such as a literal ``<|endoftext|>``. "keep": encode it as
        that token, and warn of EOS tokens inside documents. "split": encode it as ordinary text (the ids of
        transformers with ``split_special_tokens=True``). "skip": skip the document. "error": raise. With SentencePiece
        this concerns only an EOS token that is a user-defined symbol.
    audit
        Share of the documents, from 0 to 1, to encode with the reference library as well when a faster engine is used.
        Default: as many as take 8 % of the time. The first difference ends the job with a `JobError`, and nothing is
        kept.
    record_lines
        Write ``<output>.lines``: 8 bytes per document, the source and the line or row that it comes from, which
        `trace` shows. Not with `resume`.
    progress
        Called with (bytes done, bytes in all) of the sources, first while the index is created, then while packing.

    Returns
    -------
    PackResult
        Path, number of documents and tokens, and the skipped lines.

    Raises
    ------
    ValueError
        For an argument out of range, a format that cannot hold the ids, a column that does not exist, a tokenizer that
        cannot be read, or, with ``on_error="raise"``, a document that cannot be packed; the message has the file, its
        line and byte offset or its row, and the reason.
    FileExistsError
        If the output exists and `if_exists` is "error" (this is also a ValueError).
    FileNotFoundError
        For a source or a tokenizer that does not exist.
    StaleIndex
        For an index that does not belong to its source and may not be replaced.
    FormatError
        For a damaged compressed, Parquet, Arrow or CSV source.
    JobError
        For sources without any JSON, if a worker process dies, or if another process writes the same output.

    See Also
    --------
    pack_encoded_data : The same job from a Modalities configuration.
    plan_packing : The result of a job, estimated without doing it.

    Examples
    --------
    >>> import tempfile
    >>> from pathlib import Path
    >>> import fastpack
    >>> folder = tempfile.TemporaryDirectory()
    >>> source = Path(folder.name, "corpus.jsonl")
    >>> _ = source.write_text('{"text": "hello"}\n{"text": ""}\n{"text": "world"}\n')
    >>> result = fastpack.pack(source, tokenizer="bytes", num_workers=1)
    >>> result.documents, result.tokens
    (2, 12)
    >>> result.skipped
    [{'line': 2, 'reason': 'empty text'}]
    >>> fastpack.PackedFile(result.path)[0].tolist()
    [104, 101, 108, 108, 111, 256]
    >>> folder.cleanup()
    """
    with vocabulary(ARGUMENTS):
        name = os.fspath(tokenizer)
        if eos_token is None and eos_token_id is None:
            eos_token = default_eos_token(name)
        settings = settings_of(
            sources,
            output,
            index_path=index_path,
            split_on=split_on,
            format=format,
            tokenizer=TokenizerSpec.from_name(name),
            text_pattern=field_pattern(text_field) if jq_pattern is None else jq_pattern,
            eos_token=eos_token,
            eos_token_id=eos_token_id,
            special_tokens_in_text=special_tokens_in_text,
            on_error=on_error,
            if_exists=if_exists,
            engine=engine,
            num_workers=(os.cpu_count() or 1) if num_workers is None else num_workers,
            audit=audit,
            resume=resume,
            record_lines=record_lines,
        )
        return pack_files(settings, progress=progress)[0]


@accept_aliases(file_existence_policy="if_exists", on_faulty="on_error")
def pack_encoded_data(
    config: Config,
    *,
    if_exists: ExistencePolicy = "error",
    on_error: OnError = "skip",
    engine: Engine = "auto",
    resume: bool = False,
    special_tokens_in_text: SpecialRule = "keep",
    audit: float | None = None,
    progress: Progress | None = None,
) -> PackResult:
    r"""Tokenise documents and pack them into one token file, as a Modalities configuration says.

    The output has the bytes that Modalities writes, whatever `num_workers` and `engine` are. Beyond Modalities,
    ``settings.src_path`` may be a list, a directory or a pattern, and name .gz or .zst files; a ``settings.dst_path``
    with the suffix .npy becomes a flat shard.

    Parameters
    ----------
    config
        Path of a YAML file, or a mapping with the same structure. A mapping may omit the three queue sizes.
    if_exists, on_error, engine, resume, special_tokens_in_text, audit, progress
        As for `pack`.

    Returns
    -------
    PackResult
        Path, number of documents and tokens, and the skipped lines.

    Raises
    ------
    ValueError
        For a value that is missing or wrong, with its key, and as for `pack`.
    FileExistsError, FileNotFoundError, StaleIndex, FormatError, JobError
        As for `pack`. A missing index of a single source is a FileNotFoundError: it is not created.

    See Also
    --------
    pack : The same job without a configuration.
    pack_each : One token file per source.

    Examples
    --------
    >>> import tempfile
    >>> from pathlib import Path
    >>> import fastpack
    >>> folder = tempfile.TemporaryDirectory()
    >>> source = Path(folder.name, "corpus.jsonl")
    >>> _ = source.write_text('{"text": "hello"}\n{"text": "world"}\n')
    >>> _ = fastpack.create_raw_index(source)
    >>> config = {
    ...     "settings": {
    ...         "src_path": source,
    ...         "dst_path": source.with_suffix(".pbin"),
    ...         "jq_pattern": ".text",
    ...         "num_cpus": 1,
    ...         "eod_token": "<|endoftext|>",
    ...     },
    ...     "tokenizer": {"component_key": "tokenizer", "variant_key": "builtin_bytes", "config": {}},
    ... }
    >>> fastpack.pack_encoded_data(config).tokens
    12
    >>> folder.cleanup()
    """
    settings = load_pack_settings(
        config,
        if_exists=if_exists,
        on_error=on_error_rule(on_error),
        engine=engine,
        resume=resume,
        special_tokens_in_text=special_tokens_in_text,
        audit=audit,
    )
    return pack_files(settings, progress=progress)[0]


@accept_aliases(file_existence_policy="if_exists", on_faulty="on_error")
def pack_each(
    config: Config,
    *,
    if_exists: ExistencePolicy = "error",
    on_error: OnError = "skip",
    engine: Engine = "auto",
    resume: bool = False,
    special_tokens_in_text: SpecialRule = "keep",
    audit: float | None = None,
    progress: Progress | None = None,
) -> list[PackResult]:
    r"""Pack each source of a Modalities configuration into a separate token file.

    The files are written next to their sources or, if ``settings.dst_path`` is given, in that folder, where the folders
    between the sources' common folder and each source are repeated. The worker processes share the work by bytes, not
    by files. `if_exists` and `resume` apply to each file: those that are finished are not packed again.

    Parameters
    ----------
    config
        Path of a YAML file, or a mapping with the same structure.
    if_exists, on_error, engine, resume, special_tokens_in_text, audit, progress
        As for `pack`.

    Returns
    -------
    list of PackResult
        One result per source, in order.

    Raises
    ------
    ValueError
        If two sources would have the same output, before anything is written, and as for `pack_encoded_data`.
    FileExistsError, FileNotFoundError, StaleIndex, FormatError, JobError
        As for `pack_encoded_data`.

    Examples
    --------
    >>> import tempfile
    >>> from pathlib import Path
    >>> import fastpack
    >>> folder = tempfile.TemporaryDirectory()
    >>> for name in "ab":
    ...     _ = Path(folder.name, f"{name}.jsonl").write_text('{"text": "hello"}\n')
    >>> config = {
    ...     "settings": {"src_path": folder.name, "jq_pattern": ".text", "num_cpus": 1, "eod_token": "<|endoftext|>"},
    ...     "tokenizer": {"component_key": "tokenizer", "variant_key": "builtin_bytes", "config": {}},
    ... }
    >>> [Path(result.path).name for result in fastpack.pack_each(config)]
    ['a.pbin', 'b.pbin']
    >>> folder.cleanup()
    """
    settings = load_pack_settings(
        config,
        per_source=True,
        if_exists=if_exists,
        on_error=on_error_rule(on_error),
        engine=engine,
        resume=resume,
        special_tokens_in_text=special_tokens_in_text,
        audit=audit,
    )
    return pack_files(settings, progress=progress)


def default_eos_token(tokenizer: str) -> str:
    """Return the EOS token of the tokenizer "bytes"; ValueError for another one, whose EOS token has to be named."""
    if tokenizer != "bytes":
        raise ValueError(missing_eos_text(tokenizer))
    return END_OF_TEXT


def missing_eos_text(tokenizer: str) -> str:
    """Return the message for a missing EOS token; raise what is wrong with the tokenizer itself."""
    known = named_tokens(TokenizerSpec.from_name(tokenizer).build().special_names())
    return f"{spoken('settings.eod_token')} is needed: the token of {tokenizer} that ends a document. {known}."
