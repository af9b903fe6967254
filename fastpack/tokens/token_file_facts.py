"""Facts about a token file of any format, through its reader."""

from __future__ import annotations

import os
from typing import Any

import numpy as np

from fastpack.analysis.document_lengths import DocumentStatistics
from fastpack.analysis.file_facts import File, FileFacts, length_facts
from fastpack.analysis.options import InspectOptions
from fastpack.io import size_of
from fastpack.tokens.token_facts import (
    SAMPLED_ENDS,
    Eos,
    count_samples,
    eos_facts,
    guess_eos,
    summarize_tokens,
    token_warnings,
)
from fastpack.tokens.token_file import TokenFile


def token_file_facts(tokens: TokenFile, kind: str, options: InspectOptions) -> FileFacts:
    """Return facts about documents, if their boundaries are known, and about tokens, unless `options.quick`."""
    segments = list(tokens.segments())
    documents = None
    if tokens.n_documents is not None:
        documents = DocumentStatistics(options.seq_lens)
        ends = tokens.document_ends()
        starts = np.concatenate([np.zeros(1, np.int64), ends[:-1]])[: len(ends)]
        documents.add(starts, ends - starts)
    eos = _eos(tokens, options)
    read = None if options.quick else summarize_tokens(segments, eos.id, options, None)
    table = None if documents is None else documents.lengths.table()
    n_tokens: dict[str, int] = {}
    for segment in segments:
        n_tokens[segment.path] = n_tokens.get(segment.path, 0) + segment.length
    files = [File(os.path.basename(path), size_of(path), number) for path, number in n_tokens.items()]
    facts: dict[str, Any] = {
        "path": tokens.path,
        "kind": kind,
        "bytes": sum(file.n_bytes for file in files),
        "files": len(files),
        "dtypes": [str(tokens.dtype)],
        "documents": tokens.n_documents,
        "tokens": tokens.n_tokens,
        **length_facts("document_tokens", table),
        **eos_facts(eos, read),
        "samples_at": [count_samples(list(n_tokens.values()), seq_len) for seq_len in options.seq_lens],
        "warnings": token_warnings(read, None),
    }
    cut = {} if documents is None else documents.cut
    return FileFacts(facts, "tokens", table, files, cut, None if read is None else read.ids)


def _eos(tokens: TokenFile, options: InspectOptions) -> Eos:
    """Return the given EOS token, else the token in which nearly all of a sample of documents end."""
    if options.eos_token_id is not None:
        return Eos(options.eos_token_id, "given")
    if tokens.n_documents is None:
        return Eos()
    n_documents = tokens.n_documents
    sampled = (tokens.document(i) for i in range(0, n_documents, max(1, n_documents // SAMPLED_ENDS)))
    last = [int(document[-1]) for document in sampled if len(document)]
    return guess_eos(np.array(last, np.int64), "documents")
