"""What `pack` writes in each token format: the names of the files, the dtype of the tokens, and the writers."""

from __future__ import annotations

import os
from typing import Any, Literal, TypeAlias

import numpy as np

from fastpack.documents.compressed import stem_of
from fastpack.documents.raw_index_check import default_index_path
from fastpack.errors import spoken
from fastpack.io import ExistencePolicy, PathLike, as_path
from fastpack.tokenizers.interface import Tokenizer, token_size
from fastpack.tokens.flat.npy_writer import SMALLEST_TOKEN, is_npy
from fastpack.tokens.formats import FORMATS, format_named
from fastpack.tokens.interop_formats import first_output, output_files
from fastpack.tokens.token_file import TokenWriter

PackFormat: TypeAlias = Literal[
    "pbin", "npy", "bin", "megatron", "datatrove", "olmo", "llmc", "nanogpt", "litdata", "mds"
]

RESUMABLE = ("pbin", "npy")  # formats whose writers keep checkpoints
MEGATRON_NAME = "_text_document"  # what preprocess_data adds to its output prefix
MEGATRON_NARROW = 65_500  # vocabularies below this size are stored as uint16, others as int32


def pack_format(output: PathLike | None, format: PackFormat | None = None) -> PackFormat:
    """Return the format of an output: the given one, else the one of its suffix, `npy` or `pbin`.

    Raises ValueError for an unknown format, or for an output with the suffix of another format.
    """
    writable = [row.name for row in FORMATS if row.create is not None]
    if format is None:
        return "npy" if output is not None and is_npy(output) else "pbin"
    if format not in writable:
        raise ValueError(f"format: found {format!r}, expected one of {', '.join(writable)}")
    if output is None:
        return format
    suffix = as_path(output).suffix
    own = {*format_named(format).suffixes, *({".bin"} if format == "megatron" else ())}
    others = {suffix for row in FORMATS for suffix in row.suffixes} - own
    if suffix in others or (format == "npy" and suffix not in own):
        name = spoken("settings.dst_path")
        raise ValueError(f"{name}: {os.fspath(output)} is not the name of a file of the format {format!r}")
    return format


def named_format(output: PathLike | None, format: PackFormat | None) -> PackFormat:
    """Return the format as `pack_format`; ValueError for a suffix of other formats without a format."""
    if output is not None and format is None:
        suffix = as_path(output).suffix
        fitting = [row.name for row in FORMATS if suffix in row.suffixes and row.create is not None]
        if suffix == ".idx" or (fitting and not {"pbin", "npy"} & set(fitting)):
            expected = " or ".join(dict.fromkeys([*fitting, *(["megatron"] if suffix == ".bin" else [])]))
            name = spoken("settings.dst_path")
            raise ValueError(f"{name}: {os.fspath(output)} has no suffix of a packed file; name the format: {expected}")
    return pack_format(output, format)


def default_output(source: str, format: PackFormat = "pbin") -> str:
    """Return the output of a single source whose output is not named: its stem with the suffix of the format."""
    stem = stem_of(source)
    suffixes = format_named(format).suffixes
    return first_file(stem if format == "megatron" else stem + (suffixes[0] if suffixes else f".{format}"), format)


def first_file(output: PathLike, format: PackFormat) -> str:
    """Return the file with the tokens, or the folder, that `pack` writes for a given output.

    For Megatron it is `<output>_text_document.bin`, unless the output names a `.bin` or an `.idx`.
    """
    path = os.fspath(output)
    if format == "megatron" and not path.endswith((".bin", ".idx")):
        path += MEGATRON_NAME
    return os.fspath(first_output(format, as_path(path)))


def check_index_is_kept(output: str, source: str, index_path: str | None) -> None:
    """Raise ValueError for an output of Megatron whose index would be the index of a source."""
    _, index = map(os.fspath, output_files("megatron", as_path(output)))
    if index in (index_path, str(default_index_path(source))):
        raise ValueError(f"{index} would be Megatron's index and that of {source}: choose another output")


def stored_token_size(format: PackFormat, tokenizer: Tokenizer, *, counts_added: bool = False) -> int:
    """Return the bytes per token in a format; ValueError if it cannot hold the ids of the vocabulary.

    For `pbin` and `npy` it follows from the vocabulary without added tokens, as in Modalities, unless `counts_added`.
    """
    n_ids = tokenizer.vocab_size
    if counts_added or format not in RESUMABLE:
        while tokenizer.token_of_id(n_ids) is not None:  # added tokens
            n_ids += 1
    if format in RESUMABLE:
        n_bytes = token_size(n_ids)
        return max(n_bytes, SMALLEST_TOKEN) if format == "npy" else n_bytes
    if format == "megatron":
        return 2 if n_ids < MEGATRON_NARROW else 4
    stored = format_named(format).dtypes
    sizes = [np.dtype(name).itemsize for name in stored if name.startswith("u")]
    found = next((size for size in sizes if size >= token_size(n_ids)), None)
    if found is None:
        raise ValueError(f"{format} stores {', '.join(stored)}, which cannot hold the ids of {n_ids:,} tokens")
    return found


def create_output(path: str, format: PackFormat, n_bytes: int, policy: ExistencePolicy) -> TokenWriter:
    """Return the writer, without checkpoints, of tokens of `n_bytes` bytes."""
    create = format_named(format).create
    assert create is not None  # checked by `pack_format`
    return create(as_path(path), stored_dtype(format, n_bytes), policy)


def stored_dtype(format: str, n_bytes: int) -> np.dtype[Any]:
    """Return the dtype of tokens of `n_bytes` bytes: Megatron has no uint32, and writes int32."""
    return np.dtype("i4" if format == "megatron" and n_bytes == 4 else f"u{n_bytes}")
