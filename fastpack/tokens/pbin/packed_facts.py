"""Facts about a packed file `.pbin`."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from fastpack import kernels
from fastpack.analysis.document_lengths import DocumentStatistics
from fastpack.analysis.file_facts import File, FileFacts, length_facts
from fastpack.analysis.options import InspectOptions
from fastpack.io import AnyPath
from fastpack.tokens.pbin.packed_file import PackedFile
from fastpack.tokens.token_facts import (
    SAMPLED_ENDS,
    Eos,
    count_samples,
    eos_facts,
    guess_eos,
    summarize_tokens,
    token_warnings,
)
from fastpack.tokens.token_file import BLOCK_ROWS


def packed_facts(path: AnyPath, options: InspectOptions) -> FileFacts:
    """Return facts about documents, from the index, and about tokens, unless `options.quick`. Raises FormatError."""
    with PackedFile(path) as file:
        documents = DocumentStatistics(options.seq_lens)
        for first in range(0, len(file), BLOCK_ROWS):
            rows = file.index[first : first + BLOCK_ROWS] // file.token_size_in_bytes
            documents.add(rows[:, 0], rows[:, 1])
        table = documents.lengths.table()
        given = options.eos_token_id
        eos = _guess_eos(file) if given is None else Eos(given, "given")
        read = None if options.quick else summarize_tokens([file.segment], eos.id, options, None, _borders(file))
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
            "eos_inside": None if read is None or read.inner_eos is None else read.inner_eos.n_tokens,
            "documents_with_eos_inside": None if read is None or read.inner_eos is None else read.inner_eos.n_documents,
            "samples_at": [_samples(file, seq_len) for seq_len in options.seq_lens],
            "warnings": [*_index_warnings(file, table.total), *token_warnings(read, None)],
        }
    ids = None if read is None else read.ids
    return FileFacts(facts, "tokens", table, [File(path.name, n_bytes, n_tokens)], documents.cut, ids)


def _borders(file: PackedFile) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """Return the numbers of the first and last token of each document that is not empty, int64 [n] each."""
    rows = file.index[file.index[:, 1] > 0] // file.token_size_in_bytes
    return rows[:, 0], rows.sum(axis=1) - 1


def _samples(file: PackedFile, seq_len: int) -> dict[str, int | None]:
    return {**count_samples([len(file.data)], seq_len), "modalities_megatron": _megatron(file, seq_len)}


def _megatron(file: PackedFile, seq_len: int) -> int | None:
    """Count the blocks of Modalities' Megatron dataset; None if the documents are not contiguous."""
    rows = file.index
    ends = rows[:, 0] + rows[:, 1]
    if len(rows) and (rows[0, 0] != 0 or (rows[1:, 0] != ends[:-1]).any()):
        return None
    return int(kernels.block_starts(rows, (seq_len + 1) * file.token_size_in_bytes, 0, np.empty(len(rows), np.int64)))


def _index_warnings(file: PackedFile, n_indexed: int) -> list[str]:
    warnings = []
    if file.generation < 5:
        warnings.append(f"generation {file.generation}: Modalities 0.5.0 reads wrong documents")
    if n_indexed != len(file.data):
        warnings.append(f"the documents contain {n_indexed:,} of {len(file.data):,} tokens")
    return warnings


def _guess_eos(file: PackedFile) -> Eos:
    """Guess EOS: the token in which nearly all of a sample of documents end."""
    rows = file.index[:: max(1, len(file) // SAMPLED_ENDS)]
    rows = rows[rows[:, 1] > 0]
    return guess_eos(file.data[rows.sum(axis=1) // file.token_size_in_bytes - 1], "documents")
