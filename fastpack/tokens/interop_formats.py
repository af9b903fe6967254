"""The rows of the formats of other systems in the table of token formats.

Adding one means adding the module `fastpack.tokens.<name>`, with the functions of `FormatReader` and `FormatWriter`,
and one row here. Modules are imported when they are used.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Iterable
from functools import partial
from importlib import import_module
from typing import TYPE_CHECKING, Any, Protocol, cast

import numpy as np

from fastpack.analysis.file_facts import FileFacts
from fastpack.analysis.findings import Finding, VerifyReport
from fastpack.analysis.options import InspectOptions, VerifyOptions
from fastpack.errors import FormatError
from fastpack.io import SIDES, AnyPath, ExistencePolicy, TargetExists, as_path, exists
from fastpack.io.atomic_folder import INDEX
from fastpack.tokens.token_file import Rows, TokenFile, TokenFormat, TokenWriter

FOLDER_FORMATS = ("litdata", "mds")  # a dataset is a folder with an index.json


class FormatReader(Protocol):
    """The module that reads a format: `fastpack.tokens.<name of the format>`."""

    def fits(self, path: AnyPath) -> bool:
        """Return whether a file is of this format, by its first bytes and its side files, or a folder by its index."""
        ...

    def open_file(self, path: AnyPath, dtype: np.dtype[Any] | None, eos_token_id: int | None, /) -> TokenFile:
        """Open a file; dtype and EOS token: None for what the file says."""
        ...


class FormatWriter(Protocol):
    """The module that writes a format; by default the same."""

    def create(self, path: AnyPath, dtype: np.dtype[Any], policy: ExistencePolicy) -> TokenWriter:
        """Create a file."""
        ...

    def predicted_size(self, n_tokens: int, token_size: int, documents: Iterable[Rows]) -> int:
        """Return the size in bytes of the files, or of the chunks in a folder."""
        ...


WRITERS = {"mds": "mds_writer"}  # modules of their own

if TYPE_CHECKING:  # modules are imported by name when they are used; here type checkers compare them with the protocols
    from fastpack.tokens import datatrove, litdata, llmc, mds, mds_writer, megatron, nanogpt, olmo

    _READERS: tuple[FormatReader, ...] = (megatron, datatrove, olmo, llmc, nanogpt, litdata, mds)
    _WRITERS: tuple[FormatWriter, ...] = (megatron, datatrove, olmo, llmc, nanogpt, litdata, mds_writer)


def _reader(name: str) -> FormatReader:
    return cast(FormatReader, import_module(f"fastpack.tokens.{name}"))


def _writer(name: str) -> FormatWriter:
    return cast(FormatWriter, import_module(f"fastpack.tokens.{WRITERS.get(name, name)}"))


def is_interop(path: AnyPath, names: Collection[str] | None, *formats: str) -> bool:
    """Return whether a path is of one of these formats, which share a suffix with others; its contents tell."""
    return any(row.detect(path, names) for row in INTEROP_FORMATS if row.name in formats)


def _detect(name: str, path: AnyPath, names: Collection[str] | None) -> bool:
    if (names is not None) != (name in FOLDER_FORMATS):  # before anything is imported
        return False
    if INDEX not in names if names is not None else path.suffix == ".pbin" and exists(path):
        return False
    return _reader(name).fits(path)


def _open(name: str, path: AnyPath, dtype: np.dtype[Any] | None, eos_token_id: int | None) -> TokenFile:
    return _reader(name).open_file(path, dtype, eos_token_id)


def refuse_other_index(path: AnyPath) -> None:
    """Raise TargetExists if Megatron's index of another file lies where it would be taken for that of `path`."""
    if path.suffix == ".bin" and is_interop(path.with_suffix(".idx"), None, "megatron"):
        raise TargetExists(
            f"{path.with_suffix('.idx')} is a Megatron index, which would be taken for that of {path.name}: "
            "remove it, or choose another output"
        )


def _create(name: str, path: AnyPath, dtype: np.dtype[Any], policy: ExistencePolicy) -> TokenWriter:
    if name in ("llmc", "nanogpt"):
        refuse_other_index(path)
    return _writer(name).create(path, dtype, policy)


def _predict(name: str, n_tokens: int, token_size: int, documents: Iterable[Rows]) -> int:
    return _writer(name).predicted_size(n_tokens, token_size, documents)


def _check(name: str, path: AnyPath, report: VerifyReport, options: VerifyOptions) -> None:
    from fastpack.tokens.check_token_file import check_token_file

    try:
        with _open(name, path, None, None) as tokens:
            check_token_file(tokens, report, options)
    except FormatError as error:
        report.take(Finding.of(error))


def _facts(name: str, path: AnyPath, options: InspectOptions) -> FileFacts:
    from fastpack.tokens.flat.shard_warnings import token_dtype
    from fastpack.tokens.token_file_facts import token_file_facts

    dtype = None if options.dtype is None else token_dtype(options.dtype)
    with _open(name, path, dtype, options.eos_token_id) as tokens:
        return token_file_facts(tokens, name, options)


def _row(
    name: str,
    description: str,
    suffixes: tuple[str, ...],
    *,
    dtypes: tuple[str, ...],
    loses: str,
    stores_documents: bool = True,
    stores_empty: bool = True,
) -> TokenFormat:
    return TokenFormat(
        name=name,
        kind=name,
        description=description,
        suffixes=suffixes,
        stores_documents=stores_documents,
        stores_empty=stores_empty,
        dtypes=dtypes,
        loses=loses,
        detect=partial(_detect, name),
        open=partial(_open, name),
        create=partial(_create, name),
        predict_size=partial(_predict, name),
        check=partial(_check, name),
        facts=partial(_facts, name),
    )


def output_path(name: str, path: AnyPath) -> AnyPath:
    """Return the path of an output as `open_tokens` accepts it: formats of several files complete the given name."""
    text = os.fspath(path)
    if name == "megatron":
        from fastpack.tokens.megatron import prefix_of

        return as_path(prefix_of(text))
    if name == "datatrove":
        from fastpack.tokens.datatrove import tokens_path

        return as_path(tokens_path(text))
    return as_path(f"{text}.npy") if name == "olmo" and not text.endswith(".npy") else path


def output_files(name: str, path: AnyPath) -> list[AnyPath]:
    """Return the files of an output with the path that `output_path` returns, or its first file; the tokens come first.

    Of a folder, these are the files in it. The side file of the tokenizer is not one of them.
    """
    text = os.fspath(path)
    match name:
        case "megatron":
            from fastpack.tokens.megatron import prefix_of

            prefix = prefix_of(text)
            return [as_path(f"{prefix}.bin"), as_path(f"{prefix}.idx")]
        case "datatrove":
            return [path, as_path(f"{text}.index"), as_path(f"{text}.metadata")]
        case "olmo":
            from fastpack.tokens.olmo import csv_path

            return [path, as_path(csv_path(text))]
    return sorted(file for file in path.iterdir() if file.suffix not in SIDES) if path.is_dir() else [path]


def first_output(name: str, path: AnyPath) -> AnyPath:
    """Return the file of the tokens, or the folder, of an output."""
    target = output_path(name, path)
    return target if name in FOLDER_FORMATS else output_files(name, target)[0]


INTEROP_FORMATS = (
    _row(
        "megatron",
        "an indexed dataset of Megatron (.bin and .idx)",
        (".idx",),
        dtypes=("uint8", "int8", "int16", "uint16", "int32", "int64"),
        loses="sequence boundaries inside documents, and modes, when it is read; there is no uint32",
    ),
    _row(
        "datatrove",
        "a tokenised file of datatrove (.ds with .index)",
        (".ds",),
        dtypes=("uint16", "uint32"),
        loses="the name of the tokenizer",
    ),
    _row(
        "olmo",
        "raw tokens of OLMo (.npy with .csv.gz)",
        (".npy",),
        dtypes=("uint8", "uint16", "uint32", "uint64"),
        loses="ids and sources of documents in the side file; tokens after its last document are dropped and counted",
    ),
    _row(
        "llmc",
        "a token file of llm.c (.bin with a header)",
        (".bin",),
        dtypes=("uint16", "uint32"),
        stores_documents=False,
        loses="document boundaries, unless EOS tokens mark them; at most 2^31 - 1 tokens",
    ),
    _row(
        "nanogpt",
        "raw uint16 tokens of nanoGPT (.bin)",
        (".bin",),
        dtypes=("uint16",),
        stores_documents=False,
        loses="document boundaries, unless EOS tokens mark them; never detected, because it looks like `bin`",
    ),
    _row(
        "litdata",
        "a folder of token chunks of litData",
        (),
        dtypes=("uint8", "int8", "int16", "uint16", "int32", "uint32", "int64", "uint64"),
        loses="nothing; chunks must be smaller than 4 GiB",
    ),
    _row(
        "mds",
        "a folder of MDS shards (MosaicML Streaming)",
        (),
        stores_empty=False,
        dtypes=("uint8", "int8", "int16", "uint16", "int32", "uint32", "int64", "uint64"),
        loses="empty documents, which are counted, and columns other than the tokens; shards smaller than 4 GiB",
    ),
)
