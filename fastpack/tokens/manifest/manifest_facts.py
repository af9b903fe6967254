"""Facts about the shards of a manifest, from the manifest alone; for a report, all tokens are read."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

from fastpack.analysis.document_lengths import LengthTable
from fastpack.analysis.file_facts import File, FileFacts
from fastpack.analysis.options import InspectOptions
from fastpack.io import AnyPath, as_path
from fastpack.tokens.flat.shard_facts import read_metadata, scan_segments
from fastpack.tokens.flat.shard_warnings import token_dtype
from fastpack.tokens.manifest.manifest_file import DTYPES, UNKNOWN, Manifest
from fastpack.tokens.manifest.manifest_shards import ManifestShards
from fastpack.tokens.token_facts import count_samples, eos_facts, token_warnings
from fastpack.tokens.token_segment import TokenSegment


def manifest_facts(path: AnyPath, options: InspectOptions) -> FileFacts:
    """Return the facts that the manifest contains; FormatError for a damaged one.

    With `options.count_ids` the shards are read too: FormatError or FileNotFoundError for one that differs from the
    manifest.
    """
    manifest = Manifest(path)
    known = bool((manifest.documents != UNKNOWN).all())
    warnings = []
    if manifest.dtype_is_doubtful and not manifest.dtype_is_given:
        warnings.append("the dtype of headerless shards was guessed from their sizes, and is doubtful")
    if manifest.has_zero_tail:
        warnings.append("headerless shards ended in zeros when the manifest was written")
    if manifest.mixes_tokenizers:
        warnings.append("shards had different tokenizers when the manifest was written")
    facts: dict[str, Any] = {
        "path": os.fspath(path),
        "kind": "manifest",
        "bytes": int(manifest.sizes.sum()),
        "manifest_bytes": manifest.n_bytes,
        "files": manifest.n_shards,
        "dtypes": sorted({DTYPES[code].name for code in set(manifest.dtypes.tolist())}),
        "tokens": int(manifest.cumulative[-1]),
        "documents": int(manifest.documents.sum()) if known else None,
        "checksums": manifest.has_checksums,
        "times_count": manifest.times_count,
        "file_tokens": LengthTable.of(manifest.tokens).summary(),
        "samples_at": [count_samples(manifest.lengths.tolist(), seq_len) for seq_len in options.seq_lens],
        "warnings": warnings,
    }
    columns = zip(manifest.names(), manifest.sizes.tolist(), manifest.tokens.tolist(), strict=True)
    measured = FileFacts(facts, "tokens", None, [File(*row) for row in columns])
    return _read(measured, ManifestShards(manifest, "**", None), options) if options.count_ids else measured


def _read(measured: FileFacts, shards: Sequence[TokenSegment], options: InspectOptions) -> FileFacts:
    """Add the facts that need tokens."""
    facts, files = measured.facts, measured.files
    assert isinstance(shards, ManifestShards)
    metadata = read_metadata(as_path(shards.manifest.path).parent, facts["warnings"])
    if options.dtype is not None:
        shards = shards.read_as(token_dtype(options.dtype))
        files = [file._replace(n_tokens=shard.length) for file, shard in zip(files, shards, strict=True)]
        facts |= {"tokens": sum(shard.length for shard in shards), "dtypes": sorted({str(s.dtype) for s in shards})}
    found = scan_segments(shards, options)
    facts["warnings"] += token_warnings(found.read, metadata.get("vocab_size"))
    facts |= {"vocab_size": metadata.get("vocab_size"), **eos_facts(found.eos, found.read)}
    ids = None if found.read is None else found.read.ids
    return FileFacts(facts, "tokens", found.lengths, files, found.cut, ids)
