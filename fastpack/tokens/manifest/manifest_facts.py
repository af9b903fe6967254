"""What a manifest says of its shards, none of which is looked at, unless it is for a report: then all tokens are."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

from fastpack.analysis.document_lengths import LengthTable
from fastpack.analysis.file_facts import File, FileFacts
from fastpack.analysis.options import InspectOptions
from fastpack.io import AnyPath, as_path
from fastpack.tokens.flat.shard_facts import look_through, read_metadata
from fastpack.tokens.flat.shard_warnings import token_dtype
from fastpack.tokens.manifest.manifest_file import DTYPES, UNKNOWN, Manifest
from fastpack.tokens.manifest.manifest_shards import ManifestShards
from fastpack.tokens.token_facts import count_samples, eos_facts, token_warnings
from fastpack.tokens.token_segment import TokenSegment


def manifest_facts(path: AnyPath, options: InspectOptions) -> FileFacts:
    """The numbers of the manifest, by `options.seq_lens` alone; FormatError for a damaged one.

    With `options.count_ids` the shards are read as well: FormatError, FileNotFoundError for one that is not what the
    manifest says.
    """
    said = Manifest(path)
    known = bool((said.documents != UNKNOWN).all())
    warnings = []
    if said.dtype_is_doubtful and not said.dtype_is_given:
        warnings.append("the dtype of headerless shards was taken from their sizes, and there was reason to doubt it")
    if said.has_zero_tail:
        warnings.append("headerless shards ended in zeros when it was written")
    facts: dict[str, Any] = {
        "path": os.fspath(path),
        "kind": "manifest",
        "bytes": int(said.sizes.sum()),
        "manifest_bytes": said.n_bytes,
        "files": said.n_shards,
        "dtypes": sorted({DTYPES[code].name for code in set(said.dtypes.tolist())}),
        "tokens": int(said.cumulative[-1]),
        "documents": int(said.documents.sum()) if known else None,
        "checksums": said.has_checksums,
        "times_count": said.times_count,
        "file_tokens": LengthTable.of(said.tokens).summary(),
        "samples_at": [count_samples(said.lengths.tolist(), seq_len) for seq_len in options.seq_lens],
        "warnings": warnings,
    }
    columns = zip(said.names(), said.sizes.tolist(), said.tokens.tolist(), strict=True)
    measured = FileFacts(facts, "tokens", None, [File(*row) for row in columns])
    return _read(measured, ManifestShards(said, "**", None), options) if options.count_ids else measured


def _read(measured: FileFacts, shards: Sequence[TokenSegment], options: InspectOptions) -> FileFacts:
    """The same, and what the tokens tell."""
    facts, files = measured.facts, measured.files
    assert isinstance(shards, ManifestShards)
    beside = read_metadata(as_path(shards.manifest.path).parent, facts["warnings"])
    if options.dtype is not None:
        shards = shards.read_as(token_dtype(options.dtype))
        files = [file._replace(n_tokens=shard.length) for file, shard in zip(files, shards, strict=True)]
        facts |= {"tokens": sum(shard.length for shard in shards), "dtypes": sorted({str(s.dtype) for s in shards})}
    found = look_through(shards, options)
    facts["warnings"] += token_warnings(found.read, beside.get("vocab_size"))
    facts |= {"vocab_size": beside.get("vocab_size"), **eos_facts(found.eos, found.read)}
    ids = None if found.read is None else found.read.ids
    return FileFacts(facts, "tokens", found.lengths, files, found.cut, ids)
