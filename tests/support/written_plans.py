"""Packing plans with random rows, and what their rows must contain, by a naive implementation."""

from __future__ import annotations

import os
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

from fastpack.io import is_remote
from fastpack.plans.plan_file import PlanFile
from fastpack.plans.plan_layout import PlanSections
from fastpack.plans.plan_sources import PlanSource, file_fingerprint, files_of
from fastpack.plans.plan_writer import Bins, describe, write_bins, write_stream
from fastpack.tokens.token_file import TokenFile


def source_of(tokens: TokenFile, eos: int | None = None) -> PlanSource:
    assert tokens.n_documents is not None
    fingerprint = tuple(file_fingerprint(path, "/") for path in files_of(tokens))
    n_tokens = int(tokens.document_rows()[:, 1].sum())
    path = tokens.path if is_remote(tokens.path) else os.path.abspath(tokens.path)
    return PlanSource(path, tokens.format, tokens.dtype.str, eos, tokens.n_documents, n_tokens, fingerprint)


def write_plan(
    path: Path, passes: Sequence[TokenFile], seq_length: int, *, stream: bool = False, seed: int = 0, **given: Any
) -> Path:
    """Write a plan of all tokens; the ends of documents are in random rows. Returns the path."""
    lengths = np.concatenate([tokens.document_rows()[:, 1] for tokens in passes])
    documents = np.flatnonzero(lengths % seq_length)
    np.random.default_rng(seed).shuffle(documents)
    ends, counts, free = lengths[documents] % seq_length, [0], seq_length
    for length in ends.tolist():
        if length > free:
            counts, free = [*counts, 0], seq_length
        counts[-1] += 1
        free -= length
    counts = counts if len(ends) else []
    n_rows = -(-int(lengths.sum()) // seq_length) if stream else int((lengths // seq_length).sum()) + len(counts)
    zeros = dict.fromkeys(("n_segments", "n_documents", "n_tokens", "n_padding", "n_truncated", "n_dropped"), 0)
    fields = {**zeros, "seq_length": seq_length, "n_rows": n_rows, "n_source_documents": len(lengths), "long": "split"}
    fields |= {"algorithm": "none" if stream else "best_fit", "seed": None, "max_documents": None, **given}
    with PlanSections(path, "overwrite") as sections:
        if stream:
            write_stream(sections, lengths, None)
        else:
            bins = Bins(documents, ends, np.array(counts, np.int64))
            write_bins(sections, [bins], lengths // seq_length, len(lengths), seq_length)
        sections.finish(describe(fields, [source_of(tokens) for tokens in passes]))
    return path


def documents_of(passes: Sequence[TokenFile]) -> list[list[int]]:
    """Return the tokens of all documents, in the numbering of a plan."""
    return [list(map(int, tokens.document(i))) for tokens in passes for i in range(tokens.n_documents or 0)]


def naive_batch(plan: PlanFile, documents: list[list[int]], rows: Sequence[int], pad: int) -> dict[str, Any]:
    """Return all outputs of a batch as lists, token by token."""
    out: dict[str, Any] = {name: [] for name in ("input_ids", "labels", "doc_ids", "position_ids", "loss_mask")}
    ends = [0]
    for number in rows:
        tokens, labels, doc_ids, positions = list[int](), list[int](), list[int](), list[int]()
        segments = plan.segments([number])
        pieces = [
            documents[d][start:end] for d, start, end in zip(*(column.tolist() for column in segments[1:]), strict=True)
        ]
        padding = plan.seq_length - sum(map(len, pieces))
        for k, piece in enumerate([*pieces, [pad] * padding] if padding else pieces):
            tokens += piece
            labels += [*piece[1:], -100] if k < len(pieces) else [-100] * padding
            doc_ids += [k] * len(piece)
            positions += range(len(piece))
            ends.append(ends[-1] + len(piece))
        for name, values in zip(out, (tokens, labels, doc_ids, positions), strict=False):
            out[name].append(values)
        out["loss_mask"].append([label != -100 for label in labels])
    longest = max((after - before for before, after in pairwise(ends)), default=0)
    return {**out, "cu_seqlens": ends, "max_seqlen": longest}
