"""Write documents in any token format, and read them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from fastpack import open_tokens
from fastpack.tokens.formats import format_named
from fastpack.tokens.interop_formats import output_path

Documents = list[list[int]]


def path_of(folder: Path, name: str, stem: str = "a") -> Path:
    """Return a path with the suffix of a format."""
    return folder / f"{stem}{''.join(format_named(name).suffixes[:1])}"


def write_tokens(folder: Path, name: str, documents: Documents, dtype: str | None = None) -> Path:
    """Write documents as `a` with the suffix of the format; return the path that `open_tokens` accepts."""
    row = format_named(name)
    assert row.create is not None
    path = path_of(folder, name)
    flat = [token for document in documents for token in document]
    kind = np.uint64 if dtype == "uint64" else np.int64
    with row.create(path, np.dtype(dtype or row.dtypes[-1]), "override") as writer:
        writer.append_many(np.array(flat, kind), [len(document) for document in documents])
    return Path(output_path(name, path))


def read_tokens(path: Path, **options: Any) -> Documents:
    """Return the documents of a file; options as for `open_tokens`."""
    with open_tokens(path, **options) as tokens:
        assert tokens.n_documents is not None
        return [tokens.document(i).tolist() for i in range(tokens.n_documents)]
