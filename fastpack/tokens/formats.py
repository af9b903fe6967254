"""The table of token formats, and `open_tokens`, which finds the row for a file.

Adding a format means adding a module or sub-package with its reader, writer, checks and facts, and one row here. The
functions of a row import their module when they are called, so that a command loads only what it uses.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Iterable
from typing import Any

import numpy as np

from fastpack.analysis.file_facts import FileFacts
from fastpack.analysis.findings import VerifyReport
from fastpack.analysis.options import InspectOptions, VerifyOptions
from fastpack.errors import FormatError, spoken
from fastpack.io import AnyPath, ExistencePolicy, PathLike, as_path, check_exists, names_in, partial_path
from fastpack.tokens.interop_formats import INTEROP_FORMATS, is_interop, refuse_other_index
from fastpack.tokens.token_file import Recovery, RecoveryOptions, Rows, TokenFile, TokenFormat, TokenWriter


def _is_packed(path: AnyPath, names: Collection[str] | None) -> bool:
    return path.suffix == ".pbin" and names is None


def _open_packed(path: AnyPath, dtype: np.dtype[Any] | None, eos_token_id: int | None) -> TokenFile:
    from fastpack.tokens.pbin.packed_tokens import PackedTokens

    del eos_token_id  # the index contains the document boundaries
    return PackedTokens(path, dtype)


def _create_packed(path: AnyPath, dtype: np.dtype[Any], policy: ExistencePolicy) -> TokenWriter:
    from fastpack.tokens.pbin.packed_writer import PackedWriter

    return PackedWriter(path, _token_size(dtype), if_exists=policy)


def _packed_size(n_tokens: int, token_size: int, documents: Iterable[Rows]) -> int:
    from fastpack.tokens.pbin.packed_writer import packed_size

    return packed_size(n_tokens, token_size, documents)


def _check_packed(path: AnyPath, report: VerifyReport, options: VerifyOptions) -> None:
    from fastpack.tokens.pbin.check_packed import check

    check(path, report, options)


def _packed_facts(path: AnyPath, options: InspectOptions) -> FileFacts:
    from fastpack.tokens.pbin.packed_facts import packed_facts

    return packed_facts(path, options)


def _recover_packed(path: AnyPath, options: RecoveryOptions) -> Recovery:
    from fastpack.tokens.pbin.recover_packed import recover_packed

    return recover_packed(path, options)


def _is_npy(path: AnyPath, names: Collection[str] | None) -> bool:
    return _has_suffix(path, names, ".npy") and not is_interop(path, names, "olmo")


def _is_bin(path: AnyPath, names: Collection[str] | None) -> bool:
    return _has_suffix(path, names, ".bin") and not is_interop(path, names, "megatron", "llmc", "litdata")


def _has_suffix(path: AnyPath, names: Collection[str] | None, suffix: str) -> bool:
    return path.suffix == suffix if names is None else any(name.endswith(suffix) for name in names)


def _open_npy(path: AnyPath, dtype: np.dtype[Any] | None, eos_token_id: int | None) -> TokenFile:
    from fastpack.tokens.flat.flat_tokens import open_npy

    return open_npy(path, dtype, eos_token_id)


def _create_npy(path: AnyPath, dtype: np.dtype[Any], policy: ExistencePolicy) -> TokenWriter:
    from fastpack.tokens.flat.npy_writer import NpyWriter

    return NpyWriter(path, _token_size(dtype), if_exists=policy)


def _open_bin(path: AnyPath, dtype: np.dtype[Any] | None, eos_token_id: int | None) -> TokenFile:
    from fastpack.tokens.flat.flat_tokens import open_bin

    return open_bin(path, dtype, eos_token_id)


def _create_bin(path: AnyPath, dtype: np.dtype[Any], policy: ExistencePolicy) -> TokenWriter:
    from fastpack.tokens.flat.bin_writer import BinWriter

    refuse_other_index(path)
    return BinWriter(path, _token_size(dtype), if_exists=policy)


def _bin_size(n_tokens: int, token_size: int, _documents: Iterable[Rows]) -> int:
    return n_tokens * token_size


def _npy_size(n_tokens: int, token_size: int, _documents: Iterable[Rows]) -> int:
    from fastpack.tokens.flat.npy_writer import HEADER_BYTES

    return HEADER_BYTES + n_tokens * token_size


def _check_shards(path: AnyPath, report: VerifyReport, options: VerifyOptions) -> None:
    from fastpack.tokens.flat.check_shards import check

    check(path, report, options)


def _shard_facts(path: AnyPath, options: InspectOptions) -> FileFacts:
    from fastpack.tokens.flat.shard_facts import shard_facts

    return shard_facts(path, options)


def _is_manifest(path: AnyPath, names: Collection[str] | None) -> bool:
    return path.suffix == ".fpm" and names is None


def _open_manifest(path: AnyPath, dtype: np.dtype[Any] | None, eos_token_id: int | None) -> TokenFile:
    from fastpack.tokens.flat.flat_tokens import FlatTokens
    from fastpack.tokens.manifest.manifest_shards import open_shards

    return FlatTokens(path, "manifest", open_shards(path, "**").read_as(dtype), eos_token_id)


def _check_manifest(path: AnyPath, report: VerifyReport, options: VerifyOptions) -> None:
    from fastpack.tokens.manifest.check_manifest import check

    check(path, report, options)


def _manifest_facts(path: AnyPath, options: InspectOptions) -> FileFacts:
    from fastpack.tokens.manifest.manifest_facts import manifest_facts

    return manifest_facts(path, options)


_NO_BOUNDARIES = "document boundaries, unless EOS tokens mark them"
_FLAT = "a .bin or .npy file of tokens, or a folder of such files"

FORMATS = (
    TokenFormat(
        name="npy",
        kind="shards",
        description=_FLAT,
        suffixes=(".npy",),
        stores_documents=False,
        dtypes=("uint16", "uint32"),
        loses=_NO_BOUNDARIES,
        detect=_is_npy,
        open=_open_npy,
        create=_create_npy,
        predict_size=_npy_size,
        check=_check_shards,
        facts=_shard_facts,
    ),
    TokenFormat(
        name="bin",
        kind="shards",
        description=_FLAT,
        suffixes=(".bin",),
        stores_documents=False,
        dtypes=("uint16", "uint32"),
        loses=f"{_NO_BOUNDARIES}; the dtype, unless tatm's metadata states it",
        detect=_is_bin,
        open=_open_bin,
        create=_create_bin,
        predict_size=_bin_size,
        check=_check_shards,
        facts=_shard_facts,
    ),
    TokenFormat(
        name="manifest",
        kind="manifest",
        description="a manifest of shards (.fpm)",
        suffixes=(".fpm",),
        stores_documents=False,
        dtypes=(),
        loses="it describes existing shards and is not written by `convert`",
        detect=_is_manifest,
        open=_open_manifest,
        create=None,  # `write_manifest` describes existing shards
        predict_size=None,
        check=_check_manifest,
        facts=_manifest_facts,
    ),
    TokenFormat(
        name="pbin",
        kind="pbin",
        description="a .pbin file",
        suffixes=(".pbin",),
        stores_documents=True,
        dtypes=("uint8", "uint16", "uint32"),
        loses="nothing",
        detect=_is_packed,
        open=_open_packed,
        create=_create_packed,
        predict_size=_packed_size,
        check=_check_packed,
        facts=_packed_facts,
        recover=_recover_packed,
    ),
    *INTEROP_FORMATS,
)


def format_named(name: str) -> TokenFormat:
    """Return the format called `name`; ValueError if there is none."""
    for row in FORMATS:
        if row.name == name:
            return row
    raise ValueError(f"unknown token format {name!r}: expected one of {', '.join(row.name for row in FORMATS)}")


def formats_of(path: AnyPath) -> list[TokenFormat]:
    """Return the formats that a file or folder may have, by names; a folder is listed once."""
    names = names_in(path) if path.is_dir() else None
    if names is not None and set(names) == {"cache"}:  # Megatron's index files, in a folder named as the dataset
        names = None
    return [row for row in FORMATS if row.detect(path, names)]


def check_dataset_exists(path: AnyPath) -> None:
    """Raise FileNotFoundError unless a path exists or is the common prefix of Megatron's files."""
    if not (path.suffix == "" and is_interop(path, None, "megatron")):
        check_exists(path)


def is_side_file(path: AnyPath) -> bool:
    """Return whether a file belongs to a token file of another name, with which it is checked."""
    if path.name.endswith((".ds.index", ".ds.metadata", ".ds.loss")):
        return True
    return path.suffix == ".bin" and is_interop(path, None, "megatron")  # its index stands for both


def open_documents(path: PathLike) -> TokenFile:
    """Open a token file that stores document boundaries; files of unknown names are read as packed files."""
    where = as_path(path)
    found = (row for row in formats_of(where) if row.stores_documents)
    return next(found, format_named("pbin")).open(where, None, None)


def is_unfinished(path: AnyPath) -> bool:
    """Return whether a write of this file, which can be recovered, was started and has not finished."""
    recoverable = any(row.recover is not None and path.suffix in row.suffixes for row in FORMATS)
    return recoverable and os.path.exists(partial_path(path))


def detect_format(path: PathLike) -> TokenFormat:
    """Return the format of a file or folder. Raises FileNotFoundError, and FormatError if none or several fit."""
    where = as_path(path)
    found = formats_of(where)
    if len(found) == 1:
        return found[0]
    check_dataset_exists(where)
    if found:
        names = " and ".join(row.name for row in found)
        expected = f"files of one format; {spoken('name one by format=')}"
        raise FormatError(path, 0, f"files of the formats {names}", expected)
    raise FormatError(path, 0, "a file of an unknown format", f"one of {', '.join(row.name for row in FORMATS)}")


def open_tokens(
    path: PathLike,
    *,
    format: str | None = None,
    dtype: str | None = None,
    eos_token_id: int | None = None,
) -> TokenFile:
    """Open a token file of any format.

    Parameters
    ----------
    path
        The file; for `npy` and `bin`, also a folder of such files; for `litdata` and `mds`, the folder; for
        `megatron`, the `.bin`, the `.idx` or the path without a suffix.
    format
        "npy", "bin", "manifest", "pbin", "megatron", "datatrove", "olmo", "llmc", "nanogpt", "litdata" or "mds". By
        default it is detected from names and first bytes. `nanogpt` is not detected: its files look like `bin`.
    dtype
        The dtype of the tokens in files that do not state it, such as "uint16" (`bin`, `olmo`, bytes in `mds`). By
        default it is that of tatm's metadata, or for `bin` it is guessed from the size of the file.
    eos_token_id
        The token that ends documents in formats without document boundaries (`npy`, `bin`, `manifest`, `nanogpt`,
        `llmc`, and `olmo` without its side file).

    Returns
    -------
    TokenFile
        The open file, with `format`, `dtype`, `n_tokens`, `n_documents`, `document(i)`, `document_ends()`,
        `segments()` and `close()`.

    Raises
    ------
    FileNotFoundError
        If there is no such file.
    FormatError
        If the file is damaged, no format or more than one fits, or `dtype` contradicts a header or metadata.
    ValueError
        If `format` or `dtype` is unknown.

    Examples
    --------
    >>> import tempfile, numpy, fastpack
    >>> folder = tempfile.TemporaryDirectory()
    >>> numpy.save(f"{folder.name}/tokens.npy", numpy.array([5, 6, 0, 7, 0], numpy.uint16))
    >>> tokens = fastpack.open_tokens(f"{folder.name}/tokens.npy", eos_token_id=0)
    >>> tokens.format, tokens.n_tokens, tokens.n_documents
    ('npy', 5, 2)
    >>> tokens.document(0).tolist(), tokens.document_ends().tolist()
    ([5, 6, 0], [3, 5])
    >>> folder.cleanup()
    """
    from fastpack.tokens.flat.shard_warnings import token_dtype

    where = as_path(path)
    row = detect_format(where) if format is None else format_named(format)
    return row.open(where, None if dtype is None else token_dtype(dtype), eos_token_id)


def _token_size(dtype: np.dtype[Any]) -> int:
    """Return the token size of an unsigned dtype; ValueError for other dtypes."""
    if dtype.kind != "u":
        raise ValueError(f"tokens are written as unsigned integers, not {dtype}")
    return dtype.itemsize
