"""What a packed file `.pbin` holds."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from fastpack import kernels
from fastpack.analysis.file_facts import File, Measured, count_samples, eos_facts, length_facts
from fastpack.io import AnyPath
from fastpack.tokens.flat.shard_warnings import LARGEST_PLAUSIBLE_ID
from fastpack.tokens.flat.shards import Shard
from fastpack.tokens.pbin.layout import inner_eos_text
from fastpack.tokens.pbin.packed_file import PackedFile
from fastpack.tokens.token_facts import DocumentFacts, Eos, Read, Wanted, guess_packed, packed_documents, read_tokens


def measure_packed(path: AnyPath, wanted: Wanted) -> Measured:
    """Documents by the index; tokens are read for the share of EOS tokens and the largest id. FormatError."""
    with PackedFile(path) as file:
        documents = DocumentFacts(wanted.seq_lens)
        for starts, lengths in packed_documents(file):
            documents.add(starts, lengths)
        table = documents.lengths.table()
        given = wanted.eos_token_id
        eos = guess_packed(file) if given is None else Eos(given, "given")
        shard = Shard(file.path, file.data.dtype, len(file.data), file.data_offset)
        read = None if wanted.quick else read_tokens([shard], eos.id, wanted, None, _borders(file))
        n_bytes, n_tokens = len(file.file), len(file.data)
        facts: dict[str, Any] = {
            "path": str(path),
            "kind": "pbin",
            "bytes": n_bytes,
            "generation": file.generation,
            "token_size_in_bytes": file.token_size_in_bytes,
            "documents": len(file),
            "tokens": n_tokens,
            **length_facts("document_tokens", table),
            **eos_facts(eos, read),
            "eos_inside": None if read is None or read.inner is None else read.inner[0],
            "documents_with_eos_inside": None if read is None or read.inner is None else read.inner[1],
            "samples_at": [_samples(file, seq_len) for seq_len in wanted.seq_lens],
            "warnings": [*_index_warnings(file, table.total), *token_warnings(read, None)],
        }
    ids = None if read is None else read.ids
    return Measured(facts, "tokens", table, [File(path.name, n_bytes, n_tokens)], documents.cut, ids)


def _borders(file: PackedFile) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """The number of the first and of the last token of each document that has one, int64[n] each."""
    rows = file.index[file.index[:, 1] > 0] // file.token_size_in_bytes
    return rows[:, 0], rows.sum(axis=1) - 1


def _samples(file: PackedFile, seq_len: int) -> dict[str, int | None]:
    return {**count_samples([len(file.data)], seq_len), "modalities_megatron": _megatron(file, seq_len)}


def _megatron(file: PackedFile, seq_len: int) -> int | None:
    """How many blocks Modalities' Megatron walk finds; None where documents do not lie one behind the other."""
    rows = file.index
    ends = rows[:, 0] + rows[:, 1]
    if len(rows) and (rows[0, 0] != 0 or (rows[1:, 0] != ends[:-1]).any()):
        return None
    return int(kernels.block_starts(rows, (seq_len + 1) * file.token_size_in_bytes, 0, np.empty(len(rows), np.int64)))


def _index_warnings(file: PackedFile, n_indexed: int) -> list[str]:
    warnings = []
    if file.generation < 5:
        warnings.append(f"generation {file.generation}: Modalities 0.5.0 does not read its documents rightly")
    if n_indexed != len(file.data):
        warnings.append(f"the documents hold {n_indexed:,} of {len(file.data):,} tokens")
    return warnings


def token_warnings(read: Read | None, vocab_size: int | None) -> list[str]:
    """What is odd about the ids of tokens that were read."""
    if read is None:
        return []
    warnings = []
    if read.inner is not None and read.inner[0]:
        warnings.append(inner_eos_text(*read.inner))
    if read.has_negative:
        warnings.append("some token ids are negative")
    if vocab_size is not None and read.largest >= vocab_size:
        warnings.append(f"the largest id is {read.largest:,}, the vocabulary ends before {vocab_size:,}")
    elif read.largest > LARGEST_PLAUSIBLE_ID:
        warnings.append(f"the largest id is {read.largest:,}, beyond any vocabulary: is the token size right?")
    return warnings
