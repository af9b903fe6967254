"""Conversion of token files between formats."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from fastpack.argument_aliases import accept_aliases
from fastpack.display import Result, facts
from fastpack.io import POLICIES, ExistencePolicy, PathLike, Progress, as_path
from fastpack.tokens.common_fingerprint import common_fingerprint
from fastpack.tokens.convert_dtypes import check_ids, choose_dtype, open_checked
from fastpack.tokens.convert_outputs import Outputs, output_format
from fastpack.tokens.convert_sources import find_shards, open_shards
from fastpack.tokens.document_masks import corpus_mask
from fastpack.tokens.formats import format_named
from fastpack.tokens.interop_formats import output_path
from fastpack.tokens.shard_plan import token_count
from fastpack.tokens.token_corpus import TokenCorpus, joined
from fastpack.tokens.token_file import TokenFile


@dataclass(slots=True, repr=False)
class ConvertResult(Result):
    """The result of `convert`.

    Attributes
    ----------
    output
        The path of the output, as `open_tokens` accepts it; of shards, the path to which their numbers are added.
    format
        Its format.
    dtype
        The dtype of its tokens.
    n_documents
        Number of documents in the sources that were written; None if their boundaries are unknown.
    n_tokens
        Number of tokens that were written.
    n_empty_dropped
        Number of documents without tokens that were left out, because the format cannot store them.
    n_tokens_dropped
        Number of tokens that are in no document of their source, and were left out.
    written
        False if the output exists and was kept.
    eos_token_id
        The token that ends documents in the output, as it was given.
    outputs
        The paths of all outputs, as `open_tokens` accepts them: the shards in order, or only `output`.

    Examples
    --------
    >>> import tempfile, fastpack
    >>> folder = tempfile.TemporaryDirectory()
    >>> with fastpack.PackedWriter(f"{folder.name}/a.pbin", 2) as writer:
    ...     writer.append_many([5, 6, 0, 7, 0], lengths=[3, 2])
    >>> result = fastpack.convert(writer.path, f"{folder.name}/corpus", format="megatron")
    >>> result.format, result.dtype, result.n_documents, result.n_tokens
    ('megatron', 'uint16', 2, 5)
    >>> folder.cleanup()
    """

    _shown = facts("output", "format", documents="n_documents", tokens="n_tokens", dtype="dtype")

    output: str
    format: str
    dtype: str
    n_documents: int | None
    n_tokens: int
    n_empty_dropped: int = 0
    n_tokens_dropped: int = 0
    written: bool = True
    eos_token_id: int | None = field(default=None, repr=False)
    outputs: list[str] = field(default_factory=list)

    @property
    def digest(self) -> str:
        """The digest of the outputs, which are read for it: equal for the same documents in any format.

        It is the xxh3_128 of all tokens and then of all document ends, as little-endian int64. Raises MissingExtra if
        the extra `checksum` is not installed.
        """
        from fastpack.tokens.digest import corpus_digest

        dtype = self.dtype if format_named(self.format).name in ("bin", "olmo") else None
        with open_sources(self.outputs, self.format, dtype, self.eos_token_id) as files:
            return corpus_digest(TokenCorpus.of(joined(files, self.eos_token_id)))


@accept_aliases(file_existence_policy="if_exists")
def convert(
    sources: PathLike | Sequence[PathLike],
    output: PathLike,
    *,
    format: str | None = None,
    source_format: str | None = None,
    dtype: str | None = None,
    eos_token_id: int | None = None,
    shard_tokens: int | str | None = None,
    if_exists: ExistencePolicy = "error",
    mix_tokenizers: bool = False,
    progress: Progress | None = None,
) -> ConvertResult:
    """Convert token files to another format; several sources are concatenated in the given order.

    Parameters
    ----------
    sources
        One or more token files of any format, folders of shards, and patterns (`*`, `?`, `[...]`). The shards of a
        folder or pattern have one format and one dtype, and are used in natural order of their names: 9 before 10.
    output
        The output: a file, a folder (`litdata`, `mds`), or a path to which the format adds its suffixes (`megatron`).
        With `shard_tokens`, the shards have this path with a number.
    format
        The format of the output. By default it follows from the suffix: `.pbin`, `.npy`, `.bin`, `.idx` or `.ds`.
    source_format
        The format of the sources. By default it is detected.
    dtype
        The dtype of the tokens in sources that do not state it (`bin`, `olmo`, `nanogpt`). If all sources state
        theirs, the dtype of the output.
    eos_token_id
        The token that ends documents in sources without document boundaries.
    shard_tokens
        Write several outputs of at most this number of tokens: an integer, or a text such as "500M" or "1B". A document
        is never divided, and a larger one gets its own shard, if the format stores document boundaries; otherwise
        every shard but the last has exactly this length. In `litdata` and `mds`, it limits the chunks of one folder.
    if_exists
        What to do if the output exists: "error", "skip" or "overwrite". Existing shards are replaced together.
    mix_tokenizers
        Combine sources whose recorded tokenizers differ, with a DataWarning (see `TokenizerFingerprint`). By default
        they are refused.
    progress
        Called with (bytes of tokens read, total bytes).

    Returns
    -------
    ConvertResult
        Paths, format and dtype of the outputs, numbers of documents and tokens, and what was left out.

    Raises
    ------
    FileNotFoundError
        If a source does not exist.
    FormatError
        If a source is damaged, or its format or dtype is not certain.
    ValueError
        If the format has no dtype that holds all ids, the document boundaries are needed and unknown, the tokenizers
        of the sources differ, a folder contains several formats, or an argument is wrong. Nothing is written then.
    TargetExists
        If the output exists and the policy is "error" (a ValueError and FileExistsError), or if it is the index of a
        JSONL file.

    Notes
    -----
    The output has the dtype of the sources where its format has it. Otherwise it has an integer dtype of the same or a
    larger width, and where ids might not fit, all of them are checked before anything is written.

    Shards without document boundaries (`npy`, `bin`, `nanogpt`, `llmc`) that have consecutive numbers and one length,
    except for a shorter last one, are read as one run of tokens: a document may continue in the next shard. Otherwise
    the end of a file ends a document.

    Examples
    --------
    >>> import tempfile, numpy, fastpack
    >>> folder = tempfile.TemporaryDirectory()
    >>> numpy.save(f"{folder.name}/tokens.npy", numpy.array([5, 6, 0, 7, 0], numpy.uint16))
    >>> result = fastpack.convert(f"{folder.name}/tokens.npy", f"{folder.name}/corpus.ds", eos_token_id=0)
    >>> result.n_documents, fastpack.open_tokens(result.output).document(0).tolist()
    (2, [5, 6, 0])
    >>> shards = fastpack.convert(result.output, f"{folder.name}/corpus.pbin", shard_tokens=3)
    >>> [path.rpartition("/")[2] for path in shards.outputs]
    ['corpus_00000.pbin', 'corpus_00001.pbin']
    >>> fastpack.convert(f"{folder.name}/corpus_*.pbin", f"{folder.name}/again.pbin").n_documents
    2
    >>> folder.cleanup()
    """
    given = [sources] if isinstance(sources, (str, os.PathLike)) else list(sources)
    outputs = outputs_of(output, format, if_exists, shard_tokens)
    if if_exists == "skip" and outputs.is_kept():
        return kept_result(outputs)
    with open_sources(given, source_format, dtype, eos_token_id) as files:
        outputs.check_sources(files, eos_token_id)
        target_dtype = choose_dtype(files, outputs.row, dtype)
        fingerprint = common_fingerprint(files, mix_tokenizers)
        for tokens in files:
            check_ids(tokens, target_dtype, outputs.row)
        whole = joined(files, eos_token_id)
        corpus = TokenCorpus.of(whole)
        result, lengths = describe(files, corpus, outputs, target_dtype, eos_token_id)
        paths = outputs.write(corpus, lengths, target_dtype, fingerprint, corpus_mask(whole), progress)
        return replace(result, outputs=list(map(str, paths)))


def outputs_of(
    output: PathLike, format: str | None, if_exists: ExistencePolicy, shard_tokens: int | str | None
) -> Outputs:
    """Return the outputs of a conversion; ValueError for wrong arguments."""
    if if_exists not in POLICIES:
        raise ValueError(f"if_exists: found {if_exists!r}, expected 'error', 'skip' or 'overwrite'")
    row = output_format(output, format)
    n_tokens = None if shard_tokens is None else token_count(shard_tokens)
    return Outputs(row, output_path(row.name, as_path(output)), if_exists, n_tokens)


@contextmanager
def open_sources(
    given: Sequence[PathLike], format: str | None, dtype: str | None, eos_token_id: int | None
) -> Iterator[list[TokenFile]]:
    """Open all token files that the sources stand for, in order; close them after the with block."""
    if not given:
        raise ValueError("no sources: pass at least one token file")
    with ExitStack() as stack:
        files: list[TokenFile] = []
        for path in given:
            found = find_shards(path, format)
            files += open_shards(found, lambda one: stack.enter_context(open_checked(one, format, dtype, eos_token_id)))
        yield files


def kept_result(outputs: Outputs) -> ConvertResult:
    """Return the result of a conversion whose output exists and is kept."""
    kept = list(map(str, outputs.existing()))
    return ConvertResult(str(outputs.target), outputs.row.name, "", None, 0, written=False, outputs=kept)


def describe(
    files: Sequence[TokenFile], corpus: TokenCorpus, outputs: Outputs, dtype: np.dtype[Any], eos_token_id: int | None
) -> tuple[ConvertResult, npt.NDArray[np.int64] | None]:
    """Return the result of writing a corpus, without the outputs, and the lengths of the documents that are written."""
    lengths, n_empty = corpus.lengths, 0
    if lengths is not None and not outputs.row.stores_empty:
        n_empty = int(np.count_nonzero(lengths == 0))
        lengths = lengths[lengths > 0] if n_empty else lengths
    result = ConvertResult(
        str(outputs.target),
        outputs.row.name,
        str(dtype),
        None if lengths is None else len(lengths),
        corpus.n_tokens,
        n_empty_dropped=n_empty,
        n_tokens_dropped=sum(tokens.n_tokens for tokens in files) - corpus.n_tokens,
        eos_token_id=eos_token_id,
    )
    return result, lengths
