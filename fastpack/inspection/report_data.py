"""The numbers of a report."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from fastpack.analysis.document_lengths import LengthTable, shares
from fastpack.analysis.file_facts import File, FileFacts
from fastpack.analysis.findings import Finding
from fastpack.analysis.options import InspectOptions
from fastpack.analysis.token_ids import IdCounter
from fastpack.errors import JobError
from fastpack.inspection.curation.known_tokenizer import piece_text
from fastpack.inspection.curation.look import Look, Looks, Source
from fastpack.inspection.facts import FACTS, TableFacts
from fastpack.inspection.inspect import measure
from fastpack.inspection.loss_facts import LOSS_FACTS
from fastpack.inspection.verify import verify
from fastpack.io import as_path, divide_progress
from fastpack.plans.packing_estimate import estimate_bins
from fastpack.tokenizers.decode import TokenDecoder

SEQ_LENS = tuple(1 << k for k in range(11, 18))  # 2k to 128k
PACKED = ("best_fit", "first_fit")  # algorithms
MAX_BARS = 64  # files, or groups of files, that are drawn
MAX_POINTS = 64  # of the curve of ids by rank
MAX_WARNINGS = 100
_TOP_IDS = 8
_PER_OCTAVE = 4  # bins of lengths


def gather(
    sources: Sequence[Source],
    options: InspectOptions,
    *,
    vocab_size: int | None,
    check: bool,
    looks: Looks | None = None,
) -> dict[str, Any]:
    """Return all numbers of the report on `sources`; raises as `inspect`. options: without lengths and counts.

    looks: what to show of the contents; None reads no contents.
    """
    if not sources:
        raise JobError("a report needs at least one path")
    measured, warnings = [], []
    n_passes = 1 if looks is None else 2
    shares_of_progress = [*divide_progress(options.progress, n_passes * [as_path(source.path) for source in sources])]
    for source, progress in zip(sources, shares_of_progress, strict=False):
        one = measure(source.path, replace(options, seq_lens=SEQ_LENS, count_ids=True, progress=progress))
        measured.append(one)
        found = [{"source": source.name, "severity": "warning", "text": text} for text in one.facts["warnings"]]
        is_known = options.dtype is None or one.facts["kind"] != "shards"  # `verify` uses metadata and sizes
        warnings += [*found, *_checked(source, one, vocab_size)] if check and is_known else found
    look = Look(Looks(), (), (), ())
    if looks is not None:
        look = Look(looks, sources, measured, shares_of_progress[len(sources) :])
    warnings += look.warnings
    unit = "tokens" if all(one.unit == "tokens" for one in measured) else "bytes"
    return {
        "sources": [
            _source(source, one) | look.facts(number)
            for number, (source, one) in enumerate(zip(sources, measured, strict=True))
        ],
        **_totals(measured),
        "lengths": _lengths(measured),
        "packing": _packing(measured),
        "ids": _ids(measured, vocab_size, look.decoder),
        "across": look.across(),
        "files": _files(measured, unit),
        "mixture": _mixture(sources, measured, unit),
        "warnings": warnings[:MAX_WARNINGS],
        "warnings_left_out": max(0, len(warnings) - MAX_WARNINGS),
    }


def _checked(source: Source, one: FileFacts, vocab_size: int | None) -> list[dict[str, str]]:
    """Return the findings of `verify` without known warnings; findings with the same expectation are merged."""
    kind = one.facts["kind"]
    if kind == "webdataset" or FACTS[kind] is TableFacts:  # a check reads data more than once; tables have none
        return []
    said = set(one.facts["warnings"])
    alike: dict[tuple[str, str], list[Finding]] = {}
    for finding in verify(source.path, vocab_size=vocab_size).findings:
        if finding.found not in said:
            alike.setdefault((finding.severity, finding.expected), []).append(finding)
    return [{"source": source.name, "severity": some[0].severity, "text": _told(some)} for some in alike.values()]


def _told(findings: Sequence[Finding]) -> str:
    first = findings[0]
    place = "" if first.offset is None else f" at byte {first.offset:,}"
    more = f" (and {len(findings) - 1:,} more like it)" if len(findings) > 1 else ""
    return f"{os.path.basename(first.file)}{place}: found {first.found}, expected {first.expected}{more}"


def _source(source: Source, one: FileFacts) -> dict[str, Any]:
    facts = one.facts
    return {
        "name": source.name,
        "path": source.path,
        "kind": facts["kind"],
        "unit": one.unit,
        "bytes": facts["bytes"],
        "files": len(one.files),
        "documents": None if one.lengths is None else one.lengths.documents,
        "tokens": facts.get("tokens"),
        "lengths": None if one.lengths is None else one.lengths.summary(),
        "eos": facts.get("eos"),
        **{name: facts.get(name) for name in LOSS_FACTS},
    }


def _totals(measured: Sequence[FileFacts]) -> dict[str, Any]:
    return {
        "bytes": sum(one.facts["bytes"] for one in measured),
        "tokens": _sum(one.facts.get("tokens") for one in measured),
        "documents": _sum(None if one.lengths is None else one.lengths.documents for one in measured),
        "loss_tokens": _loss_tokens(measured),
    }


def _loss_tokens(measured: Sequence[FileFacts]) -> int | None:
    """Return the number of tokens that count in the loss: all those of a source without a loss mask; None if all do."""
    counted = [one.facts.get("loss_tokens") for one in measured]
    if all(n is None for n in counted):
        return None
    return _sum(one.facts.get("tokens") if n is None else n for one, n in zip(measured, counted, strict=True))


def _sum(amounts: Iterable[int | None]) -> int | None:
    """Return the sum; None if one of them is unknown."""
    total = 0
    for amount in amounts:
        if amount is None:
            return None
        total += amount
    return total


def _lengths(measured: Sequence[FileFacts]) -> dict[str, Any] | None:
    """Return the lengths of documents: in tokens if any are known, else in bytes; None without lengths."""
    known = [one for one in measured if one.lengths is not None and one.lengths.documents]
    if not known:
        return None
    unit = "tokens" if any(one.unit == "tokens" for one in known) else "bytes"
    tables = [one.lengths for one in known if one.unit == unit and one.lengths is not None]
    table = LengthTable.merged(tables)
    return {
        "unit": unit,
        "of": len(tables),
        "documents": table.documents,
        "total": table.total,
        "summary": table.summary(),
        "bins": shares(table.bins(_PER_OCTAVE)),
    }


def _packing(measured: Sequence[FileFacts]) -> list[dict[str, Any]] | None:
    """Return one row per sequence length; None without tokens."""
    packed = [one for one in measured if one.unit == "tokens"]
    file_tokens = [file.n_tokens or 0 for one in packed for file in one.files]
    total = sum(file_tokens)
    if not total:
        return None
    known = all(one.lengths is not None for one in packed)
    table = LengthTable.merged(one.lengths for one in packed if one.lengths is not None) if known else None
    rows = []
    for seq_len in SEQ_LENS:
        blocks = sum(n_tokens // seq_len for n_tokens in file_tokens)
        row: dict[str, Any] = {"seq_len": seq_len, "blocks": blocks, "tokens_in_blocks": blocks * seq_len / total}
        row |= dict.fromkeys(("documents_cut", "padding", "cut_off", "best_fit_cut"))
        row |= {f"{name}_{what}": None for name in PACKED for what in ("rows", "padding")}
        if table is not None and table.documents:
            row["documents_cut"] = sum(one.cut[seq_len] for one in packed) / table.documents
            row["padding"] = table.missing(seq_len) / (table.documents * seq_len)
            row["cut_off"] = table.beyond(seq_len) / max(1, table.total)
            found = {name: estimate_bins(table, seq_len, name, "split") for name in PACKED}
            for name, planned in found.items():
                row[f"{name}_rows"], row[f"{name}_padding"] = planned.rows, planned.padding_share
            row["best_fit_cut"] = (found["best_fit"].documents_cut or 0) / table.documents
        rows.append(row)
    return rows


def _ids(measured: Sequence[FileFacts], vocab_size: int | None, decoder: TokenDecoder | None) -> dict[str, Any] | None:
    """Return the frequencies of ids; None if no tokens were counted."""
    counter = IdCounter()
    for one in measured:
        if one.ids is not None:
            counter.merge(one.ids)
    counts = counter.counts[: int(np.flatnonzero(counter.counts).max(initial=-1)) + 1]
    total = int(counts.sum())
    if not total:
        return None
    said = [one.facts["vocab_size"] for one in measured if one.facts.get("vocab_size")]
    known = vocab_size or max(said, default=None)
    order = np.argsort(-counts, kind="stable")
    ranked = counts[order]
    ranked = ranked[ranked > 0]
    sums = np.cumsum(ranked)
    ranks = np.unique(np.round(np.geomspace(1, len(ranked), MAX_POINTS)).astype(np.int64))
    return {
        "vocab_size": known,
        "distinct": len(ranked),
        "distinct_in_vocabulary": int(np.count_nonzero(counts[: known or len(counts)])),
        "largest": max(one.facts.get("largest_id") or 0 for one in measured),
        "counted_below": known or len(counts),
        "tokens": total,
        "outside": counter.outside,
        "ranks": [
            {"rank": k, "tokens": int(ranked[k - 1]), "share_so_far": int(sums[k - 1]) / total} for k in ranks.tolist()
        ],
        "top": [
            {
                "id": int(k),
                "text": piece_text(decoder, int(k)),
                "tokens": int(counts[k]),
                "share": int(counts[k]) / total,
            }
            for k in order[:_TOP_IDS]
            if counts[k]
        ],
    }


def _files(measured: Sequence[FileFacts], unit: str) -> dict[str, Any]:
    """Return the sizes of files; above `MAX_BARS` files, the means of groups of adjacent files."""
    files = [(number, file) for number, one in enumerate(measured) for file in one.files]
    sizes = np.array([_size(file, unit) for _, file in files], np.int64)
    per_bar = -(-len(files) // MAX_BARS) if files else 1
    bars = []
    for start in range(0, len(files), per_bar):
        some = files[start : start + per_bar]
        label = some[0][1].name if len(some) == 1 else f"{some[0][1].name} to {some[-1][1].name}"
        bars.append({"source": some[0][0], "name": label, "size": round(float(sizes[start : start + per_bar].mean()))})
    summary = LengthTable.of(sizes).summary()
    return {"unit": unit, "count": len(files), "files_per_bar": per_bar, "summary": summary, "bars": bars}


def _size(file: File, unit: str) -> int:
    return file.n_bytes if unit == "bytes" or file.n_tokens is None else file.n_tokens


def _mixture(sources: Sequence[Source], measured: Sequence[FileFacts], unit: str) -> dict[str, Any] | None:
    """Return each source's share of the data and, with weights, of the training data; None for one source."""
    if len(sources) < 2:
        return None
    sizes = [sum(_size(file, unit) for file in one.files) for one in measured]
    weights = [source.weight for source in sources]
    total, weight = max(1, sum(sizes)), sum(one or 0.0 for one in weights)
    parts = []
    for source, size in zip(sources, sizes, strict=True):
        seen = None if source.weight is None or not weight else source.weight / weight
        repeat = None if seen is None or not size else seen * total / size
        parts.append({"name": source.name, "size": size, "share": size / total, "weight": seen, "repeat": repeat})
    return {"unit": unit, "parts": parts}
