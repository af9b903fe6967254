"""What a manifest says of its shards; none of them is looked at."""

from __future__ import annotations

import os
from typing import Any

from fastpack.files import AnyPath
from fastpack.formats.manifest import DTYPES, UNKNOWN, Manifest
from fastpack.views.lengths import LengthTable
from fastpack.views.measured import File, Measured, count_samples
from fastpack.views.tokens import Wanted


def measure_manifest(path: AnyPath, wanted: Wanted) -> Measured:
    """The numbers of the manifest; `wanted.seq_lens` alone counts. FormatError for a damaged one."""
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
        "samples_at": [count_samples(said.lengths.tolist(), seq_len) for seq_len in wanted.seq_lens],
        "warnings": warnings,
    }
    columns = zip(said.names(), said.sizes.tolist(), said.tokens.tolist(), strict=True)
    return Measured(facts, "tokens", None, [File(*row) for row in columns])
