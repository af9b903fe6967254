"""OLMo-core's reader on our files, and our reader on those of its writers."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from foreign_documents import BOTH, EOS, Documents, OurFile, flat, read

pytest.importorskip("olmo_core")

from olmo_core.data.utils import iter_document_indices, load_array_slice, memmap_to_write, write_document_indices


@pytest.mark.parametrize("by", ["side file", "eos"])
def test_it_reads_our_documents(write: Callable[[str, str], OurFile], by: str) -> None:
    ours = write("olmo", "corpus.npy")
    eos = {"eos_token_id": ours.documents[0][-1], "dtype": ours.dtype} if by == "eos" else {}
    places = list(iter_document_indices(ours.path, **eos))
    assert [load_array_slice(ours.path, a, b, ours.dtype).tolist() for a, b in places] == ours.documents


@pytest.mark.parametrize(("documents", "size"), BOTH)
def test_we_read_the_files_of_its_writers(tmp_path: Path, documents: Documents, size: int) -> None:
    path, tokens = tmp_path / "theirs.npy", flat(documents)
    dtype = np.uint16 if size == 2 else np.uint32
    with memmap_to_write(path, shape=(len(tokens),), dtype=dtype) as array:
        array[:] = tokens
    assert read(path, dtype=np.dtype(dtype).name, eos_token_id=EOS) == documents
    assert write_document_indices(path, dtype=dtype, eos_token_id=EOS).exists()
    assert read(path, dtype=np.dtype(dtype).name) == documents
