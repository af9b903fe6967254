"""What the rows of packing plans must contain, by a naive implementation."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

from fastpack.plans.plan_file import PlanFile
from fastpack.tokens.token_file import TokenFile


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
        sizes = [len(piece) + -len(piece) % plan.pad_to_multiple for piece in pieces]
        if sum(sizes) < plan.seq_length:
            pieces.append([])
            sizes.append(plan.seq_length - sum(sizes))
        for k, (piece, size) in enumerate(zip(pieces, sizes, strict=True)):
            tokens += piece + [pad] * (size - len(piece))
            labels += piece[1:] + [-100] * (size - max(0, len(piece) - 1))
            doc_ids += [k] * size
            positions += range(size)
            ends.append(ends[-1] + size)
        for name, values in zip(out, (tokens, labels, doc_ids, positions), strict=False):
            out[name].append(values)
        out["loss_mask"].append([label != -100 for label in labels])
    longest = max((after - before for before, after in pairwise(ends)), default=0)
    return {**out, "cu_seqlens": ends, "max_seqlen": longest}
