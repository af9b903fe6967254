"""`convert` from every format to every other: the same documents, or a refusal before anything is written."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from token_formats import Documents, path_of, read_tokens, write_tokens

import fastpack
from fastpack.tokens.formats import FORMATS, format_named

pytest.importorskip("xxhash", reason="digests need xxhash")

PAIRED = [row.name for row in FORMATS if row.create is not None]
EOS = 0


def documents_with(draw: st.DrawFn, largest: int, ended: bool) -> Documents:
    """Draw documents, some of no token or of one, with ids at the limits; `ended`: each has one EOS, at its end."""
    ids = st.sampled_from([1, largest - 1, largest]) | st.integers(1, largest)
    bodies = draw(st.lists(st.lists(ids if ended else ids | st.just(EOS), max_size=12), max_size=8))
    return [[*body, EOS] for body in bodies] if ended else bodies


@st.composite
def sources(draw: st.DrawFn, name: str) -> tuple[str, Documents]:
    row = format_named(name)
    dtype = draw(st.sampled_from(row.dtypes))
    documents = documents_with(draw, int(np.iinfo(dtype).max), not row.stores_documents or draw(st.booleans()))
    return dtype, documents if row.stores_empty else [document for document in documents if document]


def stated(name: str, dtype: str) -> str | None:
    """Return the dtype to pass for a file that does not state it."""
    return dtype if name in ("bin", "olmo") else None


def largest_id(target: str, dtype: str) -> int:
    """Return the largest id that `convert` writes: in the dtype itself, one of the same width, or a larger one."""
    dtypes = [np.dtype(name) for name in format_named(target).dtypes]
    same = [found for found in dtypes if found.itemsize == np.dtype(dtype).itemsize]
    larger = [found for found in dtypes if np.can_cast(dtype, found)]
    chosen = np.dtype(dtype) if np.dtype(dtype) in dtypes else (same or larger or dtypes[-1:])[0]
    return int(np.iinfo(chosen).max)


@pytest.mark.parametrize("source", PAIRED)
@given(data=st.data())
def test_any_documents_in_every_other_format(tmp_path: Path, source: str, data: st.DataObject) -> None:
    dtype, documents = data.draw(sources(source))
    shutil.rmtree(tmp_path / "x", ignore_errors=True)
    (tmp_path / "x").mkdir()
    flat = [token for document in documents for token in document]
    if source == "bin" and not flat:
        return  # an empty file without a header is refused
    path = write_tokens(tmp_path / "x", source, documents, dtype)
    ended = all(document[-1:] == [EOS] and document.count(EOS) == 1 for document in documents)
    digests = set()
    for target in PAIRED[data.draw(st.integers(0, 1)) :: 2]:
        row = format_named(target)
        out = path_of(tmp_path / "x", target, f"to_{target}")
        options: dict[str, Any] = {"dtype": stated(source, dtype), "eos_token_id": EOS}
        if max(flat, default=0) > largest_id(target, dtype):
            with pytest.raises(ValueError, match="does not fit"):
                fastpack.convert(path, out, format=target, source_format=source, **options)
            assert not out.exists()
            continue
        result = fastpack.convert(path, out, format=target, source_format=source, **options)
        assert result.n_tokens == len(flat)
        kept = documents if row.stores_empty else [document for document in documents if document]
        assert (result.n_documents, result.n_empty_dropped) == (len(kept), len(documents) - len(kept))
        if target == "bin" and not flat:
            continue
        written = Path(result.output)
        options = {"format": target, "dtype": stated(target, result.dtype)}
        with fastpack.open_tokens(written, **options) as tokens:
            assert [token for segment in tokens.segments() for token in segment.open().tolist()] == flat
            assert tokens.n_documents == (len(kept) if row.stores_documents else None)
        if row.stores_documents or ended:
            assert read_tokens(written, **options, eos_token_id=EOS) == kept
        if len(kept) == len(documents) and (row.stores_documents or ended):
            digests.add(result.digest)
    assert len(digests) <= 1
